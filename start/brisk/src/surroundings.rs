//! What a program sees besides the image that it starts from.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brisk_image::Image;
use brisk_serve::{Bind, SessionImage};
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::recorded_place::recorded_place;

/// How the program sees the image and the system.
#[derive(Debug, clap::Args)]
pub struct SurroundingsArgs {
    /// Makes the image, or the directory, the program's root directory. The program sees the system's /proc, /sys, /dev, /run,
    /// /tmp, /home and /root, and these files of its /etc: resolv.conf, hosts, passwd, group, machine-id and
    /// localtime. brisk leaves out localtime if it is UTC and the image has none.
    #[arg(long)]
    pub root: bool,

    /// Shows a file or directory of the system at another place, to the program only. With :ro at the end it is
    /// read-only. May be repeated. Of several colons, the last one behind a SRC that exists ends SRC.
    #[arg(long, value_name = "SRC:DST[:ro]",
          value_parser = OsStringValueParser::new().try_map(|text| parse_bind(&text)))]
    pub bind: Vec<Bind>,

    /// Also mounts another image, on the directory that it records or on DIR. May be repeated.
    #[arg(long, value_name = "IMAGE[@DIR]")]
    pub with: Vec<OsString>,
}

impl SurroundingsArgs {
    /// The other images, which `open` opens and says how to serve.
    pub fn with(
        &self,
        mut open: impl FnMut(&Path) -> anyhow::Result<(SessionImage, Image)>,
    ) -> anyhow::Result<Vec<SessionImage>> {
        self.with.iter().map(|text| with(text, &mut open)).collect()
    }
}

/// `IMAGE`, or `IMAGE@DIR` if there is no file of that name.
fn with(
    text: &OsString,
    open: &mut impl FnMut(&Path) -> anyhow::Result<(SessionImage, Image)>,
) -> anyhow::Result<SessionImage> {
    let bytes = text.as_bytes();
    // A URL may have an @ of its own; a place is an absolute path.
    let split = match Path::new(text).exists() {
        true => None,
        false => bytes.iter().rposition(|byte| *byte == b'@'),
    };
    let (path, at) = match split.map(|at| bytes.split_at(at)) {
        Some((path, at)) => {
            let at = at.strip_prefix(b"@").unwrap_or(at);
            (
                OsStr::from_bytes(path),
                Some(PathBuf::from(OsStr::from_bytes(at))),
            )
        }
        None => (text.as_os_str(), None),
    };
    let (mut with, image) = open(Path::new(path))?;
    with.offset = image.offset();
    with.verity = image.verified().map(|file| file.verity());
    with.at = match at {
        Some(at) => Some(at),
        None => recorded_place(&image, "--with IMAGE@DIR")?,
    };
    Ok(with)
}

/// Reads `SRC:DST` or `SRC:DST:ro`. Both names may have colons: SRC is the longest beginning that exists, or else ends at
/// the first colon.
///
/// # Errors
///
/// The text says what is allowed.
pub fn parse_bind(text: &OsStr) -> Result<Bind, String> {
    let bytes = text.as_bytes();
    let (names, read_only) = match bytes.strip_suffix(b":ro") {
        Some(names) => (names, true),
        None => (bytes, false),
    };
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let colons = names.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let splits = colons.map(|(at, _)| (path(&names[..at]), path(&names[at + 1..])));
    let is_split = |(source, target): &(&Path, &Path)| {
        !source.as_os_str().is_empty() && !target.as_os_str().is_empty()
    };
    let mut splits = splits.filter(is_split);
    let first = splits.next();
    let longest = splits.rfind(|(source, _)| source.exists());
    let (source, target) = longest
        .or(first)
        .ok_or("allowed is SRC:DST or SRC:DST:ro")?;
    let mut bind = Bind::new(source, target);
    bind.read_only = read_only;
    Ok(bind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_has_names_of_any_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().as_os_str().as_bytes();
        std::fs::write(directory.path().join("a:b"), "").unwrap();
        std::fs::write(directory.path().join("a"), "").unwrap();
        let within = |name: &[u8]| [own, b"/", name].concat();
        for (text, expected) in [
            (b"/a:/b".to_vec(), Some((b"/a".to_vec(), &b"/b"[..], false))),
            (
                b"a\xff:b\xfe:ro".to_vec(),
                Some((b"a\xff".to_vec(), b"b\xfe", true)),
            ),
            // Where nothing exists, and what exists.
            (
                b"none:/b:c".to_vec(),
                Some((b"none".to_vec(), b"/b:c", false)),
            ),
            (within(b"a:/d"), Some((within(b"a"), b"/d", false))),
            (within(b"a:b:/d"), Some((within(b"a:b"), b"/d", false))),
            (
                within(b"a:b:/d:e:ro"),
                Some((within(b"a:b"), b"/d:e", true)),
            ),
            (within(b"a:b"), Some((within(b"a"), b"b", false))),
            (b"/a".to_vec(), None),
            (b":/b".to_vec(), None),
            (b"/a:".to_vec(), None),
            (b":ro".to_vec(), None),
            (b"a:ro".to_vec(), None),
        ] {
            let bind = parse_bind(OsStr::from_bytes(&text));
            let found = bind.map(|bind| {
                let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
                (bytes(&bind.source), bytes(&bind.target), bind.read_only)
            });
            let expected = expected
                .map(|(source, target, read_only)| (source, target.to_vec(), read_only))
                .ok_or_else(|| "allowed is SRC:DST or SRC:DST:ro".to_owned());
            assert_eq!(found, expected, "{}", text.escape_ascii());
        }
    }
}
