//! Names of any bytes, on any system. `testdata/names.img` is of mksquashfs, without compression.

use std::path::{Path, PathBuf};

use brisk_image::{Image, InodeKind, names};

fn image() -> Image {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Image::open(dir.join("testdata").join("names.img")).unwrap()
}

/// All paths, each with what is there, as bytes.
const TREE: [(&[u8], &[u8]); 7] = [
    (b"", b"directory"),
    (b"C:", b"drive\n"),
    (b"caf\xe9", b"latin\n"),
    (b"dir\\x2d", b"directory"),
    (b"dir\\x2d/a\\b", b"back\n"),
    (b"link", b"caf\xe9"),
    (b"slash", b"dir\\x2d/a\\b"),
];

#[test]
fn a_walk_tells_all_bytes_of_paths_and_targets() {
    let image = image();
    let told = image.walk().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let path = names::to_bytes(entry.path().as_os_str()).into_owned();
        let what = match entry.inode().kind() {
            InodeKind::File(_) => image.file(entry.inode()).unwrap().read_to_vec().unwrap(),
            InodeKind::Symlink(target) => {
                assert_eq!(entry.inode().len(), names::to_bytes(target).len() as u64);
                names::to_bytes(target).into_owned()
            }
            _ => b"directory".to_vec(),
        };
        (path, what)
    });
    let told: Vec<_> = told.collect();
    let expected = TREE.map(|(path, what)| (path.to_vec(), what.to_vec()));
    assert_eq!(told, expected);
}

#[test]
fn each_path_leads_to_what_the_walk_found() {
    let image = image();
    for entry in image.walk().unwrap() {
        let entry = entry.unwrap();
        let found = image.lookup(entry.path()).unwrap().unwrap();
        assert_eq!(found.reference(), entry.inode().reference());
    }
    for (path, contents) in [
        (&b"C:"[..], &b"drive\n"[..]),
        (b"./dir\\x2d/../caf\xe9", b"latin\n"),
        (b"/link", b"latin\n"),
        (b"slash", b"back\n"),
    ] {
        let path = PathBuf::from(names::from_bytes(path));
        assert_eq!(image.read(&path).unwrap(), contents, "{path:?}");
    }
}

#[test]
fn only_slashes_separate_names() {
    let image = image();
    assert!(image.lookup(Path::new("dir\\x2d/a\\b")).unwrap().is_some());
    for path in ["dir/x2d/a/b", "dir\\x2d\\a\\b", "dir\\x2d/a/b"] {
        assert!(image.lookup(path).unwrap().is_none(), "{path}");
        let e = image.inode_at(path).unwrap_err();
        let message = e.to_string();
        let expected = format!("names.img: there is no {path:?} in the image");
        assert!(message.ends_with(&expected), "{message}");
    }
}
