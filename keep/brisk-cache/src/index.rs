use std::fs::File;
use std::io;

use brisk_io::{ByteSource, Mapping};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::directory::{Directory, FileId, INDEX};
use crate::format::check;
use crate::format::digest::{self, Digest};
use crate::format::index_header::{
    self, BLOCK, CURRENT, IndexHeader, MAGIC, MARK_AT, OLD_BEFORE_AT, SLOTS_AT,
};
use crate::format::noted_limit::{self, LIMIT_AT};
use crate::format::slot::{self, Slot, WAYS};
use crate::source::Source;

/// Slots in a set below which a new key goes there, though the other set may have more room. So most keys are found in
/// the first set.
pub(crate) const CROWDED: u32 = 6;

/// An index that was open when this was made. Another may have replaced it since.
#[derive(Debug)]
pub(crate) struct Index {
    source: Source,
    /// Open for writing, too, if this user may write it.
    file: File,
    pub(crate) writable: bool,
    pub(crate) id: FileId,
    pub(crate) header: IndexHeader,
}

/// What a look at the two sets of a key found.
#[derive(Debug)]
pub(crate) enum Found {
    /// Its slot, at this offset.
    Slot(u64, Slot),
    /// A slot with its digest that fails its check: it may be being written. `check` is of its place and its bytes.
    Torn {
        check: u64,
    },
    Nothing,
}

/// Where the slot of a key goes.
#[derive(Debug)]
pub(crate) enum Place {
    /// In place of its slot.
    Same(u64, Slot),
    /// In a free slot.
    Free(u64),
    /// Nowhere. This is the slot that was not used for longest.
    Full(u64, Slot),
}

/// The file of an index. Nothing of it was read yet.
#[derive(Debug)]
pub(crate) struct IndexFile {
    /// Open for writing, too, if this user may write it.
    file: File,
    writable: bool,
    len: u64,
    id: FileId,
}

impl IndexFile {
    /// Opens the index of the directory. None if there is none that this version can read.
    pub(crate) fn open(directory: &Directory) -> io::Result<Option<Self>> {
        let opened = match directory.file(INDEX, OFlags::RDWR) {
            Err(e) if is_read_only(&e) => directory.file(INDEX, OFlags::RDONLY).map(|f| (f, false)),
            opened => opened.map(|f| (f, true)),
        };
        let (Some((file, stat)), writable) = opened? else {
            return Ok(None);
        };
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        let id = FileId::of_stat(&stat);
        let mut magic = [0; MAGIC.len()];
        let is_index = len >= SLOTS_AT && file.read_bytes_at(0, &mut magic)? > 0 && magic == MAGIC;
        Ok(is_index.then_some(Self {
            file,
            writable,
            len,
            id,
        }))
    }

    /// Looks for the slot of a key by reads alone. None if the index is not the current one, or none of this version.
    ///
    /// The second is the sequence below which files are old, 0 if nobody has noted it.
    pub(crate) fn find(&self, key: &[u8]) -> io::Result<Option<(Found, u64)>> {
        let mut start = [0; OLD_BEFORE_AT as usize + 8];
        self.file.read_exact_bytes_at(0, &mut start)?;
        let header = start
            .first_chunk()
            .copied()
            .unwrap_or([0; index_header::LEN]);
        let is_current = header.get(MARK_AT as usize..) == Some(&CURRENT);
        let header = IndexHeader::parse(&header, self.len);
        let Some(header) = header.filter(|_| is_current) else {
            return Ok(None);
        };
        let old_before = start.last_chunk().copied().map_or(0, u64::from_le_bytes);
        let digest = Digest::of(header.seed, key);
        find_by_reads(&self.file, &header, digest).map(|found| Some((found, old_before)))
    }
}

/// The bytes of a set.
const SET: usize = WAYS as usize * slot::LEN;

/// Where a set is that a key's slot may be in.
fn set_at(header: &IndexHeader, digest: Digest, set: u32) -> u64 {
    let block = u64::from(digest.block(header.blocks));
    SLOTS_AT + block * BLOCK + u64::from(set) * SET as u64
}

/// Looks for a slot with one read for each set.
fn find_by_reads(
    file: &impl ByteSource,
    header: &IndexHeader,
    digest: Digest,
) -> io::Result<Found> {
    let mut found = Found::Nothing;
    for set in digest.sets() {
        let start = set_at(header, digest, set);
        let mut bytes = [0; SET];
        file.read_exact_bytes_at(start, &mut bytes)?;
        let (slots, _) = bytes.as_chunks::<{ slot::LEN }>();
        for (at, bytes) in (start..).step_by(slot::LEN).zip(slots) {
            let present = bytes.first_chunk().copied().map(Digest::from_bytes);
            if present != Some(digest) {
                continue;
            }
            match Slot::parse(header.seed, bytes) {
                Some(slot) if slot.digest == digest => return Ok(Found::Slot(at, slot)),
                _ => found = torn(at, bytes),
            }
        }
    }
    Ok(found)
}

#[cold]
fn torn(at: u64, bytes: &[u8; slot::LEN]) -> Found {
    let check = check::seeded(at, bytes);
    Found::Torn { check }
}

impl Index {
    /// Opens the index of the directory. None if there is none that this version can read.
    pub(crate) fn open(directory: &Directory, mapped: bool) -> io::Result<Option<Self>> {
        let file = IndexFile::open(directory)?;
        file.map_or(Ok(None), |file| Self::of_file(file, mapped))
    }

    /// None if this version cannot read it.
    pub(crate) fn of_file(opened: IndexFile, mapped: bool) -> io::Result<Option<Self>> {
        let IndexFile {
            file,
            writable,
            len,
            id,
        } = opened;
        let source = match mapped {
            true => Source::Copied(Mapping::within(&file, 0..len, len)?),
            false => Source::Read(file.try_clone()?),
        };
        let mut header = [0; index_header::LEN];
        source.read_exact_bytes_at(0, &mut header)?;
        Ok(IndexHeader::parse(&header, len).map(|header| Self {
            source,
            file,
            writable,
            id,
            header,
        }))
    }

    /// Whether another process's write to it is seen here at once.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.source, Source::Copied(_))
    }

    /// Takes the pages of its mapping out of the page table.
    pub(crate) fn release(&self) -> io::Result<()> {
        self.source.release()
    }

    /// The limit that is noted for programs that look into the directory.
    pub(crate) fn noted_limit(&self) -> io::Result<Option<u64>> {
        let mut bytes = [0; noted_limit::LEN];
        self.source.read_exact_bytes_at(LIMIT_AT, &mut bytes)?;
        Ok(noted_limit::parse(&bytes, self.header.seed))
    }

    /// The sequence below which files are in the older half. 0 if nobody has noted it, or if that takes a read.
    #[inline]
    pub(crate) fn old_before(&self) -> u64 {
        let mut bytes = [0; 8];
        match &self.source {
            Source::Copied(mapping) if mapping.load(OLD_BEFORE_AT, &mut bytes).is_ok() => {
                u64::from_le_bytes(bytes)
            }
            _ => 0,
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether nothing says that there is another index.
    #[inline]
    pub(crate) fn is_marked_current(&self) -> io::Result<bool> {
        let mut mark = [0; 8];
        match &self.source {
            Source::Copied(mapping) => mapping.load(MARK_AT, &mut mark)?,
            source => source.read_exact_bytes_at(MARK_AT, &mut mark)?,
        }
        Ok(mark == CURRENT)
    }

    /// The offsets of the slots in a set, from the one at which to begin.
    #[inline]
    fn ways(&self, digest: Digest, set: u32) -> impl Iterator<Item = u64> {
        let (start, first) = (set_at(&self.header, digest, set), digest.first_way());
        (0..WAYS).map(move |n| start + u64::from((first + n) % WAYS) * slot::LEN as u64)
    }

    #[inline]
    fn slot_bytes(&self, at: u64) -> io::Result<[u8; slot::LEN]> {
        let mut bytes = [0; slot::LEN];
        match &self.source {
            Source::Copied(mapping) => mapping.load(at, &mut bytes)?,
            source => source.read_exact_bytes_at(at, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// Looks for the slot of a key. Takes no lock, so a slot may be being written.
    #[inline]
    pub(crate) fn find(&self, digest: Digest) -> io::Result<Found> {
        match &self.source {
            Source::Copied(mapping) => self.find_mapped(mapping, digest),
            source => find_by_reads(source, &self.header, digest),
        }
    }

    #[inline(always)]
    fn find_mapped(&self, mapping: &Mapping, digest: Digest) -> io::Result<Found> {
        let mut found = Found::Nothing;
        for set in digest.sets() {
            for at in self.ways(digest, set) {
                let mut present = [0; digest::LEN];
                mapping.load(at, &mut present)?;
                if Digest::from_bytes(present) != digest {
                    continue;
                }
                let mut bytes = [0; slot::LEN];
                mapping.load(at, &mut bytes)?;
                match Slot::parse(self.header.seed, &bytes) {
                    Some(slot) if slot.digest == digest => return Ok(Found::Slot(at, slot)),
                    _ => found = torn(at, &bytes),
                }
            }
        }
        Ok(found)
    }

    /// Looks for where the slot of a key goes. Only with the lock.
    pub(crate) fn place_for(&self, digest: Digest) -> io::Result<Place> {
        // Nobody is writing a slot, so one that is there is found. Checking all slots of both sets takes longer.
        if let Found::Slot(at, slot) = self.find(digest)? {
            return Ok(Place::Same(at, slot));
        }
        let mut free = [None; 2];
        let mut used = [0u32; 2];
        let mut oldest: Option<(u64, Slot)> = None;
        for ((set, free), used) in digest.sets().into_iter().zip(&mut free).zip(&mut used) {
            for at in self.ways(digest, set) {
                match Slot::parse(self.header.seed, &self.slot_bytes(at)?) {
                    Some(slot) if slot.digest == digest => return Ok(Place::Same(at, slot)),
                    Some(slot) => {
                        *used += 1;
                        if oldest.is_none_or(|(_, oldest)| slot.last_use() < oldest.last_use()) {
                            oldest = Some((at, slot));
                        }
                    }
                    None if free.is_none() => *free = Some(at),
                    None => {}
                }
            }
        }
        let first = used[0] < CROWDED || used[0] <= used[1];
        let chosen = if first {
            free[0].or(free[1])
        } else {
            free[1].or(free[0])
        };
        match (chosen, oldest) {
            (Some(at), _) => Ok(Place::Free(at)),
            (None, Some((at, slot))) => Ok(Place::Full(at, slot)),
            // Every slot is either free or an old one.
            (None, None) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The slots of a block that pass their checks, with their offsets.
    pub(crate) fn block(&self, number: u32) -> io::Result<Vec<(u64, Slot)>> {
        self.block_where(number, |_| true)
    }

    /// The slots of a block that name this segment.
    pub(crate) fn block_of_segment(
        &self,
        number: u32,
        segment: u64,
    ) -> io::Result<Vec<(u64, Slot)>> {
        let wanted = segment.to_le_bytes();
        self.block_where(number, |bytes| bytes.get(16..24) == Some(&wanted))
    }

    /// Reads the bytes of a block. Without the lock, slots may be being written.
    pub(crate) fn read_block(&self, number: u32, bytes: &mut [u8]) -> io::Result<()> {
        let start = SLOTS_AT + u64::from(number) * BLOCK;
        self.source.read_exact_bytes_at(start, bytes)
    }

    fn block_where(
        &self,
        number: u32,
        wanted: impl Fn(&[u8; slot::LEN]) -> bool,
    ) -> io::Result<Vec<(u64, Slot)>> {
        let start = SLOTS_AT + u64::from(number) * BLOCK;
        let mut bytes = vec![0; BLOCK as usize];
        self.read_block(number, &mut bytes)?;
        let (slots, _) = bytes.as_chunks::<{ slot::LEN }>();
        let offsets = (start..).step_by(slot::LEN);
        Ok(offsets
            .zip(slots)
            .filter(|(_, bytes)| wanted(bytes))
            .filter_map(|(at, bytes)| Some((at, Slot::parse(self.header.seed, bytes)?)))
            .collect())
    }
}

/// Whether an error says that the disk has no room.
pub(crate) fn is_full(e: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(e.kind(), QuotaExceeded | StorageFull)
}

/// Whether an error says that this user may only read.
pub(crate) fn is_read_only(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether an error says that the directory is gone.
pub(crate) fn is_gone(e: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, StaleNetworkFileHandle};
    matches!(e.kind(), NotFound | StaleNetworkFileHandle)
}

/// Whether an error says that bytes of a file are lost: somebody has cut it, its disk fails, or another client of a server
/// has removed it.
pub(crate) fn is_lost(e: &io::Error) -> bool {
    use io::ErrorKind::{StaleNetworkFileHandle, UnexpectedEof};
    matches!(e.kind(), StaleNetworkFileHandle | UnexpectedEof)
        || e.raw_os_error() == Some(Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_client_of_a_server_has_removed_is_lost() {
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_lost(&of(Errno::STALE)) && is_gone(&of(Errno::STALE)));
        // As it is told with the name of a file.
        let told = io::Error::new(of(Errno::STALE).kind(), "cache file");
        assert!(is_lost(&told) && is_gone(&told));
        assert!(is_lost(&of(Errno::IO)) && !is_gone(&of(Errno::IO)));
        assert!(!is_lost(&of(Errno::MFILE)) && !is_gone(&of(Errno::MFILE)));
    }
}
