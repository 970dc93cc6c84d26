//! `brisk pack`: what each option does to the image, and what brisk prints.

mod sandbox;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use brisk_image::codec::CodecOptions;
use brisk_image::{Codec, Image, Inode};
use sandbox::{Sandbox, paths};
use serde_json::Value;

/// Bits of the flags in a superblock.
const NO_FRAGMENTS: u16 = 0x10;
const ALWAYS_FRAGMENTS: u16 = 0x20;
const DEDUPLICATED: u16 = 0x40;
const NO_XATTRS: u16 = 0x200;

fn inode(image: &Image, path: &str) -> Inode {
    image.lookup(path).unwrap().unwrap()
}

fn stored_at(image: &Image, sandbox: &Sandbox, contents: &[u8]) -> Option<usize> {
    let bytes = sandbox.bytes(image.path().unwrap().file_name().unwrap().to_str().unwrap());
    bytes.windows(contents.len()).position(|w| w == contents)
}

#[test]
fn packs_everything() {
    let sandbox = Sandbox::with_app();
    let image = sandbox.pack(&[]);
    assert_eq!(
        paths(&image),
        [
            "bin",
            "bin/alias",
            "bin/run",
            "bin/start",
            "bin/tool",
            "empty",
            "etc",
            "etc/app.conf",
            "lib",
            "lib/big.bin"
        ]
    );
    assert_eq!(
        (image.codec(), image.block_size()),
        (Codec::Zstd, 128 << 10)
    );
    assert_eq!(inode(&image, "bin/run").permissions(), 0o755);
    assert_eq!(inode(&image, "bin/tool").nlink(), 2);
    let recipe = image.recipe().unwrap().unwrap();
    assert_eq!((recipe.block_size, recipe.shared_blocks), (128 << 10, true));
}

#[test]
fn says_what_became_of_the_tree() {
    let sandbox = Sandbox::with_app();
    sandbox.file("app/copy", b"colour = no\n");
    let outcome = sandbox.run(&["pack", "app", "-o", "app.img", "--threads", "1"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
    let (fixed, seconds) = outcome.stderr.rsplit_once("; ").unwrap();
    assert_eq!(
        fixed,
        "app.img: 5 files in 5 directories, 293.02 KiB in, 300.00 KiB out; \
         1 duplicate of 12 B"
    );
    assert!(seconds.ends_with(" s on 1 thread\n"), "{seconds}");
    assert_eq!(sandbox.stdout(&["pack", "app", "-qo", "app.img"]), "");
}

#[test]
fn a_percentage_is_a_part_of_the_tree() {
    let sandbox = Sandbox::empty();
    let packed = || {
        let said = sandbox.run(&["pack", "app", "-o", "app.img", "--time", "1"]);
        let (start, _) = said.stderr.split_once("; ").unwrap();
        start.to_owned()
    };
    sandbox.file("app/a", b"0123456789ab");
    assert_eq!(
        packed(),
        "app.img: 1 file in 1 directory, 12 B in, 8.00 KiB out"
    );
    sandbox.file("app/a", &[b'a'; 80 << 10]);
    assert_eq!(
        packed(),
        "app.img: 1 file in 1 directory, 80.00 KiB in, 8.00 KiB out (10.0 %)"
    );
}

#[test]
fn a_name_too_many_is_what_to_write() {
    let sandbox = Sandbox::with_app();
    for (line, name) in [
        ("pack app app.img", "app.img"),
        ("pack -q app app.img", "app.img"),
        ("repack app.img new.img", "new.img"),
    ] {
        let line: Vec<_> = line.split(' ').collect();
        let said = sandbox.failure(&line);
        let mut said = said.lines();
        let expected = format!("error: unexpected argument '{name}' found");
        assert_eq!(said.next(), Some(&*expected));
        let expected = format!("  tip: to write it to '{name}', use '-o {name}'");
        assert_eq!(said.nth(1), Some(&*expected));
    }
    for line in [
        "pack app app.img -qo x.img",
        "pack app --none",
        "ls app.img app",
    ] {
        let line: Vec<_> = line.split(' ').collect();
        let said = sandbox.run(&line).stderr;
        assert!(!said.contains("to write it to"), "{said}");
    }
}

#[test]
fn what_may_not_be_read_can_be_left_out() {
    let sandbox = Sandbox::with_app();
    sandbox.file("app/etc/my key", b"secret");
    fs::create_dir(sandbox.path("app/locked")).unwrap();
    let pack = |options: &[&str]| {
        let args = [&["pack", "app", "-qo", "app.img"], options].concat();
        let brisk = sandbox.command(&args);
        // root without the right to read what its mode forbids.
        let output = Command::new("setpriv")
            .args(["--bounding-set=-dac_override,-dac_read_search", "--"])
            .arg(brisk.get_program())
            .args(brisk.get_args())
            .current_dir(sandbox.path(""))
            .output();
        sandbox::outcome(output.expect("setpriv must be installed"))
    };
    sandbox.mode("app/etc/my key", 0o000);
    sandbox.mode("app/locked", 0o000);
    let said = pack(&[]);
    assert_eq!(
        said.stderr,
        "brisk: app/locked: cannot list the directory: Permission denied (os error 13); to pack the tree without it, \
         add --exclude /locked\n"
    );
    let said = pack(&["--exclude", "/locked"]);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (
            2,
            "brisk: app/etc/my key: cannot open the file: Permission denied (os error 13); to pack the tree without it, \
             add --exclude '/etc/my\\ key'\n"
        )
    );
    let said = pack(&["--exclude", "/locked", "--exclude", r"/etc/my\ key"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let packed = paths(&sandbox.image("app.img"));
    assert!(
        packed.contains(&"etc/app.conf".to_owned()) && !packed.contains(&"etc/my key".to_owned())
    );
}

#[test]
fn says_it_as_json() {
    let sandbox = Sandbox::with_app();
    sandbox.file("app/copy", b"colour = no\n");
    let text = sandbox.stdout(&["pack", "app", "-o", "app.img", "--json"]);
    assert_eq!(text.matches('\n').count(), 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["image"], "app.img");
    assert_eq!(report["files"], 5);
    assert_eq!(report["directories"], 5);
    assert_eq!(report["data"]["bytes"], 300_048);
    assert_eq!(report["data"]["duplicate_files"], 1);
    assert_eq!(report["file_bytes"], sandbox.bytes("app.img").len());
    assert_eq!(report["warnings"], Value::Array(vec![]));
    assert!(report["seconds"].is_f64());
}

#[test]
fn compresses_with_any_codec() {
    let sandbox = Sandbox::with_app();
    for codec in Codec::ALL {
        let image = sandbox.pack(&["--codec", codec.name()]);
        assert_eq!(image.codec(), codec);
    }
    let image = sandbox.pack(&["--codec", "none"]);
    assert!(image.is_uncompressed());
    let image = sandbox.pack(&["--codec", "zstd", "--level", "19"]);
    assert_eq!(
        image.codec_options(),
        Some(&CodecOptions::Zstd { level: 19 })
    );
    let xz = [
        "--codec",
        "xz",
        "--level",
        "9",
        "--xz-extreme",
        "--xz-dict",
        "64K",
        "--xz-bcj",
        "x86,arm64",
        "--block-size",
        "1M",
    ];
    let recipe = sandbox.pack(&xz).recipe().unwrap().unwrap();
    assert_eq!(
        serde_json::to_value(recipe.compression).unwrap(),
        serde_json::json!({
            "codec": "xz", "preset": 9, "extreme": true, "dict_size": 65536,
            "filters": ["x86", "arm64"]
        })
    );
    assert_eq!(recipe.block_size, 1 << 20);
}

#[test]
fn lays_out_as_asked() {
    let sandbox = Sandbox::with_app();
    let image = sandbox.pack(&[]);
    assert_eq!(image.flags() & (NO_FRAGMENTS | ALWAYS_FRAGMENTS), 0);
    assert_eq!(image.flags() & DEDUPLICATED, DEDUPLICATED);
    assert!(image.is_exportable());
    assert_eq!(image.recorded_place().unwrap(), None);

    let image = sandbox.pack(&[
        "--no-shared-blocks",
        "--no-export",
        "--no-deduplicate",
        "--no-recipe",
    ]);
    assert_eq!(image.flags() & NO_FRAGMENTS, NO_FRAGMENTS);
    assert_eq!(image.shared_block_count(), 0);
    assert_eq!(image.flags() & DEDUPLICATED, 0);
    assert!(!image.is_exportable());
    assert_eq!(image.recipe().unwrap(), None);

    let image = sandbox.pack(&["--tails", "--at", "/opt/app"]);
    assert_eq!(image.flags() & ALWAYS_FRAGMENTS, ALWAYS_FRAGMENTS);
    assert_eq!(
        image.recorded_place().unwrap().as_deref(),
        Some(Path::new("/opt/app"))
    );
}

#[test]
fn puts_first_what_the_order_says_and_stores_raw_what_is_asked() {
    let sandbox = Sandbox::with_app();
    let (first, second) = ([b'a'; 5000], [b'b'; 5000]);
    sandbox.file("app/first", &first);
    sandbox.file("app/second", &second);
    sandbox.file("order", b"# what starts\n/second\n\n/first\n");
    let raw = ["--raw", "/first", "--raw", "/second"];
    let image = sandbox.pack(&raw);
    let at = |image, contents: &[u8]| stored_at(image, &sandbox, contents).unwrap();
    assert!(at(&image, &first) < at(&image, &second));
    let image = sandbox.pack(&[&raw[..], &["--order", "order"]].concat());
    assert!(at(&image, &second) < at(&image, &first));
    assert_eq!(at(&image, &first) % 4096, 0);
    let image = sandbox.pack(&[]);
    assert_eq!(stored_at(&image, &sandbox, &first), None);
    // The file that must be raw is stored, and not the equal one that comes before.
    sandbox.file("app/equal", &second);
    let image = sandbox.pack(&raw);
    assert_eq!(at(&image, &second) % 4096, 0);
    assert!(
        image.file(&inode(&image, "equal")).unwrap().stored_as()
            == image.file(&inode(&image, "second")).unwrap().stored_as()
    );
}

#[test]
fn what_is_said_of_one_name_is_said_of_a_file_with_several() {
    let sandbox = Sandbox::with_app();
    sandbox.file("app/tool", b"tool");
    for name in ["app/another", "app/lib/tool", "app/zzz"] {
        fs::hard_link(sandbox.path("app/tool"), sandbox.path(name)).unwrap();
    }
    for name in ["/tool", "/another", "/lib/tool", "/zzz"] {
        let (mode, owner) = (format!("{name}=4755"), format!("{name}=7:8"));
        let image = sandbox.pack(&["--chmod", &mode, "--chown", &owner]);
        let inode = inode(&image, "zzz");
        assert_eq!((inode.permissions(), inode.uid()), (0o4755, 7), "{name}");
    }
}

#[test]
fn what_no_reader_could_hold_is_refused() {
    let sandbox = Sandbox::with_app();
    fs::File::create(sandbox.path("app/disk"))
        .unwrap()
        .set_len(205 << 30)
        .unwrap();
    let refused = sandbox.failure(&["pack", "app", "-o", "app.img", "--block-size", "4K"]);
    assert_eq!(
        refused,
        "brisk: disk: the file has 220117073920 bytes, allowed are 219902324736 in blocks of 4096; make \
         blocks larger\n"
    );
    assert!(!sandbox.path("app.img").exists());
}

#[test]
fn leaves_out_what_is_excluded() {
    let sandbox = Sandbox::with_app();
    sandbox.file("patterns", b"# none of these\n/lib/\n*.conf\n");
    let image = sandbox.pack(&["--exclude", "/bin/", "--exclude-from", "patterns"]);
    assert_eq!(paths(&image), ["empty", "etc"]);
    let image = sandbox.pack(&[
        "--exclude-from",
        "patterns",
        "--exclude",
        "!app.conf",
        "--exclude",
        "/bin",
    ]);
    assert_eq!(paths(&image), ["empty", "etc", "etc/app.conf"]);
}

#[test]
fn changes_owners_and_permissions() {
    let sandbox = Sandbox::with_app();
    let image = sandbox.pack(&[
        "--owner",
        "1:2",
        "--chown",
        "/bin/=7:8",
        "--chown",
        "start=:9",
        "--chmod",
        "*=go=rX",
        "--chmod",
        "*.conf=0600",
    ]);
    let seen = |path| {
        let inode = inode(&image, path);
        (inode.uid(), inode.gid(), inode.permissions())
    };
    assert_eq!(seen("etc/app.conf"), (1, 2, 0o600));
    assert_eq!(seen("bin/run"), (7, 8, 0o755));
    assert_eq!((seen("bin/start").0, seen("bin/start").1), (7, 9));
    let root = image.root().unwrap();
    assert_eq!((root.uid(), root.gid()), (1, 2));
}

#[test]
fn keeps_the_extended_attributes_that_are_asked_for() {
    let sandbox = Sandbox::with_app();
    let path = sandbox.path("app/bin/run");
    for name in ["user.one", "user.two"] {
        rustix::fs::setxattr(&path, name, b"value", rustix::fs::XattrFlags::empty())
            .expect("the temporary directory takes user xattrs");
    }
    let kept = |options: &[&str]| {
        let image = sandbox.pack(options);
        let xattrs = image.xattrs(&inode(&image, "bin/run")).unwrap();
        let names: Vec<_> = xattrs
            .iter()
            .map(|xattr| xattr.name().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(image.flags() & NO_XATTRS == 0, !names.is_empty());
        names
    };
    assert_eq!(kept(&[]), ["user.one", "user.two"]);
    assert_eq!(kept(&["--xattrs-include", "*.two"]), ["user.two"]);
    assert_eq!(kept(&["--xattrs-exclude", "*.two"]), ["user.one"]);
    assert!(kept(&["--no-xattrs"]).is_empty());

    let old = [
        "pack", "app", "-qo", "app.img", "--codec", "gzip", "--target", "2.6.34",
    ];
    assert_eq!(
        sandbox.run(&old).stderr,
        "brisk: warning: Linux 2.6.34 does not show extended attributes, which need 2.6.35 or later; \
         pack with --no-xattrs if nothing needs them\n"
    );
    assert_eq!(sandbox.stdout(&[&old[..], &["--no-xattrs"]].concat()), "");
}

#[test]
fn times_come_from_the_option_or_the_environment() {
    let sandbox = Sandbox::with_app();
    let old = fs::File::options()
        .append(true)
        .open(sandbox.path("app/etc/app.conf"))
        .unwrap();
    let a_day_of_2001 = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    old.set_modified(a_day_of_2001).unwrap();
    let times = |image: &Image| {
        (
            image.mkfs_time(),
            inode(image, "etc/app.conf").mtime(),
            inode(image, "bin/run").mtime(),
        )
    };
    let packed = |epoch: &str, options: &[&str]| {
        let args = [&["pack", "app", "-qo", "app.img"], options].concat();
        let output = sandbox
            .command(&args)
            .env("SOURCE_DATE_EPOCH", epoch)
            .output()
            .unwrap();
        sandbox::outcome(output)
    };
    assert_eq!(packed("1234567890", &[]).stderr, "");
    let image = sandbox.image("app.img");
    assert_eq!(times(&image), (1_234_567_890, 1_000_000_000, 1_234_567_890));

    assert_eq!(packed("no number", &["--time", "77"]).stderr, "");
    assert_eq!(times(&sandbox.image("app.img")), (77, 77, 77));

    for malformed in ["", "no number", "-1", "1.5", "4294967296"] {
        let outcome = packed(malformed, &[]);
        assert_eq!(outcome.code, 2);
        assert_eq!(
            outcome.stderr,
            format!(
                "brisk: SOURCE_DATE_EPOCH is {malformed:?}, allowed is a number of seconds since \
                 1970, up to 4294967295; correct or unset it, or pass --time\n"
            )
        );
    }
}

#[test]
fn the_same_tree_is_the_same_image() {
    let names = ["b/two", "a/one", "b/a", "c", "a/zero"];
    let make = |names: &mut dyn Iterator<Item = &&str>, threads: &str| {
        let sandbox = Sandbox::empty();
        for name in names {
            sandbox.file(&format!("app/{name}"), &name.repeat(50_000).into_bytes());
        }
        // With `--owner`, because any user may run the test.
        sandbox.pack(&["--time", "1", "--owner", "0:0", "--threads", threads]);
        sandbox.bytes("app.img")
    };
    let bytes = make(&mut names.iter(), "1");
    assert_eq!(bytes, make(&mut names.iter().rev(), "1"));
    assert_eq!(bytes, make(&mut names.iter(), "4"));
}

#[test]
fn warns_of_what_the_target_cannot_read() {
    let sandbox = Sandbox::with_app();
    let args = [
        "pack",
        "app",
        "-qo",
        "app.img",
        "--target",
        "4.9.0-13-amd64",
    ];
    let outcome = sandbox.run(&args);
    assert_eq!(outcome.code, 0);
    assert_eq!(
        outcome.stderr,
        "brisk: warning: Linux 4.9 cannot read zstd, which needs 4.14 or later; \
         pack with a --codec that it reads: xz, lz4, lzo, gzip\n"
    );
    let outcome = sandbox.run(&[&args[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(
        sandbox.stdout(&[&args[..], &["--codec", "lz4"]].concat()),
        ""
    );
}

#[test]
fn warns_of_what_the_image_cannot_hold() {
    let sandbox = Sandbox::with_app();
    let file = fs::File::open(sandbox.path("app/etc/app.conf")).unwrap();
    let before_1970 = std::time::UNIX_EPOCH - std::time::Duration::from_secs(5);
    file.set_modified(before_1970).unwrap();
    let outcome = sandbox.run(&["pack", "app", "-qo", "app.img", "--json"]);
    let warning = "times before 1970 or after 2106 were moved to the nearest that \
                   SquashFS stores (1 file)";
    assert_eq!(outcome.stderr, format!("brisk: warning: {warning}\n"));
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["warnings"], serde_json::json!([warning]));
}

#[test]
fn an_image_is_replaced_whole_or_not_at_all() {
    let sandbox = Sandbox::with_app();
    sandbox.pack(&["--codec", "gzip"]);
    let before = sandbox.bytes("app.img");
    sandbox.failure(&["pack", "app", "-o", "app.img", "--level", "99"]);
    assert_eq!(sandbox.bytes("app.img"), before);
    sandbox.pack(&["--codec", "xz"]);
    assert_ne!(sandbox.bytes("app.img"), before);
}

#[test]
fn an_image_does_not_hold_itself() {
    let sandbox = Sandbox::with_app();
    assert_eq!(
        sandbox.failure(&["pack", "app", "-o", "app/bin/../out.img"]),
        "brisk: app/bin/../out.img: the output is inside the tree and would be packed the next \
         time; write it elsewhere, or add --exclude /out.img\n"
    );
    let args = ["pack", "app", "-qo", "app/out.img", "--exclude", "/out.img"];
    assert_eq!(sandbox.stdout(&args), "");
    assert_eq!(sandbox.stdout(&args), "");
    assert!(!paths(&sandbox.image("app/out.img")).contains(&"out.img".to_owned()));
}

#[test]
fn says_what_cannot_be_and_the_cure() {
    let sandbox = Sandbox::with_app();
    let message = |options: &[&str]| {
        let args = [&["pack", "app", "-o", "app.img"], options].concat();
        let text = sandbox.failure(&args);
        assert!(!sandbox.path("app.img").exists());
        text.lines().next().unwrap().to_owned()
    };
    let lzo: (&[&str], &str) = match cfg!(feature = "lzo-encode") {
        true => (
            &["--codec", "lzo", "--level", "1"],
            "brisk: codec lzo has no levels",
        ),
        false => (
            &["--codec", "lzo"],
            "brisk: this brisk was built without its lzo encoder, because nobody has proven that encoder \
             sound; choose another codec, such as gzip, which every kernel with lzo can read, or build brisk with `--features lzo-encode`",
        ),
    };
    let table: &[(&[&str], &str)] = &[
        (
            &["--level", "23"],
            "brisk: zstd level is 23, allowed is 1 to 22",
        ),
        lzo,
        (
            &["--codec", "lz4", "--level", "1"],
            "brisk: lz4 level is 1, allowed is 3 to 12, or none for the fast mode",
        ),
        (
            &["--xz-bcj", "x86"],
            "brisk: --xz-bcj is only for xz, but the codec is zstd; add --codec xz",
        ),
        (
            &["--codec", "xz", "--xz-dict", "2M"],
            "brisk: xz dictionary size is 2097152, allowed is 2^n or 2^n + 2^(n-1), 8192 to the \
             block size of 131072",
        ),
        (
            &["--codec", "xz", "--xz-bcj", "x86,mips"],
            "error: invalid value 'mips' for '--xz-bcj <FILTER,…>': branch filter is \"mips\", \
             allowed is x86, powerpc, ia64, arm, armthumb, sparc, arm64, riscv",
        ),
        (
            &["--block-size", "100K"],
            "brisk: block size is 102400, allowed is a power of two from 4096 to 1048576",
        ),
        (
            &["--block-size", "big"],
            "error: invalid value 'big' for '--block-size <SIZE>': allowed is a number of bytes, \
             such as 131072, 128K or 1M",
        ),
        (
            &["--at", "opt"],
            "brisk: place is opt, allowed is an absolute path",
        ),
        (
            &["--order", "none"],
            "brisk: none: cannot read the order file: No such file or directory (os error 2)",
        ),
        (
            &["--exclude-from", "none"],
            "brisk: none: cannot read the exclude file: No such file or directory (os error 2)",
        ),
        (
            &["--owner", "root"],
            "error: invalid value 'root' for '--owner <UID[:GID]>': allowed is UID, UID:GID or \
             :GID, in numbers",
        ),
        (
            &["--chmod", "*=rwx"],
            "error: invalid value '*=rwx' for '--chmod <PATTERN=MODE>': mode is \"rwx\", allowed \
             is an octal number up to 7777, or clauses such as u+x,go=rX",
        ),
        (
            &["--target", "new"],
            "error: invalid value 'new' for '--target <KERNEL>': allowed is a release of Linux, \
             such as 4.9 or 2.6.38",
        ),
        (
            &["--tails", "--no-shared-blocks"],
            "error: the argument '--tails' cannot be used with '--no-shared-blocks'",
        ),
    ];
    for (options, expected) in table {
        assert_eq!(message(options), *expected);
    }
    assert_eq!(
        sandbox.failure(&["pack", "none", "-o", "app.img"]),
        "brisk: none: cannot read the tree: No such file or directory (os error 2)\n"
    );
    let fifo = sandbox.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert_eq!(
        sandbox.failure(&["pack", "app", "-o", "pipe"]),
        "brisk: pipe: the output exists and is not a file; name another one\n"
    );
}

#[test]
fn an_archive_on_stdin_gives_the_image_of_its_directory() {
    let sandbox = Sandbox::with_app();
    sandbox.pack(&[]);
    let archived = Command::new("tar")
        .args(["--format=gnu", "-C", "app", "-cf", "app.tar", "."])
        .current_dir(sandbox.path(""))
        .status()
        .expect("tar must be installed");
    assert!(archived.success());
    let pack = |output, stdin| {
        let mut command = sandbox.command(&["pack", "-", "-q", "-o", output]);
        let outcome = sandbox::outcome(command.stdin(stdin).output().unwrap());
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    };
    let open = || File::open(sandbox.path("app.tar")).unwrap();
    pack("file.img", Stdio::from(open()));
    let mut cat = Command::new("cat")
        .stdin(open())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    pack("pipe.img", Stdio::from(cat.stdout.take().unwrap()));
    assert!(cat.wait().unwrap().success());
    assert!(sandbox.bytes("app.img") == sandbox.bytes("file.img"));
    assert!(sandbox.bytes("app.img") == sandbox.bytes("pipe.img"));
}

#[test]
fn what_is_no_archive_is_said() {
    let sandbox = Sandbox::with_app();
    let mut command = sandbox.command(&["pack", "-", "-o", "x.img"]);
    let stdin = File::open(sandbox.path("app/lib/big.bin")).unwrap();
    let outcome = sandbox::outcome(command.stdin(stdin).output().unwrap());
    assert_eq!(outcome.code, 2);
    assert!(
        outcome
            .stderr
            .starts_with("brisk: cannot read the archive on standard input: "),
        "{}",
        outcome.stderr
    );
    assert!(!sandbox.path("x.img").exists());
}
