//! What is packed is what is read. A tree on disk, packed with any options, is the same in the image, and in
//! an image that is packed from that image.
//!
//! The tree is in `/dev/shm`. Only for root, users, devices and `trusted.*` attributes are part of it. Other
//! users pack what the system lets them make.
#![no_main]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use arbitrary::Arbitrary;
use brisk_image::codec::Bcj;
use brisk_image::rules::PlanRules;
use brisk_image::{
    Compression, FileType, Image, ImageWriter, InodeKind, InodeRef, OpenOptions, Tree, TreeRules,
};
use libfuzzer_sys::{Corpus, fuzz_target};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

#[path = "../../../start/brisk-image/tests/support/exercise.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod exercise;

#[derive(Arbitrary, Debug)]
struct Case {
    nodes: Vec<Node>,
    first: Options,
    second: Options,
}

#[derive(Arbitrary, Debug)]
struct Node {
    /// Which of the earlier directories it is in.
    parent: u8,
    name: Name,
    kind: Kind,
    mode: u16,
    mtime: u32,
    owner: Option<(u16, u32)>,
    xattrs: Vec<(u8, Vec<u8>)>,
}

#[derive(Arbitrary, Debug)]
enum Name {
    Short(u8),
    Bytes(Vec<u8>),
    /// A name of the greatest length.
    Long(u8),
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Directory,
    /// This many empty files in a directory.
    Crowd(u16),
    File(Vec<Piece>),
    /// The same contents as another file.
    Copy(u8),
    HardLink(u8),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Device {
        block: bool,
        major: u16,
        minor: u32,
    },
}

#[derive(Arbitrary, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Run { byte: u8, len: u16 },
    Noise { seed: u8, len: u16 },
    Hole(u16),
}

#[derive(Arbitrary, Debug)]
struct Options {
    codec: u8,
    level: u8,
    high: bool,
    filters: Vec<u8>,
    block_log: u8,
    shared_blocks: bool,
    tails: bool,
    deduplicate: bool,
    export: bool,
    threads: bool,
    time: Option<u32>,
    place: bool,
    recipe: bool,
    order: Vec<u8>,
    raw: Vec<u8>,
}

const PATTERNS: [&str; 8] = ["*", "a*", "/b", "*/", "!a", "**/c", "[d-z]*", "/a/**"];

impl Options {
    fn writer(&self) -> ImageWriter {
        let block_size = 1 << (12 + self.block_log % 9);
        // The highest levels of xz and zstd are slow, and use no other code here.
        let compression = match self.codec % 6 {
            0 => Compression::None,
            1 => Compression::Gzip {
                level: 1 + self.level % 12,
            },
            2 => Compression::Lzo {},
            3 => Compression::Lz4 {
                high: self.high.then_some(3 + self.level % 10),
            },
            4 => Compression::Xz {
                preset: self.level % 3,
                extreme: self.high,
                dict_size: (self.level >= 128).then_some(block_size.min(8192)),
                filters: self
                    .filters
                    .iter()
                    .take(2)
                    .map(|n| Bcj::ALL[usize::from(*n) % Bcj::ALL.len()])
                    .collect(),
            },
            _ => Compression::Zstd {
                level: 1 + self.level % 12,
            },
        };
        let compression = match compression {
            // A dictionary has at least 8 KiB, and at most the size of a block.
            Compression::Xz {
                preset,
                extreme,
                filters,
                ..
            } if block_size < 8192 => Compression::Xz {
                preset,
                extreme,
                dict_size: None,
                filters,
            },
            other => other,
        };
        let patterns = |list: &[u8]| {
            let pattern = |n: &u8| PATTERNS[usize::from(*n) % PATTERNS.len()].to_owned();
            list.iter().take(4).map(pattern).collect()
        };
        let rules = PlanRules::new(patterns(&self.order), patterns(&self.raw));
        let mut writer = ImageWriter::new()
            .compression(compression)
            .block_size(block_size)
            .shared_blocks(self.shared_blocks)
            .tails(self.tails)
            .deduplicate(self.deduplicate)
            .export(self.export)
            .threads(1 + usize::from(self.threads))
            .recipe(self.recipe)
            .rules(rules.expect("every pattern can be read"));
        if let Some(time) = self.time {
            writer = writer.time(time);
        }
        if self.place {
            writer = writer.place("/opt/app".into());
        }
        writer
    }
}

impl Name {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::Short(n) => vec![b'a' + n % 26],
            Self::Bytes(bytes) => bytes.clone(),
            Self::Long(n) => vec![b'a' + n % 26; 255],
        };
        bytes.truncate(255);
        for byte in &mut bytes {
            if matches!(byte, 0 | b'/') {
                *byte = b'_';
            }
        }
        if matches!(&bytes[..], b"" | b"." | b"..") {
            bytes.push(b'_');
        }
        bytes
    }
}

/// Makes the tree, as far as the system allows.
struct Maker {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// How many bytes of files may still be made.
    left: usize,
}

impl Maker {
    fn make(&mut self, node: &Node) -> Option<PathBuf> {
        let parent = &self.directories[usize::from(node.parent) % self.directories.len()];
        let path = parent.join(OsStr::from_bytes(&node.name.bytes()));
        if path.as_os_str().len() > 3000 {
            return None;
        }
        let node_of = |kind, dev| {
            let mode = Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(CWD, &path, kind, mode, dev).ok()
        };
        match &node.kind {
            Kind::Directory => {
                fs::create_dir(&path).ok()?;
                self.directories.push(path.clone());
            }
            Kind::Crowd(count) => {
                fs::create_dir(&path).ok()?;
                for i in 0..count % 700 {
                    File::create(path.join(format!("{i:x}-{i}"))).ok()?;
                }
                self.directories.push(path.clone());
            }
            Kind::File(pieces) => {
                let file = File::create_new(&path).ok()?;
                self.fill(&file, pieces);
                self.files.push(path.clone());
            }
            Kind::Copy(n) => {
                let from = self.file(*n)?;
                // Otherwise it would be the file itself.
                if fs::symlink_metadata(&path).is_ok() {
                    return None;
                }
                fs::copy(from, &path).ok()?;
            }
            Kind::HardLink(n) => fs::hard_link(self.file(*n)?, &path).ok()?,
            Kind::Symlink(target) => {
                std::os::unix::fs::symlink(OsStr::from_bytes(target), &path).ok()?;
            }
            Kind::Fifo => node_of(rustix::fs::FileType::Fifo, 0)?,
            Kind::Socket => node_of(rustix::fs::FileType::Socket, 0)?,
            Kind::Device {
                block,
                major,
                minor,
            } => {
                let kind = match block {
                    true => rustix::fs::FileType::BlockDevice,
                    false => rustix::fs::FileType::CharacterDevice,
                };
                let (major, minor) = (u32::from(*major) & 0xfff, minor & 0xf_ffff);
                node_of(kind, rustix::fs::makedev(major, minor))?;
            }
        }
        Some(path)
    }

    fn file(&self, n: u8) -> Option<&PathBuf> {
        self.files.get(usize::from(n) % self.files.len().max(1))
    }

    fn fill(&mut self, file: &File, pieces: &[Piece]) {
        let mut end = 0;
        for piece in pieces.iter().take(12) {
            let bytes = match piece {
                Piece::Bytes(bytes) => bytes.clone(),
                Piece::Run { byte, len } => vec![*byte; usize::from(*len)],
                Piece::Noise { seed, len } => {
                    let mut state = u32::from(*seed) + 1;
                    let next = |_| {
                        state ^= state << 13;
                        state ^= state >> 17;
                        state ^= state << 5;
                        state.to_le_bytes()[1]
                    };
                    (0..*len).map(next).collect()
                }
                Piece::Hole(len) => {
                    end += u64::from(*len);
                    file.set_len(end).expect("a file can grow");
                    continue;
                }
            };
            let bytes = &bytes[..bytes.len().min(self.left)];
            self.left -= bytes.len();
            file.write_all_at(bytes, end)
                .expect("a file can be written");
            end += bytes.len() as u64;
        }
    }
}

/// Gives `path` the attributes of the node, as far as the system allows.
fn decorate(path: &Path, node: &Node) {
    if let Some((uid, gid)) = node.owner {
        let (uid, gid) = (
            Uid::from_raw(uid.into()),
            Gid::from_raw(gid.min(u32::MAX - 1)),
        );
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags).ok();
    }
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if !is_link {
        let mode = Mode::from_raw_mode(u32::from(node.mode) & 0o7777);
        rustix::fs::chmod(path, mode).ok();
    }
    for (kind, value) in node.xattrs.iter().take(3) {
        let prefix = ["user.", "trusted.", "security."][usize::from(kind % 3)];
        let name = format!("{prefix}n{}", kind / 3 % 4);
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).ok();
    }
    let time = Timespec {
        tv_sec: node.mtime.into(),
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(CWD, path, &times, flags).ok();
}

fuzz_target!(|case: Case| -> Corpus {
    if case.nodes.len() > 60 {
        return Corpus::Reject;
    }
    let directory = tempfile::tempdir_in("/dev/shm").expect("/dev/shm can be written");
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory can be made");
    let mut maker = Maker {
        directories: vec![root.clone()],
        files: Vec::new(),
        left: 1 << 20,
    };
    let made: Vec<_> = case.nodes.iter().map(|node| maker.make(node)).collect();
    // The contents of a directory come after it, and change its time. So this goes backwards.
    for (path, node) in made.iter().zip(&case.nodes).rev() {
        if let Some(path) = path {
            decorate(path, node);
        }
    }

    let rules = TreeRules::default();
    let tree = Tree::from_directory(&root, &rules).expect("the tree can be listed");
    let packed = directory.path().join("first.img");
    let writer = case.first.writer();
    writer.write(&tree, &packed).expect("it can be packed");
    let image = compare(&packed, &root);
    assert_eq!(
        image.recipe().expect("it can be read"),
        case.first.recipe.then(|| writer.to_recipe())
    );
    let place = image.recorded_place().expect("it can be read");
    assert_eq!(place, case.first.place.then(|| "/opt/app".into()));

    // With another number of threads the bytes must be the same.
    let again = directory.path().join("again.img");
    let threads = if case.first.threads { 1 } else { 3 };
    let writer = writer.threads(threads);
    writer.write(&tree, &again).expect("it can be packed");
    assert!(fs::read(&packed).ok() == fs::read(&again).ok());

    let tree = Tree::from_image(&image, &rules).expect("the image can be listed");
    let packed = directory.path().join("second.img");
    let writer = case.second.writer();
    writer.write(&tree, &packed).expect("it can be packed");
    compare(&packed, &root);
    Corpus::Keep
});

/// Compares the image at `path` with the directory `root`, in both directions.
fn compare(path: &Path, root: &Path) -> Image {
    let image = Image::open_with(path, &OpenOptions::new()).expect("it can be opened");
    let mut faults = exercise::Faults::default();
    exercise::exercise_image(&image, &mut faults);
    assert_eq!(faults.first(), "ok");

    let mut names = 0;
    let mut inodes: HashMap<u64, InodeRef> = HashMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let full = root.join(&path);
        names += 1;
        let reference = compare_one(&image, &path, &full);
        let metadata = fs::symlink_metadata(&full).expect("it is there");
        let known = *inodes.entry(metadata.ino()).or_insert(reference);
        assert_eq!(
            known, reference,
            "{path:?} is not the hard link that it was"
        );
        if metadata.is_dir() {
            let entries = fs::read_dir(&full).expect("it can be listed");
            open.extend(entries.map(|entry| path.join(entry.expect("it can be read").file_name())));
        }
    }
    assert_eq!(image.walk().expect("it has a root").count(), names);
    assert_eq!(image.inode_count() as usize, inodes.len());
    image
}

fn compare_one(image: &Image, path: &Path, full: &Path) -> InodeRef {
    let metadata = fs::symlink_metadata(full).expect("it is there");
    let inode = image.lookup(path).expect("it can be looked up");
    let inode = inode.unwrap_or_else(|| panic!("{path:?} is missing"));
    let kind = metadata.file_type();
    let device = |rdev| (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    match inode.kind() {
        InodeKind::Directory(_) => assert!(kind.is_dir()),
        InodeKind::File(_) => {
            assert!(kind.is_file());
            let file = image.file(&inode).expect("it can be opened");
            let mut bytes = vec![0; file.len() as usize];
            file.read_at(0, &mut bytes).expect("it can be read");
            assert!(bytes == fs::read(full).expect("it can be read"), "{path:?}");
        }
        InodeKind::Symlink(target) => {
            assert_eq!(
                fs::read_link(full).expect("it is a link").as_os_str(),
                target
            );
        }
        InodeKind::BlockDevice(numbers) | InodeKind::CharDevice(numbers) => {
            assert_eq!(
                kind.is_block_device(),
                inode.file_type() == FileType::BlockDevice
            );
            assert_eq!(device(metadata.rdev()), (numbers.major, numbers.minor));
        }
        InodeKind::Fifo => assert!(kind.is_fifo()),
        InodeKind::Socket => assert!(kind.is_socket()),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        u32::from(inode.permissions()),
        metadata.mode() & 0o7777,
        "{path:?}"
    );
    assert_eq!(
        (inode.uid(), inode.gid()),
        (metadata.uid(), metadata.gid()),
        "{path:?}"
    );
    assert_eq!(i64::from(inode.mtime()), metadata.mtime(), "{path:?}");
    if !inode.is_dir() {
        assert_eq!(u64::from(inode.nlink()), metadata.nlink(), "{path:?}");
    }
    let xattrs = image.xattrs(&inode).expect("they can be read");
    let xattrs: Vec<_> = xattrs
        .iter()
        .map(|xattr| (xattr.name().to_owned(), xattr.value().to_vec()))
        .collect();
    assert_eq!(xattrs, xattrs_of(full), "{path:?}");
    inode.reference()
}

fn xattrs_of(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let mut buf = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut buf).unwrap_or(0);
    let names: Vec<_> = buf[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect();
    let value = |name: &std::ffi::OsString| {
        let mut buf = vec![0; 65_536];
        let len = rustix::fs::lgetxattr(path, name, &mut buf).expect("it has a value");
        buf[..len].to_vec()
    };
    let mut xattrs: Vec<_> = names
        .into_iter()
        .map(|name| {
            let value = value(&name);
            (name, value)
        })
        .collect();
    xattrs.sort();
    xattrs
}
