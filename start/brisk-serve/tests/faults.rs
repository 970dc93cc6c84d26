//! A disk that fails, ends early, gives one byte, or is late at call N, for all N: readers get the right bytes or an error,
//! and the next try succeeds.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::hot_pack::{HotPackWriter, Prefer};
use brisk_image::profile::{Origin, Profile};
use brisk_image::{Image, ImageWriter, Limits, OpenOptions, Tree, TreeRules};
use brisk_serve::{Fill, FillRoot, PackCandidate, ServeOptions};
use rustix::io::Errno;

mod fixture;
use fixture::Fixture;
use fixture::mounted::Mounted;

/// What a read does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The disk is broken.
    Error,
    /// The source ends here, though it said that it was longer.
    End,
    /// One byte comes, which is no failure.
    OneByte,
    /// The bytes come after a while.
    Late,
}

const FAULTS: [Fault; 4] = [Fault::Error, Fault::End, Fault::OneByte, Fault::Late];

/// The bytes of an image on a disk that does something else than it should at call `at`, and at `more` after it.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Vec<u8>>,
    calls: Arc<AtomicU64>,
    at: u64,
    more: u64,
    fault: Fault,
}

impl Disk {
    fn new(bytes: &Arc<Vec<u8>>, at: u64, more: u64, fault: Fault) -> Self {
        Self {
            bytes: Arc::clone(bytes),
            calls: Arc::default(),
            at,
            more,
            fault,
        }
    }

    /// The image on it.
    fn open(&self) -> Image {
        tried(self.more, || {
            Image::from_source(self.clone(), &OpenOptions::new())
        })
        .expect("the faults are over")
    }
}

impl brisk_io::ByteSource for Disk {
    fn size(&self) -> std::io::Result<u64> {
        brisk_io::ByteSource::size(&*self.bytes)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        if self
            .calls
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_sub(self.at)
            <= self.more
        {
            match self.fault {
                Fault::Error => return Err(Errno::IO.into()),
                Fault::End => return Ok(0),
                Fault::OneByte => {
                    return brisk_io::ByteSource::read_bytes_at(
                        &*self.bytes,
                        offset,
                        &mut buf[..1],
                    );
                }
                Fault::Late => thread::sleep(Duration::from_millis(30)),
            }
        }
        brisk_io::ByteSource::read_bytes_at(&*self.bytes, offset, buf)
    }
}

/// Tries again after an error, if there is one more for each fault.
fn tried<T, E>(more: u64, mut operation: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let failed = (0..=more).find_map(|_| operation().ok());
    failed.map_or_else(operation, Ok)
}

/// Serves what is tried without telling anybody of faults.
fn quiet() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.on_fault = Arc::new(|_| {});
    options
}

/// Reads each file of the tree below `mounted`. Returns how many tries failed.
fn read_all(fixture: &Fixture, mounted: &Path, more: u64, context: &str) -> usize {
    let mut failed = 0;
    for name in ["noise", "text", "plain", "sub/inside", "bin/app"] {
        let wanted = fs::read(fixture.path("tree").join(name)).expect("it was made");
        let found = tried(more, || {
            fs::read(mounted.join(name)).inspect_err(|e| {
                assert_eq!(
                    e.raw_os_error(),
                    Some(Errno::IO.raw_os_error()),
                    "{context}: {name}: {e}"
                );
                failed += 1;
            })
        });
        let found = found.unwrap_or_else(|e| panic!("{context}: {name}: the last try fails: {e}"));
        assert!(found == wanted, "{context}: {name} has other bytes");
    }
    failed
}

#[test]
fn an_image_on_a_disk_that_fails_at_any_call_is_read_right_or_not_at_all() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &["-b", "32K"]);
    let bytes = Arc::new(fs::read(image).expect("it was made"));
    let serve = |at, fault| {
        let context = format!("{fault:?} at call {at}");
        let disk = Disk::new(&bytes, at, 0, fault);
        let dir = fixture.empty_dir(&context);
        let mount = Mounted::new(dir.clone(), disk.open(), quiet());
        let failed = read_all(&fixture, mount.dir(), 0, &context);
        drop(mount);
        fs::remove_dir(dir).expect("it was unmounted");
        (failed, disk.calls.load(Ordering::Relaxed))
    };
    let (failed, calls) = serve(u64::MAX, Fault::Error);
    assert_eq!(failed, 0);
    assert!(calls > 40, "{calls}");
    for fault in FAULTS {
        let failed: usize = (0..calls).map(|at| serve(at, fault).0).sum();
        // A reader notices errors, and nothing else.
        assert_eq!(
            failed > 0,
            [Fault::Error, Fault::End].contains(&fault),
            "{fault:?}"
        );
    }
}

/// Where the pack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pack {
    Behind,
    /// `IMAGE.hot`, which was not compared with the image: the pages are those of the image.
    Beside,
}

/// The image and its pack are in a file of another mount, whose disk fails three times: the kernel tries again what it
/// could not read ahead.
#[test]
fn a_fill_from_a_disk_that_fails_at_any_call_stores_no_wrong_byte() {
    fill_from_failing_disks(Pack::Behind);
}

#[test]
fn a_fill_by_a_pack_beside_from_a_disk_that_fails_at_any_call_stores_no_wrong_byte() {
    fill_from_failing_disks(Pack::Beside);
}

fn fill_from_failing_disks(pack: Pack) {
    const MORE: u64 = 2;
    let fixture = Fixture::new();
    let outer = outer_image(&fixture, pack);
    let bytes = Arc::new(fs::read(outer).expect("it was made"));
    let fill = |at, fault| {
        let context = format!("fill, {fault:?} at call {at}");
        let disk = Disk::new(&bytes, at, MORE, fault);
        let (outer, inner) = (
            fixture.empty_dir(&format!("{context}, outer")),
            fixture.empty_dir(&context),
        );
        let mount = Mounted::new(outer.clone(), disk.open(), quiet());
        let path = mount.path("app.img");

        let image = || File::open(&path).and_then(|file| Ok((Image::open(&path)?, file)));
        let (image, file) = tried(MORE, image).expect("the faults are over");
        let mut options = quiet();
        let candidate = || -> std::io::Result<_> {
            match pack {
                Pack::Behind => Ok(PackCandidate::behind(path.clone(), file.try_clone()?)),
                // There is none if the superblock of the image cannot be read.
                Pack::Beside => PackCandidate::beside(&path, &file, 0).ok_or(Errno::IO.into()),
            }
        };
        let candidate = tried(MORE, candidate).expect("the faults are over");
        let root = FillRoot::At(inner.clone());
        options.fill = Some(Arc::new(Fill::new(vec![candidate], |_| {}).at(root)));
        let filled = Mounted::new(inner.clone(), image, options);
        let deadline = Instant::now() + Duration::from_secs(20);
        while filled.counts().fill.over == 0 {
            assert!(
                Instant::now() < deadline,
                "{context}: {:?}",
                filled.counts()
            );
            thread::sleep(Duration::from_micros(200));
        }
        read_all(&fixture, filled.dir(), MORE, &context);
        let counts = filled.counts().fill;
        drop(filled);
        drop(mount);
        for dir in [outer, inner] {
            fs::remove_dir(dir).expect("it was unmounted");
        }
        (counts, disk.calls.load(Ordering::Relaxed))
    };
    let (counts, calls) = fill(u64::MAX, Fault::Error);
    assert_eq!(
        (counts.stored, counts.damaged),
        (counts.pack, 0),
        "{counts:?}"
    );
    assert!(
        counts.pack > 50 && calls > 20,
        "{counts:?} in {calls} calls"
    );
    for fault in FAULTS {
        let less = (0..calls).filter(|at| {
            let (counts, _) = fill(*at, fault);
            counts.stored < counts.pack || counts.pack == 0
        });
        let less = less.count();
        // The kernel asks again for what is short, and waits for what is late.
        assert_eq!(
            less > 0,
            [Fault::Error, Fault::End].contains(&fault),
            "{fault:?}: {less}"
        );
    }
}

/// An image that holds an image and its hot pack, all stored raw, so that each read of the inner is one of the outer.
fn outer_image(fixture: &Fixture, pack: Pack) -> std::path::PathBuf {
    let digest = |name: &str| {
        let bytes = fs::read(fixture.path("tree").join(name)).expect("it was made");
        (bytes.len(), bytes.len().div_ceil(4096))
    };
    let ((noise, noise_pages), (text, text_pages)) = (digest("noise"), digest("text"));
    let profile = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1, "roots": [["/opt/app", "directory"]],
"files": [[0, "noise", {noise}, null], [0, "text", {text}, null]], "directories": [[0, ""]],
"steps": [["found", 0, "noise", 1, 1], ["pages", 0, 0, {noise_pages}, 2, 1], ["absent", 0, "none", 3, 1],
["pages", 1, 0, {text_pages}, 4, 1]]}}"#
    );
    let path = fixture.path("app.profile");
    fs::write(&path, profile).expect("room");
    let profile = Profile::open(&path, &Limits::default()).expect("it is one");
    let tree = Tree::from_directory(fixture.path("tree"), &TreeRules::default()).expect("a tree");
    fs::create_dir(fixture.path("outer")).expect("room");
    let image = fixture.path("outer/app.img");
    match pack {
        Pack::Behind => {
            let writer = ImageWriter::new().hot_pack(profile, Prefer::Speed);
            writer.write(&tree, &image).expect("room");
        }
        Pack::Beside => {
            ImageWriter::new().write(&tree, &image).expect("room");
            let hot = fixture.path("outer/app.img.hot");
            let origin = Origin::image(&Image::open(&image).expect("it was made"));
            let writer = HotPackWriter::new();
            writer.write(&profile, &origin, &hot).expect("room");
            // Others may write it, so that no result is kept in the cache of whoever runs this.
            fs::set_permissions(hot, fs::Permissions::from_mode(0o666)).expect("it is ours");
        }
    }
    let outer = fixture.path("outer.img");
    let tree = Tree::from_directory(fixture.path("outer"), &TreeRules::default()).expect("a tree");
    ImageWriter::new()
        .compression(brisk_image::Compression::None)
        .block_size(32 << 10)
        .write(&tree, &outer)
        .expect("room");
    outer
}
