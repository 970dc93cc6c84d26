//! Hot packs on the command line: `pack --profile`, `hot`, `repack`, and the verbs that show them.

mod sandbox;

use std::fs;
use std::process::Command;

use brisk_image::hot_pack::HotPack;
use brisk_image::{Error, Limits};
use sandbox::{Outcome, Sandbox, noise};
use serde_json::{Value, json};

/// A profile of 20 pages of the large file, one page of a small one, and two names.
fn profile(sandbox: &Sandbox) {
    let big = blake3::hash(&noise(300_000)).to_hex();
    let text = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/run"], "runs": 1,
"roots": [["/opt/app", "directory"]],
"files": [[0, "lib/big.bin", 300000, "{big}"], [0, "etc/app.conf", 12, null]],
"directories": [[0, "bin"]],
"steps": [["found", 0, "run", 1, 1], ["pages", 0, 50, 20, 2, 1], ["absent", 0, "run.cfg", 3, 1],
["pages", 1, 0, 1, 4, 1]]}}"#
    );
    sandbox.file("p", text.as_bytes());
}

fn with_profile() -> Sandbox {
    let sandbox = Sandbox::with_app();
    profile(&sandbox);
    sandbox
}

/// The path, first page and bytes of each range.
fn ranges(pack: &HotPack) -> Vec<(String, u64, Vec<u8>)> {
    let mut ranges = Vec::new();
    let mut reader = pack.frame_reader();
    for number in 0..pack.frame_count() {
        for (range, bytes) in reader.read(number).unwrap() {
            let file = pack.file(range.file as usize).unwrap();
            let path = file.path().to_str().unwrap().to_owned();
            ranges.push((path, range.first, bytes.to_owned()));
        }
    }
    ranges
}

fn expected() -> Vec<(String, u64, Vec<u8>)> {
    let big = noise(300_000)[50 * 4096..70 * 4096].to_owned();
    vec![
        ("lib/big.bin".to_owned(), 50, big),
        ("etc/app.conf".to_owned(), 0, b"colour = no\n".to_vec()),
    ]
}

fn open(sandbox: &Sandbox, name: &str) -> Result<HotPack, Error> {
    HotPack::open(sandbox.path(name), &Limits::default())
}

#[test]
fn a_pack_is_written_beside_a_tree_or_an_image() {
    let sandbox = with_profile();
    sandbox.pack(&[]);
    for tree in ["app", "app.img"] {
        for prefer in ["speed", "size"] {
            let args = [
                "hot",
                tree,
                "--profile",
                "p",
                "-o",
                "hot",
                "--prefer",
                prefer,
                "--json",
            ];
            let json: Value = serde_json::from_str(&sandbox.stdout(&args)).unwrap();
            let pack = open(&sandbox, "hot").unwrap();
            assert!(ranges(&pack) == expected(), "{tree} {prefer}");
            assert_eq!(json["path"], "hot");
            assert_eq!(
                (&json["pages"], &json["bytes"]),
                (&json!(21), &json!(81_932))
            );
            let look_ups = json!({"found": 1, "absent": 1, "changed": 0});
            assert_eq!(json["look_ups"], look_ups);
            assert_eq!(
                json["file_bytes"],
                fs::metadata(sandbox.path("hot")).unwrap().len()
            );
            assert_eq!(
                pack.codec().name(),
                if prefer == "size" { "zstd" } else { "lz4" }
            );
        }
    }
    let image = sandbox.image("app.img");
    assert!(open(&sandbox, "hot").unwrap().is_of(&image).unwrap());
    let Outcome { code, stderr, .. } = sandbox.run(&["hot", "app", "--profile", "p", "-o", "hot"]);
    assert_eq!(code, 0);
    assert!(
        stderr.starts_with("hot: 21 pages of 2 files, 80.01 KiB in, "),
        "{stderr}"
    );
}

#[test]
fn an_image_carries_a_pack_and_is_sound() {
    let sandbox = with_profile();
    let image = sandbox.pack(&["--profile", "p", "--prefer", "size"]);
    assert!(ranges(&image.hot_pack().unwrap().unwrap()) == expected());
    let text = sandbox.stdout(&["info", "app.img"]);
    let row = text
        .lines()
        .find(|line| line.starts_with("  hot pack"))
        .unwrap();
    assert!(
        row.starts_with("  hot pack        21 pages (80.01 KiB) of 2 files, "),
        "{row}"
    );
    assert!(
        row.ends_with(" stored as zstd in 1 frame; look-ups: 1 found, 1 absent"),
        "{row}"
    );
    let json: Value =
        serde_json::from_str(&sandbox.stdout(&["info", "app.img", "--json"])).unwrap();
    assert_eq!(json["hot_pack"]["pages"], 21);
    assert_eq!(
        json["hot_pack"]["look_ups"],
        json!({"found": 1, "absent": 1})
    );

    let verified = sandbox.stdout(&["verify", "-q", "--rebuild", "app.img"]);
    let lines: Vec<&str> = verified.lines().collect();
    assert!(lines[0].ends_with("0 xattrs and 2 sections"), "{verified}");
    let start = image.hot_pack_start().unwrap().unwrap();
    assert_eq!(
        lines[1..],
        [
            "app.img: the hot pack has 1 frame (81932 bytes) of what the image has".to_owned(),
            format!("app.img: packed again, it is the same: {start} bytes"),
            "app.img: sound".to_owned()
        ]
    );
}

#[test]
fn verify_finds_damage_in_a_pack() {
    let sandbox = with_profile();
    let image = sandbox.pack(&["--profile", "p"]);
    let pack = image.hot_pack().unwrap().unwrap();
    let start = image.hot_pack_range().unwrap().unwrap().start;
    let mut bytes = sandbox.bytes("app.img");
    let at = start + pack.frame(0).unwrap().stored.start;
    bytes[usize::try_from(at).unwrap()] ^= 1;
    fs::write(sandbox.path("app.img"), bytes).unwrap();
    let Outcome { code, stdout, .. } = sandbox.run(&["verify", "-q", "app.img"]);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("the digest in its header is of other bytes"),
        "{stdout}"
    );
    assert!(
        stdout.contains(": a frame does not decode as lz4: its checksum is of other bytes\n"),
        "{stdout}"
    );
    assert!(stdout.ends_with("app.img: damaged, 2 faults\n"), "{stdout}");
}

#[test]
fn verify_looks_at_the_pack_beside_an_image() {
    let sandbox = with_profile();
    sandbox.pack(&[]);
    let hot = |tree: &str, pack: &str| {
        sandbox.stdout(&["hot", tree, "--profile", "p", "-o", pack, "-q"]);
    };
    let verify = |args: &[&str]| {
        let Outcome { code, stdout, .. } =
            sandbox.run(&[&["verify", "-q", "app.img"], args].concat());
        let ends = stdout
            .lines()
            .filter(|line| !line.contains(": read ") && !line.contains("corrupt"));
        (code, ends.map(str::to_owned).collect::<Vec<_>>())
    };
    let sound = "app.img: sound".to_owned();
    assert_eq!(verify(&[]), (0, vec![sound.clone()]));
    hot("app.img", "app.img.hot");
    let said = "app.img.hot: has 1 frame (81932 bytes) of what the image has".to_owned();
    assert_eq!(verify(&[]), (0, vec![sound.clone(), said]));

    // For another image, or for none. The pack beside the image is not looked at then.
    hot("app", "of-tree");
    let other = |pack: &str| {
        let again = format!(
            "{pack}: not usable; make it again: brisk hot app.img --profile PROFILE -o {pack}"
        );
        (1, vec![sound.clone(), again])
    };
    assert_eq!(verify(&["--hot", "of-tree"]), other("of-tree"));
    let stdout = sandbox
        .run(&["verify", "-q", "app.img", "--hot", "of-tree"])
        .stdout;
    assert!(
        stdout
            .starts_with("of-tree: corrupt hot pack at table[0]: the identity is that of another"),
        "{stdout}"
    );
    sandbox.file("none", b"no hot pack at all");
    assert_eq!(verify(&["--hot", "none"]), other("none"));
    assert!(
        sandbox
            .failure(&["verify", "-q", "app.img", "--hot", "gone"])
            .contains("gone: ")
    );

    let pack = open(&sandbox, "app.img.hot").unwrap();
    let mut bytes = sandbox.bytes("app.img.hot");
    let at = usize::try_from(pack.frame(0).unwrap().stored.start).unwrap();
    bytes[at] ^= 1;
    fs::write(sandbox.path("app.img.hot"), bytes).unwrap();
    assert_eq!(verify(&[]), other("app.img.hot"));
    let json: Value =
        serde_json::from_str(&sandbox.run(&["verify", "-q", "app.img", "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["sound"], &json["faults"]),
        (&json!(false), &json!([]))
    );
    let beside = &json["hot_pack_beside"];
    assert_eq!(
        (&beside["path"], &beside["sound"]),
        (&json!("app.img.hot"), &json!(false))
    );
    assert_eq!(
        beside["checked"],
        json!({"frames": 0, "bytes": 0, "faults": 1})
    );
}

#[test]
fn what_is_stale_is_left_out_with_one_line() {
    let sandbox = with_profile();
    sandbox.file("app/etc/app.conf", b"colour = yes\n");
    let warning = "brisk: warning: left out of the hot pack: 1 page of 1 file that changed or is gone; \
                   record the profile again to have them\n";
    let outcome = |args: &[&str]| {
        let Outcome { code, stderr, .. } = sandbox.run(args);
        (code, stderr)
    };
    assert_eq!(
        outcome(&["hot", "app", "--profile", "p", "-o", "hot", "-q"]),
        (0, warning.to_owned())
    );
    assert_eq!(
        outcome(&["pack", "app", "--profile", "p", "-o", "app.img", "-q"]),
        (0, warning.to_owned())
    );
    let pack = sandbox.image("app.img").hot_pack().unwrap().unwrap();
    assert!(ranges(&pack) == expected()[..1]);
    fs::write(sandbox.path("app/lib/big.bin"), &noise(300_001)[1..]).unwrap();
    let none = "none of the 21 pages that the profile asks for is of a file that is still the same; \
                record it again\n";
    assert_eq!(
        sandbox.failure(&["hot", "app", "--profile", "p", "-o", "new"]),
        format!("brisk: app: {none}")
    );
    assert_eq!(
        sandbox.failure(&["pack", "app", "--profile", "p", "-o", "new"]),
        format!("brisk: new: {none}")
    );
    fs::write(sandbox.path("app/lib/big.bin"), "new").unwrap();
    assert_eq!(
        sandbox.failure(&["pack", "app", "--profile", "p", "-o", "new"]),
        "brisk: new: none of the files of the profile is in the tree with the same length; \
         record it again\n"
    );
    assert!(!sandbox.path("new").exists());
}

#[test]
fn an_output_that_does_harm_is_refused() {
    let sandbox = with_profile();
    sandbox.pack(&[]);
    assert_eq!(
        sandbox.failure(&["hot", "app.img", "--profile", "p", "-o", "app.img"]),
        "brisk: app.img: the output would replace the image; name another file\n"
    );
    let message = sandbox.failure(&["hot", "app", "--profile", "p", "-o", "app/hot"]);
    assert!(
        message.starts_with("brisk: app/hot: the output is inside the tree"),
        "{message}"
    );
    assert_eq!(
        sandbox
            .failure(&[
                "hot",
                "app",
                "--profile",
                "p",
                "-o",
                "h",
                "--prefer",
                "fast"
            ])
            .lines()
            .next(),
        Some("error: invalid value 'fast' for '--prefer <WHAT>'")
    );
}

#[test]
fn repack_keeps_the_tree_and_makes_a_new_pack() {
    let sandbox = with_profile();
    sandbox.pack(&[
        "--time",
        "1700000000",
        "--owner",
        "10:20",
        "--at",
        "/opt/app",
        "--profile",
        "p",
    ]);
    let old = sandbox.image("app.img");
    // An image that another tool makes, and one behind a program.
    let output = Command::new("mksquashfs")
        .args([
            "app",
            "other.img",
            "-comp",
            "xz",
            "-quiet",
            "-no-progress",
            "-noappend",
        ])
        .current_dir(sandbox.path(""))
        .output()
        .expect("mksquashfs is needed for this test: install squashfs-tools");
    assert!(output.status.success(), "{output:?}");
    let mut carried = vec![0x55; 5000];
    carried.extend(sandbox.bytes("other.img"));
    sandbox.file("carried", &carried);
    for (from, args) in [
        ("app.img", &[][..]),
        (
            "other.img",
            &["--codec", "lz4", "--level", "12", "--block-size", "64K"],
        ),
        ("carried", &["--offset", "5000", "--codec", "gzip"]),
    ] {
        let mut repack = vec!["repack", from, "-o", "new.img", "-q", "--profile", "p"];
        repack.extend(args);
        assert_eq!(sandbox.stdout(&repack), "", "{from}");
        let mut diff = vec!["diff", from, "new.img"];
        if from == "carried" {
            diff.extend(["--offset", "5000"]);
        }
        assert_eq!(sandbox.stdout(&diff), "", "{from}");
        let new = sandbox.image("new.img");
        let pack = new.hot_pack().unwrap().unwrap();
        assert!(
            ranges(&pack) == expected() && pack.is_of(&new).unwrap(),
            "{from}"
        );
    }
    let refused = sandbox.failure(&[
        "repack", "carried", "--offset", "5000", "-o", "carried", "-q",
    ]);
    assert!(
        refused.contains("this file has a program before its image, which would be lost"),
        "{refused}"
    );
    assert!(sandbox.bytes("carried") == carried);
    let outcome = sandbox.run(&["repack", "app.img", "-o", "app.img", "-q"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(
        outcome.stderr,
        "brisk: warning: the hot pack behind the old image is not behind the new one; `brisk hot app.img --profile PROFILE` makes \
         one, and so does repack --profile\n"
    );
    let new = sandbox.image("app.img");
    assert_eq!(
        (new.mkfs_time(), new.recorded_place().unwrap()),
        (1_700_000_000, Some("/opt/app".into()))
    );
    assert!(new.hot_pack().unwrap().is_none() && old.hot_pack().unwrap().is_some());
    let Outcome { code, stderr, .. } =
        sandbox.run(&["repack", "new.img", "-o", "again.img", "--profile", "p"]);
    assert_eq!(code, 0);
    assert!(
        stderr
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("hot pack: 21 pages of 2 files, "),
        "{stderr}"
    );
}

#[test]
fn a_preference_without_a_profile_is_refused() {
    let sandbox = with_profile();
    let message = sandbox.failure(&["pack", "app", "-o", "new", "--prefer", "size"]);
    assert!(message.contains("--profile <PROFILE>"), "{message}");
}

/// The old pack has the old contents, and may have the identity of the new image: the length and the times are the same.
#[test]
fn a_pack_beside_does_not_outlive_its_image() {
    let sandbox = with_profile();
    let (pack, hot) = (
        ["pack", "app", "-o", "app.img", "--time", "1"],
        "app.img.hot",
    );
    let write = |args: &[&str]| {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        outcome.stderr
    };
    write(&pack);
    write(&["hot", "app.img", "--profile", "p", "-o", hot]);
    // The same bytes again, and another codec.
    assert!(!write(&pack).contains(hot));
    assert!(sandbox.path(hot).exists());
    for write_again in [pack.as_slice(), &["repack", "new.img", "-o", "app.img"]] {
        write(&["pack", "app", "-o", "app.img", "--time", "1"]);
        write(&["hot", "app.img", "--profile", "p", "-o", hot]);
        sandbox.file("app/etc/app.conf", b"colour = ye\n");
        write(&["pack", "app", "-o", "new.img", "--time", "1"]);
        let said = write(write_again);
        let expected = "app.img.hot was removed, because its pages are not those of the new image; `brisk hot app.img \
                        --profile PROFILE` makes another";
        assert!(said.contains(expected), "{write_again:?}: {said}");
        assert!(!sandbox.path(hot).exists());
        sandbox.file("app/etc/app.conf", b"colour = no\n");
    }
    sandbox.file(hot, b"notes");
    write(&pack);
    assert_eq!(sandbox.bytes(hot), b"notes");
}

#[test]
fn a_pack_has_a_usual_name_and_may_be_of_several_profiles() {
    let sandbox = with_profile();
    sandbox.pack(&[]);
    sandbox.stdout(&["hot", "app.img", "--profile", "p", "-q"]);
    sandbox.stdout(&["hot", "app/", "--profile", "p", "-q"]);
    assert!(sandbox.path("app.img.hot").exists() && sandbox.path("app.hot").exists());
    // Twice the same profile is one with two runs.
    let profiles = ["--profile", "p", "--profile", "p"];
    sandbox.stdout(&[&["hot", "app.img", "-q", "-o", "twice"], &profiles[..]].concat());
    assert!(sandbox.bytes("twice") == sandbox.bytes("app.img.hot"));
    let twice = sandbox.pack(&profiles);
    assert!(ranges(&twice.hot_pack().unwrap().unwrap()) == expected());
}

#[test]
fn repack_says_that_a_pack_beside_the_old_image_does_not_fit() {
    let sandbox = with_profile();
    sandbox.pack(&[]);
    sandbox.stdout(&["hot", "app.img", "--profile", "p", "-q"]);
    let other = sandbox.run(&["repack", "app.img", "-o", "new.img", "-q"]);
    assert_eq!(
        (other.code, other.stderr.as_str()),
        (
            0,
            "brisk: warning: app.img.hot fits only app.img; `brisk hot new.img --profile PROFILE` makes one for the new \
             image\n"
        )
    );
    let quiet = ["repack", "app.img", "-o", "new.img", "-q", "--profile", "p"];
    assert_eq!(sandbox.stdout(&quiet), "");
    assert!(sandbox.path("app.img.hot").exists());
}
