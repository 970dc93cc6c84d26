//! The manifest of a signed image: a short text that says what the image must be.
//!
//! A signature covers the manifest, the manifest has the root hash, and the root hash covers the image. So checking a
//! signature reads a few hundred bytes and not the image.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::verity::{BLOCK, RootHash, Verity};
use brisk_io::{ByteSource, open_at_once};
use brisk_terminal::names::shown;
use brisk_trust::{SignedText, TrustedKeys, read_short};
use sha2::{Digest, Sha256};

/// The first line.
const TITLE: &str = "brisk-manifest 1";

/// Bytes of a file beside the image that are hashed at once.
const CHUNK: usize = 1 << 20;

/// What a signed image must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the image's file.
    pub file_bytes: u64,
    /// Bytes that the hash tree covers.
    pub data_bytes: u64,
    pub root: RootHash,
    /// The hot pack in `IMAGE.hot`, if the image was signed together with it.
    pub hot_pack: Option<Sidecar>,
}

/// A file beside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sidecar {
    pub bytes: u64,
    /// SHA-256.
    pub digest: [u8; 32],
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}")?;
        writeln!(f, "file-bytes {}", self.file_bytes)?;
        writeln!(f, "data-bytes {}", self.data_bytes)?;
        writeln!(f, "root-hash sha256 {}", self.root)?;
        if let Some(Sidecar { bytes, digest }) = &self.hot_pack {
            let digits = digest.iter().map(|byte| format!("{byte:02x}"));
            writeln!(f, "hot-pack {bytes} sha256 {}", digits.collect::<String>())?;
        }
        Ok(())
    }
}

impl Manifest {
    /// Reads a manifest, byte by byte as brisk writes it.
    ///
    /// # Errors
    ///
    /// The line, what it has, and what is allowed.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = (1..).zip(text.lines());
        let mut next = |what: &'static str| match lines.next() {
            Some((number, line)) => Ok((number, line)),
            None => bail!("the manifest ends where the line {what:?} is expected"),
        };
        match next(TITLE)? {
            (_, TITLE) => {}
            (number, found) => bail!(
                "line {number} of the manifest is {}, allowed is {TITLE:?}; a later version of brisk may have written it",
                quoted(found)
            ),
        }
        let mut number_behind = |what: &'static str| {
            let (number, line) = next(what)?;
            let digits = line
                .strip_prefix(what)
                .and_then(|rest| rest.strip_prefix(' '));
            digits.and_then(parse_number).with_context(|| {
                format!(
                    "line {number} of the manifest is {}, allowed is \"{what} NUMBER\"",
                    quoted(line)
                )
            })
        };
        let file_bytes = number_behind("file-bytes")?;
        let data_bytes = number_behind("data-bytes")?;
        if data_bytes == 0 || !data_bytes.is_multiple_of(BLOCK) || data_bytes > file_bytes {
            bail!(
                "line 3 of the manifest says {data_bytes} bytes of data, allowed is a multiple of {BLOCK} up to \
                 {file_bytes}, the bytes of the file"
            );
        }
        let (number, line) = next("root-hash")?;
        let root = line
            .strip_prefix("root-hash sha256 ")
            .and_then(parse_digest);
        let Some(root) = root else {
            bail!(
                "line {number} of the manifest is {}, allowed is \"root-hash sha256\" and 64 hexadecimal digits",
                quoted(line)
            );
        };
        let mut hot_pack = None;
        if let Some((number, line)) = lines.next() {
            hot_pack = line
                .strip_prefix("hot-pack ")
                .and_then(|rest| rest.split_once(" sha256 "))
                .and_then(|(bytes, digest)| {
                    Some(Sidecar {
                        bytes: parse_number(bytes)?,
                        digest: *parse_digest(digest)?.as_bytes(),
                    })
                });
            if hot_pack.is_none() {
                bail!(
                    "line {number} of the manifest is {}, allowed is \"hot-pack NUMBER sha256\" and 64 hexadecimal \
                     digits, or no line; a later version of brisk may have written it",
                    quoted(line)
                );
            }
        }
        let manifest = Self {
            file_bytes,
            data_bytes,
            root,
            hot_pack,
        };
        // Two texts must not mean the same.
        if manifest.to_string() != text {
            bail!(
                "the manifest has more lines or other spaces than brisk writes; sign the image again"
            );
        }
        Ok(manifest)
    }

    /// The manifest beside the image at `path`, if one of `keys` has signed it.
    ///
    /// # Errors
    ///
    /// If manifest or signature are missing or damaged, or none of the keys has made the signature. The text says what
    /// to do.
    pub fn signed(path: &Path, keys: &TrustedKeys) -> anyhow::Result<Self> {
        keys.check_any(&shown(path))?;
        let (manifest_path, signature_path) = (manifest_beside(path), signature_beside(path));
        let read = |file: &Path| {
            let open = open_at_once(file).map_err(anyhow::Error::from);
            open.and_then(|open| Ok(read_short(open, file)?)).with_context(|| {
                format!(
                    "{}: the image is not signed: expected its manifest and signature in {} and {}; get them from the \
                     publisher, or sign the image with brisk sign",
                    shown(path),
                    shown(&manifest_path),
                    shown(&signature_path)
                )
            })
        };
        let (manifest, signature) = (read(&manifest_path)?, read(&signature_path)?);
        keys.check(&SignedText {
            text: &manifest,
            name: &shown(&manifest_path),
            signature: &signature,
            name_of_signature: &shown(&signature_path),
        })?;
        Self::parse(&manifest).with_context(|| format!("{}: cannot use it", shown(&manifest_path)))
    }

    /// What the image is compared with.
    pub fn verity(&self) -> Verity {
        let mut verity = Verity::new(self.root);
        verity.data_len = Some(self.data_bytes);
        verity
    }
}

impl Sidecar {
    /// Length and digest of the file at `path`. None if there is none.
    pub fn of(path: &Path) -> anyhow::Result<Option<Self>> {
        let read = || -> io::Result<Option<Self>> {
            let file = match open_at_once(path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            let (mut hash, mut bytes) = (Sha256::new(), 0);
            let mut buf = vec![0; CHUNK];
            loop {
                match ByteSource::read_bytes_at(&file, bytes, &mut buf)? {
                    0 => break,
                    n => {
                        hash.update(&buf[..n]);
                        bytes += n as u64;
                    }
                }
            }
            let digest = hash.finalize().into();
            Ok(Some(Self { bytes, digest }))
        };
        read().with_context(|| format!("cannot read {}", path.display()))
    }
}

fn parse_number(digits: &str) -> Option<u64> {
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all)
}

fn parse_digest(digits: &str) -> Option<RootHash> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.parse().ok().filter(|_| digits.bytes().all(lower))
}

/// The start of a line, without what a terminal would obey.
fn quoted(line: &str) -> String {
    format!("{:?}", line.chars().take(100).collect::<String>())
}

/// `IMAGE.manifest`.
pub fn manifest_beside(image: &Path) -> PathBuf {
    with_suffix(image, ".manifest")
}

/// `IMAGE.manifest.minisig`, the name that `minisign -Vm IMAGE.manifest` looks for.
pub fn signature_beside(image: &Path) -> PathBuf {
    with_suffix(image, ".manifest.minisig")
}

/// `IMAGE.hot`.
pub fn hot_pack_beside(image: &Path) -> PathBuf {
    with_suffix(image, ".hot")
}

fn with_suffix(image: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            file_bytes: 20_480,
            data_bytes: 12_288,
            root: "0f".repeat(32).parse().expect("64 digits"),
            hot_pack: Some(Sidecar {
                bytes: 7,
                digest: [0xab; 32],
            }),
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let with = manifest();
        let without = Manifest {
            hot_pack: None,
            ..manifest()
        };
        for manifest in [with, without] {
            assert_eq!(Manifest::parse(&manifest.to_string()).unwrap(), manifest);
        }
        let text = format!(
            "brisk-manifest 1\nfile-bytes 20480\ndata-bytes 12288\nroot-hash sha256 {}\nhot-pack 7 sha256 {}\n",
            "0f".repeat(32),
            "ab".repeat(32)
        );
        assert_eq!(manifest().to_string(), text);
    }

    #[test]
    fn what_a_manifest_may_not_say_is_named() {
        let sound = manifest().to_string();
        let replaced = |from: &str, to: &str| sound.replacen(from, to, 1);
        let root = "0f".repeat(32);
        let later = "a later version of brisk may have written it";
        for (text, message) in [
            (
                String::new(),
                "the manifest ends where the line \"brisk-manifest 1\" is expected".to_owned(),
            ),
            (
                replaced("manifest 1", "manifest 2"),
                format!(
                    "line 1 of the manifest is \"brisk-manifest 2\", allowed is \"brisk-manifest 1\"; {later}"
                ),
            ),
            (
                replaced("file-bytes 20480", "file-bytes +20480"),
                "line 2 of the manifest is \"file-bytes +20480\", allowed is \"file-bytes NUMBER\"".into(),
            ),
            (
                replaced("file-bytes 20480", "\u{1b}[2J"),
                "line 2 of the manifest is \"\\u{1b}[2J\", allowed is \"file-bytes NUMBER\"".into(),
            ),
            (
                replaced("data-bytes 12288\n", ""),
                format!(
                    "line 3 of the manifest is \"root-hash sha256 {}\", allowed is \"data-bytes NUMBER\"",
                    root
                ),
            ),
            (
                replaced("12288", "12287"),
                "line 3 of the manifest says 12287 bytes of data, allowed is a multiple of 4096 up to 20480, the bytes \
                 of the file"
                    .into(),
            ),
            (
                replaced("12288", "24576"),
                "line 3 of the manifest says 24576 bytes of data, allowed is a multiple of 4096 up to 20480, the bytes \
                 of the file"
                    .into(),
            ),
            (
                replaced("sha256 0f", "sha256 0F"),
                format!(
                    "line 4 of the manifest is \"root-hash sha256 0F{}\", allowed is \"root-hash sha256\" and 64 \
                     hexadecimal digits",
                    "0f".repeat(31)
                ),
            ),
            (
                replaced("hot-pack 7", "hot-pack x"),
                format!(
                    "line 5 of the manifest is \"hot-pack x sha256 {}\", allowed is \"hot-pack NUMBER sha256\" and 64 \
                     hexadecimal digits, or no line; {later}",
                    "ab".repeat(32)
                ),
            ),
            (
                format!("{sound}more\n"),
                "the manifest has more lines or other spaces than brisk writes; sign the image again".into(),
            ),
            (
                sound.replace('\n', "\r\n"),
                "the manifest has more lines or other spaces than brisk writes; sign the image again".into(),
            ),
            (
                sound.trim_end().to_owned(),
                "the manifest has more lines or other spaces than brisk writes; sign the image again".into(),
            ),
        ] {
            assert_eq!(Manifest::parse(&text).unwrap_err().to_string(), message);
        }
    }
}
