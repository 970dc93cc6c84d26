//! What the fetcher may do: write into its cache, read what the system looks names and certificates up in, and nothing else.

use std::path::{Path, PathBuf};

use brisk_remote::certificates;
use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};

use crate::log::say;

/// What is looked up in these: names of hosts, certificates, libraries that do so.
const OF_SYSTEM: [&str; 9] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run",
    "/var",
    "/proc",
    "/sys",
    "/dev/urandom",
];

/// Limits the process for ever. It must have one thread. What the kernel lacks is left out, and said in the log.
pub fn confine(cache: &Path) {
    // Without these it is an ordinary user, also as root.
    clear_ambient_capability_set().ok();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    if set_no_new_privs(true).is_err() || set_capabilities(None, none).is_err() {
        say!("the rights of the fetcher cannot be limited");
    }
    if let Err(e) = limit_files(cache) {
        say!("the files of the fetcher cannot be limited: {e}");
    }
}

fn limit_files(cache: &Path) -> Result<(), RulesetError> {
    let known = ABI::V6;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(known))?
        .scope(Scope::Signal)?
        .create()?;
    let named = certificates().map(|(_, path)| path);
    for path in OF_SYSTEM.iter().map(PathBuf::from).chain(named) {
        if let Ok(fd) = PathFd::new(&path) {
            let access = if path.is_dir() {
                read
            } else {
                AccessFs::ReadFile.into()
            };
            rules = rules.add_rule(PathBeneath::new(fd, access))?;
        }
    }
    if let Ok(cache) = PathFd::new(cache) {
        // Everything but to execute, and to make devices.
        let write = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
        rules = rules.add_rule(PathBeneath::new(cache, write))?;
    }
    rules.restrict_self()?;
    Ok(())
}
