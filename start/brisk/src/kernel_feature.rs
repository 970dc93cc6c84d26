//! What a kernel must be able to do to read an image, and which release of Linux added it.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use brisk_image::Codec;
use brisk_image::codec::Bcj;

/// A release of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(u16, u16, u16);

/// Also accepts what `uname -r` prints: `6.1.0-26-amd64` is 6.1.
impl FromStr for KernelVersion {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut parts = text[..end.unwrap_or(text.len())].split('.');
        let mut part = |needed: bool| match parts.next() {
            None if !needed => Some(0),
            None => None,
            Some(digits) => digits.parse().ok(),
        };
        let mut version = || Some(Self(part(true)?, part(true)?, part(false)?));
        version().context("allowed is a release of Linux, such as 4.9 or 2.6.38")
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}")?;
        match patch {
            0 => Ok(()),
            _ => write!(f, ".{patch}"),
        }
    }
}

/// SquashFS 4.0 itself, with gzip.
const SQUASHFS: KernelVersion = KernelVersion(2, 6, 29);

/// Extended attributes. Older kernels do not show them.
const XATTRS: KernelVersion = KernelVersion(2, 6, 35);

/// The codecs, in the order of how well they compress.
const CODECS: [(Codec, KernelVersion); 5] = [
    (Codec::Zstd, KernelVersion(4, 14, 0)),
    (Codec::Xz, KernelVersion(2, 6, 38)),
    (Codec::Lz4, KernelVersion(3, 19, 0)),
    (Codec::Lzo, KernelVersion(2, 6, 36)),
    (Codec::Gzip, SQUASHFS),
];

/// The branch filters that Linux got later than xz itself.
const LATE_FILTERS: [(Bcj, KernelVersion); 2] = [
    (Bcj::Arm64, KernelVersion(6, 12, 0)),
    (Bcj::RiscV, KernelVersion(6, 12, 0)),
];

/// A feature that an image uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFeature {
    /// Blocks compressed with this codec.
    Codec(Codec),
    /// A branch filter of xz.
    Filter(Bcj),
    /// Extended attributes.
    Xattrs,
}

/// The `features` that `kernel` lacks: for each a sentence that also says what to do.
pub fn missing(kernel: KernelVersion, features: &[KernelFeature]) -> Vec<String> {
    if kernel < SQUASHFS {
        return vec![format!(
            "Linux {kernel} cannot read SquashFS 4.0, which needs {SQUASHFS} or later; use a newer kernel"
        )];
    }
    let sentence = |feature: &KernelFeature| match *feature {
        KernelFeature::Codec(codec) => {
            let since = since(&CODECS, codec).filter(|since| kernel < *since)?;
            let known: Vec<_> = CODECS
                .iter()
                .filter(|(_, since)| kernel >= *since)
                .map(|(codec, _)| codec.name())
                .collect();
            Some(format!(
                "Linux {kernel} cannot read {codec}, which needs {since} or later; \
                 pack with a --codec that it reads: {}",
                known.join(", ")
            ))
        }
        KernelFeature::Filter(filter) => {
            let since = since(&LATE_FILTERS, filter).filter(|since| kernel < *since)?;
            let name = filter_name(filter);
            Some(format!(
                "Linux {kernel} cannot read xz with the filter {name}, which needs {since} or later; \
                 leave {name} out of --xz-bcj"
            ))
        }
        KernelFeature::Xattrs => (kernel < XATTRS).then(|| {
            format!(
                "Linux {kernel} does not show extended attributes, which need {XATTRS} or later; \
                 pack with --no-xattrs if nothing needs them"
            )
        }),
    };
    features.iter().filter_map(sentence).collect()
}

fn since<T: PartialEq>(table: &[(T, KernelVersion)], key: T) -> Option<KernelVersion> {
    let found = table.iter().find(|(known, _)| *known == key);
    found.map(|(_, since)| *since)
}

/// The filter's name on the command line.
fn filter_name(filter: Bcj) -> String {
    // Recipes use the same names, so that there is one list.
    match serde_json::to_value(filter) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{filter:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases() {
        let table = [
            ("4.9", KernelVersion(4, 9, 0), "4.9"),
            ("2.6.38", KernelVersion(2, 6, 38), "2.6.38"),
            ("6.1.0-26-amd64", KernelVersion(6, 1, 0), "6.1"),
            ("5.15.0+", KernelVersion(5, 15, 0), "5.15"),
        ];
        for (text, version, shown) in table {
            assert_eq!(text.parse::<KernelVersion>().ok(), Some(version), "{text}");
            assert_eq!(version.to_string(), shown);
        }
        for text in ["", "6", "6.", "six", "v6.1", "6..1", "70000.1"] {
            let e = text.parse::<KernelVersion>().unwrap_err();
            assert_eq!(
                e.to_string(),
                "allowed is a release of Linux, such as 4.9 or 2.6.38",
                "{text}"
            );
        }
    }

    #[test]
    fn every_codec_is_in_the_table() {
        for codec in Codec::ALL {
            assert!(since(&CODECS, codec).is_some(), "{codec}");
        }
    }

    #[test]
    fn tells_the_release_and_the_cure() {
        use KernelFeature::{Filter, Xattrs};
        let all: Vec<_> = Codec::ALL.map(KernelFeature::Codec).to_vec();
        let table: &[(&str, &[KernelFeature], &[&str])] = &[
            (
                "6.12",
                &[Filter(Bcj::Arm64), Filter(Bcj::RiscV), Xattrs],
                &[],
            ),
            ("4.14", &all, &[]),
            (
                "4.13",
                &all,
                &["Linux 4.13 cannot read zstd, which needs 4.14 or later; \
                     pack with a --codec that it reads: xz, lz4, lzo, gzip"],
            ),
            (
                "3.18",
                &all,
                &[
                    "Linux 3.18 cannot read lz4, which needs 3.19 or later; \
                     pack with a --codec that it reads: xz, lzo, gzip",
                    "Linux 3.18 cannot read zstd, which needs 4.14 or later; \
                     pack with a --codec that it reads: xz, lzo, gzip",
                ],
            ),
            (
                "2.6.37",
                &[KernelFeature::Codec(Codec::Xz)],
                &["Linux 2.6.37 cannot read xz, which needs 2.6.38 or later; \
                     pack with a --codec that it reads: lzo, gzip"],
            ),
            (
                "2.6.35",
                &[KernelFeature::Codec(Codec::Lzo), Xattrs],
                &[
                    "Linux 2.6.35 cannot read lzo, which needs 2.6.36 or later; \
                     pack with a --codec that it reads: gzip",
                ],
            ),
            (
                "2.6.34",
                &[Xattrs],
                &[
                    "Linux 2.6.34 does not show extended attributes, which need 2.6.35 or later; \
                     pack with --no-xattrs if nothing needs them",
                ],
            ),
            (
                "6.11",
                &[Filter(Bcj::X86), Filter(Bcj::RiscV)],
                &[
                    "Linux 6.11 cannot read xz with the filter riscv, which needs 6.12 or later; \
                     leave riscv out of --xz-bcj",
                ],
            ),
            (
                "2.6.28",
                &all,
                &[
                    "Linux 2.6.28 cannot read SquashFS 4.0, which needs 2.6.29 or later; use a newer kernel",
                ],
            ),
        ];
        for (kernel, features, sentences) in table {
            assert_eq!(missing(kernel.parse().unwrap(), features), *sentences);
        }
    }
}
