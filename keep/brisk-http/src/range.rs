//! Ranges of bytes (RFC 9110, section 14).

use crate::stored_policy::StoredPolicy;

/// A range that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// From the first position to the last one, if it has one.
    From(u64, Option<u64>),
    /// So many of the last bytes.
    Last(u64),
}

impl ByteRange {
    /// The one range of bytes of a field. None if it has several ranges or another unit, or if it is invalid: then the
    /// field may be ignored (RFC 9110, section 14.2).
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (unit, range) = split_at_byte(text, b'=')?;
        unit.eq_ignore_ascii_case(b"bytes").then_some(())?;
        let (first, last) = split_at_byte(range.trim_ascii(), b'-')?;
        let range = match (first, last) {
            (b"", last) => Self::Last(number(last)?),
            (first, b"") => Self::From(number(first)?, None),
            (first, last) => Self::From(number(first)?, Some(number(last)?)),
        };
        match range {
            Self::From(first, Some(last)) if first > last => None,
            range => Some(range),
        }
    }

    /// The first and last position in a representation of so many bytes. None if it has none of them.
    pub(crate) fn within(self, len: u64) -> Option<(u64, u64)> {
        let end = len.checked_sub(1)?;
        match self {
            Self::From(first, last) => {
                (first <= end).then(|| (first, last.map_or(end, |last| last.min(end))))
            }
            Self::Last(count) => (count > 0).then(|| (len.saturating_sub(count), end)),
        }
    }
}

/// The part of a representation that a 206 has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The length of the whole, if it is known.
    pub(crate) complete: Option<u64>,
}

impl ContentRange {
    /// None if it is invalid, or of another unit.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (unit, rest) = split_at_byte(text, b' ')?;
        unit.eq_ignore_ascii_case(b"bytes").then_some(())?;
        let (range, complete) = split_at_byte(rest, b'/')?;
        let (first, last) = split_at_byte(range, b'-')?;
        let (first, last) = (number(first)?, number(last)?);
        let complete = match complete {
            b"*" => None,
            digits => Some(number(digits)?),
        };
        let fits = first <= last && complete.is_none_or(|complete| last < complete);
        fits.then_some(Self {
            first,
            last,
            complete,
        })
    }

    /// The number of bytes. None if there are too many to count.
    pub(crate) fn count(&self) -> Option<u64> {
        self.last.checked_sub(self.first)?.checked_add(1)
    }
}

/// What to do with the `Range` of a request, given a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The whole response, because there is no range, or because it does not count.
    Whole,
    /// These positions.
    Part(u64, u64),
    /// Positions that the representation does not have.
    Nothing,
}

impl Wanted {
    /// What a request wants of a complete response of so many bytes.
    pub(crate) fn of_complete(range: Option<ByteRange>, len: u64) -> Self {
        match range {
            None => Self::Whole,
            Some(range) => match range.within(len) {
                Some((first, last)) => Self::Part(first, last),
                None => Self::Nothing,
            },
        }
    }

    /// The positions that a request wants, if a stored part has all of them.
    pub(crate) fn of_part(
        range: Option<ByteRange>,
        policy: &StoredPolicy<'_>,
    ) -> Option<(u64, u64)> {
        let part = policy.part()?;
        let (first, last) = match (range?, part.complete) {
            (range, Some(complete)) => range.within(complete)?,
            (ByteRange::From(first, Some(last)), None) => (first, last),
            (_, None) => return None,
        };
        (first >= part.first && last <= part.last).then_some((first, last))
    }
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|found| *found == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_counts_and_others_are_ignored() {
        let parse = |text: &str| ByteRange::parse(text.as_bytes());
        assert_eq!(parse("bytes=0-1"), Some(ByteRange::From(0, Some(1))));
        assert_eq!(parse("Bytes=1-"), Some(ByteRange::From(1, None)));
        assert_eq!(parse("bytes=-5"), Some(ByteRange::Last(5)));
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=1",
            "bytes=2-1",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=a-",
            "bytes=0-99999999999999999999",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn positions_stay_within_the_representation() {
        let within = |range: ByteRange, len| range.within(len);
        assert_eq!(within(ByteRange::From(0, Some(99)), 10), Some((0, 9)));
        assert_eq!(within(ByteRange::From(9, None), 10), Some((9, 9)));
        assert_eq!(within(ByteRange::From(10, None), 10), None);
        assert_eq!(within(ByteRange::Last(3), 10), Some((7, 9)));
        assert_eq!(within(ByteRange::Last(30), 10), Some((0, 9)));
        assert_eq!(within(ByteRange::Last(0), 10), None);
        assert_eq!(within(ByteRange::Last(1), 0), None);
        assert_eq!(within(ByteRange::From(0, None), 0), None);
    }

    #[test]
    fn content_ranges_are_of_bytes_that_exist() {
        let parse = |text: &str| ContentRange::parse(text.as_bytes());
        let range = parse("bytes 0-4/10").unwrap();
        assert_eq!((range.count(), range.complete), (Some(5), Some(10)));
        assert_eq!(parse("bytes 0-4/*").unwrap().complete, None);
        assert_eq!(
            parse("bytes 0-18446744073709551615/*").unwrap().count(),
            None
        );
        for text in [
            "bytes */10",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "x 0-4/10",
            "bytes 0-4",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
