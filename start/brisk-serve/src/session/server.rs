//! The process that answers the kernel for one image.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::{fs, io};

use brisk_image::Image;
use brisk_launch::sys::process::start_child;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::gettid;

use super::image_source::ImageSource;
use super::log::say;
use super::message::{FETCHER, JOINED, receive, send, send_now};
use super::process_end::watch;
use super::recorded_launch::RecordedLaunch;
use crate::confinement::{Confinement, Files, Role, confine};
use crate::fuse::parked::Reconnect;
use crate::fuse::server::serve_image;
use crate::{FuseConnection, OperationTimes, Percentiles, ServeOptions};

/// `PIDFD_THREAD`, the flag of `pidfd_open` for a thread (Linux 6.9). It is the same bit as `O_EXCL`.
const PIDFD_THREAD: u32 = 0o200;

/// A server process, as its guardian sees it.
pub(super) struct Server {
    pub(super) pid: Pid,
    /// Readable when all its threads are gone.
    pub(super) process: OwnedFd,
    /// Readable when a thread is gone that never waits for an answer of the kernel. Other threads of a killed
    /// server can hang until another server answers a read. None until the server has named the thread, and
    /// if the kernel cannot watch a thread.
    pub(super) thread: Option<OwnedFd>,
    /// Our end of the socket.
    pub(super) socket: OwnedFd,
}

impl Server {
    /// Starts a server: a copy of the guardian, which runs `main` with its end of the socket.
    pub(super) fn start(main: impl FnOnce(OwnedFd) -> i32) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let pid = start_child(|| {
            ours = None;
            theirs.take().map_or(1, main)
        })?;
        let socket = ours.take().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Self {
            pid,
            process: watch(pid)?,
            thread: None,
            socket,
        })
    }

    /// Watches the thread that the server has named. False if it has no such thread: it was killed meanwhile, or it
    /// lies.
    pub(super) fn watch(&mut self, thread: &[u8]) -> bool {
        let id = str::from_utf8(thread).ok().and_then(|id| id.parse().ok());
        // The system's numbers are positive, and `Pid` has no others.
        let id = id.filter(|id: &i32| *id > 0).and_then(Pid::from_raw);
        let Some(id) = id.filter(|thread| !self.lacks_thread(*thread)) else {
            return false;
        };
        match pidfd_open(id, PidfdFlags::from_bits_retain(PIDFD_THREAD)) {
            Ok(thread) => self.thread = Some(thread),
            Err(Errno::SRCH) => return false,
            // The kernel cannot watch a thread, so only the whole process is watched.
            Err(_) => {}
        }
        true
    }

    /// Whether the system says that it has no such thread.
    fn lacks_thread(&self, thread: Pid) -> bool {
        let [pid, thread] = [self.pid, thread].map(Pid::as_raw_nonzero);
        let found = fs::metadata(format!("/proc/{pid}/task/{thread}"));
        found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

/// What a server process needs.
pub(super) struct ServerTask {
    pub(super) socket: OwnedFd,
    pub(super) connection: FuseConnection,
    pub(super) source: ImageSource,
    pub(super) options: ServeOptions,
    pub(super) launch: Option<RecordedLaunch>,
}

impl ServerTask {
    /// Serves until the connection ends, and returns the exit status. If the guardian dies, the watchdog ends the
    /// connection when the programs have ended.
    pub(super) fn run(self) -> i32 {
        let socket = Arc::new(self.socket);
        for (number, arriving) in self.options.arriving.iter().enumerate() {
            // The limits do not allow it later, so the guardian connects if this connection ends.
            arriving.connected(self.source.attach(number));
        }
        let (image, file) = match open(self.source) {
            Ok(opened) => opened,
            Err(why) => {
                say(&format!("a server could not read its image: {why}"));
                // If nobody listens any more, nobody needs to know.
                send(&*socket, &["failed", &why], &[]).ok();
                return 1;
            }
        };
        // Whoever waits for the mount need not wait for the limits: nothing is decoded before.
        if send(&*socket, &["opened"], &[]).is_err() {
            return 1;
        }
        let confinement = confine_server(&file, &self.options);
        drop(file);
        for (number, arriving) in self.options.arriving.iter().enumerate() {
            let guardian = Arc::clone(&socket);
            let number = number.to_string();
            arriving.reconnect_by(Reconnect(Box::new(move || {
                // Nobody else can do it.
                send_now(&*guardian, &[FETCHER, number.as_bytes()], &[]).ok();
            })));
        }
        let options = Arc::new(self.options);
        let launch = self.launch.map(Arc::new);
        if let Some(fill) = &options.fill {
            let guardian = Arc::clone(&socket);
            fill.keep_comparisons_by(Box::new(move |pair| {
                Ok(send(&*guardian, &["compared", pair], &[])?)
            }));
        }
        // Before any thread can notice that the launch is over.
        image.set_block_cache(options.first_block_cache());
        // The guardian must be able to hear of the liaison before any other thread can hang.
        let (introducing, introduced) = channel::<()>();
        let liaison = {
            let (socket, options) = (Arc::clone(&socket), Arc::clone(&options));
            let (image, launch) = (image.clone(), launch.clone());
            move || {
                let started = ["started".to_owned(), gettid().as_raw_nonzero().to_string()];
                let heard = send(&*socket, &started, &[]);
                drop(introducing);
                if heard.is_ok() {
                    answer_guardian(&socket, &options, &image, launch.as_deref(), confinement);
                }
                // Nobody uses the recording any more.
                image.set_block_cache(options.block_cache);
            }
        };
        if let Err(e) = thread::Builder::new().spawn(liaison) {
            say(&format!("a server could not start a thread: {e}"));
            return 1;
        }
        introduced.recv().ok();
        if let Err(e) = serve_image(&self.connection, &image, &options) {
            say(&format!("a server failed: {e}"));
            return 1;
        }
        self.connection.say_it_ended();
        // The session may have ended together with its launch.
        if let Some(launch) = launch {
            launch.hand_over(&socket, &options, &image);
        }
        // If nobody listens any more, nobody needs to know.
        if send(&*socket, &["ended"], &[]).is_err() {
            return 0;
        }
        0
    }
}

/// The image, and its file.
fn open(source: ImageSource) -> Result<(Image, OwnedFd), String> {
    let file = source.fd().try_clone_to_owned();
    let file = file.map_err(|e| format!("the image cannot be held: {e}"))?;
    Ok((source.open().map_err(|e| e.to_string())?, file))
}

/// `image` is the file of the image.
fn confine_server(image: &OwnedFd, options: &ServeOptions) -> Confinement {
    let mut files = Files {
        read: vec![image.as_fd()],
        write: None,
    };
    if let Some(fill) = &options.fill {
        files.read.extend(fill.files());
    }
    confine(Role::Server, &files)
}

/// Sends the guardian the counters when it asks, until it dies, and the recording when the launch is over. When the guardian
/// says that a run has joined, the fill looks whether its pages are still in memory.
fn answer_guardian(
    socket: &OwnedFd,
    options: &ServeOptions,
    image: &Image,
    launch: Option<&RecordedLaunch>,
    confinement: Confinement,
) {
    loop {
        if let Some(launch) = launch {
            launch.wait(socket, options, image);
        }
        let Ok(Some(message)) = receive(socket) else {
            return;
        };
        if message.verb() == FETCHER {
            let arriving = message
                .number()
                .and_then(|number| options.arriving.get(number));
            let stream = message.descriptors.into_iter().next().map(UnixStream::from);
            if let Some(arriving) = arriving {
                arriving.connected(stream);
            }
            continue;
        }
        if message.verb() == JOINED {
            if let Some(fill) = &options.fill {
                fill.look_again();
            }
            continue;
        }
        let counters = &options.counters;
        let (counts, times) = (counters.counts(), counters.times());
        let served = [
            ("requests", counts.requests),
            ("lookups", counts.lookups),
            ("reads", counts.reads),
            ("bytes_read", counts.bytes_read),
            ("bytes_stored", counts.bytes_stored),
            ("faults", counts.faults),
        ];
        let mut fields = vec!["counts".to_owned(), format!("confined={confinement}")];
        let fill = counts.fill;
        let filled = [
            ("fill_pack", fill.pack),
            ("fill_stored", fill.stored),
            ("fill_late", fill.late),
            ("fill_evicted", fill.evicted),
            ("fill_strayed", fill.strayed),
            ("fill_primed", fill.primed),
            ("fill_damaged", fill.damaged),
            ("fill_direct_bytes", fill.direct_bytes),
            ("fill_gave_up", fill.gave_up.into()),
            ("fill_first_us", fill.first),
            ("fill_last_us", fill.last),
            ("fill_over_us", fill.over),
            ("fill_looks", fill.looks),
            ("fill_refills", fill.refills),
            ("fill_refilled", fill.refilled),
        ];
        let filled = filled.into_iter().filter(|_| fill.pack > 0);
        let counts = served.into_iter().chain(filled);
        fields.extend(counts.map(|(name, count)| format!("count.{name}={count}")));
        fields.extend(times.iter().map(|operation| {
            let OperationTimes {
                name,
                answers,
                times: Percentiles { p50, p90, p99 },
            } = operation;
            format!("operation={name} {answers} {p50} {p90} {p99}")
        }));
        if send(socket, &fields, &[]).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_is_gone_is_told_from_one_that_is_watched() {
        let (ours, _theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("sockets");
        let pid = rustix::process::getpid();
        let mut server = Server {
            pid,
            process: pidfd_open(pid, PidfdFlags::empty()).expect("a process can be watched"),
            thread: None,
            socket: ours,
        };
        let ended = thread::spawn(gettid).join().expect("it ends");
        let ended = ended.as_raw_nonzero().to_string();
        for nobody in ["-1", "0", "", "99999999999", "1", &ended] {
            // A thread stays for a moment after it can be joined.
            let deadline = Instant::now() + Duration::from_secs(20);
            while server.watch(nobody.as_bytes()) {
                assert!(Instant::now() < deadline, "{nobody}");
            }
        }
        let (end, wait) = channel::<()>();
        let (tell, told) = channel();
        let other = thread::spawn(move || {
            tell.send(gettid()).expect("it is waited for");
            wait.recv().ok();
        });
        let id = told.recv().expect("it says its number");
        assert!(server.watch(id.as_raw_nonzero().to_string().as_bytes()));
        drop(end);
        other.join().expect("it ends");
    }
}
