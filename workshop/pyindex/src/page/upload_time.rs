use jiff::Timestamp;

/// The microseconds since 1970 of a time of ISO 8601 with a date, a time and a zone, as PEP 700 has it:
/// `2024-02-29T12:34:56.789012Z`. None if it is none.
pub(crate) fn microseconds(time: &str) -> Option<i64> {
    let time: Timestamp = time.parse().ok()?;
    Some(time.as_microsecond())
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
            "2023-02-29T00:00:00Z",
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
