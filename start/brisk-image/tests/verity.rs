//! Hash trees of dm-verity: the same as those of `veritysetup`, and no block is delivered that differs from them.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use brisk_image::hot_pack::Prefer;
use brisk_image::profile::{Named, Profile, ProfileBuilder, RootKind};
use brisk_image::verity::{RootHash, TreeFile, VerifiedFile, VerityTree, append_tree};
use brisk_image::{ByteSource, ErrorKind, Image, ImageWriter, OpenOptions, Tree, TreeRules, Work};
use support::{noise, run, text};

const BLOCK: usize = 4096;

/// Runs `veritysetup`, and returns what it prints.
#[track_caller]
fn veritysetup(args: &[&str]) -> String {
    let output = run("veritysetup", args);
    String::from_utf8(output.stdout).unwrap()
}

/// Whether `veritysetup verify` accepts the tree.
fn is_accepted(data: &Path, tree: &Path, root: &str, hash_offset: u64) -> bool {
    let status = Command::new("veritysetup")
        .arg("verify")
        .args([data, tree])
        .arg(root)
        .arg(format!("--hash-offset={hash_offset}"))
        .output()
        .expect("veritysetup of cryptsetup-bin is installed")
        .status;
    status.success()
}

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
}

fn build(bytes: &[u8], threads: usize) -> VerityTree {
    let work = Work::new().threads(threads);
    VerityTree::build(&bytes, bytes.len() as u64, &work).unwrap()
}

/// One block, ends and beginnings of hash blocks, and three levels.
const SIZES: [usize; 7] = [1, 2, 127, 128, 129, 128 * 128, 128 * 128 + 1];

#[test]
fn veritysetup_accepts_our_trees_and_makes_the_same() {
    let files = Files::new();
    for blocks in SIZES {
        let bytes = noise(blocks as u64, blocks * BLOCK);
        let data = files.file("data", &bytes);
        let ours = files.path("ours");
        let built = build(&bytes, 2);
        let summary = built.write(&ours).unwrap();
        let root = built.root_hash().to_string();
        assert_eq!(summary.root_hash, root);
        assert_eq!(summary.data_bytes, bytes.len() as u64);
        assert_eq!(summary.tree_bytes, fs::metadata(&ours).unwrap().len());
        assert!(is_accepted(&data, &ours, &root, 0), "{blocks} blocks");

        let superblock = fs::read(&ours).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let uuid = hex(&superblock[16..32]);
        let uuid = [
            &uuid[..8],
            &uuid[8..12],
            &uuid[12..16],
            &uuid[16..20],
            &uuid[20..],
        ]
        .join("-");
        let theirs = files.path("theirs");
        let told = veritysetup(&[
            "format",
            data.to_str().unwrap(),
            theirs.to_str().unwrap(),
            &format!("--salt={}", hex(&superblock[88..120])),
            &format!("--uuid={uuid}"),
        ]);
        assert!(told.contains(&root), "{told}");
        assert!(
            fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(),
            "{blocks} blocks"
        );

        // The judge says no, too.
        let flipped = File::options().write(true).open(&data).unwrap();
        flipped.write_all_at(&[!bytes[5]], 5).unwrap();
        assert!(!is_accepted(&data, &ours, &root, 0));
    }
}

#[test]
fn trees_of_veritysetup_are_accepted_with_any_salt() {
    let files = Files::new();
    for blocks in SIZES {
        let bytes = noise(3, blocks * BLOCK);
        let data = files.file("data", &bytes);
        let tree = files.path("tree");
        let long = "5a".repeat(256);
        for salt in [None, Some("-"), Some("00"), Some(long.as_str())] {
            let _ = fs::remove_file(&tree);
            let salt = salt.map(|salt| format!("--salt={salt}"));
            let mut args = vec!["format", data.to_str().unwrap(), tree.to_str().unwrap()];
            args.extend(salt.as_deref());
            let told = veritysetup(&args);
            let root = told
                .lines()
                .find_map(|line| line.strip_prefix("Root hash:"))
                .unwrap();
            let root: RootHash = root.parse().unwrap();
            let open = |bytes: &[u8]| {
                let tree = TreeFile::new(File::open(&tree).unwrap(), &tree, 0);
                VerifiedFile::new(bytes.to_vec(), &data, tree, root)
            };
            let verified = open(&bytes).unwrap();
            let mut read = vec![0; bytes.len()];
            verified.read_exact_bytes_at(0, &mut read).unwrap();
            assert!(read == bytes);
            let mut flipped = bytes.clone();
            *flipped.last_mut().unwrap() ^= 0x80;
            let verified = open(&flipped).unwrap();
            let last = bytes.len() as u64 - 1;
            let e = verified.read_exact_bytes_at(last, &mut [0]).unwrap_err();
            let e: brisk_image::Error = e.downcast().unwrap();
            assert_eq!(e.kind(), ErrorKind::Corrupt);
            if blocks > 1 {
                verified.read_exact_bytes_at(0, &mut [0]).unwrap();
            }
        }
    }
}

#[test]
fn any_number_of_threads_builds_the_same_tree() {
    let files = Files::new();
    let bytes = noise(9, 1000 * BLOCK);
    let tree = |threads| {
        let path = files.path("tree");
        build(&bytes, threads).write(&path).unwrap();
        fs::read(path).unwrap()
    };
    let one = tree(1);
    assert!(one == tree(2) && one == tree(7));
    // Never changes: others keep the root hash of an image.
    let root = build(&bytes, 1).root_hash().to_string();
    assert_eq!(
        root,
        "6f6367a1109deccf6f26384367e0689e9ba9dba9db79944cd2d1434963d03b30"
    );
}

#[test]
fn what_no_tree_can_cover_is_said() {
    let work = Work::new();
    for len in [0, 1, 4095, 4097] {
        let e = VerityTree::build(&vec![0; 8192], len, &work).err().unwrap();
        let text = format!(
            "the verity tree would cover {len} bytes, allowed is a multiple of 4096 from 4096 to 17592186044416"
        );
        assert_eq!(e.to_string(), text);
    }
}

/// Whoever can write the file could hide its last blocks: what is recorded behind an image, for one.
#[test]
fn a_tree_that_says_another_number_of_blocks_is_refused() {
    let files = Files::new();
    let path = files.path("t");
    // Of one, two and three levels; full hash blocks, and such with one digest.
    for blocks in [
        2,
        3,
        127,
        128,
        129,
        300,
        128 * 128,
        128 * 128 + 1,
        128 * 130,
    ] {
        let bytes = noise(blocks as u64, blocks * BLOCK);
        let built = build(&bytes, 1);
        built.write(&path).unwrap();
        let sound = fs::read(&path).unwrap();
        let root = built.root_hash();
        let open = |number: usize| {
            let mut tree = sound.clone();
            tree[72..80].copy_from_slice(&(number as u64).to_le_bytes());
            // The hash blocks of each level, where another number has them.
            let level_of = |blocks: usize| {
                let mut sizes: Vec<usize> = Vec::new();
                let mut below = blocks;
                while below > 1 {
                    below = below.div_ceil(128);
                    sizes.push(below);
                }
                sizes
            };
            let (before, after) = (level_of(blocks), level_of(number));
            if before.len() != after.len() {
                return None;
            }
            let mut moved = tree[..4096].to_vec();
            let mut at = 4096;
            for (before, after) in before.iter().zip(&after).rev() {
                let mut level = tree[at..at + before * BLOCK].to_vec();
                level.resize(after * BLOCK, 0);
                moved.extend(level);
                at += before * BLOCK;
            }
            let mut data = bytes.clone();
            data.resize(data.len().max(number * BLOCK), 0);
            let tree = TreeFile::new(moved, Path::new("t"), 0);
            Some(VerifiedFile::new(data, Path::new("app.img"), tree, root).map(|v| v.data_len()))
        };
        assert_eq!(open(blocks).unwrap().unwrap(), (blocks * BLOCK) as u64);
        let others = [
            1,
            2,
            64,
            127,
            128,
            129,
            257,
            300,
            blocks - 1,
            blocks + 1,
            2 * blocks,
        ];
        let others = others
            .into_iter()
            .filter(|other| *other != blocks && *other > 0);
        let refused: Vec<_> = others
            .filter_map(|other| Some((other, open(other)?.unwrap_err().to_string())))
            .collect();
        assert!(!refused.is_empty());
        for (other, said) in refused {
            let field = format!(
                "t: corrupt verity tree at byte 72: number of data blocks is {other}, allowed is "
            );
            let digest = "t: corrupt verity tree at byte";
            // A level that got zeros or lost its last block fails by its digest.
            assert!(
                said.starts_with(&field)
                    || said.starts_with(digest) && said.contains(" has the sha256 "),
                "{blocks}: {said}"
            );
            if other.div_ceil(128) == blocks.div_ceil(128) {
                assert_eq!(said, format!("{field}{blocks}"));
            }
        }
    }
}

#[test]
fn a_tree_that_cannot_be_is_refused() {
    let files = Files::new();
    let bytes = noise(1, 300 * BLOCK);
    let path = files.path("t");
    let built = build(&bytes, 1);
    built.write(&path).unwrap();
    let sound = fs::read(&path).unwrap();
    let root = built.root_hash();
    let other: RootHash = "11".repeat(32).parse().unwrap();
    type Case<'a> = (Vec<u8>, Vec<u8>, RootHash, u64, &'a str);
    let mut blocks_more = sound.clone();
    blocks_more[72..80].copy_from_slice(&301u64.to_le_bytes());
    let mut levels_more = sound.clone();
    levels_more[72..80].copy_from_slice(&(1u64 << 31).to_le_bytes());
    let mut hash_changed = sound.clone();
    hash_changed[4096 + 2] ^= 1;
    let table: [Case<'_>; 6] = [
        (
            bytes.clone(),
            sound[..100].to_vec(),
            root,
            0,
            "t: corrupt verity tree at byte 0: the superblock needs 512 bytes, 100 are left",
        ),
        (
            bytes.clone(),
            sound.clone(),
            root,
            u64::MAX,
            "t: corrupt verity tree at byte 18446744073709551615: the superblock needs 512 bytes, 0 are left",
        ),
        (
            bytes.clone(),
            sound[..sound.len() - 1].to_vec(),
            root,
            0,
            "t: corrupt verity tree at byte 0: the tree needs 20480 bytes, 20479 are left",
        ),
        (
            bytes.clone(),
            blocks_more,
            root,
            0,
            "t: corrupt verity tree at byte 0: the file under the tree needs 1232896 bytes, 1228800 are left",
        ),
        (
            bytes.clone(),
            levels_more,
            root,
            0,
            "t: corrupt verity tree at byte 0: the tree needs 69260582912 bytes, 20480 are left",
        ),
        (
            bytes[BLOCK..].to_vec(),
            sound.clone(),
            root,
            0,
            "t: corrupt verity tree at byte 0: the file under the tree needs 1228800 bytes, 1224704 are left",
        ),
    ];
    for (data, tree, root, at, message) in table {
        let tree = TreeFile::new(tree, Path::new("t"), at);
        let e = VerifiedFile::new(data, Path::new("app.img"), tree, root).unwrap_err();
        assert_eq!(e.to_string(), message);
        assert_eq!(e.kind(), ErrorKind::Corrupt);
    }
    for (tree, root) in [(&hash_changed, root), (&sound, other)] {
        let tree = TreeFile::new(tree.clone(), Path::new("t"), 0);
        let e = VerifiedFile::new(bytes.clone(), Path::new("app.img"), tree, root).unwrap_err();
        let said = e.to_string();
        let begin = "t: corrupt verity tree at byte 4096: the top hash block 0 has the sha256 ";
        let end = "; the file was changed or is damaged: get another copy";
        assert!(said.starts_with(begin) && said.ends_with(end), "{said}");
    }
}

/// A source that gives other bytes after a number of reads, as a disk does that fails or lies.
struct Changing {
    bytes: Vec<u8>,
    reads: std::sync::atomic::AtomicUsize,
    sound: usize,
}

impl ByteSource for Changing {
    fn size(&self) -> std::io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.bytes.read_bytes_at(offset, buf)?;
        let reads = self
            .reads
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if reads >= self.sound && n > 0 {
            buf[n / 2] ^= 4;
        }
        Ok(n)
    }
}

#[test]
fn every_read_is_compared_and_not_only_the_first() {
    let bytes = noise(1, 300 * BLOCK);
    let files = Files::new();
    let path = files.path("t");
    let built = build(&bytes, 1);
    built.write(&path).unwrap();
    let data = Changing {
        bytes,
        reads: 0.into(),
        sound: 1,
    };
    let tree = TreeFile::new(fs::read(&path).unwrap(), &path, 0);
    let verified = VerifiedFile::new(data, Path::new("app.img"), tree, built.root_hash()).unwrap();
    verified.read_exact_bytes_at(5000, &mut [0; 100]).unwrap();
    let e = verified
        .read_exact_bytes_at(5000, &mut [0; 100])
        .unwrap_err();
    let said = e.to_string();
    let begin = "app.img: corrupt file at byte 4096: block 1 has the sha256 ";
    assert!(said.starts_with(begin), "{said}");
}

#[test]
fn reads_of_any_place_and_length_are_right() {
    let bytes = noise(1, 700 * BLOCK);
    let files = Files::new();
    let path = files.path("t");
    let built = build(&bytes, 1);
    built.write(&path).unwrap();
    let tree = TreeFile::new(fs::read(&path).unwrap(), &path, 0);
    let verified =
        VerifiedFile::new(bytes.clone(), Path::new("a"), tree, built.root_hash()).unwrap();
    assert_eq!(verified.size().unwrap(), bytes.len() as u64);
    let mut random = support::Random(1);
    for _ in 0..500 {
        let at = random.below(bytes.len() as u64) as usize;
        let len = (random.below(2 << 20) as usize).min(bytes.len() - at);
        let mut buf = vec![0; len];
        verified.read_exact_bytes_at(at as u64, &mut buf).unwrap();
        assert!(buf == bytes[at..at + len], "{len} bytes at {at}");
    }
    let end = bytes.len() as u64;
    assert_eq!(verified.read_bytes_at(end, &mut [0; 8]).unwrap(), 0);
    assert_eq!(verified.read_bytes_at(u64::MAX, &mut [0; 8]).unwrap(), 0);
    assert_eq!(verified.read_bytes_at(end - 3, &mut [0; 8]).unwrap(), 3);
    for (at, len) in [(1, BLOCK), (0, 100), (end, BLOCK), (u64::MAX - 4095, BLOCK)] {
        let e = verified.check(at, &vec![0; len]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{len} bytes at {at}");
    }
}

/// A tree with files of several kinds.
fn make_tree(root: &Path) {
    for (path, bytes) in [
        ("bin/app", text(1, 300_000)),
        ("lib/noise.bin", noise(3, 200_000)),
        ("etc/small", text(2, 100)),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn profile() -> Profile {
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/opt/app", RootKind::Directory);
    for file in 0..2 {
        builder.range(root, file, 0, 200_000, std::time::Duration::ZERO);
    }
    let named = |_, file| match file {
        0 => Some(Named::new("bin/app", 300_000)),
        _ => Some(Named::new("lib/noise.bin", 200_000)),
    };
    let finished = builder.finish(vec!["app".into()], None, named);
    finished.unwrap().profile
}

#[test]
fn an_image_with_a_tree_is_verified_as_a_whole() {
    let files = Files::new();
    make_tree(&files.path("app"));
    let tree = Tree::from_directory(files.path("app"), &TreeRules::default()).unwrap();
    let write = |name: &str, threads| {
        let writer = ImageWriter::new().verity(true).threads(threads);
        let writer = writer.hot_pack(profile(), Prefer::Speed);
        writer.write(&tree, files.path(name)).unwrap()
    };
    let summary = write("a.img", 1);
    write("b.img", 3);
    let path = files.path("a.img");
    let bytes = fs::read(&path).unwrap();
    assert!(bytes == fs::read(files.path("b.img")).unwrap());
    let mut streamed = Vec::new();
    let writer = ImageWriter::new()
        .verity(true)
        .hot_pack(profile(), Prefer::Speed);
    let out = std::io::Cursor::new(&mut streamed);
    writer.write_to(&tree, out).unwrap();
    assert!(bytes == streamed);

    let verity = summary.verity.unwrap();
    assert!(is_accepted(
        &path,
        &path,
        &verity.root_hash,
        verity.hash_offset
    ));
    assert_eq!(verity.hash_offset, verity.data_bytes + 512);
    assert_eq!(verity.hash_offset + verity.tree_bytes, bytes.len() as u64);

    let file = File::open(&path).unwrap();
    let found = TreeFile::find(&path, &file, None).unwrap();
    assert_eq!(found.superblock(), verity.hash_offset);
    let root = verity.root_hash.parse().unwrap();
    let verified = VerifiedFile::new(file, &path, found, root).unwrap();
    let image = Image::open_verified(Arc::new(verified), &OpenOptions::new()).unwrap();
    assert_eq!(image.read("lib/noise.bin").unwrap(), noise(3, 200_000));
    assert!(image.hot_pack().unwrap().is_some());
    // What the tree does not cover is not there.
    assert_eq!(image.verity_start().unwrap(), None);
    assert!(image.verified().is_some());
    let unverified = Image::open(&path).unwrap();
    assert_eq!(unverified.verity_start().unwrap(), Some(verity.data_bytes));
}

#[test]
fn a_tree_beside_an_image_is_found_and_a_missing_one_is_named() {
    let files = Files::new();
    make_tree(&files.path("app"));
    let tree = Tree::from_directory(files.path("app"), &TreeRules::default()).unwrap();
    let path = files.path("app.raw");
    ImageWriter::new().write(&tree, &path).unwrap();
    let file = File::open(&path).unwrap();
    let e = TreeFile::find(&path, &file, None).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    let beside = files.path("app.verity");
    assert_eq!(
        e.to_string(),
        format!(
            "{}: cannot find a verity tree behind the image or in this file, which brisk verity makes",
            beside.display()
        )
    );
    let len = fs::metadata(&path).unwrap().len();
    let built = VerityTree::build(&file, len, &Work::new()).unwrap();
    built.write(&beside).unwrap();
    let found = TreeFile::find(&path, &file, None).unwrap();
    assert_eq!((found.path(), found.superblock()), (beside.as_path(), 0));
    VerifiedFile::new(file, &path, found, built.root_hash()).unwrap();
}

#[test]
fn a_tree_is_put_behind_an_image_as_if_packed_with_it() {
    let files = Files::new();
    let tree = files.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("noise"), noise(1, 50_000)).unwrap();
    let tree = Tree::from_directory(tree, &TreeRules::default()).unwrap();
    let pack = |name: &str, verity| {
        let writer = ImageWriter::new().verity(verity);
        let summary = writer.write(&tree, files.path(name)).unwrap();
        (summary.verity, fs::read(files.path(name)).unwrap())
    };
    let (with, expected) = pack("with", true);
    let (_, bare) = pack("bare", false);
    let append = |bytes: &[u8], offset| {
        files.file("image", bytes);
        let file = File::options()
            .read(true)
            .write(true)
            .open(files.path("image"));
        append_tree(&file.unwrap(), offset, &Work::new()).map_err(|e| e.to_string())
    };
    let used = Image::open(files.path("bare")).unwrap().bytes_used();
    let longer = [&bare[..], &[0; 9000]].concat();
    // The sections end with their last byte that is not zero.
    let end = bare.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(end as u64 >= used);
    for bytes in [&bare[..], &longer, &bare[..=end]] {
        assert_eq!(append(bytes, None).ok(), with);
        assert!(fs::read(files.path("image")).unwrap() == expected);
    }
    let before = |bytes: usize| [&vec![1; bytes][..], &bare].concat();
    let summary = append(&before(8192), Some(8192)).unwrap();
    assert_eq!(summary.data_bytes, with.unwrap().data_bytes + 8192);
    let path = files.path("image");
    let verified = VerifiedFile::of_its_own_root(&path, File::open(&path).unwrap(), Some(8192));
    verified.unwrap().check_all(&Work::new()).unwrap();
    for (bytes, offset, message) in [
        (expected, None, "the image has a verity tree already".to_owned()),
        (
            before(512),
            Some(512),
            "the image starts at byte 512 of its file, where it can have no verity tree behind it; allowed is a multiple of 4096"
                .to_owned(),
        ),
        (
            [&longer[..], b"x"].concat(),
            None,
            format!(
                "byte {} of the file is behind the image and not zero, so it belongs to something else, and no verity tree can be put there",
                longer.len()
            ),
        ),
    ] {
        assert_eq!(append(&bytes, offset), Err(message));
        assert!(fs::read(files.path("image")).unwrap() == bytes);
    }
}
