//! Decimal numbers, as extended headers and maps of holes write them.

/// The number that `text` is, which must be digits only; none if it is 2^64 or more.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        for (text, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1_0", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), number, "{text:?}");
        }
    }
}
