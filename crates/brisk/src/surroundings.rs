//! What a program sees besides the image that it starts from.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brisk_image::Image;
use brisk_mount::{Bind, SessionImage};

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
    /// read-only. May be repeated.
    #[arg(long, value_name = "SRC:DST[:ro]", value_parser = parse_bind)]
    pub bind: Vec<Bind>,

    /// Also mounts another image, on the directory that it records or on DIR. May be repeated.
    #[arg(long, value_name = "IMAGE[@DIR]")]
    pub with: Vec<OsString>,
}

impl SurroundingsArgs {
    /// The other images, which `open` opens.
    pub fn with(
        &self,
        open: impl Fn(&Path) -> anyhow::Result<Image>,
    ) -> anyhow::Result<Vec<SessionImage>> {
        self.with.iter().map(|text| with(text, &open)).collect()
    }
}

/// `IMAGE`, or `IMAGE@DIR` if there is no file of that name.
fn with(
    text: &OsString,
    open: impl Fn(&Path) -> anyhow::Result<Image>,
) -> anyhow::Result<SessionImage> {
    let bytes = text.as_bytes();
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
    let image = open(Path::new(path))?;
    let mut with = SessionImage::new(path);
    with.offset = image.offset();
    with.verity = image.verified().map(|file| file.verity());
    with.at = match at {
        Some(at) => Some(at),
        None => recorded_place(&image, "--with IMAGE@DIR")?,
    };
    Ok(with)
}

/// Reads `SRC:DST` or `SRC:DST:ro`.
///
/// # Errors
///
/// The text says what is allowed.
pub fn parse_bind(text: &str) -> Result<Bind, String> {
    let (text, read_only) = match text.strip_suffix(":ro") {
        Some(text) => (text, true),
        None => (text, false),
    };
    match text.split_once(':') {
        Some((source, target)) if !source.is_empty() && !target.is_empty() => {
            let mut bind = Bind::new(source, target);
            bind.read_only = read_only;
            Ok(bind)
        }
        _ => Err("allowed is SRC:DST or SRC:DST:ro".to_owned()),
    }
}
