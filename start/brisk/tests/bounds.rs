//! Every verb on images of some KiB of which a careless reader holds, lists, decodes or writes gigabytes: the
//! files `bomb-*` of brisk-image's `testdata/bad`. No verb is killed, takes more than 100 MB, or is without end.
//!
//! `BRISK_MOST_SECONDS=2` also bounds the time of each, on a machine that does nothing else: `make trust` sets it.

mod bounded;
mod looking;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bounded::{VERBS, Worst, mount_and_walk, run};
use looking::Place;

/// The bytes that a process may take.
const MOST_BYTES: u64 = 100_000_000;

/// The environment variable with the seconds that a verb may take.
const MOST_SECONDS: &str = "BRISK_MOST_SECONDS";

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
    assert!(bombs.len() >= 13, "{} images", bombs.len());
    bombs
}

/// A place with an ordinary image and what the verbs need.
fn place() -> Place {
    let place = Place::new();
    place.tree("tree");
    // Not by this process: what it has once taken counts as memory of each verb that it starts.
    let packed = place.brisk(&["pack", "-q", "tree", "-o", "ordinary.img"]);
    assert_eq!(packed.code, Some(0), "{packed:?}");
    fs::write(
        place.path("a.profile"),
        include_str!("bounded/two-files.profile"),
    )
    .expect("the place is ours");
    fs::create_dir(place.path("at")).expect("the place is ours");
    place
}

/// Prints what the worst took, and checks it.
fn check(worst: &Worst, of: &str) {
    worst.print(of);
    let (bytes, on) = &worst.bytes;
    assert!(*bytes <= MOST_BYTES, "{bytes} bytes: {on}");
    if let Ok(most) = std::env::var(MOST_SECONDS) {
        let most = Duration::from_secs(most.parse().expect("seconds"));
        let (time, on) = &worst.time;
        assert!(*time <= most, "{time:?}: {on}");
    }
}

/// One test, as the verbs would slow each other down.
#[test]
fn every_verb_is_bounded_by_what_it_is_given() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts: run it as root"
    );
    let place = place();
    for verb in VERBS {
        run(&place, verb, "ordinary.img");
    }
    let (mut verbs, mut servers) = (Worst::default(), Worst::default());
    for bomb in bombs() {
        let image = bomb.to_str().expect("the name is UTF-8");
        let name = bomb.file_name().expect("it has one").to_string_lossy();
        for verb in VERBS {
            verbs.add(run(&place, verb, image), verb.replace("IMAGE", &name));
        }
        servers.add(mount_and_walk(&place, image), format!("mount {name}"));
    }
    check(&verbs, "programs");
    check(&servers, "mounts");
}
