//! `brisk remote`: what it says of images from the network, and which of them it removes.

#[path = "staging/documented.rs"]
mod documented;
mod sandbox;

use std::os::unix::fs::FileExt;

use brisk_remote::{
    About, Counts, Entry, RemoteCache, RemoteUrl, key_of_root, key_of_url, open_own,
};
use documented::assert_documented;
use sandbox::{Outcome, Sandbox, outcome};
use serde_json::Value;

const LEN: u64 = 1 << 20;

/// A cache with three images: one that a root hash names and of which a quarter is here, a complete one, and an old one by plain
/// http.
struct Stage {
    sandbox: Sandbox,
    cache: RemoteCache,
}

impl Stage {
    fn new() -> Self {
        let sandbox = Sandbox::empty();
        let brisk = sandbox.path("brisk");
        std::fs::create_dir(&brisk).unwrap();
        sandbox.mode("brisk", 0o700);
        let cache = RemoteCache::at(&brisk.join("remote")).unwrap();
        let stage = Self { sandbox, cache };
        let root = "cd".repeat(32);
        let lazy = About {
            root: Some(root.clone()),
            is_vouched: true,
            sha256: Some("ab".repeat(32)),
            counts: Counts {
                bytes: 3 << 20,
                requests: 7,
                waits: 1,
                waited_ms: 2340,
                busy_ms: 1500,
            },
            ..about("https://a.example/lazy.img", 3000)
        };
        let entry = stage.make(&key_of_root(&root), &lazy);
        entry.note_compared().unwrap();
        let map = open_own(&entry.map_path(), false).unwrap();
        map.write_all_at(&[0xff; 8], 0).unwrap();
        let whole = About {
            is_complete: true,
            validator: Some("\"7\"".into()),
            ..about("https://a.example/x/whole.img?v=1", 2000)
        };
        stage.make("url-2", &whole);
        stage.make("url-1", &about("http://b.example/old.img", 1000));
        stage
    }

    /// An image with all bytes on the disk.
    fn make(&self, key: &str, about: &About) -> Entry {
        let entry = self.cache.make(key, about).unwrap();
        let image = open_own(&entry.image_path(), false).unwrap();
        image.write_all_at(&[7; LEN as usize], 0).unwrap();
        let url = RemoteUrl::parse(&about.url).unwrap();
        self.cache.remember(&url, key, None).unwrap();
        entry
    }

    fn brisk(&self, args: &str) -> Outcome {
        let args: Vec<_> = args.split(' ').collect();
        let mut command = self.sandbox.command(&args);
        command.env("XDG_CACHE_HOME", self.sandbox.path(""));
        outcome(command.output().unwrap())
    }

    /// What a verb prints that succeeds.
    #[track_caller]
    fn stdout(&self, args: &str) -> String {
        let outcome = self.brisk(args);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stdout
    }

    fn names(&self) -> Vec<String> {
        let list = self.brisk("remote list").stdout;
        let first = |line: &str| line.split(' ').next().unwrap().to_owned();
        list.lines().map(first).collect()
    }
}

fn about(url: &str, used: u64) -> About {
    About {
        url: url.into(),
        len: LEN,
        used,
        boot: "b".into(),
        ..About::default()
    }
}

#[test]
fn images_are_listed_with_what_is_here_of_them() {
    let stage = Stage::new();
    let list = stage.stdout("remote list");
    let lines: Vec<_> = list.lines().collect();
    let whole: [(&str, &str); 3] = [
        (
            "https://a.example/lazy.img             25 %    1.00 MiB  used ",
            " ago, vouched for by a root hash that a URL named or a trusted key has signed",
        ),
        (
            "https://a.example/x/whole.img?v=1  complete    1.00 MiB  used ",
            " ago, vouched for by the server, by https",
        ),
        (
            "http://b.example/old.img                0 %    1.00 MiB  used ",
            " ago, vouched for by nobody: it came by plain http",
        ),
    ];
    assert_eq!(lines.len(), 3, "{list}");
    for (line, (start, end)) in lines.iter().zip(whole) {
        assert!(
            line.starts_with(start) && line.ends_with(end),
            "{line:?} {start:?}"
        );
    }
    let json = stage.stdout("remote list --json");
    assert_eq!(json.lines().count(), 3);
    assert_documented("remote list and remote status", &json);
    let empty = Sandbox::empty();
    let mut command = empty.command(&["remote", "list"]);
    let none = outcome(
        command
            .env("XDG_CACHE_HOME", empty.path(""))
            .output()
            .unwrap(),
    );
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
    assert_eq!(
        none.stderr,
        "no image from the network is here; brisk run URL reads one\n"
    );
}

#[test]
fn all_that_is_known_of_an_image_is_said_by_its_url_and_its_key() {
    let stage = Stage::new();
    let root = "cd".repeat(32);
    let status = stage.stdout("remote status https://a.example/lazy.img");
    let kept = stage
        .cache
        .entry(&key_of_root(&root))
        .unwrap()
        .unwrap()
        .stored();
    assert!(kept >= LEN, "{kept}");
    let lines: Vec<_> = status
        .lines()
        .filter(|line| !line.starts_with("  used ") && !line.starts_with("  kept "))
        .collect();
    let expected = [
        "https://a.example/lazy.img",
        "  state       lazy: 256.00 KiB of 1.00 MiB are here (25 %)",
        "  vouched for by a root hash that a URL named or a trusted key has signed",
        &format!("  root hash   {root}"),
        &format!("  sha256      {}", "ab".repeat(32)),
        "  network     3.00 MiB in 7 requests",
        "  speed       2.00 MiB/s, while requests were under way",
        "  waits       programs waited 1 time for the network, 2.3 s together",
        "  pinned      no",
        "  written     last in the boot b",
        &format!("  key         root-{root}"),
    ];
    assert_eq!(lines, expected);
    for named in [
        format!("root-{root}"),
        format!("https://any.example/any#sha256={root}"),
    ] {
        assert_eq!(stage.stdout(&format!("remote status {named}")), status);
    }
    let whole = stage.stdout("remote status https://a.example/x/whole.img?v=1");
    assert!(
        whole.contains("\n  state       complete: all 1.00 MiB are here\n"),
        "{whole}"
    );
    assert!(!whole.contains("speed"), "{whole}");
    let json = stage.stdout("remote status url-1 --json");
    assert_documented("remote list and remote status", &json);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["vouched_by"], &json["present_bytes"]),
        (&"nothing".into(), &0.into())
    );
    for (named, message) in [
        (
            "https://a.example/none",
            "https://a.example/none: nothing of such an image is here; brisk remote list shows what is",
        ),
        (
            "../..",
            "../..: nothing of such an image is here; brisk remote list shows what is",
        ),
        (
            "ftp://a/b",
            "ftp://a/b: brisk reads images by https://, http://, oci:// and s3:// only",
        ),
    ] {
        let said = stage.brisk(&format!("remote status {named}"));
        assert_eq!((said.code, said.stderr), (2, format!("brisk: {message}\n")));
    }
}

#[test]
fn gc_removes_the_oldest_and_what_is_pinned_or_in_use_stays() {
    let stage = Stage::new();
    let entries = || stage.cache.entries().unwrap();
    let stored = entries()[0].stored();
    let pinned = stage.brisk("remote pin http://b.example/old.img");
    assert_eq!(
        pinned.stderr,
        "http://b.example/old.img: stays until it is unpinned or forgotten\n"
    );
    let in_use = entries()[0].open_image().unwrap();
    let json = stage.stdout(&format!("remote gc --json --to {}", stored * 2));
    assert_documented("remote gc", &json);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["removed"][0]["key"], "url-2");
    assert_eq!(json["removed"][0]["stored_bytes"], stored);
    assert_eq!(
        (&json["stored_bytes"], &json["limit_bytes"]),
        (&(stored * 2).into(), &(stored * 2).into())
    );
    let nothing = stage.brisk("remote gc --to 0");
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert!(
        nothing
            .stderr
            .ends_with(" on the disk, of 0 B, as the others are pinned or in use\n"),
        "{nothing:?}"
    );
    let forgotten = stage.brisk("remote forget https://a.example/lazy.img");
    assert_eq!(
        (forgotten.code, forgotten.stderr.as_str()),
        (
            1,
            "https://a.example/lazy.img: is in use, and stays; brisk stat shows by whom, and brisk umount ends that\n"
        )
    );
    drop(in_use);
    // A tenth of any disk is more than this.
    assert_eq!(stage.stdout("remote gc"), "");
    let left = ["https://a.example/lazy.img", "http://b.example/old.img"];
    assert_eq!(stage.names(), left);
    assert_eq!(
        stage
            .brisk("remote forget https://a.example/lazy.img")
            .stderr,
        "https://a.example/lazy.img: forgotten\n"
    );
    stage.stdout("remote unpin http://b.example/old.img");
    let removed = stage.stdout("remote gc --to 1K");
    assert_eq!(removed, "removed http://b.example/old.img (1.00 MiB)\n");
    assert_eq!(stage.brisk("remote list").code, 1);
    // Its name is still known, and leads nowhere.
    let gone = stage.brisk("remote status http://b.example/old.img");
    assert_eq!(gone.code, 2, "{gone:?}");
}

#[test]
fn what_is_listed_names_one_image() {
    let stage = Stage::new();
    let (url, root) = ("https://a.example/lazy.img", "ef".repeat(32));
    let of_root = About {
        root: Some(root.clone()),
        is_vouched: true,
        ..about(url, 4000)
    };
    stage.cache.make(&key_of_root(&root), &of_root).unwrap();
    stage.cache.make("url-3", &about(url, 3500)).unwrap();
    let names = stage.names();
    let expected = [&format!("{url}#sha256={root}"), "url-3", url];
    assert_eq!(names[..3], expected);
    for name in names {
        let json = stage.stdout(&format!("remote status {name} --json"));
        let json: Value = serde_json::from_str(&json).unwrap();
        let key = json["key"].as_str().unwrap();
        assert_eq!(
            stage.stdout(&format!("remote status {name}")),
            stage.stdout(&format!("remote status {key}"))
        );
    }
}

#[test]
fn no_name_of_an_image_is_obeyed_by_a_terminal() {
    let stage = Stage::new();
    let url = "https://a.example/\u{202e}gmi.app";
    let key = key_of_url(&RemoteUrl::parse(url).unwrap(), "1");
    stage.make(&key, &about(url, 1));
    for said in ["remote list", &format!("remote status {key}")] {
        let said = stage.stdout(said);
        assert!(
            said.contains("\\u{202e}") && !said.contains('\u{202e}'),
            "{said}"
        );
    }
}
