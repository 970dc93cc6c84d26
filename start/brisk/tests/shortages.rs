//! Runs without descriptors, without room, and with times that are wrong.

mod staging;

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use staging::each_user;

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A filesystem in memory, until it is dropped.
struct Memory<'a>(&'a Path);

impl<'a> Memory<'a> {
    fn new(path: &'a Path, user: u32, options: &str) -> Self {
        let options = format!("mode=0700,uid={user},{options}");
        let options = CString::new(options).unwrap();
        mount(
            "brisk-test",
            path,
            "tmpfs",
            MountFlags::empty(),
            Some(&*options),
        )
        .unwrap();
        Self(path)
    }

    fn set_read_only(&self) {
        mount_remount(self.0, MountFlags::RDONLY, "").unwrap();
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// With each number of descriptors that a run may have, up to one that suffices.
#[test]
fn a_run_with_few_descriptors_starts_its_program_or_says_why_not() {
    each_user(|stage| {
        let mut started = false;
        for limit in 3..=48u64 {
            let run = stage.lingering(
                "0",
                &["bin/app", "sh", "-c", "cmp $BRISK_TREE/noise tree/noise"],
            );
            let mut command = Command::new("prlimit");
            command
                .arg(format!("--nofile={limit}:{limit}"))
                .arg(run.get_program())
                .args(run.get_args())
                .current_dir(stage.path(""));
            for (name, value) in run.get_envs() {
                command.env(name, value.unwrap());
            }
            let (code, _, err) = said(&command.output().unwrap());
            // The guardian writes why it ends after the program has got its error.
            stage.assert_no_process(Duration::from_secs(10));
            let log = stage.log();
            eprintln!("{limit}: {code:?} {err}{log}");
            started = code == Some(0);
            // The server or the guardian may be the one without descriptors. Then the program gets an error, if it has
            // started by then, and the log says why.
            let unserved = [
                "the processes that serve its files have ended",
                "Transport endpoint is not connected",
                "Software caused connection abort",
            ];
            let short = "oo many open files";
            match code {
                Some(0) => assert!(log.is_empty() || log.contains("ulimit -n"), "{log}"),
                _ if unserved.iter().any(|said| err.contains(said)) => {
                    assert!(log.contains(short), "{limit}: {err}{log}");
                }
                Some(125) => assert!(err.contains(short), "{limit}: {err}"),
                // The loader of the C library, or the shell, may be without descriptors themselves.
                Some(126 | 127) => assert!(err.contains(short) || limit < 8, "{limit}: {err}"),
                _ => panic!("{limit}: {code:?} {err}{log}"),
            }
            stage.remove_logs();
            stage.assert_nothing_left(Duration::from_secs(10));
        }
        assert!(started, "48 descriptors suffice");
    });
}

#[test]
fn a_read_only_session_directory_is_done_without() {
    each_user(|stage| {
        for with_directory in [false, true] {
            let runtime = stage.runtime();
            let memory = Memory::new(&runtime, stage.user(), "size=1M");
            if with_directory {
                assert!(
                    stage
                        .plainly(&["mkdir", "-m", "700", "run/brisk"])
                        .status
                        .success()
                );
            }
            memory.set_read_only();
            let output = stage
                .run(&["bin/app", "cat", "tree/sub/inside"])
                .output()
                .unwrap();
            let (code, out, err) = said(&output);
            assert_eq!((code, out.as_str()), (Some(0), "from the image"), "{err}");
            assert!(
                err.contains("the directory of sessions has no room (Read-only file system"),
                "{err}"
            );
            drop(memory);
            stage.assert_no_process(Duration::from_secs(10));
        }
    });
}

#[test]
fn a_disk_that_becomes_read_only_changes_nothing() {
    each_user(|stage| {
        let disk = stage.path("disk");
        fs::create_dir(&disk).unwrap();
        let memory = Memory::new(&disk, stage.user(), "size=64M");
        fs::copy(stage.path("app.img"), disk.join("app.img")).unwrap();
        fs::set_permissions(
            disk.join("app.img"),
            std::os::unix::fs::PermissionsExt::from_mode(0o644),
        )
        .unwrap();
        let run = |script: &str| {
            let mut command = stage.brisk(&[
                "run",
                "disk/app.img",
                "--at",
                "at",
                "--auto",
                "--linger",
                "600",
                "--",
            ]);
            command.args(["bin/app", "sh", "-c", script]);
            command
        };
        let mut child = run("read go; cmp $BRISK_TREE/noise tree/noise && echo same")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        stage.wait_for_program("sh");
        memory.set_read_only();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let same = (Some(0), "same\n".to_owned(), String::new());
        assert_eq!(said(&child.wait_with_output().unwrap()), same);
        let later = run("cmp $BRISK_TREE/text tree/text && echo same")
            .output()
            .unwrap();
        assert_eq!(said(&later), same);
        stage.brisk(&["umount", "disk/app.img"]).output().unwrap();
        stage.assert_no_process(Duration::from_secs(20));
    });
}

/// A command that writes to a disk that gets full, and what it would replace there.
struct Full<'a> {
    command: &'a str,
    replaces: &'a [&'a str],
    /// Pages that are left on the disk. None for one that is empty at first.
    left: Option<u64>,
    code: i32,
}

/// A profile that asks for all of the file `noise`.
const PROFILE: &str = r#"{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["/opt/app", "image"]], "files": [[0, "noise", 3000000, null]], "directories": [[0, ""]],
"steps": [["found", 0, "noise", 1, 1], ["pages", 0, 0, 733, 2, 1]]}"#;

#[test]
fn a_full_disk_leaves_the_old_file_and_no_other() {
    each_user(|stage| {
        let disk = stage.path("disk");
        fs::create_dir(&disk).unwrap();
        let _memory = Memory::new(&disk, stage.user(), "size=1M");
        fs::write(stage.path("app.profile"), PROFILE).unwrap();
        fs::create_dir(stage.path("small")).unwrap();
        fs::write(stage.path("small/file"), "small").unwrap();
        let made = Command::new("minisign")
            .args(["-G", "-W", "-p", "k.pub", "-s", "k.key"])
            .current_dir(stage.path(""))
            .output();
        assert!(made.expect("minisign is installed").status.success());
        chown(stage.path("k.key"), Some(stage.user()), None).unwrap();
        let packed = ["pack", "small", "-q", "--verity", "-o", "disk/signed.img"];
        assert_eq!(
            said(&stage.brisk(&packed).output().unwrap()).0,
            Some(0),
            "no signature without a hash tree"
        );
        let signature = ["signed.img.manifest", "signed.img.manifest.minisig"];
        for full in [
            // Three million bytes of noise, which no codec makes less.
            Full {
                command: "pack tree -q -o disk/out.img",
                replaces: &["out.img"],
                left: None,
                code: 2,
            },
            Full {
                command: "repack app.img -q -o disk/out.img",
                replaces: &["out.img"],
                left: None,
                code: 2,
            },
            Full {
                command: "hot app.img -q --profile app.profile -o disk/app.hot",
                replaces: &["app.hot"],
                left: None,
                code: 2,
            },
            Full {
                command: "verity app.img -q -o disk/app.verity",
                replaces: &["app.verity", "app.roothash"],
                left: Some(2),
                code: 2,
            },
            Full {
                command: "sign disk/signed.img -q --key k.key",
                replaces: &signature,
                left: Some(0),
                code: 2,
            },
            // There is room for one of the two files.
            Full {
                command: "sign disk/signed.img -q --key k.key",
                replaces: &signature,
                left: Some(1),
                code: 2,
            },
            Full {
                command: "trace app.img --at at -q -o disk/app.profile -- cat at/text",
                replaces: &["app.profile"],
                left: Some(0),
                code: 125,
            },
        ] {
            for name in full.replaces {
                fs::write(disk.join(name), "old").unwrap();
            }
            let filler = full.left.map(|pages| fill(&disk, pages));
            let before = names(&disk);
            let arguments: Vec<_> = full.command.split(' ').collect();
            let (code, _, err) = said(&stage.brisk(&arguments).output().unwrap());
            let context = format!("{}: {err}", full.command);
            assert_eq!(code, Some(full.code), "{context}");
            assert!(err.contains("No space left on device"), "{context}");
            assert_eq!(names(&disk), before, "{context}");
            for name in full.replaces {
                assert_eq!(fs::read(disk.join(name)).unwrap(), b"old", "{context}");
                fs::remove_file(disk.join(name)).unwrap();
            }
            if let Some(filler) = filler {
                fs::remove_file(filler).unwrap();
            }
        }
        let (code, _, err) = said(
            &stage
                .brisk(&["extract", "app.img", "disk/copy"])
                .output()
                .unwrap(),
        );
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("No space left on device"), "{err}");
        assert!(
            disk.join("copy/bin/app").exists(),
            "what was extracted stays"
        );
        fs::remove_dir_all(disk.join("copy")).unwrap();
        let list = || {
            let mut list = stage.brisk(&["auto", "list"]);
            said(&list.env("XDG_CACHE_HOME", &disk).output().unwrap()).2
        };
        let nothing = "nothing is learned yet; brisk run --auto -- PROGRAM learns from a start\n";
        assert_eq!(list(), nothing);
        fill(&disk, 0);
        let warning = format!(
            "brisk: warning: {} lies on a disk that is full, so brisk learns nothing more; free space or inodes there\n",
            disk.join("brisk/hot").display()
        );
        assert_eq!(list(), [nothing, &warning].concat());
    });
}

/// What is in a directory.
fn names(directory: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

/// Fills a disk with one file, but for some pages.
fn fill(disk: &Path, left: u64) -> PathBuf {
    let path = disk.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    let mut pages = 0;
    while file.write_all(&[0; 4096]).is_ok() {
        pages += 1;
    }
    file.set_len((pages - left) * 4096).unwrap();
    path
}

/// As after the clock of the machine was wrong.
#[test]
fn files_of_the_future_and_of_1970_are_like_others() {
    each_user(|stage| {
        let run = || {
            let mut command = stage.lingering("0", &["bin/app", "cat", "tree/sub/inside"]);
            let output = command.output().unwrap();
            assert_eq!(
                said(&output),
                (Some(0), "from the image".to_owned(), String::new())
            );
            stage.assert_nothing_left(Duration::from_secs(10));
        };
        let future = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000_000);
        for time in [SystemTime::UNIX_EPOCH, future] {
            for name in ["app.img", "run", "home"] {
                let file = fs::File::open(stage.path(name)).unwrap();
                file.set_modified(time).unwrap();
            }
            run();
        }
        run();
    });
}
