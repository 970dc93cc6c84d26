//! Sessions of `brisk run`: making one, joining it, its end, and what happens when parts of it die.
//!
//! Most run twice: as root, and as an ordinary user in a user namespace.

mod staging;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::{ImageWriter, Tree, TreeRules};
use brisk_io::ByteSource;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, prlimit,
};
use staging::documented::assert_documented;
use staging::programs::copy_program;
use staging::{Stage, each_user, each_world, watched};

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn the_first_run_and_later_ones_see_the_image_and_share_a_mount() {
    each_world(|stage| {
        let script = "echo $BRISK_TREE; ls $BRISK_TREE; cmp $BRISK_TREE/noise tree/noise; \
                      stat -c %d $BRISK_TREE; exit 7";
        let first = said(&stage.sh(script));
        let at = stage.path("at");
        assert_eq!((first.0, first.2.as_str()), (Some(7), ""), "{first:?}");
        let expected = format!("{}\nbin\nlink\nmany\nnoise\nsub\ntext\n", at.display());
        assert!(first.1.starts_with(&expected), "{first:?}");
        let guardians = stage.processes("brisk-guardian");
        assert_eq!(guardians.len(), 1);
        // It is the same device, so its pages are the same.
        assert_eq!(said(&stage.sh(script)), first);
        assert_eq!(stage.processes("brisk-guardian"), guardians);
        if !stage.in_own_world() {
            // No other process saw the mount.
            assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
        }
    });
}

#[test]
fn all_of_the_tree_is_there() {
    each_world(|stage| {
        let script = "cd tree && find . -type f | sort | while read f; do \
                      cmp $f $BRISK_TREE/$f || exit 1; done; readlink $BRISK_TREE/link; \
                      ls -R > $HOME/left; cd $BRISK_TREE && ls -R | cmp - $HOME/left";
        let mut run = stage.run(&["bin/app", "sh", "-c", script]);
        run.env("HOME", stage.writable());
        assert_eq!(
            said(&run.output().unwrap()),
            (Some(0), "bin/app\n".to_owned(), String::new())
        );
    });
}

#[test]
fn eight_runs_at_once_share_one_session() {
    each_world(|stage| {
        let runs: Vec<_> = (0..8)
            .map(|_| {
                stage
                    .run(&[
                        "bin/app",
                        "sh",
                        "-c",
                        "cmp $BRISK_TREE/noise tree/noise && stat -c %d $BRISK_TREE",
                    ])
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut devices: Vec<_> = runs
            .into_iter()
            .map(|run| said(&run.wait_with_output().unwrap()))
            .collect();
        devices.dedup();
        assert_eq!(devices.len(), 1, "{devices:?}");
        assert_eq!(devices[0].0, Some(0), "{devices:?}");
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
    });
}

#[test]
fn without_linger_nothing_is_left() {
    each_world(|stage| {
        for _ in 0..3 {
            let output = stage.lingering("0", &["bin/app", "true"]).output().unwrap();
            assert_eq!(said(&output), (Some(0), String::new(), String::new()));
            stage.assert_nothing_left(Duration::from_secs(5));
        }
    });
}

#[test]
fn a_run_at_the_moment_of_the_end_succeeds() {
    each_world(|stage| {
        for _ in 0..30 {
            let output = stage.lingering("0", &["bin/app", "true"]).output().unwrap();
            assert_eq!(said(&output), (Some(0), String::new(), String::new()));
        }
        stage.assert_nothing_left(Duration::from_secs(5));
    });
}

#[test]
fn the_session_lingers_and_then_ends() {
    each_world(|stage| {
        let started = Instant::now();
        let output = stage.lingering("1", &["bin/app", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        stage.assert_nothing_left(Duration::from_secs(10));
        assert!(started.elapsed() >= Duration::from_secs(1));
    });
}

/// It has left its parents, its session and its terminal, and uses nothing of the image.
#[test]
fn a_daemon_keeps_the_session() {
    each_world(|stage| {
        let daemon = "(setsid sh -c 'sleep 1; cat $BRISK_TREE/sub/inside > $HOME/out; sleep 1' \
                      </dev/null >/dev/null 2>&1 &) &";
        let output = stage
            .lingering("0", &["bin/app", "sh", "-c", daemon])
            .env("HOME", stage.writable())
            .output()
            .unwrap();
        assert_eq!(said(&output), (Some(0), String::new(), String::new()));
        thread::sleep(Duration::from_millis(300));
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        stage.assert_nothing_left(Duration::from_secs(10));
        assert_eq!(
            fs::read_to_string(stage.writable().join("out")).unwrap(),
            "from the image"
        );
    });
}

#[test]
fn the_program_is_the_process_that_was_started() {
    each_world(|stage| {
        for _ in 0..2 {
            let child = stage
                .run(&["bin/app", "sh", "-c", "echo $$"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id();
            let output = child.wait_with_output().unwrap();
            assert_eq!(said(&output).1, format!("{pid}\n"));
        }
    });
}

#[test]
fn signals_and_statuses_are_the_programs_own() {
    each_world(|stage| {
        for _ in 0..2 {
            let killed = stage.sh("kill -TERM $$");
            assert_eq!(killed.status.signal(), Some(15), "{killed:?}");
            let mut child = stage.run(&["sleep", "60"]).spawn().unwrap();
            stage.wait_for_program("sleep");
            kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert_eq!(said(&stage.sh("exit 3")).0, Some(3));
    });
}

#[test]
fn what_cannot_be_executed_says_so_and_the_session_goes_on() {
    each_world(|stage| {
        for _ in 0..2 {
            let output = stage.run(&["bin/none"]).output().unwrap();
            assert_eq!(
                said(&output),
                (
                    Some(127),
                    String::new(),
                    "brisk: cannot run bin/none: no such file\n".to_owned()
                )
            );
            let output = stage.run(&["./noise"]).output().unwrap();
            assert_eq!(said(&output).0, Some(126));
        }
        assert_eq!(said(&stage.sh("exit 0")).0, Some(0));
    });
}

#[test]
fn no_child_and_no_descriptor_is_left_to_the_program() {
    each_world(|stage| {
        // Only built-in commands of the shell: another program that reads or counts would be a child, too.
        let script = "ls /proc/self/fd | tr '\\n' ' '; read -r children </proc/$$/task/$$/children; \
                      set -- $children; echo $#";
        let plain = said(&stage.plainly(&["sh", "-c", "exec \"$@\"", "sh", "sh", "-c", script]));
        assert_eq!(plain.0, Some(0), "{plain:?}");
        for _ in 0..2 {
            assert_eq!(said(&stage.sh(script)), plain);
        }
    });
}

#[test]
fn pipes_end_with_the_program() {
    each_world(|stage| {
        for _ in 0..2 {
            let mut child = stage
                .run(&["bin/app", "sh", "-c", "read line; echo got $line; exit 5"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(b"this\n").unwrap();
            // Waits for the end of both, though the session lingers.
            let output = child.wait_with_output().unwrap();
            assert_eq!(
                said(&output),
                (Some(5), "got this\n".to_owned(), String::new())
            );
        }
    });
}

#[test]
fn the_environment_and_the_working_directory_stay() {
    each_world(|stage| {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let output = stage
                .run(&[
                    "bin/app",
                    "sh",
                    "-c",
                    "pwd -P; echo $ODD; umask; ulimit -n; id",
                ])
                .env("ODD", "a b")
                .output()
                .unwrap();
            seen.push(said(&output));
        }
        assert_eq!(seen[0], seen[1]);
        let start = format!(
            "{}\na b\n",
            stage.path("").canonicalize().unwrap().display()
        );
        assert!(seen[0].1.starts_with(&start), "{seen:?}");
    });
}

/// The image, mounted over the tree that it was made from, from a directory in it.
#[test]
fn the_tree_can_be_covered_by_its_image() {
    each_world(|stage| {
        for _ in 0..2 {
            let output = stage
                .brisk(&["run", "../../app.img", "--at", "..", "--", "bin/app"])
                .args([
                    "sh",
                    "-c",
                    "pwd -P; cat inside; touch it 2>/dev/null || echo kept",
                ])
                .current_dir(stage.path("tree/sub"))
                .output()
                .unwrap();
            let sub = stage.path("tree/sub").canonicalize().unwrap();
            let expected = format!("{}\nfrom the imagekept\n", sub.display());
            assert_eq!(said(&output), (Some(0), expected, String::new()));
        }
    });
}

#[test]
fn a_working_directory_that_is_not_in_the_image_is_named() {
    each_world(|stage| {
        fs::create_dir(stage.path("at/other")).unwrap();
        for _ in 0..2 {
            let output = stage
                .brisk(&[
                    "run",
                    "../../app.img",
                    "--at",
                    "..",
                    "--",
                    "bin/app",
                    "true",
                ])
                .current_dir(stage.path("at/other"))
                .output()
                .unwrap();
            let (code, _, err) = said(&output);
            assert_eq!(code, Some(125), "{err}");
            assert!(
                err.contains("at/other and has no such directory; start from another directory"),
                "{err}"
            );
        }
    });
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    each_world(|stage| {
        for (at, why) in [
            ("none/../x", "does not exist; make the directory first"),
            (
                "app.img",
                "is not a directory; name a directory to mount on",
            ),
            (
                "app.img/x",
                "is not a directory; name a directory to mount on",
            ),
        ] {
            let output = stage
                .brisk(&["run", "app.img", "--at", at])
                .args(stage.world())
                .args(["--", "true"])
                .output()
                .unwrap();
            assert_eq!(
                said(&output),
                (
                    Some(125),
                    String::new(),
                    format!("brisk: cannot mount app.img: {at} {why}\n")
                )
            );
        }
        stage.assert_nothing_left(Duration::from_secs(1));
    });
}

/// An image may come from anybody, and so may the place that it records.
#[test]
fn a_place_of_the_system_is_obeyed_only_if_the_user_names_it() {
    each_world(|stage| {
        for place in ["/", "/proc", "/usr", "/etc/ssl"] {
            let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
            let writer = ImageWriter::new().place(place.into());
            writer.write(&tree, stage.path("placed.img")).unwrap();
            let own = stage.path("at").display().to_string();
            let with = format!("placed.img@{own}");
            for (arguments, option) in [
                (["run", "placed.img", "--", "true"].as_slice(), "--at DIR"),
                (
                    &["trace", "placed.img", "-o", "p", "--", "true"],
                    "--at DIR",
                ),
                (
                    &["run", "app.img", "--with", "placed.img", "--", "true"],
                    "--with IMAGE@DIR",
                ),
            ] {
                let (code, _, err) = said(&stage.brisk(arguments).output().unwrap());
                assert_eq!(code, Some(125), "{arguments:?}: {err}");
                assert!(
                    err.contains(&format!("records the place {place}, which would cover "))
                        && err.contains(option),
                    "{err}"
                );
            }
            fs::create_dir_all(&own).unwrap();
            for arguments in [
                [
                    "run",
                    "placed.img",
                    "--at",
                    &own,
                    "--linger",
                    "0",
                    "--",
                    "true",
                ]
                .as_slice(),
                &[
                    "run", "app.img", "--with", &with, "--linger", "0", "--", "true",
                ],
            ] {
                let output = stage.brisk(arguments).output().unwrap();
                assert_eq!(said(&output).0, Some(0), "{output:?}");
            }
        }
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// As `cp -p` does: the same length, and the time of modification set back.
#[test]
fn an_image_that_was_written_in_place_has_a_session_of_its_own() {
    each_user(|stage| {
        fs::write(stage.path("tree/version"), "one\n").unwrap();
        let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
        let writer = ImageWriter::new().compression("none".parse().unwrap());
        writer.write(&tree, stage.path("app.img")).unwrap();
        let read = ["bin/app", "sh", "-c", "cat $BRISK_TREE/version"];
        let first = stage.lingering("60", &read).output().unwrap();
        assert_eq!(said(&first).1, "one\n");
        let old = fs::read(stage.path("app.img")).unwrap();
        let modified = fs::metadata(stage.path("app.img"))
            .unwrap()
            .modified()
            .unwrap();
        let at = old
            .windows(4)
            .position(|bytes| bytes == b"one\n")
            .expect("stored raw");
        let image = File::options()
            .write(true)
            .open(stage.path("app.img"))
            .unwrap();
        image.write_all_at(b"two\n", at as u64).unwrap();
        image.set_modified(modified).unwrap();
        let second = stage.lingering("60", &read).output().unwrap();
        assert_eq!(said(&second).1, "two\n");
        for _ in 0..2 {
            stage.brisk(&["umount", "app.img"]).output().unwrap();
        }
    });
}

/// As `cp new.img app.img` does while a program runs: nothing else tells old blocks from new ones.
#[test]
fn an_image_that_is_written_to_gives_errors_and_no_mixture() {
    each_world(|stage| {
        let child = reader(stage);
        fs::write(stage.path("tree/noise"), "other").unwrap();
        stage.pack("new.img");
        fs::copy(stage.path("new.img"), stage.path("app.img")).unwrap();
        let (code, out, err) = said(&go(child));
        assert_ne!(code, Some(0));
        assert_eq!(out, "");
        assert!(err.contains("Input/output error"), "{err}");
        assert!(
            stage
                .log()
                .contains("somebody has written into the file of the image")
        );
        let mut new = stage.brisk(&["run", "app.img", "--linger", "600"]);
        new.args(stage.world())
            .args(["--", "bin/app", "sh", "-c", "cat $BRISK_TREE/noise"]);
        let new = said(&new.output().unwrap());
        assert_eq!(new, (Some(0), "other".to_owned(), String::new()));
    });
}

/// Ctrl-C goes to all processes of the terminal, and SIGHUP too when it is closed.
#[test]
fn signals_to_the_group_do_not_reach_the_session() {
    each_world(|stage| {
        for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
            let mut child = stage
                .run(&["bin/app", "sleep", "60"])
                .process_group(0)
                .spawn()
                .unwrap();
            stage.wait_for_program("sleep");
            kill_process_group(Pid::from_child(&child), signal).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
            assert_eq!(stage.processes("brisk-guardian").len(), 1);
            assert_eq!(stage.processes("brisk-server").len(), 1);
            assert_eq!(
                said(&stage.sh("cmp $BRISK_TREE/noise tree/noise")).0,
                Some(0)
            );
        }
    });
}

#[test]
fn a_program_can_be_stopped_and_continued() {
    each_world(|stage| {
        let mut child = stage
            .run(&[
                "bin/app",
                "sh",
                "-c",
                "read go; cmp $BRISK_TREE/noise tree/noise && echo same",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        stage.wait_for_program("sh");
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        thread::sleep(Duration::from_millis(200));
        kill_process(pid, Signal::CONT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(said(&output).1, "same\n");
    });
}

/// The next server after `last`, which was killed.
fn next_server(stage: &Stage, last: i32) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let servers = stage.processes("brisk-server");
        if let Some(pid) = servers.into_iter().find(|pid| *pid != last) {
            return pid;
        }
        assert!(Instant::now() < deadline, "no new server: {}", stage.log());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kills servers under load, `times` times, at moments that differ each time.
fn kill_servers(stage: &Stage, times: u32) {
    // Reads data that nobody has cached, again and again.
    let load = "while [ ! -e $HOME/stop ]; do for f in noise text many/1 many/2 many/3 many/4; do \
                dd if=$BRISK_TREE/$f iflag=nocache count=0 2>/dev/null; \
                cmp $BRISK_TREE/$f tree/$f || exit 1; done; \
                ls -lR $BRISK_TREE/many >/dev/null || exit 2; done; echo end";
    fs::remove_file(stage.writable().join("stop")).ok();
    let loads: Vec<_> = (0..3)
        .map(|_| {
            stage
                .run(&["bin/app", "sh", "-c", load])
                .env("HOME", stage.writable())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    stage.wait_for_program("sh");
    let mut last = 0;
    for round in 0..times {
        loop {
            last = next_server(stage, last);
            thread::sleep(Duration::from_micros(u64::from(round) * 7919 % 41_000));
            match kill_process(Pid::from_raw(last).unwrap(), Signal::KILL) {
                Ok(()) => break,
                // That of a run that made a session at the same time as another, and then joined that one.
                Err(e) => assert_eq!(e, rustix::io::Errno::SRCH),
            }
        }
    }
    fs::write(stage.writable().join("stop"), "").unwrap();
    for load in loads {
        let output = load.wait_with_output().unwrap();
        assert_eq!(
            said(&output),
            (Some(0), "end\n".to_owned(), String::new()),
            "{}",
            stage.log()
        );
    }
}

#[test]
fn a_killed_server_is_replaced_and_no_byte_is_wrong() {
    each_world(|stage| kill_servers(stage, 20));
}

#[test]
#[ignore = "torture: takes minutes"]
fn five_hundred_kills() {
    each_world(|stage| {
        for _ in 0..25 {
            kill_servers(stage, 20);
        }
    });
}

/// Starts a program that reads everything when its stdin says so.
fn reader(stage: &Stage) -> std::process::Child {
    let child = stage
        .run(&[
            "bin/app",
            "sh",
            "-c",
            "read go; cat $BRISK_TREE/many/* >/dev/null && cmp $BRISK_TREE/noise tree/noise && echo same",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    stage.wait_for_program("sh");
    child
}

fn go(mut child: std::process::Child) -> std::process::Output {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait_with_output().unwrap()
}

fn kill(pids: &[i32], signal: Signal) {
    assert!(!pids.is_empty());
    for pid in pids {
        kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
    }
}

#[test]
fn without_a_guardian_the_server_serves_until_the_programs_end() {
    each_world(|stage| {
        let child = reader(stage);
        kill(&stage.processes("brisk-guardian"), Signal::KILL);
        assert_eq!(
            said(&go(child)),
            (Some(0), "same\n".to_owned(), String::new())
        );
        stage.assert_no_process(Duration::from_secs(10));
        // What it has left behind is not in the way.
        assert_eq!(said(&stage.sh("exit 4")).0, Some(4));
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
    });
}

#[test]
fn without_guardian_and_watchdog_the_server_serves_until_it_is_killed() {
    each_world(|stage| {
        let child = reader(stage);
        stage.wait_for_program("mount-watchdog");
        let watchdogs = stage.processes("mount-watchdog");
        // It would start another watchdog.
        kill(&stage.processes("brisk-guardian"), Signal::KILL);
        kill(&watchdogs, Signal::KILL);
        assert_eq!(
            said(&go(child)),
            (Some(0), "same\n".to_owned(), String::new())
        );
        // Nobody is left to end it.
        let servers = stage.processes("brisk-server");
        assert_eq!(servers.len(), 1);
        kill(&servers, Signal::KILL);
        // Whoever looks unmounts what all programs see.
        assert_eq!(stat(stage).1, serde_json::json!([]));
        stage.assert_no_process(Duration::from_secs(10));
        // What is left behind is not in the way.
        assert_eq!(said(&stage.sh("exit 4")).0, Some(4));
    });
}

#[test]
fn a_new_run_does_not_wait_for_a_dead_guardian() {
    each_world(|stage| {
        let child = reader(stage);
        kill(&stage.processes("brisk-guardian"), Signal::KILL);
        let other = said(&stage.sh("cmp $BRISK_TREE/noise tree/noise; exit 4"));
        match stage.in_own_world() {
            // There a place has one mount.
            true => assert!(other.2.contains("an image is mounted on"), "{other:?}"),
            false => assert_eq!(other.0, Some(4)),
        }
        assert_eq!(said(&go(child)).0, Some(0));
    });
}

/// What a reader says of a connection that was ended: ENOTCONN, or ECONNABORTED for a request that was on its way. What all
/// programs see is also unmounted, so names are not found any more.
fn says_the_connection_ended(stage: &Stage, err: &str) -> bool {
    let mut ended = vec!["not connected", "connection abort"];
    if stage.in_own_world() {
        ended.push("No such file or directory");
    }
    ended.iter().any(|said| err.contains(said))
}

#[test]
fn without_guardian_and_server_readers_get_errors() {
    each_world(|stage| {
        let child = reader(stage);
        // Nobody can restart a server or answer any more.
        let guardians = stage.processes("brisk-guardian");
        kill(&guardians, Signal::STOP);
        kill(&stage.processes("brisk-server"), Signal::KILL);
        kill(&guardians, Signal::KILL);
        let (code, out, err) = said(&go(child));
        assert_ne!(code, Some(0));
        assert_eq!(out, "");
        assert!(says_the_connection_ended(stage, &err), "{err}");
        stage.assert_no_process(Duration::from_secs(10));
    });
}

#[test]
fn the_guardian_sleeps_while_programs_run() {
    each_world(|stage| {
        let child = reader(stage);
        // One that joins and leaves.
        assert_eq!(said(&stage.run(&["true"]).output().unwrap()).0, Some(0));
        let guardian = stage.processes("brisk-guardian")[0];
        let woken = || -> u64 {
            let status = fs::read_to_string(format!("/proc/{guardian}/status")).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse().unwrap()
        };
        let before = woken();
        thread::sleep(Duration::from_millis(500));
        assert!(woken() - before < 10, "{} times", woken() - before);
        assert_eq!(said(&go(child)).1, "same\n");
    });
}

#[test]
fn a_run_that_comes_while_the_guardian_has_no_descriptor_left_joins_when_there_are_some() {
    watched(|| {
        // Only root may set limits of another user's process.
        let stage = &Stage::new(0);
        let child = reader(stage);
        let guardians = stage.processes("brisk-guardian");
        let guardian = Pid::from_raw(guardians[0]).unwrap();
        let fds = format!("/proc/{}/fd", guardians[0]);
        // The next descriptor gets the lowest free number.
        let free = (0..).find(|fd| fs::symlink_metadata(format!("{fds}/{fd}")).is_err());
        let limit = |to| prlimit(Some(guardian), Resource::Nofile, to).unwrap();
        let short = Rlimit {
            current: free,
            ..getrlimit(Resource::Nofile)
        };
        let before = limit(short);
        let mut joining = stage.run(&["true"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        assert!(joining.try_wait().unwrap().is_none());
        limit(before);
        assert_eq!(joining.wait().unwrap().code(), Some(0));
        assert_eq!(stage.processes("brisk-guardian"), guardians);
        assert_eq!(said(&go(child)).1, "same\n");
    });
}

/// Like ending a service, which asks all its processes to end at once.
#[test]
fn when_all_of_a_session_is_asked_to_end_readers_get_errors() {
    each_world(|stage| {
        let child = reader(stage);
        stage.wait_for_program("mount-watchdog");
        let watchdogs = stage.processes("mount-watchdog");
        let guardians = stage.processes("brisk-guardian");
        kill(&guardians, Signal::STOP);
        kill(&watchdogs, Signal::TERM);
        kill(&stage.processes("brisk-server"), Signal::TERM);
        kill(&guardians, Signal::TERM);
        kill(&guardians, Signal::CONT);
        let (code, _, err) = said(&go(child));
        assert_ne!(code, Some(0));
        assert!(says_the_connection_ended(stage, &err), "{err}");
        stage.assert_no_process(Duration::from_secs(10));
    });
}

#[test]
fn a_killed_watchdog_is_replaced() {
    each_world(|stage| {
        let child = reader(stage);
        for _ in 0..3 {
            stage.wait_for_program("mount-watchdog");
            // A process that ends right after its start counts as failing.
            thread::sleep(Duration::from_millis(300));
            let watchdogs = stage.processes("mount-watchdog");
            assert_eq!(watchdogs.len(), 1);
            kill(&watchdogs, Signal::KILL);
            let deadline = Instant::now() + Duration::from_secs(10);
            while stage.processes("mount-watchdog") == watchdogs {
                assert!(Instant::now() < deadline, "{}", stage.log());
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(said(&go(child)).1, "same\n");
    });
}

/// Reading an address is not a system call that could fail, so the program gets a signal.
#[test]
fn mapped_pages_that_nobody_can_read_any_more_are_a_signal() {
    each_world(|stage| {
        // Others may not enter the directory that cargo builds in.
        let exe = stage.path("maps");
        copy_program(std::env::current_exe().unwrap(), &exe);
        let program = [
            exe.to_str().unwrap(),
            "--exact",
            "the_program_that_maps",
            "--ignored",
            "--nocapture",
        ];
        let mut child = stage
            .run(&program)
            .env("BRISK_TEST_MAP", "noise")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut said = String::new();
        while !said.contains("mapped") {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            said.push(byte[0].into());
        }
        let guardians = stage.processes("brisk-guardian");
        kill(&guardians, Signal::STOP);
        kill(&stage.processes("brisk-server"), Signal::KILL);
        kill(&guardians, Signal::KILL);
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::BUS.as_raw()), "{status}");
        stage.assert_no_process(Duration::from_secs(10));
    });
}

/// Maps a file of its tree, says so, and reads all of it on request.
#[test]
#[ignore = "the program of another test"]
fn the_program_that_maps() {
    let Some(name) = std::env::var_os("BRISK_TEST_MAP") else {
        return;
    };
    let tree = std::env::var_os("BRISK_TREE").unwrap();
    let file = fs::File::open(std::path::Path::new(&tree).join(name)).unwrap();
    let mapping = brisk_io::Mapping::shared(&file).unwrap();
    println!("mapped");
    std::io::stdin().read_exact(&mut [0; 3]).unwrap();
    let mut bytes = vec![0; usize::try_from(mapping.size().unwrap()).unwrap()];
    mapping.read_exact_bytes_at(0, &mut bytes).unwrap();
    let sum: u64 = bytes.into_iter().map(u64::from).sum();
    println!("{sum}");
}

/// It does not look as if somebody had killed it, so it would fail forever.
#[test]
fn a_server_that_fails_again_and_again_is_given_up() {
    each_world(|stage| {
        let child = reader(stage);
        let mut last = 0;
        for _ in 0..5 {
            let server = next_server(stage, last);
            last = server;
            // By then it is no longer starting.
            thread::sleep(Duration::from_millis(50));
            kill(&[server], Signal::ABORT);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while !stage.log().contains("the server fails again and again") {
            assert!(Instant::now() < deadline, "{}", stage.log());
            thread::sleep(Duration::from_millis(5));
        }
        let (code, out, err) = said(&go(child));
        assert_ne!(code, Some(0));
        assert_eq!(out, "");
        assert!(says_the_connection_ended(stage, &err), "{err}");
        // A later run works.
        assert_eq!(
            said(&stage.sh("cmp $BRISK_TREE/noise tree/noise; exit 4")).0,
            Some(4)
        );
    });
}

#[test]
fn a_stopped_server_makes_programs_wait_and_they_go_on() {
    each_world(|stage| {
        let child = reader(stage);
        let servers = stage.processes("brisk-server");
        kill(&servers, Signal::STOP);
        let waiting = thread::spawn(move || go(child));
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        kill(&servers, Signal::CONT);
        assert_eq!(said(&waiting.join().unwrap()).1, "same\n");
    });
}

#[test]
fn a_server_that_is_killed_while_stopped_is_replaced() {
    each_world(|stage| {
        let child = reader(stage);
        let servers = stage.processes("brisk-server");
        kill(&servers, Signal::STOP);
        let waiting = thread::spawn(move || go(child));
        thread::sleep(Duration::from_millis(300));
        kill(&servers, Signal::KILL);
        assert_eq!(said(&waiting.join().unwrap()).1, "same\n");
    });
}

#[test]
fn an_image_that_was_cut_gives_errors_where_it_is_gone() {
    each_world(|stage| {
        let script =
            "cat $BRISK_TREE/many/7; read go; cat $BRISK_TREE/many/7; cat $BRISK_TREE/noise";
        let mut child = stage
            .run(&["bin/app", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let cached = fs::read(stage.path("tree/many/7")).unwrap();
        let mut first = vec![0; cached.len()];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut first)
            .unwrap();
        let image = fs::File::options()
            .write(true)
            .open(stage.path("app.img"))
            .unwrap();
        image.set_len(4096).unwrap();
        let (code, out, err) = said(&go(child));
        assert_ne!(code, Some(0));
        // What is in memory stays.
        assert_eq!((first, out.into_bytes()), (cached.clone(), cached));
        assert!(err.contains("Input/output error"), "{err}");
    });
}

/// The image is in another image whose session dies, so each read of it fails. One session is inside of the
/// other.
#[test]
fn an_image_on_a_failing_disk_gives_errors() {
    each_world(|stage| {
        fs::create_dir(stage.path("outer")).unwrap();
        fs::rename(stage.path("app.img"), stage.path("outer/inner.img")).unwrap();
        stage.pack_tree("outer", "outer.img");
        let script = "cat $BRISK_TREE/many/7; read go; cat $BRISK_TREE/many/7; cmp $BRISK_TREE/noise tree/noise";
        let cached = fs::read(stage.path("tree/many/7")).unwrap();
        let brisk = stage.executable();
        let mut child = stage
            .brisk(&["run", "outer.img", "--at", "at", "--linger", "600", "--"])
            .arg(brisk)
            .args([
                "run",
                "at/inner.img",
                "--at",
                "home",
                "--linger",
                "600",
                "--",
            ])
            .args(["bin/app", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = vec![0; cached.len()];
        let out = child.stdout.as_mut().unwrap();
        out.read_exact(&mut first).unwrap();
        assert_eq!(stage.processes("brisk-guardian").len(), 2);
        let outer = stage.sessions_of("outer.img");
        assert_eq!(outer.len(), 2, "{outer:?}");
        kill(&outer, Signal::STOP);
        kill(&outer, Signal::KILL);
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let (code, out, err) = said(&child.wait_with_output().unwrap());
        assert_eq!(code, Some(2));
        // What is in memory stays, and so does the session.
        assert_eq!((first, out.into_bytes()), (cached.clone(), cached));
        assert!(!stage.processes("brisk-guardian").is_empty(), "{err}");
        assert!(err.contains("Input/output error"), "{err}");
    });
}

#[test]
fn an_image_that_was_unlinked_goes_on() {
    each_world(|stage| {
        let child = reader(stage);
        fs::remove_file(stage.path("app.img")).unwrap();
        assert_eq!(said(&go(child)).1, "same\n");
    });
}

#[test]
fn an_image_that_was_replaced_has_a_session_of_its_own() {
    each_user(|stage| {
        let child = reader(stage);
        fs::write(stage.path("tree/sub/inside"), "from a newer one").unwrap();
        stage.pack("new.img");
        fs::rename(stage.path("new.img"), stage.path("app.img")).unwrap();
        let new = said(&stage.sh("cat $BRISK_TREE/sub/inside"));
        assert_eq!(new, (Some(0), "from a newer one".to_owned(), String::new()));
        assert_eq!(stage.processes("brisk-guardian").len(), 2);
        assert_eq!(said(&go(child)).1, "same\n");
    });
}

#[test]
fn a_session_directory_of_others_is_refused() {
    watched(|| {
        let stage = Stage::new(1000);
        let directory = stage.runtime().join("brisk");
        fs::create_dir(&directory).unwrap();
        let output = stage.run(&["true"]).output().unwrap();
        assert_eq!(
            said(&output),
            (
                Some(125),
                String::new(),
                format!(
                    "brisk: cannot mount app.img: {} belongs to somebody else, allowed is a \
                     directory of yours with mode 0700; move it away\n",
                    directory.display()
                )
            )
        );
    });
}

/// A file system without an inode left, or with room for some of the session's files and not for all.
#[test]
fn a_session_directory_without_room_is_done_without() {
    each_user(|stage| {
        for inodes in 1..=4 {
            let runtime = stage.runtime();
            let options = format!("nr_inodes={inodes},mode=0700,uid={}", stage.user());
            let options = std::ffi::CString::new(options).unwrap();
            mount(
                "brisk-test",
                &runtime,
                "tmpfs",
                MountFlags::empty(),
                Some(&*options),
            )
            .unwrap();
            let output = stage.run(&["bin/app", "cat", "tree/text"]).output();
            let again = stage.run(&["bin/app", "cat", "tree/text"]).output();
            unmount(&runtime, UnmountFlags::DETACH).unwrap();
            for output in [output.unwrap(), again.unwrap()] {
                let (code, out, err) = said(&output);
                assert_eq!(code, Some(0), "{inodes} inodes: {err}");
                assert!(!out.is_empty());
                assert!(
                    err.contains("the directory of sessions has no room (No space left on device"),
                    "{inodes} inodes: {err}"
                );
            }
            stage.assert_nothing_left(Duration::from_secs(10));
        }
    });
}

/// For a program that closes all descriptors, and for one without free descriptors, nothing is different.
#[test]
fn the_first_run_hands_on_standard_streams_that_are_closed() {
    each_world(|stage| {
        let mut child = stage
            .run(&["bin/app", "sh", "-c", "cat $BRISK_TREE/sub/inside"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        assert_eq!(
            (out.as_str(), child.wait().unwrap().code()),
            ("from the image", Some(0))
        );
    });
}

/// The session of the stage, from `brisk stat --json`.
fn stat(stage: &Stage) -> (Option<i32>, serde_json::Value) {
    let output = stage.brisk(&["stat", "--json"]).output().unwrap();
    let (code, out, err) = said(&output);
    assert_eq!(err, "");
    if code == Some(0) {
        assert_documented("stat", &out);
    }
    (code, serde_json::from_str(&out).unwrap())
}

#[test]
fn sessions_are_listed_with_what_runs_in_them() {
    each_world(|stage| {
        assert_eq!(stat(stage), (Some(1), serde_json::json!([])));
        let child = reader(stage);
        let (code, sessions) = stat(stage);
        assert_eq!(code, Some(0));
        let session = &sessions[0];
        assert_eq!(
            session["guardian_pid"],
            stage.processes("brisk-guardian")[0]
        );
        assert_eq!(session["linger_seconds"], 600);
        assert_eq!(session["left_seconds"], serde_json::Value::Null);
        let image = &session["images"][0];
        let path = |name: &str| {
            stage
                .path(name)
                .canonicalize()
                .unwrap()
                .display()
                .to_string()
        };
        assert_eq!(image["path"], path("app.img"));
        assert_eq!(image["place"], path("at"));
        assert_eq!(image["server_pid"], stage.processes("brisk-server")[0]);
        assert_eq!(image["restarts"], 0);
        // ps tells which image the processes serve.
        for name in ["brisk-guardian", "brisk-server", "mount-watchdog"] {
            stage.wait_for_program(name);
            let arguments =
                fs::read_to_string(format!("/proc/{}/cmdline", stage.processes(name)[0]));
            assert_eq!(
                arguments.unwrap(),
                format!("brisk-session\0{}\0", path("app.img")),
                "{name}"
            );
        }
        // For people: which program with which arguments, and no table.
        let (_, words, _) = said(&stage.brisk(&["stat"]).output().unwrap());
        let program = format!(" (process {})\n", child.id());
        assert!(
            words.contains("  program     sh ") && words.contains(&program),
            "{words}"
        );
        assert!(
            words.contains("  ends        10 min after its last program\n"),
            "{words}"
        );
        assert!(!words.contains("p50 us"), "{words}");
        assert!(image["counts"]["lookups"].as_u64().unwrap() > 0, "{image}");
        for operation in ["lookup", "read"] {
            let operation = &image["operations"][operation];
            let number = |name: &str| operation[name].as_u64().unwrap();
            let times = ["p50_ns", "p90_ns", "p99_ns"].map(number);
            assert!(number("count") > 0 && times[0] > 0, "{image}");
            assert!(times.is_sorted(), "{image}");
        }
        let program = serde_json::json!({ "pid": child.id(), "name": "sh" });
        assert_eq!(session["programs"], serde_json::json!([program]));
        assert_eq!(said(&go(child)).0, Some(0));
        // The guardian notices.
        let deadline = Instant::now() + Duration::from_secs(10);
        while stat(stage).1[0]["left_seconds"].is_null() {
            assert!(Instant::now() < deadline);
        }
        let (_, sessions) = stat(stage);
        assert_eq!(sessions[0]["programs"], serde_json::json!([]));
        assert!(sessions[0]["left_seconds"].as_u64().unwrap() > 500);
        for (about, listed) in [("app.img", true), ("at", true), ("tree", false)] {
            let (code, out, err) = said(&stage.brisk(&["stat", "-v", about]).output().unwrap());
            let said = match listed {
                true => "",
                false => "there is no session of tree; brisk stat without a name lists all\n",
            };
            assert_eq!((code == Some(0), err.as_str()), (listed, said));
            assert_eq!(out.contains("  guardian    process "), listed, "{out}");
            let heading = "  operation         answers    p50 us    p90 us    p99 us\n  lookup ";
            assert_eq!(out.contains(heading), listed, "{out}");
        }
    });
}

#[test]
fn a_session_is_ended_unless_programs_run_in_it() {
    each_world(|stage| {
        let child = reader(stage);
        let pid = child.id();
        let busy = said(&stage.brisk(&["umount", "app.img"]).output().unwrap());
        assert_eq!(
            busy,
            (
                Some(2),
                String::new(),
                format!(
                    "brisk: cannot end the session: programs still run in it: {pid} sh; end what uses \
                     it, or use --lazy to end it with the last program\n"
                )
            )
        );
        assert_eq!(said(&go(child)).1, "same\n");
        let ended = said(&stage.brisk(&["umount", "at"]).output().unwrap());
        assert_eq!(ended, (Some(0), String::new(), String::new()));
        stage.assert_nothing_left(Duration::from_secs(1));
    });
}

#[test]
fn a_session_that_ends_lazily_ends_with_its_programs_and_is_not_joined() {
    each_world(|stage| {
        let child = reader(stage);
        let old = stage.processes("brisk-guardian");
        let lazy = said(
            &stage
                .brisk(&["umount", "--lazy", "app.img"])
                .output()
                .unwrap(),
        );
        assert_eq!(lazy, (Some(0), String::new(), String::new()));
        let (_, sessions) = stat(stage);
        // At a place that was named and that all programs see, the old one may be gone by now: nothing in its mount is open.
        if !stage.in_own_world() || sessions[0].is_object() {
            assert_eq!(sessions[0]["ending"], true, "{sessions}");
            assert_eq!(sessions[0]["programs"].as_array().map(Vec::len), Some(1));
        }
        assert_eq!(said(&stage.sh("exit 0")).0, Some(0));
        let guardians = stage.processes("brisk-guardian");
        assert!(guardians.iter().any(|guardian| !old.contains(guardian)));
        assert_eq!(said(&go(child)).1, "same\n");
        let deadline = Instant::now() + Duration::from_secs(10);
        while stage.processes("brisk-guardian").contains(&old[0]) {
            assert!(Instant::now() < deadline, "{}", stage.log());
            thread::sleep(Duration::from_millis(5));
        }
        // The later one was not harmed.
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        let (code, sessions) = stat(stage);
        assert_eq!(
            (code, sessions.as_array().map(Vec::len)),
            (Some(0), Some(1))
        );
    });
}

/// Without `--at`, each session has a place of its own.
#[test]
fn programs_see_an_image_to_their_end_after_a_lazy_end() {
    each_world(|stage| {
        let start = |script: &str| {
            let mut run = stage.brisk(&["run", "app.img", "--linger", "600"]);
            run.args(stage.world())
                .args(["--", "bin/app", "sh", "-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            run.spawn().unwrap()
        };
        let read = "read go; cmp $BRISK_TREE/noise tree/noise && echo $BRISK_TREE";
        let children = [start(read), start(read)];
        stage.wait_for_processes("sh", 2);
        let lazy = stage.brisk(&["umount", "--lazy", "app.img"]).output();
        assert_eq!(said(&lazy.unwrap()).0, Some(0));
        let (_, sessions) = stat(stage);
        assert_eq!(sessions[0]["ending"], true, "{sessions}");
        // They are told of, as before.
        let again = said(&stage.brisk(&["umount", "app.img"]).output().unwrap());
        assert!(again.2.contains("programs still run"), "{again:?}");
        let third = said(&go(start(read)));
        let [first, second] = children.map(|child| said(&go(child)));
        assert_eq!((first.0, &first), (Some(0), &second));
        assert_eq!(third.0, Some(0), "{third:?}");
        if stage.in_own_world() {
            assert_ne!(first.1, third.1);
        }
        stage.wait_for_processes("brisk-guardian", 1);
    });
}

#[test]
fn sessions_in_sessions_end_together() {
    each_user(|stage| {
        let run = [
            "run",
            "app.img",
            "--seen-by",
            "program",
            "--linger",
            "600",
            "--",
        ];
        let mut nested = stage.brisk(&run);
        let brisk = stage.executable();
        let nested = nested
            .arg(brisk)
            .args(run)
            .args(["bin/app", "true"])
            .output();
        assert_eq!(
            said(&nested.unwrap()),
            (Some(0), String::new(), String::new())
        );
        assert_eq!(stage.processes("brisk-guardian").len(), 2);
        let ended = stage.brisk(&["umount", "--all"]).output().unwrap();
        assert_eq!(said(&ended), (Some(0), String::new(), String::new()));
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// A run of `app.img` with these options. Returns stdout and stderr of the script.
fn run_with(stage: &Stage, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let mut command = stage.brisk(&["run", "app.img", "--linger", "600"]);
    command
        .args(options)
        .args(["--", "bin/app", "sh", "-c", script]);
    said(&command.env("HOME", stage.writable()).output().unwrap())
}

#[test]
fn what_a_program_writes_is_in_memory_and_goes_with_the_session() {
    each_world(|stage| {
        let options = ["--at", "at", "--writable"];
        let script = "cd $BRISK_TREE && echo new > sub/new && echo more >> text && rm noise && \
                      mv many less && chmod 700 bin && ls && ls sub && tail -c 5 text";
        let expected = "bin\nless\nlink\nsub\ntext\ninside\nnew\nmore\n";
        assert_eq!(
            run_with(stage, &options, script),
            (Some(0), expected.to_owned(), String::new())
        );
        // Later runs share it.
        let later = run_with(
            stage,
            &options,
            "cat $BRISK_TREE/sub/new; cmp $BRISK_TREE/less/7 tree/many/7",
        );
        assert_eq!(later, (Some(0), "new\n".to_owned(), String::new()));
        // Others do not.
        let other = run_with(
            stage,
            &["--at", "at"],
            "ls $BRISK_TREE/sub; echo x > $BRISK_TREE/sub/new",
        );
        assert_eq!((other.0, other.1.as_str()), (Some(2), "inside\n"));
        assert!(other.2.contains("Read-only file system"), "{other:?}");
        assert_eq!(
            said(&stage.brisk(&["umount", "app.img"]).output().unwrap()).0,
            Some(0)
        );
        let again = run_with(stage, &options, "ls $BRISK_TREE/sub");
        assert_eq!(again, (Some(0), "inside\n".to_owned(), String::new()));
    });
}

#[test]
fn a_killed_server_is_replaced_below_a_writable_layer() {
    each_world(|stage| {
        let options = ["--at", "at", "--writable"];
        assert_eq!(
            run_with(stage, &options, "echo new > $BRISK_TREE/new").0,
            Some(0)
        );
        kill(&stage.processes("brisk-server"), Signal::KILL);
        let later = run_with(
            stage,
            &options,
            "cmp $BRISK_TREE/noise tree/noise && cat $BRISK_TREE/new",
        );
        assert_eq!(later, (Some(0), "new\n".to_owned(), String::new()));
    });
}

/// Starts a program that waits, kills the servers, and lets the program go on.
fn killed_meanwhile(
    stage: &Stage,
    arguments: &[&str],
    script: &str,
) -> (Option<i32>, String, String) {
    let child = stage
        .brisk(&["run", "--linger", "600"])
        .args(arguments)
        .arg(format!("read go; {script}"))
        .env("HOME", stage.writable())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    stage.wait_for_program("sh");
    let servers = stage.processes("brisk-server");
    kill(&servers, Signal::KILL);
    let output = go(child);
    let later = stage.processes("brisk-server");
    assert_eq!(later.len(), servers.len());
    assert!(later.iter().all(|server| !servers.contains(server)));
    said(&output)
}

#[test]
fn a_program_that_runs_does_not_notice_that_its_servers_are_killed() {
    each_user(|stage| {
        stage.pack_root();
        fs::create_dir(stage.path("runtime")).unwrap();
        let with = format!("app.img@{}", stage.path("runtime").display());
        let image = ["app.img", "--at", "at"];
        let (end, same) = (
            ["--", "bin/app", "sh", "-c"],
            "cmp $BRISK_TREE/noise tree/noise && echo same",
        );
        let two = format!("{same} && cmp runtime/text tree/text && echo same");
        let tries = [
            ([&image[..], &["--writable"], &end].concat(), same, "same\n"),
            (
                [&image[..], &["--with", &with], &end].concat(),
                &two,
                "same\nsame\n",
            ),
            (
                ["root.img", "--root", "--", "/bin/sh", "-c"].to_vec(),
                "cat /etc/own; ls /data",
                "image\n",
            ),
        ];
        for (arguments, script, expected) in tries {
            assert_eq!(
                killed_meanwhile(stage, &arguments, script),
                (Some(0), expected.to_owned(), String::new()),
                "{arguments:?}"
            );
            stage.plainly(&[
                stage.executable().to_str().unwrap(),
                "umount",
                "--lazy",
                arguments[0],
            ]);
        }
    });
}

#[test]
fn several_images_have_places_and_servers_of_their_own() {
    each_world(|stage| {
        fs::create_dir(stage.path("runtime")).unwrap();
        let runtime = stage.path("runtime");
        let with = format!("app.img@{}", runtime.display());
        let options = ["--at", "at", "--with", &with];
        let script = "cmp $BRISK_TREE/noise tree/noise && cmp runtime/text tree/text && echo same";
        for _ in 0..2 {
            assert_eq!(
                run_with(stage, &options, script),
                (Some(0), "same\n".to_owned(), String::new())
            );
            stage.wait_for_processes("brisk-server", 2);
            assert_eq!(stage.processes("brisk-guardian").len(), 1);
            kill(&stage.processes("brisk-server"), Signal::KILL);
        }
        fs::create_dir(stage.path("at/in")).unwrap();
        let overlap = run_with(stage, &["--at", "at", "--with", "app.img@at/in"], "true");
        assert_eq!(overlap.0, Some(125));
        assert!(
            overlap
                .2
                .ends_with("at/in is inside the other; name separate places\n"),
            "{overlap:?}"
        );
        // The place of another image is not free.
        for taken in ["/mnt", "/media", "/srv"] {
            let with = format!("app.img@{taken}");
            let (code, out, err) = run_with(stage, &["--with", &with], "echo $BRISK_TREE");
            assert_ne!(out.trim_end(), taken);
            assert!(
                code == Some(0) || err.contains("name a directory"),
                "{code:?} {err}"
            );
        }
        let nowhere = run_with(stage, &["--at", "at", "--with", "app.img"], "true");
        assert_eq!(nowhere.0, Some(125));
        assert!(
            nowhere.2.ends_with(
                "app.img does not record a directory to mount it on; name one with --with IMAGE@DIR\n"
            ),
            "{nowhere:?}"
        );
    });
}

/// Names of files are bytes, and a colon is one of them.
#[test]
fn binds_and_further_images_have_names_of_any_bytes() {
    each_world(|stage| {
        let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let (source, place, further) = (name(b"a:b\xff"), name(b"p\xff"), name(b"i\xfe.img"));
        let path = |name: &OsStr| stage.path("").join(name);
        fs::create_dir(stage.path("a")).unwrap();
        fs::create_dir(path(&source)).unwrap();
        fs::create_dir(path(&place)).unwrap();
        fs::write(path(&source).join("file"), "shown\n").unwrap();
        stage.pack_tree("tree/sub", "sub.img");
        fs::rename(stage.path("sub.img"), path(&further)).unwrap();
        let mut run = stage.brisk(&["run", "app.img", "--linger", "0", "--at", "at"]);
        run.arg("--bind")
            .arg([&*source, OsStr::new("home:ro")].join(OsStr::new(":")));
        run.arg("--with")
            .arg([&*further, &*place].join(OsStr::new("@")));
        run.args(["--", "cat", "home/file"])
            .arg(Path::new(&place).join("inside"));
        let (code, out, err) = said(&run.output().unwrap());
        let inside = fs::read_to_string(stage.path("tree/sub/inside")).unwrap();
        assert_eq!((code, out), (Some(0), format!("shown\n{inside}")), "{err}");
    });
}

#[test]
fn files_of_the_system_are_shown_elsewhere() {
    each_world(|stage| {
        fs::create_dir(stage.path("shown")).unwrap();
        let (rw, ro) = (
            format!("home:{}", stage.path("shown").display()),
            // In the image.
            "tree/text:at/sub/inside:ro",
        );
        let options = ["--at", "at", "--bind", &rw, "--bind", ro];
        let script = "echo x > shown/x && cat home/x && cmp tree/text at/sub/inside; \
                      echo y > at/sub/inside";
        for _ in 0..2 {
            let (code, out, err) = run_with(stage, &options, script);
            assert_eq!((code, out.as_str()), (Some(2), "x\n"), "{err}");
            assert!(err.contains("Read-only file system"), "{err}");
        }
        let missing = run_with(stage, &["--at", "at", "--bind", "none:home"], "true");
        assert_eq!(missing.0, Some(125));
        assert!(
            missing.2.contains("none; name another file or directory"),
            "{missing:?}"
        );
        let missing = run_with(stage, &["--at", "at", "--bind", "home:at/none"], "true");
        assert_eq!(missing.0, Some(125));
        assert!(
            missing
                .2
                .contains("cannot bind to at/none; name an existing place of the same kind"),
            "{missing:?}"
        );
        // That session failed when it already had processes. They end soon.
        let deadline = Instant::now() + Duration::from_secs(10);
        while stage.processes("brisk-guardian").len() > 1 {
            assert!(Instant::now() < deadline, "{}", stage.log());
            thread::sleep(Duration::from_millis(5));
        }
    });
}

fn in_root(stage: &Stage, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let mut command = stage.brisk(&["run", "root.img", "--root", "--linger", "600"]);
    command.args(options).args(["--", "/bin/sh", "-c", script]);
    said(&command.output().unwrap())
}

#[test]
fn an_image_is_the_root_directory() {
    each_world(|stage| {
        stage.pack_root();
        let script = "cat /etc/own; [ /etc/hosts -ef /proc/self/root/etc/hosts ] && echo hosts; \
                      ls -d /proc/self /sys/kernel /dev/null /tmp /run /home; \
                      [ -e /usr/bin/env ] || echo none; echo $BRISK_TREE; pwd; \
                      echo x > /new; readlink /proc/self/exe";
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(in_root(stage, &[], script));
        }
        // The working directory is in /tmp, which is the system's.
        let expected = format!(
            "image\nhosts\n/dev/null\n/home\n/proc/self\n/run\n/sys/kernel\n/tmp\nnone\n/\n{}\n/bin/readlink\n",
            stage.path("").canonicalize().unwrap().display()
        );
        assert_eq!(
            (seen[0].0, seen[0].1.as_str()),
            (Some(0), expected.as_str()),
            "{seen:?}"
        );
        assert!(seen[0].2.contains("Read-only file system"), "{seen:?}");
        assert_eq!(seen[0], seen[1]);
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        // A sandbox works in it, like those of browsers.
        let sandbox = in_root(stage, &[], "unshare --user --mount cat /etc/own");
        assert_eq!(sandbox, (Some(0), "image\n".to_owned(), String::new()));
        // Another server works there too.
        kill(&stage.processes("brisk-server"), Signal::KILL);
        assert_eq!(in_root(stage, &[], "cat /etc/own").1, "image\n");
    });
}

#[test]
fn files_of_etc_in_a_root_directory_are_the_systems() {
    each_world(|stage| {
        stage.pack_root();
        let script = "cat /etc/passwd; [ -e /etc/localtime ] && stat -c %s /etc/localtime; true";
        let zone = fs::read("/etc/localtime").map_or(0, |zone| zone.len());
        let of_system = |zone: &str| {
            let passwd = fs::read_to_string("/etc/passwd").unwrap();
            (Some(0), passwd + zone, String::new())
        };
        // Without a file, it is UTC.
        let utc = fs::read_link("/etc/localtime").is_ok_and(|link| link.ends_with("UTC"));
        let expected = match utc || zone == 0 {
            true => String::new(),
            false => format!("{zone}\n"),
        };
        assert_eq!(in_root(stage, &[], script), of_system(&expected));
        if zone > 0 {
            // The image's own file is hidden.
            fs::write(stage.path("root/etc/localtime"), "here").unwrap();
            stage.pack_root();
            let expected = format!("{zone}\n");
            assert_eq!(in_root(stage, &[], script), of_system(&expected));
        }
    });
}

/// Python asks this for every file that it opens, and the kernel asks a FUSE server each time. If the kernel
/// has forgotten something meanwhile (any machine may run short of memory), it reads it again, once.
#[test]
fn whether_a_file_of_a_root_directory_is_a_terminal_is_not_asked() {
    const OPENED: u64 = 1000;
    each_world(|stage| {
        stage.pack_root();
        let script = format!(
            "i=0; while [ $i -lt {OPENED} ]; do [ -t 0 ] < /etc/own && echo terminal; \
             i=$((i + 1)); done; cat /etc/own"
        );
        let requests = || {
            assert_eq!(in_root(stage, &[], &script).1, "image\n");
            let counts = &stat(stage).1[0]["images"][0]["counts"];
            counts["requests"].as_u64().unwrap()
        };
        let first = requests();
        assert!(first < OPENED, "{first}");
        let second = requests() - first;
        assert!(second < OPENED, "{second} after {first}");
    });
}

#[test]
fn a_root_directory_has_places_to_bind_to() {
    each_world(|stage| {
        stage.pack_root();
        let home = stage.writable().display().to_string();
        let options = [
            // To an existing place, through a link, in directories that do not exist, and over a file.
            &format!("{home}:/data"),
            &format!("{home}:/alias/../deep/er"),
            &format!("{}:/etc/own:ro", stage.path("tree/sub/inside").display()),
        ];
        let options: Vec<_> = options.iter().flat_map(|bind| ["--bind", bind]).collect();
        let script = "echo x > /data/x; cat /deep/er/x /etc/own; stat -c %a /deep; ls /";
        let seen = in_root(stage, &options, script);
        assert_eq!((seen.0, seen.2.as_str()), (Some(0), ""), "{seen:?}");
        assert!(
            seen.1
                .starts_with("x\nfrom the image755\nalias\nbin\ndata\ndeep\n"),
            "{seen:?}"
        );
        let image = stage.path("app.img").display().to_string();
        let with = in_root(
            stage,
            &["--with", &format!("{image}@/opt/app")],
            "cat /opt/app/sub/inside",
        );
        assert_eq!(with, (Some(0), "from the image".to_owned(), String::new()));
        let writable = in_root(
            stage,
            &["--writable"],
            "echo x > /new; echo y > /etc/own; cat /new /etc/own",
        );
        assert_eq!(writable, (Some(0), "x\ny\n".to_owned(), String::new()));
        let wrong = in_root(stage, &["--bind", &format!("{home}:/etc/own")], "true");
        assert_eq!(wrong.0, Some(125));
        assert!(wrong.2.contains("cannot bind to /etc/own"), "{wrong:?}");
    });
}

/// A process in a copy of the namespace counts, such as that of a sandbox.
#[test]
fn a_sandbox_keeps_the_session() {
    watched(|| {
        let stage = Stage::new(1000);
        let script = "unshare --user --mount sh -c 'sleep 1; cat $BRISK_TREE/sub/inside > $HOME/out' \
                      </dev/null >/dev/null 2>&1 &";
        let output = stage
            .lingering("0", &["bin/app", "sh", "-c", script])
            .env("HOME", stage.writable())
            .output()
            .unwrap();
        assert_eq!(said(&output), (Some(0), String::new(), String::new()));
        thread::sleep(Duration::from_millis(300));
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

#[test]
fn programs_whose_process_session_has_no_number_are_seen() {
    each_world(|stage| {
        let brisk = stage.executable();
        let script = format!("{} stat --json && exec true", brisk.display());
        let run = stage.lingering("0", &["sh", "-c", &script]);
        let (code, out, err) = said(&stage.contained(&run).output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{}", stage.log());
        let sessions: serde_json::Value = serde_json::from_str(&out).unwrap();
        let programs = sessions[0]["programs"].as_array().unwrap();
        let names: Vec<_> = programs.iter().map(|program| &program["name"]).collect();
        assert_eq!(names, ["sh", "brisk-tools"]);
        assert_eq!(stage.log(), "");
    });
}

/// Without the device, or without the right to open it. The test has a /dev of its own.
#[test]
fn a_missing_or_closed_fuse_device_is_named() {
    watched(|| {
        for (make, cure) in [
            (
                "true",
                "there is no /dev/fuse; load it with modprobe fuse, or give a container /dev/fuse \
                 (--device /dev/fuse)",
            ),
            (
                "mknod -m 600 /dev/fuse c 10 229",
                "this user may not open /dev/fuse; allow it with chmod 666 /dev/fuse, as udev does: \
                 Permission denied (os error 13)",
            ),
            (
                "mknod -m 666 /dev/fuse c 1 3",
                "/dev/fuse is not the FUSE device; a sandbox has put another file there: give it the real one \
                 (--device /dev/fuse)",
            ),
        ] {
            let stage = Stage::new(1000);
            let script = format!("mount -t tmpfs none /dev && {make} && exec \"$@\"");
            let brisk = stage.brisk(&["run", "app.img", "--at", "at", "--", "true"]);
            let output = std::process::Command::new("unshare")
                .args(["--mount", "sh", "-c", &script, "sh"])
                .arg(brisk.get_program())
                .args(brisk.get_args())
                .current_dir(stage.path(""))
                .env("XDG_RUNTIME_DIR", stage.runtime())
                .output()
                .unwrap();
            let expected = format!("brisk: cannot mount app.img: {cure}\n");
            assert_eq!(said(&output), (Some(125), String::new(), expected));
            stage.assert_nothing_left(Duration::from_secs(1));
        }
    });
}
