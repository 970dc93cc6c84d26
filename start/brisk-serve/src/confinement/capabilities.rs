//! The capabilities of a process.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Gives up all capabilities but those of `kept` that the process has.
///
/// The bounding set stays as it is. It only bounds what a program gets that the process executes, and with
/// `no_new_privs` such a program gets nothing that the process does not have.
///
/// # Errors
///
/// Text: why capabilities cannot be given up.
pub(super) fn keep_only(kept: CapabilitySet) -> Result<bool, String> {
    let failed = |e: Errno| e.to_string();
    // Linux before 4.3 has no ambient set.
    clear_ambient_capability_set().ok();
    let had = capabilities(None).map_err(failed)?;
    let kept = had.permitted & kept;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)?;
    Ok(true)
}
