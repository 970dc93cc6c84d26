use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::Hit;
use crate::hit::Held;
use crate::segment::Segment;

/// A published range of a segment, which stays mapped as long as this lives.
struct Pinned {
    segment: Arc<Segment>,
    start: u64,
    len: usize,
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // `Pinned::of` has found the range there, and a segment never gets shorter.
        let range = self.segment.published(self.start, self.len);
        range.unwrap_or_default()
    }
}

/// # As `Bytes`
///
/// With the feature `bytes`. A `Bytes` of a mapped hit borrows from the mapping: it pins the mapping of that file, and
/// nothing else. It outlives the hit and the [`Cache`](crate::Cache), and stays as it is while the entry is replaced, evicted
/// or removed. So the promise of [`Cache::open_mapped`](crate::Cache::open_mapped) holds until the last of them is
/// dropped. As long as one lives, an evicted file keeps its place on the disk ([`CacheStat::held_bytes`](crate::CacheStat::held_bytes)).
impl Hit {
    /// The value, without a copy. Checks what was not checked yet.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    pub fn into_bytes(self) -> io::Result<Bytes> {
        if let Held::Unread(unread) = &self.held {
            let (bytes, _) = self.read_chunks(unread, &(0..self.len()))?;
            return Ok(Bytes::from(bytes));
        }
        // Checks all of it.
        self.bytes()?;
        let value = self.value_range();
        Ok(match self.held {
            Held::Mapped { segment, start, .. } => pin(segment, start, value),
            Held::Copied(record) => Bytes::from(record).slice(value),
            Held::Unstored(value) => Bytes::from(value),
            Held::Unread(_) => Bytes::new(),
        })
    }

    /// The copy that this hit has, or the hit itself if it has none.
    ///
    /// # Errors
    ///
    /// The hit.
    #[allow(clippy::result_large_err, reason = "the hit is what was given")]
    pub fn try_into_copy(self) -> Result<Bytes, Self> {
        let value = self.value_range();
        match self.held {
            Held::Copied(record) => Ok(Bytes::from(record).slice(value)),
            Held::Unstored(value) => Ok(Bytes::from(value)),
            Held::Mapped { .. } | Held::Unread(_) => Err(self),
        }
    }

    /// A part of the value. Checks each chunk that it touches once. From a mapped hit it copies nothing.
    ///
    /// From a copy it copies the part. There [`Hit::into_bytes`] and `Bytes::slice` copy nothing. Of an unread value it reads
    /// the chunks that have the part.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    pub fn part_bytes(&self, part: Range<usize>) -> io::Result<Bytes> {
        if let Held::Unread(unread) = &self.held {
            self.check_bounds(&part)?;
            let (bytes, part) = self.read_chunks(unread, &part)?;
            return Ok(Bytes::from(bytes).slice(part));
        }
        let wanted = self.part(part.clone())?;
        let value = self.value_range();
        Ok(match &self.held {
            Held::Mapped { segment, start, .. } => {
                let part = value.start + part.start..value.start + part.end;
                pin(Arc::clone(segment), *start, part)
            }
            Held::Copied(_) | Held::Unstored(_) | Held::Unread(_) => Bytes::copy_from_slice(wanted),
        })
    }
}

/// A part of the record that begins at `start`.
fn pin(segment: Arc<Segment>, start: u64, part: Range<usize>) -> Bytes {
    let len = part.len();
    let start = start.saturating_add(part.start as u64);
    Bytes::from_owner(Pinned {
        segment,
        start,
        len,
    })
}
