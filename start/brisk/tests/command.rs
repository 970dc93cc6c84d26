//! What holds for every verb.

mod sandbox;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::{Sandbox, noise};

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let sandbox = Sandbox::empty();
    // More than fits into a pipe.
    for i in 0..3000 {
        sandbox.file(&format!("app/{i:0100}"), b"");
    }
    sandbox.file("app/big", &noise(1 << 20));
    sandbox.pack(&[]);
    for args in [
        &["ls", "-R", "app.img"][..],
        &["ls", "-lR", "app.img"],
        &["ls", "-R", "--json", "app.img"],
        &["ls", "--tree", "app.img"],
        &["cat", "app.img", "big"],
        &["completions", "bash"],
        &["pack", "app", "-o", "again.img", "--json"],
    ] {
        let mut child = sandbox
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        if args[0] != "pack" {
            let mut stdout = child.stdout.take().unwrap();
            stdout.read_exact(&mut first).unwrap();
        }
        drop(child.stdout.take());
        let outcome = sandbox::outcome(child.wait_with_output().unwrap());
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn what_is_no_image_is_said_by_name() {
    let sandbox = Sandbox::empty();
    sandbox.file("text", &[b'x'; 200]);
    for args in [
        &["ls", "text"][..],
        &["cat", "text", "a"],
        &["extract", "text", "out"],
    ] {
        assert_eq!(
            sandbox.failure(args),
            "brisk: text is no image: it starts with \"xxxx\", and a SquashFS image with \"hsqs\"\n"
        );
    }
    assert!(!sandbox.path("out").exists());
}

/// Copies of these programs in a directory without the others.
fn alone(sandbox: &Sandbox, programs: &[&str]) -> PathBuf {
    let alone = sandbox.path("alone");
    std::fs::create_dir(&alone).unwrap();
    for name in programs {
        let built = Path::new(env!("CARGO_BIN_EXE_brisk")).with_file_name(name);
        // With another process: a file that a thread of this one writes may be open in a child of another
        // thread.
        let copied = Command::new("cp")
            .args([&built, &alone.join(name)])
            .status();
        assert!(copied.unwrap().success());
    }
    alone
}

/// What the copy of brisk in this directory says.
fn said_by(directory: &Path, args: &[&str]) -> sandbox::Outcome {
    let output = Command::new(directory.join("brisk")).args(args).output();
    sandbox::outcome(output.unwrap())
}

#[test]
fn alone_brisk_says_what_is_missing() {
    let sandbox = Sandbox::empty();
    let alone = alone(&sandbox, &["brisk"]);
    let said = |args: &[&str]| said_by(&alone, args);
    let expected = format!(
        "brisk: cannot start {}; brisk needs it to start programs and to mount images; install it again beside brisk: No \
         such file or directory (os error 2)\n",
        alone.join("brisk-run").display()
    );
    for (args, code) in [
        (&["run", "none.img", "--", "true"][..], 125),
        (&["run", "--auto", "--", "true"], 125),
        (&["replay", "none", "--", "true"], 125),
        (&["mount", "none.img", "none"], 2),
    ] {
        let run = said(args);
        assert_eq!((run.code, &run.stderr), (code, &expected), "{args:?}");
    }
    // It starts nothing, so the tools do it.
    let replay = said(&["replay", "none"]);
    assert_eq!(replay.code, 2);
    assert!(
        replay.stderr.contains("cannot start") && replay.stderr.contains("brisk-tools"),
        "{replay:?}"
    );
}

#[test]
fn without_its_tools_brisk_runs_programs_and_mounts_and_says_what_is_missing() {
    let sandbox = Sandbox::empty();
    let alone = alone(&sandbox, &["brisk", "brisk-run"]);
    let said = |args: &[&str]| said_by(&alone, args);
    let listed = said(&["ls", "app.img"]);
    assert_eq!(listed.code, 2);
    let expected = format!(
        "brisk: cannot start {}; brisk needs it for everything except starting programs and mounting; install \
         it again beside brisk: No such file or directory (os error 2)\n",
        alone.join("brisk-tools").display()
    );
    assert_eq!(listed.stderr, expected);
    // The tools report wrong arguments. A launch does not need them.
    assert_eq!(said(&["run"]).stderr, expected);
    let run = said(&["run", "none.img", "--", "true"]);
    assert_eq!(run.code, 125);
    assert!(
        run.stderr.contains("none.img: cannot open the image"),
        "{run:?}"
    );
    let mount = said(&["mount", "none.img", "none"]);
    assert_eq!(mount.code, 2);
    assert!(
        mount.stderr.contains("none.img: cannot open the image"),
        "{mount:?}"
    );
}

#[test]
fn without_the_lab_brisk_says_how_to_get_it() {
    let sandbox = Sandbox::empty();
    let alone = alone(&sandbox, &["brisk", "brisk-tools"]);
    let said = |args: &[&str]| said_by(&alone, args);
    let expected = format!(
        "brisk: cannot start {}; brisk lab needs it; install it beside brisk, as make install does: No such file or directory (os error 2)\n",
        alone.join("brisk-lab").display()
    );
    for args in [
        &["lab"][..],
        &["lab", "--help"],
        &["lab", "launch", "--quick", "--", "true"],
        &["help", "lab", "launch"],
    ] {
        let lab = said(args);
        assert_eq!((lab.code, &lab.stderr), (2, &expected), "{args:?}");
    }
    // The verb is listed, and its man page says which program does it.
    let help = said(&["--help"]).stdout;
    assert!(help.contains("\n  lab      Measures how fast "), "{help}");
    let pages = sandbox.path("pages");
    assert_eq!(said(&["man", pages.to_str().unwrap()]).code, 0);
    let page = std::fs::read_to_string(pages.join("brisk-lab.1")).unwrap();
    assert!(
        page.contains("brisk becomes the program brisk\\-lab"),
        "{page}"
    );
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let sandbox = Sandbox::empty();
    for args in [
        &[][..],
        &["none"],
        &["pack"],
        &["ls", "--none"],
        &["cat", "app.img"],
    ] {
        assert_eq!(sandbox.run(args).code, 2, "{args:?}");
    }
    assert_eq!(sandbox.run(&["--version"]).code, 0);
}

/// A cold start of a program that was learned reads no parser of arguments, which has this text of the help.
#[test]
fn the_smallest_program_parses_no_options() {
    let has_help = |program: &str| {
        let text = b"Fills memory from this hot pack";
        let bytes = std::fs::read(program).unwrap();
        bytes.windows(text.len()).any(|part| part == text)
    };
    assert!(!has_help(env!("CARGO_BIN_EXE_brisk")));
    assert!(has_help(env!("CARGO_BIN_EXE_brisk-run")));
}

/// A program with the X protocol contains this name. Those that start programs must not, because each cold launch reads
/// their code.
#[test]
fn the_programs_that_start_programs_know_no_windows() {
    let has_windows = |program: &str| {
        let bytes = std::fs::read(program).unwrap();
        bytes.windows(12).any(|part| part == b"_NET_WM_NAME")
    };
    assert!(!has_windows(env!("CARGO_BIN_EXE_brisk")));
    assert!(!has_windows(env!("CARGO_BIN_EXE_brisk-run")));
    let tools = has_windows(env!("CARGO_BIN_EXE_brisk-tools"));
    assert_eq!(tools, cfg!(feature = "window"));
}
