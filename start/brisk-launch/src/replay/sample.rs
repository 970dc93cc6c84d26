//! A few pages and names of a profile, by which a start finds out whether all that it asks for is in memory.
//!
//! A replay finds that out, too, but it is a process that reads the whole profile, beside a program that needs the processor.
//! Asking for a sample takes some 0.1 ms, before there is another process.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_image::profile::{LookUp, PAGE, PageRange, Profile};
use brisk_io::ends_are_cached;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::look_ups::{self, look_ups};

/// If so many pages and so many names, spread over all, are in memory, all are.
const SAMPLES: usize = 16;

/// What a start learns from a sample, before there is another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// Whether all that the profile lists seems to be in memory.
    pub is_in_memory: bool,
    /// How long after its start the recorded launch asked for the last that the profile lists.
    pub lasts: Duration,
}

/// Pages and names, by absolute paths, and how long the launch goes on to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    sampled: Vec<Sampled>,
    lasts: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sampled {
    /// The page of a file at this offset.
    Page(u64, PathBuf),
    /// A name that is looked up. It may be absent.
    Name(PathBuf),
}

impl Sample {
    /// A sample of what is spread over the whole profile, whose roots are where they were recorded.
    pub fn of(profile: &Profile) -> Self {
        let path = |root: u32, path: &Path| {
            let root = profile.roots().get(root as usize)?;
            Some(root.path.join(path))
        };
        let page = |(range, page): (&PageRange, u64)| {
            let file = profile.files().get(range.file as usize)?;
            let offset = range.first.checked_add(page)?.checked_mul(PAGE)?;
            Some(Sampled::Page(offset, path(file.root, &file.path)?))
        };
        let ranges: Vec<_> = profile.ranges().map(|(_, range)| range).collect();
        let names: Vec<_> = look_ups(profile).map(|(_, look_up)| look_up).collect();
        let name = |look_up: &&LookUp| {
            let directory = profile.directories().get(look_up.directory as usize)?;
            let directory = path(directory.root, &directory.path)?;
            Some(Sampled::Name(directory.join(&look_up.name)))
        };
        let pages = spread_pages(&ranges).filter_map(page);
        let last = profile.steps().iter().map(|step| step.at).max();
        Self {
            sampled: pages.chain(spread(&names).filter_map(name)).collect(),
            lasts: Duration::from_micros(last.unwrap_or(0)),
        }
    }

    /// As text: the microseconds that the launch lasts, and a zero byte; then of each page its offset, or `-` for a name, a
    /// space, the path, and a zero byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\0", self.lasts.as_micros()).into_bytes();
        for sampled in &self.sampled {
            let (what, path) = match sampled {
                Sampled::Page(offset, path) => (offset.to_string(), path),
                Sampled::Name(path) => ("-".to_owned(), path),
            };
            bytes.extend(what.as_bytes());
            bytes.push(b' ');
            bytes.extend(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// None if the bytes are no sample.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut entries = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let lasts = std::str::from_utf8(entries.next()?).ok()?.parse().ok()?;
        let sampled = entries.map(|entry| {
            let at = entry.iter().position(|byte| *byte == b' ')?;
            let (what, path) = (entry.get(..at)?, entry.get(at + 1..)?);
            let path = PathBuf::from(OsStr::from_bytes(path));
            Some(match what {
                b"-" => Sampled::Name(path),
                offset => Sampled::Page(std::str::from_utf8(offset).ok()?.parse().ok()?, path),
            })
        });
        Some(Self {
            sampled: sampled.collect::<Option<_>>()?,
            lasts: Duration::from_micros(lasts),
        })
    }

    /// What it has found.
    pub fn look(&self) -> Look {
        Look {
            is_in_memory: self.is_in_memory(),
            lasts: self.lasts,
        }
    }

    /// Whether all of it is in memory. Where the system does not say, it is not. The search ends at the first thing that is
    /// not, so it costs little if there is something to replay.
    fn is_in_memory(&self) -> bool {
        !self.sampled.is_empty() && self.sampled.iter().all(is_in_memory)
    }
}

fn is_in_memory(sampled: &Sampled) -> bool {
    match sampled {
        Sampled::Page(offset, path) => {
            // Something else may have its name by now.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)
                .is_ok_and(|file| ends_are_cached(&File::from(file), *offset, 1) == Some(true))
        }
        Sampled::Name(path) => look_ups::is_in_memory(CWD, path, ResolveFlags::empty()),
    }
}

/// Up to [`SAMPLES`] of all, the same distance apart.
fn spread<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let samples = SAMPLES.min(all.len());
    (0..samples).filter_map(move |sample| all.get(sample * all.len() / samples))
}

/// The same of the pages of all ranges, each with its range and its place there.
fn spread_pages(ranges: &[PageRange]) -> impl Iterator<Item = (&PageRange, u64)> {
    let len = |range: &PageRange| range.end().saturating_sub(range.first);
    let total = ranges.iter().map(len).fold(0, u64::saturating_add);
    let samples = total.min(SAMPLES as u64);
    let mut sampled = (0..samples)
        .map(move |sample| sample * (total / samples))
        .peekable();
    let mut before = 0u64;
    ranges.iter().flat_map(move |range| {
        let first = before;
        before = before.saturating_add(len(range));
        let here: Vec<_> = std::iter::from_fn(|| sampled.next_if(|page| *page < before)).collect();
        here.into_iter().map(move |page| (range, page - first))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brisk_image::Limits;
    use brisk_io::measure::evict_and_prove;

    use super::*;

    fn sample_of(root: &Path, file: &str, names: &str) -> Sample {
        let root = root.display();
        let text = format!(
            r#"{{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["{root}", "directory"]], "directories": [[0, ""]], "files": [[0, "{file}", 131072, null]],
"steps": [["pages", 0, 0, 2, 1, 1], ["pages", 0, 30, 1, 7, 1]{names}]}}"#
        );
        let profile = Profile::from_text(text.as_bytes(), &Limits::of_profiles());
        Sample::of(&profile.expect("a profile"))
    }

    #[test]
    fn a_sample_is_what_was_written() {
        let sample = sample_of(
            Path::new("/a b"),
            "x",
            r#", ["absent", 0, "no", 1, 1], ["found", 0, "y z", 1, 1]"#,
        );
        let path = |name: &str| Path::new("/a b").join(name);
        let expected = [
            Sampled::Page(0, path("x")),
            Sampled::Page(PAGE, path("x")),
            Sampled::Page(30 * PAGE, path("x")),
            Sampled::Name(path("no")),
            Sampled::Name(path("y z")),
        ];
        assert_eq!(sample.sampled, expected);
        assert_eq!(sample.lasts, Duration::from_micros(7));
        assert_eq!(Sample::parse(&sample.to_bytes()), Some(sample));
        for wrong in [
            "",
            "0 x",
            "\0",
            "x y\0",
            "-\0",
            "0 a\0",
            "7",
            "7\0x y\0",
            "7\0 0 a\0b\0",
            "-1\0",
        ] {
            assert_eq!(Sample::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_in_memory_is_seen() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let tree = home.path().canonicalize().expect("there");
        let path = tree.join("app");
        fs::write(&path, vec![1; 128 << 10]).expect("room");
        let names = r#", ["found", 0, "app", 1, 1]"#;
        let sample = sample_of(&tree, "app", names);
        let file = File::open(&path).expect("there");
        evict_and_prove(&file).expect("it is ours");
        assert!(!sample.is_in_memory());
        fs::read(&path).expect("there");
        assert!(sample.is_in_memory());
        // Nobody has asked for this name yet.
        let absent = sample_of(&tree, "app", r#", ["absent", 0, "nothing", 1, 1]"#);
        assert!(!absent.is_in_memory());
        assert!(!tree.join("nothing").exists());
        assert!(absent.is_in_memory());
        assert!(!sample_of(&tree, "gone", "").is_in_memory());
        let nothing = Sample {
            sampled: Vec::new(),
            lasts: Duration::ZERO,
        };
        assert!(!nothing.look().is_in_memory);
    }
}
