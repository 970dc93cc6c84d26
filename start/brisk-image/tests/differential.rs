//! Our reader on the images of others, and their readers on ours: every pair of options, against
//! the tree that was packed.

mod support;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use brisk_image::codec::Bcj;
use brisk_image::rules::PlanRules;
use brisk_image::{Compression, EntryPoint, Image, ImageWriter, OpenOptions, Tree, TreeRules};
use support::{
    Content, Shape, Snapshot, all_pairs, build, check_access, check_reader, expect_root,
    open_mapped, run, run_quiet, wide,
};

const BLOCKS: [usize; 5] = [4 << 10, 8 << 10, 64 << 10, 128 << 10, 1 << 20];

/// A tree with one of everything, and what it holds.
struct Source {
    dir: tempfile::TempDir,
    /// In memory, as ext4 is slow to make what was deleted just now.
    scratch: tempfile::TempDir,
    snapshot: Snapshot,
}

impl Source {
    fn new(block: usize) -> Self {
        expect_root();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("tree");
        fs::create_dir(&root).expect("the directory is ours");
        build(
            &root,
            Shape {
                block,
                root: true,
                // Enough for an index; listings of other lengths with other blocks.
                wide: if block == 4096 || block == 128 << 10 {
                    2000
                } else {
                    400
                },
            },
        );
        let snapshot = Snapshot::of_directory(&root);
        let scratch = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        Self {
            dir,
            scratch,
            snapshot,
        }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

/// Runs `test` on each row of all pairs of the axes; the first axis is the block size, and rows
/// with the same one share a source.
fn for_all_pairs(sizes: &[usize], test: impl Fn(&Source, &[usize])) -> usize {
    let mut rows = all_pairs(sizes);
    rows.sort();
    let mut source: Option<(usize, Source)> = None;
    for row in &rows {
        if source.as_ref().is_none_or(|(block, _)| *block != row[0]) {
            source = Some((row[0], Source::new(BLOCKS[row[0]])));
        }
        if let Some((_, source)) = &source {
            test(source, row);
        }
    }
    rows.len()
}

#[test]
fn mksquashfs_images_are_read() {
    const CODECS: [&[&str]; 7] = [
        &["-comp", "gzip"],
        &["-comp", "lzo"],
        &["-comp", "lz4"],
        &["-comp", "lz4", "-Xhc"],
        &["-comp", "xz"],
        &["-comp", "xz", "-Xbcj", "x86"],
        &["-comp", "zstd"],
    ];
    // With duplicates and ends that share blocks, mksquashfs 4.5.1 now and then truncates the image
    // below a block that another of its threads wrote: it then lies behind the end of the image.
    const FRAGMENTS: [&[&str]; 3] = [
        &[],
        &["-no-fragments"],
        &["-always-use-fragments", "-no-duplicates"],
    ];
    const RAW: [&[&str]; 7] = [
        &[],
        &["-noI"],
        &["-noD"],
        &["-noF"],
        &["-noX"],
        &["-noD", "-noF"],
        &["-noI", "-noD", "-noF", "-noX"],
    ];
    const SWITCHES: [&str; 5] = [
        "-no-xattrs",
        "-no-exports",
        "-nopad",
        "-no-duplicates",
        "-no-sparse",
    ];
    let mut sizes = vec![BLOCKS.len(), CODECS.len(), FRAGMENTS.len(), RAW.len()];
    // The last axis: whether we map the image.
    sizes.extend([2; SWITCHES.len() + 1]);
    let rows = for_all_pairs(&sizes, |source, row| {
        let block = BLOCKS[row[0]].to_string();
        let image = source.path("image");
        let mut args = vec![
            "-noappend",
            "-quiet",
            "-no-progress",
            "-processors",
            "1",
            "-b",
            &block,
        ];
        args.extend(
            CODECS[row[1]]
                .iter()
                .chain(FRAGMENTS[row[2]])
                .chain(RAW[row[3]]),
        );
        let switches = SWITCHES.iter().zip(&row[4..]);
        args.extend(switches.filter(|(_, on)| **on == 1).map(|(name, _)| name));
        let mut all: Vec<OsString> = vec![source.root().into(), (&image).into()];
        all.extend(args.iter().map(OsString::from));
        println!("{args:?}");
        run_quiet("mksquashfs", &all);
        let mapped = row[row.len() - 1] == 1;
        let opened = match mapped {
            true => open_mapped(&image, &OpenOptions::new()),
            false => Image::open(&image),
        };
        let opened = opened.expect("it is an image");
        let expected = match row[4] {
            0 => source.snapshot.clone(),
            _ => source.snapshot.without_xattrs(),
        };
        check_reader(&opened, &expected, &format!("{args:?}, mapped: {mapped}"));
    });
    println!("{rows} rows");
}

#[test]
fn gensquashfs_images_are_read() {
    const CODECS: [&[&str]; 8] = [
        &["-c", "gzip"],
        &["-c", "gzip", "-X", "level=1,window=8"],
        &["-c", "lzo"],
        &["-c", "lz4"],
        &["-c", "lz4", "-X", "hc"],
        &["-c", "xz"],
        &["-c", "xz", "-X", "x86,arm"],
        &["-c", "zstd"],
    ];
    let sizes = [BLOCKS.len(), CODECS.len(), 2, 2, 2, 2];
    let rows = for_all_pairs(&sizes, |source, row| {
        let block = BLOCKS[row[0]].to_string();
        let image = source.path("image");
        let mut args = vec!["-q", "-f", "-k", "-j", "1", "-b", &block];
        args.extend(CODECS[row[1]]);
        for (flag, on) in ["-T", "-x", "-e"].into_iter().zip(&row[2..]) {
            if *on == 1 {
                args.push(flag);
            }
        }
        if row[5] == 1 {
            args.extend(["-B", "65536"]);
        }
        let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
        all.extend(["-D".into(), source.root().into(), (&image).into()]);
        run_quiet("gensquashfs", &all);
        let expected = match row[3] {
            // It leaves empty ones out.
            1 => unlinked(&source.snapshot).map(|_, node| node.xattrs.retain(|_, v| !v.is_empty())),
            _ => unlinked(&source.snapshot.without_xattrs()),
        };
        let opened = Image::open(&image).expect("it is an image");
        let context = format!("{args:?}");
        unlinked(&Snapshot::of_image(&opened)).assert_is(&expected, &context);
        check_access(&opened, &expected, &context);
    });
    println!("{rows} rows");
}

/// How we compress, at both ends of each codec.
fn compressions() -> Vec<Compression> {
    let xz = |preset, extreme, dict_size, filters: &[Bcj]| {
        let mut compression = Compression::default_for(brisk_image::Codec::Xz);
        if let Compression::Xz {
            preset: p,
            extreme: e,
            dict_size: d,
            filters: f,
        } = &mut compression
        {
            (*p, *e, *d, *f) = (
                preset,
                extreme,
                dict_size,
                filters.iter().copied().collect(),
            );
        }
        compression
    };
    let level = |name: &str, level| {
        let compression: Compression = name.parse().expect("a codec");
        compression.with_level(level).expect("a level")
    };
    let plain = |name: &str| name.parse::<Compression>().expect("a codec");
    let mut all = vec![
        plain("none"),
        level("gzip", 1),
        level("gzip", 12),
        plain("lz4"),
        level("lz4", 12),
        xz(0, false, None, &[]),
        xz(9, true, None, &[Bcj::X86, Bcj::Arm]),
        xz(6, false, Some(8192), &[Bcj::X86]),
        level("zstd", 1),
        level("zstd", 22),
    ];
    if cfg!(feature = "lzo-encode") {
        all.push(plain("lzo"));
    }
    all
}

/// Without a dictionary that is larger than a block.
fn fitting(compression: Compression, block: usize) -> Compression {
    match compression.check(block as u32) {
        Ok(()) => compression,
        Err(_) => Compression::default_for(brisk_image::Codec::Xz),
    }
}

#[derive(Debug, Clone, Copy)]
enum Tool {
    Unsquashfs,
    Rdsquashfs,
    Sqfs2tar,
}

const TOOLS: [Tool; 3] = [Tool::Unsquashfs, Tool::Rdsquashfs, Tool::Sqfs2tar];

/// What comes first, and what is stored raw.
const RULES: [(&[&str], &[&str]); 4] = [
    (&[], &[]),
    (&["/many/", "*.conf", "noise-*"], &[]),
    (&[], &["/lengths/", "/sparse/"]),
    (&["*5*"], &["text-*", "small"]),
];

/// How a tree is packed.
struct Packing {
    writer: ImageWriter,
    xattrs: bool,
    /// The patterns of files that are raw.
    raw: &'static [&'static str],
}

impl Packing {
    /// A row of values: block, codec, fragments and tails, rules, xattrs, duplicates, export,
    /// threads, recipe.
    fn new(row: &[usize]) -> Self {
        let on = |axis: usize| row[axis] == 1;
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        let (order, raw) = RULES[row[3]];
        let writer = ImageWriter::new()
            .compression(fitting(compressions()[row[1]], BLOCKS[row[0]]))
            .block_size(BLOCKS[row[0]] as u32)
            .shared_blocks(row[2] > 0)
            .tails(row[2] > 1)
            .rules(PlanRules::new(own(order), own(raw)).expect("the patterns are right"))
            .deduplicate(on(5))
            .export(on(6))
            .threads(if on(7) { 3 } else { 1 })
            .recipe(on(8));
        Self {
            writer,
            xattrs: on(4),
            raw,
        }
    }

    /// Packs `source`, has the library and `tool` read the image, and compares.
    fn check(&self, source: &Source, tool: Tool) {
        let context = format!("{:?}, xattrs: {}, {tool:?}", self.writer, self.xattrs);
        let rules = TreeRules::default().xattrs(self.xattrs);
        let tree = Tree::from_directory(source.root(), &rules).expect("the tree can be listed");
        assert_eq!(tree.warnings(), [""; 0], "{context}");
        let image = source.path("ours");
        let summary = self.writer.write(&tree, &image);
        let summary = summary.unwrap_or_else(|e| panic!("{context}: {e}"));
        let expected = match self.xattrs {
            true => source.snapshot.clone(),
            false => source.snapshot.without_xattrs(),
        };
        let len = fs::metadata(&image).expect("it was written").len();
        assert_eq!(summary.file_bytes, len, "{context}");
        let opened = Image::open(&image).expect("it is an image");
        check_reader(&opened, &expected, &context);
        if self.raw.contains(&"/sparse/") {
            for (path, node) in &expected.0 {
                let raw = path.starts_with("lengths") || path.starts_with("sparse");
                match &node.content {
                    Content::File(bytes) if raw && !bytes.is_empty() => {
                        check_raw(&image, &opened, path, bytes);
                    }
                    _ => {}
                }
            }
        }
        read_with(tool, source, &image, &expected, &context);
    }
}

#[test]
fn others_read_our_images() {
    let sizes = [
        BLOCKS.len(),
        compressions().len(),
        3,
        RULES.len(),
        2,
        2,
        2,
        2,
        2,
        TOOLS.len(),
    ];
    let rows = for_all_pairs(&sizes, |source, row| {
        Packing::new(row).check(source, TOOLS[row[9]]);
    });
    println!("{rows} rows");
}

#[test]
#[ignore = "takes half an hour: for `make torture`"]
fn every_combination_of_our_images_is_read() {
    let mut rows = 0;
    for (block, &bytes) in BLOCKS.iter().enumerate() {
        let source = Source::new(bytes);
        for codec in 0..compressions().len() {
            // Fragments and tails, rules, xattrs, duplicates.
            for n in 0..3 * RULES.len() * 4 {
                let (fragments, rules, rest) = (n % 3, n / 3 % RULES.len(), n / 3 / RULES.len());
                let (xattrs, duplicates) = (rest & 1, rest >> 1);
                // The others take turns.
                let (export, threads, recipe) = (rows & 1, rows >> 1 & 1, rows >> 2 & 1);
                let row = [
                    block, codec, fragments, rules, xattrs, duplicates, export, threads, recipe,
                ];
                Packing::new(&row).check(&source, TOOLS[rows % TOOLS.len()]);
                rows += 1;
            }
        }
    }
    println!("{rows} rows");
}

#[test]
fn an_image_packed_again_is_the_same() {
    let source = Source::new(8192);
    let theirs = source.path("theirs");
    let paths = [source.root().into(), OsString::from(&theirs)];
    let args = ["-noappend", "-quiet", "-no-progress", "-comp", "lz4"].map(OsString::from);
    run_quiet("mksquashfs", paths.into_iter().chain(args));
    let rules = TreeRules::default();
    let pack = |tree: Tree, name: &str| {
        let image = source.path(name);
        let writer = ImageWriter::new()
            .block_size(8192)
            .compression("zstd".parse().expect("a codec"));
        writer.write(&tree, &image).expect("the tree can be packed");
        let opened = Image::open(&image).expect("it is an image");
        Snapshot::of_image(&opened).assert_is(&source.snapshot, name);
        (opened, fs::read(image).expect("it was written"))
    };
    let (ours, bytes) = pack(
        Tree::from_directory(source.root(), &rules).expect("a tree"),
        "ours",
    );
    let theirs = Image::open(theirs).expect("it is an image");
    // The same tree is the same bytes, wherever it comes from.
    for (image, name) in [(&ours, "ours again"), (&theirs, "theirs again")] {
        let (_, again) = pack(Tree::from_image(image, &rules).expect("a tree"), name);
        assert!(again == bytes, "{name} is another image");
    }
}

/// A raw file stands in the image as it is, at a page.
fn check_raw(path: &Path, image: &Image, name: &Path, bytes: &[u8]) {
    let inode = image
        .lookup(name)
        .expect("lookups work")
        .expect("it is there");
    let stored = image.file(&inode).expect("it is a file").stored_as();
    assert_eq!(
        stored.raw,
        bytes.len() as u64,
        "{name:?} is stored as {stored:?}"
    );
    let mapped = open_mapped(path, &OpenOptions::new()).expect("it is an image");
    let reader = mapped.file(&inode).expect("it is a file");
    let slice = reader
        .as_slice()
        .unwrap_or_else(|| panic!("{name:?} is not in one piece"));
    assert!(slice == bytes, "{name:?}");
    assert!(
        (slice.as_ptr() as usize).is_multiple_of(4096),
        "{name:?} does not start at a page"
    );
}

fn read_with(tool: Tool, source: &Source, image: &Path, expected: &Snapshot, context: &str) {
    let out = source.path("out");
    let paths = |before: &[&str]| -> Vec<OsString> { before.iter().map(OsString::from).collect() };
    match tool {
        Tool::Unsquashfs => {
            let mut args = paths(&["-no-progress", "-quiet", "-processors", "1", "-d"]);
            args.extend([(&out).into(), image.into()]);
            run_quiet("unsquashfs", &args);
            let mut args = paths(&["-lls"]);
            args.push(image.into());
            let listing = run_quiet("unsquashfs", &args);
            let links = listing
                .stdout
                .windows(9)
                .filter(|w| *w == b"squashfs-")
                .count();
            assert!(
                links >= expected.0.len() - 1,
                "{context}: -lls lists {links}"
            );
            Snapshot::of_directory(&out).assert_is(expected, context);
        }
        Tool::Rdsquashfs => {
            fs::create_dir(&out).expect("the directory is ours");
            let mut args = paths(&["-q", "-X", "-T", "-C", "-O", "-u", "/", "-p"]);
            args.extend([(&out).into(), image.into()]);
            run_quiet("rdsquashfs", &args);
            let got = Snapshot::of_directory(&out);
            unlinked(&got).assert_is(&unlinked(expected), context);
        }
        Tool::Sqfs2tar => {
            fs::create_dir(&out).expect("the directory is ours");
            let archive = source.path("archive.tar");
            let mut args = paths(&["-r", "."]);
            args.push(image.into());
            let output = run("sqfs2tar", &args);
            fs::write(&archive, output.stdout).expect("the directory is ours");
            let mut args = paths(&[
                "--xattrs",
                "--xattrs-include=*",
                "--warning=no-timestamp",
                "-xpf",
            ]);
            args.extend([archive.into(), "-C".into(), (&out).into()]);
            run_quiet("tar", &args);
            let got = Snapshot::of_directory(&out);
            // A tar archive holds no sockets.
            let mut expected = expected.clone();
            expected.0.retain(|_, node| node.content != Content::Socket);
            got.assert_is(&expected, context);
        }
    }
    fs::remove_dir_all(&out).expect("the directory is ours");
}

/// Without what squashfs-tools-ng does not keep: hard links, and the root itself.
fn unlinked(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.0.remove(Path::new(""));
    snapshot.map(|_, node| {
        node.linked = None;
        node.nlink = 0;
    })
}

#[test]
fn an_image_behind_a_program_is_found() {
    let source = Source::new(4096);
    let image = source.path("image");
    let tree =
        Tree::from_directory(source.root(), &TreeRules::default()).expect("it can be listed");
    let starts = EntryPoint::new(vec!["bin/app".into()]).and_then(|entry| entry.variable("A", "b"));
    let starts = starts.expect("an entry");
    let writer = ImageWriter::new().block_size(4096).place("/opt/app".into());
    let writer = writer.entry_point(starts.clone());
    writer.write(&tree, &image).expect("the tree can be packed");
    let image = fs::read(&image).expect("it was written");
    let program = fs::read("/bin/true").expect("there is a program");
    let app = source.path("app");
    let garbage = support::noise(1, 10_000);
    for (before, offset, after) in [
        (&program[..], None, &[][..]),
        (&program[..], None, &garbage[..]),
        (&[][..], None, &garbage[..]),
        (&garbage[..513], Some(513), &garbage[..]),
    ] {
        fs::write(&app, [before, &image[..], after].concat()).expect("the directory is ours");
        let mut options = OpenOptions::new();
        if let Some(offset) = offset {
            options = options.offset(offset);
        }
        for mapped in [false, true] {
            let opened = match mapped {
                true => open_mapped(&app, &options),
                false => Image::open_with(&app, &options),
            };
            let opened = opened.expect("the image is found");
            assert_eq!(opened.offset(), before.len() as u64);
            let context = format!("{} bytes before, {} after", before.len(), after.len());
            check_reader(&opened, &source.snapshot, &context);
            let recipe = opened.recipe().expect("the section is whole");
            assert_eq!(recipe, Some(writer.to_recipe()), "{context}");
            let place = opened.recorded_place().expect("the section is whole");
            assert_eq!(place, Some("/opt/app".into()), "{context}");
            let entry = opened.entry_point().expect("the section is whole");
            assert_eq!(entry.as_ref(), Some(&starts), "{context}");
        }
    }
    // What mksquashfs appends to a program is found as well.
    fs::write(&app, &program).expect("the directory is ours");
    let len = program.len().next_multiple_of(4096).to_string();
    let args = [
        "-noappend",
        "-quiet",
        "-no-progress",
        "-b",
        "4096",
        "-offset",
        &len,
    ];
    let image = source.path("theirs");
    let paths = [source.root().into(), OsString::from(&image)];
    run_quiet(
        "mksquashfs",
        paths.into_iter().chain(args.map(OsString::from)),
    );
    let opened = Image::open_with(
        &image,
        &OpenOptions::new().offset(len.parse().expect("a number")),
    );
    check_reader(
        &opened.expect("it is there"),
        &source.snapshot,
        "mksquashfs -offset",
    );
}

#[test]
fn a_hundred_thousand_names_are_read_by_everybody() {
    const COUNT: usize = 100_000;
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let root = dir.path().join("tree");
    fs::create_dir(&root).expect("the directory is ours");
    let names = wide(&root, COUNT);
    let theirs = dir.path().join("theirs");
    let args = ["-noappend", "-quiet", "-no-progress", "-comp", "lz4"].map(OsString::from);
    run_quiet(
        "mksquashfs",
        [(&root).into(), (&theirs).into()].into_iter().chain(args),
    );
    check_wide(&Image::open(&theirs).expect("it is an image"), &names);
    let ours = dir.path().join("ours");
    let tree = Tree::from_directory(&root, &TreeRules::default()).expect("it can be listed");
    let writer = ImageWriter::new().compression("lz4".parse().expect("a codec"));
    writer.write(&tree, &ours).expect("the tree can be packed");
    check_wide(&Image::open(&ours).expect("it is an image"), &names);
    let listing = run_quiet("unsquashfs", ["-l".as_ref(), ours.as_os_str()]);
    let lines = listing
        .stdout
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .count();
    assert_eq!(lines, COUNT + 2);
    let described = run_quiet("rdsquashfs", ["-d".as_ref(), ours.as_os_str()]);
    let lines = described
        .stdout
        .split(|&b| b == b'\n')
        .filter(|line| line.starts_with(b"file "))
        .count();
    assert_eq!(lines, COUNT);
}

/// The wide directory has `names`, which are sorted, and finds each of them.
fn check_wide(image: &Image, names: &[OsString]) {
    let inode = image
        .lookup("wide")
        .expect("lookups work")
        .expect("it is there");
    let listed = image.read_dir(&inode).expect("it is a directory");
    let listed: Vec<_> = listed
        .map(|e| e.expect("the listing goes on").name().to_owned())
        .collect();
    assert!(listed == names);
    for name in names.iter().step_by(97).chain(names.last()) {
        let found = image.lookup_in(&inode, name).expect("lookups work");
        assert_eq!(
            found.as_ref().map(|entry| entry.name()),
            Some(name.as_os_str())
        );
        let mut absent = name.clone();
        absent.push("\u{1}");
        assert!(
            image
                .lookup_in(&inode, &absent)
                .expect("lookups work")
                .is_none(),
            "{absent:?}"
        );
    }
}

#[test]
fn a_long_xattr_value_is_stored_once() {
    let source = Source::new(4096);
    let image = source.path("image");
    let tree = Tree::from_directory(source.root(), &TreeRules::default()).expect("a tree");
    let writer = ImageWriter::new().compression(Compression::None);
    writer.write(&tree, &image).expect("the tree can be packed");
    let bytes = fs::read(&image).expect("it was written");
    // The values of `xattrs/long-1` to `long-3`.
    let value = support::noise(5, 16);
    let count = bytes.windows(16).filter(|window| *window == value).count();
    assert_eq!(count, 1);
}
