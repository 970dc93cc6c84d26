//! Requests for bytes that have not arrived yet.
//!
//! A thread that answers never waits for the network: it parks the request, and goes on with others. One thread hears what arrives,
//! and answers what was parked for it. If the program that waits is killed, its request is answered at once.

use std::fs;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::channel::{Channel, Request};
use crate::remote::{Arrival, Class, ParkingImage};

/// How many interrupted requests are remembered that are not parked. The kernel may say that a request is interrupted before it
/// is parked.
const EARLY: usize = 256;

/// How often to look whether a program that was interrupted is being killed.
const LOOK: Duration = Duration::from_millis(20);

/// How long nothing need be heard.
const QUIET: Duration = Duration::from_secs(1);

/// [`ArrivingSource::lost`]. Whoever brings it says so much earlier, if it lives.
const LOST: Duration = Duration::from_secs(90);

/// `SIGKILL` in a set of signals, as `/proc/PID/status` has it. The kernel adds it to each thread that a fatal signal ends.
const KILLED: u64 = 1 << 8;

/// A file that arrives, and the connection to whoever brings it.
#[derive(Debug)]
pub(crate) struct ArrivingSource {
    pub(crate) image: Arc<ParkingImage>,
    /// Whether it is a pack of its own. What does not come of it, the image has.
    pub(crate) is_pack: bool,
    /// Brings connections to [`ArrivingSource::connection`].
    connecting: Mutex<Sender<Option<UnixStream>>>,
    connected: Mutex<Receiver<Option<UnixStream>>>,
    /// Asks for another connection, when the first has ended.
    reconnect: Mutex<Option<Reconnect>>,
    /// How long nobody may bring anything before requests fail.
    lost: Duration,
}

/// Asks somebody for a connection, who gives it to [`ArrivingSource::connected`].
pub(crate) struct Reconnect(pub(crate) Box<dyn Fn() + Send>);

impl std::fmt::Debug for Reconnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reconnect")
    }
}

impl ArrivingSource {
    pub(crate) fn new(image: Arc<ParkingImage>, is_pack: bool) -> Self {
        let (sender, receiver) = channel();
        Self {
            image,
            is_pack,
            connecting: Mutex::new(sender),
            connected: Mutex::new(receiver),
            reconnect: Mutex::new(None),
            lost: LOST,
        }
    }

    /// There is a connection, or none could be had.
    pub(crate) fn connected(&self, stream: Option<UnixStream>) {
        // The receiver lives as long as this.
        lock(&self.connecting).send(stream).ok();
    }

    pub(crate) fn reconnect_by(&self, reconnect: Reconnect) {
        *lock(&self.reconnect) = Some(reconnect);
    }

    /// The next connection. None if there is none for a second. Another one than the first is made only if somebody `waits`.
    fn connection(&self, waits: bool) -> Option<UnixStream> {
        let connections = lock(&self.connected);
        if let Ok(Some(stream)) = connections.try_recv() {
            return Some(stream);
        }
        if let Some(reconnect) = lock(&self.reconnect).as_ref().filter(|_| waits) {
            (reconnect.0)();
        }
        // Not again at once, if nobody can be reached.
        match connections.recv_timeout(QUIET) {
            Ok(Some(stream)) => Some(stream),
            Ok(None) => {
                thread::sleep(QUIET / 10);
                None
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The requests that wait.
#[derive(Default)]
pub(super) struct Parked<'a> {
    waiting: Mutex<Waiting<'a>>,
}

#[derive(Default)]
struct Waiting<'a> {
    requests: Vec<ParkedRequest<'a>>,
    /// Interrupted requests that are not parked, the last ones.
    early: Vec<u64>,
    is_over: bool,
}

/// A request that waits for bytes.
pub(super) struct ParkedRequest<'a> {
    pub(super) channel: Channel<'a>,
    /// The request as the kernel sent it.
    pub(super) bytes: Vec<u8>,
    unique: u64,
    /// The thread that asks.
    pid: u32,
    absent: Range<u64>,
    /// Whether a signal has come for the thread. Only a fatal one ends the wait: no program expects a read of a file to be
    /// interrupted.
    is_interrupted: bool,
}

impl<'a> Parked<'a> {
    /// Parks a request until `absent` bytes are there.
    pub(super) fn park(
        &self,
        image: &ParkingImage,
        channel: Channel<'a>,
        request: &Request<'_>,
        bytes: &[u8],
        absent: Range<u64>,
    ) {
        let unique = request.header.unique;
        {
            let mut waiting = lock(&self.waiting);
            let is_interrupted = waiting.early.contains(&unique);
            waiting.requests.push(ParkedRequest {
                channel,
                bytes: bytes.to_vec(),
                unique,
                pid: request.header.pid,
                absent: absent.clone(),
                is_interrupted,
            });
        }
        // Behind it, so that what arrives meanwhile finds the request.
        image.want(&absent, Class::Miss);
    }

    /// The kernel says that a request is interrupted. Returns it if its program is being killed.
    pub(super) fn interrupt(&self, unique: u64) -> Option<ParkedRequest<'a>> {
        let mut waiting = lock(&self.waiting);
        let Some(at) = waiting
            .requests
            .iter()
            .position(|request| request.unique == unique)
        else {
            if waiting.early.len() >= EARLY {
                waiting.early.remove(0);
            }
            waiting.early.push(unique);
            return None;
        };
        waiting.requests[at].is_interrupted = true;
        match is_killed(waiting.requests[at].pid) {
            true => Some(waiting.requests.swap_remove(at)),
            false => None,
        }
    }

    /// Those of programs that were interrupted, and are being killed now.
    fn killed(&self) -> Vec<ParkedRequest<'a>> {
        self.take(|request| request.is_interrupted && is_killed(request.pid))
    }

    fn has_interrupted(&self) -> bool {
        lock(&self.waiting)
            .requests
            .iter()
            .any(|request| request.is_interrupted)
    }

    fn is_empty(&self) -> bool {
        lock(&self.waiting).requests.is_empty()
    }

    fn take(&self, is_due: impl Fn(&ParkedRequest<'a>) -> bool) -> Vec<ParkedRequest<'a>> {
        lock(&self.waiting)
            .requests
            .extract_if(.., |request| is_due(request))
            .collect()
    }

    /// Wants everything again, over a new connection.
    fn want_again(&self, image: &ParkingImage) {
        for request in &lock(&self.waiting).requests {
            image.want(&request.absent, Class::Miss);
        }
    }

    /// Makes [`Parked::hear`] end.
    pub(super) fn end(&self, source: &ArrivingSource) {
        lock(&self.waiting).is_over = true;
        source.connected(None);
        source.image.wake_up();
    }

    fn is_over(&self) -> bool {
        lock(&self.waiting).is_over
    }

    /// Answers what was parked, until [`Parked::end`]: `again` with requests whose bytes are there, `fail` with those that fail, and
    /// the reason if it is one of the network.
    pub(super) fn hear(
        &self,
        source: &ArrivingSource,
        again: &dyn Fn(ParkedRequest<'a>),
        fail: &dyn Fn(ParkedRequest<'a>, Errno, Option<&str>),
    ) {
        let image = &*source.image;
        let mut heard = Instant::now();
        while !self.is_over() {
            let waits = !self.is_empty() || image.has_asks();
            if !waits {
                heard = Instant::now();
            }
            let connection = source.connection(waits);
            let arrivals = connection.map(|stream| image.arrivals(stream));
            let Some(Ok(mut arrivals)) = arrivals else {
                self.fail_killed(fail);
                if heard.elapsed() > source.lost {
                    for request in self.take(|_| true) {
                        fail(
                            request,
                            Errno::IO,
                            Some(
                                "no brisk-fetch runs, and none can be started; this log may say why",
                            ),
                        );
                    }
                }
                continue;
            };
            self.want_again(image);
            loop {
                let at_most = if self.has_interrupted() { LOOK } else { QUIET };
                let arrival = arrivals.next(at_most);
                heard = Instant::now();
                if self.is_over() {
                    return;
                }
                self.fail_killed(fail);
                match arrival {
                    Arrival::Failed(bytes, why) => {
                        let of = |request: &ParkedRequest<'_>| {
                            request.absent.start < bytes.end && bytes.start < request.absent.end
                        };
                        for request in self.take(of) {
                            fail(request, Errno::IO, Some(&why));
                        }
                    }
                    Arrival::Lost => break,
                    // Whoever brings it may end. If bytes are wrong, another is asked for.
                    Arrival::Nothing if self.is_empty() && image.needs_nobody() => break,
                    Arrival::Here | Arrival::Nothing => {}
                }
                // An error of the map is met again when the request is answered.
                let is_there = |request: &ParkedRequest<'_>| {
                    !matches!(image.arriving().first_absent(&request.absent), Ok(Some(_)))
                };
                self.take(is_there).into_iter().for_each(again);
            }
        }
    }

    fn fail_killed(&self, fail: &dyn Fn(ParkedRequest<'a>, Errno, Option<&str>)) {
        for request in self.killed() {
            fail(request, Errno::INTR, None);
        }
    }
}

/// Whether a thread is being killed, or is gone.
fn is_killed(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    is_killed_by(&status)
}

/// Whether `/proc/PID/status` says that a fatal signal waits for the thread.
fn is_killed_by(status: &str) -> bool {
    let sets = status.lines().filter_map(|line| {
        let (name, set) = line.split_once(':')?;
        let is_pending = name == "SigPnd" || name == "ShdPnd";
        is_pending
            .then(|| u64::from_str_radix(set.trim(), 16).ok())
            .flatten()
    });
    sets.fold(0, |all, set| all | set) & KILLED != 0
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicU32, Ordering};

    use brisk_remote::{About, Arriving, RemoteCache};
    use zerocopy::FromZeros;

    use super::super::channel::Device;
    use super::super::wire::InHeader;
    use super::*;

    struct NoDevice;

    impl Device for NoDevice {
        fn read(&self, _: &mut [u8]) -> Result<usize, Errno> {
            Err(Errno::NODEV)
        }

        fn write(&self, _: &[IoSlice<'_>]) -> Result<(), Errno> {
            Err(Errno::NODEV)
        }
    }

    /// What a reader gets after three times at which nobody could be reached. `lost`: how long that may be.
    fn answer_without_fetcher(lost: Duration) -> Option<(Errno, String)> {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = RemoteCache::at(&dir.path().join("remote")).expect("made");
        let about = About {
            len: 8192,
            ..About::default()
        };
        let entry = cache.make("a", &about).expect("room");
        let arriving = Arc::new(Arriving::open(&entry).expect("made"));
        let image = Arc::new(ParkingImage::new(arriving).expect("a pipe"));
        let mut source = ArrivingSource::new(Arc::clone(&image), false);
        source.lost = lost;
        let source = Arc::new(source);
        let parked = Arc::new(Parked::default());
        let header = InHeader {
            unique: 7,
            pid: std::process::id(),
            ..InHeader::new_zeroed()
        };
        let request = Request { header, body: &[] };
        parked.park(&image, Channel(&NoDevice), &request, &[], 0..4096);
        let (rounds, connecting) = (AtomicU32::new(0), lock(&source.connecting).clone());
        let (ending, ended) = (Arc::clone(&parked), Arc::downgrade(&source));
        source.reconnect_by(Reconnect(Box::new(move || {
            if rounds.fetch_add(1, Ordering::Relaxed) == 2 {
                ending.end(&ended.upgrade().expect("it asks"));
            }
            connecting.send(None).expect("it listens");
        })));
        let answer = Mutex::new(None);
        let again = |_: ParkedRequest<'_>| panic!("nothing has come");
        let fail = |request: ParkedRequest<'_>, errno, why: Option<&str>| {
            assert_eq!(request.unique, 7);
            *lock(&answer) = Some((errno, why.unwrap_or_default().to_owned()));
            parked.end(&source);
        };
        parked.hear(&source, &again, &fail);
        answer.into_inner().expect("nobody panics")
    }

    #[test]
    fn a_read_fails_when_no_fetcher_can_be_started_for_long() {
        assert_eq!(answer_without_fetcher(Duration::from_secs(3600)), None);
        let (errno, why) = answer_without_fetcher(Duration::ZERO).expect("it fails");
        assert_eq!(errno, Errno::IO);
        assert!(why.contains("none can be started"), "{why}");
    }

    #[test]
    fn only_a_fatal_signal_ends_a_wait() {
        let status = |own, shared| {
            format!(
                "Name:\ta\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\tffff\n"
            )
        };
        assert!(!is_killed_by(&status(0, 0)));
        // SIGALRM, SIGCHLD
        assert!(!is_killed_by(&status(1 << 13, 1 << 16)));
        assert!(is_killed_by(&status(KILLED, 0)));
        assert!(is_killed_by(&status(0, KILLED | 1)));
        assert!(!is_killed(std::process::id()));
        assert!(is_killed(u32::MAX));
    }
}
