//! The steps of a path in an image.

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<N> {
    /// To the root of the image.
    Root,
    /// To the directory above.
    Up,
    /// To what has this name.
    Down(N),
}

/// The steps of `path`. Slashes separate them, on every system: names may have all other characters that systems use.
pub(super) fn steps(path: &[u8]) -> impl DoubleEndedIterator<Item = Step<&[u8]>> {
    let root = path.starts_with(b"/").then_some(Step::Root);
    let names = path.split(|&byte| byte == b'/');
    root.into_iter().chain(names.filter_map(|name| match name {
        b"" | b"." => None,
        b".." => Some(Step::Up),
        name => Some(Step::Down(name)),
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn steps_are_those_that_unix_sees() {
        for path in [
            "",
            "/",
            "//",
            ".",
            "..",
            "a",
            "/a",
            "a/",
            "a//b",
            "./a/./b/.",
            "/../a",
            "a/../b",
            "...",
            "a\\b",
            "C:/a",
        ] {
            let of_unix = Path::new(path).components().filter_map(|part| match part {
                Component::RootDir => Some(Step::Root),
                Component::ParentDir => Some(Step::Up),
                Component::Normal(name) => Some(Step::Down(name.as_bytes())),
                Component::CurDir | Component::Prefix(_) => None,
            });
            let ours: Vec<_> = steps(path.as_bytes()).collect();
            assert_eq!(ours, of_unix.collect::<Vec<_>>(), "{path:?}");
        }
    }
}
