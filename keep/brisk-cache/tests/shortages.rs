//! Full disks, too few descriptors, files that are cut, and directories that can only be read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use brisk_cache::{About, Cache, CacheOptions, Durability};

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A forked child has what its parent had open, until it is another program: what was removed frees no room before. So nobody
/// forks while a disk is filled.
static FORKS: RwLock<()> = RwLock::new(());

/// Held by who forks, until the child is another program or has ended.
fn forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by who fills a disk.
fn nobody_forks() -> RwLockWriteGuard<'static, ()> {
    FORKS.write().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: &str, arguments: &[&str]) {
    let _forks = forks();
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {text}");
}

/// A mount that is undone, also when its test fails.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _forks = forks();
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A disk of 8 MiB in a file.
fn small_disk(home: &Path) -> PathBuf {
    let (image, at) = (home.join("image"), home.join("at"));
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    fs::create_dir(&at).unwrap();
    run(
        "mkfs.ext4",
        &["-q", "-m", "0", "-O", "^has_journal", text(&image)],
    );
    run("mount", &["-o", "loop", text(&image), text(&at)]);
    at
}

#[test]
fn on_a_full_disk_the_oldest_entries_make_room() {
    // With short segments, and with one that would be longer than the disk.
    for options in [
        CacheOptions::new().limit(64 << 20).segment_len(1 << 20),
        CacheOptions::new().limit(1 << 30),
    ] {
        for durability in [Durability::Relaxed, Durability::Durable] {
            let home = home();
            let at = small_disk(home.path());
            let _mount = Mount(&at);
            let _alone = nobody_forks();
            let directory = at.join("cache");
            let cache = Cache::open(&directory, options.clone().durability(durability)).unwrap();
            let value = |n: u32, len: u32| -> Vec<u8> {
                (0..len).map(|at| (at.wrapping_mul(3) ^ n) as u8).collect()
            };
            let insert = |n: u32, value: &[u8]| {
                let key = n.to_le_bytes();
                match n % 3 {
                    0 => cache.insert(&key, value, About::default()),
                    // While it arrives, of a known length and of none.
                    part => {
                        let len = value.len() as u64;
                        let mut pending = cache.pending((part == 1).then_some(len))?;
                        value
                            .chunks(100_000)
                            .try_for_each(|piece| pending.write(piece))?;
                        pending.finish(&key, About::default())
                    }
                }
            };
            for n in 0..700u32 {
                // Some have files of their own.
                let value = value(n, if n % 50 < 3 { 2_000_000 } else { 20_000 });
                insert(n, &value).unwrap();
                let hit = cache.get(&n.to_le_bytes()).unwrap().expect("it is stored");
                assert!(hit.bytes().unwrap() == value, "{n}");
            }
            assert!(cache.get(&0u32.to_le_bytes()).unwrap().is_none());
            let stat = cache.stat().unwrap();
            assert!(
                stat.counts.evicted > 300 && stat.bytes < 8 << 20,
                "{stat:?}"
            );
            // Others take what is left. The cache goes on with what it has.
            let mut filler = File::create(at.join("filler")).unwrap();
            while io::Write::write_all(&mut filler, &[7; 4_096]).is_ok() {}
            let before = cache.stat().unwrap().bytes;
            for n in 700..900u32 {
                if n % 50 >= 3 {
                    let value = value(n, 20_000);
                    insert(n, &value).unwrap();
                    assert!(
                        cache
                            .get(&n.to_le_bytes())
                            .unwrap()
                            .unwrap()
                            .bytes()
                            .unwrap()
                            == value
                    );
                }
            }
            assert!(cache.stat().unwrap().bytes <= before);
        }
    }
}

#[test]
fn what_no_eviction_makes_room_for_says_what_it_wants_and_evicts_nothing() {
    let home = home();
    let at = small_disk(home.path());
    let _mount = Mount(&at);
    let _alone = nobody_forks();
    let directory = at.join("cache");
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    let cache = Cache::open(&directory, options).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let mut filler = File::create(at.join("filler")).unwrap();
    while io::Write::write_all(&mut filler, &[7; 4_096]).is_ok() {}
    let large = vec![7; 3 << 20];
    let e = cache
        .insert(b"large", &large, About::default())
        .unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::StorageFull);
    // The value, its checks, what comes before it, and the rest of a page.
    let wanted = (3 << 20) + 65_536;
    assert_eq!(
        e.to_string(),
        format!(
            "cache file {}/.: No space left on device (os error 28); {wanted} bytes are wanted, and removing the oldest \
             entries has given 0; make room on this disk, or put the cache on another one",
            directory.display()
        )
    );
    // What is fetched is returned all the same.
    let fetch = || io::Result::Ok(large.clone());
    let hit = cache
        .get_or_insert_with(b"large", About::default(), fetch)
        .unwrap();
    assert!(hit.bytes().unwrap() == large);
    assert_eq!((cache.counts().unstored, cache.counts().evicted), (1, 0));
    let hit = cache.get(b"key").unwrap().unwrap();
    assert_eq!(hit.bytes().unwrap(), b"value");
    // With room again, it goes on.
    drop(filler);
    fs::remove_file(at.join("filler")).unwrap();
    cache.insert(b"large", &large, About::default()).unwrap();
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_fills_it_and_giving_up_frees_it() {
    let home = home();
    let (image, at) = (home.path().join("image"), home.path().join("at"));
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    fs::create_dir(&at).unwrap();
    run("mkfs.ext4", &["-q", "-m", "0", text(&image)]);
    run("mount", &["-o", "loop", text(&image), text(&at)]);
    let _mount = Mount(&at);
    let _alone = nobody_forks();
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    // SAFETY: only brisk writes to the directory.
    let cache = unsafe { Cache::open_mapped(&at.join("cache"), options) }.unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    // Known before: nothing has to arrive.
    let e = cache.pending(Some(12 << 20)).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::StorageFull, "{e}");
    let piece: Vec<u8> = (0..50_000u32)
        .map(|n| (n.wrapping_mul(n) >> 4) as u8)
        .collect();
    for _ in 0..3 {
        let mut pending = cache.pending(None).unwrap();
        let reader = pending.reader();
        let mut pieces = 0;
        let e = loop {
            match pending.write(&piece) {
                Ok(()) => pieces += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(e.kind(), io::ErrorKind::StorageFull, "{e}");
        assert!((50..168).contains(&pieces), "{pieces}");
        assert_eq!(pending.len(), pieces * 50_000);
        // Who reads along is told no wrong byte.
        let mut read = vec![0; 50_000];
        for n in 0..pieces {
            assert_eq!(reader.read_at(&mut read, n * 50_000).unwrap(), 50_000);
            assert!(read == piece);
        }
        // There is no room for what comes before the value.
        let e = pending.finish(b"new", About::default()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::StorageFull, "{e}");
        assert!(cache.get(b"new").unwrap().is_none());
        assert_eq!(reader.read_at(&mut read, 0).unwrap(), 50_000);
        drop(reader);
    }
    // It gave its room to what could not be known to be too long.
    assert!(cache.get(b"key").unwrap().is_none());
    let mut pending = cache.pending(Some(2 << 20)).unwrap();
    pending.write(&vec![7; 2 << 20]).unwrap();
    pending.finish(b"new", About::default()).unwrap();
    assert!(cache.get(b"new").unwrap().unwrap().bytes().unwrap() == vec![7; 2 << 20]);
}

#[test]
fn a_directory_that_can_only_be_read_is_read() {
    let home = home();
    let directory = home.path().join("cache");
    let cache = Cache::open(&directory, CacheOptions::new()).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    drop(cache);
    run("mount", &["--bind", text(&directory), text(&directory)]);
    let _mount = Mount(&directory);
    run("mount", &["-o", "remount,ro,bind", text(&directory)]);
    // Every use is due to be noted.
    let options = CacheOptions::new().note_use_after(Some(std::time::Duration::ZERO));
    // SAFETY: nobody can write to the directory.
    let cache = unsafe { Cache::open_mapped(&directory, options) }.unwrap();
    assert_eq!(
        cache.get(b"key").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
    assert_eq!(cache.counts().unnoted, 1);
    // That is not tried again with each hit.
    for _ in 0..3 {
        let hit = cache.get_at_once(b"key").unwrap().unwrap();
        assert_eq!(hit.bytes().unwrap(), b"value");
    }
    assert_eq!(cache.counts().unnoted, 1);
    assert!(cache.get(b"none").unwrap().is_none());
    let e = cache
        .insert(b"key", b"other", About::default())
        .unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::ReadOnlyFilesystem, "{e}");
    let fetch = || io::Result::Ok(b"fetched".to_vec());
    let hit = cache
        .get_or_insert_with(b"none", About::default(), fetch)
        .unwrap();
    assert_eq!(hit.bytes().unwrap(), b"fetched");
    assert_eq!(cache.stat().unwrap().entries, 1);
    assert_eq!(cache.iter().unwrap().count(), 1);
}

#[test]
fn a_cut_file_is_a_miss_after_guard_mappings() {
    brisk_io::guard_mappings().unwrap();
    let home = home();
    // SAFETY: this test cuts files to see that it ends well; it reads what it has borrowed before that.
    let cache = unsafe { Cache::open_mapped(home.path(), CacheOptions::new()) }.unwrap();
    let value = vec![7; 100_000];
    for n in 0..20u32 {
        cache
            .insert(&n.to_le_bytes(), &value, About::default())
            .unwrap();
        assert!(cache.get(&n.to_le_bytes()).unwrap().is_some());
    }
    let cut = |suffix: &str, len| {
        for entry in fs::read_dir(home.path()).unwrap() {
            let path = entry.unwrap().path();
            if text(&path).ends_with(suffix) {
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(len)
                    .unwrap();
            }
        }
    };
    cut(".segment", 1 << 20);
    let mut hits = 0;
    for n in 0..20u32 {
        let Some(hit) = cache.get(&n.to_le_bytes()).unwrap() else {
            continue;
        };
        match hit.bytes() {
            Ok(bytes) => {
                assert_eq!(bytes, value);
                hits += 1;
            }
            Err(e) => assert!(
                matches!(
                    e.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                ),
                "{e}"
            ),
        }
    }
    assert!(hits < 20);
    let list = || {
        let entries: io::Result<Vec<_>> = cache.iter().unwrap().collect();
        entries.unwrap().len()
    };
    let damaged = cache.counts().damaged;
    // Whose heads are before the cut.
    assert!((1..20).contains(&list()));
    assert!(cache.counts().damaged > damaged);
    let mut entries = cache.iter().unwrap();
    cut("index", 100);
    assert!(entries.next().is_none());
    for n in 0..20u32 {
        assert!(cache.get(&n.to_le_bytes()).unwrap().is_none());
    }
    // Who writes next makes an index again.
    cache.insert(b"after", b"value", About::default()).unwrap();
    assert_eq!(
        cache.get(b"after").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
}

#[test]
fn a_directory_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    let directory = home.path().join("cache");
    drop(Cache::open(&directory, CacheOptions::new()).unwrap());
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let e = Cache::open(&directory, CacheOptions::new()).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(
        e.to_string(),
        format!(
            "cache {}: its mode is 777, allowed is 755, because whoever writes there decides what this program reads; \
             name another directory",
            directory.display()
        )
    );
}

const WHY: &str =
    "because whoever writes there decides what this program reads; name another directory";

#[test]
fn a_directory_of_another_user_is_refused_and_both_are_named() {
    use std::os::unix::fs::chown;
    let home = home();
    let directory = home.path().join("cache");
    let open = || Cache::open(&directory, CacheOptions::new());
    let cache = open().unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let refused = |what: &str, path: &Path| {
        let e = open().unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
        let path = path.display();
        let expected =
            format!("{what} {path}: its owner is user 1001, allowed is user 0 or root, {WHY}");
        assert_eq!(e.to_string(), expected);
    };
    chown(&directory, Some(1_001), None).unwrap();
    refused("cache", &directory);
    chown(&directory, Some(0), None).unwrap();
    let index = directory.join("index");
    chown(&index, Some(1_001), None).unwrap();
    refused("cache file", &index);
    chown(&index, Some(0), None).unwrap();
    assert!(open().unwrap().get(b"key").unwrap().is_some());
    // What another user has put there is never read.
    let segment = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| text(path).ends_with(".segment"));
    chown(segment.unwrap(), Some(1_001), None).unwrap();
    let cache = open().unwrap();
    assert!(cache.get(b"key").unwrap().is_none());
    assert_eq!(cache.counts().damaged, 1);
}

/// Opens the directory in a user namespace with this map, and returns the error.
fn open_in_a_namespace(directory: &Path, map: &str) -> Option<String> {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let forks = forks();
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    let child = match unsafe { libc::fork() } {
        0 => {
            let enter = || {
                // SAFETY: it takes a number. This process has one thread.
                if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                fs::write("/proc/self/uid_map", map)
            };
            let told = match enter() {
                Ok(()) => Cache::open(directory, CacheOptions::new()).map_err(|e| e.to_string()),
                Err(e) => Err(format!("no namespace: {e}")),
            };
            let told = told.err().unwrap_or_default();
            let written = io::Write::write_all(&mut writer, told.as_bytes());
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(i32::from(written.is_err())) }
        }
        child => child,
    };
    drop(writer);
    let mut told = String::new();
    io::Read::read_to_string(&mut reader, &mut told).unwrap();
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    drop(forks);
    assert_eq!(status, 0);
    (!told.is_empty()).then_some(told)
}

#[test]
fn an_owner_that_a_namespace_does_not_know_is_nobody_s() {
    let home = home();
    let directory = home.path().join("cache");
    drop(Cache::open(&directory, CacheOptions::new()).unwrap());
    let refused = |user: u32| {
        Some(format!(
            "cache {}: its owner is user 65534, who stands for all users that this namespace does not know, allowed is \
             user {user} or root, {WHY}",
            directory.display()
        ))
    };
    assert_eq!(open_in_a_namespace(&directory, "0 0 1"), None);
    // Here the process is that user, and so seems to be the owner.
    assert_eq!(open_in_a_namespace(&directory, ""), refused(65_534));
    std::os::unix::fs::chown(&directory, Some(1_001), None).unwrap();
    fs::set_permissions(
        &directory,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    assert_eq!(open_in_a_namespace(&directory, "0 0 1"), refused(0));
}

#[test]
fn what_is_not_allowed_is_said() {
    let home = home();
    let cache = Cache::open(home.path(), CacheOptions::new().limit(8 << 20)).unwrap();
    let message = |key: &[u8], value: &[u8], bucket| {
        let about = About {
            fingerprint: 0,
            bucket,
        };
        cache.insert(key, value, about).unwrap_err().to_string()
    };
    assert_eq!(
        message(b"", b"", 0),
        "a key of 0 bytes, allowed are 1 to 32768; use a digest of it"
    );
    assert_eq!(
        message(b"key", &vec![0; 3 << 20], 0),
        "a value of 3145728 bytes, allowed are 2097152, a quarter of the cache's limit; raise the limit"
    );
    assert_eq!(
        message(b"key", b"", 256),
        "bucket 256, allowed are 0 to 255"
    );
    let e = Cache::open(home.path(), CacheOptions::new().limit(1 << 20)).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the limit is 1048576 bytes with segments of 1048576, allowed is a limit of at least 4456448 with segments of \
         at most 4 GiB; raise the limit, or set a shorter segment_len"
    );
}

#[test]
fn on_a_filesystem_that_nobody_knows_files_are_read_and_not_mapped() {
    let home = home();
    // It has pages in memory like tmpfs, but is not on the list, and cannot reserve.
    run("mount", &["-t", "ramfs", "ramfs", text(home.path())]);
    let _mount = Mount(home.path());
    let directory = home.path().join("cache");
    let options = CacheOptions::new().limit(8 << 20).segment_len(1 << 20);
    // SAFETY: only brisk writes to the directory.
    let cache = unsafe { Cache::open_mapped(&directory, options.clone()) }.unwrap();
    let other = Cache::open(&directory, options).unwrap();
    let stat = other.stat().unwrap();
    assert_eq!((stat.mapped, stat.filesystem), (false, Some(0x8584_58f6)));
    let value =
        |n: u32| -> Vec<u8> { (0..3_000 * (n % 10)).map(|at| (at * 3 + n) as u8).collect() };
    for n in 0..3_000u32 {
        // The first ones are empty, so that many are there at once.
        let value = if n < 1_500 { Vec::new() } else { value(n) };
        cache
            .insert(&n.to_le_bytes(), &value, About::default())
            .unwrap();
        let hit = other.get(&n.to_le_bytes()).unwrap().unwrap();
        assert!(!hit.is_mapped());
        assert_eq!(hit.bytes().unwrap(), value);
    }
    let stat = other.stat().unwrap();
    assert!(
        cache.counts().evicted > 0 && stat.bytes <= 8 << 20,
        "{stat:?}"
    );
    // The index has grown, and both handles have the new one.
    assert!(stat.slots > 1024, "{stat:?}");
    assert_eq!(stat.entries, cache.iter().unwrap().count() as u64);
    assert!(other.remove(&2_999u32.to_le_bytes()).unwrap());
    assert!(cache.get(&2_999u32.to_le_bytes()).unwrap().is_none());
    assert_eq!((cache.counts().damaged, other.counts().damaged), (0, 0));
}

/// Values of each kind: empty, in a segment, in chunks, and in a file of their own.
fn some_value(n: u32) -> Vec<u8> {
    let len = [0, 100, 16_000, 100_000, 2 << 20][n as usize % 5];
    (0..len)
        .map(|at: u32| (at.wrapping_mul(3) ^ n) as u8)
        .collect()
}

fn assert_found(cache: &Cache, numbers: std::ops::Range<u32>, is_mapped: bool) {
    for n in numbers {
        let hit = cache.get(&n.to_le_bytes()).unwrap().unwrap();
        assert_eq!(hit.is_mapped(), is_mapped, "{n}");
        assert!(hit.bytes().unwrap() == some_value(n), "{n}");
    }
}

#[test]
fn a_cache_on_fuse_is_read_and_not_mapped() {
    let home = home();
    let [directory, image, at] = ["cache", "image", "at"].map(|name| home.path().join(name));
    let cache = Cache::open(&directory, CacheOptions::new()).unwrap();
    for n in 0..20u32 {
        cache
            .insert(&n.to_le_bytes(), &some_value(n), About::default())
            .unwrap();
    }
    drop(cache);
    run(
        "mksquashfs",
        &[text(&directory), text(&image), "-quiet", "-no-progress"],
    );
    fs::create_dir(&at).unwrap();
    run("squashfuse", &[text(&image), text(&at)]);
    let _mount = Mount(&at);
    // SAFETY: nobody can write to the directory.
    let cache = unsafe { Cache::open_mapped(&at, CacheOptions::new()) }.unwrap();
    let stat = cache.stat().unwrap();
    assert_eq!((stat.mapped, stat.filesystem), (false, Some(0x6573_5546)));
    assert_eq!((stat.entries, cache.iter().unwrap().count()), (20, 20));
    assert_found(&cache, 0..20, false);
    let part = cache.get(&3u32.to_le_bytes()).unwrap().unwrap();
    assert_eq!(
        part.part(50_000..50_100).unwrap(),
        &some_value(3)[50_000..50_100]
    );
    let e = cache.get_at_once(&3u32.to_le_bytes()).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
    let e = cache
        .insert(b"key", b"value", About::default())
        .unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::ReadOnlyFilesystem, "{e}");
    let fetch = || io::Result::Ok(b"fetched".to_vec());
    let hit = cache.get_or_insert_with(b"none", About::default(), fetch);
    assert_eq!(hit.unwrap().bytes().unwrap(), b"fetched");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(text(&at)), "{maps}");
    assert_eq!(cache.counts().damaged, 0);
}

#[test]
fn a_cache_on_an_overlay_is_written_and_leaves_the_lower_directory_as_it_is() {
    let home = home();
    let [lower, upper, work, at] =
        ["lower", "upper", "work", "at"].map(|name| home.path().join(name));
    for directory in [&upper, &work, &at] {
        fs::create_dir(directory).unwrap();
    }
    let options = CacheOptions::new().limit(64 << 20).segment_len(1 << 20);
    let cache = Cache::open(&lower, options.clone()).unwrap();
    for n in 0..20u32 {
        cache
            .insert(&n.to_le_bytes(), &some_value(n), About::default())
            .unwrap();
    }
    drop(cache);
    let contents = |directory: &Path| -> Vec<_> {
        let mut files: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect()
    };
    let before = contents(&lower);
    let [l, u, w] = [&lower, &upper, &work].map(|path| text(path));
    let layers = format!("lowerdir={l},upperdir={u},workdir={w}");
    let mount = || {
        run(
            "mount",
            &["-t", "overlay", "overlay", "-o", &layers, text(&at)],
        );
        Mount(&at)
    };
    // SAFETY: only brisk writes to the directory.
    let open = || unsafe { Cache::open_mapped(&at, options.clone()) }.unwrap();
    let mounted = mount();
    let (reader, writer) = (open(), open());
    let stat = reader.stat().unwrap();
    assert_eq!(
        (stat.mapped, stat.filesystem, stat.entries),
        (true, None, 20)
    );
    assert_found(&reader, 0..20, true);
    let lent = reader.get(&3u32.to_le_bytes()).unwrap().unwrap();
    // Some are replaced, and the index grows.
    for n in 10..1_500u32 {
        let value = if n < 100 {
            some_value(n)
        } else {
            some_value(5 * n + 1)
        };
        writer
            .insert(&n.to_le_bytes(), &value, About::default())
            .unwrap();
        let hit = reader.get(&n.to_le_bytes()).unwrap().unwrap();
        assert!(hit.is_mapped() && hit.bytes().unwrap() == value, "{n}");
    }
    assert!(writer.remove(&0u32.to_le_bytes()).unwrap());
    assert!(reader.get(&0u32.to_le_bytes()).unwrap().is_none());
    assert_found(&reader, 1..20, true);
    assert!(reader.stat().unwrap().slots > 1024);
    let forks = forks();
    // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
    let child = match unsafe { libc::fork() } {
        0 => {
            let key = b"of a child";
            let inserted = writer.insert(key, b"value", About::default()).is_ok();
            let right = inserted && reader.get(key).is_ok_and(|hit| hit.is_some());
            // SAFETY: it takes a number and does not return.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: it writes a number to where one is.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    drop(forks);
    assert_eq!(status, 0);
    assert!(reader.get(b"of a child").unwrap().is_some());
    assert_eq!(lent.bytes().unwrap(), some_value(3));
    for cache in [&reader, &writer] {
        let counts = cache.counts();
        assert_eq!((counts.damaged, counts.displaced), (0, 0));
    }
    drop((lent, reader, writer, mounted));
    // Mounted again, it has what was inserted, and whoever writes goes on.
    let _mounted = mount();
    let cache = open();
    assert!(cache.get(&0u32.to_le_bytes()).unwrap().is_none());
    assert_found(&cache, 1..100, true);
    cache.insert(b"key", b"value", About::default()).unwrap();
    assert_eq!(
        cache.get(b"key").unwrap().unwrap().bytes().unwrap(),
        b"value"
    );
    assert_eq!(cache.counts().damaged, 0);
    assert!(contents(&lower) == before);
}

#[test]
fn what_a_hit_has_lent_shows_zeros_after_its_file_was_cut() {
    brisk_io::guard_mappings().unwrap();
    let home = home();
    // SAFETY: this test breaks the promise, and looks at what was lent through `black_box`, so the compiler believes
    // nothing of it.
    let cache = unsafe { Cache::open_mapped(home.path(), CacheOptions::new()) }.unwrap();
    cache
        .insert(b"short", &[7; 1_000], About::default())
        .unwrap();
    cache
        .insert(b"long", &[7; 100_000], About::default())
        .unwrap();
    let (short, long) = (cache.get(b"short"), cache.get(b"long"));
    let (short, long) = (short.unwrap().unwrap(), long.unwrap().unwrap());
    let lent = std::hint::black_box(short.bytes().unwrap());
    assert!(long.part(0..10).unwrap() == [7; 10] && short.check_pages().is_ok());
    let segment = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| text(path).ends_with(".segment"))
        .unwrap();
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(0).unwrap();
    assert!(std::hint::black_box(lent).iter().all(|&byte| byte == 0));
    let lost = |e: io::Error| assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{e}");
    lost(short.check_pages().unwrap_err());
    // What was not checked before is an error.
    lost(long.part(50_000..50_010).unwrap_err());
    assert!(
        cache
            .get(b"long")
            .unwrap()
            .is_none_or(|hit| hit.bytes().is_err())
    );
    for n in 0..50u32 {
        let value = vec![n as u8; 30_000];
        cache
            .insert(&n.to_le_bytes(), &value, About::default())
            .unwrap();
        // In a page that was lost there may be nothing. It is a miss, and no wrong byte.
        if let Some(hit) = cache.get(&n.to_le_bytes()).unwrap()
            && let Ok(bytes) = hit.bytes()
        {
            assert_eq!(bytes, value);
        }
    }
    cache.clear().unwrap();
    cache.insert(b"after", b"value", About::default()).unwrap();
    let after = cache.get(b"after").unwrap().unwrap();
    assert_eq!(after.bytes().unwrap(), b"value");
}

#[test]
fn where_no_file_can_be_made_an_old_one_goes() {
    let home = home();
    run(
        "mount",
        &[
            "-t",
            "tmpfs",
            "-o",
            "size=8m,nr_inodes=64",
            "tmpfs",
            text(home.path()),
        ],
    );
    let _mount = Mount(home.path());
    let directory = home.path().join("cache");
    let cache = Cache::open(&directory, CacheOptions::new()).unwrap();
    cache.insert(b"key", b"value", About::default()).unwrap();
    let taken = (0..64).take_while(|n| File::create(home.path().join(n.to_string())).is_ok());
    assert!(taken.count() > 10);
    let fetch = || io::Result::Ok(b"fetched".to_vec());
    let hit = cache
        .get_or_insert_with(b"other", About::default(), fetch)
        .unwrap();
    assert_eq!(hit.bytes().unwrap(), b"fetched");
    cache
        .insert(b"large", &vec![7; 2 << 20], About::default())
        .unwrap();
    assert!(cache.get(b"large").unwrap().is_some());
    assert!(cache.get(b"key").unwrap().is_none());
}

#[test]
fn members_of_a_group_share_a_cache_whatever_their_umask_is() {
    const GROUP: u32 = 4_242;
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(
        home.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let directory = home.path().join("cache");
    let options = CacheOptions::new().group(GROUP);
    let cache = Cache::open(&directory, options.clone()).unwrap();
    cache
        .insert(b"of root", &[1; 100], About::default())
        .unwrap();
    cache
        .insert(b"large", &vec![1; 2 << 20], About::default())
        .unwrap();
    // The user cannot see its own open files by their names, or can: then large values have none at first.
    for can_see in [0, 1] {
        let forks = forks();
        // SAFETY: the child allocates, which the C library allows it, and ends by `_exit`.
        let child = match unsafe { libc::fork() } {
            0 => {
                // SAFETY: it takes a number.
                unsafe { libc::umask(0o077) };
                // SAFETY: it reads an array of one.
                let mut done = unsafe { libc::setgroups(1, &GROUP) };
                // SAFETY: it takes a number.
                done += unsafe { libc::setgid(1_001) };
                // SAFETY: it takes a number.
                done += unsafe { libc::setuid(1_001) };
                // SAFETY: it takes two numbers.
                done += unsafe { libc::prctl(libc::PR_SET_DUMPABLE, can_see) };
                let is_member = done == 0;
                let work = || -> io::Result<bool> {
                    let cache = Cache::open(&directory, options.clone())?;
                    let found = cache.get(b"of root")?.is_some() && cache.get(b"large")?.is_some();
                    cache.insert(b"of a member", &[2; 100], About::default())?;
                    cache.insert(b"large too", &vec![2; 2 << 20], About::default())?;
                    for n in 0..700u32 {
                        cache.insert(&n.to_le_bytes(), &[3; 10], About::default())?;
                    }
                    cache
                        .get_or_insert_with(b"fetched", About::default(), || Ok(Vec::new()))
                        .map_err(|e: io::Error| e)?;
                    Ok(found)
                };
                let right = is_member
                    && work().unwrap_or_else(|e| {
                        eprintln!("{e}");
                        false
                    });
                // SAFETY: it takes a number and does not return.
                unsafe { libc::_exit(i32::from(!right)) }
            }
            child => child,
        };
        let mut status = 0;
        // SAFETY: it writes a number to where one is.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        drop(forks);
        assert_eq!(status, 0);
        for key in [&b"of a member"[..], b"large too", b"of root"] {
            assert!(cache.get(key).unwrap().is_some());
        }
        cache
            .insert(b"of root", &[4; 100], About::default())
            .unwrap();
        cache.remove(b"large too").unwrap();
    }
    // To others it says whose it is.
    let e = Cache::open(&directory, CacheOptions::new().group(GROUP + 1)).unwrap_err();
    assert!(
        e.to_string().contains("its mode is 2770, allowed is 2750"),
        "{e}"
    );
}

/// What is in a directory, by name.
fn contents(directory: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let read = |entry: fs::DirEntry| (entry.file_name(), fs::read(entry.path()).unwrap());
    entries.map(|entry| read(entry.unwrap())).collect()
}

#[test]
fn a_directory_that_is_no_cache_is_refused_and_left_as_it_was() {
    let long: &[u8] = &[b'x'; 200_000];
    let tag = b"Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n";
    let foreign: [&[(&str, &[u8])]; 6] = [
        &[("index", b"DIRC"), ("HEAD", b"ref: refs/heads/main")],
        &[("index", long)],
        &[("0123456789abcdef.value", b"mine")],
        &[("0123456789abcdef.segment", b"mine"), ("ledger", b"")],
        &[("ledger", b"2026/01/01 opening balances")],
        &[("CACHEDIR.TAG", tag)],
    ];
    for files in foreign {
        let home = home();
        // Somebody fills the directory after it was opened.
        let early = Cache::open(home.path(), CacheOptions::new()).unwrap();
        for (name, bytes) in files {
            fs::write(home.path().join(name), bytes).unwrap();
        }
        let before = contents(home.path());
        let mut errors = vec![
            Cache::open(home.path(), CacheOptions::new()).unwrap_err(),
            early
                .insert(b"key", b"value", About::default())
                .unwrap_err(),
            early.insert(b"key", long, About::default()).unwrap_err(),
            early.remove(b"key").unwrap_err(),
            early.clear().unwrap_err(),
            early.prune().unwrap_err(),
        ];
        assert!(contents(home.path()) == before, "{files:?}");
        let named = files.iter().any(|(name, _)| {
            let expected = format!(
                "cache {}: it has {name:?} and is no cache of brisk, allowed is an empty directory or one that does not \
                 exist; nothing was changed; name another directory",
                home.path().display()
            );
            errors.retain(|e| e.to_string() != expected || e.kind() != io::ErrorKind::DirectoryNotEmpty);
            errors.is_empty()
        });
        assert!(named, "{errors:?}");
    }
}

#[test]
fn a_cache_can_begin_where_nothing_of_others_is() {
    let whole = {
        let home = home();
        let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
        cache.insert(b"key", b"value", About::default()).unwrap();
        fs::read(home.path().join("CACHEDIR.TAG")).unwrap()
    };
    // What a writer leaves that is killed, and what a new filesystem has.
    for part in [0, 40, whole.len()] {
        let home = home();
        fs::create_dir(home.path().join("lost+found")).unwrap();
        fs::write(home.path().join("ledger"), b"").unwrap();
        fs::write(home.path().join("CACHEDIR.TAG"), &whole[..part]).unwrap();
        let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
        cache.insert(b"key", b"value", About::default()).unwrap();
        assert_eq!(fs::read(home.path().join("CACHEDIR.TAG")).unwrap(), whole);
    }
    // Without its tag it is a cache by its index, and without its index by its tag.
    for gone in ["CACHEDIR.TAG", "index"] {
        let home = home();
        let cache = || Cache::open(home.path(), CacheOptions::new()).unwrap();
        cache().insert(b"key", b"value", About::default()).unwrap();
        fs::remove_file(home.path().join(gone)).unwrap();
        cache().insert(b"key", b"value", About::default()).unwrap();
    }
}
