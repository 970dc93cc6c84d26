//! Blocks of an image are copied into a new one where compressing them again would give the same bytes.

mod support;

use std::fs;
use std::io::Cursor;
use std::path::Path;

use brisk_image::rules::PlanRules;
use brisk_image::summary::Tally;
use brisk_image::{
    Compression, Image, ImageWriter, OpenOptions, Tree, TreeBuilder, TreeEntry, TreeRules,
};
use serde_json::{Value, json};
use support::{Shape, Snapshot, alone_in_namespace, build, mounted, noise, run, run_quiet, text};

const BLOCK: usize = 16 << 10;

fn pack(writer: &ImageWriter, tree: &Tree) -> (Vec<u8>, Tally) {
    let mut bytes = Vec::new();
    let packed = writer.write_to(tree, Cursor::new(&mut bytes));
    let data = packed.expect("the tree can be packed").data;
    (bytes, data)
}

fn open(bytes: &[u8]) -> Image {
    Image::from_source(bytes.to_vec(), &OpenOptions::new()).expect("it is an image")
}

fn tree_of(image: &Image) -> Tree {
    Tree::from_image(image, &TreeRules::default()).expect("the image can be read")
}

fn writer(codec: &str) -> ImageWriter {
    ImageWriter::new()
        .compression(codec.parse().expect("a codec"))
        .block_size(BLOCK as u32)
}

fn rules(order: &[&str], raw: &[&str]) -> PlanRules {
    let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
    PlanRules::new(own(order), own(raw)).expect("the patterns are right")
}

/// A file of four compressed blocks and one of two raw ones, a file of a hole, and two small ones that share a block.
fn tree() -> Tree {
    let mut tree = TreeBuilder::new();
    let mut add = || -> brisk_image::Result<()> {
        tree.add("hole", TreeEntry::file(vec![0; 3 * BLOCK]))?
            .add("noise", TreeEntry::file(noise(2, 2 * BLOCK)))?
            .add("one", TreeEntry::file(text(3, 500)))?
            .add("text", TreeEntry::file(text(1, 3 * BLOCK + 100)))?
            .add("two", TreeEntry::file(text(4, 600)))?;
        Ok(())
    };
    add().expect("all can be added");
    tree.finish()
}

/// Packs `tree` by `writer` with copies and without. The image must be the same. Returns it, and how many blocks were
/// copied.
#[track_caller]
fn both(writer: &ImageWriter, tree: &Tree) -> (Vec<u8>, u64) {
    let (copied, data) = pack(writer, tree);
    let (anew, anew_data) = pack(&writer.clone().copy_blocks(false), tree);
    assert!(copied == anew, "{writer:?}");
    let mut others = data;
    others.copied_blocks = 0;
    assert_eq!(others, anew_data);
    (copied, data.copied_blocks)
}

#[test]
fn all_blocks_of_an_unchanged_tree_are_copied() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shape = Shape {
        block: BLOCK,
        root: false,
        wide: 100,
    };
    build(dir.path(), shape);
    let tree = Tree::from_directory(dir.path(), &TreeRules::default()).expect("it can be listed");
    for writer in [
        writer("zstd"),
        writer("gzip").tails(true),
        writer("lz4").shared_blocks(false),
        writer("xz").deduplicate(false).tails(true),
        writer("gzip").recipe(false),
    ] {
        let (old, data) = pack(&writer, &tree);
        let image = open(&old);
        let like = ImageWriter::like(&image).expect("it says how it was made");
        for threads in [1, 3] {
            let (new, copied) = both(&like.clone().threads(threads), &tree_of(&image));
            assert!(new == old, "{writer:?}");
            assert_eq!(copied, data.compressed_blocks + data.raw_blocks);
        }
    }
}

#[test]
fn the_blocks_of_files_that_stay_are_copied() {
    let (old, data) = pack(&writer("zstd"), &tree());
    let kinds = (data.compressed_blocks, data.raw_blocks, data.shared_blocks);
    assert_eq!(kinds, (5, 2, 1));
    let image = open(&old);
    let like = ImageWriter::like(&image).expect("it says how it was made");
    type Edit = fn(&mut TreeBuilder) -> brisk_image::Result<&mut TreeBuilder>;
    let edits: [(Edit, u64); 8] = [
        (|tree| Ok(tree), 7),
        (|tree| tree.remove("text"), 3),
        (
            |tree| tree.replace("text", TreeEntry::file(text(1, 3 * BLOCK + 100))),
            3,
        ),
        (
            |tree| tree.replace("noise", TreeEntry::unchanged().owner(1, 2)),
            7,
        ),
        (|tree| tree.rename("noise", "a"), 7),
        // The shared block has other contents.
        (|tree| tree.remove("two"), 6),
        (|tree| tree.remove("one"), 6),
        (|tree| tree.add("three", TreeEntry::file("three")), 6),
    ];
    for (n, (edit, expected)) in edits.into_iter().enumerate() {
        let mut edited = tree_of(&image).edit();
        edit(&mut edited).expect("it can be edited");
        let (_, copied) = both(&like, &edited.finish());
        assert_eq!(copied, expected, "edit {n}");
    }
}

#[test]
fn what_was_removed_is_not_in_the_new_image() {
    let mut files = TreeBuilder::new();
    let secret = noise(7, 700);
    files
        .add("one", TreeEntry::file(noise(6, 600)))
        .and_then(|files| files.add("secret", TreeEntry::file(secret.clone())))
        .expect("they can be added");
    let (old, data) = pack(&writer("zstd"), &files.finish());
    assert_eq!((data.shared_blocks, data.raw_blocks), (1, 1));
    let has_secret = |bytes: &[u8]| bytes.windows(700).any(|window| window == secret);
    assert!(has_secret(&old));
    let image = open(&old);
    let mut edited = tree_of(&image).edit();
    edited.remove("secret").expect("it is there");
    let like = ImageWriter::like(&image).expect("it says how it was made");
    let (new, copied) = both(&like, &edited.finish());
    assert_eq!((has_secret(&new), copied), (false, 0));
}

#[test]
fn options_decide_what_is_copied() {
    let (old, _) = pack(&writer("zstd"), &tree());
    let tree = tree_of(&open(&old));
    let level = |level| Compression::Zstd { level };
    for (writer, expected) in [
        (writer("zstd"), 7),
        (writer("zstd").recipe(false), 7),
        (writer("zstd").place("/opt/app".into()).time(9), 7),
        (writer("zstd").export(false).deduplicate(false), 7),
        // The last block of `text` shares one.
        (writer("zstd").tails(true), 5),
        (writer("zstd").shared_blocks(false), 6),
        // The small files share none.
        (writer("zstd").rules(rules(&["two"], &[])), 6),
        (writer("zstd").rules(rules(&[], &["noise"])), 5),
        (writer("zstd").block_size(8 << 10), 0),
        (writer("zstd").compression(level(14)), 0),
        (writer("zstd").compression(level(14)).recipe(false), 0),
        (writer("gzip"), 0),
        (writer("none"), 0),
    ] {
        assert_eq!(both(&writer, &tree).1, expected, "{writer:?}");
    }
}

/// A file that a rule had stored raw is compressed under a name that no rule is about.
#[test]
fn raw_blocks_are_copied_unless_a_rule_made_them() {
    let mut files = TreeBuilder::new();
    files
        .add("noise", TreeEntry::file(noise(1, BLOCK)))
        .and_then(|files| files.add("map", TreeEntry::file(text(1, BLOCK))))
        .expect("they can be added");
    let by_rule = writer("zstd").rules(rules(&[], &["map"]));
    let (old, _) = pack(&by_rule, &files.finish());
    let image = open(&old);
    let like = ImageWriter::like(&image).expect("it says how it was made");
    let mut edited = tree_of(&image).edit();
    edited.rename("map", "text").expect("it is there");
    let (new, copied) = both(&like, &edited.finish());
    assert_eq!(copied, 0);
    let new = open(&new);
    let file = new.file_at("text").expect("it is there").stored_as();
    assert_eq!((file.compressed, file.raw), (BLOCK as u64, 0));
}

/// `image` with `recipe` behind it.
fn with_recipe(image: &[u8], recipe: &Value) -> Vec<u8> {
    let contents = recipe.to_string();
    let used = usize::try_from(open(image).bytes_used()).expect("it is small");
    let mut bytes = image[..used].to_vec();
    bytes.resize(used.next_multiple_of(4096), 0);
    bytes.extend_from_slice(b"brisksecrcpe\x01\0\0\0");
    bytes.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(contents.as_bytes()).as_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(contents.as_bytes());
    bytes
}

#[test]
fn a_recipe_of_other_versions_does_not_vouch_for_blocks() {
    let writer = writer("zstd");
    let (old, _) = pack(&writer, &tree());
    let recipe = serde_json::to_value(writer.to_recipe()).expect("it is JSON");
    for (field, value) in [("brisk", "0.0.1"), ("library", "zstd 1.5.6")] {
        let mut recipe = recipe.clone();
        recipe[field] = value.into();
        let tree = tree_of(&open(&with_recipe(&old, &recipe)));
        assert_eq!(both(&writer, &tree).1, 0, "{field}");
        // Without a recipe nothing is claimed.
        assert_eq!(both(&writer.clone().recipe(false), &tree).1, 7, "{field}");
    }
    let unreadable = json!({ "later": 1 });
    let tree = tree_of(&open(&with_recipe(&old, &unreadable)));
    assert_eq!(both(&writer, &tree).1, 0);
}

#[test]
fn a_recipe_that_lies_harms_no_reader() {
    let (old, _) = pack(&writer("gzip").recipe(false), &tree());
    let snapshot = Snapshot::of_image(&open(&old));
    // Another codec, and blocks of another size.
    for lie in [writer("zstd"), writer("gzip").block_size(8 << 10)] {
        let recipe = serde_json::to_value(lie.to_recipe()).expect("it is JSON");
        let image = open(&with_recipe(&old, &recipe));
        let like = ImageWriter::like(&image).expect("it says how it was made");
        let (new, copied) = both(&like, &tree_of(&image));
        assert_eq!(copied, 0, "{lie:?}");
        Snapshot::of_image(&open(&new)).assert_is(&snapshot, "lie");
    }
    // Another level is believed. Packing again tells.
    let level = Compression::Gzip { level: 1 };
    let recipe = serde_json::to_value(writer("gzip").compression(level).to_recipe());
    let image = open(&with_recipe(&old, &recipe.expect("it is JSON")));
    let like = ImageWriter::like(&image).expect("it says how it was made");
    let (new, data) = pack(&like, &tree_of(&image));
    assert_eq!(data.copied_blocks, 7);
    Snapshot::of_image(&open(&new)).assert_is(&snapshot, "level");
    let (anew, _) = pack(&like.copy_blocks(false), &tree_of(&open(&new)));
    assert!(anew != new);
}

#[test]
fn a_damaged_block_is_not_copied() {
    let (old, _) = pack(&writer("gzip"), &tree());
    // Behind the superblock and the blocks of `noise`.
    let at = 96 + 2 * BLOCK;
    let mut damaged = old.clone();
    // The checksum of zlib's header.
    damaged[at + 1] ^= 1;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&path, damaged).expect("the directory is ours");
    let image = Image::open(&path).expect("it is an image");
    let like = ImageWriter::like(&image).expect("it says how it was made");
    let said = |copies| {
        let writer = like.clone().copy_blocks(copies);
        let e = writer.write(&tree_of(&image), &new).expect_err("damaged");
        e.to_string()
    };
    let expected = format!(
        "{}: corrupt image at byte {at}: a data block does not decode as gzip: ",
        path.display()
    );
    assert!(said(true).starts_with(&expected), "{}", said(true));
    assert_eq!(said(true), said(false));
    assert!(!new.exists());
}

fn mksquashfs(tree: &Path, image: &Path, options: &[&str]) {
    let quiet = ["-quiet", "-no-progress", "-noappend"];
    let paths = [tree.as_os_str(), image.as_os_str()];
    let options = options.iter().chain(&quiet).map(std::ffi::OsStr::new);
    run("mksquashfs", paths.into_iter().chain(options));
}

/// Without a recipe a new image claims nothing of who compressed its blocks.
#[test]
fn blocks_of_others_are_copied_and_read_by_the_kernel() {
    alone_in_namespace("blocks_of_others_are_copied_and_read_by_the_kernel", || {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("tree")).expect("the directory is ours");
        let shape = Shape {
            block: 64 << 10,
            root: true,
            wide: 100,
        };
        build(&path("tree"), shape);
        fs::create_dir(path("out")).expect("the directory is ours");
        for options in [
            &["-comp", "zstd"][..],
            &["-comp", "gzip", "-b", "64K", "-always-use-fragments"],
            &["-comp", "xz", "-Xbcj", "x86", "-no-fragments"],
            &["-comp", "lz4", "-Xhc", "-b", "1M"],
        ] {
            mksquashfs(&path("tree"), &path("old.img"), options);
            let old = Image::open(path("old.img")).expect("it is an image");
            let like = ImageWriter::like(&old).expect("it says how it was made");
            let mut edited = tree_of(&old).edit();
            edited
                .replace("links/first", TreeEntry::file("changed"))
                .expect("it can be edited");
            let edited = edited.finish();
            let write = |writer: &ImageWriter, name: &str| {
                let written = writer.write(&edited, path(name));
                written.expect("it can be packed").data
            };
            let data = write(&like, "new.img");
            // `links/first` shares a block, or has a new one; mksquashfs fills shared blocks in another order.
            let new = u64::from(data.shared_blocks == 0);
            let own = data.compressed_blocks + data.raw_blocks - data.shared_blocks - new;
            assert!(
                (own..=own + data.shared_blocks).contains(&data.copied_blocks),
                "{options:?}: {data:?}"
            );
            assert_eq!(
                write(&like.clone().recipe(true), "anew.img").copied_blocks,
                0,
                "{options:?}"
            );
            write(&like.clone().threads(7), "again.img");
            let bytes = |name: &str| fs::read(path(name)).expect("it is there");
            assert!(bytes("again.img") == bytes("new.img"), "{options:?}");
            let expected = Snapshot::of_image(&Image::open(path("anew.img")).expect("an image"));
            mounted(&path("new.img"), |root| {
                Snapshot::of_directory(root).assert_is(&expected, &format!("{options:?}"));
            });
            let target = path("out").join(options[1]);
            let arguments = [
                "-no-progress".as_ref(),
                "-quiet".as_ref(),
                "-d".as_ref(),
                target.as_os_str(),
                path("new.img").as_os_str(),
            ]
            .map(std::ffi::OsStr::to_owned);
            run_quiet("unsquashfs", arguments);
            Snapshot::of_directory(&target).assert_is(&expected, &format!("{options:?}"));
        }
    });
}
