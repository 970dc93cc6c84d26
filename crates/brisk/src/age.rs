//! Ages, as people write them.

use std::time::Duration;

use anyhow::Context;

const ALLOWED: &str = "allowed is a number with its unit, such as 90s, 15m, 12h or 30d";

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
