//! The kernel mounts what we write, and shows what was packed.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use brisk_image::codec::Bcj;
use brisk_image::rules::PlanRules;
use brisk_image::{Codec, Compression, Image, ImageWriter, Tree, TreeRules};
use support::{Shape, Snapshot, all_pairs, alone_in_namespace, build, mounted, wide};

const BLOCKS: [usize; 5] = [4 << 10, 8 << 10, 64 << 10, 128 << 10, 1 << 20];

fn compressions() -> Vec<Compression> {
    let level = |name: &str, level| {
        let compression: Compression = name.parse().expect("a codec");
        compression.with_level(level).expect("a level")
    };
    let mut filtered = Compression::default_for(Codec::Xz);
    if let Compression::Xz { filters, .. } = &mut filtered {
        *filters = [Bcj::X86].into_iter().collect();
    }
    let mut all: Vec<_> = Codec::ALL.map(Compression::default_for).into();
    all.extend([
        Compression::None,
        filtered,
        level("gzip", 12),
        level("lz4", 12),
        level("zstd", 22),
        level("xz", 0),
    ]);
    all
}

#[test]
fn the_kernel_reads_our_images() {
    alone_in_namespace("the_kernel_reads_our_images", || {
        const RULES: [(&[&str], &[&str]); 3] = [
            (&[], &[]),
            (&["/many/", "text-*"], &["/sparse/"]),
            (&[], &["/lengths/", "/same/"]),
        ];
        let compressions = compressions();
        // Then: rules, fragments and tails, xattrs, duplicates, export, threads.
        let sizes = [BLOCKS.len(), compressions.len(), RULES.len(), 3, 2, 2, 2, 2];
        let mut rows = all_pairs(&sizes);
        rows.sort();
        let scratch = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let image = scratch.path().join("image");
        for rows in rows.chunk_by(|a, b| a[0] == b[0]) {
            let block = BLOCKS[rows[0][0]];
            let dir = tempfile::tempdir().expect("a temporary directory");
            build(
                dir.path(),
                Shape {
                    block,
                    root: true,
                    wide: 600,
                },
            );
            let snapshot = Snapshot::of_directory(dir.path());
            for row in rows {
                let on = |axis: usize| row[axis] == 1;
                let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
                let (order, raw) = RULES[row[2]];
                let writer = ImageWriter::new()
                    .block_size(block as u32)
                    .compression(compressions[row[1]])
                    .rules(PlanRules::new(own(order), own(raw)).expect("the patterns are right"))
                    .shared_blocks(row[3] > 0)
                    .tails(row[3] > 1)
                    .deduplicate(on(5))
                    .export(on(6))
                    .threads(if on(7) { 2 } else { 1 });
                let rules = TreeRules::default().xattrs(!on(4));
                let tree = Tree::from_directory(dir.path(), &rules).expect("it can be listed");
                writer.write(&tree, &image).expect("the tree can be packed");
                let expected = if on(4) {
                    snapshot.without_xattrs()
                } else {
                    snapshot.clone()
                };
                mounted(&image, |root| {
                    let context = format!("{writer:?}, xattrs: {}", !on(4));
                    Snapshot::of_directory(root).assert_is(&expected, &context);
                    check_numbers(root, &image, &expected);
                });
            }
        }
        println!("{} rows", rows.len());
    });
}

/// The kernel has the same inode numbers as the library.
fn check_numbers(root: &Path, image: &Path, expected: &Snapshot) {
    let image = Image::open(image).expect("it is an image");
    for path in expected.0.keys() {
        let kernel = fs::symlink_metadata(root.join(path)).expect("it is there");
        let inode = image
            .lookup(path)
            .expect("lookups work")
            .expect("it is there");
        assert_eq!(kernel.ino(), u64::from(inode.number()), "{path:?}");
    }
}

#[test]
fn the_kernel_finds_each_of_a_hundred_thousand_names() {
    alone_in_namespace("the_kernel_finds_each_of_a_hundred_thousand_names", || {
        const COUNT: usize = 100_000;
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let root = dir.path().join("tree");
        fs::create_dir(&root).expect("the directory is ours");
        let names = wide(&root, COUNT);
        let tree = Tree::from_directory(&root, &TreeRules::default()).expect("it can be listed");
        for codec in ["lz4", "none"] {
            let image = dir.path().join("image");
            let writer = ImageWriter::new().compression(codec.parse().expect("a codec"));
            writer.write(&tree, &image).expect("the tree can be packed");
            mounted(&image, |root| {
                // Names are looked up while the kernel knows none of them, the last first.
                for name in names.iter().rev().step_by(97).chain(names.first()) {
                    let path = root.join("wide").join(name);
                    assert!(fs::symlink_metadata(&path).expect("it is found").is_file());
                }
                // For a name that is not there Linux goes on to the next first letter, which is
                // 40 ms away in this directory.
                let absent = names
                    .iter()
                    .step_by(9973)
                    .map(|name| name.to_string_lossy() + "~");
                for name in absent.chain(["a", "e", "f"].map(Into::into)) {
                    let e = fs::symlink_metadata(root.join("wide").join(&*name));
                    let e = e.expect_err("it is not there");
                    assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{name:?}");
                }
                let listed = fs::read_dir(root.join("wide")).expect("it is a directory");
                let listed: Vec<_> = listed
                    .map(|e| e.expect("the listing goes on").file_name())
                    .collect();
                assert!(listed == names);
            });
        }
    });
}
