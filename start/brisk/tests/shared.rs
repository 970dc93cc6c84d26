//! `brisk mount` without the kernel's SquashFS, for root and, with `fusermount3`, for an ordinary user, and
//! what `brisk run` does if namespaces are refused.

mod looking;
#[path = "staging/mounts.rs"]
mod mounts;

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::profile::Profile;
use brisk_image::{ImageWriter, Limits};
use looking::{Place, Said};
use mounts::{TABLE, have_mounts_of_ones_own};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

const USER: u32 = 1000;

/// How long a command may take. Then it gets SIGKILL, and the test unmounts everything and ends.
const LIMIT: &str = "30";

/// A place with an image, and for each user a directory to mount it on and one for sessions. At its end
/// everything is unmounted that a test has left mounted.
struct Stage(Place);

impl Stage {
    fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests take the roles of several users: run them as root"
        );
        // As udev sets it.
        fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666))
            .expect("these tests need FUSE: load it with modprobe fuse");
        have_mounts_of_ones_own();
        let place = Place::new();
        place.tree("tree");
        place.pack(&ImageWriter::new(), "tree", "a.img");
        fs::set_permissions(place.path("a.img"), Permissions::from_mode(0o644)).unwrap();
        for user in [0, USER] {
            for (name, mode) in [("at", 0o755), ("run", 0o700)] {
                let path = place.path(&format!("{name}{user}"));
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                chown(&path, Some(user), Some(user)).unwrap();
            }
        }
        place.copy_programs();
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn at(&self, user: u32) -> PathBuf {
        self.path(&format!("at{user}")).canonicalize().unwrap()
    }

    /// `program`, without a time limit, as a direct child of this process.
    fn direct(&self, user: u32, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={user}"))
            .arg(format!("--regid={user}"))
            .arg("--clear-groups")
            .arg(program)
            .args(arguments)
            .current_dir(self.path("."))
            .env("XDG_RUNTIME_DIR", self.path(&format!("run{user}")))
            .stdin(Stdio::null());
        command
    }

    /// A program whose working directory is `directory`.
    fn working_in(&self, user: u32, directory: &str) -> Child {
        let script = format!("cd {directory} && echo in && exec sleep 60");
        let mut program = self
            .direct(user, "sh", &["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 3];
        program
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut word)
            .unwrap();
        assert_eq!(&word, b"in\n");
        program
    }

    /// `program` with a time limit.
    fn wrapped(&self, before: &[&str], user: u32, program: &str, arguments: &[&str]) -> Command {
        let direct = self.direct(user, program, arguments);
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", LIMIT])
            .args(before)
            .arg(direct.get_program())
            .args(direct.get_args())
            .current_dir(self.path("."))
            .env("XDG_RUNTIME_DIR", self.path(&format!("run{user}")));
        command
    }

    fn command(&self, user: u32, arguments: &[&str]) -> Command {
        self.wrapped(&[], user, "./brisk", arguments)
    }

    fn brisk(&self, user: u32, arguments: &[&str]) -> Said {
        self.command(user, arguments).output().unwrap().into()
    }

    fn sh(&self, user: u32, script: &str) -> Said {
        let mut command = self.wrapped(&[], user, "sh", &["-c", script]);
        command.output().unwrap().into()
    }

    /// Runs the command where the kernel allows no user namespaces: in a chroot.
    fn without_namespaces(&self, program: &str, arguments: &[&str]) -> Said {
        self.apart(program, arguments).output().unwrap().into()
    }

    /// The same command, not started yet.
    fn apart(&self, program: &str, arguments: &[&str]) -> Command {
        let root = self.path("root");
        if !root.exists() {
            fs::create_dir(&root).unwrap();
        }
        let script = "mount --rbind / root && here=$PWD && shift 0 && \
                      exec chroot root sh -c 'cd \"$0\" && exec \"$@\"' \"$here\" \"$@\"";
        let before = ["unshare", "--mount", "sh", "-c", script, "sh"];
        self.wrapped(&before, USER, program, arguments)
    }

    /// The log of the sessions' own processes of `user`.
    fn log(&self, user: u32) -> String {
        let directory = self.path(&format!("run{user}/brisk"));
        let Ok(entries) = fs::read_dir(directory) else {
            return String::new();
        };
        entries
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
            .collect()
    }

    /// Waits until nothing is mounted on the user's directory, and no file of a session exists.
    fn assert_nothing_left(&self, user: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let directory = self.path(&format!("run{user}/brisk"));
        loop {
            let files = fs::read_dir(&directory).map_or(0, Iterator::count);
            let mounted = is_mounted(&self.at(user));
            if files == 0 && !mounted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{files} files are left, mounted: {mounted}: {}",
                self.log(user)
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn sessions(&self, user: u32) -> Vec<serde_json::Value> {
        let stat = self.brisk(user, &["stat", "--json"]);
        serde_json::from_str(&stat.out).unwrap()
    }

    fn servers(&self, user: u32) -> Vec<Pid> {
        let sessions = self.sessions(user);
        let images = sessions.iter();
        let images = images.flat_map(|session| session["images"].as_array().unwrap().clone());
        images
            .filter_map(|image| pid(&image["server_pid"]))
            .collect()
    }
}

fn pid(number: &serde_json::Value) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number.as_i64()?).ok()?)
}

fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string(TABLE).unwrap();
    let at = at.to_str().unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(at))
}

impl Drop for Stage {
    fn drop(&mut self) {
        for user in [0, USER] {
            let at = self.at(user);
            while is_mounted(&at) {
                // Whoever waits for an answer gets an error, so that nothing stays and hangs.
                if unmount(&at, UnmountFlags::FORCE | UnmountFlags::DETACH).is_err() {
                    break;
                }
            }
        }
    }
}

fn said(code: i32, out: &str, err: &str) -> Said {
    Said {
        code: Some(code),
        out: out.to_owned(),
        err: err.to_owned(),
    }
}

const COMPARE: &str = "for f in noise text sub/inside bin/app link; do \
                       cmp tree/$f at$(id -u)/$f || exit; done";

#[test]
fn every_user_mounts_and_unmounts() {
    let stage = Stage::new();
    for user in [0, USER] {
        let at = format!("at{user}");
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        assert_eq!(stage.sh(user, COMPARE), said(0, "", ""));
        // Root's mounts show the owners in the image. In other mounts, all files belong to the user.
        let owner = stage.sh(user, &format!("stat -c %u {at}/noise"));
        let stored = fs::metadata(stage.path("tree/noise")).unwrap().uid();
        let expected = if user == 0 { stored } else { user };
        assert_eq!(owner, said(0, &format!("{expected}\n"), ""));
        assert_eq!(stage.servers(user).len(), 1);
        let again = format!(
            "brisk: cannot mount a.img: an image is mounted on {} already; end it with brisk \
             umount, or name another directory\n",
            stage.at(user).display()
        );
        let twice = stage.brisk(user, &["mount", "a.img", &at]);
        assert_eq!(twice, said(2, "", &again));
        assert_eq!(stage.brisk(user, &["umount", &at]), said(0, "", ""));
        stage.assert_nothing_left(user);
        let gone = format!(
            "brisk: cannot unmount {at}: it is not a mount point; brisk stat lists sessions and mounts\n"
        );
        assert_eq!(stage.brisk(user, &["umount", &at]), said(2, "", &gone));
    }
}

#[test]
fn others_see_what_root_mounts_and_not_what_users_do() {
    let stage = Stage::new();
    assert_eq!(stage.brisk(0, &["mount", "a.img", "at0"]), said(0, "", ""));
    assert_eq!(
        stage.sh(USER, "cat at0/sub/inside"),
        said(0, "from the image", "")
    );
    assert_eq!(
        stage.brisk(USER, &["mount", "a.img", "at1000"]),
        said(0, "", "")
    );
    let refused = stage.sh(0, "cat at1000/sub/inside 2> /dev/null");
    assert_eq!(refused, said(1, "", ""));
    assert_eq!(stage.brisk(0, &["umount", "a.img"]), said(0, "", ""));
    assert_eq!(stage.brisk(USER, &["umount", "a.img"]), said(0, "", ""));
    stage.assert_nothing_left(0);
    stage.assert_nothing_left(USER);
}

#[test]
fn a_mount_in_use_is_not_unmounted_but_lazily() {
    let stage = Stage::new();
    for user in [0, USER] {
        let at = format!("at{user}");
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        let mut program = stage.working_in(user, &format!("{at}/sub"));
        let busy = stage.brisk(user, &["umount", &at]);
        let lazy = stage.brisk(user, &["umount", "--lazy", &at]);
        program.kill().unwrap();
        program.wait().unwrap();
        let cure = "a program still uses it (fuser -vm shows it); end what uses it, or use --lazy \
                    to end it with the last program\n";
        assert_eq!((busy.code, busy.out.as_str()), (Some(2), ""));
        assert!(busy.err.ends_with(cure), "{}", busy.err);
        assert_eq!(lazy, said(0, "", ""));
        stage.assert_nothing_left(user);
    }
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_mount_in_the_foreground_ends_with_its_command() {
    let stage = Stage::new();
    for user in [0, USER] {
        let at = format!("at{user}");
        for signal in [Signal::INT, Signal::KILL] {
            // Without timeout, which would catch the signal.
            let mut command = stage.direct(user, "./brisk", &["mount", "-f", "a.img", &at]);
            let mut mount = command.spawn().unwrap();
            wait_until(|| stage.sh(user, &format!("test -e {at}/noise")).code == Some(0));
            assert_eq!(stage.sh(user, COMPARE), said(0, "", ""));
            let pid = Pid::from_raw(i32::try_from(mount.id()).unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
            mount.wait().unwrap();
            stage.assert_nothing_left(user);
        }
        // It also ends when it is unmounted from elsewhere.
        let mut mount = stage
            .command(user, &["mount", "-f", "a.img", &at])
            .spawn()
            .unwrap();
        wait_until(|| stage.sh(user, &format!("test -e {at}/noise")).code == Some(0));
        assert_eq!(stage.brisk(user, &["umount", &at]), said(0, "", ""));
        assert_eq!(mount.wait().unwrap().code(), Some(0));
        stage.assert_nothing_left(user);
    }
}

#[test]
fn a_server_that_is_killed_is_replaced() {
    let stage = Stage::new();
    for user in [0, USER] {
        let at = format!("at{user}");
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        for _ in 0..3 {
            let servers = stage.servers(user);
            assert_eq!(servers.len(), 1, "{}", stage.log(user));
            kill_process(servers[0], Signal::KILL).unwrap();
            assert_eq!(stage.sh(user, COMPARE), said(0, "", ""));
            wait_until(|| {
                let now = stage.servers(user);
                now.len() == 1 && now != servers
            });
        }
        assert_eq!(stage.brisk(user, &["umount", &at]), said(0, "", ""));
        stage.assert_nothing_left(user);
    }
}

/// A detached mount ends by itself, and does not end another mount in its place.
#[test]
fn a_mount_is_not_ended_with_the_one_before_it() {
    let stage = Stage::new();
    fs::copy(stage.path("a.img"), stage.path("b.img")).unwrap();
    for user in [0, USER] {
        let at = format!("at{user}");
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        let detached = stage.servers(user);
        let mut program = stage.working_in(user, &format!("{at}/sub"));
        assert_eq!(stage.brisk(user, &["umount", "-l", &at]), said(0, "", ""));
        assert_eq!(stage.brisk(user, &["mount", "b.img", &at]), said(0, "", ""));
        // No action affects the other one any more, which is only listed.
        assert_eq!(stage.servers(user).len(), 2, "{}", stage.log(user));
        let ended = |pid: &Pid| !PathBuf::from(format!("/proc/{pid}")).exists();
        assert!(!ended(&detached[0]));
        program.kill().unwrap();
        program.wait().unwrap();
        wait_until(|| ended(&detached[0]));
        // Time for the last messages of the one that ended.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(stage.sh(user, COMPARE), said(0, "", ""));
        assert_eq!(stage.brisk(user, &["umount", &at]), said(0, "", ""));
        stage.assert_nothing_left(user);
    }
}

#[test]
fn a_mount_that_nobody_serves_any_more_is_unmounted() {
    let stage = Stage::new();
    for user in [0, USER] {
        let at = format!("at{user}");
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        let guardian = pid(&stage.sessions(user)[0]["guardian_pid"]).unwrap();
        let servers = stage.servers(user);
        // Also if a process is in it.
        let mut program = stage.working_in(user, &format!("{at}/sub"));
        // Stopped, so that it starts no other server.
        kill_process(guardian, Signal::STOP).unwrap();
        kill_process(servers[0], Signal::KILL).unwrap();
        kill_process(guardian, Signal::KILL).unwrap();
        wait_until(|| !is_mounted(&stage.at(user)));
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(stage.brisk(user, &["mount", "a.img", &at]), said(0, "", ""));
        assert_eq!(stage.sh(user, COMPARE), said(0, "", ""));
        assert_eq!(stage.brisk(user, &["umount", &at]), said(0, "", ""));
        stage.assert_nothing_left(user);
    }
}

#[test]
fn a_mount_is_unmounted_and_not_a_session_that_has_its_place() {
    let stage = Stage::new();
    let run = [
        "run", "a.img", "--at", "at0", "--linger", "60", "--", "true",
    ];
    assert_eq!(stage.brisk(0, &run), said(0, "", ""));
    assert!(!is_mounted(&stage.at(0)));
    assert_eq!(stage.brisk(0, &["mount", "a.img", "at0"]), said(0, "", ""));
    assert_eq!(stage.sessions(0).len(), 2);
    assert_eq!(stage.brisk(0, &["umount", "at0"]), said(0, "", ""));
    assert!(!is_mounted(&stage.at(0)));
    wait_until(|| stage.sessions(0).len() == 1);
    // If nothing is mounted there for the caller, the session is meant.
    assert_eq!(stage.brisk(0, &["umount", "at0"]), said(0, "", ""));
    stage.assert_nothing_left(0);
}

#[test]
fn a_mount_that_cannot_be_served_is_none() {
    let stage = Stage::new();
    // There is room for the guardian, but not for what it starts.
    let script = "exec prlimit --nproc=1 ./brisk mount a.img at1000";
    let refused = stage.sh(USER, script);
    assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{refused:?}");
    stage.assert_nothing_left(USER);
}

#[test]
fn what_fusermount_refuses_is_said_in_its_words() {
    let stage = Stage::new();
    let refused = stage.brisk(USER, &["mount", "a.img", "at0"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    assert!(
        refused
            .err
            .starts_with("brisk: cannot mount a.img: fusermount3 says: user has no write access"),
        "{}",
        refused.err
    );
    let alone = ["PATH=/none", "./brisk", "mount", "a.img", "at1000"];
    let refused = stage.wrapped(&[], USER, "env", &alone).output();
    let refused: Said = refused.unwrap().into();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(
        refused.err,
        "brisk: cannot mount a.img: there is no fusermount3; install the package fuse3, or run it \
         as root\n"
    );
    stage.assert_nothing_left(USER);
}

#[test]
fn where_namespaces_are_refused_a_directory_is_learned_all_the_same() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("plain/bin")).unwrap();
    fs::write(
        stage.path("plain/bin/app"),
        "#!/bin/sh\necho \"started $1\"\nexit 4\n",
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(stage.path("plain/bin/app"), mode).unwrap();
    let cache = format!("XDG_CACHE_HOME={}", stage.path("run1000").display());
    let arguments = [
        &cache, "./brisk", "run", "plain", "--auto", "--", "bin/app", "here",
    ];
    let outcome = stage.without_namespaces("env", &arguments);
    assert_eq!(
        (outcome.code, &*outcome.out),
        (Some(4), "started here\n"),
        "{outcome:?}"
    );
    assert_eq!(outcome.err, "");
    let learned = stage.path("run1000/brisk/hot");
    let has_profile = || {
        let mut names = fs::read_dir(&learned).unwrap();
        names.any(|entry| entry.unwrap().path().extension() == Some("record".as_ref()))
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !has_profile() {
        assert!(std::time::Instant::now() < deadline, "nothing is learned");
    }
}

#[test]
fn where_namespaces_are_refused_fusermount_mounts() {
    let stage = Stage::new();
    let program = [
        "sh",
        "-c",
        "echo $BRISK_TREE; cat $BRISK_TREE/sub/inside; exit 5",
    ];
    let run = |options: &[&str]| {
        let mut arguments = vec!["run", "a.img", "--linger", "1"];
        arguments.extend(options);
        arguments.extend(["--", "bin/app"]);
        arguments.extend(program);
        stage.without_namespaces("./brisk", &arguments)
    };
    // The second joins the first.
    for _ in 0..2 {
        let outcome = run(&["--at", "at1000"]);
        let at = stage.at(USER);
        let at = at.display();
        let notice = format!(
            "the system refuses user namespaces, so the image is mounted on {at}, where all your \
             programs see it\n"
        );
        assert_eq!(
            outcome,
            said(5, &format!("{at}\nfrom the image"), &notice),
            "{}",
            stage.log(USER)
        );
    }
    let outcome = run(&[]);
    let runtime = stage.path("run1000").canonicalize().unwrap();
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert!(
        outcome.out.starts_with(&runtime.display().to_string())
            && outcome.out.ends_with(".mnt\nfrom the image"),
        "{outcome:?}"
    );
    let refused = run(&["--writable"]);
    assert_eq!(
        refused,
        said(
            125,
            "",
            "brisk: cannot mount a.img: writing into an image needs a user namespace, which the system \
             refuses to this user; brisk doctor says how to allow user namespaces\n"
        )
    );
    let alone = ["PATH=/none", "./brisk", "run", "a.img", "--", "bin/app"];
    assert_eq!(
        stage.without_namespaces("env", &alone),
        said(
            125,
            "",
            "brisk: cannot mount a.img: the system refuses user namespaces to this user and has no \
             fusermount3; install the package fuse3: Operation not permitted (os error 1); brisk doctor \
             says how to allow user namespaces\n"
        )
    );
    stage.assert_nothing_left(USER);
}

#[test]
fn where_namespaces_are_refused_nobody_joins_what_was_unmounted() {
    let stage = Stage::new();
    let run = |script: &str| {
        let run = ["run", "a.img", "--linger", "1", "--", "sh", "-c", script];
        stage.apart("./brisk", &run)
    };
    let mut first = run("echo in; sleep 60 > /dev/null 2>&1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = [0; 3];
    first
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut word)
        .unwrap();
    let lazily = stage.without_namespaces("./brisk", &["umount", "--lazy", "a.img"]);
    assert_eq!(lazily, said(0, "", ""));
    let second: Said = run("cat $BRISK_TREE/sub/inside").output().unwrap().into();
    assert_eq!(
        (second.code, &*second.out),
        (Some(0), "from the image"),
        "{second:?}"
    );
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn where_namespaces_are_refused_launches_are_learned_too() {
    let stage = Stage::new();
    let cache = stage.path("run1000/cache").canonicalize();
    let cache =
        cache.unwrap_or_else(|_| stage.path("run1000").canonicalize().unwrap().join("cache"));
    let variable = format!("XDG_CACHE_HOME={}", cache.display());
    let run = || {
        let mut arguments = vec![
            variable.as_str(),
            "./brisk",
            "run",
            "a.img",
            "--at",
            "at1000",
        ];
        arguments.extend(["--auto", "-v", "--linger", "1", "--", "sh", "-c"]);
        arguments.push("cat $BRISK_TREE/sub/inside");
        let run = stage.without_namespaces("env", &arguments);
        assert_eq!(
            (run.code, run.out.as_str()),
            (Some(0), "from the image"),
            "{run:?}"
        );
        stage.assert_nothing_left(USER);
        run.err
    };
    let err = run();
    assert!(
        err.contains("a new session learns one from this run\n"),
        "{err}"
    );
    wait_until(|| {
        let made = fs::read_dir(cache.join("brisk/hot"));
        made.is_ok_and(|entries| {
            let mut names = entries.filter_map(|entry| Some(entry.ok()?.path()));
            names.any(|path| path.extension().is_some_and(|kind| kind == "hot"))
        })
    });
    let err = run();
    assert!(
        err.contains("a new session fills 14 bytes from its learned hot pack"),
        "{err}"
    );
}

/// Says which users there are, and whose a file of root is.
const WORLD: &str = "tr -s ' ' < /proc/self/uid_map; stat -c %u /etc/passwd";

const OWN: &str = " 0 0 4294967295\n0\n";
const NAMESPACE: &str = " 1000 1000 1\n65534\n";

#[test]
fn a_program_stays_in_the_users_own_world_unless_it_needs_a_namespace() {
    let stage = Stage::new();
    let run = |options: &[&str]| {
        let start = ["run", "a.img", "--linger", "0"];
        let program = ["--", "sh", "-c", WORLD];
        stage.brisk(USER, &[&start, options, &program].concat())
    };
    assert_eq!(run(&[]), said(0, OWN, ""));
    assert_eq!(run(&["--seen-by", "user"]), said(0, OWN, ""));
    assert_eq!(run(&["--seen-by", "program"]), said(0, NAMESPACE, ""));
    assert_eq!(run(&["--at", "at1000"]), said(0, NAMESPACE, ""));
    assert_eq!(
        run(&["--at", "at1000", "--seen-by", "user"]),
        said(0, OWN, "")
    );
    assert_eq!(run(&["--writable"]), said(0, NAMESPACE, ""));
    assert_eq!(run(&["--bind", "tree:at1000"]), said(0, NAMESPACE, ""));
    let refused = "brisk: cannot mount a.img: writing into an image shows it to the program alone, and all programs of the user \
                   should see it; leave out --seen-by user, or do without --root, --writable, --bind and --with\n";
    assert_eq!(
        run(&["--writable", "--seen-by", "user"]),
        said(125, "", refused)
    );
    stage.assert_nothing_left(USER);
}

/// Whether the error output is the result of an audit, and nothing else.
fn is_audit(err: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(err).is_ok_and(|audit| audit["pages"].is_object())
}

#[test]
fn a_traced_program_stays_in_the_users_own_world_unless_it_needs_a_namespace() {
    let stage = Stage::new();
    let profile = stage.path("run1000/profile");
    let trace = |what: &[&str], script: &str| {
        let start = ["trace", "-o", profile.to_str().unwrap(), "-q"];
        let program = ["--", "sh", "-c", script];
        let traced = stage.brisk(USER, &[&start, what, &program].concat());
        assert_eq!(traced.code, Some(0), "{traced:?}");
        stage.assert_nothing_left(USER);
        traced.out
    };
    let reads = format!("{WORLD}; cat $BRISK_TREE/sub/inside > /dev/null");
    // Each run has a mount of its own, and the profile is one.
    assert_eq!(
        trace(&["a.img", "--runs", "2"], &reads),
        [OWN, OWN].concat()
    );
    let recorded = Profile::open(&profile, &Limits::default()).unwrap();
    let [root] = recorded.roots() else {
        panic!("{:?}", recorded.roots());
    };
    assert_eq!(root.path, Path::new("/mnt"));
    let pages = recorded.demand_by_file();
    assert_eq!((recorded.files().len(), pages[0].0), (1, 1));
    for what in [
        &["a.img", "--at", "at1000"][..],
        &["a.img", "--writable"],
        &["a.img", "--tree", "tree"],
        &["--tree", "tree"],
    ] {
        assert_eq!(trace(what, &reads), NAMESPACE, "{what:?}");
    }

    let hot = ["hot", "a.img", "--profile", profile.to_str().unwrap()];
    assert_eq!(stage.brisk(0, &hot).code, Some(0));
    let audit_of = |user, options: &[&str], script: &str| {
        let start = ["run", "a.img", "--audit", "--json"];
        let program = ["--", "sh", "-c", script];
        let audited = stage.brisk(user, &[&start, options, &program].concat());
        assert!(is_audit(&audited.err), "{audited:?}");
        stage.assert_nothing_left(user);
        (audited.code, audited.out)
    };
    let audit = |options: &[&str], script: &str| audit_of(USER, options, script);
    let own = (Some(0), OWN.to_owned());
    let namespace = (Some(0), NAMESPACE.to_owned());
    assert_eq!(audit(&[], WORLD), own);
    assert_eq!(audit(&["--at", "at1000", "--seen-by", "user"], WORLD), own);
    assert_eq!(audit(&["--seen-by", "program"], WORLD), namespace);
    assert_eq!(audit(&["--at", "at1000"], WORLD), namespace);
    // Root's mount has its owners.
    let script = "stat -c %u $BRISK_TREE; echo $BRISK_TREE";
    let (code, out) = audit_of(0, &["--seen-by", "user"], script);
    let runtime = stage.path("run0").canonicalize().unwrap();
    let expected = format!("0\n{}/brisk/", runtime.display());
    assert!(code == Some(0) && out.starts_with(&expected), "{out}");

    copy_with_rights("/usr/bin/id", &stage.path("tree/id"));
    let id = format!("{} -u", stage.path("tree/id").display());
    assert_eq!(trace(&["a.img"], &id), "0\n");
    assert_eq!(audit(&[], &id), (Some(0), "0\n".to_owned()));
}

/// The processes of the user that trace.
fn tracers(stage: &Stage) -> Vec<Pid> {
    let runtime = stage.path("run1000");
    processes(|process| {
        let environ = fs::read(process.join("environ")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ);
        comm_of(process) == "brisk-tools" && environ.contains(runtime.to_str().unwrap())
    })
}

#[test]
fn the_mount_of_a_trace_ends_with_it_whatever_is_killed() {
    let stage = Stage::new();
    let begin = || {
        let script = "echo $BRISK_TREE; exec sleep 60 > /dev/null";
        let words = [
            "trace",
            "a.img",
            "-o",
            "run1000/profile",
            "--",
            "sh",
            "-c",
            script,
        ];
        let mut traced = stage
            .direct(USER, "./brisk", &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(traced.stdout.take().unwrap());
        let mut place = String::new();
        std::io::BufRead::read_line(&mut out, &mut place).unwrap();
        let place = PathBuf::from(place.trim_end());
        assert!(is_mounted(&place));
        // Looking harms nothing that lives.
        assert_eq!(stage.sessions(USER), Vec::<serde_json::Value>::new());
        assert!(is_mounted(&place));
        (traced, place)
    };

    // The command alone, the process that serves alone, and both.
    for which in [0..1, 1..2, 0..2] {
        let (mut traced, place) = begin();
        let mut killed = tracers(&stage);
        killed.sort_by_key(|process| *process != Pid::from_child(&traced));
        assert_eq!(killed.len(), 2);
        kill_all(&killed[which]);
        traced.wait().unwrap();
        wait_until(|| !is_mounted(&place));
        stage.assert_nothing_left(USER);
        wait_until(|| helpers(&stage).is_empty() && tracers(&stage).is_empty());
    }

    let (mut traced, place) = begin();
    kill_all(&[tracers(&stage), helpers(&stage)].concat());
    traced.wait().unwrap();
    wait_until(|| helpers(&stage).is_empty() && tracers(&stage).is_empty());
    assert!(is_mounted(&place));
    assert_eq!(stage.sessions(USER), Vec::<serde_json::Value>::new());
    assert!(!is_mounted(&place));
    stage.assert_nothing_left(USER);
}

#[test]
fn in_their_own_world_setuid_programs_get_their_rights() {
    let stage = Stage::new();
    copy_with_rights("/usr/bin/id", &stage.path("tree/id"));
    let words = ["run", "a.img", "--linger", "0", "--"];
    let tool = stage.path("tree/id");
    let run = |options: &[&str]| {
        let mut words = words.to_vec();
        words.splice(1..1, options.iter().copied());
        words.extend([tool.to_str().unwrap(), "-u"]);
        stage.brisk(USER, &words)
    };
    assert_eq!(run(&[]), said(0, "0\n", ""));
    // There is no root.
    assert_eq!(run(&["--seen-by", "program"]), said(0, "1000\n", ""));
}

/// Copies a program, which starts with the rights of root.
fn copy_with_rights(from: &str, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, Permissions::from_mode(0o4755)).unwrap();
}

#[test]
fn a_user_who_cannot_mount_gets_a_namespace() {
    let stage = Stage::new();
    let brisk = stage.path("brisk");
    let brisk = brisk.to_str().unwrap();
    let run = ["run", "a.img", "--linger", "0"];
    let program = [
        "--",
        "/bin/sh",
        "-c",
        "PATH=/bin:/usr/bin; tr -s ' ' < /proc/self/uid_map",
    ];
    let without = |options: &[&str]| {
        let words = [&["PATH=/none", brisk], &run[..], options, &program].concat();
        let mut command = stage.wrapped(&[], USER, "env", &words);
        Said::from(command.output().unwrap())
    };
    assert_eq!(without(&[]), said(0, " 1000 1000 1\n", ""));
    let told = without(&["-v"]);
    let expected = "there is no fusermount3; install the package fuse3, or run it as root; so only the program sees the image, \
                    in a user namespace, where ssh refuses root's files and sudo gets no rights";
    assert!(told.err.contains(expected), "{told:?}");
    let trace = ["trace", "a.img", "-q", "-o", "run1000/profile"];
    let words = [&["PATH=/none", brisk], &trace[..], &program].concat();
    let mut command = stage.wrapped(&[], USER, "env", &words);
    let traced = Said::from(command.output().unwrap());
    assert_eq!(traced.code, Some(0), "{traced:?}");
    assert_eq!(traced.out, " 1000 1000 1\n");
    assert!(traced.err.contains(expected), "{traced:?}");
    let refused = without(&["--seen-by", "user"]);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    // As in a sandbox: fusermount3 gets no rights.
    let words = [&["--no-new-privs", brisk], &run[..], &program].concat();
    let mut command = stage.wrapped(&[], USER, "setpriv", &words);
    let outcome = Said::from(command.output().unwrap());
    assert_eq!(outcome, said(0, " 1000 1000 1\n", ""));
}

/// The processes that serve the images of the user.
fn helpers(stage: &Stage) -> Vec<Pid> {
    let image = stage.path("a.img");
    processes(|process| {
        let cmdline = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        ["brisk-guardian", "brisk-server", "mount-watchdog"].contains(&&*comm_of(process))
            && cmdline.contains(image.to_str().unwrap())
    })
}

/// The processes whose directories in `/proc` are `wanted`.
fn processes(wanted: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap();
    let directories = entries.map(|entry| entry.unwrap().path());
    let wanted = directories.filter(|process| wanted(process));
    wanted
        .filter_map(|process| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?))
        .collect()
}

fn comm_of(process: &Path) -> String {
    let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
    comm.trim_end().to_owned()
}

fn kill_all(processes: &[Pid]) {
    // None of them sees the end of another.
    for signal in [Signal::STOP, Signal::KILL] {
        for process in processes {
            kill_process(*process, signal).unwrap();
        }
    }
}

#[test]
fn a_mount_of_killed_processes_is_unmounted_by_whoever_comes_next() {
    let stage = Stage::new();
    let script = "echo $BRISK_TREE; cat $BRISK_TREE/sub/inside";
    let words = ["run", "a.img", "--linger", "600", "--", "sh", "-c", script];
    let run = || stage.brisk(USER, &words);
    let first = run();
    assert_eq!(first.code, Some(0), "{first:?}");
    let place = PathBuf::from(first.out.lines().next().unwrap());
    let kill = || {
        wait_until(|| helpers(&stage).len() == 3);
        kill_all(&helpers(&stage));
        wait_until(|| helpers(&stage).is_empty());
        assert!(is_mounted(&place));
    };
    kill();
    // The next run has the same place.
    assert_eq!(run(), first);
    kill();
    assert_eq!(stage.sessions(USER), Vec::<serde_json::Value>::new());
    assert!(!is_mounted(&place));
    // Whatever is mounted elsewhere.
    assert_eq!(
        stage.brisk(USER, &["mount", "a.img", "at1000"]).code,
        Some(0)
    );
    wait_until(|| helpers(&stage).len() == 3);
    kill_all(&helpers(&stage));
    wait_until(|| helpers(&stage).is_empty());
    let umount = stage.brisk(USER, &["umount", "--all"]);
    assert_eq!(umount, said(1, "", "there is no session to end\n"));
    assert!(!is_mounted(&stage.at(USER)));
}

#[test]
fn a_run_beside_programs_whose_guardian_is_dead_has_another_place() {
    let stage = Stage::new();
    let words = ["run", "a.img", "--linger", "0", "--", "sh", "-c"];
    let script = "echo $BRISK_TREE; read go; cat $BRISK_TREE/sub/inside";
    let mut child = stage
        .direct(USER, "./brisk", &[&words[..], &[script]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut place = String::new();
    std::io::BufRead::read_line(&mut out, &mut place).unwrap();
    wait_until(|| helpers(&stage).len() == 3);
    let guardian = helpers(&stage).into_iter().find(|process| {
        let comm = format!("/proc/{}/comm", process.as_raw_nonzero());
        fs::read_to_string(comm).unwrap() == "brisk-guardian\n"
    });
    kill_all(&[guardian.unwrap()]);
    let other = stage.brisk(USER, &[&words[..], &["echo $BRISK_TREE"]].concat());
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_ne!(other.out, place);
    drop(child.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from the image");
    assert!(child.wait().unwrap().success());
    // The watchdog ends it with its last program.
    let place = PathBuf::from(place.trim_end());
    wait_until(|| !is_mounted(&place));
}

#[test]
fn a_daemon_without_open_files_keeps_what_all_programs_see() {
    let stage = Stage::new();
    let daemon = "cd /; exec > /dev/null 2>&1 < /dev/null; while [ ! -e $0 ]; do sleep 0.02; done; \
                  cp $BRISK_TREE/sub/inside $0.copy";
    let go = stage.path("run1000/go");
    let script = format!("setsid sh -c '{daemon}' {} &", go.display());
    let run = ["run", "a.img", "--linger", "0", "--", "sh", "-c", &script];
    assert_eq!(stage.brisk(USER, &run), said(0, "", ""));
    let sessions = stage.sessions(USER);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert!(!sessions[0]["programs"].as_array().unwrap().is_empty());
    let refused = stage.brisk(USER, &["umount", "a.img"]);
    assert!(
        refused.err.contains("programs still run in it"),
        "{refused:?}"
    );
    fs::write(&go, "").unwrap();
    let copy = stage.path("run1000/go.copy");
    wait_until(|| fs::read(&copy).is_ok_and(|text| text == b"from the image"));
    stage.assert_nothing_left(USER);
}

#[test]
fn a_parent_that_ignores_its_children_mounts_all_the_same() {
    let stage = Stage::new();
    let words = [
        "--ignore-signal=CHLD",
        "./brisk",
        "run",
        "a.img",
        "--linger",
        "0",
        "--",
        "sh",
    ];
    let mut command = stage.wrapped(&[], USER, "env", &[&words[..], &["-c", WORLD]].concat());
    assert_eq!(Said::from(command.output().unwrap()), said(0, OWN, ""));
}

#[test]
fn only_root_gives_an_image_its_rights() {
    let stage = Stage::new();
    copy_with_rights("/usr/bin/id", &stage.path("tree/id"));
    stage.0.pack(&ImageWriter::new(), "tree", "suid.img");
    fs::set_permissions(stage.path("suid.img"), Permissions::from_mode(0o644)).unwrap();
    for (options, expected) in [
        (&[][..], "1000\n"),
        (&["--dev"], "1000\n"),
        (&["--suid"], "0\n"),
        (&["--kernel"], "1000\n"),
        (&["--kernel", "--suid"], "0\n"),
    ] {
        let words = [&["mount"], options, &["suid.img", "at0"]].concat();
        assert_eq!(stage.brisk(0, &words), said(0, "", ""), "{options:?}");
        assert_eq!(stage.sh(USER, "at0/id -u").out, expected, "{options:?}");
        let table = fs::read_to_string(TABLE).unwrap();
        let at = stage.at(0);
        let line = table
            .lines()
            .find(|line| line.contains(at.to_str().unwrap()));
        let has_nodes = !line.unwrap().contains("nodev");
        assert_eq!(has_nodes, options.contains(&"--dev"), "{options:?}");
        assert_eq!(stage.brisk(0, &["umount", "at0"]).code, Some(0));
    }
    let refused = stage.brisk(USER, &["mount", "--suid", "suid.img", "at1000"]);
    let expected = "brisk: cannot mount suid.img: this needs root (CAP_SYS_ADMIN); run it as root, for example with sudo\n";
    assert_eq!(refused, said(2, "", expected));
}
