//! The disk that a directory is on, and what it charges for reads.
//!
//! Measured charges are kept in `$XDG_CACHE_HOME/brisk/devices`, else in `~/.cache/brisk/devices`: a
//! file for each disk, with the line `bps=BYTES,iops=OPERATIONS`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use brisk_io::{BlockDevice, Charge, DiskReads, largest_advice_on};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::getpid;

use crate::error::{Action, Cause, Error, Result};
use crate::private_directory::{cache_directory, make_cache_directory, open_private};

/// What a disk charges by default, by its kind: bytes and operations in a second.
const TURNING: (u64, u64) = (150 << 20, 100);
const STANDING: (u64, u64) = (1 << 30, 20_000);

/// The most bytes of a file of [`MeasuredCharges`].
const TEXT: u64 = 64;

/// What the caller says that a disk charges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCharge {
    /// Bytes in a second.
    pub bytes_per_second: Option<std::num::NonZeroU64>,
    /// Operations in a second.
    pub operations_per_second: Option<std::num::NonZeroU64>,
}

impl DiskCharge {
    /// Whether it says all.
    pub(super) fn is_whole(self) -> bool {
        self.bytes_per_second.is_some() && self.operations_per_second.is_some()
    }

    /// The charge to use: the given one, else the measured one, else the default for the disk's kind.
    pub(super) fn charge(self, measured: Option<Charge>, kind: Charge) -> Charge {
        let known = measured.unwrap_or(kind);
        Charge::new(
            self.bytes_per_second.unwrap_or(known.bytes_per_second),
            self.operations_per_second
                .unwrap_or(known.operations_per_second),
        )
    }
}

/// A disk. Files of FUSE, networks and overlays are on none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    device: Option<BlockDevice>,
}

impl Disk {
    /// For files that are on no disk.
    pub(super) const NONE: Self = Self { device: None };

    /// The disk of an open file.
    pub(super) fn of(fd: &OwnedFd) -> Self {
        Self {
            device: fstat(fd).ok().and_then(|stat| BlockDevice::of(stat.st_dev)),
        }
    }

    /// A name that identifies the disk: its number and its size. The number alone is not enough, because a
    /// later disk may have it.
    pub(super) fn name(&self) -> Option<String> {
        let device = self.device.as_ref()?;
        let number = device.text("dev")?;
        let size = device.number("size")?;
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b':');
        plain.then(|| format!("{number}-{size}"))
    }

    /// How to read its files, if it charges what is usual for its kind.
    pub(super) fn reads(&self) -> DiskReads {
        let device = self.device.as_ref();
        let turning = device.and_then(|device| device.number("queue/rotational")) == Some(1);
        let (bytes, operations) = if turning { TURNING } else { STANDING };
        let number = |n| NonZeroU64::new(n).unwrap_or(NonZeroU64::MIN);
        DiskReads::new(
            Charge::new(number(bytes), number(operations)),
            number(largest_advice_on(device)),
        )
    }
}

/// The measured charges of disks: a directory of the user.
pub(super) struct MeasuredCharges {
    fd: OwnedFd,
    path: PathBuf,
}

impl MeasuredCharges {
    /// Opens the directory. None if it does not exist, unless `make` makes it.
    pub(super) fn open(make: bool) -> Result<Option<Self>> {
        let open = || {
            let cache = cache_directory()?;
            let path = cache.join("devices");
            if make {
                make_cache_directory(&cache)?;
            } else if !path.exists() {
                return Ok(None);
            }
            let fd = open_private(&path)?;
            Ok(Some(Self { fd, path }))
        };
        open().map_err(|cause| Error::new(Action::Measure, cause))
    }

    /// The charge of the disk with this name. None if it was not measured, or cannot be read.
    pub(super) fn get(&self, name: &str) -> Option<Charge> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.fd, name, flags, Mode::empty()).ok()?);
        let mut text = String::new();
        file.take(TEXT).read_to_string(&mut text).ok()?;
        parse(text.trim_end())
    }

    pub(super) fn keep(&self, name: &str, charge: Charge) -> Result<()> {
        let write = || -> io::Result<()> {
            let temporary = format!(".brisk-{}", getpid());
            match unlinkat(&self.fd, &temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = openat(&self.fd, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
            let written = File::from(file).write_all(text(charge).as_bytes());
            written.or_else(|e| {
                unlinkat(&self.fd, &temporary, AtFlags::empty())?;
                Err(e)
            })?;
            Ok(renameat(&self.fd, &temporary, &self.fd, name)?)
        };
        write().map_err(|e| {
            let step = format!("write to {}", self.path.display());
            Error::new(Action::Measure, Cause::io(step, e))
        })
    }
}

fn text(charge: Charge) -> String {
    format!(
        "bps={},iops={}\n",
        charge.bytes_per_second, charge.operations_per_second
    )
}

fn parse(text: &str) -> Option<Charge> {
    let (bytes, operations) = text.strip_prefix("bps=")?.split_once(",iops=")?;
    Some(Charge::new(bytes.parse().ok()?, operations.parse().ok()?))
}

/// Opens a directory as a path only.
pub(super) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(rustix::fs::CWD, path, flags, Mode::empty())?)
}

/// Opens a file for reading that was opened as a path only.
pub(super) fn reopen(file: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(rustix::fs::CWD, path, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kept_charge_is_read_again_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("devices");
        let fd = open_private(&path).expect("ours");
        let charges = MeasuredCharges { fd, path };
        assert_eq!(charges.get("254:0-100"), None);
        let number = |n| NonZeroU64::new(n).expect("not zero");
        let charge = Charge::new(number(200 << 20), number(2000));
        charges.keep("254:0-100", charge).expect("room");
        assert_eq!(charges.get("254:0-100"), Some(charge));
        for text in ["", "bps=1", "bps=0,iops=1", "bps=1,iops=x", "bps=1,iops=1,"] {
            fs::write(charges.path.join("other"), text).expect("room");
            assert_eq!(charges.get("other"), None, "{text}");
        }
        fs::write(charges.path.join("other"), vec![b'9'; 1 << 20]).expect("room");
        assert_eq!(charges.get("other"), None);
    }

    #[test]
    fn what_is_given_comes_before_what_was_measured_and_that_before_the_kind() {
        let number = |n| NonZeroU64::new(n).expect("not zero");
        let charge = |bytes, operations| Charge::new(number(bytes), number(operations));
        let given = |bytes, operations| DiskCharge {
            bytes_per_second: NonZeroU64::new(bytes),
            operations_per_second: NonZeroU64::new(operations),
        };
        let measured = Some(charge(21, 22));
        for (given, measured, taken) in [
            (given(0, 0), None, charge(31, 32)),
            (given(0, 0), measured, charge(21, 22)),
            (given(11, 0), measured, charge(11, 22)),
            (given(0, 12), measured, charge(21, 12)),
            (given(0, 12), None, charge(31, 12)),
            (given(11, 12), measured, charge(11, 12)),
        ] {
            let found = given.charge(measured, charge(31, 32));
            assert_eq!(found, taken, "{given:?} {measured:?}");
        }
    }

    #[test]
    fn what_is_on_no_disk_is_read_in_the_smallest_pieces() {
        let proc = open_root(Path::new("/proc")).expect("there is one");
        let disk = Disk::of(&proc);
        assert_eq!(disk.name(), None);
        assert_eq!(disk.reads().largest.get(), 128 << 10);
    }
}
