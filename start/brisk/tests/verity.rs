//! Hash trees on the command line: `verity`, `pack --verity`, and what `veritysetup` says to them.

mod sandbox;

use std::fs;
use std::process::Command;

use sandbox::{Sandbox, noise};
use serde_json::Value;

/// Whether `veritysetup verify` accepts the tree.
fn is_accepted(sandbox: &Sandbox, data: &str, tree: &str, root: &str, offset: u64) -> bool {
    let output = Command::new("veritysetup")
        .args([
            "verify",
            data,
            tree,
            root,
            &format!("--hash-offset={offset}"),
        ])
        .current_dir(sandbox.path("."))
        .output()
        .expect("veritysetup of cryptsetup-bin is installed");
    output.status.success()
}

#[test]
fn a_tree_is_written_beside_any_image_and_veritysetup_accepts_it() {
    let sandbox = Sandbox::with_image();
    // An AppImage has a program before the image, and a snap is called so.
    let mut appimage = fs::read("/proc/self/exe").unwrap();
    appimage.resize(appimage.len().next_multiple_of(4096), 0);
    let offset = appimage.len().to_string();
    appimage.extend(sandbox.bytes("app.img"));
    sandbox.file("App.AppImage", &appimage);
    let image = sandbox.bytes("app.img");
    sandbox.file("app.raw", &image);
    sandbox.file("app.snap", &image);
    for (name, stem, options) in [
        ("app.img", "app.img", None),
        ("app.raw", "app", None),
        ("app.snap", "app.snap", None),
        ("App.AppImage", "App.AppImage", Some(["--offset", &offset])),
    ] {
        let before = sandbox.bytes(name);
        let mut args = vec!["verity", name];
        args.extend(options.iter().flatten());
        let root = sandbox.stdout(&args);
        assert_eq!(
            fs::read_to_string(sandbox.path(&format!("{stem}.roothash"))).unwrap(),
            root
        );
        let tree = format!("{stem}.verity");
        assert!(is_accepted(&sandbox, name, &tree, root.trim(), 0), "{name}");
        assert!(sandbox.bytes(name) == before, "{name} has changed");
        let tree = sandbox.bytes(&tree);
        args.extend(["--threads", "1", "-o", "again.verity"]);
        assert_eq!(sandbox.stdout(&args), root);
        assert!(sandbox.bytes("again.verity") == tree);
        assert_eq!(sandbox.bytes("again.roothash"), root.as_bytes());
    }
    let json = sandbox.stdout(&["verity", "app.img", "--json", "-o", "hashes"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["hash_tree"], "hashes");
    assert_eq!(
        json["root_hash"].as_str(),
        fs::read_to_string(sandbox.path("hashes.roothash"))
            .unwrap()
            .lines()
            .next()
    );
    assert_eq!(json["data_bytes"], image.len());
    assert_eq!(json["hash_tree_bytes"], sandbox.bytes("hashes").len());
    assert_eq!(json["hash_offset"], 0);
}

#[test]
fn a_file_that_ends_within_a_block_is_covered_if_its_image_does_not() {
    let sandbox = Sandbox::with_image();
    let image = sandbox.bytes("app.img");
    let used = sandbox.image("app.img").bytes_used();
    let mut longer = image.clone();
    longer.extend([7; 100]);
    sandbox.file("longer.img", &longer);
    let root = sandbox.stdout(&["verity", "longer.img"]);
    assert!(is_accepted(
        &sandbox,
        "longer.img",
        "longer.img.verity",
        root.trim(),
        0
    ));
    sandbox.file("cut.img", &image[..used as usize]);
    let whole = used - used % 4096;
    assert_eq!(
        sandbox.failure(&["verity", "cut.img"]),
        format!(
            "brisk: cut.img: the file has {used} bytes, and its image ends at byte {used}; dm-verity covers only \
             whole blocks of 4096 bytes, which end at byte {whole}; append zeros to a copy: truncate -s %4096 COPY\n"
        )
    );
    let truncated = Command::new("truncate")
        .args(["-s", "%4096", "cut.img"])
        .current_dir(sandbox.path("."))
        .status();
    assert!(truncated.unwrap().success());
    let root = sandbox.stdout(&["verity", "cut.img"]);
    assert!(is_accepted(
        &sandbox,
        "cut.img",
        "cut.img.verity",
        root.trim(),
        0
    ));
}

#[test]
fn an_image_is_packed_with_its_tree() {
    let sandbox = Sandbox::with_app();
    let pack = |name: &str, threads: &str| {
        let args = [
            "pack",
            "app",
            "-o",
            name,
            "--verity",
            "--threads",
            threads,
            "--json",
        ];
        let json: Value = serde_json::from_str(&sandbox.stdout(&args)).unwrap();
        json["verity"].clone()
    };
    let tree = pack("a.img", "1");
    assert_eq!(pack("b.img", "3"), tree);
    assert!(sandbox.bytes("a.img") == sandbox.bytes("b.img"));
    let root = tree["root_hash"].as_str().unwrap();
    assert_eq!(
        sandbox.bytes("a.img.roothash"),
        format!("{root}\n").as_bytes()
    );
    let offset = tree["hash_offset"].as_u64().unwrap();
    assert!(is_accepted(&sandbox, "a.img", "a.img", root, offset));
    assert!(!is_accepted(
        &sandbox,
        "a.img",
        "a.img",
        &root.replace(['0', '1'], "2"),
        offset
    ));
    let said = sandbox
        .run(&["pack", "app", "-o", "c.img", "--verity"])
        .stderr;
    let line = format!("verity: root hash {root} (in c.img.roothash), tree at byte {offset}\n");
    assert!(said.ends_with(&line), "{said}");
    // The tree belongs to no recipe.
    let verified = sandbox.stdout(&["verify", "a.img", "--rebuild", "-q"]);
    assert!(
        verified.contains("packed again, it is the same"),
        "{verified}"
    );
    let sections = sandbox.stdout(&["info", "a.img"]);
    assert!(sections.contains("vrty"), "{sections}");
    // A new image has the tree if it is asked for.
    sandbox.stdout(&["repack", "a.img", "-o", "d.img", "-q"]);
    assert!(!sandbox.path("d.img.roothash").exists());
    sandbox.stdout(&["repack", "a.img", "-o", "d.img", "-q", "--verity"]);
    assert!(sandbox.bytes("d.img") == sandbox.bytes("a.img"));
}

#[test]
fn the_image_is_not_replaced_by_its_tree() {
    let sandbox = Sandbox::with_image();
    for output in ["app.img", "./app.img"] {
        let said = sandbox.failure(&["verity", "app.img", "-o", output]);
        let why = "the output would replace the image; name another file";
        assert_eq!(said, format!("brisk: {output}: {why}\n"));
    }
    sandbox.file("noise", &noise(9000));
    let said = sandbox.failure(&["verity", "noise"]);
    assert!(said.contains("noise is no image"), "{said}");
    assert!(!sandbox.path("noise.verity").exists());
}
