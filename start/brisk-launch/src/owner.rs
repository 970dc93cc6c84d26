//! To whom files belong.

use std::fs;
use std::sync::LazyLock;

use rustix::process::geteuid;

/// Whether a file of the user `uid` belongs to the user of this process.
///
/// In a user namespace that does not map them, all users have the same number, the overflow uid, and so may this process.
/// Then nothing is known to belong to it.
pub fn is_own(uid: u32) -> bool {
    NUMBERS.are_of_one(uid, geteuid().as_raw())
}

/// Whether a file of the user `uid` is that of this process's user or of root.
///
/// In a user namespace, the overflow uid stands for every user that the namespace does not map. It is nobody's, even if
/// it is the number of this process.
pub fn is_of_user_or_root(uid: u32) -> bool {
    uid == 0 || is_own(uid)
}

/// Which user a number stands for.
struct Numbers {
    /// The number of every user without a number.
    overflow: u32,
    /// Whether there are no such users.
    maps_all: bool,
}

impl Numbers {
    /// Whether both numbers stand for the same one user.
    fn are_of_one(&self, uid: u32, other: u32) -> bool {
        uid == other && (uid != self.overflow || self.maps_all)
    }
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let uid = read("/proc/sys/kernel/overflowuid");
    Numbers {
        // The kernel's default.
        overflow: uid.trim().parse().unwrap_or(65_534),
        maps_all: maps_all(&read("/proc/self/uid_map")),
    }
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

    #[test]
    fn a_number_of_several_users_is_nobodys() {
        for (uid, other, maps_all, expected) in [
            (1000, 1000, true, true),
            (1000, 1000, false, true),
            (0, 0, false, true),
            (1000, 1001, true, false),
            (1000, 1001, false, false),
            // nobody, on the whole system.
            (65_534, 65_534, true, true),
            (65_534, 65_534, false, false),
            (65_534, 1000, false, false),
            (1000, 65_534, false, false),
        ] {
            let numbers = Numbers {
                overflow: 65_534,
                maps_all,
            };
            let found = numbers.are_of_one(uid, other);
            assert_eq!(found, expected, "{uid} and {other}, {maps_all}");
        }
    }
}
