use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use pep440_rs::Version;

use crate::sort_key::{KeyFlags, SortKey, Tokens};
use crate::version_parts::VersionParts;

/// What a requirement allows, as ranges of sort keys: `>=1.26,<3,!=2.0`.
///
/// Each clause is one range, or all but one range. So a candidate is compared with two numbers a clause, and nothing is
/// allocated. What does not fit into keys is compared as text. The rules are those of
/// `packaging` 26.
#[derive(Debug, Clone)]
pub struct Specifiers {
    text: String,
    clauses: Vec<Span>,
    /// What no key outside of matches, whatever the clauses.
    least: u128,
    greatest: u128,
    /// Whether a clause names a pre-release.
    names_prerelease: bool,
    /// Whether a clause says `==` of a whole version, or `===`.
    pins: bool,
}

/// A clause of [`Specifiers`], and where its text is.
#[derive(Debug, Clone, Copy)]
struct Span {
    key: KeyRange,
    start: usize,
    end: usize,
}

/// Specifiers that are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecifierError {
    clause: String,
    why: &'static str,
}

impl fmt::Display for SpecifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the version specifier {:?} {}", self.clause, self.why)
    }
}

impl std::error::Error for SpecifierError {}

impl Default for Specifiers {
    /// Every version.
    fn default() -> Self {
        Self {
            text: String::new(),
            clauses: Vec::new(),
            least: 0,
            greatest: u128::MAX,
            names_prerelease: false,
            pins: false,
        }
    }
}

impl Specifiers {
    /// Parses clauses that commas separate. No clause at all allows every version.
    ///
    /// # Errors
    ///
    /// The first clause that is none, and why.
    pub fn parse(text: &str) -> Result<Self, SpecifierError> {
        let mut all = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for clause in clauses(text) {
            let clause = clause?;
            all.names_prerelease |= clause.names_prerelease();
            all.pins |= clause.pins();
            if clause.key.plain && !clause.key.outside {
                // A version that does not fit has the lowest bit, whatever it is compared with.
                all.least = all.least.max(clause.key.least & !SortKey::MORE);
                all.greatest = all.greatest.min(clause.key.greatest | SortKey::MORE);
            }
            all.clauses.push(Span {
                key: clause.key,
                start: clause.start,
                end: clause.start + clause.text.len(),
            });
        }
        Ok(all)
    }

    /// The clauses, as they were spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The least and the greatest key that can match.
    pub(crate) fn bounds(&self) -> (u128, u128) {
        (self.least, self.greatest)
    }

    /// Whether pre-releases match that nobody asked for otherwise.
    pub(crate) fn names_prerelease(&self) -> bool {
        self.names_prerelease
    }

    /// Whether one version is named, so that it may be a yanked one.
    pub(crate) fn pins(&self) -> bool {
        self.pins
    }

    /// Whether a version is allowed. Its text is asked for only where its key does not decide.
    pub(crate) fn allow<'a>(
        &self,
        key: SortKey,
        flags: KeyFlags,
        mut text: impl FnMut() -> Option<&'a str>,
    ) -> bool {
        self.clauses.iter().all(|span| {
            if span.key.plain && !flags.has(KeyFlags::LONG) {
                return span.key.contains(key);
            }
            let text = text().unwrap_or_default();
            let clause = self.text.get(span.start..span.end).unwrap_or_default();
            compared_as_text(clause, text)
        })
    }

    /// Whether a version is allowed.
    pub fn allows(&self, version: &str) -> bool {
        VersionParts::parse(version).is_some_and(|parts| {
            let (key, flags) = SortKey::of(&parts);
            self.allow(key, flags, || Some(version))
        })
    }
}

/// Whether a version meets specifiers that are parsed while they are compared. Nothing is allocated, unless a version does
/// not fit into a key.
///
/// # Errors
///
/// As [`Specifiers::parse`].
pub(crate) fn meets(
    specifiers: &str,
    key: SortKey,
    flags: KeyFlags,
    version: &str,
) -> Result<bool, SpecifierError> {
    let mut met = true;
    for clause in clauses(specifiers) {
        let clause = clause?;
        met &= if clause.key.plain && !flags.has(KeyFlags::LONG) {
            clause.key.contains(key)
        } else {
            compared_as_text(clause.text, version)
        };
    }
    Ok(met)
}

/// Keys side by side, or all others.
#[derive(Debug, Clone, Copy)]
struct KeyRange {
    least: u128,
    /// If it is less than `least`, there are none.
    greatest: u128,
    outside: bool,
    /// Whether keys that fit decide alone.
    plain: bool,
}

impl KeyRange {
    #[inline]
    fn contains(&self, key: SortKey) -> bool {
        (self.least <= key.0 && key.0 <= self.greatest) != self.outside
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Arbitrary,
    Compatible,
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Less,
    Greater,
}

const OPERATORS: [(&str, Operator); 8] = [
    ("===", Operator::Arbitrary),
    ("~=", Operator::Compatible),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// One comparison, such as `>=1.26`.
#[derive(Debug, Clone, Copy)]
struct Clause<'a> {
    text: &'a str,
    start: usize,
    operator: Operator,
    /// Without `.*`.
    version: &'a str,
    /// Only `===` compares with what is no version.
    parts: Option<VersionParts<'a>>,
    /// It ends in `.*`.
    star: bool,
    key: KeyRange,
}

fn clauses(text: &str) -> impl Iterator<Item = Result<Clause<'_>, SpecifierError>> {
    let mut start = 0;
    text.split(',').filter_map(move |clause| {
        let at = start;
        start += clause.len() + 1;
        let begin = at + (clause.len() - clause.trim_ascii_start().len());
        let clause = clause.trim_ascii();
        (!clause.is_empty()).then(|| Clause::parse(clause, begin))
    })
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str, start: usize) -> Result<Self, SpecifierError> {
        let refuse = |why| SpecifierError {
            clause: text.chars().take(100).collect(),
            why,
        };
        let (operator, rest) = OPERATORS
            .iter()
            .find_map(|(spelling, operator)| {
                text.strip_prefix(spelling).map(|rest| (*operator, rest))
            })
            .ok_or_else(|| {
                refuse("has no operator; write one of ==, !=, <=, >=, <, >, ~=, === before the version")
            })?;
        let rest = rest.trim_ascii();
        if operator == Operator::Arbitrary {
            if rest.is_empty() || rest.contains(|c: char| c.is_whitespace()) {
                return Err(refuse("names no text to compare with"));
            }
            return Ok(Self {
                text,
                start,
                operator,
                version: rest,
                parts: VersionParts::parse(rest),
                star: false,
                key: KeyRange {
                    least: 0,
                    greatest: u128::MAX,
                    outside: false,
                    plain: false,
                },
            });
        }
        let equality = matches!(operator, Operator::Equal | Operator::Unequal);
        let (version, star) = match rest.strip_suffix(".*") {
            Some(version) => (version, true),
            None => (rest, false),
        };
        let parts = VersionParts::parse(version)
            .ok_or_else(|| refuse("names no version of PEP 440, such as 1.26.4 or 2.0rc1"))?;
        if star && !equality {
            return Err(refuse("ends in .*; only == and != compare with beginnings"));
        }
        let suffixed = parts.pre.is_some() || parts.post.is_some() || parts.dev.is_some();
        if star && (suffixed || parts.local.is_some()) {
            return Err(refuse(
                "has .* behind more than a release; write it as ==1.26.*",
            ));
        }
        if parts.local.is_some() && !equality {
            return Err(refuse(
                "has a local label (+...); only == and != compare with one",
            ));
        }
        if operator == Operator::Compatible && parts.release().count() < 2 {
            return Err(refuse(
                "has one number only; ~= needs two or more, as in ~=1.26",
            ));
        }
        let key = Self::range(operator, &parts, star).ok_or_else(|| {
            refuse("has a number for which there is no next one; name a smaller one")
        })?;
        Ok(Self {
            text,
            start,
            operator,
            version,
            parts: Some(parts),
            star,
            key,
        })
    }

    /// None if there is no version after the numbers of a release.
    fn range(operator: Operator, parts: &VersionParts<'_>, star: bool) -> Option<KeyRange> {
        let tokens = Tokens::of(parts);
        let mut range = KeyRange {
            least: 0,
            greatest: u128::MAX,
            outside: operator == Operator::Unequal,
            // Labels are compared as text where they count.
            plain: !tokens.long && parts.local.is_none(),
        };
        let key = tokens.bits;
        let with_labels = key | SortKey::MORE;
        let mut beginning = |numbers: usize| {
            let mut release = parts.release().enumerate().take(numbers);
            let next = Tokens::least(
                parts.epoch,
                release.by_ref().map(|(at, number)| {
                    if at + 1 == numbers {
                        number.saturating_add(1)
                    } else {
                        number
                    }
                }),
            );
            let fits = parts.release().nth(numbers.checked_sub(1)?)? < u64::MAX;
            range.plain &= !next.long;
            fits.then(|| next.bits.wrapping_sub(1))
        };
        match operator {
            Operator::Equal | Operator::Unequal if star => {
                range.greatest = beginning(parts.release().count())?;
                let least = Tokens::least(parts.epoch, parts.release());
                range.plain &= !least.long;
                range.least = least.bits;
            }
            Operator::Equal | Operator::Unequal => {
                (range.least, range.greatest) = (key, with_labels);
            }
            Operator::Compatible => {
                range.greatest = beginning(parts.release().count().checked_sub(1)?)?;
                range.least = key;
            }
            Operator::AtLeast => range.least = key,
            Operator::AtMost => range.greatest = with_labels,
            // What is before a pre-release may be another one of the same release.
            Operator::Less if parts.is_prerelease() => range.greatest = key.wrapping_sub(1),
            Operator::Less => range.greatest = tokens.before_development().wrapping_sub(1),
            // After a post-release or a development release comes the next such one.
            Operator::Greater if parts.post.is_some() || parts.dev.is_some() => {
                range.least = with_labels.checked_add(1)?;
            }
            Operator::Greater => range.least = tokens.after_posts().checked_add(1)?,
            Operator::Arbitrary => {}
        }
        Some(range)
    }

    fn names_prerelease(&self) -> bool {
        self.operator != Operator::Unequal
            && !self.star
            && self.parts.is_some_and(|parts| parts.is_prerelease())
    }

    fn pins(&self) -> bool {
        match self.operator {
            Operator::Equal => !self.star,
            operator => operator == Operator::Arbitrary,
        }
    }

    /// The same rules on parsed versions: for what does not fit into keys, and to test keys against.
    fn matches(&self, text: &str) -> Option<bool> {
        if self.operator == Operator::Arbitrary {
            return Some(self.version.eq_ignore_ascii_case(text));
        }
        let wanted = Version::from_str(self.version).ok()?;
        let version = Version::from_str(text).ok()?;
        let public = version.clone().without_local();
        let begins = |numbers: usize| {
            let number = |version: &Version, at| version.release().get(at).copied().unwrap_or(0);
            wanted.epoch() == version.epoch()
                && (0..numbers).all(|at| number(&wanted, at) == number(&version, at))
        };
        let equal = || {
            if self.star {
                begins(wanted.release().len())
            } else if wanted.is_local() {
                version == wanted
            } else {
                public == wanted
            }
        };
        let same_release = || {
            let longest = wanted.release().len().max(version.release().len());
            begins(longest) && wanted.pre() == version.pre()
        };
        Some(match self.operator {
            Operator::Equal => equal(),
            Operator::Unequal => !equal(),
            Operator::Compatible => {
                version >= wanted && begins(wanted.release().len().saturating_sub(1))
            }
            Operator::AtLeast => version >= wanted,
            Operator::AtMost => public <= wanted,
            Operator::Less if wanted.any_prerelease() => version < wanted,
            Operator::Less => version < wanted.with_dev(Some(0)),
            Operator::Greater => {
                public.cmp(&wanted) == Ordering::Greater
                    && (wanted.is_post() || wanted.is_dev() || !same_release())
            }
            Operator::Arbitrary => return None,
        })
    }
}

/// What is no version does not match.
fn compared_as_text(clause: &str, version: &str) -> bool {
    Clause::parse(clause, 0)
        .ok()
        .and_then(|clause| clause.matches(version))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pep440_rs::VersionSpecifier;
    use proptest::prelude::*;

    /// A line a specifier, then `|` and a digit a version, which `packaging` says: see `testdata/specifiers.py`.
    const PACKAGING: &str = include_str!("../testdata/specifiers.txt");

    #[test]
    fn each_specifier_allows_what_packaging_says() {
        let mut lines = PACKAGING.lines();
        let versions: Vec<_> = lines.next().unwrap().split(' ').collect();
        let mut compared = 0;
        for line in lines {
            let (specifier, expected) = line.split_once('|').unwrap();
            let ours = Specifiers::parse(specifier);
            if expected == "invalid" {
                assert!(ours.is_err(), "{specifier}");
                continue;
            }
            let ours = ours.unwrap();
            for (version, expected) in versions.iter().zip(expected.bytes()) {
                let expected = expected == b'1';
                assert_eq!(ours.allows(version), expected, "{version} {specifier}");
                // The text alone says the same.
                assert_eq!(
                    compared_as_text(specifier, version),
                    expected,
                    "as text: {version} {specifier}"
                );
                compared += 1;
            }
            assert_eq!(versions.len(), expected.len());
        }
        assert!(compared > 50_000, "{compared}");
    }

    /// Every version string of 200 real projects: see `testdata/versions.py`.
    const VERSIONS: &str = include_str!("../testdata/versions.txt");

    /// Each operator with each real version, against the versions beside it in the order, and some that are far away.
    #[test]
    fn specifiers_of_real_versions_match_as_pep440_rs_says() {
        let texts = VERSIONS.lines();
        let mut all: Vec<(&str, Version)> = texts
            .filter_map(|text| Some((text, Version::from_str(text).ok()?)))
            .collect();
        all.sort_by(|a, b| a.1.cmp(&b.1));
        // Without zeros at the end.
        let release = |version: &Version| {
            let numbers = version.release();
            let end = numbers.iter().rposition(|number| *number != 0);
            (
                version.epoch(),
                numbers[..end.map_or(0, |end| end + 1)].to_vec(),
            )
        };
        let mut compared = 0;
        for (at, (text, version)) in all.iter().enumerate() {
            let beside = at.saturating_sub(6)..all.len().min(at + 7);
            let far = (0..6).map(|step| (at * 31 + step * 1_361) % all.len());
            let others: Vec<_> = beside.chain(far).map(|at| &all[at]).collect();
            for operator in &["==", "!=", "<=", ">=", "<", ">", "~="] {
                let Ok(theirs) = VersionSpecifier::from_str(&format!("{operator}{text}")) else {
                    assert!(version.is_local() || *operator == "~=", "{operator}{text}");
                    assert!(Specifiers::parse(&format!("{operator}{text}")).is_err());
                    continue;
                };
                let ours = Specifiers::parse(&format!("{operator}{text}")).unwrap();
                for (other, parsed) in &others {
                    // In one release, pep440_rs lets no pre-release be less than a suffix, and no post-release greater than
                    // a pre-release. packaging goes by the order, but for post-releases of that pre-release.
                    let expected = match *operator {
                        _ if release(parsed) != release(version) => theirs.contains(parsed),
                        "<" if parsed.any_prerelease()
                            && (version.any_prerelease() || version.is_post()) =>
                        {
                            parsed < version
                        }
                        ">" if version.any_prerelease()
                            && parsed.is_post()
                            && (version.is_dev() || parsed.pre() != version.pre()) =>
                        {
                            parsed > version
                        }
                        _ => theirs.contains(parsed),
                    };
                    assert_eq!(ours.allows(other), expected, "{other} {operator}{text}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 900_000, "{compared}");
    }

    #[test]
    fn what_is_wrong_with_a_specifier_is_named() {
        for (text, why) in [
            (
                "1.0",
                "has no operator; write one of ==, !=, <=, >=, <, >, ~=, === before the version",
            ),
            (
                ">=1.0, =<2",
                "has no operator; write one of ==, !=, <=, >=, <, >, ~=, === before the version",
            ),
            (
                ">=abc",
                "names no version of PEP 440, such as 1.26.4 or 2.0rc1",
            ),
            (
                ">=1.*",
                "ends in .*; only == and != compare with beginnings",
            ),
            (
                "==1.0a1.*",
                "has .* behind more than a release; write it as ==1.26.*",
            ),
            (
                ">1+cpu",
                "has a local label (+...); only == and != compare with one",
            ),
            (
                "~=1",
                "has one number only; ~= needs two or more, as in ~=1.26",
            ),
            ("===", "names no text to compare with"),
            (
                "==18446744073709551615.*",
                "has a number for which there is no next one; name a smaller one",
            ),
        ] {
            let e = Specifiers::parse(text).unwrap_err();
            assert_eq!(e.why, why, "{text}");
        }
        assert_eq!(
            Specifiers::parse("nonsense").unwrap_err().to_string(),
            "the version specifier \"nonsense\" has no operator; write one of ==, !=, <=, >=, <, >, ~=, === before the version"
        );
    }

    #[test]
    fn what_does_not_fit_into_a_key_is_compared_as_text() {
        let long = |last| format!("1.99999999999999.99999999999999.{last}");
        let at_least = Specifiers::parse(&format!(">={}", long(5))).unwrap();
        assert!(!at_least.allows(&long(4)) && at_least.allows(&long(5)) && at_least.allows("2"));
        let equal = Specifiers::parse(&format!("=={}", long(5))).unwrap();
        assert!(equal.allows(&long(5)) && !equal.allows(&long(6)) && !equal.allows("1"));
        let plain = Specifiers::parse(">=1,<2").unwrap();
        assert!(plain.allows(&long(5)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn keys_say_what_the_text_says(
            operator in prop::sample::select(&["==", "!=", "<=", ">=", "<", ">", "~="][..]),
            wanted in "([12]!)?[0-3](\\.[0-3]){0,3}(a[01]|rc[01])?(\\.post[01])?(\\.dev[01])?",
            version in "([12]!)?[0-3](\\.[0-3]){0,3}(a[01]|rc[01])?(\\.post[01])?(\\.dev[01])?(\\+a)?",
            star in any::<bool>(),
        ) {
            let clause = format!("{operator}{wanted}{}", if star { ".*" } else { "" });
            if let Ok(specifiers) = Specifiers::parse(&clause) {
                prop_assert_eq!(specifiers.allows(&version), compared_as_text(&clause, &version), "{} {}", clause, version);
                let (least, greatest) = specifiers.bounds();
                let key = SortKey::of(&VersionParts::parse(&version).unwrap()).0.0;
                prop_assert!(!specifiers.allows(&version) || (least..=greatest).contains(&key));
            }
        }
    }
}
