//! Ages, as people write them.

use std::time::Duration;

use anyhow::Context;

const ALLOWED: &str = "allowed is a number with its unit, such as 90s, 15m, 12h or 30d";

/// Reads how long a session lingers: a number of seconds, or an age.
pub fn parse_linger(text: &str) -> anyhow::Result<Duration> {
    const ALLOWED: &str = "allowed is a number of seconds, or one with its unit, such as 90s, 5m or 2h, up to 4294967295 s";
    let seconds = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    let linger = match seconds {
        true => text.parse().map(Duration::from_secs).ok(),
        false => parse_age(text).ok(),
    };
    // The guardian of a session counts in 32 bits.
    linger
        .filter(|linger| u32::try_from(linger.as_secs()).is_ok())
        .context(ALLOWED)
}

/// Reads seconds (`s`), minutes (`m`), hours (`h`) or days (`d`).
pub fn parse_age(text: &str) -> anyhow::Result<Duration> {
    let unit = text.chars().last().context(ALLOWED)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => anyhow::bail!(ALLOWED),
    };
    let digits = text.strip_suffix(unit).unwrap_or_default();
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| plain).context(ALLOWED)?;
    let seconds = number
        .checked_mul(seconds)
        .context("allowed is less than 2^64 seconds")?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lingers_for_seconds_or_for_a_time_with_a_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("90", 90),
            ("5m", 300),
            ("2h", 7200),
            ("4294967295", 4_294_967_295),
        ] {
            assert_eq!(
                parse_linger(text).ok(),
                Some(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in ["", "-1", "5 m", "4294967296", "49711d", "1.5"] {
            assert_eq!(
                parse_linger(text).unwrap_err().to_string(),
                "allowed is a number of seconds, or one with its unit, such as 90s, 5m or 2h, up to 4294967295 s",
                "{text}"
            );
        }
    }

    #[test]
    fn an_age_has_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("15m", 900),
            ("12h", 43_200),
            ("30d", 2_592_000),
        ] {
            assert_eq!(
                parse_age(text).ok(),
                Some(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in ["", "s", "90", "-1s", "+1s", "1.5h", "1w", "1 h", "ü"] {
            assert_eq!(parse_age(text).unwrap_err().to_string(), ALLOWED, "{text}");
        }
        let e = parse_age("18446744073709551615d").unwrap_err();
        assert_eq!(e.to_string(), "allowed is less than 2^64 seconds");
    }
}
