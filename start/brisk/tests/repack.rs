//! `brisk repack`: what the new image keeps of the old one.

mod sandbox;

use std::fs;
use std::path::Path;

use brisk_image::Codec;
use sandbox::Sandbox;
use serde_json::Value;

/// What `brisk repack app.img -o new.img` with these options says that it copied.
#[track_caller]
fn copied(sandbox: &Sandbox, options: &[&str]) -> u64 {
    let repack = ["repack", "app.img", "-o", "new.img", "--json"];
    let text = sandbox.stdout(&[&repack, options].concat());
    let report: Value = serde_json::from_str(&text).expect("JSON");
    report["data"]["copied_blocks"].as_u64().expect("a number")
}

#[test]
fn a_new_entry_or_place_compresses_nothing() {
    let sandbox = Sandbox::with_app();
    sandbox.pack(&["--at", "/opt/app"]);
    // Three of `big.bin`, and one of the small files.
    assert_eq!(copied(&sandbox, &["--no-at", "--entry", "bin/run"]), 4);
    let new = sandbox.image("new.img");
    assert_eq!(new.recorded_place().unwrap(), None);
    assert_eq!(new.entry_point().unwrap().unwrap().command(), ["bin/run"]);
    assert_eq!(copied(&sandbox, &["--at", "/opt/new", "--verity"]), 4);
    let new = sandbox.image("new.img");
    assert_eq!(new.recorded_place().unwrap(), Some("/opt/new".into()));
    fs::remove_file(sandbox.path("new.img.roothash")).unwrap();
    assert_eq!(copied(&sandbox, &[]), 4);
    assert!(sandbox.bytes("new.img") == sandbox.bytes("app.img"));
    assert_eq!(
        sandbox
            .failure(&["repack", "app.img", "-o", "x", "--no-at", "--at", "/x"])
            .lines()
            .next(),
        Some("error: the argument '--no-at' cannot be used with '--at <DIR>'")
    );
}

#[test]
fn an_image_is_packed_as_it_was_unless_an_option_says_another_way() {
    let sandbox = Sandbox::with_app();
    sandbox.file("order", b"/etc/\n");
    let options = [
        "--codec",
        "lz4",
        "--level",
        "12",
        "--block-size",
        "64K",
        "--order",
        "order",
        "--raw",
        "/bin/run",
        "--no-export",
    ];
    let old = sandbox.pack(&options);
    // The two that small files share. Others may be stored as they are by a rule.
    assert_eq!(copied(&sandbox, &["--entry", "bin/run"]), 2);
    let new = sandbox.image("new.img");
    assert_eq!(new.recipe().unwrap(), old.recipe().unwrap());
    assert!(!new.is_exportable());
    let rebuilt = ["verify", "-q", "--rebuild", "new.img"];
    assert!(
        sandbox
            .stdout(&rebuilt)
            .contains("packed again, it is the same")
    );

    assert_eq!(copied(&sandbox, &["--no-recipe"]), 2);
    let new = sandbox.image("new.img");
    assert_eq!((new.codec(), new.recipe().unwrap()), (Codec::Lz4, None));

    // One option, and the defaults for the rest.
    for options in [
        &["--tails"][..],
        &["--codec", "zstd"],
        &["--block-size", "128K"],
    ] {
        assert_eq!(copied(&sandbox, options), 0, "{options:?}");
        let recipe = sandbox.image("new.img").recipe().unwrap().unwrap();
        assert_eq!(recipe.compression.codec(), Some(Codec::Zstd));
        assert_eq!((recipe.block_size, recipe.export), (128 << 10, true));
        assert!(recipe.order.is_empty() && recipe.raw.is_empty());
    }
}

/// A rebuild that took the blocks of the image itself would find every image to be what its recipe makes.
#[test]
fn a_rebuild_copies_nothing() {
    let sandbox = Sandbox::with_app();
    sandbox.file("app/text", &b"text ".repeat(60_000));
    sandbox.pack(&["--level", "1"]);
    // A recipe that tells another level, with a digest that fits.
    let mut bytes = sandbox.bytes("app.img");
    let used = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let at = usize::try_from(used.next_multiple_of(4096)).unwrap();
    let len = u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    let contents = at + 64..at + 64 + usize::try_from(len).unwrap();
    let recipe = String::from_utf8(bytes[contents.clone()].to_vec()).unwrap();
    let lie = recipe.replace(r#""level":1"#, r#""level":9"#);
    assert_ne!(lie, recipe);
    bytes[contents].copy_from_slice(lie.as_bytes());
    bytes[at + 24..at + 56].copy_from_slice(blake3::hash(lie.as_bytes()).as_bytes());
    sandbox.file("app.img", &bytes);
    let outcome = sandbox.run(&["verify", "-q", "--rebuild", "app.img"]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome
            .stdout
            .contains("app.img: packed again, it differs from byte "),
        "{}",
        outcome.stdout
    );
}

#[test]
fn a_recipe_that_cannot_be_followed_is_told() {
    let sandbox = Sandbox::empty();
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad");
    for (name, why) in [
        (
            "section-recipe-empty.img",
            "app.img: the recipe cannot be read (EOF while parsing a value at line 1 column 0); it may be of a later \
             version",
        ),
        (
            "section-recipe-pattern-bad.img",
            "app.img: brisk cannot follow the recipe of this image: pattern \"a{b\" cannot be used: error parsing glob \
             'a{b': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
        ),
    ] {
        fs::copy(bad.join(name), sandbox.path("app.img")).unwrap();
        let outcome = sandbox.run(&["repack", "app.img", "-q", "-o", "new.img"]);
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (
                0,
                format!("brisk: warning: {why}; brisk packs it with its own defaults\n").as_str()
            )
        );
        let recipe = sandbox.image("new.img").recipe().unwrap().unwrap();
        assert_eq!(recipe.compression.codec(), Some(Codec::Zstd), "{name}");
    }
}

#[test]
fn what_does_not_fit_the_new_image_is_said() {
    let sandbox = Sandbox::with_app();
    sandbox.pack(&["--verity"]);
    for file in ["app.img.manifest", "app.img.manifest.minisig"] {
        sandbox.file(file, b"of the old image");
    }
    let repack = ["repack", "app.img", "-q", "-o", "app.img"];
    let new = |files: &str| {
        format!(
            "brisk: warning: {files} for the image that was replaced: make new ones with brisk verity and brisk sign, or remove them\n"
        )
    };
    let outcome = sandbox.run(&[&repack[..], &["--verity"]].concat());
    let two = new("app.img.manifest, app.img.manifest.minisig were made");
    assert_eq!((outcome.code, outcome.stderr), (0, two));
    let other = ["repack", "app.img", "-q", "-o", "new.img"];
    let outcome = sandbox.run(&other);
    assert_eq!((outcome.code, outcome.stderr), (0, String::new()));
}
