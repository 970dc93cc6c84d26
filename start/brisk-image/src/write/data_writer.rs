//! The contents of files: read, compressed on several threads, and written in the plan's order.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::codec::{Compression, Encoder};
use crate::error::{Error, Result};
use crate::format::data_block::StoredLen;
use crate::ordered;
use crate::output::Output;
use crate::plan::{Placement, Plan, Storage};
use crate::read::block_reader::Block;
use crate::read::file_reader::FileReader;
use crate::tree::{InodeId, SourceFile, SourceId, Tree, TreeKind};
use crate::work::Work;

/// Where raw files start.
const RAW_ALIGN: u64 = 4096;

/// Bytes of blocks that may be on their way at once, so that threads go on while a slow read or
/// the disk keeps the block that is to be written next.
///
/// It is part of the 256 MB that packing may take, so it does not grow with the threads.
const AHEAD: usize = 64 << 20;

/// Where the contents of a file ended up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    pub(crate) start: u64,
    pub(crate) blocks: Vec<StoredLen>,
    /// Bytes in blocks that are not stored.
    pub(crate) sparse: u64,
    /// The shared block with the tail, and the byte in it where the tail starts.
    pub(crate) tail: Option<(u32, u32)>,
}

/// Where all contents ended up.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// By inode; those of duplicates are those of their leader.
    pub(crate) contents: HashMap<InodeId, Contents>,
    pub(crate) shared_blocks: Vec<(u64, StoredLen)>,
    pub(crate) tally: Tally,
}

/// What became of the bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Tally {
    /// Size of all files, duplicates included.
    pub bytes: u64,
    /// Files with the contents of another file.
    pub duplicate_files: u64,
    /// Size of these duplicates, which are not stored again.
    pub duplicate_bytes: u64,
    /// Size of blocks of zeros, which are not stored.
    pub sparse_bytes: u64,
    /// Blocks that are stored as they are, because compressing does not make them smaller or
    /// because the plan says so.
    pub raw_blocks: u64,
    /// Blocks that are stored compressed.
    pub compressed_blocks: u64,
    /// Blocks among these two kinds that several files share.
    pub shared_blocks: u64,
    /// Blocks among them that were copied from the image that the tree comes from, and not compressed again.
    pub copied_blocks: u64,
}

/// What the data writer has to know beside tree and plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataOptions {
    pub(crate) compression: Compression,
    pub(crate) block_size: u32,
    /// Whether small files share blocks.
    pub(crate) shared_blocks: bool,
    /// Whether the ends of larger files share blocks, too.
    pub(crate) tails: bool,
    /// Which blocks of the image that the tree comes from are stored as they are there.
    pub(crate) copies: Copies,
}

/// Which blocks of the image that a tree comes from are stored again as they are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// None: the image is compressed in another way.
    None,
    /// Those that are compressed, and those that files share. Others that are not compressed may be so by a rule about
    /// the name that the file had.
    Compressed,
    All,
}

/// A file that is stored.
#[derive(Debug, Clone, Copy)]
struct Item {
    inode: InodeId,
    source: SourceId,
    len: u64,
    storage: Storage,
}

/// Blocks that are looked at together for a hole, in files that have more. Handing out a block costs
/// as much as decoding some KiB, and a hole may have millions of them.
const HOLE_STEP: u64 = 64;

/// Steps of a hole that are given out together, at most.
const HOLE_STEPS: u64 = 64;

/// A block to be made.
enum Job {
    /// A block of one file.
    Block { item: Item, offset: u64, len: usize },
    /// Whole blocks of one file that are a hole.
    Hole { item: Item, len: u64 },
    /// A block that the ends of several files share.
    SharedBlock(Vec<Member>),
}

/// The end of a file that shares a block.
#[derive(Debug, Clone, Copy)]
struct Member {
    item: Item,
    offset: u64,
    len: usize,
}

/// What a thread gets: a job, and what it is about if that was read already.
struct Task {
    job: Job,
    /// A buffer of the pool. None if the thread reads.
    input: Option<Result<Vec<u8>>>,
}

/// A block that was made.
struct Made {
    job: Job,
    /// Of the pool, or empty for a sparse block, of which nothing is stored.
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that are to be stored.
    len: usize,
    form: Form,
    /// Whether an image had the block already.
    copied: bool,
}

impl Made {
    fn sparse(job: Job) -> Self {
        Self {
            job,
            buffer: Vec::new(),
            len: 0,
            form: Form::Sparse,
            copied: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Compressed,
    Raw,
    Sparse,
}

/// Makes the jobs of a plan, one after the other.
///
/// Which block holds what follows from lengths alone, so it is known before anything is read. Where the tree is a stream, it is
/// read here, as jobs are given out in order.
struct Layout<'a, I> {
    tree: &'a Tree,
    pool: &'a Pool,
    placements: I,
    options: DataOptions,
    /// The file that is cut up at the moment, where its next block starts, and where blocks of its
    /// own end.
    current: Option<(Item, u64, u64)>,
    /// That file, if it is long enough to look for holes.
    long: Option<Box<dyn SourceFile + Send + 'a>>,
    /// The block that is filled at the moment, its bytes, and the class of its files.
    shared: (Vec<Member>, usize, u8),
    /// What is in it, if the tree is a stream.
    shared_input: Option<Result<Vec<u8>>>,
    /// A full shared block, which comes next, and what is in it.
    full: Option<Vec<Member>>,
    full_input: Option<Result<Vec<u8>>>,
}

/// Bytes of the hole at `offset` that is given out next: whole steps before `end`. None where there is
/// no hole, and where a file cannot be looked at: then reading it says so.
fn hole(file: &mut dyn SourceFile, offset: u64, end: u64, step: u64) -> Option<u64> {
    if !offset.is_multiple_of(step) {
        return None;
    }
    let most = (end - offset) / step;
    let is_hole = |n: &u64| matches!(file.is_hole(offset + n * step, step), Ok(true));
    let steps = (0..most.min(HOLE_STEPS)).take_while(is_hole).count() as u64;
    (steps > 0).then(|| steps * step)
}

impl<I: Iterator<Item = Placement>> Iterator for Layout<'_, I> {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        let job = self.next_job()?;
        let input = match &job {
            Job::Block { item, offset, len } if self.tree.source.is_stream() => {
                let mut buffer = self.pool.take();
                let read = read_stream(self.tree, item.source, *offset, &mut buffer[..*len]);
                Some(read.map(|()| buffer))
            }
            Job::SharedBlock(_) => self.full_input.take(),
            Job::Block { .. } | Job::Hole { .. } => None,
        };
        Some(Task { job, input })
    }
}

/// Fills `buf` from `offset` of the file.
fn read_stream(tree: &Tree, source: SourceId, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut file = tree.source.open(source)?;
    match file.is_hole(offset, buf.len() as u64)? {
        true => buf.fill(0),
        false => file.read_exact_at(offset, buf)?,
    }
    file.check_unchanged()
}

impl<I: Iterator<Item = Placement>> Layout<'_, I> {
    fn next_job(&mut self) -> Option<Job> {
        loop {
            if let Some(members) = self.full.take() {
                return Some(Job::SharedBlock(members));
            }
            if let Some((item, offset, end)) = &mut self.current {
                if offset < end {
                    let step = HOLE_STEP * u64::from(self.options.block_size);
                    if let Some(file) = &mut self.long
                        && let Some(len) = hole(&mut **file, *offset, *end, step)
                    {
                        *offset += len;
                        return Some(Job::Hole { item: *item, len });
                    }
                    // At most a block.
                    let len = (*end - *offset).min(self.options.block_size.into()) as usize;
                    let job = Job::Block {
                        item: *item,
                        offset: *offset,
                        len,
                    };
                    *offset += len as u64;
                    return Some(job);
                }
                let (item, end) = (*item, *end);
                self.current = None;
                if end < item.len {
                    self.share(item, end);
                }
                continue;
            }
            match self.placements.next() {
                Some(placement) => self.begin(placement),
                None if self.shared.0.is_empty() => return None,
                None => self.close_shared(),
            }
        }
    }
}

impl<I> Layout<'_, I> {
    fn begin(&mut self, placement: Placement) {
        let inode = placement.file;
        let TreeKind::File { len, source } = self.tree.inodes[inode].kind else {
            return;
        };
        let item = Item {
            inode,
            source,
            len,
            storage: placement.storage,
        };
        if placement.class != self.shared.2 {
            self.close_shared();
            self.shared.2 = placement.class;
        }
        let block_size = u64::from(self.options.block_size);
        let tail = len % block_size;
        let shares = self.options.shared_blocks
            && placement.storage == Storage::Coded
            && (len < block_size || self.options.tails);
        let end = if shares { len - tail } else { len };
        // Blocks of a raw file are all stored.
        let may_have_holes = placement.storage == Storage::Coded && end > HOLE_STEP * block_size;
        self.long = may_have_holes
            .then(|| self.tree.source.open(source).ok())
            .flatten();
        self.current = Some((item, 0, end));
    }

    fn share(&mut self, item: Item, offset: u64) {
        // Less than a block is left.
        let len = (item.len - offset) as usize;
        if self.shared.1 + len > self.options.block_size as usize {
            self.close_shared();
        }
        if self.tree.source.is_stream() {
            let input = self
                .shared_input
                .take()
                .unwrap_or_else(|| Ok(self.pool.take()));
            self.shared_input = Some(input.and_then(|mut input| {
                let part = &mut input[self.shared.1..self.shared.1 + len];
                read_stream(self.tree, item.source, offset, part)?;
                Ok(input)
            }));
        }
        self.shared.0.push(Member { item, offset, len });
        self.shared.1 += len;
    }

    fn close_shared(&mut self) {
        if !self.shared.0.is_empty() {
            self.shared.1 = 0;
            self.full = Some(std::mem::take(&mut self.shared.0));
            self.full_input = self.shared_input.take();
        }
    }
}

/// Buffers of a block each that go round, so that no block costs an allocation.
struct Pool {
    block_size: usize,
    idle: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.unwrap_or_else(|| vec![0; self.block_size])
    }

    fn give(&self, buffer: Vec<u8>) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(buffer);
    }
}

/// A file that is read.
struct Open<'a> {
    source: SourceId,
    file: Box<dyn SourceFile + 'a>,
    /// Whether it was read since it was last found to be what it was.
    unchecked: bool,
}

/// One thread's tools.
struct Worker<'a> {
    tree: &'a Tree,
    pool: &'a Pool,
    copies: Copies,
    encoder: Encoder,
    /// The file that was read last: blocks of one file mostly follow each other.
    open: Option<Open<'a>>,
    /// What a block is read into: as long as one.
    input: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn file(&mut self, source: SourceId) -> Result<&mut Open<'a>> {
        let open = match self.open.take() {
            Some(open) if open.source == source => open,
            last => {
                self.open = last;
                self.check_last()?;
                Open {
                    source,
                    file: self.tree.source.open(source)?,
                    unchecked: false,
                }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Checks that the file that was read last did not change meanwhile, and closes it.
    fn check_last(&mut self) -> Result<()> {
        match self.open.take() {
            Some(mut open) if open.unchecked => open.file.check_unchanged(),
            _ => Ok(()),
        }
    }

    fn make(&mut self, task: Task) -> Result<Made> {
        let mut input = std::mem::take(&mut self.input);
        let made = match task.input {
            Some(Ok(read)) => {
                self.pool.give(std::mem::replace(&mut input, read));
                self.make_of(task.job, &mut input, true)
            }
            Some(Err(e)) => Err(e),
            None => self.make_of(task.job, &mut input, false),
        };
        self.input = input;
        made
    }

    /// Makes a block by way of `input`, which holds one. `is_read` says that it holds what the job is about.
    fn make_of(&mut self, job: Job, input: &mut Vec<u8>, is_read: bool) -> Result<Made> {
        let (len, storage) = match &job {
            Job::Block { len, item, .. } => (*len, item.storage),
            Job::SharedBlock(members) => (members.iter().map(|m| m.len).sum(), Storage::Coded),
            Job::Hole { .. } => (0, Storage::Coded),
        };
        if let Some((file, block)) = self.stored(&job)? {
            let mut buffer = self.pool.take();
            let n = match &job {
                Job::SharedBlock(_) => {
                    file.read_stored(block, &mut buffer, input, "a shared block")?
                }
                _ => file.read_stored(block, &mut buffer, &mut input[..len], "a data block")?,
            };
            match &job {
                // What else is in the block is of no file of this tree.
                Job::SharedBlock(_) if n != len => self.pool.give(buffer),
                _ if n != len => return Err(file.wrong_len(block, n, len)),
                Job::Block { .. } if is_zero(&input[..len]) => {
                    self.pool.give(buffer);
                    return Ok(Made::sparse(job));
                }
                _ => {
                    return Ok(Made {
                        job,
                        buffer,
                        len: block.stored.len() as usize,
                        form: match block.stored.is_raw() {
                            true => Form::Raw,
                            false => Form::Compressed,
                        },
                        copied: true,
                    });
                }
            }
        }
        let is_sparse = match is_read {
            // As below: a raw file and a shared block are stored whole.
            true => {
                matches!(job, Job::Block { .. })
                    && storage == Storage::Coded
                    && is_zero(&input[..len])
            }
            false => self.read(&job, &mut input[..len])?,
        };
        if is_sparse {
            return Ok(Made::sparse(job));
        }
        let mut buffer = self.pool.take();
        let compressed = match storage {
            Storage::Coded => self.encoder.encode_to(&input[..len], &mut buffer)?,
            Storage::Raw => None,
        };
        let (len, form) = match compressed {
            Some(len) => (len, Form::Compressed),
            None => {
                std::mem::swap(&mut buffer, input);
                (len, Form::Raw)
            }
        };
        Ok(Made {
            job,
            buffer,
            len,
            form,
            copied: false,
        })
    }

    /// The block of an image that has exactly what `job` makes a block of, if there is one to be copied, and a file
    /// to read it by.
    fn stored(&mut self, job: &Job) -> Result<Option<(FileReader, Block)>> {
        if self.copies == Copies::None {
            return Ok(None);
        }
        let mut found: Option<(FileReader, Block)> = None;
        let len = match job {
            Job::Block { item, offset, len } if item.storage == Storage::Coded => {
                let all = self.copies == Copies::All;
                if let Some(file) = self.file(item.source)?.file.stored() {
                    let block = file.block_at(*offset);
                    let block = block.filter(|block| all || !block.stored.is_raw());
                    found = block.map(|block| (file.clone(), block));
                }
                *len
            }
            Job::Block { .. } | Job::Hole { .. } => return Ok(None),
            Job::SharedBlock(members) => {
                let mut at = 0;
                for member in members {
                    let file = self.file(member.item.source)?.file.stored();
                    let tail = file.and_then(|file| Some((file, file.tail_block_at()?)));
                    match (tail, &found) {
                        (Some((_, (block, from))), Some((_, known)))
                            if *known == block && from as usize == at => {}
                        (Some((file, (block, 0))), None) => found = Some((file.clone(), block)),
                        _ => return Ok(None),
                    }
                    at += member.len;
                }
                at
            }
        };
        // A block that does not get smaller is stored as it is. One that is larger could make the new image larger
        // than its files.
        let is_smaller =
            |block: &Block| block.stored.is_raw() || (block.stored.len() as usize) < len;
        Ok(found.filter(|(_, block)| is_smaller(block)))
    }

    /// Reads what a block holds; true if it is all zeros and need not be stored.
    fn read(&mut self, job: &Job, input: &mut [u8]) -> Result<bool> {
        match job {
            Job::Hole { item, .. } => {
                self.file(item.source)?.file.check_unchanged()?;
                Ok(true)
            }
            Job::Block { item, offset, len } => {
                let file = &mut self.file(item.source)?.file;
                // A raw file stays in one piece.
                let may_be_sparse = item.storage == Storage::Coded;
                let hole = file.is_hole(*offset, *len as u64)?;
                match hole {
                    true if may_be_sparse => {}
                    true => input.fill(0),
                    false => file.read_exact_at(*offset, input)?,
                }
                file.check_unchanged()?;
                Ok(may_be_sparse && (hole || is_zero(input)))
            }
            Job::SharedBlock(members) => {
                let mut rest = input;
                for member in members {
                    let (part, later) = std::mem::take(&mut rest).split_at_mut(member.len);
                    let open = self.file(member.item.source)?;
                    open.unchecked = true;
                    open.file.read_exact_at(member.offset, part)?;
                    rest = later;
                }
                self.check_last()?;
                Ok(false)
            }
        }
    }
}

/// True if all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Comparing with oneself, one byte later, runs at the speed of memory.
    bytes
        .first()
        .is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

/// Writes the contents of all files of `plan`, but for `duplicates`, to the end of `out`.
///
/// `work` is told the bytes that were read, block by block.
pub(crate) fn write(
    tree: &Tree,
    plan: &Plan,
    duplicates: &HashMap<InodeId, InodeId>,
    options: DataOptions,
    out: &mut dyn Output,
    work: &Work,
) -> Result<Data> {
    let pool = Pool {
        block_size: options.block_size as usize,
        idle: Mutex::default(),
    };
    let mut data = Data::default();
    for duplicate in duplicates.keys() {
        if let TreeKind::File { len, .. } = tree.inodes[*duplicate].kind {
            data.tally.duplicate_files += 1;
            data.tally.duplicate_bytes += len;
            data.tally.bytes += len;
            work.tell(len)?;
        }
    }
    // An encoder that cannot be made is an error now, not on a thread.
    Encoder::new(&options.compression, options.block_size)?;
    let layout = Layout {
        tree,
        pool: &pool,
        placements: plan
            .placements
            .iter()
            .copied()
            .filter(|p| !duplicates.contains_key(&p.file)),
        options,
        current: None,
        long: None,
        shared: (Vec::new(), 0, 0),
        shared_input: None,
        full: None,
        full_input: None,
    };
    let threads = work.thread_count();
    ordered::for_each(
        threads,
        // Some per thread at least, where blocks are large and threads many.
        (AHEAD / options.block_size as usize).max(threads * 3),
        layout,
        || {
            Encoder::new(&options.compression, options.block_size).map(|encoder| Worker {
                tree,
                pool: &pool,
                copies: options.copies,
                encoder,
                open: None,
                input: vec![0; options.block_size as usize],
            })
        },
        |worker, task| match worker {
            Ok(worker) => worker.make(task),
            Err(_) => Err(Error::input("the codec cannot be used")),
        },
        |made| {
            let made = made?;
            data.store(&made, options.block_size, out, work)?;
            if made.form != Form::Sparse {
                pool.give(made.buffer);
            }
            Ok(())
        },
    )?;
    for (duplicate, leader) in duplicates {
        if let Some(contents) = data.contents.get(leader).cloned() {
            data.contents.insert(*duplicate, contents);
        }
    }
    Ok(data)
}

impl Data {
    fn store(
        &mut self,
        made: &Made,
        block_size: u32,
        out: &mut dyn Output,
        work: &Work,
    ) -> Result<()> {
        if let Job::Block {
            item: Item {
                storage: Storage::Raw,
                ..
            },
            offset: 0,
            ..
        } = made.job
        {
            out.pad_to(RAW_ALIGN)?;
        }
        let start = out.len();
        let stored = match made.form {
            Form::Sparse => StoredLen::SPARSE,
            Form::Compressed | Form::Raw => {
                out.append(&made.buffer[..made.len])?;
                StoredLen::new(made.len, made.form == Form::Raw, block_size).ok_or_else(|| {
                    Error::limit("a stored block", made.len as u64, block_size.into())
                })?
            }
        };
        match made.form {
            Form::Sparse => {}
            Form::Compressed => self.tally.compressed_blocks += 1,
            Form::Raw => self.tally.raw_blocks += 1,
        }
        self.tally.copied_blocks += u64::from(made.copied);
        let bytes = match &made.job {
            Job::Block { item, len, .. } => {
                let contents = self.contents.entry(item.inode).or_default();
                if contents.blocks.is_empty() {
                    contents.start = start;
                }
                contents.blocks.push(stored);
                if made.form == Form::Sparse {
                    contents.sparse += *len as u64;
                    self.tally.sparse_bytes += *len as u64;
                }
                *len as u64
            }
            Job::Hole { item, len } => {
                let contents = self.contents.entry(item.inode).or_default();
                if contents.blocks.is_empty() {
                    contents.start = start;
                }
                for _ in 0..*len / u64::from(block_size) {
                    contents.blocks.push(stored);
                }
                contents.sparse += len;
                self.tally.sparse_bytes += len;
                *len
            }
            Job::SharedBlock(members) => {
                let number = u32::try_from(self.shared_blocks.len())
                    .ok()
                    .filter(|&number| number < u32::MAX)
                    .ok_or_else(|| {
                        Error::limit(
                            "the number of shared blocks",
                            u32::MAX.into(),
                            u32::MAX.into(),
                        )
                    })?;
                self.shared_blocks.push((start, stored));
                self.tally.shared_blocks += 1;
                let mut offset = 0;
                for member in members {
                    let contents = self.contents.entry(member.item.inode).or_default();
                    contents.tail = Some((number, offset));
                    // All members together are at most a block.
                    offset += member.len as u32;
                }
                offset.into()
            }
        };
        self.tally.bytes += bytes;
        work.tell(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found() {
        assert!(is_zero(&[]));
        assert!(is_zero(&[0]));
        assert!(is_zero(&[0; 4097]));
        assert!(!is_zero(&[1; 4097]));
        for i in [0, 1, 2048, 4095] {
            let mut bytes = [0; 4096];
            bytes[i] = 1;
            assert!(!is_zero(&bytes), "{i}");
        }
    }
}
