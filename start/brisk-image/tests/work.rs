//! Work that tells of its progress, and is cancelled; and images that are written to streams.

mod support;

use std::fs;
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brisk_image::hot_pack::{HotPackWriter, Prefer};
use brisk_image::profile::{Named, Origin, Profile, ProfileBuilder, RootKind};
use brisk_image::rules::PlanRules;
use brisk_image::{
    Compression, ErrorKind, Extractor, Image, ImageWriter, OpenOptions, Tree, TreeRules, Work,
};
use support::{noise, text};

/// Two files that are equal, two that share a block, a hole, and one that compresses to nothing less.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let mut holes = vec![0; 20_000];
    holes[..5].copy_from_slice(b"start");
    vec![
        ("bin/app", text(1, 50_000)),
        ("bin/copy", text(1, 50_000)),
        ("lib/noise", noise(2, 30_000)),
        ("lib/holes", holes),
        ("etc/a", b"a".to_vec()),
        ("etc/b", b"bb".to_vec()),
    ]
}

struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().expect("a temporary directory"));
        for (path, bytes) in files() {
            let path = sandbox.path("tree").join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
            fs::write(path, bytes).expect("the directory is ours");
        }
        fs::create_dir(sandbox.path("out")).expect("the directory is ours");
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tree(&self) -> Tree {
        Tree::from_directory(self.path("tree"), &TreeRules::default()).expect("it can be listed")
    }

    fn image(&self) -> Image {
        let path = self.path("image");
        writer().write(&self.tree(), &path).expect("it is packed");
        Image::open(path).expect("it is an image")
    }
}

fn writer() -> ImageWriter {
    ImageWriter::new()
        .compression("lz4".parse().expect("a codec"))
        .block_size(4096)
        .time(1)
}

/// Asks for a page here and there.
fn profile() -> Profile {
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/opt/app", RootKind::Directory);
    let files = files();
    for (file, (_, bytes)) in (0..).zip(&files) {
        builder.range(root, file, bytes.len() as u64 / 2, 1, Duration::ZERO);
    }
    let name = |_, id: u64| {
        let (path, bytes) = files.get(usize::try_from(id).ok()?)?;
        Some(Named::new(path, bytes.len() as u64).digest(*blake3::hash(bytes).as_bytes()))
    };
    let recorded = builder.finish(vec!["bin/app".into()], None, name);
    recorded.expect("it is complete").profile
}

/// Runs `work`, which takes a callback, and cancels it by the first call alone, then by the second,
/// and so on, until it is done before. After each `check` is asked. Returns how often it was cancelled.
fn cancelled_at_every_call<T: std::fmt::Debug>(
    work: impl Fn(Arc<dyn Fn(u64) -> ControlFlow<()> + Send + Sync>) -> brisk_image::Result<T>,
    mut check: impl FnMut(bool),
) -> u64 {
    for last in 0.. {
        let calls = AtomicU64::new(0);
        let done = work(Arc::new(move |_| {
            match calls.fetch_add(1, Ordering::SeqCst) == last {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }));
        check(done.is_ok());
        match done {
            Ok(_) => return last,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}"),
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_cancelled_image_leaves_the_older_one() {
    let sandbox = Sandbox::new();
    let (tree, path) = (sandbox.tree(), sandbox.path("out/image"));
    for threads in [1, 3] {
        fs::write(&path, "the older image").expect("the directory is ours");
        let writers = [
            writer().threads(threads),
            writer().threads(threads).hot_pack(profile(), Prefer::Speed),
        ];
        for writer in writers {
            let count = cancelled_at_every_call(
                |tell| {
                    writer
                        .clone()
                        .progress(move |n| tell(n))
                        .write(&tree, &path)
                },
                |done| {
                    let left = fs::read_dir(sandbox.path("out"))
                        .expect("it is there")
                        .count();
                    assert_eq!(left, 1, "something is left");
                    if !done {
                        let bytes = fs::read(&path).expect("it is there");
                        assert_eq!(bytes, b"the older image");
                    }
                },
            );
            // Each block, each file that is hashed, and the end at least.
            assert!(count > 25, "{count}");
            Image::open(&path).expect("the last one is whole");
            fs::write(&path, "the older image").expect("the directory is ours");
        }
    }
}

#[test]
fn a_cancelled_stream_holds_no_image() {
    let sandbox = Sandbox::new();
    let tree = sandbox.tree();
    for writer in [writer(), writer().hot_pack(profile(), Prefer::Speed)] {
        // What is tried last is whole.
        let last = std::sync::Mutex::new(Vec::new());
        cancelled_at_every_call(
            |tell| {
                let mut bytes = Vec::new();
                let writer = writer.clone().progress(move |n| tell(n));
                let written = writer.write_to(&tree, Cursor::new(&mut bytes));
                *last.lock().expect("no panic") = bytes;
                written
            },
            |done| {
                let bytes = last.lock().expect("no panic").clone();
                let image = Image::from_source(bytes, &OpenOptions::new().offset(0));
                assert_eq!(image.is_ok(), done);
            },
        );
    }
}

#[test]
fn a_stream_gets_the_bytes_of_a_file() {
    let sandbox = Sandbox::new();
    let tree = sandbox.tree();
    let raw = PlanRules::new(vec!["/etc/".into()], vec!["noise".into()]);
    let writers = [
        writer(),
        writer().rules(raw.expect("the patterns are right")),
        writer().compression(Compression::None).recipe(false),
        writer().tails(true).place("/opt/app".into()),
        writer().hot_pack(profile(), Prefer::Size),
    ];
    for writer in writers {
        let path = sandbox.path("out/image");
        let summary = writer.write(&tree, &path).expect("it is packed");
        let expected = fs::read(&path).expect("it was written");
        assert_eq!(summary.file_bytes, expected.len() as u64);

        let mut bytes = Vec::new();
        let told = writer.write_to(&tree, Cursor::new(&mut bytes));
        assert_eq!(told.expect("it is packed"), summary);
        assert!(bytes == expected, "{writer:?}");

        // Behind a program, and what stands behind the image stays.
        let mut stream = Cursor::new(vec![b'#'; 10_000 + expected.len()]);
        stream.seek(SeekFrom::Start(5000)).expect("it is memory");
        writer.write_to(&tree, &mut stream).expect("it is packed");
        assert_eq!(stream.position(), 5000 + expected.len() as u64);
        stream.write_all(b"end").expect("it is memory");
        let bytes = stream.into_inner();
        let (before, rest) = bytes.split_at(5000);
        let (image, behind) = rest.split_at(expected.len());
        assert!(before.iter().all(|&byte| byte == b'#'));
        assert!(image == expected, "{writer:?}");
        assert!(behind.starts_with(b"end##") && behind.len() == 5000);
        let options = OpenOptions::new().offset(5000);
        let image = Image::from_source(bytes, &options).expect("it is an image");
        assert_eq!(image.read("bin/app").expect("it decodes"), files()[0].1);
    }
}

#[test]
fn a_stream_that_fails_is_told() {
    struct Full(Cursor<Vec<u8>>, usize);
    impl Write for Full {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            match self.0.get_ref().len() + buf.len() > self.1 {
                true => Err(std::io::ErrorKind::StorageFull.into()),
                false => self.0.write(buf),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl Seek for Full {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let sandbox = Sandbox::new();
    let stream = Full(Cursor::default(), 10_000);
    let e = writer()
        .write_to(&sandbox.tree(), stream)
        .expect_err("full");
    assert_eq!(e.to_string(), "cannot write the image");
    let e = std::io::Error::from(e);
    assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn whatever_takes_long_can_be_cancelled() {
    let sandbox = Sandbox::new();
    let image = sandbox.image();
    let (origin, profile) = (Origin::image(&image), profile());
    let hot = sandbox.path("hot");
    HotPackWriter::new()
        .write(&profile, &origin, &hot)
        .expect("it is written");
    let pack =
        brisk_image::hot_pack::HotPack::open(&hot, &Default::default()).expect("it is a pack");
    let none = |_: bool| {};
    let mut targets = 0..;
    let targets = std::cell::RefCell::new(&mut targets);
    let target = || {
        let number: u32 = targets.borrow_mut().next().expect("they do not end");
        sandbox.path(&format!("target-{number}"))
    };
    // How many parts the work has at least.
    let counts = [
        (
            "extract",
            20,
            cancelled_at_every_call(
                |tell| {
                    Extractor::new()
                        .progress(move |n| tell(n))
                        .extract(&image, target())
                },
                none,
            ),
        ),
        (
            "write a hot pack",
            6,
            cancelled_at_every_call(
                |tell| {
                    let writer = HotPackWriter::new().progress(move |n| tell(n));
                    writer.write(&profile, &origin, sandbox.path("out/hot"))
                },
                |done| assert_eq!(sandbox.path("out/hot").exists(), done),
            ),
        ),
        (
            "check an image",
            20,
            cancelled_at_every_call(
                |tell| {
                    image.check(&Work::new().progress(move |n| tell(n)), |_, e| {
                        panic!("{e}")
                    })
                },
                none,
            ),
        ),
        (
            "verify a hot pack",
            1,
            cancelled_at_every_call(
                |tell| {
                    let work = Work::new().progress(move |n| tell(n));
                    pack.verify(&origin, &work, |e| panic!("{e}"))
                },
                none,
            ),
        ),
        (
            "compare trees",
            5,
            cancelled_at_every_call(
                |tell| {
                    let work = Work::new().progress(move |n| tell(n));
                    sandbox.tree().compare(&sandbox.tree(), &[], &work)
                },
                none,
            ),
        ),
        (
            "check a profile",
            6,
            cancelled_at_every_call(
                |tell| profile.check(&origin, &Work::new().progress(move |n| tell(n))),
                none,
            ),
        ),
        (
            "add digests",
            6,
            cancelled_at_every_call(
                |tell| {
                    let work = Work::new().progress(move |n| tell(n));
                    profile.clone().add_digests(0, &origin, &work)
                },
                none,
            ),
        ),
    ];
    for (what, parts, count) in counts {
        assert!(count >= parts, "{what}: {count}");
    }
}

/// The bytes that `work` told.
fn told<T>(work: impl FnOnce(Work) -> brisk_image::Result<T>) -> u64 {
    let sum = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&sum);
    let done = work(Work::new().threads(3).progress(move |bytes| {
        told.fetch_add(bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    }));
    done.map_err(|e| e.to_string()).expect("nothing is wrong");
    sum.load(Ordering::Relaxed)
}

#[test]
fn all_bytes_are_told_once() {
    let sandbox = Sandbox::new();
    let (tree, image) = (sandbox.tree(), sandbox.image());
    let bytes = tree.bytes();
    let sum = Arc::new(AtomicU64::new(0));
    let add = |sum: &Arc<AtomicU64>| {
        let sum = Arc::clone(sum);
        move |bytes| {
            sum.fetch_add(bytes, Ordering::Relaxed);
            ControlFlow::Continue(())
        }
    };
    for writer in [writer(), writer().hot_pack(profile(), Prefer::Speed)] {
        let writer = writer.progress(add(&sum));
        writer
            .write_to(&tree, Cursor::new(Vec::new()))
            .expect("it is packed");
        assert_eq!(sum.swap(0, Ordering::Relaxed), bytes, "{writer:?}");
    }
    let extractor = Extractor::new().progress(add(&sum));
    extractor
        .extract(&image, sandbox.path("target"))
        .expect("it is extracted");
    assert_eq!(sum.swap(0, Ordering::Relaxed), bytes);
    assert_eq!(told(|work| image.check(&work, |_, e| panic!("{e}"))), bytes);
    assert_eq!(told(|work| tree.compare(&tree, &[], &work)), bytes);
    assert_eq!(
        told(|work| profile().check(&Origin::image(&image), &work)),
        bytes
    );
}
