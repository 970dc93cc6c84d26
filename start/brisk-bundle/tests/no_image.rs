//! The program as it is built, without an image behind it. Tests of `brisk bundle` need it, and cargo builds it for this one.

use std::process::Command;

#[test]
fn a_program_without_an_image_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_brisk-bundle")).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(
        said.contains("no sound image is behind this program; brisk bundle puts one there"),
        "{said}"
    );
}
