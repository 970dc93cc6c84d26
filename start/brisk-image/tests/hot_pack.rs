//! Hot packs: what they hold, whom they belong to, and what damage does to them.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_image::hot_pack::{FrameReader, HotPack, HotPackWriter, HotSummary, Prefer};
use brisk_image::profile::{Asked, Named, Origin, PAGE, Profile, ProfileBuilder, RootKind};
use brisk_image::rules::Times;
use brisk_image::verity::{TreeFile, VerifiedFile, append_tree_at};
use brisk_image::{
    Codec, Compression, ErrorKind, Image, ImageWriter, Limits, OpenOptions, Tree, TreeRules, Work,
};
use support::{Random, noise, run, text};

const BOTH: [Prefer; 2] = [Prefer::Speed, Prefer::Size];
const ALL: [Prefer; 3] = [Prefer::Speed, Prefer::Size, Prefer::Remote];

/// The files of the tree: path, and contents.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("bin/app", text(1, 700_000)),
        ("lib/a.so", text(2, 300_123)),
        ("lib/noise.bin", noise(3, 200_000)),
        ("lib/deep/down/z", noise(4, 5)),
        ("share/zeros", vec![0; 100_000]),
    ]
}

fn make_tree(root: &Path) {
    for (path, bytes) in files() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Scattered pages of the files, in an order that looks like chance, with look-ups between them.
fn profile() -> Profile {
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/opt/app", RootKind::Directory);
    let files = files();
    let mut random = Random(7);
    for i in 0..120u64 {
        let at = Duration::from_micros(i);
        let file = random.below(files.len() as u64);
        let len = files[file as usize].1.len() as u64;
        let offset = random.below(len);
        builder.range(root, file, offset, 1 + random.below(40_000), at);
        if i % 10 == 0 {
            let name = format!("absent-{i}");
            builder.look_up(root, 100, name.as_ref(), false, at);
        }
    }
    builder.look_up(root, 100, "a.so".as_ref(), true, Duration::from_micros(50));
    let name = |_, id: u64| match files.get(id as usize) {
        Some((path, bytes)) => {
            Some(Named::new(path, bytes.len() as u64).digest(*blake3::hash(bytes).as_bytes()))
        }
        None => Some(Named::new("lib", 0)),
    };
    builder
        .finish(vec!["bin/app".into()], None, name)
        .unwrap()
        .profile
}

struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        make_tree(&dir.path().join("tree"));
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tree(&self) -> Origin {
        Origin::directory(self.path("tree")).unwrap()
    }

    fn pack(&self, writer: &ImageWriter, name: &str) -> Image {
        let rules = TreeRules::default()
            .owner("*", Some(0), Some(0))
            .and_then(|rules| rules.mode("*", "u=rwX,go=rX".parse()?))
            .unwrap()
            .times(Times::All(1_700_000_000))
            .xattrs(false);
        let tree = Tree::from_directory(self.path("tree"), &rules).unwrap();
        writer.write(&tree, self.path(name)).unwrap();
        Image::open(self.path(name)).unwrap()
    }

    fn hot(&self, origin: &Origin, prefer: Prefer, name: &str) -> (HotPack, HotSummary) {
        let writer = HotPackWriter::new().prefer(prefer).threads(2);
        let summary = writer.write(&profile(), origin, self.path(name)).unwrap();
        (open(&self.path(name)).unwrap(), summary)
    }
}

fn open(path: &Path) -> brisk_image::Result<HotPack> {
    HotPack::open(path, &Limits::default())
}

/// Path, number and bytes.
type Page = (PathBuf, u64, Vec<u8>);

/// All pages of a pack, in order. A frame that is damaged is left out.
fn pages(pack: &HotPack) -> Vec<Page> {
    let mut reader = pack.frame_reader();
    let mut pages = Vec::new();
    for number in 0..pack.frame_count() {
        let Ok(pieces) = reader.read(number) else {
            continue;
        };
        for (range, bytes) in pieces {
            let path = pack.file(range.file as usize).unwrap().path();
            for (page, bytes) in (range.first..range.end()).zip(bytes.chunks(PAGE as usize)) {
                pages.push((path.to_owned(), page, bytes.to_owned()));
            }
        }
    }
    pages
}

/// The same, as the profile and the files have it.
fn expected_pages() -> Vec<Page> {
    expected_pages_of(|_| true)
}

/// Those of some files. A window ends before a range with which it would have more than 32 pages, or more than an
/// eighth of those before; in it, files are in the order in which they were first asked for, and pages in that of their file.
fn expected_pages_of(has: impl Fn(&Path) -> bool) -> Vec<Page> {
    let (profile, files) = (profile(), files());
    let mut asked: Vec<PathBuf> = Vec::new();
    let (mut pages, mut window) = (Vec::new(), Vec::<Page>::new());
    for (_, range) in profile.ranges() {
        let path = &profile.files()[range.file as usize].path;
        if !has(path) {
            continue;
        }
        if !asked.contains(path) {
            asked.push(path.clone());
        }
        let (_, bytes) = files
            .iter()
            .find(|(name, _)| Path::new(name) == path)
            .unwrap();
        if !window.is_empty() && window.len() + range.count as usize > 32.max(pages.len() / 8) {
            in_order(&mut window, &asked);
            pages.append(&mut window);
        }
        for page in range.first..range.end() {
            let chunk = bytes.chunks(PAGE as usize).nth(page as usize).unwrap();
            window.push((path.clone(), page, chunk.to_owned()));
        }
    }
    in_order(&mut window, &asked);
    pages.append(&mut window);
    pages
}

fn in_order(window: &mut [Page], asked: &[PathBuf]) {
    window.sort_by_key(|(path, page, _)| (asked.iter().position(|known| known == path), *page));
}

fn check_contents(pack: &HotPack, summary: &HotSummary, context: &str) {
    let expected = expected_pages();
    assert!(expected.len() > 200, "the profile asks for something");
    let pages = pages(pack);
    assert!(
        pages == expected,
        "{context}: {} pages, expected {}",
        pages.len(),
        expected.len()
    );
    let bytes: u64 = expected
        .iter()
        .map(|(_, _, bytes)| bytes.len() as u64)
        .sum();
    assert_eq!(
        (pack.pages(), pack.data_len()),
        (expected.len() as u64, bytes),
        "{context}"
    );
    assert_eq!(
        (summary.pages, summary.bytes),
        (pack.pages(), pack.data_len()),
        "{context}"
    );
    let names = summary.look_ups;
    assert_eq!(
        (names.found, names.absent, names.changed),
        (1, 12, 0),
        "{context}"
    );
    assert_eq!(
        (summary.stale_pages, summary.left_out()),
        (0, None),
        "{context}"
    );
    let steps = profile();
    let names = steps.steps().iter().filter_map(|step| match &step.asked {
        Asked::LookUp(look_up) => Some((look_up.name.clone(), look_up.found)),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    let look_ups: Vec<_> = pack
        .look_ups()
        .map(|l| (l.name.to_owned(), l.found))
        .collect();
    assert_eq!(look_ups, names, "{context}");
    assert!(
        pack.look_ups()
            .all(|look_up| look_up.directory == Path::new("lib"))
    );
    assert!(pack.look_ups().map(|look_up| look_up.before).is_sorted());
    for file in pack.files() {
        let (_, bytes) = files()
            .into_iter()
            .find(|(name, _)| Path::new(name) == file.path())
            .unwrap();
        assert_eq!(
            (file.len(), file.digest()),
            (bytes.len() as u64, *blake3::hash(&bytes).as_bytes())
        );
    }
    let frames: Vec<_> = (0..pack.frame_count())
        .map(|n| pack.frame(n).unwrap())
        .collect();
    let most = match pack.codec() {
        Codec::Lz4 => 128 << 10,
        _ => 1 << 20,
    };
    let mut before = 0;
    for frame in &frames {
        assert!(frame.len <= most.min(before.max(128 << 10)), "{context}");
        before += frame.len;
    }
    assert!(frames.len() > 1, "{context}");
    assert!(
        frames
            .windows(2)
            .all(|pair| pair[0].stored.end == pair[1].stored.start)
    );
}

#[test]
fn a_pack_has_the_pages_of_the_profile_in_their_order() {
    let sandbox = Sandbox::new();
    for prefer in BOTH {
        let (pack, summary) = sandbox.hot(&sandbox.tree(), prefer, "hot");
        check_contents(&pack, &summary, prefer.name());
        let checked = pack
            .verify(&sandbox.tree(), &Work::new().threads(2), |e| panic!("{e}"))
            .unwrap();
        assert_eq!(
            (checked.frames, checked.faults),
            (pack.frame_count() as u64, 0)
        );
        assert_eq!(
            summary.file_bytes,
            fs::metadata(sandbox.path("hot")).unwrap().len()
        );
    }
}

#[test]
fn a_pack_for_the_network_has_the_neighbours_of_its_pages_behind_them() {
    let sandbox = Sandbox::new();
    let (of_launch, _) = sandbox.hot(&sandbox.tree(), Prefer::Size, "size");
    let (pack, summary) = sandbox.hot(&sandbox.tree(), Prefer::Remote, "remote");
    let launch = pages(&of_launch);
    let all = pages(&pack);
    let (first, neighbours) = all.split_at(launch.len());
    assert!(first == launch);
    assert_eq!(pack.launch_pages(), launch.len() as u64);
    assert_eq!(pack.launch_range_count(), of_launch.range_count());
    assert_eq!(
        (summary.pages, summary.neighbours, summary.bytes),
        (
            launch.len() as u64,
            neighbours.len() as u64,
            pack.data_len()
        )
    );
    // The parts of 32 pages in the order in which the launch comes to them, and in each what is missing.
    let mut parts: Vec<(&Path, u64)> = Vec::new();
    for (path, page, _) in &launch {
        if !parts.contains(&(path, page / 32)) {
            parts.push((path, page / 32));
        }
    }
    let files = files();
    let mut expected: Vec<Page> = Vec::new();
    for (path, part) in parts {
        let (_, bytes) = files
            .iter()
            .find(|(name, _)| Path::new(name) == path)
            .unwrap();
        let chunks = (0..).zip(bytes.chunks(PAGE as usize));
        let others = chunks.filter(|(page, _)| {
            page / 32 == part && !launch.iter().any(|(p, n, _)| p == path && n == page)
        });
        expected.extend(others.map(|(page, bytes)| (path.to_owned(), page, bytes.to_owned())));
    }
    assert!(expected.len() > 20, "{}", expected.len());
    assert!(neighbours == expected);
    // Those of the launch share no frame with others.
    let last = pack.launch_frame_count();
    assert!(last < pack.frame_count());
    assert_eq!(
        pack.frame(last).unwrap().ranges.start,
        pack.launch_range_count()
    );
}

#[test]
fn a_pack_without_digests_has_the_same_pages() {
    let sandbox = Sandbox::new();
    let (whole, summary) = sandbox.hot(&sandbox.tree(), Prefer::Speed, "hot");
    let mut unread = profile();
    // What another file of the same length would be taken for.
    let text = String::from_utf8(unread.to_text()).unwrap();
    let known = text.split('"').filter(|word| word.len() == 64);
    let without = known.fold(text.clone(), |text, word| {
        text.replace(&format!("\"{word}\""), "null")
    });
    unread = Profile::from_text(without.as_bytes(), &Limits::default()).unwrap();
    let writer = HotPackWriter::new().digests(false);
    let written = writer.write(&unread, &sandbox.tree(), sandbox.path("unread"));
    let pages = |summary: &HotSummary| (summary.pages, summary.bytes, summary.frames);
    assert_eq!(pages(&written.unwrap()), pages(&summary));
    let pack = HotPack::open(sandbox.path("unread"), &Limits::default()).unwrap();
    assert!(pack.files().all(|file| file.digest() == [0; 32]));
    let frames = |pack: &HotPack| {
        let mut bytes = Vec::new();
        pack.read_stored(0..pack.frame_count(), &mut bytes).unwrap();
        bytes
    };
    assert!(frames(&pack) == frames(&whole));
}

#[test]
fn packs_are_made_of_images_of_other_tools() {
    let sandbox = Sandbox::new();
    for codec in ["gzip", "xz", "lzo", "lz4", "zstd"] {
        run(
            "mksquashfs",
            [
                sandbox.path("tree").as_os_str(),
                sandbox.path("other.img").as_os_str(),
                "-noappend".as_ref(),
                "-quiet".as_ref(),
                "-no-progress".as_ref(),
                "-comp".as_ref(),
                codec.as_ref(),
            ],
        );
        let image = Image::open(sandbox.path("other.img")).unwrap();
        let before = fs::read(sandbox.path("other.img")).unwrap();
        let (pack, summary) = sandbox.hot(&Origin::image(&image), Prefer::Speed, "hot");
        check_contents(&pack, &summary, codec);
        assert!(pack.is_of(&image).unwrap(), "{codec}");
        for file in pack.files() {
            let inode = image.inode(file.inode().unwrap()).unwrap();
            let found = image.lookup(file.path()).unwrap().unwrap();
            assert_eq!(inode.reference(), found.reference(), "{codec}");
        }
        for look_up in pack.look_ups() {
            let directory = image.inode(look_up.inode.unwrap()).unwrap();
            let found = image.lookup_in(&directory, look_up.name).unwrap();
            assert_eq!(found.is_some(), look_up.found, "{codec}");
        }
        assert!(
            fs::read(sandbox.path("other.img")).unwrap() == before,
            "{codec}: untouched"
        );
    }
}

#[test]
fn a_pack_behind_an_image_changes_nothing_before_it() {
    let sandbox = Sandbox::new();
    let plain = sandbox.pack(&ImageWriter::new(), "plain.img");
    assert!(plain.hot_pack().unwrap().is_none());
    for prefer in BOTH {
        let writer = ImageWriter::new().hot_pack(profile(), prefer);
        let image = sandbox.pack(&writer, "hot.img");
        let (bytes, without) = (
            fs::read(sandbox.path("hot.img")).unwrap(),
            fs::read(sandbox.path("plain.img")).unwrap(),
        );
        assert!(bytes[..without.len()] == without[..], "{}", prefer.name());
        assert_eq!(bytes.len() % 4096, 0);
        assert_eq!(image.hot_pack_start().unwrap(), Some(without.len() as u64));
        let pack = image.hot_pack().unwrap().unwrap();
        assert!(pages(&pack) == expected_pages());
        // The plain image is the same image, and has no pack.
        assert!(pack.is_of(&image).unwrap() && pack.is_of(&plain).unwrap());
        let mut faults = Vec::new();
        image
            .check(&Work::new().threads(2), |_, e| faults.push(e.to_string()))
            .unwrap();
        assert_eq!(faults, [""; 0]);
        // The bytes of the section are those of a file beside the image.
        let (_, summary) = sandbox.hot(&Origin::image(&image), prefer, "beside");
        let range = image.hot_pack_range().unwrap().unwrap();
        assert_eq!(range.end - range.start, summary.file_bytes);
        let start = usize::try_from(range.start).unwrap();
        assert_eq!(start, without.len() + 64);
        let beside = fs::read(sandbox.path("beside")).unwrap();
        assert_eq!(summary.file_bytes, beside.len() as u64);
        assert!(bytes[start..start + beside.len()] == beside[..]);
        // Others read it as ever.
        let out = sandbox.path("out");
        run(
            "unsquashfs",
            [
                "-quiet",
                "-no-progress",
                "-d",
                out.to_str().unwrap(),
                sandbox.path("hot.img").to_str().unwrap(),
            ],
        );
        for (path, bytes) in files() {
            assert!(fs::read(out.join(path)).unwrap() == bytes, "{path}");
        }
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn linux_mounts_an_image_with_a_pack_behind_it() {
    support::expect_root();
    support::alone_in_namespace("linux_mounts_an_image_with_a_pack_behind_it", || {
        let sandbox = Sandbox::new();
        let writer = ImageWriter::new().hot_pack(profile(), Prefer::Speed);
        sandbox.pack(&writer, "hot.img");
        support::mounted(&sandbox.path("hot.img"), |root| {
            for (path, bytes) in files() {
                assert!(fs::read(root.join(path)).unwrap() == bytes, "{path}");
            }
        });
    });
}

#[test]
fn a_pack_behind_a_program_that_carries_the_image_is_found() {
    let sandbox = Sandbox::new();
    sandbox.pack(
        &ImageWriter::new().hot_pack(profile(), Prefer::Size),
        "hot.img",
    );
    let mut carried = vec![0x55; 12_345];
    carried.extend(fs::read(sandbox.path("hot.img")).unwrap());
    fs::write(sandbox.path("carried"), carried).unwrap();
    let image =
        Image::open_with(sandbox.path("carried"), &OpenOptions::new().offset(12_345)).unwrap();
    let pack = image.hot_pack().unwrap().unwrap();
    assert!(pages(&pack) == expected_pages());
    assert!(pack.is_of(&image).unwrap());
}

#[test]
fn the_same_at_any_number_of_threads() {
    let sandbox = Sandbox::new();
    for prefer in ALL {
        let bytes = [1, 4].map(|threads| {
            let writer = HotPackWriter::new()
                .prefer(prefer)
                .threads(threads)
                .frame_size(16 << 10);
            writer
                .write(&profile(), &sandbox.tree(), sandbox.path("hot"))
                .unwrap();
            fs::read(sandbox.path("hot")).unwrap()
        });
        assert!(bytes[0] == bytes[1], "{}", prefer.name());
        let images = [1, 4].map(|threads| {
            sandbox.pack(
                &ImageWriter::new()
                    .threads(threads)
                    .hot_pack(profile(), prefer),
                "a.img",
            );
            fs::read(sandbox.path("a.img")).unwrap()
        });
        assert!(images[0] == images[1], "{}", prefer.name());
    }
}

/// The pack of an image with one codec, so that no time of a file is in it.
#[test]
fn packs_are_what_they_were() {
    let sandbox = Sandbox::new();
    let image = sandbox.pack(
        &ImageWriter::new()
            .compression(Compression::None)
            .time(1_700_000_000),
        "plain.img",
    );
    let sums = ALL.map(|prefer| {
        sandbox.hot(&Origin::image(&image), prefer, "hot");
        let sum = blake3::hash(&fs::read(sandbox.path("hot")).unwrap());
        format!("{} {}", prefer.name(), sum.to_hex())
    });
    assert_eq!(
        sums.join("\n") + "\n",
        include_str!("../testdata/golden/HOT_PACKS")
    );
}

#[test]
fn what_changed_is_left_out_and_said() {
    let sandbox = Sandbox::new();
    let tree = sandbox.path("tree");
    let whole = sandbox.hot(&sandbox.tree(), Prefer::Speed, "hot").1;
    let of = |path: &str| {
        expected_pages()
            .iter()
            .filter(|(p, ..)| p == Path::new(path))
            .count() as u64
    };
    let file = fs::File::options()
        .write(true)
        .open(tree.join("bin/app"))
        .unwrap();
    file.write_all_at(b"patched", 1000).unwrap();
    fs::remove_file(tree.join("share/zeros")).unwrap();
    fs::write(tree.join("lib/absent-20"), "").unwrap();
    let (pack, summary) = sandbox.hot(&sandbox.tree(), Prefer::Speed, "hot");
    let stale = of("bin/app") + of("share/zeros");
    assert_eq!(
        summary.left_out().unwrap(),
        format!(
            "left out of the hot pack: {stale} pages of 2 files that changed or are gone, \
             1 look-up with another answer; record the profile again to have them"
        )
    );
    assert_eq!(summary.pages, whole.pages - stale);
    let expected =
        expected_pages_of(|path| path != Path::new("bin/app") && path != Path::new("share/zeros"));
    assert!(pages(&pack) == expected);

    for (path, _) in files() {
        fs::remove_file(tree.join(path)).ok();
    }
    let e = HotPackWriter::new()
        .write(&profile(), &sandbox.tree(), sandbox.path("none"))
        .unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "{}: none of the {} pages that the profile asks for is of a file that is still the same; \
                 record it again",
            tree.display(),
            whole.pages
        )
    );
    assert!(!sandbox.path("none").exists());
}

#[test]
fn a_pack_is_not_taken_for_that_of_another_tree_or_image() {
    let sandbox = Sandbox::new();
    let image = sandbox.pack(&ImageWriter::new(), "a.img");
    let of_tree = sandbox.hot(&sandbox.tree(), Prefer::Speed, "of-tree").0;
    let of_image = sandbox
        .hot(&Origin::image(&image), Prefer::Speed, "of-image")
        .0;
    assert!(!of_tree.is_of(&image).unwrap());
    assert!(of_image.is_of(&image).unwrap());
    // Same length and times; another inode.
    let tree = sandbox.path("tree");
    let path = tree.join("lib/a.so");
    run(
        "cp",
        [
            "-p",
            path.to_str().unwrap(),
            tree.join("copy").to_str().unwrap(),
        ],
    );
    fs::rename(tree.join("copy"), &path).unwrap();
    let stale: Vec<_> = of_tree
        .files()
        .filter(|file| !file.is(&fs::metadata(tree.join(file.path())).unwrap()))
        .map(|file| file.path().to_owned())
        .collect();
    assert_eq!(stale, [Path::new("lib/a.so")]);
    // Another image of the changed tree.
    fs::write(tree.join("bin/app"), "other").unwrap();
    let other = sandbox.pack(&ImageWriter::new(), "b.img");
    assert!(!of_image.is_of(&other).unwrap());
    let mut faults = Vec::new();
    of_image
        .verify(&Origin::image(&other), &Work::new().threads(1), |e| {
            faults.push(e.to_string());
        })
        .unwrap();
    let said = format!(
        "{}: corrupt hot pack at table[0]: the identity is that of another image, allowed is that of this \
         one, so that no launch uses the pack",
        sandbox.path("of-image").display()
    );
    assert_eq!(faults, [said]);
}

/// A pack small enough to try every byte of it.
fn small(dir: &Path) -> (Vec<u8>, Vec<Page>) {
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/words"), text(5, 9000)).unwrap();
    fs::write(dir.join("tree/noise"), noise(6, 300)).unwrap();
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/a", RootKind::Directory);
    builder.range(root, 0, 4096, 9000, Duration::ZERO);
    builder.look_up(root, 9, "x".as_ref(), false, Duration::ZERO);
    builder.range(root, 1, 0, 300, Duration::ZERO);
    let name = |_, id| {
        Some(match id {
            0 => Named::new("words", 9000),
            1 => Named::new("noise", 300),
            _ => Named::new("", 0),
        })
    };
    let profile = builder.finish(Vec::new(), None, name).unwrap().profile;
    let origin = Origin::directory(dir.join("tree")).unwrap();
    let writer = HotPackWriter::new().prefer(Prefer::Size).frame_size(4096);
    writer.write(&profile, &origin, dir.join("hot")).unwrap();
    let pack = open(&dir.join("hot")).unwrap();
    assert_eq!(pack.frame_count(), 3);
    (fs::read(dir.join("hot")).unwrap(), pages(&pack))
}

#[test]
fn no_damage_gives_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, whole) = small(dir.path());
    let limits = Limits::default();
    let data = {
        let pack = HotPack::from_source(bytes.clone(), &limits).unwrap();
        pack.frame(0).unwrap().stored.start as usize
    };
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            match HotPack::from_source(bytes, &limits) {
                Err(_) if at < data => {}
                Err(e) => panic!("byte {at}: {e}"),
                Ok(_) if at < data => panic!("byte {at} bit {bit} of the front can be anything"),
                Ok(pack) => {
                    let left = pages(&pack);
                    assert!(left.len() < whole.len(), "byte {at} bit {bit}");
                    assert!(
                        left.iter().all(|page| whole.contains(page)),
                        "byte {at} bit {bit}"
                    );
                }
            }
        }
    }
    for len in 0..bytes.len() {
        let e = HotPack::from_source(bytes[..len].to_vec(), &limits).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{len} bytes: {e}");
    }
}

#[test]
fn damage_is_said_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = small(dir.path());
    let limits = Limits::default();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        HotPack::from_source(bytes, &limits)
            .unwrap_err()
            .to_string()
    };
    let len = bytes.len();
    let stored = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
    let data = len - 64 - stored as usize;
    let table: &[(usize, &[u8], String)] = &[
        (
            0,
            b"B",
            "corrupt hot pack at byte 0: magic is \"Briskhot\", allowed is \"briskhot\"".into(),
        ),
        (
            8,
            &[2],
            "hot pack version 2 is not supported, only 1 is; make it again with this brisk".into(),
        ),
        (
            12,
            &[4],
            "corrupt hot pack at byte 12: codec is 4, allowed is 5 (lz4) or 6 (zstd)".into(),
        ),
        (
            16,
            &[0; 4],
            format!(
                "corrupt hot pack at byte 16: stored bytes of the table is 0, allowed is 1 to {}",
                u32::from_le_bytes(bytes[20..24].try_into().unwrap())
            ),
        ),
        (
            20,
            &[255; 4],
            format!(
                "the table of a hot pack needs 4294967295, which passes the limit of {}",
                (1 << 20) + 16 * bytes.len()
            ),
        ),
        (
            24,
            &[255; 8],
            format!(
                "corrupt hot pack at byte 24: stored bytes of the data is 18446744073709551615, allowed is {data}"
            ),
        ),
        (
            63,
            &[bytes[63] ^ 1],
            "corrupt hot pack at byte 48: the checksum of header and table is of other bytes"
                .into(),
        ),
    ];
    for (at, new, message) in table {
        assert_eq!(with(*at, new), *message);
    }
    let mut damaged = bytes.clone();
    damaged[len - 1] ^= 1;
    let pack = HotPack::from_source(damaged, &limits).unwrap();
    let e = pack.frame_reader().read(2).err().unwrap();
    let at = pack.frame(2).unwrap().stored.start;
    assert_eq!(
        e.to_string(),
        format!(
            "corrupt hot pack at byte {at}: a frame does not decode as zstd: its checksum is of other bytes"
        )
    );
    // A reader gives again what it holds, and nothing after an error.
    let mut reader = pack.frame_reader();
    let held = |reader: &FrameReader| -> Option<Vec<u8>> {
        let pieces = reader.held()?;
        Some(pieces.flat_map(|(_, bytes)| bytes.to_vec()).collect())
    };
    assert_eq!(held(&reader), None);
    let pieces = reader.read(0).unwrap();
    let right: Vec<_> = pieces.flat_map(|(_, bytes)| bytes.to_vec()).collect();
    assert!(held(&reader).unwrap() == right);
    assert!(reader.read(2).is_err());
    assert_eq!(held(&reader), None);
    reader.read(0).map(drop).unwrap();
    assert!(held(&reader).unwrap() == right);
    assert!(reader.decode(0, b"other").is_err());
    assert_eq!(held(&reader), None);
    let e = pack.frame_reader().read(3).err().unwrap();
    assert_eq!(e.to_string(), "frame is 3, allowed is less than 3");
    let e = HotPack::from_source(bytes[..63].to_vec(), &limits).unwrap_err();
    assert_eq!(
        e.to_string(),
        "corrupt hot pack at byte 0: the header needs 64 bytes, 63 are left"
    );
}

#[test]
fn options_that_cannot_be_are_said() {
    let sandbox = Sandbox::new();
    for bytes in [0, 4095, 5000, 2 << 20] {
        let writer = HotPackWriter::new().frame_size(bytes);
        let e = writer
            .write(&profile(), &sandbox.tree(), sandbox.path("hot"))
            .unwrap_err();
        assert_eq!(
            e.to_string(),
            format!("frame size is {bytes}, allowed is a multiple of 4096 from 4096 to 1048576")
        );
    }
    let e = "fast".parse::<Prefer>().unwrap_err();
    assert_eq!(
        e.to_string(),
        "preference is \"fast\", allowed is speed, size or remote"
    );
}

/// The pack with its table stored as it is and changed, and a checksum that is right.
fn with_table(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (stored, len) = (word(16), word(20));
    let (front, data) = bytes.split_at(64 + stored);
    let mut table = match stored == len {
        true => front[64..].to_vec(),
        false => zstd::bulk::decompress(&front[64..], len).unwrap(),
    };
    change(&mut table);
    let mut header = front[..64].to_vec();
    let len = u32::try_from(table.len()).unwrap().to_le_bytes();
    header[16..20].copy_from_slice(&len);
    header[20..24].copy_from_slice(&len);
    header[48..].fill(0);
    let sum = blake3::hash(&[&header[..], &table].concat());
    header[48..].copy_from_slice(&sum.as_bytes()[..16]);
    [&header[..], &table, data].concat()
}

#[test]
fn no_table_is_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, whole) = small(dir.path());
    let limits = Limits::default();
    let pack = HotPack::from_source(with_table(&bytes, |_| {}), &limits).unwrap();
    assert!(pages(&pack) == whole, "a table may be stored as it is");
    let mut len = 0;
    with_table(&bytes, |table| len = table.len());
    let mut accepted = 0;
    for at in 0..len {
        for value in [0, 1, 2, 5, 0x2e, 0x2f, 0x7f, 0x80, 0xff] {
            let bytes = with_table(&bytes, |table| table[at] = value);
            if let Ok(pack) = HotPack::from_source(bytes, &limits) {
                accepted += 1;
                pages(&pack);
                assert_eq!(pack.look_ups().len(), 1);
                assert!(pack.files().all(|file| !file.path().has_root()));
            }
        }
        let e = HotPack::from_source(with_table(&bytes, |table| table.truncate(at)), &limits);
        assert!(e.is_err(), "cut at {at}");
    }
    // Digests, times and inode numbers can be anything.
    assert!(accepted > 1000, "{accepted}");
}

/// Files of the first version of both formats, which are never made again.
#[test]
fn the_first_version_is_read() {
    let path = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata/compat")
            .join(name)
    };
    let profile = Profile::open(path("v0.1.profile"), &Limits::default()).unwrap();
    assert_eq!(profile.to_text(), fs::read(path("v0.1.profile")).unwrap());
    assert_eq!((profile.runs(), profile.steps().len()), (2, 6));
    let image = Image::open(path("v0.1.img")).unwrap();
    let pack = open(&path("v0.1.hot")).unwrap();
    assert!(pack.is_of(&image).unwrap());
    let ranges: Vec<_> = (0..pack.range_count())
        .map(|number| {
            let range = pack.range(number).unwrap();
            let file = pack.file(range.file as usize).unwrap();
            (file.path().to_str().unwrap(), range.first, range.count)
        })
        .collect();
    assert_eq!(
        ranges,
        [
            ("app/bin/run", 1, 2),
            ("app/map", 0, 1),
            ("app/bin/run", 0, 1)
        ]
    );
    let look_ups: Vec<_> = pack
        .look_ups()
        .map(|l| {
            (
                l.directory.to_str().unwrap(),
                l.name.to_str().unwrap(),
                l.found,
                l.before,
            )
        })
        .collect();
    assert_eq!(
        look_ups,
        [("app", "bin", true, 0), ("app/bin", "run.cfg", false, 1)]
    );
    let checked = pack
        .verify(&Origin::image(&image), &Work::new().threads(1), |e| {
            panic!("{e}")
        })
        .unwrap();
    assert_eq!((checked.frames, checked.bytes), (1, 9000 + 4096));
}

#[test]
fn threads_decode_from_windows() {
    let sandbox = Sandbox::new();
    let writer = HotPackWriter::new().frame_size(16 << 10);
    writer
        .write(&profile(), &sandbox.tree(), sandbox.path("hot"))
        .unwrap();
    let pack = open(&sandbox.path("hot")).unwrap();
    let frames = pack.frame_count();
    assert!(frames > 20);
    let windows: Vec<_> = (0..frames)
        .step_by(7)
        .map(|first| first..frames.min(first + 7))
        .collect();
    let decoded: Vec<Vec<Page>> = std::thread::scope(|scope| {
        let threads = windows.iter().map(|window| {
            let pack = pack.clone();
            scope.spawn(move || {
                let (mut reader, mut stored, mut pages) =
                    (pack.frame_reader(), Vec::new(), Vec::new());
                pack.read_stored(window.clone(), &mut stored).unwrap();
                let start = pack.frame(window.start).unwrap().stored.start;
                for number in window.clone() {
                    let sandbox = pack.frame(number).unwrap().stored;
                    let bytes =
                        &stored[(sandbox.start - start) as usize..(sandbox.end - start) as usize];
                    for (range, bytes) in reader.decode(number, bytes).unwrap() {
                        let path = pack.file(range.file as usize).unwrap().path();
                        for (page, bytes) in
                            (range.first..range.end()).zip(bytes.chunks(PAGE as usize))
                        {
                            pages.push((path.to_owned(), page, bytes.to_owned()));
                        }
                    }
                    let e = reader.decode(number, &bytes[1..]).err().unwrap();
                    assert_eq!(e.kind(), ErrorKind::Corrupt);
                }
                pages
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(decoded.concat() == expected_pages());
    let mut out = vec![1];
    pack.read_stored(frames..frames, &mut out).unwrap();
    assert!(out.is_empty());
    assert_eq!(
        pack.read_stored(0..frames + 1, &mut out)
            .unwrap_err()
            .kind(),
        ErrorKind::Input
    );
}

/// What `brisk publish` writes: the pack is the same, whether it is read through the tree or not.
#[test]
fn a_hash_tree_may_follow_a_pack() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, whole) = small(dir.path());
    let path = dir.path().join("published");
    fs::write(&path, &bytes).unwrap();
    let file = fs::File::options().read(true).write(true).open(&path);
    let file = file.unwrap();
    let end = (bytes.len() as u64).next_multiple_of(4096);
    let summary = append_tree_at(&file, end, &Work::new()).unwrap();
    let pack = open(&path).unwrap();
    assert_eq!(
        (pack.len(), pages(&pack)),
        (bytes.len() as u64, whole.clone())
    );

    let tree = TreeFile::new(file.try_clone().unwrap(), &path, summary.hash_offset);
    let root = summary.root_hash.parse().unwrap();
    let verified = VerifiedFile::new(file, &path, tree, root).unwrap();
    let pack = HotPack::from_source(verified, &Limits::default()).unwrap();
    assert_eq!(pages(&pack), whole);

    // Anything else behind a pack is refused.
    let mut more = fs::read(&path).unwrap();
    more[end as usize] ^= 1;
    for other in [more, [&bytes[..], &[0; 9]].concat()] {
        let e = HotPack::from_source(other, &Limits::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
    }
}
