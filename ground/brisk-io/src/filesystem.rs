use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// What kind of filesystem a file is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filesystem {
    /// One whose pages all processes share, and that does not change files behind the kernel's back.
    Local,
    /// A network's, or one of FUSE, by its number in `linux/magic.h`. A mapping could be stale or end the process.
    Network(u64),
    /// One that nobody has tried, by its number.
    Untried(u64),
}

/// The numbers of `linux/magic.h`, and of modules that are not part of Linux.
const LOCAL: [u64; 5] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlay
];

const NETWORK: [u64; 18] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and 3
    0x6573_5546, // FUSE
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // AFS of the kernel
    0x7375_7245, // Coda
    0x0bd0_0bd0, // Lustre
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0xaad7_aaea, // PanFS
    0x786f_4256, // folders that VirtualBox shares
    0xbacb_acbc, // folders that VMware shares
];

impl Filesystem {
    /// That of an open file or directory.
    ///
    /// # Errors
    ///
    /// Those of `fstatfs`.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let kind = fstatfs(file)?.f_type as u64;
        // 32-bit numbers are sign-extended on some machines.
        Ok(Self::of_number(kind & 0xffff_ffff))
    }

    fn of_number(number: u64) -> Self {
        if LOCAL.contains(&number) {
            Self::Local
        } else if NETWORK.contains(&number) {
            Self::Network(number)
        } else {
            Self::Untried(number)
        }
    }

    /// The number of one that is not known to be local.
    pub fn unsure(self) -> Option<u64> {
        match self {
            Self::Local => None,
            Self::Network(number) | Self::Untried(number) => Some(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_fuse_and_what_nobody_has_tried_are_not_local() {
        let clusters = [0x0116_1970, 0x4750_4653, 0x1983_0326, 0x786f_4256];
        let networks = [0x6969, 0x6573_5546, 0x0102_1997, 0xff53_4d42, 0x517b];
        for network in networks.into_iter().chain(clusters) {
            let found = Filesystem::of_number(network);
            assert_eq!(found, Filesystem::Network(network));
            assert_eq!(found.unsure(), Some(network));
        }
        // F2FS and ZFS.
        for untried in [0xf2f5_2010, 0x2fc1_2fc1] {
            assert_eq!(Filesystem::of_number(untried), Filesystem::Untried(untried));
        }
        let here = std::fs::File::open("/dev/shm").unwrap();
        assert_eq!(Filesystem::of(here).unwrap(), Filesystem::Local);
    }
}
