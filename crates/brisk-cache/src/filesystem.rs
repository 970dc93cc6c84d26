use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Where the directory of a cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filesystem {
    /// One whose pages all processes share, and that does not change files behind the kernel's back.
    Local,
    /// A network's, one of FUSE, or one that nobody has tried. A mapping could be stale or end the process.
    Other(u64),
}

/// The numbers of `linux/magic.h`.
const LOCAL: [u64; 5] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlay
];

impl Filesystem {
    pub(crate) fn of(directory: impl AsFd) -> io::Result<Self> {
        let kind = fstatfs(directory)?.f_type as u64;
        // 32-bit numbers are sign-extended on some machines.
        Ok(Self::of_number(kind & 0xffff_ffff))
    }

    fn of_number(number: u64) -> Self {
        match LOCAL.contains(&number) {
            true => Self::Local,
            false => Self::Other(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_fuse_and_what_nobody_has_tried_are_not_local() {
        let networks = [0x6969, 0x6573_5546, 0x0102_1997, 0xff53_4d42, 0x517b];
        // F2FS and ZFS.
        let untried = [0xf2f5_2010, 0x2fc1_2fc1];
        for other in networks.into_iter().chain(untried) {
            assert_eq!(Filesystem::of_number(other), Filesystem::Other(other));
        }
        let here = std::fs::File::open("/dev/shm").unwrap();
        assert_eq!(Filesystem::of(here).unwrap(), Filesystem::Local);
    }
}
