//! `brisk lab launch`: what it measures and refuses, and that it leaves nothing behind.
//!
//! No test depends on a time. Only the files of the formats are evicted, not the system's caches.

mod measuring;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

#[path = "../../../ground/brisk-io/tests/machine/mod.rs"]
mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use brisk_serve::Reclaimer;
use measuring::measuring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use staging::documented::assert_documented;
use staging::programs::make_executable;
use staging::{Stage, watched};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, CreateWindowAux, WindowClass};

/// How long a test may take: a whole experiment, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// How long to wait for something that must happen.
const SOON: Duration = Duration::from_secs(60);

/// Runs `test` on a stage of root.
fn as_root(test: impl FnOnce(&Stage) + Send + 'static) {
    measuring(File::lock, LIMIT, move || {
        let stage = Stage::on_disk(0);
        fs::create_dir(stage.path("tmp")).unwrap();
        let reclaimers = Reclaimer::all();
        test(&stage);
        assert_nothing_left(&stage);
        assert_eq!(Reclaimer::all(), reclaimers);
    });
}

/// What programs note while they are measured.
const SEEN: &str = "home/seen";

/// `brisk lab launch`. Its directory in memory is in the stage too.
fn lab(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.brisk(&["lab", "launch", "--cold", "files", "--out", "out"]);
    command.args(arguments).env("TMPDIR", stage.path("tmp"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a measurement, which must succeed, and reads its results.
#[track_caller]
fn measure(stage: &Stage, arguments: &[&str]) -> (Value, Output) {
    measured(stage, &mut lab(stage, arguments))
}

/// The same, of a command that may run elsewhere. A system that empties the page cache meanwhile is not measured: then it
/// begins anew.
#[track_caller]
fn measured(stage: &Stage, lab: &mut Command) -> (Value, Output) {
    let mut attempts = (0..8).map(|_| {
        fs::remove_file(stage.path(SEEN)).ok();
        lab.output().unwrap()
    });
    let is_emptied = |output: &Output| text(&output.stderr).contains("empties the page cache");
    let output = attempts.find(|output| !is_emptied(output));
    let output = output.expect("something empties the page cache each time");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let raw = fs::read_to_string(stage.path("out/raw.json")).unwrap();
    assert_documented("raw.json", &raw);
    (serde_json::from_str(&raw).unwrap(), output)
}

/// Runs a measurement, which must fail, and returns its last line.
#[track_caller]
fn refusal(stage: &Stage, arguments: &[&str]) -> String {
    let output = lab(stage, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    said.lines().last().unwrap_or_default().to_owned()
}

/// Checks that no image, mount or process of a session is left.
fn assert_nothing_left(stage: &Stage) {
    stage.assert_no_process(SOON);
    let names = |path: &str| -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(stage.path(path)) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into());
        let results = ["raw.json", "report.html"].map(PathBuf::from);
        names.filter(|name| !results.contains(name)).collect()
    };
    assert_eq!((names("out"), names("tmp")), (Vec::new(), Vec::new()));
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let ours = stage.path("").display().to_string();
    assert!(!mounts.contains(&ours), "{mounts}");
}

fn spec(stage: &Stage, text: &str) {
    fs::write(stage.path("app.toml"), text).unwrap();
}

/// Seconds by name and kind, after checking that every run has all its fields.
fn runs(app: &Value) -> BTreeMap<String, Vec<f64>> {
    let mut runs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut cold = 0;
    for run in app["runs"].as_array().unwrap() {
        let kind = run["kind"].as_str().unwrap();
        let name = format!("{} {kind}", run["name"].as_str().unwrap());
        assert!(run["place"].is_u64() && run["repetition"].is_u64(), "{run}");
        if kind == "walk" {
            assert!(run["read_bytes"].is_null(), "{run}");
        } else {
            let read = run["read_bytes"].as_u64().unwrap();
            // Launches after a cold one may read a fiftieth of what that read.
            if kind == "cold" {
                assert!(read > 256 << 10, "{run}");
                cold = read;
            } else {
                assert!(read <= (256 << 10).max(cold / 50), "{run}");
            }
            let attempt = run["attempt"].as_u64();
            assert_eq!(attempt.is_none(), kind == "cold", "{run}");
            assert!(attempt.is_none_or(|at| (1..=5).contains(&at)), "{run}");
        }
        runs.entry(name)
            .or_default()
            .push(run["seconds"].as_f64().unwrap());
    }
    runs
}

#[test]
fn every_format_is_measured_in_turns() {
    as_root(|stage| {
        spec(
            stage,
            "name = 'reader'\ntree = 'tree'\n\
             command = ['bin/app', 'sh', '-c', 'test -e $BRISK_TREE/cache || \
             echo made at the first launch > $BRISK_TREE/cache; cat $BRISK_TREE/noise | wc -c']\n\
             train = [['bin/app', 'cat', 'tree/text'], ['bin/app', 'ls', 'tree/many']]\n\
             prints-exactly = \"3000000\\n\"\n",
        );
        let (raw, output) = measure(stage, &["--app", "app.toml", "--runs", "2", "--seed", "1"]);
        let app = &raw["apps"][0];
        let rows = app["rows"].as_array().unwrap();
        let names: Vec<_> = rows.iter().map(|r| r["name"].as_str().unwrap()).collect();
        let expected = [
            "directory",
            "directory-replay",
            "directory-replay, trained on another",
            "squashfs-zstd",
            "squashfs-lz4",
            "brisk",
            "brisk-speed",
            "brisk-speed, trained on another",
            "brisk-size",
            "brisk-size, trained on another",
            "brisk-wrong",
            "beside-xz",
        ];
        assert_eq!(names, expected);
        let runs = runs(app);
        for (name, row) in names.iter().zip(rows) {
            for kind in ["cold", "warm"] {
                let seconds = &runs[&format!("{name} {kind}")];
                assert_eq!(seconds.len(), 2, "{name} {kind}");
                let median = f64::midpoint(seconds[0], seconds[1]);
                let found = row[kind]["seconds"]["median"].as_f64().unwrap();
                assert!((found - median).abs() < 1e-9, "{row}");
                assert!(row[kind]["to_directory"]["low"].is_number(), "{row}");
            }
            let walks = !name.starts_with("brisk-") && !name.starts_with("directory-");
            assert_eq!(runs.contains_key(&format!("{name} walk")), walks, "{name}");
            assert_eq!(row["walk"].is_object(), walks, "{name}");
        }
        // Each byte counts once, for the reader or for the loop device. One of the launches may also read
        // files of the system.
        let cold = app["runs"].as_array().unwrap().iter();
        let cold = cold.filter(|run| run["name"] == "squashfs-zstd" && run["kind"] == "cold");
        let read = cold.map(|run| run["read_bytes"].as_u64().unwrap()).min();
        let of = |name: &str| &rows[names.iter().position(|n| *n == name).unwrap()];
        let image = of("squashfs-zstd")["bytes"].as_u64().unwrap();
        assert!(read.unwrap() * 10 < image * 13, "{read:?} of {image}");
        assert_eq!(of("squashfs-zstd")["bytes_to_squashfs_zstd"], 1.0);
        let bytes = |name| of(name)["bytes"].as_u64().unwrap();
        // The noise is in the image, and again in the pack of a program that asks for it.
        assert!(bytes("brisk-speed") > bytes("brisk") + 2_900_000);
        assert!(bytes("brisk-speed, trained on another") < bytes("brisk") + 1_000_000);
        assert_eq!(app["tree_bytes"], of("directory")["bytes"]);
        let same = serde_json::json!({ "value": 1.0, "low": 1.0, "high": 1.0 });
        assert_eq!(of("directory")["cold"]["to_directory"], same);
        let by = |name| of(name)["built_by"][0].to_string();
        assert!(by("squashfs-lz4").contains("\"-Xhc\"") && by("brisk").contains("\"pack\""));
        let launch = of("brisk-speed")["launched_by"].to_string();
        assert!(launch.contains("\"--hot\""), "{launch}");
        // The command and those to train on, three times each.
        assert_eq!(app["recorded"].as_array().unwrap().len(), 9);
        assert!(raw["machine"]["processors"].is_u64() && raw["mksquashfs"].is_string());
        assert_eq!(raw["settings"]["read_ahead_kib"], 128);
        // They run again now.
        let running = Reclaimer::all().into_iter().flatten();
        let stopped = running.map(|found| found.name);
        assert_eq!(raw["stopped"], stopped.collect::<Value>());

        // Only what brisk starts anew has a bound, and an interval around its share of that.
        for (name, row) in names.iter().zip(rows) {
            let is_bound = !["directory", "squashfs-zstd", "squashfs-lz4"].contains(name);
            assert_eq!(row["resident"].is_object(), is_bound, "{name}");
            let resident = runs.get(&format!("{name} resident"));
            assert_eq!(resident.map(Vec::len), is_bound.then_some(2), "{name}");
            let share = |field: &str| row["share_of_bound"][field].as_f64();
            assert!(share("low") <= share("high"), "{row}");
            assert!(is_bound || share("value").is_none(), "{row}");
        }

        // Each contender has one, except the directory itself, and an interval around it.
        let share = |name: &str| of(name)["share_gone"].clone();
        assert!(share("directory").is_null());
        let share = share("squashfs-zstd");
        let of_share = |field: &str| share[field].as_f64();
        assert!(
            share.is_null() || of_share("low") <= of_share("high"),
            "{share}"
        );
        assert!(raw["machine"]["squashfs_decoding"].is_string(), "{raw}");
        assert!(raw["machine"]["disk_rates"]["operations_per_second"].as_u64() > Some(0));

        let table = text(&output.stdout);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[0],
            "reader: bin/app sh -c 'test -e $BRISK_TREE/cache || echo made at the first launch > \
             $BRISK_TREE/cache; cat $BRISK_TREE/noise | wc -c'"
        );
        let head = lines
            .iter()
            .position(|line| line.contains("size MB"))
            .unwrap();
        for (name, line) in names.iter().zip(&lines[head + 1..]) {
            assert!(line.starts_with(name), "{table}");
        }
        // Each repetition has an order of its own.
        let order = |repetition: u64| -> Vec<String> {
            let runs = app["runs"].as_array().unwrap().iter();
            let of_it = runs.filter(|run| run["repetition"] == repetition);
            of_it.map(|run| run["name"].to_string()).collect()
        };
        assert_ne!(order(0), order(1));
    });
}

/// The name of each in a list.
fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|of| of["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Whether this format cannot run here because of the kernel. workshop/lab/deps cannot install that.
fn no_erofs(raw: &Value, name: &str) -> bool {
    let mut cannot = raw["cannot"].as_array().unwrap().iter();
    let found = cannot.find(|cannot| cannot["name"] == name);
    found.is_some_and(|cannot| {
        let reason = cannot["reason"].as_str().unwrap();
        reason.starts_with("the kernel does not mount erofs")
    })
}

/// A launch that reads most of the tree, from these formats.
fn reader(formats: &str) -> Vec<&str> {
    let mut arguments = vec!["--tree", "tree", "--runs", "1", "--formats", formats];
    arguments.extend([
        "--",
        "bin/app",
        "sh",
        "-c",
        "cat $BRISK_TREE/noise > /dev/null",
    ]);
    arguments
}

#[test]
fn every_rival_is_measured_or_the_reason_said() {
    as_root(|stage| {
        let (raw, output) = measure(
            stage,
            &reader(
                "squashfs-none,squashfs-lzo,squashfs-gzip,squashfs-xz,squashfs-zstd-sorted,squashfuse,\
                 squashfuse_ll,\
                 erofs-none,erofs-lz4,erofs-lz4hc,erofs-zstd,erofs-lzma",
            ),
        );
        let rows = names(&raw["apps"][0]["rows"]);
        let cannot = names(&raw["cannot"]);
        assert_eq!(rows.len() + cannot.len(), 12, "{rows:?} {cannot:?}");
        // The formats that need only what workshop/lab/deps installs.
        for name in [
            "squashfs-none",
            "squashfs-lzo",
            "squashfs-xz",
            "squashfs-zstd-sorted",
            "squashfuse",
            "squashfuse_ll",
        ] {
            assert!(rows.contains(&name.to_owned()), "{rows:?} {cannot:?}");
        }
        for name in ["erofs-none", "erofs-lz4hc"] {
            assert!(
                rows.contains(&name.to_owned()) || no_erofs(&raw, name),
                "{raw}"
            );
        }
        let table = text(&output.stdout);
        for (name, cannot) in cannot.iter().zip(raw["cannot"].as_array().unwrap()) {
            let reason = cannot["reason"].as_str().unwrap();
            assert!(table.contains(&format!("{name}: {reason}\n")), "{table}");
        }
        let timeline = &raw["apps"][0]["timeline"];
        assert!(timeline["touches"][0].is_string(), "{timeline}");
        let sizes = raw["apps"][0]["file_sizes"].as_array().unwrap();
        assert_eq!(sizes.last().unwrap()["bytes"], raw["apps"][0]["tree_bytes"]);
    });
}

#[test]
fn what_has_no_tool_is_named_and_the_others_are_measured() {
    as_root(|stage| {
        let few = stage.path("few");
        fs::create_dir(&few).unwrap();
        let setpriv = ["/usr/bin", "/bin"].map(|bin| Path::new(bin).join("setpriv"));
        let setpriv = setpriv.iter().find(|path| path.exists()).unwrap();
        symlink(setpriv, few.join("setpriv")).unwrap();
        let without_tools = |formats| {
            let mut lab = lab(stage, &reader(formats));
            lab.env("PATH", &few).output().unwrap()
        };
        let output = without_tools("directory,squashfs-zstd,squashfuse,erofs-lz4,brisk");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let raw = fs::read(stage.path("out/raw.json")).unwrap();
        let raw: Value = serde_json::from_slice(&raw).unwrap();
        assert_eq!(names(&raw["apps"][0]["rows"]), ["directory", "brisk"]);
        let expected = ["squashfs-zstd", "squashfuse", "erofs-lz4"];
        assert_eq!(names(&raw["cannot"]), expected);
        let table = text(&output.stdout);
        let expected = "Could not run here\n\
            squashfs-zstd: cannot start mksquashfs; install squashfs-tools: ";
        assert!(table.contains(expected), "{table}");
        let said = text(&without_tools("erofs-lz4").stderr);
        let expected =
            "brisk: no format can run here: erofs-lz4 cannot, because cannot start mkfs.erofs; ";
        assert!(said.contains(expected), "{said}");
    });
}

#[test]
fn a_tree_is_the_root_directory_of_a_program() {
    as_root(|stage| {
        stage.pack_root();
        fs::create_dir_all(stage.path("root/proc")).unwrap();
        fs::create_dir_all(stage.path("root/dev")).unwrap();
        // The lab makes the places of the others.
        let lacking = ["root/tmp", "root/shown"].map(|place| stage.path(place));
        for place in &lacking {
            fs::remove_dir(place).ok();
            assert!(!place.exists());
        }
        fs::write(stage.path("root/large"), "1234567\n".repeat(1 << 17)).unwrap();
        fs::copy(stage.path("tree/noise"), stage.path("root/noise")).unwrap();
        spec(
            stage,
            "name = 'rooted'\ntree = 'root'\nroot = true\nhome = 'kept'\n\
             command = ['/bin/sh', '-c', 'cat /large /noise > /dev/null; cat /shown/here/inside; \
             echo x >> $HOME/kept; echo; echo $WHO; pwd']\n\
             binds = ['tree/sub:/shown/here:ro']\nenv = { WHO = 'me' }\n\
             prints-exactly = \"from the image\\nme\\n/\\n\"\n",
        );
        let formats = "directory,directory-replay,squashfs-zstd,brisk,brisk-size,beside-gzip,squashfuse,\
                       erofs-lz4hc";
        let arguments = ["--app", "app.toml", "--runs", "1", "--formats", formats];
        let (raw, _) = measure(stage, &arguments);
        let app = &raw["apps"][0];
        assert_eq!(app["app"]["at"], "/");
        let cold = |row: &Value| row["cold"]["seconds"]["median"].is_number();
        assert!(app["rows"].as_array().unwrap().iter().all(cold));
        let rows = names(&app["rows"]);
        for name in formats.split(',') {
            let is_erofs = name.starts_with("erofs");
            let is_there = rows.iter().any(|row| row == name);
            assert!(
                is_there || is_erofs && no_erofs(&raw, name),
                "{name}: {raw}"
            );
        }
        // Cold, warm and walked, but directory-replay and brisk-size are not walked. These two, brisk and beside-gzip have a
        // bound.
        assert_eq!(runs(app).len(), rows.len() * 3 + 2);
        for watched in ["filling", "replaying"] {
            assert!(app[watched].is_object(), "{watched}: {app}");
        }
        assert!(lacking.iter().all(|place| !place.exists()));
    });
}

#[test]
fn an_image_that_is_there_already_is_measured() {
    as_root(|stage| {
        let formats = format!("beside:{}", stage.path("app.img").display());
        let before = fs::read(stage.path("app.img")).unwrap();
        let (raw, output) = measure(
            stage,
            &[
                "--tree",
                "tree",
                "--formats",
                &formats,
                "--runs",
                "1",
                "--env",
                "A=b",
                "--json",
                "-q",
                "--",
                "bin/app",
                "sh",
                "-c",
                "cat $BRISK_TREE/noise > /dev/null; test $A = b",
            ],
        );
        assert_eq!(text(&output.stderr), "");
        assert_eq!(
            serde_json::from_slice::<Value>(&output.stdout).unwrap(),
            raw
        );
        let rows = raw["apps"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["name"], "beside:app.img");
        assert!(rows[0]["cold"]["to_directory"].is_null(), "{raw}");
        assert_eq!(fs::read(stage.path("app.img")).unwrap(), before);
    });
}

#[test]
fn what_brisk_reads_beside_the_program_is_counted() {
    as_root(|stage| {
        let mut arguments = reader("directory-replay,directory-replay-names,auto");
        arguments.pop();
        // Waits first, so that brisk has read the noise when the program asks for it.
        arguments.push("sleep 0.5; cat $BRISK_TREE/noise > /dev/null");
        let lab = lab(stage, &arguments);
        // In a container, the lab's session has no number.
        for mut lab in [stage.contained(&lab), lab] {
            let (raw, _) = measured(stage, &mut lab);
            let read = |name: &str| {
                let mut runs = raw["apps"][0]["runs"].as_array().unwrap().iter();
                let cold = runs.find(|run| run["name"] == name && run["kind"] == "cold");
                cold.unwrap()["read_bytes"].as_u64().unwrap()
            };
            // It replays no contents, so the program itself reads the noise, which has 3 MB. Both read as much of brisk.
            let expected = read("directory-replay-names");
            let replayed = read("directory-replay");
            assert!(replayed + 1_000_000 > expected, "{replayed}, {expected}");
            // That reads less of brisk, and the program less than 2 MB.
            let learned = read("auto");
            assert!(learned > 3_000_000, "{learned}");
        }
    });
}

#[test]
fn a_first_start_of_a_program_is_not_that_of_brisk() {
    as_root(|stage| {
        // brisk measures the disk by such a file, once for all programs.
        fs::write(stage.path("tree/large"), vec![1; 8 << 20]).unwrap();
        let mut arguments = reader("auto-first");
        arguments.pop();
        arguments.push("cat $BRISK_TREE/large > /dev/null");
        let (raw, _) = measure(stage, &arguments);
        // Measuring at each start would be more than a warm launch may read.
        let runs = runs(&raw["apps"][0]);
        assert!(runs.contains_key("auto-first warm"), "{runs:?}");
    });
}

#[test]
fn the_bound_is_of_a_new_session() {
    as_root(|stage| {
        let seen = stage.path(SEEN);
        // The guardian of the session in which this is. What it starts has its name for a moment.
        let script = format!(
            "guards() {{ grep -qx brisk-guardian $1/comm; }}; \
             for at in /proc/[0-9]*; do if guards $at && grep -q {} $at/cmdline && \
             ! guards /proc/$(sed -n 's/^PPid:\t//p' $at/status); then \
             echo $at >> {}; fi; done 2> /dev/null; cat $BRISK_TREE/noise > /dev/null",
            stage.path("out").display(),
            seen.display()
        );
        let mut arguments = reader("brisk");
        arguments.pop();
        arguments.push(&script);
        let (raw, _) = measure(stage, &arguments);
        let bound = &raw["apps"][0]["rows"][0]["resident"]["seconds"]["median"];
        assert!(bound.is_number(), "{raw}");
        // The lab starts the program again if pages are missing.
        let starts = |kind: &str| {
            let mut runs = raw["apps"][0]["runs"].as_array().unwrap().iter();
            let run = runs.find(|run| run["kind"] == kind).unwrap();
            usize::try_from(run["attempt"].as_u64().unwrap()).unwrap()
        };
        let seen = fs::read_to_string(&seen).unwrap();
        let guardians: Vec<_> = seen.lines().collect();
        assert_eq!(
            guardians.len(),
            1 + starts("warm") + starts("resident"),
            "{seen}"
        );
        // The cold launch and warm ones are in the same session, and each one for the bound in its own.
        let (same, own) = guardians.split_at(1 + starts("warm"));
        assert!(same.iter().all(|guardian| *guardian == same[0]), "{seen}");
        let distinct: BTreeSet<_> = own.iter().chain(&same[..1]).collect();
        assert_eq!(distinct.len(), own.len() + 1, "{seen}");
    });
}

#[test]
fn what_each_part_brings_is_measured() {
    as_root(|stage| {
        let mut arguments = reader("directory");
        arguments.insert(0, "--ablation");
        let (raw, output) = measure(stage, &arguments);
        let rows = raw["apps"][0]["rows"].as_array().unwrap();
        let expected = [
            "directory",
            "directory-replay",
            "brisk",
            "brisk-speed",
            "directory-replay-pages",
            "directory-replay-names",
            "directory-replay-blocks",
            "directory-replay-1-thread",
            "directory-replay-8-threads",
            "brisk-speed-pages",
            "brisk-speed-names",
            "brisk-speed-blocks",
            "brisk-speed-1-thread",
        ];
        assert_eq!(names(&raw["apps"][0]["rows"]), expected);
        let of = |name: &str| &rows[expected.iter().position(|n| *n == name).unwrap()];
        for (name, option) in [
            ("directory-replay-8-threads", "--threads=8"),
            ("brisk-speed-1-thread", "--fill-threads=1"),
            ("directory-replay-names", "directory-replay-names.profile"),
        ] {
            let command = of(name)["launched_by"].to_string();
            assert!(command.contains(option), "{command}");
        }
        // The noise is three million bytes.
        let bytes = |name| of(name)["bytes"].as_u64().unwrap();
        assert!(bytes("brisk-speed-names") < bytes("brisk") + 1_000_000);
        assert!(bytes("brisk-speed-pages") > bytes("brisk") + 2_900_000);
        let table = text(&output.stdout);
        assert!(
            table.contains(
                "\nAre exact pages better than whole blocks?\nA cold launch of brisk-speed takes "
            ),
            "{table}"
        );
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        assert!(page.contains("<h3>What do look-ups ahead gain?</h3>"));
    });
}

#[test]
fn a_launch_is_over_when_it_says_so() {
    as_root(|stage| {
        let script = "cat $BRISK_TREE/noise > /dev/null; echo I am ready; exec sleep 1000";
        let (raw, _) = measure(
            stage,
            &[
                "--tree",
                "tree",
                "--formats",
                "directory,squashfs-zstd,brisk-speed",
                "--runs",
                "1",
                "--ready",
                "line:am ready",
                "--",
                "bin/app",
                "sh",
                "-c",
                script,
            ],
        );
        assert_eq!(raw["apps"][0]["app"]["ready"], "line:am ready");
        assert_eq!(raw["apps"][0]["rows"].as_array().unwrap().len(), 3);
    });
}

/// Shows a window on the display that `wanted` names, each time that file appears.
fn show_windows(wanted: &Path, alive: &Weak<()>) {
    let mut shown = None;
    while alive.strong_count() > 0 {
        let named = fs::read_to_string(wanted).unwrap_or_default();
        if !named.ends_with('\n') {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        fs::remove_file(wanted).unwrap();
        let (connection, screen) = x11rb::connect(Some(named.trim())).unwrap();
        let root = connection.setup().roots[screen].root;
        let window = connection.generate_id().unwrap();
        let how = CreateWindowAux::new().override_redirect(1);
        connection
            .create_window(
                0,
                window,
                root,
                0,
                0,
                9,
                9,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &how,
            )
            .unwrap();
        connection.map_window(window).unwrap().check().unwrap();
        // The previous connection is dropped after this, so that the two are different.
        shown = Some(connection);
    }
    drop(shown);
}

/// Sockets of X servers.
fn displays() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/tmp/.X11-unix").into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_launch_is_over_when_it_shows_a_window() {
    as_root(|stage| {
        let before = displays();
        let wanted = stage.path("home/wanted");
        let at = wanted.display();
        spec(
            stage,
            &format!(
                "name = 'window'\ntree = 'tree'\ndisplay = true\nready = 'window'\n\
                 command = ['bin/app', 'sh', '-c', 'cat $BRISK_TREE/noise > /dev/null; \
                 echo $DISPLAY > {at}; exec sleep 1000']\n"
            ),
        );
        // The threads end with it, also if this thread panics.
        let running = Arc::new(());
        let alive = Arc::downgrade(&running);
        let arguments = ["--app", "app.toml", "--runs", "1"];
        let formats = ["--formats", "directory,squashfs-lz4,brisk-speed"];
        thread::scope(|scope| {
            let windows = scope.spawn(|| show_windows(&wanted, &alive));
            let all: Vec<_> = arguments.into_iter().chain(formats).collect();
            let output = lab(stage, &all).output().unwrap();
            drop(running);
            windows.join().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        });
        let raw = fs::read(stage.path("out/raw.json")).unwrap();
        let raw: Value = serde_json::from_slice(&raw).unwrap();
        assert_eq!(runs(&raw["apps"][0]).len(), 3 * 2 + 2 + 1);
        // Nobody shows a window.
        spec(
            stage,
            "name = 'window'\ntree = 'tree'\ndisplay = true\nready = 'window:x'\n\
             command = ['bin/app', 'true']\n",
        );
        let said = refusal(stage, &["--app", "app.toml", "--formats", "directory"]);
        let expected = "the launch ended before it was ready: it showed no such window";
        assert!(said.ends_with(expected), "{said}");
        // Those that answer belong to others.
        let mut left: Vec<_> = displays().difference(&before).cloned().collect();
        left.retain(|socket| UnixStream::connect(socket).is_err());
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_failed_launch_is_no_time() {
    as_root(|stage| {
        let command = ["--tree", "tree", "--", "sh", "-c"];
        let with = |script| {
            let mut arguments = command.to_vec();
            arguments.push(script);
            arguments
        };
        let tree = "brisk: tree: from the directory: ";
        assert_eq!(
            refusal(stage, &with("echo no >&2; exit 3")),
            format!(
                "{tree}sh -c echo no >&2; exit 3: the launch ended with exit status: 3; it said: no"
            )
        );
        let mut arguments = vec!["--prints", "yes"];
        arguments.extend(with("echo no"));
        assert_eq!(
            refusal(stage, &arguments),
            format!("{tree}sh -c echo no: the launch printed \"no\\n\", not \"yes\"")
        );
        let mut arguments = vec!["--ready", "line:yes"];
        arguments.extend(with("echo no"));
        assert_eq!(
            refusal(stage, &arguments),
            format!(
                "{tree}sh -c echo no: the launch ended before it was ready: it printed no line \
                 with yes; it printed: no"
            )
        );
        // It can write to the directory, but not to the image.
        let mut arguments = vec!["--formats", "directory,brisk"];
        arguments.extend(with("touch $BRISK_TREE/text"));
        let said = refusal(stage, &arguments);
        let expected = "brisk: tree: brisk: cold: the launch ended with exit status: 1; it said: ";
        assert!(said.starts_with(expected), "{said}");
        // What it printed, if it says nothing else.
        assert_eq!(
            refusal(stage, &with("echo no; exit 3")),
            format!(
                "{tree}sh -c echo no; exit 3: the launch ended with exit status: 3; it printed: no"
            )
        );
    });
}

#[test]
fn a_spec_prepares_the_home_and_accepts_exit_statuses() {
    as_root(|stage| {
        let script = stage.path("make-home");
        fs::write(&script, "#!/bin/sh\necho $1 > $HOME/made\n").unwrap();
        make_executable(&script);
        let text = "name = 'app'\ntree = 'tree'\nsetup = ['./make-home', 'one']\nexits = [3]\n\
                    prints-exactly = \"one\\n\"\ncommand = ['sh', '-c', 'cat $HOME/made; rm $HOME/made; cat $BRISK_TREE/text > /dev/null; exit 3']\n";
        spec(stage, text);
        let arguments = [
            "--app",
            "app.toml",
            "--runs",
            "1",
            "--no-walks",
            "--formats",
            "directory,brisk-speed",
        ];
        let (raw, output) = measure(stage, &arguments);
        assert_eq!(raw["apps"][0]["app"]["exits"], serde_json::json!([3]));
        assert_eq!(raw["apps"][0]["rows"].as_array().unwrap().len(), 2);
        assert!(self::text(&output.stdout).contains("; 1 run of each in turns"));
        spec(stage, &text.replace("'./make-home', 'one'", "'false'"));
        assert!(
            refusal(stage, &arguments)
                .ends_with("the setup of the spec: false ended with exit status: 1: ")
        );
    });
}

/// `brisk lab codecs` with one run of each, which must succeed. Returns the app and the tables.
#[track_caller]
fn codecs(stage: &Stage, tree: &str, arguments: &[&str]) -> (Value, String) {
    let mut command = stage.brisk(&["lab", "codecs", tree, "--cold", "files"]);
    command
        .args(["--runs", "1", "--out", "out"])
        .args(arguments);
    let output = command.env("TMPDIR", stage.path("tmp")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let raw = fs::read_to_string(stage.path("out/raw.json")).unwrap();
    assert_documented("raw.json", &raw);
    let mut raw: Value = serde_json::from_str(&raw).unwrap();
    (raw["apps"][0].take(), text(&output.stdout))
}

#[test]
fn codecs_are_compared_and_questions_answered() {
    as_root(|stage| {
        let (app, table) = codecs(stage, "tree", &["--sample", "2M"]);
        let bytes = app["tree_bytes"].as_u64().unwrap();
        assert!((1 << 20..3 << 20).contains(&bytes), "{bytes}");
        assert!(app["sample_of"].as_u64().unwrap() > bytes);
        let rows = app["rows"].as_array().unwrap();
        for name in [
            "none",
            "lz4",
            "lzo 9",
            "gzip 9",
            "zstd 22",
            "xz 6, dictionary 32K",
        ] {
            let row = rows.iter().find(|row| row["name"] == name);
            let row = row.unwrap_or_else(|| panic!("{name}: {table}"));
            assert!(row["walk"].is_object() && row["cold"].is_null(), "{row}");
        }
        let answer = "\nDoes a lower preset of xz decode faster?\nxz 9 is ";
        assert!(table.contains(answer), "{table}");
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        assert!(page.contains("<h1>What codecs cost: tree</h1>"));
        assert!(page.contains("<h3>Does a lower preset of xz decode faster?</h3>"));
    });
}

#[test]
fn codecs_of_a_program_are_launched_too() {
    as_root(|stage| {
        let command = ["--", "bin/app", "sh", "-c", "cat $BRISK_TREE/noise | wc -c"];
        // A small tree, because there are many images.
        fs::create_dir_all(stage.path("small/bin")).unwrap();
        fs::copy(stage.path("tree/bin/app"), stage.path("small/bin/app")).unwrap();
        let noise = fs::read(stage.path("tree/noise")).unwrap();
        fs::write(stage.path("small/noise"), &noise[..300_000]).unwrap();
        let (app, table) = codecs(stage, "small", &command);
        assert!(app["sample_of"].is_null());
        assert_eq!(app["tree_bytes"], app["rows"][0]["bytes"]);
        assert!(app["rows"][5]["cold"].is_object(), "{app}");
        assert!(table.contains(", and is launched cold in "), "{table}");
    });
}

#[test]
fn the_page_is_made_again_from_raw_runs() {
    as_root(|stage| {
        let formats = "directory,directory-replay,squashfs-lz4,brisk-speed";
        let mut all = reader(formats);
        all.pop();
        // Waits first, so that the replay is done before.
        all.push("sleep 0.2; cat $BRISK_TREE/noise > /dev/null");
        let (raw, _) = measure(stage, &all);
        let filling = &raw["apps"][0]["filling"];
        assert_eq!(filling["name"], "brisk-speed");
        let pages = |ranges: &Value| -> u64 {
            let ranges = ranges.as_array().unwrap().iter();
            let counts = ranges.map(|range| range.as_str().unwrap().split(' ').nth(2).unwrap());
            counts.map(|count| count.parse::<u64>().unwrap()).sum()
        };
        // The noise has 733 pages. Each is filled, or waited for if the fill was late.
        let all = pages(&filling["stored"]) + pages(&filling["waited"]);
        assert!(all >= 733, "{filling}");
        let replaying = &raw["apps"][0]["replaying"];
        assert_eq!(replaying["name"], "directory-replay");
        assert!(
            replaying["waited"].is_null() && pages(&replaying["stored"]) > 0,
            "{replaying}"
        );
        let page = fs::read_to_string(stage.path("out/report.html")).unwrap();
        for heading in ["What is filled, and what is waited for", "What is replayed"] {
            assert!(page.contains(heading), "{heading}");
        }
        let [cold, walk] = ["Cold launch", "Cold walk"].map(|heading| {
            let rest = page.split(&format!("<h3>{heading}</h3>")).nth(1).unwrap();
            let figure = rest.split("</figure>").next().unwrap();
            figure.matches("class=\"dot ").count()
        });
        assert_eq!((cold, walk), (4, 2));
        assert!(page.contains("What is read, in order"));
        let report = |arguments: &[&str]| {
            let mut command = stage.brisk(&["lab", "report"]);
            command.args(arguments).output().unwrap()
        };
        let output = report(&["out/raw.json", "-o", "home/again.html"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let again = fs::read_to_string(stage.path("home/again.html")).unwrap();
        assert_eq!(again, page);
        let output = report(&["out/raw.json", "out/raw.json", "-o", "home/two.html"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let two = fs::read_to_string(stage.path("home/two.html")).unwrap();
        assert_eq!(two.matches("<h3>Cold launch</h3>").count(), 2);
        let output = report(&["tree/text", "-o", "home/none.html"]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        let expected = "brisk: tree/text: this is not JSON, but all results are JSON: ";
        assert!(said.starts_with(expected), "{said}");
        assert!(!stage.path("home/none.html").exists());
    });
}

#[test]
fn what_cannot_be_measured_is_named() {
    as_root(|stage| {
        let command = ["--", "bin/app", "true"];
        let with = |options: &[&'static str]| {
            let mut arguments = options.to_vec();
            arguments.extend(command);
            refusal(stage, &arguments)
        };
        assert_eq!(
            with(&["--tree", "tree", "--formats", "brisk,brisk"]),
            "brisk: --formats has brisk twice, allowed is once"
        );
        assert!(with(&["--tree", "none"]).starts_with("brisk: cannot find the tree none: "));
        assert_eq!(
            with(&[
                "--tree",
                "tree",
                "--formats",
                "beside:a/app.img,beside:b/app.img"
            ]),
            "brisk: --formats has beside:a/app.img and beside:b/app.img, which would have the same name in \
             tables; allowed are images with different file names: make a link with another name to one of them"
        );
        fs::create_dir(stage.path("").join(OsStr::from_bytes(b"t\xff"))).unwrap();
        symlink(OsStr::from_bytes(b"t\xff"), stage.path("odd")).unwrap();
        let said = with(&["--tree", "odd"]);
        assert!(
            said.starts_with("brisk: the path ") && said.contains(" is not UTF-8, "),
            "{said}"
        );
        let around = stage.path("").canonicalize().unwrap();
        assert_eq!(
            with(&["--tree", "."]),
            format!(
                "brisk: --out is out, which is in the tree {}, so images and results would become part of it; \
                 allowed is a directory outside",
                around.display()
            )
        );
        assert!(!stage.path("out").exists());
        let output = lab(
            stage,
            &["--tree", "tree", "--formats", "squash", "--", "true"],
        );
        let said = text(&{ output }.output().unwrap().stderr);
        assert!(
            said.contains(
                "'squash' for '--formats <LIST>': allowed are directory, directory-replay,"
            ),
            "{said}"
        );
        assert_eq!(
            refusal(stage, &[]),
            "brisk: there is nothing to launch: name specs with --app, or --tree DIR and a command \
             after --"
        );
        spec(stage, "name = 'a'\ntree = 'tree'\ncommands = ['bin/app']\n");
        let said = refusal(stage, &["--app", "app.toml"]);
        let expected =
            "brisk: app.toml, line 3, column 1: unknown field `commands`, expected one of";
        assert!(said.starts_with(expected), "{said}");
        // A script makes what the tree lacks.
        spec(
            stage,
            "name = 'a'\ntree = 'made'\nbuild = ['false']\ncommand = ['bin/app', 'true']\n",
        );
        let said = refusal(stage, &["--app", "app.toml"]);
        let expected = "brisk: app.toml, field tree: false did not make made: it ended with ";
        assert!(said.starts_with(expected), "{said}");
    });
}

#[test]
fn a_tree_is_built_where_it_is_looked_for() {
    as_root(|stage| {
        spec(
            stage,
            "name = 'a'\ntree = 'made'\nbuild = ['cp', '-a', 'tree']\n\
             command = ['bin/app', 'sh', '-c', 'cat $BRISK_TREE/noise']\n",
        );
        fs::create_dir(stage.path("trees")).unwrap();
        let (raw, _) = measure(
            stage,
            &[
                "--app",
                "app.toml",
                "--trees",
                "trees",
                "--formats",
                "directory",
                "--runs",
                "1",
            ],
        );
        let tree = stage.path("trees/made").canonicalize().unwrap();
        assert_eq!(raw["apps"][0]["app"]["tree"], tree.to_str().unwrap());
    });
}

/// The same on a system without cgroup v1: the lab is in a group of its own meanwhile, if that is allowed.
fn bound_by_v2(stage: &Stage, arguments: &[&str]) {
    let output = lab(stage, arguments).output().unwrap();
    let said = text(&output.stderr);
    if output.status.success() {
        let raw = fs::read(stage.path("out/raw.json")).unwrap();
        let raw: Value = serde_json::from_slice(&raw).unwrap();
        assert_eq!(raw["settings"]["proven"].as_array().unwrap().len(), 2);
    } else {
        let reasons = [
            "cannot limit reads",
            "the system names no disk for ",
            "/sys/fs/cgroup",
            "--disk does not hold",
        ];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    }
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten() {
        let name = entry.unwrap().file_name();
        assert!(
            !name.to_string_lossy().starts_with("brisk-lab-"),
            "{name:?}"
        );
    }
}

/// The group of cgroup v1 in which this process is, and so the lab.
fn group_of_v1() -> PathBuf {
    let all = PathBuf::from("/sys/fs/cgroup/blkio");
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        let is_it = controllers.split(',').any(|name| name == "blkio");
        is_it.then(|| all.join(path))
    });
    path.filter(|group| group.join("cgroup.procs").exists())
        .unwrap_or(all)
}

#[test]
fn a_slower_disk_is_one_only_while_it_is_measured() {
    as_root(|stage| {
        let seen = stage.path(SEEN);
        let group = group_of_v1();
        let script = format!(
            "cat $BRISK_TREE/noise > /dev/null; cat {} >> {}",
            group.join("blkio.throttle.read_*s_device").display(),
            seen.display()
        );
        // Slower than any disk of this century.
        let limits = "bps=16M,iops=1000";
        let mut arguments = vec!["--tree", "tree", "--formats", "directory", "--runs", "1"];
        arguments.extend(["--disk", limits, "--", "sh", "-c", &script]);
        let knobs = || {
            ["bps", "iops"].map(|unit| {
                let name = format!("blkio.throttle.read_{unit}_device");
                fs::read_to_string(group.join(name)).ok()
            })
        };
        let before = knobs();
        if before.contains(&None) {
            return bound_by_v2(stage, &arguments);
        }
        let output = lab(stage, &arguments).output().unwrap();
        let said = text(&output.stderr);
        // In a container, or on a file system of several disks.
        let knob = group.join("blkio.throttle.read_bps_device");
        let cannot = said.contains("the system names no disk for ")
            || said.contains(&format!(" to {}: ", knob.display()));
        if !output.status.success() && cannot {
            assert_eq!(knobs(), before);
            assert!(!machine::has("throttled disks", Err(said)));
            return;
        }
        if output.status.success() {
            let raw = fs::read(stage.path("out/raw.json")).unwrap();
            let raw: Value = serde_json::from_slice(&raw).unwrap();
            assert_eq!(raw["settings"]["bytes_per_second"], 16u64 << 20);
            let proven = raw["settings"]["proven"].as_array().unwrap();
            let of: Vec<_> = proven.iter().map(|p| p["of"].as_str().unwrap()).collect();
            assert_eq!(of, ["bytes", "operations"]);
            for proof in proven {
                let [asked, got] = ["asked", "got"].map(|what| {
                    let field = format!("{what}_per_second");
                    proof[&field].as_f64().unwrap()
                });
                assert!((got / asked - 1.0).abs() <= 0.2, "{proof}");
            }
            let table = text(&output.stdout).replace('\n', " ");
            assert!(table.contains("MB/s, at most 1000 reads/s"), "{table}");
            let seen = fs::read_to_string(&seen).unwrap();
            let bound = |number: &str| seen.matches(number).count();
            // Cold launches and those until one is warm, but not the trial.
            let (bytes, operations) = (bound(" 16777216\n"), bound(" 1000\n"));
            assert_eq!(bytes, operations, "{seen}");
            assert!((2..=6).contains(&bytes), "{seen}");
        } else {
            // Others read from the disk, so the lab takes no figure.
            let expected =
                "; the disk itself is slower, or other programs read from it; ask for less";
            assert!(said.trim_end().ends_with(expected), "{said}");
        }
        assert_eq!(knobs(), before);
        // No disk is so fast. The lab measures the disk, and then nothing else.
        arguments[7] = "bps=1000G";
        let said = refusal(stage, &arguments);
        let expected = "brisk: tree: --disk does not hold: direct reads got ";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.contains(" bytes/s from "), "{said}");
        assert_eq!(knobs(), before);
    });
}

#[test]
fn programs_are_started_as_an_ordinary_user() {
    as_root(|stage| {
        stage.pack_root();
        for place in ["tmp", "proc", "dev"] {
            fs::create_dir_all(stage.path("root").join(place)).unwrap();
        }
        fs::write(stage.path("root/large"), "1234567\n".repeat(1 << 17)).unwrap();
        spec(
            stage,
            "name = 'whose'\ntree = 'root'\nroot = true\n\
             command = ['/bin/sh', '-c', 'cat /large > /dev/null; echo x > $HOME/mine; stat -c %u $HOME/mine']\n\
             prints-exactly = \"1000\\n\"\n",
        );
        let arguments = [
            "--app",
            "app.toml",
            "--runs",
            "1",
            "--user",
            "1000",
            "--formats",
            "directory,directory-replay,squashfs-zstd,brisk,brisk-speed",
        ];
        fs::create_dir(stage.path("out")).unwrap();
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(stage.path("out"), closed).unwrap();
        let said = refusal(stage, &arguments);
        assert!(
            said.contains("user 1000 cannot start ")
                && said.contains("--out that every user can enter"),
            "{said}"
        );
        for place in ["", "out", "tmp"] {
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(stage.path(place), open).unwrap();
        }
        let (raw, output) = measure(stage, &arguments);
        assert_eq!(raw["settings"]["user"], 1000);
        let app = &raw["apps"][0];
        // Cold and warm, and bounds of three; root cannot walk through the mount of another user.
        assert_eq!(runs(app).len(), names(&app["rows"]).len() * 2 + 3);
        assert!(app["filling"].is_object(), "{app}");
        let table = text(&output.stdout);
        assert!(table.contains("as an ordinary user"), "{table}");
    });
}

#[test]
fn others_than_root_are_told() {
    watched(|| {
        let stage = Stage::new(1000);
        let output = stage
            .brisk(&["lab", "launch", "--tree", "tree", "--", "bin/app", "true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            text(&output.stderr),
            "brisk: brisk lab needs root, to mount images and to empty the page cache; run \
             it as root, for example with sudo\n"
        );
    });
}

/// A process that was started for the stage, found by its arguments or its environment.
fn process_of(stage: &Stage) -> Option<String> {
    let ours = stage.path("").display().to_string();
    let ours = ours.trim_end_matches('/');
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let process = entry.ok()?.path();
        let of = |name| fs::read(process.join(name)).unwrap_or_default();
        let said = text(&of("cmdline"));
        let is_ours = said.contains(ours) || text(&of("environ")).contains(ours);
        is_ours.then(|| format!("{}: {said}", process.display()))
    })
}

#[test]
fn an_interrupted_experiment_leaves_nothing() {
    as_root(|stage| {
        // Without SIGINT, because a script's background processes ignore it.
        for (signal, format) in [
            (Signal::TERM, "brisk"),
            (Signal::KILL, "brisk"),
            (Signal::KILL, "squashfuse"),
            // It is traced before it is launched from there.
            (Signal::TERM, "brisk-speed"),
            (Signal::KILL, "brisk-speed"),
        ] {
            let started = stage.path("home/started");
            // It can write to the directory, where it is tried, but not to the image.
            let script = format!(
                "touch $BRISK_TREE/text && exit; echo > {}; exec sleep 1000.5",
                started.display(),
            );
            let mut lab = lab(
                stage,
                &[
                    "--tree",
                    "tree",
                    "--formats",
                    format,
                    "--",
                    "sh",
                    "-c",
                    &script,
                ],
            );
            let child = lab.stderr(Stdio::null()).process_group(0).spawn();
            let mut child = child.unwrap();
            let deadline = Instant::now() + SOON;
            while !started.exists() {
                assert!(Instant::now() < deadline, "it does not start");
                thread::sleep(Duration::from_millis(5));
            }
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
            child.wait().unwrap();
            let deadline = Instant::now() + SOON;
            let is_empty = |path: &str| fs::read_dir(stage.path(path)).unwrap().next().is_none();
            while !(is_empty("out") && is_empty("tmp")) {
                assert!(Instant::now() < deadline, "it leaves directories");
                thread::sleep(Duration::from_millis(5));
            }
            stage.assert_no_process(SOON);
            let deadline = Instant::now() + SOON;
            while let Some(left) = process_of(stage) {
                assert!(Instant::now() < deadline, "{format}: {left} is left");
                thread::sleep(Duration::from_millis(5));
            }
            fs::remove_file(&started).unwrap();
        }
    });
}

#[test]
fn what_is_changed_twice_gets_its_first_value_back() {
    as_root(|stage| {
        let knob = stage.path("home/knob");
        let mut command = stage.brisk(&["lab", "restore"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // Ending a service asks all its processes to end.
        let ignored = || {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        let deadline = Instant::now() + SOON;
        while ignored() & 1 << (Signal::TERM.as_raw() - 1) == 0 {
            assert!(Instant::now() < deadline, "it can be asked to end");
            thread::sleep(Duration::from_millis(2));
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        for text in ["first", "second"] {
            let step = serde_json::json!({ "Write": [knob, text] });
            writeln!(child.stdin.as_mut().unwrap(), "{step}").unwrap();
        }
        // Announced for each of two disks. The control group is already gone after the first.
        let [group, list] = ["home/group", "home/list"].map(|name| stage.path(name));
        fs::create_dir(&group).unwrap();
        for _ in 0..2 {
            for step in [
                serde_json::json!({ "RemoveGroup": group }),
                serde_json::json!({ "Leave": [list, 7] }),
            ] {
                writeln!(child.stdin.as_mut().unwrap(), "{step}").unwrap();
            }
        }
        // Killed while it wrote.
        write!(child.stdin.as_mut().unwrap(), "{{\"Wri").unwrap();
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(fs::read_to_string(&knob).unwrap(), "first");
        assert_eq!(fs::read_to_string(&list).unwrap(), "7");
        assert!(!group.exists());
    });
}
