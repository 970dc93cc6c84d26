//! System calls that say what a launch asks for.

use std::time::Duration;

use super::files::Files;
use super::process::Process;

/// A call, as it is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
}

/// What a call of a program means for the observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing, or it was noted.
    None,
    /// Its result says something.
    Result,
    /// The process must be let go: its next program gets more rights.
    LetGo,
    /// The program itself traces.
    Traces,
}

/// The kernel's numbers are positive.
const fn number(call: libc::c_long) -> u64 {
    call.cast_unsigned()
}

/// Names of calls, by number.
macro_rules! calls {
    ($($name:ident = $call:ident;)*) => {
        $(const $name: u64 = number(libc::$call);)*
    };
}

calls! {
    CHDIR = SYS_chdir;
    CLOSE = SYS_close;
    CLOSE_RANGE = SYS_close_range;
    COPY_FILE_RANGE = SYS_copy_file_range;
    DUP3 = SYS_dup3;
    EXECVE = SYS_execve;
    EXECVEAT = SYS_execveat;
    EXIT_GROUP = SYS_exit_group;
    FACCESSAT = SYS_faccessat;
    FACCESSAT2 = SYS_faccessat2;
    FCHDIR = SYS_fchdir;
    LSEEK = SYS_lseek;
    MMAP = SYS_mmap;
    MUNMAP = SYS_munmap;
    NEWFSTATAT = SYS_newfstatat;
    OPENAT = SYS_openat;
    OPENAT2 = SYS_openat2;
    PREAD = SYS_pread64;
    PREADV = SYS_preadv;
    PREADV2 = SYS_preadv2;
    PTRACE = SYS_ptrace;
    READ = SYS_read;
    READLINKAT = SYS_readlinkat;
    READV = SYS_readv;
    SENDFILE = SYS_sendfile;
    SPLICE = SYS_splice;
    STATX = SYS_statx;
}

/// Calls that newer architectures do without.
#[cfg(target_arch = "x86_64")]
mod old {
    use super::number;
    calls! {
        ACCESS = SYS_access;
        DUP2 = SYS_dup2;
        LSTAT = SYS_lstat;
        OPEN = SYS_open;
        READLINK = SYS_readlink;
        STAT = SYS_stat;
    }

    pub(super) const LOOK_UPS: [u64; 5] = [ACCESS, LSTAT, OPEN, READLINK, STAT];

    pub(super) fn opens(call: u64) -> bool {
        call == OPEN
    }

    pub(super) fn duplicates(call: u64) -> bool {
        call == DUP2
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod old {
    pub(super) const LOOK_UPS: [u64; 0] = [];

    pub(super) fn opens(_call: u64) -> bool {
        false
    }

    pub(super) fn duplicates(_call: u64) -> bool {
        false
    }
}

/// Calls that look up the path in their second argument, in the directory of the first.
const LOOK_UPS_IN_DIRECTORY: [u64; 7] = [
    OPENAT, OPENAT2, NEWFSTATAT, STATX, FACCESSAT, FACCESSAT2, READLINKAT,
];

/// Calls that look up the path in their first argument, from the working directory.
const LOOK_UPS: &[u64] = &old::LOOK_UPS;

/// What `mmap` does without a file.
const MAP_ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;

/// The kernel takes the lower half of a register.
#[expect(clippy::cast_possible_truncation, reason = "as the kernel does")]
const fn descriptor(argument: u64) -> i32 {
    argument as i32
}

impl Call {
    /// The directory and the address of the path that it looks up.
    fn path(&self) -> Option<(i32, u64)> {
        let [first, second, ..] = self.arguments;
        if LOOK_UPS_IN_DIRECTORY.contains(&self.number) {
            Some((descriptor(first), second))
        } else if LOOK_UPS.contains(&self.number) {
            Some((libc::AT_FDCWD, first))
        } else {
            None
        }
    }

    fn opens(&self) -> bool {
        matches!(self.number, OPENAT | OPENAT2) || old::opens(self.number)
    }

    /// Before the kernel does it.
    pub(super) fn begins(&self, process: &mut Process, files: &mut Files, at: Duration) -> Meaning {
        let [first, second, _, flags, ..] = self.arguments;
        match self.number {
            READ | READV | PREAD | PREADV | PREADV2 | LSEEK | CHDIR | FCHDIR => Meaning::Result,
            SENDFILE | COPY_FILE_RANGE | SPLICE => Meaning::Result,
            MMAP if flags & MAP_ANONYMOUS == 0 => Meaning::Result,
            MUNMAP => {
                process.unmaps(files, first, second);
                Meaning::None
            }
            CLOSE => {
                process.forget(descriptor(first));
                Meaning::None
            }
            CLOSE_RANGE => {
                process.forget_all();
                Meaning::None
            }
            DUP3 => {
                process.forget(descriptor(second));
                Meaning::None
            }
            EXIT_GROUP => {
                process.look_at_all(files, at);
                process.is_over = true;
                Meaning::None
            }
            EXECVE | EXECVEAT => {
                process.look_at_all(files, at);
                self.begins_program(process)
            }
            PTRACE => Meaning::Traces,
            call if old::duplicates(call) => {
                process.forget(descriptor(second));
                Meaning::None
            }
            _ if self.path().is_some() => Meaning::Result,
            _ => Meaning::None,
        }
    }

    /// Before the kernel does it, of a process that may be about to become a program.
    pub(super) fn begins_program(&self, process: &mut Process) -> Meaning {
        let [first, second, ..] = self.arguments;
        let (directory, address) = match self.number {
            EXECVE => (libc::AT_FDCWD, first),
            EXECVEAT => (descriptor(first), second),
            _ => return Meaning::None,
        };
        let path = process.path_at(address);
        match path.is_none_or(|path| process.gives_rights(directory, &path)) {
            true => Meaning::LetGo,
            false => Meaning::None,
        }
    }

    /// When the kernel has done it, with this result.
    pub(super) fn ends(&self, value: i64, process: &mut Process, files: &mut Files, at: Duration) {
        let [first, second, third, offset, fd, place] = self.arguments;
        if let Some((directory, address)) = self.path() {
            let absent = -i64::from(libc::ENOENT);
            if (value >= 0 || value == absent)
                && let Some(path) = process.path_at(address)
                && let Some(path) = process.absolute(directory, &path)
            {
                files.looked_up(&path, value >= 0, at);
            }
        }
        let Ok(result) = u64::try_from(value) else {
            // Addresses of mappings are below the middle.
            return;
        };
        match self.number {
            _ if self.opens() => process.forget(descriptor(result)),
            READ | READV if result > 0 => {
                process.has_read(files, descriptor(first), None, result, at);
            }
            PREAD | PREADV | PREADV2 if result > 0 => {
                process.has_read(files, descriptor(first), Some(offset), result, at);
            }
            // Few starts read from offsets that stand in the program's memory.
            SENDFILE if result > 0 && third == 0 => {
                process.has_read(files, descriptor(second), None, result, at);
            }
            COPY_FILE_RANGE | SPLICE if result > 0 && second == 0 => {
                process.has_read(files, descriptor(first), None, result, at);
            }
            LSEEK => process.has_moved_to(descriptor(first), result),
            MMAP => process.has_mapped(descriptor(fd), result, second, place, at),
            CHDIR | FCHDIR => process.moves(),
            _ => {}
        }
    }
}
