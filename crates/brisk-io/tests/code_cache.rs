//! A cache returns what was stored under the key, or nothing, whatever happened to its files and its writers.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use brisk_io::{
    Check, CodeCache, CodeCacheOptions, CodeKey, Form, Lookup, Miss, Need, Touch, page_size,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;

const CHUNK: usize = 64 << 10;
const KEY: CodeKey<'_> = CodeKey {
    producer: "test",
    version: "1",
    cpu_features: "x86_64 sse2",
    flags: "fast",
    source: b"source",
};

/// Bytes without repetitions.
fn code(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn cache(home: &TempDir, check: Check) -> CodeCache {
    let options = CodeCacheOptions::new().check(check);
    // SAFETY: tests that write to an entry's file have dropped what they loaded from it, except those that
    // check how a lost page is reported.
    unsafe { CodeCache::open_mapped(&home.path().join("code"), options) }.unwrap()
}

fn names(home: &TempDir) -> BTreeSet<String> {
    let entries = fs::read_dir(home.path().join("code")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The file of the only entry.
fn only_file(home: &TempDir) -> PathBuf {
    let names = names(home);
    assert_eq!(names.len(), 1, "{names:?}");
    home.path().join("code").join(names.first().unwrap())
}

fn is_absent(lookup: &Lookup) -> bool {
    matches!(lookup, Lookup::Miss(Miss::Absent))
}

fn damage(lookup: Lookup) -> String {
    match lookup {
        Lookup::Miss(Miss::Damaged { damage, kept: None }) => damage.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_stored_is_loaded_in_every_form() {
    let home = tempfile::tempdir().unwrap();
    let needs = [Form::Shared, Form::Patched, Form::Copied].map(|form| {
        [Touch::All, Touch::Part, Touch::Random]
            .map(|touch| Need::new().touch(touch).form(form).processes(2))
    });
    for check in [Check::AtOpen, Check::Touched, Check::Never] {
        let cache = cache(&home, check);
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17] {
            let code = code(len, 1);
            cache.store(&KEY, &code).unwrap();
            for need in needs.as_flattened() {
                let mut loaded = cache.load(&KEY, *need).unwrap().hit().unwrap();
                assert_eq!(loaded.as_slice(), code);
                assert_eq!(loaded.checked(0..len).unwrap(), code);
                assert_eq!(loaded.checked(len / 2..len).unwrap(), &code[len / 2..]);
                let (_, content) = loaded.file();
                assert_eq!(content.start % 65_536, 0);
                assert_eq!(content.end - content.start, len as u64);
                if len > 0 && !loaded.loaded().strategy().copies() {
                    assert_eq!(loaded.as_slice().as_ptr().addr() % page_size(), 0);
                }
                if need.form == Form::Patched && len > 0 {
                    loaded.as_mut_slice().unwrap()[len - 1] ^= 1;
                }
            }
        }
        let e = cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
        assert_eq!(
            e.checked(5..400_000).unwrap_err().to_string(),
            "bytes 5 to 400000 of code of 327697"
        );
    }
}

#[test]
fn each_field_of_the_key_counts() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let others = [
        CodeKey {
            producer: "tes",
            version: "t1",
            ..KEY
        },
        CodeKey {
            version: "2",
            ..KEY
        },
        CodeKey {
            cpu_features: "x86_64 sse2 avx",
            ..KEY
        },
        CodeKey { flags: "", ..KEY },
        CodeKey {
            source: b"sourcf",
            ..KEY
        },
    ];
    for other in &others {
        assert!(is_absent(&cache.load(other, Need::default()).unwrap()));
    }
    assert!(cache.load(&KEY, Need::default()).unwrap().hit().is_some());
    assert!(cache.remove(&KEY).unwrap());
    assert!(!cache.remove(&KEY).unwrap());
    assert!(is_absent(&cache.load(&KEY, Need::default()).unwrap()));
}

#[test]
fn an_entry_of_another_key_is_a_miss_and_stays() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let ours = only_file(&home);
    // Of the same length, and of another one.
    for source in [b"sourcf".as_slice(), b"a longer source"] {
        let other = CodeKey { source, ..KEY };
        cache.store(&other, b"of another").unwrap();
        let name = names(&home).into_iter().find(|name| !ours.ends_with(name));
        let theirs = home.path().join("code").join(name.unwrap());
        fs::copy(&ours, &theirs).unwrap();
        for _ in 0..2 {
            let lookup = cache.load(&other, Need::default()).unwrap();
            assert!(matches!(lookup, Lookup::Miss(Miss::Foreign)), "{lookup:?}");
        }
        cache.store(&other, b"of another").unwrap();
        let code = cache.load(&other, Need::default()).unwrap().hit().unwrap();
        assert_eq!(code.as_slice(), b"of another");
        assert!(cache.remove(&other).unwrap());
    }
}

#[test]
fn a_changed_byte_is_a_miss_or_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    let code = code(200, 3);
    cache.store(&KEY, &code).unwrap();
    let path = only_file(&home);
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), CHUNK + 200);
    let fields = 56 + 5 * 4 + 4 + 1 + 11 + 4 + 6 + 8;
    assert!(whole[fields..CHUNK].iter().all(|&b| b == 0));
    for at in 0..whole.len() {
        // Nobody reads the bytes between the checksums and the content, so a few of them are enough.
        if (fields..CHUNK).contains(&at) && at % 61 != 0 {
            continue;
        }
        for flip in [1, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&path, bytes).unwrap();
            let lookup = cache.load(&KEY, Need::default()).unwrap();
            if (fields..CHUNK).contains(&at) {
                assert_eq!(lookup.hit().unwrap().as_slice(), code);
                continue;
            }
            let message = damage(lookup);
            assert!(message.starts_with("damaged entry at byte "), "{message}");
            assert!(names(&home).is_empty(), "byte {at}");
        }
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&path, longer).unwrap();
    assert_eq!(
        damage(cache.load(&KEY, Need::default()).unwrap()),
        "damaged entry at byte 0: the length of the file is 65737, allowed is 65736; generate the code again"
    );
    for len in 0..whole.len() {
        if (fields..CHUNK).contains(&len) && len % 61 != 0 {
            continue;
        }
        fs::write(&path, &whole[..len]).unwrap();
        let message = damage(cache.load(&KEY, Need::default()).unwrap());
        assert!(message.contains("the length of the file is"), "{message}");
        assert!(names(&home).is_empty(), "cut at {len}");
    }
    cache.store(&KEY, &code).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn what_is_no_file_is_a_miss() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let path = only_file(&home);
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    let not_a_file = "damaged entry at byte 0: its kind is not a file, allowed is a file; generate the code again";
    assert_eq!(
        damage(cache.load(&KEY, Need::default()).unwrap()),
        not_a_file
    );
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(
        damage(cache.load(&KEY, Need::default()).unwrap()),
        not_a_file
    );
    assert!(names(&home).is_empty());
    fs::create_dir(&path).unwrap();
    let lookup = cache.load(&KEY, Need::default()).unwrap();
    let Lookup::Miss(miss) = lookup else {
        panic!("{lookup:?}")
    };
    assert_eq!(
        miss.to_string(),
        format!("{not_a_file} (it could not be removed: Is a directory (os error 21))")
    );
    fs::remove_dir(&path).unwrap();
    assert!(elsewhere.exists());
}

#[test]
fn damage_is_found_where_it_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::Touched);
    let code = code(4 * CHUNK + 5, 4);
    cache.store(&KEY, &code).unwrap();
    let path = only_file(&home);
    let mut bytes = fs::read(&path).unwrap();
    // In the third of five chunks.
    bytes[CHUNK + 2 * CHUNK + 9] ^= 4;
    fs::write(&path, bytes).unwrap();
    for form in [Form::Shared, Form::Patched] {
        let need = Need::new().form(form).touch(Touch::Part);
        let loaded = cache.load(&KEY, need).unwrap().hit().unwrap();
        let right = 2 * CHUNK;
        assert_eq!(loaded.checked(0..right).unwrap(), &code[..right]);
        assert_eq!(
            loaded.checked(3 * CHUNK..code.len()).unwrap(),
            &code[3 * CHUNK..]
        );
        assert_eq!(loaded.checked(right..right).unwrap(), []);
        assert!(path.exists());
        if form == Form::Shared {
            continue;
        }
        for part in [right - 1..right + 1, 3 * CHUNK - 1..3 * CHUNK] {
            let e = loaded.checked(part).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidData);
            let message = e.to_string();
            let place = "damaged entry at byte 196608: the checksum of a chunk is ";
            assert!(message.starts_with(place), "{message}");
            assert!(!path.exists());
        }
    }
    assert!(is_absent(&cache.load(&KEY, Need::default()).unwrap()));
}

#[test]
fn what_was_patched_is_not_checked_again() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::Touched);
    cache.store(&KEY, &code(3 * CHUNK, 5)).unwrap();
    let need = Need::new().form(Form::Patched).touch(Touch::Part);
    let mut loaded = cache.load(&KEY, need).unwrap().hit().unwrap();
    loaded.checked(0..10).unwrap();
    loaded.as_mut_slice().unwrap()[3] ^= 1;
    loaded.checked(0..10).unwrap();
}

#[test]
fn what_may_be_torn_is_checked_whatever_was_asked() {
    let home = tempfile::tempdir().unwrap();
    let (checking, trusting) = (cache(&home, Check::AtOpen), cache(&home, Check::Never));
    let code = code(2 * CHUNK, 6);
    let spoil = || {
        let path = only_file(&home);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    checking.store(&KEY, &code).unwrap();
    spoil();
    let message = damage(trusting.load(&KEY, Need::default()).unwrap());
    assert!(
        message.contains("byte 131072: the checksum of a chunk"),
        "{message}"
    );

    trusting.store(&KEY, &code).unwrap();
    let loaded = trusting.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert_eq!(loaded.as_slice(), code);
    drop(loaded);
    // The price of not checking.
    spoil();
    let loaded = trusting.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert_ne!(loaded.as_slice(), code);
    drop(loaded);
    damage(checking.load(&KEY, Need::default()).unwrap());
}

#[test]
fn what_was_copied_stays_when_its_entry_is_written_to() {
    let home = tempfile::tempdir().unwrap();
    let cache = CodeCache::open(&home.path().join("code"), CodeCacheOptions::default()).unwrap();
    let code = code(2 * CHUNK, 8);
    cache.store(&KEY, &code).unwrap();
    let loaded = cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert!(loaded.loaded().strategy().copies());
    let path = only_file(&home);
    let len = fs::metadata(&path).unwrap().len();
    fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
    assert_eq!(loaded.as_slice(), code);
    // The next one finds the damage.
    damage(cache.load(&KEY, Need::default()).unwrap());
}

fn set_last_use(path: &Path, ago: Duration) -> SystemTime {
    let time = SystemTime::now() - ago;
    File::open(path).unwrap().set_modified(time).unwrap();
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn what_was_not_used_for_longest_is_evicted() {
    let home = tempfile::tempdir().unwrap();
    // Entries of two units each. There is room for three.
    let options = CodeCacheOptions::new().limit(7 * CHUNK as u64);
    let cache = CodeCache::open(&home.path().join("code"), options).unwrap();
    let sources: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let keys = sources.map(|source| CodeKey { source, ..KEY });
    let code = code(CHUNK, 7);
    let day = Duration::from_secs(24 * 60 * 60);
    for (key, days) in keys.iter().take(3).zip([3, 5, 4]) {
        let before = names(&home);
        assert_eq!(cache.store(key, &code).unwrap().entries, 0);
        let name = names(&home).difference(&before).next().unwrap().clone();
        set_last_use(&home.path().join("code").join(name), days * day);
    }
    fs::write(home.path().join("code/remark"), code.repeat(9)).unwrap();
    // The second entry is the oldest, but it is used now.
    let held = cache.load(&keys[1], Need::new().touch(Touch::Part));
    let held = held.unwrap().hit().unwrap();
    let evicted = cache.store(&keys[3], &code).unwrap();
    assert_eq!((evicted.entries, evicted.bytes), (1, 2 * CHUNK as u64));
    let is_there = |key| cache.load(key, Need::default()).unwrap().hit().is_some();
    assert!(is_there(&keys[0]));
    assert!(is_there(&keys[1]));
    assert!(!is_there(&keys[2]));
    assert!(is_there(&keys[3]));

    // One that needs all the room stays, and so does what others have mapped.
    let large = code.repeat(6);
    assert_eq!(cache.store(&keys[2], &large).unwrap().entries, 3);
    assert!(!is_there(&keys[1]));
    assert!(is_there(&keys[2]));
    assert_eq!(held.as_slice(), code);
    assert!(home.path().join("code/remark").exists());

    let e = cache
        .store(&keys[0], &[large, vec![0]].concat())
        .unwrap_err();
    assert_eq!(
        e.to_string(),
        "an entry of 458753 bytes, allowed are 458752; open the cache with a higher limit"
    );
    assert!(is_there(&keys[2]));
}

#[test]
fn a_use_is_noted_once_a_day() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let path = only_file(&home);
    let noted = || fs::metadata(&path).unwrap().modified().unwrap();
    let hour = Duration::from_secs(60 * 60);
    let recently = set_last_use(&path, 20 * hour);
    cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert_eq!(noted(), recently);
    let before = set_last_use(&path, 25 * hour);
    cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert!(noted() > before + 24 * hour);
    let to_come = SystemTime::now() + 1000 * hour;
    File::open(&path).unwrap().set_modified(to_come).unwrap();
    cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
    assert!(noted() < to_come - 100 * hour);
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a/b/code");
    let open = || CodeCache::open(&path, CodeCacheOptions::default());
    open().unwrap();
    for made in ["a", "a/b", "a/b/code"] {
        let mode = fs::metadata(home.path().join(made))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
    for (mode, allowed) in [(0o770, "750"), (0o702, "700"), (0o1777, "1755")] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let e = open().unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            e.to_string(),
            format!(
                "code cache {}: its mode is {mode:o}, allowed is {allowed}, because whoever writes there decides \
                 what this user executes; name another directory, or remove this one with everything in it",
                path.display()
            )
        );
    }
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    open().unwrap();
    let file = home.path().join("file");
    File::create(&file).unwrap();
    let e = CodeCache::open(&file, CodeCacheOptions::default()).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::NotADirectory);
    assert!(
        e.to_string()
            .starts_with(&format!("code cache {}: ", file.display()))
    );
}

/// A directory may have been open to others when the entry was made.
#[test]
fn an_entry_that_others_may_write_is_a_miss() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let path = only_file(&home);
    fs::set_permissions(&path, Permissions::from_mode(0o646)).unwrap();
    assert_eq!(
        damage(cache.load(&KEY, Need::default()).unwrap()),
        "damaged entry at byte 0: its mode is 646, allowed is 644; generate the code again"
    );
    assert!(names(&home).is_empty());
}

#[test]
fn threads_that_store_load_and_evict_find_right_code_or_none() {
    let home = tempfile::tempdir().unwrap();
    // There is room for four of the six.
    let options = CodeCacheOptions::new().limit(9 * CHUNK as u64);
    let sources: [&[u8]; 6] = [b"0", b"1", b"2", b"3", b"4", b"5"];
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let home = &home;
            scope.spawn(move || {
                let cache = CodeCache::open(&home.path().join("code"), options).unwrap();
                for round in 0..100 {
                    let which = (thread.wrapping_mul(7) + round * 5) as usize % 6;
                    let key = CodeKey {
                        source: sources[which],
                        ..KEY
                    };
                    let code = code(CHUNK - which, which as u64);
                    if round % 3 == 0 {
                        cache.store(&key, &code).unwrap();
                    }
                    match cache.load(&key, Need::default()).unwrap() {
                        Lookup::Hit(found) => assert!(found.as_slice() == code),
                        Lookup::Miss(Miss::Absent) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let names = names(&home);
    assert!(
        names.iter().all(|name| name.ends_with(".code1")),
        "{names:?}"
    );
    assert!(names.len() <= 4, "{names:?}");
}

/// The task of [`as_another_process`], and its directory.
const TASK: &str = "BRISK_TEST_CODE_CACHE";

/// Seeds of the codes that another process stores.
const SEEDS: [u64; 3] = [10, 11, 12];

fn key_of(seed: &[u8; 8]) -> CodeKey<'_> {
    CodeKey {
        source: seed,
        ..KEY
    }
}

/// Does nothing unless another test starts it as a process.
#[test]
fn as_another_process() {
    let Ok(task) = env::var(TASK) else { return };
    let (task, place) = task.split_once(' ').unwrap();
    let cache = || CodeCache::open(Path::new(place), CodeCacheOptions::default()).unwrap();
    match task.split_once(':').unwrap_or((task, "")) {
        ("where", _) => println!("{:?}", CodeCache::default_directory()),
        ("store", "forever") => loop {
            for seed in SEEDS {
                let bytes = seed.to_le_bytes();
                cache()
                    .store(&key_of(&bytes), &code(3 * CHUNK, seed))
                    .unwrap();
                println!("stored");
            }
        },
        ("store", most) => {
            limit_files(most);
            cache().store(&KEY, &code(3 * CHUNK, 1)).unwrap();
        }
        ("fail", most) => {
            limit_files(most);
            let e = cache().store(&KEY, &code(3 * CHUNK, 1)).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EFBIG));
        }
        other => panic!("{other:?}"),
    }
}

/// The kernel kills this process when it makes a file longer than this, or returns an error if the signal is
/// ignored.
fn limit_files(most: &str) {
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, most.parse().unwrap()),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).unwrap();
    }
}

fn another_process(task: &str, place: &Path) -> Command {
    // A shell that ignores a signal passes that on to the program that it becomes.
    let ignored = if task.starts_with("fail") {
        "trap '' XFSZ;"
    } else {
        ""
    };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{ignored} exec \"$@\""), "sh"]);
    command.arg(env::current_exe().unwrap());
    command.args(["--exact", "as_another_process", "--nocapture"]);
    command.env(TASK, format!("{task} {}", place.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_writer_that_is_killed_at_any_length_leaves_nothing_that_is_read() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    let place = home.path().join("code");
    let (old, new) = (code(100, 2), code(3 * CHUNK, 1));
    let total = 4 * CHUNK;
    for most in [
        0,
        1,
        55,
        56,
        60,
        120,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        3 * CHUNK,
        total - 1,
        total,
    ] {
        for before in [None, Some(&old)] {
            fs::remove_dir_all(&place).unwrap();
            fs::create_dir(&place).unwrap();
            fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
            let cache = CodeCache::open(&place, CodeCacheOptions::default()).unwrap();
            if let Some(code) = before {
                cache.store(&KEY, code).unwrap();
            }
            let output = another_process(&format!("store:{most}"), &place)
                .output()
                .unwrap();
            let killed = output.status.signal() == Some(libc::SIGXFSZ);
            assert_eq!(killed, most < total, "{most}: {output:?}");
            let found = cache.load(&KEY, Need::default()).unwrap();
            match (killed, before) {
                (false, _) => assert_eq!(found.hit().unwrap().as_slice(), new),
                (true, Some(code)) => assert_eq!(found.hit().unwrap().as_slice(), code),
                (true, None) => assert!(is_absent(&found)),
            }
            // The next one who stores cleans up.
            assert_eq!(
                names(&home)
                    .iter()
                    .filter(|name| name.starts_with(".new-"))
                    .count(),
                usize::from(killed)
            );
            cache.store(&KEY, b"next").unwrap();
            assert!(only_file(&home).to_str().unwrap().ends_with(".code1"));
        }
    }
    assert!(
        is_absent(&cache.load(&KEY, Need::default()).unwrap()),
        "that directory is gone"
    );
}

#[test]
fn a_store_that_fails_leaves_what_was_there() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"old").unwrap();
    let place = home.path().join("code");
    for most in [0, 100, CHUNK, 2 * CHUNK + 1] {
        let output = another_process(&format!("fail:{most}"), &place).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{most}: {output:?}");
        only_file(&home);
        let code = cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
        assert_eq!(code.as_slice(), b"old");
    }
}

/// Files that each version of the format has written. They are never made again.
#[test]
fn entries_of_released_versions_are_found() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/compat/code-cache");
    let mut found = 0;
    for entry in fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        let here = home.path().join("code").join(entry.file_name());
        fs::copy(entry.path(), here).unwrap();
        let loaded = cache.load(&KEY, Need::default()).unwrap().hit().unwrap();
        assert_eq!(loaded.as_slice(), code(200, 3));
        found += 1;
    }
    assert_eq!(found, 1);
}

#[test]
fn writers_that_are_killed_again_and_again_leave_right_code_or_none() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    let place = home.path().join("code");
    let mut hits = 0;
    for round in 0..24 {
        let mut writers: Vec<_> = (0..2)
            .map(|_| another_process("store:forever", &place).spawn().unwrap())
            .collect();
        for writer in &mut writers {
            let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            // At another moment each time, and in the first round as early as possible.
            let stored = lines
                .map(Result::unwrap)
                .filter(|line| line.contains("stored"));
            assert_eq!(stored.take(round % 8).count(), round % 8);
            writer.kill().unwrap();
        }
        for writer in &mut writers {
            assert_eq!(writer.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        for seed in SEEDS {
            match cache
                .load(&key_of(&seed.to_le_bytes()), Need::default())
                .unwrap()
            {
                Lookup::Hit(found) => {
                    assert!(found.as_slice() == code(3 * CHUNK, seed));
                    hits += 1;
                }
                Lookup::Miss(Miss::Absent) => {}
                other => panic!("{other:?}"),
            }
        }
        if round % 5 == 0 {
            for seed in SEEDS {
                cache.remove(&key_of(&seed.to_le_bytes())).unwrap();
            }
        }
    }
    assert!(hits > 0);
    cache.store(&KEY, b"next").unwrap();
    let names = names(&home);
    assert!(
        names.iter().all(|name| name.ends_with(".code1")),
        "{names:?}"
    );
}

#[test]
fn the_default_directory_is_the_users_cache() {
    let there = |cache: &str, home: &str| {
        let mut command = another_process("where", Path::new("-"));
        command.env("XDG_CACHE_HOME", cache).env("HOME", home);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    assert!(there("/c", home).contains("Some(\"/c/brisk/code\")"));
    let expected = format!("Some(\"{home}/.cache/brisk/code\")");
    assert!(there("c", home).contains(&expected));
    assert!(there("", &format!("{home}/absent")).contains("None"));
    assert!(there("", "tmp").contains("None"));
}
