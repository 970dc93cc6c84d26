//! The capabilities of a process.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Gives up all capabilities but those of `kept` that the process has. True if it can get no others either.
///
/// # Errors
///
/// Text: why capabilities cannot be given up.
pub(super) fn keep_only(kept: CapabilitySet) -> Result<bool, String> {
    let failed = |e: Errno| e.to_string();
    // Linux before 4.3 has no ambient set.
    clear_ambient_capability_set().ok();
    let bounded = bound_by(kept);
    let had = capabilities(None).map_err(failed)?;
    let kept = had.permitted & kept;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)?;
    // An ordinary user outside of a user namespace has nothing to give up. It cannot change the bounding set, but then
    // that set bounds only programs that it executes, which get nothing (`no_new_privs`).
    Ok(bounded || had.permitted.is_empty())
}

/// Removes all but `kept` from the set that bounds what programs can get. False if the process may not.
fn bound_by(kept: CapabilitySet) -> bool {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no capability of this number, nor of a higher one.
            Err(Errno::INVAL) => break,
            Err(_) => return false,
        }
    }
    true
}
