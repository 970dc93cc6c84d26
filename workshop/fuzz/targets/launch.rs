//! Any bytes are either a profile or hot pack, or an error. They never cause a panic, an endless loop, more
//! memory than the run allows, or a wrong page.
#![no_main]

use brisk_image::Limits;
use brisk_image::hot_pack::HotPack;
use brisk_image::profile::{PAGE, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::new().memory(8 << 20);
    if let Ok(profile) = Profile::from_text(bytes, &limits) {
        let again = Profile::from_text(&profile.to_text(), &limits).expect("its own text");
        assert_eq!(again, profile);
        let merged = Profile::merge(&[profile.clone(), profile.clone()]);
        if let Ok(merged) = merged {
            assert_eq!(merged.compare(&profile).files, []);
        }
    }
    // The checksum of header and table keeps the fuzzer from everything after it.
    hot_pack(bytes.to_vec(), &limits);
    if let Some(sealed) = sealed(bytes) {
        hot_pack(sealed, &limits);
    }
});

fn hot_pack(bytes: Vec<u8>, limits: &Limits) {
    let Ok(pack) = HotPack::from_source(bytes, limits) else {
        return;
    };
    assert!(
        pack.look_ups()
            .all(|look_up| look_up.before <= pack.range_count())
    );
    let mut reader = pack.frame_reader();
    for number in 0..pack.frame_count() {
        let Ok(pieces) = reader.read(number) else {
            continue;
        };
        for (range, bytes) in pieces {
            let file = pack.file(range.file as usize).expect("its file");
            assert_eq!(bytes.len() as u64, range.bytes_of(file.len()));
            assert!(range.end() <= file.len().div_ceil(PAGE));
        }
    }
}

/// The same pack, with a right checksum.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let stored = u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?) as usize;
    let mut bytes = bytes.to_vec();
    bytes.get_mut(48..64)?.fill(0);
    let sum = blake3::hash(bytes.get(..stored.checked_add(64)?)?);
    bytes[48..64].copy_from_slice(&sum.as_bytes()[..16]);
    Some(bytes)
}
