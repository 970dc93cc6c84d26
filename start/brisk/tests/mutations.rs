//! Every verb on ten thousand images that were changed at random: no panic, no signal, no time-out. For `make
//! torture`.
//!
//! Each image has a number, from which all of its changes follow. The verbs run as the calls of the library that they
//! make, in processes of [`AT_ONCE`] images each; every [`PROGRAM`]th image also goes through the programs, and is
//! mounted. `BRISK_MUTATIONS=FROM..TO` chooses the numbers.

mod bounded;
mod looking;

use std::fs;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bounded::{VERBS, Worst, mount_and_walk, run};
use brisk_image::hot_pack::{HotPackWriter, Prefer};
use brisk_image::profile::{Origin, Profile};
use brisk_image::rules::PlanRules;
use brisk_image::verity::{RootHash, VerifiedFile, Verity};
use brisk_image::{
    Extractor, Image, ImageWriter, Limits, OpenOptions, Result, Tree, TreeRules, Work,
};
use looking::{Place, noise, write};

/// Images that one process reads.
const AT_ONCE: u64 = 500;

/// One image of so many also goes through the programs.
const PROGRAM: u64 = 33;

/// What is taken for being without end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of files that an image may have: with the default, a few would take most of the time.
const CONTENTS: u64 = 64 << 20;

/// How many calls of the library stand for the verbs.
const VERBS_OF_LIBRARY: usize = 12;

/// Random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Offset and length of each field of a superblock.
const FIELDS: [(usize, usize); 19] = [
    (0, 4),
    (4, 4),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    (24, 2),
    (26, 2),
    (28, 2),
    (30, 2),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
];

fn word(image: &[u8], at: usize) -> u64 {
    let bytes = image
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

/// A number that is likely to be wrong in an interesting way.
fn number(random: &mut Random, image: &[u8]) -> u64 {
    let near = random.below(17) as u64;
    let (at, _) = random.of(&FIELDS);
    let base = random.of(&[
        0,
        1 << 8,
        1 << 13,
        1 << 15,
        1 << 16,
        1 << 24,
        1 << 31,
        1 << 32,
        1 << 48,
        1 << 63,
        u64::MAX,
        image.len() as u64,
        word(image, at),
    ]);
    match random.below(3) {
        0 => random.next() >> random.below(64),
        _ => base.wrapping_add(near).wrapping_sub(8),
    }
}

fn put(image: &mut [u8], at: usize, len: usize, number: u64) {
    let len = len.min(image.len().saturating_sub(at));
    image[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
}

/// A place in the tables, or behind them.
fn in_tables(random: &mut Random, image: &[u8]) -> usize {
    let start = usize::try_from(word(image, 64))
        .unwrap_or(0)
        .min(image.len());
    start + random.below(image.len() - start)
}

/// The image `number`: one of `seeds` with one to four changes.
fn mutated(seeds: &Seeds, number_of_image: u64) -> Vec<u8> {
    let seeds = &seeds.images;
    let random = &mut Random(number_of_image);
    let mut image = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        if image.len() < 100 {
            break;
        }
        match random.below(12) {
            0 => {
                let at = random.below(image.len());
                image[at] ^= 1 << random.below(8);
            }
            1 | 2 => {
                for _ in 0..=random.below(8) {
                    let at = in_tables(random, &image).min(image.len() - 1);
                    image[at] ^= 1 << random.below(8);
                }
            }
            3 | 4 => {
                let (at, len) = random.of(&FIELDS);
                let number = number(random, &image);
                put(&mut image, at, len, number);
            }
            5..=7 => {
                let (at, len) = (in_tables(random, &image), random.of(&[1, 2, 4, 8]));
                let number = number(random, &image);
                put(&mut image, at, len, number);
            }
            8 => {
                let len = random.below(image.len());
                image.truncate(len);
                // Half of them say so.
                if random.below(2) == 0 && len > 48 {
                    put(&mut image, 40, 8, len as u64);
                }
            }
            9 => {
                let other = &seeds[random.below(seeds.len())];
                let (from, to) = (random.below(other.len()), random.below(image.len()));
                let len = random
                    .below(4096)
                    .min(other.len() - from)
                    .min(image.len() - to);
                image[to..to + len].copy_from_slice(&other[from..from + len]);
            }
            10 => {
                let (from, to) = (in_tables(random, &image), in_tables(random, &image));
                let len = random.below(300).min(image.len() - from.max(to));
                image.copy_within(from..from + len, to);
            }
            _ => {
                let at = in_tables(random, &image);
                let len = random.below(40);
                match random.below(2) {
                    0 => drop(image.splice(at..at, noise(len))),
                    _ => drop(image.drain(at..(at + len).min(image.len()))),
                }
            }
        }
    }
    image
}

/// A tree with what images have: links, holes, attributes, small and large files, a long directory.
fn tree(place: &Place) {
    let root = place.path("tree");
    let directory = |name: &str| fs::create_dir_all(root.join(name)).expect("the place is ours");
    directory("many");
    directory("a/b/c");
    for i in 0..300 {
        write(
            &root.join(format!("many/{i:03}")),
            format!("{i} ").repeat(i).as_bytes(),
        );
    }
    write(&root.join("noise"), &noise(30_000));
    write(&root.join("text"), "brisk ".repeat(9_000).as_bytes());
    let hole = fs::File::create(root.join("zeros")).expect("the place is ours");
    hole.set_len(400_000).expect("the place is ours");
    write(&root.join("a/b/c/one"), b"one");
    fs::hard_link(root.join("text"), root.join("a/text")).expect("the place is ours");
    std::os::unix::fs::symlink("../text", root.join("a/link")).expect("the place is ours");
    let flags = rustix::fs::XattrFlags::empty();
    for (name, value) in [("user.a", &b"value"[..]), ("user.b", &[7; 500])] {
        rustix::fs::setxattr(root.join("noise"), name, value, flags).expect("the place is ours");
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("a/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("the place is ours");
}

/// A profile of the tree, in the form of the library.
const PROFILE: &str = r#"{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["text"],
"runs": 1,
"ready": ["exit", 1500],
"roots": [
["/opt/tree", "image"]
],
"files": [
[0, "noise", 30000, null],
[0, "text", 54000, null],
[0, "many/200", 800, null]
],
"directories": [
[0, ""],
[0, "many"]
],
"steps": [
["found", 0, "text", 10, 1],
["pages", 0, 0, 8, 11, 1],
["pages", 1, 2, 8, 12, 1],
["pages", 2, 0, 1, 12, 1],
["absent", 1, "none", 13, 1]
]
}
"#;

fn profile() -> Profile {
    Profile::from_text(PROFILE.as_bytes(), &Limits::of_profiles()).expect("it is a profile")
}

/// What is mutated.
#[derive(Clone)]
struct Seeds {
    images: Vec<Vec<u8>>,
    /// The root hash of the last image, which has a hash tree behind it.
    root: RootHash,
}

/// Images of the tree by mksquashfs, in each codec and with tables as they are, and by brisk, with sections, a pack and a
/// hash tree.
fn seeds(place: &Place) -> Seeds {
    tree(place);
    let mut images = Vec::new();
    for options in [
        &["-comp", "gzip"][..],
        &["-comp", "lzo"],
        &["-comp", "xz"],
        &["-comp", "lz4"],
        &["-comp", "zstd"],
        &["-comp", "zstd", "-noI", "-noX"],
        &[
            "-comp",
            "gzip",
            "-noI",
            "-noD",
            "-noF",
            "-noX",
            "-no-duplicates",
        ],
    ] {
        let options = [options, &["-b", "4096", "-xattrs"]].concat();
        place.mksquashfs("tree", "seed.img", &options);
        images.push(place.read("seed.img"));
    }
    let writer = || {
        ImageWriter::new()
            .block_size(4096)
            .place("/opt/tree".into())
    };
    let raw = PlanRules::new(vec![], vec!["noise".into()]).expect("they are patterns");
    for writer in [
        writer().hot_pack(profile(), Prefer::Size),
        writer()
            .rules(raw)
            .compression("none".parse().expect("it is a codec")),
        writer()
            .compression("lz4".parse().expect("it is a codec"))
            .hot_pack(profile(), Prefer::Speed),
    ] {
        place.pack(&writer, "tree", "seed.img");
        images.push(place.read("seed.img"));
    }
    let writer = writer().hot_pack(profile(), Prefer::Speed).verity(true);
    place.pack(&writer, "tree", "seed.img");
    images.push(place.read("seed.img"));
    let file = fs::File::open(place.path("seed.img")).expect("it was packed");
    let verified = VerifiedFile::of_its_own_root(&place.path("seed.img"), file, None);
    let root = verified.expect("it has a hash tree").root_hash();
    Seeds { images, root }
}

fn options() -> OpenOptions {
    OpenOptions::new().limits(Limits::new().contents(CONTENTS))
}

/// The image at `path`, compared with its hash tree: by the root hash `root`, else by whatever is at the top of the tree.
fn verified(path: &Path, root: Option<RootHash>) -> Result<Image> {
    let file = fs::File::open(path).expect("it was written");
    let file = match root {
        Some(root) => VerifiedFile::open(path, file, None, &Verity::new(root))?,
        None => VerifiedFile::of_its_own_root(path, file, None)?,
    };
    Image::open_verified(Arc::new(file), &options())
}

/// Reads all files of an image that is verified by the right root hash. Each is an error, or that of the tree at `place`.
fn read_verified(place: &Path, image: &Image) -> Result<()> {
    let mut failed = None;
    for entry in image.walk()? {
        let entry = entry?;
        if entry.inode().is_file() {
            let right = place.join("tree").join(entry.path());
            let right = fs::read(right).expect("a name of the tree");
            match image.read(entry.path()) {
                Ok(read) => assert!(read == right, "wrong bytes in {:?}", entry.path()),
                Err(e) => failed = Some(e),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// What the verbs ask the library, on the image at `path`. Any of it may fail. Returns how many did not; none for an
/// image that is not opened.
fn verbs(place: &Path, path: &Path, seed: &Tree, root: RootHash) -> Option<usize> {
    let options = options();
    let image = Image::open_with(path, &options).ok()?;
    let work = || Work::new().threads(2);
    // Each verb goes on where another one fails.
    let each: [&dyn Fn() -> Result<()>; VERBS_OF_LIBRARY] = [
        &|| image.usage(10).map(drop),
        &|| {
            for entry in image.walk()? {
                let entry = entry?;
                image.xattrs(entry.inode())?;
                image.lookup(entry.path())?;
            }
            Ok(())
        },
        &|| {
            for entry in image.walk()?.take(2000) {
                let entry = entry?;
                if entry.inode().is_file() {
                    let file = image.file(entry.inode())?;
                    // The next file may be sound.
                    file.copy_to(0..4 << 20, &mut io::sink(), 2).ok();
                }
            }
            Ok(())
        },
        &|| image.check(&work(), |_, _| ()).map(drop),
        &|| {
            let target = place.join("out");
            let extracted = Extractor::new().threads(2).extract(&image, &target);
            fs::remove_dir_all(&target).ok();
            extracted.map(drop)
        },
        &|| {
            let tree = Tree::from_image(&image, &TreeRules::default())?;
            tree.compare(seed, &[], &work()).map(drop)
        },
        &|| {
            let tree = Tree::from_image(&image, &TreeRules::default())?;
            let writer = ImageWriter::new().threads(2);
            let writer = writer.compression("lz4".parse()?);
            writer.write(&tree, place.join("again.img")).map(drop)
        },
        &|| {
            image.recorded_place().ok();
            image.entry_point().ok();
            if let Some(recipe) = image.recipe()? {
                ImageWriter::from_recipe(&recipe)?;
            }
            Ok(())
        },
        &|| {
            let origin = Origin::image(&image);
            if let Some(pack) = image.hot_pack()? {
                pack.verify(&origin, &work(), |_| ())?;
            }
            Ok(())
        },
        &|| {
            let origin = Origin::image(&image);
            profile().check(&origin, &work())?;
            let pack = place.join("a.hot");
            HotPackWriter::new()
                .write(&profile(), &origin, pack)
                .map(drop)
        },
        &|| {
            let image = verified(path, None)?;
            let origin = Origin::image(&image);
            if let Some(pack) = image.hot_pack()? {
                pack.verify(&origin, &work(), |_| ())?;
            }
            image.check(&work(), |_, _| ()).map(drop)
        },
        &|| read_verified(place, &verified(path, Some(root))?),
    ];
    // Each may fail, and must end.
    Some(each.iter().filter(|verb| verb().is_ok()).count())
}

/// The images of `range`, one after the other. What breaks is told with the number of its image.
fn read_in_process(range: Range<u64>) {
    let place = Place::new();
    let seeds = seeds(&place);
    let seed = Tree::from_directory(place.path("tree"), &TreeRules::default()).expect("a tree");
    let (give, take) = mpsc::channel::<u64>();
    let (done, ended) = mpsc::channel();
    let (above, path, root) = (place.path("."), place.path("mutated.img"), seeds.root);
    let image_of = {
        let seeds = seeds.clone();
        move |number| mutated(&seeds, number)
    };
    std::thread::spawn(move || {
        for number in take {
            write(&path, &image_of(number));
            let result = catch_unwind(AssertUnwindSafe(|| verbs(&above, &path, &seed, root)));
            if done.send(result.ok()).is_err() {
                break;
            }
        }
    });
    let (mut opened, mut worked, count) = (0, 0, range.end - range.start);
    for number in range {
        // A signal ends the process: then this is the last that it says.
        eprintln!("image {number}");
        give.send(number).expect("the thread is there");
        match ended.recv_timeout(PATIENCE) {
            Ok(Some(verbs)) => {
                opened += u64::from(verbs.is_some());
                worked += verbs.unwrap_or(0);
            }
            Ok(None) => panic!("image {number}: a panic"),
            Err(e) => panic!("image {number}: no end after {PATIENCE:?}, {e}"),
        }
    }
    eprintln!(
        "opened {opened} of {count}, on which {worked} of {VERBS_OF_LIBRARY} verbs each did not fail"
    );
    // Changes that break everything would test nothing.
    assert!(
        opened * 2 > count,
        "{opened} of {count} images can be opened"
    );
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

const RANGE: &str = "BRISK_MUTATIONS";
const PART: &str = "BRISK_MUTATIONS_PART";

#[test]
#[ignore = "takes half an hour"]
fn ten_thousand_mutated_images_break_no_verb() {
    if let Some(part) = std::env::var(PART).ok().as_deref().and_then(range) {
        return read_in_process(part);
    }
    let given = std::env::var(RANGE).ok();
    let all = given.as_deref().map_or(Some(0..10_000), range);
    let all = all.expect("the range is FROM..TO");
    let started = Instant::now();
    let mut broken = Vec::new();
    let mut from = all.start;
    while from < all.end {
        let to = (from + AT_ONCE).min(all.end);
        let output = Command::new(std::env::current_exe().expect("this is a program"))
            .args(["--exact", "ten_thousand_mutated_images_break_no_verb"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env(PART, format!("{from}..{to}"))
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("image "));
        from = to;
        if !output.status.success() {
            let last: String = last
                .unwrap_or("none")
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            let end: Vec<&str> = said.lines().rev().take(12).collect();
            broken.push(format!(
                "image {last}: {}\n{}",
                output.status,
                end.join("\n")
            ));
            // The images after it have their turn, too.
            from = last.parse().map_or(to, |last: u64| last + 1);
        }
        let seconds = started.elapsed().as_secs();
        eprintln!("{from} images, {seconds} s, {} broken", broken.len());
    }
    let programs = through_programs(all.clone());
    let seconds = started.elapsed().as_secs();
    eprintln!("{programs} images through the programs; {seconds} s in all");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every [`PROGRAM`]th image through all verbs as programs, and mounted.
fn through_programs(all: Range<u64>) -> u64 {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts: run it as root"
    );
    let place = Place::new();
    let seeds = seeds(&place);
    place.pack(&ImageWriter::new(), "tree", "ordinary.img");
    write(&place.path("a.profile"), PROFILE.as_bytes());
    fs::create_dir(place.path("at")).expect("the place is ours");
    let mut count = 0;
    let (mut verbs, mut servers) = (Worst::default(), Worst::default());
    for number in all.filter(|number| number % PROGRAM == 0) {
        // Not the same path: a mount of the last one may still end.
        let name = format!("{number}.img");
        write(&place.path(&name), &mutated(&seeds, number));
        eprintln!("program {number}");
        for verb in VERBS {
            verbs.add(run(&place, verb, &name), verb.replace("IMAGE", &name));
        }
        servers.add(mount_and_walk(&place, &name), format!("mount {name}"));
        fs::remove_file(place.path(&name)).expect("it is there");
        count += 1;
    }
    verbs.print("programs");
    servers.print("mounts");
    count
}

/// An everyday part of the above: as many images as take some seconds.
#[test]
fn some_mutated_images_break_no_verb() {
    read_in_process(1_000_000..1_000_060);
}

/// Keeps an image that broke something: `BRISK_MUTATION=NUMBER` writes it to `target/mutated-NUMBER.img`.
#[test]
#[ignore = "writes a file, for a developer"]
fn keep() {
    let Some(number) = std::env::var("BRISK_MUTATION")
        .ok()
        .and_then(|n| n.parse().ok())
    else {
        return;
    };
    let place = Place::new();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../target/mutated-{number}.img"));
    write(&path, &mutated(&seeds(&place), number));
}
