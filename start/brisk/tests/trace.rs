//! `brisk trace`: what it records, when it cuts the recording, and that it leaves nothing behind.
//!
//! Most tests run twice: as root, and as an ordinary user in a user namespace.

mod staging;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use brisk_image::Limits;
use brisk_image::profile::{Asked, Profile};
use brisk_io::Mapping;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use staging::programs::copy_program;
use staging::{Stage, each_user, watched};

const SOON: Duration = Duration::from_secs(5);

/// What to trace.
const IMAGE: &[&str] = &["app.img", "--at", "at"];
const TREE: &[&str] = &["--tree", "tree"];

/// The command line of a trace of a script, whose profile is `home/profile`.
fn tracing(stage: &Stage, what: &[&str], script: &str) -> Command {
    let profile = stage.writable().join("profile");
    let mut arguments = vec!["trace", "-o", profile.to_str().unwrap()];
    arguments.extend(what);
    arguments.extend(["--", "sh", "-c", script]);
    stage.brisk(&arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn profile(stage: &Stage) -> Profile {
    Profile::open(stage.writable().join("profile"), &Limits::default()).unwrap()
}

/// Traces, and checks that nothing of it stays.
fn trace(stage: &Stage, what: &[&str], script: &str) -> (Profile, Output) {
    let output = tracing(stage, what, script).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    stage.assert_nothing_left(SOON);
    (profile(stage), output)
}

/// The steps, in order: `noise 100+3`, `sub/inside found`, `nothing absent`. With several roots, the last
/// name of the root and a colon come first.
fn steps(profile: &Profile) -> Vec<String> {
    let root = |number: u32| match profile.roots() {
        [_] => String::new(),
        roots => {
            let name = roots[number as usize].path.file_name().unwrap();
            format!("{}:", name.display())
        }
    };
    let step = |asked: &Asked| match asked {
        Asked::Pages(range) => {
            let file = &profile.files()[range.file as usize];
            let (path, first, count) = (file.path.display(), range.first, range.count);
            format!("{}{path} {first}+{count}", root(file.root))
        }
        Asked::LookUp(look_up) => {
            let directory = &profile.directories()[look_up.directory as usize];
            let path = directory.path.join(&look_up.name);
            let answer = if look_up.found { "found" } else { "absent" };
            format!("{}{} {answer}", root(directory.root), path.display())
        }
        other => panic!("{other:?}"),
    };
    profile
        .steps()
        .iter()
        .map(|step_| step(&step_.asked))
        .collect()
}

#[test]
fn a_program_whose_process_group_has_no_number_is_traced() {
    each_user(|stage| {
        let tracing = tracing(stage, IMAGE, "cat at/sub/inside");
        let output = stage.contained(&tracing).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(text(&output.stdout), "from the image");
        stage.assert_nothing_left(SOON);
        assert!(steps(&profile(stage)).contains(&"sub/inside 0+1".to_owned()));
    });
}

#[test]
fn reads_and_look_ups_are_recorded_exactly_and_in_order() {
    each_user(|stage| {
        let script = "cd $BRISK_TREE; \
            dd if=noise of=/dev/null bs=4096 skip=100 count=3 status=none; \
            dd if=noise of=/dev/null bs=4096 skip=7 count=2 status=none; \
            dd if=noise of=/dev/null bs=4096 skip=101 count=1 status=none; \
            test -e sub/nothing; test -e sub/nothing; cat sub/inside";
        for what in [IMAGE, TREE] {
            let (profile, output) = trace(stage, what, script);
            assert_eq!(text(&output.stdout), "from the image");
            let expected = [
                "noise found",
                "noise 100+3",
                "noise 7+2",
                "sub found",
                "sub/nothing absent",
                "sub/inside found",
                "sub/inside 0+1",
            ];
            assert_eq!(steps(&profile), expected, "{what:?}");
            let summary = "2 files, 6 pages (20.01 KiB, ";
            assert!(text(&output.stderr).contains(summary), "{output:?}");
            assert!(
                text(&output.stderr).ends_with(" of the whole), look-ups: 3 found, 1 absent\n"),
                "{output:?}"
            );
        }
    });
}

/// The group has no parent in its session, as that of a service, and a member is stopped.
#[test]
fn the_group_of_the_program_is_not_hung_up() {
    each_user(|stage| {
        let brisk = tracing(stage, TREE, "true");
        let mut words = vec![brisk.get_program().to_owned()];
        words.extend(brisk.get_args().map(ToOwned::to_owned));
        let script = "sleep 60 > /dev/null 2>&1 & kill -STOP $!; \"$@\" || exit; sleep 0.1; \
            cut -d ' ' -f 3 /proc/$!/stat; kill -KILL $!";
        let mut group = Command::new("setsid");
        group.args([
            "--wait",
            "env",
            "--default-signal=HUP",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        group.args(words).current_dir(stage.path("."));
        for (name, value) in brisk.get_envs() {
            match value {
                Some(value) => group.env(name, value),
                None => group.env_remove(name),
            };
        }
        let output = group.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(text(&output.stdout), "T\n", "{output:?}");
    });
}

/// Maps a file for a while.
#[test]
#[ignore = "it is the program that another test traces"]
fn maps_a_file() {
    let file = File::open(std::env::var_os("MAPPED").unwrap()).unwrap();
    let mapping = Mapping::shared(&file).unwrap();
    mapping.populate().unwrap();
    // A look may take a busy machine a tenth of a second, and the next one then waits for twenty times as long.
    std::thread::sleep(Duration::from_millis(2500));
}

#[test]
fn what_a_launch_maps_elsewhere_is_said() {
    watched(|| {
        let stage = Stage::new(0);
        let mapped = stage.writable().join("mapped");
        fs::write(&mapped, vec![7; 16 << 20]).unwrap();
        let this = std::env::current_exe().unwrap();
        let script = format!(
            "cat $BRISK_TREE/sub/inside; exec {} --ignored --exact maps_a_file",
            this.display()
        );
        for what in [IMAGE, TREE] {
            let mut trace = tracing(&stage, what, &script);
            let output = trace.env("MAPPED", &mapped).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let said = text(&output.stderr);
            let said = said.split_once("a cold start reads at least about ");
            let (bytes, rest) = said.unwrap().1.split_once(" MiB, ").unwrap();
            let bytes: f64 = bytes.parse().unwrap();
            assert!((16.0..64.0).contains(&bytes), "{output:?}");
            assert!(
                rest.starts_with("of which 14 B are in the profile; "),
                "{output:?}"
            );
        }
        // What lies in the tree is in the profile already.
        fs::write(stage.path("tree/mapped"), vec![7; 16 << 20]).unwrap();
        let mut trace = tracing(&stage, TREE, &script);
        let output = trace.env("MAPPED", stage.path("tree/mapped")).output();
        let said = text(&output.unwrap().stderr);
        let bytes = said.split_once("at least about ").map(|(_, bytes)| bytes);
        let bytes = bytes.and_then(|bytes| bytes.split_once(" MiB"));
        let bytes: f64 = bytes.map_or(0.0, |(bytes, _)| bytes.parse().unwrap());
        assert!(bytes < 32.0, "{said}");
    });
}

#[test]
fn the_profile_is_that_of_the_tree() {
    each_user(|stage| {
        for what in [IMAGE, TREE] {
            trace(
                stage,
                what,
                "cat $BRISK_TREE/many/1* > /dev/null; ls -l $BRISK_TREE/many",
            );
            let profile = stage.writable().join("profile");
            let check = |tree: &Path| {
                let arguments = [
                    "profile",
                    "check",
                    profile.to_str().unwrap(),
                    tree.to_str().unwrap(),
                ];
                stage.brisk(&arguments).output().unwrap()
            };
            for tree in ["tree", "app.img"] {
                let output = check(&stage.path(tree));
                assert_eq!(output.status.code(), Some(0), "{output:?}");
            }
            let files = self::profile(stage);
            assert_eq!(files.files().len(), 111);
            assert!(files.files().iter().all(|file| file.digest.is_some()));
        }
    });
}

/// The loader, the program and its library are mapped, not read.
#[test]
fn programs_and_libraries_are_recorded() {
    each_user(|stage| {
        let tree = stage.path("tree");
        copy_program("/bin/cat", tree.join("bin/cat"));
        let library = fs::read_to_string("/proc/self/maps").unwrap();
        let library = library
            .split_whitespace()
            .find(|word| word.ends_with("/libc.so.6"));
        fs::create_dir(tree.join("lib")).unwrap();
        copy_program(library.unwrap(), tree.join("lib/libc.so.6"));
        stage.pack("app.img");
        let script = "export LD_LIBRARY_PATH=$BRISK_TREE/lib; exec $BRISK_TREE/bin/cat $BRISK_TREE/sub/inside";
        for what in [IMAGE, TREE] {
            let (profile, output) = trace(stage, what, script);
            assert_eq!(text(&output.stdout), "from the image");
            let steps = steps(&profile);
            assert_eq!(steps[..3], ["bin found", "bin/cat found", "bin/cat 0+1"]);
            assert!(steps.contains(&"lib/libc.so.6 0+1".to_owned()), "{steps:?}");
            assert!(
                steps
                    .iter()
                    .any(|step| step.starts_with("lib/") && step.ends_with(" absent"))
            );
            assert!(steps.contains(&"sub/inside 0+1".to_owned()), "{steps:?}");
            for (file, (pages, _)) in profile.files().iter().zip(profile.demand_by_file()) {
                let whole = file.len.div_ceil(4096);
                assert!(
                    (1..whole).contains(&pages) || whole == 1,
                    "{file:?}: {pages} of {whole}"
                );
            }
        }
    });
}

#[test]
fn a_served_tree_is_as_the_tree_is() {
    each_user(|stage| {
        let tree = stage.path("tree");
        fs::write(stage.path("outside"), "outside").unwrap();
        symlink("../outside", tree.join("out")).unwrap();
        fs::hard_link(tree.join("text"), tree.join("sub/again")).unwrap();
        let pipe = Command::new("mkfifo")
            .arg(tree.join("pipe"))
            .status()
            .unwrap();
        assert!(pipe.success());
        let look = "cd tree && find . -printf '%p %y %m %s %l %n %T@ %b\\n' | sort && \
                    find . -type f | sort | xargs sha256sum && cat out";
        let plain = Command::new("sh")
            .args(["-c", look])
            .current_dir(stage.path(""))
            .output();
        let plain = plain.unwrap();
        assert!(plain.status.success(), "{plain:?}");
        let (profile, output) = trace(stage, TREE, look);
        assert_eq!(text(&output.stdout), text(&plain.stdout));
        // The pages of a file with two names are recorded once.
        let pages = |path: &str| {
            steps(&profile)
                .iter()
                .any(|s| s.starts_with(&format!("{path} 0+")))
        };
        assert!(pages("text") != pages("sub/again"));
        assert!(!pages("out"));
        let refused = tracing(stage, TREE, "echo > tree/new").output().unwrap();
        assert!(
            text(&refused.stderr).contains("Read-only file system"),
            "{refused:?}"
        );
    });
}

#[test]
fn trees_and_an_image_are_traced_at_once() {
    each_user(|stage| {
        fs::create_dir(stage.path("other")).unwrap();
        fs::write(stage.path("other/file"), "other").unwrap();
        let what = ["app.img", "--at", "at", "--tree", "tree", "--tree", "other"];
        let script = "cat other/file at/sub/inside tree/sub/inside; echo; echo $BRISK_TREE";
        let (profile, output) = trace(stage, &what, script);
        let tree = stage.path("at");
        let expected = format!("otherfrom the imagefrom the image\n{}\n", tree.display());
        assert_eq!(text(&output.stdout), expected);
        let expected = [
            "other:file found",
            "other:file 0+1",
            "at:sub found",
            "at:sub/inside found",
            "at:sub/inside 0+1",
            "tree:sub found",
            "tree:sub/inside found",
            "tree:sub/inside 0+1",
        ];
        assert_eq!(steps(&profile), expected);
        assert!(profile.files().iter().all(|file| file.digest.is_some()));
    });
}

#[test]
fn places_in_each_other_are_refused() {
    each_user(|stage| {
        for what in [
            &["--tree", "tree", "--tree", "tree/sub"][..],
            &["--tree", "tree/sub", "--tree", "tree"],
            &["--tree", "tree", "--tree", "tree/"],
            &["app.img", "--at", "tree/sub", "--tree", "tree"],
            &["--tree", "tree", "--with", "app.img@tree/sub"],
            &["--tree", "/"],
            &["--tree", "/", "--root"],
        ] {
            let output = tracing(stage, what, "true").output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            assert!(!stage.writable().join("profile").exists());
        }
        stage.assert_nothing_left(SOON);
    });
}

#[test]
fn a_root_directory_is_traced_and_packed() {
    each_user(|stage| {
        stage.pack_root();
        let script = "cat /etc/own; [ -e /etc/none ] || echo none; echo $BRISK_TREE; pwd";
        let mut packs = Vec::new();
        for what in [
            ["root.img", "--root"].as_slice(),
            &["--tree", "root", "--root"],
        ] {
            let (profile, output) = trace(stage, what, script);
            let here = stage.path("").canonicalize().unwrap();
            let expected = format!("image\nnone\n/\n{}\n", here.display());
            assert_eq!(text(&output.stdout), expected, "{output:?}");
            assert_eq!(profile.roots().len(), 1);
            assert_eq!(profile.roots()[0].path, Path::new("/"));
            let steps = steps(&profile);
            for step in ["bin/sh 0+1", "etc/own 0+1", "etc/none absent"] {
                assert!(
                    steps.iter().any(|s| s.starts_with(step)),
                    "{step}: {steps:?}"
                );
            }
            assert!(profile.files().iter().all(|file| file.digest.is_some()));
            // The profile works for the tree and for the image, whichever it was recorded from.
            for tree in ["root", "root.img"] {
                let arguments = [
                    "hot",
                    tree,
                    "--profile",
                    "home/profile",
                    "-o",
                    "home/hot",
                    "--json",
                ];
                let hot = stage.brisk(&arguments).output().unwrap();
                assert_eq!(hot.status.code(), Some(0), "{hot:?}");
                let hot: serde_json::Value = serde_json::from_slice(&hot.stdout).unwrap();
                packs.push((hot["pages"].clone(), hot["files"].clone()));
            }
        }
        assert!(packs[0].0.as_u64() > Some(20), "{packs:?}");
        assert!(packs.iter().all(|pack| *pack == packs[0]), "{packs:?}");
    });
}

#[test]
fn a_traced_root_directory_has_what_is_bound_and_mounted_too() {
    each_user(|stage| {
        stage.pack_root();
        let bind = format!("{}:/alias/new", stage.writable().display());
        for what in [
            ["root.img", "--root"].as_slice(),
            &["--tree", "root", "--root"],
        ] {
            let mut what = what.to_vec();
            what.extend([
                "--bind",
                &bind,
                "--with",
                "app.img@/opt/app",
                "--tree",
                "tree",
            ]);
            // The path as the command sees it.
            what.extend(["--ready", "file:/data/new/up"]);
            let tree = stage.path("tree").canonicalize().unwrap();
            let script = format!(
                "cat /opt/app/sub/inside {}/sub/inside; : > /data/new/up; \
                 while :; do cat /etc/own; done",
                tree.display()
            );
            let (profile, output) = trace(stage, &what, &script);
            assert!(
                text(&output.stdout).starts_with("from the imagefrom the image"),
                "{output:?}"
            );
            assert!(!text(&output.stderr).contains("warning"), "{output:?}");
            let mut roots: Vec<_> = profile.roots().iter().map(|root| &*root.path).collect();
            roots.sort();
            let mut expected = [Path::new("/"), Path::new("/opt/app"), &tree];
            expected.sort();
            assert_eq!(roots, expected);
            let files = profile.files().iter();
            let inside = files.filter(|file| file.path == Path::new("sub/inside"));
            assert!(inside.clone().all(|file| file.digest.is_some()));
            assert_eq!(inside.count(), 2);
            fs::remove_file(stage.writable().join("up")).unwrap();
        }
    });
}

#[test]
fn a_traced_root_directory_can_be_written_to() {
    each_user(|stage| {
        let owner = if stage.is_root() { 0 } else { 1000 };
        stage.pack_root();
        for name in ["root", "root/etc", "root/etc/own"] {
            std::os::unix::fs::chown(stage.path(name), Some(owner), Some(owner)).unwrap();
        }
        stage.pack_tree("root", "root.img");
        for what in [
            ["root.img", "--root"].as_slice(),
            &["--tree", "root", "--root"],
        ] {
            let mut what = what.to_vec();
            what.push("--writable");
            let (_, output) = trace(
                stage,
                &what,
                "echo x > /new; echo y >> /etc/own; cat /new /etc/own",
            );
            assert_eq!(text(&output.stdout), "x\nimage\ny\n", "{output:?}");
            assert!(!stage.path("root/new").exists());
        }
    });
}

#[test]
fn what_is_bound_elsewhere_is_seen_in_a_trace() {
    each_user(|stage| {
        let bind = format!(
            "{}:{}",
            stage.path("tree/many").display(),
            stage.path("at").display()
        );
        let what = ["--tree", "tree", "--bind", &bind];
        let (profile, output) = trace(stage, &what, "cat at/7 tree/sub/inside");
        assert!(
            text(&output.stdout).ends_with("from the image"),
            "{output:?}"
        );
        // It does not belong to the tree's place.
        assert_eq!(profile.files().len(), 1);
    });
}

/// The C library and Python fill buffers of the size that the file suggests. What they read too much counts
/// as demanded: for an image no more than for a directory.
#[test]
fn buffers_for_files_of_an_image_are_pages() {
    each_user(|stage| {
        let (_, output) = trace(stage, IMAGE, "stat -c %o $BRISK_TREE/text");
        assert_eq!(text(&output.stdout), "4096\n", "{output:?}");
    });
}

#[test]
fn several_runs_are_merged() {
    each_user(|stage| {
        let script = "cat tree/many/1 > /dev/null; \
            if test -e home/second; then cat tree/many/2; else cat tree/many/3; fi > /dev/null; \
            touch home/second";
        let (profile, _) = trace(stage, &["--tree", "tree", "--runs", "2"], script);
        assert_eq!(profile.runs(), 2);
        let common: Vec<_> = profile
            .steps()
            .iter()
            .zip(steps(&profile))
            .map(|(step, text)| (step.runs, text))
            .collect();
        let size = |name: &str| fs::metadata(stage.path(name)).unwrap().len().div_ceil(4096);
        let pages = |n: u32| format!("many/{n} 0+{}", size(&format!("tree/many/{n}")));
        // Cold each time: the second run reads what the first has read.
        assert_eq!(common[0], (2, "many found".to_owned()));
        assert_eq!(common[1], (2, "many/1 found".to_owned()));
        assert_eq!(common[2], (2, pages(1)));
        assert!(common.contains(&(1, pages(2))), "{common:?}");
        assert!(common.contains(&(1, pages(3))), "{common:?}");
    });
}

/// Traces a script that reads one file before it is ready, and one after that.
fn ready_by(stage: &Stage, ready: &str, makes_ready: &str) -> Output {
    let started = Instant::now();
    let script = format!(
        "cat tree/many/1 > /dev/null; {makes_ready}; sleep 10; cat tree/many/2 > /dev/null; sleep 40"
    );
    let (profile, output) = trace(stage, &["--tree", "tree", "--ready", ready], &script);
    let steps = steps(&profile);
    assert_eq!(steps[..2], ["many found", "many/1 found"]);
    assert_eq!(steps.len(), 3, "{ready}: {steps:?}");
    let (by, at) = profile
        .ready()
        .map(|ready| (ready.by.clone(), ready.at))
        .unwrap();
    assert!(by.starts_with(ready.split_once(':').unwrap().0), "{by}");
    assert!((1..5_000_000).contains(&at), "{at}");
    // It is ended, not waited for.
    assert!(started.elapsed() < Duration::from_secs(20));
    output
}

#[test]
fn readiness_cuts_and_ends_the_program() {
    each_user(|stage| {
        let output = ready_by(stage, "line:I am up", "echo not yet; echo '> I am up <'");
        assert_eq!(text(&output.stdout), "not yet\n> I am up <\n");
        let output = ready_by(stage, "line:I am up", "echo 'I am up' >&2");
        assert!(text(&output.stderr).starts_with("I am up\n"), "{output:?}");
        ready_by(stage, "file:home/up", "touch home/up");
        ready_by(stage, "after:2", "true");
        let socket = stage.writable().join("later");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        ready_by(stage, "socket:home/socket", "mv home/later home/socket");
        drop(listener);
    });
}

#[test]
fn a_program_that_is_never_ready_is_recorded_with_a_warning() {
    each_user(|stage| {
        for ready in ["file:home/never", "line:never", "after:30"] {
            let what = ["--tree", "tree", "--ready", ready];
            let (profile, output) = trace(stage, &what, "cat tree/sub/inside");
            assert_eq!(text(&output.stdout), "from the image");
            assert_eq!(steps(&profile).last().unwrap(), "sub/inside 0+1");
            let warning = "brisk: warning: the command ended before it was ready (";
            assert!(text(&output.stderr).starts_with(warning), "{output:?}");
        }
    });
}

#[test]
fn a_daemon_is_recorded_until_it_is_ready_and_then_ended() {
    each_user(|stage| {
        let daemon = "(setsid sh -c 'sleep 0.3; cat tree/sub/inside > home/out; touch home/up; \
                      exec sleep 40' </dev/null >/dev/null 2>&1 &) &";
        let (profile, _) = trace(
            stage,
            &["--tree", "tree", "--ready", "file:home/up"],
            daemon,
        );
        assert_eq!(steps(&profile).last().unwrap(), "sub/inside 0+1");
        let out = fs::read_to_string(stage.writable().join("out")).unwrap();
        assert_eq!(out, "from the image");
        // Without `--ready`, it is ended when the command exits. A profile of nothing does not replace one from before.
        fs::remove_file(stage.writable().join("profile")).unwrap();
        let (profile, output) = trace(stage, TREE, daemon);
        assert_eq!(steps(&profile), Vec::<String>::new());
        assert!(
            text(&output.stderr).contains(" of the command, still running when it exited; "),
            "{output:?}"
        );
    });
}

/// SIGTERM is not enough.
#[test]
fn a_program_that_does_not_end_is_killed() {
    each_user(|stage| {
        let script = "trap '' TERM; echo up; while :; do sleep 1; done";
        let started = Instant::now();
        trace(stage, &["--tree", "tree", "--ready", "line:up"], script);
        let took = started.elapsed();
        assert!((5..15).contains(&took.as_secs()), "{took:?}");
    });
}

#[test]
fn a_command_that_fails_is_recorded_with_a_warning() {
    each_user(|stage| {
        let (profile, output) = trace(stage, TREE, "cat tree/sub/inside; exit 7");
        assert_eq!(steps(&profile).len(), 3);
        let warning = "brisk: warning: the command exited with 7; the profile has what it asked for \
                       until then\n";
        assert!(text(&output.stderr).starts_with(warning), "{output:?}");
        let (_, output) = trace(stage, TREE, "kill -KILL $$");
        let warning = "brisk: warning: the command was ended by signal 9; ";
        assert!(text(&output.stderr).starts_with(warning), "{output:?}");
    });
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_profile() {
    each_user(|stage| {
        let profile = stage.writable().join("profile");
        let profile = profile.to_str().unwrap();
        for (program, code, said) in [
            ("bin/none", 127, "bin/none: no such file\n"),
            (
                "sub/inside",
                126,
                "it may not be executed; give it the x permission, in an image before packing\n",
            ),
        ] {
            let output = stage
                .brisk(&[
                    "trace", "app.img", "--at", "at", "-o", profile, "--", program,
                ])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let stderr = text(&output.stderr);
            assert!(
                stderr.starts_with("brisk: cannot run ") && stderr.ends_with(said),
                "{stderr}"
            );
            assert!(!Path::new(profile).exists());
        }
        stage.assert_nothing_left(SOON);
    });
}

#[test]
fn a_program_can_write_where_it_is() {
    each_user(|stage| {
        let owner = if stage.is_root() { 0 } else { 1000 };
        for name in ["tree", "tree/sub", "tree/sub/inside"] {
            std::os::unix::fs::chown(stage.path(name), Some(owner), Some(owner)).unwrap();
        }
        stage.pack("app.img");
        let script =
            "cd $BRISK_TREE && echo > new && ls && echo more >> sub/inside && cat sub/inside";
        for what in [IMAGE, TREE] {
            let mut what = what.to_vec();
            what.push("--writable");
            let (profile, output) = trace(stage, &what, script);
            let expected = "bin\nlink\nmany\nnew\nnoise\nsub\ntext\nfrom the imagemore\n";
            assert_eq!(text(&output.stdout), expected, "{output:?}");
            assert!(steps(&profile).contains(&"sub/inside 0+1".to_owned()));
            assert!(!stage.path("tree/new").exists());
        }
    });
}

#[test]
fn nothing_is_left_when_brisk_is_killed() {
    each_user(|stage| {
        let script = "cat tree/sub/inside; echo; exec sleep 40";
        let mut brisk = tracing(stage, TREE, script)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        stage.wait_for_program("sleep");
        // setpriv has become brisk.
        brisk.kill().unwrap();
        brisk.wait().unwrap();
        stage.assert_nothing_left(SOON);
        assert!(!stage.writable().join("profile").exists());
    });
}

/// The terminal interrupts the whole process group, and a daemon is not in it.
#[test]
fn an_interrupt_ends_all_and_writes_nothing() {
    each_user(|stage| {
        let script = "(setsid sleep 40 &) ; sleep 40";
        let mut brisk = tracing(stage, TREE, script);
        let mut brisk = brisk.process_group(0).spawn().unwrap();
        stage.wait_for_program("sleep");
        let group = Pid::from_child(&brisk);
        kill_process_group(group, Signal::INT).unwrap();
        brisk.wait().unwrap();
        stage.assert_nothing_left(SOON);
        assert!(!stage.writable().join("profile").exists());
    });
}

#[test]
fn a_killed_tracer_is_an_error() {
    each_user(|stage| {
        let brisk = tracing(stage, TREE, "exec sleep 40")
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        stage.wait_for_program("sleep");
        for tracer in stage.processes("brisk-tools") {
            kill_process(Pid::from_raw(tracer).unwrap(), Signal::KILL).unwrap();
        }
        let output = brisk.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = "the recording process ended before it could report";
        assert!(text(&output.stderr).contains(said), "{output:?}");
        stage.assert_nothing_left(SOON);
        assert!(!stage.writable().join("profile").exists());
    });
}

#[test]
fn many_processes_at_once_are_recorded() {
    each_user(|stage| {
        let script = "for i in $(seq 0 199); do cat tree/many/$i & done > /dev/null; wait";
        let (profile, _) = trace(stage, TREE, script);
        assert_eq!(profile.files().len(), 200);
        let pages: u64 = profile
            .demand_by_file()
            .iter()
            .map(|(pages, _)| pages)
            .sum();
        let whole: u64 = profile
            .files()
            .iter()
            .map(|file| file.len.div_ceil(4096))
            .sum();
        assert_eq!(pages, whole);
    });
}

#[test]
fn the_profile_has_a_name_of_its_own() {
    each_user(|stage| {
        let default = |what: &[&str]| {
            let mut arguments = vec!["trace"];
            arguments.extend(what);
            arguments.extend(["--", "true"]);
            stage
                .brisk(&arguments)
                .current_dir(stage.writable())
                .output()
                .unwrap()
        };
        let tree = stage.writable().join("own");
        for name in ["own", "second"] {
            fs::create_dir(stage.writable().join(name)).unwrap();
        }
        fs::copy(stage.path("app.img"), stage.writable().join("own.img")).unwrap();
        let at = stage.path("at");
        for (what, name) in [
            (vec!["--tree", "own/"], "own.profile"),
            (vec!["--tree", "own", "--tree", "second"], "trace.profile"),
            (
                vec!["own.img", "--at", at.to_str().unwrap()],
                "own.img.profile",
            ),
        ] {
            let output = default(&what);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert!(tree.with_file_name(name).exists(), "{name}: {output:?}");
        }
        let output = stage
            .brisk(&[
                "trace",
                "--tree",
                "tree",
                "-o",
                "/proc/none/profile",
                "--",
                "true",
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
    });
}
