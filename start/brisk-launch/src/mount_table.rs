//! What is mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One line of `/proc/self/mountinfo`, as far as this crate needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount point, as seen from the process's root directory.
    pub target: PathBuf,
    /// The file system's type: `squashfs`, `fuse.brisk`.
    pub fs_type: String,
    /// The device's numbers: `0:45`.
    pub device: String,
    /// The part of the file system that is mounted.
    pub root: PathBuf,
    /// Options of the file system itself, separated by commas: `rw,memory`.
    pub super_options: String,
}

impl MountEntry {
    /// The device's major and minor number.
    pub fn device_numbers(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The mount on `target` (a canonical path): the top one if several are stacked there.
pub fn mounted_on(target: &Path) -> io::Result<Option<MountEntry>> {
    Ok(top_of(&fs::read("/proc/self/mountinfo")?, target))
}

/// All mounts that this process sees.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|&b| b == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// The mount points that this process sees, in the order in which they were mounted. A path is in the list
/// several times if several mounts are stacked there.
///
/// # Errors
///
/// If `/proc/self/mountinfo` cannot be read.
pub fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(mounts()?.into_iter().map(|mount| mount.target).collect())
}

/// The kernel lists mounts in the order in which they were made, so the last one is on top.
fn top_of(mountinfo: &[u8], target: &Path) -> Option<MountEntry> {
    mountinfo
        .split(|&b| b == b'\n')
        .filter_map(parse_line)
        .rfind(|entry| entry.target == target)
}

/// proc_pid_mountinfo(5): `id parent major:minor root target options [optional…] - type source …`.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let device = fields.nth(2)?;
    let root = fields.next()?;
    let target = fields.next()?;
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let fs_type = fields.next()?;
    let super_options = fields.nth(1).unwrap_or_default();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    Some(MountEntry {
        target: path(target),
        root: path(root),
        super_options: String::from_utf8_lossy(super_options).into_owned(),
        fs_type: String::from_utf8_lossy(&unescape(fs_type)).into_owned(),
        device: String::from_utf8_lossy(device).into_owned(),
    })
}

/// Decodes the kernel's escapes such as `\040`, for space, tab, line feed, backslash and `#`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if first == b'\\' => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const TABLE: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 7:0 / /mnt/a\\040b\\134c ro,nosuid,nodev shared:7 master:2 - squashfs /dev/loop0 ro
41 40 0:44 / /mnt/stack rw - tmpfs none rw
42 41 7:1 / /mnt/stack ro - squashfs /dev/loop1 ro
43 21 0:45 / /mnt/#\\011\\012end rw - fuse.brisk app rw
short line
";

    fn fs_type(target: &str) -> Option<String> {
        top_of(TABLE, Path::new(target)).map(|e| e.fs_type)
    }

    #[test]
    fn names_are_unescaped_and_the_top_mount_is_found() {
        assert_eq!(fs_type("/").as_deref(), Some("ext4"));
        assert_eq!(fs_type("/mnt/a b\\c").as_deref(), Some("squashfs"));
        assert_eq!(fs_type("/mnt/stack").as_deref(), Some("squashfs"));
        assert_eq!(fs_type("/mnt/#\t\nend").as_deref(), Some("fuse.brisk"));
        assert_eq!(fs_type("/mnt"), None);
        let device = top_of(TABLE, Path::new("/mnt/stack")).map(|e| e.device);
        assert_eq!(device.as_deref(), Some("7:1"));
        let root = top_of(TABLE, Path::new("/")).unwrap();
        assert_eq!((&*root.root, &*root.super_options), (Path::new("/"), "rw"));
    }

    #[test]
    fn names_that_are_no_text_are_as_they_are() {
        let entry = parse_line(b"44 21 0:46 / /mnt/\xff\\040 rw - tmpfs none rw").unwrap();
        assert_eq!(entry.target.as_os_str().as_bytes(), b"/mnt/\xff ");
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\999\\"), b"\\999\\");
        assert_eq!(unescape(b"\\377"), [0o377]);
    }
}
