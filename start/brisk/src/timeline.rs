//! What a launch asked for, in order, for pictures.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use brisk_image::profile::Profile;
use brisk_launch::PageEvent;
use serde::{Deserialize, Serialize};

/// How many ranges of a [`Filling`] a picture can show.
const MARKS: usize = 4000;

/// The ranges of a profile, in the order of their first touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// All files of the profile, in the order of their first touch.
    pub files: Vec<TouchedFile>,
    /// The first ranges, in that order.
    pub touches: Vec<TouchedRange>,
    /// How many ranges are missing after the last of `touches`.
    pub left_out: usize,
}

/// A launch whose fill or replay was recorded. Its pages are in the files of its [`Timeline`]. Its times are
/// in microseconds since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// The name of the row that was launched.
    pub name: String,
    /// Microseconds until the program was ready.
    pub ready: u64,
    /// Pages that brisk stored in the page cache, or asked the kernel for, ahead of the program.
    pub stored: Vec<TouchedRange>,
    /// Pages that the program waited for, with what the kernel read ahead of them. None if that is not known.
    pub waited: Option<Vec<TouchedRange>>,
    /// How many pages the program waited for in other files.
    pub elsewhere: u64,
    /// How many later events are missing here. Older results do not have this field.
    #[serde(default)]
    pub left_out: u64,
}

impl Filling {
    /// Of a launch that started at `started` and took `time`. `events` are those of a fill; `left_out` counts
    /// the events after the last of them.
    pub fn of(
        name: String,
        time: Duration,
        started: Duration,
        events: &[PageEvent],
        left_out: u64,
        timeline: &Timeline,
    ) -> Self {
        let files = (0..).zip(&timeline.files);
        let numbers: HashMap<&str, u32> = files.map(|(n, file)| (&*file.path, n)).collect();
        let (mut stored, mut waited) = (Vec::new(), Vec::new());
        let mut elsewhere = 0;
        for event in events {
            // The timeline has paths in this form.
            let path = event.path.as_deref().map(Path::to_string_lossy);
            let range = path.and_then(|path| numbers.get(&*path)).map(|file| {
                let at = event.at.saturating_sub(started).as_micros();
                TouchedRange {
                    file: *file,
                    first: event.first,
                    count: event.count,
                    at: u64::try_from(at).unwrap_or(u64::MAX),
                }
            });
            match (event.ahead, range) {
                (true, Some(range)) => stored.push(range),
                (false, Some(range)) => waited.push(range),
                (true, None) => {}
                (false, None) => elsewhere += event.count,
            }
        }
        Self {
            name,
            ready: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            stored: coarse(stored),
            waited: Some(coarse(waited)),
            elsewhere,
            left_out,
        }
    }
}

/// Joins ranges of one file that follow each other in time, until at most [`MARKS`] are left, and one more
/// for each file. A joined range keeps its number of pages, so the picture shows them only about where they
/// are.
fn coarse(ranges: Vec<TouchedRange>) -> Vec<TouchedRange> {
    let together = ranges.len().div_ceil(MARKS).max(1);
    let mut by_file: BTreeMap<u32, Vec<TouchedRange>> = BTreeMap::new();
    for range in ranges {
        by_file.entry(range.file).or_default().push(range);
    }
    let mut joined: Vec<TouchedRange> = Vec::new();
    for part in by_file.values().flat_map(|ranges| ranges.chunks(together)) {
        let first = part.iter().map(|range| range.first).min();
        let count = part.iter().map(|range| range.count).sum();
        joined.extend(part.last().zip(first).map(|(last, first)| TouchedRange {
            first,
            count,
            ..*last
        }));
    }
    joined.sort_by_key(|range| range.at);
    joined
}

/// A file that a launch asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedFile {
    /// Its path, for people.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A range of pages that a launch asked for. In JSON it is a text of four numbers, because there are
/// thousands of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TouchedRange {
    /// Index of the file.
    pub file: u32,
    /// The first page.
    pub first: u64,
    /// How many pages it has.
    pub count: u64,
    /// Microseconds since the start of the recording. A recording takes longer than a launch.
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
    /// All files of `profile`, and its first `most` ranges.
    pub fn of(profile: &Profile, most: usize) -> Self {
        let mut timeline = Self::default();
        // Numbered in the order of first touch.
        let mut numbers = vec![None; profile.files().len()];
        for (step, range) in profile.ranges() {
            let file = usize::try_from(range.file).ok();
            let Some((slot, file)) =
                file.and_then(|file| Some((numbers.get_mut(file)?, profile.files().get(file)?)))
            else {
                continue;
            };
            let next = u32::try_from(timeline.files.len()).unwrap_or(u32::MAX);
            let number = *slot.get_or_insert(next);
            if number == next {
                let path = profile.shown_path(file);
                timeline.files.push(TouchedFile {
                    path: path.to_string_lossy().into_owned(),
                    len: file.len,
                });
            }
            if timeline.touches.len() == most {
                timeline.left_out += 1;
                continue;
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
    use brisk_image::profile::{Named, PAGE, ProfileBuilder, RootKind};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_filling_is_of_the_files_of_its_timeline() {
        let file = |path: &str| TouchedFile {
            path: path.to_owned(),
            len: 1 << 30,
        };
        let timeline = Timeline {
            files: vec![file("a"), file("b")],
            ..Timeline::default()
        };
        let event =
            |at: u64, word: &str, first: u64, path: &str| format!("{word} {at} {first} 2 {path}\0");
        let mut log: String = (0..9000)
            .map(|n| event(1000 + n, "ahead", n * 2, "b"))
            .collect();
        log += &event(1500, "asked", 4, "a");
        log += &event(1600, "asked", 4, "none");
        log += &event(1700, "asked", 4, "");
        let events = PageEvent::list((log + "left out 7\0end\0").as_bytes());
        let (events, left_out) = events.unwrap();
        let [time, started] = [5, 1].map(Duration::from_millis);
        let filling = Filling::of("x".to_owned(), time, started, &events, left_out, &timeline);
        assert_eq!((filling.ready, filling.elsewhere), (5000, 4));
        assert_eq!(filling.left_out, 7);
        let range = |file, first, count, at| TouchedRange {
            file,
            first,
            count,
            at,
        };
        assert_eq!(filling.waited, Some(vec![range(0, 4, 2, 500)]));
        // The three became one, and no page is lost.
        assert_eq!(filling.stored.len(), 3000);
        assert_eq!(filling.stored[1], range(1, 6, 6, 5));
    }

    #[test]
    fn ranges_of_files_in_turns_are_joined_too() {
        let ranges = (0..3 * MARKS as u64).map(|n| TouchedRange {
            file: u32::from(n % 2 == 1),
            first: n / 2,
            count: 1,
            at: n,
        });
        let joined = coarse(ranges.collect());
        assert!(joined.len() <= MARKS + 2, "{}", joined.len());
        let pages: u64 = joined.iter().map(|range| range.count).sum();
        assert_eq!(pages, 3 * MARKS as u64);
        assert!(joined.is_sorted_by_key(|range| range.at));
    }

    #[test]
    fn names_that_are_no_text_are_found() {
        let name = OsStr::from_bytes(b"a\xff");
        let timeline = Timeline {
            files: vec![TouchedFile {
                path: name.to_string_lossy().into_owned(),
                len: 4096,
            }],
            ..Timeline::default()
        };
        let (events, _) = PageEvent::list(b"asked 1 0 1 a\xff\0end\0").unwrap();
        let [time, started] = [Duration::ZERO; 2];
        let filling = Filling::of("x".to_owned(), time, started, &events, 0, &timeline);
        assert_eq!((filling.waited.unwrap().len(), filling.elsewhere), (1, 0));
    }

    #[test]
    fn files_are_numbered_as_they_are_touched() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/tree", RootKind::Directory);
        for (id, page, at) in [(2, 5, 1), (1, 0, 2), (2, 0, 3), (1, 3, 4)] {
            let at = Duration::from_micros(at);
            builder.range(root, id, page * PAGE, PAGE, at);
        }
        let name = |_, id: u64| {
            Some(Named::new(
                ["b", "a"][usize::try_from(id).ok()?.checked_sub(1)?],
                6 * PAGE,
            ))
        };
        let profile = builder.finish(Vec::new(), None, name).unwrap().profile;
        let names = |timeline: &Timeline| -> Vec<String> {
            let files = timeline.files.iter();
            files.map(|file| file.path.clone()).collect()
        };
        // A file that is first touched after the last range that is kept is still listed.
        let first = Timeline::of(&profile, 1);
        assert_eq!((first.touches.len(), first.left_out), (1, 3));
        assert_eq!(names(&first), ["a", "b"]);
        let timeline = Timeline::of(&profile, 3);
        assert_eq!(names(&timeline), ["a", "b"]);
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
