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
