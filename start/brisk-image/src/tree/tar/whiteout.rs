//! What the name of an entry of a layer says about the layers below.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::reader::TarPath;

/// In front of the name of what is deleted.
const PREFIX: &[u8] = b".wh.";

/// In front of the names that AUFS keeps for itself.
const OWN_PREFIX: &[u8] = b".wh..wh.";

const OPAQUE: &[u8] = b".wh..wh..opq";

/// What an entry of a layer is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// A part of the tree.
    None,
    /// Lower layers have no such name in the directory.
    Deleted(&'a [u8]),
    /// Lower layers have nothing in the directory.
    Opaque,
}

impl<'a> Mark<'a> {
    /// What the entry at `path` is; what is wrong with its name goes behind "entry ... ".
    pub(super) fn of(path: &'a TarPath) -> Result<Self, String> {
        let Some((mut parents, name)) = path.split() else {
            return Ok(Self::None);
        };
        if let Some(mark) = parents.find(|name| name.starts_with(PREFIX)) {
            return Err(format!(
                "is below {:?}, which marks a deletion and is no directory; rename the directory",
                OsStr::from_bytes(mark)
            ));
        }
        match name.strip_prefix(PREFIX) {
            None => Ok(Self::None),
            Some(_) if name == OPAQUE => Ok(Self::Opaque),
            Some(b"" | b"." | b"..") => Err(
                "marks a deletion of \"\", \".\" or \"..\", allowed is the name of a file; have the image made again".into(),
            ),
            Some(_) if name.starts_with(OWN_PREFIX) => Err(
                "is a mark of AUFS, allowed are .wh.NAME and .wh..wh..opq; save the image with a newer Docker".into(),
            ),
            Some(deleted) => Ok(Self::Deleted(deleted)),
        }
    }
}
