//! Directories that keep what programs write over an image, by root and by an ordinary user.

mod staging;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use staging::{Stage, each_user};

type Said = (Option<i32>, String, String);

fn said(output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn printed(text: &str) -> Said {
    (Some(0), text.to_owned(), String::new())
}

/// Runs a script of the image `image` with these options and no session afterwards.
fn run(stage: &Stage, image: &str, options: &[&str], script: &str) -> Said {
    let mut command = stage.brisk(&["run", image, "--linger", "0"]);
    command
        .args(options)
        .args(["--", "bin/app", "sh", "-c", script]);
    said(&command.env("HOME", stage.writable()).output().unwrap())
}

/// A directory that the user may use, and the option that names it.
fn layer(stage: &Stage, name: &str) -> (PathBuf, String) {
    let layer = stage.writable().join(name);
    let option = format!("--writable={}", layer.display());
    (layer, option)
}

#[test]
fn a_later_run_sees_what_an_earlier_one_has_written() {
    each_user(|stage| {
        let before = fs::read(stage.path("app.img")).unwrap();
        let (layer, kept) = layer(stage, "kept");
        let options = ["--at", "at", &*kept];
        let script = "cd $BRISK_TREE && echo new > sub/new && echo more >> text && rm noise && rm -r many && mkdir many && \
                      echo own > many/own && chmod 700 bin && ln -s new sub/link && mv sub/inside sub/moved && ls";
        let listed = "bin\nlink\nmany\nsub\ntext\n";
        assert_eq!(run(stage, "app.img", &options, script), printed(listed));
        stage.assert_no_process(std::time::Duration::from_secs(20));
        let script = "cd $BRISK_TREE && ls && ls many sub && cat sub/link many/own sub/moved && tail -c 5 text && \
                      stat -c %a bin";
        let again = format!(
            "{listed}many:\nown\n\nsub:\nlink\nmoved\nnew\nnew\nown\nfrom the imagemore\n700\n"
        );
        assert_eq!(run(stage, "app.img", &options, script), printed(&again));
        // The image is as before, for runs without the layer too.
        assert!(fs::read(stage.path("app.img")).unwrap() == before);
        assert_eq!(
            run(stage, "app.img", &["--at", "at"], "ls $BRISK_TREE/sub"),
            printed("inside\n")
        );
        // What is only in memory does not get there.
        let memory = ["--at", "at", "--writable"];
        assert_eq!(
            run(stage, "app.img", &memory, "echo x > $BRISK_TREE/memory"),
            printed("")
        );
        assert!(!layer.join("upper/memory").exists());
        // The layer is what a backup needs: plain files.
        assert_eq!(fs::read(layer.join("upper/sub/new")).unwrap(), b"new\n");
    });
}

#[test]
fn a_new_directory_of_the_same_name_is_another_layer() {
    each_user(|stage| {
        let (layer, kept) = layer(stage, "kept");
        let run = |script: &str| {
            let options = [
                "run", "app.img", "--at", "at", "--linger", "60", &kept, "--", "bin/app", "sh",
                "-c",
            ];
            let mut command = stage.brisk(&options);
            said(&command.arg(script).output().unwrap())
        };
        assert_eq!(run("echo x > $BRISK_TREE/one"), printed(""));
        let stat = stage.brisk(&["stat", "app.img"]).output().unwrap();
        let line = format!("  written to  {}\n", layer.display());
        assert!(said(&stat).1.contains(&line), "{stat:?}");
        let stat = stage.brisk(&["stat", "--json"]).output().unwrap();
        let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).unwrap();
        assert_eq!(stat[0]["layer"], *layer.to_str().unwrap());
        // The session of the first one goes on.
        fs::rename(&layer, stage.writable().join("moved")).unwrap();
        let script = "cd $BRISK_TREE && [ ! -e one ] && echo y > two";
        assert_eq!(run(script), printed(""));
        assert_eq!(fs::read(layer.join("upper/two")).unwrap(), b"y\n");
        let ended = stage.brisk(&["umount", "--all"]).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    });
}

#[test]
fn an_image_whose_root_nobody_may_write_to_keeps_a_layer() {
    each_user(|stage| {
        let mode = |mode| fs::set_permissions(stage.path("tree"), Permissions::from_mode(mode));
        mode(0o555).unwrap();
        stage.pack("closed.img");
        mode(0o755).unwrap();
        let (_, kept) = layer(stage, "kept");
        let options = ["--at", "at", &*kept];
        let script = "stat -c %a $BRISK_TREE; echo more >> $BRISK_TREE/text";
        for _ in 0..2 {
            assert_eq!(run(stage, "closed.img", &options, script), printed("555\n"));
            stage.assert_no_process(std::time::Duration::from_secs(20));
        }
        let script = "tail -n 2 $BRISK_TREE/text";
        let (code, out, _) = run(stage, "closed.img", &options, script);
        assert_eq!(
            (code, out.ends_with("more\nmore\n")),
            (Some(0), true),
            "{out}"
        );
    });
}

#[test]
fn a_layer_lies_over_a_root_directory_too() {
    each_user(|stage| {
        stage.pack_root();
        let (_, kept) = layer(stage, "kept");
        let run = |script: &str| {
            let options = [
                "run", "root.img", "--linger", "0", "--root", &kept, "--", "/bin/sh", "-c", script,
            ];
            said(&stage.brisk(&options).output().unwrap())
        };
        assert_eq!(
            run("echo x > /new; echo y > /etc/own; cat /new /etc/own"),
            printed("x\ny\n")
        );
        assert_eq!(run("cat /new /etc/own; ls /data"), printed("x\ny\n"));
    });
}

#[test]
fn runs_of_one_session_share_a_layer_and_other_sessions_are_refused() {
    each_user(|stage| {
        stage.pack("other.img");
        let (layer, kept) = layer(stage, "kept");
        let mut command = stage.brisk(&[
            "run", "app.img", "--at", "at", "--linger", "0", &kept, "--", "bin/app", "sh", "-c",
        ]);
        let mut first = command
            .arg("echo first > $BRISK_TREE/first; read line; true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&layer.join("upper/first"));
        // The same image in the same way is the same session, with one overlay.
        assert_eq!(
            run(
                stage,
                "app.img",
                &["--at", "at", &kept],
                "cat $BRISK_TREE/first"
            ),
            printed("first\n")
        );
        let image = stage.path("app.img").canonicalize().unwrap();
        let refused = format!(
            "brisk: cannot mount other.img: another session keeps in {} what is written to {image}; wait for its end, end it with \
             brisk umount, or name another directory with --writable=DIR\n",
            layer.canonicalize().unwrap().display(),
            image = image.display()
        );
        let second = run(stage, "other.img", &[&*kept], "true");
        assert_eq!(second, (Some(125), String::new(), refused));
        // The lock ends with the session, also if its guardian is killed.
        drop(first.stdin.take());
        assert!(first.wait().unwrap().success());
        assert_eq!(
            run(
                stage,
                "other.img",
                &["--at", "at", &kept],
                "cat $BRISK_TREE/first"
            ),
            printed("first\n")
        );
    });
}

#[test]
fn a_killed_guardian_keeps_the_layer_locked_while_programs_live() {
    let stage = Stage::new(1000);
    stage.pack("other.img");
    let (layer, kept) = layer(&stage, "kept");
    let mut command = stage.brisk(&[
        "run", "app.img", "--at", "at", "--linger", "0", &kept, "--", "bin/app", "sh", "-c",
    ]);
    let mut first = command
        .arg("echo first > $BRISK_TREE/first; read line")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&layer.join("upper/first"));
    let guardians = stage.processes("brisk-guardian");
    let guardian = rustix::process::Pid::from_raw(guardians[0]).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    let second = run(&stage, "other.img", &[&*kept], "true");
    assert_eq!(second.0, Some(125));
    assert!(second.2.contains("another session keeps in"), "{second:?}");
    drop(first.stdin.take());
    first.wait().unwrap();
}

fn wait_for(path: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !path.exists() {
        assert!(
            std::time::Instant::now() < deadline,
            "{} does not appear",
            path.display()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

const OTHERS: &str = "others own it or may write to it, and could change programs there; name a directory that only you may write to";

#[test]
fn what_can_be_no_layer_is_refused_with_a_reason() {
    each_user(|stage| {
        let refused = |option: &str| run(stage, "app.img", &["--at", "at", option], "true");
        let message = |layer: &Path, why: &str| {
            let layer = layer.canonicalize().unwrap();
            let text = format!(
                "brisk: cannot mount app.img: what is written cannot be kept in {}: {why}\n",
                layer.display()
            );
            (Some(125), String::new(), text)
        };
        let own = |path: &Path| chown(path, Some(stage.user()), Some(stage.user())).unwrap();
        let (full, option) = layer(stage, "full");
        fs::create_dir(&full).unwrap();
        own(&full);
        fs::write(full.join("letter"), "").unwrap();
        assert_eq!(
            refused(&option),
            message(
                &full,
                "it has \"letter\", which is no part of a layer; name an empty directory, or one that does not exist"
            )
        );
        // The kernel empties `work`, so it must be that of a layer.
        let (foreign, option) = layer(stage, "foreign");
        fs::create_dir_all(foreign.join("work/work")).unwrap();
        own(&foreign);
        fs::write(foreign.join("work/work/letter"), "mine").unwrap();
        let why = |name: &str| {
            format!(
                "it has {name:?}, which is no part of a layer; name an empty directory, or one that does not exist"
            )
        };
        assert_eq!(refused(&option), message(&foreign, &why("work")));
        fs::remove_dir_all(foreign.join("work")).unwrap();
        fs::write(foreign.join("lock"), "of my door").unwrap();
        assert_eq!(refused(&option), message(&foreign, &why("lock")));
        let kept = fs::read_to_string(foreign.join("lock")).unwrap();
        assert_eq!(kept, "of my door");
        let (open, option) = layer(stage, "open");
        fs::create_dir(&open).unwrap();
        own(&open);
        for mode in [0o777, 0o770] {
            fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            assert_eq!(refused(&option), message(&open, OTHERS));
        }
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        chown(&open, Some(stage.user() + 1), None).unwrap();
        assert_eq!(refused(&option), message(&open, OTHERS));
        // A link in the layer leads nowhere.
        let (linked, option) = layer(stage, "linked");
        fs::create_dir(&linked).unwrap();
        own(&linked);
        fs::write(linked.join("lock"), "").unwrap();
        own(&linked.join("lock"));
        symlink("/etc", linked.join("upper")).unwrap();
        let (code, _, error) = refused(&option);
        assert_eq!(
            (code, error.contains("could not use the layer in")),
            (Some(125), true),
            "{error}"
        );
        let (code, _, error) = refused(&layer(stage, "none/below").1);
        assert_eq!(
            (code, error.contains("could not make")),
            (Some(125), true),
            "{error}"
        );
        let (_, option) = layer(stage, "kept");
        let audit = said(
            &stage
                .brisk(&[
                    "run", "app.img", "--audit", &option, "--", "bin/app", "true",
                ])
                .output()
                .unwrap(),
        );
        assert_eq!(audit.0, Some(125));
        assert!(
            audit
                .2
                .contains("--audit traces the program and keeps nothing in"),
            "{audit:?}"
        );
    });
}

#[test]
fn file_systems_that_hold_no_layer_are_named() {
    let stage = Stage::new(0);
    let script = "mkdir l u w o && mount -t tmpfs none u && mkdir u/u u/w && \
                  mount -t overlay none -o lowerdir=l,upperdir=u/u,workdir=u/w o && mkdir o/kept && \
                  exec $B run app.img --at at --linger 0 --writable=o/kept -- bin/app true";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script])
        .current_dir(stage.path(""))
        .env("B", stage.executable())
        .env("XDG_RUNTIME_DIR", stage.runtime())
        .output()
        .unwrap();
    let (code, _, error) = said(&output);
    assert_eq!(code, Some(125), "{error}");
    assert!(
        error.ends_with(
            "o/kept: it is on an overlay, which cannot hold the writable layer of an overlay; name a directory on a local \
             disk (ext4, XFS, Btrfs)\n"
        ),
        "{error}"
    );
}
