//! What tells a file from others, and from itself before it was changed.

use std::fmt;

use rustix::fs::Stat;

/// The device and the inode of a file, its size, and its times. A file that was replaced, written to or cut has others:
/// programs can set back the time of modification, but not the time of the change (ctime).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity([u64; 7]);

impl FileIdentity {
    /// That of the file of `stat`.
    pub fn of(stat: &Stat) -> Self {
        Self([
            stat.st_dev,
            stat.st_ino,
            stat.st_size.cast_unsigned(),
            stat.st_mtime.cast_unsigned(),
            stat.st_mtime_nsec,
            stat.st_ctime.cast_unsigned(),
            stat.st_ctime_nsec,
        ])
    }

    /// All that makes it up.
    pub fn numbers(self) -> [u64; 7] {
        self.0
    }

    /// Whether nobody has written to the file or cut it since it had this identity. It may have another name by now, or none.
    pub fn has_contents_of(self, earlier: Self) -> bool {
        let [device, inode, size, seconds, nanoseconds, ..] = self.0;
        earlier
            .0
            .starts_with(&[device, inode, size, seconds, nanoseconds])
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(' ').map(str::parse);
        let numbers = numbers.collect::<Result<Vec<_>, _>>().ok()?;
        numbers.try_into().ok().map(Self)
    }
}

impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first}")?;
        rest.iter().try_for_each(|number| write!(f, " {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let stat = rustix::fs::stat("/").expect("a root");
        let identity = FileIdentity::of(&stat);
        assert_eq!(FileIdentity::parse(&identity.to_string()), Some(identity));
        let text = "1 2 3 4 5 6 18446744073709551615";
        let read = FileIdentity::parse(text).expect("seven numbers");
        assert_eq!(read.to_string(), text);
        for other in [
            "",
            "1 2 3 4 5 6",
            "1 2 3 4 5 6 7 8",
            "1 2 3 4 5 6 -7",
            "1 2 3 4 5 6 ",
        ] {
            assert_eq!(FileIdentity::parse(other), None, "{other:?}");
        }
    }
}
