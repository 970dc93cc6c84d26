//! Sizes in bytes, as people write them.

use anyhow::{Context, bail};

/// Reads a number of bytes. With `K`, `M` or `G` behind it, it counts KiB, MiB or GiB.
pub fn parse_size(text: &str) -> anyhow::Result<u64> {
    let (digits, shift) = match text.as_bytes() {
        [.., b'k' | b'K'] => (&text[..text.len() - 1], 10),
        [.., b'm' | b'M'] => (&text[..text.len() - 1], 20),
        [.., b'g' | b'G'] => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    // `parse` also accepts a sign.
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        bail!("allowed is a number of bytes, such as 131072, 128K or 1M");
    }
    let number: u64 = digits
        .parse()
        .ok()
        .context("allowed is a number of bytes, such as 131072, 128K or 1M")?;
    number
        .checked_mul(1 << shift)
        .context("allowed is less than 2^64 bytes")
}

/// Like [`parse_size`], for sizes below 4 GiB.
pub fn parse_size_u32(text: &str) -> anyhow::Result<u32> {
    u32::try_from(parse_size(text)?)
        .ok()
        .context("allowed is less than 4G")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        let table = [
            ("0", 0),
            ("131072", 131_072),
            ("128K", 128 << 10),
            ("128k", 128 << 10),
            ("1M", 1 << 20),
            ("17g", 17 << 30),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text).ok(), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "+1", "1.5M", "1KB", "12Q", " 1", "ü"] {
            assert_eq!(
                parse_size(text).unwrap_err().to_string(),
                "allowed is a number of bytes, such as 131072, 128K or 1M",
                "{text}"
            );
        }
        let e = parse_size("18446744073709551615K").unwrap_err();
        assert_eq!(e.to_string(), "allowed is less than 2^64 bytes");
        let e = parse_size_u32("4G").unwrap_err();
        assert_eq!(e.to_string(), "allowed is less than 4G");
    }
}
