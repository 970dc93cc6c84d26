//! How the kernel decodes SquashFS. That decides how fast images are that the kernel mounts.

use std::fmt;

/// How many blocks of a mount the kernel decodes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decoders {
    /// One (`CONFIG_SQUASHFS_DECOMP_SINGLE`).
    One,
    /// Several, as needed (`CONFIG_SQUASHFS_DECOMP_MULTI`).
    Several,
    /// One on each processor (`CONFIG_SQUASHFS_DECOMP_MULTI_PERCPU`).
    OnePerProcessor,
}

/// How the kernel decodes a SquashFS mount without options about that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SquashfsDecoding {
    /// How many decoders a mount has.
    pub decoders: Decoders,
    /// Whether it decodes blocks directly into the page cache (`CONFIG_SQUASHFS_FILE_DIRECT`), or else into a
    /// buffer first (`CONFIG_SQUASHFS_FILE_CACHE`).
    pub direct: bool,
}

impl SquashfsDecoding {
    /// `has` says whether the kernel's configuration has an option. `None` if it is not published, or has no SquashFS.
    ///
    /// A kernel that lets a mount choose has several kinds of decoders, and uses the first of these.
    pub(crate) fn of(has: impl Fn(&str) -> bool) -> Option<Self> {
        let decoders = [
            ("CONFIG_SQUASHFS_DECOMP_SINGLE", Decoders::One),
            ("CONFIG_SQUASHFS_DECOMP_MULTI", Decoders::Several),
            (
                "CONFIG_SQUASHFS_DECOMP_MULTI_PERCPU",
                Decoders::OnePerProcessor,
            ),
        ];
        let (_, decoders) = decoders.into_iter().find(|(name, _)| has(name))?;
        let direct = has("CONFIG_SQUASHFS_FILE_DIRECT");
        Some(Self { decoders, direct })
    }
}

impl fmt::Display for SquashfsDecoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decoders, option) = match self.decoders {
            Decoders::One => ("one decoder for each mount", "DECOMP_SINGLE"),
            Decoders::Several => ("several decoders for each mount", "DECOMP_MULTI"),
            Decoders::OnePerProcessor => ("one decoder on each processor", "DECOMP_MULTI_PERCPU"),
        };
        let (way, file) = match self.direct {
            true => ("into the page cache", "FILE_DIRECT"),
            false => ("through a buffer", "FILE_CACHE"),
        };
        write!(f, "{decoders}, {way} ({option}, {file})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_is_told_apart() {
        let table = [
            (
                &["DECOMP_SINGLE", "FILE_CACHE"][..],
                "one decoder for each mount, through a buffer (DECOMP_SINGLE, FILE_CACHE)",
            ),
            (
                &["DECOMP_MULTI", "FILE_DIRECT"],
                "several decoders for each mount, into the page cache (DECOMP_MULTI, FILE_DIRECT)",
            ),
            (
                &["DECOMP_MULTI_PERCPU", "FILE_DIRECT"],
                "one decoder on each processor, into the page cache (DECOMP_MULTI_PERCPU, FILE_DIRECT)",
            ),
            // A mount may choose, but this one does not.
            (
                &[
                    "DECOMP_MULTI_PERCPU",
                    "DECOMP_MULTI",
                    "DECOMP_SINGLE",
                    "FILE_DIRECT",
                ],
                "one decoder for each mount, into the page cache (DECOMP_SINGLE, FILE_DIRECT)",
            ),
        ];
        for (options, expected) in table {
            let found = SquashfsDecoding::of(|name| {
                let name = name.strip_prefix("CONFIG_SQUASHFS_").unwrap();
                options.contains(&name)
            });
            assert_eq!(found.unwrap().to_string(), expected);
        }
        assert_eq!(SquashfsDecoding::of(|_| false), None);
    }
}
