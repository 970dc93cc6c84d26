//! `brisk trace` of the whole system, as root: what it records, and that it restores the system.

mod staging;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::Limits;
use brisk_image::profile::{Asked, Profile, RootKind};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use staging::{Stage, watched, watched_in_kept_memory};

/// Only one trace at a time can use the kernel's events.
static ONE: Mutex<()> = Mutex::new(());

const SOON: Duration = Duration::from_secs(20);

/// Files on a disk. Nothing of them is in memory.
struct Files {
    dir: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Files {
    fn new() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = Self { dir, _one: one };
        let numbers: String = (0..400_000).map(|n| format!("{n} ")).collect();
        fs::write(files.path("numbers"), numbers).unwrap();
        fs::create_dir(files.path("sub")).unwrap();
        for name in ["one", "two", "sub/three"] {
            fs::write(files.path(name), name).unwrap();
        }
        for name in ["numbers", "one", "two", "sub/three"] {
            brisk_io::evict(&File::open(files.path(name)).unwrap()).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A trace of a script that is run among the files.
    fn tracing(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brisk"));
        command
            .args(["trace", "-o", "profile"])
            .args(options)
            .args(["--", "sh", "-c", script])
            .current_dir(self.dir.path());
        command
    }

    /// Traces a script. Returns the steps that concern the files, such as `numbers 100+3`.
    fn trace(&self, options: &[&str], script: &str) -> (Profile, Vec<String>, Output) {
        let output = self.tracing(options, script).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let profile = Profile::open(self.path("profile"), &Limits::default()).unwrap();
        let here = self.dir.path().canonicalize().unwrap();
        let mut steps = Vec::new();
        for step in profile.steps() {
            let Asked::Pages(range) = &step.asked else {
                continue;
            };
            let file = &profile.files()[range.file as usize];
            let root = &profile.roots()[file.root as usize];
            assert_eq!(root.kind, RootKind::System);
            if let Ok(path) = root.path.join(&file.path).strip_prefix(&here) {
                assert!(file.digest.is_some(), "{file:?}");
                steps.push(format!(
                    "{} {}+{}",
                    path.display(),
                    range.first,
                    range.count
                ));
            }
        }
        (profile, steps, output)
    }
}

/// The names below the directory `here` that were looked up, with `!` before those that were absent.
fn names(profile: &Profile, here: &Path) -> Vec<String> {
    let here = here.canonicalize().unwrap();
    let steps = profile.steps().iter();
    let looked_up = steps.filter_map(|step| match &step.asked {
        Asked::LookUp(look_up) => Some(look_up),
        _ => None,
    });
    let below = looked_up.filter_map(|look_up| {
        let directory = &profile.directories()[look_up.directory as usize];
        let root = &profile.roots()[directory.root as usize];
        let path = root.path.join(&directory.path).join(&look_up.name);
        let name = path.strip_prefix(&here).ok()?.to_str()?;
        Some(match look_up.found {
            true => name.to_owned(),
            false => format!("!{name}"),
        })
    });
    below.collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The read-ahead of all disks, without loop devices, which other tests make and remove.
fn read_aheads() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/bdi").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !name.starts_with("0:") && !name.starts_with("7:") {
            let path = entry.path().join("read_ahead_kb");
            found.push((path.clone(), fs::read_to_string(path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Whether a trace gets the kernel's events.
fn is_traced() -> bool {
    Path::new("/sys/kernel/tracing/instances/brisk").exists()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pages_that_come_into_memory_are_recorded_in_order() {
    watched(|| {
        let files = Files::new();
        // The file that was written has the inode of one that was removed, where the file system gives that again at once.
        let script = "dd if=numbers of=/dev/null bs=4096 skip=100 count=3 status=none; \
            dd if=numbers of=/dev/null bs=4096 skip=7 count=2 status=none; echo old > removed; sleep 0.2; rm removed; \
            (setsid sh -c 'cat sub/three' &); cat one; sleep 0.2; echo new > written; cat written";
        let before = read_aheads();
        let (_, steps, output) = files.trace(&["--keep-cache"], script);
        let (front, mut behind) = (steps[..2].to_vec(), steps[2..].to_vec());
        assert_eq!(front, ["numbers 100+3", "numbers 7+2"]);
        behind.sort();
        assert_eq!(behind, ["one 0+1", "sub/three 0+1"]);
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("left out: 1 file written meanwhile"),
            "{stderr}"
        );
        assert_eq!((read_aheads(), is_traced()), (before, false));
        // The profile works for a directory of the system, and for the whole system.
        for (tree, pages) in [
            (&*files.path(""), 7),
            (&files.path("sub"), 1),
            (Path::new("/"), 7),
        ] {
            let hot = Command::new(env!("CARGO_BIN_EXE_brisk"))
                .args([
                    "hot",
                    tree.to_str().unwrap(),
                    "--profile",
                    "profile",
                    "--json",
                ])
                .args(["-o", "/dev/shm/brisk-system.hot"])
                .current_dir(files.path(""))
                .output()
                .unwrap();
            assert_eq!(hot.status.code(), Some(0), "{hot:?}");
            let hot: serde_json::Value = serde_json::from_slice(&hot.stdout).unwrap();
            assert!(hot["pages"].as_u64() >= Some(pages), "{hot}");
        }
        fs::remove_file("/dev/shm/brisk-system.hot").unwrap();
    });
}

#[test]
fn names_that_were_opened_are_recorded() {
    watched(|| {
        let files = Files::new();
        for name in ["empty", "other", "gone"] {
            fs::write(files.path(name), "").unwrap();
        }
        // Whoever has opened them lives long enough to be seen.
        let script = "exec 3< empty 4< sub 5< gone 6< one; rm gone; cat <&6; touch ready; \
            while ! [ -e read ]; do sleep 0.01; done";
        for (options, by_others) in [(&[][..], 0), (&["--all-processes"], 1)] {
            fs::write(files.path("gone"), "").unwrap();
            for name in ["ready", "read"] {
                fs::remove_file(files.path(name)).ok();
            }
            brisk_io::evict(&File::open(files.path("one")).unwrap()).unwrap();
            let options = [&["--keep-cache"], options].concat();
            let mut brisk = files.tracing(&options, script).spawn().unwrap();
            wait_until("it starts", || files.path("ready").exists());
            File::open(files.path("other")).unwrap();
            fs::write(files.path("read"), "").unwrap();
            assert!(brisk.wait().unwrap().success());
            let profile = Profile::open(files.path("profile"), &Limits::default()).unwrap();
            let names = names(&profile, &files.path(""));
            let count = |name: &str| names.iter().filter(|one| *one == name).count();
            // The page of `one` is in the profile, and its name with it.
            let found = ["empty", "sub", "gone", "one", "other"].map(count);
            assert_eq!(found, [1, 1, 0, 0, by_others], "{names:?}");
        }
    });
}

#[test]
fn what_is_in_memory_is_emptied_unless_it_is_to_stay() {
    watched_in_kept_memory(|| {
        let files = Files::new();
        let fill = || assert!(fs::read(files.path("one")).is_ok());
        fill();
        let (_, steps, _) = files.trace(&["--keep-cache"], "cat one two");
        assert_eq!(steps, ["two 0+1"]);
        fill();
        let (profile, steps, _) = files.trace(&["--runs", "2"], "cat one two");
        assert_eq!(steps, ["one 0+1", "two 0+1"]);
        assert_eq!(profile.runs(), 2);
    });
}

#[test]
fn other_programs_are_not_recorded() {
    watched(|| {
        let files = Files::new();
        let script = "cat one; touch ready; while ! [ -e read ]; do sleep 0.01; done";
        let mut brisk = files.tracing(&["--keep-cache"], script).spawn().unwrap();
        wait_until("it starts", || files.path("ready").exists());
        assert_eq!(fs::read_to_string(files.path("two")).unwrap(), "two");
        fs::write(files.path("read"), "").unwrap();
        assert!(brisk.wait().unwrap().success());
        let profile = fs::read_to_string(files.path("profile")).unwrap();
        assert!(
            profile.contains("/one\"") && !profile.contains("/two\""),
            "{profile}"
        );
    });
}

#[test]
fn all_programs_are_recorded_if_that_is_asked_for() {
    watched(|| {
        let files = Files::new();
        let script = "touch ready; while ! [ -e read ]; do sleep 0.01; done";
        let options = ["--keep-cache", "--all-processes"];
        let mut brisk = files.tracing(&options, script).spawn().unwrap();
        wait_until("it starts", || files.path("ready").exists());
        assert_eq!(fs::read_to_string(files.path("two")).unwrap(), "two");
        fs::write(files.path("read"), "").unwrap();
        assert!(brisk.wait().unwrap().success());
        let profile = fs::read_to_string(files.path("profile")).unwrap();
        assert!(profile.contains("/two\""), "{profile}");
        // Nobody else has read it.
        assert!(!profile.contains("/numbers\""), "{profile}");
    });
}

/// A program that ends with the test.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        // It has ended already if the test has passed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts a trace that does not end by itself.
fn endless(files: &Files) -> Endless {
    let script = "touch ready; exec sleep 40";
    let mut brisk = files.tracing(&["--keep-cache"], script);
    let brisk = brisk.process_group(0).spawn().unwrap();
    let brisk = Endless(brisk);
    wait_until("it starts", || files.path("ready").exists());
    brisk
}

#[test]
fn the_system_is_put_back_however_a_trace_ends() {
    watched(|| {
        let before = read_aheads();
        type End = fn(&Child);
        let ends: [(&str, End); 4] = [
            ("Ctrl-C", |brisk| {
                kill_process_group(Pid::from_child(brisk), Signal::INT).unwrap();
            }),
            ("SIGTERM", |brisk| {
                kill_process(Pid::from_child(brisk), Signal::TERM).unwrap();
            }),
            ("SIGKILL", |brisk| {
                kill_process(Pid::from_child(brisk), Signal::KILL).unwrap();
            }),
            ("SIGKILL of the process that records", |brisk| {
                let id = brisk.id();
                let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
                let tracer = children.unwrap().trim().parse().unwrap();
                kill_process(Pid::from_raw(tracer).unwrap(), Signal::KILL).unwrap();
            }),
        ];
        for (what, end) in ends {
            let files = Files::new();
            let mut brisk = endless(&files);
            assert!(is_traced(), "{what}");
            let page = (rustix::param::page_size() >> 10).to_string();
            assert!(
                read_aheads().iter().all(|(_, kib)| kib.trim() == page),
                "{what}"
            );
            end(&brisk.0);
            assert!(!brisk.0.wait().unwrap().success(), "{what}");
            wait_until(what, || !is_traced() && read_aheads() == before);
            assert!(!files.path("profile").exists(), "{what}");
        }
    });
}

#[test]
fn one_trace_of_the_system_runs_at_a_time() {
    watched(|| {
        let files = Files::new();
        let mut brisk = endless(&files);
        let other = files.tracing(&["--keep-cache"], "true").output().unwrap();
        assert_eq!(other.status.code(), Some(125));
        let said = "brisk: cannot trace a launch from the whole system: another trace of the whole \
                    system is running; wait for its end\n";
        assert_eq!(text(&other.stderr), said);
        kill_process(Pid::from_child(&brisk.0), Signal::TERM).unwrap();
        brisk.0.wait().unwrap();
        wait_until("it is put back", || !is_traced());
    });
}

#[test]
fn a_command_that_does_not_exist_changes_nothing() {
    watched(|| {
        let files = Files::new();
        let before = read_aheads();
        let output = Command::new(env!("CARGO_BIN_EXE_brisk"))
            .args(["trace", "-o", "profile", "--keep-cache", "--", "./none"])
            .current_dir(files.path(""))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(127), "{output:?}");
        assert!(!files.path("profile").exists());
        assert_eq!((read_aheads(), is_traced()), (before, false));
    });
}

#[test]
fn without_root_it_is_refused() {
    watched(|| {
        let stage = Stage::new(1000);
        let trace = |options: &[&str]| {
            let mut arguments = vec!["trace", "-o", "home/profile"];
            arguments.extend(options);
            arguments.extend(["--", "true"]);
            let output = stage.brisk(&arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            text(&output.stderr)
        };
        let said = trace(&[]);
        assert!(
            said.contains(
                "name an image, or each directory that the program starts from with --tree"
            ),
            "{said}"
        );
        let said = trace(&["--root"]);
        assert_eq!(
            said,
            "brisk: --root needs an image, or a directory with --tree\n"
        );
        let mode = fs::metadata(stage.writable()).unwrap();
        assert_eq!(
            (mode.uid(), mode.permissions().mode() & 0o777),
            (1000, 0o755)
        );
    });
}
