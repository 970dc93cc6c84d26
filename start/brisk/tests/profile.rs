//! `brisk profile`: what is shown, what is checked, and the exit codes.

mod sandbox;

use sandbox::{Outcome, Sandbox, noise};
use serde_json::{Value, json};

/// A profile of `app` that asks for `pages` of the large file.
fn profile(sandbox: &Sandbox, name: &str, pages: &str, at: u32) {
    let big = blake3::hash(&noise(300_000)).to_hex();
    let text = format!(
        r#"{{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["bin/run", "--fast"],
"runs": 1,
"ready": ["exit", 531999],
"roots": [["/opt/app", "directory"], ["/", "system"]],
"files": [[0, "lib/big.bin", 300000, "{big}"], [0, "etc/app.conf", 12, null], [1, "etc/fonts", 9000, null]],
"directories": [[0, "bin"]],
"steps": [
["found", 0, "run", {at}, 1],
["absent", 0, "tool.pth", {at}, 1],
["pages", 0, {pages}, {at}, 1],
["pages", 1, 0, 1, {at}, 1],
["pages", 2, 1, 2, {at}, 1]
]
}}"#
    );
    sandbox.file(name, text.as_bytes());
}

#[test]
fn show_draws_what_is_asked_for() {
    let sandbox = Sandbox::with_app();
    profile(&sandbox, "p", "70, 4", 9);
    let text = sandbox.stdout(&["profile", "show", "p"]);
    let with_page = sandbox.stdout(&["profile", "show", "p", "--html", "p.html"]);
    assert_eq!(with_page, text);
    let page = std::fs::read_to_string(sandbox.path("p.html")).unwrap();
    for part in [
        "<h1>What p asks for</h1>",
        "<td>/opt/app</td><td>2</td><td>5</td><td>0.0</td><td>2</td><td>1</td><td>1</td>",
        "<h3>What is read, in order</h3>",
        "<h3>How much is read</h3>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn show_says_how_much_of_what() {
    let sandbox = Sandbox::with_app();
    profile(&sandbox, "p", "70, 4", 9);
    let whole = "\
p
  command    bin/run --fast
  runs       1
  cut        after 531 ms, at: exit
  brisk      0.1.0

/opt/app (directory)
  files      2
  pages      5 in 2 ranges
  bytes      13292 (12.98 KiB, 4.4 % of the tree)
  look-ups   1 found, 1 absent

/ (system, outside of the tree)
  files      1
  pages      2 in 1 range
  bytes      4904 (4.79 KiB)
  look-ups   0 found, 0 absent

The files with the most pages

       pages          bytes  of file  path
           4          13280    4.4 %  /opt/app/lib/big.bin
";
    assert_eq!(
        sandbox.stdout(&["profile", "show", "p", "app", "--top", "1"]),
        whole
    );
    sandbox.pack(&[]);
    assert_eq!(
        sandbox.stdout(&["profile", "show", "p", "app.img", "--top", "1"]),
        whole
    );
    let json: Value =
        serde_json::from_str(&sandbox.stdout(&["profile", "show", "p", "--json"])).unwrap();
    assert_eq!(
        json["roots"][0],
        json!({"path": "/opt/app", "kind": "directory", "demand":
            {"files": 2, "pages": 5, "bytes": 13292, "ranges": 2,
            "look_ups": {"found": 1, "absent": 1}}})
    );
    assert_eq!(
        json["top"][1],
        json!({"path": "/etc/fonts", "pages": 2, "bytes": 4904, "file_bytes": 9000})
    );
}

#[test]
fn check_says_what_is_stale() {
    let sandbox = Sandbox::with_app();
    profile(&sandbox, "p", "0, 20", 9);
    let outcome = |code, stdout: &str| Outcome {
        code,
        stdout: stdout.to_owned(),
        stderr: String::new(),
    };
    assert_eq!(
        sandbox.run(&["profile", "check", "p", "app"]),
        outcome(
            0,
            "app: 21 of 21 pages (100.0 %) in unchanged files, 0 in changed and 0 in missing ones; 2 outside of it\napp: 0 of 2 look-ups now have another answer\n"
        )
    );
    sandbox.file("app/bin/tool.pth", b"");
    sandbox.file("app/etc/app.conf", b"colour = yes\n");
    sandbox.pack(&[]);
    assert_eq!(
        sandbox.run(&["profile", "check", "p", "app.img"]),
        outcome(
            1,
            "! etc/app.conf: 12 bytes -> 13 bytes\napp.img: 20 of 21 pages (95.2 %) in unchanged files, 1 in changed and 0 in missing ones; 2 outside of it\napp.img: 1 of 2 look-ups now have another answer\n"
        )
    );
    let mut bytes = noise(300_000);
    bytes[299_999] ^= 1;
    sandbox.file("app/lib/big.bin", &bytes);
    std::fs::remove_file(sandbox.path("app/etc/app.conf")).unwrap();
    let Outcome { code, stdout, .. } = sandbox.run(&["profile", "check", "p", "app", "--json"]);
    assert_eq!(code, 1);
    assert_eq!(
        serde_json::from_str::<Value>(&stdout).unwrap(),
        json!({
            "stale": true, "look_ups": {"same": 1, "changed": 1},
            "pages": {"same": 0, "changed": 20, "missing": 1, "outside": 2},
            "files": [{"path": "lib/big.bin", "state": "changed"}, {"path": "etc/app.conf", "state": "missing"}],
        })
    );
}

#[test]
fn merge_and_diff() {
    let sandbox = Sandbox::with_app();
    profile(&sandbox, "a", "0, 20", 9);
    profile(&sandbox, "b", "10, 20", 5);
    let Outcome { code, stderr, .. } = sandbox.run(&["profile", "merge", "a", "b", "-o", "both"]);
    assert_eq!(
        (code, stderr.as_str()),
        (
            0,
            "both: 33 pages (132.00 KiB) of 2 runs; every run needs 13 of them\n"
        )
    );
    let text = String::from_utf8(sandbox.bytes("both")).unwrap();
    let steps: Vec<_> = text
        .lines()
        .skip_while(|line| *line != "\"steps\": [")
        .skip(1)
        .collect();
    assert_eq!(
        steps,
        [
            "[\"found\", 0, \"run\", 5, 2],",
            "[\"absent\", 0, \"tool.pth\", 5, 2],",
            "[\"pages\", 0, 10, 10, 5, 2],",
            "[\"pages\", 1, 0, 1, 5, 2],",
            "[\"pages\", 2, 1, 2, 5, 2],",
            "[\"pages\", 0, 20, 10, 5, 1],",
            "[\"pages\", 0, 0, 10, 9, 1]",
            "]",
            "}"
        ]
    );
    let Outcome { code, stdout, .. } = sandbox.run(&["profile", "diff", "a", "b"]);
    assert_eq!(
        (code, stdout.as_str()),
        (1, "/opt/app/lib/big.bin: -10 +10 =10\npages: -10 +10 =13\n")
    );
    let Outcome { code, stdout, .. } = sandbox.run(&["profile", "diff", "a", "a", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(
        serde_json::from_str::<Value>(&stdout).unwrap(),
        json!({"pages": {"only_first": 0, "only_second": 0, "both": 23}, "files": []})
    );
}

#[test]
fn what_is_no_profile_is_said() {
    let sandbox = Sandbox::with_app();
    sandbox.file("p", b"{\"brisk_profile\": 1,\n \"x\x1b\": 2}");
    assert_eq!(
        sandbox.failure(&["profile", "show", "p"]),
        "brisk: p: corrupt profile at line 2 column 4: control character (\\u0000-\\u001F) found while parsing a string\n"
    );
    assert!(
        sandbox
            .failure(&["profile", "show", "none"])
            .starts_with("brisk: none: cannot open the profile")
    );
    profile(&sandbox, "p", "70, 5", 0);
    assert_eq!(
        sandbox.failure(&["profile", "merge", "p", "-o", "q"]),
        "brisk: p: corrupt profile at steps[2]: number of pages is 5, allowed is 1 to 4\n"
    );
    assert!(!sandbox.path("q").exists());
}
