//! Mounting and unmounting real images, as root.
mod fixture;

use std::error::Error as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use brisk_launch::{Error, ErrorKind};
use brisk_serve::{
    Backing, DirectIo, KernelMount, KernelSupport, LoopDevice, MountOptions, Support, read_ahead,
    unmount,
};
use fixture::programs::copy_program;
use fixture::{Fixture, runner, unmounted};

/// Unmounts when a test fails between.
struct Mounted(KernelMount);

impl Mounted {
    fn new(image: &Path, target: &Path, options: &MountOptions) -> Self {
        Self(KernelMount::new(image, target, options).unwrap_or_else(|e| panic!("{}", chain(&e))))
    }

    fn direct_io(&self) -> bool {
        match self.0.backing() {
            Backing::Loop { direct_io, .. } => *direct_io,
            Backing::BlockDevice => panic!("a loop device is expected"),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if thread::panicking() {
            unmount(self.0.target(), true).ok();
        } else {
            unmounted(|| unmount(self.0.target(), false));
        }
    }
}

fn chain(error: &Error) -> String {
    let source = error.source().map(|s| format!(" ({s})"));
    format!("{error}{}", source.unwrap_or_default())
}

/// The kind and text of the error, with the fixture's directory shown as `DIR`.
fn refusal(fixture: &Fixture, image: &str, target: &str) -> (ErrorKind, String) {
    refusal_with(fixture, image, target, &MountOptions::default())
}

fn refusal_with(
    fixture: &Fixture,
    image: &str,
    target: &str,
    options: &MountOptions,
) -> (ErrorKind, String) {
    let error = KernelMount::new(&fixture.path(image), &fixture.path(target), options)
        .expect_err("the mount must be refused");
    let dir = fixture.dir.path().display().to_string();
    fixture.assert_no_loop_device();
    (error.kind(), chain(&error).replace(&dir, "DIR"))
}

fn mount_flags(target: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("procfs");
    let target = target.display().to_string();
    let mut lines = table.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    let line = lines.find(|l| l[4] == target).expect("it is mounted");
    line[5].to_owned()
}

#[test]
fn images_of_every_codec_are_mounted_and_leave_nothing() {
    let fixture = Fixture::new();
    let support = KernelSupport::probe();
    for codec in ["gzip", "lz4", "lzo", "xz", "zstd"] {
        let image = fixture.image(&format!("{codec}.img"), &["-comp", codec]);
        let target = fixture.empty_dir(codec);
        let mut options = MountOptions::default();
        options.codec = Some(codec.into());
        if support.codec(codec) == Support::No {
            let error = KernelMount::new(&image, &target, &options).expect_err(codec);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{codec}: {error}");
            continue;
        }
        let mounted = Mounted::new(&image, &target, &options);
        fixture.assert_same(&target);
        assert_eq!(mount_flags(mounted.0.target()), "ro,nosuid,nodev,relatime");
        drop(mounted);
        assert_eq!(
            fs::read_dir(&target).expect("the directory stays").count(),
            0,
            "{codec}"
        );
    }
    fixture.assert_no_loop_device();
}

#[test]
fn suid_and_dev_are_options() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let target = fixture.empty_dir("at");
    let mut options = MountOptions::default();
    (options.suid, options.dev) = (true, true);
    let mounted = Mounted::new(&image, &target, &options);
    assert_eq!(mount_flags(mounted.0.target()), "ro,relatime");
}

#[test]
fn an_image_inside_another_file_is_mounted() {
    let fixture = Fixture::new();
    let image = fs::read(fixture.image("app.img", &[])).expect("the image can be read");
    // Neither offset is a multiple of a page. The first suits no disk's blocks.
    for (offset, tail) in [(1_000_001, 5000), (512 * 77, 0)] {
        let mut carrier = vec![0xee; offset];
        carrier.extend_from_slice(&image);
        carrier.resize(carrier.len() + tail, 0xee);
        let carrier_path = fixture.path(&format!("carrier-{offset}"));
        fs::write(&carrier_path, carrier).expect("the file can be written");
        let target = fixture.empty_dir(&format!("at-{offset}"));
        let mut options = MountOptions::default();
        options.offset = offset as u64;
        let mounted = Mounted::new(&carrier_path, &target, &options);
        fixture.assert_same(&target);
        if offset % 512 != 0 {
            assert!(!mounted.direct_io());
        }
    }
    fixture.assert_no_loop_device();
}

#[test]
fn a_block_device_needs_no_loop_device_of_ours() {
    let fixture = Fixture::new();
    let image = File::open(fixture.image("app.img", &[])).expect("the image can be read");
    let device = LoopDevice::attach(&image, 0, None, DirectIo::Never).expect("a loop device");
    let target = fixture.empty_dir("at");
    let mounted = Mounted::new(device.path(), &target, &MountOptions::default());
    assert_eq!(mounted.0.backing(), &Backing::BlockDevice);
    fixture.assert_same(&target);
    drop(mounted);
    drop(device);
    fixture.assert_no_loop_device();
}

/// An image that ends in a block of its own: `used % 4096` is within 1..=512. So padding to 512, 1024 and
/// 4096 gives three lengths.
fn unpadded_image(fixture: &Fixture) -> (PathBuf, u64) {
    for n in 0..200u32 {
        let filler: Vec<u8> = (0..n * 97).flat_map(|i| (i * i).to_le_bytes()).collect();
        fs::write(fixture.path("tree/filler"), filler).expect("the tree can be written");
        let options = ["-nopad", "-noI", "-noD", "-noF", "-noX"];
        let image = fixture.image("unpadded.img", &options);
        let len = fs::metadata(&image).expect("the image is there").len();
        if (1..=512).contains(&(len % 4096)) {
            return (image, len);
        }
    }
    panic!("no size of the filler makes such an image");
}

#[test]
fn a_last_block_that_the_kernel_would_drop_is_refused() {
    let fixture = Fixture::new();
    let (image, len) = unpadded_image(&fixture);
    let target = fixture.empty_dir("at");
    let file = OpenOptions::new()
        .write(true)
        .open(&image)
        .expect("the image can be written");
    let refused = (
        ErrorKind::Image,
        format!(
            "cannot mount DIR/unpadded.img: the image ends at {len} bytes, inside a block of 1024, \
             and the kernel cannot read such a last block; pad the file to a multiple of 4096 \
             bytes (truncate -s %4096 FILE)"
        ),
    );
    assert_eq!(refusal(&fixture, "unpadded.img", "at"), refused);
    // Whole sectors are not enough: SquashFS reads blocks of 1024.
    file.set_len(len.next_multiple_of(512)).expect("padding");
    assert_eq!(refusal(&fixture, "unpadded.img", "at"), refused);
    for pad in [1024, 4096] {
        file.set_len(len.next_multiple_of(pad)).expect("padding");
        let mounted = Mounted::new(&image, &target, &MountOptions::default());
        fixture.assert_same(&target);
        drop(mounted);
    }
    file.set_len(len - 1).expect("cutting");
    assert_eq!(
        refusal(&fixture, "unpadded.img", "at"),
        (
            ErrorKind::Image,
            format!(
                "cannot mount DIR/unpadded.img: the image needs {len} bytes, but there are only {}; \
                 get a complete copy of it",
                len - 1
            )
        )
    );
}

/// Runs a tool that the test needs.
fn tool(name: &str, arguments: &[&Path]) {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{name} is needed for this test: {e}"));
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The disk with blocks of 4096 bytes is a loop device with such blocks. Direct I/O on it works only for an
/// image that fills its last 4096 bytes.
#[test]
fn direct_io_is_given_up_where_the_disk_would_cut_the_image() {
    let fixture = Fixture::new();
    let (image, len) = unpadded_image(&fixture);
    let disk = fixture.path("disk");
    File::create(&disk)
        .and_then(|f| f.set_len(64 << 20))
        .expect("a sparse file");
    tool(
        "mkfs.ext4",
        &[Path::new("-q"), Path::new("-b"), Path::new("4096"), &disk],
    );
    let output = Command::new("losetup")
        .args(["--find", "--show", "--sector-size", "4096"])
        .arg(&disk)
        .output()
        .expect("losetup is needed for this test: install util-linux");
    assert!(output.status.success(), "losetup: {output:?}");
    let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let volume = fixture.empty_dir("volume");
    tool("mount", &[&device, &volume]);
    // From now on the device disappears with the mount.
    tool("losetup", &[Path::new("-d"), &device]);
    let copy = volume.join("app.img");
    let target = fixture.empty_dir("at");
    let mut direct = Vec::new();
    for pad in [1024, 4096] {
        fs::copy(&image, &copy).expect("the image can be copied");
        let file = OpenOptions::new().write(true).open(&copy).expect("a file");
        file.set_len(len.next_multiple_of(pad)).expect("padding");
        file.sync_all().expect("the disk takes it");
        let mounted = Mounted::new(&copy, &target, &MountOptions::default());
        fixture.assert_same(&target);
        direct.push((pad, mounted.direct_io()));
    }
    tool("umount", &[&volume]);
    assert_eq!(direct, [(1024, false), (4096, true)]);
    fixture.assert_no_loop_device();
}

#[test]
fn each_refusal_says_what_is_wrong_and_the_cure() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    fixture.empty_dir("at");
    fs::write(fixture.path("short"), "hsqs").expect("a file");
    fs::write(fixture.path("zeros"), [0; 4096]).expect("a file");
    symlink("/dev/null", fixture.path("null")).expect("a link");
    let bytes = fs::read(&image).expect("the image can be read");
    let damaged = |name: &str, at: u64, with: &[u8]| {
        fs::write(fixture.path(name), &bytes).expect("a file");
        OpenOptions::new()
            .write(true)
            .open(fixture.path(name))
            .and_then(|f| f.write_all_at(with, at))
            .expect("a file");
    };
    // Compressor 2 is lzma, which no kernel decodes any more. Version 5.0. A length of 2^64 - 1.
    damaged("lzma.img", 20, &[2, 0]);
    damaged("new.img", 28, &[5, 0]);
    damaged("huge.img", 40, &u64::MAX.to_le_bytes());
    let cases = [
        (
            "none",
            "at",
            ErrorKind::Io,
            "cannot mount DIR/none: the system could not open the image \
             (No such file or directory (os error 2))"
                .to_owned(),
        ),
        (
            "short",
            "at",
            ErrorKind::Image,
            "cannot mount DIR/short: the image needs 96 bytes, but there are only 4; get a complete \
             copy of it"
                .to_owned(),
        ),
        (
            "zeros",
            "at",
            ErrorKind::Image,
            "cannot mount DIR/zeros: magic number is 0x00000000, allowed is 0x73717368 \
             (SquashFS, little-endian)"
                .to_owned(),
        ),
        (
            "null",
            "at",
            ErrorKind::Image,
            "cannot mount DIR/null: it is neither a regular file nor a block device; \
             name the image's file"
                .to_owned(),
        ),
        (
            "app.img",
            "none",
            ErrorKind::Place,
            "cannot mount DIR/app.img: DIR/none does not exist; make the directory first"
                .to_owned(),
        ),
        (
            "app.img",
            "zeros",
            ErrorKind::Place,
            "cannot mount DIR/app.img: DIR/zeros is not a directory; name a directory to mount on"
                .to_owned(),
        ),
        (
            "lzma.img",
            "at",
            ErrorKind::Unsupported,
            "cannot mount DIR/lzma.img: the kernel was built without the lzma decompressor; \
             it can read zstd"
                .to_owned(),
        ),
        (
            "huge.img",
            "at",
            ErrorKind::Image,
            format!(
                "cannot mount DIR/huge.img: the image needs 18446744073709551615 bytes, \
                 but there are only {}; get a complete copy of it",
                bytes.len()
            ),
        ),
        (
            "new.img",
            "at",
            ErrorKind::Image,
            "cannot mount DIR/new.img: the kernel refused the image: Major/Minor mismatch, \
             trying to mount newer 5.0 filesystem; Please update your kernel (Invalid argument (os error 22))"
                .to_owned(),
        ),
    ];
    for (image, target, kind, text) in cases {
        assert_eq!(refusal(&fixture, image, target), (kind, text));
    }
}

#[test]
fn without_root_it_says_so() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let at = fixture.empty_dir("at");
    // If others may not enter the build directory, they can still start a copy.
    let copy = fixture.path("run");
    copy_program(runner(), &copy);
    let output = Command::new(&copy)
        .args([&image, &at, Path::new("bin/app")])
        .uid(65534)
        .gid(65534)
        .output()
        .expect("the program starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        format!(
            "cannot mount {}: this needs root (CAP_SYS_ADMIN); run it as root, for example with sudo\n",
            image.display()
        )
    );
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn without_loop_devices_it_says_so() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let at = fixture.empty_dir("at");
    let output = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-ec",
            "mount -t tmpfs none /dev; exec \"$@\"",
            "sh",
        ])
        .args([&runner(), &image, &at, Path::new("bin/app")])
        .output()
        .expect("unshare is needed for this test: install util-linux");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        format!(
            "cannot mount {}: there is no /dev/loop-control; load loop devices with modprobe loop, \
             or give a container the host's /dev\n",
            image.display()
        )
    );
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn only_squashfs_is_unmounted() {
    let fixture = Fixture::new();
    let image = fixture.image("app.img", &[]);
    let at = fixture.empty_dir("a b\\c");
    let shown = at.display();
    let text = |target: &Path, lazy| {
        let error = unmount(target, lazy).expect_err("it must be refused");
        (error.kind(), chain(&error))
    };
    assert_eq!(
        text(&at, false),
        (
            ErrorKind::Place,
            format!("cannot unmount {shown}: it is not a mount point")
        )
    );
    assert_eq!(
        text(Path::new("/proc"), true),
        (
            ErrorKind::Place,
            "cannot unmount /proc: the mount there is proc, not squashfs; \
             unmount it with umount"
                .to_owned()
        )
    );
    let none = fixture.path("none");
    assert_eq!(
        text(&none, false),
        (
            ErrorKind::Place,
            format!(
                "cannot unmount {}: there is nothing of this name",
                none.display()
            )
        )
    );
    let mounted = KernelMount::new(&image, &at, &MountOptions::default()).expect("a mount");
    let user = File::open(mounted.target().join("text")).expect("a file");
    assert_eq!(
        text(&at, false),
        (
            ErrorKind::Busy,
            format!("cannot unmount {shown}: a program still uses it (fuser -vm shows it)")
        )
    );
    // With `lazy` it disappears at once, and its user keeps it until the end.
    unmount(&at, true).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(fs::read_dir(&at).expect("the directory stays").count(), 0);
    let mut first = [0; 6];
    user.read_exact_at(&mut first, 0).expect("it can be read");
    assert_eq!(&first, b"brisk ");
    assert!(fixture.loop_device().is_some());
    drop(user);
    fixture.assert_no_loop_device();
}

#[test]
fn the_probe_agrees_with_the_kernel() {
    let support = KernelSupport::probe();
    let listed = fs::read_to_string("/proc/filesystems").expect("procfs");
    if listed.contains("\tsquashfs\n") {
        assert_eq!(support.squashfs, Support::Yes);
    }
    let release = Command::new("uname").arg("-r").output().expect("uname");
    assert_eq!(
        support.release,
        String::from_utf8_lossy(&release.stdout).trim()
    );
    assert_eq!(support.page_size % 4096, 0);
    assert_eq!(support.codec("none"), Support::Yes);
    if let Some(node) = support.loop_control {
        assert!(node.allowed, "{node:?}");
    }
    if let Some(bytes) = read_ahead(Path::new("/")).expect("/ exists") {
        assert_eq!(bytes % 1024, 0);
    }
    assert_eq!(
        read_ahead(Path::new("/none/such"))
            .expect_err("nothing there")
            .to_string(),
        "cannot find the read-ahead of /none/such: the system could not examine the file"
    );
}
