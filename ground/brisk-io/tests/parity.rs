//! All strategies return the same bytes, for any part of any file, or say why they do not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use brisk_io::measure::load_as;
use brisk_io::{ByteSource, Form, ImmutableFile, Loaded, Need, Strategy, Touch, evict, load};
use proptest::prelude::*;

/// A file on a disk.
fn file_of(bytes: &[u8]) -> File {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// The same file, whose bytes can be borrowed.
fn immutable(file: &File) -> ImmutableFile {
    // SAFETY: the file has no name, or belongs to the kernel, and its test does not write to it any more.
    unsafe { ImmutableFile::new(file.try_clone().unwrap()) }
}

/// Whether this build has what the strategy needs.
fn is_built(strategy: Strategy) -> bool {
    cfg!(feature = "io-uring") || !matches!(strategy, Strategy::Uring | Strategy::UringDirect)
}

fn compare(loaded: &Loaded, expected: &[u8]) {
    assert!(loaded.as_slice() == expected, "{}", loaded.strategy());
    assert_eq!(ByteSource::size(loaded).unwrap(), expected.len() as u64);
    let middle = expected.len() / 2;
    let mut buf = [0; 100];
    let n = loaded.read_bytes_at(middle as u64, &mut buf).unwrap();
    assert!(buf[..n] == expected[middle..expected.len().min(middle + 100)]);
    loaded.check().unwrap();
}

fn needs() -> impl proptest::strategy::Strategy<Value = Need> {
    let touch = prop_oneof![
        Just(Touch::All),
        Just(Touch::Part),
        Just(Touch::Random),
        Just(Touch::Few)
    ];
    let form = prop_oneof![Just(Form::Shared), Just(Form::Patched), Just(Form::Copied)];
    let parts = (touch, form, 1usize..9);
    proptest::strategy::Strategy::prop_map(parts, |(touch, form, processes)| {
        Need::new().touch(touch).form(form).processes(processes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_strategy_gives_the_same_bytes(
        seed in 0u8..255,
        len in prop_oneof![Just(0), 1usize..10_000, 1usize..3_000_000],
        from in 0.0f64..=1.0,
        to in 0.0f64..=1.0,
        cold in any::<bool>(),
        need in needs(),
    ) {
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8 ^ seed).collect();
        let file = file_of(&bytes);
        let source = immutable(&file);
        let place = |part: f64| (part * len as f64) as u64;
        let range = place(from.min(to))..place(from.max(to));
        let expected = &bytes[range.start as usize..range.end as usize];
        for strategy in Strategy::ALL.into_iter().filter(|&strategy| is_built(strategy)) {
            if strategy == Strategy::SharedMap && need.form == Form::Patched {
                continue;
            }
            if cold {
                evict(&file).unwrap();
            }
            let mut loaded = load_as(strategy, &source, range.clone(), need).unwrap();
            compare(&loaded, expected);
            if need.form == Form::Patched {
                let patched = loaded.as_mut_slice().unwrap();
                patched.iter_mut().for_each(|byte| *byte ^= 0xff);
            }
        }
        if cold {
            evict(&file).unwrap();
        }
        for loaded in [
            load(&source, range.clone(), need).unwrap(),
            load(&file, range.clone(), need).unwrap(),
        ] {
            compare(&loaded, expected);
            prop_assert!(loaded.refused().is_empty());
        }
        // Patches do not reach the file.
        let mut now = vec![0; len];
        FileExt::read_exact_at(&file, &mut now, 0).unwrap();
        prop_assert!(now == bytes);
    }
}

#[test]
fn holes_are_zeros_and_what_lies_past_4_gib_is_found() {
    let file = file_of(b"start");
    let far = (5 << 30) + 123;
    file.write_all_at(b"end", far).unwrap();
    for strategy in Strategy::ALL
        .into_iter()
        .filter(|&strategy| is_built(strategy))
    {
        let loaded = load_as(
            strategy,
            &immutable(&file),
            far - 70_000..far + 3,
            Need::default(),
        )
        .unwrap();
        let (zeros, end) = loaded.as_slice().split_at(70_000);
        assert!(zeros.iter().all(|&b| b == 0) && end == b"end", "{strategy}");
    }
}

#[test]
fn what_the_file_has_not_is_an_error_with_its_place() {
    let file = file_of(&[1; 10_000]);
    for strategy in Strategy::ALL
        .into_iter()
        .filter(|&strategy| is_built(strategy))
    {
        for (start, end) in [(9_999, 10_001), (20_000, 20_001), (10, 9)] {
            let range = start..end;
            let e = load_as(strategy, &immutable(&file), range.clone(), Need::default());
            let e = e.unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof, "{strategy}");
            let message = e.to_string();
            let place = format!(
                "a file of 10000 bytes does not have bytes {} to {}",
                range.start, range.end
            );
            assert_eq!(message, place, "{strategy}");
        }
    }
}

#[test]
fn a_strategy_that_is_refused_is_told_and_another_taken() {
    // A file in memory without direct reads and without mappings: procfs has neither.
    let file = File::open("/proc/self/maps").unwrap();
    for strategy in [
        Strategy::SharedMap,
        Strategy::PrivateMap,
        Strategy::PopulatedMap,
    ] {
        let loaded = load_as(strategy, &immutable(&file), 0..0, Need::default());
        assert_eq!(loaded.unwrap().as_slice(), b"", "{strategy}");
        let e = load_as(strategy, &file, 0..0, Need::default()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "others may change the file, so its bytes cannot be borrowed from a mapping; copy them, or promise that \
             nobody changes it (ImmutableFile)"
        );
    }
    let e = load_as(Strategy::Direct, &file, 0..0, Need::default()).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    if !cfg!(feature = "io-uring") {
        let file = file_of(b"bytes");
        let e = load_as(Strategy::Uring, &file, 0..5, Need::default()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "brisk-io was built without its feature io-uring"
        );
    }
}

#[test]
fn the_choice_explains_itself() {
    let file = file_of(&[7; 100_000]);
    let source = immutable(&file);
    let reason = |len, need| {
        let loaded = load(&source, 0..len, need).unwrap();
        (loaded.strategy(), loaded.reason().to_string())
    };
    let (strategy, reason_of_few) = reason(1000, Need::default());
    assert_eq!(strategy, Strategy::Read);
    assert_eq!(
        reason_of_few,
        "copying so few bytes is faster than mapping them"
    );
    let random = Need::new().touch(Touch::Few);
    let (strategy, reason_of_random) = reason(100_000, random);
    assert_eq!(strategy, Strategy::SharedMap);
    assert_eq!(reason_of_random, "this reads only what is touched");
    let copied = load(&file, 0..100_000, random).unwrap();
    assert_eq!(copied.strategy(), Strategy::Read);
    assert_eq!(
        copied.reason().to_string(),
        "others may change the file, so its bytes are copied"
    );
}

/// If a `str` changes after it was checked, safe code reads past its end.
#[test]
fn what_was_loaded_of_a_file_stays_when_others_write_to_it() {
    let file = file_of(&[b'a'; 1 << 20]);
    let loaded = load(&file, 0..1 << 20, Need::default()).unwrap();
    let text = std::str::from_utf8(loaded.as_slice()).unwrap();
    // The first byte of a character with four.
    file.write_all_at(&[0xF0], (1 << 20) - 1).unwrap();
    assert_eq!(text.chars().count(), 1 << 20);
    assert!(std::str::from_utf8(loaded.as_slice()).is_ok());
}
