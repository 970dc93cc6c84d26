//! Bytes that are not UTF-8 in UTF-16, as Python's `surrogateescape` (PEP 383) has them: each byte that belongs to no
//! character is the lone surrogate 0xdc00 + byte. No text has one of these, so no two names become the same.

/// `bytes` in UTF-16.
pub(crate) fn escape(bytes: &[u8]) -> Vec<u16> {
    let mut wide = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        wide.extend(chunk.valid().encode_utf16());
        wide.extend(chunk.invalid().iter().map(|&byte| 0xdc00 + u16::from(byte)));
    }
    wide
}

/// The bytes that [`escape`] made `wide` of. A surrogate that stands for no byte becomes three bytes, as if it were a
/// character.
pub(crate) fn unescape(wide: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in char::decode_utf16(wide) {
        match unit.map_err(|e| e.unpaired_surrogate().to_be_bytes()) {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err([0xdc, byte]) if byte >= 0x80 => bytes.push(byte),
            Err([high, low]) => bytes.extend([
                0xe0 | high >> 4,
                0x80 | (high & 0xf) << 2 | low >> 6,
                0x80 | low & 0x3f,
            ]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_byte_outside_of_characters_is_one_surrogate() {
        let escaped = |bytes: &[u8]| String::from_utf16_lossy(&escape(bytes));
        assert_eq!(escaped("a/ä\\x2d𝄞".as_bytes()), "a/ä\\x2d𝄞");
        assert_eq!(escape(b"caf\xe9"), [0x63, 0x61, 0x66, 0xdce9]);
        // A surrogate that an image has as three bytes is no character either.
        assert_eq!(escape(b"\xed\xb3\xa9"), [0xdced, 0xdcb3, 0xdca9]);
        // Neither is the start of a character.
        assert_eq!(escape(b"\xf0\x9d"), [0xdcf0, 0xdc9d]);
    }

    #[test]
    fn what_stands_for_no_byte_is_no_name_of_an_image() {
        assert_eq!(unescape([0xd800, 0x61].into_iter()), b"\xed\xa0\x80a");
        assert_eq!(unescape([0xdc7f].into_iter()), b"\xed\xb1\xbf");
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(unescape(escape(&bytes).into_iter()), bytes);
        }
    }
}
