//! Every way in which the library reads an image, held against what the image was made of.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

use brisk_image::{FileReader, Image, OpenOptions, Result};
use brisk_io::ImmutableFile;

use super::{Content, Random, Snapshot};

/// Opens the image in a file of the test's own, which nobody writes to but a test that says so, and maps it.
pub fn open_mapped(path: &Path, options: &OpenOptions) -> Result<Image> {
    let file = File::open(path).expect("the file is there");
    // SAFETY: the file is in a directory of the test's own, and is written to no more. Tests that cut it look only whether
    // that is told.
    let file = unsafe { ImmutableFile::new(file) };
    Image::open_mapped(path, &file, options)
}

/// Reads all of `image` in every way there is.
#[track_caller]
pub fn check_reader(image: &Image, expected: &Snapshot, context: &str) {
    Snapshot::of_image(image).assert_is(expected, context);
    check_access(image, expected, context);
}

/// The same without a walk: what `expected` leaves out may be anything.
#[track_caller]
pub fn check_access(image: &Image, expected: &Snapshot, context: &str) {
    check_names(image, expected, context);
    check_numbers(image, context);
    let mut random = Random(image.bytes_used());
    for (path, node) in &expected.0 {
        if let Content::File(bytes) = &node.content {
            let inode = image
                .lookup(path)
                .expect("lookups work")
                .expect("it is there");
            let file = image.file(&inode).expect("the file has blocks");
            check_contents(&file, bytes, &mut random, &format!("{context}: {path:?}"));
        }
    }
}

fn check_contents(file: &FileReader, bytes: &[u8], random: &mut Random, context: &str) {
    assert_eq!(file.len(), bytes.len() as u64, "{context}");
    let mut buf = vec![0xaa; bytes.len() + 3];
    let n = file.read_at(0, &mut buf).expect("the file decodes");
    assert!(
        n == bytes.len() && buf[..n] == *bytes,
        "{context}: read whole"
    );
    assert_eq!(
        buf[n..],
        [0xaa; 3],
        "{context}: bytes behind the end were written to"
    );
    assert_eq!(
        file.read_at(file.len() + 1, &mut buf)
            .expect("nothing to read"),
        0,
        "{context}"
    );
    if bytes.is_empty() {
        return;
    }
    for _ in 0..6 {
        let from = random.below(bytes.len() as u64) as usize;
        let n = random.below((bytes.len() - from).min(200_000) as u64 + 1) as usize;
        let got = file
            .read_at(from as u64, &mut buf[..n])
            .expect("the file decodes");
        assert!(
            buf[..got] == bytes[from..from + n],
            "{context}: {n} bytes from {from}"
        );
    }
    for threads in [1, 3] {
        let mut out = Vec::new();
        let n = file
            .copy_to(0..u64::MAX, &mut out, threads)
            .expect("the file decodes");
        assert!(
            n == bytes.len() as u64 && out == bytes,
            "{context}: copied by {threads} threads"
        );
        out.clear();
        let from = random.below(bytes.len() as u64) as usize;
        let to = from + random.below((bytes.len() - from) as u64 + 1) as usize;
        file.copy_to(from as u64..to as u64, &mut out, threads)
            .expect("the file decodes");
        assert!(
            out == bytes[from..to],
            "{context}: {from}..{to} copied by {threads} threads"
        );
    }
    if let Some(slice) = file.as_slice() {
        assert!(slice == bytes, "{context}: borrowed");
    }
}

/// Adds `path` to the names of its directory; false for the root.
fn listed<'a>(listings: &mut BTreeMap<&'a Path, Vec<OsString>>, path: &'a Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return false;
    };
    listings.entry(parent).or_default().push(name.to_owned());
    true
}

/// Every name is found, in order, and no other is.
fn check_names(image: &Image, expected: &Snapshot, context: &str) {
    let mut listings: BTreeMap<&Path, Vec<OsString>> = BTreeMap::new();
    for (n, (path, node)) in expected.0.iter().enumerate() {
        // Of what is many and alike, some.
        if path.starts_with("wide") && n % 7 > 0 && node.content != Content::Directory {
            listed(&mut listings, path);
            continue;
        }
        let inode = image.lookup(path).expect("lookups work");
        let inode = inode.unwrap_or_else(|| panic!("{context}: {path:?} is not found"));
        let absolute = image
            .lookup(Path::new("/").join(path))
            .expect("lookups work");
        assert_eq!(
            absolute.map(|i| i.reference()),
            Some(inode.reference()),
            "{context}: {path:?}"
        );
        if node.content == Content::Directory {
            listings.entry(path).or_default();
            for absent in ["", "\u{1}", "entry 1", "m", "\u{10ffff}", "zz/zz"] {
                let path = path.join(absent);
                let known = expected.0.contains_key(&path);
                let found = image.lookup(&path).expect("lookups work");
                assert_eq!(found.is_some(), known, "{context}: {path:?}");
            }
        } else {
            let below = image.lookup(path.join("below")).expect("lookups work");
            assert!(below.is_none(), "{context}: something below {path:?}");
        }
        if listed(&mut listings, path) {
            let mut absent = path.clone().into_os_string();
            absent.push("~");
            let longer = image.lookup(PathBuf::from(absent)).expect("lookups work");
            assert!(longer.is_none(), "{context}: {path:?} and a tilde");
        }
    }
    for (path, mut names) in listings {
        names.sort();
        let inode = image
            .lookup(path)
            .expect("lookups work")
            .expect("it is there");
        let listed = image.read_dir(&inode).expect("it is a directory");
        let listed: Vec<OsString> = listed
            .map(|entry| entry.expect("the listing goes on").name().to_owned())
            .collect();
        assert_eq!(listed, names, "{context}: order in {path:?}");
        // The directory's own look-up, at both ends and between.
        let picked = [names.first(), names.get(names.len() / 2), names.last()];
        for name in picked.into_iter().flatten() {
            let entry = image.lookup_in(&inode, name).expect("lookups work");
            assert_eq!(
                entry.as_ref().map(|e| e.name()),
                Some(name.as_os_str()),
                "{context}"
            );
        }
        assert!(
            image
                .lookup_in(&inode, OsStr::new("not there"))
                .expect("lookups work")
                .is_none()
        );
    }
}

/// Numbers are those of the inodes, if the image has them.
fn check_numbers(image: &Image, context: &str) {
    let mut seen = std::collections::BTreeSet::new();
    for entry in image.walk().expect("the image has a root") {
        let (path, inode) = entry.expect("the walk goes on").into_parts();
        let found = image
            .inode_by_number(inode.number())
            .expect("numbers are found");
        let expected = image.is_exportable().then(|| inode.reference());
        assert_eq!(
            found.map(|i| i.reference()),
            expected,
            "{context}: number of {path:?}"
        );
        seen.insert(inode.number());
    }
    assert_eq!(
        seen.len(),
        image.inode_count() as usize,
        "{context}: numbers are unique"
    );
    assert_eq!(
        seen.last(),
        Some(&image.inode_count()),
        "{context}: numbers have no gaps"
    );
    if image.is_exportable() {
        for number in [0, image.inode_count() + 1, u32::MAX] {
            assert!(
                image.inode_by_number(number).is_err(),
                "{context}: number {number}"
            );
        }
    }
}
