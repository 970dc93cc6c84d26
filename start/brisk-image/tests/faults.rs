//! A backend that fails at call N, for all N: every operation says so, and the next try succeeds.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_image::rules::Times;
use brisk_image::{
    Codec, Compression, Error, ErrorKind, FileType, Image, ImageWriter, Limits, OpenOptions,
    Result, Tree, TreeRules,
};
use brisk_io::ByteSource;

/// What a read does when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The disk is broken.
    Error,
    /// The source ends here, though it said that it was longer.
    End,
    /// Nothing but one byte comes, which is no failure.
    OneByte,
}

/// When reads fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    Once(u64),
    From(u64),
}

#[derive(Clone)]
struct Flaky {
    bytes: Arc<Vec<u8>>,
    calls: Arc<AtomicU64>,
    when: When,
    failure: Failure,
}

impl Flaky {
    fn new(bytes: &Arc<Vec<u8>>, when: When, failure: Failure) -> Self {
        Self {
            bytes: Arc::clone(bytes),
            calls: Arc::default(),
            when,
            failure,
        }
    }

    /// True if this call is to fail.
    fn fails(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.when {
            When::Never => false,
            When::Once(n) => call == n,
            When::From(n) => call >= n,
        }
    }
}

impl ByteSource for Flaky {
    fn size(&self) -> io::Result<u64> {
        if self.fails() && self.failure == Failure::Error {
            return Err(io::Error::other("as meant"));
        }
        Ok(self.bytes.as_slice().len() as u64)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let fails = self.fails();
        match self.failure {
            Failure::Error if fails => Err(io::Error::other("as meant")),
            Failure::End if fails => Ok(0),
            Failure::OneByte if fails => self.bytes.read_bytes_at(offset, &mut buf[..1]),
            _ => self.bytes.read_bytes_at(offset, buf),
        }
    }
}

/// Does `operation`; an error must be one of reading, and the second try must succeed.
fn retried<T>(operation: impl Fn() -> Result<T>) -> Result<T> {
    match operation() {
        Err(e) => {
            check(&e);
            operation()
        }
        done => done,
    }
}

fn check(e: &Error) {
    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
    assert!(e.to_string().starts_with("cannot read "), "{e}");
    let source = std::error::Error::source(e).expect("it has a cause");
    let cause = source.to_string();
    assert!(
        ["as meant", "unexpected end of file"].contains(&cause.as_str()),
        "{cause}"
    );
}

/// Does all there is to do with an image, each operation with `attempt`, and writes down what came
/// out. The caches have `cache` bytes each.
fn transcript(source: &Flaky, cache: u64, attempt: impl Attempt) -> Result<String> {
    let limits = Limits::new().block_cache(cache).metadata_cache(cache);
    let options = OpenOptions::new().limits(limits);
    let image = attempt.run(|| Image::from_source(source.clone(), &options))?;
    let mut lines = Vec::new();
    let entries = attempt.run(|| image.walk()?.collect::<Result<Vec<_>>>())?;
    for entry in entries {
        let inode = attempt.run(|| image.lookup(entry.path()))?;
        let inode = inode.expect("what was listed is found");
        assert_eq!(inode.reference(), entry.inode().reference());
        let (kind, number) = (inode.file_type(), inode.number());
        lines.push(format!("{:?} {kind:?} {number}", entry.path()));
        let again = attempt.run(|| image.inode_by_number(number))?;
        assert_eq!(
            again.map(|again| again.reference()),
            Some(inode.reference())
        );
        let xattrs = attempt.run(|| image.xattrs(&inode))?;
        lines.push(format!("{xattrs:?}"));
        if inode.is_dir() {
            let entries = attempt.run(|| image.read_dir(&inode)?.collect::<Result<Vec<_>>>())?;
            lines.push(format!("{entries:?}"));
            let none = attempt.run(|| image.lookup_in(&inode, OsStr::new("zzz")))?;
            assert!(none.is_none());
            continue;
        }
        if inode.file_type() != FileType::File {
            continue;
        }
        let file = attempt.run(|| image.file(&inode))?;
        for (from, len) in [(0, 100), (5000, 3), (0, 1 << 20), (file.len() / 2, 5000)] {
            let bytes = attempt.run(|| {
                let mut bytes = vec![0; len];
                let n = file.read_at(from, &mut bytes)?;
                bytes.truncate(n);
                Ok(bytes)
            })?;
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            lines.push(format!("{} bytes from {from}: {sum}", bytes.len()));
        }
        if file.is_empty() {
            continue;
        }
        let copied = attempt.run(|| {
            let mut out = Vec::new();
            file.copy_to(10..9000, &mut out, 1)?;
            Ok(out)
        })?;
        lines.push(format!("{copied:?}"));
    }
    let recipe = attempt.run(|| image.recipe())?;
    lines.push(format!("{recipe:?}"));
    let place = attempt.run(|| image.recorded_place())?;
    lines.push(format!("{place:?}"));
    let entry = attempt.run(|| image.entry_point())?;
    lines.push(format!("{entry:?}"));
    let tree = attempt.run(|| Tree::from_image(&image, &TreeRules::default()))?;
    lines.push(format!("{tree:?}"));
    Ok(lines.join("\n"))
}

/// How an operation is tried.
trait Attempt {
    fn run<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T>;
}

struct Once;

impl Attempt for Once {
    fn run<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        operation()
    }
}

struct Twice;

impl Attempt for Twice {
    fn run<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        retried(operation)
    }
}

/// An image in which each kind of table and of block is read.
fn image(codec: Option<Codec>) -> Arc<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("dir/below")).unwrap();
    std::fs::write(root.join("dir/small"), "a small file").unwrap();
    std::fs::write(root.join("dir/below/other"), "another").unwrap();
    let text: Vec<u8> = (0..3000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
    std::fs::write(root.join("text"), &text).unwrap();
    std::fs::write(root.join("zeros"), [0; 9000]).unwrap();
    std::fs::hard_link(root.join("text"), root.join("dir/text")).unwrap();
    symlink("dir/small", root.join("link")).unwrap();
    let xattr = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join("dir/small"), name, value, flags).unwrap();
    };
    xattr("user.a", &[b'v'; 500]);
    xattr("user.b", &[b'v'; 500]);
    // Names so long that the listing has an index.
    std::fs::create_dir(root.join("many")).unwrap();
    for i in 0..45 {
        let name = "n".repeat(200);
        std::fs::write(root.join(format!("many/{name}{i}")), "").unwrap();
    }
    let rules = TreeRules::default()
        .owner("*", Some(0), Some(7))
        .unwrap()
        .times(Times::All(1_000_000_000));
    let tree = Tree::from_directory(&root, &rules).unwrap();
    let path = dir.path().join("image");
    ImageWriter::new()
        .compression(codec.map_or(Compression::None, Compression::default_for))
        .block_size(4096)
        .place("/opt/app".into())
        .write(&tree, &path)
        .unwrap();
    Arc::new(std::fs::read(path).unwrap())
}

/// Bytes of a cache that holds nothing, and of one that holds most of what is read.
const CACHES: [u64; 2] = [0, 20_000];

/// What comes out when nothing fails, and the calls that it takes.
fn clean(bytes: &Arc<Vec<u8>>, cache: u64) -> (String, u64) {
    let source = Flaky::new(bytes, When::Never, Failure::Error);
    let text = transcript(&source, cache, Once).unwrap();
    (text, source.calls.load(Ordering::Relaxed))
}

#[test]
fn a_failure_is_said_and_not_remembered() {
    for codec in [None, Some(Codec::Gzip)] {
        let bytes = image(codec);
        for cache in CACHES {
            let (expected, calls) = clean(&bytes, cache);
            assert!(calls > 30, "{calls}");
            for n in 0..calls {
                for failure in [Failure::Error, Failure::End] {
                    let source = Flaky::new(&bytes, When::Once(n), failure);
                    let text = transcript(&source, cache, Twice).unwrap();
                    assert!(text == expected, "{codec:?}, {failure:?} at call {n}");
                }
            }
        }
    }
}

#[test]
fn a_source_that_stays_broken_fails_whatever_is_asked() {
    let bytes = image(Some(Codec::Gzip));
    for cache in CACHES {
        let (_, calls) = clean(&bytes, cache);
        for n in 0..calls {
            for failure in [Failure::Error, Failure::End] {
                let source = Flaky::new(&bytes, When::From(n), failure);
                check(&transcript(&source, cache, Once).unwrap_err());
            }
        }
    }
}

#[test]
fn short_reads_are_no_failure() {
    let bytes = image(Some(Codec::Gzip));
    let (expected, calls) = clean(&bytes, 20_000);
    for n in 0..calls {
        let source = Flaky::new(&bytes, When::Once(n), Failure::OneByte);
        assert!(
            transcript(&source, 20_000, Once).unwrap() == expected,
            "call {n}"
        );
    }
    let source = Flaky::new(&bytes, When::From(0), Failure::OneByte);
    assert!(transcript(&source, 20_000, Once).unwrap() == expected);
}
