use data_encoding::HEXLOWER;

/// The bytes of 64 lower-case hexadecimal digits.
pub(crate) fn of_hex(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut digest = [0; 32];
    HEXLOWER.decode_mut(digits, &mut digest).ok()?;
    Some(digest)
}
