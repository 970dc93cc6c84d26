//! Patterns of paths, as `fnmatch` takes them with `FNM_PATHNAME`, which is what other AppImages use.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Whether a path matches: each name of it matches the part of the pattern at its place.
///
/// `*` stands for any bytes, `?` for one, `[a-z]` for one of these and `[!a-z]` for any other, and a backslash takes its meaning from
/// what follows. Slashes at both ends of the pattern are left out.
pub(crate) fn matches(pattern: &OsStr, path: &OsStr) -> bool {
    let slash = |byte: &u8| *byte == b'/';
    let trimmed = pattern.as_bytes();
    let trimmed = trimmed.strip_prefix(b"/").unwrap_or(trimmed);
    let trimmed = trimmed.strip_suffix(b"/").unwrap_or(trimmed);
    let (mut patterns, mut names) = (trimmed.split(slash), path.as_bytes().split(slash));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if matches_name(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Each star first stands for nothing. Where the rest does not match, the last star stands for one byte more.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut left, mut name) = (pattern, name);
    let mut last_star: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (left, name) {
            ([b'*', rest @ ..], _) => {
                last_star = Some((rest, name));
                Some((rest, name))
            }
            ([], []) => return true,
            (_, []) => return false,
            (_, [byte, behind @ ..]) => one(left, *byte).map(|rest| (rest, behind)),
        };
        (left, name) = match (step, last_star) {
            (Some(step), _) => step,
            (None, Some((rest, [_, behind @ ..]))) => {
                last_star = Some((rest, behind));
                (rest, behind)
            }
            (None, _) => return false,
        };
    }
}

/// The rest of a pattern whose first part is no star, if that part matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', set @ ..] => match in_set(set, byte) {
            Some((yes, rest)) => yes.then_some(rest),
            // Without an end it is a bracket.
            None => (byte == b'[').then_some(set),
        },
        [b'\\', given, rest @ ..] | [given, rest @ ..] => (*given == byte).then_some(rest),
        [] => None,
    }
}

/// Whether a byte is in a set, and what follows that. None if the set has no end.
fn in_set(set: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (is_other, mut set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let (mut found, mut is_first) = (false, true);
    loop {
        set = match set {
            [b']', rest @ ..] if !is_first => return Some((found != is_other, rest)),
            [from, b'-', to, rest @ ..] if *to != b']' => {
                found |= (*from..=*to).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                rest
            }
            [] => return None,
        };
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_says() {
        for (pattern, path, expected) in [
            ("usr", "usr", true),
            ("usr", "usr/bin", false),
            ("/usr/", "usr", true),
            ("*", "usr", true),
            ("*", "usr/bin", false),
            ("usr/*", "usr/bin", true),
            ("*.desktop", "app.desktop", true),
            ("*.desktop", "app.desktop.old", false),
            ("u?r/b*n", "usr/bin", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "a", false),
            ("**", "", true),
        ] {
            let found = matches(OsStr::new(pattern), OsStr::new(path));
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }
}
