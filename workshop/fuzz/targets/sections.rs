//! Any bytes are the contents of a section behind an image, with the right digest: a recipe, a place, an entry, a
//! hot pack, or another section. They are understood or refused. A recipe that is understood is the same when it is written
//! again, a place is an absolute path, and an entry has a program.
//!
//! The first byte chooses the kind of the section, and the second its version.
#![no_main]

use std::sync::LazyLock;

use brisk_image::{Image, ImageWriter, Limits, OpenOptions};
use libfuzzer_sys::fuzz_target;

/// An image without sections.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let image = include_bytes!("../../../start/brisk-image/testdata/bad/section-none.img");
    let used = u64::from_le_bytes(image[40..48].try_into().expect("8 bytes")) as usize;
    let mut image = image[..used].to_vec();
    image.resize(used.next_multiple_of(4096), 0);
    image
});

fuzz_target!(|bytes: &[u8]| {
    let &[kind, version, ref contents @ ..] = bytes else {
        return;
    };
    let kinds = [b"rcpe", b"plac", b"hotp", b"prof", b"entr", b"????"];
    let kind = kinds[usize::from(kind) % kinds.len()];
    let mut image = IMAGE.clone();
    image.extend_from_slice(b"brisksec");
    image.extend_from_slice(kind);
    image.extend_from_slice(&u32::from(version).to_le_bytes());
    image.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    image.extend_from_slice(blake3::hash(contents).as_bytes());
    image.extend_from_slice(&[0; 8]);
    image.extend_from_slice(contents);

    let limits = Limits::new().memory(1 << 20);
    let options = OpenOptions::new().limits(limits);
    let image = Image::from_source(image, &options).expect("the image itself is right");
    if let Ok(Some(place)) = image.recorded_place() {
        assert!(place.is_absolute());
        assert_eq!((kind, version), (b"plac", 1));
    }
    if let Ok(Some(entry)) = image.entry_point() {
        assert!(!entry.command().is_empty());
        assert_eq!(kind, b"entr");
    }
    if let Ok(Some(recipe)) = image.recipe() {
        let text = serde_json::to_vec(&recipe).expect("a recipe can be written");
        let again = serde_json::from_slice(&text).expect("its own text");
        assert_eq!(recipe, again);
        if let Ok(writer) = ImageWriter::from_recipe(&recipe) {
            assert_eq!(writer.to_recipe().block_size, recipe.block_size);
        }
        drop(ImageWriter::like(&image));
    }
    if let Ok(Some(pack)) = image.hot_pack() {
        let mut reader = pack.frame_reader();
        for frame in 0..pack.frame_count() {
            drop(reader.read(frame));
        }
        drop(pack.is_of(&image));
    }
});
