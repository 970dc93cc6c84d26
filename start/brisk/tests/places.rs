//! Places of images that do not exist: a session makes them for its own programs, and everything beside them stays.

mod staging;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use brisk_image::{ImageWriter, Tree, TreeRules};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use staging::{Stage, each_user, watched};

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

/// What brisk says when it makes `place`, and replaces `parent` for that.
fn told(place: &Path, parent: &Path) -> String {
    format!(
        "{place} does not exist, so brisk shows it to this program alone. The program sees all that is in {parent}, but can \
         make, rename or remove nothing directly in it; make the directory {place} to allow that\n",
        place = place.display(),
        parent = parent.display()
    )
}

/// Why brisk does not make `place`.
fn refused(place: &Path, why: &str) -> Said {
    let place = place.display();
    let err = format!(
        "brisk: cannot mount app.img: {place} does not exist, and brisk cannot show it to the program alone: {why}; make the \
         directory first"
    );
    (Some(125), String::new(), err)
}

/// Packs the tree with this place.
fn pack(stage: &Stage, place: &Path) {
    let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
    let writer = ImageWriter::new().place(place.into());
    writer.write(&tree, stage.path("placed.img")).unwrap();
}

/// Runs a script from an image, in a session that lingers, with messages that are not translated.
fn run(stage: &Stage, image: &str, options: &[&str], script: &str) -> Said {
    let mut command = stage.brisk(&["run", image, "--linger", "600"]);
    command
        .args(options)
        .args(["--", "bin/app", "sh", "-c", script]);
    said(&command.env("LC_ALL", "C").output().unwrap())
}

fn end(stage: &Stage) {
    assert_eq!(
        said(&stage.brisk(&["umount", "--all"]).output().unwrap()),
        printed("")
    );
    stage.assert_nothing_left(Duration::from_secs(10));
}

/// A file system in memory with the file `in`, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn on(place: PathBuf) -> Self {
        fs::create_dir(&place).unwrap();
        mount("brisk-test", &place, "tmpfs", MountFlags::empty(), None).unwrap();
        let mounted = Self(place);
        fs::write(mounted.0.join("in"), "of a mount\n").unwrap();
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// A directory of the user with a file, a directory, links and mounts in it, and its canonical path.
fn parent(stage: &Stage) -> (PathBuf, [Mounted; 2]) {
    let parent = stage.path("").canonicalize().unwrap().join("parent");
    fs::create_dir(&parent).unwrap();
    fs::create_dir(parent.join("dir")).unwrap();
    fs::write(parent.join("file"), "old\n").unwrap();
    for own in ["", "dir", "file"] {
        chown(parent.join(own), Some(stage.user()), Some(stage.user())).unwrap();
    }
    symlink("dir", parent.join("link")).unwrap();
    symlink("nowhere", parent.join("dangling")).unwrap();
    let mounts = ["mounted", "dir/below"].map(|name| Mounted::on(parent.join(name)));
    (parent, mounts)
}

#[test]
fn a_place_is_made_and_all_beside_it_stays() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        let place = parent.join("deep/er");
        pack(stage, &place);
        let script = "echo $BRISK_TREE; cat $BRISK_TREE/sub/inside; echo; ls -A parent parent/deep; \
                      readlink parent/link parent/dangling; cat parent/mounted/in parent/link/below/in; \
                      echo new > parent/file; echo written >> parent/dir/new; \
                      for f in parent/made parent/deep/made; do touch $f 2>&1; done; \
                      mv parent/file parent/moved 2>&1; rm parent/link 2>&1; stat -c %a parent; pwd -P";
        let out = format!(
            "{place}\nfrom the image\nparent:\ndangling\ndeep\ndir\nfile\nlink\nmounted\n\nparent/deep:\ner\ndir\nnowhere\n\
             of a mount\nof a mount\n\
             touch: cannot touch 'parent/made': Read-only file system\n\
             touch: cannot touch 'parent/deep/made': Read-only file system\n\
             mv: cannot move 'parent/file' to 'parent/moved': Read-only file system\n\
             rm: cannot remove 'parent/link': Read-only file system\n755\n{here}\n",
            place = place.display(),
            here = parent.parent().unwrap().display()
        );
        // The run that makes the session says it, and those that join it do not.
        for err in [told(&place, &parent), String::new()] {
            let expected = (Some(0), out.clone(), err);
            assert_eq!(run(stage, "placed.img", &[], script), expected);
        }
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        // What was written is where everybody sees it, and nothing else has changed.
        let read = |name: &str| fs::read_to_string(parent.join(name)).unwrap();
        assert_eq!(read("file"), "new\n");
        assert_eq!(read("dir/new"), "written\nwritten\n");
        assert!(!parent.join("deep").exists());
        end(stage);
    });
}

#[test]
fn a_place_is_made_in_the_root_directory() {
    each_user(|stage| {
        let name = format!("brisk-place-{}-{}", std::process::id(), stage.user());
        let place = Path::new("/").join(&name);
        pack(stage, &place);
        let root = fs::read_dir("/").unwrap();
        let mut names: Vec<_> = root
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("brisk-place-"))
            .collect();
        names.push(name.clone());
        names.sort_unstable();
        // The tests of other users make their places at the same time. A sandbox must be possible in it.
        let script = "echo $BRISK_TREE; cat $BRISK_TREE/sub/inside; echo; pwd -P; touch /made 2>&1; \
                      echo written > home/new; unshare --user --mount true && echo sandbox; ls -A /";
        let out = format!(
            "/{name}\nfrom the image\n{}\ntouch: cannot touch '/made': Read-only file system\nsandbox\n{}\n",
            stage.path("").canonicalize().unwrap().display(),
            names.join("\n")
        );
        for err in [told(&place, Path::new("/")), String::new()] {
            let expected = (Some(0), out.clone(), err);
            assert_eq!(run(stage, "placed.img", &[], script), expected);
        }
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        let written = fs::read_to_string(stage.writable().join("new")).unwrap();
        assert_eq!(written, "written\n");
        assert!(!place.exists());
        end(stage);
    });
}

#[test]
fn a_session_is_joined_only_while_nothing_has_come_beside_its_place() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        let place = parent.join("app");
        pack(stage, &place);
        let list = || run(stage, "placed.img", &[], "ls -A parent").1;
        let before = "app\ndangling\ndir\nfile\nlink\nmounted\n";
        assert_eq!(list(), before);
        fs::write(parent.join("dir/other"), "").unwrap();
        assert_eq!(list(), before);
        assert_eq!(stage.processes("brisk-guardian").len(), 1);
        fs::create_dir(parent.join("later")).unwrap();
        assert_eq!(list(), "app\ndangling\ndir\nfile\nlater\nlink\nmounted\n");
        assert_eq!(stage.processes("brisk-guardian").len(), 2);
        // Now it is a directory like others.
        fs::create_dir(&place).unwrap();
        let made = "touch parent/made && ls -A parent/app | head -1";
        chown(&place, Some(stage.user()), Some(stage.user())).unwrap();
        assert_eq!(run(stage, "placed.img", &[], made), printed("bin\n"));
        end(stage);
    });
}

/// As in a chromium profile or a layer beside the place: what is written lies below the directory that is replaced.
#[test]
fn what_is_written_to_a_made_place_is_kept_in_a_layer() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        let in_root = format!("/brisk-place-layer-{}-{}", std::process::id(), stage.user());
        for (place, replaced) in [
            (parent.join("one/two"), &*parent),
            (in_root.into(), Path::new("/")),
        ] {
            pack(stage, &place);
            let layer = parent.join("dir/layer");
            let writable = format!("--writable={}", layer.display());
            let write = "echo kept > $BRISK_TREE/sub/inside";
            let first = run(stage, "placed.img", &[&writable], write);
            assert_eq!(first, (Some(0), String::new(), told(&place, replaced)));
            end(stage);
            let read = "cat $BRISK_TREE/sub/inside";
            let second = run(stage, "placed.img", &[&writable], read);
            let expected = (Some(0), "kept\n".to_owned(), told(&place, replaced));
            assert_eq!(second, expected);
            end(stage);
            fs::remove_dir_all(layer).unwrap();
            // In memory.
            let both = format!("{write} && {read}");
            let third = run(stage, "placed.img", &["--writable"], &both);
            assert_eq!(third.1, "kept\n");
            end(stage);
        }
    });
}

#[test]
fn several_images_and_bound_files_have_places_that_are_made() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        stage.pack_tree("tree/sub", "sub.img");
        // Two in one directory, one in a directory of that, and one that exists.
        let at = ["one", "two/deep", "dir/three"].map(|name| parent.join(name));
        let with: Vec<_> = ["two/deep", "dir/three", "dir/four"]
            .iter()
            .map(|name| format!("sub.img@{}", parent.join(name).display()))
            .collect();
        fs::create_dir(parent.join("dir/four")).unwrap();
        let place = at[0].display().to_string();
        let mut options = vec!["--at", &place];
        options.extend(with.iter().flat_map(|with| ["--with", with]));
        // A relative name, from the directory that the process was in before.
        options.extend(["--bind", "tree/bin:parent/dir/bound"]);
        fs::create_dir(parent.join("dir/bound")).unwrap();
        let script = "cd parent; cat one/sub/inside two/deep/inside dir/three/inside dir/four/inside; echo; ls dir/bound; \
                      ls -A . dir; touch dir/made 2>&1; cat dir/below/in";
        let out = "from the imagefrom the imagefrom the imagefrom the image\napp\n\
                   .:\ndangling\ndir\nfile\nlink\nmounted\none\ntwo\n\n\
                   dir:\nbelow\nbound\nfour\nthree\n\
                   touch: cannot touch 'dir/made': Read-only file system\nof a mount\n";
        let [one, two, three] = &at;
        let dir = parent.join("dir");
        let err = [told(one, &parent), told(two, &parent), told(three, &dir)].concat();
        let first = run(stage, "app.img", &options, script);
        assert_eq!(first, (Some(0), out.to_owned(), err));
        assert_eq!(run(stage, "app.img", &options, script), printed(out));
        end(stage);
    });
}

#[test]
fn a_directory_of_more_than_1000_entries_is_not_replaced() {
    each_user(|stage| {
        let parent = stage.path("").canonicalize().unwrap().join("large");
        fs::create_dir(&parent).unwrap();
        for number in 0..1000 {
            fs::write(parent.join(number.to_string()), "").unwrap();
        }
        let place = parent.join("app");
        let at = place.display().to_string();
        let count = || run(stage, "app.img", &["--at", &at], "ls -A large | wc -l");
        let expected = (Some(0), "1001\n".to_owned(), told(&place, &parent));
        assert_eq!(count(), expected);
        fs::write(parent.join("1000"), "").unwrap();
        let why = format!(
            "{} has more than 1000 entries, and each must be bound beside it",
            parent.display()
        );
        let (code, out, err) = refused(&place, &why);
        assert_eq!(count(), (code, out, err + "\n"));
        end(stage);
    });
}

#[test]
fn a_place_that_would_harm_programs_or_hide_something_is_refused() {
    each_user(|stage| {
        let top = stage.path("").canonicalize().unwrap();
        let made = |name: &str, mode| {
            let path = top.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let (shared, closed) = (made("shared", 0o1777), made("closed", 0o711));
        let mut cases = vec![
            (
                shared.join("app"),
                format!(
                    "programs make files in {}, and could not while it is there",
                    shared.display()
                ),
                "",
            ),
            (
                "/dev/none/app".into(),
                "the entries of /dev are the kernel's".to_owned(),
                "",
            ),
        ];
        if !stage.is_root() {
            let why = format!(
                "{} cannot be listed, and what is in it would be hidden",
                closed.display()
            );
            cases.push((closed.join("app"), why, ": Permission denied (os error 13)"));
        }
        for (place, why, reason) in cases {
            let at = place.display().to_string();
            let (code, out, err) = refused(&place, &why);
            let expected = (code, out, format!("{err}{reason}\n"));
            assert_eq!(run(stage, "app.img", &["--at", &at], ""), expected);
        }
        stage.assert_nothing_left(Duration::from_secs(1));
    });
}

#[test]
fn a_mount_that_does_not_answer_beside_a_place_stops_nobody() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        let dir = parent.join("served");
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(stage.user()), Some(stage.user())).unwrap();
        let mounted = stage.brisk(&["mount", "app.img", "parent/served"]).output();
        assert_eq!(said(&mounted.unwrap()), printed(""));
        let servers = stage.processes("brisk-server");
        assert_eq!(servers.len(), 1);
        let server = Pid::from_raw(servers[0]).unwrap();
        kill_process(server, Signal::STOP).unwrap();
        let place = parent.join("app");
        let run = run(stage, "app.img", &["--at", "parent/app"], "cat parent/file");
        kill_process(server, Signal::CONT).unwrap();
        let expected = (Some(0), "old\n".to_owned(), told(&place, &parent));
        assert_eq!(run, expected);
        end(stage);
    });
}

/// A place behind a link, or a link to nothing as a place, is where the link leads.
#[test]
fn a_place_behind_links_is_made_where_they_lead() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        for (at, place, replaced) in [
            ("parent/link/app", "dir/app", "dir"),
            ("parent/dangling", "nowhere", ""),
        ] {
            let script = format!("echo $BRISK_TREE; cat {at}/sub/inside");
            let (code, out, err) = run(stage, "app.img", &["--at", at], &script);
            let place = parent.join(place);
            let expected = format!("{}\nfrom the image", place.display());
            assert_eq!((code, out), (Some(0), expected));
            // With an empty name, `join` appends a slash.
            let replaced: PathBuf = parent.join(replaced).components().collect();
            assert_eq!(err, told(&place, &replaced));
        }
        end(stage);
    });
}

#[test]
fn all_programs_of_a_user_see_only_a_place_that_exists() {
    watched(|| {
        let stage = Stage::new(1000);
        let options = ["--at", "none", "--seen-by", "user"];
        let err = "brisk: cannot mount app.img: none does not exist; make the directory first\n";
        let expected = (Some(125), String::new(), err.to_owned());
        assert_eq!(run(&stage, "app.img", &options, ""), expected);
    });
}

#[test]
fn a_launch_is_traced_at_a_place_that_is_made() {
    each_user(|stage| {
        let (parent, _mounts) = parent(stage);
        let place = parent.join("deep/er");
        pack(stage, &place);
        let script = "cat $BRISK_TREE/sub/inside parent/dir/below/in; touch parent/made 2>&1";
        let output = stage
            .brisk(&["trace", "placed.img", "-o", "home/profile", "--"])
            .args(["bin/app", "sh", "-c", script])
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        let (code, out, err) = said(&output);
        let expected =
            "from the imageof a mount\ntouch: cannot touch 'parent/made': Read-only file system\n";
        assert_eq!((code, &*out), (Some(0), expected), "{err}");
        assert!(err.starts_with(&told(&place, &parent)), "{err}");
        assert!(stage.writable().join("profile").exists());
    });
}
