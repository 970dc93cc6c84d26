//! Every verb on images of some KiB of which a careless reader holds, lists, decodes or writes gigabytes: the
//! files `bomb-*` of brisk-image's `testdata/bad`. No verb is killed, takes 100 MiB more than on an
//! ordinary image, or is without end.

mod bounded;
mod looking;

use std::fs;
use std::path::{Path, PathBuf};

use bounded::{VERBS, mount_and_walk, run};
use brisk_image::ImageWriter;
use looking::Place;
use nix::sys::resource::{UsageWho, getrusage};

/// A profile of two files that are in some of the images.
const PROFILE: &str = r#"{
"brisk_profile": 1,
"brisk": "0.1.0",
"command": ["zeros"],
"runs": 1,
"ready": ["exit", 1500],
"roots": [
["/opt/bomb", "image"]
],
"files": [
[0, "00", 33554432, null],
[0, "zeros", 1099511627776, null]
],
"directories": [
[0, ""]
],
"steps": [
["pages", 0, 0, 8, 11, 1],
["pages", 1, 0, 8, 12, 1],
["absent", 0, "none", 13, 1]
]
}
"#;

/// KiB that a verb may take beside what it takes on an ordinary image.
const MORE_KIB: i64 = 100 << 10;

/// The most KiB that a program of this process has taken so far.
fn peak() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .expect("the kernel counts")
        .max_rss()
}

fn bombs() -> Vec<PathBuf> {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../brisk-image/testdata/bad");
    let entries = fs::read_dir(bad).expect("it is there");
    let mut bombs: Vec<_> = entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("bomb-"))
        })
        .collect();
    bombs.sort();
    assert!(bombs.len() >= 12, "{} images", bombs.len());
    bombs
}

/// A place with an ordinary image and what the verbs need.
fn place() -> Place {
    let place = Place::new();
    place.tree("tree");
    place.pack(&ImageWriter::new(), "tree", "ordinary.img");
    fs::write(place.path("a.profile"), PROFILE).expect("the place is ours");
    place
}

/// One test, as the memory of all programs that were started is seen, and not of each.
#[test]
fn every_verb_is_bounded_by_what_it_is_given() {
    let place = place();
    for verb in VERBS {
        run(&place, verb, "ordinary.img");
    }
    let ordinary = peak();
    for bomb in bombs() {
        let image = bomb.to_str().expect("the name is UTF-8");
        for verb in VERBS {
            run(&place, verb, image);
            let more = peak() - ordinary;
            assert!(
                more < MORE_KIB,
                "brisk {verb} on {image}: {more} KiB more than ordinary"
            );
        }
    }
    mounted(&place);
}

fn mounted(place: &Place) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts: run it as root"
    );
    fs::create_dir(place.path("at")).expect("the place is ours");
    for bomb in bombs() {
        mount_and_walk(place, bomb.to_str().expect("the name is UTF-8"));
    }
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
    assert_eq!(
        said(&["extract", &files, "out"], &files),
        format!(
            "brisk: IMAGE: reading all files needs 1107296256, which passes the limit of {limit}; \
             if you trust the image, use --no-limits\n"
        )
    );
    assert_eq!(
        fs::read_dir(place.path("out"))
            .expect("it was made")
            .count(),
        0
    );
    assert_eq!(
        said(&["extract", "--max-size", "1M", &files, "out"], &files),
        "brisk: IMAGE: reading all files needs 33554432, which passes the limit of 1048576; \
         if you trust the image, raise --max-size\n"
    );
    let names = image("bomb-directories-in-each-others-listings.img");
    let used = fs::metadata(&names).expect("it is there").len();
    let limit = 100_000 + 2 * used;
    assert_eq!(
        said(&["info", &names], &names),
        format!(
            "brisk: IMAGE: the number of names in the tree needs {}, which passes the limit of \
             {limit}; if you trust the image, use --no-limits\n",
            limit + 1
        )
    );
    let listed = place.brisk(&["ls", "-R", "--no-limits", &names]);
    assert_eq!((listed.code, &*listed.err), (Some(0), ""));
    assert_eq!(listed.out.lines().count(), 180 + 20 * (180 * 181 / 2));
    let checked = place.brisk(&["verify", "--no-limits", &files]);
    assert_eq!((checked.code, &*checked.err), (Some(0), ""));
}
