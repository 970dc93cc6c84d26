use std::io;

use twox_hash::XxHash3_128;

use super::entry::VERSION;

/// The most bytes that a key may have, with the lengths of its fields.
const MOST: usize = 16 << 10;

/// What generated code was made of and by whom: everything that has to be the same for the code to be of
/// use.
///
/// What is not in the key is not compared: whatever changes the code belongs into one of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeKey<'a> {
    /// The program or library that generates the code, such as `wasmtime`.
    pub producer: &'a str,
    /// The producer's version; the commit, where versions do not tell its code apart.
    pub version: &'a str,
    /// What of the processor the code may use, such as [`cpu_features`](crate::cpu_features) tells.
    pub cpu_features: &'a str,
    /// The options that it was generated with, such as `opt-level=2`, in a fixed order.
    pub flags: &'a str,
    /// A digest of what it was generated from. Where that is somebody else's, one that nobody can find a
    /// second source for, such as BLAKE3.
    pub source: &'a [u8],
}

impl CodeKey<'_> {
    /// The fields in their order, each behind its length in 4 bytes: no two keys have the same bytes.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let fields = [
            self.producer.as_bytes(),
            self.version.as_bytes(),
            self.cpu_features.as_bytes(),
            self.flags.as_bytes(),
            self.source,
        ];
        let len = fields
            .iter()
            .fold(0usize, |sum, field| sum.saturating_add(4 + field.len()));
        if len > MOST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a key of {len} bytes, allowed are {MOST}; give a digest of the field that is long"
                ),
            ));
        }
        let mut encoded = Vec::with_capacity(len);
        for field in fields {
            // At most `MOST`.
            encoded.extend((field.len() as u32).to_le_bytes());
            encoded.extend(field);
        }
        Ok(encoded)
    }
}

/// The name of the file that has the entry of this key. Two keys may share it, so the entry says whose it is.
pub(super) fn file_name(encoded: &[u8]) -> String {
    format!("{:032x}.code{VERSION}", XxHash3_128::oneshot(encoded))
}

/// Whether an entry may have this name, of any version of the format.
pub(super) fn is_file_name(name: &str) -> bool {
    name.split_once(".code").is_some_and(|(digest, version)| {
        digest.len() == 32
            && digest
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: CodeKey<'_> = CodeKey {
        producer: "ab",
        version: "1",
        cpu_features: "",
        flags: "x",
        source: &[7],
    };

    #[test]
    fn fields_do_not_run_into_each_other() {
        let moved = CodeKey {
            producer: "a",
            version: "b1",
            ..KEY
        };
        let expected = b"\x02\0\0\0ab\x01\0\0\x001\0\0\0\0\x01\0\0\0x\x01\0\0\0\x07";
        assert_eq!(KEY.encode().unwrap(), expected);
        assert_ne!(KEY.encode().unwrap(), moved.encode().unwrap());
        let name = file_name(expected);
        assert_eq!(name, "130e224204f2f29091cdc83fe6871f9a.code1");
        assert_ne!(file_name(&moved.encode().unwrap()), name);
    }

    #[test]
    fn a_long_key_is_refused() {
        let flags = "f".repeat(MOST - 20 - 2 - 1 - 1);
        let most = CodeKey {
            flags: &flags,
            ..KEY
        };
        assert_eq!(most.encode().unwrap().len(), MOST);
        let more = CodeKey {
            cpu_features: "a",
            ..most
        };
        assert_eq!(
            more.encode().unwrap_err().to_string(),
            "a key of 16385 bytes, allowed are 16384; give a digest of the field that is long"
        );
    }

    #[test]
    fn names_of_entries_are_told_from_others() {
        let digest = "0123456789abcdef0123456789abcdef";
        for version in ["1", "22"] {
            assert!(is_file_name(&format!("{digest}.code{version}")));
        }
        let no = [
            "",
            "code1",
            ".new-0123456789abcdef",
            &format!("{digest}.code"),
            &format!("{digest}.code1x"),
            &format!("{}.code1", &digest[1..]),
            &format!("{}.code1", digest.to_uppercase()),
            &format!("x{digest}.code1"),
        ];
        for name in no {
            assert!(!is_file_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn two_keys_have_not_the_same_bytes(
            a in any::<(String, String, String, String, Vec<u8>)>(),
            cut in any::<proptest::sample::Index>(),
        ) {
            // The same letters, divided among the fields in another way, are the likeliest to collide.
            let all = format!("{}{}{}{}", a.0, a.1, a.2, a.3);
            let mut at = cut.index(all.len() + 1);
            while !all.is_char_boundary(at) {
                at -= 1;
            }
            let one = CodeKey { producer: &a.0, version: &a.1, cpu_features: &a.2, flags: &a.3, source: &a.4 };
            let other = CodeKey { producer: &all[..at], version: &all[at..], cpu_features: "", flags: "", ..one };
            prop_assert_eq!(one == other, one.encode().unwrap() == other.encode().unwrap());
        }
    }
}
