//! `brisk run --auto`: brisk learns from a launch, and the next session fills from that. A program sees
//! nothing of what happens to the learning, or to what was learned.
//!
//! All tests run twice: as root, and as an ordinary user in a user namespace.

mod staging;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::hot_pack::HotPack;
use brisk_image::profile::Profile;
use brisk_image::rules::Times;
use brisk_image::{Compression, ImageWriter, Limits, Tree, TreeRules};
use rustix::process::{Pid, Signal, kill_process};
use staging::documented::assert_documented;
use staging::{Stage, each_user_in_kept_memory, profile_of_record};

const SOON: Duration = Duration::from_secs(20);

/// A launch: some pages of a large file, all of others, and existing and absent names.
const LAUNCH: &str = "cd $BRISK_TREE; cat sub/inside many/7 many/77 > /dev/null; test -e many/none; \
    dd if=noise of=/dev/null bs=4096 skip=100 count=30 status=none; \
    dd if=text of=/dev/null bs=4096 skip=7 count=1 status=none";

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Where the stage's user keeps what is learned.
fn packs(stage: &Stage) -> PathBuf {
    stage.writable().join("cache/brisk/hot")
}

fn brisk(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.brisk(arguments);
    command.env("XDG_CACHE_HOME", stage.writable().join("cache"));
    command
}

/// A run with `--auto` of a script in a new session, which lingers.
fn auto(stage: &Stage, options: &[&str], script: &str) -> Output {
    let mut arguments = vec!["run", "app.img", "--at", "at", "--auto"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    brisk(stage, &arguments).output().unwrap()
}

/// Like [`auto`], for a run that succeeds and prints nothing.
fn launch(stage: &Stage, script: &str) {
    let (code, _, err) = said(&auto(stage, &[], script));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{}", stage.log());
}

fn end(stage: &Stage) {
    let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
    assert_eq!(said(&ended).0, Some(0), "{ended:?}");
    stage.assert_no_process(SOON);
}

/// The files of a kind, such as `hot`.
fn files(stage: &Stage, kind: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(packs(stage)) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == kind))
        .collect();
    files.sort();
    files
}

/// Waits until `is_so`.
fn wait_for(stage: &Stage, what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "not {what}: {}", stage.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no pack is being made.
fn learned(stage: &Stage) {
    wait_for(stage, "learned", || {
        !files(stage, "hot").is_empty() && stage.processes("brisk-learner").is_empty()
    });
}

/// The only pack.
fn pack(stage: &Stage) -> HotPack {
    let files = files(stage, "hot");
    assert_eq!(files.len(), 1, "{files:?}: {}", stage.log());
    HotPack::open(&files[0], &Limits::default()).unwrap()
}

/// The only profile.
fn profile(stage: &Stage) -> Profile {
    let files = files(stage, "record");
    assert_eq!(files.len(), 1, "{files:?}: {}", stage.log());
    profile_of_record(&files[0]).unwrap()
}

/// The pages of each file of a profile, in the order of the paths.
fn pages(profile: &Profile) -> Vec<(PathBuf, u64)> {
    let demand = profile.demand_by_file();
    let files = profile.files().iter().zip(demand);
    let mut pages: Vec<_> = files
        .map(|(file, (pages, _))| (file.path.clone(), pages))
        .filter(|(_, pages)| *pages > 0)
        .collect();
    pages.sort();
    pages
}

/// A counter of the first image of the stage's session.
fn count(stage: &Stage, name: &str) -> Option<u64> {
    let deadline = Instant::now() + SOON;
    loop {
        let output = stage.brisk(&["stat", "--json"]).output().unwrap();
        let (code, out, err) = said(&output);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{}", stage.log());
        let sessions: serde_json::Value = serde_json::from_str(&out).unwrap();
        let counts = &sessions[0]["images"][0]["counts"];
        // There are no counters while the server is too busy to answer.
        if counts["requests"].is_u64() {
            return counts[name].as_u64();
        }
        assert!(Instant::now() < deadline, "no counts: {out}");
    }
}

fn filled(stage: &Stage) {
    wait_for(stage, "filled", || {
        count(stage, "fill_over_us").is_some_and(|over| over > 0)
    });
}

fn list(stage: &Stage) -> Vec<serde_json::Value> {
    let (code, out, err) = said(&brisk(stage, &["auto", "list", "--json"]).output().unwrap());
    assert_eq!(err, "");
    assert_documented("auto list", &out);
    let all: serde_json::Value = serde_json::from_str(&out).unwrap();
    let list = all["learned"].as_array().unwrap().clone();
    assert_eq!(code, Some(i32::from(list.is_empty())));
    list
}

#[test]
fn what_a_launch_asks_for_is_learned_and_the_next_session_fills_it() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        let reads = count(stage, "reads").unwrap();
        assert!(reads > 30, "{reads}");
        learned(stage);
        // A second run joins, and learns nothing.
        launch(stage, "cat $BRISK_TREE/many/1*");
        end(stage);
        let expected = [
            ("many/7", 2),
            ("many/77", 3),
            ("noise", 30),
            ("sub/inside", 1),
            ("text", 1),
        ];
        let expected = expected.map(|(path, pages)| (PathBuf::from(path), pages));
        assert_eq!(pages(&profile(stage)), expected);
        assert_eq!(pack(stage).pages(), 37);

        stage.until_nothing_is_taken(|| {
            // It asks for nothing, so that the fill is not late.
            launch(stage, "true");
            filled(stage);
            assert_eq!(count(stage, "fill_stored"), Some(37), "{}", stage.log());
            let looked_up = count(stage, "lookups");
            launch(stage, LAUNCH);
            let counts = ["reads", "lookups"].map(|name| count(stage, name));
            counts == [Some(0), looked_up]
        });
        assert_eq!(stage.log(), "");
        end(stage);
        assert_eq!(profile(stage).runs(), 1, "nothing was missed");
    });
}

#[test]
fn what_a_fill_gains_is_listed() {
    // In bytes.
    const ALL: u64 = 37 * 4096;

    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        assert!(list(stage)[0]["last_start"].is_null(), "nothing was filled");

        let (started, go) = (
            stage.writable().join("started"),
            stage.writable().join("go"),
        );
        let (has_started, may_go) = (started.display(), go.display());
        let script =
            format!("echo > {has_started}; until test -e {may_go}; do sleep 0.01; done; {LAUNCH}");
        let run = [
            "run", "app.img", "--at", "at", "--auto", "--", "sh", "-c", &script,
        ];
        let noted = || list(stage)[0]["last_start"].clone();
        let expected = serde_json::json!({"ahead_bytes": ALL, "own_bytes": 0});
        stage.until_nothing_is_taken(|| {
            for path in [&started, &go] {
                fs::remove_file(path).ok();
            }
            let mut run = brisk(stage, &run).spawn().unwrap();
            wait_for(stage, "started", || started.exists());
            filled(stage);
            fs::write(&go, "").unwrap();
            assert!(run.wait().unwrap().success());
            let is_taken = || count(stage, "reads") != Some(0);
            wait_for(stage, "noted", || noted() == expected || is_taken());
            !is_taken()
        });
        let (_, out, _) = said(&brisk(stage, &["auto", "list"]).output().unwrap());
        let gain = "\n  gain        of 148.00 KiB that its last start read, brisk filled 148.00 KiB first (100.0 %)\n";
        assert!(out.contains(gain), "{out}");
        end(stage);

        // What a program asks for at once is its own, or filled before.
        launch(stage, &format!("{LAUNCH}; cat many/9* > /dev/null"));
        // None while it is being written.
        let bytes = |name: &str| noted()[name].as_u64().unwrap_or(0);
        let both = || bytes("ahead_bytes") + bytes("own_bytes");
        wait_for(stage, "noted again", || both() > ALL);
        assert_eq!(stage.log(), "");
        end(stage);
    });
}

#[test]
fn what_is_learned_is_what_a_trace_records() {
    each_user_in_kept_memory(|stage| {
        let traced = stage.writable().join("traced");
        let mut trace = stage.brisk(&["trace", "app.img", "--at", "at", "-q", "-o"]);
        trace.arg(&traced).args(["--", "sh", "-c", LAUNCH]);
        assert_eq!(said(&trace.output().unwrap()).0, Some(0));
        launch(stage, LAUNCH);
        learned(stage);
        let traced = Profile::open(&traced, &Limits::default()).unwrap();
        let learned = profile(stage);
        assert_eq!(pages(&learned), pages(&traced));
        let found = |profile: &Profile| {
            let demand = profile.demand_by_root()[0];
            (demand.found, demand.absent)
        };
        assert_eq!(found(&learned), found(&traced));
        end(stage);
    });
}

#[test]
fn a_launch_that_misses_much_adds_to_the_pack() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        // At most a tenth of 37 pages.
        launch(stage, "cat $BRISK_TREE/sub/inside $BRISK_TREE/many/8");
        filled(stage);
        end(stage);
        assert_eq!(profile(stage).runs(), 1);
        // Far from those of the pack.
        let more = "dd if=$BRISK_TREE/noise of=/dev/null bs=4096 skip=500 count=8 status=none";
        launch(stage, more);
        wait_for(stage, "learned again", || profile(stage).runs() == 2);
        learned(stage);
        end(stage);
        let now = profile(stage);
        let of_noise = pages(&now)
            .into_iter()
            .find(|(path, _)| path == Path::new("noise"));
        // The kernel may have read ahead of the program.
        let (_, of_noise) = of_noise.unwrap();
        assert!((38..=67).contains(&of_noise), "{of_noise}");
        let first: Vec<_> = now.ranges().map(|(step, _)| step.runs).collect();
        assert!(
            first.is_sorted_by(|a, b| a >= b),
            "what is known is first: {first:?}"
        );
        stage.until_nothing_is_taken(|| {
            launch(stage, "true");
            filled(stage);
            let stored = count(stage, "fill_stored");
            assert_eq!(stored, Some(pack(stage).pages()), "{}", stage.log());
            launch(stage, LAUNCH);
            launch(stage, more);
            count(stage, "reads") == Some(0)
        });
        end(stage);
    });
}

#[test]
fn a_launch_that_misses_nearly_all_is_learned_from_exactly() {
    each_user_in_kept_memory(|stage| {
        launch(stage, "cat $BRISK_TREE/sub/inside");
        learned(stage);
        end(stage);
        launch(stage, LAUNCH);
        wait_for(stage, "forgotten", || files(stage, "hot").is_empty());
        end(stage);
        assert_eq!(list(stage)[0]["pages"], serde_json::Value::Null);
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        assert_eq!((profile(stage).runs(), pack(stage).pages()), (2, 37));
    });
}

#[test]
fn a_changed_image_is_learned_anew() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        fs::write(stage.path("tree/sub/inside"), "from another image").unwrap();
        stage.pack("app.img");
        let (code, out, _) = said(&auto(stage, &[], "cat $BRISK_TREE/sub/inside"));
        assert_eq!((code, out.as_str()), (Some(0), "from another image"));
        wait_for(stage, "learned", || files(stage, "hot").len() == 2);
        learned(stage);
        assert_eq!(count(stage, "fill_pack"), None);
        end(stage);
        // Both belong to the image with this name.
        let pages: Vec<_> = list(stage)
            .iter()
            .map(|pack| pack["pages"].as_u64())
            .collect();
        assert_eq!(pages, [Some(1), Some(37)]);
    });
}

/// As `cp -p` does: the same length, and the time of modification set back. What was learned of the old contents must not
/// be served.
#[test]
fn an_image_that_was_written_in_place_is_learned_anew() {
    each_user_in_kept_memory(|stage| {
        fs::write(stage.path("tree/version"), "one\n").unwrap();
        let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
        let writer = ImageWriter::new().compression(Compression::None);
        writer.write(&tree, stage.path("app.img")).unwrap();
        let version = || {
            let (code, out, err) = said(&auto(stage, &[], "cat $BRISK_TREE/version"));
            assert_eq!((code, err.as_str()), (Some(0), ""), "{}", stage.log());
            out
        };
        assert_eq!(version(), "one\n");
        learned(stage);
        end(stage);
        // A session that fills from what was learned, and lingers.
        assert_eq!(version(), "one\n");
        filled(stage);
        assert!(count(stage, "fill_pack") > Some(0), "{}", stage.log());

        let old = fs::read(stage.path("app.img")).unwrap();
        let at = old.windows(4).position(|bytes| bytes == b"one\n");
        let image = File::options().write(true).open(stage.path("app.img"));
        let image = image.unwrap();
        let modified = image.metadata().unwrap().modified().unwrap();
        image
            .write_all_at(b"two\n", at.expect("stored raw") as u64)
            .unwrap();
        image.set_modified(modified).unwrap();
        for _ in 0..2 {
            assert_eq!(version(), "two\n");
            wait_for(stage, "learned", || {
                files(stage, "hot").len() == 2 && stage.processes("brisk-learner").is_empty()
            });
            for _ in 0..2 {
                // At first there are two sessions of this path.
                stage.brisk(&["umount", "app.img"]).output().unwrap();
            }
            stage.assert_no_process(SOON);
        }
    });
}

#[test]
fn each_way_of_launching_has_a_pack_of_its_own() {
    each_user_in_kept_memory(|stage| {
        fs::create_dir(stage.path("share")).unwrap();
        fs::write(stage.path("share/file"), "shared").unwrap();
        stage.pack_tree("share", "share.img");
        let other = stage.writable().join("other");
        fs::create_dir(&other).unwrap();
        launch(stage, "cat $BRISK_TREE/sub/inside");
        learned(stage);
        end(stage);
        let with = format!("share.img@{}", other.display());
        let script = format!("cat $BRISK_TREE/many/7 {}/file", other.display());
        let (code, _, err) = said(&auto(stage, &["--with", &with], &script));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        wait_for(stage, "learned", || files(stage, "hot").len() == 3);
        learned(stage);
        end(stage);
        let mut found: Vec<_> = list(stage)
            .iter()
            .map(|pack| {
                let image = Path::new(pack["image"].as_str().unwrap());
                let image = image.file_name().unwrap().to_str().unwrap().to_owned();
                (
                    image,
                    pack["pages"].as_u64().unwrap(),
                    pack["runs"].as_u64(),
                )
            })
            .collect();
        found.sort();
        let app = |pages| ("app.img".to_owned(), pages, Some(1));
        assert_eq!(
            found,
            [app(1), app(2), ("share.img".to_owned(), 1, Some(1))]
        );
    });
}

#[test]
fn a_pack_that_somebody_made_comes_first() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let made = &files(stage, "hot")[0];
        fs::copy(made, stage.path("app.img.hot")).unwrap();
        let forgotten = brisk(stage, &["auto", "forget", "--all"]).output().unwrap();
        assert_eq!(said(&forgotten), (Some(0), String::new(), String::new()));
        launch(stage, "cat $BRISK_TREE/many/1*");
        filled(stage);
        assert_eq!(count(stage, "fill_pack"), Some(37));
        end(stage);
        assert_eq!(list(stage).len(), 0);
        // One that is not usable does not count.
        fs::write(stage.path("app.img.hot"), "no hot pack at all").unwrap();
        launch(stage, LAUNCH);
        learned(stage);
        assert_eq!(count(stage, "fill_pack"), None);
        end(stage);
        launch(stage, "true");
        filled(stage);
        assert_eq!(count(stage, "fill_pack"), Some(37));
        assert!(stage.log().contains("app.img.hot: it cannot be read"));
        end(stage);
    });
}

#[test]
fn damaged_and_foreign_packs_are_replaced() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let path = &files(stage, "hot")[0];
        let good = fs::read(path).unwrap();
        let mut damaged = good.clone();
        damaged[70] ^= 0x55;
        for bytes in [&b""[..], b"foreign", &damaged, &good[..good.len() - 1]] {
            fs::write(path, bytes).unwrap();
            chown(path, Some(0), Some(0)).unwrap();
            launch(stage, LAUNCH);
            let pages = || {
                let pack = HotPack::open(path, &Limits::default());
                pack.map(|pack| pack.pages()).ok()
            };
            wait_for(stage, "replaced", || pages() == Some(37));
            learned(stage);
            end(stage);
        }
        // The record cannot be read. What this launch missed is not enough for a pack.
        let record = &files(stage, "record")[0];
        fs::write(record, "{}").unwrap();
        launch(stage, "cat $BRISK_TREE/many/1*");
        wait_for(stage, "forgotten", || files(stage, "record").is_empty());
        end(stage);
        launch(stage, LAUNCH);
        learned(stage);
        assert_eq!(fs::read(path).unwrap(), good);
        end(stage);
    });
}

#[test]
fn packs_are_kept_within_the_limit_and_forgotten() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        let one = list(stage)[0]["bytes"].as_u64().unwrap();
        // Another image, whose pack is as large. There is no room for both.
        stage.pack("other.img");
        fs::write(stage.path("tree/sub/inside"), "from another one").unwrap();
        stage.pack("app.img");
        let limit = (one * 3 / 2).to_string();
        let (code, _, err) = said(&auto(stage, &["--auto-limit", &limit], LAUNCH));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        wait_for(stage, "learned", || {
            let found = list(stage);
            found.len() == 1 && found[0]["runs"].is_u64() && found[0]["pages"].is_u64()
        });
        learned(stage);
        end(stage);
        let sum: u64 = ["hot", "record"]
            .iter()
            .flat_map(|kind| files(stage, kind))
            .map(|path| size(&path))
            .sum();
        assert!(sum <= one * 3 / 2, "{sum} of {one}");

        // The same limit for all launches, as long as it has room for one.
        let limit_of = |args: &[&str]| {
            let output = brisk(stage, &[&["auto", "limit"], args].concat()).output();
            said(&output.unwrap())
        };
        let (code, out, err) = limit_of(&["1M"]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(
            out.starts_with("at most 1.00 MiB, ") && out.ends_with(" now\n"),
            "{out}"
        );
        assert_eq!(list(stage).len(), 1);
        let (code, _, err) = limit_of(&["100"]);
        let refused = "100 bytes have no room for anything, so brisk would forget all that it has learned; for that there is \
                    brisk auto forget --all; say 100M for 100 MiB";
        assert_eq!((code, err.contains(refused)), (Some(2), true), "{err}");
        assert_eq!(list(stage).len(), 1);
        let (code, out, err) = limit_of(&["1K"]);
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "at most 1.00 KiB, 0 B now\n")
        );
        assert_eq!(err, "forgot 1 launch that had no room any more\n");
        assert_eq!(list(stage).len(), 0);
        let (_, out, _) = limit_of(&["--default"]);
        assert_eq!(out, "at most 1.00 GiB, 0 B now\n");
        let file = stage.writable().join("cache/brisk/hot/limit");
        fs::write(&file, "much\n").unwrap();
        let (code, _, err) = limit_of(&[]);
        assert_eq!(code, Some(2));
        assert!(
            err.contains("\"much\\n\" is no number of bytes; remove "),
            "{err}"
        );
        fs::remove_file(&file).unwrap();

        // One that is larger than the limit is not kept, and takes no room from others.
        fs::write(stage.path("tree/sub/inside"), "from the last one").unwrap();
        stage.pack("app.img");
        assert_eq!(
            said(&auto(stage, &["--auto-limit", "1000"], LAUNCH)).0,
            Some(0)
        );
        wait_for(stage, "told", || {
            stage.log().contains("allowed are 1000, so it is not kept")
        });
        wait_for(stage, "ended", || {
            stage.processes("brisk-learner").is_empty()
        });
        end(stage);

        let shown = brisk(stage, &["auto", "list"]).output().unwrap();
        let (code, out, _) = said(&shown);
        let kept = list(stage);
        assert_eq!((code, kept.len()), (Some(1), 0), "{out}");
    });
}

#[test]
fn an_image_made_again_with_the_same_times_and_lengths_is_another_one() {
    each_user_in_kept_memory(|stage| {
        let inside = stage.path("tree/sub/inside");
        // The two images differ only in their contents.
        let pack = || {
            let rules = TreeRules::default().times(Times::All(1_700_000_000));
            ImageWriter::new()
                .compression(Compression::None)
                .time(1_700_000_000)
                .write(
                    &Tree::from_directory(stage.path("tree"), &rules).unwrap(),
                    stage.path("app.img"),
                )
                .unwrap();
        };
        pack();
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let other = fs::read_to_string(&inside).unwrap().to_uppercase();
        fs::write(&inside, &other).unwrap();
        pack();
        // Time to fill what was learned from the other one.
        let output = auto(stage, &[], "sleep 0.5; cat $BRISK_TREE/sub/inside");
        let (code, out, err) = said(&output);
        assert_eq!((code, out, err.as_str()), (Some(0), other, ""));
        end(stage);
    });
}

#[test]
fn learned_packs_are_listed_and_forgotten() {
    each_user_in_kept_memory(|stage| {
        let none = brisk(stage, &["auto", "forget", "app.img"])
            .output()
            .unwrap();
        let nothing = "nothing is learned of app.img\n".to_owned();
        assert_eq!(said(&none), (Some(1), String::new(), nothing));
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let (code, out, _) = said(&brisk(stage, &["auto", "list"]).output().unwrap());
        let place = stage.path("at").canonicalize().unwrap();
        let image = stage.path("app.img").canonicalize().unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(code, Some(0));
        assert_eq!(
            lines[0],
            format!("{} on {}", image.display(), place.display())
        );
        assert_eq!(lines[1], "  state       learned");
        assert_eq!(lines[2], "  pages       37");
        assert_eq!(lines[4], "  learned     from 1 launch");
        // Its arguments may be secret.
        assert_eq!(lines[5], "  command     sh");
        let missing = brisk(stage, &["auto", "forget"]).output().unwrap();
        assert_eq!(said(&missing).0, Some(2));
        let other = brisk(stage, &["auto", "forget", "other.img"])
            .output()
            .unwrap();
        assert_eq!(said(&other).0, Some(1));
        fs::remove_file(stage.path("app.img")).unwrap();
        let forgotten = brisk(stage, &["auto", "forget", "app.img"])
            .output()
            .unwrap();
        assert_eq!(said(&forgotten), (Some(0), String::new(), String::new()));
        assert_eq!(list(stage).len(), 0);
        assert_eq!(fs::read_dir(packs(stage)).unwrap().count(), 0);
    });
}

#[test]
fn a_session_that_ends_with_its_launch_is_learned_from() {
    each_user_in_kept_memory(|stage| {
        let (code, _, err) = said(&auto(stage, &["--linger", "0"], LAUNCH));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        wait_for(stage, "learned", || !files(stage, "hot").is_empty());
        stage.assert_nothing_left(SOON);
        assert_eq!(pack(stage).pages(), 37);
    });
}

#[test]
fn without_a_place_for_what_is_learned_the_program_runs() {
    each_user_in_kept_memory(|stage| {
        let closed = stage.path("closed");
        fs::create_dir(&closed).unwrap();
        let file = stage.path("file");
        fs::write(&file, "").unwrap();
        let mut cases = vec![
            (
                None,
                "neither XDG_CACHE_HOME nor HOME is the absolute path of a directory",
            ),
            (Some(stage.path("none")), "neither XDG_CACHE_HOME nor HOME"),
        ];
        // Root may write everywhere.
        if !stage.is_root() {
            fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
            cases.push((Some(closed), "closed/.cache/brisk"));
        }
        for (home, expected) in cases {
            let mut run =
                stage.brisk(&["run", "app.img", "--at", "at", "--auto", "--", "sh", "-c"]);
            run.arg("cat $BRISK_TREE/sub/inside")
                .env_remove("XDG_CACHE_HOME");
            match home {
                Some(home) => run.env("HOME", home),
                None => run.env_remove("HOME"),
            };
            let (code, out, err) = said(&run.output().unwrap());
            assert_eq!((code, out.as_str()), (Some(0), "from the image"));
            assert!(err.contains(expected), "{err}");
            assert!(err.ends_with("nothing is learned\n"), "{err}");
            assert_eq!(err.lines().count(), 1, "{err}");
            assert_eq!(stage.log(), "");
            end(stage);
        }
        // A directory to which others can write.
        fs::create_dir_all(packs(stage)).unwrap();
        let (code, out, err) = said(&auto(stage, &[], "cat $BRISK_TREE/sub/inside"));
        assert_eq!((code, out.as_str()), (Some(0), "from the image"));
        assert!(
            err.contains("allowed is a directory of yours with mode 0700"),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        end(stage);
    });
}

#[test]
fn whatever_is_killed_leaves_no_half_pack_and_the_next_run_works() {
    each_user_in_kept_memory(|stage| {
        let mut round = 0u64;
        for victim in ["brisk-server", "brisk-guardian", "brisk-learner"] {
            for _ in 0..4 {
                round += 1;
                launch(stage, LAUNCH);
                thread::sleep(Duration::from_micros(round * 7919 % 31_000));
                for process in stage.processes(victim) {
                    // It may have ended.
                    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).ok();
                }
                let ended = stage.brisk(&["umount", "app.img"]).output().unwrap();
                // Without a guardian nobody answers.
                assert!(matches!(said(&ended).0, Some(0 | 2)), "{ended:?}");
                stage.assert_no_process(SOON);
                for hot in files(stage, "hot") {
                    assert_eq!(HotPack::open(&hot, &Limits::default()).unwrap().pages(), 37);
                    fs::remove_file(hot).unwrap();
                }
                let names = fs::read_dir(packs(stage)).unwrap();
                let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
                // Nobody reads the name of an unfinished file, and the file is removed when it is old.
                let harmless = |name: &str| {
                    name.ends_with(".record") || name == "secret" || name.starts_with(".brisk-")
                };
                assert!(
                    names.iter().all(|n| harmless(n.to_str().unwrap())),
                    "{names:?}"
                );
            }
        }
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        launch(stage, "true");
        filled(stage);
        assert_eq!(count(stage, "fill_stored"), Some(37), "{}", stage.log());
        end(stage);
    });
}

#[test]
fn sessions_that_learn_the_same_at_once_are_no_problem() {
    each_user_in_kept_memory(|stage| {
        // Two sessions: what is written in one is not in the other.
        let runs: Vec<_> = [&[][..], &["--writable"]]
            .into_iter()
            .map(|options: &[&str]| {
                let mut arguments = vec!["run", "app.img", "--at", "at", "--auto"];
                arguments.extend(options);
                arguments.extend(["--linger", "0", "--", "sh", "-c", LAUNCH]);
                brisk(stage, &arguments).spawn().unwrap()
            })
            .collect();
        for mut run in runs {
            assert!(run.wait().unwrap().success());
        }
        stage.assert_no_process(SOON);
        // Who learns leaves the mount before the pack is made.
        learned(stage);
        assert_eq!(pack(stage).pages(), 37);
        assert_eq!(list(stage).len(), 1);
    });
}

#[test]
fn what_the_first_run_will_do_is_said() {
    each_user_in_kept_memory(|stage| {
        let told = |err: &str| said(&auto(stage, &["-v"], LAUNCH)).2 == err;
        assert!(told(
            "there is no usable hot pack: a new session learns one from this run\n"
        ));
        learned(stage);
        end(stage);
        let bytes = pack(stage).data_len();
        assert!(told(&format!(
            "a new session fills {bytes} bytes from its learned hot pack; brisk stat shows the \
             progress\n"
        )));
        end(stage);
    });
}

/// An audit of a script, with its exit code.
fn audit(stage: &Stage, script: &str) -> (Option<i32>, serde_json::Value) {
    let options = [
        "run", "app.img", "--at", "at", "--auto", "--audit", "--json", "--", "sh", "-c",
    ];
    let (code, _, err) = said(&brisk(stage, &options).arg(script).output().unwrap());
    stage.assert_nothing_left(SOON);
    assert_documented("run --audit", &err);
    (
        code,
        serde_json::from_str(&err).unwrap_or_else(|e| panic!("{e}: {err}")),
    )
}

#[test]
fn an_audit_says_what_of_a_pack_is_useless_and_what_is_missing() {
    each_user_in_kept_memory(|stage| {
        let mut none = brisk(
            stage,
            &["run", "app.img", "--at", "at", "--audit", "--", "true"],
        );
        let (code, _, err) = said(&none.output().unwrap());
        assert_eq!(code, Some(125));
        assert!(
            err.contains("there is no hot pack to audit; make one with brisk hot"),
            "{err}"
        );
        launch(stage, LAUNCH);
        learned(stage);
        end(stage);
        let look_ups = pack(stage).look_ups().len();
        let (code, same) = audit(stage, &format!("{LAUNCH}; exit 7"));
        assert_eq!(code, Some(7));
        let expected = serde_json::json!({
            "pages": {"used": 37, "missed": 0, "useless": 0},
            "look_ups": {"used": look_ups, "missed": 0, "useless": 0},
            "files": [],
        });
        assert_eq!(same, expected);
        let script = "cd $BRISK_TREE; cat many/7 many/8 > /dev/null; test -e many/nothing; \
            dd if=noise of=/dev/null bs=4096 skip=110 count=30 status=none; kill -USR1 $$";
        let (code, other) = audit(stage, script);
        assert_eq!(code, Some(128 + 10));
        let file = |path, used, missed, useless| serde_json::json!({"path": path, "used": used, "missed": missed, "useless": useless});
        let files = [
            file("noise", 20, 10, 10),
            file("many/77", 0, 0, 3),
            file("sub/inside", 0, 0, 1),
            file("text", 0, 0, 1),
            file("many/8", 0, 2, 0),
        ];
        assert_eq!(other["files"], serde_json::json!(files));
        let pages = serde_json::json!({"used": 22, "missed": 12, "useless": 15});
        assert_eq!(other["pages"], pages);
        // many, many/7 and noise; many/8 and many/nothing.
        assert_eq!(other["look_ups"]["used"], 3);
        assert_eq!(other["look_ups"]["missed"], 2);
        assert_eq!(other["look_ups"]["useless"], look_ups - 3);

        let options = [
            "run", "app.img", "--at", "at", "--auto", "--audit", "--", "sh", "-c", script,
        ];
        let (_, out, err) = said(&brisk(stage, &options).output().unwrap());
        let lines: Vec<_> = err.lines().collect();
        assert_eq!(out, "");
        assert_eq!(
            lines[0],
            "pages: of 34 asked for, 22 are in the hot pack (64.7 %) and 12 are not; of 37 in the pack, \
             15 are useless (40.5 %)"
        );
        assert_eq!(lines[2], "     useless    missed      used  path");
        assert_eq!(lines[3], "          10        10        20  noise");
        assert_eq!(lines.len(), 8, "{err}");
    });
}

#[test]
fn a_launch_in_a_root_directory_is_audited() {
    each_user_in_kept_memory(|stage| {
        stage.pack_root();
        let run = |options: &[&str], script: &str| {
            let mut arguments = vec!["run", "root.img", "--root", "--auto"];
            arguments.extend(options);
            arguments.extend(["--", "/bin/sh", "-c", script]);
            said(&brisk(stage, &arguments).output().unwrap())
        };
        let first = run(&["--linger", "0"], "/bin/cat /etc/own");
        assert_eq!(first, (Some(0), "image\n".to_owned(), String::new()));
        learned(stage);
        stage.assert_nothing_left(SOON);
        let audit = |script: &str| -> serde_json::Value {
            let (code, _, err) = run(&["--audit", "--json"], script);
            assert_eq!(code, Some(0), "{err}");
            stage.assert_nothing_left(SOON);
            serde_json::from_str(&err).unwrap_or_else(|e| panic!("{e}: {err}"))
        };
        let same = audit("/bin/cat /etc/own");
        let pages = &same["pages"];
        assert!(pages["used"].as_u64() > Some(0), "{same}");
        assert_eq!(
            (&pages["missed"], &pages["useless"]),
            (&0.into(), &0.into()),
            "{same}"
        );
        // The paths are those of the image.
        let other = audit("/bin/stat /data > /dev/null");
        let files = other["files"].as_array().unwrap();
        let of = |path: &str| files.iter().find(|file| file["path"] == path);
        assert!(
            of("bin/stat").unwrap()["missed"].as_u64() > Some(0),
            "{other}"
        );
        assert!(
            of("etc/own").unwrap()["useless"].as_u64() > Some(0),
            "{other}"
        );
    });
}

#[test]
fn a_run_that_joins_is_told_how_long_answers_took() {
    each_user_in_kept_memory(|stage| {
        launch(stage, LAUNCH);
        let heading = "  operation         answers    p50 us    p90 us    p99 us\n  lookup ";
        // Not while the server is too busy to answer.
        wait_for(stage, "told", || {
            let (code, _, err) = said(&auto(stage, &["-v"], "true"));
            code == Some(0) && err.contains(heading)
        });
        learned(stage);
        end(stage);
    });
}
