//! Disks that fail: real errors of block devices, on reading and on writing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
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

    /// Lets each request be of one page of the image, which is written as a whole or not at all.
    ///
    /// The loop driver reports a write as done of which only the first pages had room (seen in Linux 6.18).
    fn write_by_pages(&self) {
        let name = self.device.strip_prefix("/dev/").unwrap();
        fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4").unwrap();
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

/// Files whose names, places and pages the kernel has as long as this lives, whoever drops its caches.
#[derive(Default)]
struct InMemory(Vec<(File, Option<Locked>)>);

struct Locked {
    at: *mut libc::c_void,
    len: usize,
}

impl InMemory {
    /// The name and the place.
    fn keep_place(&mut self, path: &Path) {
        self.0.push((File::open(path).unwrap(), None));
    }

    /// The pages, too.
    fn keep_pages(&mut self, path: &Path) {
        let file = File::open(path).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        // SAFETY: a new mapping takes no memory that is in use, and nobody reads it.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let locked = Locked { at, len };
        // SAFETY: the range is that mapping.
        let result = unsafe { libc::mlock(at, len) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        self.0.push((file, Some(locked)));
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the range is a mapping that nobody else knows.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// Lets the kernel forget the pages of these files. It keeps those that are mapped.
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
    // Whether it is there is asked for by who fetches.
    File::create(tree.join("flights")).unwrap();
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
    // The kernel has what says where files are, and the index: an error of these is one of the look-up.
    let mut in_memory = InMemory::default();
    for entry in fs::read_dir(&disk.at).unwrap() {
        in_memory.keep_place(&entry.unwrap().path());
    }
    in_memory.keep_pages(&disk.at.join("index"));
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
    disk.write_by_pages();
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
    // What it has mapped, the kernel would not forget.
    drop(cache);
    forget(&directory, |path| !path.ends_with(".tag"));
    let fresh = Cache::open(&directory, options.clone()).unwrap();
    check(&fresh, "from the disk");
    for n in 200..220u32 {
        assert!(fresh.get(&n.to_le_bytes()).unwrap().is_some());
    }
}
