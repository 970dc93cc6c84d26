//! Images through the FUSE server: as root, and without it in a user namespace.
//!
//! Everything here is undone within a minute: each mount has a watchdog that aborts it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brisk_image::Image;
use brisk_mount::{FuseConnection, ServeOptions, Served, ServedCounts, mount_data, serve};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

mod fixture;
use fixture::Fixture;

/// How long a mount may be there.
const PATIENCE: Duration = Duration::from_secs(50);

/// A mounted connection without a server, unmounted and aborted at the end or when it takes too
/// long.
struct Connected {
    dir: PathBuf,
    connection: Arc<FuseConnection>,
    done: Option<Sender<()>>,
    watchdog: Option<JoinHandle<bool>>,
}

impl Connected {
    fn new(dir: PathBuf, options: &ServeOptions) -> Self {
        let channel = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .expect("these tests need /dev/fuse");
        let data = CString::new(mount_data(channel.as_fd(), 0, 0)).expect("no NUL");
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount("brisk", &dir, "fuse.brisk", flags, data.as_c_str()).expect("root may mount");
        let connection = FuseConnection::establish(channel, options).expect("INIT is queued");
        let (done, is_done) = channel_of();
        let at = dir.clone();
        let watchdog = thread::spawn(move || {
            let late = is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if late {
                // FORCE aborts the connection even if the unmount itself fails.
                unmount(&at, UnmountFlags::FORCE | UnmountFlags::DETACH).expect("it is mounted");
            }
            late
        });
        Self {
            dir,
            connection: Arc::new(connection),
            done: Some(done),
            watchdog: Some(watchdog),
        }
    }
}

fn channel_of() -> (Sender<()>, Receiver<()>) {
    channel()
}

impl Drop for Connected {
    fn drop(&mut self) {
        drop(self.done.take());
        let watchdog = self.watchdog.take().expect("dropped once");
        let late = watchdog.join().expect("the watchdog does not panic");
        if !late {
            // A test that ended the connection itself has nothing left to unmount.
            let gone = unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
            assert!(
                gone.is_ok() || gone == Err(rustix::io::Errno::INVAL),
                "{gone:?}"
            );
        }
        assert!(
            !late || thread::panicking(),
            "it took more than {PATIENCE:?}"
        );
    }
}

/// A mounted image that this process serves.
struct Mounted {
    server: Option<JoinHandle<brisk_mount::Result<()>>>,
    served: Arc<Served>,
    connected: Option<Connected>,
}

impl Mounted {
    fn new(dir: PathBuf, image: Image, options: ServeOptions) -> Self {
        let connected = Connected::new(dir, &options);
        let connection = connected.connection.clone();
        let served = options.served.clone();
        let server = thread::spawn(move || serve(&connection, &image, &options));
        Self {
            server: Some(server),
            served,
            connected: Some(connected),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn dir(&self) -> &Path {
        &self.connected.as_ref().expect("not dropped").dir
    }

    fn counts(&self) -> ServedCounts {
        self.served.counts()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.connected.take());
        let server = self.server.take().expect("dropped once");
        let result = server.join().expect("the server does not panic");
        if !thread::panicking() {
            result.expect("an unmount is the regular end");
        }
    }
}

/// The image of the fixture's tree, served.
fn mounted(fixture: &Fixture, name: &str, mksquashfs: &[&str]) -> Mounted {
    let image = fixture.image(&format!("{name}.img"), mksquashfs);
    let image = Image::open(image).expect("mksquashfs made it");
    Mounted::new(fixture.empty_dir(name), image, ServeOptions::default())
}

#[test]
fn contents_listings_and_links_are_those_of_the_tree() {
    let fixture = Fixture::new();
    symlink("sub/inside", fixture.path("tree/link")).expect("the tree can be made");
    let mount = mounted(&fixture, "at", &[]);
    fixture.assert_same(mount.dir());
    assert_eq!(listing(mount.dir()), listing(&fixture.path("tree")));
    let target = fs::read_link(mount.path("link")).expect("it is a link");
    assert_eq!(target, Path::new("sub/inside"));
    assert_eq!(
        fs::read(mount.path("link")).expect("it leads on"),
        b"from the image"
    );
}

#[test]
fn nothing_is_asked_twice() {
    let fixture = Fixture::new();
    let mount = mounted(&fixture, "at", &[]);
    let visit = || {
        listing(mount.dir());
        fixture.assert_same(mount.dir());
        for absent in ["none", "sub/none", "sub/none"] {
            let error = fs::metadata(mount.path(absent)).expect_err("it is absent");
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    };
    visit();
    let first = mount.counts();
    visit();
    assert_eq!(mount.counts(), first);
    // One of each kind, to hear that none is needed.
    assert_eq!(first.opens, 2);
}

/// A server in a process of its own, on a connection that this process keeps.
fn server(connected: &Connected, image: &Path) -> Child {
    let channel = |i: usize| {
        let channel = &connected.connection.channels()[i];
        Stdio::from(channel.try_clone().expect("a descriptor is free"))
    };
    Command::new(example())
        .args(["--serve".as_ref(), image.as_os_str()])
        .arg(connected.connection.agreed().to_string())
        .stdin(channel(0))
        .stdout(channel(1))
        .spawn()
        .expect("the example is built with the tests")
}

/// The program in `examples/fuse.rs`.
fn example() -> PathBuf {
    fixture::runner().with_file_name("fuse")
}

#[test]
fn readers_get_their_bytes_though_the_server_is_killed_twenty_times() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let connected = Connected::new(fixture.empty_dir("at"), &ServeOptions::default());
    assert!(connected.connection.can_resend(), "Linux 6.9 is needed");
    let mut child = server(&connected, &image);
    let end = AtomicBool::new(false);
    let read = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|i| {
                let (fixture, dir, end) = (&fixture, &connected.dir, &end);
                scope.spawn(move || read_on(fixture, dir, i, end))
            })
            .collect();
        for round in 0..20 {
            // Now and then in the middle of its start.
            thread::sleep(Duration::from_millis(round * 7 % 40));
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            child = server(&connected, &image);
            connected.connection.resend().expect("the kernel can");
        }
        end.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("all bytes were right"))
            .sum::<u64>()
    });
    assert!(read > 0);
    unmount(&connected.dir, UnmountFlags::empty()).expect("nobody uses it");
    let status = child.wait().expect("it is ours");
    assert!(status.success(), "{status}");
}

/// Reads files that the kernel has forgotten again, and looks up names it never heard of, until
/// `end`.
fn read_on(fixture: &Fixture, dir: &Path, reader: u64, end: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !end.load(Ordering::Relaxed) {
        fixture.assert_same(dir);
        for name in ["noise", "text"] {
            let file = fs::File::open(dir.join(name)).expect("it is there");
            fadvise(&file, 0, None, Advice::DontNeed).expect("advice is free");
        }
        let absent = dir.join(format!("sub/none-{reader}-{rounds}"));
        assert!(!absent.try_exists().expect("it can be looked up"));
        rounds += 1;
    }
    rounds
}

/// Every path below `dir`, with its metadata.
fn listing(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).expect("it was listed");
            assert_eq!(entry.file_type().expect("known"), meta.file_type());
            assert_eq!(entry.metadata().expect("it was listed").ino(), meta.ino());
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let said = format!(
                "{:o} {size} {}:{} x{} @{} {:x}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.mtime(),
                meta.rdev()
            );
            found.insert(path.strip_prefix(dir).expect("below").to_owned(), said);
            if meta.is_dir() {
                left.push(path);
            }
        }
    }
    found
}
