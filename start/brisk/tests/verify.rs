//! `brisk verify`: finds damage, and packs images again byte by byte.

mod looking;

use std::fs;

use brisk_image::codec::Bcj;
use brisk_image::hot_pack::Prefer;
use brisk_image::profile::Profile;
use brisk_image::rules::PlanRules;
use brisk_image::verity::VerifiedFile;
use brisk_image::{Codec, Compression, Image, ImageWriter, Limits};
use looking::{Place, Said, assert_help, noise, write};
use rustix::fs::{XattrFlags, lsetxattr};

#[test]
fn help() {
    assert_help("verify");
}

fn said(code: i32, out: &str, err: &str) -> Said {
    Said {
        code: Some(code),
        out: out.to_owned(),
        err: err.to_owned(),
    }
}

#[test]
fn sound_images_are_told_how_much_was_read() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    place.mksquashfs("tree", "b.img", &["-comp", "xz"]);
    let read = "read 8 inodes (3 directories, 4 files of 600034 bytes), 6 blocks, 1 shared block, \
                0 xattrs";
    assert_eq!(
        place.brisk(&["verify", "a.img"]),
        said(
            0,
            &format!("a.img: {read} and 1 section\na.img: sound\n"),
            ""
        )
    );
    assert_eq!(
        place.brisk(&["verify", "b.img"]),
        said(
            0,
            &format!("b.img: {read} and 0 sections\nb.img: sound\n"),
            ""
        )
    );
}

#[test]
fn each_damaged_file_is_named() {
    let place = Place::new();
    place.tree("tree");
    let writer = ImageWriter::new().compression(Compression::Xz {
        preset: 6,
        extreme: false,
        dict_size: None,
        filters: Default::default(),
    });
    place.pack(&writer, "tree", "a.img");
    let mut bytes = place.read("a.img");
    // The blocks of the noise are stored raw, so the block of the text is the first that xz has made.
    let xz = |bytes: &[u8], from: usize| {
        let found = bytes[from..].windows(6).position(|w| w == b"\xfd7zXZ\0");
        from + found.expect("a block of xz")
    };
    let first = xz(&bytes, 0);
    bytes[first + 30] ^= 0x40;
    fs::write(place.path("a.img"), &bytes).unwrap();
    let damaged = place.brisk(&["verify", "a.img"]);
    assert_eq!((damaged.code, damaged.err.as_str()), (Some(1), ""));
    let (line, rest) = damaged.out.split_once('\n').unwrap();
    assert!(
        line.starts_with(&format!(
            "a.img: corrupt image at byte {first}: a data block does not decode as xz: "
        )) && line.ends_with(" (in text)"),
        "{line}"
    );
    assert_eq!(
        rest,
        "a.img: read 8 inodes (3 directories, 4 files of 600034 bytes), 6 blocks, 1 shared block, \
         0 xattrs and 1 section\na.img: damaged, 1 fault\n"
    );
    let json = place.brisk(&["verify", "a.img", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json.code, Some(1));
    assert_eq!(report["sound"], false);
    assert_eq!(report["faults"][0]["path"], "text");
    assert_eq!(report["checked"]["blocks"], 6);
}

#[test]
fn a_damaged_recipe_is_damage_and_no_failure() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let mut bytes = fs::read(place.path("a.img")).unwrap();
    let used = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    // The recipe is JSON, after the header of its section.
    let section = used.next_multiple_of(4096) as usize;
    let recipe = bytes[section..]
        .iter()
        .position(|byte| *byte == b'{')
        .unwrap();
    bytes[section + recipe] = b'!';
    fs::write(place.path("a.img"), &bytes).unwrap();
    for arguments in [&["verify", "a.img"][..], &["verify", "--rebuild", "a.img"]] {
        let damaged = place.brisk(arguments);
        assert_eq!((damaged.code, &*damaged.err), (Some(1), ""), "{damaged:?}");
        assert!(
            damaged
                .out
                .contains("the digest in its header is of other bytes"),
            "{damaged:?}"
        );
        assert!(
            damaged.out.ends_with("a.img: damaged, 1 fault\n"),
            "{damaged:?}"
        );
    }
}

#[test]
fn what_cannot_be_opened_is_damage_or_failure() {
    let place = Place::new();
    write(&place.path("a.img"), b"PK\x03\x04 no image");
    assert_eq!(
        place.brisk(&["verify", "a.img"]),
        said(
            1,
            "a.img is no image: it starts with \"PK\\x03\\x04\", and a SquashFS image with \"hsqs\"\n\
             a.img: damaged, 1 fault\n",
            ""
        )
    );
    assert_eq!(
        place.brisk(&["verify", "none.img"]),
        said(
            2,
            "",
            "brisk: none.img: cannot open the image: \
             No such file or directory (os error 2)\n"
        )
    );
}

#[test]
fn a_rebuild_needs_the_recipe() {
    let place = Place::new();
    place.tree("tree");
    place.mksquashfs("tree", "a.img", &[]);
    assert_eq!(
        place.brisk(&["verify", "a.img", "--rebuild"]),
        said(
            2,
            "",
            "brisk: a.img: cannot pack it again, because it does not record how it was made; compare \
             it with what it was made from instead: brisk diff IMAGE TREE\n"
        )
    );
}

/// A tree with everything that makes the layout of an image depend on more than the bytes of files.
fn hard_tree(place: &Place) {
    let root = place.tree("tree");
    for directory in ["a/deep", "a/wide", "z"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    // Names of one file that come before and after others, in several directories.
    write(&root.join("z/first-made"), &noise(40_000));
    fs::hard_link(root.join("z/first-made"), root.join("a/wide/linked")).unwrap();
    fs::hard_link(root.join("z/first-made"), root.join("m-linked")).unwrap();
    // Duplicates, of a whole file and of an end; holes; empty files.
    write(&root.join("a/duplicate"), &noise(300_000));
    write(&root.join("z/duplicate"), b"from the image");
    let hole = fs::File::create(root.join("a/hole")).unwrap();
    hole.set_len(3 << 20).unwrap();
    let hole = fs::File::create(root.join("z/hole-and-end")).unwrap();
    hole.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, b"end", (1 << 20) + 100).unwrap();
    write(&root.join("a/empty"), b"");
    for n in 0..60u32 {
        let text = format!("{n} ").repeat(n as usize * 97);
        write(&root.join(format!("a/wide/{n}.so")), text.as_bytes());
    }
}

#[test]
fn images_are_made_again_with_every_option() {
    let place = Place::new();
    hard_tree(&place);
    let new = ImageWriter::new;
    let order = || {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        PlanRules::new(
            own(&["z/*", "a/wide/1*"]),
            own(&["noise", "a/hole", "*.so"]),
        )
        .unwrap()
    };
    let mut writers = vec![
        ("plain", new()),
        ("tails", new().tails(true)),
        ("no shared blocks", new().shared_blocks(false)),
        ("no duplicates", new().deduplicate(false)),
        ("no numbers", new().export(false)),
        ("small blocks", new().block_size(4096)),
        ("order", new().rules(order())),
        ("order and tails", new().rules(order()).tails(true)),
        (
            "place and time",
            new().place("/opt/app".into()).time(1_234_567_890),
        ),
        ("none", new().compression(Compression::None)),
    ];
    let xz = Compression::Xz {
        preset: 2,
        extreme: true,
        dict_size: Some(8192),
        filters: [Bcj::X86, Bcj::Arm].into_iter().collect(),
    };
    writers.push(("xz with filters", new().compression(xz)));
    let lz4 = Compression::Lz4 { high: Some(9) };
    writers.push(("lz4 high", new().compression(lz4)));
    for codec in Codec::ALL {
        writers.push((
            codec.name(),
            new().compression(Compression::default_for(codec)),
        ));
    }
    for (name, writer) in writers {
        place.pack(&writer, "tree", "a.img");
        let said = place.brisk(&["verify", "a.img", "--rebuild"]);
        let len = place.read("a.img").len();
        let end = format!("a.img: packed again, it is the same: {len} bytes\na.img: sound\n");
        assert_eq!(
            (said.code, said.err.as_str()),
            (Some(0), ""),
            "{name}: {}",
            said.out
        );
        assert!(said.out.ends_with(&end), "{name}: {}", said.out);
        assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 2, "{name}");
    }
}

/// If only one inode has attributes, they can be numbered in only one way.
#[test]
fn an_image_with_an_xattr_is_made_again() {
    let place = Place::new();
    let root = place.tree("tree");
    let value = "of another".as_bytes();
    lsetxattr(
        root.join("sub/inside"),
        "user.about",
        value,
        XattrFlags::empty(),
    )
    .expect("the temporary directory must be on a filesystem with xattrs");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let said = place.brisk(&["verify", "a.img", "--rebuild"]);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(0), ""),
        "{}",
        said.out
    );
}

#[test]
fn images_with_xattrs_are_made_again() {
    let place = Place::new();
    let root = place.tree("tree");
    fs::create_dir_all(root.join("a/deep")).unwrap();
    fs::create_dir(root.join("a/empty")).unwrap();
    write(&root.join("a/deep/file"), b"deep");
    write(&root.join("z"), b"last");
    for (name, value) in [
        ("z", "of the last"),
        ("a/deep/file", "of a file below"),
        ("a", "of a directory"),
        ("a/empty", "of the last"),
        ("sub/inside", "of another"),
        (".", "of the root"),
    ] {
        let path = root.join(name);
        lsetxattr(path, "user.about", value.as_bytes(), XattrFlags::empty())
            .expect("the temporary directory must be on a filesystem with xattrs");
    }
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let said = place.brisk(&["verify", "a.img", "--rebuild"]);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(0), ""),
        "{}",
        said.out
    );
    let len = place.read("a.img").len();
    let expected = format!("a.img: packed again, it is the same: {len} bytes\na.img: sound\n");
    assert!(said.out.ends_with(&expected), "{}", said.out);
    assert!(said.out.contains(" 5 xattrs "), "{}", said.out);
}

#[test]
fn what_the_recipe_does_not_make_differs() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let mut bytes = place.read("a.img");
    let len = bytes.len();
    let used = Image::open(place.path("a.img")).unwrap().bytes_used() as usize;
    // A byte of the padding between the image and its section.
    let at = used + 1;
    assert_ne!(used % 4096, 4095, "the test needs padding");
    bytes[at] = 1;
    fs::write(place.path("a.img"), &bytes).unwrap();
    let read = "a.img: read 8 inodes (3 directories, 4 files of 600034 bytes), 6 blocks, \
                1 shared block, 0 xattrs and 1 section\n";
    let differs = format!(
        "a.img: packed again, it differs from byte {at} on ({len} bytes, packed again {len})\n"
    );
    assert_eq!(
        place.brisk(&["verify", "a.img", "--rebuild"]),
        said(1, &format!("{read}{differs}"), "")
    );
}

#[test]
fn other_versions_are_said_beforehand() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let mut bytes = place.read("a.img");
    let used = Image::open(place.path("a.img")).unwrap().bytes_used();
    let header = used.next_multiple_of(4096) as usize;
    let version = format!("\"brisk\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let other = version.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    let contents = header + 64;
    let at = contents
        + bytes[contents..]
            .windows(version.len())
            .position(|w| w == version.as_bytes())
            .expect("the recipe says its version");
    bytes[at..at + other.len()].copy_from_slice(other.as_bytes());
    let recipe_len = u64::from_le_bytes(bytes[header + 16..header + 24].try_into().unwrap());
    let digest = blake3_of(&bytes[contents..contents + recipe_len as usize]);
    bytes[header + 24..header + 56].copy_from_slice(&digest);
    fs::write(place.path("a.img"), &bytes).unwrap();
    let said = place.brisk(&["verify", "a.img", "--rebuild"]);
    assert_eq!(
        said.err,
        format!(
            "brisk: warning: a.img: made by 0.0.0, and packed again by {}: the bytes may differ for \
             that reason alone\n",
            env!("CARGO_PKG_VERSION")
        )
    );
    assert_eq!(said.code, Some(1));
    assert!(
        said.out.contains("packed again, it differs from byte "),
        "{}",
        said.out
    );
}

fn blake3_of(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Image and pack are one file, so no launch compares the two, and a pack of another image that fits is believed.
#[test]
fn a_forged_frame_of_the_pack_behind_an_image_is_reported() {
    let place = Place::new();
    place.tree("tree");
    let profile = r#"{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
        "roots": [["/opt/app", "image"]], "files": [[0, "noise", 300000, null]], "directories": [[0, ""]],
        "steps": [["found", 0, "noise", 1, 1], ["pages", 0, 0, 74, 2, 1]]}"#;
    let pack = |image: &str| {
        let profile = Profile::from_text(profile.as_bytes(), &Limits::of_profiles()).unwrap();
        let writer = ImageWriter::new().hot_pack(profile, Prefer::Speed);
        place.pack(&writer.compression(Compression::None), "tree", image);
        let range = Image::open(place.path(image)).unwrap().hot_pack_range();
        let range = range.unwrap().unwrap();
        // The header of a section, with the digest of its contents, has 64 bytes.
        range.start as usize - 64..range.end as usize
    };
    let section = pack("app.img");
    assert_eq!(place.brisk(&["verify", "-q", "app.img"]).code, Some(0));
    // The same length and time, so that the tables are the same.
    let mut forged = noise(300_000);
    forged[200_000] ^= 1;
    write(&place.path("tree/noise"), &forged);
    looking::set_time(&place.path("tree/noise"), 1_700_000_000);
    assert_eq!(pack("forged.img"), section);
    let (mut image, forged) = (place.read("app.img"), place.read("forged.img"));
    image[section.clone()].copy_from_slice(&forged[section]);
    write(&place.path("app.img"), &image);

    let image = Image::open(place.path("app.img")).unwrap();
    let pack = image.hot_pack().unwrap().unwrap();
    assert!(pack.is_of(&image).unwrap(), "a launch would use it");
    let damaged = place.brisk(&["verify", "app.img"]);
    assert_eq!((damaged.code, &*damaged.err), (Some(1), ""), "{damaged:?}");
    let lines: Vec<_> = damaged.out.lines().collect();
    assert!(
        lines[0].contains("hot pack") && lines[0].contains("noise"),
        "{damaged:?}"
    );
    assert_eq!(lines.last(), Some(&"app.img: damaged, 1 fault"));
}

/// Packs an image with a hash tree behind it, whose root hash is beside it.
fn with_tree(place: &Place) -> Vec<u8> {
    place.tree("tree");
    place.pack(&ImageWriter::new().verity(true), "tree", "a.img");
    let path = place.path("a.img");
    let root = VerifiedFile::of_its_own_root(&path, fs::File::open(&path).unwrap(), None);
    let text = format!("{}\n", root.unwrap().root_hash());
    fs::write(place.path("a.img.roothash"), text).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn no_flipped_bit_under_a_hash_tree_is_sound() {
    let place = Place::new();
    let whole = with_tree(&place);
    let tree = Image::open(place.path("a.img")).unwrap();
    let tree = tree.verity_superblock().unwrap().unwrap() as usize;
    let data = tree / 4096 * 4096;
    let sound = place.brisk(&["verify", "a.img", "-q"]);
    let line = format!(
        "a.img: {data} bytes are those of the hash tree at byte {tree} of a.img, whose root hash is that of a.img.roothash\n"
    );
    assert_eq!(sound.code, Some(0), "{sound:?}");
    assert!(sound.out.contains(&line), "{sound:?}");
    for number in 0..30 {
        let mut changed = whole.clone();
        let at = data * number / 30;
        changed[at] ^= 1 << (number % 8);
        fs::write(place.path("a.img"), &changed).unwrap();
        let said = place.brisk(&["verify", "a.img", "-q"]);
        assert_ne!(said.code, Some(0), "byte {at}: {said:?}");
        assert!(!said.out.contains(": sound\n"), "byte {at}: {said:?}");
    }
    // The first hash block, whose digest is the root hash.
    let mut changed = whole.clone();
    changed[(tree + 512).next_multiple_of(4096)] ^= 1;
    fs::write(place.path("a.img"), &changed).unwrap();
    assert_eq!(place.brisk(&["verify", "a.img", "-q"]).code, Some(1));
}

#[test]
fn each_hash_tree_is_compared_and_what_could_not_be_is_said() {
    let place = Place::new();
    let whole = with_tree(&place);
    let root = fs::read_to_string(place.path("a.img.roothash")).unwrap();
    let root = root.trim_end();
    // Nobody knows the root hash.
    fs::remove_file(place.path("a.img.roothash")).unwrap();
    let said = place.brisk(&["verify", "a.img", "-q"]);
    let line = format!(
        ", which nothing vouches for; compare its root hash {root} with one from elsewhere\n"
    );
    assert!(said.code == Some(0) && said.out.contains(&line), "{said:?}");
    // A second tree, beside the image. Its root hash is then the one that is there.
    assert_eq!(place.brisk(&["verity", "a.img", "-q"]).code, Some(0));
    let json = place.brisk(&["verify", "a.img", "-q", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let trees: Vec<_> = json["hash_trees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tree| (tree["path"].as_str().unwrap(), tree["known_by"].as_str()))
        .collect();
    assert_eq!(
        trees,
        [("a.img", None), ("a.img.verity", Some("a.img.roothash"))]
    );
    // The given one is that of the tree behind the image.
    let given = format!("roothash={root}");
    let json = place.brisk(&["verify", "a.img", "-q", "--json", "--verify", &given]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["sound"], true);
    assert_eq!(json["hash_trees"][0]["known_by"], "--verify");
    // A tree that is damaged, though the other one is right.
    let tree = fs::read(place.path("a.img.verity")).unwrap();
    let mut changed = tree.clone();
    changed[4096] ^= 1;
    fs::write(place.path("a.img.verity"), &changed).unwrap();
    assert_eq!(place.brisk(&["verify", "a.img", "-q"]).code, Some(1));
    fs::remove_file(place.path("a.img.verity")).unwrap();
    // The root hash of no tree, and one that is none.
    let said = place.brisk(&["verify", "a.img", "-q"]);
    let other = fs::read_to_string(place.path("a.img.roothash")).unwrap();
    let line = format!(
        "a.img.roothash: the root hash {} is that of no hash tree of a.img: it was made for another image, or the tree is gone; get the image again with both, or if you have made it anew, remove the old root hash\n",
        other.trim_end()
    );
    assert!(said.code == Some(1) && said.out.contains(&line), "{said:?}");
    fs::write(place.path("a.img.roothash"), "none\n").unwrap();
    let said = place.brisk(&["verify", "a.img", "-q"]);
    assert!(
        said.code == Some(1) && said.out.contains("a.img.roothash: it has no root hash"),
        "{said:?}"
    );
    // A signature that nobody asked for.
    fs::write(place.path("a.img.roothash"), format!("{root}\n")).unwrap();
    fs::write(place.path("a.img.manifest"), "").unwrap();
    let said = place.brisk(&["verify", "a.img", "-q"]);
    let line = "a.img: not compared: its signature: name the publisher's key with --trust, or --verify key\n";
    assert!(said.code == Some(0) && said.out.contains(line), "{said:?}");
    assert_eq!(fs::read(place.path("a.img")).unwrap(), whole);
}
