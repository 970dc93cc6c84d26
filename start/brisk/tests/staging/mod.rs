//! A place to try sessions in. It ends everything that a test leaves behind, whatever happened to the test.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod documented;
#[path = "../../../../ground/brisk-io/tests/machine/memory.rs"]
pub mod memory;
mod mounts;
pub mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::profile::Profile;
use brisk_image::{ImageWriter, Limits, Tree, TreeRules};
use memory::{Memory, while_nobody_empties_memory};
use mounts::{TABLE, have_mounts_of_ones_own};
use programs::{copy_program, make_executable};
use rustix::process::{Pid, Signal, kill_process};

/// How long a test may take. Then it hangs, and is ended from outside. A busy machine takes minutes for some.
const LIMIT: Duration = Duration::from_secs(600);

/// A directory on a disk. The directory for temporary files may be in memory, where nothing is ever cold.
const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

/// The profile in a record of what brisk has learned. None while there is none.
pub fn profile_of_record(path: &Path) -> Option<Profile> {
    let bytes = fs::read(path).ok()?;
    let start = b"{\n\"brisk_profile\"";
    let at = bytes.windows(start.len()).position(|part| part == start)?;
    Profile::from_text(&bytes[at..], &Limits::of_profiles()).ok()
}

/// Root, and an ordinary user.
const USERS: &[(u32, bool)] = &[(0, false), (1000, false)];

/// Runs `test` as root and as an ordinary user, at the same time.
pub fn each_user(test: impl Fn(&Stage) + Send + Clone + 'static) {
    each_of(USERS, move |stage| test(&stage()));
}

/// Like [`each_user`], for a test that counts on pages in memory. Each attempt has a stage of its own.
pub fn each_user_in_kept_memory(test: impl Fn(&Stage) + Send + Clone + 'static) {
    each_of(USERS, move |stage| {
        while_nobody_empties_memory(|| test(&stage()));
    });
}

/// Like [`each_user`], and as an ordinary user whose programs all see the image.
pub fn each_world(test: impl Fn(&Stage) + Send + Clone + 'static) {
    let worlds = [USERS, &[(1000, true)]].concat();
    each_of(&worlds, move |stage| test(&stage()));
}

fn each_of(users: &[(u32, bool)], test: impl Fn(&dyn Fn() -> Stage) + Send + Clone + 'static) {
    let name = thread::current().name().unwrap_or("test").to_owned();
    let start = |&(user, in_own_world): &(u32, bool)| {
        let test = test.clone();
        let stage = move || {
            let mut stage = Stage::new(user);
            stage.in_own_world = in_own_world;
            stage
        };
        let watched = move || watched(move || test(&stage));
        let world = if in_own_world {
            " in its own world"
        } else {
            ""
        };
        let thread = thread::Builder::new().name(format!("{name} as {user}{world}"));
        thread.spawn(watched).expect("a thread")
    };
    let threads: Vec<_> = users.iter().map(start).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
}

/// Runs `test`, and ends the process with an error if it hangs. Connections are aborted first, so that
/// nothing stays that cannot be killed.
pub fn watched(test: impl FnOnce() + Send + 'static) {
    let limit = match thread::current().name() {
        Some(name) if name.contains("five_hundred") => LIMIT * 20,
        _ => LIMIT,
    };
    watched_for(limit, test);
}

/// Like [`watched`], for a test that counts on pages in memory.
pub fn watched_in_kept_memory(test: impl Fn() + Send + 'static) {
    watched(|| while_nobody_empties_memory(test));
}

/// Like [`watched`], with another limit.
pub fn watched_for(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let name = thread::current().name().unwrap_or("test").to_owned();
    let body = thread::Builder::new().name(name.clone()).spawn(move || {
        test();
        // The receiver lives until the thread has ended.
        done.send(()).ok();
    });
    let body = body.expect("a thread");
    match wait.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => {
            // Not by a macro, whose output would be lost with the process.
            writeln!(
                std::io::stderr(),
                "{name} hangs: its sessions are ended by force"
            )
            .ok();
            for place in [std::env::temp_dir(), ON_DISK.into()] {
                end_by_force(&place.join(prefix()));
            }
            std::process::exit(1);
        }
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = body.join() {
                resume_unwind(panic);
            }
        }
    }
}

/// The start of the names of this process's stages. Stages of other tests must not be ended.
fn prefix() -> String {
    format!("brisk-session-{}-", std::process::id())
}

/// A directory with a tree, an image of it, a place to mount it on, and a user.
pub struct Stage {
    dir: tempfile::TempDir,
    user: u32,
    in_own_world: bool,
}

impl Stage {
    pub fn new(user: u32) -> Self {
        Self::new_in(&std::env::temp_dir(), user)
    }

    /// A stage with its files on a disk.
    pub fn on_disk(user: u32) -> Self {
        Self::new_in(Path::new(ON_DISK), user)
    }

    fn new_in(place: &Path, user: u32) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests take the roles of several users: run them as root"
        );
        // As udev sets it.
        fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666))
            .expect("these tests need FUSE: load it with modprobe fuse");
        have_mounts_of_ones_own();
        let dir = tempfile::Builder::new().prefix(&prefix()).tempdir_in(place);
        let stage = Self {
            dir: dir.expect("a temporary directory"),
            user,
            in_own_world: false,
        };
        let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755));
        open(stage.dir.path()).unwrap();
        for (name, mode) in [("run", 0o700), ("home", 0o755), ("at", 0o755)] {
            fs::create_dir(stage.path(name)).unwrap();
            fs::set_permissions(stage.path(name), Permissions::from_mode(mode)).unwrap();
            chown(stage.path(name), Some(user), Some(user)).unwrap();
        }
        fs::create_dir_all(stage.path("tree/bin")).unwrap();
        fs::create_dir_all(stage.path("tree/sub")).unwrap();
        fs::create_dir_all(stage.path("tree/many")).unwrap();
        fs::write(stage.path("tree/bin/app"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
        make_executable(stage.path("tree/bin/app"));
        fs::write(stage.path("tree/sub/inside"), "from the image").unwrap();
        fs::write(stage.path("tree/noise"), noise(3_000_000)).unwrap();
        fs::write(stage.path("tree/text"), "brisk ".repeat(200_000)).unwrap();
        for i in 0..200u32 {
            let text = format!("{i} ").repeat(3000);
            fs::write(stage.path(&format!("tree/many/{i}")), text).unwrap();
        }
        symlink("bin/app", stage.path("tree/link")).unwrap();
        stage.pack("app.img");
        let built = built();
        if !everybody_reaches(&built) {
            for name in [
                "brisk",
                "brisk-run",
                "brisk-tools",
                "brisk-bundle",
                "brisk-lab",
                "brisk-reads",
            ] {
                let built = built.with_file_name(name);
                // The tests of brisk do not need the lab, and few need the program of bundles.
                if !built.exists() {
                    continue;
                }
                if fs::hard_link(&built, stage.path(name)).is_err() {
                    copy_program(&built, stage.path(name));
                }
            }
        }
        stage
    }

    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// The number of the user.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The command's file, which the user can execute.
    pub fn executable(&self) -> PathBuf {
        let own = self.path("brisk");
        match own.exists() {
            true => own,
            false => built(),
        }
    }

    /// Packs the tree.
    pub fn pack(&self, image: &str) {
        self.pack_tree("tree", image);
    }

    pub fn pack_tree(&self, tree: &str, image: &str) {
        let tree = Tree::from_directory(self.path(tree), &TreeRules::default());
        ImageWriter::new()
            .write(&tree.unwrap(), self.path(image))
            .unwrap();
    }

    /// Makes and packs `root`, a tree with the shell and what it needs. Its `/etc` lacks nearly everything.
    pub fn pack_root(&self) {
        let script = "mkdir -p root/bin root/etc root/data && echo image > root/etc/own && \
                      for p in sh ls cat cp find readlink unshare stat; do \
                      cp $(command -v $p) root/bin; done; \
                      for l in $(ldd root/bin/* | grep -o '/[^ ]*\\.so[^ ]*' | sort -u); do \
                      mkdir -p root$(dirname $l) && cp -L $l root$l; done; ln -s data root/alias";
        let made = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.path(""))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        self.pack_tree("root", "root.img");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the user's sessions are found.
    pub fn runtime(&self) -> PathBuf {
        self.path("run")
    }

    /// A directory that belongs to the user.
    pub fn writable(&self) -> PathBuf {
        self.path("home")
    }

    /// Where the user keeps what brisk finds out.
    pub fn cache(&self) -> PathBuf {
        self.writable().join("cache")
    }

    /// The command, as the user.
    pub fn brisk(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", self.user))
            .arg(format!("--regid={}", self.user))
            .arg("--clear-groups")
            .arg(self.executable())
            .args(arguments)
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.cache())
            .env("XDG_RUNTIME_DIR", self.runtime());
        command
    }

    /// The command in its own PID namespace. Its process session and process group have no numbers there, as
    /// for a process that a container runtime starts in a container.
    pub fn contained(&self, command: &Command) -> Command {
        let mut contained = Command::new("unshare");
        // The first process is a shell, which collects orphans.
        contained
            .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", "\"$@\"; status=$?; wait; exit $status", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.dir.path())
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        contained
    }

    /// Another program, as the user.
    pub fn plainly(&self, program: &[&str]) -> Output {
        let brisk = self.brisk(&[]);
        let mut arguments: Vec<_> = brisk.get_args().collect();
        arguments.pop();
        Command::new(brisk.get_program())
            .args(arguments)
            .args(program)
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    /// A run with the image on `at`. It lingers longer than the test takes.
    pub fn run(&self, program: &[&str]) -> Command {
        self.lingering("600", program)
    }

    pub fn lingering(&self, seconds: &str, program: &[&str]) -> Command {
        let mut command = self.brisk(&["run", "app.img", "--at", "at", "--linger", seconds]);
        command.args(self.world()).arg("--").args(program);
        command
    }

    /// Options of `brisk run` that say who sees the image.
    pub fn world(&self) -> &[&str] {
        match self.in_own_world {
            true => &["--seen-by", "user"],
            false => &[],
        }
    }

    pub fn in_own_world(&self) -> bool {
        self.in_own_world
    }

    pub fn sh(&self, script: &str) -> Output {
        self.run(&["bin/app", "sh", "-c", script]).output().unwrap()
    }

    /// The processes with this name in this stage's sessions, sorted.
    pub fn processes(&self, name: &str) -> Vec<i32> {
        processes(self.dir.path())
            .into_iter()
            .filter(|(_, comm)| comm == name)
            .map(|(pid, _)| pid)
            .collect()
    }

    /// The guardian and the servers of the session of only this image: they see one mount.
    pub fn sessions_of(&self, image: &str) -> Vec<i32> {
        let mut mounts: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for_each_process(|pid, comm, line| {
            if comm.starts_with("brisk-") && is_ours(line, self.dir.path()) {
                mounts.entry(pid).or_default().push(line.to_owned());
            }
        });
        let path = self.path(image);
        mounts.retain(|_, lines| lines.len() == 1 && is_ours(&lines[0], &path));
        mounts.into_keys().collect()
    }

    /// Waits until there are so many processes of this name: who replaces one takes its time.
    pub fn wait_for_processes(&self, name: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.processes(name).len() != count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} {name}: {}",
                self.processes(name).len(),
                self.log()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn wait_for_program(&self, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.processes(name).is_empty() {
            assert!(
                Instant::now() < deadline,
                "{name} does not start: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn assert_no_process(&self, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let mut left = processes(self.dir.path());
            let table = fs::read_to_string(TABLE).unwrap();
            let mounts = table.lines().filter(|line| is_ours(line, self.dir.path()));
            left.extend(mounts.map(|line| (0, line.to_owned())));
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{left:?} are left: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until there is no process, and so no namespace and no mount, and no file.
    pub fn assert_nothing_left(&self, within: Duration) {
        let deadline = Instant::now() + within;
        self.assert_no_process(within);
        loop {
            let left: Vec<_> = match fs::read_dir(self.runtime().join("brisk")) {
                Ok(entries) => entries.map(|entry| entry.unwrap().file_name()).collect(),
                Err(_) => return,
            };
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{left:?} are left: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `attempt` until it says that memory had all that it should, each time in a new session of app.img: a system that
    /// pages out by itself (DAMON) may take pages at any time. An attempt during which somebody empties memory (`drop_caches`)
    /// does not count, and may panic. The next one begins when that has happened once more, and has the longest time.
    pub fn until_nothing_is_taken(&self, attempt: impl Fn() -> bool) {
        // One at a time is over sooner.
        static ALONE: Mutex<()> = Mutex::new(());
        let (mut failed, mut disturbed) = (0, 0);
        let (found_out, kept) = (self.cache(), self.path("kept"));
        copy_directory(&found_out, &kept);
        while failed < 8 && disturbed < 40 {
            let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let memory = Memory::now();
            let had_all = catch_unwind(AssertUnwindSafe(&attempt));
            let is_disturbed = memory.is_disturbed();
            match had_all {
                Ok(true) => return,
                Err(panic) if !is_disturbed => resume_unwind(panic),
                _ if is_disturbed => disturbed += 1,
                _ => failed += 1,
            }
            // It may have ended before there was a session.
            self.brisk(&["umount", "app.img"]).output().unwrap();
            self.assert_no_process(Duration::from_secs(20));
            // It may have learned what it would not have asked for.
            copy_directory(&kept, &found_out);
            let (memory, deadline) = (Memory::now(), Instant::now() + Duration::from_secs(3));
            while is_disturbed && !memory.has_been_emptied() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            drop(alone);
        }
        panic!(
            "what was in memory is asked for each time ({failed}), or somebody empties memory ({disturbed}): {}",
            self.log()
        );
    }

    /// Removes the logs of sessions that have ended.
    pub fn remove_logs(&self) {
        self.assert_no_process(Duration::from_secs(10));
        let Ok(entries) = fs::read_dir(self.runtime().join("brisk")) else {
            return;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "log") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// The log of the sessions' own processes.
    pub fn log(&self) -> String {
        let Ok(entries) = fs::read_dir(self.runtime().join("brisk")) else {
            return String::new();
        };
        entries
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
            .collect()
    }
}

/// The command under test. Cargo names it to the tests of its own package. The tests of `brisk-lab` find it
/// beside their own program, and check that it was built from the present sources.
pub fn built() -> PathBuf {
    if let Some(brisk) = option_env!("CARGO_BIN_EXE_brisk") {
        return brisk.into();
    }
    let Some(lab) = option_env!("CARGO_BIN_EXE_brisk-lab") else {
        panic!("these are tests of brisk or of brisk-lab");
    };
    static CHECKED: Once = Once::new();
    CHECKED.call_once(|| {
        for name in ["brisk", "brisk-run", "brisk-tools"] {
            assert_newer_than_sources(&Path::new(lab).with_file_name(name));
        }
    });
    Path::new(lab).with_file_name("brisk")
}

fn assert_newer_than_sources(program: &Path) {
    let build = "run cargo build -p brisk with the options of these tests";
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let Ok(built) = time(program) else {
        panic!("{} is not built; {build}", program.display());
    };
    // In this file, cargo lists what the program was made from: `program: source source …`.
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else {
        // Only `cargo build` writes it. Tests of the whole workspace build the program anyway.
        return;
    };
    let (_, sources) = list.split_once(": ").expect("a list of sources");
    for source in sources.replace("\\ ", "\0").split_whitespace() {
        let source = source.replace('\0', " ");
        let is_older = time(Path::new(&source)).is_ok_and(|time| time <= built);
        assert!(
            is_older,
            "{} is older than {source}; {build}",
            program.display()
        );
    }
}

/// Whether an ordinary user may enter all directories of the path.
fn everybody_reaches(path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .all(|dir| fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o001 != 0))
}

/// Makes `to` a copy of the directory `from`, with its owners, if there is one.
fn copy_directory(from: &Path, to: &Path) {
    if from.exists() {
        fs::remove_dir_all(to).ok();
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.expect("there is cp").success());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        end_by_force(self.dir.path());
    }
}

/// The living processes of sessions of images whose path starts with `prefix`. Of a mount that these tests see, too, those that
/// serve it, and those that have its place in their environment: every process sees it.
fn processes(prefix: &Path) -> Vec<(i32, String)> {
    let own = fs::read_to_string(TABLE).unwrap();
    let seen_by_all: BTreeSet<_> = own.lines().filter_map(device_of).collect();
    let mut found: Vec<(i32, String)> = Vec::new();
    for_each_process(|pid, comm, line| {
        let is_seen_by_all = || device_of(line).is_some_and(|device| seen_by_all.contains(device));
        if is_ours(line, prefix)
            && found.last().is_none_or(|(last, _)| *last != pid)
            && is_of_test(pid, prefix)
            && (!is_seen_by_all() || uses_place_below(pid, prefix))
        {
            found.push((pid, comm.to_owned()));
        }
    });
    found.sort_unstable();
    found
}

/// The device's numbers in a line of a mount table.
fn device_of(line: &str) -> Option<&str> {
    line.split(' ').nth(2)
}

/// Whether a process serves an image below `prefix`, or was started from one.
fn uses_place_below(pid: i32, prefix: &Path) -> bool {
    let serves = [
        "brisk-guardian",
        "brisk-server",
        "brisk-learner",
        "mount-watchdog",
    ];
    let is_server = name_of(pid).is_some_and(|name| serves.contains(&&*name));
    has_word(pid, "environ", &format!("BRISK_TREE={}", prefix.display()))
        || is_server && has_word(pid, "cmdline", &prefix.display().to_string())
}

/// Whether a process was started by a test of a stage below `prefix`: it has the stage's directory in its environment or its
/// arguments. Tests kill no other process, whatever it sees: a mount for all programs is also in the tables of strangers.
fn is_of_test(pid: i32, prefix: &Path) -> bool {
    let names = ["XDG_RUNTIME_DIR=", "XDG_CACHE_HOME=", "BRISK_TREE="];
    let mut starts = names
        .map(|name| format!("{name}{}", prefix.display()))
        .into_iter();
    starts.any(|start| has_word(pid, "environ", &start))
        || has_word(pid, "cmdline", &prefix.display().to_string())
}

/// Whether a file in `/proc` of words with zeros between them has one with this start.
fn has_word(pid: i32, file: &str, start: &str) -> bool {
    let words = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    words
        .split(|b| *b == 0)
        .any(|word| word.starts_with(start.as_bytes()))
}

fn is_ours(line: &str, prefix: &Path) -> bool {
    line.split_once(" - fuse.brisk ")
        .is_some_and(|(_, source)| source.starts_with(&*prefix.to_string_lossy()))
}

/// Calls `see` with each line of each living process's mount table, but for what a guardian has just started.
fn for_each_process(mut see: impl FnMut(i32, &str, &str)) {
    for entry in fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(table) = fs::read_to_string(format!("/proc/{pid}/mountinfo")) else {
            continue;
        };
        let comm = name_of(pid).unwrap_or_default();
        // What a guardian starts has the guardian's name until it takes its own.
        if comm == "brisk-guardian" && parent_of(pid).and_then(name_of).as_ref() == Some(&comm) {
            continue;
        }
        for line in table.lines() {
            see(pid, &comm, line);
        }
    }
}

/// None if the process has ended.
fn name_of(pid: i32) -> Option<String> {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(comm.trim_end().to_owned())
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// Kills what uses images whose path starts with `prefix`. If it does not end, because its threads wait for
/// answers that nobody gives, aborts its connections.
fn end_by_force(prefix: &Path) {
    for attempt in 0..200 {
        let left = processes(prefix);
        if left.is_empty() {
            return unmount_all(prefix);
        }
        for (pid, _) in left {
            if u32::try_from(pid) != Ok(std::process::id())
                && let Some(pid) = Pid::from_raw(pid)
            {
                // It may have ended by itself.
                kill_process(pid, Signal::KILL).ok();
            }
        }
        if attempt % 100 == 99 {
            abort(prefix);
        }
        thread::sleep(Duration::from_millis(10));
    }
    eprintln!("processes stay: {:?}", processes(prefix));
}

/// Unmounts what these tests see of images whose path starts with `prefix`.
fn unmount_all(prefix: &Path) {
    let table = fs::read_to_string(TABLE).unwrap();
    for line in table.lines().filter(|line| is_ours(line, prefix)) {
        let place = line.split(' ').nth(4).unwrap();
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

/// Aborts by number. Another connection may get that number later, so this is only for what hangs.
fn abort(prefix: &Path) {
    let mut devices = BTreeSet::new();
    for_each_process(|_, _, line| {
        if is_ours(line, prefix) {
            let device = device_of(line).and_then(|d| d.split_once(':'));
            devices.extend(device.map(|(_, minor)| minor.to_owned()));
        }
    });
    let control = Path::new("/sys/fs/fuse/connections");
    if fs::read_dir(control).is_ok_and(|mut entries| entries.next().is_none()) {
        let mounted = Command::new("mount")
            .args(["-t", "fusectl", "fusectl"])
            .arg(control)
            .status();
        eprintln!("mounting fusectl: {mounted:?}");
    }
    for device in devices {
        let aborted = fs::write(control.join(&device).join("abort"), "1");
        eprintln!("aborting the connection {device}: {aborted:?}");
    }
}

/// Bytes that no codec can compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}
