//! How much memory there is, for this process and those that it starts.

use brisk_mount::MemoryLimit;

use super::super::machine::field_of;
use super::super::table::megabytes;

/// Of a hundred bytes that are free, how many may be taken: others need some.
const SHARE: u64 = 80;

/// Memory that may be taken, and what bounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub bound: String,
}

impl Room {
    /// What the kernel says of the machine and of the control groups that this process is in; none if it
    /// says nothing.
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

    /// Why so much may not be taken.
    pub fn reason_against(&self, needed: u64) -> Option<String> {
        (self.bytes < needed).then(|| {
            format!(
                "it takes {} MB of memory, and {} MB may be taken ({})",
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
            "it takes 22.5 MB of memory, and 20.0 MB may be taken (MemAvailable)"
        );
    }
}
