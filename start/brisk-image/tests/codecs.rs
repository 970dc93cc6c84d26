//! One image of each codec, made by mksquashfs, read by every decoder that was built.

use std::fmt::Write;
use std::path::PathBuf;

use brisk_image::{Codec, Error, ErrorKind, Image, OpenOptions, Work};

fn image(codec: Codec, rust: bool) -> Result<Image, Error> {
    let name = format!("testdata/codecs/{codec}.img");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    Image::open_with(path, &OpenOptions::new().rust_decoders(rust))
}

/// Whether this build has a decoder in C, and one in Rust.
fn built(codec: Codec) -> [bool; 2] {
    match codec {
        Codec::Gzip => [cfg!(feature = "gzip"), cfg!(feature = "gzip-rust")],
        Codec::Lzo => [false, cfg!(feature = "lzo")],
        Codec::Lz4 => [cfg!(feature = "lz4"), cfg!(feature = "lz4-rust")],
        Codec::Xz => [cfg!(feature = "xz"), cfg!(feature = "xz-rust")],
        Codec::Zstd => [cfg!(feature = "zstd"), cfg!(feature = "zstd-rust")],
        codec => panic!("no image of {codec}"),
    }
}

/// Some blocks of 8 KiB, and the end of one.
fn lines() -> String {
    let mut text = String::new();
    for number in 0..6000u32 {
        writeln!(
            text,
            "{number}: {}",
            number.wrapping_mul(2_654_435_761) >> 7
        )
        .unwrap();
    }
    text
}

fn check(image: &Image) {
    let lines = lines();
    assert_eq!(image.read("lines").unwrap(), lines.as_bytes());
    assert_eq!(
        image.read("directory/small").unwrap(),
        b"small\n".repeat(20)
    );
    assert_eq!(image.read("directory/link").unwrap(), b"small\n".repeat(20));
    let checked = image
        .check(&Work::new().threads(1), |path, e| panic!("{path:?}: {e}"))
        .unwrap();
    assert_eq!((checked.files, checked.directories), (2, 2));
    assert_eq!(checked.bytes, lines.len() as u64 + 120);
    let file = image
        .file(&image.lookup("lines").unwrap().unwrap())
        .unwrap();
    let stored = file.stored_as();
    assert!(stored.compressed >= 64 << 10, "{stored:?}");
}

#[test]
fn every_decoder_reads_what_mksquashfs_wrote() {
    for codec in Codec::ALL {
        let [in_c, in_rust] = built(codec);
        for (rust, is_built) in [(false, in_c || in_rust), (true, in_rust)] {
            match image(codec, rust) {
                Ok(image) => {
                    assert!(is_built, "{codec}");
                    assert_eq!(image.codec(), codec);
                    check(&image);
                }
                Err(e) => {
                    assert!(!is_built, "{codec}: {e}");
                    assert_eq!(e.kind(), ErrorKind::Unsupported);
                    let features = match (codec, rust) {
                        (Codec::Lzo, _) => "lzo".to_owned(),
                        (_, true) => format!("{codec}-rust"),
                        (_, false) => format!("{codec} or {codec}-rust"),
                    };
                    let path = e.path().unwrap().display();
                    let expected = format!(
                        "{path}: this program was built without a decoder of {codec}; \
                         build it with the feature {features} of brisk-image"
                    );
                    assert_eq!(e.to_string(), expected);
                }
            }
        }
    }
}

/// What needs no decoder is read without one.
#[test]
fn an_image_without_compressed_blocks_is_read_by_every_build() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/codecs/raw.img");
    for rust in [false, true] {
        let image = Image::open_with(&path, &OpenOptions::new().rust_decoders(rust)).unwrap();
        assert!(image.is_uncompressed());
        assert_eq!(
            image.read("directory/small").unwrap(),
            b"small\n".repeat(20)
        );
    }
}
