//! Selecting fields (RFC 9111, section 4.1): those of a request that `Vary` names.
//!
//! Values are compared in a normal form, which two values share only if they mean the same. It is written to a sink
//! piece by piece, so a request is compared with stored bytes without a buffer.

use http::header::{GetAll, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What `Vary` says, over all its lines.
pub(crate) enum Vary {
    /// These names, perhaps none.
    Names(Vec<HeaderName>),
    /// A `*`, or what is no name: no request ever matches.
    Nothing,
}

impl Vary {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut names = Vec::new();
        let members = headers
            .get_all(VARY)
            .into_iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|member| !member.is_empty());
        for member in members {
            match HeaderName::from_bytes(member) {
                Ok(name) if member != b"*" => names.push(name),
                _ => return Self::Nothing,
            }
        }
        Self::Names(names)
    }
}

/// The most members of a list that are put in order. Longer lists stay in theirs.
const MOST_MEMBERS: usize = 16;

/// Writes the normal form of a field to `sink`, until it returns false.
///
/// Lines are joined, and spaces around commas go. Members of `Accept` and its kin are in order of weight and then of
/// their bytes, without case.
pub(crate) fn write_normal(
    name: &[u8],
    lines: &GetAll<'_, HeaderValue>,
    mut sink: impl FnMut(&[u8]) -> bool,
) {
    let has_weights = matches!(
        name,
        b"accept" | b"accept-charset" | b"accept-encoding" | b"accept-language"
    );
    if has_weights && let Some(members) = Weighted::of(lines) {
        members.write(sink);
        return;
    }
    let mut first = true;
    for member in members(lines) {
        let comma: &[u8] = if first { b"" } else { b"," };
        if !(sink(comma) && sink(member)) {
            return;
        }
        first = false;
    }
}

/// The members of all lines. Those without bytes are left out (RFC 9110, section 5.6.1.2).
fn members<'a>(lines: &'a GetAll<'a, HeaderValue>) -> impl Iterator<Item = &'a [u8]> {
    lines
        .iter()
        .flat_map(|line| Members(line.as_bytes()))
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// What commas separate, except inside of quotes.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let (mut quoted, mut escaped) = (false, false);
        let comma = self.0.iter().position(|byte| {
            let was_escaped = std::mem::take(&mut escaped);
            match byte {
                b'"' if !was_escaped => quoted = !quoted,
                b'\\' if quoted && !was_escaped => escaped = true,
                b',' if !quoted => return true,
                _ => (),
            }
            false
        });
        let (member, rest) = self.0.split_at(comma.unwrap_or(self.0.len()));
        self.0 = rest.get(1..).unwrap_or_default();
        Some(member)
    }
}

/// A list whose members have weights, in order.
struct Weighted<'a> {
    members: [(u16, &'a [u8], &'a [u8]); MOST_MEMBERS],
    len: usize,
}

impl<'a> Weighted<'a> {
    /// None if there are too many members, or if a weight is invalid.
    fn of(lines: &'a GetAll<'a, HeaderValue>) -> Option<Self> {
        let mut all = Self {
            members: [(0, b"", b""); MOST_MEMBERS],
            len: 0,
        };
        for member in members(lines) {
            *all.members.get_mut(all.len)? = split_weight(member)?;
            all.len += 1;
        }
        all.members.get_mut(..all.len)?.sort_unstable_by(|a, b| {
            let lower = |text: &'a [u8]| text.iter().map(u8::to_ascii_lowercase);
            (b.0.cmp(&a.0))
                .then_with(|| lower(a.1).cmp(lower(b.1)))
                .then_with(|| a.2.cmp(b.2))
        });
        Some(all)
    }

    fn write(&self, mut sink: impl FnMut(&[u8]) -> bool) {
        let members = self.members.get(..self.len).unwrap_or_default();
        for (at, (weight, range, parameters)) in members.iter().enumerate() {
            if at > 0 && !sink(b",") {
                return;
            }
            let range_fits = range.iter().all(|byte| sink(&[byte.to_ascii_lowercase()]));
            if !(range_fits && sink(parameters)) {
                return;
            }
            // No field value has this separator, so a weight is never mistaken for a parameter.
            let digits = [
                0x1F,
                b'0' + (weight / 1000) as u8,
                b'0' + (weight / 100 % 10) as u8,
                b'0' + (weight / 10 % 10) as u8,
                b'0' + (weight % 10) as u8,
            ];
            if *weight != 1000 && !sink(&digits) {
                return;
            }
        }
    }
}

/// A weight in thousandths, the range, and its parameters other than the weight, which comes last (RFC 9110, section
/// 12.4.2).
fn split_weight(member: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let end = member.iter().position(|byte| *byte == b';');
    let (range, parameters) = member.split_at(end.unwrap_or(member.len()));
    let range = range.trim_ascii_end();
    let Some(at) = parameters.iter().rposition(|byte| *byte == b';') else {
        return Some((1000, range, b""));
    };
    let (others, last) = parameters.split_at(at);
    match last.get(1..)?.trim_ascii() {
        [b'q' | b'Q', b'=', digits @ ..] => Some((weight(digits)?, range, others)),
        _ => Some((1000, range, parameters)),
    }
}

fn weight(digits: &[u8]) -> Option<u16> {
    let (whole, fraction) = match digits {
        [whole, b'.', fraction @ ..] => (*whole, fraction),
        [whole] => (*whole, &[][..]),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths = [100u16, 10, 1]
        .iter()
        .zip(fraction)
        .map(|(place, digit)| place * u16::from(digit - b'0'))
        .sum::<u16>();
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(name: &str, lines: &[&str]) -> String {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line).unwrap());
        }
        let mut out = Vec::new();
        write_normal(name.as_str().as_bytes(), &headers.get_all(&name), |piece| {
            out.extend_from_slice(piece);
            true
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn spaces_and_lines_do_not_count_and_bytes_do() {
        assert_eq!(normal("foo", &[" 1 ,2"]), "1,2");
        assert_eq!(normal("foo", &["1", "2"]), "1,2");
        assert_eq!(normal("foo", &["1,, 2,"]), "1,2");
        assert_eq!(normal("foo", &[r#""a , b" ,c"#]), r#""a , b",c"#);
        assert_eq!(normal("foo", &[r#""a\" , b" ,c"#]), r#""a\" , b",c"#);
        assert_eq!(normal("foo", &["a b"]), "a b");
        assert_ne!(normal("foo", &["A"]), normal("foo", &["a"]));
        assert_ne!(normal("foo", &["2,1"]), normal("foo", &["1,2"]));
    }

    #[test]
    fn lists_with_weights_are_ordered() {
        let same = |a: &[&str], b: &[&str]| {
            assert_eq!(normal("accept-language", a), normal("accept-language", b));
        };
        same(&["en, de"], &["de,EN"]);
        same(&["en;q=0.5, de"], &["de", "En ; q=0.50"]);
        same(&["en;q=1.0"], &["en"]);
        let differ = |a: &str, b: &str| {
            assert_ne!(
                normal("accept-language", &[a]),
                normal("accept-language", &[b])
            );
        };
        differ("en;q=0.5, de", "en, de;q=0.5");
        differ("en", "en;q=0");
        differ("en;q=0.5", "en;q=x");
        assert_eq!(
            normal("accept", &["text/HTML;level=1;q=0.25, */*;q=0"]),
            "text/html;level=1\u{1F}0250,*/*\u{1F}0000"
        );
        let long: Vec<String> = (0..20).map(|n| format!("x{n}")).collect();
        let long = long.join(", ");
        assert_eq!(normal("accept-language", &[&long]), long.replace(' ', ""));
    }

    #[test]
    fn a_star_or_no_name_matches_nothing() {
        let vary = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(VARY, HeaderValue::from_str(line).unwrap());
            }
            match Vary::of(&headers) {
                Vary::Names(names) => Some(names.iter().map(ToString::to_string).collect()),
                Vary::Nothing => None,
            }
        };
        let names =
            |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(vary(&[]), names(&[]));
        assert_eq!(vary(&["Foo, bar", " , FOO"]), names(&["foo", "bar", "foo"]));
        for lines in [
            &["*"][..],
            &[", *"],
            &["", "*"],
            &["Foo, *"],
            &["*, Foo"],
            &["a b"],
        ] {
            assert_eq!(vary(lines), None, "{lines:?}");
        }
    }
}
