//! `brisk extract`: what it writes, and where.

mod sandbox;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use sandbox::{Sandbox, noise};
use serde_json::Value;

#[test]
fn extract_writes_the_tree_back() {
    let sandbox = Sandbox::with_image();
    let outcome = sandbox.run(&["extract", "app.img", "out", "--no-owners"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""));
    let (fixed, seconds) = outcome.stderr.rsplit_once("; ").unwrap();
    assert_eq!(fixed, "out: 4 files, 5 directories, 2 links, 293.00 KiB");
    assert!(seconds.ends_with(" s\n"), "{seconds}");
    assert!(sandbox.bytes("out/lib/big.bin") == noise(300_000));
    let tool = fs::metadata(sandbox.path("out/bin/tool")).unwrap();
    assert_eq!((tool.nlink(), tool.mtime()), (2, 1_700_000_000));
    assert_eq!(tool.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(
        fs::read_link(sandbox.path("out/bin/start")).unwrap(),
        OsStr::new("run")
    );
}

#[test]
fn extract_takes_what_matches() {
    let sandbox = Sandbox::with_image();
    let text = sandbox.stdout(&[
        "extract",
        "app.img",
        "out",
        "*.conf",
        "/bin/run",
        "--json",
        "--no-owners",
        "--jobs",
        "1",
    ]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["directory"], &report["files"]),
        (&"out".into(), &2.into())
    );
    assert!(sandbox.path("out/etc/app.conf").exists());
    assert!(!sandbox.path("out/lib").exists());
    assert_eq!(
        sandbox.failure(&["extract", "app.img", "none", "*.none"]),
        "brisk: app.img: nothing matches *.none; brisk ls -R lists what is there\n"
    );
    assert_eq!(
        sandbox.failure(&[
            "extract", "app.img", "some", "nosuch", "*.conf", "!bin", "run"
        ]),
        "brisk: app.img: nothing matches nosuch; the rest was extracted; brisk ls -R lists what is there\n"
    );
    assert!(sandbox.path("some/etc/app.conf").exists());
    assert_eq!(
        sandbox.failure(&["extract", "app.img", "out"]),
        "brisk: out: the target directory is not empty; name a new one\n"
    );
}

#[test]
fn extract_writes_extended_attributes_unless_told_not_to() {
    let sandbox = Sandbox::with_app();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(sandbox.path("app/bin/run"), "user.one", b"value", flags)
        .expect("the temporary directory takes user xattrs");
    sandbox.pack(&[]);
    let value = |target: &str, options: &[&str]| {
        sandbox.stdout(&[&["extract", "-q", "app.img", target], options].concat());
        let mut value = [0; 16];
        let path = sandbox.path(target).join("bin/run");
        rustix::fs::getxattr(path, "user.one", &mut value)
    };
    assert_eq!(value("with", &[]), Ok(5));
    assert_eq!(
        value("without", &["--no-xattrs"]),
        Err(rustix::io::Errno::NODATA)
    );
}

/// Of root, which restores the owners, so that nothing else takes these rights away.
#[test]
fn extract_leaves_out_rights_and_devices_if_told_to() {
    let sandbox = Sandbox::with_app();
    // CAP_NET_BIND_SERVICE, permitted and effective, as setcap writes it.
    let mut capability = [0; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 4, 0, 0]);
    let flags = rustix::fs::XattrFlags::empty();
    let tool = sandbox.path("app/bin/tool");
    rustix::fs::setxattr(tool, "security.capability", &capability, flags)
        .expect("this test gives rights to files: run it as root");
    sandbox.mode("app/bin/run", 0o4755);
    sandbox.mode("app/bin/tool", 0o2755);
    let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o600));
    mknodat(CWD, sandbox.path("app/null"), kind, mode, makedev(1, 3)).expect("root may");
    sandbox.pack(&[]);
    let extracted = |target: &str, options: &[&str]| {
        let command = [&["extract", "-q", "app.img", target], options].concat();
        assert_eq!(sandbox.stdout(&command), "");
        let path = |name: &str| sandbox.path(target).join(name);
        let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o7777;
        let value = rustix::fs::getxattr(path("bin/tool"), "security.capability", &mut [0; 99]);
        let device = fs::symlink_metadata(path("null")).map(|found| found.rdev());
        (mode("bin/run"), mode("bin/tool"), value, device.ok())
    };
    let (null, none) = (Some(makedev(1, 3)), Err(rustix::io::Errno::NODATA));
    assert_eq!(extracted("all", &[]), (0o4755, 0o2755, Ok(20), null));
    assert_eq!(
        extracted("no-setuid", &["--no-setuid"]),
        (0o755, 0o755, none, null)
    );
    assert_eq!(
        extracted("no-devices", &["--no-devices"]),
        (0o4755, 0o2755, Ok(20), None)
    );
}
