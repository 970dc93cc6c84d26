//! What the system refuses, what changes meanwhile, and what is very large. After each failure the
//! older image is what it was. What takes long is for `make torture`.

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brisk_image::{Error, ErrorKind, Image, ImageWriter, Tree, TreeRules};
use support::{
    NOBODY, alone_in_namespace, as_nobody, brisk_extract, expect_root, in_own_process, noise, run,
    run_quiet, text, vm_hwm,
};

/// A writer of many small blocks.
fn writer() -> ImageWriter {
    let lz4 = "lz4".parse().expect("a codec");
    ImageWriter::new()
        .compression(lz4)
        .block_size(4096)
        .threads(1)
}

fn list(root: &Path) -> Tree {
    Tree::from_directory(root, &TreeRules::default()).expect("the tree can be listed")
}

/// Packs into `image`, which is there, fails, and must be as it was, alone in its directory.
fn fails(tree: &Tree, image: &Path, writer: &ImageWriter) -> Error {
    fs::write(image, "the older image").expect("the directory is ours");
    let e = writer.write(tree, image).expect_err("it cannot be packed");
    assert_eq!(fs::read(image).expect("it is there"), b"the older image");
    let directory = image.parent().expect("it has a directory");
    assert_eq!(
        fs::read_dir(directory).expect("it is there").count(),
        1,
        "something is left"
    );
    e
}

/// Bytes of a file that is longer than what packing reads ahead of what it writes, 64 MiB.
const LONG: usize = 80 << 20;

/// A tree with one file, and a directory for the image.
struct OneFile(tempfile::TempDir);

impl OneFile {
    fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("tree")).expect("the directory is ours");
        fs::create_dir(dir.path().join("out")).expect("the directory is ours");
        let one = Self(dir);
        fs::write(one.file(), noise(1, len)).expect("the directory is ours");
        one
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("tree/file")
    }

    fn tree(&self) -> Tree {
        list(&self.0.path().join("tree"))
    }

    fn image(&self) -> std::path::PathBuf {
        self.0.path().join("out/image")
    }
}

#[test]
fn a_full_disk_leaves_the_older_image() {
    alone_in_namespace("a_full_disk_leaves_the_older_image", || {
        let one = OneFile::new(100 * 4096);
        let out = one.0.path().join("out");
        let args = ["-t", "tmpfs", "-o", "size=200k", "none"].map(std::ffi::OsStr::new);
        run("mount", args.into_iter().chain([out.as_os_str()]));
        let e = fails(&one.tree(), &one.image(), &writer());
        let message = format!("{}: cannot write the output file", one.image().display());
        assert_eq!((e.kind(), e.to_string()), (ErrorKind::Io, message));
        let cause = std::error::Error::source(&e).map(ToString::to_string);
        assert_eq!(
            cause.as_deref(),
            Some("No space left on device (os error 28)")
        );
        run("umount", [&out]);
    });
}

#[test]
fn a_file_that_went_away_is_named() {
    let one = OneFile::new(100 * 4096);
    let tree = one.tree();
    fs::remove_file(one.file()).expect("it is ours");
    let e = fails(&tree, &one.image(), &writer());
    let message = format!("{}: cannot open the file", one.file().display());
    assert_eq!((e.kind(), e.to_string()), (ErrorKind::NotFound, message));
}

/// Packs while `change` is made after the first block was written.
fn changed_meanwhile(change: impl Fn(&File) + Send + Sync + 'static) -> String {
    let one = OneFile::new(LONG);
    let tree = one.tree();
    let (file, done) = (one.file(), AtomicBool::new(false));
    let writer = writer().progress(move |bytes| {
        if bytes > 0 && !done.swap(true, Ordering::SeqCst) {
            // A filesystem may have a clock that ticks only every 10 ms.
            std::thread::sleep(std::time::Duration::from_millis(30));
            change(&File::options().write(true).open(&file).expect("it is ours"));
        }
        ControlFlow::Continue(())
    });
    let e = fails(&tree, &one.image(), &writer);
    assert_eq!(e.kind(), ErrorKind::Input);
    assert_eq!(e.path(), Some(one.file().as_path()));
    e.to_string()
        .replacen(&format!("{}: ", one.file().display()), "", 1)
}

#[test]
fn a_file_that_changes_is_an_error() {
    // A change of the length changes the times first, one after the other, and the file may be looked at in
    // between.
    let changed = "file changed while it was packed: its ";
    let by_time = |error: &str| {
        let mut times = ["modification time was ", "change time was "].into_iter();
        times.any(|time| error.starts_with(&format!("{changed}{time}")))
    };
    let length_or_time = |error: &str, len: u64| {
        let advice = "stop what writes it, or pack a copy";
        let by_length = format!("{changed}length was {LONG} and is {len}; {advice}");
        assert!(
            error == by_length || by_time(error),
            "{error}, expected {by_length}"
        );
    };
    let longer = changed_meanwhile(|file| {
        file.write_all_at(b"more", LONG as u64)
            .expect("the file is ours");
    });
    length_or_time(&longer, LONG as u64 + 4);
    let shorter = changed_meanwhile(|file| file.set_len(10).expect("the file is ours"));
    length_or_time(&shorter, 10);
    let other = changed_meanwhile(|file| {
        file.write_all_at(b"other", LONG as u64 - 4096)
            .expect("the file is ours");
    });
    assert!(by_time(&other), "{other}");
}

#[test]
fn a_file_that_grows_all_the_time_is_an_error() {
    let one = OneFile::new(LONG);
    let begin = Arc::new(AtomicBool::new(false));
    // The threads end with it, also if this thread panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options()
                .append(true)
                .open(one.file())
                .expect("it is ours");
            while alive.strong_count() > 0 {
                if begin.load(Ordering::SeqCst) {
                    file.write_all(b"more").expect("the file is ours");
                }
            }
        });
        let (file, may_grow) = (one.file(), Arc::clone(&begin));
        let writer = writer().threads(3).progress(move |bytes| {
            // Once the first block is written, nothing goes on until it has grown.
            if bytes > 0 {
                may_grow.store(true, Ordering::SeqCst);
                let len = || fs::metadata(&file).expect("it is there").len();
                while len() == LONG as u64 {
                    std::thread::yield_now();
                }
            }
            ControlFlow::Continue(())
        });
        let e = fails(&one.tree(), &one.image(), &writer);
        drop(running);
        assert_eq!(e.kind(), ErrorKind::Input);
        assert!(
            e.to_string()
                .contains("file changed while it was packed: its "),
            "{e}"
        );
    });
}

#[test]
fn what_an_ordinary_user_cannot_read_is_named() {
    let before = |own: &Path| {
        for name in ["tree", "out", "tree/dir"] {
            fs::create_dir(own.join(name)).expect("the directory is ours");
            lchown(own.join(name), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        fs::write(own.join("tree/secret"), "of root").expect("the directory is ours");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(own.join("tree/secret"), mode).expect("the file is ours");
    };
    let test = |own: &Path| {
        let tree = list(&own.join("tree"));
        let e = fails(&tree, &own.join("out/image"), &writer());
        let message = format!(
            "{}: cannot open the file",
            own.join("tree/secret").display()
        );
        assert_eq!((e.kind(), e.to_string()), (ErrorKind::Io, message));
        let dir = own.join("tree/dir");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o000)).expect("it is ours");
        let e = Tree::from_directory(own.join("tree"), &TreeRules::default());
        let e = e.expect_err("it cannot be listed");
        let message = format!("{}: cannot list the directory", dir.display());
        assert_eq!((e.kind(), e.to_string()), (ErrorKind::Io, message));
        // What is left out need not be readable.
        let rules = TreeRules::default().exclude(&["secret".into(), "dir".into()]);
        let rules = rules.expect("the patterns are right");
        let tree = Tree::from_directory(own.join("tree"), &rules).expect("the rest can be listed");
        writer()
            .write(&tree, own.join("out/image"))
            .expect("the rest can be packed");
    };
    as_nobody(
        "what_an_ordinary_user_cannot_read_is_named",
        before,
        test,
        |_| {},
    );
}

/// What packing may take: 256 MB, and four blocks per thread.
fn check_memory(what: &str, threads: u64, block: u64) {
    let (peak, most) = (vm_hwm() << 10, 256_000_000 + threads * block * 4);
    println!(
        "{what}: peak memory {} MB, allowed are {} MB",
        peak / 1_000_000,
        most / 1_000_000
    );
    assert!(
        peak <= most,
        "{what} takes {peak} bytes, allowed are {most}"
    );
}

#[test]
#[ignore = "makes 200,000 files: for `make torture`"]
fn two_hundred_thousand_files_are_packed_in_bounded_memory() {
    in_own_process(
        "two_hundred_thousand_files_are_packed_in_bounded_memory",
        || {
            let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
            let root = dir.path().join("tree");
            for n in 0..200_000u64 {
                let sub = root.join(format!("dir-{}", n / 500));
                if n % 500 == 0 {
                    fs::create_dir_all(&sub).expect("the directory is ours");
                }
                let bytes = text(n, (n * 37 % 3000) as usize);
                fs::write(sub.join(format!("small file {n}")), bytes)
                    .expect("the directory is ours");
            }
            let summary = ImageWriter::new()
                .threads(2)
                .compression("zstd".parse().expect("a codec"))
                .write(&list(&root), dir.path().join("image"))
                .expect("the tree can be packed");
            assert_eq!(summary.files, 200_000);
            check_memory("200,000 files", 2, 128 << 10);
        },
    );
}

#[test]
#[ignore = "packs 10 GB of holes: for `make torture`"]
fn ten_gigabytes_of_holes_are_packed_in_bounded_memory() {
    in_own_process(
        "ten_gigabytes_of_holes_are_packed_in_bounded_memory",
        || {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let (root, image) = (dir.path().join("tree"), dir.path().join("image"));
            fs::create_dir(&root).expect("the directory is ours");
            let file = File::create(root.join("holes")).expect("the directory is ours");
            file.set_len(10 << 30).expect("a file can have holes");
            for n in 0..10u64 {
                file.write_all_at(&noise(n, 300_000), (n << 30) + n * 777)
                    .expect("there is room");
            }
            let writer = ImageWriter::new().threads(2);
            let summary = writer
                .write(&list(&root), &image)
                .expect("it can be packed");
            assert_eq!(summary.data.bytes, 10 << 30);
            check_memory("10 GB of holes", 2, 128 << 10);
            let opened = Image::open(&image).expect("it is an image");
            let inode = opened
                .lookup("holes")
                .expect("lookups work")
                .expect("it is there");
            let reader = opened.file(&inode).expect("the file has blocks");
            for n in 0..10u64 {
                let mut bytes = vec![1; 300_100];
                reader
                    .read_at((n << 30) + n * 777, &mut bytes)
                    .expect("the file decodes");
                assert!(bytes[..300_000] == noise(n, 300_000) && bytes[300_000..] == [0; 100]);
            }
            check_memory("10 GB of holes, written and read", 2, 128 << 10);
        },
    );
}

/// Makes a file that is longer than 4 GiB, with data on both sides of it.
fn long_file(path: &Path) -> u64 {
    const FOUR: u64 = 1 << 32;
    let file = File::create(path).expect("the directory is ours");
    file.write_all_at(&noise(1, 300_000), 5)
        .expect("there is room");
    file.write_all_at(&noise(2, 2_000_000), FOUR - 1_000_000)
        .expect("there is room");
    file.write_all_at(&text(3, 70_000), FOUR + (64 << 20))
        .expect("there is room");
    FOUR + (64 << 20) + 70_000
}

fn check_long_file(path: &Path, from: &Path) {
    run_quiet("cmp", [path, from]);
}

#[test]
#[ignore = "reads 4 GiB several times: for `make torture`"]
fn a_file_of_more_than_four_gibibytes_goes_both_ways() {
    alone_in_namespace("a_file_of_more_than_four_gibibytes_goes_both_ways", || {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (root, ours) = (dir.path().join("tree"), dir.path().join("ours"));
        fs::create_dir(&root).expect("the directory is ours");
        let source = root.join("long");
        let len = long_file(&source);
        ImageWriter::new()
            .write(&list(&root), &ours)
            .expect("it can be packed");
        let theirs = dir.path().join("theirs");
        let args = ["-noappend", "-quiet", "-no-progress"].map(std::ffi::OsStr::new);
        run_quiet(
            "mksquashfs",
            [root.as_os_str(), theirs.as_os_str()]
                .into_iter()
                .chain(args),
        );
        for image in [&ours, &theirs] {
            let opened = Image::open(image).expect("it is an image");
            let inode = opened
                .lookup("long")
                .expect("lookups work")
                .expect("it is there");
            assert_eq!(inode.len(), len);
            let reader = opened.file(&inode).expect("the file has blocks");
            let mut bytes = vec![0; 2_000_000];
            reader
                .read_at((1 << 32) - 1_000_000, &mut bytes)
                .expect("the file decodes");
            assert!(bytes == noise(2, 2_000_000));
            brisk_extract(image, &dir.path().join("out"), 2);
            check_long_file(&dir.path().join("out/long"), &source);
            fs::remove_dir_all(dir.path().join("out")).expect("the directory is ours");
            support::mounted(image, |root| check_long_file(&root.join("long"), &source));
        }
        let out = dir.path().join("out");
        let args = ["-quiet", "-no-progress", "-d"].map(std::ffi::OsStr::new);
        run_quiet(
            "unsquashfs",
            args.into_iter().chain([out.as_os_str(), ours.as_os_str()]),
        );
        check_long_file(&out.join("long"), &source);
    });
}

#[test]
#[ignore = "makes 70,000 files: for `make torture`"]
fn more_users_than_an_image_can_hold_are_an_error() {
    expect_root();
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let (root, out) = (dir.path().join("tree"), dir.path().join("out"));
    fs::create_dir(&root).expect("the directory is ours");
    fs::create_dir(&out).expect("the directory is ours");
    for uid in 0..70_000 {
        let path = root.join(uid.to_string());
        File::create(&path).expect("the directory is ours");
        lchown(path, Some(uid), Some(0)).expect("root may");
    }
    let e = fails(&list(&root), &out.join("image"), &writer());
    assert_eq!(e.kind(), ErrorKind::Limit);
    assert_eq!(
        e.to_string(),
        "the number of different users and groups needs 65536, which passes the limit of 65535"
    );
    // As many as it can hold are none.
    for uid in 65_535..70_000u32 {
        fs::remove_file(root.join(uid.to_string())).expect("the file is ours");
    }
    let image = out.join("image");
    writer()
        .write(&list(&root), &image)
        .expect("65,535 users are none too many");
    let opened = Image::open(&image).expect("it is an image");
    for uid in [0, 1, 40_000, 65_534] {
        let inode = opened
            .lookup(uid.to_string())
            .expect("lookups work")
            .expect("it is there");
        assert_eq!(inode.uid(), uid);
    }
}
