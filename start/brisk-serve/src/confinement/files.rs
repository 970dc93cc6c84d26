//! The files that a process may open, limited by Landlock (Linux 5.13).

use std::os::fd::{AsFd, BorrowedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::sys::landlock::landlock_version as version;

/// The files that a process opens by name after it was confined.
#[derive(Debug, Default)]
pub(crate) struct Files<'a> {
    /// Files and directories to read.
    pub(crate) read: Vec<BorrowedFd<'a>>,
    /// A directory to read and write in.
    pub(crate) write: Option<BorrowedFd<'a>>,
}

/// The newest version of Landlock whose limits are known here (Linux 6.12). Later ones would limit things that were
/// never tried with brisk.
const KNOWN: ABI = ABI::V6;

/// Directories of the system that tell about this process and its memory. Landlock keeps it from reading what belongs to
/// other processes.
const OF_SYSTEM: [&str; 2] = ["/proc", "/sys"];

/// Keeps the process from opening any other file by its name, from connecting to the network, and from sending signals
/// to other processes. Descriptors that it has stay as they are. False if the kernel has no Landlock.
///
/// # Errors
///
/// Text: why Landlock refuses.
pub(super) fn limit(files: &Files<'_>) -> Result<bool, String> {
    if landlock_version().is_none() {
        return Ok(false);
    }
    let limited = rules(files).and_then(RulesetCreated::restrict_self);
    match limited {
        Ok(status) => Ok(status.ruleset != RulesetStatus::NotEnforced),
        Err(e) => Err(e.to_string()),
    }
}

fn rules(files: &Files<'_>) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    for directory in OF_SYSTEM {
        // A root directory may lack them.
        if let Ok(directory) = PathFd::new(directory) {
            rules = rules.add_rule(PathBeneath::new(directory, read))?;
        }
    }
    for file in &files.read {
        rules = allow(rules, *file, AccessFs::ReadFile.into())?;
    }
    if let Some(directory) = files.write {
        let write = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeSym
            | AccessFs::RemoveFile
            | AccessFs::Refer;
        rules = allow(rules, directory, write)?;
    }
    Ok(rules)
}

fn allow(
    rules: RulesetCreated,
    fd: BorrowedFd<'_>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    rules.add_rule(PathBeneath::new(fd.as_fd(), access))
}

/// The version of Landlock that the kernel has. None if it has none, or if it was not enabled when the system started.
pub(crate) fn landlock_version() -> Option<u32> {
    version().ok().filter(|version| *version > 0)
}
