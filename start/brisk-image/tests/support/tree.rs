//! A tree with one of everything that Linux can name, the same in every run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// What a tree has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Lengths of files are around multiples of this.
    pub block: usize,
    /// Owners, modes, times, devices and extended attributes that only root can make.
    pub root: bool,
    /// Files in the wide directory.
    pub wide: usize,
}

/// Numbers that look like chance and are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Bytes that no codec makes smaller.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// Bytes that every codec makes smaller, and that hold x86 calls for the branch filters.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 8] = [
        b"launch ",
        b"image\n",
        b"\xe8\x10\x02\x00\x00",
        b"block",
        b"page ",
        b"\0\0\0\0",
        b"squash",
        b"\x48\x89\xe5",
    ];
    // Some pages of words, again and again with another number: long matches are quick to find.
    const PERIOD: usize = 12_000;
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len.min(PERIOD) {
        let mut word = random.next();
        for _ in 0..8 {
            bytes.extend_from_slice(WORDS[(word % 8) as usize]);
            word >>= 5;
        }
    }
    let pages = bytes.clone();
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
        bytes.extend_from_slice(&pages);
    }
    bytes.truncate(len);
    bytes
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{} takes no {name}: {e}", path.display()));
}

fn write(path: PathBuf, bytes: &[u8]) {
    fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn mkdir(path: PathBuf) -> PathBuf {
    fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

/// Makes the tree in `root`, which is there and empty.
pub fn build(root: &Path, shape: Shape) {
    lengths(root, shape.block);
    sparse(root, shape.block as u64);
    names(root);
    links(root);
    wide(root, shape.wide);
    mkdir(root.join("empty dir"));
    if shape.root {
        specials(root);
        xattrs(root);
    }
    attributes(root, shape.root);
}

fn lengths(root: &Path, block: usize) {
    let dir = mkdir(root.join("lengths"));
    let around = [
        0,
        1,
        2,
        100,
        4095,
        4096,
        4097,
        block - 1,
        block,
        block + 1,
        2 * block - 1,
        2 * block,
        2 * block + 1,
    ];
    // Blocks of 1 MiB would make the tree large and the codecs slow.
    let large = block > 64 << 10;
    for len in around.into_iter().filter(|len| !large || *len <= block + 1) {
        write(dir.join(format!("text-{len}")), &text(len as u64, len));
        if !large || len < 4096 || len == block + 1 {
            write(dir.join(format!("noise-{len}")), &noise(!(len as u64), len));
        }
    }
    let same = mkdir(root.join("same"));
    write(same.join("small"), &text(100, 100));
    write(same.join("whole block"), &text(block as u64, block));
    write(same.join("with tail"), &text(block as u64 + 1, block + 1));
    // One block is that of another file, the rest is not.
    write(
        same.join("start"),
        &[text(block as u64, block), noise(9, 50)].concat(),
    );
    write(same.join("blocks"), &text(77, block).repeat(2));
    let many = mkdir(root.join("many"));
    for n in 0..60 {
        write(
            many.join(format!("{n}.conf")),
            &text(1000 + n, 37 * n as usize % 900),
        );
    }
}

fn sparse(root: &Path, block: u64) {
    let dir = mkdir(root.join("sparse"));
    let table: &[(&str, u64, &[u64])] = &[
        ("start", 4 * block, &[3 * block]),
        ("middle", 4 * block + 7, &[0, 4 * block]),
        ("end", 4 * block + 7, &[0]),
        ("all", 5 * block, &[]),
        ("all and a tail", 3 * block + 1, &[]),
        ("less than a block", block / 2, &[]),
        ("islands", 7 * block, &[block + 5, 4 * block - 3]),
    ];
    for (name, len, data) in table {
        let file = File::create(dir.join(name)).expect("the directory is ours");
        file.set_len(*len).expect("a file can have holes");
        for at in *data {
            let n = (len - at).min(6) as usize;
            file.write_all_at(&b"island"[..n], *at)
                .expect("the file is ours");
        }
    }
    // Zeros that are on the disk.
    write(dir.join("zeros"), &vec![0; 2 * block as usize + 3]);
}

fn names(root: &Path) {
    let dir = mkdir(root.join("names"));
    let names: [&[u8]; 12] = [
        &[b'n'; 255],
        b"\xff\xfe not UTF-8 \x80",
        b"new\nline",
        b"\x1b[2J\ttab \x07",
        b" leading and trailing ",
        b"-dash",
        b"\"quotes\" 'and' \\back\\slash",
        b"*?[a-z]{x,y}!#",
        b"...",
        b"a",
        b"B",
        "\u{e9}\u{1f680}".as_bytes(),
    ];
    for (n, name) in names.into_iter().enumerate() {
        let name = OsString::from_vec(name.to_vec());
        write(dir.join(name), &text(n as u64, 10 * n));
    }
    let deep = (0..60).fold(root.join("deep"), |path, n| path.join(format!("level-{n}")));
    fs::create_dir_all(&deep).expect("the tree is ours");
    write(deep.join("bottom"), b"reached");
}

fn links(root: &Path) {
    let dir = mkdir(root.join("links"));
    let hard = |from: &Path, to: PathBuf| fs::hard_link(from, to).expect("the tree is ours");
    write(dir.join("first"), &text(3, 5000));
    hard(&dir.join("first"), dir.join("second"));
    hard(&dir.join("first"), root.join("third"));
    write(dir.join("empty"), b"");
    hard(&dir.join("empty"), dir.join("also empty"));
    let table: [(&str, &str); 6] = [
        ("to first", "first"),
        ("dangling", "../none/such"),
        ("absolute", "/etc/passwd"),
        ("to a directory", "../deep"),
        ("loop", "loop"),
        ("long", &"long/".repeat(800)),
    ];
    for (name, target) in table {
        symlink(target, dir.join(name)).expect("the tree is ours");
    }
    hard(&dir.join("dangling"), dir.join("dangling again"));
}

/// Makes the directory "wide" with `count` files, and returns their names in the order of an image.
pub fn wide(root: &Path, count: usize) -> Vec<OsString> {
    let dir = mkdir(root.join("wide"));
    let names = (0..count).map(|n| OsString::from(format!("entry {n} of the wide directory")));
    let mut names: Vec<_> = names.collect();
    for name in &names {
        File::create(dir.join(name)).expect("the tree is ours");
    }
    names.sort();
    names
}

fn specials(root: &Path) {
    let dir = mkdir(root.join("specials"));
    let table = [
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
        ("null", FileType::CharacterDevice, 1, 3),
        ("far minor", FileType::CharacterDevice, 200, 70_000),
        ("disk", FileType::BlockDevice, 8, 17),
        ("last", FileType::BlockDevice, 4095, 1_048_575),
    ];
    for (name, kind, major, minor) in table {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, dir.join(name), kind, Mode::RUSR, device)
            .unwrap_or_else(|e| panic!("cannot make {name}: {e}"));
    }
    for name in ["fifo", "null"] {
        fs::hard_link(dir.join(name), dir.join(format!("{name} again"))).expect("the tree is ours");
    }
}

fn xattrs(root: &Path) {
    let dir = mkdir(root.join("xattrs"));
    for name in ["one", "empty", "all", "many", "long-1", "long-2", "long-3"] {
        write(dir.join(name), name.as_bytes());
    }
    let sub = mkdir(dir.join("directory"));
    write(sub.join("inside"), b"");
    let link = dir.join("link");
    symlink("one", &link).expect("the tree is ours");
    set_xattr(&dir.join("one"), "user.comment", b"one value");
    set_xattr(&dir.join("empty"), "user.empty", b"");
    for name in ["user.a", "trusted.b", "security.c"] {
        set_xattr(&dir.join("all"), name, name.as_bytes());
    }
    set_xattr(&sub, "user.on.a.directory", b"\0binary\xff");
    set_xattr(&link, "trusted.on.a.link", b"link");
    set_xattr(&root.join("specials/fifo"), "trusted.on.a.fifo", b"fifo");
    set_xattr(
        &root.join("specials/null"),
        "security.on.a.device",
        b"device",
    );
    set_xattr(
        &root.join("specials/socket"),
        "trusted.on.a.socket",
        b"socket",
    );
    // The same long value in different sets is stored once.
    let long = noise(5, 2000);
    for name in ["long-1", "long-2", "long-3"] {
        set_xattr(&dir.join(name), &format!("user.of.{name}"), &long);
        set_xattr(
            &dir.join(name),
            "trusted.same",
            b"a value that several files have",
        );
    }
    for n in 0..20 {
        set_xattr(
            &dir.join("many"),
            &format!("user.number.{n}"),
            &noise(n, n as usize),
        );
    }
    set_xattr(root, "user.root", b"of the root");
}

/// Owners, modes and times: another one for each path, and times from 1970 to the last that
/// SquashFS stores.
fn attributes(root: &Path, as_root: bool) {
    const TIMES: [i64; 8] = [
        0,
        1,
        946_684_799,
        1_700_000_000,
        2_147_483_647,
        2_147_483_648,
        4_102_444_800,
        4_294_967_295,
    ];
    const MODES: [u32; 10] = [
        0o644, 0o755, 0o600, 0o4755, 0o2755, 0o1777, 0o7777, 0o444, 0o000, 0o640,
    ];
    let mut paths = Vec::new();
    collect(root, &mut paths);
    // What is in a directory comes before it, so that its time stays.
    paths.sort();
    for (n, path) in paths.iter().enumerate().rev() {
        let metadata = fs::symlink_metadata(path).expect("the tree is ours");
        if as_root {
            let (uid, gid) = (n as u32 * 7 % 301, 100_000 + n as u32 % 53);
            lchown(path, Some(uid), Some(gid)).expect("root may");
            if !metadata.is_symlink() {
                let mode = fs::Permissions::from_mode(MODES[n % MODES.len()]);
                fs::set_permissions(path, mode).expect("the tree is ours");
            }
        }
        let time = Timespec {
            tv_sec: TIMES[n % TIMES.len()],
            tv_nsec: 0,
        };
        // mksquashfs takes two names for two links if the access time moves between them, so it is
        // where `relatime` leaves it.
        let accessed = Timespec {
            tv_sec: 5_000_000_000,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: accessed,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            .expect("the tree is ours");
    }
}

fn collect(path: &Path, paths: &mut Vec<PathBuf>) {
    paths.push(path.to_owned());
    if fs::symlink_metadata(path)
        .expect("the tree is ours")
        .is_dir()
    {
        for entry in fs::read_dir(path).expect("the tree is ours") {
            collect(&entry.expect("the tree is ours").path(), paths);
        }
    }
}
