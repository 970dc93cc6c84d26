//! `docs/json.md` has every field that verbs print without a session. The tests of sessions and of the lab
//! check theirs.

#[path = "staging/documented.rs"]
mod documented;

use std::fs;
use std::process::Command;

use documented::assert_documented;

#[test]
fn every_field_that_verbs_print_without_a_session_is_documented() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("app/data")).unwrap();
    fs::write(path("app/data/big"), vec![7; 70 * 4096]).unwrap();
    fs::write(path("app/data/odd \u{9b}"), "odd").unwrap();
    std::os::unix::fs::symlink("data/big", path("app/link")).unwrap();
    fs::create_dir(path("cache")).unwrap();
    let text = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/app"], "runs": 1,
"roots": [["{}", "directory"]], "files": [[0, "data/big", {}, null], [0, "data/none", 1, null]],
"directories": [[0, "data"]],
"steps": [["found", 0, "big", 0, 1], ["pages", 0, 3, 30, 1, 1], ["absent", 0, "bigger", 3, 1]]}}"#,
        path("app").display(),
        70 * 4096
    );
    fs::write(path("q"), text.replace("3, 30", "3, 9")).unwrap();
    fs::write(path("p"), text).unwrap();
    let brisk = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_brisk"))
            .args(arguments.split(' '))
            .arg("--json")
            .current_dir(&directory)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("XDG_CACHE_HOME", path("cache"))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() < Some(2), "{arguments}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    for arguments in [
        "pack app -o a.img --profile p -q",
        "repack a.img -o b.img --codec lz4 -q --verity",
        "verity a.img -q",
        "ls -R a.img",
        "info a.img",
        "diff a.img cache",
        "verify a.img -q",
        "extract a.img out -q",
        "hot app --profile p -o h -q",
        "profile show p",
        "profile show p app",
        "profile check p app",
        "profile diff p q",
        "replay p",
        "warm app",
        "warm a.img",
        "doctor",
    ] {
        assert_documented(arguments, &brisk(arguments));
    }
}
