//! A layer of a container image, and what it unpacks to.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_io::ByteSource;
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::input::{Stamp, TarInput, check_stamp, read_full, stamp};
use crate::error::{Error, Result, Unsupported};

/// Bytes read or unpacked at once.
const CHUNK: usize = 256 << 10;

/// A layer may unpack to this many bytes, however short it is.
const ANY_RATIO: u64 = 1 << 30;

/// Longer ones may be this many times as long as they are stored. Gzip reaches 1032.
const MOST_RATIO: u64 = 1100;

/// Memory that a frame of zstd may ask for, as a power of two: what zstd allows by default.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Entries of all layers at most. Images of a whole desktop have half a million.
pub(super) const MOST_ENTRIES: u32 = 4 << 20;

/// Bytes of names, links, attributes and maps of holes of all layers at most.
const MOST_METADATA: u64 = 512 << 20;

/// A layer of a container image: a tar archive, as it is or compressed with gzip or zstd.
///
/// Nothing of it is believed. [`Tree::from_layers`](crate::Tree::from_layers) checks its bytes.
#[derive(Debug)]
pub struct Layer {
    name: String,
    file: File,
    start: u64,
    len: u64,
    digest: Option<[u8; 32]>,
    diff_id: [u8; 32],
    stamp: Stamp,
}

impl Layer {
    /// The layer in the `len` bytes of `file` from `start`, which messages call `name`. `diff_id` is the SHA-256 of the tar
    /// archive that it unpacks to.
    ///
    /// # Errors
    ///
    /// `Io` if the system does not say the length of the file, and `Input` if it has fewer bytes.
    pub fn new(
        name: impl Into<String>,
        file: File,
        (start, len): (u64, u64),
        diff_id: [u8; 32],
    ) -> Result<Self> {
        let (name, stamp) = (name.into(), stamp(&file)?);
        if start.checked_add(len).is_none_or(|end| end > stamp.0) {
            let text = format!(
                "has {} bytes, and its description says {len}; fetch it again",
                stamp.0.saturating_sub(start)
            );
            return Err(Error::input(text).with_path(name));
        }
        Ok(Self {
            name,
            file,
            start,
            len,
            digest: None,
            diff_id,
            stamp,
        })
    }

    /// The same, whose bytes as they are stored have this SHA-256.
    #[must_use]
    pub fn digest(mut self, digest: [u8; 32]) -> Self {
        self.digest = Some(digest);
        self
    }

    pub(super) fn name(&self) -> &Path {
        Path::new(&self.name)
    }

    pub(super) fn check_unchanged(&self) -> Result<()> {
        check_stamp(&self.file, self.stamp).map_err(|e| e.with_path(&self.name))
    }

    /// The error that it is not what its digest says.
    fn wrong(&self, what: &str, expected: &[u8; 32], found: &[u8; 32]) -> Error {
        let hex = data_encoding::HEXLOWER;
        let (expected, found) = (hex.encode(expected), hex.encode(found));
        Error::input(format!(
            "the {what} is sha256:{found}, expected is sha256:{expected}; fetch the image again"
        ))
    }

    /// Reads all of it and checks its digest.
    pub(super) fn check_digest(self: &Arc<Self>) -> Result<()> {
        let mut blob = Blob::new(self, true);
        io::copy(&mut blob, &mut io::sink()).map_err(|e| Error::io("read the layer", e))?;
        blob.check()
    }
}

/// The bytes of a layer as they are stored.
pub(super) struct Blob {
    layer: Arc<Layer>,
    at: u64,
    hasher: Option<Sha256>,
}

impl Blob {
    fn new(layer: &Arc<Layer>, hashed: bool) -> Self {
        Self {
            layer: Arc::clone(layer),
            at: 0,
            hasher: (hashed && layer.digest.is_some()).then(Sha256::new),
        }
    }

    /// Checks that all was read, and what it was.
    fn check(&mut self) -> Result<()> {
        let left = self.layer.len - self.at;
        if left > 0 {
            return Err(Error::input(format!(
                "has {left} bytes behind the end of its archive; fetch the image again"
            )));
        }
        match (self.layer.digest, self.hasher.take()) {
            (Some(expected), Some(hasher)) => {
                let found = hasher.finalize().into();
                match found == expected {
                    true => Ok(()),
                    false => Err(self.layer.wrong("digest", &expected, &found)),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Read for Blob {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.layer.len - self.at).unwrap_or(usize::MAX);
        let most = buf.len().min(left);
        let part = &mut buf[..most];
        let n = self
            .layer
            .file
            .read_bytes_at(self.layer.start + self.at, part)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&part[..n]);
        }
        self.at += n as u64;
        Ok(n)
    }
}

/// The bytes of the archive in a layer.
pub(super) enum Unpacked {
    Plain(Blob),
    Gzip(Box<MultiGzDecoder<BufReader<Blob>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Blob>>>),
}

impl Unpacked {
    /// Those of `layer`, whose compression its first bytes say, as all runtimes do it.
    pub(super) fn new(layer: &Arc<Layer>, hashed: bool) -> Result<Self> {
        let mut magic = [0; 6];
        let n = read_full(&mut Blob::new(layer, false), &mut magic)?;
        let blob = Blob::new(layer, hashed);
        Ok(match &magic[..n] {
            [0x1f, 0x8b, ..] => {
                let input = BufReader::with_capacity(CHUNK, blob);
                Self::Gzip(Box::new(MultiGzDecoder::new(input)))
            }
            // A frame, or one that decoders pass over.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                let input = BufReader::with_capacity(CHUNK, blob);
                let decoder = zstd::stream::read::Decoder::with_buffer(input);
                let decoder = decoder.and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(decoder)
                });
                let decoder = decoder.map_err(|e| Error::io("set up the decoder of zstd", e))?;
                Self::Zstd(Box::new(decoder))
            }
            [b'B', b'Z', b'h', ..] | [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                return Err(Error::unsupported(Unsupported::Other(
                    "is compressed with bzip2 or xz, supported are gzip and zstd; copy the image with \
                     skopeo copy --dest-compress"
                        .into(),
                )));
            }
            _ => Self::Plain(blob),
        })
    }

    fn blob(&mut self) -> &mut Blob {
        match self {
            Self::Plain(blob) => blob,
            Self::Gzip(decoder) => decoder.get_mut().get_mut(),
            Self::Zstd(decoder) => decoder.get_mut().get_mut(),
        }
    }
}

impl Read for Unpacked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(blob) => blob.read(buf),
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
        }
    }
}

/// The error of a decoder or of the system.
pub(super) fn unpack_error(e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(_) => Error::io("read the layer", e),
        None => Error::input(format!(
            "cannot be unpacked ({e}); fetch the image again, or have it made again"
        )),
    }
}

/// What all layers together may take.
pub(super) struct Budget {
    bytes: AtomicU64,
    most_bytes: u64,
    entries: AtomicU64,
    metadata: AtomicU64,
}

impl Budget {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            most_bytes,
            entries: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
        }
    }

    /// Adds to a counter. Each sum is refused before it is near the end of 64 bits.
    fn add(counter: &AtomicU64, more: u64) -> u64 {
        let before = counter.fetch_add(more, Ordering::Relaxed);
        before.saturating_add(more)
    }

    fn unpacked(&self, bytes: u64) -> Result<()> {
        let sum = Self::add(&self.bytes, bytes);
        match sum > self.most_bytes {
            true => Err(Error::limit(
                "unpacking the layers of the image",
                sum,
                self.most_bytes,
            )),
            false => Ok(()),
        }
    }

    /// Counts an entry that has this many bytes of metadata.
    pub(super) fn entry(&self, metadata: u64) -> Result<()> {
        let entries = Self::add(&self.entries, 1);
        let metadata = Self::add(&self.metadata, metadata);
        match entries > MOST_ENTRIES.into() || metadata > MOST_METADATA {
            true => Err(Error::input(format!(
                "is the layer that makes it {entries} entries with {metadata} bytes of names and attributes, allowed are \
                 {MOST_ENTRIES} with {MOST_METADATA} in all layers; split the image"
            ))),
            false => Ok(()),
        }
    }
}

/// The archive in a layer, read from front to back and checked at its end.
pub(super) struct LayerInput<'a> {
    layer: &'a Arc<Layer>,
    budget: &'a Budget,
    unpacked: BufReader<Unpacked>,
    hasher: Sha256,
    len: u64,
    /// Of what was kept last.
    contents: [u8; 32],
}

impl<'a> LayerInput<'a> {
    pub(super) fn new(layer: &'a Arc<Layer>, budget: &'a Budget) -> Result<Self> {
        Ok(Self {
            layer,
            budget,
            unpacked: BufReader::with_capacity(CHUNK, Unpacked::new(layer, true)?),
            hasher: Sha256::new(),
            len: 0,
            contents: [0; 32],
        })
    }

    /// The digest of the contents that were kept last.
    pub(super) fn contents(&self) -> [u8; 32] {
        self.contents
    }

    /// Gives `each` the next bytes in parts, at most `len`, and returns how many there were.
    fn parts(&mut self, len: u64, mut each: impl FnMut(&[u8])) -> Result<u64> {
        let mut left = len;
        while left > 0 {
            let part = match self.unpacked.fill_buf() {
                Ok([]) => break,
                Ok(part) => part,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(unpack_error(e)),
            };
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            let part = &part[..n];
            self.hasher.update(part);
            each(part);
            self.unpacked.consume(n);
            left -= n as u64;
            self.len += n as u64;
            self.budget.unpacked(n as u64)?;
            let most = self
                .layer
                .len
                .saturating_mul(MOST_RATIO)
                .saturating_add(ANY_RATIO);
            if self.len > most {
                return Err(Error::input(format!(
                    "unpacks to more than {most} bytes, which no files of programs do that take {}; if you trust the image, \
                     copy it to docker-archive: with skopeo, whose layers are not compressed",
                    self.layer.len
                )));
            }
        }
        Ok(len - left)
    }

    /// Checks the digests, behind the end of the archive.
    pub(super) fn finish(mut self) -> Result<()> {
        self.unpacked.get_mut().blob().check()?;
        let (expected, found) = (self.layer.diff_id, self.hasher.finalize().into());
        match found == expected {
            true => Ok(()),
            false => Err(self
                .layer
                .wrong("digest of what it unpacks to", &expected, &found)),
        }
    }
}

impl TarInput for LayerInput<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        self.parts(buf.len() as u64, |part| {
            buf[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        })?;
        Ok(done)
    }

    fn skip(&mut self, len: u64) -> Result<bool> {
        Ok(self.parts(len, |_| {})? == len)
    }

    fn keep(&mut self, len: u64) -> Result<Option<u64>> {
        let at = self.len;
        let mut contents = blake3::Hasher::new();
        let n = self.parts(len, |part| {
            contents.update(part);
        })?;
        self.contents = contents.finalize().into();
        Ok((n == len).then_some(at))
    }
}
