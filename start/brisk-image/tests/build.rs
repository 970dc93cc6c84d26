//! Trees that are put together piece by piece, and images that are changed.

mod support;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use brisk_image::compare::Aspect;
use brisk_image::rules::{PlanRules, Times};
use brisk_image::{
    ByteSource, Error, ErrorKind, FileType, Image, ImageWriter, OpenOptions, Tree, TreeBuilder,
    TreeEntry, TreeRules, Work,
};
use support::{Content, Node, Random, Shape, Snapshot, build, noise, text};

fn pack(writer: &ImageWriter, tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = writer.write_to(tree, Cursor::new(&mut bytes));
    packed.expect("the tree can be packed");
    bytes
}

fn image(tree: TreeBuilder) -> Image {
    let bytes = pack(&ImageWriter::new(), &tree.finish());
    Image::from_source(bytes, &OpenOptions::new()).expect("it is an image")
}

fn tree_of(image: &Image) -> Tree {
    Tree::from_image(image, &TreeRules::default()).expect("the image can be read")
}

#[test]
fn everything_that_is_added_is_in_the_image() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let on_disk = dir.path().join("on disk");
    fs::write(&on_disk, text(1, 300_000)).expect("the directory is ours");
    let mut other = TreeBuilder::new();
    other
        .add("inner", TreeEntry::file(noise(2, 200_000)))
        .expect("it can be added");
    let other = image(other);

    let mut tree = TreeBuilder::new();
    let mut add = || -> brisk_image::Result<()> {
        let opened = fs::File::open(&on_disk).expect("it is there");
        let reader = io::Cursor::new(text(3, 400_000)).take(350_000);
        let inner = other.inode_at("inner")?;
        tree.spool_in(dir.path())
            .add_directories("/usr/./share//doc/")?
            .add("bin", TreeEntry::directory().permissions(0o1777))?
            .add("bytes", TreeEntry::file("bytes").mtime(7))?
            .add("empty", TreeEntry::file([]))?
            .add("file", TreeEntry::from_source(opened).permissions(0o4755))?
            .add("of an image", {
                let file = other.file(&inner)?;
                TreeEntry::from_source(file)
                    .owner(1, 2)
                    .mtime(9)
                    .like(&inner)
            })?
            .add("reader", TreeEntry::from_reader(reader).owner(1000, 100))?
            .add("nothing", TreeEntry::from_reader(io::empty()))?
            .add("link", TreeEntry::symlink("/usr/../target").owner(3, 4))?
            .add("bin/block", TreeEntry::block_device(4095, 0x000f_ffff))?
            .add("bin/char", TreeEntry::char_device(1, 3))?
            .add("bin/fifo", TreeEntry::fifo())?
            .add("bin/socket", TreeEntry::socket())?
            .hard_link("bytes", "usr/share/doc/more bytes")?
            .hard_link("bin/fifo", "usr/fifo")?;
        let entry = TreeEntry::file("x")
            .xattr("user.a", "first")
            .xattr("security.selinux", [0, 255])
            .xattr("user.a", "last");
        tree.add("attributes", entry)?;
        let root = TreeEntry::directory().permissions(0o700).owner(5, 6);
        tree.replace("/", root)?;
        Ok(())
    };
    add().expect("all can be added");
    let spooled = fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(spooled, 1, "the spool has no name");

    let node = |content: Content, permissions, uid, gid, mtime| Node {
        content,
        permissions,
        uid,
        gid,
        mtime,
        nlink: 1,
        xattrs: Default::default(),
        linked: None,
    };
    let file = |bytes: Vec<u8>| node(Content::File(bytes), 0o644, 0, 0, 0);
    let directory = |permissions, nlink| Node {
        nlink,
        ..node(Content::Directory, permissions, 0, 0, 0)
    };
    let device = |content| node(content, 0o600, 0, 0, 0);
    let linked = |node: Node, first: &str| Node {
        nlink: 2,
        linked: Some(first.into()),
        ..node
    };
    let bytes = Node {
        mtime: 7,
        ..file(b"bytes".to_vec())
    };
    let fifo = node(Content::Fifo, 0o644, 0, 0, 0);
    let expected = [
        (
            "",
            Node {
                uid: 5,
                gid: 6,
                ..directory(0o700, 4)
            },
        ),
        (
            "attributes",
            Node {
                xattrs: [
                    (OsString::from("user.a"), b"last".to_vec()),
                    ("security.selinux".into(), vec![0, 255]),
                ]
                .into(),
                ..file(b"x".to_vec())
            },
        ),
        ("bin", directory(0o1777, 2)),
        ("bin/block", device(Content::BlockDevice(4095, 0x000f_ffff))),
        ("bin/char", device(Content::CharDevice(1, 3))),
        ("bin/fifo", linked(fifo.clone(), "bin/fifo")),
        ("bin/socket", node(Content::Socket, 0o644, 0, 0, 0)),
        ("bytes", linked(bytes.clone(), "bytes")),
        ("empty", file(Vec::new())),
        (
            "file",
            Node {
                permissions: 0o4755,
                ..file(text(1, 300_000))
            },
        ),
        (
            "link",
            node(Content::Symlink("/usr/../target".into()), 0o777, 3, 4, 0),
        ),
        ("nothing", file(Vec::new())),
        ("of an image", file(noise(2, 200_000))),
        (
            "reader",
            Node {
                uid: 1000,
                gid: 100,
                ..file(text(3, 400_000)[..350_000].to_vec())
            },
        ),
        ("usr", directory(0o755, 3)),
        ("usr/fifo", linked(fifo, "bin/fifo")),
        ("usr/share", directory(0o755, 3)),
        ("usr/share/doc", directory(0o755, 2)),
        ("usr/share/doc/more bytes", linked(bytes, "bytes")),
    ];
    let expected = expected.map(|(path, node)| (PathBuf::from(path), node));
    let found = Snapshot::of_image(&image(tree));
    found.assert_is(&Snapshot(expected.into()), "what was added");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut tree = TreeBuilder::new();
    let add = |tree: &mut TreeBuilder| -> brisk_image::Result<()> {
        tree.add_directories("usr/bin")?
            .add("usr/bin/app", TreeEntry::file("app"))?
            .hard_link("usr/bin/app", "usr/bin/other")?
            .add("bin", TreeEntry::symlink("usr/bin"))?;
        Ok(())
    };
    add(&mut tree).expect("it can be added");
    let before: Vec<_> = tree.paths().collect();
    let long = "n".repeat(257);
    let deep: PathBuf = std::iter::repeat_n("d", 4096).collect();
    let many: Vec<_> = (0..300).map(|n| format!("user.{n:0>250}")).collect();
    let many = many
        .iter()
        .fold(TreeEntry::fifo(), |entry, name| entry.xattr(name, ""));

    type Change<'a> = Box<dyn FnOnce(&mut TreeBuilder) -> Result<(), Error> + 'a>;
    let add = |path: &'static str, entry: TreeEntry<'static>| -> Change<'static> {
        Box::new(move |tree| tree.add(path, entry).map(drop))
    };
    let replace = |path: &'static str, entry: TreeEntry<'static>| -> Change<'static> {
        Box::new(move |tree| tree.replace(path, entry).map(drop))
    };
    let rename = |from: &'static str, to: &'static str| -> Change<'static> {
        Box::new(move |tree| tree.rename(from, to).map(drop))
    };
    let link = |from: &'static str, to: &'static str| -> Change<'static> {
        Box::new(move |tree| tree.hard_link(from, to).map(drop))
    };
    let remove = |path: &'static str| -> Change<'static> {
        Box::new(move |tree| tree.remove(path).map(drop))
    };
    use ErrorKind::{AlreadyExists, Input, Limit, NotFound};
    let exists = "the tree has such an entry already; replace it, or remove it first";
    let none = "the tree has no such entry";
    let table: Vec<(Change<'_>, ErrorKind, String)> = vec![
        (
            add("usr/bin/app", TreeEntry::file("")),
            AlreadyExists,
            format!("usr/bin/app: {exists}"),
        ),
        (add("/", TreeEntry::directory()), AlreadyExists, format!("/: {exists}")),
        (
            add("usr/lib/a.so", TreeEntry::file("")),
            NotFound,
            "usr/lib/a.so: there is no \"usr/lib\" in the tree; add it first".into(),
        ),
        (
            add("bin/new", TreeEntry::file("")),
            Input,
            "bin/new: \"bin\" is no directory but a symbolic link; name the directory that it leads to".into(),
        ),
        (
            add("usr/bin/app/new", TreeEntry::file("")),
            Input,
            "usr/bin/app/new: \"usr/bin/app\" is no directory but a file".into(),
        ),
        (
            add("usr/../new", TreeEntry::file("")),
            Input,
            "usr/../new: the path has \"..\" in it, allowed are names from the root of the tree".into(),
        ),
        (
            add("a\0b", TreeEntry::file("")),
            Input,
            "\"a\\0b\": name \"a\\0b\" cannot be a file's name".into(),
        ),
        (
            Box::new(|tree| tree.add(&long, TreeEntry::file("")).map(drop)),
            Input,
            format!("{long}: name is 257 bytes long, allowed is at most 256; shorten or exclude it"),
        ),
        (
            Box::new(|tree| tree.add_directories(&deep).map(drop)),
            Limit,
            format!("{}: the depth of directories needs 4097, which passes the limit of 4096", deep.display()),
        ),
        (
            Box::new(|tree| tree.add_directories("usr/bin/app/x").map(drop)),
            Input,
            "usr/bin/app/x: \"usr/bin/app\" is no directory but a file".into(),
        ),
        (
            add("new", TreeEntry::file("").permissions(0o100_644)),
            Input,
            "new: permissions are 0o100644, allowed are 0 to 0o7777".into(),
        ),
        (
            add("new", TreeEntry::symlink("")),
            Input,
            "new: the target of a symbolic link has 0 bytes, allowed are 1 to 4095 and no zero among them".into(),
        ),
        (
            add("new", TreeEntry::char_device(4096, 0)),
            Input,
            "new: device is 4096:0, allowed are 0 to 4095 and 0 to 1048575".into(),
        ),
        (
            add("new", TreeEntry::fifo().xattr("system.posix_acl_access", "")),
            Input,
            "new: xattr \"system.posix_acl_access\" cannot be stored, allowed are names that start with user., trusted. or security.".into(),
        ),
        (
            add("new", TreeEntry::fifo().xattr("user.", "")),
            Input,
            "new: xattr \"user.\" cannot be stored, allowed are names that start with user., trusted. or security.".into(),
        ),
        (
            add("new", TreeEntry::fifo().xattr("user.a", vec![0; 65_537])),
            Input,
            "new: xattr \"user.a\" has 65537 bytes, allowed are 65536".into(),
        ),
        (
            Box::new(|tree| tree.add("new", many).map(drop)),
            Limit,
            "new: the list of the names of xattrs needs 76800, which passes the limit of 65536".into(),
        ),
        (
            add("new", TreeEntry::unchanged()),
            Input,
            "new: the entry says that what is there stays as it is, and nothing is there".into(),
        ),
        (replace("new", TreeEntry::fifo()), NotFound, format!("new: {none}")),
        (
            replace("usr", TreeEntry::fifo()),
            Input,
            "usr: a directory that is not empty cannot become something else; remove it first".into(),
        ),
        (
            replace("usr/bin/app", TreeEntry::directory()),
            Input,
            "usr/bin/app: what has 2 names cannot become a directory; remove this name first".into(),
        ),
        (
            replace("", TreeEntry::fifo()),
            Input,
            "the root of a tree stays a directory".into(),
        ),
        (link("new", "newer"), NotFound, format!("new: {none}")),
        (link("usr/bin/app", "bin"), AlreadyExists, format!("bin: {exists}")),
        (
            link("usr", "new"),
            Input,
            "usr: a directory cannot have another name; make a symbolic link to it".into(),
        ),
        (remove("new"), NotFound, format!("new: {none}")),
        (
            remove("/"),
            Input,
            "/: the root of a tree cannot be moved or taken away".into(),
        ),
        (rename("new", "newer"), NotFound, format!("new: {none}")),
        (rename("bin", "usr"), AlreadyExists, format!("usr: {exists}")),
        (rename("bin", "bin"), AlreadyExists, format!("bin: {exists}")),
        (
            rename("usr", "usr/bin/new"),
            Input,
            "usr/bin/new: \"usr\" cannot be moved into itself".into(),
        ),
    ];
    for (change, kind, message) in table {
        let e = change(&mut tree).expect_err(&message);
        let shown = e.to_string();
        assert_eq!(
            (e.kind(), shown.trim_start_matches(": ")),
            (kind, message.as_str())
        );
        assert_eq!(tree.paths().collect::<Vec<_>>(), before, "{message}");
    }
    let image = image(tree);
    assert_eq!(image.read("usr/bin/other").expect("it is there"), b"app");
}

#[test]
fn a_reader_that_fails_adds_nothing() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let mut tree = TreeBuilder::new();
    let reader = Cursor::new(noise(1, 300_000)).chain(Fails);
    let e = tree
        .add("a", TreeEntry::from_reader(reader))
        .expect_err("it fails");
    assert_eq!(e.to_string(), "a: cannot read the contents");
    assert_eq!(io::Error::from(e).kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(tree.file_type("a"), None);
    tree.add("b", TreeEntry::from_reader(Cursor::new(text(2, 300_000))))
        .expect("this one ends");
    assert!(image(tree).read("b").expect("it is there") == text(2, 300_000));
}

#[test]
fn a_source_that_changes_is_an_error() {
    struct Shrinks(std::sync::atomic::AtomicU64);
    impl ByteSource for Shrinks {
        fn size(&self) -> io::Result<u64> {
            Ok(self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst))
        }
        fn read_bytes_at(&self, _: u64, buf: &mut [u8]) -> io::Result<usize> {
            buf.fill(1);
            Ok(buf.len())
        }
    }
    let mut tree = TreeBuilder::new();
    let entry = TreeEntry::from_source(Shrinks(10.into()));
    tree.add("dir", TreeEntry::directory())
        .and_then(|tree| tree.add("dir/a", entry))
        .expect("it can be added");
    let e = ImageWriter::new()
        .write_to(&tree.finish(), Cursor::new(Vec::new()))
        .expect_err("it changes");
    assert_eq!(
        e.to_string(),
        "dir/a: file changed while it was packed: its length was 10 and is 9; stop what writes it, or pack a copy"
    );
}

#[test]
fn a_replaced_entry_keeps_what_is_not_said() {
    let mut tree = TreeBuilder::new();
    let mut change = || -> brisk_image::Result<()> {
        let run = TreeEntry::file("old")
            .permissions(0o4755)
            .owner(1, 2)
            .mtime(3)
            .xattr("user.a", "a")
            .xattr("user.b", "b");
        tree.add("run", run)?.hard_link("run", "again")?;
        tree.replace(
            "again",
            TreeEntry::file("new").xattr("user.b", "c").mtime(4),
        )?;
        tree.add("dir", TreeEntry::directory())?
            .add("dir/a", TreeEntry::file("a"))?
            .replace("dir", TreeEntry::directory().permissions(0o500))?
            .replace("dir/a", TreeEntry::unchanged().permissions(0o400))?
            .add("was a file", TreeEntry::file("a"))?
            .replace("was a file", TreeEntry::directory())?
            .add("was a file/b", TreeEntry::file("b"))?;
        Ok(())
    };
    change().expect("all of it is allowed");
    let image = image(tree);
    for name in ["run", "again"] {
        let inode = image.inode_at(name).expect("it is there");
        let owner = (inode.uid(), inode.gid());
        assert_eq!(
            (inode.permissions(), owner, inode.mtime()),
            (0o4755, (1, 2), 4)
        );
        let xattrs = image.xattrs(&inode).expect("they are there");
        let values: Vec<_> = xattrs.iter().map(|xattr| xattr.value()).collect();
        assert_eq!(values, [b"a", b"c"]);
        assert_eq!(image.read(name).expect("it is there"), b"new");
    }
    let permissions = |path| image.inode_at(path).expect("it is there").permissions();
    assert_eq!((permissions("dir"), permissions("dir/a")), (0o500, 0o400));
    assert_eq!(image.read("dir/a").expect("it is there"), b"a");
    // As the entry was before.
    assert_eq!(permissions("was a file"), 0o644);
    assert_eq!(image.read("was a file/b").expect("it is there"), b"b");
}

const SHAPE: Shape = Shape {
    block: 16 << 10,
    root: true,
    wide: 300,
};

#[test]
fn an_image_that_is_edited_and_not_changed_is_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("tree");
    fs::create_dir(&root).expect("the directory is ours");
    build(&root, SHAPE);
    let tree = Tree::from_directory(&root, &TreeRules::default()).expect("it can be listed");
    let rules = PlanRules::new(vec!["/many/".into()], vec!["noise-*".into()]);
    let of = |codec: &str| codec.parse().expect("a codec");
    let writers = [
        ImageWriter::new(),
        ImageWriter::new()
            .compression(of("lz4"))
            .tails(true)
            .time(5),
        ImageWriter::new()
            .compression(of("gzip"))
            .place("/opt/app".into()),
        ImageWriter::new()
            .compression(of("xz"))
            .shared_blocks(false)
            .export(false)
            .recipe(false),
        ImageWriter::new()
            .compression(of("none"))
            .block_size(16 << 10)
            .recipe(false)
            .tails(true),
        ImageWriter::new()
            .compression(of("gzip").with_level(3).expect("a level"))
            .recipe(false),
        ImageWriter::new().rules(rules.expect("the patterns are right")),
    ];
    for writer in writers {
        let old = pack(&writer, &tree);
        let image = Image::from_source(old.clone(), &OpenOptions::new()).expect("an image");
        let like = ImageWriter::like(&image).expect("it says how it was made");
        assert!(
            pack(&like, &tree_of(&image).edit().finish()) == old,
            "{writer:?}"
        );
        // Nor by what comes and goes.
        let mut edited = tree_of(&image).edit();
        edited
            .add("new", TreeEntry::directory())
            .and_then(|tree| tree.add("new/a", TreeEntry::file("a").xattr("user.new", "")))
            .and_then(|tree| tree.remove("new"))
            .expect("it can be added and removed");
        assert!(pack(&like, &edited.finish()) == old, "{writer:?}");
    }
}

#[test]
fn a_tree_is_the_same_bytes_in_whatever_order_it_is_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    build(dir.path(), SHAPE);
    let rules = TreeRules::default().times(Times::All(1));
    let tree = Tree::from_directory(dir.path(), &rules).expect("it can be listed");
    let expected = pack(&ImageWriter::new(), &tree);
    let image = Image::from_source(expected.clone(), &OpenOptions::new()).expect("an image");
    let snapshot = Snapshot::of_image(&image);
    for forwards in [true, false] {
        let mut tree = TreeBuilder::new();
        let mut nodes: Vec<_> = snapshot.0.iter().collect();
        // A directory is added before what is in it.
        nodes.sort_by_key(|(path, _)| path.components().count());
        if !forwards {
            nodes
                .chunk_by_mut(|(a, _), (b, _)| a.components().count() == b.components().count())
                .for_each(<[_]>::reverse);
        }
        let mut first_names = std::collections::HashMap::new();
        for (path, node) in nodes {
            if let Some(linked) = &node.linked {
                if let Some(known) = first_names.get(linked) {
                    tree.hard_link(known, path).expect("it can be linked");
                    continue;
                }
                first_names.insert(linked, path);
            }
            let entry = match &node.content {
                Content::Directory => TreeEntry::directory(),
                Content::File(bytes) => TreeEntry::file(bytes.clone()),
                Content::Symlink(target) => TreeEntry::symlink(target),
                Content::BlockDevice(major, minor) => TreeEntry::block_device(*major, *minor),
                Content::CharDevice(major, minor) => TreeEntry::char_device(*major, *minor),
                Content::Fifo => TreeEntry::fifo(),
                Content::Socket => TreeEntry::socket(),
            };
            let entry = entry
                .permissions(u16::try_from(node.permissions).expect("twelve bits"))
                .owner(node.uid, node.gid)
                .mtime(1);
            let xattrs = node.xattrs.iter();
            let entry = xattrs.fold(entry, |entry, (name, value)| {
                entry.xattr(name, value.clone())
            });
            let added = match path.as_os_str().is_empty() {
                true => tree.replace(path, entry),
                false => tree.add(path, entry),
            };
            added.expect("it can be added");
        }
        assert!(
            pack(&ImageWriter::new(), &tree.finish()) == expected,
            "{forwards}"
        );
    }
}

/// The same change of a directory and of a tree. A file system follows symbolic links in paths; those
/// here lead nowhere.
enum Step {
    AddDirectory(PathBuf),
    AddDirectories(PathBuf),
    AddFile(PathBuf, Vec<u8>),
    AddLink(PathBuf),
    HardLink(PathBuf, PathBuf),
    Write(PathBuf, Vec<u8>),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Step {
    fn random(random: &mut Random) -> Self {
        let path = |random: &mut Random| -> PathBuf {
            let depth = 1 + random.below(3);
            (0..depth)
                .map(|_| ["a", "b", "c"][random.below(3) as usize])
                .collect()
        };
        let bytes = |random: &mut Random| {
            let len = random.below(3) * 70_000 + random.below(10);
            text(random.next(), usize::try_from(len).expect("small"))
        };
        match random.below(10) {
            0 | 1 => Self::AddDirectory(path(random)),
            2 => Self::AddDirectories(path(random)),
            3 | 4 => Self::AddFile(path(random), bytes(random)),
            5 => Self::AddLink(path(random)),
            6 => Self::HardLink(path(random), path(random)),
            7 => Self::Write(path(random), bytes(random)),
            8 => Self::Remove(path(random)),
            _ => Self::Rename(path(random), path(random)),
        }
    }

    /// Whether it could be done.
    fn change_directory(&self, root: &Path) -> bool {
        let at = |path: &PathBuf| root.join(path);
        let is_there = |path: &PathBuf| at(path).symlink_metadata().is_ok();
        match self {
            Self::AddDirectory(path) => fs::create_dir(at(path)).is_ok(),
            Self::AddDirectories(path) => fs::create_dir_all(at(path)).is_ok(),
            Self::AddFile(path, bytes) => !is_there(path) && fs::write(at(path), bytes).is_ok(),
            Self::AddLink(path) => std::os::unix::fs::symlink("nowhere", at(path)).is_ok(),
            Self::HardLink(from, to) => fs::hard_link(at(from), at(to)).is_ok(),
            Self::Write(path, bytes) => {
                let is_file = at(path).symlink_metadata().is_ok_and(|m| m.is_file());
                is_file && fs::write(at(path), bytes).is_ok()
            }
            Self::Remove(path) => fs::remove_file(at(path))
                .or_else(|_| fs::remove_dir_all(at(path)))
                .is_ok(),
            Self::Rename(from, to) => !is_there(to) && fs::rename(at(from), at(to)).is_ok(),
        }
    }

    fn change_tree(&self, tree: &mut TreeBuilder) -> bool {
        let changed = match self {
            Self::AddDirectory(path) => tree.add(path, TreeEntry::directory()),
            Self::AddDirectories(path) => tree.add_directories(path),
            Self::AddFile(path, bytes) => tree.add(path, TreeEntry::file(bytes.clone())),
            Self::AddLink(path) => tree.add(path, TreeEntry::symlink("nowhere")),
            Self::HardLink(from, to) => tree.hard_link(from, to),
            Self::Write(path, bytes) => match tree.file_type(path) {
                Some(FileType::File) => {
                    tree.replace(path, TreeEntry::from_reader(Cursor::new(bytes)))
                }
                _ => return false,
            },
            Self::Remove(path) => tree.remove(path),
            Self::Rename(from, to) => tree.rename(from, to),
        };
        changed.is_ok()
    }
}

#[test]
fn a_tree_changes_as_a_directory_does() {
    let rules = TreeRules::default()
        .owner("*", Some(0), Some(0))
        .expect("the pattern is right")
        .times(Times::All(0));
    let ignored = [Aspect::Mode, Aspect::Xattrs];
    let mut done = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut tree = TreeBuilder::new();
        for n in 0..120 {
            let step = Step::random(&mut random);
            let is_done = step.change_directory(dir.path());
            assert_eq!(step.change_tree(&mut tree), is_done, "step {n} of {seed}");
            done += u32::from(is_done);
            if n % 40 == 39 {
                // By way of an image, or of a tree alone.
                let edited = match n {
                    79 => tree_of(&image(tree)),
                    _ => tree.finish(),
                };
                let on_disk = Tree::from_directory(dir.path(), &rules).expect("it is ours");
                let differences = on_disk.compare(&edited, &ignored, &Work::new());
                assert_eq!(
                    differences.expect("both can be read"),
                    [],
                    "step {n} of {seed}"
                );
                assert_eq!(on_disk.inode_count(), edited.inode_count());
                tree = edited.edit();
            }
        }
    }
    assert!(done > 1000, "{done} steps could be done");
}
