//! The sizes of the files of a tree.

use serde::{Deserialize, Serialize};

/// How many files are at most this large, and how many bytes they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpTo {
    /// The size in bytes.
    pub size: u64,
    pub files: u64,
    /// Bytes in those files.
    pub bytes: u64,
}

/// One step for each power of two that some file sizes reach.
pub fn up_to(sizes: impl IntoIterator<Item = u64>) -> Vec<UpTo> {
    let mut steps = [(0_u64, 0_u64); 65];
    for size in sizes {
        // The step of a size: 1 for one byte, 2 for two, 3 for three and four, n + 1 up to 2^n.
        let step = match size {
            0 => 0,
            _ => {
                1 + usize::try_from((size - 1).checked_ilog2().map_or(0, |log| log + 1))
                    .unwrap_or(0)
            }
        };
        if let Some((files, bytes)) = steps.get_mut(step) {
            *files += 1;
            *bytes += size;
        }
    }
    let mut sum = UpTo {
        size: 0,
        files: 0,
        bytes: 0,
    };
    let mut found = Vec::new();
    for (step, (files, bytes)) in steps.into_iter().enumerate() {
        if files > 0 {
            sum.size = match step {
                0 => 0,
                _ => 1_u64
                    .checked_shl(u32::try_from(step - 1).unwrap_or(63))
                    .unwrap_or(u64::MAX),
            };
            sum.files += files;
            sum.bytes += bytes;
            found.push(sum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_of_two_has_what_is_not_larger() {
        let steps = up_to([0, 0, 1, 2, 3, 4, 4096, 4097]);
        let found: Vec<_> = steps.iter().map(|s| (s.size, s.files, s.bytes)).collect();
        assert_eq!(
            found,
            [
                (0, 2, 0),
                (1, 3, 1),
                (2, 4, 3),
                (4, 6, 10),
                (4096, 7, 4106),
                (8192, 8, 8203)
            ]
        );
        assert_eq!(up_to([]), []);
    }
}
