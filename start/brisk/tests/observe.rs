//! `brisk run --auto -- CMD`: launches that are observed where they are.

mod staging;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::profile::Profile;
use brisk_io::measure::evict_and_prove;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use staging::documented::assert_documented;
use staging::programs::{copy_program, make_executable};
use staging::{Stage, each_user, profile_of_record};

/// How long to wait for something that happens at once.
const SOON: Duration = Duration::from_secs(30);

/// A large file, and a stage on a disk.
fn stage(user: u32) -> Stage {
    let stage = Stage::on_disk(user);
    fs::write(stage.path("big"), vec![7; 3 << 20]).unwrap();
    stage
}

fn auto(stage: &Stage, program: &[&str]) -> Command {
    let arguments = ["run", "--auto", "-v", "--"];
    let mut command = stage.brisk(&[&arguments, program].concat());
    command.env("XDG_CACHE_HOME", stage.path("home"));
    // Looks from outside miss some, and nobody knows which.
    command.env("BRISK_THOROUGH", "1");
    command
}

/// The same, but brisk only looks at the launch, from outside.
fn auto_from_outside(stage: &Stage, program: &[&str]) -> Command {
    let mut command = auto(stage, program);
    command.env_remove("BRISK_THOROUGH");
    command
}

fn list(stage: &Stage) -> Vec<Value> {
    let mut command = stage.brisk(&["auto", "list", "--json"]);
    command.env("XDG_CACHE_HOME", stage.path("home"));
    let output = command.output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    list["learned"].as_array().cloned().unwrap_or_default()
}

#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} takes too long");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until one profile is learned.
#[track_caller]
fn learned(stage: &Stage) -> Profile {
    let key = until("learning", || {
        let list = list(stage);
        Some(list.first()?["key"].as_str()?.to_owned())
    });
    let record = stage.path("home/brisk/hot").join(format!("{key}.record"));
    until("a profile", || profile_of_record(&record))
}

/// How many pages of a file were asked for.
fn pages(profile: &Profile, end: &str) -> u64 {
    let named = |path: &std::path::Path| path.to_str().is_some_and(|path| path.ends_with(end));
    let ranges = profile.ranges();
    let of_file = ranges.filter(|(_, range)| {
        let file = &profile.files()[range.file as usize];
        named(&profile.shown_path(file))
    });
    of_file.map(|(_, range)| range.end() - range.first).sum()
}

const OBSERVED: &str = "brisk observes this start";
const ATTACHED: &str = "brisk attaches to this program";

#[test]
fn a_launch_without_an_image_is_learned_wherever_its_files_lie() {
    each_user(|given| {
        let stage = stage(given.user());
        let script =
            "cat big > home/copy; head -c 10000 tree/noise > /dev/null; test -e none; exit 7";
        let run = || {
            let output = auto(&stage, &["sh", "-c", script]).output().unwrap();
            assert_eq!(output.status.code(), Some(7), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let said = run();
        assert!(said.contains(ATTACHED), "{said}");
        // It writes as ever.
        assert_eq!(fs::read(stage.path("home/copy")).unwrap().len(), 3 << 20);
        let profile = learned(&stage);
        assert_eq!(pages(&profile, "/big"), 768);
        let noise = pages(&profile, "/tree/noise");
        assert!((3..=32).contains(&noise), "{noise}");
        assert!(pages(&profile, "/bin/cat") > 0);
        assert!(pages(&profile, "/libc.so.6") > 50);
        // What it writes, it does not ask for.
        assert_eq!(pages(&profile, "/home/copy"), 0);
        let list = list(&stage);
        assert_eq!(list[0]["kind"], "program");
        assert_eq!(list[0]["state"], "learned");
        let shell = list[0]["image"].as_str().unwrap();
        assert!(shell.ends_with("/sh"), "{shell}");
        until("a start without a replay", || {
            let said = run();
            said.contains("seems to be in memory; nothing is replayed")
                .then_some(())
        });
        let big = fs::File::open(stage.path("big")).unwrap();
        brisk_io::measure::evict_and_prove(&big).unwrap();
        let said = run();
        assert!(said.contains(" asked for in "), "{said}");
    });
}

#[test]
fn a_launch_that_has_just_ended_is_forgotten_with_the_rest() {
    each_user(|given| {
        let stage = stage(given.user());
        for round in 0..5 {
            let output = auto(&stage, &["sh", "-c", "cat big > /dev/null"]).output();
            assert!(output.unwrap().status.success());
            // The observer may only now write what it has seen.
            let mut forget = stage.brisk(&["auto", "forget", "sh"]);
            let output = forget
                .env("XDG_CACHE_HOME", stage.path("home"))
                .output()
                .unwrap();
            assert!(output.status.success(), "round {round}: {output:?}");
            assert_eq!(list(&stage), Vec::<Value>::new(), "round {round}");
        }
    });
}

#[test]
fn a_program_that_is_observed_is_the_process_that_was_started() {
    each_user(|given| {
        let stage = stage(given.user());
        let script = "echo $$; read line; echo $line; kill -TERM $$";
        let mut command = auto(&stage, &["sh", "-c", script]);
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child = command.stdin(input).stdout(output).spawn().unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"word\n").unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(Signal::TERM.as_raw()));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("{id}\nword\n"));
        learned(&stage);
    });
}

/// A program that gets the rights of root: it says as whom it runs.
fn trusted(stage: &Stage) {
    let path = stage.path("as-root");
    copy_program("/usr/bin/id", &path);
    chown(&path, Some(0), Some(0)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
}

#[test]
fn programs_get_their_rights_however_they_are_started_and_observed() {
    each_user(|given| {
        for is_attached in [false, true] {
            let stage = stage(given.user());
            trusted(&stage);
            let script = format!("#!{} -u\n", stage.path("as-root").display());
            fs::write(stage.path("script"), script).unwrap();
            make_executable(stage.path("script"));
            let run = |program: &[&str]| {
                let mut command = match is_attached {
                    true => auto(&stage, program),
                    false => auto_from_outside(&stage, program),
                };
                let output = command.output().unwrap();
                assert!(output.status.success(), "{output:?}");
                let text = |bytes| String::from_utf8(bytes).unwrap();
                (text(output.stdout), text(output.stderr))
            };
            let by_descriptor = "import os; f = os.open('as-root', os.O_PATH); p = os.fork(); \
                p or os.execve(f, ['id', '-u'], {}); os.waitpid(p, 0)";
            let by_link = "import os; f = os.open('as-root', os.O_PATH); p = os.fork(); \
                p or os.execv('/proc/self/fd/%d' % f, ['id', '-u']); os.waitpid(p, 0)";
            for python in [by_descriptor, by_link] {
                let (out, _) = run(&["/usr/bin/python3", "-c", python]);
                assert_eq!(out, "0\n", "{is_attached} {python}");
            }
            // The kernel gives the script, too, to what its first line names.
            let (out, said) = run(&[
                "sh",
                "-c",
                "cat big > /dev/null; ./as-root -u; ./script 2>&1 | tail -n 1",
            ]);
            assert!(out.starts_with("0\n"), "{out}");
            assert!(
                said.contains(if is_attached { ATTACHED } else { OBSERVED }),
                "{said}"
            );
            let (out, said) = run(&["./as-root", "-u"]);
            assert_eq!(out, "0\n");
            assert!(said.contains("gets more rights than you have"), "{said}");
        }
    });
}

/// The process that traces `child`.
fn tracer(child: &Child) -> i32 {
    tracer_of(child.id())
}

fn tracer_of(process: u32) -> i32 {
    number_in(process, "TracerPid:")
}

/// A number of a line of `/proc/PROCESS/status`.
fn number_in(process: u32, name: &str) -> i32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

fn is_stopped(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit(')').next().unwrap().trim().starts_with('T')
}

#[test]
fn a_program_that_is_suspended_is_let_go_and_goes_on() {
    each_user(|given| {
        let stage = stage(given.user());
        let script = "cat big > /dev/null; echo; read line; exit 3";
        let mut command = auto(&stage, &["sh", "-c", script]);
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child = command.stdin(input).stdout(output).spawn().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        assert_ne!(tracer(&child), 0);
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        until("letting it go", || (tracer(&child) == 0).then_some(()));
        until("stopping", || is_stopped(&child).then_some(()));
        assert_eq!(pages(&learned(&stage), "/big"), 768);
        kill_process(pid, Signal::CONT).unwrap();
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(3));
    });
}

/// A cold start reads its code before anything else, so it needs no other program of brisk.
#[test]
fn what_is_learned_starts_by_the_small_program_alone() {
    each_user(|given| {
        let stage = stage(given.user());
        let script = "cat big | wc -c; exit 7";
        auto(&stage, &["sh", "-c", script]).output().unwrap();
        learned(&stage);
        let alone = stage.path("alone");
        fs::create_dir(&alone).unwrap();
        // With another process: a file that a thread of this one writes may be open in a child of another thread.
        let copied = Command::new("cp")
            .args([stage.executable(), alone.join("brisk")])
            .status();
        assert!(copied.unwrap().success());
        let cache = format!("XDG_CACHE_HOME={}", stage.path("home").display());
        let small = alone.join("brisk");
        let run = |program: &[&str]| {
            let brisk = [
                "env",
                &cache,
                small.to_str().unwrap(),
                "run",
                "--auto",
                "--",
            ];
            let output = stage.plainly(&[&brisk, program].concat());
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (
                output.status.code(),
                text(output.stdout),
                text(output.stderr),
            )
        };
        let expected = (Some(7), "3145728\n".to_owned(), String::new());
        // From memory and from the disk.
        assert_eq!(run(&["sh", "-c", script]), expected);
        evict_and_prove(&File::open(stage.path("big")).unwrap()).unwrap();
        assert_eq!(run(&["sh", "-c", script]), expected);
        // By a link, too.
        let links = stage.path("links");
        fs::create_dir(&links).unwrap();
        symlink(&small, links.join("sh")).unwrap();
        let path = format!("PATH={}:/usr/bin:/bin", links.display());
        let output = stage.plainly(&["env", &cache, &path, "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(output.stdout, b"3145728\n");
        let (code, _, said) = run(&["sh", "-c", "exit 0"]);
        assert_eq!(code, Some(125));
        assert!(said.contains("brisk needs it to start programs"), "{said}");
        // A profile that is named is replayed, too. What is wrong with it, the other program says.
        let learned = fs::read_dir(stage.path("home/brisk/hot")).unwrap();
        let is_record = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "record");
        let record = learned
            .map(|entry| entry.unwrap().path())
            .find(is_record)
            .unwrap();
        let profile = stage.path("a.profile");
        profile_of_record(&record).unwrap().write(&profile).unwrap();
        let profile = profile.to_str().unwrap();
        let replayed = |profile: &str| {
            let beside = [
                small.to_str().unwrap(),
                "replay",
                profile,
                "--disk",
                "iops=9000",
                "--",
            ];
            evict_and_prove(&File::open(stage.path("big")).unwrap()).unwrap();
            stage.plainly(&[&beside, &["sh", "-c", script][..]].concat())
        };
        let output = replayed(profile);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(output.stdout, b"3145728\n");
        assert_eq!(replayed("none.profile").status.code(), Some(125));
    });
}

/// Says in the record of the only launch that it lasts for so long.
fn set_length(stage: &Stage, microseconds: u32) {
    let directory = stage.path("home/brisk/hot");
    let entries = fs::read_dir(directory).unwrap();
    let path = entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "record"))
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    // As the table in `record.rs` has it: a sample begins with this number.
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (start, len) = (64 + number(48) as usize, number(52) as usize);
    let sample = &bytes[start..start + len];
    let end = sample.iter().position(|byte| *byte == 0).unwrap();
    let sample = [microseconds.to_string().as_bytes(), &sample[end..]].concat();
    let len = u32::try_from(sample.len()).unwrap().to_le_bytes();
    let rest = &bytes[start + number(52) as usize..];
    let changed = [&bytes[..52], &len, &bytes[56..start], &sample, rest].concat();
    // Its owner stays.
    fs::write(path, changed).unwrap();
}

#[test]
fn a_long_launch_waits_for_its_replay_unless_all_is_in_memory() {
    let stage = stage(0);
    let big = File::open(stage.path("big")).unwrap();
    let script = "cat big";
    let run = auto(&stage, &["sh", "-c", script]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    until("learning", || {
        (list(&stage).first()?["state"] == "learned").then_some(())
    });
    let waits = || {
        let calls = stage.path("calls");
        let brisk = auto(&stage, &["sh", "-c", script]);
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "trace=execve,poll,ppoll", "-o"]);
        strace.arg(&calls).arg(brisk.get_program());
        strace.args(brisk.get_args());
        let surroundings = brisk
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        strace.envs(surroundings);
        strace.current_dir(brisk.get_current_dir().unwrap());
        let run = strace.output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let calls = fs::read_to_string(calls).unwrap();
        // The last one becomes the program, which waits in its own way.
        let of_brisk = calls.rsplit_once("\nexecve(").unwrap().0;
        let of_one_file = |call: &&str| call.starts_with("p") && call.contains("}], 1, ");
        let waits = of_brisk.lines().filter(of_one_file).count();
        let said = String::from_utf8_lossy(&run.stderr);
        (waits, format!("{calls}{said}"))
    };
    for (length, is_long) in [(249_999, false), (250_000, true)] {
        set_length(&stage, length);
        // Others may make the kernel drop pages, or read them: then the next try shows it.
        until("a start from memory", || {
            fs::read(stage.path("big")).unwrap();
            let (waits, told) = waits();
            (waits == 0 && told.contains("seems to be in memory")).then_some(())
        });
        until("a start from the disk", || {
            evict_and_prove(&big).unwrap();
            let (waits, told) = waits();
            let is_from_disk = told.contains(" asked for in ");
            assert!(!is_from_disk || waits == usize::from(is_long), "{told}");
            is_from_disk.then_some(())
        });
    }
}

/// How the program's process looks from outside, without numbers that differ between two of the same.
fn state_of(process: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let status = read("status");
    let fixed = [
        "SigPnd",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "ShdPnd",
        "Cap",
        "NoNewPrivs",
        "Seccomp",
        "TracerPid",
        "Threads",
    ];
    let lines = status
        .lines()
        .filter(|line| fixed.iter().any(|name| line.starts_with(name)));
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let children = read(&format!("task/{process}/children"));
    let lines: Vec<_> = lines.collect();
    format!(
        "{}\n{descriptors} {children:?}\n{}",
        lines.join("\n"),
        read("limits")
    )
}

#[test]
fn a_program_that_is_looked_at_is_what_it_is_without_brisk() {
    each_user(|given| {
        let stage = stage(given.user());
        let state = |mut command: Command| {
            let (input, output) = (Stdio::piped(), Stdio::piped());
            command.stdin(input).stdout(output).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut byte = [0];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
            let mut seen: Vec<_> = (0..200).map(|_| state_of(child.id())).collect();
            seen.dedup();
            drop(child.stdin.take());
            assert_eq!(child.wait().unwrap().code(), Some(3));
            seen
        };
        let script = ["sh", "-c", "read -r word < big; echo; read line; exit 3"];
        let mut plain = Command::new("setpriv");
        let user = given.user();
        plain
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups"])
            .args(script)
            .current_dir(stage.path("."));
        let expected = state(plain);
        assert_eq!(state(auto_from_outside(&stage, &script)), expected);
        // With what is known replayed beside it.
        learned(&stage);
        evict_and_prove(&File::open(stage.path("big")).unwrap()).unwrap();
        assert_eq!(state(auto_from_outside(&stage, &script)), expected);
    });
}

/// It does not wait for itself, for example.
#[test]
fn an_observer_ends_with_its_program() {
    each_user(|given| {
        let stage = stage(given.user());
        let output = auto_from_outside(&stage, &["sleep", "0.3"]).output();
        assert!(output.unwrap().status.success());
        let since = Instant::now();
        until("learning", || list(&stage).first().map(drop));
        assert!(
            since.elapsed() < Duration::from_secs(12),
            "{:?}",
            since.elapsed()
        );
    });
}

/// Whether an observer watches the directory with this inode (`proc_pid_fdinfo(5)`).
fn is_watched(directory: u64) -> bool {
    let watch = format!(" ino:{directory:x} ");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let observers = processes.filter(|process| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name == "brisk-observe\n")
    });
    let descriptors =
        observers.filter_map(|observer| fs::read_dir(observer.path().join("fdinfo")).ok());
    descriptors.flatten().flatten().any(|descriptor| {
        fs::read_to_string(descriptor.path()).is_ok_and(|text| text.contains(&watch))
    })
}

#[test]
fn what_is_mapped_and_what_is_read_is_seen_from_outside() {
    each_user(|given| {
        let stage = stage(given.user());
        fs::write(stage.path("late"), "late").unwrap();
        copy_program("/bin/sleep", stage.path("late-program"));
        // It ends by itself, though it may be told nothing.
        let script = "for n in $(seq 300); do test -e go && break; ./late-program 0.2; done; cat late; ./late-program 0.2";
        let mut command = auto_from_outside(&stage, &["sh", "-c", script]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let directory = fs::metadata(stage.path("")).unwrap().ino();
        until("watching", || is_watched(directory).then_some(()));
        fs::write(stage.path("go"), "").unwrap();
        assert!(child.wait().unwrap().success());
        let profile = learned(&stage);
        // Not that of the other user, who reads beside it.
        let path = stage.path("late").canonicalize().unwrap();
        let path = path.strip_prefix("/").unwrap();
        assert_eq!(pages(&profile, path.to_str().unwrap()), 1, "{path:?}");
        assert!(pages(&profile, "/late-program") > 0);
        assert!(pages(&profile, "/libc.so.6") > 50);
    });
}

/// As compilers do, and browsers.
#[test]
fn files_that_a_launch_makes_are_not_learned_and_learning_ends() {
    each_user(|given| {
        let stage = stage(given.user());
        // The directory is watched by then.
        let script = "sleep 0.5; cat big > /dev/null; for n in $(seq 60); do echo $n > home/$$-$n; done; \
            sleep 0.3; cat home/$$-* > /dev/null; echo > home/output; cat home/output; rm home/$$-*";
        let run = || {
            evict_and_prove(&File::open(stage.path("big")).unwrap()).unwrap();
            let output = auto_from_outside(&stage, &["sh", "-c", script])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let mut observed = 0;
        for _ in 0..6 {
            observed += u64::from(run().contains(OBSERVED));
            until("learning", || {
                (list(&stage).first()?["runs"].as_u64()? == observed).then_some(())
            });
        }
        // If the first one has missed the large file, the rest is in memory.
        assert!((1..=3).contains(&observed), "{observed}");
        let profile = learned(&stage);
        let names = profile.files().iter().map(|file| &file.path);
        let made: Vec<_> = names
            .filter(|path| path.to_str().unwrap().contains("/home/"))
            .collect();
        assert_eq!(made, [] as [&PathBuf; 0]);
    });
}

#[test]
fn a_record_has_neither_arguments_nor_documents_of_one_launch() {
    each_user(|given| {
        let stage = stage(given.user());
        fs::write(stage.path("letter-to-anna"), vec![7; 3 << 20]).unwrap();
        let run = || {
            let script = "cat \"$1\" > /dev/null; sleep 0.3; : hunter2";
            let program = ["sh", "-c", script, "sh", "letter-to-anna"];
            let output = auto(&stage, &program).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            learned(&stage);
        };
        let kept = || {
            let entries = fs::read_dir(stage.path("home/brisk/hot")).unwrap();
            let mut all = Vec::new();
            for entry in entries {
                let path = entry.unwrap().path();
                let mode = fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
                all.extend(fs::read(path).unwrap());
            }
            all
        };
        let has = |all: &[u8], word: &[u8]| all.windows(word.len()).any(|part| part == word);
        run();
        let all = kept();
        assert!(has(&all, b"/sh"), "the program");
        assert!(!has(&all, b"hunter2") && !has(&all, b"letter-to-anna"));
    });
}

/// A debugger starts its program by vfork, and that asks to be traced before it is the program.
#[test]
fn a_program_that_traces_what_it_starts_by_vfork_goes_on() {
    const DEBUGGER: &str = r#"#include <stdio.h>
#include <unistd.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
int main() {
    int status;
    pid_t child = vfork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(9);
        execl("/bin/true", "true", (char *) 0);
        _exit(8);
    }
    waitpid(child, &status, 0);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    return status != 0;
}
"#;
    each_user(|given| {
        let stage = stage(given.user());
        fs::write(stage.path("debugger.c"), DEBUGGER).unwrap();
        let built = Command::new("cc")
            .args(["-w", "-o", "debugger", "debugger.c"])
            .current_dir(stage.path("."))
            .status();
        assert!(built.unwrap().success());
        for mut command in [
            auto_from_outside(&stage, &["./debugger"]),
            auto(&stage, &["./debugger"]),
            auto(&stage, &["sh", "-c", "./debugger & ./debugger && wait $!"]),
        ] {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    });
}

#[test]
fn an_observer_that_is_killed_ends_nothing() {
    each_user(|given| {
        let stage = stage(given.user());
        let mut command = auto(&stage, &["sh", "-c", "echo; read line; exit 3"]);
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child = command.stdin(input).stdout(output).spawn().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        // One of its threads traces.
        let tracer_thread = u32::try_from(tracer(&child)).unwrap();
        let observer = Pid::from_raw(number_in(tracer_thread, "Tgid:")).expect("it is observed");
        kill_process(observer, Signal::KILL).unwrap();
        until("letting it go", || (tracer(&child) == 0).then_some(()));
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(list(&stage), [] as [Value; 0]);
    });
}

/// Writes small pieces, and says what differs from a process that nobody observes.
const WRITES: &str = r#"
import os
read, write = os.pipe()
before = sorted(os.listdir("/proc/self/fd"))
for n in range(2000):
    if os.write(write, b"abcd") != 4 or os.read(read, 9) != b"abcd":
        print("a write is lost", n)
state = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines())
for name in ["SigBlk", "SigIgn"]:
    print(name, state[name])
print(sorted(os.listdir("/proc/self/fd")) == before)
"#;

#[test]
fn killed_observers_harm_nobody() {
    kill_observers(30);
}

#[test]
#[ignore = "torture: takes minutes"]
fn five_hundred_killed_observers_harm_nobody() {
    kill_observers(250);
}

/// For each kind of user, so many starts, at a moment of which an observer is killed.
fn kill_observers(rounds: u64) {
    each_user(move |given| {
        let stage = stage(given.user());
        fs::write(stage.path("writes.py"), WRITES).unwrap();
        let program = ["/usr/bin/python3", "writes.py"];
        let expected = stage.plainly(&program).stdout;
        let expected = String::from_utf8(expected).unwrap();
        let mut killed = 0;
        for round in 0..rounds {
            // Nothing is known of it, so it is observed.
            fs::remove_dir_all(stage.path("home/brisk")).ok();
            let mut command = auto(&stage, &program);
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_micros(round * 7919 % 400_000));
            let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
            let tracer = status.ok().and_then(|status| {
                let line = status
                    .lines()
                    .find_map(|line| line.strip_prefix("TracerPid:"))?;
                let thread = line
                    .trim()
                    .parse::<u32>()
                    .ok()
                    .filter(|thread| *thread > 0)?;
                let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
                let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
                Pid::from_raw(line.trim().parse().ok()?)
            });
            if let Some(observer) = tracer {
                kill_process(observer, Signal::KILL).ok();
                killed += 1;
            }
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{round}: {output:?}");
            let found = String::from_utf8(output.stdout).unwrap();
            assert_eq!(found, expected, "{round}");
        }
        assert!(killed > 0, "nobody was observed");
    });
}

#[test]
fn a_program_that_traces_can_do_so() {
    each_user(|given| {
        let stage = stage(given.user());
        let script = "cat big > /dev/null; strace -f -o home/calls cat big | wc -c; exit 5";
        let output = auto(&stage, &["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        assert_eq!(output.stdout, format!("{}\n", 3 << 20).as_bytes());
        let calls = fs::read_to_string(stage.path("home/calls")).unwrap();
        assert!(
            calls.contains("execve(") && calls.contains("exited with 0"),
            "{calls}"
        );
        assert_eq!(pages(&learned(&stage), "/big"), 768);
    });
}

#[test]
fn what_an_observed_program_starts_by_brisk_belongs_to_its_launch() {
    each_user(|given| {
        let stage = stage(given.user());
        let inner = stage.executable();
        let script = format!(
            "{} run --auto -v -- cat big; exit 5",
            inner.to_str().unwrap()
        );
        let output = auto(&stage, &["sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        assert_eq!(output.stdout.len(), 3 << 20);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches(ATTACHED).count(), 1, "{said}");
        assert_eq!(pages(&learned(&stage), "/big"), 768);
        assert_eq!(list(&stage).len(), 1);
    });
}

#[test]
fn a_link_with_the_name_of_a_program_starts_it_faster() {
    each_user(|given| {
        let stage = stage(given.user());
        let data = stage.path("home/data");
        let change = |verb: &str, name: &str| {
            let mut command = stage.brisk(&["auto", verb, name]);
            command.env("XDG_DATA_HOME", &data);
            command.env("XDG_DATA_DIRS", stage.path("system"));
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            (output.status.code(), text)
        };
        let menus = stage.path("system/applications");
        fs::create_dir_all(&menus).unwrap();
        fs::write(menus.join("cat.desktop"), "[Desktop Entry]\nExec=cat %f\n").unwrap();
        // Another path of the same program.
        let other = stage.path("system/cat");
        let real = fs::canonicalize("/bin/cat").unwrap();
        std::os::unix::fs::symlink(real, &other).unwrap();
        let exec = format!("[Desktop Entry]\nExec=env A=b {}\n", other.display());
        fs::write(menus.join("other.desktop"), exec).unwrap();
        let (code, said) = change("on", "cat");
        assert_eq!(code, Some(0), "{said}");
        let entry = data.join("applications/cat.desktop");
        let text = fs::read_to_string(&entry).unwrap();
        let exec = format!("Exec=\"{}\" %f\n", data.join("brisk/bin/cat").display());
        assert!(text.ends_with(&exec), "{text}");
        let link = data.join("brisk/bin/cat");
        let text = fs::read_to_string(data.join("applications/other.desktop")).unwrap();
        let exec = format!("Exec=env A=b \"{}\"\n", link.display());
        assert!(text.ends_with(&exec), "{text}");
        assert!(
            said.contains(&format!(
                "export PATH={}:",
                data.join("brisk/bin").display()
            )),
            "{said}"
        );
        let start = || {
            let path = format!(
                "{}:{}",
                data.join("brisk/bin").display(),
                std::env::var("PATH").unwrap()
            );
            let mut command = Command::new("setpriv");
            let user = given.user();
            command
                .args([format!("--reuid={user}"), format!("--regid={user}")])
                .args(["--clear-groups", "cat", "big"])
                .current_dir(stage.path("."))
                .env("PATH", path)
                .env("XDG_CACHE_HOME", stage.path("home"))
                .env("BRISK_THOROUGH", "1");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(output.stdout.len(), 3 << 20);
        };
        start();
        assert!(pages(&learned(&stage), "/libc.so.6") > 50);
        start();
        let listed = |more: &[&str]| {
            let listed = stage
                .brisk(&[&["auto", "list"], more].concat())
                .env("XDG_CACHE_HOME", stage.path("home"))
                .env("XDG_DATA_HOME", &data)
                .output();
            String::from_utf8(listed.unwrap().stdout).unwrap()
        };
        let json = listed(&["--json"]);
        assert_documented("auto list", &json);
        let linked = &serde_json::from_str::<Value>(&json).unwrap()["linked"];
        assert_eq!(linked["programs"], serde_json::json!(["cat"]));
        assert_eq!(linked["is_first_in_path"], false);
        let listed = listed(&[]);
        let expected = format!(
            "links that start programs through brisk: cat (in {}, which is not first in PATH)\n",
            data.join("brisk/bin").display()
        );
        assert!(listed.ends_with(&expected), "{listed}");
        // Not the first of its name in PATH.
        let copy = stage.path("home/cat");
        copy_program("/bin/true", &copy);
        let (code, said) = change("on", copy.to_str().unwrap());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("cat: the link would start /"), "{said}");
        let (code, said) = change("on", "none-of-this-name");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("there is no such program in PATH"), "{said}");
        assert_eq!(change("off", "cat").0, Some(0));
        assert!(link.symlink_metadata().is_err());
        assert!(!entry.exists());
        assert_eq!(change("off", "cat").0, Some(1));
        let mut forget = stage.brisk(&["auto", "forget", "cat"]);
        forget.env("XDG_CACHE_HOME", stage.path("home"));
        assert!(forget.status().unwrap().success());
        assert_eq!(list(&stage), [] as [Value; 0]);
        let output = forget.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stderr, b"nothing is learned of cat\n");
    });
}

#[test]
fn the_dashes_that_are_missing_before_a_program_are_named() {
    each_user(|given| {
        let stage = stage(given.user());
        for (name, found) in [
            ("/bin/true", " is no image: it is a program"),
            (
                "gcc",
                ": cannot open the image: No such file or directory (os error 2)",
            ),
        ] {
            let output = stage.brisk(&["run", "--auto", name]).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.starts_with(&format!("brisk: {name}{found}")), "{said}");
            let advice = format!(
                "; to start a program from where it is, name it behind --: brisk run --auto -- {name}\n"
            );
            assert!(said.ends_with(&advice), "{said}");
        }
    });
}

#[test]
fn programs_are_linked_though_another_one_is_not_there() {
    each_user(|given| {
        let stage = stage(given.user());
        let data = stage.path("home/data");
        let jdk = stage.path("jdk");
        fs::create_dir_all(jdk.join("bin")).unwrap();
        fs::write(jdk.join("release"), "").unwrap();
        for name in ["java", "tool"] {
            copy_program("/bin/echo", jdk.join("bin").join(name));
        }
        fs::rename(jdk.join("bin/tool"), stage.path("tool")).unwrap();
        let links = data.join("brisk/bin");
        let search = [&links, &jdk.join("bin"), &stage.path("")];
        let search: Vec<_> = search.map(|path| path.to_str().unwrap()).into();
        let search = format!("{}:/usr/bin:/bin", search.join(":"));
        let mut on = stage.brisk(&["auto", "on", "nosuch", "java", "tool"]);
        let on = on.env("PATH", &search).env("XDG_DATA_HOME", &data);
        let output = on.output().unwrap();
        let (links, real) = (links.display(), jdk.join("bin/java"));
        let expected = format!(
            "brisk: nosuch: there is no such program in PATH\n\
             {links}/java now starts {} faster\n\
             brisk: warning: scripts that find the JDK by `readlink -f` of java find brisk now; set JAVA_HOME={}\n\
             {links}/tool now starts {} faster\n",
            real.display(),
            jdk.canonicalize().unwrap().display(),
            stage.path("tool").display()
        );
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said), (Some(2), expected));
        // A link to a link is the program, too, also with the name of another program of PATH.
        for name in ["other", "false"] {
            let other = stage.path(name);
            std::os::unix::fs::symlink(format!("{links}/tool"), &other).unwrap();
            let mut other = Command::new(&other);
            let other = other.arg("stat").env("PATH", format!("{search}:/usr/bin"));
            let output = other.env("XDG_DATA_HOME", &data).output().unwrap();
            assert_eq!(output.stdout, b"stat\n", "{output:?}");
        }
    });
}

/// Its arguments would be verbs of brisk otherwise.
#[test]
fn a_link_whose_program_is_gone_says_so() {
    each_user(|given| {
        let stage = stage(given.user());
        let data = stage.path("home/data");
        let tools = stage.path("tools");
        fs::create_dir(&tools).unwrap();
        copy_program("/bin/true", tools.join("tool"));
        let links = data.join("brisk/bin");
        let path = format!("{}:{}:/usr/bin:/bin", links.display(), tools.display());
        let said = |command: &mut Command| {
            let command = command.env("PATH", &path).env("XDG_DATA_HOME", &data);
            let output = command.output().unwrap();
            assert!(output.stdout.is_empty(), "{output:?}");
            (
                output.status.code(),
                String::from_utf8(output.stderr).unwrap(),
            )
        };
        let (code, text) = said(&mut stage.brisk(&["auto", "on", "tool"]));
        assert_eq!(code, Some(0), "{text}");
        fs::remove_file(tools.join("tool")).unwrap();
        let expected = "brisk: cannot run tool: it is a link of brisk auto on, and PATH has no other program of this name; \
             install tool again, or remove the link with brisk auto off tool\n";
        for arguments in [&["stat"][..], &["umount", "--all"], &[]] {
            let (code, text) = said(Command::new(links.join("tool")).args(arguments));
            assert_eq!((code, text.as_str()), (Some(127), expected));
        }
        // By its name, brisk finds the link.
        let (code, text) = said(&mut stage.brisk(&["run", "--auto", "--", "tool"]));
        assert_eq!((code, text.as_str()), (Some(127), expected));
    });
}

#[test]
fn a_link_with_a_name_that_no_program_has_is_brisk_itself() {
    each_user(|given| {
        let stage = stage(given.user());
        let link = stage.path("none-of-this-name");
        std::os::unix::fs::symlink(stage.executable(), &link).unwrap();
        let path = format!("{}:/usr/bin:/bin", stage.path(".").display());
        let output = Command::new(&link)
            .arg("--version")
            .env("PATH", path)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.starts_with(b"brisk "), "{output:?}");
    });
}

#[test]
fn a_program_that_does_not_exist_is_not_learned() {
    each_user(|given| {
        let stage = stage(given.user());
        let output = auto(&stage, &["none-of-this-name"]).output().unwrap();
        // Without the right to enter a directory of PATH, nobody knows whether it exists.
        assert!(
            matches!(output.status.code(), Some(126 | 127)),
            "{output:?}"
        );
        assert_eq!(list(&stage), [] as [Value; 0]);
        let output = auto(&stage, &["sh", "-c", "cat big > /dev/null"])
            .arg("more")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        learned(&stage);
    });
}

#[test]
fn options_that_only_fill_images_stop_no_program() {
    let stage = stage(0);
    let run = |arguments: &[&str]| {
        let run = [&["run", "--auto"], arguments, &["--", "echo", "started"]].concat();
        let output = stage.brisk(&run).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, said) = (text(output.stdout), text(output.stderr));
        (output.status.code(), out, said)
    };
    let tree = stage.path("tree");
    let tree = tree.to_str().unwrap();
    for (place, why) in [
        (&[][..], "none is named"),
        (&[tree], &format!("{tree} is a directory")),
    ] {
        let options = ["--linger", "5m", "--hot", "none.hot", "--fill-budget", "1"];
        let (code, out, said) = run(&[place, &options].concat());
        assert_eq!((code, &*out), (Some(0), "started\n"), "{said}");
        for option in ["--linger", "--hot", "--fill-budget"] {
            let warning =
                format!("brisk: warning: {option} is only for images, and {why}; it is ignored\n");
            assert!(said.contains(&warning), "{said}");
        }
        // Without these the program would see something else.
        for option in [
            &["--at", "/mnt"][..],
            &["--verify", "key"],
            &["--with", "a.img"],
        ] {
            let (code, out, said) = run(&[place, option].concat());
            assert_eq!((code, &*out), (Some(125), ""), "{said}");
            let refused = format!("brisk: {} is only for images, and {why}; ", option[0]);
            assert!(said.starts_with(&refused), "{said}");
        }
    }
}

#[test]
fn a_program_that_reads_little_is_left_alone() {
    each_user(|given| {
        let stage = stage(given.user());
        let run = || {
            let output = auto(&stage, &["true"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        assert!(run().contains(ATTACHED));
        until("learning", || {
            (list(&stage).first()?["state"] == "small").then_some(())
        });
        let said = run();
        assert!(
            said.contains("reads so little that a replay gains nothing"),
            "{said}"
        );
    });
}

#[test]
fn a_program_that_the_disk_gives_in_a_short_time_is_left_alone() {
    each_user(|given| {
        let stage = stage(given.user());
        let run = |disk: &str| {
            let mut arguments = vec!["run", "--auto", "-v", "--disk", disk];
            arguments.extend(["--", "sh", "-c", "cat big > /dev/null"]);
            let mut command = stage.brisk(&arguments);
            command.env("XDG_CACHE_HOME", stage.path("home"));
            command.env("BRISK_THOROUGH", "1");
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let fast = "bps=1000G,iops=100000000";
        assert!(run(fast).contains(ATTACHED));
        until("learning", || {
            (list(&stage).first()?["state"] == "small").then_some(())
        });
        let said = run(fast);
        assert!(
            said.contains("the disk gives all that this program reads in so short a time"),
            "{said}"
        );
        let output = stage
            .brisk(&["auto", "list"])
            .env("XDG_CACHE_HOME", stage.path("home"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("left alone: the disk gives all that it reads in so short a time"),
            "{text}"
        );
    });
}

/// What is learned is kept where the program sees nothing, and names files of another root directory.
#[test]
fn a_launch_with_a_directory_as_its_root_is_learned() {
    each_user(|user| {
        let stage = stage(user.user());
        stage.pack_root();
        let big = stage.path("root/data/big");
        fs::write(&big, vec![7; 3 << 20]).unwrap();
        // Of one length.
        let padded = |script: &str| format!("{:#<90}", format!("{script}; "));
        let reads = padded("cat /data/big > /dev/null; cat /etc/own");
        let waits = padded("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo wait");
        let script = stage.path("root/data/script");
        let run = |options: &[&str]| {
            let arguments = ["run", "root", "--root", "--auto", "-v"];
            let mut command = stage.brisk(&[&arguments, options].concat());
            command.args(["--", "/bin/sh", "/data/script"]);
            command.env("XDG_CACHE_HOME", stage.path("home"));
            command.env("BRISK_THOROUGH", "1");
            let output = command.output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(output.status.success(), "{output:?}");
            (text(&output.stdout), text(&output.stderr))
        };
        fs::write(&script, reads).unwrap();
        let (out, err) = run(&[]);
        assert_eq!(out, "image\n", "{err}");
        assert!(err.contains(ATTACHED), "{err}");
        let profile = learned(&stage);
        assert_eq!(pages(&profile, "data/big"), 768);
        let of_root = profile
            .roots()
            .iter()
            .filter(|root| root.path == Path::new("/"));
        assert_eq!(of_root.count(), 1, "{:?}", profile.roots());
        let known = list(&stage);
        let tree = stage.path("root").canonicalize().unwrap();
        assert_eq!(known[0]["image"].as_str(), tree.to_str(), "{known:?}");

        // The next start brings all of it, though it reads nothing.
        fs::write(&script, waits).unwrap();
        let big = fs::File::open(&big).unwrap();
        let mut said = String::new();
        let is_whole = || {
            let residency = brisk_io::residency(&big).unwrap();
            matches!(
                residency,
                brisk_io::Residency::Pages {
                    resident: 768..,
                    ..
                }
            )
        };
        // Others may need the memory again, and then the next try shows it.
        until("a start that brings all", || {
            brisk_io::measure::evict_and_prove(&big).ok()?;
            thread::scope(|scope| {
                let running = scope.spawn(|| run(&[]));
                let mut was_whole = false;
                while !running.is_finished() {
                    was_whole |= is_whole();
                    thread::sleep(Duration::from_millis(1));
                }
                let (out, err) = running.join().unwrap();
                assert_eq!(out, "wait\n");
                said += &err;
                assert!(said.lines().count() < 20, "{said}");
                was_whole.then_some(())
            })
        });
    });
}
