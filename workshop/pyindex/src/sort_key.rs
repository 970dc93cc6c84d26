use crate::version_parts::{Phase, VersionParts};

/// A version as a number of 128 bits that sorts as PEP 440 orders versions.
///
/// A key is a row of tokens of 4 bits from the top bit on. Six tokens say what follows the release. The other ten say that
/// a number follows, and in how many bits:
///
/// | token | means |
/// |---|---|
/// | 0 | `.dev`, and its number |
/// | 1, 2, 3 | `a`, `b`, `rc`, and its number |
/// | 4 | nothing follows |
/// | 5 | `.post`, and its number |
/// | 6 to 15 | a number: the `WIDTHS` bits that follow are what it is more than all numbers of smaller tokens |
///
/// First is the epoch, then each number of the release without zeros at its end, then the suffixes. `1.0` is
/// `0 1 final`, and `1.0.1` is `0 1 0 1 final`: a release that goes on has a greater token at the place where another
/// ends. So comparing keys compares versions. Most versions need less than 60 bits.
///
/// 1. The lowest bit is set in keys of versions with a local label, and of those that need more than 127 bits.
/// 2. If two versions have different keys, they sort as their keys. If they have the same key, both have the lowest bit,
///    or they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey(pub(crate) u128);

/// What a key alone does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyFlags(pub(crate) u8);

impl KeyFlags {
    /// It is a pre-release or a development release.
    pub(crate) const PRE: u8 = 1;
    /// It has a local label.
    pub(crate) const LOCAL: u8 = 2;
    /// It does not fit into a key: the text decides.
    pub(crate) const LONG: u8 = 4;

    pub(crate) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

const DEV: u64 = 0;
const FINAL: u64 = 4;
const POST: u64 = 5;
const FIRST_NUMBER: u64 = 6;
/// How many bits follow the tokens of numbers. The seventh and eighth hold dates (20241231) and times in seconds.
const WIDTHS: [u32; 10] = [0, 1, 2, 4, 7, 10, 14, 25, 40, 64];

impl SortKey {
    /// The lowest bit.
    pub(crate) const MORE: u128 = 1;

    pub(crate) fn of(parts: &VersionParts<'_>) -> (Self, KeyFlags) {
        let tokens = Tokens::of(parts);
        let mut flags = 0;
        if parts.is_prerelease() {
            flags |= KeyFlags::PRE;
        }
        let mut key = tokens.bits;
        if parts.local.is_some() {
            flags |= KeyFlags::LOCAL;
            key |= Self::MORE;
        }
        if tokens.long {
            flags |= KeyFlags::LONG;
            key |= Self::MORE;
        }
        (Self(key), KeyFlags(flags))
    }
}

/// Tokens from the top bit of a key on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) bits: u128,
    used: u32,
    /// There was more than fits.
    pub(crate) long: bool,
}

impl Tokens {
    const ROOM: u32 = 127;

    pub(crate) fn of(parts: &VersionParts<'_>) -> Self {
        let mut tokens = Self::release(parts.epoch, parts.release());
        if let Some((phase, number)) = parts.pre {
            tokens.push(
                match phase {
                    Phase::Alpha => 1,
                    Phase::Beta => 2,
                    Phase::Candidate => 3,
                },
                4,
            );
            tokens.number(number);
        }
        if let Some(number) = parts.post {
            tokens.push(POST, 4);
            tokens.number(number);
        }
        match parts.dev {
            Some(number) => {
                tokens.push(DEV, 4);
                tokens.number(number);
            }
            None => tokens.push(FINAL, 4),
        }
        tokens
    }

    /// The tokens of the least version of a release, which is before its `.dev0`.
    pub(crate) fn least(epoch: u64, release: impl Iterator<Item = u64>) -> Self {
        let mut tokens = Self::release(epoch, release);
        tokens.push(DEV, 4);
        tokens
    }

    fn release(epoch: u64, release: impl Iterator<Item = u64>) -> Self {
        let mut tokens = Self {
            bits: 0,
            used: 0,
            long: false,
        };
        tokens.number(epoch);
        // Zeros at the end count for nothing, so they wait for a number that is none.
        let mut zeros = 0usize;
        for number in release {
            if number == 0 {
                zeros += 1;
                continue;
            }
            for _ in 0..std::mem::take(&mut zeros) {
                tokens.number(0);
            }
            tokens.number(number);
        }
        tokens
    }

    /// The least key of what is no earlier than `.dev0` of a final release, a phase or a post-release: its last token
    /// becomes that of a development release.
    pub(crate) fn before_development(&self) -> u128 {
        self.bits & !self.last_token()
    }

    /// The greatest key of a final release or a phase, its post-releases and their labels.
    pub(crate) fn after_posts(&self) -> u128 {
        let place = self.last_token();
        let post = (place & (place >> 3)) * u128::from(POST);
        (self.bits & !place) | post | (place & place.wrapping_neg()).wrapping_sub(1)
    }

    /// The bits of the last token.
    fn last_token(&self) -> u128 {
        0b1111 << (128 - self.used)
    }

    fn number(&mut self, number: u64) {
        let mut above = 0u128;
        for (token, width) in (FIRST_NUMBER..).zip(WIDTHS) {
            let next = above + (1u128 << width);
            if u128::from(number) < next {
                self.push(token, 4);
                // Less than 2^64, for `number` is.
                self.push(number - u64::try_from(above).unwrap_or(number), width);
                return;
            }
            above = next;
        }
    }

    fn push(&mut self, value: u64, width: u32) {
        let room = Self::ROOM - self.used;
        let value = u128::from(value);
        if width > room {
            self.bits |= (value >> (width - room)) << (128 - Self::ROOM);
            self.used = Self::ROOM;
            self.long = true;
        } else {
            self.used += width;
            self.bits |= value << (128 - self.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_name::FileName;
    use crate::project_name::ProjectName;
    use pep440_rs::Version;
    use proptest::prelude::*;
    use std::str::FromStr;

    fn key(text: &str) -> (SortKey, KeyFlags) {
        SortKey::of(&VersionParts::parse(text).unwrap())
    }

    /// Invariant 2, against another implementation.
    fn compare(a: &str, b: &str) {
        let (x, y) = (Version::from_str(a).unwrap(), Version::from_str(b).unwrap());
        let ((p, f), (q, g)) = (key(a), key(b));
        if p == q {
            assert!(x == y || (f.has(6) && g.has(6)), "{a} {b}");
        } else {
            assert_eq!(p.cmp(&q), x.cmp(&y), "{a} {b}");
        }
        if x == y {
            assert_eq!(p, q, "{a} {b}");
        }
        assert_eq!(f.has(KeyFlags::PRE), x.any_prerelease(), "{a}");
        assert_eq!(f.has(KeyFlags::LOCAL), x.is_local(), "{a}");
    }

    #[test]
    fn the_order_of_pep_440_is_that_of_keys() {
        let sorted = [
            "0",
            "0.0.1.dev0",
            "0.0.1",
            "1.dev1",
            "1.0a0.dev0",
            "1.0a0",
            "1.0a0.post0.dev1",
            "1.0a0.post0",
            "1a1",
            "1.0b2",
            "1.0rc1.dev2",
            "1.0rc1",
            "1",
            "1.0.post0.dev0",
            "1.0.post0",
            "1.0.post1",
            "1.0.1",
            "1.1.dev20240101",
            "1.1",
            "1.10",
            "1.1175",
            "1.20241231",
            "1.1.0.20240101120000",
            "2",
            "20240101120000",
            "18446744073709551615",
            "1!0",
            "1!2024.1",
        ];
        for a in sorted {
            for b in sorted {
                compare(a, b);
            }
            assert!(!key(a).1.has(KeyFlags::LONG), "{a}");
        }
    }

    #[test]
    fn what_does_not_fit_says_so_and_sorts_as_far_as_it_fits() {
        let long = "99999999999999999999.1";
        assert!(VersionParts::parse(long).is_none());
        let a = "1.99999999999999.99999999999999.1";
        let b = "1.99999999999999.99999999999999.2";
        assert!(key(a).1.has(KeyFlags::LONG));
        compare(a, b);
        compare(a, "1.99999999999999");
        compare(a, "1.99999999999999.99999999999998");
        compare(a, "2");
    }

    #[test]
    fn every_spelling_is_that_of_pep440_rs() {
        for text in [
            "v1.0",
            " 1.0 ",
            "1.0-1",
            "1.0-",
            "1.0.post",
            "1.0-r4",
            "1.0rev",
            "1.0.RC.2",
            "1.0_beta-3",
            "1.0c1",
            "1.0preview2",
            "1.0pre",
            "1.0alpha",
            "1.0.dev",
            "1.0+Ubuntu-1_2",
            "1.0+",
            "1.0+a..b",
            "1..0",
            "",
            "a",
            "1.0x",
            "1.0.",
            "01.002",
            "1!",
            "!1",
            "1.0a1-2.dev3",
            "1.0dev1a1",
            "1.0+1!2",
            "V2!1_a",
            "1.0a.",
            "1.0.post-",
            "1.0-a-",
        ] {
            let theirs = Version::from_str(text);
            let ours = VersionParts::parse(text);
            assert_eq!(ours.is_some(), theirs.is_ok(), "{text}: {theirs:?}");
            if theirs.is_ok() {
                compare(text, "1.0");
            }
        }
    }

    /// docs/pyindex.md has these figures.
    #[test]
    fn versions_of_real_projects_take_half_of_a_key() {
        let used = |text| Tokens::of(&VersionParts::parse(text).unwrap()).used;
        assert_eq!(used("2.31.0.20240406"), 57);
        assert_eq!(used("0.1.dev20240101120000"), 85);
        let mut versions = std::collections::BTreeSet::new();
        for (project, lines) in [
            (
                "cryptography",
                include_str!("../testdata/projects/cryptography.tsv"),
            ),
            ("numpy", include_str!("../testdata/projects/numpy.tsv")),
            ("pytz", include_str!("../testdata/projects/pytz.tsv")),
            (
                "setuptools",
                include_str!("../testdata/projects/setuptools.tsv"),
            ),
        ] {
            let project = ProjectName::parse(project).unwrap();
            let names = lines.lines().map(|line| line.split('\t').next().unwrap());
            let files = names.filter_map(|name| FileName::parse(name, &project).ok());
            versions.extend(files.map(|file| file.version));
        }
        assert!(
            versions
                .iter()
                .all(|version| !key(version).1.has(KeyFlags::LONG))
        );
        let most = versions.iter().map(|version| used(version)).max();
        assert_eq!((versions.len(), most), (941, Some(57)));
        let sorted: Vec<_> = versions.into_iter().collect();
        for pair in sorted.windows(2) {
            compare(pair[0], pair[1]);
        }
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..3u64,
            0..30u64,
            0..2000u64,
            20_000_000..20_400_000u64,
            any::<u64>()
        ]
    }

    fn version() -> impl Strategy<Value = String> {
        let suffix = |words: &'static [&'static str]| {
            prop_oneof![
                3 => Just(String::new()),
                1 => (prop::sample::select(words), number()).prop_map(|(word, number)| format!("{word}{number}"))
            ]
        };
        (
            prop_oneof![8 => Just(String::new()), 1 => (0..3u64).prop_map(|epoch| format!("{epoch}!"))],
            prop::collection::vec(prop_oneof![4 => 0..3u64, 1 => number()], 1..6),
            suffix(&["a", "b", "rc"]),
            suffix(&[".post"]),
            suffix(&[".dev"]),
            prop_oneof![6 => Just(""), 1 => Just("+cpu"), 1 => Just("+1.2")],
        )
            .prop_map(|(epoch, release, pre, post, dev, local)| {
                let release: Vec<_> = release.iter().map(u64::to_string).collect();
                format!("{epoch}{}{pre}{post}{dev}{local}", release.join("."))
            })
    }

    /// Every version string of 200 real projects: see `testdata/versions.py`.
    const VERSIONS: &str = include_str!("../testdata/versions.txt");

    #[test]
    fn real_versions_sort_as_their_keys() {
        let mut all: Vec<(&str, Version, SortKey)> = Vec::new();
        for text in VERSIONS.lines() {
            let parts = VersionParts::parse(text);
            let theirs = Version::from_str(text);
            assert_eq!(parts.is_some(), theirs.is_ok(), "{text}");
            if let (Some(parts), Ok(theirs)) = (parts, theirs) {
                let (key, flags) = SortKey::of(&parts);
                assert!(!flags.has(KeyFlags::LONG), "{text}");
                all.push((text, theirs, key));
            }
        }
        // docs/pyindex.md has these figures.
        let used = |text| Tokens::of(&VersionParts::parse(text).unwrap()).used;
        let most = all.iter().map(|(text, _, _)| used(text)).max();
        assert_eq!((all.len(), most), (8_166, Some(91)));
        all.sort_by(|a, b| a.1.cmp(&b.1));
        // Neighbours in the one order are so in the other, so all are.
        for pair in all.windows(2) {
            compare(pair[0].0, pair[1].0);
        }
        let by_version: Vec<_> = all.iter().map(|(_, _, key)| *key).collect();
        assert!(by_version.is_sorted());
        all.sort_by_key(|(_, _, key)| *key);
        let by_key: Vec<_> = all.iter().map(|(_, version, _)| version).collect();
        assert!(by_key.is_sorted());
        let any = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
        let config = ProptestConfig::with_cases(65_536);
        proptest::test_runner::TestRunner::new(config)
            .run(&any, |(a, b)| {
                compare(a.get(&all).0, b.get(&all).0);
                Ok(())
            })
            .unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn any_two_versions_sort_as_their_keys(a in version(), b in version()) {
            compare(&a, &b);
        }

        #[test]
        fn any_text_is_a_version_to_both_or_none(text in "[v0-9ab.rc!+_-]{0,12}") {
            // The other one refuses what is longer than it takes, in its own way.
            prop_assert_eq!(VersionParts::parse(&text).is_some(), Version::from_str(&text).is_ok());
        }
    }
}
