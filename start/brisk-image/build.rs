//! Tells the versions of those C libraries that do not say them to a program in safe Rust. Each is in the header
//! that the library was compiled with.

use std::env;
use std::fs;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only a recipe says versions.
    if env::var_os("CARGO_FEATURE_WRITE").is_none() {
        return;
    }
    // Cargo passes on where the package of each library put its header.
    if env::var_os("CARGO_FEATURE_GZIP").is_some() {
        let version = of_libdeflate().unwrap_or_else(unknown);
        println!("cargo::rustc-env=BRISK_LIBDEFLATE_VERSION={version}");
    }
    if env::var_os("CARGO_FEATURE_XZ").is_some() {
        let version = of_liblzma().unwrap_or_else(unknown);
        println!("cargo::rustc-env=BRISK_LIBLZMA_VERSION={version}");
    }
}

/// What a recipe says where a library was not compiled here but is the system's, which may change.
fn unknown() -> String {
    "of the system".to_owned()
}

fn of_libdeflate() -> Option<String> {
    let header = header("DEP_LIBDEFLATE_INCLUDE", "libdeflate.h")?;
    let version = value(&header, "LIBDEFLATE_VERSION_STRING")?;
    Some(version.trim_matches('"').to_owned())
}

fn of_liblzma() -> Option<String> {
    let header = header("DEP_LZMA_INCLUDE", "lzma/version.h")?;
    let part = |name: &str| value(&header, &format!("LZMA_VERSION_{name}"));
    Some(format!(
        "{}.{}.{}",
        part("MAJOR")?,
        part("MINOR")?,
        part("PATCH")?
    ))
}

fn header(directory: &str, name: &str) -> Option<String> {
    let path = Path::new(&env::var_os(directory)?).join(name);
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path);
    Some(text.unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display())))
}

/// What the header defines `name` as.
fn value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut words = header.lines().map(str::split_whitespace);
    words.find_map(|mut words| {
        let defines = words.next() == Some("#define") && words.next() == Some(name);
        defines.then(|| words.next()).flatten()
    })
}
