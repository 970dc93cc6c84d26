//! `brisk publish`: what a web server needs, and what is refused.

mod sandbox;

use std::fs;
use std::process::Command;

use brisk_image::hot_pack::HotPack;
use brisk_image::{Image, Limits};
use brisk_remote::{Descriptor, digits};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use sandbox::{Sandbox, outcome};
use sha2::{Digest, Sha256};

/// What is said of the image `www/NAME`.
fn descriptor(sandbox: &Sandbox, name: &str) -> Descriptor {
    let text = fs::read_to_string(sandbox.path(&format!("www/{name}.remote"))).unwrap();
    Descriptor::parse(&text).unwrap()
}

/// Publishes app.img with these options at the second 1700000000, and returns stdout and stderr.
#[track_caller]
fn publish(sandbox: &Sandbox, options: &str) -> (String, String) {
    let (code, stdout, stderr) = tried(sandbox, options);
    assert_eq!(code, 0, "{stderr}");
    (stdout, stderr)
}

/// The message of a refusal.
#[track_caller]
fn refused(sandbox: &Sandbox, options: &str) -> String {
    let (code, stdout, stderr) = tried(sandbox, options);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    stderr
}

fn tried(sandbox: &Sandbox, options: &str) -> (i32, String, String) {
    let mut args = vec!["publish", "app.img", "www"];
    args.extend(options.split_whitespace());
    let mut command = sandbox.command(&args);
    let done = outcome(
        command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap(),
    );
    (done.code, done.stdout, done.stderr)
}

/// app.img, packed with these options, and an empty directory for it.
fn sandbox(options: &[&str]) -> Sandbox {
    let sandbox = Sandbox::with_app();
    fs::create_dir(sandbox.path("www")).unwrap();
    sandbox.pack(options);
    sandbox
}

/// A launch that asks for all pages of one file.
fn profile(sandbox: &Sandbox) {
    let text = format!(
        r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["bin/run"], "runs": 1, "roots": [["{}", "directory"]],
"files": [[0, "lib/big.bin", 300000, null]], "directories": [], "steps": [["pages", 0, 0, 74, 1, 1]]}}"#,
        sandbox.path("app").display()
    );
    sandbox.file("p", text.as_bytes());
}

fn minisign(sandbox: &Sandbox, args: &str) -> bool {
    let mut command = Command::new("minisign");
    command.args(args.split(' ')).current_dir(sandbox.path(""));
    command
        .output()
        .expect("minisign is installed")
        .status
        .success()
}

#[test]
fn what_is_said_of_an_image_is_true() {
    for verity in [false, true] {
        let sandbox = sandbox(&[]);
        profile(&sandbox);
        let mut options = vec!["--profile", "p"];
        options.extend(verity.then_some("--verity"));
        sandbox.pack(&options);
        let (stdout, stderr) = publish(&sandbox, "");
        let said = descriptor(&sandbox, "app.img");
        let bytes = sandbox.bytes("www/app.img");
        let root = said.root_hash.as_deref().unwrap();
        assert_eq!(
            stdout,
            format!("brisk run https://YOUR-HOST/app.img#sha256={root}\n")
        );
        let end = "serial number 1700000000, described in www/app.img.remote\n";
        assert!(
            stderr.starts_with("www/app.img: ") && stderr.ends_with(end),
            "{stderr}"
        );
        assert_eq!(
            (said.name.as_str(), said.serial),
            ("app.img", 1_700_000_000)
        );
        assert_eq!(said.file_bytes, bytes.len() as u64);
        assert_eq!(said.sha256, digits(&Sha256::digest(&bytes)));
        // The tree is that of an image which was packed with it.
        sandbox.pack(&["--profile", "p", "--verity"]);
        assert!(sandbox.bytes("app.img") == bytes, "{verity}");

        let image = Image::open(sandbox.path("www/app.img")).unwrap();
        assert_eq!(
            (said.tables, said.hash_tree),
            (image.tables_start(), image.verity_start().unwrap())
        );
        let place = |at: u64| &bytes[at as usize..];
        assert!(place(said.hash_tree.unwrap()).starts_with(b"brisksec"));
        let (pack, range) = (
            image.hot_pack().unwrap().unwrap(),
            image.hot_pack_range().unwrap().unwrap(),
        );
        let frames = said.frames.clone().unwrap();
        assert_eq!(frames.end - frames.start, pack.data_stored());
        assert_eq!(
            frames.start - range.start,
            pack.frame(0).unwrap().stored.start
        );
        assert!(said.tables < frames.start && frames.end <= said.hash_tree.unwrap());

        // brisk verify looks for the root hash beside the image, where the server needs none.
        sandbox.file("root", root.as_bytes());
        let verified =
            sandbox.stdout(&["verify", "www/app.img", "-q", "--verify", "roothash=root"]);
        assert!(verified.contains("sound"), "{verified}");
        sandbox.file("root", "0".repeat(64).as_bytes());
        let other = sandbox.run(&["verify", "www/app.img", "-q", "--verify", "roothash=root"]);
        assert_ne!(other.code, 0, "{other:?}");
    }
}

#[test]
fn an_image_is_published_twice_with_the_same_bytes() {
    let sandbox = sandbox(&[]);
    publish(&sandbox, "");
    let files = ["www/app.img", "www/app.img.remote"];
    let before = files.map(|file| sandbox.bytes(file));
    publish(&sandbox, "");
    assert!(before == files.map(|file| sandbox.bytes(file)));
    let mut names: Vec<_> = fs::read_dir(sandbox.path("www"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["app.img", "app.img.remote"]);
    // The serial number never becomes smaller, whatever the clock says.
    publish(&sandbox, "--serial 99999999999");
    let args = ["publish", "app.img", "www", "-q"];
    sandbox.stdout(&args);
    assert_eq!(descriptor(&sandbox, "app.img").serial, 99_999_999_999);
}

#[test]
fn an_image_is_not_replaced_below_its_readers() {
    let sandbox = sandbox(&[]);
    publish(&sandbox, "");
    let before = sandbox.bytes("www/app.img");
    sandbox.file("app/bin/tool", b"other");
    sandbox.pack(&[]);
    assert_eq!(
        refused(&sandbox, ""),
        "brisk: www/app.img: is another image already, and people who are reading it would find other bytes in the middle of it; \
         publish this one under another name with --name, or replace the other with --force\n"
    );
    assert!(sandbox.bytes("www/app.img") == before);
    publish(&sandbox, "--name app-2.img");
    assert_eq!(descriptor(&sandbox, "app-2.img").name, "app-2.img");
    assert_eq!(
        refused(&sandbox, "--force"),
        "brisk: the serial number 1700000000 is too small, because readers refuse an older image of the same name, as \
         www/app.img.remote says; allowed is 1700000001 or more, with --serial\n"
    );
    assert!(sandbox.bytes("www/app.img") == before);
    publish(&sandbox, "--force --serial 1700000001");
    assert!(sandbox.bytes("www/app.img") == sandbox.bytes("www/app-2.img"));
}

#[test]
fn a_published_image_is_signed_with_its_name_and_its_number() {
    let sandbox = sandbox(&[]);
    assert!(minisign(&sandbox, "-G -W -p k.pub -s k.key"));
    let (_, stderr) = publish(&sandbox, "--key k.key");
    assert!(
        stderr.ends_with("www/app.img.remote and www/app.img.remote.minisig\n"),
        "{stderr}"
    );
    assert!(minisign(&sandbox, "-Vm www/app.img.remote -p k.pub"));
    let signature = String::from_utf8(sandbox.bytes("www/app.img.remote.minisig")).unwrap();
    let comment = "\ntrusted comment: file:app.img.remote\tserial:1700000000\thashed\n";
    assert!(signature.contains(comment), "{signature}");
    // Unchanged, it stays signed.
    publish(&sandbox, "");
    assert!(minisign(&sandbox, "-Vm www/app.img.remote -p k.pub"));
    assert_eq!(
        refused(&sandbox, "--serial 1800000000"),
        "brisk: www/app.img.remote.minisig: is a signature of what is there now, and without one, readers who trust its key would \
         refuse the image; sign with --key, or give up the signature with --force\n"
    );
    publish(&sandbox, "--serial 1800000000 --force");
    assert!(!sandbox.path("www/app.img.remote.minisig").exists());
}

#[test]
fn what_is_said_of_a_published_hot_pack_is_true() {
    let sandbox = sandbox(&[]);
    profile(&sandbox);
    sandbox.stdout(&["hot", "app.img", "--profile", "p", "-q"]);
    assert!(minisign(&sandbox, "-G -W -p k.pub -s k.key"));
    let args = [
        "publish",
        "app.img.hot",
        "www",
        "--key",
        "k.key",
        "--serial",
        "7",
        "-q",
    ];
    let stdout = sandbox.stdout(&args);
    assert_eq!(
        stdout,
        "brisk run https://YOUR-HOST/app.img --hot https://YOUR-HOST/app.img.hot\n"
    );
    assert!(minisign(&sandbox, "-Vm www/app.img.hot.remote -p k.pub"));
    let (made, bytes) = (
        sandbox.bytes("app.img.hot"),
        sandbox.bytes("www/app.img.hot"),
    );
    assert!(bytes.starts_with(&made));
    let said = descriptor(&sandbox, "app.img.hot");
    assert_eq!(
        (said.name.as_str(), said.serial, said.tables),
        ("app.img.hot", 7, 0)
    );
    assert_eq!(said.file_bytes, bytes.len() as u64);
    assert_eq!(said.sha256, digits(&Sha256::digest(&bytes)));
    assert_eq!(
        said.hash_tree,
        Some(made.len().next_multiple_of(4096) as u64)
    );
    let pack = HotPack::open(sandbox.path("www/app.img.hot"), &Limits::default()).unwrap();
    let start = pack.frame(0).unwrap().stored.start;
    assert_eq!(said.frames, Some(start..made.len() as u64));
    // A published pack can be used as a file, and published again.
    let verified = sandbox.stdout(&["verify", "app.img", "--hot", "www/app.img.hot", "-q"]);
    assert!(verified.contains("sound"), "{verified}");
    fs::create_dir(sandbox.path("again")).unwrap();
    sandbox.stdout(&["publish", "www/app.img.hot", "again", "--serial", "7", "-q"]);
    assert!(sandbox.bytes("again/app.img.hot") == bytes);

    sandbox.stdout(&["hot", "app", "--profile", "p", "-q", "-o", "app.hot"]);
    let refused = sandbox.run(&["publish", "app.hot", "www"]);
    assert_eq!(
        refused.stderr,
        "brisk: app.hot: it is the hot pack of a directory, and readers start images; make one of the image with brisk hot\n"
    );
}

#[test]
fn what_cannot_be_published_is_said() {
    let sandbox = sandbox(&[]);
    let sound = sandbox.bytes("app.img");
    let name = "the name has ' ', and allowed are letters, digits and any of - . _ ~ + @ , = and :, as others would be changed in a \
                URL; name it otherwise with --name";
    let mut command = sandbox.command(&["publish", "app.img", "www", "--name", "my app"]);
    let done = outcome(command.output().unwrap());
    assert_eq!(
        (done.code, done.stderr),
        (2, format!("brisk: my app: {name}\n"))
    );
    sandbox.file("app.img", &[&sound[..], b"more"].concat());
    assert_eq!(
        refused(&sandbox, ""),
        format!(
            "brisk: cannot put a hash tree behind the image; brisk repack makes an image that can have one: app.img: byte {} of \
             the file is behind the image and not zero, so it belongs to something else, and no verity tree can be put there\n",
            sound.len()
        )
    );
    // Zeros are no obstacle.
    sandbox.file("app.img", &[&sound[..], &[0; 5000]].concat());
    publish(&sandbox, "");
    let first = sandbox.bytes("www/app.img");
    // A damaged image is not published.
    let mut damaged = first.clone();
    damaged[5000] ^= 1;
    sandbox.file("app.img", &damaged);
    let said = refused(&sandbox, "--force");
    assert!(
        said.starts_with("brisk: app.img: corrupt file at byte 4096: block 1 has the sha256 "),
        "{said}"
    );
    assert!(sandbox.bytes("www/app.img") == first);
    sandbox.file("app.img", &sound);
    publish(&sandbox, "");
    assert_eq!(fs::read_dir(sandbox.path("www")).unwrap().count(), 2);
    // Nobody writes into it.
    let earlier = sandbox.path("www/app.img.remote");
    fs::remove_file(&earlier).unwrap();
    mknodat(CWD, &earlier, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let said = refused(&sandbox, "");
    assert!(said.contains("cannot read its serial number"), "{said}");
}
