//! `brisk run --auto -- CMD`: launches that are observed where they are.

mod staging;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brisk_image::Limits;
use brisk_image::profile::Profile;
use brisk_io::measure::evict_and_prove;
use brisk_io::{Mapping, ReadAt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use staging::documented::assert_documented;
use staging::programs::copy_program;
use staging::{Stage, each_user};

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
    // Some calls are not seen otherwise, and nobody knows which.
    command.env("BRISK_THOROUGH", "1");
    command
}

/// The same, but the launch takes only a little longer than without brisk.
fn auto_in_turns(stage: &Stage, program: &[&str]) -> Command {
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
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until one profile is learned.
#[track_caller]
fn learned(stage: &Stage) -> Profile {
    let key = until("learning", || {
        let list = list(stage);
        Some(list.first()?["key"].as_str()?.to_owned())
    });
    let profile = stage.path("home/brisk/hot").join(format!("{key}.profile"));
    until("a profile", || {
        Profile::open(&profile, &Limits::of_profiles()).ok()
    })
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
        assert!(said.contains(OBSERVED), "{said}");
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

/// The variable with the file that the program below maps.
const MAPS: &str = "BRISK_TEST_MAPS";

/// Touches some pages of a file.
#[test]
#[ignore = "it is the program that another test starts"]
fn touches_some_pages() {
    let path = std::env::var_os(MAPS).unwrap();
    // Of a shared mapping, the kernel refuses it unless it may be written, as a private one always may be.
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mapping = Mapping::shared(&file).unwrap();
    // Nobody stops it at every call: what it maps and touches is seen a little later.
    let pause = Duration::from_millis(500);
    std::thread::sleep(pause);
    for page in (0..768).step_by(16) {
        mapping.read_exact_at(page * 4096, &mut [0]).unwrap();
    }
    std::thread::sleep(2 * pause);
}

#[test]
fn pages_around_those_that_are_touched_are_not_learned() {
    // So that no call is seen any more when it starts the program.
    let script = "n=0; while [ $n -lt 5000 ]; do test -e /none$n; n=$((n+1)); done; exec \"$@\"";
    each_user(|given| {
        for before in [&[][..], &["sh", "-c", script, "sh"]] {
            let stage = stage(given.user());
            // What was written at once is mapped as one page of 2 MiB while it stays in memory.
            let big = File::open(stage.path("big")).unwrap();
            evict_and_prove(&big).unwrap();
            big.set_permissions(PermissionsExt::from_mode(0o666))
                .unwrap();
            // The user may have no way to the original.
            copy_program(std::env::current_exe().unwrap(), stage.path("touches"));
            let touches = ["./touches", "--ignored", "--exact", "touches_some_pages"];
            let command = [before, &touches].concat();
            let mut command = match before.is_empty() {
                true => auto(&stage, &command),
                false => auto_in_turns(&stage, &command),
            };
            let output = command.env(MAPS, stage.path("big")).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(pages(&learned(&stage), "/big"), 768 / 16, "{before:?}");
        }
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
fn programs_get_their_rights_although_a_launch_is_observed() {
    each_user(|given| {
        let stage = stage(given.user());
        trusted(&stage);
        let run = |program: &[&str]| {
            let output = auto(&stage, program).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (text(output.stdout), text(output.stderr))
        };
        let (out, said) = run(&[
            "sh",
            "-c",
            "cat big > /dev/null; ./as-root -u; ./as-root -u",
        ]);
        assert_eq!(out, "0\n0\n");
        assert!(said.contains(OBSERVED), "{said}");
        assert_eq!(pages(&learned(&stage), "/big"), 768);
        let (out, said) = run(&["./as-root", "-u"]);
        assert_eq!(out, "0\n");
        assert!(said.contains("gets more rights than you have"), "{said}");
    });
}

/// The process that traces `child`.
fn tracer(child: &Child) -> i32 {
    tracer_of(child.id())
}

fn tracer_of(process: u32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
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

#[test]
fn a_program_of_many_calls_is_observed_in_turns() {
    each_user(|given| {
        let stage = stage(given.user());
        let mut command = auto_in_turns(&stage, &["dd", "if=/dev/zero", "of=/dev/null", "bs=1"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..3 {
            until("observing it", || (tracer(&child) != 0).then_some(()));
            until("letting it go", || (tracer(&child) == 0).then_some(()));
        }
        until("observing it again", || (tracer(&child) != 0).then_some(()));
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pages(&learned(&stage), "/bin/dd") > 0);
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
        let is_profile = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "profile");
        let profile = learned
            .map(|entry| entry.unwrap().path())
            .find(is_profile)
            .unwrap();
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

#[test]
fn a_long_launch_waits_for_its_replay_unless_all_is_in_memory() {
    let stage = stage(0);
    let big = File::open(stage.path("big")).unwrap();
    for (more, is_long) in [("exit 0", false), ("sleep 0.4; cat late", true)] {
        fs::write(stage.path("late"), vec![7; 1 << 16]).unwrap();
        let script = format!("cat big; {more}");
        let run = auto(&stage, &["sh", "-c", &script]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        until("learning", || {
            let named = |pack: &&Value| pack["command"][2] == *script;
            let learned = list(&stage);
            let pack = learned.iter().find(named)?;
            (pack["state"] == "learned").then_some(())
        });
        let waits = || {
            let calls = stage.path("calls");
            let brisk = auto(&stage, &["sh", "-c", &script]);
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
        let (in_memory, told) = waits();
        assert_eq!(in_memory, 0, "all is in memory: {told}");
        evict_and_prove(&big).unwrap();
        let (from_disk, told) = waits();
        assert_eq!(from_disk, usize::from(is_long), "{told}");
    }
}

#[test]
fn what_is_read_is_learned_after_a_program_is_let_go() {
    each_user(|given| {
        let stage = stage(given.user());
        fs::write(stage.path("early"), "early").unwrap();
        fs::write(stage.path("late"), "late").unwrap();
        // Its calls cost more than they may. Only then comes the second file, in a directory that is known by then.
        let many_calls = "dd if=/dev/zero of=/dev/null bs=1 count=50000 2> /dev/null";
        let script =
            format!("cat early big; {many_calls}; until test -e go; do sleep 0.05; done; cat late");
        let child = auto_in_turns(&stage, &["sh", "-c", &script])
            .stdout(Stdio::null())
            .spawn();
        let mut child = child.unwrap();
        until("observing it", || (tracer(&child) != 0).then_some(()));
        until("letting it go", || (tracer(&child) == 0).then_some(()));
        fs::write(stage.path("go"), "").unwrap();
        assert!(child.wait().unwrap().success());
        let profile = learned(&stage);
        for name in ["early", "late"] {
            // Not that of the other user, who reads beside it.
            let path = stage.path(name).canonicalize().unwrap();
            let path = path.strip_prefix("/").unwrap();
            assert_eq!(pages(&profile, path.to_str().unwrap()), 1, "{path:?}");
        }
    });
}

/// As with `kernel.yama.ptrace_scope` 1, where the observer may trace no process that was born untraced.
#[test]
fn a_process_that_may_not_be_traced_is_looked_at() {
    each_user(|given| {
        let stage = stage(given.user());
        let program = stage.path("late-program");
        copy_program("/bin/sleep", &program);
        // The second shell makes many calls, and the first one none.
        let many = "echo $$ > home/number; until test -e home/go; do :; done; ./late-program 0.3";
        let script = format!("timeout 60 sh -c '{many}'; exit 3");
        let child = auto_in_turns(&stage, &["sh", "-c", &script]).spawn();
        let mut child = child.unwrap();
        let number: u32 = until("a number", || {
            let text = fs::read_to_string(stage.path("home/number")).ok()?;
            text.trim().parse().ok()
        });
        // While the observer has let it go, another one takes it.
        let mut other = until("taking it", || {
            let options = ["-qq", "-o", "/dev/null", "-p", &number.to_string()];
            let strace = Command::new("strace")
                .args(options)
                .stderr(Stdio::null())
                .spawn();
            let mut strace = strace.unwrap();
            loop {
                match strace.try_wait().unwrap() {
                    Some(_) => return None,
                    None if tracer_of(number) == strace.id().cast_signed() => return Some(strace),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        // The observer wants to go on with both of them by now.
        std::thread::sleep(Duration::from_millis(300));
        fs::write(stage.path("home/go"), "").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        other.wait().unwrap();
        assert!(pages(&learned(&stage), "/late-program") > 0);
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
        let observer = Pid::from_raw(tracer(&child)).expect("it is observed");
        kill_process(observer, Signal::KILL).unwrap();
        until("letting it go", || (tracer(&child) == 0).then_some(()));
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(list(&stage), [] as [Value; 0]);
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
        assert_eq!(said.matches(OBSERVED).count(), 1, "{said}");
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
        assert_eq!(pages(&learned(&stage), "/big"), 768);
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
        fs::copy("/bin/true", &copy).unwrap();
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

/// Its arguments would be verbs of brisk otherwise.
#[test]
fn a_link_whose_program_is_gone_says_so() {
    each_user(|given| {
        let stage = stage(given.user());
        let data = stage.path("home/data");
        let tools = stage.path("tools");
        fs::create_dir(&tools).unwrap();
        fs::copy("/bin/true", tools.join("tool")).unwrap();
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
        assert!(run().contains(OBSERVED));
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
        assert!(run(fast).contains(OBSERVED));
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
        assert!(err.contains("observes this start"), "{err}");
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
        // Others may need the memory again, and then the next try shows it.
        until("a start that brings all", || {
            brisk_io::measure::evict_and_prove(&big).ok()?;
            let (out, err) = run(&[]);
            assert_eq!(out, "wait\n");
            said += &err;
            assert!(said.lines().count() < 20, "{said}");
            match brisk_io::residency(&big).unwrap() {
                brisk_io::Residency::Pages {
                    resident: 768.., ..
                } => Some(()),
                _ => None,
            }
        });
    });
}
