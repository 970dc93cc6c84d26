//! Digests as text.

use sha2::{Digest, Sha256};

/// SHA-256 of parts, as 64 digits. The length of each part comes first, so that two lists of parts never look the same.
pub fn sha256_of(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    digits(&hasher.finalize())
}

/// Bytes as hexadecimal digits.
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the text is a digest of 256 bits, in lower case.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
