//! Images through the FUSE server: as root, and without root in a user namespace.
//!
//! Everything is undone within a minute, because each mount has a watchdog that aborts it.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::{Image, OpenOptions};
use brisk_io::Mapping;
use brisk_serve::{Owners, ServeOptions};
use rustix::fs::{
    Advice, Dir, FileType, Mode, SeekFrom, XattrFlags, fadvise, getxattr, getxattr_query,
    listxattr, listxattr_query, makedev, mknodat, seek, setxattr, statvfs,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

mod fixture;
#[path = "../../../ground/brisk-io/tests/machine/memory.rs"]
mod memory;
use fixture::mounted::{Connected, Mounted};
use fixture::programs::copy_program;
use fixture::{Fixture, unmounted};
use memory::while_nobody_empties_memory;

/// Serves the image of the fixture's tree.
fn mounted(fixture: &Fixture, name: &str, mksquashfs: &[&str]) -> Mounted {
    let image = fixture.image(&format!("{name}.img"), mksquashfs);
    let image = Image::open(image).expect("mksquashfs made it");
    Mounted::new(fixture.empty_dir(name), image, ServeOptions::default())
}

#[test]
fn contents_listings_and_links_are_those_of_the_tree() {
    let fixture = Fixture::new();
    symlink("sub/inside", fixture.path("tree/link")).expect("the tree can be made");
    let mount = mounted(&fixture, "at", &[]);
    fixture.assert_same(mount.dir());
    assert_eq!(listing(mount.dir()), listing(&fixture.path("tree")));
    let target = fs::read_link(mount.path("link")).expect("it is a link");
    assert_eq!(target, Path::new("sub/inside"));
    assert_eq!(
        fs::read(mount.path("link")).expect("it leads on"),
        b"from the image"
    );
}

#[test]
fn nothing_is_asked_twice() {
    while_nobody_empties_memory(|| {
        let fixture = Fixture::new();
        let mount = mounted(&fixture, "at", &[]);
        let visit = || {
            listing(mount.dir());
            fixture.assert_same(mount.dir());
            for absent in ["none", "sub/none", "sub/none"] {
                let error = fs::metadata(mount.path(absent)).expect_err("it is absent");
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        };
        visit();
        let first = mount.counts();
        visit();
        assert_eq!(mount.counts().requests, first.requests);
        // One of each kind. After that the kernel knows that it need not ask.
        assert_eq!(first.opens, 2);
    });
}

#[test]
fn small_files_of_a_block_are_read_by_one_request() {
    while_nobody_empties_memory(|| {
        let fixture = Fixture::new();
        let many = fixture.path("tree/many");
        fs::create_dir(&many).expect("the tree can be made");
        let text = |n: usize| format!("{n} ").repeat(n);
        for n in 1..100 {
            fs::write(many.join(n.to_string()), text(n)).expect("the tree can be made");
        }
        let mount = mounted(&fixture, "at", &[]);
        assert_eq!(listing(mount.dir()), listing(&fixture.path("tree")));
        let all: usize = (1..100).map(|n| text(n).len()).sum();
        let first = mount.path("many/7");
        assert_eq!(fs::read(first).expect("a file"), text(7).as_bytes());
        // Files of other directories are in the block too.
        let others = (all - text(7).len()) as u64;
        let deadline = Instant::now() + Duration::from_secs(20);
        while mount.counts().bytes_stored < others {
            assert!(Instant::now() < deadline, "{:?}", mount.counts());
            thread::sleep(Duration::from_millis(1));
        }
        for n in 1..100 {
            let path = mount.path("many").join(n.to_string());
            assert_eq!(fs::read(path).expect("a file"), text(n).as_bytes());
        }
        assert_eq!(mount.counts().reads, 1);
        fixture.assert_same(mount.dir());
    });
}

/// A server in a process of its own, on a connection that this process keeps.
fn server(connected: &Connected, image: &Path) -> Child {
    let channel = |i: usize| {
        let channel = &connected.connection.channels()[i];
        Stdio::from(channel.try_clone().expect("a descriptor is free"))
    };
    Command::new(example())
        .args(["--serve".as_ref(), image.as_os_str()])
        .arg(connected.connection.agreed().to_string())
        .stdin(channel(0))
        .stdout(channel(1))
        .spawn()
        .expect("the example is built with the tests")
}

/// The program in `examples/fuse.rs`.
fn example() -> PathBuf {
    fixture::runner().with_file_name("fuse")
}

#[test]
fn readers_get_their_bytes_though_the_server_is_killed_twenty_times() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let connected = Connected::new(fixture.empty_dir("at"), &ServeOptions::default());
    assert!(connected.connection.can_resend(), "Linux 6.9 is needed");
    let mut child = server(&connected, &image);
    // The first close of a file waits for an answer, and no signal ends that wait. A server is a fork of this
    // process, and closes what the readers have open at that moment. So the first close must be over. This
    // holds for every process that starts servers while it has files open.
    fixture.assert_same(&connected.dir);
    // The threads end with it, also if this thread panics.
    let running = Arc::new(());
    let alive = Arc::downgrade(&running);
    let read = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|i| {
                let (fixture, dir, alive) = (&fixture, &connected.dir, &alive);
                scope.spawn(move || read_on(fixture, dir, i, alive))
            })
            .collect();
        for round in 0..20 {
            // Sometimes in the middle of its start.
            thread::sleep(Duration::from_millis(round * 7 % 40));
            child.kill().expect("it is ours");
            let mut dead = std::mem::replace(&mut child, server(&connected, &image));
            // The dead server may be waiting in a store for the answer to a read, and it reads requests until
            // it is gone. Each wait is much longer than the one before, because a request that is sent again
            // while it is answered stays unanswered.
            let mut later = Duration::from_millis(25);
            loop {
                let gone = dead.try_wait().expect("it is ours").is_some();
                connected.connection.resend().expect("the kernel can");
                if gone {
                    break;
                }
                thread::sleep(later);
                later *= 2;
            }
        }
        drop(running);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("all bytes were right"))
            .sum::<u64>()
    });
    assert!(read > 0);
    unmounted(|| unmount(&connected.dir, UnmountFlags::empty()));
    let status = child.wait().expect("it is ours");
    assert!(status.success(), "{status}");
}

/// Reads files that the kernel has forgotten, and looks up names that it does not know, until `end`.
fn read_on(fixture: &Fixture, dir: &Path, reader: u64, alive: &Weak<()>) -> u64 {
    let mut rounds = 0;
    while alive.strong_count() > 0 {
        fixture.assert_same(dir);
        for name in ["noise", "text"] {
            let file = fs::File::open(dir.join(name)).expect("it is there");
            fadvise(&file, 0, None, Advice::DontNeed).expect("advice is free");
        }
        let absent = dir.join(format!("sub/none-{reader}-{rounds}"));
        assert!(!absent.try_exists().expect("it can be looked up"));
        rounds += 1;
    }
    rounds
}

#[test]
fn every_codec_is_read_with_shared_blocks_and_without() {
    let fixture = Fixture::new();
    for codec in ["gzip", "xz", "lzo", "lz4", "zstd"] {
        for fragments in ["-always-use-fragments", "-no-fragments"] {
            let name = format!("{codec}{fragments}");
            let mount = mounted(&fixture, &name, &["-comp", codec, fragments]);
            fixture.assert_same(mount.dir());
            assert_eq!(
                listing(mount.dir()),
                listing(&fixture.path("tree")),
                "{name}"
            );
        }
    }
    let mount = mounted(&fixture, "raw", &["-noI", "-noD", "-noF", "-noX"]);
    fixture.assert_same(mount.dir());
}

#[test]
fn metadata_are_those_of_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    fs::hard_link(tree.join("plain"), tree.join("sub/linked")).expect("the tree can be made");
    fs::set_permissions(tree.join("plain"), fs::Permissions::from_mode(0o4751)).expect("ours");
    std::os::unix::fs::lchown(tree.join("text"), Some(12), Some(345)).expect("root may");
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("disk", FileType::BlockDevice, makedev(259, 0x12345)),
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
    ] {
        let dir = fs::File::open(&tree).expect("the tree is there");
        mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, device).expect("root may");
    }
    let mount = mounted(&fixture, "at", &[]);
    assert_eq!(listing(mount.dir()), listing(&tree));
    let [plain, linked, text] = ["plain", "sub/linked", "text"]
        .map(|name| fs::metadata(mount.path(name)).expect("it is there"));
    assert_eq!(plain.ino(), linked.ino());
    assert_ne!(plain.ino(), text.ino());
    assert_eq!((plain.nlink(), plain.mode()), (2, 0o104_751));
    assert_eq!(text.blocks(), text.len().div_ceil(512));
    // The mount has nodev.
    let error = fs::File::open(mount.path("null")).expect_err("it is no device here");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // And is read-only.
    let error = fs::write(mount.path("new"), "").expect_err("nothing can be written");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // ".." of a directory is its parent.
    let numbers = |dir: &str| {
        let dir = fs::File::open(mount.path(dir)).expect("a directory");
        let entries = Dir::read_from(dir).expect("a directory");
        let mut numbers = BTreeMap::new();
        for entry in entries {
            let entry = entry.expect("an entry");
            numbers.insert(entry.file_name().to_owned(), entry.ino());
        }
        numbers
    };
    let (root, sub) = (numbers("."), numbers("sub"));
    assert_eq!(root[c".."], root[c"."]);
    assert_eq!(sub[c".."], root[c"."]);
    assert_eq!(sub[c"."], root[c"sub"]);
    assert_eq!(sub[c"linked"], root[c"plain"]);
}

#[test]
fn everything_belongs_to_one_owner_if_so_said() {
    let fixture = Fixture::new();
    let image = Image::open(fixture.image("app.img", &["-force-uid", "77"])).expect("made");
    let mut options = ServeOptions::default();
    options.owners = Owners::Everything { uid: 12, gid: 34 };
    let mount = Mounted::new(fixture.empty_dir("at"), image, options);
    for name in [".", "sub", "plain"] {
        let meta = fs::metadata(mount.path(name)).expect("it is there");
        assert_eq!((meta.uid(), meta.gid()), (12, 34), "{name}");
    }
}

#[test]
fn a_large_directory_is_listed_whole_and_from_any_place() {
    let fixture = Fixture::new();
    let large = fixture.path("tree/large");
    fs::create_dir(&large).expect("the tree can be made");
    for n in 0..10_000 {
        fs::write(large.join(format!("entry-{n:05}")), "").expect("the tree can be made");
    }
    let mount = mounted(&fixture, "at", &[]);
    let dir = || {
        let dir = fs::File::open(mount.path("large")).expect("a directory");
        Dir::read_from(dir).expect("a directory")
    };
    let all: Vec<_> = dir()
        .map(|entry| entry.expect("an entry"))
        .map(|entry| (entry.file_name().to_owned(), entry.offset()))
        .collect();
    assert_eq!(all.len(), 10_002);
    let mut names: Vec<_> = all.iter().skip(2).map(|(name, _)| name.clone()).collect();
    names.dedup();
    assert_eq!(names.len(), 10_000);
    assert!(names.is_sorted());
    for i in [0, 1, 2, 3, 4_999, 9_000, 10_000] {
        let mut dir = dir();
        dir.seek(all[i].1).expect("a place that was told");
        let next = dir.read().expect("not at the end").expect("an entry");
        assert_eq!(next.file_name(), all[i + 1].0.as_c_str(), "{i}");
    }
    let mut dir = dir();
    dir.seek(all[10_001].1).expect("a place that was told");
    assert!(dir.read().is_none());
    let name = mount.path("large/entry-07777");
    assert!(fs::metadata(name).expect("it is there").is_file());
}

#[test]
fn holes_are_zeros_and_take_no_room() {
    let fixture = Fixture::new();
    let path = fixture.path("tree/holes");
    let file = fs::File::create(&path).expect("the tree can be made");
    file.write_all_at(b"middle", 3 << 20)
        .expect("the tree can be made");
    file.set_len((8 << 20) + 17).expect("the tree can be made");
    let mount = mounted(&fixture, "at", &[]);
    let found = fs::read(mount.path("holes")).expect("it can be read");
    assert!(found == fs::read(&path).expect("it can be read"));
    let meta = fs::metadata(mount.path("holes")).expect("it is there");
    assert_eq!(meta.len(), (8 << 20) + 17);
    assert!(meta.blocks() * 512 <= 256 << 10, "{}", meta.blocks());
}

/// The expected offsets are those of the kernel's SquashFS in Linux 6.18. `None` is ENXIO.
#[test]
fn holes_are_told_as_squashfs_tells_them() {
    const B: u64 = 128 << 10;
    let fixture = Fixture::new();
    let write = |name: &str, len: u64, data: &[u64]| {
        let file = fs::File::create(fixture.path("tree").join(name)).expect("the tree can be made");
        for at in data {
            file.write_all_at(b"data", *at)
                .expect("the tree can be made");
        }
        file.set_len(len).expect("the tree can be made");
    };
    write("between", 6 * B, &[B, 4 * B]);
    write("to-a-tail", 2 * B + 5, &[2 * B]);
    write("from-data", B + 100, &[0]);
    write("hole", 3 * B, &[]);
    write("data", 9, &[0]);
    write("empty", 0, &[]);
    // The end of a file in a block that it shares, and as a block of its own.
    for tails in [&["-always-use-fragments"][..], &["-no-fragments"]] {
        let name = format!("at{}", tails[0]);
        let mount = mounted(&fixture, &name, tails);
        for (name, from, data, hole) in [
            ("between", 0, Some(B), Some(0)),
            ("between", B + 1, Some(B + 1), Some(2 * B)),
            ("between", 2 * B - 1, Some(2 * B - 1), Some(2 * B)),
            ("between", 2 * B + 1, Some(4 * B), Some(2 * B + 1)),
            ("between", 5 * B, None, Some(5 * B)),
            ("between", 6 * B - 1, None, Some(6 * B - 1)),
            ("between", 6 * B, None, None),
            ("to-a-tail", 1, Some(2 * B), Some(1)),
            ("to-a-tail", 2 * B + 1, Some(2 * B + 1), Some(2 * B + 5)),
            ("to-a-tail", 2 * B + 5, None, None),
            ("from-data", 0, Some(0), Some(B)),
            ("from-data", B + 1, None, Some(B + 1)),
            ("hole", 1, None, Some(1)),
            ("hole", 3 * B, None, None),
            ("data", 1, Some(1), Some(9)),
            ("data", 9, None, None),
            ("empty", 0, None, None),
        ] {
            let file = fs::File::open(mount.path(name)).expect("it is there");
            for (to, expected) in [(SeekFrom::Data(from), data), (SeekFrom::Hole(from), hole)] {
                let found = seek(&file, to);
                assert_eq!(
                    found,
                    expected.ok_or(Errno::NXIO),
                    "{name} {to:?} {tails:?}"
                );
            }
        }
    }
}

#[test]
fn the_file_system_says_of_itself_what_squashfs_says() {
    let fixture = Fixture::new();
    let mount = mounted(&fixture, "at", &[]);
    let image = Image::open(fixture.path("at.img")).expect("mksquashfs made it");
    let found = statvfs(mount.dir()).expect("it is mounted");
    assert_eq!(found.f_bsize, 128 << 10);
    assert_eq!(found.f_blocks, image.bytes_used().div_ceil(128 << 10));
    assert_eq!((found.f_bfree, found.f_bavail, found.f_ffree), (0, 0, 0));
    assert_eq!(found.f_files, u64::from(image.inode_count()));
    assert_eq!(found.f_namemax, 256);
}

#[test]
fn extended_attributes_are_read_and_an_image_without_is_asked_once() {
    let fixture = Fixture::new();
    let without = mounted(&fixture, "without", &["-no-xattrs"]);
    for name in ["plain", "text", "sub"] {
        let asked = getxattr_query(without.path(name), "user.comment");
        assert_eq!(asked, Err(Errno::OPNOTSUPP));
    }
    assert_eq!(without.counts().xattrs, 1);

    let path = fixture.path("tree/plain");
    let set = |name: &str, value: &[u8]| {
        setxattr(&path, name, value, XattrFlags::empty()).expect("the file system takes them");
    };
    set("user.comment", b"no program");
    set("trusted.secret", b"for root");
    let mount = mounted(&fixture, "with", &[]);
    let at = mount.path("plain");
    assert_eq!(getxattr_query(&at, "user.comment"), Ok(10));
    let mut value = [0; 10];
    assert_eq!(getxattr(&at, "user.comment", &mut value), Ok(10));
    assert_eq!(&value, b"no program");
    let mut small = [0; 9];
    assert_eq!(getxattr(&at, "user.comment", &mut small), Err(Errno::RANGE));
    assert_eq!(getxattr_query(&at, "user.none"), Err(Errno::NODATA));
    assert_eq!(
        getxattr_query(mount.path("text"), "user.comment"),
        Err(Errno::NODATA)
    );
    let mut names = vec![0; listxattr_query(&at).expect("it has some")];
    assert_eq!(listxattr(&at, &mut names), Ok(names.len()));
    let names: std::collections::BTreeSet<_> = names.split(|&b| b == 0).collect();
    let expected: [&[u8]; 3] = [b"", b"trusted.secret", b"user.comment"];
    assert_eq!(names, expected.into());
    assert_eq!(listxattr_query(mount.path("text")), Ok(0));
}

#[test]
fn mapped_files_hold_the_same_bytes() {
    let fixture = Fixture::new();
    let mount = mounted(&fixture, "at", &[]);
    for name in ["noise", "text"] {
        let file = fs::File::open(mount.path(name)).expect("it is there");
        let mapping = Mapping::shared(&file).expect("it can be mapped");
        let wanted = fs::read(fixture.path("tree").join(name)).expect("it can be read");
        // From the end, so that the kernel's read-ahead has none of it.
        for (number, wanted) in wanted.chunks(4096).enumerate().rev() {
            let mut found = vec![0; wanted.len()];
            let read = brisk_io::ByteSource::read_exact_bytes_at(
                &mapping,
                number as u64 * 4096,
                &mut found,
            );
            read.expect("it can be read");
            assert!(wanted == found, "{name}, page {number}");
        }
        let len = brisk_io::ByteSource::size(&mapping).expect("it is mapped");
        assert_eq!(len, wanted.len() as u64);
    }
}

#[test]
fn the_rest_of_a_decoded_block_is_there_before_it_is_asked_for() {
    while_nobody_empties_memory(|| {
        let fixture = Fixture::new();
        let mount = mounted(&fixture, "at", &[]);
        let file = fs::File::open(mount.path("text")).expect("it is there");
        // 300,000 bytes: two blocks of 128 KiB, and a tail of 37,856 bytes.
        fadvise(&file, 0, None, Advice::Random).expect("advice is free");
        let stored = [(8192, (128 << 10) - 4096), (295_000, 37_856 - 4096)];
        let mut sum = 0;
        let mut page = [0; 100];
        for (reads, (offset, rest)) in (1..).zip(stored) {
            file.read_exact_at(&mut page, offset)
                .expect("it can be read");
            sum += rest;
            let deadline = Instant::now() + Duration::from_secs(20);
            while mount.counts().bytes_stored < sum || mount.counts().reads < reads {
                assert!(Instant::now() < deadline, "{:?}", mount.counts());
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(mount.counts().bytes_stored, sum);
        }
        // The last store is counted when it has ended.
        let before = mount.counts();
        let wanted = fs::read(fixture.path("tree/text")).expect("it can be read");
        for range in [0..128 << 10, 256 << 10..300_000] {
            let mut found = vec![0; range.len()];
            let at = range.start as u64;
            file.read_exact_at(&mut found, at).expect("it can be read");
            assert!(found == wanted[range]);
        }
        assert_eq!(mount.counts(), before);
        assert_eq!(file.metadata().expect("it is open").len(), 300_000);
    });
}

/// Like a mapping: the kernel reads around its fault.
#[test]
fn the_rest_of_each_block_of_a_read_is_there() {
    while_nobody_empties_memory(|| {
        let fixture = Fixture::new();
        let mount = mounted(&fixture, "at", &[]);
        let file = fs::File::open(mount.path("text")).expect("it is there");
        fadvise(&file, 0, None, Advice::Random).expect("advice is free");
        // The last page of a block, and the first of the next.
        let mut pages = [0; 8192];
        file.read_exact_at(&mut pages, (128 << 10) - 4096)
            .expect("it can be read");
        let deadline = Instant::now() + Duration::from_secs(20);
        // The read itself is counted after its rest was stored.
        while mount.counts().bytes_stored < (256 << 10) - 8192 || mount.counts().bytes_read < 8192 {
            assert!(Instant::now() < deadline, "{:?}", mount.counts());
            thread::sleep(Duration::from_millis(1));
        }
        let before = mount.counts();
        let mut found = vec![0; 256 << 10];
        file.read_exact_at(&mut found, 0).expect("it can be read");
        let wanted = fs::read(fixture.path("tree/text")).expect("it can be read");
        assert!(found == wanted[..256 << 10]);
        assert_eq!(mount.counts(), before);
    });
}

/// A source that fails or panics on request.
struct Failing {
    bytes: Vec<u8>,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
}

impl brisk_io::ByteSource for Failing {
    fn size(&self) -> std::io::Result<u64> {
        brisk_io::ByteSource::size(&self.bytes)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(Errno::IO.into());
        }
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants");
        brisk_io::ByteSource::read_bytes_at(&self.bytes, offset, buf)
    }
}

#[test]
fn a_failing_disk_is_an_error_for_the_reader_until_it_works_again() {
    let fixture = Fixture::new();
    let bytes = fs::read(fixture.image("app.img", &[])).expect("made");
    let fails = Arc::new(AtomicBool::new(false));
    let panics = Arc::new(AtomicBool::new(false));
    let source = Failing {
        bytes,
        fails: fails.clone(),
        panics: panics.clone(),
    };
    let image = Image::from_source(source, &OpenOptions::new()).expect("made");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut options = ServeOptions::default();
    options.on_fault = Arc::new(move |fault| tell.lock().expect("sane").push(fault.to_string()));
    let mount = Mounted::new(fixture.empty_dir("at"), image, options);
    assert_eq!(
        fs::read(mount.path("plain")).expect("it works"),
        b"no program"
    );
    fails.store(true, Ordering::Relaxed);
    let error = fs::read(mount.path("noise")).expect_err("the disk fails");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert!(!told.lock().expect("sane").is_empty());
    fails.store(false, Ordering::Relaxed);
    // A fault of the server itself is no worse.
    panics.store(true, Ordering::Relaxed);
    let error = fs::read(mount.path("noise")).expect_err("the server panics");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    panics.store(false, Ordering::Relaxed);
    fixture.assert_same(mount.dir());
}

#[test]
fn who_is_told_of_a_fault_and_panics_leaves_no_reader_without_an_answer() {
    let fixture = Fixture::new();
    let bytes = fs::read(fixture.image("app.img", &[])).expect("made");
    let fails = Arc::new(AtomicBool::new(false));
    let source = Failing {
        bytes,
        fails: fails.clone(),
        panics: Arc::default(),
    };
    let image = Image::from_source(source, &OpenOptions::new()).expect("made");
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let mut options = ServeOptions::default();
    options.on_fault = Arc::new(move |fault| {
        tell.store(true, Ordering::Relaxed);
        panic!("as the test wants: {fault}")
    });
    let mount = Mounted::new(fixture.empty_dir("at"), image, options);
    fails.store(true, Ordering::Relaxed);
    let error = fs::read(mount.path("noise")).expect_err("the disk fails");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert!(told.load(Ordering::Relaxed));
    fails.store(false, Ordering::Relaxed);
    fixture.assert_same(mount.dir());
}

#[test]
fn a_damaged_block_is_an_error_for_its_readers_and_told_once() {
    let fixture = Fixture::new();
    let path = fixture.image("app.img", &["-no-fragments", "-comp", "zstd"]);
    let mut bytes = fs::read(path).expect("made");
    // The first zstd frame is a data block, because those come before everything else.
    let frame = bytes
        .windows(4)
        .position(|magic| magic == [0x28, 0xb5, 0x2f, 0xfd]);
    let at = frame.expect("text can be compressed");
    bytes[at] ^= 1;
    let image = Image::from_source(bytes, &OpenOptions::new()).expect("only a block is damaged");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut options = ServeOptions::default();
    options.on_fault = Arc::new(move |fault| tell.lock().expect("sane").push(fault.to_string()));
    let mount = Mounted::new(fixture.empty_dir("at"), image, options);
    let failed = || {
        [
            "noise",
            "text",
            "plain",
            "sub/inside",
            "bin/app",
            "bin/orphan",
        ]
        .into_iter()
        .filter(|name| match fs::read(mount.path(name)) {
            Ok(found) => {
                let wanted = fs::read(fixture.path("tree").join(name)).expect("ours");
                // Damage in a block that is stored raw is invisible.
                found != wanted
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(Errno::IO.raw_os_error()));
                true
            }
        })
        .count()
    };
    assert_eq!(failed(), 1);
    let first = told.lock().expect("sane").clone();
    assert_eq!(failed(), 1);
    assert_eq!(*told.lock().expect("sane"), first);
    let [fault] = first.as_slice() else {
        panic!("{first:?}");
    };
    assert!(
        fault.starts_with(&format!("corrupt image at byte {at}: a data block")),
        "{fault}"
    );
}

#[test]
fn a_damaged_inode_harms_its_own_name_only() {
    let fixture = Fixture::new();
    let path = fixture.image("app.img", &["-noI"]);
    let sound = Image::open(&path).expect("made");
    let inode = sound.lookup("plain").expect("sound").expect("it is there");
    let mut bytes = fs::read(path).expect("made");
    // Bytes 64 to 72 say where the inode table starts. There is the header of an uncompressed block, and then
    // an inode with its type.
    let word = |at: usize| usize::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let at = word(64) + 2 + usize::try_from(inode.reference().to_word()).expect("one block");
    bytes[at] = 99;
    let image = Image::from_source(bytes, &OpenOptions::new()).expect("only an inode is damaged");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut options = ServeOptions::default();
    options.on_fault = Arc::new(move |fault| tell.lock().expect("sane").push(fault.to_string()));
    let mount = Mounted::new(fixture.empty_dir("at"), image, options);
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(mount.dir()), names(&fixture.path("tree")));
    for _ in 0..2 {
        let error = fs::metadata(mount.path("plain")).expect_err("it is damaged");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    assert!(
        fs::metadata(mount.path("text"))
            .expect("it is sound")
            .is_file()
    );
    let told = told.lock().expect("sane");
    let [fault] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert!(fault.contains("inode type is 99"), "{fault}");
}

#[test]
fn eight_readers_at_once_get_the_same_bytes() {
    let fixture = Fixture::new();
    let mount = mounted(&fixture, "at", &["-b", "4096"]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..3 {
                    fixture.assert_same(mount.dir());
                    let file = fs::File::open(mount.path("noise")).expect("it is there");
                    fadvise(&file, 0, None, Advice::DontNeed).expect("advice is free");
                }
            });
        }
    });
}

#[test]
fn an_unmount_and_an_abort_end_the_server() {
    let fixture = Fixture::new();
    for (name, flags) in [
        ("unmounted", UnmountFlags::empty()),
        ("aborted", UnmountFlags::FORCE | UnmountFlags::DETACH),
    ] {
        let mut mount = mounted(&fixture, name, &[]);
        fixture.assert_same(mount.dir());
        let held = fs::File::open(mount.path("sub")).expect("it is there");
        if flags.is_empty() {
            drop(held);
            unmounted(|| unmount(mount.dir(), flags));
        } else {
            // A detached mount lives as long as somebody holds it. Only the abort ends it.
            unmount(mount.dir(), flags).expect("it is mounted");
            let path = format!("/proc/self/fd/{}/none", held.as_raw_fd());
            let error = fs::read(path).expect_err("nobody answers");
            assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
        }
        let server = mount.server.take().expect("not dropped");
        let result = server.join().expect("the server does not panic");
        result.expect("it is the regular end");
        // For `drop`.
        mount.server = Some(thread::spawn(|| Ok(())));
    }
}

#[test]
fn an_ordinary_user_is_served_in_a_user_namespace() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let at = fixture.empty_dir("at");
    let program = fixture.path("fuse");
    copy_program(example(), &program);
    for path in [&image, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    // As udev leaves it. In some containers only root may open it.
    let device = fs::metadata("/dev/fuse").expect("these tests need /dev/fuse");
    if device.permissions().mode() & 0o006 != 0o006 {
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).expect("root may");
    }
    let script = r#"
        "$1" "$2" "$3" & server=$!
        while ! test -e "$3/plain"; do sleep 0.01; kill -0 $server || exit 9; done
        stat -c '%u:%g %a' "$3/plain"
        cat "$3/sub/inside" && cksum < "$3/noise"
        umount "$3" && wait $server
    "#;
    let output = Command::new("timeout")
        .args([
            "-s",
            "KILL",
            "40",
            "setpriv",
            "--reuid=1000",
            "--regid=1000",
            "--clear-groups",
        ])
        .args([
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .args([&program, &image, &at])
        .output()
        .expect("timeout, setpriv and unshare are there");
    let (out, err) = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .into();
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    let noise = fs::File::open(fixture.path("tree/noise")).expect("ours");
    let sum = Command::new("cksum")
        .stdin(noise)
        .output()
        .expect("it is there");
    let sum = String::from_utf8_lossy(&sum.stdout).into_owned();
    assert_eq!(out, format!("0:0 644\nfrom the image{sum}"));
}

/// Every path below `dir`, with its metadata.
fn listing(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).expect("it was listed");
            assert_eq!(entry.file_type().expect("known"), meta.file_type());
            assert_eq!(entry.metadata().expect("it was listed").ino(), meta.ino());
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let said = format!(
                "{:o} {size} {}:{} x{} @{} {:x}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.mtime(),
                meta.rdev()
            );
            found.insert(path.strip_prefix(dir).expect("below").to_owned(), said);
            if meta.is_dir() {
                left.push(path);
            }
        }
    }
    found
}
