//! Combines reads that are near each other in one file.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use crate::ByteSource;
use crate::waiting_read::{LARGEST, WaitingRead, wake_all};

/// Two waiting reads with at most this many bytes between them become one. Reading those bytes too costs less
/// than another operation of the disk.
const GAP: u64 = 16 << 10;

/// How many waiting reads a search for near ones looks at. Without this limit, ten thousand reads that are
/// not near each other would each be looked at ten thousand times.
const LOOKED_AT: usize = 256;

/// Reads of one file that are near each other, and are done as one.
pub(crate) struct ReadGroup {
    /// 1. There is at least one, and all are of the same file.
    reads: Vec<Arc<WaitingRead>>,
    /// From the first byte of all to the last, at most [`LARGEST`] bytes.
    bytes: Range<u64>,
}

impl ReadGroup {
    /// Takes the first read that is still wanted, and all that are near it.
    pub(crate) fn take(reads: &mut VecDeque<Arc<WaitingRead>>) -> Option<Self> {
        let first = loop {
            match reads.pop_front()? {
                read if read.is_wanted() => break read,
                _ => {}
            }
        };
        let mut group = Self::of(first);
        // A read that joins may bring others near.
        loop {
            let mut next = reads.iter().take(LOOKED_AT);
            let near = next.position(|read| group.is_near(read));
            let Some(read) = near.and_then(|number| reads.remove(number)) else {
                return Some(group);
            };
            if read.is_wanted() {
                group.bytes = group.with(&read);
                group.reads.push(read);
            }
        }
    }

    /// Takes as many groups as there are, but at most `most`.
    pub(crate) fn take_some(reads: &mut VecDeque<Arc<WaitingRead>>, most: usize) -> Vec<Self> {
        let groups = std::iter::from_fn(|| Self::take(reads));
        groups.take(most).collect()
    }

    /// Its reads.
    pub(crate) fn into_reads(self) -> Vec<Arc<WaitingRead>> {
        self.reads
    }

    fn of(read: Arc<WaitingRead>) -> Self {
        Self {
            bytes: read.bytes.clone(),
            reads: vec![read],
        }
    }

    fn with(&self, read: &WaitingRead) -> Range<u64> {
        self.bytes.start.min(read.bytes.start)..self.bytes.end.max(read.bytes.end)
    }

    fn is_near(&self, read: &WaitingRead) -> bool {
        let joined = self.with(read);
        Arc::ptr_eq(&read.file, &self.reads[0].file)
            && read.bytes.start <= self.bytes.end.saturating_add(GAP)
            && self.bytes.start <= read.bytes.end.saturating_add(GAP)
            && joined.end - joined.start <= LARGEST as u64
    }

    pub(crate) fn file(&self) -> &File {
        // Invariant 1.
        &self.reads[0].file
    }

    /// Its first byte in the file.
    pub(crate) fn start(&self) -> u64 {
        self.bytes.start
    }

    /// Its length, if the file does not end before.
    pub(crate) fn len(&self) -> usize {
        // At most `LARGEST`.
        (self.bytes.end - self.bytes.start) as usize
    }

    /// Does the read, in this thread.
    pub(crate) fn read(self) {
        let mut woken = Vec::new();
        let bytes = read(self.file(), self.start(), self.len());
        for single in self.finish(bytes, &mut woken) {
            let bytes = read(single.file(), single.start(), single.len());
            single.finish(bytes, &mut woken);
        }
        wake_all(woken);
    }

    /// Gives each read its part of the bytes, and adds the wakers to call to `woken`. There are fewer bytes
    /// at the end of the file. If several reads were done as one and that failed, only one of them may be at
    /// fault. So this returns them, to read each one alone.
    pub(crate) fn finish(self, bytes: io::Result<Vec<u8>>, woken: &mut Vec<Waker>) -> Vec<Self> {
        match (bytes, self.reads.as_slice()) {
            (bytes, [read]) => woken.extend(read.finish(bytes)),
            (Ok(bytes), reads) => {
                for read in reads {
                    // At most `len`.
                    let at = |place: u64| ((place - self.bytes.start) as usize).min(bytes.len());
                    let part = &bytes[at(read.bytes.start)..at(read.bytes.end)];
                    woken.extend(read.finish(Ok(part.to_vec())));
                }
            }
            (Err(_), _) => return self.reads.into_iter().map(Self::of).collect(),
        }
        Vec::new()
    }
}

#[cfg(feature = "io-uring")]
impl ReadGroup {
    /// Whether anybody waits for one of its reads.
    pub(crate) fn is_wanted(&self) -> bool {
        self.reads.iter().any(|read| read.is_wanted())
    }
}

/// The bytes. Fewer at the end of the file.
fn read(file: &File, start: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    let mut done = 0;
    while done < len {
        match ByteSource::read_bytes_at(file, start + done as u64, &mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    buf.truncate(done);
    Ok(buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;
    use std::os::unix::fs::FileExt;
    use std::task::{Context, Poll};

    fn read(file: &Arc<File>, bytes: Range<u64>) -> Arc<WaitingRead> {
        WaitingRead::new(file, bytes.start, (bytes.end - bytes.start) as usize)
    }

    fn taken(read: &WaitingRead) -> Vec<u8> {
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("it was not read"),
        }
    }

    #[test]
    fn reads_that_are_near_are_done_as_one() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let other = Arc::new(tempfile::tempfile().unwrap());
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let near = [0..10, 30_000..30_010, 15_000..15_010, 99_990..100_100];
        let near = near.map(|bytes| read(&file, bytes));
        let foreign = read(&other, 5..6);
        let gone = read(&file, 10..20);
        gone.cancel();
        let [first, second, third, far] = near.clone();
        let mut queue = VecDeque::from([first, foreign, second, gone, third, far]);
        // 30000 is near only after 15000 has joined, and 99990 never is.
        let together = ReadGroup::take(&mut queue).unwrap();
        assert_eq!(together.reads.len(), 3);
        together.read();
        assert_eq!(taken(&near[0]), bytes[..10]);
        assert_eq!(taken(&near[1]), bytes[30_000..30_010]);
        assert_eq!(taken(&near[2]), bytes[15_000..15_010]);
        let rest: Vec<_> = queue.iter().map(|read| read.bytes.start).collect();
        assert_eq!(rest, [5, 99_990]);
        while let Some(group) = ReadGroup::take(&mut queue) {
            group.read();
        }
        // There is less at the end of the file.
        assert_eq!(taken(&near[3]), bytes[99_990..]);
    }

    #[test]
    fn no_more_than_some_are_looked_at() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let far = (1..LOOKED_AT as u64 + 2).map(|n| n << 30..(n << 30) + 1);
        let places = iter::once(0..1).chain(far).chain(iter::once(1..2));
        let mut queue: VecDeque<_> = places.map(|bytes| read(&file, bytes)).collect();
        let len = queue.len();
        assert_eq!(ReadGroup::take(&mut queue).unwrap().len(), 1);
        assert_eq!(queue.len(), len - 1);
    }

    #[test]
    fn a_read_that_fails_takes_no_other_with_it() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&[7; 100], 0).unwrap();
        let reads = [read(&file, 0..10), read(&file, 20..30)];
        let mut queue = reads.iter().cloned().collect();
        let group = ReadGroup::take(&mut queue).unwrap();
        assert_eq!((group.start(), group.len()), (0, 30));
        let single = group.finish(Err(io::ErrorKind::Other.into()), &mut Vec::new());
        let single: Vec<_> = single
            .into_iter()
            .map(|group| group.bytes.clone())
            .collect();
        assert_eq!(single, [0..10, 20..30]);
    }
}
