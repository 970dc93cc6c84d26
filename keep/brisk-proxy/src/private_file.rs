//! Files with secrets, and the directory of the cache: whoever else may write to them decides what the proxy does.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::geteuid;

/// The most bytes of a file with a secret. A wrong path may lead to anything.
const MOST_BYTES: u64 = 64 * 1024;

/// The text of a file that only its owner may read, without blanks around it.
pub fn read(path: &Path, what: &str) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open {what}"))?;
    check(&file.metadata()?, what, "chmod 600 it")?;
    let mut text = String::new();
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {what}"))?;
    Ok(text.trim().to_owned())
}

/// Refuses what others may have read or written. `cure` says what to do if its mode is wrong.
pub fn check(found: &Metadata, what: &str, cure: &str) -> anyhow::Result<()> {
    check_owner(found.uid(), geteuid().as_raw(), what)?;
    if found.mode() & 0o077 != 0 {
        bail!(
            "others than its owner may read or write {what} (mode {:o}); {cure}",
            found.mode() & 0o7777
        );
    }
    Ok(())
}

/// Refuses a directory in which other users may put files.
pub fn check_directory(found: &Metadata, what: &str) -> anyhow::Result<()> {
    check_owner(found.uid(), geteuid().as_raw(), what)?;
    if found.mode() & 0o002 != 0 {
        bail!(
            "every user may write to {what} (mode {:o}); chmod o-w it, if you know who made its files, or name another one",
            found.mode() & 0o7777
        );
    }
    Ok(())
}

/// Root may do everything anyway.
fn check_owner(owner: u32, own: u32, what: &str) -> anyhow::Result<()> {
    if owner != own && owner != 0 {
        bail!(
            "{what} belongs to user {owner}, and the proxy runs as user {own}; allowed are that user and root, so start the \
             proxy as the owner, or name another one"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_user_are_owners() {
        for (owner, own, expected) in [
            (0, 0, true),
            (1000, 1000, true),
            (0, 1000, true),
            (1000, 0, false),
            (1001, 1000, false),
        ] {
            let checked = check_owner(owner, own, "the file");
            assert_eq!(checked.is_ok(), expected, "{owner} {own}");
            if let Err(e) = checked {
                let start =
                    format!("the file belongs to user {owner}, and the proxy runs as user {own};");
                assert!(e.to_string().starts_with(&start), "{e}");
            }
        }
    }
}
