//! Images that are compared with their hash tree while programs read them: what arrives, what is refused, and what
//! the session's log says. And signatures, ours and those of `minisign`.
//!
//! Most run twice: as root, and as an ordinary user in a user namespace.

mod staging;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use brisk_image::hot_pack::Prefer;
use brisk_image::profile::{Named, Profile, ProfileBuilder, RootKind};
use brisk_image::{Compression, Image, ImageWriter, Tree, TreeRules};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use staging::{Stage, each_user};

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A launch that asks for all pages of two files.
fn profile(stage: &Stage) -> Profile {
    let files = ["noise", "text"];
    let builder = ProfileBuilder::new();
    let root = builder.add_root("/opt/app", RootKind::Image);
    let len = |path: &str| fs::metadata(stage.path("tree").join(path)).unwrap().len();
    for (id, path) in files.iter().enumerate() {
        builder.look_up(root, 100, path.as_ref(), true, Duration::ZERO);
        builder.range(root, id as u64, 0, len(path), Duration::ZERO);
    }
    let name = |_, id: u64| match files.get(id as usize) {
        Some(path) => Some(Named::new(path, len(path))),
        None => Some(Named::new("", 0)),
    };
    let finished = builder.finish(vec!["app".into()], None, name);
    finished.unwrap().profile
}

/// Packs the tree with its hash tree, and with a hot pack if `hot`, and writes the root hash beside the image.
fn pack(stage: &Stage, image: &str, hot: bool) -> String {
    let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
    let mut writer = ImageWriter::new().verity(true);
    if hot {
        writer = writer.hot_pack(profile(stage), Prefer::Speed);
    }
    let summary = writer.write(&tree, stage.path(image)).unwrap();
    let root = summary.verity.unwrap().root_hash;
    fs::write(stage.path(&format!("{image}.roothash")), &root).unwrap();
    root
}

/// Flips a bit of a file in place.
fn flip(path: &Path, bit: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

/// A byte of app.img that belongs to the file `noise`, which no codec can compress.
fn place_of_noise(stage: &Stage) -> u64 {
    let noise = fs::read(stage.path("tree/noise")).unwrap();
    let image = fs::read(stage.path("app.img")).unwrap();
    let part = &noise[500_000..500_032];
    let found = image.windows(part.len()).position(|bytes| bytes == part);
    found.expect("noise is stored raw") as u64
}

/// A run of app.img, whose options are in one text.
fn run(stage: &Stage, options: &str, program: &[&str]) -> Output {
    let mut arguments = vec!["run", "app.img", "--at", "at"];
    arguments.extend(options.split_whitespace());
    arguments.push("--");
    arguments.extend(program);
    stage
        .brisk(&arguments)
        .env("HOME", stage.writable())
        .env("XDG_CONFIG_HOME", stage.path("config"))
        .output()
        .unwrap()
}

/// Compares all files of the image with those of the tree.
const COMPARE: &[&str] = &[
    "sh",
    "-c",
    "diff -r --no-dereference tree $BRISK_TREE && echo same",
];

fn same() -> (Option<i32>, String, String) {
    (Some(0), "same\n".to_owned(), String::new())
}

/// A counter of the first image of the stage's session.
fn count(stage: &Stage, name: &str) -> Option<u64> {
    let output = stage.brisk(&["stat", "--json"]).output().unwrap();
    let sessions: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    sessions[0]["images"][0]["counts"][name].as_u64()
}

fn filled(stage: &Stage) {
    filled_or(stage, || false);
}

/// Waits until a fill is over, or `is_none`.
fn filled_or(stage: &Stage, is_none: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while count(stage, "fill_over_us").is_none_or(|over| over == 0) && !is_none() {
        assert!(Instant::now() < deadline, "no fill ends: {}", stage.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end_sessions(stage: &Stage) {
    // There may be none.
    stage.brisk(&["umount", "app.img"]).output().unwrap();
}

#[test]
fn a_verified_run_sees_the_whole_tree_and_joins_no_unverified_session() {
    each_user(|stage| {
        let root = pack(stage, "app.img", false);
        assert_eq!(said(&run(stage, "", COMPARE)), same());
        let unverified = stage.processes("brisk-guardian");
        for verify in [
            "--verify roothash".to_owned(),
            format!("--verify roothash={root}"),
            "--verify roothash=app.img.roothash".to_owned(),
        ] {
            assert_eq!(said(&run(stage, &verify, COMPARE)), same(), "{verify}");
            // The three share one.
            let all = stage.processes("brisk-guardian");
            assert_eq!((unverified.len(), all.len()), (1, 2), "{verify}");
        }
        assert_eq!(stage.log(), "");
        let digits = root.replace(|digit| digit != '0', "0");
        let (code, out, err) = said(&run(stage, &format!("--verify roothash={digits}"), COMPARE));
        assert_eq!((code, out.as_str()), (Some(125), ""));
        let begin = "brisk: app.img: corrupt verity tree at byte ";
        let end = ", the verity tree says 0000000000000000…; the file was changed or is damaged: get another copy\n";
        assert!(err.starts_with(begin) && err.ends_with(end), "{err}");
    });
}

#[test]
fn a_tree_beside_any_image_will_do() {
    each_user(|stage| {
        let made = Command::new(stage.executable())
            .args(["verity", "app.img", "-q"])
            .current_dir(stage.path(""))
            .output()
            .unwrap();
        assert_eq!(made.status.code(), Some(0), "{made:?}");
        assert_eq!(said(&run(stage, "--verify roothash", COMPARE)), same());
        end_sessions(stage);
        // Of the tree, a bit in the digests of the first data blocks.
        let len = fs::metadata(stage.path("app.img.verity")).unwrap().len();
        let levels = (len - 4096) / 4096;
        assert!(levels > 2, "the tree has two levels");
        flip(&stage.path("app.img.verity"), (4096 * 2 + 3) * 8);
        let (code, out, err) = said(&run(stage, "--verify roothash", COMPARE));
        assert_eq!((code, out.as_str()), (Some(125), ""));
        let begin =
            "brisk: app.img.verity: corrupt verity tree at byte 8192: hash block 1 has the sha256 ";
        assert!(err.starts_with(begin), "{err}");
        fs::remove_file(stage.path("app.img.verity")).unwrap();
        let (code, _, err) = said(&run(stage, "--verify roothash", COMPARE));
        assert_eq!(code, Some(125));
        let begin = "brisk: app.img.verity: cannot find a verity tree behind the image or in this file, which brisk \
                     verity makes";
        assert!(err.starts_with(begin), "{err}");
    });
}

#[test]
fn a_flipped_bit_is_eio_and_the_log_says_where() {
    each_user(|stage| {
        pack(stage, "app.img", false);
        let at = place_of_noise(stage);
        flip(&stage.path("app.img"), at * 8 + 5);
        let script = "cat $BRISK_TREE/noise > /dev/null || echo failed; cmp $BRISK_TREE/text tree/text && echo text";
        let (code, out, err) = said(&run(stage, "--verify roothash", &["sh", "-c", script]));
        assert_eq!((code, out.as_str()), (Some(0), "failed\ntext\n"), "{err}");
        assert!(err.contains("Input/output error"), "{err}");
        let block = at / 4096;
        let path = stage.path("app.img");
        let line = format!(
            "{}: corrupt file at byte {}: block {block} has the sha256 ",
            path.file_name().unwrap().to_str().unwrap(),
            block * 4096
        );
        assert!(stage.log().contains(&line), "{}", stage.log());
        assert_eq!(count(stage, "faults").map(|faults| faults > 0), Some(true));
    });
}

#[test]
fn the_pack_behind_a_verified_image_fills_and_a_flipped_bit_in_it_does_not() {
    each_user(|stage| {
        pack(stage, "app.img", true);
        assert_eq!(said(&run(stage, "--verify roothash", &["true"])).0, Some(0));
        filled(stage);
        assert_eq!(said(&run(stage, "--verify roothash", COMPARE)), same());
        assert_eq!(count(stage, "fill_stored"), count(stage, "fill_pack"));
        assert_eq!(
            (count(stage, "fill_damaged"), stage.log().as_str()),
            (Some(0), "")
        );
        end_sessions(stage);
        let image = Image::open(stage.path("app.img")).unwrap();
        let pack = image.hot_pack().unwrap().unwrap();
        let frame = pack.frame(2).unwrap();
        let start = image.hot_pack_range().unwrap().unwrap().start;
        let at = start + frame.stored.start + 9;
        drop(image);
        flip(&stage.path("app.img"), at * 8);
        for cold in [true, false] {
            if cold {
                let synced = Command::new("sync").arg(stage.path("app.img")).status();
                assert!(synced.unwrap().success());
                let file = File::open(stage.path("app.img")).unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            assert_eq!(said(&run(stage, "--verify roothash", &["true"])).0, Some(0));
            filled(stage);
            assert_eq!(said(&run(stage, "--verify roothash", COMPARE)), same());
            assert!(count(stage, "fill_damaged") > Some(0), "cold: {cold}");
            let line = format!("corrupt file at byte {}: block ", at / 4096 * 4096);
            assert!(stage.log().contains(&line), "{}", stage.log());
            end_sessions(stage);
        }
    });
}

/// A pack of another image with the same tables, as an attacker makes it.
fn forged_pack(stage: &Stage) -> String {
    let tree = stage.path("tree");
    let pack = |name: &str| {
        let rules = TreeRules::default().times(brisk_image::rules::Times::All(1));
        let tree = Tree::from_directory(&tree, &rules).unwrap();
        let writer = ImageWriter::new()
            .compression(Compression::None)
            .verity(true);
        let summary = writer.write(&tree, stage.path(name)).unwrap();
        summary.verity.unwrap().root_hash
    };
    let root = pack("app.img");
    fs::rename(tree.join("text"), stage.path("text")).unwrap();
    fs::write(tree.join("text"), "wrong ".repeat(200_000)).unwrap();
    pack("forged.img");
    profile(stage).write(stage.path("p")).unwrap();
    let made = Command::new(stage.executable())
        .args([
            "hot",
            "-q",
            "forged.img",
            "--profile",
            "p",
            "-o",
            "app.img.hot",
        ])
        .env("XDG_CACHE_HOME", stage.path("elsewhere"))
        .current_dir(stage.path(""))
        .output()
        .unwrap();
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    fs::rename(stage.path("text"), tree.join("text")).unwrap();
    root
}

#[test]
fn a_pack_beside_a_verified_image_is_only_a_list_of_pages() {
    each_user(|stage| {
        let root = forged_pack(stage);
        // The pack belongs to the image, as far as brisk can tell, and a user who names it believes it.
        let believed = said(&run(stage, "--hot app.img.hot", &["true"]));
        assert_eq!(believed, (Some(0), String::new(), String::new()));
        filled(stage);
        let (code, ..) = said(&run(stage, "--hot app.img.hot", COMPARE));
        assert_eq!(code, Some(1), "the forged pack is not one: {}", stage.log());
        end_sessions(stage);
        for options in ["", "--hot app.img.hot"] {
            let options = format!("--verify roothash={root} {options}");
            let verbose = said(&run(stage, &format!("{options} -v"), &["true"]));
            let line = "the hash tree of the image does not cover this hot pack: the session reads its pages from the \
                        image\n";
            assert!(verbose.2.contains(line), "{verbose:?}");
            filled(stage);
            assert!(count(stage, "fill_stored") > Some(0), "{}", stage.log());
            assert_eq!(said(&run(stage, &options, COMPARE)), same());
            end_sessions(stage);
        }
    });
}

#[test]
fn a_verified_mount_gives_the_right_bytes_or_none() {
    each_user(|stage| {
        pack(stage, "app.img", false);
        let mount = |verify: &str| {
            let at = stage.writable().join("mnt");
            let mut command = stage.brisk(&["mount", "app.img"]);
            command.arg(&at).args(verify.split(' '));
            said(&command.output().unwrap())
        };
        fs::create_dir(stage.writable().join("mnt")).unwrap();
        chown(
            stage.writable().join("mnt"),
            Some(stage.user()),
            Some(stage.user()),
        )
        .unwrap();
        assert_eq!(
            mount("--verify roothash"),
            (Some(0), String::new(), String::new())
        );
        let differs = |file: &str| {
            let mounted = stage.writable().join("mnt").join(file);
            let tree = stage.path("tree").join(file);
            let args = ["cmp", mounted.to_str().unwrap(), tree.to_str().unwrap()];
            said(&stage.plainly(&args))
        };
        assert_eq!(differs("text").0, Some(0));
        let umount = || {
            stage
                .brisk(&["umount"])
                .arg(stage.writable().join("mnt"))
                .output()
        };
        assert_eq!(said(&umount().unwrap()).0, Some(0));
        let at = place_of_noise(stage);
        flip(&stage.path("app.img"), at * 8);
        assert_eq!(mount("--verify roothash").0, Some(0));
        let (code, out, err) = differs("noise");
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.contains("Input/output error"), "{err}");
        assert_eq!(differs("text").0, Some(0));
        assert_eq!(said(&umount().unwrap()).0, Some(0));
    });
}

#[test]
fn what_cannot_be_verified_is_refused_with_what_to_do() {
    let stage = Stage::new(0);
    let root = pack(&stage, "app.img", false);
    let refused = |options: &[&str]| {
        let (code, out, err) = said(&stage.brisk(options).output().unwrap());
        assert_ne!(code, Some(0), "{options:?}");
        assert_eq!(out, "", "{options:?}");
        err
    };
    let by_root = format!("roothash={root}");
    assert_eq!(
        refused(&[
            "run", "app.img", "--kernel", "--verify", "roothash", "--", "true"
        ]),
        "brisk: --verify is not for --kernel, because the kernel reads app.img by itself; leave --kernel out, or make \
         a tree with brisk verity app.img, open it with veritysetup open app.img NAME app.img.verity HASH, and use \
         /dev/mapper/NAME as the image\n"
    );
    let mount = refused(&["mount", "app.img", "at", "--kernel", "--trust", "k.pub"]);
    assert!(
        mount.starts_with("brisk: --trust is not for --kernel"),
        "{mount}"
    );
    assert_eq!(
        refused(&["run", "tree", "--verify", "roothash", "--", "true"]),
        "brisk: --verify is only for images, and tree is a directory; pack it with brisk pack, and run the image\n"
    );
    assert_eq!(
        refused(&[
            "run",
            "app.img",
            "--verify",
            &by_root,
            "--with",
            "app.img@tree",
            "--",
            "true"
        ]),
        "brisk: --verify roothash=… is about one image, and --with names more; use --verify roothash, which takes the \
         root hash of each from the file beside it, or --verify key\n"
    );
    let both = refused(&[
        "cat", "app.img", "text", "--verify", &by_root, "--trust", "k.pub",
    ]);
    assert_eq!(
        both,
        "brisk: --trust is for --verify key; leave one of --trust and --verify out\n"
    );
    let spelled = refused(&["cat", "app.img", "text", "--verify", "on"]);
    let allowed = "allowed are roothash, roothash=HASH, roothash=FILE, key and off";
    assert!(spelled.contains(allowed), "{spelled}");
    let missing = refused(&["cat", "app.img", "text", "--verify", "roothash=none"]);
    assert!(
        missing.starts_with(
            "brisk: cannot open none, which should have the root hash; brisk verity and brisk pack"
        ),
        "{missing}"
    );
    fs::write(stage.path("none"), "a tree").unwrap();
    assert_eq!(
        refused(&["cat", "app.img", "text", "--verify", "roothash=none"]),
        "brisk: none: it has no root hash: root hash is \"a tree\" (6 characters), allowed are 64 hexadecimal digits\n"
    );
    let digits = "x".repeat(64);
    let wrong = refused(&[
        "cat",
        "app.img",
        "text",
        "--verify",
        &format!("roothash={digits}"),
    ]);
    assert_eq!(
        wrong,
        format!(
            "brisk: root hash is \"{digits}\" (64 characters), allowed are 64 hexadecimal digits\n"
        )
    );
}

#[test]
fn other_verbs_verify_too() {
    let stage = Stage::new(0);
    pack(&stage, "app.img", true);
    let brisk = |arguments: &str| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        said(&stage.brisk(&arguments).output().unwrap())
    };
    let text = fs::read_to_string(stage.path("tree/text")).unwrap();
    let cat = brisk("cat app.img text --verify roothash");
    assert_eq!(cat, (Some(0), text, String::new()));
    assert_eq!(brisk("extract app.img out -q --verify roothash").0, Some(0));
    assert_eq!(brisk("diff app.img out").0, Some(0));
    assert_eq!(brisk("verify app.img -q --verify roothash").0, Some(0));
    // Each image that a launch sees.
    pack(&stage, "other.img", false);
    fs::remove_file(stage.path("other.img.roothash")).unwrap();
    let traced = "trace app.img --verify roothash --with other.img@/srv -- true";
    let (code, _, said) = brisk(traced);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("other.img"), "{said}");
    // In the middle of nothing: behind the SquashFS image, before the first section.
    let used = Image::open(stage.path("app.img")).unwrap().bytes_used();
    assert_ne!(used % 4096, 0);
    flip(&stage.path("app.img"), used * 8);
    assert_eq!(brisk("verify app.img -q").0, Some(1));
    let (code, out, _) = brisk("verify app.img -q --verify roothash");
    assert_eq!(code, Some(1));
    let line = format!(
        "app.img: corrupt file at byte {}: block ",
        used / 4096 * 4096
    );
    assert!(out.contains(&line), "{out}");
}

/// Makes a pair of keys with `minisign`. Without a password if that is empty.
fn make_keys(stage: &Stage, name: &str) {
    let made = Command::new("minisign")
        .args([
            "-G",
            "-W",
            "-f",
            "-p",
            &format!("{name}.pub"),
            "-s",
            &format!("{name}.key"),
        ])
        .current_dir(stage.path(""))
        .output()
        .expect("minisign is installed");
    assert!(made.status.success(), "{made:?}");
}

fn sign(stage: &Stage, key: &str) -> (Option<i32>, String, String) {
    let args = ["sign", "app.img", "-q", "--key", key];
    let signed = Command::new(stage.executable())
        .args(args)
        .current_dir(stage.path(""))
        .output();
    said(&signed.unwrap())
}

fn minisign(stage: &Stage, args: &str) -> Output {
    Command::new("minisign")
        .args(args.split(' '))
        .current_dir(stage.path(""))
        .output()
        .expect("minisign is installed")
}

#[test]
fn a_signed_image_runs_and_every_other_is_refused() {
    each_user(|stage| {
        let root = pack(stage, "app.img", false);
        make_keys(stage, "k");
        make_keys(stage, "other");
        let trusting = |key: &str| said(&run(stage, &format!("--trust {key}"), COMPARE));
        let unsigned = trusting("k.pub");
        assert_eq!(
            (unsigned.0, unsigned.1.as_str()),
            (Some(125), ""),
            "{unsigned:?}"
        );
        let begin = "brisk: app.img: the image is not signed: expected its manifest and signature in app.img.manifest \
                     and app.img.manifest.minisig; get them from the publisher, or sign the image with brisk sign";
        assert!(unsigned.2.starts_with(begin), "{unsigned:?}");

        assert_eq!(
            sign(stage, "k.key"),
            (Some(0), String::new(), String::new())
        );
        let manifest = fs::read_to_string(stage.path("app.img.manifest")).unwrap();
        let len = fs::metadata(stage.path("app.img")).unwrap().len();
        assert!(manifest.starts_with(&format!("brisk-manifest 1\nfile-bytes {len}\n")));
        assert!(manifest.contains(&root), "{manifest}");
        assert_eq!(trusting("k.pub"), same());
        // The same manifest each time, and the tool accepts the signature.
        assert_eq!(sign(stage, "k.key").0, Some(0));
        let again = fs::read_to_string(stage.path("app.img.manifest")).unwrap();
        assert_eq!(again, manifest);
        let accepted = minisign(stage, "-Vm app.img.manifest -p k.pub");
        assert!(accepted.status.success(), "{accepted:?}");
        // And a signature of the tool is accepted.
        let signed = minisign(
            stage,
            "-Sm app.img.manifest -s k.key -x app.img.manifest.minisig",
        );
        assert!(signed.status.success(), "{signed:?}");
        end_sessions(stage);
        assert_eq!(trusting("k.pub"), same());

        let other = trusting("other.pub");
        let line = "brisk: app.img.manifest.minisig: the signature is by a key that is not trusted; trusted are \
                    other.pub; name the right key with --trust if you trust it\n";
        assert_eq!(other, (Some(125), String::new(), line.to_owned()));

        // Of the keys in the directory, one is the right one.
        let none = said(&run(stage, "--verify key", COMPARE));
        assert_eq!(none.0, Some(125));
        assert!(none.2.contains("no key is trusted"), "{none:?}");
        let directory = stage.path("config/brisk/trusted.d");
        fs::create_dir_all(&directory).unwrap();
        for key in ["other.pub", "k.pub"] {
            fs::copy(stage.path(key), directory.join(key)).unwrap();
        }
        assert_eq!(said(&run(stage, "--verify key", COMPARE)), same());
        fs::set_permissions(directory.join("k.pub"), fs::Permissions::from_mode(0o666)).unwrap();
        let writable = said(&run(stage, "--verify key", COMPARE));
        let end = "k.pub: others may write to it (mode 0666), so it cannot be trusted; chmod go-w ";
        assert!(writable.2.contains(end), "{writable:?}");
        fs::set_permissions(directory.join("k.pub"), fs::Permissions::from_mode(0o644)).unwrap();
        chown(directory.join("k.pub"), Some(4711), None).unwrap();
        let owned = said(&run(stage, "--verify key", COMPARE));
        let end = "k.pub: it belongs to user 4711, so it cannot be trusted; allowed are root and the user ";
        assert!(owned.2.contains(end), "{owned:?}");
        chown(directory.join("k.pub"), Some(0), None).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o775)).unwrap();
        let open = said(&run(stage, "--verify key", COMPARE));
        assert!(
            open.2
                .contains("trusted.d: others may write to it (mode 0775)"),
            "{open:?}"
        );
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();

        // Anybody can put a pipe beside an image in /tmp.
        let manifest_path = stage.path("app.img.manifest");
        let aside = stage.path("aside");
        fs::rename(&manifest_path, &aside).unwrap();
        let mode = Mode::RUSR | Mode::ROTH;
        mknodat(CWD, &manifest_path, FileType::Fifo, mode, 0).unwrap();
        let piped = trusting("k.pub");
        assert_eq!(piped.0, Some(125), "{piped:?}");
        fs::rename(&aside, &manifest_path).unwrap();

        // Any change of manifest or image.
        let text = fs::read(stage.path("app.img.manifest")).unwrap();
        fs::write(
            stage.path("app.img.manifest"),
            manifest.replace(&root, &"0".repeat(64)),
        )
        .unwrap();
        let altered = trusting("k.pub");
        let begin = "brisk: app.img.manifest: it is not what the key in k.pub has signed (";
        assert!(altered.2.starts_with(begin), "{altered:?}");
        fs::write(stage.path("app.img.manifest"), text).unwrap();
        let file = File::options()
            .write(true)
            .open(stage.path("app.img"))
            .unwrap();
        file.set_len(len + 4096).unwrap();
        let line = format!(
            "brisk: app.img: the file has {} bytes, but signed were {len}; get the image again, or its new signature\n",
            len + 4096
        );
        assert_eq!(trusting("k.pub"), (Some(125), String::new(), line));
    });
}

/// A signed image, and `config/brisk/trusted.d` with nothing in it.
fn signed(stage: &Stage) -> PathBuf {
    pack(stage, "app.img", false);
    make_keys(stage, "k");
    assert_eq!(sign(stage, "k.key").0, Some(0));
    let directory = stage.path("config/brisk/trusted.d");
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn a_link_to_a_key_of_another_user_makes_it_no_trusted_one() {
    each_user(|stage| {
        let directory = signed(stage);
        symlink(stage.path("k.pub"), directory.join("k.pub")).unwrap();
        assert_eq!(said(&run(stage, "--verify key", COMPARE)), same());
        end_sessions(stage);
        // Of the link, nothing changes.
        chown(stage.path("k.pub"), Some(4711), None).unwrap();
        let (code, out, err) = said(&run(stage, "--verify key", COMPARE));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
        let end = "k.pub: it belongs to user 4711, so it cannot be trusted; allowed are root and the user ";
        assert!(err.contains(end), "{err}");
        chown(stage.path("k.pub"), Some(stage.user()), None).unwrap();
        fs::set_permissions(stage.path("k.pub"), Permissions::from_mode(0o664)).unwrap();
        let (code, _, err) = said(&run(stage, "--verify key", COMPARE));
        let end = "k.pub: others may write to it (mode 0664), so it cannot be trusted; chmod go-w ";
        assert_eq!(code, Some(125), "{err}");
        assert!(err.contains(end), "{err}");
    });
}

/// There, files of all users have the number that the process has, too.
#[test]
fn where_users_are_not_mapped_no_installed_key_is_trusted() {
    let stage = Stage::new(0);
    let directory = signed(&stage);
    fs::copy(stage.path("k.pub"), directory.join("k.pub")).unwrap();
    let cat = |wrapper: &[&str]| {
        let brisk = stage.executable();
        let output = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg(brisk)
            .args(["cat", "app.img", "sub/inside", "--verify", "key"])
            .env("XDG_CONFIG_HOME", stage.path("config"))
            .current_dir(stage.path(""))
            .output();
        said(&output.unwrap())
    };
    let inside = (Some(0), "from the image".to_owned(), String::new());
    assert_eq!(cat(&["env"]), inside);
    // All of the path to the keys seems to be nobody's, and the key is of another user.
    chown(directory.join("k.pub"), Some(4711), None).unwrap();
    let (code, out, err) = cat(&["unshare", "--user"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    let end = ": it belongs to user 65534, like the files of every user that this user namespace does not map, so it \
               cannot be trusted; allowed are root and the user 65534; chown it, or name the key with --trust\n";
    assert!(err.ends_with(end), "{err}");
}

#[test]
fn what_is_signed_was_compared_and_no_secret_is_shown() {
    let stage = Stage::new(0);
    pack(&stage, "app.img", false);
    make_keys(&stage, "k");
    // A hot pack beside the image is part of what is signed.
    fs::write(stage.path("app.img.hot"), "a pack").unwrap();
    assert_eq!(sign(&stage, "k.key").0, Some(0));
    let manifest = fs::read_to_string(stage.path("app.img.manifest")).unwrap();
    assert!(manifest.contains("\nhot-pack 6 sha256 "), "{manifest}");
    fs::write(stage.path("app.img.hot"), "b pack").unwrap();
    let verify = stage.brisk(&["verify", "app.img", "-q", "--trust", "k.pub", "--json"]);
    let (code, out, _) = said(&{ verify }.output().unwrap());
    assert_eq!(code, Some(1));
    let line =
        "app.img.hot: the hot pack is not the one that was signed with the image; get it again";
    assert!(out.contains(line), "{out}");

    let secret = fs::read_to_string(stage.path("k.key")).unwrap();
    let secret = secret.lines().nth(1).unwrap().to_owned();
    flip(&stage.path("app.img"), 5000 * 8);
    let damaged = sign(&stage, "k.key");
    assert_eq!(damaged.0, Some(2));
    assert!(
        damaged.2.contains("corrupt file at byte 4096: block 1 "),
        "{damaged:?}"
    );
    // What is nearly a key.
    fs::write(
        stage.path("bad.key"),
        format!("comment\n{}A\n", &secret[..secret.len() - 1]),
    )
    .unwrap();
    fs::write(stage.path("password"), "secret word").unwrap();
    let signed = stage
        .brisk(&[
            "sign",
            "app.img",
            "--key",
            "bad.key",
            "--password-file",
            "password",
        ])
        .output();
    let bad = said(&signed.unwrap());
    assert_eq!(
        bad,
        (
            Some(2),
            String::new(),
            "brisk: bad.key: it is not a secret key of minisign, or its password is another one\n"
                .to_owned()
        )
    );
    for text in [damaged.2, bad.2, stage.log(), manifest] {
        assert!(!text.contains(&secret[8..40]) && !text.contains("secret word"));
    }
    fs::remove_file(stage.path("app.img.roothash")).unwrap();
    stage.pack("app.img");
    let (code, _, err) = sign(&stage, "k.key");
    assert_eq!(code, Some(2));
    assert!(
        err.contains("cannot find a verity tree behind the image"),
        "{err}"
    );
}

/// A small signed image with a pack behind it. Its hash tree is behind it, too, or `beside` it.
fn small_signed(beside: bool) -> Stage {
    let stage = Stage::new(0);
    for entry in fs::read_dir(stage.path("tree/many")).unwrap().skip(20) {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let noise = fs::read(stage.path("tree/noise")).unwrap();
    fs::write(stage.path("tree/noise"), &noise[..400_000]).unwrap();
    if beside {
        let tree = Tree::from_directory(stage.path("tree"), &TreeRules::default()).unwrap();
        let writer = ImageWriter::new().hot_pack(profile(&stage), Prefer::Speed);
        writer.write(&tree, stage.path("app.img")).unwrap();
        let made = stage.brisk(&["verity", "app.img", "-q"]).output().unwrap();
        assert_eq!(made.status.code(), Some(0), "{made:?}");
    } else {
        pack(&stage, "app.img", true);
    }
    make_keys(&stage, "k");
    assert_eq!(sign(&stage, "k.key").0, Some(0));
    stage
}

/// Bits spread over every part of a signed image with a pack, one at a time: a real run sees the right bytes, or fails.
#[test]
#[ignore = "300 runs take a minute or two"]
fn three_hundred_flipped_bits_reach_no_program() {
    let (stage, beside) = (small_signed(false), small_signed(true));
    // Each step says whether it failed, which a pipe does not.
    let script = "cd $BRISK_TREE && find . -type f > $HOME/found && sort $HOME/found > $HOME/list && \
                  xargs cat < $HOME/list > $HOME/all && sha256sum < $HOME/all";
    let program = ["sh", "-ec", script];
    let flags = "--trust k.pub --linger 0";
    let right = said(&run(&stage, flags, &program));
    assert_eq!(right.0, Some(0), "{right:?}");
    assert_eq!(said(&run(&beside, flags, &program)), right);
    let image = Image::open(stage.path("app.img")).unwrap();
    let len = fs::metadata(stage.path("app.img")).unwrap().len();
    let hot = image.hot_pack_range().unwrap().unwrap();
    let tree = image.verity_start().unwrap().unwrap();
    let used = image.bytes_used();
    drop(image);
    let whole = |name: &str| 0..fs::metadata(beside.path(name)).unwrap().len();
    let (manifest, signature) = ("app.img.manifest", "app.img.manifest.minisig");
    let parts = [
        ("superblock", &stage, "app.img", 0..96, 20),
        ("data and tables", &stage, "app.img", 96..used, 70),
        ("tables", &stage, "app.img", used - 600..used, 40),
        ("sections", &stage, "app.img", used..hot.start, 20),
        ("hot pack", &stage, "app.img", hot.clone(), 70),
        ("tree", &stage, "app.img", tree..len, 20),
        (
            "tree beside",
            &beside,
            "app.img.verity",
            whole("app.img.verity"),
            20,
        ),
        ("manifest", &beside, manifest, whole(manifest), 20),
        ("signature", &beside, signature, whole(signature), 20),
    ];
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut right_bytes, mut refused, mut damaged) = (0, 0, 0);
    for (part, stage, file, bytes, flips) in parts {
        for _ in 0..flips {
            let bit = bytes.start * 8 + random((bytes.end - bytes.start) * 8);
            flip(&stage.path(file), bit);
            // Without a whole table, a pack is not used at all, and the session says so.
            let unusable = || stage.log().matches("cannot fill from the hot pack").count();
            let before = unusable();
            let found = match part {
                // The program looks when the fill is over, so that it sees what the pack has brought.
                "hot pack" => match said(&run(stage, "--trust k.pub", &["true"])) {
                    (Some(0), ..) => {
                        filled_or(stage, || unusable() > before);
                        damaged += count(stage, "fill_damaged").unwrap_or(0).min(1);
                        let found = said(&run(stage, "--trust k.pub", &program));
                        end_sessions(stage);
                        stage.assert_no_process(Duration::from_secs(20));
                        found
                    }
                    refused => refused,
                },
                _ => said(&run(stage, flags, &program)),
            };
            flip(&stage.path(file), bit);
            match found.0 {
                Some(0) => {
                    assert_eq!(
                        found.1, right.1,
                        "wrong bytes: bit {bit} of {file} ({part}): {found:?}"
                    );
                    right_bytes += 1;
                }
                Some(code) => {
                    assert!(code < 126, "bit {bit} of {file} ({part}): {found:?}");
                    assert!(!found.2.contains("panicked"), "{found:?}");
                    refused += 1;
                }
                None => panic!("a signal after bit {bit} of {file} ({part}): {found:?}"),
            }
        }
    }
    for stage in [&stage, &beside] {
        assert!(!stage.log().contains("panicked"), "{}", stage.log());
    }
    assert_eq!(right_bytes + refused, 300);
    // Most bits of a pack are in its frames.
    assert!(damaged > 50, "{damaged} fills have met damage");
    println!(
        "300 flipped bits: {refused} refused, {right_bytes} without effect, 0 wrong bytes; {damaged} of 70 in the pack \
         were met by a fill"
    );
}
