//! Disks that fail: real errors of block devices, on reading and on writing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_cache::{About, Cache, CacheOptions, Durability};
use rustix::fs::Advice;

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {text}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A mounted image. Its disk fails where the image was cut.
struct Disk {
    image: PathBuf,
    device: String,
    at: PathBuf,
}

impl Disk {
    /// `direct`: past the page cache of the image, so that a read behind its end fails.
    fn mount(image: PathBuf, at: PathBuf, direct: bool) -> Self {
        let direct_io = if direct {
            "--direct-io=on"
        } else {
            "--direct-io=off"
        };
        let device = run("losetup", &["--find", "--show", direct_io, text(&image)]);
        fs::create_dir(&at).unwrap();
        let disk = Self { image, device, at };
        let name = disk.device.strip_prefix("/dev/").unwrap();
        let is_direct = fs::read_to_string(format!("/sys/block/{name}/loop/dio")).unwrap();
        assert_eq!(
            is_direct.trim() == "1",
            direct,
            "the filesystem of target/ has no direct reads"
        );
        run("mount", &[&disk.device, text(&disk.at)]);
        disk
    }

    fn cut(&self, len: u64) {
        let image = OpenOptions::new().write(true).open(&self.image).unwrap();
        image.set_len(len).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.at).status().ok();
        Command::new("losetup")
            .arg("-d")
            .arg(&self.device)
            .status()
            .ok();
    }
}

/// Lets the kernel forget the pages of these files.
fn forget(directory: &Path, wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if wanted(text(&path)) {
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}

fn value(n: u32) -> Vec<u8> {
    // Some have a file of their own.
    let len = if n % 10 == 9 { 400_000 } else { 90_000 };
    (0..len)
        .map(|at: u32| (at.wrapping_mul(3) ^ n) as u8)
        .collect()
}

fn fill(directory: &Path, durability: Durability) -> Cache {
    let options = CacheOptions::new().limit(48 << 20).segment_len(1 << 20);
    let cache = Cache::open(directory, options.durability(durability)).unwrap();
    for n in 0..100u32 {
        cache
            .insert(&n.to_le_bytes(), &value(n), About::default())
            .unwrap();
    }
    cache
}

/// Returns how many values are found. Each is right.
fn count(cache: &Cache) -> usize {
    let found = |n: &u32| {
        let Some(hit) = cache.get(&n.to_le_bytes()).unwrap() else {
            return false;
        };
        match hit.bytes() {
            Ok(bytes) => {
                assert!(bytes == value(*n), "{n}");
                true
            }
            // The head of a long value was read, and the rest not.
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{e}");
                false
            }
        }
    };
    (0..100).filter(found).count()
}

#[test]
fn pages_that_cannot_be_read_are_misses() {
    brisk_io::guard_mappings().unwrap();
    let home = home();
    let image = home.path().join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    run(
        "mkfs.ext4",
        &[
            "-q",
            "-b",
            "4096",
            "-m",
            "0",
            "-O",
            "^has_journal",
            text(&image),
        ],
    );
    let disk = Disk::mount(image, home.path().join("at"), true);
    let directory = disk.at.join("cache");
    drop(fill(&directory, Durability::Durable));
    let options = CacheOptions::new().limit(48 << 20).segment_len(1 << 20);
    // SAFETY: nobody changes what was published. The disk fails.
    let mapped = unsafe { Cache::open_mapped(&directory, options.clone()) }.unwrap();
    let copied = Cache::open(&directory, options.clone()).unwrap();
    forget(&directory, |path| {
        path.ends_with(".segment") || path.ends_with(".value")
    });
    let whole = fs::metadata(&disk.image).unwrap().len();
    disk.cut(12 << 20);
    let found = [&mapped, &copied].map(count);
    assert!(
        found.iter().all(|&found| found < 95),
        "{found:?}: the disk did not fail"
    );
    assert!(copied.counts().damaged > 5, "{:?}", copied.counts());
    // Who cannot read a value fetches it. What is there cannot be read as a whole, or is right.
    let fetch = || io::Result::Ok(b"fetched".to_vec());
    for n in 0..100u32 {
        let hit = mapped.get_or_insert_with(&n.to_le_bytes(), About::default(), fetch);
        let hit = hit.unwrap();
        let right = |bytes: &[u8]| bytes == b"fetched" || bytes == value(n);
        assert!(hit.bytes().map_or(true, right), "{n}");
    }
    disk.cut(whole);
}

#[test]
fn where_files_are_read_an_error_of_the_disk_is_a_miss() {
    let home = home();
    let (tree, image) = (home.path().join("tree"), home.path().join("image"));
    drop(fill(&tree, Durability::Relaxed));
    run(
        "mksquashfs",
        &[
            text(&tree),
            text(&image),
            "-noI",
            "-noD",
            "-noF",
            "-no-fragments",
            "-quiet",
            "-no-progress",
        ],
    );
    let disk = Disk::mount(image, home.path().join("at"), true);
    let options = CacheOptions::new().limit(48 << 20).segment_len(1 << 20);
    let cache = Cache::open(&disk.at, options).unwrap();
    assert!(!cache.stat().unwrap().mapped);
    // The kernel has what says where files are, and the index.
    for entry in fs::read_dir(&disk.at).unwrap() {
        File::open(entry.unwrap().path()).unwrap();
    }
    fs::read(disk.at.join("index")).unwrap();
    disk.cut(4 << 20);
    let found = count(&cache);
    assert!(found < 90, "{found}: the disk did not fail");
    assert_eq!(cache.counts().damaged, 100 - found as u64);
    let fetch = || io::Result::Ok(b"fetched".to_vec());
    for n in 0..100u32 {
        let hit = cache
            .get_or_insert_with(&n.to_le_bytes(), About::default(), fetch)
            .unwrap();
        assert!(hit.bytes().unwrap() == b"fetched" || hit.bytes().unwrap() == value(n));
    }
}

#[test]
fn a_disk_that_cannot_be_written_fails_the_insertion_and_keeps_what_was_promised() {
    let home = home();
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    // The image has more room than the memory that it is in.
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=12m", "tmpfs", text(&small)],
    );
    struct Mount<'a>(&'a Path);
    impl Drop for Mount<'_> {
        fn drop(&mut self) {
            Command::new("umount").arg("-l").arg(self.0).status().ok();
        }
    }
    let _mount = Mount(&small);
    let image = small.join("image");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    run(
        "mkfs.ext4",
        &[
            "-q",
            "-b",
            "4096",
            "-m",
            "0",
            "-O",
            "^has_journal",
            "-E",
            "nodiscard",
            text(&image),
        ],
    );
    let disk = Disk::mount(image, home.path().join("at"), false);
    let directory = disk.at.join("cache");
    let options = CacheOptions::new()
        .limit(48 << 20)
        .segment_len(1 << 20)
        .durability(Durability::Durable);
    let cache = Cache::open(&directory, options.clone()).unwrap();
    let insert = |n: u32| {
        if !n.is_multiple_of(3) {
            return cache.insert(&n.to_le_bytes(), &value(n), About::default());
        }
        let mut pending = cache.pending(None)?;
        for part in value(n).chunks(30_000) {
            pending.write(part)?;
        }
        pending.finish(&n.to_le_bytes(), About::default())
    };
    let mut promised = Vec::new();
    let mut failed = 0;
    for n in 0..150 {
        match insert(n) {
            Ok(()) => promised.push(n),
            Err(e) => {
                let text = e.to_string();
                assert!(
                    text.contains("os error 5") || text.contains("os error 28"),
                    "{text}"
                );
                failed += 1;
            }
        }
    }
    assert!(
        promised.len() > 20 && failed > 5,
        "{} are stored",
        promised.len()
    );
    let check = |cache: &Cache, when: &str| {
        for n in &promised {
            let hit = cache.get(&n.to_le_bytes()).unwrap();
            let hit = hit.unwrap_or_else(|| panic!("{when}: {n} is lost"));
            assert!(hit.bytes().unwrap() == value(*n), "{when}: {n}");
        }
    };
    check(&cache, "after the errors");
    // With room again, the same handle goes on, and all that was promised is on the disk.
    run("mount", &["-o", "remount,size=100m", text(&small)]);
    for n in 200..220u32 {
        insert(n).unwrap();
    }
    forget(&directory, |path| !path.ends_with(".tag"));
    let fresh = Cache::open(&directory, options.clone()).unwrap();
    check(&fresh, "from the disk");
    for n in 200..220u32 {
        assert!(fresh.get(&n.to_le_bytes()).unwrap().is_some());
    }
}
