//! `brisk ls`: what it lists, and how.

mod sandbox;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use sandbox::Sandbox;
use serde_json::Value;

#[test]
fn ls_lists_one_level() {
    let sandbox = Sandbox::with_image();
    assert_eq!(sandbox.stdout(&["ls", "app.img"]), "bin\nempty\netc\nlib\n");
    assert_eq!(
        sandbox.stdout(&["ls", "app.img", "/"]),
        "bin\nempty\netc\nlib\n"
    );
    assert_eq!(
        sandbox.stdout(&["ls", "app.img", "/bin//", "etc/app.conf", "empty"]),
        "bin/alias\nbin/run\nbin/start\nbin/tool\netc/app.conf\n"
    );
    assert_eq!(sandbox.stdout(&["ls", "-d", "app.img", "bin"]), "bin\n");
    assert_eq!(
        sandbox.stdout(&["ls", "-dl", "app.img"]),
        "drwxr-xr-x   6    10    20            0 2023-11-14 22:13 .\n"
    );
}

#[test]
fn ls_lists_everything_below() {
    let sandbox = Sandbox::with_image();
    assert_eq!(
        sandbox.stdout(&["ls", "-R", "app.img"]),
        "bin\nbin/alias\nbin/run\nbin/start\nbin/tool\nempty\netc\netc/app.conf\nlib\nlib/big.bin\n"
    );
    assert_eq!(
        sandbox.stdout(&["ls", "-R", "app.img", "lib"]),
        "lib/big.bin\n"
    );
    assert_eq!(
        sandbox.stdout(&["ls", "-lR", "app.img"]),
        "\
drwxr-xr-x   2    10    20            0 2023-11-14 22:13 bin
-rw-r--r--   2    10    20            4 2023-11-14 22:13 bin/alias
-rwxr-xr-x   1    10    20           20 2023-11-14 22:13 bin/run
lrwxrwxrwx   1    10    20            3 2023-11-14 22:13 bin/start -> run
-rw-r--r--   2    10    20            4 2023-11-14 22:13 bin/tool
drwxr-xr-x   2    10    20            0 2023-11-14 22:13 empty
drwxr-xr-x   2    10    20            0 2023-11-14 22:13 etc
-rw-r--r--   1    10    20           12 2023-11-14 22:13 etc/app.conf
drwxr-xr-x   2    10    20            0 2023-11-14 22:13 lib
-rw-r--r--   1    10    20       300000 2023-11-14 22:13 lib/big.bin
"
    );
}

#[test]
fn ls_draws_a_tree() {
    let sandbox = Sandbox::with_image();
    assert_eq!(
        sandbox.stdout(&["ls", "--tree", "app.img"]),
        "\
.
├── bin
│   ├── alias
│   ├── run
│   ├── start -> run
│   └── tool
├── empty
├── etc
│   └── app.conf
└── lib
    └── big.bin
"
    );
    assert_eq!(
        sandbox.stdout(&["ls", "--tree", "app.img", "etc"]),
        "etc\n└── app.conf\n"
    );
}

#[test]
fn ls_shows_special_permissions() {
    let sandbox = Sandbox::with_image();
    sandbox.pack(&[
        "--chmod",
        "run=7755",
        "--chmod",
        "app.conf=7644",
        "--time",
        "0",
    ]);
    let modes = |path| sandbox.stdout(&["ls", "-l", "app.img", path])[..10].to_owned();
    assert_eq!(modes("bin/run"), "-rwsr-sr-t");
    assert_eq!(modes("etc/app.conf"), "-rwSr-Sr-T");
}

#[test]
fn ls_prints_json() {
    let sandbox = Sandbox::with_image();
    let text = sandbox.stdout(&["ls", "-R", "--json", "app.img", "bin"]);
    let entries: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(entries.len(), 4);
    let number = entries[0]["inode"].clone();
    assert_eq!(
        entries[0],
        serde_json::json!({
            "path": "bin/alias", "type": "file", "mode": "0644", "inode": number, "links": 2,
            "uid": 10, "gid": 20, "mtime": 1_700_000_000, "bytes": 4, "has_xattrs": false
        })
    );
    assert_eq!(entries[3]["inode"], number);
    assert_eq!(entries[2]["target"], "run");
    assert_eq!(entries[2]["type"], "symlink");
}

#[test]
fn names_stay_as_they_are_where_no_terminal_reads_them() {
    let sandbox = Sandbox::empty();
    fs::create_dir(sandbox.path("app")).unwrap();
    let name = OsStr::from_bytes(b"esc\x1b[2J\xff");
    fs::write(sandbox.path("app").join(name), "").unwrap();
    sandbox.pack(&[]);
    let output = sandbox.command(&["ls", "app.img"]).output().unwrap();
    assert_eq!(output.stdout, b"esc\x1b[2J\xff\n");
    let entry: Value = serde_json::from_str(&sandbox.stdout(&["ls", "--json", "app.img"])).unwrap();
    assert_eq!(entry["path"], "esc\u{1b}[2J\u{fffd}");
    assert_eq!(entry["path_hex"], "6573631b5b324aff");
}

#[test]
fn ls_finds_an_image_behind_other_bytes() {
    let sandbox = Sandbox::with_image();
    let image = sandbox.bytes("app.img");
    sandbox.file("behind.img", &[&[b'x'; 4096][..], &image].concat());
    assert_eq!(
        sandbox.stdout(&["ls", "behind.img", "--offset", "4096", "etc"]),
        "etc/app.conf\n"
    );
}

#[test]
fn ls_names_what_is_not_there() {
    let sandbox = Sandbox::with_image();
    // Nothing of the first is listed.
    assert_eq!(
        sandbox.failure(&["ls", "app.img", "bin", "none"]),
        "brisk: app.img: there is no none; brisk ls -R lists what is there\n"
    );
}
