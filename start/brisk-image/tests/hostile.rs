//! Images that break the rules: each gets the message it must get, in bounded memory and time.
//!
//! `testdata/bad` holds the images, and `EXPECT` the first fault of each, or "ok" where no rule is
//! broken. They are made by the lower half of this file: see [`regenerate`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use brisk_image::{Image, ImageWriter, Limits, OpenOptions, Tree, TreeRules, Work};

#[path = "support/exercise.rs"]
mod exercise;
mod support;

use exercise::{Faults, exercise, exercise_image};
use support::open_mapped;

/// Counts what each thread has allocated. What C libraries allocate is not seen: their decoders
/// have bounds of their own.
struct Counted;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    let now = NOW.get() + by;
    NOW.set(now);
    PEAK.set(PEAK.get().max(now));
}

fn signed(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to `System` with the arguments it came with, and `System` keeps the
// contract of `GlobalAlloc`. Counting allocates nothing and cannot unwind: both cells are made at
// compile time and have no destructor.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller gives a layout that is not empty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller gives a pointer from this allocator, so from `System`, and its layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller gives a layout that is not empty.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // The worst case: old and new exist at once.
        count(signed(new_size));
        count(-signed(layout.size()));
        // SAFETY: the caller gives a pointer from this allocator, so from `System`, its layout,
        // and a size that is not zero and does not overflow.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const MIB: usize = 1 << 20;

const LIMITS: Limits = Limits::new()
    .memory(16 << 20)
    .block_cache(1 << 20)
    .metadata_cache(1 << 20)
    .depth(16);

/// What `work` returns, and the bytes that its thread had at most.
fn measured<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> (R, usize) {
    let (give, take) = mpsc::channel();
    let worker = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let before = NOW.get();
        PEAK.set(before);
        let result = work();
        let peak = PEAK.get() - before;
        // Nobody takes it after the deadline.
        drop(give.send((result, usize::try_from(peak).unwrap_or(0))));
    });
    let worker = worker.expect("a thread can be started");
    match take.recv_timeout(Duration::from_secs(60)) {
        Ok(measured) => measured,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: no end after 60 seconds"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => panic!("{name}: no result"),
        },
    }
}

fn options() -> OpenOptions {
    OpenOptions::new().limits(LIMITS)
}

/// The first fault of the image `bytes`, in at most 64 MiB.
fn first_fault(name: &str, bytes: Vec<u8>) -> String {
    let (faults, peak) = measured(name, move || exercise(bytes, &options()));
    assert!(peak < 64 * MIB, "{name}: {peak} bytes at once");
    faults.first().to_owned()
}

/// The same, of the file at `path` when it is mapped.
fn first_fault_mapped(name: &str, path: PathBuf) -> String {
    let prefix = format!("{}: ", path.display());
    let (faults, peak) = measured(name, move || {
        let mut faults = Faults::default();
        match open_mapped(&path, &options()) {
            Ok(image) => {
                exercise_image(&image, &mut faults);
                copy_files(&image);
            }
            Err(e) => faults.0.push(e.to_string()),
        }
        faults
    });
    assert!(peak < 64 * MIB, "{name}: {peak} bytes at once");
    let first = faults.first();
    first.strip_prefix(&prefix).unwrap_or(first).to_owned()
}

/// Copies the files of `image` on two threads, and compares what comes out to what is read.
fn copy_files(image: &Image) {
    let Ok(walk) = image.walk() else {
        return;
    };
    let files = walk.filter_map(|entry| image.file(entry.ok()?.inode()).ok());
    for file in files.take(20) {
        let end = file.len().min(20_000);
        let mut read = vec![0; usize::try_from(end).unwrap_or(0)];
        let mut copied = Vec::new();
        let copy = file.copy_to(0..end, &mut copied, 2);
        match file.read_at(0, &mut read) {
            Ok(_) => {
                assert_eq!(copy.ok(), Some(end));
                assert!(copied == read);
            }
            Err(e) => assert_eq!(copy.err().map(|e| e.to_string()), Some(e.to_string())),
        }
    }
}

fn bad() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/bad")
}

/// The images in `directory`, by name.
fn files_in(directory: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory can be listed");
    let named = entries.map(|entry| {
        let entry = entry.expect("an entry can be read");
        (
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        )
    });
    named
        .filter(|(name, _)| name != "EXPECT" && name != ".keep")
        .collect()
}

#[test]
fn every_image_gets_its_message_and_no_other() {
    let expect = fs::read_to_string(bad().join("EXPECT")).expect("EXPECT is there");
    let expect: BTreeMap<String, &str> = expect
        .lines()
        .map(|line| line.split_once('\t').expect("a name, a tab and a message"))
        .map(|(name, message)| (name.to_owned(), message))
        .collect();
    let images = files_in(&bad());
    let orphans: Vec<_> = images
        .keys()
        .filter(|name| !expect.contains_key(*name))
        .chain(expect.keys().filter(|name| !images.contains_key(*name)))
        .collect();
    assert_eq!(
        orphans,
        Vec::<&String>::new(),
        "in EXPECT or in the directory, not in both"
    );
    assert!(images.len() >= 250, "{} images", images.len());
    let mut wrong = Vec::new();
    for (name, path) in images {
        let bytes = fs::read(&path).expect("the image can be read");
        assert!(bytes.len() < 256 << 10, "{name}: {} bytes", bytes.len());
        let expected = expect[&name];
        for (how, got) in [
            ("read", first_fault(&name, bytes)),
            ("mapped", first_fault_mapped(&name, path)),
        ] {
            if got != expected {
                wrong.push(format!("{name}, {how}: got {got:?}, expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_tree_that_the_others_are_made_of_has_no_fault() {
    assert_eq!(first_fault("tree", tree().build().bytes), "ok");
    let image = Image::from_source(tree().build().bytes, &options()).unwrap();
    assert_eq!(image.walk().unwrap().count(), 20);
    let inode = |path: &str| image.lookup(path).unwrap().unwrap();
    let read = |path: &str| {
        let file = image.file(&inode(path)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read("dir/hello"), b"hello");
    assert_eq!(read("file"), [&[b'x'; BLOCK][..], b"0123456789"].concat());
    let parts = [&[0; BLOCK][..], &[b'x'; BLOCK], &[b'y'; 100]];
    assert_eq!(read("ext-file"), parts.concat());
    let xattrs = image.xattrs(&inode("ext-file")).unwrap();
    let xattrs: Vec<_> = xattrs
        .iter()
        .map(|xattr| (xattr.name().to_str().unwrap(), xattr.value()))
        .collect();
    let expected = [
        ("user.a", VALUE),
        ("trusted.b", VALUE),
        ("security.capability", b"abc"),
    ];
    assert_eq!(xattrs, expected);
}

/// What is copied from an image into another one can be read there, or gives the error that reading it gives.
#[test]
fn blocks_that_are_copied_can_be_read() {
    let limits = LIMITS.contents(8 << 20);
    let options = OpenOptions::new().limits(limits);
    let mut copied = 0;
    for (name, path) in files_in(&bad()) {
        let bytes = fs::read(&path).unwrap();
        let Ok(image) = Image::from_source(bytes, &options) else {
            continue;
        };
        let tree = Tree::from_image(&image, &TreeRules::default());
        let (Ok(tree), Ok(writer)) = (tree, ImageWriter::like(&image)) else {
            continue;
        };
        let pack = |copies| {
            let mut bytes = Vec::new();
            let writer = writer.clone().threads(1).copy_blocks(copies);
            let packed = writer.write_to(&tree, Cursor::new(&mut bytes));
            packed.map(|summary| (summary.data.copied_blocks, bytes))
        };
        let (new, anew) = match (pack(true), pack(false)) {
            (Ok((blocks, new)), Ok((_, anew))) => {
                copied += blocks;
                (new, anew)
            }
            (Err(new), Err(anew)) => {
                assert_eq!(new.to_string(), anew.to_string(), "{name}");
                continue;
            }
            (new, anew) => panic!("{name}: {:?} {:?}", new.err(), anew.err()),
        };
        let [new, anew] = [new, anew].map(|bytes| {
            let image = Image::from_source(bytes, &OpenOptions::new()).unwrap();
            let checked = image.check(&Work::new(), |_, e| panic!("{name}: {e}"));
            assert_eq!(checked.unwrap().faults, 0, "{name}");
            Tree::from_image(&image, &TreeRules::default()).unwrap()
        });
        let differences = new.compare(&anew, &[], &Work::new()).unwrap();
        assert_eq!(differences, [], "{name}");
    }
    assert!(copied > 100, "{copied} blocks were copied");
}

/// A block may be stored in more bytes than it decodes to, and many files may have it.
#[test]
fn a_block_that_is_larger_than_its_contents_is_not_copied() {
    let mut parts = Parts::new();
    // Deflate blocks of nothing, one of one byte, and its checksum.
    let mut stream = vec![0x78, 0x01];
    for _ in 0..700 {
        stream.raw(&[0, 0, 0, 0xff, 0xff]);
    }
    stream.raw(&[1, 1, 0, 0xfe, 0xff, b'x']);
    stream.raw(&[0, 0x79, 0, 0x79]);
    let start = parts.data(&stream);
    let file = parts.long_file("file", start, 1, &[stream.len() as u32]);
    let image = Image::from_source(parts.rooted(&[file]).build().bytes, &options()).unwrap();
    assert_eq!(image.read("file").unwrap(), b"x");
    let tree = Tree::from_image(&image, &TreeRules::default()).unwrap();
    let mut bytes = Vec::new();
    let writer = ImageWriter::like(&image).unwrap().shared_blocks(false);
    let packed = writer.write_to(&tree, Cursor::new(&mut bytes)).unwrap();
    let data = packed.data;
    assert_eq!((data.raw_blocks, data.copied_blocks), (1, 0));
}

/// Every bit of an image of all fourteen types of inode is flipped, and every byte made the
/// lowest and the highest.
#[test]
fn no_flip_breaks_anything() {
    let image = tree().build().bytes;
    let (peak, _) = measured("flips", move || {
        let before = NOW.get();
        let mut peak = 0;
        for (at, byte) in image.iter().enumerate() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, *byte, !*byte] {
                let mut image = image.clone();
                image[at] ^= flip;
                PEAK.set(before);
                exercise(image, &options());
                peak = peak.max(PEAK.get() - before);
            }
        }
        peak
    });
    assert!(peak < signed(64 * MIB), "{peak} bytes at once");
}

/// The image is cut at every byte: as it is, and with a length that says so.
#[test]
fn no_truncation_breaks_anything() {
    let image = tree().build().bytes;
    let (_, peak) = measured("truncations", move || {
        for len in 0..image.len() {
            let cut = &image[..len];
            let faults = exercise(cut.to_vec(), &options());
            assert_ne!(faults.first(), "ok", "{len} bytes");
            let mut told = cut.to_vec();
            if let Some(used) = told.get_mut(USED..USED + 8) {
                used.copy_from_slice(&(len as u64).to_le_bytes());
            }
            let faults = exercise(told, &options());
            assert_ne!(faults.first(), "ok", "{len} bytes, as it says");
        }
    });
    assert!(peak < 64 * MIB, "{peak} bytes at once");
}

/// An image of metadata blocks of one byte each, which its cache is to count for what they take.
#[test]
fn tiny_metadata_blocks_do_not_outgrow_their_cache() {
    let mut parts = Parts::new().rooted(&[Named::new("zeros", 2, 32, 2)]);
    parts.long_file("zeros", 96, (25_000 * BLOCK) as u64, &[0; 25_000]);
    let (root, rest) = parts.inodes.split_at(32);
    let mut stored = Vec::new();
    stored.u16(0x8020).raw(root);
    for byte in rest {
        stored.u16(0x8001).raw(&[*byte]);
    }
    parts.stored_inodes = Some(stored);
    let image = parts.build();
    // The file is in the second block, at its start.
    let names = image.at("names of root");
    let mut image = image.with(names + 4, &34u32.to_le_bytes());
    image[names + 12..names + 14].fill(0);
    let limits = LIMITS.metadata_cache(64 << 10);
    let (len, peak) = measured("tiny blocks", move || {
        let options = OpenOptions::new().limits(limits);
        let image = Image::from_source(image, &options).unwrap();
        let inode = image.lookup("zeros").unwrap().unwrap();
        image.file(&inode).unwrap().len()
    });
    assert_eq!(len, 25_000 * BLOCK as u64);
    // The list of the blocks takes 400,000.
    assert!(peak < MIB, "{peak} bytes at once");
}

/// A thousand directories in each other, whose names are as long as names can be, and how to open
/// the image.
fn deep_tree() -> (Vec<u8>, OpenOptions) {
    let mut parts = Parts::new();
    let mut entries = Vec::new();
    for _ in 0..DEPTH {
        let name = "n".repeat(256);
        entries = vec![parts.directory("d", &entries).called(&name)];
    }
    let limits = LIMITS.depth(DEPTH + 1);
    let image = parts.rooted(&entries).build().bytes;
    (image, OpenOptions::new().limits(limits))
}

const DEPTH: usize = 1000;

#[test]
fn a_walk_holds_no_more_than_its_longest_path() {
    let (image, options) = deep_tree();
    let (count, peak) = measured("deep tree", move || {
        let image = Image::from_source(image, &options).unwrap();
        let entries = image.walk().unwrap().map(|entry| entry.unwrap());
        entries.count()
    });
    assert_eq!(count, DEPTH + 1);
    // The longest path takes 257,000, the metadata as much.
    assert!(peak < 8 * MIB, "{peak} bytes at once");
}

#[test]
fn the_tree_of_an_image_holds_no_paths_of_directories() {
    let (image, options) = deep_tree();
    let (count, peak) = measured("tree of a deep tree", move || {
        let image = Image::from_source(image, &options).unwrap();
        let tree = Tree::from_image(&image, &TreeRules::default()).unwrap();
        tree.inode_count()
    });
    assert_eq!(count, DEPTH + 1);
    // The longest path takes 257,000, the metadata as much.
    assert!(peak < 8 * MIB, "{peak} bytes at once");
}

/// The list of the blocks of a file, which takes a little more than 4 bytes for each.
#[test]
fn a_list_of_blocks_takes_no_more_than_the_limit() {
    let blocks = 1 << 19;
    let image = sparse_file(blocks);
    let limits = LIMITS.memory(5 << 19);
    let (len, peak) = measured("long list", move || {
        let options = OpenOptions::new().limits(limits);
        let image = Image::from_source(image, &options).unwrap();
        let inode = image.lookup("zeros").unwrap().unwrap();
        image.file(&inode).unwrap().len()
    });
    assert_eq!(len, (blocks * BLOCK) as u64);
    // Beside it there is the cache of metadata.
    assert!(peak < 4 * MIB, "{peak} bytes at once");
}

#[test]
fn a_list_of_blocks_has_a_limit_of_its_own() {
    let open = |limits| {
        let options = OpenOptions::new().limits(limits);
        let image = Image::from_source(sparse_file(1 << 19), &options).unwrap();
        let inode = image.lookup("zeros").unwrap().unwrap();
        image.file(&inode).map(|file| file.len())
    };
    let needs = 5 << 19;
    assert_eq!(
        open(LIMITS.block_list(needs)).unwrap(),
        (BLOCK as u64) << 19
    );
    let e = open(LIMITS.block_list(needs - 1)).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the list of a file's blocks needs 2621440, which passes the limit of 2621439"
    );
}

/// The list of a table's metadata blocks, which is stored as long as it is in memory.
#[test]
fn a_list_of_metadata_blocks_takes_no_more_than_the_limit() {
    let tree = tree().build();
    let list = 8 * MIB;
    let mut image = tree.bytes.clone();
    let (start, exports) = (image.len() as u64, tree.place("exports"));
    image.extend(exports.iter().cycle().take(list));
    let used = (image.len() as u64).to_le_bytes();
    for (field, bytes) in [(EXPORT_TABLE, start.to_le_bytes()), (USED, used)] {
        image[field..field + 8].copy_from_slice(&bytes);
    }
    // A metadata block holds 1024 numbers.
    let count = (list as u32 / 8) * 1024;
    image[INODE_COUNT..INODE_COUNT + 4].copy_from_slice(&count.to_le_bytes());
    let ask = |memory: usize| {
        let limits = LIMITS.memory(memory as u64);
        let image = image.clone();
        measured("long list of blocks", move || {
            let options = OpenOptions::new().limits(limits);
            let image = Image::from_source(image, &options).unwrap();
            let inode = image.inode_by_number(1);
            inode.map(|inode| inode.map(|inode| inode.number()))
        })
    };
    let (number, peak) = ask(list);
    assert_eq!(number.unwrap(), Some(1));
    // Beside it there is a part of it as it is stored, and a cache of metadata.
    assert!(peak < list + MIB, "{peak} bytes at once");
    let (number, peak) = ask(list - 1);
    assert_eq!(
        number.unwrap_err().to_string(),
        "the export table needs 8388608, which passes the limit of 8388607"
    );
    assert!(peak < MIB, "{peak} bytes at once");
}

/// Writes `testdata/bad`: `cargo test -p brisk-image --test hostile -- --ignored regenerate`.
///
/// What it writes to `EXPECT` is what is said today: read the difference before it is kept.
#[test]
#[ignore = "writes testdata/bad"]
fn regenerate() {
    for path in files_in(&bad()).into_values() {
        fs::remove_file(path).unwrap();
    }
    let mut expect = BTreeMap::new();
    for (name, bytes) in cases() {
        let name = format!("{name}.img");
        fs::write(bad().join(&name), &bytes).unwrap();
        let known = expect.insert(name.clone(), first_fault(&name, bytes));
        assert_eq!(known, None, "{name} is there twice");
    }
    let lines = expect
        .iter()
        .map(|(name, text)| format!("{name}\t{text}\n"));
    fs::write(bad().join("EXPECT"), lines.collect::<String>()).unwrap();
}

const BLOCK: usize = 4096;
const NONE: u32 = u32::MAX;

// Where the fields of a superblock stand.
const INODE_COUNT: usize = 4;
const BLOCK_SIZE: usize = 12;
const FRAGMENT_COUNT: usize = 16;
const CODEC: usize = 20;
const BLOCK_LOG: usize = 22;
const FLAGS: usize = 24;
const ID_COUNT: usize = 26;
const MAJOR: usize = 28;
const MINOR: usize = 30;
const ROOT: usize = 32;
const USED: usize = 40;
const ID_TABLE: usize = 48;
const XATTR_TABLE: usize = 56;
const INODE_TABLE: usize = 64;
const DIRECTORY_TABLE: usize = 72;
const FRAGMENT_TABLE: usize = 80;
const EXPORT_TABLE: usize = 88;

const VALUE: &[u8] = b"twenty bytes of it..";

/// Appends numbers as SquashFS stores them.
trait Put {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self;

    fn u16(&mut self, n: u16) -> &mut Self {
        self.raw(&n.to_le_bytes())
    }

    fn u32(&mut self, n: u32) -> &mut Self {
        self.raw(&n.to_le_bytes())
    }

    fn u64(&mut self, n: u64) -> &mut Self {
        self.raw(&n.to_le_bytes())
    }
}

impl Put for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Inodes,
    Listings,
    Pairs,
}

/// The tables of an image before they are stored.
#[derive(Clone)]
struct Parts {
    codec: u16,
    /// What stands behind the superblock, header and all.
    options: Vec<u8>,
    data: Vec<u8>,
    inodes: Vec<u8>,
    /// Is stored instead of `inodes`.
    stored_inodes: Option<Vec<u8>>,
    listings: Vec<u8>,
    fragments: Vec<(u64, u32)>,
    /// Of the inodes, by number less one.
    references: Vec<u64>,
    ids: Vec<u32>,
    pairs: Vec<u8>,
    sets: Vec<(u64, u32, u32)>,
    root: usize,
    /// Where things stand in the tables.
    marks: Vec<(String, Table, usize)>,
}

/// A stored image, and where in it things stand.
#[derive(Clone)]
struct Built {
    bytes: Vec<u8>,
    at: BTreeMap<String, usize>,
}

impl Built {
    fn at(&self, mark: &str) -> usize {
        *self
            .at
            .get(mark)
            .unwrap_or_else(|| panic!("no mark {mark}"))
    }

    /// The place of `mark` as it is stored.
    fn place(&self, mark: &str) -> [u8; 8] {
        (self.at(mark) as u64).to_le_bytes()
    }

    /// The same with other bytes at `at`.
    fn with(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut image = self.bytes.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    }
}

/// Something with a name.
#[derive(Clone)]
struct Named {
    name: Vec<u8>,
    kind: u16,
    /// Where its inode stands in the decoded table.
    at: usize,
    number: u32,
}

impl Named {
    fn new(name: &str, kind: u16, at: usize, number: usize) -> Self {
        let (name, number) = (name.as_bytes().to_vec(), number as u32);
        Self {
            name,
            kind,
            at,
            number,
        }
    }

    fn called(&self, name: &str) -> Self {
        Self::new(name, self.kind, self.at, self.number as usize)
    }
}

/// A table in metadata blocks that are stored as they are, and the places of those.
fn store(table: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let (mut stored, mut places) = (Vec::new(), Vec::new());
    for block in table.chunks(8192) {
        places.push(stored.len() as u64);
        stored.u16(0x8000 | block.len() as u16).raw(block);
    }
    (stored, places)
}

/// Where decoded byte `at` is stored in such a table.
fn stored_at(at: usize) -> usize {
    at + 2 * (at / 8192 + 1)
}

/// The reference to decoded byte `at` of such a table.
fn reference(at: usize) -> u64 {
    ((at / 8192 * 8194) as u64) << 16 | (at % 8192) as u64
}

/// Entries behind one header; their inodes start in the block of the first.
fn run(entries: &[Named]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(first) = entries.first() else {
        return bytes;
    };
    bytes.u32(entries.len() as u32 - 1);
    bytes.u32((reference(first.at) >> 16) as u32);
    bytes.u32(first.number);
    for entry in entries {
        bytes.u16(reference(entry.at) as u16);
        bytes.u16(entry.number.wrapping_sub(first.number) as u16);
        bytes.u16(entry.kind);
        bytes.u16(entry.name.len() as u16 - 1).raw(&entry.name);
    }
    bytes
}

impl Parts {
    fn new() -> Self {
        Self {
            codec: 1,
            options: Vec::new(),
            data: Vec::new(),
            inodes: Vec::new(),
            stored_inodes: None,
            listings: Vec::new(),
            fragments: Vec::new(),
            references: Vec::new(),
            ids: vec![0, 1000],
            pairs: Vec::new(),
            sets: Vec::new(),
            root: 0,
            marks: Vec::new(),
        }
    }

    /// Begins an inode.
    fn inode(&mut self, name: &str, kind: u16) -> Named {
        let at = self.inodes.len();
        self.marks.push((name.to_owned(), Table::Inodes, at));
        self.references.push(reference(at));
        let number = self.references.len();
        let common = self.inodes.u16(kind).u16(0o755).u16(0).u16(1);
        common.u32(1_000_000_000).u32(number as u32);
        Named::new(name, if kind > 7 { kind - 7 } else { kind }, at, number)
    }

    /// A named pipe or a socket.
    fn ipc(&mut self, name: &str, kind: u16) -> Named {
        let inode = self.inode(name, kind);
        self.inodes.u32(1);
        if kind > 7 {
            self.inodes.u32(NONE);
        }
        inode
    }

    fn device(&mut self, name: &str, kind: u16) -> Named {
        let inode = self.inode(name, kind);
        self.inodes.u32(1).u32(0x0103);
        if kind > 7 {
            self.inodes.u32(1);
        }
        inode
    }

    /// A file without blocks of its own.
    fn small_file(&mut self, name: &str, fragment: u32, len: u32) -> Named {
        let inode = self.inode(name, 2);
        self.inodes.u32(0).u32(fragment).u32(0).u32(len);
        inode
    }

    /// A file whose blocks start at byte `start`, with their words.
    fn long_file(&mut self, name: &str, start: u64, len: u64, words: &[u32]) -> Named {
        let inode = self.inode(name, 9);
        self.inodes.u64(start).u64(len).u64(0).u32(1);
        self.inodes.u32(NONE).u32(0).u32(NONE);
        for word in words {
            self.inodes.u32(*word);
        }
        inode
    }

    /// A directory with `entries` in one run.
    fn directory(&mut self, name: &str, entries: &[Named]) -> Named {
        let (at, len) = self.listing(name, &run(entries));
        self.directory_at(name, at, len)
    }

    /// A directory whose listing is said to be `len` bytes at `at`: 32 bytes of inode.
    fn directory_at(&mut self, name: &str, at: usize, len: usize) -> Named {
        let inode = self.inode(name, 1);
        let listing = reference(at);
        self.inodes.u32((listing >> 16) as u32).u32(2);
        self.inodes.u16(len as u16 + 3).u16(listing as u16).u32(1);
        inode
    }

    /// The place and the length of a listing.
    fn listing(&mut self, name: &str, bytes: &[u8]) -> (usize, usize) {
        let at = self.listings.len();
        let mark = format!("names of {name}");
        self.marks.push((mark, Table::Listings, at));
        self.listings.raw(bytes);
        (at, bytes.len())
    }

    /// Stores `bytes` as data, and returns where.
    fn data(&mut self, bytes: &[u8]) -> u64 {
        let start = 96 + self.options.len() + self.data.len();
        self.data.raw(bytes);
        start as u64
    }

    /// Adds the root.
    fn rooted(mut self, entries: &[Named]) -> Self {
        self.root = self.directory("root", entries).at;
        self
    }

    fn build(&self) -> Built {
        let mut image = vec![0; 96];
        let mut at = BTreeMap::new();
        image.raw(&self.options);
        at.insert("data".to_owned(), image.len());
        image.raw(&self.data);
        let inode_table = image.len();
        at.insert("inodes".to_owned(), inode_table);
        match &self.stored_inodes {
            Some(stored) => image.raw(stored),
            None => image.raw(&store(&self.inodes).0),
        };
        let directory_table = image.len();
        at.insert("listings".to_owned(), directory_table);
        image.raw(&store(&self.listings).0);

        let mut table = |image: &mut Vec<u8>, name: &str, header: &[u8], entries: &[u8]| {
            let start = image.len();
            at.insert(name.to_owned(), start);
            let (stored, places) = store(entries);
            image.raw(&stored);
            let list = image.len() as u64;
            at.insert(format!("list of {name}"), image.len());
            image.raw(header);
            for place in places {
                image.u64(start as u64 + place);
            }
            list
        };
        let mut entries = Vec::new();
        for (start, word) in &self.fragments {
            entries.u64(*start).u32(*word).u32(0);
        }
        let fragment_table = table(&mut image, "fragments", &[], &entries);
        let mut entries = Vec::new();
        for reference in &self.references {
            entries.u64(*reference);
        }
        let export_table = table(&mut image, "exports", &[], &entries);
        let mut entries = Vec::new();
        for id in &self.ids {
            entries.u32(*id);
        }
        let id_table = table(&mut image, "ids", &[], &entries);
        let pairs = image.len();
        let mut xattr_table = u64::MAX;
        if !self.sets.is_empty() {
            image.raw(&store(&self.pairs).0);
            let mut entries = Vec::new();
            for (pairs, count, len) in &self.sets {
                entries.u64(*pairs).u32(*count).u32(*len);
            }
            let mut header = Vec::new();
            header.u64(pairs as u64).u32(self.sets.len() as u32).u32(0);
            xattr_table = table(&mut image, "sets", &header, &entries);
        }
        at.insert("pairs".to_owned(), pairs);
        at.insert("end".to_owned(), image.len());
        for (mark, table, place) in &self.marks {
            let table = match table {
                Table::Inodes => inode_table,
                Table::Listings => directory_table,
                Table::Pairs => pairs,
            };
            at.insert(mark.clone(), table + stored_at(*place));
        }

        let mut superblock = b"hsqs".to_vec();
        superblock.u32(self.references.len() as u32);
        superblock.u32(1_000_000_000).u32(BLOCK as u32);
        superblock.u32(self.fragments.len() as u32);
        superblock.u16(self.codec).u16(12);
        superblock.u16(if self.options.is_empty() { 0 } else { 0x400 });
        superblock.u16(self.ids.len() as u16).u16(4).u16(0);
        superblock.u64(reference(self.root)).u64(image.len() as u64);
        superblock.u64(id_table).u64(xattr_table);
        superblock
            .u64(inode_table as u64)
            .u64(directory_table as u64);
        superblock.u64(fragment_table).u64(export_table);
        image[..96].copy_from_slice(&superblock);
        Built { bytes: image, at }
    }
}

/// All fourteen types of inode, an index, sparse, compressed and raw blocks, a fragment, and
/// attributes in line and out of line; metadata is stored as it is.
fn tree() -> Parts {
    let mut parts = Parts::new();
    let squeezed = squeeze("gzip", &[b'x'; BLOCK]);
    let word = squeezed.len() as u32;
    let block = parts.data(&squeezed);
    parts.data(&[b'y'; 100]);
    let fragment = parts.data(b"hello0123456789");
    parts.fragments.push((fragment, 1 << 24 | 15));

    let fifo = parts.ipc("fifo", 6);
    let hello = parts.small_file("hello", 0, 5);
    let file = parts.inode("file", 2);
    let wire = parts.inodes.u32(block as u32).u32(0).u32(5).u32(4096 + 10);
    wire.u32(word);
    let ext_file = parts.inode("ext-file", 9);
    let wire = parts.inodes.u64(block).u64(2 * 4096 + 100).u64(4096).u32(1);
    wire.u32(NONE).u32(0).u32(0);
    wire.u32(0).u32(word).u32(1 << 24 | 100);
    let link = parts.inode("link", 3);
    parts.inodes.u32(1).u32(4).raw(b"file");
    let ext_link = parts.inode("ext-link", 10);
    parts.inodes.u32(1).u32(4).raw(b"file").u32(1);
    let entries = [
        parts.device("block", 4),
        parts.device("char", 5),
        parts.directory("dir", &[hello]),
        parts.device("ext-block", 11),
        parts.device("ext-char", 12),
        ext_directory(&mut parts, &fifo),
        parts.ipc("ext-fifo", 13),
        ext_file,
        ext_link,
        parts.ipc("ext-socket", 14),
        fifo,
        file,
        link,
        parts.ipc("socket", 7),
    ];
    for (mark, kind, name, value) in [
        ("first xattr", 0, "a", VALUE),
        ("second xattr", 0x101, "b", &reference(5).to_le_bytes()),
        ("third xattr", 2, "capability", b"abc"),
        ("fourth xattr", 0, "d", b""),
    ] {
        let at = parts.pairs.len();
        parts.marks.push((mark.to_owned(), Table::Pairs, at));
        let pairs = parts.pairs.u16(kind).u16(name.len() as u16);
        pairs.raw(name.as_bytes());
        pairs.u32(value.len() as u32).raw(value);
    }
    let fourth = parts.pairs.len() - 9;
    parts.sets = vec![(0, 3, fourth as u32), (reference(fourth), 1, 9)];
    parts.rooted(&entries)
}

/// An extended directory with four names of one inode in two runs, and an index of the second.
fn ext_directory(parts: &mut Parts, inode: &Named) -> Named {
    let first = run(&[inode.called("a0"), inode.called("a1")]);
    let second = run(&[inode.called("b0"), inode.called("b1")]);
    let (at, len) = parts.listing("ext-dir", &[&first[..], &second].concat());
    let directory = parts.inode("ext-dir", 8);
    let wire = parts.inodes.u32(2).u32(len as u32 + 3).u32(0).u32(1);
    wire.u16(1).u16(at as u16).u32(NONE);
    wire.u32(first.len() as u32).u32(0).u32(1).raw(b"b0");
    directory
}

/// `bytes` as `codec` stores them.
fn squeeze(codec: &str, bytes: &[u8]) -> Vec<u8> {
    match codec {
        // Nothing at all is no block, but each codec has one that decodes to nothing.
        "lzo" if bytes.is_empty() => b"\x11\0\0".to_vec(),
        "lz4" if bytes.is_empty() => b"\0".to_vec(),
        "gzip" => {
            let level = libdeflater::CompressionLvl::new(9).unwrap();
            let mut compressor = libdeflater::Compressor::new(level);
            let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
            let len = compressor.zlib_compress(bytes, &mut out).unwrap();
            out.truncate(len);
            out
        }
        "lzo" => lzokay_native::compress(bytes).unwrap(),
        "xz" => squeeze_xz(bytes, 1 << 16),
        "lz4" => {
            let mut out = Vec::new();
            let level = lzzzz::lz4::ACC_LEVEL_DEFAULT;
            lzzzz::lz4::compress_to_vec(bytes, &mut out, level).unwrap();
            out
        }
        "zstd" => zstd::bulk::compress(bytes, 15).unwrap(),
        _ => panic!("no codec {codec}"),
    }
}

fn squeeze_xz(bytes: &[u8], dictionary: u32) -> Vec<u8> {
    use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};
    let mut options = LzmaOptions::new_preset(6).unwrap();
    options.dict_size(dictionary);
    let mut chain = Filters::new();
    chain.lzma2(&options);
    let mut stream = Stream::new_stream_encoder(&chain, Check::Crc32).unwrap();
    let mut out = Vec::with_capacity(bytes.len() + 1000);
    let end = stream.process_vec(bytes, &mut out, Action::Finish);
    end.unwrap();
    out
}

const CODECS: [(&str, u16); 5] = [("gzip", 1), ("lzo", 3), ("xz", 4), ("lz4", 5), ("zstd", 6)];

type Case = (String, Vec<u8>);

/// All images of `testdata/bad`.
fn cases() -> Vec<Case> {
    [
        superblocks(),
        tables(),
        inodes(),
        files(),
        directories(),
        trees(),
        xattrs(),
        codecs(),
        bombs(),
        amplifications(),
        truncations(),
        programs(),
        sections(),
    ]
    .concat()
}

/// [`tree`] with one change each: the name of the case, the mark and the offset behind it, and the
/// bytes that are put there.
fn patches(list: &[(&str, &str, usize, &[u8])]) -> Vec<Case> {
    let tree = tree().build();
    let patch = |(name, mark, offset, bytes): &(&str, &str, usize, &[u8])| {
        let bytes = tree.with(tree.at(mark) + offset, bytes);
        ((*name).to_owned(), bytes)
    };
    list.iter().map(patch).collect()
}

#[rustfmt::skip] // A line for each case.
fn superblocks() -> Vec<Case> {
    let tree = tree().build();
    let (w, d, q) = (u16::to_le_bytes, u32::to_le_bytes, u64::to_le_bytes);
    let used = tree.bytes.len() as u64;
    let far = 1u64 << 60;
    let file = (tree.at("file") - tree.at("inodes") - 2) as u64;
    let list: &[(&str, usize, &[u8])] = &[
        ("magic-other", 0, b"PK\x03\x04"),
        ("magic-big-endian", 0, b"sqsh"),
        ("magic-first-byte", 0, b"H"),
        ("inode-count-0", INODE_COUNT, &d(0)),
        ("inode-count-1-more", INODE_COUNT, &d(20)),
        ("inode-count-more-blocks", INODE_COUNT, &d(1025)),
        ("inode-count-highest", INODE_COUNT, &d(NONE)),
        ("block-size-0", BLOCK_SIZE, &d(0)),
        ("block-size-no-power", BLOCK_SIZE, &d(4097)),
        ("block-size-other-power", BLOCK_SIZE, &d(8192)),
        ("block-log-0", BLOCK_LOG, &w(0)),
        ("block-log-64", BLOCK_LOG, &w(64)),
        ("block-log-highest", BLOCK_LOG, &w(0xffff)),
        ("block-of-2-kib", BLOCK_SIZE, b"\0\x08\0\0\x01\0\0\0\x01\0\x0b\0"),
        ("block-of-2-mib", BLOCK_SIZE, b"\0\0\x20\0\x01\0\0\0\x01\0\x15\0"),
        ("block-of-8-kib", BLOCK_SIZE, b"\0\x20\0\0\x01\0\0\0\x01\0\x0d\0"),
        ("fragment-count-0", FRAGMENT_COUNT, &d(0)),
        ("fragment-count-more-blocks", FRAGMENT_COUNT, &d(513)),
        ("fragment-count-highest", FRAGMENT_COUNT, &d(NONE)),
        ("codec-0", CODEC, &w(0)),
        ("codec-lzma", CODEC, &w(2)),
        ("codec-7", CODEC, &w(7)),
        ("codec-256", CODEC, &w(256)),
        ("codec-of-no-block", CODEC, &w(6)),
        ("flags-options-missing", FLAGS, &w(0x400)),
        ("flags-all-but-options", FLAGS, &w(!0x400)),
        ("id-count-0", ID_COUNT, &w(0)),
        ("id-count-1-less", ID_COUNT, &w(1)),
        ("id-count-1-more", ID_COUNT, &w(3)),
        ("id-count-highest", ID_COUNT, &w(0xffff)),
        ("version-3", MAJOR, &w(3)),
        ("version-5", MAJOR, &w(5)),
        ("version-4.1", MINOR, &w(1)),
        ("root-is-a-file", ROOT, &q(file)),
        ("root-in-an-inode", ROOT, &q(file + 4)),
        ("root-offset-8191", ROOT, &q(8191)),
        ("root-offset-8192", ROOT, &q(8192)),
        ("root-block-outside", ROOT, &q(1 << 40)),
        ("root-block-highest", ROOT, &q(!0xffff)),
        ("bytes-used-0", USED, &q(0)),
        ("bytes-used-95", USED, &q(95)),
        ("bytes-used-1-less", USED, &q(used - 1)),
        ("bytes-used-1-more", USED, &q(used + 1)),
        ("bytes-used-highest", USED, &q(u64::MAX)),
        ("id-table-none", ID_TABLE, &q(u64::MAX)),
        ("id-table-0", ID_TABLE, &q(0)),
        ("id-table-outside", ID_TABLE, &q(used)),
        ("id-table-on-listings", ID_TABLE, &tree.place("listings")),
        ("id-table-cut", ID_TABLE, &q(used - 1)),
        ("xattr-table-none", XATTR_TABLE, &q(u64::MAX)),
        ("xattr-table-outside", XATTR_TABLE, &q(used)),
        ("xattr-table-cut", XATTR_TABLE, &q(used - 1)),
        ("xattr-table-on-listings", XATTR_TABLE, &tree.place("listings")),
        ("inode-table-0", INODE_TABLE, &q(0)),
        ("inode-table-95", INODE_TABLE, &q(95)),
        ("inode-table-96", INODE_TABLE, &q(96)),
        ("inode-table-none", INODE_TABLE, &q(u64::MAX)),
        ("inode-table-on-listings", INODE_TABLE, &tree.place("listings")),
        ("inode-table-shifted", INODE_TABLE, &q(tree.at("inodes") as u64 + 1)),
        ("directory-table-0", DIRECTORY_TABLE, &q(0)),
        ("directory-table-outside", DIRECTORY_TABLE, &q(far)),
        ("directory-table-on-inodes", DIRECTORY_TABLE, &tree.place("inodes")),
        ("directory-table-in-inodes", DIRECTORY_TABLE, &tree.place("file")),
        ("directory-table-on-ids", DIRECTORY_TABLE, &tree.place("ids")),
        ("directory-table-shifted", DIRECTORY_TABLE, &q(tree.at("listings") as u64 + 1)),
        ("fragment-table-none", FRAGMENT_TABLE, &q(u64::MAX)),
        ("fragment-table-outside", FRAGMENT_TABLE, &q(used)),
        ("fragment-table-cut", FRAGMENT_TABLE, &q(used - 7)),
        ("export-table-0", EXPORT_TABLE, &q(0)),
        ("export-table-outside", EXPORT_TABLE, &q(far)),
        ("export-table-cut", EXPORT_TABLE, &q(used - 7)),
        ("export-table-none", EXPORT_TABLE, &q(u64::MAX)),
    ];
    let case = |(name, at, bytes): &(&str, usize, &[u8])| {
        (format!("superblock-{name}"), tree.with(*at, bytes))
    };
    list.iter().map(case).collect()
}

#[rustfmt::skip] // A line for each case.
fn tables() -> Vec<Case> {
    let tree = tree().build();
    let q = u64::to_le_bytes;
    let mut cases = Vec::new();
    for table in [
        "inodes",
        "listings",
        "fragments",
        "exports",
        "ids",
        "pairs",
        "sets",
    ] {
        for (fault, header) in [
            ("empty", [0, 0x80]),
            ("empty-and-compressed", [0, 0]),
            ("of-8193", [1, 0xa0]),
            ("past-the-end", [0, 0xa0]),
            ("of-1", [1, 0x80]),
            ("compressed", [40, 0]),
        ] {
            let image = tree.with(tree.at(table), &header);
            cases.push((format!("metadata-of-{table}-{fault}"), image));
        }
    }
    cases.extend(patches(&[
        ("list-of-ids-on-itself", "list of ids", 0, &tree.place("list of ids")),
        ("list-of-ids-forward", "list of ids", 0, &tree.place("pairs")),
        ("list-of-ids-highest", "list of ids", 0, &q(u64::MAX)),
        ("list-of-ids-on-superblock", "list of ids", 0, &q(0)),
        ("list-of-ids-on-inodes", "list of ids", 0, &tree.place("inodes")),
        ("list-of-ids-in-their-block", "list of ids", 0, &q(tree.at("ids") as u64 + 1)),
        ("list-of-fragments-forward", "list of fragments", 0, &tree.place("exports")),
        ("list-of-fragments-on-inodes", "list of fragments", 0, &tree.place("inodes")),
        ("list-of-fragments-2-63", "list of fragments", 0, &q(1 << 63)),
        ("list-of-exports-on-itself", "list of exports", 0, &tree.place("list of exports")),
        ("list-of-exports-forward", "list of exports", 0, &tree.place("ids")),
        ("list-of-exports-on-inodes", "list of exports", 0, &tree.place("inodes")),
        ("list-of-sets-outside", "list of sets", 16, &tree.place("end")),
        ("list-of-sets-on-pairs", "list of sets", 16, &tree.place("pairs")),
        ("list-of-sets-on-its-header", "list of sets", 16, &tree.place("list of sets")),
        ("export-offset-8192", "exports", 2, &q(8192)),
        ("export-block-outside", "exports", 2, &q(1 << 40)),
        ("export-in-an-inode", "exports", 2, &q(3)),
        ("export-of-another", "exports", 2, &q(20)),
    ]));
    cases
}

#[rustfmt::skip] // A line for each case.
fn inodes() -> Vec<Case> {
    let (w, d) = (u16::to_le_bytes, u32::to_le_bytes);
    let mut cases = patches(&[
        ("inode-type-0", "file", 0, &w(0)),
        ("inode-type-15", "file", 0, &w(15)),
        ("inode-type-highest", "file", 0, &w(0xffff)),
        ("inode-type-not-of-entry", "file", 0, &w(6)),
        ("inode-type-extended", "file", 0, &w(9)),
        ("inode-type-0-of-root", "root", 0, &w(0)),
        ("inode-mode-with-type", "file", 2, &w(0o100_644)),
        ("inode-user-2", "file", 4, &w(2)),
        ("inode-user-highest", "file", 4, &w(0xffff)),
        ("inode-group-2", "file", 6, &w(2)),
        ("inode-number-0", "file", 12, &d(0)),
        ("inode-number-of-another", "file", 12, &d(1)),
        ("inode-links-0", "fifo", 16, &d(0)),
        ("symlink-length-0", "link", 20, &d(0)),
        ("symlink-length-65535", "link", 20, &d(65_535)),
        ("symlink-length-65536", "link", 20, &d(65_536)),
        ("symlink-length-2-31", "link", 20, &d(1 << 31)),
        ("symlink-length-highest", "ext-link", 20, &d(NONE)),
        ("symlink-target-nul", "link", 25, b"\0"),
        ("symlink-target-newline", "link", 25, b"\n"),
        ("device-number-highest", "block", 20, &d(NONE)),
    ]);
    // The root comes first, and the table ends in the target.
    let mut parts = Parts::new().rooted(&[Named::new("link", 3, 32, 2)]);
    parts.inode("link", 3);
    parts.inodes.u32(1).u32(100).raw(b"short");
    cases.push(("symlink-past-its-table".into(), parts.build().bytes));
    cases
}

#[rustfmt::skip] // A line for each case.
fn files() -> Vec<Case> {
    const RAW: u32 = 1 << 24;
    let (d, q) = (u32::to_le_bytes, u64::to_le_bytes);
    let mut cases = patches(&[
        ("file-length-2-62", "ext-file", 24, &q(1 << 62)),
        ("file-length-2-63-less-1", "ext-file", 24, &q((1 << 63) - 1)),
        ("file-length-2-63", "ext-file", 24, &q(1 << 63)),
        ("file-length-highest", "ext-file", 24, &q(u64::MAX)),
        ("file-length-4-blocks", "ext-file", 24, &q(4 * 4096)),
        ("file-length-1-more", "ext-file", 24, &q(2 * 4096 + 101)),
        ("file-length-1-less", "ext-file", 24, &q(2 * 4096 + 99)),
        ("file-length-0", "ext-file", 24, &q(0)),
        ("file-length-2-32-less-1", "file", 28, &d(NONE)),
        ("file-blocks-highest", "ext-file", 16, &q(u64::MAX)),
        ("file-blocks-outside", "ext-file", 16, &q(1 << 40)),
        ("file-blocks-on-superblock", "ext-file", 16, &q(0)),
        ("file-blocks-shifted", "file", 16, &d(97)),
        ("file-block-of-4097", "file", 32, &d(4097)),
        ("file-block-highest", "file", 32, &d(NONE)),
        ("file-block-past-the-end", "file", 32, &d(4096)),
        ("file-block-raw-and-short", "file", 32, &d(RAW | 15)),
        ("file-block-raw-and-empty", "file", 32, &d(RAW)),
        ("file-block-sparse", "file", 32, &d(0)),
        ("file-block-cut", "file", 32, &d(5)),
        ("file-last-block-1-more", "ext-file", 64, &d(RAW | 101)),
        ("file-last-block-sparse", "ext-file", 64, &d(0)),
        ("file-sparse-bytes-highest", "ext-file", 32, &q(u64::MAX)),
        ("file-fragment-1", "file", 20, &d(1)),
        ("file-fragment-highest", "file", 20, &d(NONE - 1)),
        ("file-fragment-none", "file", 20, &d(NONE)),
        ("file-fragment-of-full-blocks", "file", 28, &d(4096)),
        ("file-fragment-offset-6", "file", 24, &d(6)),
        ("file-fragment-offset-highest", "file", 24, &d(NONE)),
        ("file-all-in-fragment-longer", "hello", 28, &d(16)),
        ("fragment-start-highest", "fragments", 2, &q(u64::MAX)),
        ("fragment-start-on-superblock", "fragments", 2, &q(0)),
        ("fragment-length-0", "fragments", 10, &d(0)),
        ("fragment-length-4097", "fragments", 10, &d(4097)),
        ("fragment-length-1-less", "fragments", 10, &d(RAW | 14)),
        ("fragment-not-compressed", "fragments", 10, &d(15)),
        ("fragment-unused-highest", "fragments", 14, &d(NONE)),
    ]);
    // A block takes 5 bytes of the 16 MiB that are allowed here.
    for (name, blocks) in [("of-2-19-blocks", 1 << 19), ("past-the-limit", (16 << 20) / 5)] {
        cases.push((format!("file-sparse-{name}"), sparse_file(blocks + 1)));
    }
    let mut parts = Parts::new();
    let file = parts.long_file("file", 96, 1 << 40, &[]);
    let image = parts.rooted(&[file]).build().bytes;
    cases.push(("file-of-2-40-without-words".into(), image));
    cases
}

/// An image with a file of so many blocks of zeros. Two thousand of them take twenty bytes of the
/// image.
fn sparse_file(blocks: usize) -> Vec<u8> {
    let mut parts = Parts::new().rooted(&[Named::new("zeros", 2, 32, 2)]);
    let words = vec![0; blocks];
    parts.long_file("zeros", 96, (blocks * BLOCK) as u64, &words);
    let mut stored = Vec::new();
    for block in parts.inodes.chunks(8192) {
        let block = squeeze("zstd", block);
        stored.u16(block.len() as u16).raw(&block);
    }
    parts.codec = 6;
    parts.stored_inodes = Some(stored);
    parts.build().bytes
}

#[rustfmt::skip] // A line for each case.
fn directories() -> Vec<Case> {
    let (w, d) = (u16::to_le_bytes, u32::to_le_bytes);
    let dir = "names of dir";
    // A header, an entry, a name of five bytes, and three that are not stored.
    let len = 12 + 8 + 5 + 3;
    patches(&[
        ("listing-count-256", dir, 0, &d(256)),
        ("listing-count-highest", dir, 0, &d(NONE)),
        ("listing-count-1-more", dir, 0, &d(1)),
        ("listing-count-1-less", "names of root", 0, &d(12)),
        ("listing-inode-block-highest", dir, 4, &d(NONE)),
        ("listing-inode-block-behind", dir, 4, &d(8194)),
        ("listing-inode-block-in-block", dir, 4, &d(1)),
        ("listing-number-highest", dir, 8, &d(NONE)),
        ("entry-offset-8192", dir, 12, &w(8192)),
        ("entry-offset-8191", dir, 12, &w(8191)),
        ("entry-in-an-inode", dir, 12, &w(1)),
        ("entry-type-0", dir, 16, &w(0)),
        ("entry-type-8", dir, 16, &w(8)),
        ("entry-type-extended", dir, 16, &w(9)),
        ("entry-type-directory", dir, 16, &w(1)),
        ("entry-type-symlink", dir, 16, &w(3)),
        ("entry-name-of-256", dir, 18, &w(255)),
        ("entry-name-of-257", dir, 18, &w(256)),
        ("entry-name-of-65536", dir, 18, &w(65_535)),
        ("entry-name-1-longer", dir, 18, &w(5)),
        ("entry-name-1-shorter", dir, 18, &w(3)),
        ("entry-name-slash-in-it", dir, 21, b"/"),
        ("entry-name-slash-before-it", dir, 20, b"/"),
        ("entry-name-slash-behind-it", dir, 24, b"/"),
        ("entry-name-nul", dir, 24, b"\0"),
        ("entry-name-controls", dir, 20, b"\x1b[2J"),
        ("entry-name-not-utf-8", dir, 20, b"\xff\xfe"),
        ("directory-length-0", "dir", 24, &w(0)),
        ("directory-length-3", "dir", 24, &w(3)),
        ("directory-length-4", "dir", 24, &w(4)),
        ("directory-length-1-more", "dir", 24, &w(len + 1)),
        ("directory-length-1-less", "dir", 24, &w(len - 1)),
        ("directory-length-of-header", "dir", 24, &w(12 + 3)),
        ("directory-length-highest", "dir", 24, &w(0xffff)),
        ("directory-extended-length-highest", "ext-dir", 20, &d(NONE)),
        ("directory-block-highest", "dir", 16, &d(NONE)),
        ("directory-block-behind", "dir", 16, &d(8194)),
        ("directory-offset-8191", "dir", 26, &w(8191)),
        ("directory-offset-8192", "dir", 26, &w(8192)),
        ("directory-offset-in-header", "dir", 26, &w(1)),
        ("directory-links-0", "dir", 20, &d(0)),
        ("directory-parent-highest", "dir", 28, &d(NONE)),
        ("index-count-2", "ext-dir", 32, &w(2)),
        ("index-count-highest", "ext-dir", 32, &w(0xffff)),
        ("index-position-0", "ext-dir", 40, &d(0)),
        ("index-position-in-entry", "ext-dir", 40, &d(20)),
        ("index-position-behind", "ext-dir", 40, &d(64)),
        ("index-position-highest", "ext-dir", 40, &d(NONE)),
        ("index-block-in-block", "ext-dir", 44, &d(7)),
        ("index-block-highest", "ext-dir", 44, &d(NONE)),
        ("index-name-of-257", "ext-dir", 48, &d(256)),
        ("index-name-highest", "ext-dir", 48, &d(NONE)),
        ("index-name-too-low", "ext-dir", 52, b"a0"),
        ("index-name-too-high", "ext-dir", 52, b"b1"),
    ])
}

/// Trees that are none, and names that are none.
fn trees() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, parts: Parts| {
        cases.push((name.to_owned(), parts.build().bytes));
    };
    for (name, runs) in [
        ("entry-name-dot", &[&["."][..]][..]),
        ("entry-name-dot-dot", &[&[".."]]),
        ("entry-name-three-dots", &[&["..."]]),
        ("entry-name-only-slash", &[&["/"]]),
        ("entry-name-only-nul", &[&["\0"]]),
        ("entry-names-twice", &[&["a", "a"]]),
        ("entry-names-not-sorted", &[&["b", "a"]]),
        ("entry-names-not-sorted-between-runs", &[&["b"], &["a"]]),
        ("entry-names-twice-between-runs", &[&["a"], &["a"]]),
    ] {
        let mut parts = Parts::new();
        let fifo = parts.ipc("fifo", 6);
        let runs = runs.iter().map(|names| {
            let names = names.iter().map(|name| fifo.called(name));
            run(&names.collect::<Vec<_>>())
        });
        let listing = runs.collect::<Vec<_>>().concat();
        let (at, len) = parts.listing("root", &listing);
        parts.root = parts.directory_at("root", at, len).at;
        add(name, parts);
    }

    // An inode of a directory takes 32 bytes, and the root comes first.
    let root = Named::new("root", 1, 0, 1);
    let below = |i: usize| Named::new(&format!("{i:03}"), 1, 32 * (i + 1), i + 2);
    add(
        "loop-of-the-root",
        Parts::new().rooted(&[root.called("again")]),
    );
    let mut parts = Parts::new().rooted(&[below(0)]);
    parts.directory("below", std::slice::from_ref(&root));
    add("loop-to-the-parent", parts);
    let mut parts = Parts::new().rooted(&[below(0)]);
    parts.directory("below", &[below(0)]);
    add("loop-of-a-directory", parts);
    let mut parts = Parts::new().rooted(&[below(0).called("a"), below(0).called("b")]);
    parts.directory("below", &[]);
    add("directory-with-two-names", parts);

    // Each of them lists them all.
    let all: Vec<_> = (0..100).map(below).collect();
    let mut parts = Parts::new().rooted(&all);
    let len = parts.listings.len();
    for _ in &all {
        parts.directory_at("below", 0, len);
    }
    add("directories-that-list-each-other", parts);

    // It would take long to list what takes little to store.
    let all: Vec<_> = (0..250).map(below).collect();
    let mut parts = Parts::new().rooted(&all);
    let fifo = Named::new("", 6, 32 * 251, 252);
    let fifos: Vec<_> = (0..200).map(|i| fifo.called(&format!("{i:03}"))).collect();
    let (at, len) = parts.listing("below", &run(&fifos));
    for _ in &all {
        parts.directory_at("below", at, len);
    }
    parts.ipc("fifo", 6);
    add("directories-that-share-a-listing", parts);

    for (name, below) in [("of-the-limit", 15), ("past-the-limit", 16)] {
        let mut parts = Parts::new();
        let mut entries = Vec::new();
        for _ in 0..below {
            entries = vec![parts.directory("d", &entries)];
        }
        add(&format!("depth-{name}"), parts.rooted(&entries));
    }
    cases
}

#[rustfmt::skip] // A line for each case.
fn xattrs() -> Vec<Case> {
    let tree = tree().build();
    let (w, d, q) = (u16::to_le_bytes, u32::to_le_bytes, u64::to_le_bytes);
    let header = "list of sets";
    let mut cases = patches(&[
        ("xattr-type-3", "first xattr", 0, &w(3)),
        ("xattr-type-with-bit-9", "first xattr", 0, &w(0x200)),
        ("xattr-type-highest", "first xattr", 0, &w(0xffff)),
        ("xattr-name-of-0", "fourth xattr", 2, &w(0)),
        ("xattr-name-of-65535", "first xattr", 2, &w(65_535)),
        ("xattr-name-nul", "first xattr", 4, b"\0"),
        ("xattr-value-of-65536", "first xattr", 5, &d(65_536)),
        ("xattr-value-of-65537", "first xattr", 5, &d(65_537)),
        ("xattr-value-of-2-31", "first xattr", 5, &d(1 << 31)),
        ("xattr-value-highest", "first xattr", 5, &d(NONE)),
        ("xattr-reference-of-9", "second xattr", 5, &d(9)),
        ("xattr-reference-outside", "second xattr", 9, &q(1 << 40)),
        ("xattr-reference-offset-8191", "second xattr", 9, &q(8191)),
        ("xattr-reference-offset-8192", "second xattr", 9, &q(8192)),
        ("xattr-reference-to-itself", "second xattr", 9, &q(34)),
        ("xattr-reference-to-a-name", "second xattr", 9, &q(4)),
        ("xattr-set-count-0", "sets", 10, &d(0)),
        ("xattr-set-count-1-more", "sets", 26, &d(2)),
        ("xattr-set-count-highest", "sets", 10, &d(NONE)),
        ("xattr-set-length-highest", "sets", 14, &d(NONE)),
        ("xattr-set-outside", "sets", 2, &q(1 << 40)),
        ("xattr-set-offset-8192", "sets", 2, &q(8192)),
        ("xattr-set-in-a-pair", "sets", 2, &q(2)),
        ("xattr-index-2", "ext-file", 52, &d(2)),
        ("xattr-index-2-of-link", "ext-link", 28, &d(2)),
        ("xattr-index-highest", "ext-char", 24, &d(NONE - 1)),
        ("xattr-count-0", header, 8, &d(0)),
        ("xattr-count-more-blocks", header, 8, &d(513)),
        ("xattr-count-highest", header, 8, &d(NONE)),
        ("xattr-pairs-0", header, 0, &q(0)),
        ("xattr-pairs-highest", header, 0, &q(u64::MAX)),
        ("xattr-pairs-on-header", header, 0, &tree.place(header)),
        ("xattr-pairs-on-inodes", header, 0, &tree.place("inodes")),
    ]);
    // Five hundred names of nothing but a prefix, and what comes behind them.
    let mut parts = Parts::new();
    let file = parts.inode("file", 9);
    let wire = parts.inodes.u64(96).u64(0).u64(0).u32(1);
    wire.u32(NONE).u32(0).u32(0);
    parts.pairs.u16(0).u16(0).u32(100).raw(&[b'v'; 100]);
    for _ in 0..500 {
        parts.pairs.u16(0x100).u16(0).u32(8).u64(reference(4));
    }
    parts.sets = vec![(0, NONE, 0)];
    let mut parts = parts.rooted(&[file]);
    let image = parts.build().bytes;
    cases.push(("xattr-set-past-its-table".into(), image));
    // Keys and values may stand anywhere, so behind the inodes, where they are compressed.
    let mut table = parts.inodes.clone();
    table.resize(8192, 0);
    while table.len() < 20 * 8192 {
        table.u16(0).u16(0x1000).raw(&[b'n'; 0x1000]).u32(0);
    }
    let stored = parts.stored_inodes.insert(Vec::new());
    for block in table.chunks(8192) {
        let block = squeeze("gzip", block);
        stored.u16(block.len() as u16).raw(&block);
    }
    let built = parts.build();
    let second = built.at("inodes") + 2 + usize::from(built.bytes[built.at("inodes")]);
    let second = (second as u64).to_le_bytes();
    let image = built.with(built.at("list of sets"), &second);
    cases.push(("xattr-set-with-too-many-names".into(), image));
    cases
}

#[rustfmt::skip] // A line for each case.
fn codecs() -> Vec<Case> {
    let words = |list: &[u32]| {
        let mut bytes = Vec::new();
        for word in list {
            bytes.u32(*word);
        }
        bytes
    };
    let gzip = |level: u32, window: u16, strategies: u16| {
        let mut bytes = words(&[level]);
        bytes.u16(window).u16(strategies);
        bytes
    };
    let build = |codec: &str, header: u16, bytes: &[u8]| {
        let mut parts = Parts::new();
        let codec = CODECS.iter().find(|(name, _)| *name == codec);
        parts.codec = codec.expect("it is a codec").1;
        parts.options.u16(header).raw(bytes);
        parts.rooted(&[]).build().bytes
    };
    let list = [
        ("gzip", "valid", gzip(9, 15, 31)),
        ("gzip", "level-0", gzip(0, 15, 1)),
        ("gzip", "level-10", gzip(10, 15, 1)),
        ("gzip", "window-7", gzip(9, 7, 1)),
        ("gzip", "window-16", gzip(9, 16, 1)),
        ("gzip", "strategies-32", gzip(9, 15, 32)),
        ("gzip", "cut", gzip(9, 15, 1)[..7].to_vec()),
        ("lzo", "valid", words(&[4, 8])),
        ("lzo", "algorithm-5", words(&[5, 0])),
        ("lzo", "level-10", words(&[4, 10])),
        ("lzo", "level-without-use", words(&[1, 1])),
        ("lzo", "cut", words(&[4])),
        ("xz", "valid", words(&[8192, 255])),
        ("xz", "dictionary-0", words(&[0, 0])),
        ("xz", "dictionary-8193", words(&[8193, 0])),
        ("xz", "dictionary-2-31", words(&[1 << 31, 0])),
        ("xz", "filters-256", words(&[8192, 256])),
        ("xz", "cut", words(&[8192])),
        ("lz4", "valid", words(&[1, 1])),
        ("lz4", "version-2", words(&[2, 0])),
        ("lz4", "flags-4", words(&[1, 4])),
        ("lz4", "cut", words(&[1])),
        ("zstd", "valid", words(&[15])),
        ("zstd", "level-0", words(&[0])),
        ("zstd", "level-23", words(&[23])),
        ("zstd", "level-lowest", words(&[1 << 31])),
        ("zstd", "cut", vec![15]),
    ];
    let mut cases: Vec<Case> = list
        .iter()
        .map(|(codec, name, bytes)| {
            let image = build(codec, 0x8000 | bytes.len() as u16, bytes);
            (format!("options-{codec}-{name}"), image)
        })
        .collect();
    for (name, header) in [
        ("empty", 0x8000),
        ("of-8193", 0xa001),
        ("past-the-end", 0xa000),
        ("compressed", 8),
    ] {
        let image = build("gzip", header, &gzip(9, 15, 1));
        cases.push((format!("options-header-{name}"), image));
    }
    cases
}

/// Blocks that decode to more or to less than they may, or not at all.
fn bombs() -> Vec<Case> {
    let mut cases = Vec::new();
    for (codec, id) in CODECS {
        let mut empty = Parts::new();
        empty.codec = id;
        let mut add = |name: &str, parts: Parts| {
            cases.push((format!("{codec}-{name}"), parts.build().bytes));
        };

        // The table holds the root, and then as many zeros as there is room for.
        let plain = empty.clone().rooted(&[]);
        let metadata = |stored: &[u8]| {
            let mut parts = plain.clone();
            let table = parts.stored_inodes.insert(Vec::new());
            table.u16(stored.len() as u16).raw(stored);
            parts
        };
        let squeezed = |len: usize| {
            let mut table = plain.inodes.clone();
            table.resize(len, 0);
            squeeze(codec, &table)
        };
        let full = squeezed(8192);
        add("metadata-of-8192", metadata(&full));
        add("metadata-of-8193", metadata(&squeezed(8193)));
        add("metadata-of-1-mib", metadata(&squeezed(MIB)));
        add("metadata-of-0", metadata(&squeezed(0)));
        add("metadata-of-20", metadata(&squeezed(20)));
        add("metadata-cut", metadata(&full[..full.len() - 1]));
        add("metadata-longer", metadata(&[&full[..], &[0]].concat()));
        add("metadata-twice", metadata(&[&full[..], &full].concat()));
        add("metadata-of-noise", metadata(&[0xa5; 40]));

        let block = |content: usize, len: u64| {
            let mut parts = empty.clone();
            let stored = squeeze(codec, &vec![b'x'; content]);
            let start = parts.data(&stored);
            let file = parts.long_file("file", start, len, &[stored.len() as u32]);
            parts.rooted(&[file])
        };
        add("block-of-4096", block(4096, 4096));
        add("block-of-4097", block(4097, 4096));
        add("block-of-512-kib", block(MIB / 2, 4096));
        add("block-of-4095", block(4095, 4096));
        add("block-of-0", block(0, 4096));
        add("block-longer-than-the-file", block(4096, 1000));
        let fragment = |content: usize| {
            let mut parts = empty.clone();
            let stored = squeeze(codec, &vec![b'x'; content]);
            let start = parts.data(&stored);
            parts.fragments.push((start, stored.len() as u32));
            let file = parts.small_file("file", 0, 10);
            parts.rooted(&[file])
        };
        add("fragment-of-4097", fragment(4097));
        add("fragment-of-9", fragment(9));
        add("fragment-of-0", fragment(0));
    }
    let mut parts = Parts::new();
    parts.codec = 4;
    let stored = squeeze_xz(&[b'x'; BLOCK], 64 << 20);
    let start = parts.data(&stored);
    let file = parts.long_file("file", start, 4096, &[stored.len() as u32]);
    let image = parts.rooted(&[file]).build().bytes;
    cases.push(("xz-dictionary-of-64-mib".into(), image));
    cases
}

impl Parts {
    /// The same with inodes that are compressed. They take one metadata block, so that all references to
    /// them stay right, or what is in the blocks after it is referred to by none.
    fn squeezed(mut self) -> Self {
        let mut stored = Vec::new();
        for block in self.inodes.chunks(8192) {
            let block = squeeze("zstd", block);
            stored.u16(block.len() as u16).raw(&block);
        }
        self.codec = 6;
        self.stored_inodes = Some(stored);
        self
    }

    /// A named pipe with xattr set 0.
    fn pipe_with_xattrs(&mut self, name: &str) -> Named {
        let inode = self.inode(name, 13);
        self.inodes.u32(1).u32(0);
        inode
    }

    /// A set of `count` attributes, all with one value of `len` bytes.
    fn shared_value(&mut self, count: usize, len: u32) {
        self.pairs.u16(0).u16(1).raw(b"v").u32(len);
        self.pairs.extend(std::iter::repeat_n(0, len as usize));
        let first = self.pairs.len();
        for i in 0..count {
            let name = format!("{i:04}");
            let pairs = self.pairs.u16(0x100).u16(4).raw(name.as_bytes());
            // The value stands behind the two numbers and the name of its attribute.
            pairs.u32(8).u64(reference(5));
        }
        self.sets.push((reference(first), count as u32, 0));
    }
}

/// The image in blocks of 1 MiB.
fn in_large_blocks(image: &Built) -> Vec<u8> {
    let mut bytes = image.with(BLOCK_SIZE, &(1u32 << 20).to_le_bytes());
    bytes[BLOCK_LOG..BLOCK_LOG + 2].copy_from_slice(&20u16.to_le_bytes());
    bytes
}

/// Images of some KiB of which a careless reader holds, lists, decodes or writes gigabytes. The test
/// `bounds` of brisk runs every verb on each of them.
fn amplifications() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, image: Vec<u8>| cases.push((format!("bomb-{name}"), image));
    // An inode of a directory takes 32 bytes, and the root comes first.
    let directories = |count: usize| -> (Vec<Named>, Named) {
        let below = |i: usize| Named::new(&format!("{i:03}"), 1, 32 * (i + 1), i + 2);
        let pipe = Named::new("", 6, 32 * (count + 1), count + 2);
        ((0..count).map(below).collect(), pipe)
    };
    let names = |pipe: &Named, from: usize, to: usize| {
        let names = (from..to).map(|i| pipe.called(&format!("{i:04x}")));
        run(&names.collect::<Vec<_>>())
    };

    let (all, pipe) = directories(240);
    let mut parts = Parts::new().rooted(&all);
    let runs: Vec<_> = (0..10)
        .map(|i| names(&pipe, 200 * i, 200 * (i + 1)))
        .collect();
    let (at, len) = parts.listing("below", &runs.concat());
    for _ in &all {
        parts.directory_at("below", at, len);
    }
    parts.ipc("pipe", 6);
    add("directories-of-one-listing", parts.squeezed().build().bytes);

    // Each has its own names and those of all after it.
    let (all, pipe) = directories(180);
    let mut parts = Parts::new().rooted(&all);
    let own = |i: usize| names(&pipe, 20 * i, 20 * (i + 1));
    let starts: Vec<_> = (0..all.len())
        .map(|i| parts.listing("below", &own(i)).0)
        .collect();
    let end = parts.listings.len();
    for at in starts {
        parts.directory_at("below", at, end - at);
    }
    parts.ipc("pipe", 6);
    add(
        "directories-in-each-others-listings",
        parts.squeezed().build().bytes,
    );

    // Four thousand names below a path of 25,000 bytes.
    let mut parts = Parts::new();
    let pipe = parts.ipc("pipe", 6);
    let runs: Vec<_> = (0..15)
        .map(|i| names(&pipe, 200 * i, 200 * (i + 1)))
        .collect();
    let (at, len) = parts.listing("deepest", &runs.concat());
    let mut entries = vec![parts.directory_at("deepest", at, len)];
    for _ in 0..100 {
        entries = vec![parts.directory("d", &entries).called(&"d".repeat(250))];
    }
    add("long-paths", parts.rooted(&entries).build().bytes);

    // The inodes of files are in each other's lists of blocks.
    let mut parts = Parts::new();
    parts.fragments.push((96, 1 << 24 | 1));
    parts.data(b"x");
    let mut files = Vec::new();
    for i in 0..200 {
        let at = parts.inodes.len();
        parts.references.push(reference(at));
        files.push(Named::new(&format!("{i:03}"), 2, at, i + 1));
        // Every word of it is the length of a block, too.
        let inode = parts
            .inodes
            .u16(2)
            .u16(0)
            .u16(0)
            .u16(0)
            .u32(5)
            .u32(i as u32 + 1);
        inode.u32(96).u32(0).u32(0).u32(1 << 24);
    }
    let mut parts = parts.rooted(&files);
    parts.inodes.resize(32 << 10, 0);
    add("block-lists-in-each-other", parts.squeezed().build().bytes);

    // A TiB of zeros.
    let mut parts = Parts::new().rooted(&[Named::new("zeros", 2, 32, 2)]);
    parts.long_file("zeros", 96, 1 << 40, &vec![0; 1 << 20]);
    add(
        "sparse-file-of-1-tib",
        in_large_blocks(&parts.squeezed().build()),
    );

    // 24 TiB of zeros: a list of blocks that would take 120 MiB.
    let mut parts = Parts::new().rooted(&[Named::new("zeros", 2, 32, 2)]);
    parts.long_file("zeros", 96, 24 << 40, &vec![0; 24 << 20]);
    add(
        "sparse-file-of-24-tib",
        in_large_blocks(&parts.squeezed().build()),
    );

    // 45 files of the same 32 blocks: as a writer stores what is there several times.
    let mut parts = Parts::new();
    let block = squeeze("zstd", &vec![b'x'; 1 << 20]);
    let start = parts.data(&block.repeat(32));
    let words = [block.len() as u32; 32];
    let mut files = Vec::new();
    for i in 0..45 {
        let file = parts.inode(&format!("{i:02}"), 2);
        let wire = parts
            .inodes
            .u32(start as u32)
            .u32(NONE)
            .u32(0)
            .u32(32 << 20);
        words.iter().for_each(|word| {
            wire.u32(*word);
        });
        files.push(file);
    }
    let parts = parts.rooted(&files).squeezed();
    add("files-of-the-same-blocks", in_large_blocks(&parts.build()));

    // 400 attributes of 12,000 bytes each.
    let mut parts = Parts::new();
    parts.shared_value(400, 12_000);
    let pipe = parts.pipe_with_xattrs("pipe");
    add("xattrs-of-one-value", parts.rooted(&[pipe]).build().bytes);
    let mut parts = Parts::new();
    parts.shared_value(300, 12_000);
    let pipes: Vec<_> = (0..200)
        .map(|i| parts.pipe_with_xattrs(&format!("{i:03}")))
        .collect();
    add("xattrs-of-many-inodes", parts.rooted(&pipes).build().bytes);

    // The list of the fragment table has its only block forty times.
    let tree = tree().build();
    let mut image = tree.bytes.clone();
    let (start, block) = (image.len() as u64, tree.place("fragments"));
    image.extend(block.iter().cycle().take(40 * 8));
    image.resize(30_000, 0);
    let used = image.len() as u64;
    for (field, word) in [(USED, used), (FRAGMENT_TABLE, start)] {
        image[field..field + 8].copy_from_slice(&word.to_le_bytes());
    }
    for (name, count) in [("listed-again", 40 * 512), ("2-32", u32::MAX)] {
        let mut image = image.clone();
        image[FRAGMENT_COUNT..FRAGMENT_COUNT + 4].copy_from_slice(&count.to_le_bytes());
        add(&format!("fragments-{name}"), image);
    }

    let mut parts = Parts::new();
    parts.fragments = (0..2000).map(|i| (96 + i, 5)).collect();
    add("shared-blocks-of-nothing", parts.rooted(&[]).build().bytes);

    for len in [4095, 4096] {
        let mut parts = Parts::new();
        let link = parts.inode("link", 3);
        parts.inodes.u32(1).u32(len).raw(&vec![b'a'; len as usize]);
        add(
            &format!("symlink-of-{len}"),
            parts.rooted(&[link]).build().bytes,
        );
    }
    cases
}

/// Cut at the start of each table: as it is, and with a length that says so.
fn truncations() -> Vec<Case> {
    let tree = tree().build();
    let mut cases = vec![
        ("cut-to-0".to_owned(), Vec::new()),
        ("cut-in-magic".to_owned(), b"hsq".to_vec()),
        ("cut-in-superblock".to_owned(), tree.bytes[..95].to_vec()),
    ];
    for mark in [
        "data",
        "inodes",
        "listings",
        "fragments",
        "list of fragments",
        "exports",
        "list of exports",
        "ids",
        "list of ids",
        "pairs",
        "sets",
        "list of sets",
    ] {
        let name = mark.replace(' ', "-");
        let at = tree.at(mark);
        cases.push((format!("cut-at-{name}"), tree.bytes[..at].to_vec()));
        let told = tree.with(USED, &tree.place(mark));
        cases.push((format!("cut-at-{name}-as-told"), told[..at].to_vec()));
    }
    cases
}

/// Images behind programs, as in an AppImage.
fn programs() -> Vec<Case> {
    let wide = |shoff: u64, shentsize: u16, shnum: u16| {
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(0x28, 0);
        elf.u64(shoff);
        elf.resize(0x3a, 0);
        elf.u16(shentsize).u16(shnum).u16(0);
        elf
    };
    let narrow = |shoff: u32, shentsize: u16, shnum: u16| {
        let mut elf = b"\x7fELF\x01\x01".to_vec();
        elf.resize(0x20, 0);
        elf.u32(shoff);
        elf.resize(0x2e, 0);
        elf.u16(shentsize).u16(shnum);
        elf.resize(64, 0);
        elf
    };
    let section = |offset: u64, size: u64| {
        let mut bytes = wide(64, 64, 1);
        bytes.resize(64 + 0x18, 0);
        bytes.u64(offset).u64(size);
        bytes.resize(128, 0);
        bytes
    };
    let patched = |mut elf: Vec<u8>, at: usize, byte: u8| {
        elf[at] = byte;
        elf
    };
    let image = tree().build().bytes;
    let end = 64 + image.len() as u64;
    let list = [
        ("valid", wide(64, 64, 0)),
        ("valid-32-bit", narrow(64, 40, 0)),
        ("valid-section", section(100, 28)),
        ("class-3", patched(wide(64, 64, 0), 4, 3)),
        ("big-endian", patched(wide(64, 64, 0), 5, 2)),
        ("headers-highest", wide(u64::MAX, 0xffff, 0xffff)),
        ("headers-highest-32-bit", narrow(NONE, 0xffff, 0xffff)),
        ("headers-at-0", wide(0, 64, 1)),
        ("headers-many", wide(64, 64, 0xffff)),
        ("headers-small", wide(64, 0, 0xffff)),
        ("headers-outside", wide(1 << 40, 64, 3)),
        ("headers-at-the-end", wide(end - 3, 64, 0)),
        ("section-past-2-64", section(u64::MAX, 2)),
        ("section-outside", section(1 << 40, 2)),
        ("section-into-the-image", section(100, 29)),
    ];
    let mut cases: Vec<Case> = list
        .into_iter()
        .map(|(name, elf)| (format!("elf-{name}"), [elf, image.clone()].concat()))
        .collect();
    cases.push(("elf-without-image".into(), wide(64, 64, 0)));
    cases.push(("elf-cut".into(), wide(64, 64, 0)[..63].to_vec()));
    cases
}

#[rustfmt::skip] // A line for each case.
fn sections() -> Vec<Case> {
    let section = |kind: &str, version: u32, contents: &[u8]| {
        let mut bytes = b"brisksec".to_vec();
        bytes.raw(kind.as_bytes()).u32(version);
        bytes.u64(contents.len() as u64);
        bytes.raw(blake3::hash(contents).as_bytes()).raw(&[0; 8]);
        bytes.raw(contents);
        bytes
    };
    let patched = |at: usize, with: &[u8]| {
        let mut bytes = section("plac", 1, b"/opt/app");
        bytes[at..at + with.len()].copy_from_slice(with);
        vec![bytes]
    };
    let place = |place: &[u8]| vec![section("plac", 1, place)];
    let recipe = |text: &str| vec![section("rcpe", 1, text.as_bytes())];
    let entry = |records: &[u8]| vec![section("entr", 1, records)];
    let valid = r#"{"brisk":"0.1.0","library":"none","compression":{"codec":"none"},"block_size":4096,"fragments":true,"tails":false,"deduplicate":true,"export":true}"#;
    let pattern = valid.replace("\"export\":true", r#""export":true,"order":["a{b"]"#);
    let q = u64::to_le_bytes;
    let list = [
        ("valid", [place(b"/opt/app"), recipe(valid)].concat()),
        ("none", vec![b"another trailer".to_vec()]),
        ("magic-other", patched(7, b"x")),
        ("unknown", [vec![section("????", 9, b"later")], place(b"/a")].concat()),
        ("length-0", patched(16, &q(0))),
        ("length-1-less", patched(16, &q(7))),
        ("length-1-more", patched(16, &q(9))),
        ("length-2-63", patched(16, &q(1 << 63))),
        ("length-to-2-64", patched(16, &q(u64::MAX - 8191))),
        ("length-highest", patched(16, &q(u64::MAX))),
        ("version-0", patched(12, &[0])),
        ("version-2", patched(12, &[2])),
        ("digest-other", patched(24, &[0; 32])),
        ("contents-other", patched(64, b"!")),
        ("header-cut", vec![place(b"")[0][..63].to_vec()]),
        ("recipe-empty", recipe("")),
        ("recipe-no-json", recipe("\u{1b}[2J")),
        ("recipe-field-unknown", recipe(r#"{"later":1}"#)),
        ("recipe-field-of-controls", recipe("{\"\\u001b[2J\\n\":1}")),
        ("recipe-nested", recipe(&format!("{{\"order\":{}", "[".repeat(3000)))),
        ("recipe-not-utf-8", vec![section("rcpe", 1, &[0xff; 9])]),
        ("recipe-pattern-bad", recipe(&pattern)),
        ("recipe-pattern-of-controls", recipe(&pattern.replace("a{b", "a{\\u001b[2J"))),
        ("place-empty", place(b"")),
        ("place-relative", place(b"../opt")),
        ("place-dot-dot", place(b"/opt/../app")),
        ("place-nul", place(b"/opt\0/app")),
        ("entry-valid", entry(b"root\0directory=share\0variable=A=b\0word=bin/app\0word=\0")),
        ("entry-empty", entry(b"")),
        ("entry-without-program", entry(b"root\0")),
        ("entry-not-ended", entry(b"word=bin/app")),
        ("entry-of-controls", entry(b"\x1b[2J\0word=bin/app\0")),
        ("entry-that-binds", entry(b"bind=/:/mnt\0word=bin/app\0")),
        ("entry-out-of-order", entry(b"word=bin/app\0root\0")),
        ("entry-variable-without-value", entry(b"variable=A\0word=bin/app\0")),
        ("entry-variable-twice", entry(b"variable=A=b\0variable=A=c\0word=bin/app\0")),
        ("entry-variable-of-brisk", entry(b"variable=BRISK_TREE=/\0word=bin/app\0")),
        ("entry-of-zeros", entry(&[0; 65_536])),
        ("entry-of-words", entry(&b"word=\0".repeat(10_922))),
        ("entry-of-65537", entry(&[b'a'; 65_537])),
    ];
    let image = tree().build().bytes;
    list.into_iter()
        .map(|(name, sections)| {
            let mut image = image.clone();
            for section in sections {
                image.resize(image.len().next_multiple_of(4096), 0);
                image.raw(&section);
            }
            (format!("section-{name}"), image)
        })
        .collect()
}
