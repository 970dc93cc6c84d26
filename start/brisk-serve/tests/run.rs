//! Starts programs from real images, as root, with the program in `examples/run.rs`.
mod fixture;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fixture::programs::copy_program;
use fixture::{Fixture, runner};

struct Case {
    fixture: Fixture,
    image: std::path::PathBuf,
    at: std::path::PathBuf,
}

impl Case {
    fn new() -> Self {
        let fixture = Fixture::new();
        let image = fixture.image("app.img", &["-comp", "zstd"]);
        let at = fixture.empty_dir("at");
        Self { fixture, image, at }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(runner());
        command.arg(&self.image).arg(&self.at).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("the program starts")
    }

    /// Status and standard error, with the fixture's directory shown as `DIR`.
    fn failure(&self, output: &Output) -> (Option<i32>, String) {
        let dir = self.fixture.dir.path().display().to_string();
        let text = String::from_utf8_lossy(&output.stderr).replace(&dir, "DIR");
        (output.status.code(), text)
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

#[test]
fn the_status_is_the_programs_own() {
    let case = Case::new();
    let output = case.run(&["bin/app", "sh", "-c", "exit 42"]);
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let output = case.run(&["bin/app", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15), "{output:?}");
    case.fixture.assert_no_loop_device();
}

#[test]
fn the_program_is_the_process_that_was_started() {
    let case = Case::new();
    let child = case
        .command(&["bin/app", "sh", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stdout(&output), pid.to_string());
}

#[test]
fn the_program_sees_the_image_and_nobody_else_does() {
    let case = Case::new();
    // A file that the mount hides.
    fs::write(case.at.join("covered"), "").expect("a file");
    let script = "echo $BRISK_TREE; ls $BRISK_TREE; cat $BRISK_TREE/sub/inside; read end";
    let mut child = case
        .command(&["bin/app", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let at = case.at.canonicalize().expect("a path");
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), at.display().to_string());
    let listed: Vec<String> = (0..5).map(|_| next()).collect();
    assert_eq!(listed, ["bin", "noise", "plain", "sub", "text"]);
    let seen: Vec<_> = fs::read_dir(&case.at)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert_eq!(seen, ["covered"]);
    assert!(case.fixture.loop_device().is_some());
    drop(child.stdin.take());
    child.wait().expect("it ends");
    case.fixture.assert_no_loop_device();
}

/// Mounts that the system shares must not carry our mount out. /tmp is shared in an outer namespace, and that
/// one must not see the image.
#[test]
fn the_mount_does_not_leak_out_of_shared_mounts() {
    let case = Case::new();
    let script = "mount --make-rshared /; \"$@\" </dev/null; ls \"$AT\"; echo end";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .arg(runner())
        .arg(&case.image)
        .arg(&case.at)
        .args([
            "bin/app",
            "sh",
            "-c",
            "ls -d $BRISK_TREE/text; ls \"$AT\" | wc -l",
        ])
        .env("AT", &case.at)
        .output()
        .expect("unshare is needed for this test: install util-linux");
    let at = case.at.canonicalize().expect("a path");
    assert_eq!(stdout(&output), format!("{}/text\n5\nend", at.display()));
    // A mount that is made outside while the program runs comes in.
    let late = case.fixture.empty_dir("late");
    let script = "mount --make-rshared /; mkfifo \"$LATE.go\"; \"$@\" & \
                  mount -t tmpfs none \"$LATE\"; touch \"$LATE/came\"; echo > \"$LATE.go\"; wait";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .arg(runner())
        .arg(&case.image)
        .arg(&case.at)
        .args([
            "bin/app",
            "sh",
            "-c",
            "read go < \"$LATE.go\"; ls \"$LATE\"",
        ])
        .env("LATE", &late)
        .output()
        .expect("unshare is needed for this test: install util-linux");
    assert_eq!(stdout(&output), "came");
}

#[test]
fn sigkill_leaves_no_mount_no_device_and_no_process() {
    let case = Case::new();
    let mut child = case
        .command(&["bin/app", "sh", "-c", "echo up; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("it writes");
    assert_eq!(line, "up\n");
    let device = case.fixture.loop_device().expect("it is attached");
    child.kill().expect("it is ours");
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    case.fixture.assert_no_loop_device();
    let users = users_of(&case.image);
    assert_eq!(users, Vec::<String>::new(), "{device}");
    assert_eq!(fs::read_dir(&case.at).expect("a directory").count(), 0);
}

/// Processes whose command line names the image.
fn users_of(image: &Path) -> Vec<String> {
    let name = image.display().to_string();
    fs::read_dir("/proc")
        .expect("procfs")
        .filter_map(|entry| {
            let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&name).then_some(line)
        })
        .collect()
}

#[test]
fn the_mount_lives_as_long_as_the_last_descendant() {
    let case = Case::new();
    let go = case.fixture.path("go");
    let done = case.fixture.path("done");
    let script = "(while [ ! -e \"$GO\" ]; do sleep 0.05; done; \
                  cp \"$BRISK_TREE/sub/inside\" \"$DONE\") >/dev/null 2>&1 &";
    let output = case
        .command(&["bin/app", "sh", "-c", script])
        .env("GO", &go)
        .env("DONE", &done)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    assert!(case.fixture.loop_device().is_some());
    fs::write(&go, "").expect("a file");
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&done).ok().as_deref() != Some("from the image") {
        assert!(Instant::now() < deadline, "the descendant lost the image");
        thread::sleep(Duration::from_millis(10));
    }
    case.fixture.assert_no_loop_device();
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let case = Case::new();
    for (how, ignored) in [("--default-signal=PIPE", 0), ("--ignore-signal=PIPE", 1)] {
        let mut command = Command::new("env");
        command
            .arg(how)
            .arg(runner())
            .arg(&case.image)
            .arg(&case.at);
        let text = stdout(
            &command
                .args(["grep", "SigIgn", "/proc/self/status"])
                .output()
                .expect("the program starts"),
        );
        let mask = text.split_whitespace().last().expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("a mask");
        assert_eq!(mask >> (13 - 1) & 1, ignored, "{how}: {text}");
    }
}

#[test]
fn no_descriptor_of_ours_is_passed_on() {
    let case = Case::new();
    let list = "for fd in /proc/$$/fd/*; do readlink $fd || true; done";
    let files = stdout(&case.run(&["bin/app", "sh", "-c", list]));
    let dir = case.fixture.dir.path().display().to_string();
    assert!(!files.is_empty());
    for file in files.lines() {
        assert!(
            !file.starts_with("/dev/loop") && !file.starts_with(&dir),
            "{files}"
        );
    }
}

#[test]
fn a_covered_working_directory_becomes_the_images() {
    let case = Case::new();
    fs::create_dir(case.at.join("sub")).expect("a directory");
    fs::write(case.at.join("sub/covered"), "").expect("a file");
    let output = case
        .command(&["ls"])
        .current_dir(case.at.join("sub"))
        .output()
        .expect("the program starts");
    assert_eq!(stdout(&output), "inside");

    let gone = case.at.join("gone");
    fs::create_dir(&gone).expect("a directory");
    let output = case
        .command(&["ls"])
        .current_dir(&gone)
        .output()
        .expect("the program starts");
    assert_eq!(
        case.failure(&output),
        (
            Some(125),
            "cannot mount DIR/app.img: the image hides the working directory DIR/at/gone and has no \
             such directory; start from another directory\n  \
             No such file or directory (os error 2)\n"
                .to_owned()
        )
    );
    case.fixture.assert_no_loop_device();
}

#[test]
fn a_filesystem_without_programs_is_named_as_the_reason() {
    let case = Case::new();
    let place = tempfile::tempdir().expect("a temporary directory");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "noexec", "none"])
        .arg(place.path())
        .status();
    assert!(mounted.expect("there is mount").success());
    let program = place.path().join("true");
    copy_program("/bin/true", &program);
    let failure = case.failure(&case.run(&[program.to_str().expect("text")]));
    let unmounted = Command::new("umount").arg(place.path()).status();
    assert!(unmounted.expect("there is umount").success());
    let expected = format!(
        "cannot run {}: its filesystem is mounted with noexec, so no program starts from there; copy it to another \
         filesystem\n",
        program.display()
    );
    assert_eq!(failure, (Some(126), expected));
}

#[test]
fn programs_that_do_not_start_say_why() {
    let case = Case::new();
    for (program, status, text) in [
        ("bin/none", 127, "no such file"),
        ("plain/none", 127, "no such file"),
        (
            "no-such-program-anywhere",
            127,
            "not found in PATH; to name a program of the image, use its path in the image, \
             with a slash",
        ),
        ("bin/", 126, "it is a directory"),
        (
            "./plain",
            126,
            "it may not be executed; give it the x permission, in an image before packing",
        ),
        (
            "bin/orphan",
            126,
            "its first line names the interpreter /none/such, which does not exist here; add it, or correct the line",
        ),
    ] {
        assert_eq!(
            case.failure(&case.run(&[program])),
            (Some(status), format!("cannot run {program}: {text}\n"))
        );
    }
    assert_eq!(
        case.failure(&case.run(&[])),
        (
            Some(125),
            "cannot run: there is no command to run\n".to_owned()
        )
    );
    case.fixture.assert_no_loop_device();
}

/// Runs in its own root directory, where /mnt is as the test wants it.
fn in_small_root(case: &Case, prepare: &str, arguments: &[&str]) -> Output {
    let root = case.fixture.path("root");
    if !root.exists() {
        case.fixture.empty_dir("root");
    }
    let script = "R=$1; shift; mount -t tmpfs none $R; mkdir $R/mnt $R/work; \
        for d in bin sbin lib lib64 usr dev proc sys; do \
            if [ -e /$d ]; then mkdir -p $R/$d; mount --rbind /$d $R/$d; fi; done; \
        mount --bind \"$DIR\" $R/work; cp \"$RUNNER\" $R/run; eval \"$PREPARE\"; \
        exec chroot $R /run /work/app.img - \"$@\"";
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", script, "sh"])
        .arg(&root)
        .args(arguments)
        .env("DIR", case.fixture.dir.path())
        .env("RUNNER", runner())
        .env("PREPARE", prepare)
        .output()
        .expect("unshare is needed for this test: install util-linux")
}

#[test]
fn without_a_place_it_is_mnt_if_that_is_free() {
    let case = Case::new();
    let output = in_small_root(
        &case,
        "",
        &["bin/app", "sh", "-c", "echo $BRISK_TREE; ls /mnt"],
    );
    assert_eq!(stdout(&output), "/mnt\nbin\nnoise\nplain\nsub\ntext");
    let output = in_small_root(
        &case,
        "touch $R/mnt/x; mkdir $R/media $R/srv; touch $R/media/x",
        &["bin/app", "sh", "-c", "echo $BRISK_TREE; ls /mnt"],
    );
    assert_eq!(stdout(&output), "/srv\nx");
    for (prepare, why) in [
        ("touch $R/mnt/x", "is not empty"),
        ("mount -t tmpfs none $R/mnt", "is a mount point"),
        ("rmdir $R/mnt", "does not exist"),
    ] {
        let output = in_small_root(&case, prepare, &["bin/app", "true"]);
        assert_eq!(
            case.failure(&output),
            (
                Some(125),
                format!(
                    "cannot mount /work/app.img: it would be mounted on /mnt, which {why}, \
                     and neither /media nor /srv is free\n"
                )
            )
        );
    }
    case.fixture.assert_no_loop_device();
}

/// In a chroot whose root is a plain directory, the mounts cannot be made slaves.
#[test]
fn a_plain_chroot_is_refused_before_anything_is_mounted() {
    let case = Case::new();
    let prepare = "mkdir $R/in; for d in bin sbin lib lib64 usr dev proc work; do \
        if [ -d $R/$d ]; then mkdir $R/in/$d; mount --rbind $R/$d $R/in/$d; fi; done; \
        cp $R/run $R/in/run; mkdir $R/in/mnt; R=$R/in";
    let output = in_small_root(&case, prepare, &["bin/app", "true"]);
    assert_eq!(
        case.failure(&output),
        (
            Some(125),
            "cannot mount /work/app.img: the root directory is not a mount point, so mounts \
             would be visible outside; in a chroot, bind its root onto itself first\n"
                .to_owned()
        )
    );
    assert_eq!(case.fixture.loop_device(), None);
}
