//! `brisk diff`: one line for each difference.

mod looking;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use brisk_image::ImageWriter;
use looking::{Place, Said, assert_help, set_time, write};
use rustix::fs::{XattrFlags, lsetxattr};
use serde_json::{Value, json};

#[test]
fn help() {
    assert_help("diff");
}

fn said(code: i32, out: &str) -> Said {
    Said {
        code: Some(code),
        out: out.to_owned(),
        err: String::new(),
    }
}

#[test]
fn the_same_tree_in_other_codecs_is_equal() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    place.mksquashfs(
        "tree",
        "b.img",
        &["-comp", "xz", "-b", "16K", "-always-use-fragments"],
    );
    assert_eq!(place.brisk(&["diff", "a.img", "b.img"]), said(0, ""));
    assert_eq!(place.brisk(&["diff", "a.img", "tree"]), said(0, ""));
    let said = place.brisk(&["diff", "a.img", "tree", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(
        serde_json::from_str::<Value>(&said.out).unwrap(),
        json!({"equal": true, "differences": []})
    );
}

#[test]
fn every_kind_of_difference_has_its_line() {
    let place = Place::new();
    let root = place.tree("tree");
    for (name, target) in [("sub/a", "x"), ("sub/b", "x")] {
        symlink(target, root.join(name)).unwrap();
        set_time(&root.join(name), 1_700_000_000);
    }
    for name in ["linked", "owned", "typed", "gone", "timed", "attributed"] {
        write(&root.join("sub").join(name), name.as_bytes());
        set_time(&root.join("sub").join(name), 1_700_000_000);
    }
    fs::hard_link(root.join("sub/linked"), root.join("sub/zlinked")).unwrap();
    let attribute = |name: &str, attribute: &str, value: &str| {
        lsetxattr(
            root.join(name),
            attribute,
            value.as_bytes(),
            XattrFlags::empty(),
        )
        .expect("the temporary directory must be on a filesystem with xattrs");
    };
    attribute("sub/attributed", "user.same", "1");
    attribute("sub/attributed", "user.changed", "1");
    set_time(&root.join("sub"), 1_700_000_000);
    place.pack(&ImageWriter::new(), "tree", "a.img");

    attribute("sub/attributed", "user.changed", "2");
    attribute("sub/attributed", "user.new", "2");
    let mut noise = fs::read(root.join("noise")).unwrap();
    noise[200_001] ^= 1;
    write(&root.join("noise"), &noise);
    write(&root.join("text"), b"brisk brisk");
    chown(root.join("sub/owned"), Some(12), Some(34)).unwrap();
    for name in ["sub/typed", "sub/gone", "sub/b", "sub/zlinked"] {
        fs::remove_file(root.join(name)).unwrap();
    }
    fs::create_dir(root.join("sub/typed")).unwrap();
    write(&root.join("sub/zlinked"), b"linked");
    write(&root.join("sub/new\n"), b"");
    symlink("y", root.join("sub/b")).unwrap();
    fs::set_permissions(root.join("bin"), Permissions::from_mode(0o1700)).unwrap();
    for name in ["noise", "text", "sub/zlinked", "sub/b", "sub"] {
        set_time(&root.join(name), 1_700_000_000);
    }
    set_time(&root.join("sub/timed"), 1_700_000_009);

    let expected = "\
! bin: mode 0755 -> 1700
! noise: contents differ from byte 200001 on
! sub/attributed: xattrs +user.new !user.changed
! sub/b: target x -> y
- sub/gone (file)
+ sub/new\\u{a} (file)
! sub/owned: owner 0:0 -> 12:34
! sub/timed: mtime 1700000000 -> 1700000009
! sub/typed: file -> directory
! sub/zlinked: hard link to sub/linked -> none
! text: contents differ from byte 11 on, 300000 bytes -> 11 bytes
";
    assert_eq!(place.brisk(&["diff", "a.img", "tree"]), said(1, expected));
    let ignored = ["mode", "xattrs", "owner", "mtime"];
    let lines: Vec<&str> = expected
        .lines()
        .filter(|line| {
            !ignored
                .iter()
                .any(|what| line.contains(&format!(": {what} ")))
        })
        .collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(
        place.brisk(&[
            "diff",
            "a.img",
            "tree",
            "--ignore",
            "owner,mtime,mode,xattrs"
        ]),
        said(1, &(lines.join("\n") + "\n"))
    );
    let output = place.brisk(&["diff", "a.img", "tree", "--json"]);
    let value: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        value,
        json!({"equal": false, "differences": [
            {"path": "bin", "change": "mode", "was": "0755", "is": "1700"},
            {"path": "noise", "change": "contents", "first": 200_001, "was_bytes": 300_000,
             "is_bytes": 300_000},
            {"path": "sub/attributed", "change": "xattrs", "removed": [], "added": ["user.new"],
             "changed": ["user.changed"]},
            {"path": "sub/b", "change": "target", "was": "x", "is": "y"},
            {"path": "sub/gone", "change": "removed", "type": "file"},
            {"path": "sub/new\n", "change": "added", "type": "file"},
            {"path": "sub/owned", "change": "owner", "was": [0, 0], "is": [12, 34]},
            {"path": "sub/timed", "change": "mtime", "was": 1_700_000_000, "is": 1_700_000_009},
            {"path": "sub/typed", "change": "type", "was": "file", "is": "directory"},
            {"path": "sub/zlinked", "change": "hard link", "was": "sub/linked", "is": null},
            {"path": "text", "change": "contents", "first": 11, "was_bytes": 300_000,
             "is_bytes": 11},
        ]})
    );
}

#[test]
fn what_cannot_be_read_is_no_difference() {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "a.img");
    let failed = place.brisk(&["diff", "a.img", "none"]);
    assert_eq!((failed.code, failed.out.as_str()), (Some(2), ""));
    assert_eq!(
        failed.err,
        "brisk: none: cannot open the image: \
         No such file or directory (os error 2)\n"
    );
}
