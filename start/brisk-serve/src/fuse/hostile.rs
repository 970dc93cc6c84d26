//! Requests that the kernel never sends: each gets the answer that it must get.
//!
//! `testdata/bad-requests` holds the cases, and `EXPECT` the answers to each. They are made by the lower half of
//! this file: see [`regenerate`]. The fuzz target `fuse` reads the same form.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brisk_image::{Image, InodeRef};
use zerocopy::IntoBytes;

use super::in_memory::{Directory, IMAGES, Setting, exercise, open_images, serve_directory};
use super::node::node_of;
use super::wire::{GetxattrIn, InHeader, LseekIn, ROOT, ReadIn, SEEK_DATA, SEEK_HOLE, op};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/bad-requests")
}

fn images() -> Vec<Image> {
    open_images(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad"))
}

#[test]
fn every_case_gets_its_answers_and_no_other() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::make(above.path()).expect("it can be filled");
    let images = images();
    let expect = fs::read_to_string(cases().join("EXPECT")).expect("EXPECT is there");
    let mut expect: BTreeMap<_, _> = expect
        .lines()
        .map(|line| line.split_once('\t').expect("a name, a tab and answers"))
        .collect();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(cases()).expect("the directory can be listed") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name == "EXPECT" {
            continue;
        }
        let case = fs::read(&path).expect("the case can be read");
        let got = exercise(&case, &images, &directory);
        match expect.remove(&*name) {
            Some(expected) if expected == got => {}
            expected => wrong.push(format!("{name}: got {got:?}, expected {expected:?}")),
        }
    }
    wrong.extend(
        expect
            .keys()
            .map(|name| format!("{name}: there is no such case")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// However much is asked for, an answer has at most 1 MiB.
#[test]
fn a_long_listing_is_given_in_parts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for number in 0..4000 {
        let name = format!("{number:0250}");
        fs::write(directory.path().join(name), "").expect("a file can be made");
    }
    let root = fs::File::open(directory.path()).expect("it can be opened");
    let read = ReadIn {
        fh: 0,
        offset: 0,
        size: u32::MAX,
        read_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    };
    let mut request = [header(op::READDIRPLUS, 2, ROOT).as_bytes(), read.as_bytes()].concat();
    request[0] = u8::try_from(request.len()).expect("a short request");
    let answers = serve_directory(root.into(), Setting::default(), &[request]);
    let [answer] = &answers[..] else {
        panic!("{} answers", answers.len());
    };
    assert!(
        (1 << 19..=16 + (1 << 20)).contains(&answer.len()),
        "{}",
        answer.len()
    );
}

/// A request as it stands in a case, with its length before it.
fn packet(header: InHeader, body: &[u8]) -> Vec<u8> {
    let packet = [header.as_bytes(), body].concat();
    let len = u16::try_from(packet.len()).expect("a short request");
    [&len.to_le_bytes(), &packet[..]].concat()
}

/// The header of a request. The length is filled in when the case is read.
fn header(opcode: u32, unique: u64, nodeid: u64) -> InHeader {
    InHeader {
        len: 0,
        opcode,
        unique,
        nodeid,
        uid: 0,
        gid: 0,
        pid: 1,
        total_extlen: 0,
        padding: 0,
    }
}

/// Writes the cases, and prints what each gets. Read the difference before it becomes `EXPECT`.
#[test]
#[ignore = "writes testdata/bad-requests"]
fn regenerate() {
    let above = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::make(above.path()).expect("it can be filled");
    let images = images();
    let mut expect = String::new();
    for (name, case) in made(&images) {
        fs::write(cases().join(&name), &case).expect("the case can be written");
        let got = exercise(&case, &images, &directory);
        expect += &format!("{name}\t{got}\n");
    }
    let mut lines: Vec<_> = expect.lines().collect();
    lines.sort_unstable();
    fs::write(cases().join("EXPECT"), lines.join("\n") + "\n").expect("EXPECT can be written");
}

/// Cases by name.
fn made(images: &[Image]) -> Vec<(String, Vec<u8>)> {
    const DIRECTORY: u8 = 7;
    const PLAIN: u8 = 0;
    const ALL: u8 = 15;
    let node_in = |image: usize, path: &str| {
        let inode = images[image].lookup(path).expect("it can be read");
        node_of(inode.expect(path).reference())
    };
    let tree = &images[0];
    let node = |path| node_in(0, path);
    let (file, long, link, dir, fifo) = (
        node("file"),
        node("ext-file"),
        node("link"),
        node("dir"),
        node("fifo"),
    );
    let read = |offset, size| {
        let read = ReadIn {
            fh: 0,
            offset,
            size,
            read_flags: 0,
            lock_owner: 0,
            flags: 0,
            padding: 0,
        };
        read.as_bytes().to_vec()
    };
    let seek = |offset, whence| {
        let seek = LseekIn {
            fh: 0,
            offset,
            whence,
            padding: 0,
        };
        seek.as_bytes().to_vec()
    };
    let xattr = |size, name: &[u8]| [GetxattrIn { size, padding: 0 }.as_bytes(), name].concat();
    let with = |name: &[u8]| [name, &[0]].concat();
    let high = u64::MAX;
    let outside = tree.bytes_used() << 16;
    let inside_an_inode = InodeRef::from_word(tree.root_reference().to_word() + 3);
    let inside_an_inode = node_of(inside_an_inode.expect("a reference"));

    // A name, what is served, how, and the requests: code, node and body.
    type Requests = Vec<(u32, u64, Vec<u8>)>;
    let list: Vec<(&str, u8, u8, Requests)> = vec![
        ("look-up", 0, ALL, vec![(op::LOOKUP, ROOT, with(b"file"))]),
        (
            "look-up-absent",
            0,
            ALL,
            vec![(op::LOOKUP, ROOT, with(b"none"))],
        ),
        (
            "look-up-empty",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(b""))],
        ),
        ("look-up-dot", 0, PLAIN, vec![(op::LOOKUP, dir, with(b"."))]),
        (
            "look-up-dot-dot",
            0,
            PLAIN,
            vec![(op::LOOKUP, dir, with(b".."))],
        ),
        (
            "look-up-slash",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(b"dir/hello"))],
        ),
        (
            "look-up-without-nul",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, b"file".to_vec())],
        ),
        (
            "look-up-without-name",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, Vec::new())],
        ),
        (
            "look-up-of-256",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(&[b'n'; 256]))],
        ),
        (
            "look-up-of-257",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(&[b'n'; 257]))],
        ),
        (
            "look-up-of-16000",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(&[b'n'; 16_000]))],
        ),
        (
            "look-up-two-names",
            0,
            PLAIN,
            vec![(op::LOOKUP, ROOT, b"file\0none\0".to_vec())],
        ),
        (
            "look-up-in-file",
            0,
            PLAIN,
            vec![(op::LOOKUP, file, with(b"x"))],
        ),
        (
            "look-up-in-node-0",
            0,
            PLAIN,
            vec![(op::LOOKUP, 0, with(b"x"))],
        ),
        (
            "look-up-in-highest-node",
            0,
            PLAIN,
            vec![(op::LOOKUP, high, with(b"x"))],
        ),
        (
            "directory-look-up",
            DIRECTORY,
            ALL,
            vec![
                (op::LOOKUP, ROOT, with(b"sub")),
                (op::LOOKUP, 2, with(b"file")),
                (op::READ, 3, read(0, 100)),
            ],
        ),
        (
            "directory-look-up-dot-dot",
            DIRECTORY,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(b".."))],
        ),
        (
            "directory-look-up-outside",
            DIRECTORY,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(b"../outside"))],
        ),
        (
            "directory-look-up-outside-through-sub",
            DIRECTORY,
            PLAIN,
            vec![
                (op::LOOKUP, ROOT, with(b"sub")),
                (op::LOOKUP, 2, with(b"../../outside")),
            ],
        ),
        (
            "directory-look-up-absolute",
            DIRECTORY,
            PLAIN,
            vec![(op::LOOKUP, ROOT, with(b"/etc/passwd"))],
        ),
        (
            "directory-link-out",
            DIRECTORY,
            PLAIN,
            vec![
                (op::LOOKUP, ROOT, with(b"link")),
                (op::LOOKUP, 2, with(b"outside")),
                (op::READ, 2, read(0, 10)),
                (op::READLINK, 2, Vec::new()),
            ],
        ),
        (
            "directory-unknown-nodes",
            DIRECTORY,
            PLAIN,
            vec![
                (op::GETATTR, 0, Vec::new()),
                (op::GETATTR, 2, Vec::new()),
                (op::GETATTR, high, Vec::new()),
            ],
        ),
        (
            "directory-read-4-gib",
            DIRECTORY,
            PLAIN,
            vec![
                (op::LOOKUP, ROOT, with(b"sub")),
                (op::LOOKUP, 2, with(b"file")),
                (op::READ, 3, read(0, u32::MAX)),
            ],
        ),
        (
            "directory-read-behind",
            DIRECTORY,
            PLAIN,
            vec![
                (op::LOOKUP, ROOT, with(b"sub")),
                (op::LOOKUP, 2, with(b"file")),
                (op::READ, 3, read(high, 4096)),
                (op::READ, 3, read(1 << 62, 4096)),
            ],
        ),
        (
            "directory-seek",
            DIRECTORY,
            PLAIN,
            vec![
                (op::LOOKUP, ROOT, with(b"sub")),
                (op::LOOKUP, 2, with(b"file")),
                (op::LSEEK, 2, seek(0, SEEK_HOLE)),
                (op::LSEEK, 3, seek(1, SEEK_DATA)),
                (op::LSEEK, 3, seek(1, SEEK_HOLE)),
                (op::LSEEK, 3, seek(1 << 62, SEEK_DATA)),
            ],
        ),
        (
            "directory-list-4-gib",
            DIRECTORY,
            PLAIN,
            vec![
                (op::READDIR, ROOT, read(high, u32::MAX)),
                (op::READDIRPLUS, ROOT, read(2, 0)),
            ],
        ),
        (
            "get-attributes",
            0,
            ALL,
            vec![(op::GETATTR, file, vec![0; 16])],
        ),
        (
            "node-outside-of-the-image",
            0,
            PLAIN,
            vec![(op::GETATTR, outside, Vec::new())],
        ),
        (
            "node-inside-an-inode",
            0,
            PLAIN,
            vec![(op::GETATTR, inside_an_inode, Vec::new())],
        ),
        ("node-highest", 0, PLAIN, vec![(op::READ, high, read(0, 1))]),
        ("read", 0, ALL, vec![(op::READ, file, read(0, 4096))]),
        ("read-of-0", 0, ALL, vec![(op::READ, file, read(0, 0))]),
        (
            "read-4-gib",
            0,
            PLAIN,
            vec![(op::READ, file, read(0, u32::MAX))],
        ),
        (
            "read-behind",
            0,
            ALL,
            vec![(op::READ, file, read(high, 4096))],
        ),
        (
            "read-to-2-64",
            0,
            ALL,
            vec![(op::READ, long, read(high - 4095, 4096))],
        ),
        ("read-cut", 0, PLAIN, vec![(op::READ, file, vec![0; 39])]),
        (
            "read-directory",
            0,
            PLAIN,
            vec![(op::READ, ROOT, read(0, 4096))],
        ),
        ("read-fifo", 0, PLAIN, vec![(op::READ, fifo, read(0, 4096))]),
        (
            "read-link-as-file",
            0,
            PLAIN,
            vec![(op::READ, link, read(0, 4096))],
        ),
        ("read-link", 0, ALL, vec![(op::READLINK, link, Vec::new())]),
        (
            "read-file-as-link",
            0,
            PLAIN,
            vec![(op::READLINK, file, Vec::new())],
        ),
        (
            "read-a-hole-of-1-mib",
            1,
            ALL,
            vec![
                (op::LOOKUP, ROOT, with(b"file")),
                (
                    op::READ,
                    node_of(InodeRef::from_word(32).expect("a reference")),
                    read(0, 1 << 20),
                ),
            ],
        ),
        (
            "seek",
            0,
            ALL,
            vec![
                (op::LSEEK, file, seek(1, SEEK_DATA)),
                (op::LSEEK, file, seek(1, SEEK_HOLE)),
            ],
        ),
        (
            "seek-in-a-hole-of-1-mib",
            1,
            ALL,
            [(0, SEEK_DATA), (1 << 19, SEEK_HOLE)]
                .map(|(offset, whence)| {
                    let hole = node_of(InodeRef::from_word(32).expect("a reference"));
                    (op::LSEEK, hole, seek(offset, whence))
                })
                .to_vec(),
        ),
        (
            "seek-to-the-highest",
            0,
            PLAIN,
            vec![
                (op::LSEEK, file, seek(high, SEEK_DATA)),
                (op::LSEEK, file, seek(high, SEEK_HOLE)),
            ],
        ),
        (
            "seek-of-no-kind",
            0,
            PLAIN,
            vec![
                (op::LSEEK, file, seek(0, 0)),
                (op::LSEEK, file, seek(0, u32::MAX)),
            ],
        ),
        (
            "seek-in-directory-and-fifo",
            0,
            PLAIN,
            vec![
                (op::LSEEK, ROOT, seek(0, SEEK_DATA)),
                (op::LSEEK, fifo, seek(0, SEEK_HOLE)),
            ],
        ),
        (
            "seek-cut",
            0,
            PLAIN,
            vec![(op::LSEEK, file, seek(0, SEEK_DATA)[..23].to_vec())],
        ),
        ("list", 0, ALL, vec![(op::READDIR, ROOT, read(0, 4096))]),
        (
            "list-with-attributes",
            0,
            ALL,
            vec![(op::READDIRPLUS, ROOT, read(0, 65_536))],
        ),
        (
            "list-4-gib",
            0,
            PLAIN,
            vec![(op::READDIRPLUS, ROOT, read(0, u32::MAX))],
        ),
        ("list-of-0", 0, PLAIN, vec![(op::READDIR, ROOT, read(0, 0))]),
        (
            "list-from-the-highest",
            0,
            PLAIN,
            vec![(op::READDIR, ROOT, read(high, 4096))],
        ),
        (
            "list-file",
            0,
            PLAIN,
            vec![(op::READDIR, file, read(0, 4096))],
        ),
        (
            "list-names-with-slash",
            3,
            ALL,
            vec![
                (op::READDIR, ROOT, read(0, 4096)),
                (op::READDIR, dir, read(0, 4096)),
            ],
        ),
        (
            "list-twice-from-one-place",
            0,
            PLAIN,
            vec![
                (op::READDIR, ROOT, read(0, 64)),
                (op::READDIR, ROOT, read(2, 64)),
                (op::READDIR, ROOT, read(2, 64)),
            ],
        ),
        (
            "xattr",
            0,
            PLAIN,
            vec![(op::GETXATTR, long, xattr(100, b"user.a\0"))],
        ),
        (
            "xattr-length",
            0,
            PLAIN,
            vec![(op::GETXATTR, long, xattr(0, b"user.a\0"))],
        ),
        (
            "xattr-too-little-room",
            0,
            PLAIN,
            vec![(op::GETXATTR, long, xattr(1, b"user.a\0"))],
        ),
        (
            "xattr-absent",
            0,
            PLAIN,
            vec![(op::GETXATTR, file, xattr(100, b"user.none\0"))],
        ),
        (
            "xattr-without-nul",
            0,
            PLAIN,
            vec![(op::GETXATTR, long, xattr(100, b"user.a"))],
        ),
        (
            "xattr-cut",
            0,
            PLAIN,
            vec![(op::GETXATTR, long, vec![0; 7])],
        ),
        (
            "xattr-names",
            0,
            PLAIN,
            vec![(op::LISTXATTR, long, xattr(u32::MAX, b""))],
        ),
        (
            "xattr-names-too-many",
            6,
            PLAIN,
            vec![(op::LISTXATTR, node_in(6, "file"), xattr(u32::MAX, b""))],
        ),
        (
            "forget",
            0,
            ALL,
            vec![(op::FORGET, file, high.to_ne_bytes().to_vec())],
        ),
        (
            "forget-again-and-again",
            0,
            ALL,
            vec![
                (op::FORGET, file, high.to_ne_bytes().to_vec()),
                (op::FORGET, high, high.to_ne_bytes().to_vec()),
                (op::FORGET, 0, Vec::new()),
                (
                    op::BATCH_FORGET,
                    0,
                    [u32::MAX.to_ne_bytes(), [0; 4]].concat(),
                ),
                (op::BATCH_FORGET, 0, Vec::new()),
                (op::GETATTR, file, Vec::new()),
            ],
        ),
        (
            "interrupt",
            0,
            PLAIN,
            vec![(op::INTERRUPT, 0, 1u64.to_ne_bytes().to_vec())],
        ),
        (
            "answer-to-a-notification",
            0,
            PLAIN,
            vec![(op::NOTIFY_REPLY, file, vec![0; 40])],
        ),
        ("init-again", 0, PLAIN, vec![(op::INIT, 0, vec![0xff; 64])]),
        ("code-0", 0, PLAIN, vec![(0, ROOT, Vec::new())]),
        ("code-highest", 0, ALL, vec![(u32::MAX, ROOT, Vec::new())]),
        (
            "open",
            0,
            PLAIN,
            vec![
                (op::OPEN, file, vec![0; 8]),
                (op::OPENDIR, ROOT, vec![0; 8]),
            ],
        ),
        (
            "open-without-open",
            0,
            1,
            vec![
                (op::OPEN, file, vec![0; 8]),
                (op::OPENDIR, ROOT, vec![0; 8]),
            ],
        ),
        (
            "release-without-open",
            0,
            PLAIN,
            vec![
                (op::RELEASE, file, vec![0xff; 24]),
                (op::RELEASEDIR, high, vec![0xff; 24]),
            ],
        ),
        (
            "write",
            0,
            PLAIN,
            vec![
                (op::WRITE, file, vec![0; 41]),
                (op::SETATTR, file, vec![0; 88]),
            ],
        ),
        (
            "make",
            0,
            PLAIN,
            vec![
                (op::CREATE, ROOT, with(b"new")),
                (op::UNLINK, ROOT, with(b"file")),
            ],
        ),
        ("ioctl", 0, PLAIN, vec![(op::IOCTL, file, vec![0xff; 32])]),
        (
            "destroy",
            0,
            PLAIN,
            vec![(op::DESTROY, 0, Vec::new()), (op::STATFS, ROOT, Vec::new())],
        ),
        (
            "loop-to-the-parent",
            5,
            ALL,
            vec![
                (op::READDIRPLUS, ROOT, read(0, 65_536)),
                (op::LOOKUP, ROOT, with(b"dir")),
            ],
        ),
    ];
    let mut cases: Vec<_> = list
        .into_iter()
        .map(|(name, served, how, requests)| {
            assert!(usize::from(served) <= IMAGES.len());
            let mut case = vec![served, how];
            for ((opcode, nodeid, body), unique) in requests.into_iter().zip(2..) {
                case.extend(packet(header(opcode, unique, nodeid), &body));
            }
            (name.to_owned(), case)
        })
        .collect();

    // Headers that say something else.
    let get = |change: fn(&mut InHeader)| {
        let mut header = header(op::GETATTR, 2, ROOT);
        change(&mut header);
        packet(header, &[0; 16])
    };
    let next = packet(header(op::STATFS, 9, ROOT), &[]);
    let forget = |len| {
        let forget = InHeader {
            len,
            ..header(op::FORGET, 2, ROOT)
        };
        packet(forget, &[0; 8])
    };
    for (name, packets) in [
        ("length-1-less", get(|header| header.len = 55)),
        ("length-1-more", get(|header| header.len = 57)),
        ("length-highest", get(|header| header.len = u32::MAX)),
        ("length-of-forget-highest", forget(u32::MAX)),
        ("number-0", get(|header| header.unique = 0)),
        ("number-highest", get(|header| header.unique = u64::MAX)),
        (
            "number-of-a-resent-request",
            get(|header| header.unique |= 1 << 63),
        ),
        ("number-twice", [get(|_| ()), get(|_| ())].concat()),
        (
            "extension-highest",
            get(|header| header.total_extlen = u16::MAX),
        ),
        ("header-cut", [&[39, 0][..], &[1; 39]].concat()),
        ("header-alone", packet(header(op::LOOKUP, 2, ROOT), &[])),
        ("packet-empty", vec![0, 0]),
        (
            "packet-of-16-kib",
            packet(header(op::STATFS, 2, ROOT), &[0; (16 << 10) - 40]),
        ),
        (
            "packet-longer-than-the-buffer",
            packet(header(op::STATFS, 2, ROOT), &[0; 16 << 10]),
        ),
    ] {
        cases.push((name.to_owned(), [&[0, PLAIN], &packets[..], &next].concat()));
    }
    cases
}
