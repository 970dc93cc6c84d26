//! Dates in header fields (RFC 9110, section 5.6.7), in all three forms.
//!
//! The forms are matched without regard to case, and a zone other than GMT makes a date invalid, as RFC 9111,
//! section 4.2, asks of caches. `httpdate` does neither.

use crate::timestamp::Timestamp;

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// The time of a date. A date before 1970 counts as 1970. None if the text has none of the three forms.
///
/// The form of RFC 850 has a year of two digits: it is the year that is at most 50 years after `now`.
pub(crate) fn parse(text: &[u8], now: Timestamp) -> Option<Timestamp> {
    fixed(text)
        .or_else(|| rfc850(text, now))
        .or_else(|| asctime(text))
}

/// The text of a time in the form that is to be sent. None if the year has more than four digits.
pub(crate) fn format(time: Timestamp) -> Option<String> {
    let days = time.unix() / 86_400;
    let (year, month, day) = civil(days);
    if year > 9999 {
        return None;
    }
    let second = time.unix() % 86_400;
    // The first of January 1970 was a Thursday.
    let weekday = DAYS.get(usize::try_from((days + 3) % 7).ok()?)?.get(..3)?;
    let month = std::str::from_utf8(*MONTHS.get(month)?).ok()?;
    Some(format!(
        "{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT",
        second / 3600,
        second / 60 % 60,
        second % 60
    ))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn fixed(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 29] = text.try_into().ok()?;
    let [
        w0,
        w1,
        w2,
        b',',
        b' ',
        d0,
        d1,
        b' ',
        m0,
        m1,
        m2,
        b' ',
        rest @ ..,
    ] = text
    else {
        return None;
    };
    let [y0, y1, y2, y3, b' ', rest @ ..] = rest else {
        return None;
    };
    let (clock, zone) = rest.split_at_checked(8)?;
    is_short_day(&[*w0, *w1, *w2]).then_some(())?;
    zone.eq_ignore_ascii_case(b" GMT").then_some(())?;
    let day = number(&[*d0, *d1])?;
    let year = number(&[*y0, *y1, *y2, *y3])?;
    timestamp(year, month(&[*m0, *m1, *m2])?, day, clock_seconds(clock)?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(text: &[u8], now: Timestamp) -> Option<Timestamp> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let (weekday, rest) = text.split_at_checked(comma)?;
    DAYS.iter()
        .any(|day| weekday.eq_ignore_ascii_case(day.as_bytes()))
        .then_some(())?;
    let [
        b',',
        b' ',
        d0,
        d1,
        b'-',
        m0,
        m1,
        m2,
        b'-',
        y0,
        y1,
        b' ',
        rest @ ..,
    ] = rest
    else {
        return None;
    };
    let (clock, zone) = rest.split_at_checked(8)?;
    zone.eq_ignore_ascii_case(b" GMT").then_some(())?;
    let (this_year, _, _) = civil(now.unix() / 86_400);
    let mut year = (this_year / 100)
        .saturating_mul(100)
        .saturating_add(number(&[*y0, *y1])?);
    // RFC 9110: one that seems to be more than 50 years in the future is of the past. In a year like 2090, a small
    // number is of the next century.
    if year > this_year.saturating_add(50) {
        year = year.saturating_sub(100);
    } else if year.saturating_add(50) < this_year {
        year = year.saturating_add(100);
    }
    let day = number(&[*d0, *d1])?;
    timestamp(year, month(&[*m0, *m1, *m2])?, day, clock_seconds(clock)?)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let [w0, w1, w2, b' ', m0, m1, m2, b' ', d0, d1, b' ', rest @ ..] = text else {
        return None;
    };
    let (clock, year) = rest.split_at_checked(8)?;
    let [b' ', year @ ..] = year else {
        return None;
    };
    is_short_day(&[*w0, *w1, *w2]).then_some(())?;
    let day = match *d0 {
        b' ' => number(&[*d1])?,
        _ => number(&[*d0, *d1])?,
    };
    timestamp(
        number(year)?,
        month(&[*m0, *m1, *m2])?,
        day,
        clock_seconds(clock)?,
    )
}

fn is_short_day(text: &[u8; 3]) -> bool {
    DAYS.iter().any(|day| {
        day.as_bytes()
            .get(..3)
            .is_some_and(|day| day.eq_ignore_ascii_case(text))
    })
}

/// From 0.
fn month(text: &[u8; 3]) -> Option<usize> {
    MONTHS
        .iter()
        .position(|month| month.eq_ignore_ascii_case(text))
}

fn clock_seconds(text: &[u8]) -> Option<u64> {
    let [h0, h1, b':', m0, m1, b':', s0, s1] = text else {
        return None;
    };
    let (hour, minute, second) = (
        number(&[*h0, *h1])?,
        number(&[*m0, *m1])?,
        number(&[*s0, *s1])?,
    );
    // 60 is a leap second.
    (hour < 24 && minute < 60 && second <= 60).then(|| hour * 3600 + minute * 60 + second.min(59))
}

/// A number of at most 4 digits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

fn timestamp(year: u64, month: usize, day: u64, second: u64) -> Option<Timestamp> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let longest = match month {
        1 => 28 + u64::from(leap),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    if day == 0 || day > longest {
        return None;
    }
    if year < 1970 {
        return Some(Timestamp::from_unix(0));
    }
    // Years that begin in March put the leap day at their end. 719468 days lie between March of the year 0 and 1970.
    let (year, from_march) = match month {
        0 | 1 => (year - 1, month + 10),
        _ => (year, month - 2),
    };
    let of_year = (153 * from_march as u64 + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    Some(Timestamp::from_unix(days * 86_400 + second))
}

/// Year, month from 0, and day of a number of days since 1970.
fn civil(days: u64) -> (u64, usize, u64) {
    // The reverse of the above. The 400 years of an era have 146097 days.
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 2
    } else {
        from_march - 10
    };
    let year = year_of_era + era * 400 + u64::from(month < 2);
    (year, month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    const NOW: Timestamp = Timestamp::from_unix(1_700_000_000);

    fn unix(text: &str) -> Option<u64> {
        parse(text.as_bytes(), NOW).map(Timestamp::unix)
    }

    #[test]
    fn all_three_forms_in_any_case_are_one_time() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "sUN, 06 nOV 1994 08:49:37 gmt",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(unix(text), Some(784_111_777), "{text}");
        }
        assert_eq!(unix("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix("Mon, 01 Jan 1900 00:00:00 GMT"), Some(0));
        assert_eq!(unix("Thu, 29 Feb 2024 23:59:60 GMT"), Some(1_709_251_199));
        // At most 50 years ahead of 2023.
        assert_eq!(
            unix("Sunday, 06-Nov-73 08:49:37 GMT"),
            unix("Sun, 06 Nov 2073 08:49:37 GMT")
        );
        assert_eq!(
            unix("Sunday, 06-Nov-74 08:49:37 GMT"),
            unix("Sun, 06 Nov 1974 08:49:37 GMT")
        );
        let late = Timestamp::from_unix(unix("Wed, 01 Jan 2098 00:00:00 GMT").unwrap());
        assert_eq!(
            parse(b"Sunday, 06-Nov-01 08:49:37 GMT", late).map(Timestamp::unix),
            unix("Sun, 06 Nov 2101 08:49:37 GMT")
        );
    }

    #[test]
    fn other_forms_are_invalid() {
        for text in [
            "",
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sux, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun Nov 06 08:49:37 94",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn httpdate_reads_and_writes_the_same(seconds in 0u64..253_402_300_800) {
            let time = Timestamp::from_unix(seconds);
            let text = format(time).unwrap();
            let system = time.system_time().unwrap();
            prop_assert_eq!(&text, &httpdate::fmt_http_date(system));
            prop_assert_eq!(parse(text.as_bytes(), NOW), Some(time));
            prop_assert_eq!(httpdate::parse_http_date(&text).unwrap(), system);
        }
    }

    #[test]
    fn a_year_of_five_digits_has_no_text() {
        assert_eq!(format(Timestamp::from_unix(u64::MAX)), None);
        assert!(format(Timestamp::from_unix(253_402_300_799)).is_some());
    }
}
