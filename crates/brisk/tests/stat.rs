//! `brisk stat` and `brisk umount` where images have changed.

mod staging;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use staging::documented::assert_documented;
use staging::{Stage, each_world};

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

fn brisk(stage: &Stage, arguments: &[&str]) -> Said {
    said(&stage.brisk(arguments).output().unwrap())
}

/// The command of a run that lingers.
fn run(stage: &Stage, image: &str, options: &[&str]) -> Command {
    let mut command = stage.brisk(&["run", image, "--linger", "600"]);
    command.args(options).args(stage.world());
    command.args(["--", "bin/app"]);
    command
}

/// Without a place, all programs of an ordinary user see the image.
fn options(stage: &Stage) -> &'static [&'static str] {
    match stage.in_own_world() {
        true => &[],
        false => &["--at", "at"],
    }
}

fn start(stage: &Stage, image: &str) {
    let mut run = run(stage, image, options(stage));
    let output = run.arg("true").output().unwrap();
    assert_eq!(said(&output), printed(""), "{image}");
}

/// The sessions, from `brisk stat --json`.
fn stat(stage: &Stage, path: &[&str]) -> Vec<Value> {
    let (_, out, err) = brisk(stage, &[&["stat", "--json"], path].concat());
    assert_eq!(err, "");
    let sessions: Vec<Value> = serde_json::from_str(&out).unwrap();
    if !sessions.is_empty() {
        assert_documented("stat", &out);
    }
    sessions
}

#[test]
fn images_that_were_replaced_or_deleted_are_marked() {
    each_world(|stage| {
        let top = stage.path("").canonicalize().unwrap();
        let names = ["same", "replaced", "written", "deleted", "moved"];
        for name in names {
            let image = format!("{name}.img");
            stage.pack(&image);
            start(stage, &image);
        }
        let path = |name: &str| top.join(format!("{name}.img"));
        fs::copy(path("same"), path("new")).unwrap();
        fs::rename(path("new"), path("replaced")).unwrap();
        let file = fs::File::options().append(true).open(path("written"));
        file.unwrap().write_all(&[0; 4096]).unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::rename(path("moved"), path("elsewhere")).unwrap();
        let (_, text, _) = brisk(stage, &["stat"]);
        let states = ["same", "replaced", "replaced", "deleted", "deleted"];
        for (name, state) in names.into_iter().zip(states) {
            let image = format!("{name}.img");
            let found = stat(stage, &[&image]);
            let [session] = &*found else {
                panic!("{name}: {found:?}");
            };
            assert_eq!(session["images"][0]["state"], state, "{name}");
            let mark = match state {
                "same" => String::new(),
                state => format!(" ({state})"),
            };
            let line = format!("{}{mark} on ", path(name).display());
            assert!(
                text.lines().any(|found| found.starts_with(&line)),
                "{line}{text}"
            );
        }
        // A later run of a file of that name has a session of its own.
        start(stage, "replaced.img");
        let found = stat(stage, &["replaced.img"]);
        let states = found
            .iter()
            .map(|session| session["images"][0]["state"].as_str());
        let mut states: Vec<_> = states.map(Option::unwrap).collect();
        states.sort_unstable();
        assert_eq!(states, ["replaced", "same"]);
        for name in names {
            let image = format!("{name}.img");
            assert_eq!(brisk(stage, &["umount", &image]), printed(""), "{name}");
            assert_eq!(stat(stage, &[&image]), Vec::<Value>::new(), "{name}");
        }
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}

#[test]
fn a_session_of_a_deleted_image_ends_by_the_name_that_its_user_knows() {
    each_world(|stage| {
        let top = stage.path("").canonicalize().unwrap();
        fs::create_dir(top.join("dir")).unwrap();
        fs::create_dir(top.join("links")).unwrap();
        symlink("../dir", top.join("links/to-dir")).unwrap();
        symlink("../dir/app.img", top.join("links/app.img")).unwrap();
        let absolute = top.join("dir/app.img").display().to_string();
        for (started, ended, gone) in [
            ("dir/app.img", "dir/app.img", "dir/app.img"),
            ("dir/app.img", &*absolute, "dir/app.img"),
            ("dir/app.img", "./links/../dir/./app.img", "dir/app.img"),
            (
                "links/to-dir/app.img",
                "links/to-dir/app.img",
                "dir/app.img",
            ),
            // The link leads nowhere.
            ("links/app.img", "links/app.img", "dir/app.img"),
            // Neither link nor image is there any more, or not even the directory.
            ("links/app.img", "links/app.img", "links"),
            ("dir/app.img", "dir/app.img", "dir"),
        ] {
            fs::copy(stage.path("app.img"), &absolute).unwrap();
            start(stage, started);
            match top.join(gone).is_dir() {
                true => fs::remove_dir_all(top.join(gone)).unwrap(),
                false => fs::remove_file(top.join(gone)).unwrap(),
            }
            if gone == "links" {
                fs::remove_file(&absolute).unwrap();
            }
            let (_, listed, _) = brisk(stage, &["stat", ended]);
            assert!(
                listed.contains("/dir/app.img (deleted) on "),
                "{ended}: {listed}"
            );
            assert_eq!(brisk(stage, &["umount", ended]), printed(""), "{ended}");
            stage.assert_no_process(Duration::from_secs(10));
        }
        let unknown = brisk(stage, &["umount", "dir/app.img"]);
        let err = "brisk: cannot unmount dir/app.img: there is nothing of this name; brisk stat lists sessions and mounts\n";
        assert_eq!(unknown, (Some(2), String::new(), err.to_owned()));
        stage.assert_nothing_left(Duration::from_secs(10));
    });
}
