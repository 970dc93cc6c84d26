//! The AppArmor profile in `packaging/apparmor` is one that the parser takes.

use std::process::Command;

/// Debian 12 has AppArmor 3, which has no rules on namespaces: these are left out there. AppArmor 4 reads all.
#[test]
fn the_parser_takes_the_profile() {
    let text = include_str!("../../../packaging/apparmor");
    let of_version_4 = ["  allow userns,", "  allow io_uring,", "  allow mqueue,"];
    let older: Vec<_> = text
        .replace("abi/4.0", "abi/3.0")
        .lines()
        .filter(|line| !of_version_4.contains(line))
        .map(str::to_owned)
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("brisk");
    std::fs::write(&profile, older.join("\n") + "\n").unwrap();
    let output = Command::new("apparmor_parser")
        .args(["--skip-kernel-load", "--skip-cache", "--names"])
        .arg(&profile)
        .output()
        .expect("this test needs apparmor_parser: install the package apparmor");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("brisk\nbrisk_program\n"), "{said}");
}

/// A profile that an image's program gets must not have what only brisk needs.
#[test]
fn only_brisk_makes_user_namespaces() {
    let text = include_str!("../../../packaging/apparmor");
    let [brisk, program] = ["profile brisk ", "profile brisk_program "].map(|head| {
        let (_, rest) = text.split_once(head).expect("the profile is there");
        rest.split_once("\n}").expect("it ends").0
    });
    assert!(brisk.contains("allow userns,"));
    assert!(brisk.contains("allow pix /** -> &brisk//&brisk_program,"));
    for rule in ["userns", "change_profile", "unconfined"] {
        assert!(!program.contains(rule), "{rule}");
    }
    assert!(program.contains("allow pix /** -> &brisk_program,"));
}
