//! How much memory this process, and those that it starts, may use.

use brisk_launch::MemoryLimit;

use super::super::cells::megabytes;
use super::super::machine::field_of;

/// Percent of the free memory that may be used. The rest is for others.
const SHARE: u64 = 80;

/// How much memory may be used, and what sets that limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub bound: String,
}

impl Room {
    /// The limit from the kernel: of the machine, and of the control groups of this process. None if the
    /// kernel says nothing.
    pub fn of_this_process() -> Option<Self> {
        let available = field_of("/proc/meminfo", "MemAvailable")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
            .map(|kib| (kib.saturating_mul(1024), "MemAvailable".to_owned()));
        let group =
            MemoryLimit::in_force().map(|limit| (limit.free, limit.group.display().to_string()));
        let (bytes, bound) = available.into_iter().chain(group).min()?;
        Some(Self {
            bytes: bytes / 100 * SHARE,
            bound,
        })
    }

    /// Why this much cannot be used.
    pub fn reason_against(&self, needed: u64) -> Option<String> {
        (self.bytes < needed).then(|| {
            format!(
                "it needs {} MB of memory, and {} MB may be used ({})",
                megabytes(needed),
                megabytes(self.bytes),
                self.bound
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_with_what_bounds_it() {
        let room = Room::of_this_process().unwrap();
        assert!(room.bytes > 0, "{room:?}");
        let room = Room {
            bytes: 20_000_000,
            bound: "MemAvailable".to_owned(),
        };
        assert_eq!(room.reason_against(20_000_000), None);
        assert_eq!(
            room.reason_against(22_500_000).unwrap(),
            "it needs 22.5 MB of memory, and 20.0 MB may be used (MemAvailable)"
        );
    }
}
