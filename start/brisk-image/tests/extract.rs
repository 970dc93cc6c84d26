//! What the extractor makes of an image is the tree that was packed, and nothing outside of it.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brisk_image::{
    ErrorKind, Extractor, Image, ImageWriter, Tree, TreeBuilder, TreeEntry, TreeRules,
};
use support::{
    Content, NOBODY, Shape, Snapshot, as_nobody, brisk_extract, build, expect_root, run,
};

/// The setuid and setgid bits, which files of other owners never get.
const PRIVILEGES: u32 = 0o6000;

struct Packed {
    dir: tempfile::TempDir,
    snapshot: Snapshot,
}

impl Packed {
    fn new(block: usize) -> Self {
        expect_root();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("tree");
        fs::create_dir(&root).expect("the directory is ours");
        build(
            &root,
            Shape {
                block,
                root: true,
                wide: 50,
            },
        );
        let snapshot = Snapshot::of_directory(&root);
        let packed = Self { dir, snapshot };
        pack(&root, &packed.path("image"), block);
        packed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> Image {
        Image::open(self.path("image")).expect("it is an image")
    }
}

fn pack(root: &Path, image: &Path, block: usize) {
    let tree = Tree::from_directory(root, &TreeRules::default()).expect("it can be listed");
    let writer = ImageWriter::new()
        .block_size(block as u32)
        .compression("lz4".parse().expect("a codec"));
    writer.write(&tree, image).expect("the tree can be packed");
}

fn count(snapshot: &Snapshot, is: fn(&Content) -> bool) -> u64 {
    let first = |(path, node): &(&PathBuf, &support::Node)| {
        is(&node.content) && node.linked.as_ref().is_none_or(|linked| linked == *path)
    };
    snapshot.0.iter().filter(first).count() as u64
}

#[test]
fn what_is_extracted_is_what_was_packed() {
    for block in [4096, 64 << 10, 1 << 20] {
        let packed = Packed::new(block);
        for threads in [1, 3] {
            let target = packed.path(&format!("out-{threads}"));
            let summary = brisk_extract(&packed.path("image"), &target, threads);
            let context = format!("blocks of {block} on {threads} threads");
            Snapshot::of_directory(&target).assert_is(&packed.snapshot, &context);
            assert_eq!(summary.warnings, [""; 0], "{context}");
            let counts = [
                summary.files,
                summary.directories,
                summary.symlinks,
                summary.specials,
            ];
            let expected = [
                count(&packed.snapshot, |c| matches!(c, Content::File(_))),
                count(&packed.snapshot, |c| *c == Content::Directory),
                count(&packed.snapshot, |c| matches!(c, Content::Symlink(_))),
                count(&packed.snapshot, |c| {
                    !matches!(
                        c,
                        Content::File(_) | Content::Directory | Content::Symlink(_)
                    )
                }),
            ];
            assert_eq!(counts, expected, "{context}");
            assert_eq!(summary.hard_links, 6, "{context}");
            check_holes(&target, block);
        }
    }
}

/// Blocks that are holes are not on the disk.
fn check_holes(target: &Path, block: usize) {
    let blocks_with_data = [
        ("start", 1),
        ("middle", 2),
        ("end", 1),
        ("all", 0),
        ("all and a tail", 1),
        ("islands", 3),
        // Zeros that were on the disk are not any more.
        ("zeros", 1),
    ];
    for (name, blocks) in blocks_with_data {
        let metadata = fs::metadata(target.join("sparse").join(name)).expect("it is there");
        let most = blocks * block.max(4096) as u64;
        // Some filesystems take a block for the map of what is where.
        let taken = metadata.blocks() * 512;
        assert!(
            taken <= most + 4096,
            "{name} of {} bytes takes {taken}",
            metadata.len()
        );
        assert!(
            taken < metadata.len() || metadata.len() <= 2 * block as u64 + 3,
            "{name}"
        );
    }
}

#[test]
fn an_ordinary_user_gets_what_it_may_have() {
    let before = |own: &Path| {
        let packed = Packed::new(4096);
        fs::copy(packed.path("image"), own.join("image")).expect("the directory is ours");
    };
    let test = |own: &Path| {
        let summary = brisk_extract(&own.join("image"), &own.join("out"), 2);
        assert_eq!((summary.specials, summary.hard_links), (2, 5));
        let refused = |name: &str, path: &str| {
            format!(
                "xattr {name} was not written: Operation not permitted (os error 1) \
                 (1 file, the first is {path:?})"
            )
        };
        assert_eq!(
            summary.warnings,
            [
                "block device was not made: only root can (2 files, the first is \"specials/disk\")".into(),
                "character device was not made: only root can (2 files, the first is \"specials/far minor\")".into(),
                "the setgid bit was left out: the file belongs to another owner now \
                 (49 files, the first is \"deep/level-0/level-1/level-2/\")"
                    .into(),
                "the setuid bit was left out: the file belongs to another owner now \
                 (48 files, the first is \"deep/level-0/level-1/\")"
                    .into(),
                refused("security.c", "xattrs/all"),
                refused("trusted.b", "xattrs/all"),
                refused("trusted.on.a.fifo", "specials/fifo"),
                refused("trusted.on.a.link", "xattrs/link"),
                refused("trusted.on.a.socket", "specials/socket"),
                "xattr trusted.same was not written: Operation not permitted (os error 1) \
                 (3 files, the first is \"xattrs/long-1\")"
                    .into(),
            ]
        );
    };
    let after = |own: &Path| {
        let packed = Packed::new(4096);
        let mut expected = packed.snapshot.map(|_, node| {
            (node.uid, node.gid) = (NOBODY, NOBODY);
            node.permissions &= !PRIVILEGES;
            node.xattrs
                .retain(|name, _| name.to_string_lossy().starts_with("user."));
        });
        expected.0.retain(|_, node| {
            !matches!(
                node.content,
                Content::BlockDevice(..) | Content::CharDevice(..)
            )
        });
        Snapshot::of_directory(&own.join("out")).assert_is(&expected, "as an ordinary user");
    };
    as_nobody(
        "an_ordinary_user_gets_what_it_may_have",
        before,
        test,
        after,
    );
}

#[test]
fn owners_and_attributes_can_be_left_out() {
    let packed = Packed::new(4096);
    let target = packed.path("out");
    let extractor = Extractor::new().owners(false).setuid(false).xattrs(false);
    let summary = extractor
        .extract(&packed.image(), &target)
        .expect("the image is whole");
    assert_eq!(summary.warnings, [""; 0]);
    let expected = packed.snapshot.without_xattrs().map(|_, node| {
        (node.uid, node.gid) = (0, 0);
        node.permissions &= !PRIVILEGES;
    });
    Snapshot::of_directory(&target).assert_is(&expected, "without owners");
}

#[test]
fn rights_of_another_owner_are_left_out() {
    expect_root();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut tree = TreeBuilder::new();
    // As `setcap cap_net_raw+ep` writes it: version 2, effective, bit 13.
    let capability = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    for (path, entry) in [
        (
            "setuid",
            TreeEntry::file("a").permissions(0o4755).owner(1000, 1000),
        ),
        (
            "both",
            TreeEntry::file("b").permissions(0o6711).owner(0, 1000),
        ),
        (
            "capable",
            TreeEntry::file("c")
                .permissions(0o755)
                .xattr("security.capability", capability),
        ),
        (
            "plain",
            TreeEntry::file("d").permissions(0o755).owner(1000, 1000),
        ),
        ("shared", TreeEntry::directory().permissions(0o3777)),
        ("null", TreeEntry::char_device(1, 3).permissions(0o666)),
    ] {
        tree.add(path, entry).expect("a new path");
    }
    let path = dir.path().join("image");
    ImageWriter::new()
        .write(&tree.finish(), &path)
        .expect("the tree can be packed");
    let image = Image::open(&path).expect("it is an image");
    let extracted = |name: &str, extractor: Extractor| {
        let target = dir.path().join(name);
        let summary = extractor
            .extract(&image, &target)
            .expect("the image is whole");
        let mode = |name| fs::metadata(target.join(name)).expect("it is there").mode() & 0o7777;
        let modes = ["setuid", "both", "capable", "plain", "shared"].map(mode);
        let is_capable =
            rustix::fs::getxattr(target.join("capable"), "security.capability", &mut [0; 64])
                .is_ok();
        (
            modes,
            is_capable,
            target.join("null").exists(),
            summary.warnings,
        )
    };
    let all = (
        [0o4755, 0o6711, 0o755, 0o755, 0o3777],
        true,
        true,
        Vec::new(),
    );
    assert_eq!(extracted("all", Extractor::new()), all);
    let none = [0o755, 0o711, 0o755, 0o755, 0o1777];
    let asked = extracted("asked", Extractor::new().setuid(false).devices(false));
    assert_eq!(asked, (none, false, false, Vec::new()));
    let warnings = [
        "the setgid bit was left out: the file belongs to another owner now (2 files, the first is \"both\")",
        "the setuid bit was left out: the file belongs to another owner now (2 files, the first is \"both\")",
        "xattr security.capability was left out: the file belongs to another owner now (1 file, the first is \"capable\")",
    ];
    let others = extracted("others", Extractor::new().owners(false));
    assert_eq!(
        others,
        (none, false, true, warnings.map(str::to_owned).to_vec())
    );
}

#[test]
fn patterns_choose_what_is_extracted() {
    let packed = Packed::new(4096);
    let lines = ["*.conf", "!/many/3*.conf", "/links/", "level-40/", "fifo"].map(str::to_owned);
    let extractor = Extractor::new()
        .select(&lines)
        .expect("the patterns are right");
    let target = packed.path("out");
    extractor
        .extract(&packed.image(), &target)
        .expect("the image is whole");
    let deep = packed
        .snapshot
        .0
        .keys()
        .find(|path| path.ends_with("level-40"))
        .expect("it is there");
    let chosen: BTreeSet<&PathBuf> = packed
        .snapshot
        .0
        .keys()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.starts_with("links")
                || path.starts_with(deep)
                || name == "fifo"
                || name.ends_with(".conf") && !name.starts_with('3')
        })
        .collect();
    let mut expected = packed.snapshot.clone();
    // With the directories on the way.
    expected
        .0
        .retain(|path, _| chosen.iter().any(|chosen| chosen.starts_with(path)));
    // Names that are not there count no more.
    let mut names = std::collections::BTreeMap::<_, u64>::new();
    for node in expected.0.values() {
        *names.entry(node.linked.clone()).or_default() += 1;
    }
    let expected = expected.map(|_, node| {
        if node.linked.is_some() {
            node.nlink = names[&node.linked];
            node.linked = node.linked.take().filter(|_| node.nlink > 1);
        }
    });
    let found = Snapshot::of_directory(&target).without_directory_links();
    found.assert_is(&expected.without_directory_links(), "some of it");
}

#[test]
fn a_target_that_cannot_be_is_refused_and_left_alone() {
    let packed = Packed::new(4096);
    let full = packed.path("full");
    fs::create_dir(&full).expect("the directory is ours");
    fs::write(full.join("mine"), "kept").expect("the directory is ours");
    let table = [
        (
            full.clone(),
            "the target directory is not empty; name a new one",
            ErrorKind::Input,
        ),
        (
            full.join("mine"),
            "cannot list the target directory",
            ErrorKind::Io,
        ),
        (
            packed.path("none/such"),
            "cannot make the target directory",
            ErrorKind::NotFound,
        ),
    ];
    for (target, message, kind) in table {
        let e = Extractor::new()
            .extract(&packed.image(), &target)
            .expect_err("it is refused");
        assert_eq!(e.to_string(), format!("{}: {message}", target.display()));
        assert_eq!(e.kind(), kind);
    }
    assert_eq!(fs::read(full.join("mine")).expect("it is there"), b"kept");
    assert_eq!(fs::read_dir(&full).expect("it is there").count(), 1);
}

#[test]
fn a_target_with_files_gets_those_of_the_image_in_their_place() {
    let packed = Packed::new(4096);
    let (target, outside) = (packed.path("target"), packed.path("outside"));
    let extract = || {
        let extractor = Extractor::new().replace(true);
        extractor.extract(&packed.image(), &target).map(|_| ())
    };
    extract().expect("it is new");
    let whole = Snapshot::of_directory(&target);
    extract().expect("all of it is there");
    Snapshot::of_directory(&target).assert_is(&whole, "extracted twice");
    // A file whose name leads elsewhere now is replaced, and what it leads to is not touched.
    fs::write(&outside, "kept").expect("the directory is ours");
    let is_file = |(path, _): &(&PathBuf, _)| target.join(path).is_file();
    let (file, _) = whole.0.iter().find(is_file).expect("it has files");
    fs::remove_file(target.join(file)).expect("it is there");
    std::os::unix::fs::symlink(&outside, target.join(file)).expect("the directory is ours");
    fs::write(target.join("mine"), "kept").expect("the directory is ours");
    extract().expect("the link gives way");
    assert_eq!(fs::read(&outside).expect("it is there"), b"kept");
    assert_eq!(fs::read(target.join("mine")).expect("it is there"), b"kept");
    assert!(!target.join(file).is_symlink());
    // A link in the place of a directory does not.
    fs::remove_dir_all(target.join("links")).expect("it is there");
    fs::create_dir(packed.path("elsewhere")).expect("the directory is ours");
    std::os::unix::fs::symlink(packed.path("elsewhere"), target.join("links"))
        .expect("the directory is ours");
    let e = extract().expect_err("it is refused");
    let place = target.join("links");
    let expected = format!("{}: cannot make the directory", place.display());
    assert_eq!(e.to_string(), expected);
    let elsewhere = fs::read_dir(packed.path("elsewhere")).expect("it is there");
    assert_eq!(elsewhere.count(), 0);
}

/// An image of a link `aa` out of the target and a directory `ab` with a file, whose bytes are
/// then changed.
fn forged(dir: &Path, outside: &Path, change: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let root = dir.join("tree");
    fs::create_dir_all(root.join("ab")).expect("the directory is ours");
    std::os::unix::fs::symlink(outside, root.join("aa")).expect("the directory is ours");
    fs::write(root.join("ab/pwned"), "outside").expect("the directory is ours");
    let tree = Tree::from_directory(&root, &TreeRules::default()).expect("it can be listed");
    let path = dir.join("image");
    let writer = ImageWriter::new().compression("none".parse().expect("a codec"));
    writer.write(&tree, &path).expect("the tree can be packed");
    let mut bytes = fs::read(&path).expect("it was written");
    change(&mut bytes);
    fs::write(&path, bytes).expect("the directory is ours");
    path
}

/// Replaces the only place in `bytes` that is `from`.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<_> = (0..bytes.len() - from.len())
        .filter(|&at| bytes[at..].starts_with(from))
        .collect();
    assert_eq!(places.len(), 1, "{places:?}");
    bytes[places[0]..][..to.len()].copy_from_slice(to);
}

#[test]
fn no_link_leads_out_of_the_target() {
    // The type and the length of the name stand before the name.
    let (link, directory) = (b"\x03\0\x01\0aa", b"\x01\0\x01\0ab");
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let table: [(Change<'_>, Option<&str>); 4] = [
        (&|_| {}, None),
        // The directory has the name of the link.
        (
            &|bytes| replace(bytes, directory, b"\x01\0\x01\0aa"),
            Some("name \"aa\" does not sort after the name before it"),
        ),
        (
            &|bytes| replace(bytes, directory, b"\x01\0\x01\0.."),
            Some("name \"..\" is reserved"),
        ),
        (
            &|bytes| replace(bytes, link, b"\x03\0\x01\0a/"),
            Some("name \"a/\" holds a slash"),
        ),
    ];
    for (change, message) in table {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("the directory is ours");
        let before = Snapshot::of_directory(&outside);
        let image = forged(dir.path(), &outside, change);
        let target = dir.path().join("target");
        let image = Image::open(image).expect("the superblock is whole");
        let extracted = Extractor::new().extract(&image, &target);
        match (extracted, message) {
            (Ok(summary), None) => assert_eq!((summary.files, summary.symlinks), (1, 1)),
            (Err(e), Some(message)) => {
                assert!(e.to_string().ends_with(message), "{e}");
                assert_eq!(e.kind(), ErrorKind::Corrupt);
            }
            (other, message) => panic!("{other:?} where {message:?} is expected"),
        }
        Snapshot::of_directory(&outside).assert_is(&before, "outside of the target");
    }
}

#[test]
fn what_we_extract_is_what_unsquashfs_extracts() {
    let packed = Packed::new(8192);
    let theirs = packed.path("theirs");
    let image = packed.path("image-theirs");
    let paths = [packed.path("tree"), image.clone()].map(PathBuf::into_os_string);
    let args = ["-noappend", "-quiet", "-no-progress", "-b", "8192"].map(Into::into);
    run("mksquashfs", paths.into_iter().chain(args));
    let args: [&std::ffi::OsStr; 5] = [
        "-quiet".as_ref(),
        "-no-progress".as_ref(),
        "-d".as_ref(),
        theirs.as_ref(),
        image.as_ref(),
    ];
    run("unsquashfs", args);
    let ours = packed.path("ours");
    brisk_extract(&image, &ours, 2);
    Snapshot::of_directory(&ours).assert_is(&Snapshot::of_directory(&theirs), "both tools");
}
