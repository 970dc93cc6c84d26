use std::fmt;

use crate::file_name::Tail;

/// Which wheels an interpreter takes, and which it takes rather: the tags of PEP 425, in the order of `packaging` and pip.
///
/// A tag is a Python with an ABI, and a platform. So the list of some thousand tags is not made: a wheel's place in it
/// follows from the place of the pair and that of the platform.
#[derive(Debug, Clone)]
pub struct Tags {
    /// Sorted by their words.
    pairs: Vec<Pair>,
    /// Sorted by name, with their places.
    platforms: Vec<(String, u32)>,
    /// How many pairs stand with platforms: those with `any` come after all of them.
    with_platforms: u32,
}

#[derive(Debug, Clone)]
struct Pair {
    python: String,
    abi: String,
    /// None if one of the two is long.
    words: Option<(Word, Word)>,
    /// Its place among the pairs with a platform.
    on_platforms: Option<u32>,
    /// Its place among the pairs with `any`.
    anywhere: Option<u32>,
}

/// A name of at most 15 bytes and its length, as a number that costs less to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Word(u128);

impl Word {
    fn of(name: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        let (last, text) = bytes.split_last_mut()?;
        text.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        *last = u8::try_from(name.len()).ok()?;
        Some(Self(u128::from_ne_bytes(bytes)))
    }
}

/// An interpreter, as far as wheels know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// `cp` or `pp`, or the name of another one.
    pub implementation: String,
    /// 3 and 12.
    pub version: (u32, u32),
    /// Such as `cp312`, `cp313t`, `pypy310_pp73`.
    pub abis: Vec<String>,
    /// Its platforms, the closest first: see [`platforms`].
    pub platforms: Vec<String>,
}

impl Interpreter {
    /// A CPython of this version with its usual ABI.
    pub fn cpython(version: (u32, u32), platforms: Vec<String>) -> Self {
        // Up to 3.7, the ABI had an m for the allocator of memory.
        let allocator = if version < (3, 8) { "m" } else { "" };
        Self {
            implementation: "cp".to_owned(),
            version,
            abis: vec![format!("cp{}{}{allocator}", version.0, version.1)],
            platforms,
        }
    }
}

impl Tags {
    /// The tags of an interpreter.
    pub fn of(interpreter: &Interpreter) -> Self {
        let (major, minor) = interpreter.version;
        let mut tags = Self {
            pairs: Vec::new(),
            platforms: Vec::new(),
            with_platforms: 0,
        };
        for (place, platform) in (0..).zip(&interpreter.platforms) {
            if !tags.platforms.iter().any(|(known, _)| known == platform) {
                tags.platforms.push((platform.clone(), place));
            }
        }
        tags.platforms.sort();

        let own = format!("{}{major}{minor}", interpreter.implementation);
        let stable = |abi: &String| abi == "abi3" || abi == "abi3t" || abi == "none";
        for abi in interpreter.abis.iter().filter(|abi| !stable(abi)) {
            tags.on_platforms(&own, abi);
        }
        if interpreter.implementation == "cp" {
            let free_threaded = interpreter.abis.first().is_some_and(|abi| {
                abi.strip_prefix(&*own)
                    .is_some_and(|abi| abi.starts_with('t'))
            });
            let stable = if free_threaded { "abi3t" } else { "abi3" };
            let applies = (major, minor) >= (3, 2);
            if applies {
                tags.on_platforms(&own, stable);
            }
            tags.on_platforms(&own, "none");
            if applies {
                for minor in (2..minor).rev() {
                    tags.on_platforms(&format!("cp{major}{minor}"), stable);
                }
            }
        } else {
            tags.on_platforms(&own, "none");
        }
        let mut pure = vec![format!("py{major}{minor}"), format!("py{major}")];
        pure.extend((0..minor).rev().map(|minor| format!("py{major}{minor}")));
        for python in &pure {
            tags.on_platforms(python, "none");
        }
        for (place, python) in (0..).zip(std::iter::once(&own).chain(&pure)) {
            tags.pair(python, "none").anywhere = Some(place);
        }
        tags.pairs.sort_by_key(|pair| pair.words);
        tags
    }

    fn on_platforms(&mut self, python: &str, abi: &str) {
        let place = self.with_platforms;
        let pair = self.pair(python, abi);
        if pair.on_platforms.is_none() {
            pair.on_platforms = Some(place);
            self.with_platforms += 1;
        }
    }

    fn pair(&mut self, python: &str, abi: &str) -> &mut Pair {
        let known = self
            .pairs
            .iter()
            .position(|pair| pair.python == python && pair.abi == abi);
        let at = known.unwrap_or_else(|| {
            self.pairs.push(Pair {
                python: python.to_owned(),
                abi: abi.to_owned(),
                words: Word::of(python).zip(Word::of(abi)),
                on_platforms: None,
                anywhere: None,
            });
            self.pairs.len() - 1
        });
        &mut self.pairs[at]
    }

    /// The best place among the tags of what a wheel's name says: 0 is the best tag of all. None if it has none of them.
    pub(crate) fn place(&self, pythons: &str, abis: &str, platforms: &str) -> Option<u32> {
        let mut best = None;
        for python in pythons.split('.') {
            for abi in abis.split('.') {
                let Some(&Pair {
                    on_platforms,
                    anywhere,
                    ..
                }) = self.known_pair(python, abi)
                else {
                    continue;
                };
                for platform in platforms.split('.') {
                    let place = if platform == "any" {
                        anywhere.and_then(|place| self.across(self.with_platforms, place))
                    } else {
                        on_platforms.and_then(|pair| self.across(pair, self.platform(platform)?))
                    };
                    best = match (best, place) {
                        (Some(best), Some(place)) => Some(std::cmp::min::<u32>(best, place)),
                        (best, place) => best.or(place),
                    };
                }
            }
        }
        best
    }

    fn known_pair(&self, python: &str, abi: &str) -> Option<&Pair> {
        let at = match Word::of(python).zip(Word::of(abi)) {
            Some(words) => self
                .pairs
                .binary_search_by_key(&Some(words), |pair| pair.words)
                .ok(),
            None => self
                .pairs
                .iter()
                .position(|pair| pair.python == python && pair.abi == abi),
        };
        at.and_then(|at| self.pairs.get(at))
    }

    /// The place of a tag whose pair has so many before it, each on all platforms.
    fn across(&self, pairs: u32, place: u32) -> Option<u32> {
        let platforms = u32::try_from(self.platforms.len()).ok()?;
        pairs.checked_mul(platforms)?.checked_add(place)
    }

    fn platform(&self, name: &str) -> Option<u32> {
        let at = self
            .platforms
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
            .ok()?;
        Some(self.platforms[at].1)
    }

    /// The place of a wheel of this name's end. None if it is no wheel, or none for this interpreter.
    pub fn place_of(&self, tail: &str) -> Option<u32> {
        match Tail::parse(tail)? {
            Tail::Wheel {
                pythons,
                abis,
                platforms,
                ..
            } => self.place(pythons, abis, platforms),
            Tail::Sdist(_) => None,
        }
    }
}

/// A platform that has no tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformError(String);

impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no platform; write a tag such as manylinux_2_28_x86_64, musllinux_1_2_aarch64, macosx_14_0_arm64, win_amd64, ios_13_0_arm64_iphoneos or android_24_arm64_v8a",
            self.0
        )
    }
}

impl std::error::Error for PlatformError {}

/// The tags of a platform and of all older ones whose wheels it takes, the closest first (PEP 600, 656, 730, 738, and what
/// `packaging` says of macOS).
///
/// # Errors
///
/// If the tag has other characters than lower-case letters, digits and underscores, or numbers that are none.
pub fn platforms(tag: &str) -> Result<Vec<String>, PlatformError> {
    let error = || PlatformError(tag.chars().take(100).collect());
    let tag = &*tag.to_ascii_lowercase().replace(['-', '.'], "_");
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if tag.is_empty() || tag == "any" || !tag.bytes().all(valid) {
        return Err(error());
    }
    for (legacy, minor) in LEGACY {
        if let Some(arch) = tag
            .strip_prefix(legacy)
            .and_then(|rest| rest.strip_prefix('_'))
        {
            return Ok(manylinux(2, minor, arch));
        }
    }
    let numbered = |prefix: &str| -> Option<Result<(u32, u32, String), PlatformError>> {
        let mut parts = tag.strip_prefix(prefix)?.splitn(3, '_');
        let mut number = || {
            parts
                .next()?
                .parse()
                .ok()
                .filter(|number: &u32| *number < 1000)
        };
        let (major, minor) = (number(), number());
        let arch = parts.next().filter(|arch| !arch.is_empty());
        Some(match (major, minor, arch) {
            (Some(major), Some(minor), Some(arch)) => Ok((major, minor, arch.to_owned())),
            _ => Err(error()),
        })
    };
    if let Some(parts) = numbered("manylinux_") {
        let (major, minor, arch) = parts?;
        return Ok(manylinux(major, minor, &arch));
    }
    if let Some(parts) = numbered("musllinux_") {
        let (major, minor, arch) = parts?;
        return Ok((0..=minor)
            .rev()
            .map(|minor| format!("musllinux_{major}_{minor}_{arch}"))
            .collect());
    }
    if let Some(parts) = numbered("macosx_") {
        let (major, minor, arch) = parts?;
        return Ok(macos(major, minor, &arch));
    }
    if let Some(parts) = numbered("ios_") {
        let (major, minor, arch) = parts?;
        let of = |major: u32, minors: u32| {
            let arch = &arch;
            (0..=minors)
                .rev()
                .map(move |minor| format!("ios_{major}_{minor}_{arch}"))
                .collect::<Vec<_>>()
        };
        let older = (12..major).rev().flat_map(|major| of(major, 9));
        return Ok(of(major, minor).into_iter().chain(older).collect());
    }
    if let Some(rest) = tag.strip_prefix("android_") {
        let (level, abi) = rest.split_once('_').ok_or_else(error)?;
        let level = level
            .parse::<u32>()
            .ok()
            .filter(|level| (16..1000).contains(level))
            .ok_or_else(error)?;
        return Ok((16..=level)
            .rev()
            .map(|level| format!("android_{level}_{abi}"))
            .collect());
    }
    Ok(vec![tag.to_owned()])
}

/// The old names of some manylinux tags, and their minor versions of glibc.
const LEGACY: [(&str, u32); 3] = [
    ("manylinux2014", 17),
    ("manylinux2010", 12),
    ("manylinux1", 5),
];

fn manylinux(major: u32, minor: u32, arch: &str) -> Vec<String> {
    let oldest = if matches!(arch, "x86_64" | "i686") {
        5
    } else {
        17
    };
    let mut all = Vec::new();
    for minor in (oldest..=minor).rev() {
        all.push(format!("manylinux_{major}_{minor}_{arch}"));
        let legacy = LEGACY.iter().find(|(_, of)| major == 2 && *of == minor);
        all.extend(legacy.map(|(name, _)| format!("{name}_{arch}")));
    }
    all
}

fn macos(major: u32, minor: u32, arch: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |major: u32, minor: u32, formats: &[&str]| {
        all.extend(
            formats
                .iter()
                .map(|format| format!("macosx_{major}_{minor}_{format}")),
        );
    };
    let formats = |major: u32, minor: u32| -> Vec<&str> {
        let old = (major, minor) < (10, 4);
        match arch {
            "x86_64" if old => vec![],
            "x86_64" => vec![
                "x86_64",
                "intel",
                "fat64",
                "fat3",
                "universal2",
                "universal",
            ],
            "i386" if old => vec![],
            "i386" => vec!["i386", "intel", "fat3", "fat", "universal"],
            "arm64" => vec!["arm64", "universal2"],
            other => vec![other],
        }
    };
    if major <= 10 {
        for minor in (0..=minor).rev() {
            add(major, minor, &formats(major, minor));
        }
        return all;
    }
    for major in (11..=major).rev() {
        add(major, 0, &formats(major, 0));
    }
    for minor in (4..=16).rev() {
        let before = formats(10, minor);
        add(
            10,
            minor,
            if arch == "x86_64" {
                &before
            } else {
                &["universal2"]
            },
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `packaging` yields, one interpreter after another: see `testdata/tags.py`.
    const PACKAGING: &str = include_str!("../testdata/tags.txt");

    #[test]
    fn tags_have_the_order_of_packaging() {
        let mut compared = 0;
        for block in PACKAGING
            .split("\n\n")
            .map(str::trim_ascii)
            .filter(|block| !block.is_empty())
        {
            let mut lines = block.lines();
            let about: Vec<_> = lines.next().unwrap().split(' ').collect();
            let interpreter = Interpreter {
                implementation: about[0].to_owned(),
                version: (3, about[1].parse().unwrap()),
                abis: vec![about[2].to_owned()],
                platforms: platforms(about[3]).unwrap(),
            };
            let tags = Tags::of(&interpreter);
            let mut last = None;
            for line in lines {
                let place = tags.place_of(&format!("-{line}.whl"));
                assert!(place.is_some(), "{about:?}: {line}");
                assert!(place > last, "{about:?}: {line}");
                last = place;
                compared += 1;
            }
            // There are no others.
            let all = tags.pairs.iter().map(|pair| {
                let on_platforms = pair.on_platforms.map_or(0, |_| tags.platforms.len());
                on_platforms + usize::from(pair.anywhere.is_some())
            });
            assert_eq!(all.sum::<usize>(), block.lines().count() - 1, "{about:?}");
        }
        assert!(compared > 5_000, "{compared}");
    }

    #[test]
    fn wheels_have_the_best_of_their_tags() {
        let tags = Tags::of(&Interpreter::cpython(
            (3, 12),
            platforms("manylinux_2_28_x86_64").unwrap(),
        ));
        let place = |tail: &str| tags.place_of(tail);
        assert!(place("-cp312-cp312-manylinux_2_28_x86_64.whl") == Some(0));
        assert!(
            place("-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
                < place("-cp38-abi3-manylinux2014_x86_64.whl")
        );
        assert!(place("-py2.py3-none-any.whl") == place("-py3-none-any.whl"));
        assert!(place("-cp312-none-any.whl") < place("-py3-none-any.whl"));
        for none in [
            "-cp311-cp311-manylinux2014_x86_64.whl",
            "-cp312-cp312-win_amd64.whl",
            "-cp312-cp312-any.whl",
            ".tar.gz",
            "",
        ] {
            assert_eq!(place(none), None, "{none}");
        }
    }

    #[test]
    fn names_of_any_length_are_compared() {
        let long = "graalpy240_311_native";
        let tags = Tags::of(&Interpreter {
            implementation: "graalpy".to_owned(),
            version: (3, 11),
            abis: vec![long.to_owned()],
            platforms: platforms("manylinux_2_28_x86_64").unwrap(),
        });
        let place = |tail: &str| tags.place_of(&format!("-{tail}-manylinux2014_x86_64.whl"));
        assert!(place(&format!("graalpy311-{long}")) < place("graalpy311-none"));
        assert!(place("py3-none").is_some());
        for none in [
            "graalpy311-graalpy240_311_nativ",
            "py3\0-none",
            "py3-none\0",
            "-",
            "py3-",
        ] {
            assert_eq!(place(none), None, "{none:?}");
        }
    }

    #[test]
    fn what_is_no_platform_is_named() {
        for wrong in [
            "",
            "any",
            "macosx_14",
            "manylinux_2_x_x86_64",
            "android_x",
            "win amd64",
            "manylinux_2_99999999_x86_64",
        ] {
            let e = platforms(wrong).unwrap_err().to_string();
            assert!(
                e.starts_with(&format!("{wrong:?} is no platform; write a tag such as ")),
                "{e}"
            );
        }
    }
}
