use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::ring;
use crate::read_at::within_files;
use crate::transfer::{PIECE, ended_early};

/// Reads under way at once.
const DEPTH: u32 = 16;

/// A part of the buffer that one read after the other fills.
struct Piece<'a> {
    at: u64,
    buf: &'a mut [u8],
    /// Bytes that the file must have of it.
    needed: usize,
    done: usize,
}

impl Piece<'_> {
    fn entry(&mut self, file: &File, number: usize) -> squeue::Entry {
        let rest = &mut self.buf[self.done..];
        // At most PIECE.
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        opcode::Read::new(types::Fd(file.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(self.at + self.done as u64)
            .build()
            .user_data(number as u64)
    }

    /// Takes in what a read said, and tells whether the piece is whole.
    fn took(&mut self, result: i32) -> io::Result<bool> {
        let Ok(n) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            let again = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN));
            return if again { Ok(false) } else { Err(error) };
        };
        if n == 0 && self.done < self.needed {
            let wanted = self.at + self.needed as u64;
            return Err(ended_early(self.at + self.done as u64, wanted));
        }
        self.done += n;
        Ok(n == 0 || self.done >= self.needed)
    }
}

/// Fills the first `needed` bytes of `buf`, or more, from `start` of `file`.
///
/// # Errors
///
/// `Unsupported` where the kernel, its settings, or a filter of system calls refuse `io_uring`.
pub(crate) fn transfer(file: &File, start: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let mut ring = ring::make(DEPTH)?;
    let mut pieces: Vec<_> = buf
        .chunks_mut(PIECE)
        .enumerate()
        .map(|(number, buf)| Piece {
            at: start + (number * PIECE) as u64,
            needed: needed.saturating_sub(number * PIECE).min(buf.len()),
            buf,
            done: 0,
        })
        .collect();
    let mut waiting: Vec<usize> = (0..pieces.len()).rev().collect();
    let mut in_flight = 0;
    let mut outcome = Ok(());
    // The kernel writes to the pieces until the last read has ended, so that is waited for, whatever
    // happens.
    while in_flight > 0 || (!waiting.is_empty() && outcome.is_ok()) {
        while outcome.is_ok() && in_flight < DEPTH as usize {
            let Some(number) = waiting.pop() else { break };
            let entry = pieces[number].entry(file, number);
            // SAFETY: the entry's buffer is a part of `pieces[number]`, which nobody reads or moves until
            // the read has ended: only then it is taken up again, and this function does not return before.
            // The descriptor is borrowed as long.
            let pushed = unsafe { ring.submission().push(&entry) };
            assert!(pushed.is_ok(), "the queue has DEPTH entries");
            in_flight += 1;
        }
        hand_over_and_wait(&ring);
        for entry in ring.completion() {
            in_flight -= 1;
            let number = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            match pieces[number].took(entry.result()) {
                Ok(true) => {}
                Ok(false) => waiting.push(number),
                Err(e) => outcome = outcome.and(Err(e)),
            }
        }
    }
    outcome
}

/// Reads a file through a ring of `io_uring` of its own, one read after the other: one system call each, which
/// hands the read over and waits for it. For comparison: reading without a ring takes less
/// ([`AsyncFile`](crate::AsyncFile)).
pub struct UringReader {
    file: File,
    ring: IoUring,
}

impl UringReader {
    /// Makes a ring to read `file`.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the kernel, its settings, or a filter of system calls refuse `io_uring`.
    pub fn new(file: File) -> io::Result<Self> {
        let ring = ring::make(1)?;
        Ok(Self { file, ring })
    }

    /// Reads up to `buf.len()` bytes at `offset`, and tells how many.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Some(buf) = within_files(offset, buf) else {
            return Ok(0);
        };
        let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let descriptor = types::Fd(self.file.as_raw_fd());
        let read = opcode::Read::new(descriptor, buf.as_mut_ptr(), len).offset(offset);
        // SAFETY: `buf` is borrowed until this function returns, which it does only when the read has ended, and
        // the file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&read.build()) };
        assert!(pushed.is_ok(), "the queue has one entry, which is free");
        loop {
            hand_over_and_wait(&self.ring);
            if let Some(entry) = self.ring.completion().next() {
                let failed = |_| io::Error::from_raw_os_error(-entry.result());
                return usize::try_from(entry.result()).map_err(failed);
            }
        }
    }
}

impl fmt::Debug for UringReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UringReader");
        debug.field("file", &self.file).finish_non_exhaustive()
    }
}

/// Hands what is queued to the kernel, and waits until something has ended, or the kernel wants to be asked
/// again.
///
/// Ends the process if it cannot, though it could before: what was handed over cannot be taken back, and the
/// kernel would write to memory that is somebody else's by then, if this returned, or unwound.
fn hand_over_and_wait(ring: &IoUring) {
    if let Err(e) = ring::hand_over_and_wait(ring, 1) {
        // There is nobody else to tell, and it may be that nobody listens.
        writeln!(
            io::stderr(),
            "brisk-io: io_uring, which worked, is refused while the kernel reads into memory: {e}; ending"
        )
        .ok();
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_after_the_other_gives_what_the_file_has() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/uring/enabled.rs");
        let text = std::fs::read(path).unwrap();
        let mut reader = match UringReader::new(File::open(path).unwrap()) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => return,
            reader => reader.unwrap(),
        };
        let len = text.len();
        for (at, size) in [(0, 10), (7, 4000), (len - 5, 20), (len, 1), (3, 0)] {
            let mut buf = vec![0; size];
            let n = reader.read_at(at as u64, &mut buf).unwrap();
            assert_eq!(buf[..n], text[at..len.min(at + size)]);
        }
        for at in [1 << 63, u64::MAX] {
            assert_eq!(reader.read_at(at, &mut [0; 4]).unwrap(), 0);
        }
        let directory = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let e = UringReader::new(directory).unwrap().read_at(0, &mut [0]);
        assert_eq!(e.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }
}
