//! What the processes of a session may do, and what they do not take over from the run that made it.

mod staging;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use staging::{Stage, each_user};

const NOTHING: &str = "0000000000000000";

/// `CAP_SYS_ADMIN` and `CAP_SYS_PTRACE`.
const TO_UNMOUNT: &str = "0000000000280000";

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A line of `/proc/PID/status`.
fn status(pid: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.expect(name).trim_start_matches(':').trim().to_owned()
}

/// The only process with this name, once it has limited itself. One that takes the place of another has the filter of its
/// guardian before.
fn limited(stage: &Stage, name: &str, capabilities: &str) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let [pid] = stage.processes(name)[..]
            && status(pid, "Seccomp") == "2"
            && status(pid, "CapPrm") == capabilities
        {
            return pid;
        }
        assert!(
            Instant::now() < deadline,
            "{name} has no filter, or other capabilities: {}",
            stage.log()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_limited(pid: i32, name: &str, capabilities: &str) {
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(status(pid, set), capabilities, "{set} of {name}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(status(pid, set), NOTHING, "{set} of {name}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1", "{name}");
}

#[test]
fn each_process_has_what_it_needs_and_the_program_has_all() {
    each_user(|stage| {
        let of_program = "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status";
        let own = text(&stage.plainly(&["sh", "-c", of_program]));
        // For the run that makes the session, and for one that joins it.
        for _ in 0..2 {
            assert_eq!(text(&stage.sh(of_program)), own);
        }
        for (name, capabilities) in [
            ("brisk-guardian", TO_UNMOUNT),
            ("mount-watchdog", TO_UNMOUNT),
            ("brisk-server", NOTHING),
        ] {
            assert_limited(limited(stage, name, capabilities), name, capabilities);
        }
        // A server that replaces another, and a watchdog, are started by a guardian that is limited already.
        for (name, capabilities) in [("brisk-server", NOTHING), ("mount-watchdog", TO_UNMOUNT)] {
            let first = limited(stage, name, capabilities);
            // The guardian would give up a watchdog that it has just started.
            std::thread::sleep(Duration::from_millis(200));
            kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while stage.processes(name).contains(&first) {
                assert!(Instant::now() < deadline, "{name} stays");
            }
            assert_limited(limited(stage, name, capabilities), name, capabilities);
        }
        assert_eq!(
            text(&stage.sh("cat $BRISK_TREE/sub/inside")),
            "from the image"
        );
        let said = text(&stage.brisk(&["stat", "-v"]).output().unwrap());
        let limits: Vec<_> = said
            .lines()
            .filter(|line| line.contains("limits"))
            .collect();
        assert_eq!(
            limits,
            [
                "  limits      capabilities, calls, files",
                "  limits      capabilities, calls"
            ],
            "{said}"
        );
        assert_eq!(stage.log(), "");
    });
}

/// Runs `command` behind others in the same process: a shell that changes what is inherited, and its tools.
fn behind(wrapper: &str, command: &Command) -> Command {
    let mut wrapped = Command::new("sh");
    wrapped
        .args(["-c", wrapper, "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            wrapped.env(name, value);
        }
    }
    wrapped.current_dir(command.get_current_dir().unwrap());
    wrapped
}

/// A column of `/proc/PID/limits`: the soft limit.
fn soft_limit(pid: i32, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let words = line.expect(name).split_whitespace().next();
    words.unwrap().to_owned()
}

#[test]
fn a_session_does_not_take_over_the_limits_of_its_first_run() {
    each_user(|stage| {
        let narrow = "ulimit -Sn 64; ulimit -St 100; ulimit -Sv 4000000; ulimit -Sf 1000; umask 0027; \
                      echo 500 > /proc/self/oom_score_adj; trap '' HUP TERM; \
                      exec taskset -c 0 ionice -c 3 chrt --batch 0 \"$@\"";
        let command = stage.run(&["bin/app", "true"]);
        assert_eq!(text(&behind(narrow, &command).output().unwrap()), "");
        let own = i32::try_from(std::process::id()).unwrap();
        for (name, capabilities) in [
            ("brisk-guardian", TO_UNMOUNT),
            ("brisk-server", NOTHING),
            ("mount-watchdog", TO_UNMOUNT),
        ] {
            let pid = limited(stage, name, capabilities);
            for limit in ["Max cpu time", "Max address space", "Max file size"] {
                assert_eq!(soft_limit(pid, limit), "unlimited", "{limit} of {name}");
            }
            let files: u64 = soft_limit(pid, "Max open files").parse().unwrap();
            assert!(files >= 256, "{name} may open {files} files");
            assert_eq!(status(pid, "Umask"), "0022", "{name}");
            let cpus = "Cpus_allowed_list";
            assert_eq!(status(pid, cpus), status(own, cpus), "{name}");
            assert_eq!(status(pid, "SigBlk"), NOTHING, "{name}");
            let text = |program: &[&str]| {
                let output = Command::new(program[0]).args(&program[1..]).output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            };
            let pid = pid.to_string();
            assert_eq!(text(&["ionice", "-p", &pid]), "none: prio 0\n", "{name}");
            let policy = text(&["chrt", "-p", &pid]);
            assert!(policy.contains("SCHED_OTHER"), "{policy} {name}");
            let likely = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
            assert_eq!(likely, "0\n", "{name}");
        }
        assert_eq!(stage.log(), "");
    });
}

#[test]
fn what_a_session_cannot_change_is_in_its_log() {
    each_user(|stage| {
        let hard = "ulimit -t 1000; exec nice -n 7 \"$@\"";
        let command = stage.run(&["bin/app", "true"]);
        assert_eq!(text(&behind(hard, &command).output().unwrap()), "");
        let server = limited(stage, "brisk-server", NOTHING);
        let nice = fs::read_to_string(format!("/proc/{server}/stat")).unwrap();
        let nice = nice.rsplit(')').next().unwrap().split_whitespace().nth(16);
        let log = stage.log();
        let slow = "this session keeps the niceness 7 of its first run, and may be slow: Permission denied";
        assert_eq!(nice, Some(if stage.is_root() { "0" } else { "7" }));
        assert_eq!(log.contains(slow), !stage.is_root(), "{log}");
        let short = "this session keeps the limit of its first run, 1000 (ulimit -t), and may fail because of it";
        // Root may raise every limit, except in a container that does not allow it.
        let raises = stage.is_root() && may_raise_limits();
        let found = soft_limit(server, "Max cpu time");
        assert_eq!(found, if raises { "unlimited" } else { "1000" });
        assert_eq!(log.contains(short), !raises, "{log}");
    });
}

fn may_raise_limits() -> bool {
    let own = i32::try_from(std::process::id()).unwrap();
    let capabilities = u64::from_str_radix(&status(own, "CapEff"), 16).unwrap();
    const SYS_RESOURCE: u64 = 1 << 24;
    capabilities & SYS_RESOURCE != 0
}
