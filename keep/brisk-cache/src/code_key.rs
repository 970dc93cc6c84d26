use std::io;

/// The most bytes of a key, including the lengths of its fields.
const MOST: usize = 16 << 10;

/// What generated code was made from, and by which program: everything that must be the same for the code to
/// be usable.
///
/// What is not in the key is not compared. So put everything that changes the code into one of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeKey<'a> {
    /// The program or library that generates the code, such as `wasmtime`.
    pub producer: &'a str,
    /// The producer's version. If versions do not identify its code, the commit.
    pub version: &'a str,
    /// The processor features that the code may use, for example from [`cpu_features`](brisk_io::cpu_features).
    pub cpu_features: &'a str,
    /// The options of the generator, such as `opt-level=2`, in a fixed order.
    pub flags: &'a str,
    /// A digest of what it was generated from. If that comes from strangers, use a digest for which nobody
    /// can find a second source, such as BLAKE3.
    pub source: &'a [u8],
}

impl CodeKey<'_> {
    /// The fields in order, each after its length in 4 bytes. So no two keys have the same bytes.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
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
                    "a key of {len} bytes, allowed are {MOST}; use a digest for the long field"
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
        assert_ne!(moved.encode().unwrap(), expected);
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
            "a key of 16385 bytes, allowed are 16384; use a digest for the long field"
        );
    }

    proptest! {
        #[test]
        fn two_keys_have_not_the_same_bytes(
            a in any::<(String, String, String, String, Vec<u8>)>(),
            cut in any::<proptest::sample::Index>(),
        ) {
            // The same letters, divided differently among the fields, are the most likely to collide.
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
