//! `replay`, `warm`, and `run` from a directory.

mod staging;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use brisk_io::measure::evict_and_prove;
use brisk_io::{Residency, residency};
use brisk_launch::PageEvent;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use staging::programs::copy_program;
use staging::{Stage, each_user, each_user_in_kept_memory, watched, watched_in_kept_memory};

const PAGE: usize = 4096;

/// A disk on which no unneeded byte is read.
const EXACT: &str = "bps=1,iops=1000000";

/// A disk on which no launch that reads [`more`] is over in too short a time to learn of.
const SLOW: &str = "bps=200000000,iops=20000";

/// How long to wait for something that happens at once.
const SOON: Duration = Duration::from_secs(20);

/// A stage with a small file and the file `data/big` of 256 pages. A profile asks for 40 of these.
fn stage(user: u32) -> Stage {
    let stage = Stage::on_disk(user);
    fs::create_dir_all(stage.path("app/bin")).unwrap();
    fs::create_dir_all(stage.path("app/data")).unwrap();
    fs::write(stage.path("app/data/big"), vec![7; 256 * PAGE]).unwrap();
    fs::write(stage.path("app/data/small"), "small").unwrap();
    let script = "#!/bin/sh\necho \"$$ $BRISK_TREE $*\"\n";
    fs::write(stage.path("app/bin/app"), script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(stage.path("app/bin/app"), mode).unwrap();
    profile(&stage, 256 * PAGE);
    cold(&stage);
    stage
}

/// Makes a file of 4 MiB beside the others, because a launch that reads little is left alone.
fn more(stage: &Stage) -> PathBuf {
    let path = stage.path("app/data/more");
    fs::write(&path, vec![7; 4 << 20]).unwrap();
    path
}

/// A profile in which the large file has `len` bytes.
fn profile(stage: &Stage, len: usize) {
    let text = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/app"], "runs": 1,
"roots": [["/opt/app", "directory"]],
"files": [[0, "data/big", {len}, null], [0, "data/small", 5, null], [0, "data/none", 1, null]],
"directories": [[0, "data"]],
"steps": [["found", 0, "big", 0, 1], ["pages", 0, 200, 30, 1, 1], ["absent", 0, "big", 2, 1],
["absent", 0, "bigger", 3, 1], ["pages", 0, 10, 10, 4, 1], ["pages", 1, 0, 1, 5, 1],
["pages", 2, 0, 1, 5, 1]]}}"#
    );
    fs::write(stage.path("p"), text).unwrap();
}

fn cold(stage: &Stage) {
    for name in ["big", "small"] {
        evict_and_prove(&File::open(stage.path("app/data").join(name)).unwrap()).unwrap();
    }
}

fn resident(path: &Path) -> u64 {
    match residency(&File::open(path).unwrap()).unwrap() {
        Residency::Pages { resident, .. } => resident,
        Residency::Unknown => panic!("root is told"),
    }
}

/// Waits until the pages of the profile are in memory, and checks that no others are.
fn wait_for_pages(stage: &Stage) {
    let deadline = Instant::now() + SOON;
    let big = stage.path("app/data/big");
    while resident(&big) < 40 {
        assert!(Instant::now() < deadline, "{} pages", resident(&big));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(resident(&big), 40);
}

#[track_caller]
fn good(output: Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    (out, err)
}

#[track_caller]
fn refused(output: Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn replay(stage: &Stage, more: &[&str]) -> Value {
    let arguments = ["replay", "p", "--at", "app", "--json", "--disk", EXACT];
    let output = stage.brisk(&arguments).args(more).output().unwrap();
    let (out, err) = good(output);
    assert_eq!(err, "");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn what_a_profile_lists_is_read_and_nothing_else() {
    each_user_in_kept_memory(|user| {
        let stage = stage_of(user);
        let told = replay(&stage, &[]);
        assert_eq!(resident(&stage.path("app/data/big")), 40);
        assert_eq!(resident(&stage.path("app/data/small")), 1);
        for (field, value) in [
            ("asked_bytes", 40 * PAGE as u64 + 5),
            ("pieces", 3),
            ("missing_bytes", 1),
            ("files", 3),
            ("missing_files", 1),
            ("changed_files", 0),
        ] {
            assert_eq!(told[field], value, "{field} of {told}");
        }
        // The profile says that one name exists although it does not.
        let look_ups = serde_json::json!({"same": 2, "changed": 1});
        assert_eq!(told["look_ups"], look_ups);
        // The kernel may not say what is resident to a user who may not write the file.
        if stage.user() == 0 {
            let again = replay(&stage, &[]);
            let bytes = |field: &str| again[field].as_u64().unwrap();
            let (asked, known) = (bytes("asked_bytes"), bytes("resident_bytes"));
            assert_eq!(asked + known, 40 * PAGE as u64 + 5, "{again}");
            // Before Linux 6.5 it says this to nobody.
            assert!(asked == 0 || known == 0, "{again}");
        }
    });
}

/// A stage on a disk, unlike the given one.
fn stage_of(given: &Stage) -> Stage {
    stage(given.user())
}

#[test]
fn gaps_are_read_where_operations_are_dear() {
    watched_in_kept_memory(|| {
        let stage = stage(0);
        // Within what every kernel reads for one call.
        let text = fs::read_to_string(stage.path("p")).unwrap();
        let text = text.replace(
            r#"["pages", 0, 200, 30, 1, 1]"#,
            r#"["pages", 0, 30, 10, 1, 1]"#,
        );
        fs::write(stage.path("p"), text).unwrap();
        let output = stage
            .brisk(&["replay", "p", "--at", "app", "--disk", "bps=1G,iops=1000"])
            .output()
            .unwrap();
        let (out, _) = good(output);
        assert!(out.contains(" in 2 pieces and 3 files, "), "{out}");
        assert!(out.contains("1 file missing"), "{out}");
        assert_eq!(resident(&stage.path("app/data/big")), 30);
    });
}

#[test]
fn a_file_of_another_length_is_left_out() {
    watched(|| {
        let stage = stage(0);
        profile(&stage, 255 * PAGE);
        let told = replay(&stage, &[]);
        assert_eq!(
            (&told["changed_files"], &told["asked_bytes"]),
            (&1.into(), &5.into())
        );
        let said = ["replay", "p", "--at", "app", "--disk", EXACT];
        let (out, err) = good(stage.brisk(&said).output().unwrap());
        assert!(out.contains(" of another length"), "{out}{err}");
        assert_eq!(resident(&stage.path("app/data/big")), 0);
    });
}

#[test]
fn a_file_that_is_said_to_be_endless_takes_no_memory() {
    watched(|| {
        let stage = stage(0);
        let text = r#"{"brisk_profile": 1, "brisk": "0.1.0", "command": [], "runs": 1,
"roots": [["/opt/app", "directory"]],
"files": [[0, "data/big", 9223372036854775807, null]], "directories": [],
"steps": [["pages", 0, 0, 2251799813685248, 1, 1]]}"#;
        fs::write(stage.path("p"), text).unwrap();
        let told = replay(&stage, &[]);
        assert_eq!(
            (&told["changed_files"], &told["asked_bytes"]),
            (&1.into(), &0.into())
        );
        assert!(
            told["over_budget_bytes"].as_u64().unwrap() > 1 << 60,
            "{told}"
        );
        let hole = File::create(stage.path("app/data/hole")).unwrap();
        hole.set_len(1 << 43).unwrap();
        let output = stage
            .brisk(&["warm", "app", "--budget", "1M"])
            .output()
            .unwrap();
        let (out, _) = good(output);
        assert!(
            out.contains(" left out for lack of memory or budget"),
            "{out}"
        );
    });
}

#[test]
fn no_link_leads_out_of_the_tree() {
    watched(|| {
        let stage = stage(0);
        fs::rename(stage.path("app/data"), stage.path("data")).unwrap();
        std::os::unix::fs::symlink("../data", stage.path("app/data")).unwrap();
        let told = replay(&stage, &[]);
        assert_eq!(
            (&told["missing_files"], &told["asked_bytes"]),
            (&3.into(), &0.into())
        );
        assert_eq!(resident(&stage.path("data/big")), 0);
    });
}

#[test]
fn a_program_from_a_directory_takes_the_place_of_brisk() {
    each_user_in_kept_memory(|user| {
        let stage = stage_of(user);
        let child = stage
            .brisk(&[
                "run",
                "app",
                "--profile",
                "p",
                "--disk",
                EXACT,
                "--",
                "bin/app",
                "word",
            ])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        let (out, _) = good(child.wait_with_output().unwrap());
        assert_eq!(out, format!("{id} {} word\n", stage.path("app").display()));
        wait_for_pages(&stage);
    });
}

#[test]
fn the_lab_is_told_what_was_asked_for() {
    watched_in_kept_memory(|| {
        let stage = stage(0);
        let log = stage.path("log");
        let mut replay = stage.brisk(&["replay", "p", "--at", "app", "--disk", EXACT, "--log"]);
        good(replay.arg(&log).args(["--", "true"]).output().unwrap());
        wait_for_pages(&stage);
        let deadline = Instant::now() + SOON;
        let (events, left_out) = loop {
            if let Some(all) = PageEvent::list(&fs::read(&log).unwrap()) {
                break all;
            }
            assert!(Instant::now() < deadline, "the log has no end");
            std::thread::sleep(Duration::from_millis(2));
        };
        assert_eq!(left_out, 0);
        let mut seen: Vec<_> = events
            .iter()
            .map(|event| {
                assert!(event.ahead);
                let path = event.path.as_ref().unwrap().to_str().unwrap();
                (path, event.first, event.count)
            })
            .collect();
        seen.sort_unstable();
        let expected = [
            ("data/big", 10, 10),
            ("data/big", 200, 30),
            ("data/small", 0, 1),
        ];
        assert_eq!(seen, expected);
    });
}

#[test]
fn the_program_has_no_child_that_it_does_not_know() {
    watched(|| {
        let stage = stage(0);
        let script = "cat /proc/$$/task/$$/children; echo";
        let (out, err) = good(
            stage
                .brisk(&["replay", "p", "--at", "app", "-v", "--", "sh", "-c", script])
                .output()
                .unwrap(),
        );
        // The shell and cat.
        assert_eq!(out.split_whitespace().count(), 1, "{out}");
        // The report comes from the other process. `output` waits for it, because it holds standard error.
        assert!(err.contains(" asked for in "), "{err}");
    });
}

#[test]
fn a_program_that_no_recorded_launch_started_gets_nothing_replayed() {
    const PAGES: u64 = 1 << 10;
    watched(|| {
        let stage = stage(0);
        // It is in the tree from its first instruction on, and so is brisk.
        let brisk = stage.path("app/bin/brisk");
        copy_program(env!("CARGO_BIN_EXE_brisk"), &brisk);
        copy_program(
            env!("CARGO_BIN_EXE_brisk-run"),
            stage.path("app/bin/brisk-run"),
        );
        let sleep = stage.path("app/bin/sleep");
        copy_program("/bin/sleep", &sleep);
        let big = stage.path("app/data/big");
        File::create(&big)
            .unwrap()
            .set_len(PAGES * PAGE as u64)
            .unwrap();
        for (time, first, given_up) in [("1", 0, false), ("2", 1, true)] {
            evict_and_prove(&File::open(&big).unwrap()).unwrap();
            let text = format!(
                r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/sleep"], "runs": 1,
"roots": [["/opt/app", "directory"]], "directories": [],
"files": [[0, "data/big", {}, null], [0, "bin/sleep", {}, null]],
"steps": [["pages", 1, {first}, 1, 1, 1], ["pages", 0, 0, {PAGES}, 1, 1]]}}"#,
                PAGES * PAGE as u64,
                fs::metadata(&sleep).unwrap().len(),
            );
            fs::write(stage.path("p"), text).unwrap();
            let mut command = std::process::Command::new(&brisk);
            command.args(["replay", "p", "--at", "app", "-v", "--disk", EXACT, "--"]);
            command.arg(&sleep).arg(time).current_dir(stage.path(""));
            let (_, report) = good(command.output().unwrap());
            let given = report.contains("given up: no recorded launch started this program");
            assert_eq!(given, given_up, "{report}");
            // Some systems drop unused pages at once, so what is in memory says less.
            assert_eq!(report.contains(" 0 B asked for"), given_up, "{report}");
        }
    });
}

#[test]
fn a_program_starts_though_its_profile_is_damaged() {
    watched(|| {
        let stage = stage(0);
        fs::write(stage.path("p"), "{").unwrap();
        let run = |arguments: &[&str]| stage.brisk(arguments).output().unwrap();
        let (out, err) = good(run(&["run", "app", "--profile", "p", "--", "bin/app"]));
        assert!(out.ends_with(" \n"), "{out}");
        assert!(
            err.starts_with("brisk: warning: p: ") && err.ends_with("; nothing is replayed\n"),
            "{err}"
        );
        let said = refused(
            run(&["run", "app", "--profile", "none", "--", "bin/app"]),
            125,
        );
        assert!(said.starts_with("brisk: cannot replay none: "), "{said}");
        let said = refused(run(&["replay", "p"]), 2);
        assert!(said.starts_with("brisk: p: "), "{said}");
    });
}

#[test]
fn what_makes_no_sense_of_a_directory_is_refused() {
    watched(|| {
        let stage = stage(0);
        let run = |arguments: &[&str]| {
            let end = ["--", "bin/app"];
            let all: Vec<_> = ["run", "app"]
                .iter()
                .chain(arguments)
                .chain(&end)
                .copied()
                .collect();
            refused(stage.brisk(&all).output().unwrap(), 125)
        };
        for (options, only) in [
            (["--bind", "/tmp:/mnt"], "--bind"),
            (["--chdir", "data"], ""),
            (["--writable", "--root"], ""),
            (["--writable=x", "--root"], "--writable=DIR"),
        ] {
            let all = [&options[..], &["--profile", "none"]].concat();
            let said = run(&all);
            match only {
                "" => assert!(said.starts_with("brisk: cannot replay none: "), "{said}"),
                only => assert!(
                    said.starts_with(&format!("brisk: {only} is only for images, and app is a")),
                    "{said}"
                ),
            }
        }
        assert!(run(&["--profile", "p", "--linger", "0"]).ends_with("leave it out\n"));
        for options in [&[][..], &["--root"]] {
            let said = run(options);
            assert!(said.contains("name its profile with --profile"), "{said}");
        }
        stage.pack("app.img");
        let said = stage
            .brisk(&["run", "app.img", "--profile", "p", "--", "bin/app"])
            .output()
            .unwrap();
        assert!(refused(said, 125).contains("--profile is for directories"));
    });
}

/// Takes some tenths of a second, in a root directory that has no other programs.
const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

/// Runs a script in the root directory `root` of the stage, with its profile `root.profile`.
fn in_root(stage: &Stage, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    in_root_until(stage, options, script, || ())
}

/// The same. What the script reads from its standard input ends when `ready` returns.
fn in_root_until(
    stage: &Stage,
    options: &[&str],
    script: &str,
    ready: impl FnOnce(),
) -> (Option<i32>, String, String) {
    let mut command = stage.brisk(&["run", "root", "--root", "--profile", "root.profile"]);
    command.args(options).args(["--", "/bin/sh", "-c", script]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    ready();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_directory_is_the_root_directory_beside_its_profile() {
    each_user_in_kept_memory(|user| {
        let stage = Stage::on_disk(user.user());
        stage.pack_root();
        fs::write(stage.path("root/data/big"), vec![7; 256 * PAGE]).unwrap();
        // It belongs to root, and is recorded as it will run.
        let traced = stage
            .brisk(&[
                "trace",
                "--tree",
                "root",
                "--root",
                "-o",
                "home/root.profile",
            ])
            .args(["--", "/bin/sh", "-c", "cat /etc/own /data/big"])
            .output();
        good(traced.unwrap());
        fs::copy(stage.path("home/root.profile"), stage.path("root.profile")).unwrap();
        evict_and_prove(&File::open(stage.path("root/data/big")).unwrap()).unwrap();

        // Nobody else knows of it, and nothing is written to it.
        let script = "cat /etc/own; [ /etc/hosts -ef /proc/self/root/etc/hosts ] && echo hosts; \
                      ls -d /proc/self /sys/kernel /dev/null /tmp /run /home; \
                      [ -e /usr/bin/env ] || echo none; echo $BRISK_TREE; readlink /proc/self/exe; \
                      echo x > /data/new; echo x > /.brisk/0/data/new; read go";
        // The file is replayed though the program does not ask for it. A replay gives up when its program has ended.
        let is_replayed = || {
            let deadline = Instant::now() + SOON;
            while resident(&stage.path("root/data/big")) < 256 {
                assert!(Instant::now() < deadline, "nothing is replayed");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let (_, out, err) = in_root_until(&stage, &[], script, is_replayed);
        let expected = "image\nhosts\n/dev/null\n/home\n/proc/self\n/run\n/sys/kernel\n/tmp\nnone\n/\n/bin/readlink\n";
        assert_eq!(out, expected, "{err}");
        assert_eq!(err.matches("Read-only file system").count(), 2, "{err}");
        assert!(!stage.path("root/data/new").exists());
        assert!(!stage.path("root/proc").exists());
        assert!(!stage.path("root/.brisk").exists());

        let (code, _, err) = in_root(&stage, &["-v"], &format!("{BUSY}; exit 7"));
        assert_eq!(code, Some(7), "{err}");
        assert!(err.contains("6 files"), "{err}");

        // What was learned of it is replayed at login in its place.
        let learn = [
            "run",
            "root",
            "--root",
            "--auto",
            "--thorough",
            "--",
            "/bin/sh",
            "-c",
        ];
        good(
            auto(&stage, &learn)
                .arg("cat /data/big > /data/none 2>&1; cat /data/big")
                .output()
                .unwrap(),
        );
        wait_for_learned(&stage);
        evict_and_prove(&File::open(stage.path("root/data/big")).unwrap()).unwrap();
        let (out, _) = good(auto(&stage, &["auto", "replay"]).output().unwrap());
        assert!(
            out.contains(" asked for in ") && !out.contains("missing"),
            "{out}"
        );
        assert!(resident(&stage.path("root/data/big")) > 0, "{out}");

        let home = stage.writable().display().to_string();
        let bind = format!("{home}:/deep/er");
        let script = "echo x > /new; echo z > /deep/er/z; cat /new /deep/er/z; pwd";
        let options = ["--writable", "--bind", &bind, "--chdir", "etc"];
        let seen = in_root(&stage, &options, script);
        assert_eq!(seen, (Some(0), "x\nz\n/etc\n".to_owned(), String::new()));
        assert!(!stage.path("root/new").exists());
        assert_eq!(fs::read(stage.writable().join("z")).unwrap(), b"z\n");

        // Its own errors.
        let seen = in_root(&stage, &["--bind", &format!("{home}:/etc/own")], "true");
        assert_eq!(seen.0, Some(125));
        assert!(seen.2.contains("cannot bind to /etc/own"), "{seen:?}");
        let none = stage
            .brisk(&[
                "run",
                "root",
                "--root",
                "--profile",
                "root.profile",
                "--",
                "/sh",
            ])
            .output();
        let said = refused(none.unwrap(), 127);
        assert!(said.contains("/ has bin/sh: name that"), "{said}");
        let whole = stage
            .brisk(&[
                "run",
                "/",
                "--root",
                "--profile",
                "root.profile",
                "--",
                "/bin/sh",
            ])
            .output();
        let said = refused(whole.unwrap(), 125);
        assert!(
            said.contains("it is the root directory of the system; leave out --root"),
            "{said}"
        );
    });
}

#[test]
fn an_image_of_the_kernel_is_replayed_in_its_place() {
    watched(|| {
        let stage = stage(0);
        stage.pack_tree("app", "app.img");
        let (out, err) = good(
            stage
                .brisk(&[
                    "run",
                    "app.img",
                    "--kernel",
                    "--at",
                    "at",
                    "--profile",
                    "p",
                    "-v",
                ])
                .args(["--", "bin/app"])
                .output()
                .unwrap(),
        );
        assert!(out.contains("/at "), "{out}");
        assert!(err.contains("3 names looked up"), "{err}");
        assert!(err.contains("1 file missing"), "{err}");
        // The profile is read before the mount hides it.
        fs::copy(stage.path("p"), stage.path("at/covered")).unwrap();
        let mut run = stage.brisk(&["run", "../app.img", "--kernel", "--at", ".", "-v"]);
        run.args(["--profile", "covered", "--", "bin/app"])
            .current_dir(stage.path("at"));
        let (_, err) = good(run.output().unwrap());
        assert!(err.contains(" asked for in "), "{err}");
    });
}

#[test]
fn an_image_a_directory_and_a_profile_are_warmed() {
    watched_in_kept_memory(|| {
        let stage = stage(0);
        let warm = |arguments: &[&str]| {
            let output = stage.brisk(&["warm"]).args(arguments).output().unwrap();
            good(output).0
        };
        warm(&["p", "--at", "app"]);
        assert!(resident(&stage.path("app/data/big")) >= 40);
        cold(&stage);
        let told: Value = serde_json::from_str(&warm(&["app", "--json"])).unwrap();
        assert_eq!(resident(&stage.path("app/data/big")), 256);
        let sum = |told: &Value, fields: &[&str]| -> u64 {
            fields
                .iter()
                .map(|field| told[*field].as_u64().unwrap())
                .sum()
        };
        assert_eq!(
            sum(&told, &["asked_bytes", "resident_bytes"]),
            sum(&told, &["bytes"])
        );
        cold(&stage);
        warm(&["app", "--budget", "4096"]);
        assert!(resident(&stage.path("app/data/big")) <= 1);
        stage.pack_tree("app", "app.img");
        let image = File::open(stage.path("app.img")).unwrap();
        evict_and_prove(&image).unwrap();
        let out = warm(&["app.img"]);
        brisk_io::measure::prove_warm(&image).unwrap();
        assert!(out.ends_with(" in memory already\n"), "{out}");
        let bad = stage.brisk(&["warm", "app/bin/app"]).output().unwrap();
        refused(bad, 2);
    });
}

#[test]
fn holes_are_not_warmed() {
    watched_in_kept_memory(|| {
        let stage = stage(0);
        let hole = File::create(stage.path("app/data/hole")).unwrap();
        hole.set_len(1 << 40).unwrap();
        hole.write_all_at(&[1; PAGE], 1 << 30).unwrap();
        let warm = |arguments: &[&str]| {
            let output = stage.brisk(&["warm", "app"]).args(arguments).output();
            good(output.unwrap()).0
        };
        let told: Value = serde_json::from_str(&warm(&["--json"])).unwrap();
        let bytes = |field: &str| told[field].as_u64().unwrap();
        let holes = (1 << 40) - PAGE as u64;
        assert_eq!(bytes("hole_bytes"), holes);
        assert_eq!(bytes("over_budget_bytes"), 0);
        assert_eq!(
            bytes("asked_bytes") + bytes("resident_bytes") + holes,
            bytes("bytes")
        );
        assert!(warm(&[]).ends_with(" in memory already; 1024.00 GiB in holes\n"));
        assert_eq!(resident(&stage.path("app/data/big")), 256);
    });
}

#[test]
fn what_cannot_be_warmed_is_a_failure() {
    watched_in_kept_memory(|| {
        let stage = stage(1000);
        let denied = "Permission denied (os error 13)";
        let warm = |arguments: &[&str]| {
            let output = stage.brisk(&["warm"]).args(arguments).output().unwrap();
            let out = String::from_utf8(output.stdout.clone()).unwrap();
            (out, refused(output, 2))
        };
        let mode = |name: &str| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
            fs::set_permissions(stage.path(name), mode).unwrap();
        };
        fs::write(stage.path("app/key"), "secret").unwrap();
        mode("app/key");
        let (out, err) = warm(&["app", "--json"]);
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["missing_bytes"], 6);
        assert_eq!(err, format!("brisk: cannot read app/key: {denied}\n"));
        // The rest was read.
        assert_eq!(resident(&stage.path("app/data/big")), 256);
        fs::create_dir(stage.path("app/locked")).unwrap();
        mode("app/locked");
        let (out, err) = warm(&["app", "-q"]);
        assert_eq!(out, "");
        let expected = format!("brisk: cannot read app/locked and 1 other: {denied}\n");
        assert_eq!(err, expected);
        stage.pack_tree("app/data", "data.img");
        fs::write(stage.path("data.img.hot"), "pack").unwrap();
        mode("data.img.hot");
        let place = stage.path("data.img.hot").canonicalize().unwrap();
        let (_, err) = warm(&["data.img"]);
        assert_eq!(
            err,
            format!("brisk: cannot read {}: {denied}\n", place.display())
        );
    });
}

#[test]
fn the_profiles_of_a_directory_are_replayed_in_the_order_of_their_names() {
    watched_in_kept_memory(|| {
        let stage = stage(0);
        let profiles = stage.path("profiles");
        fs::create_dir(&profiles).unwrap();
        let text = fs::read_to_string(stage.path("p")).unwrap();
        let tree = stage.path("app").canonicalize().unwrap();
        let text = text.replace("/opt/app", tree.to_str().unwrap());
        fs::write(profiles.join("b.profile"), &text).unwrap();
        let steps = text.find("\"steps\"").unwrap();
        let first = r#""steps": [["pages", 1, 0, 1, 5, 1]]}"#;
        fs::write(profiles.join("a.profile"), text[..steps].to_owned() + first).unwrap();
        fs::write(profiles.join("c.profile"), "{").unwrap();
        fs::write(profiles.join("d.profile~"), "{").unwrap();
        // Nobody writes into it.
        let pipe = profiles.join("e.profile");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let replay = |arguments: &[&str]| {
            let output = stage
                .brisk(&["replay", "profiles"])
                .args(arguments)
                .output();
            good(output.unwrap())
        };
        let (out, err) = replay(&["--disk", EXACT]);
        let lines: Vec<_> = out.lines().collect();
        let [first, second] = *lines else {
            panic!("{out}");
        };
        assert!(
            first.starts_with("profiles/a.profile: 5 B asked for in 1 piece"),
            "{out}"
        );
        assert!(
            second.starts_with("profiles/b.profile: 160.00 KiB asked for in 2 pieces"),
            "{out}"
        );
        assert!(
            err.starts_with("brisk: warning: ") && err.contains("c.profile"),
            "{err}"
        );
        assert_eq!(resident(&stage.path("app/data/big")), 40);
        let (out, _) = replay(&["--json", "--disk", EXACT]);
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["profiles"], 2);
        let bytes = |field: &str| told[field].as_u64().unwrap();
        assert_eq!(
            bytes("asked_bytes") + bytes("resident_bytes"),
            40 * PAGE as u64 + 10
        );
        cold(&stage);
        // The budget is that of all together.
        let (out, _) = replay(&["-q", "--budget", "4096", "--disk", EXACT]);
        assert_eq!(out, "");
        assert!(resident(&stage.path("app/data/big")) <= 1);
        let empty = stage.brisk(&["replay", "app"]).output().unwrap();
        assert_eq!(
            refused(empty, 2),
            "brisk: app is a directory, and no file in it ends in .profile: `brisk trace --tree app -o app.profile -- CMD` \
             records one\n"
        );
        let two = ["replay", "p", "p", "--", "true"];
        let said = refused(stage.brisk(&two).output().unwrap(), 125);
        assert!(
            said.contains("brisk replays one profile beside a command"),
            "{said}"
        );
    });
}

#[test]
fn warm_says_what_it_reads() {
    watched(|| {
        let stage = stage(0);
        let warm = |arguments: &[&str]| {
            let output = stage
                .brisk(&["warm", "-v", "--json"])
                .args(arguments)
                .output();
            let (out, said) = good(output.unwrap());
            (serde_json::from_str::<Value>(&out).unwrap(), said)
        };
        let (_, said) = warm(&["p", "--at", "app"]);
        let expected = "recorded in /opt/app: 160.01 KiB of 3 files, 3 names\nread in app\n";
        assert_eq!(said, expected);
        stage.pack_tree("app", "app.img");
        profile(&stage, 256 * PAGE);
        // A pack that lies elsewhere.
        let hot = ["hot", "-q", "app.img", "--profile", "p", "-o", "pack"];
        good(stage.brisk(&hot).output().unwrap());
        std::os::unix::fs::symlink("pack", stage.path("app.img.hot")).unwrap();
        let (told, said) = warm(&["app.img"]);
        assert_eq!(
            (&told["files"], &told["missing_bytes"]),
            (&2.into(), &0.into())
        );
        let lines: Vec<_> = said.lines().collect();
        for (line, name) in lines.iter().zip(["pack", "app.img"]) {
            let place = fs::canonicalize(stage.path(name)).unwrap();
            let start = format!("{}, ", place.display());
            assert!(line.starts_with(&start), "{said}");
        }
        assert!(lines[2].starts_with("2 files, "), "{said}");
    });
}

/// A start of `program` from a directory that brisk learns of, on the disk [`SLOW`].
fn learning(stage: &Stage, directory: &str, program: &str) -> std::process::Command {
    let mut run = auto(stage, &["run", directory, "--auto", "--disk", SLOW]);
    run.args(["--thorough", "-v", "--", program]);
    run
}

fn auto(stage: &Stage, more: &[&str]) -> std::process::Command {
    let mut command = stage.brisk(more);
    command.env("XDG_CACHE_HOME", stage.path("home"));
    command
}

/// What brisk has learned.
fn learned(stage: &Stage) -> Vec<Value> {
    let output = auto(stage, &["auto", "list", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["learned"].as_array().unwrap().clone()
}

/// Waits until something is learned.
fn wait_for_learned(stage: &Stage) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let one = learned(stage).into_iter().next();
        if let Some(one) = one.filter(|one| !one["pages"].is_null()) {
            return one;
        }
        assert!(Instant::now() < deadline, "nothing is learned");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_learned_pack_of_an_image_is_read_at_login() {
    each_user_in_kept_memory(|user| {
        let stage = Stage::on_disk(user.user());
        let run = ["run", "app.img", "--at", "at", "--auto", "--linger", "0"];
        let mut run = auto(&stage, &run);
        run.args(["--", "sh", "-c", "cat $BRISK_TREE/noise > /dev/null"]);
        good(run.output().unwrap());
        let one = wait_for_learned(&stage);
        assert_eq!(
            (&one["kind"], &one["state"]),
            (&"image".into(), &"learned".into())
        );
        let packs = fs::read_dir(stage.path("home/brisk/hot")).unwrap();
        let mut packs = packs.map(|entry| entry.unwrap().path());
        let pack = packs
            .find(|path| path.extension() == Some("hot".as_ref()))
            .unwrap();
        let file = File::open(&pack).unwrap();
        file.sync_all().unwrap();
        evict_and_prove(&file).unwrap();
        let budget = ["auto", "replay", "--budget", "1M"];
        let (out, _) = good(auto(&stage, &budget).output().unwrap());
        assert!(out.contains("1.00 MiB of "), "{out}");
        assert!(
            out.contains(" left out for lack of memory or budget"),
            "{out}"
        );
        let (out, _) = good(auto(&stage, &["auto", "replay"]).output().unwrap());
        let image = stage.path("app.img").canonicalize().unwrap();
        assert!(out.starts_with(&format!("{}: ", image.display())), "{out}");
        let pages = file.metadata().unwrap().len().div_ceil(PAGE as u64);
        assert_eq!(resident(&pack), pages, "{out}");
    });
}

#[test]
fn a_program_is_learned_whose_directory_is_all_of_the_system() {
    each_user(|user| {
        let stage = stage_of(user);
        let more = more(&stage);
        let run = || {
            // Not as an argument by itself, which would name a document.
            let mut shell = learning(&stage, "/", "bin/sh");
            let output = shell
                .args(["-c", &format!("cat {}", more.display())])
                .output()
                .unwrap();
            assert_eq!(output.stdout, fs::read(&more).unwrap());
            good(output).1
        };
        let said = run();
        assert!(said.contains(OBSERVED), "{said}");
        let one = wait_for_learned(&stage);
        assert_eq!(
            (&one["kind"], &one["image"]),
            (&"directory".into(), &"/".into())
        );
        cold(&stage);
        let said = run();
        assert!(said.contains(" asked for in "), "{said}");
    });
}

/// Moves the time at which the only launch was learned back by an hour.
fn an_hour_passes(stage: &Stage) {
    let entries = fs::read_dir(stage.path("home/brisk/hot")).unwrap();
    let record = entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "record"));
    let file = File::options().read(true).write(true).open(record.unwrap());
    let file = file.unwrap();
    // As the table in `record.rs` has it.
    let mut seconds = [0; 8];
    file.read_exact_at(&mut seconds, 24).unwrap();
    let seconds = u64::from_le_bytes(seconds) - 3600;
    file.write_all_at(&seconds.to_le_bytes(), 24).unwrap();
}

const OBSERVED: &str = "brisk attaches to this program";

#[test]
fn the_first_run_from_a_directory_is_recorded_and_later_ones_replay_it() {
    each_user(|user| {
        let stage = stage_of(user);
        // So many that a replay behind its program, which skips much, meets enough of them.
        let some = |len: usize| {
            for number in 0..40 {
                let path = stage.path("app/data").join(number.to_string());
                fs::write(&path, vec![7; len]).unwrap();
                evict_and_prove(&File::open(&path).unwrap()).unwrap();
            }
        };
        some(PAGE);
        more(&stage);
        let script = "#!/bin/sh\ncat \"$BRISK_TREE\"/data/* > /dev/null\n\
                      (sleep 1; echo late > home/late) &\nexit 7\n";
        fs::write(stage.path("app/bin/app"), script).unwrap();
        // It was installed long before.
        let app = File::options().write(true).open(stage.path("app/bin/app"));
        let old = SystemTime::now() - Duration::from_secs(7200);
        app.unwrap().set_modified(old).unwrap();
        let run = || {
            let output = learning(&stage, "app", "bin/app").output().unwrap();
            refused(output, 7)
        };
        let said = run();
        assert!(said.contains(OBSERVED), "{said}");
        let one = wait_for_learned(&stage);
        // Processes that the program leaves behind are not ended, and are observed, too.
        assert!(stage.path("home/late").exists());
        assert_eq!(one["kind"], "directory");
        assert_eq!(one["image"], *stage.path("app").to_str().unwrap());
        assert!(one["pages"].as_u64().unwrap() >= 256, "{one:?}");
        cold(&stage);
        let replay = |days: &str| {
            let replay = ["auto", "replay", "--days", days];
            auto(&stage, &replay).output().unwrap()
        };
        let (out, _) = good(replay("1"));
        let begin = format!("{}: ", stage.path("app").display());
        assert!(
            out.starts_with(&begin) && out.contains(" asked for in "),
            "{out}"
        );
        let nothing = replay("0");
        assert_eq!(
            (nothing.status.code(), &*nothing.stdout),
            (Some(1), &b""[..])
        );
        cold(&stage);
        let said = run();
        assert!(said.contains(" asked for in "), "{said}");
        // Many files have changed now: brisk forgets the profile, and the next run makes a new one. A replay behind its
        // program leaps over files, so one start may meet too few of them.
        let deadline = Instant::now() + 2 * SOON;
        loop {
            some(2 * PAGE);
            cold(&stage);
            an_hour_passes(&stage);
            let said = run();
            if said.contains(OBSERVED) {
                break;
            }
            assert!(Instant::now() < deadline, "it is not forgotten");
            std::thread::sleep(Duration::from_millis(300));
        }
        wait_for_learned(&stage);
        let forget = auto(&stage, &["auto", "forget", "app"]).output().unwrap();
        assert!(forget.status.success(), "{forget:?}");
        assert_eq!(learned(&stage).len(), 0);
    });
}

#[test]
fn a_launch_that_reads_much_else_is_added_to_what_was_learned() {
    each_user(|user| {
        let stage = stage_of(user);
        // It lives on, so that its accounts include what its child has read.
        let script = "#!/bin/sh\nfor file in own $1; do cat \"$BRISK_TREE/data/$file\" > /dev/null; done\n\
                      [ -z \"$1\" ] || sleep 0.5\n";
        fs::write(stage.path("app/bin/app"), script).unwrap();
        let [own, other] = ["own", "other"].map(|name| stage.path("app/data").join(name));
        fs::write(&own, vec![7; 4 << 20]).unwrap();
        fs::write(&other, vec![7; 16 << 20]).unwrap();
        let run = |file: &str| {
            for path in [&own, &other] {
                evict_and_prove(&File::open(path).unwrap()).unwrap();
            }
            let mut run = learning(&stage, "app", "bin/app");
            good(run.arg(file).output().unwrap()).1
        };
        let said = run("");
        assert!(said.contains(OBSERVED), "{said}");
        let little = wait_for_learned(&stage)["pages"].as_u64().unwrap();
        assert!(little < 4096, "{little}");
        // If the system keeps accounts, and the kernel did not read the file ahead of the program.
        let deadline = Instant::now() + SOON;
        while !run("other").contains(OBSERVED) {
            assert!(Instant::now() < deadline, "it is not learned from again");
        }
        while learned(&stage)[0]["runs"] != 2 {
            assert!(Instant::now() < deadline, "{:?}", learned(&stage));
        }
        let list = learned(&stage);
        assert!(list[0]["pages"].as_u64() >= Some(4096), "{list:?}");
        // Some of it, the program reads before its replay does.
        let deadline = Instant::now() + SOON;
        let ahead = || learned(&stage)[0]["last_start"]["ahead_bytes"].as_u64();
        loop {
            let said = run("other");
            assert!(said.contains(" asked for in "), "{said}");
            if ahead() > Some(4 << 20) {
                break;
            }
            assert!(Instant::now() < deadline, "{:?}", learned(&stage));
        }
        let output = auto(&stage, &["auto", "list"]).output().unwrap();
        let (out, _) = good(output);
        assert!(out.contains("\n  gain        of "), "{out}");
    });
}

#[test]
fn a_damaged_profile_that_was_learned_is_recorded_again() {
    watched(|| {
        let stage = stage(0);
        more(&stage);
        let script =
            "#!/bin/sh\ncat \"$BRISK_TREE/data/more\" > /dev/null\necho \"$BRISK_TREE $*\"\n";
        fs::write(stage.path("app/bin/app"), script).unwrap();
        let run = || good(learning(&stage, "app", "bin/app").output().unwrap());
        run();
        let key = wait_for_learned(&stage)["key"].as_str().unwrap().to_owned();
        let record = stage.path("home/brisk/hot").join(format!("{key}.record"));
        let good = fs::read(&record).unwrap();
        // The end of its profile is missing.
        fs::write(&record, &good[..good.len() - 9]).unwrap();
        let (out, err) = run();
        assert!(out.contains("/app "), "{out}");
        assert!(err.contains("; nothing is replayed"), "{err}");
        let deadline = Instant::now() + SOON;
        while record.exists() {
            assert!(Instant::now() < deadline, "it is not forgotten");
            std::thread::sleep(Duration::from_millis(2));
        }
        let (_, err) = run();
        assert!(err.contains(OBSERVED), "{err}");
        // Or all of it.
        wait_for_learned(&stage);
        fs::write(&record, "{").unwrap();
        let (_, err) = run();
        assert!(err.contains(OBSERVED), "{err}");
    });
}

#[test]
fn a_disk_is_measured_and_remembered() {
    watched(|| {
        let stage = stage(0);
        fs::write(stage.path("app/data/big"), vec![7; 8 << 20]).unwrap();
        File::open(stage.path("app/data/big"))
            .unwrap()
            .sync_all()
            .unwrap();
        profile(&stage, 8 << 20);
        let output = stage
            .brisk(&["replay", "p", "--at", "app", "--measure"])
            .env("XDG_CACHE_HOME", stage.path("home"))
            .output()
            .unwrap();
        let (_, err) = good(output);
        let kept = stage.path("home/brisk/devices");
        // Overlays are on no disk, and some file systems have no direct reads.
        if err.starts_with("disk ") {
            let file = fs::read_dir(&kept).unwrap().next().unwrap().unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            assert!(
                text.starts_with("bps=") && text.contains(",iops="),
                "{text}"
            );
        } else {
            assert!(err.contains("no disk was measured"), "{err}");
        }
    });
}
