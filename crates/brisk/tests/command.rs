//! What holds for every verb.

mod sandbox;

use std::io::Read;
use std::process::Stdio;

use sandbox::{Sandbox, noise};

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let sandbox = Sandbox::empty();
    // More than a pipe holds.
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
            "brisk: text: corrupt image at byte 0: magic number is \
             0x78787878, allowed is 0x73717368 (SquashFS, little-endian)\n"
        );
    }
    assert!(!sandbox.path("out").exists());
}

/// A copy of the small program, without the one that knows all verbs.
#[test]
fn without_its_tools_brisk_runs_programs_and_says_what_is_missing() {
    let sandbox = Sandbox::empty();
    let alone = sandbox.path("alone");
    std::fs::create_dir(&alone).unwrap();
    let brisk = alone.join("brisk");
    // By another process: a file that a thread of this one writes may be open in the child of another.
    let copied = std::process::Command::new("cp")
        .args([env!("CARGO_BIN_EXE_brisk").as_ref(), brisk.as_os_str()])
        .status();
    assert!(copied.unwrap().success());
    let said = |args: &[&str]| {
        let output = std::process::Command::new(&brisk).args(args).output();
        sandbox::outcome(output.unwrap())
    };
    let listed = said(&["ls", "app.img"]);
    assert_eq!(listed.code, 2);
    let expected = format!(
        "brisk: {}: cannot be started, and does all but start programs; install it again beside brisk: No such \
         file or directory (os error 2)\n",
        alone.join("brisk-tools").display()
    );
    assert_eq!(listed.stderr, expected);
    // What is wrong with its arguments is for the tools to say; what can be run is not.
    assert_eq!(said(&["run"]).stderr, expected);
    let run = said(&["run", "none.img", "--", "true"]);
    assert_eq!(run.code, 125);
    assert!(
        run.stderr.contains("none.img: cannot open the image"),
        "{run:?}"
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
