//! The lines of mappings in `/proc/PID/maps` and `/proc/PID/smaps` (proc(5)).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str;

/// A mapping: `START-END RIGHTS OFFSET DEVICE INODE   PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// The first address, and the one behind the last.
    pub start: u64,
    pub end: u64,
    /// The byte of the file at the first address.
    pub offset: u64,
    pub device: &'a str,
    pub inode: &'a str,
    /// With ` (deleted)` behind it if the file has no name any more. None for what is no file.
    pub path: Option<&'a Path>,
}

impl<'a> MapsLine<'a> {
    /// None for a line that begins no mapping.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let mut fields = [""; 5];
        for field in &mut fields {
            let end = rest.iter().position(|byte| *byte == b' ');
            let (text, behind) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
            *field = str::from_utf8(text).ok()?;
            rest = behind.trim_ascii_start();
        }
        let [range, _, offset, device, inode] = fields;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            device,
            inode,
            path: rest
                .starts_with(b"/")
                .then(|| Path::new(OsStr::from_bytes(rest))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_told_from_other_lines() {
        let line =
            b"7f1c2a000000-7f1c2a021000 r--p 0001a000 08:01 1835099      /usr/lib/a \xff.so (deleted)";
        let expected = MapsLine {
            start: 0x7f1c_2a00_0000,
            end: 0x7f1c_2a02_1000,
            offset: 0x1_a000,
            device: "08:01",
            inode: "1835099",
            path: Some(Path::new(OsStr::from_bytes(
                b"/usr/lib/a \xff.so (deleted)",
            ))),
        };
        assert_eq!(MapsLine::parse(line), Some(expected));
        for line in [
            &b"7ffd0-7ffd1 rw-p 00000000 00:00 0          [stack]"[..],
            b"7ffd0-7ffd1 rw-p 00000000 00:00 0          [anon: /a]",
            b"7ffd0-7ffd1 rw-p 00000000 00:00 0 ",
            b"7ffd0-7ffd1 rw-p 00000000 00:00 0",
        ] {
            let path = MapsLine::parse(line).map(|line| line.path);
            assert_eq!(path, Some(None), "{}", line.escape_ascii());
        }
        for line in [
            &b""[..],
            b"x-y r--p 0 0:0 0 /a",
            b"/a",
            b"Rss:                   8 kB",
            b"VmFlags: rd mr mw me sd",
        ] {
            assert_eq!(MapsLine::parse(line), None, "{}", line.escape_ascii());
        }
    }
}
