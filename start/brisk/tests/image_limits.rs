//! What the verbs say of images of which a careless reader holds, lists, decodes or writes gigabytes: the files `bomb-*` of
//! brisk-image's `testdata/bad`.

mod looking;

use std::fs;
use std::path::Path;

use looking::{Place, write};

/// A place with a tree and a profile of two files that are in some of the images.
fn place() -> Place {
    let place = Place::new();
    place.tree("tree");
    let profile = include_str!("bounded/two-files.profile");
    write(&place.path("a.profile"), profile.as_bytes());
    place
}

#[test]
fn faults_beyond_the_first_hundred_are_counted_and_not_printed() {
    let place = place();
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad");
    let image = bad.join("bomb-shared-blocks-of-nothing.img");
    let image = image.to_str().expect("the name is UTF-8");
    let said = place.brisk(&["verify", image]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((said.code, &*said.err), (Some(1), ""));
    let corrupt = lines
        .iter()
        .filter(|line| line.contains(": corrupt image at byte "));
    assert_eq!(corrupt.count(), 100, "{}", said.out);
    let rest: Vec<_> = lines
        .iter()
        .rev()
        .take(2)
        .map(|line| line.replace(image, "IMAGE"))
        .collect();
    assert_eq!(
        rest,
        ["IMAGE: damaged, 2000 faults", "IMAGE: and 1900 faults more"]
    );
    let json = place.brisk(&["verify", "--json", image]);
    let report: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(report["faults"].as_array().map(Vec::len), Some(100));
    assert_eq!(report["more_faults"], 1900);
    assert_eq!(report["checked"]["faults"], 2000);
}

#[test]
fn limits_are_named_with_the_option_that_lifts_them() {
    let place = place();
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad");
    let image = |name: &str| {
        bad.join(name)
            .to_str()
            .expect("the name is UTF-8")
            .to_owned()
    };
    let said = |arguments: &[&str], image: &str| {
        let said = place.brisk(arguments);
        assert_eq!((said.code, &*said.out), (Some(2), ""), "{said:?}");
        said.err.replace(image, "IMAGE")
    };
    let files = image("bomb-files-of-the-same-blocks.img");
    let used = fs::metadata(&files).expect("it is there").len();
    let limit = (1 << 30) + 1000 * used;
    let contents = format!(
        "brisk: IMAGE: reading all files needs 1107296256, which passes the limit of {limit}; if you trust the image, \
         use --no-limits\n"
    );
    let content = place.brisk(&["cat", &files, "00"]).out;
    write(
        &place.path("digests.profile"),
        digests(content.as_bytes()).as_bytes(),
    );
    for verb in [
        "extract IMAGE out",
        "verify -q IMAGE",
        "repack -q IMAGE -o again.img",
        "diff IMAGE tree",
        "hot -q IMAGE --profile digests.profile -o a.hot",
        "profile check -q digests.profile IMAGE",
    ] {
        let verb = verb.replace("IMAGE", &files);
        let verb: Vec<&str> = verb.split(' ').collect();
        assert_eq!(said(&verb, &files), contents, "{verb:?}");
    }
    for name in ["out", "again.img", "a.hot"] {
        let path = place.path(name);
        let is_empty = || fs::read_dir(&path).is_ok_and(|mut files| files.next().is_none());
        assert!(!path.exists() || is_empty(), "{name}");
    }
    assert_eq!(
        said(&["extract", "--max-size", "1M", &files, "out"], &files),
        "brisk: IMAGE: reading all files needs 33554432, which passes the limit of 1048576; \
         if you trust the image, raise --max-size\n"
    );
    let names = image("bomb-directories-in-each-others-listings.img");
    let used = fs::metadata(&names).expect("it is there").len();
    let limit = 100_000 + 2 * used;
    let tree = format!(
        "brisk: IMAGE: the number of names in the tree needs {}, which passes the limit of {limit}; if you trust the \
         image, use --no-limits\n",
        limit + 1
    );
    for verb in [
        "info IMAGE",
        "diff IMAGE IMAGE",
        "extract IMAGE out",
        "repack -q IMAGE -o again.img",
        "profile show a.profile IMAGE",
    ] {
        let verb = verb.replace("IMAGE", &names);
        let verb: Vec<&str> = verb.split(' ').collect();
        assert_eq!(said(&verb, &names), tree, "{verb:?}");
    }
    // What was listed before the limit stays.
    for all in ["-R", "--tree"] {
        let listed = place.brisk(&["ls", all, &names]);
        let said = (listed.code, listed.err.replace(&names, "IMAGE"));
        assert_eq!(said, (Some(2), tree.clone()));
    }
    let listed = place.brisk(&["ls", "-R", "--no-limits", &names]);
    assert_eq!((listed.code, &*listed.err), (Some(0), ""));
    assert_eq!(listed.out.lines().count(), 180 + 20 * (180 * 181 / 2));
    for verb in [
        "verify --no-limits IMAGE",
        "hot -q --no-limits IMAGE --profile digests.profile -o a.hot",
    ] {
        let verb = verb.replace("IMAGE", &files);
        let verb: Vec<&str> = verb.split(' ').collect();
        let done = place.brisk(&verb);
        assert_eq!((done.code, &*done.err), (Some(0), ""), "{verb:?}");
    }
}

/// A profile with digests of the files of `bomb-files-of-the-same-blocks.img`, which all have this content.
fn digests(content: &[u8]) -> String {
    assert_eq!(content.len(), 32 << 20);
    let digest = blake3::hash(content).to_hex();
    let files: Vec<_> = (0..33)
        .map(|n| format!(r#"[0, "{n:02}", 33554432, "{digest}"]"#))
        .collect();
    let steps: Vec<_> = (0..33)
        .map(|n| format!(r#"["pages", {n}, 0, 1, {n}, 1]"#))
        .collect();
    format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1, "roots": [["/opt/app", "image"]],
"files": [{}], "directories": [[0, ""]], "steps": [{}]}}"#,
        files.join(","),
        steps.join(",")
    )
}
