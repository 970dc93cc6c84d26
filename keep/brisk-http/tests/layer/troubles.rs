//! A directory that fails. These tests mount filesystems, so they need root.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, RwLockWriteGuard};

use brisk_http::Options;
use http::Method;

use crate::origin::Asked;
use crate::setup::{FORKS, Setup, all, answer, home, open, read, small};

const FRESH: &[&str] = &["Cache-Control: max-age=60"];

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {text}");
}

/// A small filesystem, whose mount is undone also when its test fails. Meanwhile nobody else forks.
struct Disk {
    at: tempfile::TempDir,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Disk {
    fn new(bytes: u64) -> Self {
        let alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let at = home();
        let size = format!("size={bytes}");
        let path = at.path().to_str().unwrap();
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", path]);
        Self { at, _alone: alone }
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("filler")).unwrap();
        let mut full = None;
        for len in [65_536, 1] {
            full = (0..1 << 16).find_map(|_| io::Write::write_all(&mut file, &vec![1; len]).err());
        }
        assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount")
            .arg("-l")
            .arg(self.path())
            .status()
            .ok();
    }
}

type Told = Arc<Mutex<Vec<String>>>;

/// A layer that keeps up to 100,000 bytes of a body in memory, and what it tells.
fn telling(directory: &Path) -> (Setup, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    let cache = open(directory, small());
    let setup = Setup::over(home(), cache, Options::private(), |builder| {
        builder
            .memory(100_000)
            .on_trouble(move |e| tell.lock().unwrap().push(e.to_string()))
    });
    (setup, told)
}

/// Gets a body of bytes that are all alike, whole, whatever becomes of it.
async fn stream(setup: &mut Setup, byte: u8, len: usize) {
    let origin = |asked: Asked| asked.answer(200, FRESH, vec![byte; len]);
    let reload = &["Cache-Control: no-cache"];
    let got = setup.exchange(Method::GET, reload, origin).await;
    assert_eq!(got.status, 200);
    assert!(got.body == vec![byte; len]);
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_old_bodies_make_room_and_one_warning_is_given() {
    let disk = Disk::new(4 << 20);
    let (mut setup, told) = telling(&disk.path().join("cache"));
    setup.store(FRESH, "before").await;
    setup.later(60);
    disk.fill();
    // Five times what the cache has there.
    for number in 0..100 {
        stream(&mut setup, number, 50_000).await;
        assert!(setup.cached().await.unwrap().body == vec![number; 50_000]);
    }
    let counts = setup.layer.counts();
    assert_eq!((counts.unstored, counts.troubles), (0, 0), "{counts:?}");
    let before = setup.cached().await.unwrap().body;
    // One that is longer than all that the cache has, and one that is longer than the disk.
    for (unstored, len) in [(1, 2 << 20), (2, 8 << 20)] {
        stream(&mut setup, b'x', len).await;
        let counts = setup.layer.counts();
        assert_eq!(counts.unstored, unstored, "{len}");
        assert!(counts.troubles >= unstored, "{counts:?}");
    }
    {
        let told = told.lock().unwrap();
        assert!(
            told.len() == 1 && told[0].contains("No space left"),
            "{told:?}"
        );
    }
    // What was there is there.
    assert_eq!(setup.cached().await.unwrap().body, before);
    // With room again, all goes on.
    disk.free();
    for len in [50_000, 400_000] {
        stream(&mut setup, b'y', len).await;
        assert_eq!(setup.cached().await.unwrap().body, vec![b'y'; len]);
    }
    assert_eq!(setup.layer.counts().unstored, 2);
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_a_part_is_completed_from_the_origin() {
    let disk = Disk::new(4 << 20);
    let (mut setup, told) = telling(&disk.path().join("cache"));
    let whole: Vec<u8> = (0..2_000_000u32).map(|at| (at >> 4) as u8).collect();
    let lines = ["Cache-Control: max-age=60", "ETag: \"1\""];
    let [first, rest] =
        ["0-199999", "200000-1999999"].map(|range| format!("Content-Range: bytes {range}/2000000"));
    let first = [&lines[..], &[&*first]].concat();
    let part = whole[..200_000].to_vec();
    let origin = |asked: Asked| asked.answer(206, &first, part);
    let range = &["Range: bytes=0-199999"];
    setup.exchange(Method::GET, range, origin).await;
    disk.fill();
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    assert_eq!(asked.field("range"), Some("bytes=200000-"));
    let rest = [&lines[..], &[&*rest]].concat();
    asked.answer(206, &rest, whole[200_000..].to_vec());
    // It cannot be put together, so the whole is asked for.
    let asked = setup.origin.next().await;
    assert_eq!(asked.field("range"), None);
    asked.answer(200, &lines, whole.clone());
    assert!(read(client).await.body == whole);
    setup.idle().await;
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_its_directory_bodies_come_through() {
    let home = home();
    let directory = home.path().join("cache");
    let (mut setup, told) = telling(&directory);
    setup.store(FRESH, "before").await;
    setup.later(60);
    fs::remove_dir_all(&directory).unwrap();
    for len in [50_000, 400_000, 8 << 20] {
        stream(&mut setup, b'x', len).await;
    }
    let client = setup.send(Method::POST, &[]);
    setup.origin.next().await.answer(200, &[], "done");
    assert_eq!(read(client).await.text(), (200, "done"));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(setup.layer.counts().troubles > 0);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_written_hits_go_on_and_the_rest_comes_through() {
    let disk = Disk::new(16 << 20);
    let directory = disk.path().join("cache");
    let (mut setup, _) = telling(&directory);
    setup.store(FRESH, "before").await;
    drop(setup);
    run(
        "mount",
        &["-o", "remount,ro", disk.path().to_str().unwrap()],
    );
    let (mut setup, told) = telling(&directory);
    assert_eq!(read(setup.get(&[])).await.text(), (200, "before"));
    assert_eq!(
        (setup.origin.count(), setup.layer.counts().troubles),
        (0, 0)
    );
    for len in [50_000, 400_000] {
        stream(&mut setup, b'x', len).await;
    }
    assert_eq!(told.lock().unwrap().len(), 1);
    assert_eq!(read(setup.get(&[])).await.text(), (200, "before"));
    // Who left a body half read holds nobody up.
    let client = setup.get(&["Cache-Control: no-cache"]);
    let pipe = setup.origin.next().await.begin(200, FRESH);
    let mut response = answer(client).await;
    pipe.send("half");
    pipe.fail();
    let (bytes, error) = all(&mut response).await;
    assert!(bytes == b"half" && error.is_some());
}
