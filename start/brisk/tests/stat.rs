//! `brisk stat` and `brisk umount` where images have changed, processes were killed, and there are many sessions.

mod staging;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use staging::documented::assert_documented;
use staging::{Stage, each_user, each_world, watched};

type Said = (Option<i32>, String, String);

fn said(output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn printed(text: &str) -> Said {
    (Some(0), text.to_owned(), String::new())
}

/// Ends sessions. On a slow machine it says that it waits. A session that has started later may have a copy of the mount.
fn umount(stage: &Stage, arguments: &[&str]) {
    const WAITS: &str = "waiting for a session to end; a program in another mount namespace may still use its image\n";
    let (code, out, told) = brisk(stage, arguments);
    let told = told.replace(WAITS, "");
    let mut told = told.lines();
    let other =
        told.find(|line| !line.contains(" is unmounted; a program in another mount namespace"));
    assert_eq!((code, &*out, other), (Some(0), "", None), "{arguments:?}");
}

fn brisk(stage: &Stage, arguments: &[&str]) -> Said {
    said(&stage.brisk(arguments).output().unwrap())
}

/// The command of a run that lingers.
fn run(stage: &Stage, image: &str, options: &[&str]) -> Command {
    let mut command = stage.brisk(&["run", image, "--linger", "600"]);
    command.args(options).args(stage.world());
    command.args(["--", "bin/app"]);
    command
}

/// Without a place, all programs of an ordinary user see the image.
fn options(stage: &Stage) -> &'static [&'static str] {
    match stage.in_own_world() {
        true => &[],
        false => &["--at", "at"],
    }
}

fn start(stage: &Stage, image: &str) {
    let mut run = run(stage, image, options(stage));
    let output = run.arg("true").output().unwrap();
    assert_eq!(said(&output), printed(""), "{image}");
}

/// The sessions, from `brisk stat --json`.
fn stat(stage: &Stage, path: &[&str]) -> Vec<Value> {
    let (_, out, err) = brisk(stage, &[&["stat", "--json"], path].concat());
    assert_eq!(err, "");
    let sessions: Vec<Value> = serde_json::from_str(&out).unwrap();
    if !sessions.is_empty() {
        assert_documented("stat", &out);
    }
    sessions
}

/// The names of the files of sessions.
fn files(stage: &Stage) -> Vec<String> {
    let Ok(entries) = fs::read_dir(stage.runtime().join("brisk")) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

fn kill(stage: &Stage, names: &[&str], signal: Signal) {
    for name in names {
        for pid in stage.processes(name) {
            // It may have ended with another one.
            kill_process(Pid::from_raw(pid).unwrap(), signal).ok();
        }
    }
}

/// Kills these processes, of which none sees the end of another, and waits until they have let go of what they had open.
fn kill_whole(pids: &[i32]) {
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in pids {
            kill_process(Pid::from_raw(*pid).unwrap(), signal).ok();
        }
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    for pid in pids {
        let has_ended = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => text.contains(") Z "),
            Err(_) => true,
        };
        while !has_ended() {
            assert!(Instant::now() < deadline, "{pid} has not ended");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A directory of the user to mount on.
fn place(stage: &Stage, name: &str) -> PathBuf {
    let path = stage.writable().join(name);
    fs::create_dir(&path).unwrap();
    chown(&path, Some(stage.user()), Some(stage.user())).unwrap();
    path
}

/// A program of a session that waits for its standard input.
fn waiting(mut run: Command) -> Child {
    let child = run.args(["sh", "-c", "read go"]).stdin(Stdio::piped());
    child.spawn().unwrap()
}

fn go(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn images_that_were_replaced_or_deleted_are_marked() {
    each_world(|stage| {
        let top = stage.path("").canonicalize().unwrap();
        let names = ["same", "replaced", "written", "deleted", "moved"];
        for name in names {
            let image = format!("{name}.img");
            stage.pack(&image);
            start(stage, &image);
        }
        let path = |name: &str| top.join(format!("{name}.img"));
        fs::copy(path("same"), path("new")).unwrap();
        fs::rename(path("new"), path("replaced")).unwrap();
        let file = fs::File::options().append(true).open(path("written"));
        file.unwrap().write_all(&[0; 4096]).unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::rename(path("moved"), path("elsewhere")).unwrap();
        let (_, text, _) = brisk(stage, &["stat"]);
        let states = ["same", "replaced", "replaced", "deleted", "deleted"];
        for (name, state) in names.into_iter().zip(states) {
            let image = format!("{name}.img");
            let found = stat(stage, &[&image]);
            let [session] = &*found else {
                panic!("{name}: {found:?}");
            };
            assert_eq!(session["images"][0]["state"], state, "{name}");
            let mark = match state {
                "same" => String::new(),
                state => format!(" ({state})"),
            };
            let line = format!("{}{mark} on ", path(name).display());
            assert!(
                text.lines().any(|found| found.starts_with(&line)),
                "{line}{text}"
            );
        }
        // A later run of a file of that name has a session of its own.
        start(stage, "replaced.img");
        let found = stat(stage, &["replaced.img"]);
        let states = found
            .iter()
            .map(|session| session["images"][0]["state"].as_str());
        let mut states: Vec<_> = states.map(Option::unwrap).collect();
        states.sort_unstable();
        assert_eq!(states, ["replaced", "same"]);
        for name in names {
            let image = format!("{name}.img");
            umount(stage, &["umount", &image]);
            assert_eq!(stat(stage, &[&image]), Vec::<Value>::new(), "{name}");
        }
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

#[test]
fn a_session_of_a_deleted_image_ends_by_the_name_that_its_user_knows() {
    each_world(|stage| {
        let top = stage.path("").canonicalize().unwrap();
        fs::create_dir(top.join("dir")).unwrap();
        fs::create_dir(top.join("links")).unwrap();
        symlink("../dir", top.join("links/to-dir")).unwrap();
        symlink("../dir/app.img", top.join("links/app.img")).unwrap();
        let absolute = top.join("dir/app.img").display().to_string();
        for (started, ended, gone) in [
            ("dir/app.img", "dir/app.img", "dir/app.img"),
            ("dir/app.img", &*absolute, "dir/app.img"),
            ("dir/app.img", "./links/../dir/./app.img", "dir/app.img"),
            (
                "links/to-dir/app.img",
                "links/to-dir/app.img",
                "dir/app.img",
            ),
            // The link leads nowhere.
            ("links/app.img", "links/app.img", "dir/app.img"),
            // Neither link nor image is there any more, or not even the directory.
            ("links/app.img", "links/app.img", "links"),
            ("dir/app.img", "dir/app.img", "dir"),
        ] {
            fs::copy(stage.path("app.img"), &absolute).unwrap();
            start(stage, started);
            match top.join(gone).is_dir() {
                true => fs::remove_dir_all(top.join(gone)).unwrap(),
                false => fs::remove_file(top.join(gone)).unwrap(),
            }
            if gone == "links" {
                fs::remove_file(&absolute).unwrap();
            }
            let (_, listed, _) = brisk(stage, &["stat", ended]);
            assert!(
                listed.contains("/dir/app.img (deleted) on "),
                "{ended}: {listed}"
            );
            umount(stage, &["umount", ended]);
            stage.assert_no_process(Duration::from_secs(10));
        }
        let unknown = brisk(stage, &["umount", "dir/app.img"]);
        let err = "brisk: cannot unmount dir/app.img: there is nothing of this name; brisk stat lists sessions and mounts\n";
        assert_eq!(unknown, (Some(2), String::new(), err.to_owned()));
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// The processes of all sessions are killed at once, so nobody is left to remove anything.
#[test]
fn what_killed_sessions_have_left_is_removed_by_whoever_comes_next() {
    each_world(|stage| {
        let all = ["brisk-guardian", "brisk-server", "mount-watchdog"];
        for next in [
            ["stat"].as_slice(),
            &["umount", "--all"],
            &["umount", "0.img"],
        ] {
            for number in 0..5 {
                let image = format!("{number}.img");
                stage.pack(&image);
                start(stage, &image);
            }
            for name in all {
                stage.wait_for_processes(name, 5);
            }
            kill_whole(&all.map(|name| stage.processes(name)).concat());
            assert!(files(stage).len() >= 10, "{:?}", files(stage));
            let (code, _, err) = brisk(stage, next);
            assert!(matches!(code, Some(1 | 2)), "{next:?}: {err}");
            stage.assert_nothing_left(Duration::from_secs(10));
        }
    });
}

#[test]
fn a_session_that_is_stopped_hides_no_killed_one() {
    each_world(|stage| {
        let all = ["brisk-guardian", "brisk-server", "mount-watchdog"];
        let processes = || all.map(|name| stage.processes(name)).concat();
        // Mounts are looked at in the order in which they were mounted.
        stage.pack("0.img");
        start(stage, "0.img");
        let stopped = processes();
        for number in 1..4 {
            let image = format!("{number}.img");
            stage.pack(&image);
            start(stage, &image);
        }
        kill(stage, &all, Signal::STOP);
        let mut others = processes();
        others.retain(|pid| !stopped.contains(pid));
        kill_whole(&others);
        brisk(stage, &["stat"]);
        let left = files(stage);
        let sockets = left.iter().filter(|name| name.ends_with(".sock"));
        assert_eq!(sockets.count(), 1, "{left:?}");
        kill_whole(&stopped);
        brisk(stage, &["stat"]);
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// A niceness that cannot be taken back is a line in the log of the session.
#[test]
fn the_logs_of_the_last_ten_sessions_stay_until_all_are_ended() {
    watched(|| {
        let stage = Stage::new(1000);
        for number in 0..14 {
            let at = place(&stage, &format!("at{number}"));
            let run = stage.brisk(&["run", "app.img", "--linger", "0", "--at"]);
            let mut nice = Command::new("nice");
            nice.args(["-n", "5"])
                .arg(run.get_program())
                .args(run.get_args());
            nice.arg(at)
                .args(["--", "bin/app", "true"])
                .current_dir(stage.path(""));
            nice.env("XDG_RUNTIME_DIR", stage.runtime());
            assert_eq!(said(&nice.output().unwrap()), printed(""));
        }
        stage.assert_no_process(Duration::from_secs(10));
        // The guardian of the last one has looked at all others.
        let logs = files(&stage);
        assert!(logs.iter().all(|name| name.ends_with(".log")), "{logs:?}");
        assert!((10..=11).contains(&logs.len()), "{logs:?}");
        assert_eq!(stat(&stage, &[]), Vec::<Value>::new());
        assert_eq!(files(&stage).len(), 10);
        let ended = brisk(&stage, &["umount", "--all"]);
        let err = "there is no session to end\n".to_owned();
        assert_eq!(ended, (Some(1), String::new(), err));
        assert_eq!(files(&stage), Vec::<String>::new());
    });
}

#[test]
fn many_sessions_are_listed_and_end_at_once() {
    const SESSIONS: usize = 40;
    each_world(|stage| {
        let places: Vec<_> = (0..SESSIONS)
            .map(|number| place(stage, &format!("at{number}")).display().to_string())
            .collect();
        let runs: Vec<_> = places[1..]
            .iter()
            .map(|at| {
                run(stage, "app.img", &["--at", at])
                    .arg("true")
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut run in runs {
            assert!(run.wait().unwrap().success());
        }
        let program = waiting(run(stage, "app.img", &["--at", &places[0]]));
        stage.wait_for_program("sh");
        let sessions = stat(stage, &[]);
        assert_eq!(sessions.len(), SESSIONS);
        for session in &sessions {
            let runs = session["images"][0]["place"] == places[0].as_str();
            let expected = match runs {
                true => serde_json::json!([{ "pid": program.id(), "name": "sh" }]),
                false => serde_json::json!([]),
            };
            assert_eq!(session["programs"], expected, "{session}");
        }
        // With few descriptors, some after the others.
        let plain = stage.brisk(&["stat"]);
        let mut limited = Command::new("prlimit");
        limited
            .arg("--nofile=24")
            .arg(plain.get_program())
            .args(plain.get_args());
        limited
            .current_dir(stage.path(""))
            .env("XDG_RUNTIME_DIR", stage.runtime());
        let (code, out, err) = said(&limited.output().unwrap());
        assert_eq!((code, &*err), (Some(0), ""));
        assert_eq!(out.matches("  guardian    process ").count(), SESSIONS);
        let (code, _, err) = brisk(stage, &["umount", "--all"]);
        assert_eq!(code, Some(2), "{err}");
        let busy = format!("programs still run in it: {} sh; ", program.id());
        assert!(err.contains(&busy), "{err}");
        assert!(err.ends_with("1 of 40 sessions are left\n"), "{err}");
        assert_eq!(stat(stage, &[]).len(), 1);
        go(program);
        umount(stage, &["umount", "--all"]);
        assert_eq!(files(stage), Vec::<String>::new());
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

#[test]
fn guardians_that_do_not_answer_keep_nobody_from_the_others() {
    each_user(|stage| {
        let silent: Vec<_> = (0..4).map(|number| format!("{number}.img")).collect();
        for image in &silent {
            stage.pack(image);
            start(stage, image);
        }
        kill(stage, &["brisk-guardian"], Signal::STOP);
        start(stage, "app.img");
        let (code, out, err) = brisk(stage, &["stat"]);
        assert_eq!((code, &*err), (Some(0), ""));
        assert_eq!(out.matches(": does not answer\n").count(), 4, "{out}");
        assert!(out.contains("/app.img on "), "{out}");
        kill(stage, &["brisk-guardian"], Signal::CONT);
        umount(stage, &["umount", "--all"]);
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

/// brisk itself cannot look at the processes outside of its user namespace. The guardian does it then.
#[test]
fn programs_are_listed_where_brisk_sees_few_processes() {
    each_world(|stage| {
        let program = waiting(run(stage, "app.img", options(stage)));
        stage.wait_for_program("sh");
        let stat = stage.brisk(&["stat", "--json"]);
        for wrapper in [
            ["unshare", "--user", "--map-current-user"].as_slice(),
            // Processes have other numbers there.
            &[
                "unshare",
                "--user",
                "--map-current-user",
                "--pid",
                "--fork",
                "--mount-proc",
            ],
        ] {
            let mut words: Vec<_> = stat.get_args().collect();
            // Behind the options of setpriv.
            let at = words.len() - 3;
            words.splice(at..at, wrapper.iter().map(std::ffi::OsStr::new));
            let mut inside = Command::new(stat.get_program());
            inside
                .args(words)
                .current_dir(stage.path(""))
                .env("XDG_RUNTIME_DIR", stage.runtime());
            let (code, out, err) = said(&inside.output().unwrap());
            assert_eq!((code, &*err), (Some(0), ""), "{wrapper:?}");
            let sessions: Value = serde_json::from_str(&out).unwrap();
            let expected = serde_json::json!([{ "pid": program.id(), "name": "sh" }]);
            assert_eq!(sessions[0]["programs"], expected, "{wrapper:?}");
        }
        go(program);
        umount(stage, &["umount", "--all"]);
    });
}

/// The guardian has not seen it come.
#[test]
fn a_process_that_has_entered_an_idle_session_by_itself_keeps_it() {
    each_user(|stage| {
        start(stage, "app.img");
        let deadline = Instant::now() + Duration::from_secs(10);
        while stat(stage, &[])[0]["left_seconds"].is_null() {
            assert!(Instant::now() < deadline);
        }
        let guardian = stage.processes("brisk-guardian")[0].to_string();
        let plain = stage.brisk(&[]);
        let mut enter = Command::new(plain.get_program());
        let mut words: Vec<_> = plain.get_args().collect();
        words.pop();
        enter
            .args(words)
            .args(["nsenter", "--target", &guardian, "--mount"]);
        if !stage.is_root() {
            enter.args(["--user", "--preserve-credentials"]);
        }
        enter.env("XDG_RUNTIME_DIR", stage.runtime());
        let mut entered = enter.args(["sleep", "600"]).spawn().unwrap();
        stage.wait_for_program("sleep");
        let busy = brisk(stage, &["umount", "--all"]);
        assert_eq!(busy.0, Some(2), "{busy:?}");
        let err = format!("programs still run in it: {} sleep; ", entered.id());
        assert!(busy.2.contains(&err), "{busy:?}");
        entered.kill().unwrap();
        entered.wait().unwrap();
        umount(stage, &["umount", "--all"]);
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}
