//! Images that know how they are started, by root and by an ordinary user.

mod staging;

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use staging::programs::make_executable;
use staging::{Stage, each_user};

/// Prints what it is started with.
const PROGRAM: &str = "#!/bin/sh\n\
                       echo \"$0 in $(pwd), tree $BRISK_TREE, A is ${A-unset}\"\n\
                       for word in \"$@\"; do printf '<%s>' \"$word\"; done\necho\n";

fn program(stage: &Stage, path: &str) {
    let path = stage.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, PROGRAM).unwrap();
    make_executable(&path);
}

/// As root, who may write to the stage.
fn made(stage: &Stage, arguments: &[&str]) -> Output {
    Command::new(stage.executable())
        .args(arguments)
        .current_dir(stage.path(""))
        .output()
        .unwrap()
}

#[track_caller]
fn pack(stage: &Stage, arguments: &[&str]) {
    let output = made(stage, &[&["pack", "tree", "-q"], arguments].concat());
    assert_eq!(said(&output), (0, String::new(), String::new()));
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A run of the image on `at`, without a command.
fn run(stage: &Stage, arguments: &[&str]) -> (i32, String, String) {
    let mut command = stage.brisk(&["run", "--linger", "0"]);
    said(&command.args(arguments).env_remove("A").output().unwrap())
}

fn printed(text: &str) -> (i32, String, String) {
    (0, text.to_owned(), String::new())
}

#[test]
fn an_image_starts_the_program_that_it_records() {
    each_user(|stage| {
        program(stage, "tree/bin/says");
        let at = stage.path("at").canonicalize().unwrap();
        let (at, here) = (at.display(), stage.path("").canonicalize().unwrap());
        let here = here.display();
        let place = stage.path("at");
        let place = place.to_str().unwrap();
        pack(
            stage,
            &[
                "-o", "e.img", "--at", place, "--entry", "bin/says", "--quiet", "a b",
            ],
        );
        let line = format!("{at}/bin/says in {here}, tree {at}, A is unset\n");
        assert_eq!(
            run(stage, &["e.img"]),
            printed(&format!("{line}<--quiet><a b>\n"))
        );
        // Words behind the image, and everything behind --args.
        assert_eq!(
            run(
                stage,
                &[
                    "e.img",
                    "x",
                    "--no-fill",
                    "y",
                    "--args",
                    "--size",
                    "--",
                    "-v"
                ]
            ),
            printed(&format!("{line}<--quiet><a b><x><y><--size><--><-v>\n"))
        );
        assert_eq!(
            run(stage, &["e.img", "--args"]),
            printed(&format!("{line}<--quiet><a b>\n"))
        );
        // A program that is named is started as before.
        assert_eq!(
            run(stage, &["e.img", "--", "bin/says", "q"]),
            printed(&format!("{line}<q>\n"))
        );
        if stage.is_root() {
            assert_eq!(
                said(
                    &stage
                        .brisk(&["run", "--kernel", "e.img", "k"])
                        .env_remove("A")
                        .output()
                        .unwrap()
                ),
                printed(&format!("{line}<--quiet><a b><k>\n"))
            );
        }
        // The directory and the variables, which win over those of the user, and what the user says instead.
        let entry = [
            "-o", "f.img", "--at", place, "--chdir", "sub", "--env", "A=b=c", "--env", "E=",
            "--entry", "--", "bin/says",
        ];
        pack(stage, &entry);
        let mut command = stage.brisk(&["run", "--linger", "0", "f.img"]);
        assert_eq!(
            said(&command.env("A", "of the user").output().unwrap()),
            printed(&format!(
                "{at}/bin/says in {at}/sub, tree {at}, A is b=c\n\n"
            ))
        );
        assert_eq!(
            run(stage, &["f.img", "--chdir", "many"]),
            printed(&format!(
                "{at}/bin/says in {at}/many, tree {at}, A is b=c\n\n"
            ))
        );
        assert_eq!(
            run(stage, &["f.img", "--", "bin/says"]),
            printed(&format!(
                "{at}/bin/says in {here}, tree {at}, A is unset\n\n"
            ))
        );
        // A profile of the launch, with the same program.
        let out = stage.writable().join("p");
        let out = out.to_str().unwrap();
        let traced = stage
            .brisk(&["trace", "f.img", "-q", "-o", out])
            .output()
            .unwrap();
        assert_eq!(traced.status.code(), Some(0), "{traced:?}");
        assert_eq!(
            String::from_utf8_lossy(&traced.stdout),
            format!("{at}/bin/says in {at}/sub, tree {at}, A is b=c\n\n")
        );
        let profile = fs::read_to_string(out).unwrap();
        assert!(profile.contains("\"command\": [\"bin/says\"]"), "{profile}");
    });
}

#[test]
fn an_entry_can_make_the_image_the_root_directory() {
    each_user(|stage| {
        stage.pack_root();
        program(stage, "root/app/says");
        let output = made(
            stage,
            &[
                "pack",
                "root",
                "-q",
                "-o",
                "r.img",
                "--root",
                "--chdir",
                "/data",
                "--env",
                "PATH=/app",
                "--entry",
                "says",
            ],
        );
        assert_eq!(said(&output), (0, String::new(), String::new()));
        // The entry's PATH finds the program, and what the shell finds, too.
        let line = "/app/says in /data, tree /, A is unset\n\n";
        assert_eq!(run(stage, &["r.img"]), printed(line));
        // What the user names counts more.
        let (code, _, error) = run(stage, &["r.img", "--at", "at"]);
        assert_eq!(
            (code, error.contains("cannot run says: not found in PATH")),
            (127, true),
            "{error}"
        );
        if stage.is_root() {
            let refused = run_kernel(stage, &["--kernel", "r.img"]);
            let expected = "brisk: r.img: the entry of the image makes it the root directory, which --kernel cannot; leave \
                            out --kernel, or name a place with --at DIR\n";
            assert_eq!(refused, (125, String::new(), expected.to_owned()));
        }
    });
}

fn run_kernel(stage: &Stage, arguments: &[&str]) -> (i32, String, String) {
    said(&stage.brisk(&["run"]).args(arguments).output().unwrap())
}

#[test]
fn an_image_without_an_entry_says_what_to_type() {
    let stage = Stage::new(0);
    let cause = "no program is named, and the image has no entry: it records none, and";
    let neither = "has neither AppRun nor a .desktop file at its top";
    let record =
        "or record one: brisk repack app.img -o new.img --entry bin/app, or brisk pack --entry\n";
    assert_eq!(
        run(&stage, &["app.img"]),
        (
            125,
            String::new(),
            format!(
                "brisk: app.img: {cause} {neither}; name a program behind -- (brisk run app.img -- bin/app), {record}"
            )
        )
    );
    assert_eq!(
        run(&stage, &["app.img", "bin/app", "x"]),
        (
            125,
            String::new(),
            format!(
                "brisk: app.img: {cause} {neither}; name a program behind -- (brisk run app.img -- bin/app), {record}"
            )
        )
    );
    let output = stage.brisk(&["trace", "app.img"]).output().unwrap();
    assert_eq!(
        said(&output),
        (
            125,
            String::new(),
            format!(
                "brisk: app.img: {cause} {neither}; name a program behind -- (brisk trace app.img -- bin/app), {record}"
            )
        )
    );
    assert_eq!(
        run_kernel(&stage, &["tree"]),
        (125, String::new(), "brisk: tree is a directory, which starts no program by itself: name one behind --, as in \
                              brisk run tree --auto -- bin/app\n".to_owned())
    );
    let (code, _, error) = run(&stage, &["app.img", "--size", "3"]);
    let tip =
        "  tip: to pass it to the program that an image starts by itself, put --args before it\n";
    assert_eq!((code, error.contains(tip)), (125, true), "{error}");
    assert!(!error.contains("'-- --size'"), "{error}");
    let (code, _, error) = run(&stage, &["app.img", "--", "--size"]);
    assert_eq!(
        (code, &*error),
        (
            127,
            "brisk: behind -- is a program; for arguments of the image's own program, put --args in its place: brisk run \
               app.img --args --size: cannot run --size: not found in PATH; to name a program of the image, use its path \
               in the image, with a slash\n"
        )
    );
}

#[test]
fn what_an_entry_cannot_be_is_refused_before_anything_is_packed() {
    let stage = Stage::new(0);
    for (arguments, message) in [
        (
            &["--env", "BRISK_TREE=/", "--entry", "bin/app"][..],
            "brisk: a variable of the entry is \"BRISK_TREE=/\", allowed is NAME=VALUE with a name that does not begin with \
             BRISK_\n",
        ),
        (
            &["--env", "A=b", "--env", "A=c", "--entry", "bin/app"],
            "brisk: the entry sets the variable \"A\" a second time, allowed is once\n",
        ),
        (
            &["--entry", ""],
            "brisk: the entry has no program, allowed is a program and its arguments\n",
        ),
        (
            &["--entry", "--"],
            "brisk: the entry has no program, allowed is a program and its arguments\n",
        ),
    ] {
        let output = made(
            &stage,
            &[&["pack", "tree", "-o", "n.img"], arguments].concat(),
        );
        assert_eq!(said(&output), (2, String::new(), message.to_owned()));
    }
    assert!(!stage.path("n.img").exists());
    let output = made(&stage, &["pack", "tree", "-o", "n.img", "--env", "A=b"]);
    assert_eq!(output.status.code(), Some(2));
    // What is missing may come later, by --with, so it is only said.
    symlink("/usr/bin/env", stage.path("tree/bin/outside")).unwrap();
    symlink("outside", stage.path("tree/bin/further")).unwrap();
    symlink("../sub/none", stage.path("tree/bin/dead")).unwrap();
    let lists = "brisk ls -R lists what is there";
    let starts = |rest: &str| format!("brisk: warning: the entry starts {rest}\n");
    for (arguments, warning) in [
        ("--entry bin/app", String::new()),
        ("--entry bin/further", String::new()),
        ("--entry sh", String::new()),
        ("--at /opt/app --entry /opt/app/bin/further", String::new()),
        (
            "--entry usr/bin/app",
            starts("usr/bin/app, which the image lacks; it has bin/app: name that, or see what else there is with brisk ls -R"),
        ),
        (
            "--entry sub/inside",
            starts("sub/inside, which no one may execute; pack it with --chmod '/sub/inside=a+x'"),
        ),
        (
            "--entry bin/dead",
            starts(&format!("bin/dead, which the image lacks; {lists}")),
        ),
        (
            "--entry app",
            starts("app, which brisk run looks up in PATH, and not in the image; the image has bin/app: name that"),
        ),
        (
            "--entry no-such-program",
            starts(&format!(
                "no-such-program, which brisk run looks up in PATH, and which is in no directory of PATH here; {lists}"
            )),
        ),
        (
            "--chdir none --entry bin/app",
            format!("brisk: warning: the entry starts in none, which is no directory of the image; {lists}\n"),
        ),
        (
            "--at /usr --entry bin/app",
            "brisk: warning: the image records the place /usr, which would cover /usr of the system: brisk run refuses that, \
             unless each start names the place with --at; record a directory of its own\n"
                .to_owned(),
        ),
    ] {
        let pack = ["pack", "tree", "-q", "-o", "n.img"].into_iter();
        let pack: Vec<_> = pack.chain(arguments.split(' ')).collect();
        let output = made(&stage, &pack);
        assert_eq!(said(&output), (0, String::new(), warning), "{arguments}");
    }
}

#[test]
fn images_by_other_tools_start_as_appimages_do() {
    each_user(|stage| {
        program(stage, "tree/usr/bin/says");
        let at = stage.path("at").canonicalize().unwrap();
        let at = at.display();
        let squashed = |image: &str| {
            fs::remove_file(stage.path(image)).ok();
            let made = Command::new("mksquashfs")
                .args(["tree", image, "-quiet", "-no-progress"])
                .current_dir(stage.path(""))
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
        };
        let variables = "#!/bin/sh\necho \"$0 $APPDIR $APPIMAGE $ARGV0 $OWD\"; echo \"$@\"\n";
        let entry =
            "[Desktop Entry]\nType=Application\nName=Says\nExec=says --open %F --last\nIcon=says\n";
        fs::write(stage.path("tree/says.desktop"), entry).unwrap();
        squashed("d.img");
        let (_, out, error) = run(stage, &["d.img", "--at", "at", "x", "y"]);
        let (_, words) = out.split_once('\n').unwrap();
        assert_eq!((words, &*error), ("<--open><x><y><--last>\n", ""));
        // AppRun comes first, also as a link.
        fs::write(stage.path("tree/usr/bin/vars"), variables).unwrap();
        fs::set_permissions(
            stage.path("tree/usr/bin/vars"),
            Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("usr/bin/vars", stage.path("tree/AppRun")).unwrap();
        squashed("a.img");
        let here = stage.path("").canonicalize().unwrap();
        let image = here.join("a.img");
        assert_eq!(
            run(stage, &["a.img", "--at", "at", "x"]),
            printed(&format!(
                "{at}/AppRun {at} {} a.img {}\nx\n",
                image.display(),
                here.display()
            ))
        );
        fs::remove_file(stage.path("tree/AppRun")).unwrap();
        fs::write(stage.path("tree/other.desktop"), entry).unwrap();
        squashed("two.img");
        let (code, _, error) = run(stage, &["two.img"]);
        assert_eq!(code, 125);
        assert!(
            error.contains(
                "it records none, and has 2 .desktop files at its top (other.desktop, says.desktop), allowed is one"
            ),
            "{error}"
        );
        fs::remove_file(stage.path("tree/other.desktop")).unwrap();
        // What is recorded counts more than what is found.
        let output = made(
            stage,
            &[
                "repack",
                "d.img",
                "-q",
                "-o",
                "e.img",
                "--entry",
                "usr/bin/says",
                "recorded",
            ],
        );
        assert_eq!(said(&output), printed(""));
        let (_, out, _) = run(stage, &["e.img"]);
        assert!(out.ends_with("<recorded>\n"), "{out}");
    });
}

#[test]
fn an_entry_stays_with_the_image_and_changes_no_other_byte() {
    let stage = Stage::new(0);
    program(&stage, "tree/bin/says");
    pack(&stage, &["-o", "none.img", "--no-recipe"]);
    pack(
        &stage,
        &[
            "-o",
            "e.img",
            "--no-recipe",
            "--chdir",
            "sub",
            "--env",
            "A=b",
            "--entry",
            "bin/says",
            "x",
        ],
    );
    pack(
        &stage,
        &[
            "-o",
            "again.img",
            "--no-recipe",
            "--threads",
            "3",
            "--chdir",
            "sub",
            "--env",
            "A=b",
            "--entry",
            "bin/says",
            "x",
        ],
    );
    let bytes = |name: &str| fs::read(stage.path(name)).unwrap();
    let (none, with) = (bytes("none.img"), bytes("e.img"));
    assert!(with == bytes("again.img"));
    assert!(with.starts_with(&none) && with.len() > none.len());
    // Others read the image as before.
    let listed = |name: &str| {
        let listed = Command::new("unsquashfs")
            .arg("-ll")
            .arg(stage.path(name))
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        listed.stdout
    };
    assert_eq!(listed("none.img"), listed("e.img"));

    let entry = |name: &str| {
        let (code, out, _) = said(&made(&stage, &["info", name]));
        assert_eq!(code, 0);
        let line = out
            .lines()
            .find_map(|line| line.strip_prefix("  entry           "));
        line.unwrap().to_owned()
    };
    assert_eq!(entry("none.img"), "none");
    assert_eq!(entry("e.img"), "bin/says x, in sub, A=b (recorded)");
    let repack = |arguments: &[&str]| {
        let output = made(
            &stage,
            &[&["repack", "e.img", "-q", "-o", "new.img"], arguments].concat(),
        );
        assert_eq!(said(&output), printed(""));
        entry("new.img")
    };
    assert_eq!(
        repack(&["--codec", "gzip"]),
        "bin/says x, in sub, A=b (recorded)"
    );
    assert_eq!(
        repack(&["--entry", "bin/app", "true"]),
        "bin/app true (recorded)"
    );
    assert_eq!(repack(&["--no-entry"]), "none");
    // The recipe makes it again, byte by byte.
    pack(&stage, &["-o", "v.img", "--entry", "bin/says"]);
    let output = made(&stage, &["verify", "--rebuild", "-q", "v.img"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_hash_tree_covers_the_entry() {
    let stage = Stage::new(0);
    program(&stage, "tree/bin/says");
    pack(
        &stage,
        &["-o", "v.img", "--verity", "--entry", "bin/says", "well"],
    );
    let (code, out, error) = run(&stage, &["--verify", "roothash", "v.img"]);
    assert_eq!(
        (code, out.ends_with("<well>\n"), &*error),
        (0, true, ""),
        "{out}"
    );
    let bytes = fs::read(stage.path("v.img")).unwrap();
    let at = bytes.windows(4).position(|four| four == b"well").unwrap();
    // With a digest that fits, as whoever changes it would write it.
    let file = fs::OpenOptions::new()
        .write(true)
        .open(stage.path("v.img"))
        .unwrap();
    file.write_all_at(b"evil", at as u64).unwrap();
    let start = bytes[..at]
        .windows(12)
        .rposition(|magic| magic == b"brisksecentr")
        .unwrap();
    let len = u64::from_le_bytes(bytes[start + 16..start + 24].try_into().unwrap());
    let mut contents = bytes[start + 64..start + 64 + usize::try_from(len).unwrap()].to_vec();
    contents[at - start - 64..at - start - 60].copy_from_slice(b"evil");
    file.write_all_at(blake3::hash(&contents).as_bytes(), start as u64 + 24)
        .unwrap();
    let (code, out, _) = run(&stage, &["v.img"]);
    assert_eq!((code, out.ends_with("<evil>\n")), (0, true), "{out}");
    let (code, out, error) = run(&stage, &["--verify", "roothash", "v.img"]);
    assert_eq!((code, &*out), (125, ""));
    assert!(
        error.contains("the file was changed or is damaged"),
        "{error}"
    );
}

#[test]
fn an_entry_that_is_damaged_says_what_is_wrong() {
    let stage = Stage::new(0);
    let mut image = fs::read(stage.path("app.img")).unwrap();
    let contents = b"bind=/:/mnt\0word=bin/app\0";
    image.resize(image.len().next_multiple_of(4096), 0);
    let at = image.len() + 64;
    image.extend(b"brisksecentr\x01\0\0\0");
    image.extend((contents.len() as u64).to_le_bytes());
    image.extend(blake3::hash(contents).as_bytes());
    image.extend([0; 8]);
    image.extend(contents);
    fs::write(stage.path("bad.img"), image).unwrap();
    let expected = format!(
        "bad.img: corrupt image at byte {at}: record 1 of the entry is \"bind=/:/mnt\", allowed are root, directory=, \
         variable= and word=, in this order\n"
    );
    let ends = |text: &str| text.ends_with(&expected);
    let (code, _, error) = run(&stage, &["bad.img"]);
    assert_eq!((code, ends(&error)), (125, true), "{error}");
    let (code, _, error) = said(&made(&stage, &["info", "bad.img"]));
    assert_eq!((code, ends(&error)), (2, true), "{error}");
    // A program that is named needs no entry.
    let (code, ..) = run(&stage, &["bad.img", "--", "bin/app", "true"]);
    assert_eq!(code, 0);
}

#[test]
fn a_session_says_how_its_image_is_started() {
    let stage = Stage::new(0);
    program(&stage, "tree/bin/says");
    pack(&stage, &["-o", "e.img", "--entry", "bin/says", "a b"]);
    let run = stage
        .brisk(&["run", "--at", "at", "--linger", "60", "e.img"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let stat = |arguments: &[&str]| {
        let output = stage
            .brisk(&[&["stat"], arguments].concat())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = stat(&["e.img"]);
    assert!(
        text.contains("\n  entry       bin/says 'a b' (recorded)\n"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&stat(&["--json"])).unwrap();
    assert_eq!(
        json[0]["images"][0]["entry_text"],
        "bin/says 'a b' (recorded)"
    );
    assert!(Path::new(&stage.path("e.img")).exists());
}
