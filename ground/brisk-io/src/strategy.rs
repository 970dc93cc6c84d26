use std::fmt;
use std::str::FromStr;

/// A way to bring bytes of a file into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Strategy {
    /// The page cache's own pages, read-only. Each is put into the page table when it is touched.
    SharedMap,
    /// The same, but writable. A page that is written is copied for this process.
    PrivateMap,
    /// A mapping, shared or private as needed, with all pages put into the page table at once
    /// (`MADV_POPULATE_READ`). Later nothing faults, and an unreadable page is an error now.
    PopulatedMap,
    /// Copied from the page cache by `pread`. Several threads copy a large file.
    Read,
    /// Read directly, past the page cache (`O_DIRECT`), several reads at once.
    Direct,
    /// Copied from the page cache by `io_uring`, many reads at once.
    Uring,
    /// Read directly, past the page cache, by `io_uring`, many reads at once.
    UringDirect,
}

impl Strategy {
    /// All strategies, whatever this system and this build support.
    pub const ALL: [Self; 7] = [
        Self::SharedMap,
        Self::PrivateMap,
        Self::PopulatedMap,
        Self::Read,
        Self::Direct,
        Self::Uring,
        Self::UringDirect,
    ];

    /// Its name for people, such as `populated-map`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedMap => "shared-map",
            Self::PrivateMap => "private-map",
            Self::PopulatedMap => "populated-map",
            Self::Read => "read",
            Self::Direct => "direct",
            Self::Uring => "uring",
            Self::UringDirect => "uring-direct",
        }
    }

    /// Whether the bytes become this process's own, so that no other process can share their memory.
    pub fn copies(self) -> bool {
        matches!(
            self,
            Self::Read | Self::Direct | Self::Uring | Self::UringDirect
        )
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not the name of a [`Strategy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownStrategy(String);

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Strategy::ALL.map(Strategy::name).join(", ");
        write!(f, "no strategy is called {:?}; there are {names}", self.0)
    }
}

impl std::error::Error for UnknownStrategy {}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownStrategy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        assert_eq!(
            "mmap".parse::<Strategy>().unwrap_err().to_string(),
            "no strategy is called \"mmap\"; there are shared-map, private-map, populated-map, read, direct, \
             uring, uring-direct"
        );
    }
}
