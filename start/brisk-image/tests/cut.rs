//! An image that is cut while it is mapped: every way to read it is an error, and none gives zeros.

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use brisk_image::rules::PlanRules;
use brisk_image::{
    Compression, Error, ErrorKind, Extractor, FileReader, Image, ImageWriter, OpenOptions, Result,
    Tree, TreeRules,
};
use brisk_io::guard_mappings;
use support::open_mapped;

const NAMES: [&str; 2] = ["raw", "compressed"];

fn readers(image: &Image) -> Vec<FileReader> {
    let inode = |name: &str| image.lookup(name).unwrap().unwrap();
    NAMES.map(|name| image.file(&inode(name)).unwrap()).into()
}

/// Does something with a mapped image whose contents are cut off, and whose tables were read before.
fn of_a_cut_image(
    path: &Path,
    whole: &[u8],
    all_raw: bool,
    use_it: impl FnOnce(&Image) -> Result<()>,
) -> Error {
    fs::write(path, whole).unwrap();
    let image = open_mapped(path, &OpenOptions::new()).unwrap();
    assert_eq!(image.walk().unwrap().map(Result::unwrap).count(), 3);
    let readers = readers(&image);
    assert!(readers[0].as_slice().is_some());
    assert_eq!(readers[1].as_slice().is_some(), all_raw);
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(4096).unwrap();
    use_it(&image).expect_err("the contents are gone")
}

#[test]
fn every_way_to_read_what_was_cut_off_is_an_error_of_the_system() {
    guard_mappings().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (number, name) in (1..).zip(NAMES) {
        // Longer than a block, and compressible.
        let text: Vec<u8> = (0..300_000u32)
            .flat_map(|n| (n / 7 * number).to_le_bytes())
            .collect();
        fs::write(tree.join(name), text).unwrap();
    }
    let (path, out) = (dir.path().join("image"), dir.path().join("out"));
    for compression in [Compression::Zstd { level: 1 }, Compression::None] {
        let is_raw = compression == Compression::None;
        let rules = PlanRules::new(Vec::new(), vec!["raw".to_owned()]).unwrap();
        let tree = Tree::from_directory(&tree, &TreeRules::default()).unwrap();
        ImageWriter::new()
            .compression(compression)
            .rules(rules)
            .write(&tree, &path)
            .unwrap();
        let whole = fs::read(&path).unwrap();
        type Use = fn(&FileReader) -> Result<()>;
        let uses: [(&str, Use); 4] = [
            ("read_at", |file| {
                file.read_at(5000, &mut [0; 100]).map(drop)
            }),
            ("piece", |file| file.piece(file.len() - 10, 10).map(drop)),
            ("copy_to", |file| {
                file.copy_to(0..u64::MAX, &mut Vec::new(), 2).map(drop)
            }),
            ("a copy of few bytes", |file| {
                file.copy_to(9000..9010, &mut Vec::new(), 1).map(drop)
            }),
        ];
        for (name, use_it) in uses {
            for (number, file) in NAMES.iter().enumerate() {
                let e = of_a_cut_image(&path, &whole, is_raw, |image| {
                    use_it(&readers(image)[number])
                });
                let what = format!("{compression:?}, {name} of {file}");
                assert_eq!(e.kind(), ErrorKind::Io, "{what}: {e}");
                assert_eq!(e.path(), Some(path.as_path()), "{what}");
            }
        }
        let e = of_a_cut_image(&path, &whole, is_raw, |image| {
            Extractor::new().extract(image, &out).map(drop)
        });
        assert_eq!(e.kind(), ErrorKind::Io, "{compression:?}, extract: {e}");
        fs::remove_dir_all(&out).ok();
        for number in 0..NAMES.len() {
            of_a_cut_image(&path, &whole, is_raw, |image| {
                let read = readers(image)[number].stream().read_to_end(&mut Vec::new());
                let e = read.expect_err("the contents are gone");
                assert_ne!(e.kind(), std::io::ErrorKind::InvalidData, "{e}");
                image.check_mapping()
            });
        }
        // A borrower has to ask.
        let e = of_a_cut_image(&path, &whole, is_raw, |image| {
            let reader = &readers(image)[0];
            let slice = reader.as_slice().unwrap();
            assert_eq!(std::hint::black_box(slice)[100_000], 0);
            image.check_mapping()
        });
        assert_eq!(e.kind(), ErrorKind::Io, "{compression:?}, borrowed: {e}");
    }
}
