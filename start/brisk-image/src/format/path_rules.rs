//! Names and paths as profiles and hot packs may have them.

use super::PATH_MAX;

/// Bytes of the longest name that Linux takes.
const NAME_MAX: usize = 255;

/// Why `path` cannot be that of a file in a root.
pub(crate) fn file_path_fault(path: &[u8]) -> Option<&'static str> {
    match path.is_empty() {
        true => Some("is empty, allowed is a path in the root"),
        false => path_fault(path),
    }
}

/// Why `path` cannot be that of something in a root; the empty one is that of the root.
pub(crate) fn path_fault(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() {
        return None;
    }
    if path.len() >= PATH_MAX {
        return Some("is longer than 4095 bytes");
    }
    path.split(|&byte| byte == b'/')
        .find_map(|name| match name_fault(name) {
            Some("is empty") => Some("is not relative, or has an empty part"),
            fault => fault,
        })
}

/// Why `name` cannot be that of something in a directory.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("is empty"),
        b"." | b".." => Some("is or has \".\" or \"..\""),
        name if name.contains(&b'/') => Some("has a slash"),
        name if name.contains(&0) => Some("has a zero byte"),
        name if name.len() > NAME_MAX => Some("has a part of more than 255 bytes"),
        _ => None,
    }
}
