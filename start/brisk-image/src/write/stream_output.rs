//! Output to anything that can be written and sought in.

use std::io::{self, Seek, SeekFrom, Write};

use crate::error::{Error, Result};
use crate::output::Output;

/// Zeros that padding is written from.
static ZEROS: [u8; 4096] = [0; 4096];

/// An image that is written into a stream of the caller, from the current position of the stream.
pub(crate) struct StreamOutput<W> {
    stream: W,
    /// Where in the stream the image starts.
    start: u64,
    len: u64,
}

impl<W: Write + Seek> StreamOutput<W> {
    pub(crate) fn new(mut stream: W) -> Result<Self> {
        let start = stream.stream_position().map_err(fault)?;
        Ok(Self {
            stream,
            start,
            len: 0,
        })
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.stream.flush().map_err(fault)
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        let at = self.start.checked_add(offset);
        let at = at.ok_or(io::ErrorKind::FileTooLarge)?;
        self.stream.seek(SeekFrom::Start(at)).map(drop)
    }
}

fn fault(e: io::Error) -> Error {
    Error::io("write the image", e)
}

impl<W: Write + Seek> Output for StreamOutput<W> {
    fn len(&self) -> u64 {
        self.len
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(fault)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn pad_to(&mut self, align: u64) -> Result<()> {
        let mut left = self.len.next_multiple_of(align) - self.len;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.append(&ZEROS[..n])?;
            left -= n as u64;
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut write = || {
            self.seek(offset)?;
            self.stream.write_all(bytes)?;
            self.seek(self.len)
        };
        write().map_err(fault)
    }
}
