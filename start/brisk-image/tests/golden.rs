//! The same tree and options are the same bytes, and images of older versions are read.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use brisk_image::codec::Bcj;
use brisk_image::rules::{PlanRules, Times};
use brisk_image::{Codec, Compression, FileType, Image, ImageWriter, Tree, TreeRules};
use support::{Content, Shape, Snapshot, build, run};

/// Compressions by the names that they have in `testdata/golden/SHA256`.
fn compressions() -> Vec<(&'static str, Compression)> {
    let level = |name: &str, level| {
        let compression: Compression = name.parse().expect("a codec");
        compression.with_level(level).expect("a level")
    };
    let mut filtered = Compression::default_for(Codec::Xz);
    if let Compression::Xz {
        filters, extreme, ..
    } = &mut filtered
    {
        (*filters, *extreme) = (Bcj::ALL.into_iter().collect(), true);
    }
    let mut compressions = vec![
        ("none", Compression::None),
        ("gzip-1", level("gzip", 1)),
        ("gzip-9", level("gzip", 9)),
        ("gzip-12", level("gzip", 12)),
        ("lz4", Compression::default_for(Codec::Lz4)),
        ("lz4-high-12", level("lz4", 12)),
        ("xz-6", Compression::default_for(Codec::Xz)),
        ("xz-6e-filters", filtered),
        ("zstd-1", level("zstd", 1)),
        ("zstd-15", level("zstd", 15)),
        ("zstd-22", level("zstd", 22)),
    ];
    if cfg!(feature = "lzo-encode") {
        compressions.push(("lzo", Compression::default_for(Codec::Lzo)));
    }
    compressions
}

/// The same whoever packs, whenever, and under whatever umask.
fn rules() -> TreeRules {
    TreeRules::default()
        .owner("*", Some(0), Some(0))
        .and_then(|rules| rules.mode("*", "u=rwX,go=rX".parse()?))
        .expect("the rules are right")
        .times(Times::All(1_700_000_000))
        // Some systems give every file a label.
        .xattrs(false)
}

fn writer(compression: Compression, threads: usize) -> ImageWriter {
    let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
    let rules = PlanRules::new(own(&["/many/", "text-4*"]), own(&["noise-*"]));
    ImageWriter::new()
        .compression(compression)
        .block_size(16 << 10)
        .tails(true)
        .rules(rules.expect("the patterns are right"))
        .threads(threads)
        // The recipe has the versions in it, which is what it is for.
        .recipe(false)
}

fn packed(root: &Path, image: &Path, compression: Compression, threads: usize) -> String {
    let rules = rules().threads(threads);
    let tree = Tree::from_directory(root, &rules).expect("the tree can be listed");
    writer(compression, threads)
        .write(&tree, image)
        .expect("the tree can be packed");
    let sum = run("sha256sum", [image]).stdout;
    String::from_utf8_lossy(&sum[..64]).into_owned()
}

/// Makes `to` what `from` is, the last name first, and holes of files as zeros.
fn copy_backwards(from: &Path, to: &Path) {
    let mut first_names = std::collections::HashMap::new();
    let snapshot = Snapshot::of_directory(from);
    for (path, node) in &snapshot.0 {
        if node.content == Content::Directory && !path.as_os_str().is_empty() {
            fs::create_dir(to.join(path)).expect("the directory is ours");
        }
    }
    for (path, node) in snapshot.0.iter().rev() {
        let path = to.join(path);
        if let Some(linked) = &node.linked {
            if let Some(known) = first_names.get(linked) {
                fs::hard_link(known, path).expect("the directory is ours");
                continue;
            }
            first_names.insert(linked.clone(), path.clone());
        }
        match &node.content {
            Content::Directory => {}
            Content::File(bytes) => fs::write(path, bytes).expect("the directory is ours"),
            Content::Symlink(target) => symlink(target, path).expect("the directory is ours"),
            other => panic!("{other:?} needs root"),
        }
    }
}

const SHAPE: Shape = Shape {
    block: 16 << 10,
    root: false,
    wide: 400,
};

#[test]
fn the_same_tree_is_the_same_image() {
    let disk = tempfile::tempdir().expect("a temporary directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    build(disk.path(), SHAPE);
    copy_backwards(disk.path(), memory.path());
    let out = tempfile::tempdir().expect("a temporary directory");
    for (name, compression) in compressions() {
        let expected = packed(disk.path(), &out.path().join(name), compression, 1);
        for (root, threads) in [(&disk, 2), (&disk, 5), (&memory, 1), (&memory, 5)] {
            let found = packed(root.path(), &out.path().join("again"), compression, threads);
            assert_eq!(
                found,
                expected,
                "{name} on {threads} threads from {} is not reproducible, which is a critical bug",
                root.path().display()
            );
        }
    }
}

#[test]
fn images_are_those_of_the_last_version() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("the directory is ours");
    build(&tree, SHAPE);
    let image = dir.path().join("image");
    let lines = compressions().into_iter().map(|(name, compression)| {
        let sum = packed(&tree, &image, compression, 2);
        format!("{sum}  {name}\n")
    });
    let found: String = lines.collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/golden/SHA256");
    let mut expected = fs::read_to_string(&path).expect("the list is there");
    if !cfg!(feature = "lzo-encode") {
        expected = expected
            .lines()
            .filter(|line| !line.ends_with("  lzo"))
            .map(|line| line.to_owned() + "\n")
            .collect();
    }
    assert!(
        found == expected,
        "images are not what they were: not reproducible is a critical bug.\n\
         If the library of a codec moved, that is why. If the layout is meant to be another, say so in CHANGELOG.md. \
         Only then make {} be\n{found}",
        path.display()
    );
}

#[test]
fn the_first_version_is_read() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/compat/v0.1.img");
    let image = Image::open(path).expect("it is an image");
    let facts = (
        image.codec(),
        image.block_size(),
        image.inode_count(),
        image.shared_block_count(),
    );
    assert_eq!(facts, (Codec::Zstd, 4096, 12, 1));
    assert_eq!(
        (image.mkfs_time(), image.is_exportable()),
        (1_700_000_000, true)
    );
    let expected = [
        ("", FileType::Directory, 0o755, 3, 0),
        ("app", FileType::Directory, 0o755, 3, 0),
        ("app/bin", FileType::Directory, 0o755, 2, 0),
        ("app/bin/run", FileType::File, 0o755, 1, 9_000),
        ("app/bin/start", FileType::Symlink, 0o777, 1, 3),
        ("app/empty", FileType::File, 0o644, 1, 0),
        ("app/hello", FileType::File, 0o644, 2, 12),
        ("app/hello again", FileType::File, 0o644, 2, 12),
        ("app/holes", FileType::File, 0o644, 1, 20_005),
        ("app/map", FileType::File, 0o600, 1, 10_000),
        ("app/null", FileType::CharDevice, 0o666, 1, 0),
        ("app/pipe", FileType::Fifo, 0o644, 1, 0),
        ("app/disk", FileType::BlockDevice, 0o660, 1, 0),
    ];
    let walked: Vec<_> = image
        .walk()
        .expect("it has a root")
        .map(|e| e.expect("it goes on"))
        .collect();
    let mut found: Vec<_> = walked
        .iter()
        .map(|entry| {
            let inode = entry.inode();
            let path = entry.path().to_str().expect("names are UTF-8");
            (
                path,
                inode.file_type(),
                inode.permissions(),
                inode.nlink(),
                inode.len(),
            )
        })
        .collect();
    found.sort_by_key(|entry| entry.0);
    let mut expected = Vec::from(expected);
    expected.sort_by_key(|entry| entry.0);
    assert_eq!(found, expected);
    let snapshot = Snapshot::of_image(&image);
    let node = |path: &str| &snapshot.0[Path::new(path)];
    let file = |path: &str| match &node(path).content {
        Content::File(bytes) => bytes.clone(),
        other => panic!("{path} is a {other:?}"),
    };
    assert_eq!(file("app/hello"), b"hello, world");
    assert_eq!(file("app/bin/run"), b"run and ".repeat(1125));
    let mut holes = vec![0; 20_005];
    holes[20_000..].copy_from_slice(b"final");
    assert_eq!(file("app/holes"), holes);
    let map: Vec<u8> = (0..10_000u32).map(|n| ((n * n) >> 5) as u8).collect();
    assert_eq!(file("app/map"), map);
    let stored = |path: &str| {
        let inode = image
            .lookup(path)
            .expect("lookups work")
            .expect("it is there");
        image.file(&inode).expect("it is a file").stored_as()
    };
    assert_eq!(stored("app/map").raw, 10_000);
    assert_eq!(stored("app/holes").sparse, 4 * 4096);
    assert_eq!(stored("app/hello").shared, 12);
    assert_eq!(
        node("app/bin/start").content,
        Content::Symlink("run".into())
    );
    assert_eq!(node("app/null").content, Content::CharDevice(1, 3));
    assert_eq!(node("app/disk").content, Content::BlockDevice(259, 300));
    let xattrs = |path: &str| -> Vec<_> {
        node(path)
            .xattrs
            .iter()
            .map(|(k, v)| (k.to_str().expect("UTF-8"), v.as_slice()))
            .collect()
    };
    let long = [b'x'; 300];
    assert_eq!(
        xattrs("app/hello"),
        [("user.long", &long[..]), ("user.note", b"a note")]
    );
    assert_eq!(xattrs("app/empty"), [("user.long", &long[..])]);
    for (path, node) in &snapshot.0 {
        let owner = if path.starts_with("app/bin") {
            (1000, 1001)
        } else {
            (0, 0)
        };
        assert_eq!(
            (node.uid, node.gid, node.mtime),
            (owner.0, owner.1, 1_700_000_000),
            "{path:?}"
        );
    }
    assert_eq!(
        image.recorded_place().expect("the section is whole"),
        Some("/opt/compat".into())
    );
    let rules = PlanRules::new(vec!["/app/bin/".into()], vec!["map".into()]).expect("patterns");
    let writer = ImageWriter::new()
        .compression(Compression::Zstd { level: 19 })
        .block_size(4096)
        .rules(rules);
    let mut recipe = writer.to_recipe();
    recipe.brisk = "0.1.0".into();
    recipe.library = "zstd-sys 2.1.2+zstd.1.5.7".into();
    assert_eq!(image.recipe().expect("the section is whole"), Some(recipe));
}
