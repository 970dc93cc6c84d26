use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::advice::will_read;
use crate::file_source;

/// Bytes at offsets, readable from many threads at once.
///
/// Nothing here has a cursor, so threads can share a value without a lock.
///
/// No method has the same name as one of a slice or a vector. So importing this trait changes the meaning of
/// none of their calls.
pub trait ByteSource: Send + Sync {
    /// Length in bytes at the time of the call.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `buf.len()` bytes at `offset`, and returns how many.
    ///
    /// Zero means that `offset` is at or after the end, or that `buf` is empty.
    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Says that `bytes` will be read soon, so that they can be fetched meanwhile. Does not wait, and may do
    /// nothing.
    fn will_read(&self, bytes: Range<u64>) {
        let _ = bytes;
    }

    /// Says that `bytes`, as they were read, are not what they should be. True if the source will have them anew, so that they
    /// should be read again; most sources have nothing else.
    fn read_again(&self, bytes: &Range<u64>) -> bool {
        let _ = bytes;
        false
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the source ends before `buf` is full; the contents of
    /// `buf` are then unspecified. Interrupted reads are repeated.
    fn read_exact_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset
                .checked_add(done as u64)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            match self.read_bytes_at(at, &mut buf[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl ByteSource for File {
    /// The length from `fstat`. For a block device of Linux, the position of its end.
    fn size(&self) -> io::Result<u64> {
        file_source::len(self)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match within_files(offset, buf) {
            Some(buf) => file_source::read_at(self, offset, buf),
            None => Ok(0),
        }
    }

    fn will_read(&self, bytes: Range<u64>) {
        // This is only advice.
        will_read(self, bytes).ok();
    }
}

/// The part of `buf` that a file can fill at `offset`. None past the end of the longest possible file: there
/// the kernel would refuse the read, or treat `u64::MAX` as the file's cursor.
pub(crate) fn within_files(offset: u64, buf: &mut [u8]) -> Option<&mut [u8]> {
    let room = i64::MAX.unsigned_abs().checked_sub(offset)?;
    let len = usize::try_from(room).map_or(buf.len(), |room| buf.len().min(room));
    (room > 0).then(|| &mut buf[..len])
}

impl ByteSource for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| self.get(at..)) else {
            return Ok(0);
        };
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl ByteSource for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        ByteSource::size(self.as_slice())
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_bytes_at(offset, buf)
    }
}

/// A pointer to a source is a source.
macro_rules! impl_by_pointer {
    ($($pointer:ty),*) => {$(
        impl<T: ByteSource + ?Sized> ByteSource for $pointer {
            fn size(&self) -> io::Result<u64> {
                (**self).size()
            }

            fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
                (**self).read_bytes_at(offset, buf)
            }

            fn will_read(&self, bytes: Range<u64>) {
                (**self).will_read(bytes);
            }

            fn read_again(&self, bytes: &Range<u64>) -> bool {
                (**self).read_again(bytes)
            }
        }
    )*};
}

impl_by_pointer!(&T, Box<T>, Arc<T>);

/// `len` bytes of another source from `start`, as a source of their own.
#[derive(Debug, Clone)]
pub struct Window<S> {
    source: S,
    start: u64,
    len: u64,
}

impl<S: ByteSource> Window<S> {
    /// The bytes of `source` from `start`, at most `len` of them.
    pub fn new(source: S, start: u64, len: u64) -> Self {
        // `start + len` cannot overflow, so the reads below need no check.
        let len = len.min(u64::MAX - start);
        Self { source, start, len }
    }
}

impl<S: ByteSource> ByteSource for Window<S> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.source.size()?.saturating_sub(self.start).min(self.len))
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if n == 0 {
            return Ok(0);
        }
        self.source
            .read_bytes_at(self.start + offset, &mut buf[..n])
    }

    fn will_read(&self, bytes: Range<u64>) {
        let end = bytes.end.min(self.len);
        if bytes.start < end {
            self.source
                .will_read(self.start + bytes.start..self.start + end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_where_it_says() {
        let source: Vec<u8> = (0..100).collect();
        let window = Window::new(source, 90, 4);
        assert_eq!(window.size().unwrap(), 4);
        let mut buf = [0; 8];
        assert_eq!(window.read_bytes_at(1, &mut buf).unwrap(), 3);
        assert_eq!(&buf[..3], &[91, 92, 93]);
        assert_eq!(window.read_bytes_at(4, &mut buf).unwrap(), 0);
    }

    #[test]
    fn a_window_past_the_end_of_its_source_is_shorter() {
        let window = Window::new(vec![1u8, 2, 3], 2, 100);
        assert_eq!(window.size().unwrap(), 1);
        let window = Window::new(vec![1u8, 2, 3], u64::MAX, u64::MAX);
        assert_eq!(window.size().unwrap(), 0);
        assert_eq!(window.read_bytes_at(u64::MAX, &mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn reading_past_the_end_is_an_error_and_not_zeros() {
        let mut buf = [0; 4];
        let e = vec![1u8, 2, 3]
            .read_exact_bytes_at(0, &mut buf)
            .unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        let e = vec![1u8]
            .read_exact_bytes_at(u64::MAX, &mut buf)
            .unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Fails with `Interrupted` on every other call, and returns one byte at a time.
    struct Stutter(std::sync::atomic::AtomicU32);

    impl ByteSource for Stutter {
        fn size(&self) -> io::Result<u64> {
            Ok(u64::MAX)
        }
        fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            use std::sync::atomic::Ordering;
            if self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            buf[0] = offset.to_le_bytes()[0];
            Ok(1)
        }
    }

    #[test]
    fn interrupted_and_short_reads_are_continued() {
        let mut buf = [0; 5];
        Stutter(0.into()).read_exact_bytes_at(7, &mut buf).unwrap();
        assert_eq!(buf, [7, 8, 9, 10, 11]);
    }
    #[test]
    fn a_pointer_reads_what_it_points_to() {
        fn read(source: impl ByteSource) -> (u64, [u8; 2]) {
            let mut buf = [0; 2];
            source.read_exact_bytes_at(1, &mut buf).unwrap();
            (source.size().unwrap(), buf)
        }
        let bytes = vec![1u8, 2, 3];
        let dynamic: Box<dyn ByteSource> = Box::new(bytes.clone());
        let told = [
            read(bytes.as_slice()),
            read(&bytes),
            read(&*dynamic),
            read(dynamic),
            read(Box::new(bytes.clone())),
            read(Arc::<[u8]>::from(bytes.clone())),
            read(Window::new(&bytes, 0, 3)),
        ];
        assert_eq!(told, [(3, [2, 3]); 7]);
    }

    #[test]
    fn a_pointer_passes_on_what_will_be_read() {
        struct Told(std::sync::Mutex<Vec<Range<u64>>>);
        impl ByteSource for Told {
            fn size(&self) -> io::Result<u64> {
                Ok(9)
            }
            fn read_bytes_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
                Ok(0)
            }
            fn will_read(&self, bytes: Range<u64>) {
                self.0.lock().unwrap().push(bytes);
            }
        }
        let told = Arc::new(Told(Vec::new().into()));
        ByteSource::will_read(&&*told, 0..1);
        ByteSource::will_read(&Box::new(Arc::clone(&told)), 1..2);
        assert_eq!(*told.0.lock().unwrap(), [0..1, 1..2]);
    }
}
