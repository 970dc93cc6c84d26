//! Each locked dependency comes from crates.io, with a checksum. Nothing names a machine, a mirror or a repository.

use std::fs;
use std::path::Path;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What a lock file says that it must not.
fn faults(lock: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            package.lines().find_map(|line| {
                let value = line.strip_prefix(name)?.strip_prefix(" = ")?;
                Some(value.trim_matches('"'))
            })
        };
        let name = field("name").unwrap_or("a package without a name");
        match (field("source"), field("checksum")) {
            // A crate of this repository.
            (None, None) if name.starts_with("brisk") || name == "pyindex" => {}
            (Some(CRATES_IO), Some(sum)) if sum.len() == 64 => {}
            (source, checksum) => faults.push(format!("{name}: {source:?}, {checksum:?}")),
        }
    }
    // A path, or a host, in anything else.
    let addresses = lock.lines().filter(|line| {
        let source = line.strip_prefix("source = ");
        source != Some(&format!("\"{CRATES_IO}\"")) && (line.contains("://") || line.contains('/'))
    });
    faults.extend(addresses.map(str::to_owned));
    faults
}

#[test]
fn locked_dependencies_come_from_crates_io() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in [
        "Cargo.lock",
        "workshop/bench/Cargo.lock",
        "workshop/fuzz/Cargo.lock",
    ] {
        let lock = fs::read_to_string(top.join(name)).expect(name);
        assert!(lock.matches("[[package]]").count() > 20, "{name}");
        assert_eq!(faults(&lock), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn another_source_is_a_fault() {
    let package = |more: &str| format!("version = 4\n\n[[package]]\nname = \"a\"\n{more}\n");
    let sum = format!("checksum = \"{}\"", "0".repeat(64));
    let of = |source: &str| format!("source = \"{source}\"\n{sum}");
    assert_eq!(faults(&package(&of(CRATES_IO))), Vec::<String>::new());
    for bad in [
        String::new(),
        format!("source = \"{CRATES_IO}\""),
        of("registry+https://mirror.example/index"),
        of("git+https://example.org/a#0123"),
        of("path+file:///home/me/a"),
    ] {
        assert_ne!(faults(&package(&bad)), Vec::<String>::new(), "{bad}");
    }
}
