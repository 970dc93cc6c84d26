//! Bundles, by root and by an ordinary user.

mod staging;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use staging::programs::copy_program;
use staging::{Stage, each_user};

/// Says how it was started.
const PROGRAM: &str = "#!/bin/sh\n\
    case $1 in\n\
    wait) echo ready; read line; cat \"$APPDIR/noise\" > out; exit $? ;;\n\
    esac\n\
    printf '<%s>' \"$@\"; echo\n\
    echo \"$APPDIR|$APPIMAGE|$ARGV0|$OWD|$HOME\"\n\
    cat \"$APPDIR/sub/inside\"; exit 7\n";

const DESKTOP: &str =
    "[Desktop Entry]\nType=Application\nName=App\nExec=AppRun\nIcon=app\nCategories=Utility;\n";

/// The tree of the stage as an AppImage has it, as `says.img`.
fn image(stage: &Stage, codec: &str) -> PathBuf {
    let tree = stage.path("tree");
    fs::write(tree.join("AppRun"), PROGRAM).unwrap();
    fs::set_permissions(tree.join("AppRun"), Permissions::from_mode(0o755)).unwrap();
    fs::write(tree.join("app.desktop"), DESKTOP).unwrap();
    fs::write(tree.join("app.svg"), "<svg/>").unwrap();
    fs::write(tree.join(".DirIcon"), "<svg/>").unwrap();
    let closed = tree.join("closed");
    if !closed.exists() {
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    }
    let packed = brisk(
        stage,
        &["pack", "tree", "-q", "-o", "says.img", "--codec", codec],
    );
    assert!(packed.status.success(), "{packed:?}");
    stage.path("says.img")
}

fn brisk(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = Command::new(stage.executable());
    command.args(arguments).current_dir(stage.path(""));
    command.output().unwrap()
}

/// A bundle of the image in the user's home, where no brisk is.
fn bundle(stage: &Stage, arguments: &[&str]) -> PathBuf {
    assert!(
        stage.executable().with_file_name("brisk-bundle").exists(),
        "brisk-bundle is not built: run cargo build -p brisk-bundle -p brisk"
    );
    image(stage, "zstd");
    let made = brisk(
        stage,
        &[&["bundle", "says.img", "-o", "home/App"], arguments].concat(),
    );
    assert!(made.status.success(), "{made:?}");
    assert!(
        !String::from_utf8_lossy(&made.stderr).contains("warning"),
        "{made:?}"
    );
    let app = stage.writable().join("App");
    chown(&app, Some(stage.user()), Some(stage.user())).unwrap();
    app
}

/// The bundle as the user starts it, in the user's home.
fn started(stage: &Stage, app: &Path, arguments: &[&str]) -> Command {
    let brisk = stage.brisk(&[]);
    let mut words: Vec<_> = brisk.get_args().collect();
    words.pop();
    let mut command = Command::new(brisk.get_program());
    command
        .args(words)
        .arg(app)
        .args(arguments)
        .env("XDG_RUNTIME_DIR", stage.runtime())
        .env("HOME", stage.writable())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TMPDIR", stage.writable())
        .current_dir(stage.writable());
    command
}

fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Checks what the program says of its start. Returns the directory that it saw the image at.
fn assert_started(stage: &Stage, app: &Path, home: &Path, said: (i32, String, String)) -> PathBuf {
    let (code, out, err) = said;
    assert_eq!((code, &*err), (7, ""), "{out}");
    let lines: Vec<_> = out.lines().collect();
    let [arguments, variables, inside] = &lines[..] else {
        panic!("{out}");
    };
    assert_eq!((*arguments, *inside), ("<a><b c>", "from the image"));
    let (directory, rest) = variables.split_once('|').unwrap();
    let (app, own) = (app.display(), stage.writable());
    let expected = format!("{app}|{app}|{}|{}", own.display(), home.display());
    assert_eq!(rest, expected);
    PathBuf::from(directory)
}

#[test]
fn a_bundle_starts_its_program_where_there_is_no_brisk() {
    each_user(|stage| {
        let home = stage.writable();
        let app = bundle(stage, &[]);
        let start = |app: &Path| said(&mut started(stage, app, &["a", "b c"]));
        assert_started(stage, &app, &home, start(&app));
        let other = home.join("it's moved");
        fs::rename(&app, &other).unwrap();
        assert_started(stage, &other, &home, start(&other));
        // Two directories beside it stand for those of the user.
        let portable = home.join("it's moved.home");
        for said_of_it in [
            format!("made {}\n", portable.display()),
            format!("{} is there already\n", portable.display()),
        ] {
            let option = ["--appimage-portable-home"];
            let made = said(&mut started(stage, &other, &option));
            assert_eq!(made, (0, String::new(), said_of_it));
        }
        let mode = fs::metadata(&portable).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_started(stage, &other, &portable, start(&other));
        stage.assert_nothing_left(Duration::from_secs(60));
    });
}

#[test]
fn it_starts_where_nothing_can_be_mounted() {
    each_user(|stage| {
        let home = stage.writable();
        let app = bundle(stage, &[]);
        let options = ["--appimage-extract-and-run", "a", "b c"];
        let by_option = said(&mut started(stage, &app, &options));
        let seen = assert_started(stage, &app, &home, by_option);
        assert!(seen.starts_with(&home), "{seen:?}");
        let mut by_variable = started(stage, &app, &["a", "b c"]);
        by_variable.env("APPIMAGE_EXTRACT_AND_RUN", "1");
        let other = assert_started(stage, &app, &home, said(&mut by_variable));
        // It is removed when the program has ended.
        while seen.exists() || other.exists() {
            thread::yield_now();
        }
    });
}

#[test]
fn the_helper_of_fuse_2_mounts_where_there_is_no_other() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let programs = stage.path("programs");
        fs::create_dir(&programs).unwrap();
        for program in ["cat", "fusermount"] {
            symlink(Path::new("/usr/bin").join(program), programs.join(program)).unwrap();
        }
        let path = format!("PATH={}", programs.display());
        let words = [&path, app.to_str().unwrap(), "a", "b c"];
        let seen = said(&mut started(stage, Path::new("env"), &words));
        let seen = assert_started(stage, &app, &stage.writable(), seen);
        // A user namespace would show it elsewhere. Root mounts by itself.
        assert_eq!(
            seen.starts_with(stage.runtime()),
            !stage.is_root(),
            "{seen:?}"
        );
    });
}

#[test]
fn it_says_how_to_go_on_where_nothing_can_be_mounted() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        without([libc::SYS_unshare, libc::SYS_mount], libc::EPERM, || {
            let (code, out, err) = said(&mut started(stage, &app, &["a", "b c"]));
            assert_eq!((code, &*out), (127, ""), "{err}");
            assert!(
                err.starts_with(&format!("cannot start {}: ", app.display())),
                "{err}"
            );
            let cure = "to start it without a mount, put --appimage-extract-and-run first";
            assert!(err.contains(cure), "{err}");
            let options = ["--appimage-extract-and-run", "a", "b c"];
            let extracted = said(&mut started(stage, &app, &options));
            assert_started(stage, &app, &stage.writable(), extracted);
        });
    });
}

#[test]
fn it_is_an_appimage_to_others() {
    each_user(|stage| {
        let app = bundle(
            stage,
            &[
                "--update-information",
                "zsync|https://example.org/App.zsync",
            ],
        );
        let option = |option: &str| said(&mut started(stage, &app, &[option]));
        let (_, offset, _) = option("--appimage-offset");
        let offset = offset.trim().parse::<u64>().unwrap();
        let bytes = fs::read(&app).unwrap();
        assert_eq!(&bytes[8..11], b"AI\x02");
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        assert_eq!(word(0x28) + half(0x3a) * half(0x3c), offset);
        let sections = Command::new("readelf")
            .args(["-SW"])
            .arg(&app)
            .output()
            .unwrap();
        let sections = String::from_utf8_lossy(&sections.stdout).into_owned();
        for (name, len) in [
            (".upd_info", 0x400),
            (".sha256_sig", 0x400),
            (".sig_key", 0x2000),
        ] {
            let line = sections.lines().find(|line| line.contains(name)).unwrap();
            assert!(line.contains(&format!(" {len:06x} ")), "{line}");
        }
        let lists = Command::new("unsquashfs")
            .args(["-o", &offset.to_string(), "-l"])
            .arg(&app)
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&lists.stdout).contains("squashfs-root/sub/inside\n"));
        let information = "zsync|https://example.org/App.zsync\n".to_owned();
        for name in ["--appimage-updateinformation", "--appimage-updateinfo"] {
            assert_eq!(option(name), (0, information.clone(), String::new()));
        }
        assert_eq!(
            option("--appimage-signature"),
            (0, "\n".to_owned(), String::new())
        );
        let (code, _, version) = option("--appimage-version");
        assert_eq!((code, &*version), (0, "brisk-bundle 0.1.0\n"));
        let (code, help, _) = option("--appimage-help");
        assert!(
            code == 0 && help.contains("--appimage-extract-and-run"),
            "{help}"
        );
        let (code, _, why) = option("--appimage-none");
        let expected =
            "--appimage-none is no option of this AppImage; --appimage-help lists them\n";
        assert_eq!((code, &*why), (1, expected));
    });
}

#[test]
fn what_is_extracted_replaces_what_is_there() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let extract = |patterns: &[&str]| {
            let arguments = [&["--appimage-extract"], patterns].concat();
            let (code, out, err) = said(&mut started(stage, &app, &arguments));
            assert_eq!(out, "");
            (code, err)
        };
        let quiet = (0, String::new());
        let extracted = stage.writable().join("squashfs-root");
        let inside = || fs::read_to_string(extracted.join("sub/inside")).unwrap();
        // What matches, and all.
        assert_eq!(extract(&["su*/inside"]), quiet);
        assert_eq!(inside(), "from the image");
        assert!(!extracted.join("AppRun").exists());
        fs::write(extracted.join("sub/inside"), "changed").unwrap();
        fs::write(extracted.join("mine"), "kept").unwrap();
        assert_eq!(extract(&[]), quiet);
        assert_eq!(inside(), "from the image");
        let apprun = fs::read_to_string(extracted.join("AppRun")).unwrap();
        assert_eq!(apprun, PROGRAM);
        // Also in a directory that nobody may write.
        assert_eq!(extract(&["closed"]), quiet);
        assert!(extracted.join("mine").exists());
        let none = "nothing in the image matches none\n".to_owned();
        assert_eq!(extract(&["none"]), (0, none));
        let two = "--appimage-extract has 2 patterns, allowed is one\n".to_owned();
        assert_eq!(extract(&["a", "b"]), (1, two));
    });
}

#[test]
fn an_appimage_of_others_starts_too() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let other = stage.writable().join("Other");
        for codec in ["gzip", "zstd"] {
            // As appimagetool does it: the image right behind the section headers of a program.
            let script = format!(
                "rm -f other.img && mksquashfs tree other.img -comp {codec} -quiet -no-progress && \
                 cat /bin/true other.img > home/Other && chmod 755 home/Other"
            );
            let mut made = Command::new("sh");
            made.args(["-ec", &script]).current_dir(stage.path(""));
            assert!(made.status().unwrap().success());
            let run = ["run", "--linger", "0", other.to_str().unwrap(), "a"];
            let run = stage.brisk(&run).output().unwrap();
            assert!(
                String::from_utf8_lossy(&run.stdout).starts_with("<a>\n"),
                "{run:?}"
            );
        }
        // The last one has a codec of bundles.
        let made = brisk(stage, &["bundle", "home/Other", "-o", "home/Again", "-q"]);
        assert!(made.status.success(), "{made:?}");
        let again = stage.writable().join("Again");
        let seen = said(&mut started(stage, &again, &["a", "b c"]));
        assert_started(stage, &again, &stage.writable(), seen);
        // By the program of a bundle, which has fewer codecs.
        let mut target = started(stage, &app, &["a", "b c"]);
        let said = said(target.env("TARGET_APPIMAGE", &other));
        assert_started(stage, &other, &stage.writable(), said);
    });
}

#[test]
fn brisk_takes_it_as_an_image() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let ls = brisk(stage, &["ls", "home/App", "sub"]);
        assert_eq!(String::from_utf8_lossy(&ls.stdout), "sub/inside\n");
        let extracted = brisk(stage, &["extract", "home/App", "out", "-q"]);
        assert!(extracted.status.success(), "{extracted:?}");
        assert_eq!(
            fs::read_to_string(stage.path("out/AppRun")).unwrap(),
            PROGRAM
        );
        let run = ["run", "--linger", "0", app.to_str().unwrap(), "a"];
        let run = stage.brisk(&run).output().unwrap();
        assert!(
            String::from_utf8_lossy(&run.stdout).starts_with("<a>\n"),
            "{run:?}"
        );
        // The tree of hashes is that of the whole file.
        let verified = brisk(stage, &["verify", "home/App"]);
        assert!(verified.status.success(), "{verified:?}");
        // The same image gives the same bundle, also from a bundle.
        for from in ["says.img", "home/App"] {
            let again = brisk(stage, &["bundle", from, "-o", "again", "-q"]);
            assert!(again.status.success(), "{again:?}");
            assert!(
                fs::read(stage.path("again")).unwrap() == fs::read(&app).unwrap(),
                "{from}"
            );
        }
    });
}

#[test]
fn the_image_can_be_mounted_for_others() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let mut mount = started(stage, &app, &["--appimage-mount"]);
        let mut mount = mount.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(mount.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let place = PathBuf::from(line.trim_end());
        let mut cat = started(stage, Path::new("cat"), &[]);
        let (_, inside, _) = said(cat.arg(place.join("sub/inside")));
        assert_eq!(inside, "from the image");
        end(&mut mount);
        while place.exists() {
            thread::yield_now();
        }
    });
}

/// Ends a process, and those that it is only in front of.
fn end(process: &mut Child) {
    kill_process(Pid::from_child(process), Signal::TERM).unwrap();
    process.wait().unwrap();
}

/// A program from a bundle that waits, and then reads a file that nobody has read.
fn waiting(command: &mut Command) -> Child {
    let mut child = command
        .arg("wait")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    if child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .is_err()
    {
        panic!("{:?}", child.wait_with_output().unwrap());
    }
    assert_eq!(&ready, b"ready\n");
    child
}

/// Lets it read. Returns its status and what it says.
fn reads(mut child: Child) -> (Option<i32>, String) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn what_happens_to_the_file_meanwhile_gives_no_wrong_bytes() {
    each_user(|stage| {
        let app = bundle(stage, &[]);
        let noise = fs::read(stage.path("tree/noise")).unwrap();
        let out = stage.writable().join("out");
        // A file that was deleted is there as long as its program is.
        let copy = stage.writable().join("copy");
        copy_program(&app, &copy);
        let child = waiting(&mut started(stage, &copy, &[]));
        fs::remove_file(&copy).unwrap();
        assert_eq!(reads(child), (Some(0), String::new()));
        assert!(fs::read(&out).unwrap() == noise);
        // The kernel refuses to write into a program that runs, so another one starts this file.
        copy_program(&app, &copy);
        let child = waiting(started(stage, &app, &[]).env("TARGET_APPIMAGE", &copy));
        let len = fs::metadata(&copy).unwrap().len();
        let file = fs::File::options().write(true).open(&copy).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'x'; len as usize], 0).unwrap();
        let (code, said) = reads(child);
        assert!(
            code == Some(1) && said.contains("Input/output error"),
            "{code:?} {said}"
        );
        assert_eq!(fs::metadata(&out).unwrap().len(), 0);
    });
}

/// Runs `work` in a thread whose programs get this error from these system calls, and no rights from others' files.
fn without<T: Send>(
    calls: impl IntoIterator<Item = i64>,
    error: i32,
    work: impl FnOnce() -> T + Send,
) -> T {
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let error = SeccompAction::Errno(error.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            apply_filter(&filter).unwrap();
            work()
        });
        filtered.join().unwrap()
    })
}

#[test]
fn it_starts_on_a_kernel_of_eight_years_ago() {
    each_user(|stage| {
        let home = stage.writable();
        let app = bundle(stage, &[]);
        // What Linux 4.14 lacks. From 424 on, all processors have the same numbers, and Linux 5.1 or later.
        let newer = (424..600).chain([libc::SYS_rseq]);
        without(newer, libc::ENOSYS, || {
            for options in [&[][..], &["--appimage-extract-and-run"]] {
                let arguments = [options, &["a", "b c"]].concat();
                let said = said(&mut started(stage, &app, &arguments));
                assert_started(stage, &app, &home, said);
            }
            // Two programs share a session, which lasts as long as one of them.
            let child = waiting(&mut started(stage, &app, &[]));
            let other = said(&mut started(stage, &app, &["a", "b c"]));
            assert_started(stage, &app, &home, other);
            assert_eq!(reads(child), (Some(0), String::new()));
            stage.assert_nothing_left(Duration::from_secs(60));
            // Without a guardian, the watchdog ends the mount when the last program has ended.
            let child = waiting(&mut started(stage, &app, &[]));
            for guardian in stage.processes("brisk-guardian") {
                kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
            }
            // It has found the program, and has started a process that looks whether that lives.
            stage.wait_for_processes("brisk-looker", 1);
            assert_eq!(reads(child), (Some(0), String::new()));
        });
        assert!(fs::read(home.join("out")).unwrap() == fs::read(stage.path("tree/noise")).unwrap());
        stage.assert_no_process(Duration::from_secs(60));
    });
}

#[test]
fn what_can_be_no_bundle_is_refused() {
    let stage = &Stage::new(0);
    image(stage, "gzip");
    let refused = |arguments: &[&str]| {
        let made = brisk(stage, &[&["bundle"], arguments, &["-o", "App"]].concat());
        assert_eq!(made.status.code(), Some(2), "{made:?}");
        assert!(!stage.path("App").exists());
        String::from_utf8_lossy(&made.stderr).into_owned()
    };
    let said = refused(&["says.img"]);
    assert!(
        said.contains("its codec is gzip, and a bundle decodes only zstd and lz4"),
        "{said}"
    );
    let said = refused(&["app.img"]);
    assert!(
        said.contains("record one in a new image, and bundle that: brisk repack "),
        "{said}"
    );
    image(stage, "zstd");
    let said = refused(&["says.img", "--runtime", "none"]);
    assert!(
        said.contains("cannot read none; brisk bundle needs it"),
        "{said}"
    );
    let said = refused(&["says.img", "--runtime", "says.img"]);
    assert!(
        said.contains("says.img: it is no program that can be in front of an image"),
        "{said}"
    );
    // What a desktop misses is said, and the file is made.
    fs::remove_file(stage.path("tree/app.svg")).unwrap();
    stage.pack("says.img");
    let made = brisk(
        stage,
        &["bundle", "says.img", "-o", "App", "--runtime", "/bin/true"],
    );
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(
        said.contains("warning: says.img: it has no icon app at its top"),
        "{said}"
    );
    assert!(
        said.contains("true: it has no section .sha256_sig, which AppImages have"),
        "{said}"
    );
}
