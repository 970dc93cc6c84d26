use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::ring;
use crate::transfer::{PIECE, ended_early};

/// Reads in progress at once.
const DEPTH: u32 = 16;

/// A part of the buffer. One read after the other fills it.
struct Piece<'a> {
    at: u64,
    buf: &'a mut [u8],
    /// How many bytes of it the file must have.
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

    /// Handles the result of a read, and returns whether the piece is complete.
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
/// `Unsupported` if the kernel, its settings, or a filter of system calls refuse `io_uring`.
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
    // The kernel writes to the pieces until the last read has completed, so this always waits for that.
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

/// Submits what is queued to the kernel, and waits until a read has completed, or the kernel wants to be
/// asked again.
///
/// Ends the process if that fails although it worked before. Submitted reads cannot be taken back, and if
/// this returned or unwound, the kernel would write to memory that may belong to something else by then.
fn hand_over_and_wait(ring: &IoUring) {
    if let Err(e) = ring::hand_over_and_wait(ring) {
        // There is no other place to say so, and perhaps nobody listens.
        writeln!(
            io::stderr(),
            "brisk-io: the system now refuses io_uring while the kernel reads into memory: {e}; ending the process"
        )
        .ok();
        std::process::abort();
    }
}
