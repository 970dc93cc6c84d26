//! To whom files belong.

use std::fs;
use std::sync::LazyLock;

use rustix::process::geteuid;

/// Whether a file of the user `uid` belongs to the user of this process.
///
/// In a user namespace that does not map them, all users have the same number, the overflow uid, and so may this process.
/// Then nothing is known to belong to it.
pub(crate) fn is_own(uid: u32) -> bool {
    uid == geteuid().as_raw() && is_known(uid)
}

/// Whether a file of the user `uid` is that of this process's user or of root.
pub(crate) fn is_of_user_or_root(uid: u32) -> bool {
    uid == 0 || is_own(uid)
}

/// Whether the number stands for one user.
fn is_known(uid: u32) -> bool {
    uid != OVERFLOW.0 || OVERFLOW.1
}

/// The overflow uid, and whether it is a user like others, because every user has a number.
static OVERFLOW: LazyLock<(u32, bool)> = LazyLock::new(|| {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let uid = read("/proc/sys/kernel/overflowuid");
    (
        // The kernel's default.
        uid.trim().parse().unwrap_or(65_534),
        maps_all(&read("/proc/self/uid_map")),
    )
});

/// Whether a map of users, as the kernel writes it, is that of the whole system.
fn maps_all(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_system_has_a_number_for_everybody() {
        assert!(maps_all("         0          0 4294967295\n"));
        for map in ["", "0 1000 1\n", "1000 1000 1\n", "0 100000 65536\n"] {
            assert!(!maps_all(map), "{map:?}");
        }
    }
}
