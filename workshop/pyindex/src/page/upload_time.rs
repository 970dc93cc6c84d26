/// The microseconds since 1970 of a time of ISO 8601 with a date, a time and a zone, as PEP 700 has it:
/// `2024-02-29T12:34:56.789012Z`. None if it is none.
pub(crate) fn microseconds(time: &str) -> Option<i64> {
    let bytes = time.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = time.get(from..to)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let is = |at: usize, one: &[u8]| bytes.get(at).is_some_and(|b| one.contains(b));
    let marks = is(4, b"-") && is(7, b"-") && is(10, b"T ") && is(13, b":") && is(16, b":");
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (hour < 24 && minute < 60 && second <= 60);
    if !marks || !valid {
        return None;
    }
    let mut at = 19;
    let mut micros = 0;
    if is(at, b".,") {
        let digits = bytes[at + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        if digits == 0 {
            return None;
        }
        for digit in 0..6 {
            let value = if digit < digits {
                number(at + 1 + digit, at + 2 + digit)?
            } else {
                0
            };
            micros = micros * 10 + value;
        }
        at += 1 + digits;
    }
    let zone = match time.get(at..)? {
        "Z" | "z" => 0,
        zone => {
            let sign = match zone.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let minutes = match zone.len() {
                6 if is(at + 3, b":") => number(at + 4, at + 6)?,
                5 => number(at + 3, at + 5)?,
                3 => 0,
                _ => return None,
            };
            sign * (number(at + 1, at + 3)? * 60 + minutes)
        }
    };
    // Days since 1970 of a date of the Gregorian calendar, with years that begin in March.
    let (shifted, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * shifted + shifted.div_euclid(4) - shifted.div_euclid(100)
        + shifted.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute - zone) * 60 + second;
    Some(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_iso_8601() {
        for (time, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2024-02-29T12:34:56.789012Z", 1_709_210_096_789_012),
            ("2024-02-29T12:34:56.7Z", 1_709_210_096_700_000),
            ("2024-02-29T13:34:56.7890129+01:00", 1_709_210_096_789_012),
            ("1969-12-31T23:59:59-0000", -1_000_000),
            ("0001-01-01 00:00:00Z", -62_135_596_800_000_000),
        ] {
            assert_eq!(microseconds(time), Some(micros), "{time}");
        }
        for wrong in [
            "",
            "2024-02-29",
            "2024-13-01T00:00:00Z",
            "2024-02-29T12:34:56",
            "2024-02-29T12:34:56.Z",
            "2024-02-29T12:34:56+1",
            "+024-02-29T12:34:56Z",
            "2024-02-29T25:00:00Z",
            "2024-02-29T12:34:56é",
        ] {
            assert_eq!(microseconds(wrong), None, "{wrong}");
        }
    }
}
