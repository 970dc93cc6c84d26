//! A code cache returns what was stored under the key, or nothing, whatever happened to its files and its writers.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brisk_cache::{
    About, Cache, CacheOptions, CachedCode, Check, CodeCache, CodeCacheOptions, CodeKey,
};
use brisk_io::{Form, Need, Touch, page_size};
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;

/// A piece that has a check of its own.
/// A longer value is checked in pieces.
const WHOLE: usize = 16 << 10;
const CHUNK: usize = 4 << 10;
/// Where the code begins in its file.
const START: usize = 64 << 10;
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

/// The files of entries.
fn values(home: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.path().join("code")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "value"))
        .collect()
}

/// The file of the only entry.
fn only_file(home: &TempDir) -> PathBuf {
    let values = values(home);
    assert_eq!(values.len(), 1, "{values:?}");
    values.into_iter().next().unwrap()
}

fn flip(path: &Path, at: usize, bits: u8) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at as u64).unwrap();
}

fn load(cache: &CodeCache) -> Option<CachedCode> {
    cache.load(&KEY, Need::default()).unwrap()
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
        for len in [0, 1, CHUNK, WHOLE - 1, WHOLE, WHOLE + 1, 5 * WHOLE + 17] {
            let code = code(len, 1);
            cache.store(&KEY, &code).unwrap();
            for need in needs.as_flattened() {
                let mut loaded = cache.load(&KEY, *need).unwrap().unwrap();
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
        let e = cache.load(&KEY, Need::default()).unwrap().unwrap();
        assert_eq!(
            e.checked(5..400_000).unwrap_err().to_string(),
            "bytes 5 to 400000 of code of 81937; ask for a part of it"
        );
    }
}

#[test]
fn it_goes_to_threads() {
    fn is_kept_anywhere<T: Send + Sync + 'static>() {}
    is_kept_anywhere::<(CodeCache, CodeCacheOptions, CodeKey, CachedCode)>();
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
        assert!(cache.load(other, Need::default()).unwrap().is_none());
    }
    assert!(load(&cache).is_some());
    assert!(cache.remove(&KEY).unwrap());
    assert!(!cache.remove(&KEY).unwrap());
    assert!(load(&cache).is_none());
}

#[test]
fn a_changed_byte_is_a_miss_or_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    for len in [200, WHOLE, WHOLE + 1, 3 * WHOLE + 5] {
        let code = code(len, 3);
        let head = 64 + 32 + 48 + 8 * len.div_ceil(CHUNK);
        let mut harmless = 0;
        // Each byte of the head, and some of the others.
        for at in (0..head)
            .step_by(3)
            .chain((head..START + len).step_by(1013))
        {
            cache.store(&KEY, &code).unwrap();
            flip(&only_file(&home), at, 1 << (at % 8));
            match load(&cache) {
                None => assert!(cache.cache().counts().damaged > 0),
                Some(found) => {
                    assert_eq!(found.as_slice(), code, "byte {at} of {len}");
                    harmless += 1;
                }
            }
        }
        // Nobody reads the bytes between the head and a long value, and the end of the file's header.
        assert!(harmless <= START / 1013 + 16, "{harmless} of {len}");
        for cut in [0, 1, 64, START - 1, START, START + len - 1] {
            cache.store(&KEY, &code).unwrap();
            let file = File::options().write(true).open(only_file(&home)).unwrap();
            file.set_len(cut as u64).unwrap();
            assert!(load(&cache).is_none(), "cut at {cut}");
        }
    }
}

#[test]
fn what_is_no_file_is_a_miss() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    let elsewhere = home.path().join("elsewhere");
    let spoils: [&dyn Fn(&Path); 4] = [
        &|path| symlink(&elsewhere, path).unwrap(),
        &|path| {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).unwrap();
        },
        &|path| fs::create_dir(path).unwrap(),
        // A directory may have been open to others when the entry was made.
        &|path| {
            fs::copy(&elsewhere, path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o646)).unwrap();
        },
    ];
    for (number, spoil) in spoils.iter().enumerate() {
        cache.store(&KEY, b"code").unwrap();
        let path = only_file(&home);
        fs::rename(&path, &elsewhere).unwrap();
        spoil(&path);
        assert!(load(&cache).is_none(), "{number}");
        assert_eq!(cache.cache().counts().damaged, number as u64 + 1);
        match path.is_dir() {
            true => fs::remove_dir(&path).unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
    }
    cache.store(&KEY, b"code").unwrap();
    assert!(load(&cache).is_some());
    assert!(elsewhere.exists());
}

#[test]
fn values_that_are_no_code_are_misses() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"code").unwrap();
    let keys: Vec<_> = cache.cache().iter().unwrap().collect();
    let key = keys.into_iter().next().unwrap().unwrap().key;
    cache
        .cache()
        .insert(&key, b"text", About::default())
        .unwrap();
    assert!(load(&cache).is_none());
    assert_eq!(cache.cache().counts().unknown, 1);
    // A handle of the plain kind puts short values into segments.
    let plain = Cache::open(cache.cache().directory(), CacheOptions::new()).unwrap();
    plain.insert(&key, b"text", About::default()).unwrap();
    assert!(load(&cache).is_none());
    cache.store(&KEY, b"code").unwrap();
    assert_eq!(load(&cache).unwrap().as_slice(), b"code");
    assert_eq!(plain.get(&key).unwrap().unwrap().bytes().unwrap(), b"code");
}

#[test]
fn damage_is_found_where_it_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::Touched);
    let code = code(6 * CHUNK + 5, 4);
    for form in [Form::Shared, Form::Patched] {
        cache.store(&KEY, &code).unwrap();
        let path = only_file(&home);
        // In the third of seven pieces.
        flip(&path, START + 2 * CHUNK + 9, 4);
        let need = Need::new().form(form).touch(Touch::Part);
        let loaded = cache.load(&KEY, need).unwrap().unwrap();
        let right = 2 * CHUNK;
        assert_eq!(loaded.checked(0..right).unwrap(), &code[..right]);
        assert_eq!(
            loaded.checked(3 * CHUNK..code.len()).unwrap(),
            &code[3 * CHUNK..]
        );
        assert_eq!(loaded.checked(right..right).unwrap(), []);
        assert!(path.exists());
        for part in [right - 1..right + 1, 3 * CHUNK - 1..3 * CHUNK] {
            let e = loaded.checked(part).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidData);
            assert_eq!(
                e.to_string(),
                "bytes 8192 to 12288 of the cached code differ from their check, allowed is what was stored; generate \
                 the code again"
            );
            assert!(!path.exists());
        }
        assert!(load(&cache).is_none());
    }
}

#[test]
fn what_was_patched_is_not_checked_again() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::Touched);
    cache.store(&KEY, &code(3 * WHOLE, 5)).unwrap();
    let need = Need::new().form(Form::Patched).touch(Touch::Part);
    let mut loaded = cache.load(&KEY, need).unwrap().unwrap();
    loaded.checked(0..10).unwrap();
    loaded.as_mut_slice().unwrap()[3] ^= 1;
    loaded.checked(0..10).unwrap();
}

#[test]
fn what_may_be_torn_is_checked_whatever_was_asked() {
    let home = tempfile::tempdir().unwrap();
    let (checking, trusting) = (cache(&home, Check::AtOpen), cache(&home, Check::Never));
    let code = code(2 * WHOLE, 6);
    let spoil = || flip(&only_file(&home), START + 2 * WHOLE - 1, 1);
    checking.store(&KEY, &code).unwrap();
    spoil();
    assert!(load(&trusting).is_none());

    trusting.store(&KEY, &code).unwrap();
    assert_eq!(load(&trusting).unwrap().as_slice(), code);
    // The price of not checking.
    spoil();
    assert_ne!(load(&trusting).unwrap().as_slice(), code);
    assert!(load(&checking).is_none());
}

#[test]
fn what_was_copied_stays_when_its_entry_is_written_to() {
    let home = tempfile::tempdir().unwrap();
    let cache = CodeCache::open(&home.path().join("code"), CodeCacheOptions::default()).unwrap();
    let code = code(2 * WHOLE, 8);
    cache.store(&KEY, &code).unwrap();
    let loaded = load(&cache).unwrap();
    assert!(loaded.loaded().strategy().copies());
    let path = only_file(&home);
    let len = fs::metadata(&path).unwrap().len();
    fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
    assert_eq!(loaded.as_slice(), code);
    // The next one finds the damage.
    assert!(load(&cache).is_none());
}

#[test]
fn no_descriptor_stays_open_after_a_load() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::Touched);
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let sources: Vec<_> = (0..200u64).map(u64::to_le_bytes).collect();
    for source in &sources {
        cache.store(&key_of(source), &code(WHOLE, 1)).unwrap();
    }
    let before = open();
    for source in &sources {
        let found = cache.load(&key_of(source), Need::default()).unwrap();
        assert!(found.is_some());
    }
    // Other tests of this program open and close files meanwhile.
    assert!(open() < before + 100);
}

#[test]
fn the_oldest_go_first_and_what_is_mapped_stays() {
    let home = tempfile::tempdir().unwrap();
    let options = CodeCacheOptions::new().limit(6 << 20);
    let cache = CodeCache::open(&home.path().join("code"), options).unwrap();
    let sources: Vec<_> = (0..12u64).map(u64::to_le_bytes).collect();
    let code = code(1 << 20, 7);
    cache.store(&key_of(&sources[0]), &code).unwrap();
    let held = cache.load(&key_of(&sources[0]), Need::default());
    let held = held.unwrap().unwrap();
    for source in &sources {
        cache.store(&key_of(source), &code).unwrap();
        let bytes: u64 = values(&home)
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum();
        assert!(bytes <= 6 << 20, "{bytes}");
    }
    let is_there = |source| {
        let found = cache.load(&key_of(source), Need::default()).unwrap();
        found.is_some()
    };
    assert!(!is_there(&sources[0]) && is_there(&sources[11]));
    assert_eq!(held.as_slice(), code);
    let e = cache.store(&KEY, &code.repeat(2)).unwrap_err();
    assert_eq!(
        e.to_string(),
        "a value of 2097152 bytes, allowed are 1572864, a quarter of the cache's limit; raise the limit"
    );
}

#[test]
fn threads_that_store_load_and_evict_find_right_code_or_none() {
    let home = tempfile::tempdir().unwrap();
    // There is room for a part of them.
    let options = CodeCacheOptions::new().limit(5 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let home = &home;
            scope.spawn(move || {
                let cache = CodeCache::open(&home.path().join("code"), options).unwrap();
                for round in 0..60 {
                    let which = (thread.wrapping_mul(7) + round * 5) % 12;
                    let source = which.to_le_bytes();
                    let code = code(600_000 - which as usize, which);
                    if round % 3 == 0 {
                        cache.store(&key_of(&source), &code).unwrap();
                    }
                    let found = cache.load(&key_of(&source), Need::default()).unwrap();
                    assert!(found.is_none_or(|found| found.as_slice() == code));
                }
                assert_eq!(cache.cache().counts().damaged, 0);
            });
        }
    });
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
                    .store(&key_of(&bytes), &code(3 * WHOLE, seed))
                    .unwrap();
                println!("stored");
            }
        },
        ("store", most) => {
            limit_files(most);
            cache().store(&KEY, &code(3 * WHOLE, 1)).unwrap();
        }
        ("fail", most) => {
            limit_files(most);
            let e = cache().store(&KEY, &code(3 * WHOLE, 1)).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::FileTooLarge, "{e}");
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
fn a_store_that_fails_leaves_what_was_there() {
    let home = tempfile::tempdir().unwrap();
    let cache = cache(&home, Check::AtOpen);
    cache.store(&KEY, b"old").unwrap();
    let place = home.path().join("code");
    for most in [0, 100, WHOLE, 2 * WHOLE + 1] {
        let output = another_process(&format!("fail:{most}"), &place).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{most}: {output:?}");
        only_file(&home);
        let code = cache.load(&KEY, Need::default()).unwrap().unwrap();
        assert_eq!(code.as_slice(), b"old");
    }
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
            let found = cache.load(&key_of(&seed.to_le_bytes()), Need::default());
            if let Some(found) = found.unwrap() {
                assert!(found.as_slice() == code(3 * WHOLE, seed));
                hits += 1;
            }
        }
        if round % 5 == 0 {
            for seed in SEEDS {
                cache.remove(&key_of(&seed.to_le_bytes())).unwrap();
            }
        }
    }
    assert!(hits > 0);
    assert_eq!(cache.cache().counts().damaged, 0);
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
