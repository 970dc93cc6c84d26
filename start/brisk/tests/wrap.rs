//! Launchers of images, and their entries in menus, by root and by an ordinary user.

mod staging;

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use staging::{Stage, each_user};

const PROGRAM: &str = "#!/bin/sh\nprintf '<%s>' \"$@\"\necho\n";

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nicon";

const ENTRY: &str = "[Desktop Entry]\nType=Application\nName=Says\nName[de]=Sagt\nComment=Says its words\n\
                     Exec=says --open %F\nIcon=says\nCategories=Utility;\nMimeType=text/plain;\nActions=New;\n\
                     DBusActivatable=true\n\n[Desktop Action New]\nName=New\nExec=says --new\n";

/// A tree with a program and what menus show of it, as `says.img` in the home of the user.
fn pack(stage: &Stage) -> PathBuf {
    let tree = stage.path("says");
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::write(tree.join("bin/says"), PROGRAM).unwrap();
    fs::set_permissions(tree.join("bin/says"), Permissions::from_mode(0o755)).unwrap();
    fs::write(tree.join("says.desktop"), ENTRY).unwrap();
    let icons = tree.join("usr/share/icons/hicolor/256x256/apps");
    fs::create_dir_all(&icons).unwrap();
    fs::write(icons.join("says.png"), PNG).unwrap();
    let image = stage.writable().join("says.img");
    let packed = Command::new(stage.executable())
        .args(["pack", "says", "-q", "-o"])
        .arg(&image)
        .args(["--entry", "bin/says"])
        .current_dir(stage.path(""))
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    image
}

/// brisk in the home of the user.
fn brisk(stage: &Stage, arguments: &[&str]) -> Output {
    at_home(stage, &mut stage.brisk(arguments))
}

fn at_home(stage: &Stage, command: &mut Command) -> Output {
    command
        .current_dir(stage.writable())
        .env("HOME", stage.writable())
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap()
}

/// Starts a program as the user, with sessions that end at once.
fn start(stage: &Stage, program: &Path, arguments: &[&str]) -> (i32, String, String) {
    let brisk = stage.brisk(&[]);
    let mut words: Vec<_> = brisk.get_args().collect();
    words.pop();
    let mut command = Command::new(brisk.get_program());
    command
        .args(words)
        .arg(program)
        .args(arguments)
        .env("XDG_RUNTIME_DIR", stage.runtime());
    said(&at_home(stage, &mut command))
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn printed(text: &str) -> (i32, String, String) {
    (0, text.to_owned(), String::new())
}

#[test]
fn a_launcher_starts_its_image_from_anywhere() {
    each_user(|stage| {
        let image = pack(stage);
        let home = stage.writable();
        let odd = home.join("it's a \"$dir\"\n");
        fs::create_dir(&odd).unwrap();
        std::os::unix::fs::chown(&odd, Some(stage.user()), None).unwrap();
        let app = odd.join("app `x`");
        let options = ["--", "--at", "../at", "--linger", "0"];
        let wrapped = brisk(
            stage,
            &[
                &["wrap", "says.img", "-o", app.to_str().unwrap()],
                &options[..],
            ]
            .concat(),
        );
        let (code, out, _) = said(&wrapped);
        assert_eq!((code, &*out), (0, ""), "{wrapped:?}");
        // Every word arrives as it is.
        let words = ["", "a b", "it's", "--", "-v", "--args", "$HOME `x` \\ \n"];
        let line = format!("{}\n", words.map(|word| format!("<{word}>")).concat());
        assert_eq!(start(stage, &app, &words), printed(&line));
        assert_eq!(start(stage, &app, &[]), printed("<>\n"));
        // By a link, and by PATH.
        symlink(&app, home.join("link")).unwrap();
        assert_eq!(start(stage, &home.join("link"), &["x"]), printed("<x>\n"));
        // Moved together with its image, it finds the one beside it.
        let other = home.join("other\n");
        fs::create_dir(&other).unwrap();
        fs::rename(&app, other.join("app")).unwrap();
        fs::rename(&image, other.join("says.img")).unwrap();
        assert_eq!(
            start(stage, &other.join("app"), &["moved"]),
            printed("<moved>\n")
        );
        fs::rename(other.join("says.img"), home.join("gone")).unwrap();
        let (code, _, error) = start(stage, &other.join("app"), &[]);
        assert_eq!(
            (
                code,
                error.contains("says.img: cannot open the image: No such file or directory")
            ),
            (125, true),
            "{error}"
        );
        // Without brisk it says so. The user's PATH has none.
        let script = fs::read_to_string(other.join("app")).unwrap();
        let broken = script.replace(stage.executable().to_str().unwrap(), "/none/brisk");
        fs::write(other.join("app"), broken).unwrap();
        let mut command = Command::new(other.join("app"));
        let (code, _, error) = said(&command.env("PATH", "/usr/bin:/bin").output().unwrap());
        assert_eq!(code, 127);
        assert!(
            error.contains(": brisk is not installed, which starts "),
            "{error}"
        );
    });
}

#[test]
fn an_image_may_have_any_name() {
    let stage = Stage::new(1000);
    let image = pack(&stage);
    let home = stage.writable();
    let odd = home.join("it's \"$x\" `y` \\\n.img");
    fs::rename(image, &odd).unwrap();
    fs::create_dir(home.join("bin")).unwrap();
    std::os::unix::fs::chown(home.join("bin"), Some(1000), None).unwrap();
    // Beside the image, and at another place.
    for launcher in ["app", "bin/app"] {
        let name = odd.to_str().unwrap();
        let wrapped = brisk(
            &stage,
            &["wrap", name, "-o", launcher, "--", "--linger", "0"],
        );
        assert_eq!(wrapped.status.code(), Some(0), "{wrapped:?}");
        assert_eq!(
            start(&stage, &home.join(launcher), &[launcher]),
            printed(&format!("<{launcher}>\n"))
        );
    }
}

/// An AppImage with several commands chooses by this name.
#[test]
fn a_program_finds_the_name_that_its_launcher_was_called_by() {
    each_user(|stage| {
        let tree = stage.path("called");
        fs::create_dir(&tree).unwrap();
        let run = tree.join("AppRun");
        fs::write(&run, "#!/bin/sh\necho \"$ARGV0\"\n").unwrap();
        fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
        let home = stage.writable();
        let packed = Command::new(stage.executable())
            .args(["pack", "called", "-q", "-o"])
            .arg(home.join("called.img"))
            .current_dir(stage.path(""))
            .output()
            .unwrap();
        assert!(packed.status.success(), "{packed:?}");
        let wrap = ["wrap", "called.img", "-o", "tool", "--", "--linger", "0"];
        let wrapped = brisk(stage, &wrap);
        assert!(wrapped.status.success(), "{wrapped:?}");
        symlink("tool", home.join("other tool")).unwrap();
        for name in ["tool", "other tool"] {
            let name = home.join(name);
            let line = format!("{}\n", name.display());
            assert_eq!(start(stage, &name, &[]), printed(&line));
        }
    });
}

#[test]
fn only_launchers_are_replaced_and_removed() {
    let stage = Stage::new(1000);
    pack(&stage);
    let home = stage.writable();
    let wrap = |arguments: &[&str]| said(&brisk(&stage, &[&["wrap"], arguments].concat()));
    let (code, _, error) = wrap(&["says.img", "-o", "app"]);
    let image = home.join("says.img").canonicalize().unwrap();
    assert_eq!(
        (code, error),
        (
            0,
            format!("app: starts {} with bin/says (recorded)\n", image.display())
        )
    );
    assert_eq!(wrap(&["says.img", "-o", "app"]).0, 0);
    let plainly = stage.plainly(&["touch", home.join("file").to_str().unwrap()]);
    assert!(plainly.status.success());
    for (arguments, message) in [
        (
            &["says.img", "-o", "file"][..],
            "file is no launcher of brisk wrap, so it stays; name another file with -o",
        ),
        (
            &["--remove", "file"],
            "file is no launcher of brisk wrap, so it stays; remove it yourself",
        ),
        (
            &["--remove", "none"],
            "there is no launcher none, and no menu has an entry of it",
        ),
        (
            &["says.img", "-o", "app", "--", "--args", "x"],
            "--args is among the options of brisk run, allowed are others: the launcher itself gives its arguments to the \
             image's program",
        ),
        (
            &["says.img", "-o", "app", "--", "--lingr", "0"],
            "brisk run would not take these options: unexpected argument '--lingr' found",
        ),
        (
            &["says.img", "-o", "app", "--", "--called-as", "x"],
            "brisk run would not take these options: the argument '--called-as <NAME>' cannot be used multiple times",
        ),
        (
            &["says.img", "-o", "app", "--", "--writable=changes"],
            "--writable=changes counts from the directory where the launcher is started, so each would get a layer of its own; \
             name an absolute path",
        ),
        (
            &["../app.img", "-o", "app"],
            "../app.img: the image has no entry: it records none, and has neither AppRun nor a .desktop file at its top; \
             record one in a new image, and wrap that: brisk repack ../app.img -o new.img --entry bin/app",
        ),
    ] {
        assert_eq!(
            wrap(arguments),
            (2, String::new(), format!("brisk: {message}\n"))
        );
    }
    assert_eq!(wrap(&["--remove", "app"]), printed(""));
    assert!(!home.join("app").exists() && home.join("file").exists());
    // An image of the same name beside the launcher would be started in place of the one that is named.
    fs::create_dir(home.join("bin")).unwrap();
    std::os::unix::fs::chown(home.join("bin"), Some(1000), None).unwrap();
    fs::write(home.join("bin/says.img"), "another").unwrap();
    let (code, _, error) = wrap(&["says.img", "-o", "bin/app"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("bin/says.img is another image of this name beside the launcher"),
        "{error}"
    );
}

/// Another machine may have the place, so the launcher is written.
#[test]
fn a_launcher_says_if_its_place_is_missing_and_cannot_be_made() {
    each_user(|stage| {
        pack(stage);
        let top = stage.path("").canonicalize().unwrap();
        let large = top.join("large");
        fs::create_dir(&large).unwrap();
        for number in 0..=1000 {
            fs::write(large.join(number.to_string()), "").unwrap();
        }
        for (place, options, why) in [
            (top.join("none/app"), [].as_slice(), None),
            (large, &[], None),
            (
                top.join("none/app"),
                &["--", "--seen-by", "user"],
                Some(
                    "and --seen-by user needs a directory that does; make the directory first, or leave out --seen-by user",
                ),
            ),
            (
                top.join("none/app"),
                &["--", "--kernel"],
                Some(
                    "and --kernel needs a directory that does; make the directory first, or leave out --kernel",
                ),
            ),
            (
                top.join("large/app"),
                &[],
                Some(
                    "and brisk cannot show it to the program alone: TOP/large has more than 1000 entries, and each must be \
                     bound beside it; make the directory first",
                ),
            ),
            (top.join("large/app"), &["--", "--root"], None),
            (top.join("large/app"), &["--", "--at", "../at"], None),
        ] {
            let at = place.display().to_string();
            let repacked = ["repack", "says.img", "-q", "-o", "placed.img", "--at", &at];
            let repacked = brisk(stage, &repacked);
            assert!(repacked.status.success(), "{repacked:?}");
            let mut wrap = vec!["wrap", "placed.img", "-o", "app"];
            wrap.extend(options);
            let (code, _, err) = said(&brisk(stage, &wrap));
            assert_eq!(code, 0, "{err}");
            let warning = err
                .lines()
                .find(|line| line.starts_with("brisk: warning: "));
            let start = "brisk: warning: app: starts will fail on this machine: ";
            let expected = why.map(|why| {
                let cannot = match why.starts_with("and brisk") {
                    true => "cannot mount: ",
                    false => "",
                };
                let why = why.replace("TOP", &top.display().to_string());
                format!("{start}{cannot}{at} does not exist, {why}")
            });
            assert_eq!(warning, expected.as_deref(), "{options:?}");
        }
    });
}

#[test]
fn menus_get_what_the_image_says_of_its_program() {
    each_user(|stage| {
        pack(stage);
        let home = stage.writable();
        // A name that every kind of quoting has to deal with.
        let app = home.canonicalize().unwrap().join("my $app 100% \"q\" \\");
        let name = app.to_str().unwrap();
        let (code, _, error) = said(&brisk(
            stage,
            &[
                "wrap",
                "says.img",
                "-o",
                name,
                "--desktop",
                "--",
                "--linger",
                "0",
            ],
        ));
        assert_eq!(code, 0, "{error}");
        let entry = home.join(".local/share/applications/brisk-my__app_100___q___.desktop");
        let icon = home.join(".local/share/brisk/icons/brisk-my__app_100___q___.png");
        let data = home.canonicalize().unwrap().display().to_string();
        assert_eq!(
            fs::read_to_string(&entry).unwrap(),
            format!(
                "# Made by brisk wrap for {name}\n[Desktop Entry]\nType=Application\nName=Says\nName[de]=Sagt\n\
                 Comment=Says its words\nCategories=Utility;\n\
                 Exec=\"{data}/my \\\\$app 100%% \\\\\"q\\\\\" \\\\\\\\\" %F\nTryExec={data}/my $app 100% \"q\" \\\\\n\
                 Icon={data}/.local/share/brisk/icons/brisk-my__app_100___q___.png\n"
            )
        );
        assert_eq!(fs::read(&icon).unwrap(), PNG);
        valid(&entry);
        let told = "the image says that it opens text/plain; and brisk leaves that out; --mime-types takes it over\n";
        assert!(error.ends_with(told), "{error}");
        // Its programs may open files only if the user says so.
        let again = ["wrap", "says.img", "-o", name, "--desktop", "--mime-types"];
        let (code, _, error) = said(&brisk(stage, &again));
        assert_eq!(
            (code, error.contains("--mime-types")),
            (0, false),
            "{error}"
        );
        let text = fs::read_to_string(&entry).unwrap();
        assert!(text.contains("\nMimeType=text/plain;\n"), "{text}");
        valid(&entry);
        // Where it was moved to, it takes its entry with it when it goes.
        let moved = home.join("moved");
        fs::rename(&app, &moved).unwrap();
        assert_eq!(
            said(&brisk(
                stage,
                &["wrap", "--remove", moved.to_str().unwrap()]
            )),
            printed("")
        );
        assert!(!entry.exists() && !icon.exists() && !moved.exists());
    });
}

#[test]
fn a_menu_that_cannot_be_written_leaves_no_launcher() {
    let stage = Stage::new(1000);
    pack(&stage);
    let home = stage.writable();
    let applications = home.join(".local/share/applications");
    fs::create_dir_all(&applications).unwrap();
    let (code, _, error) = said(&brisk(
        &stage,
        &["wrap", "says.img", "-o", "app", "--desktop"],
    ));
    assert_eq!((code, error.contains("cannot ")), (2, true), "{error}");
    let left = fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [".local", "says.img"]);
    assert_eq!(fs::read_dir(&applications).unwrap().count(), 0);
}

#[test]
fn a_launcher_is_for_those_whom_the_umask_lets_in() {
    let stage = Stage::new(1000);
    pack(&stage);
    for (mask, mode) in [("022", 0o755), ("077", 0o700)] {
        let brisk = stage.brisk(&["wrap", "says.img", "-o", "app"]);
        let mut command = Command::new("sh");
        let script = format!("umask {mask} && exec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(brisk.get_program());
        command.args(brisk.get_args());
        assert_eq!(said(&at_home(&stage, &mut command)).0, 0);
        let found = fs::metadata(stage.writable().join("app")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode);
    }
}

/// The program of freedesktop.org finds no fault in the entry.
#[track_caller]
fn valid(entry: &Path) {
    let checked = Command::new("desktop-file-validate").arg(entry).output();
    let checked = checked.expect("this test needs the package desktop-file-utils");
    assert_eq!(said(&checked), printed(""));
}

#[test]
fn an_image_without_a_desktop_file_gets_a_plain_entry() {
    let stage = Stage::new(1000);
    pack(&stage);
    fs::remove_file(stage.path("says/says.desktop")).unwrap();
    fs::write(
        stage.path("says/.DirIcon"),
        "<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
    )
    .unwrap();
    fs::remove_file(stage.writable().join("says.img")).unwrap();
    let home = pack_again(&stage);
    let wrapped = brisk(&stage, &["wrap", "says.img", "-o", "app", "--desktop"]);
    assert_eq!(wrapped.status.code(), Some(0), "{wrapped:?}");
    let entry = home.join(".local/share/applications/brisk-app.desktop");
    let data = home.canonicalize().unwrap();
    let data = data.display();
    assert_eq!(
        fs::read_to_string(&entry).unwrap(),
        format!(
            "# Made by brisk wrap for {data}/app\n[Desktop Entry]\nType=Application\nName=app\nTerminal=true\n\
             Exec=\"{data}/app\"\nTryExec={data}/app\nIcon={data}/.local/share/brisk/icons/brisk-app.svg\n"
        )
    );
    valid(&entry);
    // Another launcher of this name has its own entry, and the first one's stays.
    fs::create_dir(home.join("bin")).unwrap();
    std::os::unix::fs::chown(home.join("bin"), Some(1000), None).unwrap();
    let (code, _, error) = said(&brisk(
        &stage,
        &["wrap", "says.img", "-o", "bin/app", "--desktop"],
    ));
    assert_eq!(code, 2);
    assert!(
        error.ends_with(&format!(
            "brisk-app.desktop is the menu entry of {data}/app; remove that with brisk wrap --remove, or name another \
             launcher with -o\n"
        )),
        "{error}"
    );
    assert!(!home.join("bin/app").exists());
    // A launcher that was deleted by hand leaves an entry, which can be removed. However it is named, it is the same.
    fs::remove_file(home.join("app")).unwrap();
    assert_eq!(
        said(&brisk(&stage, &["wrap", "--remove", "bin/../app"])),
        printed("")
    );
    assert!(!entry.exists());
    // An entry of the user's own stays, also if no entry can have the name of the launcher.
    let own = entry.with_file_name("brisk-_.desktop");
    fs::write(&own, "[Desktop Entry]\n").unwrap();
    let mut command = stage.brisk(&["wrap", "--remove"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff"));
    let (code, _, error) = said(&at_home(&stage, &mut command));
    assert_eq!(
        (code, error.starts_with("brisk: there is no launcher ")),
        (2, true),
        "{error}"
    );
    assert!(own.exists());
    fs::write(&entry, "[Desktop Entry]\n").unwrap();
    let (code, _, error) = said(&brisk(
        &stage,
        &["wrap", "says.img", "-o", "app", "--desktop"],
    ));
    assert_eq!(code, 2);
    assert!(
        error.contains("brisk-app.desktop is no entry of brisk wrap; remove it yourself"),
        "{error}"
    );
    let (code, _, error) = said(&brisk(
        &stage,
        &["wrap", "says.img", "-o", "a=b", "--desktop"],
    ));
    assert_eq!(
        (
            code,
            error.contains("no menu can start a launcher of this name")
        ),
        (2, true),
        "{error}"
    );
}

fn pack_again(stage: &Stage) -> PathBuf {
    let image = stage.writable().join("says.img");
    let packed = Command::new(stage.executable())
        .args(["pack", "says", "-q", "-o"])
        .arg(&image)
        .args(["--entry", "bin/says"])
        .current_dir(stage.path(""))
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    stage.writable()
}

#[test]
fn an_entry_for_all_users_is_in_the_system() {
    let stage = Stage::new(0);
    pack(&stage);
    let home = stage.writable();
    // With a directory of its own in place of the system's.
    let script = "mount -t tmpfs none /usr/local/share && $B wrap says.img -o app --desktop --system && \
                  cat /usr/local/share/applications/brisk-app.desktop && ls /usr/local/share/brisk/icons && \
                  $B wrap --remove app && find /usr/local/share -type f";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", script])
        .current_dir(&home)
        .env("HOME", &home)
        .env("B", stage.executable())
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap();
    let (code, out, error) = said(&output);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("\nName=Says\n"), "{out}");
    assert!(
        out.ends_with("Icon=/usr/local/share/brisk/icons/brisk-app.png\nbrisk-app.png\n"),
        "{out}"
    );
    assert!(!home.join("app").exists());
}
