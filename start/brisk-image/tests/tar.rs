//! Trees from tar archives: against the directory that GNU tar and bsdtar archived, and what
//! archives made to do harm are refused with.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brisk_image::rules::Times;
use brisk_image::{ErrorKind, Image, ImageWriter, InodeKind, Tree, TreeRules};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
use tempfile::TempDir;

/// A directory on a disk: attributes and holes may be missing elsewhere.
fn temporary() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The bytes of the image of `tree`.
fn image(tree: &Tree) -> Vec<u8> {
    let dir = temporary();
    let path = dir.path().join("image");
    let writer = ImageWriter::new().recipe(false).threads(2);
    writer.write(tree, &path).unwrap();
    fs::read(path).unwrap()
}

fn from_bytes(archive: &[u8], rules: &TreeRules) -> brisk_image::Result<Tree> {
    Tree::from_tar(archive, temporary().path(), rules)
}

fn refusal(archive: &[u8]) -> (ErrorKind, String) {
    let e = from_bytes(archive, &TreeRules::default()).unwrap_err();
    (e.kind(), e.to_string())
}

/// A directory with what tells formats apart: `plain` holds what all formats keep, `devices` what
/// v7 does not, `rich` what only PAX and GNU do, and `numbers` a device that bsdtar keeps in PAX
/// only.
fn sample() -> TempDir {
    let dir = temporary();
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).unwrap();
    for name in [
        "plain",
        "plain/empty",
        "plain/sub",
        "devices",
        "rich",
        "numbers",
    ] {
        fs::create_dir(at(name)).unwrap();
    }
    write("plain/nothing", b"");
    write("plain/one", b"1");
    write("plain/block", &[b'b'; 512]);
    let noise: Vec<u8> = (0..300_000u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    write("plain/noise", &noise);
    write("plain/-x %41 \\n\n\u{e9}=\"", b"odd");
    fs::write(
        dir.path().join(OsStr::from_bytes(b"plain/\xff\x1b[2J")),
        b"not UTF-8",
    )
    .unwrap();
    fs::hard_link(at("plain/one"), at("plain/sub/another")).unwrap();
    fs::hard_link(at("plain/one"), at("plain/zzz")).unwrap();
    symlink("one", at("plain/link")).unwrap();
    symlink("../nowhere", at("plain/sub/dangling")).unwrap();
    for (name, mode) in [
        ("plain/one", 0o4711),
        ("plain/empty", 0o1777),
        ("plain/block", 0o400),
        ("plain/sub", 0o2750),
    ] {
        fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    mknodat(
        CWD,
        at("devices/fifo"),
        FileType::Fifo,
        Mode::from(0o640),
        0,
    )
    .unwrap();

    let long = "long".repeat(30);
    let deep = format!("rich/{long}/{long}");
    fs::create_dir_all(at(&deep)).unwrap();
    write(&format!("{deep}/{}", "n".repeat(255)), b"long name");
    symlink("t".repeat(1000), at("rich/long-target")).unwrap();
    fs::hard_link(at(&format!("{deep}/{}", "n".repeat(255))), at("rich/short")).unwrap();
    // No hole; pieces for one header; for two blocks behind it; nothing but a hole; a hole at
    // the end.
    for (name, pieces, len) in [
        ("rich/sparse-few", 3, 1_000_000),
        ("rich/sparse-many", 60, 8 << 20),
        ("rich/sparse-none", 0, 3_000_001),
        ("rich/sparse-end", 1, 5 << 20),
    ] {
        let file = File::create(at(name)).unwrap();
        file.set_len(len).unwrap();
        for i in 0..pieces {
            let offset = i * (len / pieces) + 70_000 * u64::from(pieces > 1);
            file.write_all_at(format!("{name} {i}").as_bytes(), offset / 2)
                .unwrap();
        }
        if name == "rich/sparse-few" {
            file.write_all_at(b"end", len - 3).unwrap();
        }
    }
    for (name, attribute, value) in [
        ("rich/short", "user.lines", b"a\nb=c\n12 d=e\n\0".as_slice()),
        ("rich/short", "user.a=b%c%3D", b"name"),
        ("rich/short", "user.empty", b""),
        ("rich/sparse-few", "user.lines", b"other"),
        ("rich", "user.of a directory", b"\xff\xfe"),
    ] {
        setxattr(at(name), attribute, value, XattrFlags::empty()).unwrap();
    }
    if is_root() {
        for (name, kind, device) in [
            ("devices/char", FileType::CharacterDevice, makedev(5, 1)),
            ("devices/block", FileType::BlockDevice, makedev(259, 3)),
            (
                "numbers/block",
                FileType::BlockDevice,
                makedev(259, 300_000),
            ),
        ] {
            mknodat(CWD, at(name), kind, Mode::from(0o600), device).unwrap();
        }
        let value = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        setxattr(
            at("rich/short"),
            "security.capability",
            value,
            XattrFlags::empty(),
        )
        .unwrap();
        setxattr(
            at("rich"),
            "trusted.overlay.opaque",
            b"y",
            XattrFlags::empty(),
        )
        .unwrap();
        std::os::unix::fs::chown(at("plain/noise"), Some(1000), Some(2000)).unwrap();
        // More than the octal digits of a header hold.
        std::os::unix::fs::chown(at("rich/sparse-end"), Some(4_000_000_000), Some(3_000_000))
            .unwrap();
    }
    dir
}

/// What the command writes; it must succeed.
fn output(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    output.stdout
}

/// Archives `sample()` by each of `commands`, and compares what is packed from the archive, as it
/// comes and in place, to what is packed from the directory.
///
/// With each command stands what its archive must hold, so that it is known to be of the form that
/// is meant: the types of entries, and a text.
fn compare(leave_out: &[&str], xattrs: bool, commands: &[(&str, &str, &str)]) {
    let dir = sample();
    let excluded: Vec<_> = leave_out.iter().map(|name| format!("/{name}")).collect();
    let rules = TreeRules::default()
        .exclude(&excluded)
        .unwrap()
        .xattrs(xattrs);
    let tree = Tree::from_directory(dir.path(), &rules).unwrap();
    let expected = image(&tree);
    for (command, types, text) in commands {
        let mut words = command.split(' ');
        let mut tar = Command::new(words.next().unwrap());
        tar.args(words)
            .args(leave_out.iter().map(|name| format!("--exclude=./{name}")));
        tar.args(["-cf", "-", "-C"]).arg(dir.path()).arg(".");
        let archive = output(&mut tar);
        let holds = |text: &[u8]| archive.windows(text.len()).any(|part| part == text);
        let headers = || archive.chunks(512).filter(|block| block.len() == 512);
        for kind in types.bytes() {
            assert!(headers().any(|header| header[156] == kind), "{command}");
        }
        assert!(text.is_empty() || holds(text.as_bytes()), "{command}");
        let from_stream = from_bytes(&archive, &TreeRules::default()).unwrap();
        assert_eq!(from_stream.warnings(), [""; 0], "{command}");
        assert!(image(&from_stream) == expected, "{command}");

        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0xee; 1234]).unwrap();
        file.write_all(&archive).unwrap();
        file.seek(SeekFrom::Start(1234)).unwrap();
        let in_place = Tree::from_tar_file(file, &TreeRules::default()).unwrap();
        assert!(image(&in_place) == expected, "{command}, in place");
    }
}

#[test]
fn all_that_pax_keeps() {
    compare(
        &[],
        true,
        &[
            (
                "tar --xattrs --format=pax",
                "x012356",
                "SCHILY.xattr.user.a%3Db%25c%253D=",
            ),
            (
                "tar --xattrs --format=pax --sparse",
                "x",
                "GNU.sparse.major=1",
            ),
            (
                "tar --xattrs --format=pax --sparse --sparse-version=0.0",
                "x",
                "GNU.sparse.numbytes=",
            ),
            (
                "tar --xattrs --format=pax --sparse --sparse-version=0.1",
                "x",
                "GNU.sparse.map=",
            ),
            (
                "tar --xattrs --format=pax --sparse --sparse-version=1.0",
                "x",
                "GNU.sparse.realsize=",
            ),
            (
                "tar --xattrs --format=pax --pax-option=globexthdr.name=g,comment=all",
                "g",
                "comment=all",
            ),
            (
                "bsdtar --format=pax",
                "x",
                "LIBARCHIVE.xattr.user.a%3Db%25c%253D=",
            ),
            (
                "bsdtar --format=pax --read-sparse",
                "x",
                "GNU.sparse.major=1",
            ),
            (
                "bsdtar --format=pax --options=hdrcharset=BINARY",
                "x",
                "hdrcharset=BINARY",
            ),
        ],
    );
}

#[test]
fn all_that_gnu_keeps() {
    compare(
        &[],
        false,
        &[
            ("tar --format=gnu", "LK012356", "ustar  "),
            ("tar --format=gnu --sparse", "S", ""),
            (
                "tar --format=gnu --label=name-of-the-archive",
                "V",
                "name-of-the-archive",
            ),
            ("tar --format=gnu --incremental", "D", ""),
            ("tar --format=oldgnu --sparse", "S", ""),
        ],
    );
    compare(
        &["numbers"],
        false,
        &[("bsdtar --format=gnutar", "L", "ustar  ")],
    );
}

#[test]
fn all_that_ustar_keeps() {
    compare(
        &["rich", "numbers"],
        false,
        &[
            ("tar --format=ustar", "", "ustar\x0000"),
            ("bsdtar --format=ustar", "", "ustar\x0000"),
        ],
    );
}

#[test]
fn all_that_v7_keeps() {
    compare(
        &["rich", "numbers", "devices"],
        false,
        &[
            ("tar --format=v7", "12", ""),
            ("bsdtar --format=v7tar", "12", ""),
        ],
    );
}

/// Puts archives together, entry by entry, whether or not any program would.
struct Archive(Vec<u8>);

impl Archive {
    fn new() -> Self {
        Self(Vec::new())
    }

    /// An entry whose header `change` makes wrong.
    fn raw(
        mut self,
        kind: u8,
        name: &[u8],
        contents: &[u8],
        change: impl FnOnce(&mut tar::Header),
    ) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(100);
        header.set_size(contents.len() as u64);
        header.as_old_mut().linkflag = [kind];
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn entry(self, kind: u8, name: &str, contents: &[u8]) -> Self {
        self.raw(kind, name.as_bytes(), contents, |_| {})
    }

    fn file(self, name: &str, contents: &str) -> Self {
        self.entry(b'0', name, contents.as_bytes())
    }

    fn link(self, kind: u8, name: &str, target: &str) -> Self {
        self.raw(kind, name.as_bytes(), b"", |header| {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        })
    }

    /// An extended header; each record gets its length.
    fn records(self, kind: u8, records: &[&str]) -> Self {
        let records: String = records
            .iter()
            .map(|text| {
                let len = |digits| text.len() + digits + 2;
                let digits = (1..9).find(|&n| len(n).to_string().len() == n).unwrap();
                format!("{} {text}\n", len(digits))
            })
            .collect();
        self.entry(kind, "records", records.as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// All paths of `tree` in its image, with their metadata and contents.
fn listing(tree: &Tree) -> Vec<String> {
    let dir = temporary();
    let path = dir.path().join("image");
    fs::write(&path, image(tree)).unwrap();
    let image = Image::open(&path).unwrap();
    let lines = image.walk().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let inode = entry.inode();
        let what = match inode.kind() {
            InodeKind::Directory(_) => "directory".to_owned(),
            InodeKind::File(file) => {
                let mut bytes = vec![0; file.len() as usize];
                image.file(inode).unwrap().read_at(0, &mut bytes).unwrap();
                format!("file {:?}", String::from_utf8_lossy(&bytes))
            }
            InodeKind::Symlink(target) => format!("link to {target:?}"),
            other => format!("{other:?}"),
        };
        format!(
            "{} {:o} {}:{} {} {what}",
            entry.path().display(),
            inode.permissions(),
            inode.uid(),
            inode.gid(),
            inode.mtime()
        )
    });
    lines.collect()
}

#[test]
fn directories_without_an_entry_are_made() {
    let archive = Archive::new()
        .raw(b'0', b"a/b/c", b"x", |h| h.set_mtime(300))
        .raw(b'0', b"a/d", b"y", |h| h.set_mtime(200))
        .raw(b'5', b"a/b", b"", |h| {
            h.set_mode(0o700);
            h.set_mtime(50);
        });
    let without_root = from_bytes(&Archive(archive.0.clone()).end(), &TreeRules::default());
    assert_eq!(
        listing(&without_root.unwrap()),
        [
            " 755 0:0 300 directory",
            "a 755 0:0 300 directory",
            "a/b 700 0:0 50 directory",
            "a/b/c 644 0:0 300 file \"x\"",
            "a/d 644 0:0 200 file \"y\"",
        ]
    );
    let with_root = archive.raw(b'5', b"./", b"", |h| {
        h.set_mode(0o711);
        h.set_uid(7);
    });
    let with_root = from_bytes(&with_root.end(), &TreeRules::default()).unwrap();
    assert_eq!(
        listing(&with_root)[..2],
        [" 711 7:0 100 directory", "a 755 0:0 100 directory"]
    );
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    let archive = Archive::new()
        .file("a", "first")
        .link(b'1', "kept", "a")
        .file("a", "second")
        .entry(b'5', "empty", b"")
        .file("empty", "was a directory")
        .link(b'2', "s", "a")
        .entry(b'5', "s", b"")
        .file("s/in", "was a symbolic link")
        // Of a file to itself.
        .link(b'1', "./a", "/a")
        .end();
    let tree = from_bytes(&archive, &TreeRules::default()).unwrap();
    assert_eq!(
        listing(&tree)[1..],
        [
            "a 644 0:0 100 file \"second\"",
            "empty 644 0:0 100 file \"was a directory\"",
            "kept 644 0:0 100 file \"first\"",
            "s 644 0:0 100 directory",
            "s/in 644 0:0 100 file \"was a symbolic link\"",
        ]
    );
}

#[test]
fn rules_apply_as_to_a_directory() {
    let dir = sample();
    let rules = TreeRules::default()
        .exclude(&["/plain/one".into(), "/devices/".into(), "*target".into()])
        .and_then(|r| r.owner("/plain/sub/", Some(77), Some(78)))
        .and_then(|r| r.mode("*", "go-w,u+r".parse()?))
        .and_then(|r| r.xattr_names(&["user.*".into()], &["user.empty".into()]))
        .unwrap()
        .times(Times::AtMost(1_000_000_000));
    // The names of a hard link come in another order than in a directory.
    let archive = output(
        Command::new("tar")
            .args(["--xattrs", "--format=pax", "-cf", "-", "-C"])
            .arg(dir.path())
            .args(["./plain/one", "./rich", "./devices", "./plain", "."]),
    );
    let from_tar = from_bytes(&archive, &rules).unwrap();
    let from_directory = Tree::from_directory(dir.path(), &rules).unwrap();
    assert!(image(&from_tar) == image(&from_directory));
}

#[test]
fn a_hard_link_to_what_is_left_out_keeps_it() {
    let rules = TreeRules::default().exclude(&["/secret/".into()]).unwrap();
    let archive = Archive::new()
        .file("secret/a", "contents")
        .file("secret/b", "not these")
        .link(b'1', "public", "secret/a")
        .end();
    assert_eq!(
        listing(&from_bytes(&archive, &rules).unwrap()),
        [
            " 755 0:0 100 directory",
            "public 644 0:0 100 file \"contents\""
        ]
    );
}

#[test]
fn losses_are_warnings() {
    let archive = Archive::new()
        .file("/abs", "1")
        .file("//abs2", "2")
        .records(b'x', &["mtime=-5.5", "SCHILY.acl.access=user::rw-"])
        .file("old", "3")
        .raw(b'0', b"new", b"", |h| h.set_mtime(1 << 33))
        .end();
    let archive = [archive, vec![0; 9000], b"more".to_vec()].concat();
    let tree = from_bytes(&archive, &TreeRules::default()).unwrap();
    assert_eq!(
        tree.warnings(),
        [
            "2 names start with \"/\" and were taken from the root of the tree (the first is entry \"/abs\" at byte 0 of the archive)",
            "the archive ends at byte 5632, and what follows was left out; to pack several archives, join them with `tar -A`",
            "times before 1970 or after 2106 were moved to the nearest that SquashFS stores (2 files)",
            "xattr system.posix_acl_access cannot be stored: SquashFS has user.*, trusted.* and security.* only (1 file, the first is \"old\")",
        ]
    );
}

#[test]
fn odd_but_valid_archives() {
    for (archive, lines) in [
        (
            // Half an end, and no padding.
            {
                let mut archive = Archive::new().file("a", "1").end();
                archive.truncate(archive.len() - 512);
                archive
            },
            vec!["a 644 0:0 100 file \"1\""],
        ),
        (
            // Contiguous, pre-POSIX, a directory by its slash, one with a list of names.
            Archive::new()
                .entry(b'7', "c", b"1")
                .entry(0, "o", b"2")
                .entry(0, "d/", b"")
                .entry(b'D', "g", b"Yname\0\0")
                .end(),
            vec![
                "c 644 0:0 100 file \"1\"",
                "d 644 0:0 100 directory",
                "g 644 0:0 100 directory",
                "o 644 0:0 100 file \"2\"",
            ],
        ),
        (
            // Records win over the header, those of the entry over global ones.
            Archive::new()
                .records(b'g', &["uid=5", "gid=6", "mtime=7", "comment=x"])
                .file("a", "1")
                .records(b'x', &["path=b/\u{e9}", "uid=", "gid=4294967295", "size=1"])
                .raw(b'0', b"cut", b"2", |h| {
                    h.as_old_mut().size = *b"77777777777\0";
                    h.set_uid(9);
                })
                .end(),
            vec![
                "a 644 5:6 7 file \"1\"",
                "b 755 0:0 7 directory",
                "b/\u{e9} 644 9:4294967295 7 file \"2\"",
            ],
        ),
        (
            // Numbers that need base 256, and devices of star.
            Archive::new()
                .raw(b'0', b"a", b"", |h| {
                    h.set_uid(3_000_000_000);
                    h.as_old_mut().mtime = [0xff; 12];
                })
                .records(b'x', &["SCHILY.devmajor=259", "SCHILY.devminor=300000"])
                .entry(b'3', "dev", b"")
                .end(),
            vec![
                "a 644 3000000000:0 0 file \"\"",
                "dev 644 0:0 100 CharDevice(Device { major: 259, minor: 300000 })",
            ],
        ),
        (
            // Sizes of what has no contents, as old writers give them.
            Archive::new()
                .file("a", "12345")
                .raw(b'1', b"b", b"", |h| {
                    h.as_old_mut().linkname[0] = b'a';
                    h.set_size(5);
                })
                .records(b'x', &["comment=x"])
                .raw(b'5', b"d", b"", |h| h.set_size(4096))
                .file("z", "z")
                .end(),
            vec![
                "a 644 0:0 100 file \"12345\"",
                "b 644 0:0 100 file \"12345\"",
                "d 644 0:0 100 directory",
                "z 644 0:0 100 file \"z\"",
            ],
        ),
        (Archive::new().end(), vec![]),
    ] {
        let tree = from_bytes(&archive, &TreeRules::default()).unwrap();
        assert_eq!(listing(&tree)[1..], lines);
    }
}

#[test]
fn a_name_too_long_may_be_left_out() {
    let long = "n".repeat(257);
    let archive = Archive::new()
        .entry(b'L', "l", long.as_bytes())
        .file("cut", "1")
        .entry(b'L', "l", format!("out/{long}/{long}\0").as_bytes())
        .file("cut", "2")
        .end();
    assert_eq!(
        refusal(&archive).1,
        format!(
            "entry \"{}\"... at byte 1024 of the archive cannot be packed: name is 257 bytes long, allowed is at most 256; shorten or exclude it",
            "n".repeat(256)
        )
    );
    let rules = TreeRules::default();
    let rules = rules.exclude(&["nnn*".into(), "out/".into()]).unwrap();
    assert_eq!(listing(&from_bytes(&archive, &rules).unwrap()).len(), 1);
}

#[test]
fn what_is_refused() {
    let gnu_sparse = |offset: u64, len: u64, size: u64| {
        move |h: &mut tar::Header| {
            let gnu = h.as_gnu_mut().unwrap();
            gnu.sparse[0].set_offset(offset);
            gnu.sparse[0].set_length(len);
            gnu.set_real_size(size);
        }
    };
    let input = [
        (
            Archive::new().file("a/../b", "").end(),
            "entry \"a/../b\" at byte 0 of the archive leaves the tree by \"..\" in its name; archive it from the directory above",
        ),
        (
            Archive::new().file("a", "1").file("..", "").end(),
            "entry \"..\" at byte 1024 of the archive leaves the tree by \"..\" in its name; archive it from the directory above",
        ),
        (
            Archive::new().file("", "").end(),
            "entry \"\" at byte 0 of the archive has no name; leave it out of the archive",
        ),
        (
            Archive::new()
                .records(b'x', &["path=a\0b"])
                .file("a", "")
                .end(),
            "entry \"a\\0b\" at byte 1024 of the archive has a NUL in its name; rename it",
        ),
        (
            Archive::new().file("./", "").link(b'2', ".", "a").end(),
            "entry \".\" at byte 512 of the archive is the root but no directory; leave it out of the archive",
        ),
        (
            Archive::new()
                .link(b'2', "s", "/etc")
                .file("s/passwd", "")
                .end(),
            "entry \"s/passwd\" at byte 512 of the archive is below \"s\", which is a symbolic link; archive each by its own path",
        ),
        (
            Archive::new().file("f", "").file("f/g/h", "").end(),
            "entry \"f/g/h\" at byte 512 of the archive is below \"f\", which is a regular file; archive each by its own path",
        ),
        (
            Archive::new().file("d/e", "").file("d", "").end(),
            "entry \"d\" at byte 512 of the archive is no directory, but an earlier entry of its name is one that holds 1 names; leave one of them out of the archive",
        ),
        (
            Archive::new()
                .link(b'1', "l", "later")
                .file("later", "")
                .end(),
            "entry \"l\" at byte 0 of the archive is a hard link to \"later\", which no earlier entry is; put that in front of it",
        ),
        (
            Archive::new()
                .entry(b'5', "d", b"")
                .link(b'1', "l", "d/")
                .end(),
            "entry \"l\" at byte 512 of the archive is a hard link to \"d\", which is a directory; archive it as a directory",
        ),
        (
            Archive::new().link(b'1', "l", "./").end(),
            "entry \"l\" at byte 0 of the archive is a hard link to the root; archive it as a directory",
        ),
        (
            Archive::new().link(b'1', "l", "../x").end(),
            "entry \"l\" at byte 0 of the archive is a hard link to \"../x\", which leaves the tree by \"..\" in its name; archive it from the directory above",
        ),
        (
            Archive::new()
                .link(b'2', "s", "/")
                .link(b'1', "l", "s/x")
                .end(),
            "entry \"l\" at byte 512 of the archive is a hard link to \"s/x\", which is below a symbolic link; archive each by its own path",
        ),
        (
            Archive::new().link(b'2', "s", "").end(),
            "entry \"s\" at byte 0 of the archive is a symbolic link to a path of 0 bytes, allowed are 1 to 4095 without NUL",
        ),
        // GNU tar looks for contents here, and bsdtar and Python do not.
        (
            Archive::new().entry(b'6', "f", b"contents").end(),
            "entry \"f\" at byte 0 of the archive is no regular file but has 8 bytes of contents, allowed is 0; make the archive again",
        ),
        (
            Archive::new().entry(0, "d/", b"contents").end(),
            "entry \"d/\" at byte 0 of the archive is no regular file but has 8 bytes of contents, allowed is 0; make the archive again",
        ),
        // bsdtar looks for contents here, and GNU tar and Python do not.
        (
            Archive::new()
                .records(b'g', &["comment=x"])
                .raw(b'1', b"l", b"contents", |h| {
                    h.as_old_mut().linkname[0] = b'a';
                })
                .end(),
            "entry \"l\" at byte 1024 of the archive is no regular file but has 8 bytes of contents, allowed is 0; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &["size=8"])
                .entry(b'5', "d", b"contents")
                .end(),
            "entry \"d\" at byte 1024 of the archive is no regular file but has 8 bytes of contents, allowed is 0; make the archive again",
        ),
        (
            Archive::new()
                .raw(b'0', b"a", b"", |h| h.as_old_mut().uid = *b"00009\0\0\0")
                .end(),
            "entry \"a\" at byte 0 of the archive has \"00009\\x00\\x00\\x00\" as its user, allowed is an octal number; get another copy of the archive",
        ),
        (
            Archive::new()
                .raw(b'0', b"a", b"", |h| h.set_gid(1 << 32))
                .end(),
            "entry \"a\" at byte 0 of the archive has 4294967296 as its group, allowed is 0 to 2^32-1",
        ),
        (
            Archive::new()
                .raw(b'0', b"a", b"", |h| h.as_old_mut().size = [0xff; 12])
                .end(),
            "entry \"a\" at byte 0 of the archive has -1 as its size, allowed is 0 to 2^64-1",
        ),
        (
            Archive::new()
                .raw(b'0', b"a", b"", |h| h.set_size(u64::MAX))
                .end(),
            "entry \"a\" at byte 0 of the archive has 18446744073709551615 bytes of contents, allowed is at most 9223372036854775807",
        ),
        (
            Archive::new()
                .raw(b'0', b"a", b"", |h| h.set_size(5000))
                .end(),
            "entry \"a\" at byte 0 of the archive has 5000 bytes of contents, but the archive ends within them; get another copy of it",
        ),
        (
            Archive::new()
                .raw(b'x', b"a", b"", |h| h.set_size((1 << 20) + 1))
                .end(),
            "extended header at byte 0 of the archive is 1048577 bytes long, allowed is at most 1048576",
        ),
        (
            Archive::new()
                .raw(b'L', b"a", b"", |h| h.set_size(1 << 40))
                .end(),
            "long name at byte 0 of the archive is 1099511627776 bytes long, allowed is at most 1048576",
        ),
        (
            Archive::new()
                .entry(b'L', "l", &[b'/'; 5000])
                .file("", "")
                .end()[..6144]
                .to_vec(),
            "the archive is cut off: it ends at byte 6144 without the blocks of zeros that end an archive; get another copy of it",
        ),
        (
            Archive::new()
                .entry(b'L', "l", &b"a/".repeat(2049))
                .file("", "")
                .end(),
            &format!(
                "entry \"{}\"... at byte 5120 of the archive has a path of 4097 bytes, allowed is at most 4095; archive it from a directory nearer to it",
                "a/".repeat(128)
            ),
        ),
        (
            Archive::new()
                .entry(b'K', "l", b"a")
                .entry(b'K', "l", b"b")
                .file("a", "")
                .end(),
            "long link name at byte 1024 of the archive is the second for one entry; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &[])
                .records(b'x', &[])
                .file("a", "")
                .end(),
            "extended header at byte 512 of the archive is the second for one entry; make the archive again",
        ),
        (
            Archive::new().file("a", "").records(b'x', &["uid=1"]).end(),
            "header at byte 512 of the archive describes an entry that does not follow; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &["SCHILY.devmajor=4096"])
                .entry(b'4', "a", b"")
                .end(),
            "entry \"a\" at byte 1024 of the archive is device 4096:0, allowed is at most 4095:1048575",
        ),
        (
            Archive::new()
                .records(b'g', &["SCHILY.xattr.user.a=b"])
                .file("a", "")
                .end(),
            "extended header at byte 0 of the archive says SCHILY.xattr for all entries, allowed is that for one; make the archive again",
        ),
        (
            Archive::new()
                .records(b'g', &["path=x"])
                .file("a", "")
                .end(),
            "extended header at byte 0 of the archive says path for all entries, allowed is that for one; make the archive again",
        ),
        (
            Archive::new()
                .entry(b'x', "x", b"7 path\n")
                .file("a", "")
                .end(),
            "extended header at byte 0 of the archive has no record at its byte 0, allowed is LENGTH KEY=VALUE and a line end",
        ),
        (
            Archive::new()
                .records(b'x', &["GNU.sparse.size=5"])
                .entry(b'5', "a", b"")
                .end(),
            "entry \"a\" at byte 1024 of the archive is sparse but no regular file; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &["GNU.sparse.map=0,1,5"])
                .file("a", "")
                .end(),
            "entry \"a\" at byte 1024 of the archive is sparse, but no record GNU.sparse.size or GNU.sparse.realsize says how long it is; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &["GNU.sparse.size=9", "GNU.sparse.map=0,1,5"])
                .file("a", "")
                .end(),
            "entry \"a\" at byte 1024 of the archive has a map of holes with 3 numbers, allowed are two for each of 0 pieces; make the archive again",
        ),
        (
            Archive::new()
                .records(b'x', &["GNU.sparse.size=9", "GNU.sparse.major=2"])
                .file("a", "")
                .end(),
            "entry \"a\" at byte 1024 of the archive is sparse in format 2.0, allowed are 0.0, 0.1 and 1.0; archive it without holes",
        ),
        (
            Archive::new()
                .records(b'x', &["GNU.sparse.realsize=9", "GNU.sparse.major=1"])
                .file("a", "1\n")
                .end(),
            "entry \"a\" at byte 1024 of the archive has a map of holes that goes past its 2 bytes in the archive; make the archive again",
        ),
        (
            Archive::new()
                .raw(b'S', b"a", b"12345", gnu_sparse(0, 4, 100))
                .end(),
            "entry \"a\" at byte 0 of the archive has 5 bytes in the archive, but its pieces between holes have 4; make the archive again",
        ),
        (
            Archive::new()
                .raw(b'S', b"a", b"12345", gnu_sparse(96, 5, 100))
                .end(),
            "entry \"a\" at byte 0 of the archive is 100 bytes long with its holes, allowed is 101 to 17592186044416; archive it without holes",
        ),
        (
            Archive::new().file("a", "1").0,
            "the archive is cut off: it ends at byte 1024 without the blocks of zeros that end an archive; get another copy of it",
        ),
        (
            [
                Archive::new().file("a", "").0,
                vec![0; 512],
                Archive::new().file("b", "").end(),
            ]
            .concat(),
            "one block of zeros is at byte 512 of the archive, allowed are two at its end; get another copy of the archive",
        ),
        (
            [Archive::new().file("a", "").0, vec![b'x'; 512]].concat(),
            "no tar header is at byte 512 of the archive (its checksum is wrong); get another copy of the archive",
        ),
        (
            b"hello, world".to_vec(),
            "not a tar archive: no tar header is at its byte 0 (the checksum is wrong); give a tar archive that is not compressed",
        ),
        (Vec::new(), "the archive is empty; give a tar archive"),
    ];
    for (archive, message) in input {
        assert_eq!(refusal(&archive), (ErrorKind::Input, message.to_owned()));
    }
    let unsupported = [
        (
            Archive::new().entry(b'M', "a", b"1").end(),
            "entry \"a\" at byte 0 of the archive continues a file of another volume, which is not supported; unpack the volumes with `tar -xM` and pack the directory",
        ),
        (
            Archive::new().entry(b'A', "a", b"1").end(),
            "entry \"a\" at byte 0 of the archive is of type 'A' (access control list of Solaris), which is not supported; leave it out of the archive",
        ),
        (
            Archive::new().entry(0xff, "a", b"").end(),
            "entry \"a\" at byte 0 of the archive is of type '\\xff', which is not supported; leave it out of the archive",
        ),
        (
            Archive::new()
                .raw(b'S', b"a", b"1", |h| {
                    h.as_gnu_mut().unwrap().magic = *b"ustar\0";
                })
                .end(),
            "entry \"a\" at byte 0 of the archive is sparse in star's way, which is not supported; archive it without holes, or with GNU tar or bsdtar",
        ),
        (
            Archive::new()
                .records(b'x', &["SCHILY.realsize=7"])
                .file("a", "1")
                .end(),
            "entry \"a\" at byte 1024 of the archive is sparse in star's way, which is not supported; archive it without holes, or with GNU tar or bsdtar",
        ),
    ];
    for (archive, message) in unsupported {
        assert_eq!(
            refusal(&archive),
            (ErrorKind::Unsupported, message.to_owned())
        );
    }
}

#[test]
fn compressed_archives_are_told_by_their_codec() {
    let archive = Archive::new().file("a", "1").end();
    let dir = temporary();
    let path = dir.path().join("a.tar");
    fs::write(&path, archive).unwrap();
    for codec in ["gzip", "bzip2", "xz", "zstd"] {
        let compressed = output(
            Command::new(codec)
                .arg("-c")
                .stdin(File::open(&path).unwrap()),
        );
        assert_eq!(
            refusal(&compressed).1,
            format!("the archive is compressed with {codec}; pipe it through `{codec} -dc`")
        );
    }
}

#[test]
fn the_spool_and_the_archive_are_named_when_they_cannot_be_used() {
    let archive = Archive::new().file("a", "1").end();
    let missing = PathBuf::from("/nonexistent/spool");
    let e = Tree::from_tar(archive.as_slice(), &missing, &TreeRules::default()).unwrap_err();
    assert_eq!(
        e.to_string(),
        "/nonexistent/spool: cannot make a temporary file for the contents of the archive"
    );
    let null = File::open("/dev/null").unwrap();
    let e = Tree::from_tar_file(null, &TreeRules::default()).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the archive is not a regular file, so it cannot be read in place; pipe it in"
    );
}

#[test]
fn an_archive_that_changes_before_it_is_packed_is_told() {
    let dir = temporary();
    let path = dir.path().join("a.tar");
    fs::write(&path, Archive::new().file("a", "1").end()).unwrap();
    let tree = Tree::from_tar_file(File::open(&path).unwrap(), &TreeRules::default()).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(600).unwrap();
    let e = ImageWriter::new()
        .write(&tree, dir.path().join("image"))
        .unwrap_err();
    assert_eq!(
        e.to_string(),
        "file changed while it was packed: its length was 2048 and is 600; stop what writes it, or pack a copy"
    );
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let archive = Archive::new().file("a", "1").end();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let writing = std::thread::spawn(move || {
        writer.write_all(&archive)?;
        // More than a pipe and the reader's buffer hold.
        writer.write_all(&vec![0; 4 << 20])
    });
    let spool = temporary();
    let tree = Tree::from_tar(reader.by_ref(), spool.path(), &TreeRules::default()).unwrap();
    assert_eq!(tree.inode_count(), 2);
    drop(reader);
    writing.join().unwrap().unwrap();
    assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0);
}
