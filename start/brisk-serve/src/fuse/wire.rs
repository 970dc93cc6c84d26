//! The structs of linux/fuse.h, version 7.26 and later, in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version of the protocol. Another one has nothing in common with it.
pub(super) const MAJOR: u32 = 7;
/// The minor version of the answers. It is that of `FUSE_NOTIFY_RESEND`.
pub(super) const MINOR: u32 = 40;
/// The oldest minor version that is supported: that of Linux 4.14. Its structs are the same, and what came later is a bit of INIT.
pub(super) const OLDEST_MINOR: u32 = 26;

/// The node of the root directory.
pub(super) const ROOT: u64 = 1;

/// This bit of `unique` is set in a request that the kernel sends again.
pub(super) const UNIQUE_RESEND: u64 = 1 << 63;

/// The codes of requests.
pub(super) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const TMPFILE: u32 = 51;
    /// The highest code that is counted separately, plus one.
    pub(crate) const END: u32 = 53;

    /// Whether a request with this code has an answer.
    pub(crate) fn is_answered(code: u32) -> bool {
        !matches!(code, FORGET | BATCH_FORGET | INTERRUPT | NOTIFY_REPLY)
    }
}

/// The codes of notifications, which the server sends unasked.
pub(super) mod notify {
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RETRIEVE: i32 = 5;
    pub(crate) const RESEND: i32 = 7;
}

/// What the two sides can do, as bits of INIT.
pub(super) mod can {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const NO_OPEN: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
}

/// Answers to OPEN: the pages of a file, and the listing of a directory, stay in memory from one open to the
/// next.
pub(super) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub(super) const FOPEN_CACHE_DIR: u32 = 1 << 3;

/// What LSEEK looks for, as of lseek(2). The kernel does the others itself.
pub(super) const SEEK_DATA: u32 = 3;
pub(super) const SEEK_HOLE: u32 = 4;

macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
    )*};
}

wire! {
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    struct OutHeader {
        len: u32,
        error: i32,
        unique: u64,
    }
    /// Without `flags2` and the fields after it, which kernels before 5.17 do not send.
    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        unused: [u32; 7],
    }
    struct Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    struct AttrOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    struct OpenOut {
        fh: u64,
        open_flags: u32,
        padding: u32,
    }
    /// READ, READDIR and READDIRPLUS.
    struct ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct InterruptIn {
        unique: u64,
    }
    struct LseekIn {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    struct LseekOut {
        offset: u64,
    }
    struct StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// In GETXATTR, the name follows.
    struct GetxattrIn {
        size: u32,
        padding: u32,
    }
    struct GetxattrOut {
        size: u32,
        padding: u32,
    }
    /// The name follows, and zeros up to a multiple of 8.
    struct Dirent {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    /// Whole pages follow, or the last bytes of the file.
    struct StoreOut {
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    /// A `NOTIFY_REPLY` with this `unique` answers it.
    struct RetrieveOut {
        unique: u64,
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    /// The start of a `NOTIFY_REPLY`. `size` bytes of the page cache follow: fewer than asked for, or none, if the next page
    /// is absent.
    struct RetrieveIn {
        dummy1: u64,
        offset: u64,
        size: u32,
        dummy2: u32,
        dummy3: u64,
        dummy4: u64,
    }
}

// These are the sizes in linux/fuse.h.
const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88);
const _: () = assert!(size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<ReadIn>() == 40);
const _: () = assert!(size_of::<LseekIn>() == 24);
const _: () = assert!(size_of::<LseekOut>() == 8);
const _: () = assert!(size_of::<StatfsOut>() == 80);
const _: () = assert!(size_of::<Dirent>() == 24);
const _: () = assert!(size_of::<StoreOut>() == 24);
const _: () = assert!(size_of::<RetrieveOut>() == 32);
const _: () = assert!(size_of::<RetrieveIn>() == 40);
