//! The contents of a file as a stream with a position.

use std::io::{self, BufRead, Read, Seek};

use super::file_reader::{FileReader, Piece};

/// Bytes that a stream reads ahead of a block that is stored raw. Only what is asked for is read of
/// such a block, so a stream that is read in small parts asks for more at once.
const RAW_AHEAD: usize = 32 << 10;

/// Zeros that the holes of all files are read from.
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// The contents of a file as a stream with a position.
///
/// A stream is independent of the [`FileReader`] and of the [`Image`](crate::Image) that it came
/// from: it keeps what it needs of them. A clone starts where the stream is, and then goes its own
/// way.
///
/// The stream buffers by itself: it holds on to the decoded block that it is in, so small reads and
/// [`BufRead`] copy from memory, and there is no gain in an [`io::BufReader`] around it.
///
/// ```
/// use std::io::BufRead;
///
/// use brisk_image::Image;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("app.img");
/// # let hosts = brisk_image::TreeEntry::file("127.0.0.1 localhost\n::1 localhost\n");
/// # let mut tree = brisk_image::TreeBuilder::new();
/// # tree.add_directories("etc")?.add("etc/hosts", hosts)?;
/// # brisk_image::ImageWriter::new().write(&tree.finish(), &path)?;
/// let hosts = Image::open(&path)?.file_at("etc/hosts")?.stream();
/// let lines: Vec<String> = hosts.lines().collect::<std::io::Result<_>>()?;
/// assert_eq!(lines, ["127.0.0.1 localhost", "::1 localhost"]);
/// # Ok(())
/// # }
/// ```
///
/// Invariants:
/// 1. `piece` holds the bytes of the file from byte `piece_at`, which is at most its length.
#[derive(Debug, Clone)]
pub struct FileStream {
    file: FileReader,
    at: u64,
    piece: Piece,
    piece_at: u64,
}

impl FileReader {
    /// The file as a stream that starts at its first byte.
    pub fn stream(&self) -> FileStream {
        FileStream::new(self.clone())
    }
}

impl FileStream {
    pub(super) fn new(file: FileReader) -> Self {
        Self {
            file,
            at: 0,
            piece: Piece::default(),
            piece_at: 0,
        }
    }

    /// Where in `piece` the stream is, if it is in there.
    fn offset_in_piece(&self) -> Option<usize> {
        let skip = usize::try_from(self.at.checked_sub(self.piece_at)?).ok()?;
        (skip < self.piece.len()).then_some(skip)
    }
}

impl BufRead for FileStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let skip = match self.offset_in_piece() {
            Some(skip) => skip,
            None => {
                let most = match self.file.is_raw_at(self.at) {
                    true => RAW_AHEAD,
                    false => usize::MAX,
                };
                self.piece = self.file.piece(self.at, most)?;
                self.piece_at = self.at;
                0
            }
        };
        Ok(match self.piece.as_slice() {
            Some(bytes) => &bytes[skip..],
            None => &ZEROS[..(self.piece.len() - skip).min(ZEROS.len())],
        })
    }

    fn consume(&mut self, n: usize) {
        self.at = self.at.saturating_add(n as u64);
    }
}

impl Read for FileStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let block = self.file.block_size() as usize;
        if self.offset_in_piece().is_none() && buf.len() >= block {
            // Whole blocks are decoded to where they belong.
            let n = self.file.read_at(self.at, buf)?;
            self.consume(n);
            return Ok(n);
        }
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl Seek for FileStream {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
            io::SeekFrom::End(by) => self.file.len().checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| {
            let text = "seek to before the start of the file";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(self.at)
    }
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use super::*;
    use crate::read::file_reader::tests::{BLOCK, file, image};

    const NAMES: [&str; 5] = ["text", "noise", "holes", "one", "two"];

    #[test]
    fn a_stream_gives_the_file_however_it_is_read() {
        let image = image();
        for name in NAMES {
            let whole = file(&image, name).read_to_vec().unwrap();
            for part in [1, 7, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK] {
                let mut stream = file(&image, name).stream();
                let (mut bytes, mut buf) = (Vec::new(), vec![0; part]);
                loop {
                    let n = stream.read(&mut buf).unwrap();
                    bytes.extend_from_slice(&buf[..n]);
                    if n == 0 {
                        break;
                    }
                }
                assert!(bytes == whole, "{name} in parts of {part}");
                assert_eq!(stream.stream_position().unwrap(), whole.len() as u64);
            }
            let mut bytes = Vec::new();
            let mut stream = file(&image, name).stream();
            loop {
                let part = stream.fill_buf().unwrap();
                if part.is_empty() {
                    break;
                }
                // Some of it, as a parser does.
                let n = part.len().div_ceil(2);
                bytes.extend_from_slice(&part[..n]);
                stream.consume(n);
            }
            assert!(bytes == whole, "{name} as a buffer");
        }
    }

    #[test]
    fn a_stream_goes_on_where_it_is_sent() {
        let image = image();
        for name in NAMES {
            let whole = file(&image, name).read_to_vec().unwrap();
            let len = whole.len() as i64;
            let mut stream = file(&image, name).stream();
            for (to, at) in [
                (io::SeekFrom::End(-1), len - 1),
                (io::SeekFrom::Start(0), 0),
                (io::SeekFrom::Start(1), 1),
                (io::SeekFrom::End(-len), 0),
                (io::SeekFrom::End(5), len + 5),
                (io::SeekFrom::Current(-7), len - 2),
                (io::SeekFrom::Start(u64::MAX), i64::MAX),
            ] {
                stream.seek(to).unwrap();
                let rest = whole.get(usize::try_from(at).unwrap()..).unwrap_or(&[]);
                let expected = &rest[..rest.len().min(3)];
                let mut buf = [0; 3];
                let n = stream.by_ref().take(3).read(&mut buf).unwrap();
                assert_eq!(&buf[..n], expected, "{name} after {to:?}");
                // Back, so that the next seek starts where this one ended.
                stream.seek_relative(-(n as i64)).unwrap();
            }
            let e = stream.seek(io::SeekFrom::End(-len - 1)).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_stream_outlives_its_image_and_goes_to_another_thread() {
        let mut stream = file(&image(), "text").stream();
        let mut other = stream.clone();
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut bytes = Vec::new();
        other.read_to_end(&mut bytes).unwrap();
        assert!(bytes == thread.join().unwrap());
    }
}
