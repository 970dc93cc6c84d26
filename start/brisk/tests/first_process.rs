//! A program has no children but those that it starts, also where brisk is the first process of a container.

mod staging;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use brisk_io::measure::evict_and_prove;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use staging::programs::copy_program;
use staging::{Stage, each_user};

/// What [`adopts_orphans`] becomes: words with a line end behind each.
const BECOMES: &str = "BRISK_TEST_BECOMES";

/// Starts a process, and waits for all children that there are.
#[test]
#[ignore = "it is the program that other tests start"]
#[expect(clippy::zombie_processes, reason = "it waits for all")]
fn waits_for_all_children() {
    let path = std::env::var_os("BRISK_TEST_READS").unwrap();
    assert_eq!(fs::read(path).unwrap().len(), 3 << 20);
    let own = Command::new("true").spawn().unwrap();
    let own = Pid::from_child(&own);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(ended) => assert_eq!(ended.map(|(pid, _)| pid), Some(own)),
            Err(Errno::CHILD) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Adopts what its descendants leave behind, as a supervisor does, and becomes another program.
#[test]
#[ignore = "it is the program that another test starts"]
fn adopts_orphans() {
    set_child_subreaper(Some(getpid())).unwrap();
    let words = std::env::var(BECOMES).unwrap();
    let mut words = words.lines();
    let error = Command::new(words.next().unwrap()).args(words).exec();
    panic!("{error}");
}

struct Case {
    stage: Stage,
    profile: String,
}

impl Case {
    fn new(user: u32) -> Self {
        let stage = Stage::on_disk(user);
        fs::write(stage.path("big"), vec![7; 3 << 20]).unwrap();
        // The user may have no way to the original.
        copy_program(std::env::current_exe().unwrap(), stage.path("waits"));
        let profile = stage.writable().join("profile");
        let profile = profile.to_str().unwrap().to_owned();
        let traced = stage
            .brisk(&["trace", "--tree", "tree", "-q", "-o", &profile, "--"])
            .args(["cat", "tree/text"])
            .output()
            .unwrap();
        assert!(traced.status.success(), "{traced:?}");
        Self { stage, profile }
    }

    /// All ways to start a program that may leave processes of brisk behind.
    fn ways(&self) -> Vec<Vec<&str>> {
        let mut ways = vec![
            vec!["run", "app.img", "--linger", "600"],
            vec!["run", "app.img", "--linger", "0"],
            vec!["run", "app.img", "--at", "at", "--linger", "0"],
            vec!["run", "tree", "--profile", &self.profile],
            vec!["run", "tree", "--profile", &self.profile, "-v"],
            vec!["replay", &self.profile],
            vec!["run", "tree", "--auto"],
        ];
        // Observed, and later replayed.
        ways.extend([(); 4].map(|()| vec!["run", "--auto"]));
        ways
    }

    /// A program that waits for all of its children, started in this way.
    fn waiting(&self, way: &[&str]) -> Command {
        evict_and_prove(&File::open(self.stage.path("big")).unwrap()).unwrap();
        let waits = self.stage.path("waits");
        let words = [way, &["--"]].concat();
        let mut command = self.stage.brisk(&words);
        command
            .arg(waits)
            .args(["--ignored", "--exact", "waits_for_all_children"])
            .env("BRISK_TEST_READS", self.stage.path("big"));
        command
    }
}

/// The same command as the first process of a PID namespace.
fn first(command: &Command) -> Command {
    let mut first = Command::new("unshare");
    first
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(command.get_program())
        .args(command.get_args());
    in_its_place(&mut first, command);
    first
}

/// Gives `other` the environment and the directory of `command`.
fn in_its_place(other: &mut Command, command: &Command) {
    let set = command.get_envs();
    other
        .envs(set.filter_map(|(name, value)| Some((name, value?))))
        .current_dir(command.get_current_dir().unwrap());
}

fn assert_passed(output: &Output, way: &[&str]) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{way:?}: {output:?}");
    assert!(said.contains("1 passed"), "{way:?}: {output:?}");
}

#[test]
fn below_a_first_process_a_program_has_no_children_of_others() {
    each_user(|given| {
        let case = Case::new(given.user());
        for way in case.ways() {
            let output = first(&case.waiting(&way)).output().unwrap();
            assert_passed(&output, &way);
        }
    });
}

#[test]
fn a_program_that_adopts_orphans_has_no_children_of_others() {
    each_user(|given| {
        let case = Case::new(given.user());
        for way in case.ways() {
            let waiting = case.waiting(&way);
            let words: Vec<_> = std::iter::once(waiting.get_program())
                .chain(waiting.get_args())
                .map(|word| word.to_str().unwrap())
                .collect();
            let mut adopts = Command::new(case.stage.path("waits"));
            adopts
                .args(["--ignored", "--exact", "adopts_orphans", "--nocapture"])
                .env(BECOMES, words.join("\n"));
            in_its_place(&mut adopts, &waiting);
            assert_passed(&adopts.output().unwrap(), &way);
        }
    });
}

#[test]
fn the_first_process_exits_as_the_program_does_and_holds_nothing() {
    each_user(|stage| {
        // What it holds open, nobody could see the end of.
        let held = "test $(readlink /proc/1/cwd) = / && test -z \"$(ls /proc/1/fd)\"";
        let mut scripts = vec![
            ("exit 7", 7),
            ("kill -KILL $$", 137),
            // An orphan does not keep it.
            ("sleep 60 & exit 3", 3),
        ];
        // Only root may look.
        if stage.is_root() {
            scripts.push((held, 0));
        }
        for (script, code) in scripts {
            let program = ["sh", "-c", script];
            let command = stage.lingering("600", &program);
            let output = first(&command).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
        }
    });
}

#[test]
fn the_first_process_passes_signals_on() {
    each_user(|stage| {
        let script = "trap 'exit 5' TERM; trap 'echo usr1' USR1; echo ready; \
                      while :; do sleep 0.05; done";
        let command = stage.lingering("600", &["sh", "-c", script]);
        let mut child = first(&command).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let first = fs::read_to_string(children).unwrap();
        let first = Pid::from_raw(first.trim().parse().unwrap()).unwrap();
        kill_process(first, Signal::USR1).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "usr1");
        kill_process(first, Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5));
    });
}
