//! What a launch asked for, in the order in which it did: what pictures of it are made of.

use std::path::PathBuf;

use brisk_image::Profile;
use serde::{Deserialize, Serialize};

/// The ranges of a profile, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// In the order of their first touch.
    pub files: Vec<TouchedFile>,
    pub touches: Vec<TouchedRange>,
    /// Ranges behind the last that is kept.
    pub left_out: usize,
}

/// A file of which something was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedFile {
    pub path: String,
    /// Bytes.
    pub len: u64,
}

/// Pages that were asked for. In JSON a text of four numbers: there are thousands of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TouchedRange {
    /// The number of the file.
    pub file: u32,
    pub first: u64,
    pub count: u64,
    /// Microseconds since the start of the recording, which takes longer than a launch.
    pub at: u64,
}

impl TryFrom<String> for TouchedRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut numbers = text.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let range = (|| {
            Some(Self {
                file: u32::try_from(next()?).ok()?,
                first: next()?,
                count: next()?,
                at: next()?,
            })
        })();
        range.ok_or_else(|| {
            format!("touch: found {text:?}, allowed are file, first page, pages and microseconds")
        })
    }
}

impl From<TouchedRange> for String {
    fn from(range: TouchedRange) -> Self {
        let TouchedRange {
            file,
            first,
            count,
            at,
        } = range;
        format!("{file} {first} {count} {at}")
    }
}

impl Timeline {
    /// Of `profile`, the first `most` ranges.
    pub fn of(profile: &Profile, most: usize) -> Self {
        let mut timeline = Self::default();
        // Numbers in the order of first touch.
        let mut numbers = vec![None; profile.files().len()];
        for (step, range) in profile.ranges() {
            if timeline.touches.len() == most {
                timeline.left_out += 1;
                continue;
            }
            let file = usize::try_from(range.file).ok();
            let Some((slot, file)) =
                file.and_then(|file| Some((numbers.get_mut(file)?, profile.files().get(file)?)))
            else {
                continue;
            };
            let next = u32::try_from(timeline.files.len()).unwrap_or(u32::MAX);
            let number = *slot.get_or_insert(next);
            if number == next {
                let root = usize::try_from(file.root)
                    .ok()
                    .and_then(|root| profile.roots().get(root));
                // Of several trees, which one.
                let path = match root {
                    Some(root) if profile.roots().len() > 1 => root.path.join(&file.path),
                    _ => PathBuf::from(&file.path),
                };
                timeline.files.push(TouchedFile {
                    path: path.to_string_lossy().into_owned(),
                    len: file.len,
                });
            }
            timeline.touches.push(TouchedRange {
                file: number,
                first: range.first,
                count: range.count,
                at: step.at,
            });
        }
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::{Named, PAGE, ProfileBuilder, RootKind};
    use std::time::Duration;

    #[test]
    fn files_are_numbered_as_they_are_touched() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/tree", RootKind::Directory);
        for (id, page, at) in [(2, 5, 1), (1, 0, 2), (2, 0, 3), (1, 3, 4)] {
            let at = Duration::from_micros(at);
            builder.range(root, id, page * PAGE, PAGE, at);
        }
        let name = |_, id: u64| {
            Some(Named {
                path: ["b", "a"][usize::try_from(id).ok()?.checked_sub(1)?].into(),
                len: 6 * PAGE,
                digest: None,
            })
        };
        let profile = builder.finish(Vec::new(), None, name).unwrap().profile;
        let timeline = Timeline::of(&profile, 3);
        let names: Vec<_> = timeline.files.iter().map(|file| &*file.path).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(timeline.left_out, 1);
        let json = serde_json::to_string(&timeline.touches).unwrap();
        assert_eq!(json, r#"["0 5 1 1","1 0 1 2","0 0 1 3"]"#);
        let read: Vec<TouchedRange> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, timeline.touches);
        for odd in ["\"\"", "\"1 2 3\"", "\"4294967296 0 0 0\"", "\"0 -1 0 0\""] {
            let e = serde_json::from_str::<TouchedRange>(odd).unwrap_err();
            assert!(e.to_string().starts_with("touch: found "), "{e}");
        }
    }
}
