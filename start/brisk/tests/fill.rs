//! Filling the page cache from a hot pack: which pages are there before anybody asks for them. A program sees
//! nothing of a fault in a pack, or of what happens to its fill.
//!
//! All tests run twice: as root, and as an ordinary user in a user namespace.

mod staging;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::hot_pack::{HotPack, Prefer};
use brisk_image::profile::{Named, Profile, ProfileBuilder, RootKind};
use brisk_image::{Image, ImageWriter, Limits, Tree, TreeRules};
use brisk_io::Residency;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Pid, Signal, kill_process};
use staging::{Stage, each_user};

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Adds a file with holes, and files whose last page is not whole, to the tree, and packs it.
fn prepare(stage: &Stage) {
    let sparse = File::create(stage.path("tree/sparse")).unwrap();
    sparse.set_len(1_000_001).unwrap();
    sparse.write_all_at(b"in the middle", 500_000).unwrap();
    for len in [1, 4095, 4096, 4097, 131_071, 131_072, 131_073] {
        let bytes: Vec<_> = (0..len).map(|i| (i % 251) as u8).collect();
        fs::write(stage.path(&format!("tree/of-{len}")), bytes).unwrap();
    }
    stage.pack("app.img");
}

/// The regular files of the tree, in order of their names.
fn files(stage: &Stage) -> Vec<String> {
    fn visit(root: &Path, below: &str, found: &mut Vec<String>) {
        let entries = fs::read_dir(root.join(below)).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for name in names {
            let path = match below {
                "" => name,
                below => format!("{below}/{name}"),
            };
            let kind = fs::symlink_metadata(root.join(&path)).unwrap();
            if kind.is_dir() {
                visit(root, &path, found);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&stage.path("tree"), "", &mut found);
    found
}

/// A launch that asks for all pages of `files`, and looks up all names on their paths and some absent names.
fn profile(stage: &Stage, files: &[String]) -> Profile {
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/opt/app", RootKind::Image);
    let mut names: Vec<String> = files.to_vec();
    let mut directories = vec![String::new()];
    for (file, path) in files.iter().enumerate() {
        let at = Duration::from_micros(file as u64);
        let len = fs::metadata(stage.path("tree").join(path)).unwrap().len();
        let mut below = String::new();
        for name in path.split('/') {
            let id = directories.iter().position(|known| *known == below);
            let id = id.unwrap_or_else(|| {
                directories.push(below.clone());
                directories.len() - 1
            });
            let id = (files.len() + id) as u64;
            builder.look_up(root, id, name.as_ref(), true, at);
            builder.look_up(root, id, format!("no-{name}").as_ref(), false, at);
            below = match below.as_str() {
                "" => name.to_owned(),
                below => format!("{below}/{name}"),
            };
        }
        builder.range(root, file as u64, 0, len, at);
    }
    names.extend(directories);
    let name = |_, id: u64| {
        let path = names.get(usize::try_from(id).unwrap())?;
        let bytes = (id < files.len() as u64).then(|| fs::read(stage.path("tree").join(path)));
        let bytes = bytes.transpose().unwrap();
        Some(
            Named::new(path, bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
                .digest(bytes.map(|bytes| *blake3::hash(&bytes).as_bytes())),
        )
    };
    let finished = builder.finish(vec!["app".into()], None, name);
    finished.unwrap().profile
}

/// Makes a hot pack from [`profile`], as the user does who starts programs: what brisk knows of it is theirs.
fn make_pack(stage: &Stage, image: &str, files: &[String], hot: &str) -> HotPack {
    profile(stage, files)
        .write(stage.path("made.profile"))
        .unwrap();
    // Only root may write beside the image.
    let mut command = Command::new(stage.executable());
    command
        .args([
            "hot",
            "--quiet",
            "--threads",
            "1",
            image,
            "--profile",
            "made.profile",
            "-o",
            hot,
        ])
        .current_dir(stage.path(""))
        // Root keeps nothing in the home of another user.
        .env("XDG_CACHE_HOME", stage.path("made-cache"));
    assert_eq!(
        said(&command.output().unwrap()),
        (Some(0), String::new(), String::new())
    );
    let user = stage.user();
    let script = format!("chown -R {user}:{user} \"$1\" && cp -a \"$1/.\" \"$2\" && rm -r \"$1\"");
    let given = Command::new("sh")
        .args(["-c", &script, "sh"])
        .args([stage.path("made-cache"), stage.cache()])
        .status();
    assert!(given.unwrap().success());
    HotPack::open(stage.path(hot), &Limits::default()).unwrap()
}

/// A counter of the first image of the stage's session, from `brisk stat --json`.
fn count(stage: &Stage, name: &str) -> Option<u64> {
    let output = stage.brisk(&["stat", "--json"]).output().unwrap();
    let (code, out, err) = said(&output);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{}", stage.log());
    let sessions: serde_json::Value = serde_json::from_str(&out).unwrap();
    sessions[0]["images"][0]["counts"][name].as_u64()
}

/// Waits until the fill has ended.
fn filled(stage: &Stage) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while count(stage, "fill_over_us").is_none_or(|over| over == 0) {
        assert!(Instant::now() < deadline, "no fill ends: {}", stage.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something is so.
#[track_caller]
fn wait_for(stage: &Stage, what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not {what}: {}", stage.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Compares all files of the image with those of the tree.
const COMPARE: &str = "diff -r --no-dereference tree $BRISK_TREE && echo same";

fn compare(stage: &Stage) {
    let output = stage.run(&["sh", "-c", COMPARE]).output().unwrap();
    assert_eq!(
        said(&output),
        (Some(0), "same\n".to_owned(), String::new()),
        "{}",
        stage.log()
    );
}

/// Runs `attempt`, which ends with a mounted and filled image whose pages must all be in memory, until none was taken.
/// It says whether no name was.
fn until_no_page_was_taken(stage: &Stage, attempt: impl Fn() -> bool) {
    let counts = ["fill_evicted", "fill_refilled"];
    stage.until_nothing_is_taken(|| {
        attempt() && counts.iter().all(|name| count(stage, name) == Some(0))
    });
}

#[test]
fn what_was_filled_is_read_without_a_request() {
    each_user(|stage| {
        prepare(stage);
        let pack = make_pack(stage, "app.img", &files(stage), "app.img.hot");
        until_no_page_was_taken(stage, || fill_and_read(stage, &pack));
        let counts = ["reads", "fill_late", "fill_strayed", "bytes_read", "faults"];
        assert_eq!(
            counts.map(|name| count(stage, name)),
            [Some(0); 5],
            "{}",
            stage.log()
        );
        assert_eq!(stage.log(), "");
    });
}

#[test]
fn what_was_stored_stays_though_the_server_is_killed() {
    each_user(|stage| {
        prepare(stage);
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        stage.until_nothing_is_taken(|| {
            assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
            filled(stage);
            let server = stage.processes("brisk-server")[0];
            kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
            wait_for(stage, "another server", || {
                stage
                    .processes("brisk-server")
                    .iter()
                    .any(|later| *later != server)
            });
            compare(stage);
            count(stage, "reads") == Some(0)
        });
    });
}

/// Lets a session fill from the pack beside app.img, and reads all of it. Says whether no name was asked for again.
fn fill_and_read(stage: &Stage, pack: &HotPack) -> bool {
    // A program that asks for nothing.
    assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
    filled(stage);
    let counts = |names: [&str; 6]| names.map(|name| count(stage, name).unwrap());
    assert_eq!(
        counts([
            "reads",
            "fill_late",
            "fill_strayed",
            "fill_evicted",
            "fill_damaged",
            "fill_gave_up"
        ]),
        [0; 6],
        "{}",
        stage.log()
    );
    let [stored, of_pack] = ["fill_stored", "fill_pack"].map(|name| count(stage, name));
    assert_eq!((stored, of_pack), (Some(pack.pages()), Some(pack.pages())));
    assert_eq!(
        count(stage, "fill_primed"),
        Some(pack.look_ups().len() as u64)
    );
    let first = count(stage, "fill_first_us").unwrap();
    let last = count(stage, "fill_last_us").unwrap();
    let over = count(stage, "fill_over_us").unwrap();
    assert!(0 < first && first < last && last <= over);

    let lookups = count(stage, "lookups").unwrap();
    compare(stage);
    // Absent names, too, are known.
    let script = "! ls $BRISK_TREE/no-text $BRISK_TREE/sub/no-inside $BRISK_TREE/many/no-7 2>&1";
    assert_eq!(
        said(&stage.run(&["sh", "-c", script]).output().unwrap()).0,
        Some(0)
    );
    count(stage, "lookups") == Some(lookups)
}

#[test]
fn the_pack_behind_an_image_is_filled() {
    each_user(|stage| {
        let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default());
        ImageWriter::new()
            .hot_pack(profile(stage, &files(stage)), Prefer::Size)
            .write(&tree.unwrap(), stage.path("app.img"))
            .unwrap();
        let image = fs::File::open(stage.path("app.img")).unwrap();
        let cold = Cell::new(false);
        until_no_page_was_taken(stage, || {
            // It is read with direct reads then.
            brisk_io::evict(&image).unwrap();
            let residency = brisk_io::residency(&image).unwrap();
            cold.set(matches!(residency, Residency::Pages { resident: 0, .. }));
            assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
            filled(stage);
            compare(stage);
            true
        });
        assert_eq!(count(stage, "reads"), Some(0), "{}", stage.log());
        let pack = Image::open(stage.path("app.img")).unwrap().hot_pack();
        let stored = pack.unwrap().unwrap().data_stored();
        let direct = count(stage, "fill_direct_bytes").unwrap();
        // If some of the image stayed in memory, its pack may be in memory or not. A file system in memory
        // has no direct reads.
        let possible = match brisk_io::open_direct(&image) {
            Ok(_) if cold.get() => stored..=stored * 2,
            Ok(_) => 0..=stored * 2,
            Err(_) => 0..=0,
        };
        assert!(possible.contains(&direct), "{direct} of {stored}");
        // A pack beside it that is not usable is skipped.
        let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
        assert_eq!(said(&ended).0, Some(0));
        fs::write(stage.path("app.img.hot"), "no hot pack at all").unwrap();
        assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
        filled(stage);
        assert_eq!(count(stage, "fill_late"), Some(0));
        assert!(
            stage.log().contains("app.img.hot: it cannot be read"),
            "{}",
            stage.log()
        );
        compare(stage);
    });
}

/// Runs a program that reads nothing, and waits until brisk has looked for it whether pages have left memory, and has filled
/// what has.
fn join(stage: &Stage) {
    let looks = count(stage, "fill_looks");
    assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
    wait_for(stage, "looked at", || count(stage, "fill_looks") > looks);
}

/// How often the session has looked and filled again, and how many pages that were.
fn filled_again(stage: &Stage) -> [u64; 3] {
    ["fill_looks", "fill_refills", "fill_refilled"].map(|name| count(stage, name).unwrap())
}

/// Makes the kernel drop the pages of these files of the image, and no others: other tests run meanwhile. A program of the
/// session does that, and begins when brisk has looked for it.
fn drop_pages(stage: &Stage, files: &[&str]) {
    let looks = count(stage, "fill_looks");
    let script = "read go; for name; do dd if=\"$BRISK_TREE/$name\" iflag=nocache count=0 status=none || exit; done";
    let mut program = stage.run(&["sh", "-c", script, "sh"]);
    let mut program = program.args(files).stdin(Stdio::piped()).spawn().unwrap();
    if looks.is_some() {
        wait_for(stage, "looked at", || count(stage, "fill_looks") > looks);
    }
    program.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    assert!(program.wait().unwrap().success());
}

/// Runs `attempt` until the system has dropped no pages by itself while it ran. It gets a new session each time, whose fill
/// has ended, and says whether all was as it should be.
fn in_a_filled_session(stage: &Stage, attempt: impl Fn() -> bool) {
    let start = || assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
    in_a_session_filled_by(stage, start, attempt);
}

/// The same, for sessions that `start` begins.
fn in_a_session_filled_by(stage: &Stage, start: impl Fn(), attempt: impl Fn() -> bool) {
    stage.until_nothing_is_taken(|| {
        start();
        filled(stage);
        attempt()
    });
}

#[test]
fn what_the_kernel_has_dropped_is_filled_again_for_the_next_run() {
    each_user(|stage| {
        prepare(stage);
        let files = files(stage);
        let pack = make_pack(stage, "app.img", &files, "app.img.hot");
        let all: Vec<_> = files.iter().map(String::as_str).collect();
        let noise = 3_000_000_u64.div_ceil(4096);
        in_a_filled_session(stage, || {
            let counts = || ["reads", "fill_stored", "fill_evicted"].map(|name| count(stage, name));
            let before = counts();
            drop_pages(stage, &all);
            join(stage);
            let [looks, refills, pages] = filled_again(stage);
            compare(stage);
            let are_all_there = counts() == before;
            drop_pages(stage, &["noise"]);
            join(stage);
            let [later_looks, later_refills, more] = filled_again(stage);
            assert!(pages > pack.pages() * 9 / 10, "{pages}");
            assert!(later_refills > refills, "{}", stage.log());
            are_all_there
                && (looks, refills) == (2, 1)
                && (later_looks, later_refills) == (5, 2)
                // One page stands for at least 32.
                && (noise - 64..noise + 64).contains(&(more - pages))
        });
        assert_eq!(stage.log(), "");
    });
}

#[test]
fn nothing_is_filled_again_while_all_is_in_memory() {
    each_user(|stage| {
        prepare(stage);
        let files = files(stage);
        make_pack(stage, "app.img", &files, "app.img.hot");
        let all: Vec<_> = files.iter().map(String::as_str).collect();
        in_a_filled_session(stage, || {
            for _ in 0..3 {
                join(stage);
            }
            filled_again(stage) == [3, 0, 0]
        });
        let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
        assert_eq!(said(&ended).0, Some(0), "{ended:?}");
        // Many that join at once cause few looks, and one fill.
        in_a_filled_session(stage, || {
            drop_pages(stage, &all);
            let runs: Vec<_> = (0..8)
                .map(|_| stage.run(&["true"]).spawn().unwrap())
                .collect();
            for mut run in runs {
                assert!(run.wait().unwrap().success());
            }
            join(stage);
            let [looks, refills, _] = filled_again(stage);
            assert!((2..=10).contains(&looks), "{looks}");
            refills == 1
        });
    });
}

#[test]
fn what_is_filled_again_keeps_the_limit_and_without_a_fill_nothing_is() {
    each_user(|stage| {
        let files = files(stage);
        make_pack(stage, "app.img", &files, "app.img.hot");
        let all: Vec<_> = files.iter().map(String::as_str).collect();
        let start = || drop(verbose(stage, &["--fill-budget", "200K"]));
        in_a_session_filled_by(stage, start, || {
            drop_pages(stage, &all);
            let [_, before, _] = filled_again(stage);
            join(stage);
            let [_, refills, pages] = filled_again(stage);
            // The system itself has dropped pages if they were missing before.
            if before != 0 {
                return false;
            }
            assert_eq!(refills, 1, "{}", stage.log());
            assert!(0 < pages && pages <= 50, "{pages}");
            true
        });
        compare(stage);
        let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
        assert_eq!(said(&ended).0, Some(0), "{ended:?}");

        verbose(stage, &["--no-fill"]);
        drop_pages(stage, &all);
        verbose(stage, &[]);
        compare(stage);
        assert_eq!(count(stage, "fill_looks"), None);
    });
}

/// Runs with `-v`, and returns what brisk said.
fn verbose(stage: &Stage, options: &[&str]) -> String {
    let mut command = stage.brisk(&["run", "app.img", "--at", "at", "-v"]);
    command.args(options).args(["--", "true"]);
    let (code, out, err) = said(&command.output().unwrap());
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    err
}

#[test]
fn a_pack_of_another_image_is_ignored_with_one_line() {
    each_user(|stage| {
        fs::create_dir(stage.path("other")).unwrap();
        fs::write(stage.path("other/file"), "another tree").unwrap();
        stage.pack_tree("other", "other.img");
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        // The image is replaced, so the pack is stale.
        fs::write(stage.path("tree/sub/inside"), "as long here").unwrap();
        stage.pack("app.img");
        let err = verbose(stage, &[]);
        let line = "app.img.hot: it belongs to another image";
        let told = format!("{line}; make it again with brisk hot\n");
        assert!(err.ends_with(&told) && err.lines().count() == 1, "{err}");
        compare(stage);
        assert_eq!(count(stage, "fill_pack"), None);
        assert!(stage.log().trim_end().ends_with(line), "{}", stage.log());
        assert_eq!(stage.log().lines().count(), 1, "{}", stage.log());
    });
}

/// Waits until the session of `app.img` has compared the hot pack beside it.
#[track_caller]
fn await_comparison(stage: &Stage, compared: usize) {
    let directory = stage.cache().join("brisk/compared");
    wait_for(stage, "compared", || {
        fs::read_dir(&directory).is_ok_and(|pairs| pairs.count() == compared)
    });
}

#[test]
fn a_pack_beside_an_image_is_used_once_it_was_compared() {
    each_user(|stage| {
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        // As if another user had made it: nothing is known of it.
        fs::remove_dir_all(stage.cache().join("brisk/compared")).unwrap();
        let err = verbose(stage, &[]);
        assert!(err.contains("anybody may have made this hot pack"), "{err}");
        compare(stage);
        assert!(count(stage, "fill_stored") > Some(0));
        await_comparison(stage, 1);
        let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
        assert_eq!(said(&ended).0, Some(0));
        let err = verbose(stage, &[]);
        assert!(
            err.contains("a new session fills") && !err.contains("anybody"),
            "{err}"
        );
        let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
        assert_eq!(said(&ended).0, Some(0));
        let err = verbose(stage, &["--hot", "app.img.hot"]);
        assert!(
            err.contains("--hot names this hot pack: nobody compares"),
            "{err}"
        );
    });
}

#[test]
fn forged_pages_beside_an_image_are_never_served() {
    each_user(|stage| {
        // The same tables, and other bytes in a file: same length, same time, stored raw.
        let name = "tree/noise";
        let original = fs::read(stage.path(name)).unwrap();
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        let modified = fs::metadata(stage.path(name)).unwrap().modified().unwrap();
        let mut forged = original.clone();
        forged.iter_mut().take(4096).for_each(|byte| *byte ^= 0x55);
        fs::write(stage.path(name), &forged).unwrap();
        fs::File::options()
            .write(true)
            .open(stage.path(name))
            .unwrap()
            .set_modified(modified)
            .unwrap();
        fs::rename(stage.path("app.img.hot"), stage.path("old.hot")).unwrap();
        stage.pack_tree("tree", "app.img");
        fs::rename(stage.path("old.hot"), stage.path("app.img.hot")).unwrap();
        // What the image has, which is what the tree has now.
        compare(stage);
        let line = "frames have other contents than the image";
        wait_for(stage, "found out", || stage.log().contains(line));
        // Only that of the old image.
        await_comparison(stage, 1);
    });
}

#[test]
fn a_damaged_pack_is_ignored_and_no_byte_is_wrong() {
    each_user(|stage| {
        let pack = make_pack(stage, "app.img", &files(stage), "good");
        let good = fs::read(stage.path("good")).unwrap();
        // The header, the table, a frame, and a truncated file.
        let frame = pack.frame(3).unwrap();
        let at = |at: u64| usize::try_from(at).unwrap();
        for (damage, whole) in [(0, false), (70, false), (at(frame.stored.start), true)] {
            let mut bytes = good.clone();
            bytes[damage] ^= 0x55;
            fs::write(stage.path("app.img.hot"), bytes).unwrap();
            // Named, as brisk knows nothing of this file.
            let run = [
                "run",
                "app.img",
                "--at",
                "at",
                "--linger",
                "600",
                "--hot",
                "app.img.hot",
                "--",
                "true",
            ];
            assert_eq!(said(&stage.brisk(&run).output().unwrap()).0, Some(0));
            if whole {
                filled(stage);
                assert_eq!(count(stage, "fill_damaged"), Some(1));
                let pages = frame.len.div_ceil(4096) as u64;
                let stored = count(stage, "fill_stored").unwrap();
                assert!(stored < pack.pages() && stored + 64 > pack.pages() - pages);
            }
            compare(stage);
            assert_eq!(count(stage, "fill_pack"), whole.then(|| pack.pages()));
            assert_eq!(stage.log().lines().count(), 1, "{}", stage.log());
            let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
            assert_eq!(said(&ended).0, Some(0));
        }
        fs::write(stage.path("app.img.hot"), &good[..good.len() - 1]).unwrap();
        assert!(verbose(stage, &[]).contains("app.img.hot: it cannot be read"));
        compare(stage);
    });
}

#[test]
fn a_budget_is_kept() {
    each_user(|stage| {
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        let err = verbose(stage, &["--fill-budget", "200K"]);
        assert!(err.contains("a new session fills"), "{err}");
        filled(stage);
        let stored = count(stage, "fill_stored").unwrap();
        assert!(0 < stored && stored <= 50, "{stored}");
        assert_eq!(count(stage, "fill_gave_up"), Some(1));
        compare(stage);
    });
}

/// The file's blocks in the image are damaged, so only a pack can have its bytes.
#[test]
fn what_is_asked_for_before_it_is_filled_comes_from_the_pack() {
    each_user(|stage| {
        let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
        let writer = ImageWriter::new();
        let with_pack = writer
            .clone()
            .hot_pack(profile(stage, &files(stage)), Prefer::Speed);
        for (writer, hot) in [(with_pack, None), (writer, Some("elsewhere"))] {
            writer.write(&tree, stage.path("app.img")).unwrap();
            if let Some(hot) = hot {
                make_pack(stage, "app.img", &files(stage), hot);
            }
            let image = File::options().write(true).open(stage.path("app.img"));
            // Behind the superblock.
            image.unwrap().write_all_at(&[0x55; 5000], 96).unwrap();
            let options: Vec<_> = hot.iter().flat_map(|hot| ["--hot", hot]).collect();
            verbose(stage, &[&options[..], &["--fill-budget", "4K"]].concat());
            filled(stage);
            assert!(count(stage, "fill_stored").unwrap() <= 1);
            compare(stage);
            assert!(count(stage, "reads").unwrap() > 0);
            let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
            assert_eq!(said(&ended).0, Some(0));
            // Without the pack they are missing.
            let read = [
                "run",
                "app.img",
                "--at",
                "at",
                "--no-fill",
                "--linger",
                "0",
                "--",
                "sh",
                "-c",
                COMPARE,
            ];
            let output = stage.brisk(&read).output().unwrap();
            assert_ne!(said(&output).1, "same\n");
        }
    });
}

#[test]
fn nothing_is_filled_if_that_is_wished_and_a_missing_pack_is_named() {
    each_user(|stage| {
        make_pack(stage, "app.img", &files(stage), "elsewhere");
        let missing = stage
            .brisk(&[
                "run", "app.img", "--at", "at", "--hot", "none", "--", "true",
            ])
            .output();
        let (code, _, err) = said(&missing.unwrap());
        assert_eq!(code, Some(125));
        assert!(err.contains("cannot open the hot pack none"), "{err}");
        assert_eq!(
            verbose(stage, &[]),
            "there is no hot pack: nothing is filled\n"
        );
        assert_eq!(count(stage, "fill_pack"), None);
        stage.brisk(&["umount", "app.img"]).output().unwrap();
        let err = verbose(stage, &["--hot", "elsewhere"]);
        assert!(err.contains("a new session fills"), "{err}");
        filled(stage);
        stage.brisk(&["umount", "app.img"]).output().unwrap();
        fs::rename(stage.path("elsewhere"), stage.path("app.img.hot")).unwrap();
        assert_eq!(verbose(stage, &["--no-fill"]), "");
        assert_eq!(count(stage, "fill_pack"), None);
        compare(stage);
    });
}

#[test]
fn a_program_that_reads_during_the_fill_gets_the_right_bytes() {
    each_user(|stage| {
        prepare(stage);
        make_pack(stage, "app.img", &files(stage), "app.img.hot");
        for _ in 0..5 {
            until_no_page_was_taken(stage, || {
                compare(stage);
                filled(stage);
                true
            });
            let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
            assert_eq!(said(&ended).0, Some(0), "{ended:?}");
        }
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

#[test]
fn an_image_that_is_the_root_directory_is_filled() {
    each_user(|stage| {
        for name in [
            "proc", "dev", "sys", "tmp", "run", "etc", "home", "root", "usr",
        ] {
            fs::create_dir(stage.path("tree").join(name)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            let link = fs::read_link(Path::new("/").join(name));
            if let (Ok(link), false) = (link, stage.path("tree").join(name).exists()) {
                std::os::unix::fs::symlink(link, stage.path("tree").join(name)).unwrap();
            }
        }
        stage.pack("app.img");
        let pack = make_pack(stage, "app.img", &files(stage), "app.img.hot");
        let run = stage
            .brisk(&[
                "run",
                "app.img",
                "--root",
                "--bind",
                "/usr:/usr:ro",
                "--",
                "/usr/bin/true",
            ])
            .output();
        assert_eq!(said(&run.unwrap()), (Some(0), String::new(), String::new()));
        filled(stage);
        assert_eq!(
            count(stage, "fill_stored"),
            Some(pack.pages()),
            "{}",
            stage.log()
        );
    });
}

/// A tree with a large file, and a launch that meets the fill everywhere: it asks for some pages in the order
/// of the pack, and for others in the opposite order.
fn prepare_to_meet(stage: &Stage) -> Vec<String> {
    let mut state = 1u64;
    let letters = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8 & 15
    });
    let large: Vec<u8> = letters.take(4 << 20).collect();
    fs::write(stage.path("tree/large"), large).unwrap();
    stage.pack("app.img");
    files(stage)
}

/// Starts two programs that run this script, and waits for the server. They read until they are waited for.
fn start_two(stage: &Stage, script: &str) -> Vec<Child> {
    let loads = (0..2).map(|_| {
        stage
            .lingering("0", &["sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let loads = loads.collect();
    stage.wait_for_program("brisk-server");
    loads
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_its_fill_is_replaced() {
    each_user(|stage| {
        let mut all = prepare_to_meet(stage);
        for round in 0..12u64 {
            if round % 6 == 0 {
                all.reverse();
                make_pack(stage, "app.img", &all, "app.img.hot");
            }
            // It waits in between, so that the server is there to be killed.
            let script = format!("{COMPARE}; read end; {COMPARE}");
            let loads = start_two(stage, &script);
            thread::sleep(Duration::from_micros(round * 7919 % 31_000));
            for server in stage.processes("brisk-server") {
                // It may have ended with the programs.
                kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).ok();
            }
            for load in loads {
                let output = load.wait_with_output().unwrap();
                assert_eq!(
                    said(&output),
                    (Some(0), "same\nsame\n".to_owned(), String::new()),
                    "round {round}: {}",
                    stage.log()
                );
            }
            stage.assert_nothing_left(Duration::from_secs(10));
        }
    });
}

/// Kills guardian and servers together, and before them the processes with this name. Returns the servers.
fn kill_guardian_and_server(stage: &Stage, before: &str) -> Vec<i32> {
    let guardians = stage.processes("brisk-guardian");
    let servers = stage.processes("brisk-server");
    let before = stage.processes(before);
    for (pids, signal) in [
        // Stopped first, so that it starts no others.
        (&guardians, Signal::STOP),
        (&before, Signal::KILL),
        (&servers, Signal::KILL),
        (&guardians, Signal::KILL),
    ] {
        for pid in pids {
            kill_process(Pid::from_raw(*pid).unwrap(), signal).ok();
        }
    }
    servers
}

/// A look-up of one thread of the server waits, unkillably, for another thread of it. It must not keep open
/// what has to close so that the look-up fails.
#[test]
fn no_thread_is_left_though_guardian_and_server_are_killed_in_the_middle_of_a_fill() {
    let test = || {
        each_user(|stage| {
            let all = prepare_to_meet(stage);
            make_pack(stage, "app.img", &all, "app.img.hot");
            for round in 0..24u64 {
                // Only names: without a watchdog, a page that is asked for and stored at the same time can
                // hang.
                let loads = start_two(stage, "ls -lR $BRISK_TREE; read end");
                thread::sleep(Duration::from_micros(round * 7919 % 31_000));
                let servers = kill_guardian_and_server(stage, "mount-watchdog");
                for load in loads {
                    // It ends, even if only with errors.
                    load.wait_with_output().unwrap();
                }
                let gone = |pid: &i32| {
                    let threads = fs::read_dir(format!("/proc/{pid}/task"));
                    threads.map_or(0, Iterator::count) <= 1
                };
                let deadline = Instant::now() + Duration::from_secs(10);
                while !servers.iter().all(gone) {
                    assert!(Instant::now() < deadline, "round {round}: {servers:?} hang");
                    thread::sleep(Duration::from_millis(5));
                }
                stage.assert_no_process(Duration::from_secs(10));
            }
        });
    };
    staging::watched_for(Duration::from_secs(120), test);
}

/// How long to wait for something that happens unless there is a fault, and for something that is tried
/// again.
const SURELY: Duration = Duration::from_secs(15);
const FOR_A_TRY: Duration = Duration::from_secs(2);

/// The threads of a process, by number, name and state.
fn threads(pid: i32) -> Vec<(i32, String, u8)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let tasks = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        let (start, rest) = stat.rsplit_once(") ")?;
        let (id, name) = start.split_once(" (")?;
        Some((id.parse().ok()?, name.to_owned(), rest.bytes().next()?))
    });
    tasks.collect()
}

/// Waits until `is_so`. False if it is not so `within` that time.
fn comes_true(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Whether a thread with this name waits, unkillably or for a page, and longer than a disk takes.
fn hangs(pid: i32, name: &str) -> bool {
    (0..100).all(|_| {
        thread::sleep(Duration::from_millis(2));
        let mut threads = threads(pid).into_iter();
        threads.any(|(_, comm, state)| comm == name && state == b'D')
    })
}

/// Stops the threads of a server whose names `which` selects, including those that start meanwhile.
fn hold_threads(server: i32, which: impl Fn(&str) -> bool) -> Vec<nix::unistd::Pid> {
    let mut held = Vec::new();
    loop {
        let new: Vec<_> = threads(server)
            .into_iter()
            .filter(|(_, name, _)| which(name))
            .map(|(id, ..)| nix::unistd::Pid::from_raw(id))
            .filter(|id| !held.contains(id))
            .collect();
        if new.is_empty() {
            return held;
        }
        for id in new {
            // One may have ended.
            if ptrace::seize(id, ptrace::Options::empty()).is_ok() {
                ptrace::interrupt(id).ok();
                held.push(id);
            }
        }
    }
}

/// A program that waits for a page, which the fill of its server is to store.
struct Met {
    program: Child,
    /// The threads of the server that would answer, and all others but those of the fill. They are stopped.
    held: Vec<nix::unistd::Pid>,
}

/// Makes the program ask for a page while nobody reads requests, and the fill store that page. None if the
/// fill was faster. Calls `starting` while the session starts.
fn meet_unread(stage: &Stage, starting: impl Fn(&Stage)) -> Option<Met> {
    let fills = |name: &str| ["brisk-fill", "brisk-prime", "brisk-read"].contains(&name);
    // The fill finds the names that were looked up before, because nobody answers it either.
    let script =
        "ls -lR $BRISK_TREE >/dev/null; exec 3<$BRISK_TREE/zz-asked; read go; exec cat <&3";
    let mut program = stage
        .lingering("0", &["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    starting(stage);
    stage.wait_for_program("brisk-server");
    let server = stage.processes("brisk-server")[0];
    comes_true(FOR_A_TRY, || {
        threads(server)
            .iter()
            .any(|(_, name, _)| name == "brisk-fill")
    });
    let filling = hold_threads(server, fills);
    let shell = i32::try_from(program.id()).unwrap();
    let opened = || {
        let file = fs::read_link(format!("/proc/{shell}/fd/3"));
        file.is_ok_and(|file| file.ends_with("zz-asked"))
    };
    assert!(comes_true(SURELY, opened), "{}", stage.log());
    let answering = hold_threads(server, |name| !fills(name));
    program.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let met = comes_true(FOR_A_TRY, || hangs(shell, "cat")) && {
        for id in &filling {
            ptrace::detach(*id, None).ok();
        }
        comes_true(FOR_A_TRY, || hangs(server, "brisk-fill"))
    };
    if met {
        let held = answering;
        return Some(Met { program, held });
    }
    for id in filling.iter().chain(&answering) {
        ptrace::detach(*id, None).ok();
    }
    let_guardian_go_on(stage);
    program.wait().unwrap();
    stage.assert_nothing_left(Duration::from_secs(10));
    None
}

/// A tree whose last file is stored after much else, and a program that meets the fill there.
fn meet_the_fill(stage: &Stage, starting: impl Fn(&Stage)) -> Met {
    prepare_to_meet(stage);
    fs::write(stage.path("tree/zz-asked"), "is stored last").unwrap();
    let huge = fs::read(stage.path("tree/large")).unwrap().repeat(2);
    fs::write(stage.path("tree/large"), huge).unwrap();
    stage.pack("app.img");
    make_pack(stage, "app.img", &files(stage), "app.img.hot");
    let first = Instant::now();
    loop {
        if let Some(met) = meet_unread(stage, &starting) {
            return met;
        }
        // Beside other work, the threads are rarely caught in time.
        let is_early = first.elapsed() < 15 * SURELY;
        assert!(is_early, "the fill is always quicker: {}", stage.log());
    }
}

/// Stops the guardian as soon as it has started its server, so that it does not hear what that says first.
fn stop_guardian(stage: &Stage) {
    let children = |pid: i32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    stage.wait_for_program("brisk-guardian");
    let guardian = stage.processes("brisk-guardian")[0];
    let deadline = Instant::now() + SURELY;
    while children(guardian).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "{}", stage.log());
    }
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::STOP).unwrap();
}

fn let_guardian_go_on(stage: &Stage) {
    for guardian in stage.processes("brisk-guardian") {
        kill_process(Pid::from_raw(guardian).unwrap(), Signal::CONT).ok();
    }
}

/// A killed server that has a thread which hangs is not gone as a process, and only another thread of it tells. When
/// the guardian hears of that thread, it may be gone already.
#[test]
fn a_server_that_died_before_its_thread_was_known_is_replaced() {
    each_user(|stage| {
        let Met { program, held } = meet_the_fill(stage, stop_guardian);
        let server = stage.processes("brisk-server")[0];
        kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
        for id in held.into_iter().filter(|id| id.as_raw() != server) {
            // A thread that was held is gone only when its end was seen. The first one stays until all have ended.
            waitpid(id, Some(WaitPidFlag::__WALL)).ok();
        }
        let unnamed = || {
            let threads = threads(server).into_iter();
            threads
                .filter(|(_, name, _)| name == "brisk-server")
                .count()
        };
        assert!(comes_true(SURELY, || unnamed() == 1), "{}", stage.log());
        let_guardian_go_on(stage);
        let output = wait_surely(stage, program);
        assert_eq!(
            said(&output),
            (Some(0), "is stored last".to_owned(), String::new()),
            "{}",
            stage.log()
        );
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// The output of a program that ends soon.
fn wait_surely(stage: &Stage, mut program: Child) -> Output {
    let ended = || program.try_wait().unwrap().is_some();
    assert!(comes_true(SURELY, ended), "it hangs: {}", stage.log());
    program.wait_with_output().unwrap()
}

/// The thread that stores keeps the connection open, and would do so forever.
#[test]
fn nobody_hangs_though_guardian_and_server_are_killed_with_a_request_unread() {
    each_user(|stage| {
        let Met { program, .. } = meet_the_fill(stage, |_| ());
        kill_guardian_and_server(stage, "nobody");
        let (code, out, err) = said(&wait_surely(stage, program));
        // The fill may be first when both go on. Then the program may have all that it wants before the server is gone.
        let possible = [(1, ""), (1, "is stored last"), (0, "is stored last")];
        let (code, out) = (code.unwrap(), out.as_str());
        assert!(possible.contains(&(code, out)), "{code}, {out}: {err}");
        stage.assert_no_process(Duration::from_secs(10));
    });
}
