//! `brisk trace --ready window` of a brisk that was built without the feature `window`.
#![cfg(not(feature = "window"))]

mod staging;

use staging::each_user;

#[test]
fn an_error_says_what_to_do_before_the_command_runs() {
    each_user(|stage| {
        let options = ["--tree", "tree", "-o", "home/profile", "--ready", "window"];
        let output = stage
            .brisk(&["trace"])
            .args(options)
            .args(["--", "touch", "home/up"])
            .env("DISPLAY", ":0")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(
                "this program was built without the feature window of brisk-launch; build it with that \
                 feature, or wait for something else than a window"
            ),
            "{said}"
        );
        assert!(!stage.writable().join("up").exists());
    });
}
