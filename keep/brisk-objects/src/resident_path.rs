//! Whether the pages that a look-up needs are in memory, found without a touch that could wait for the disk.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use brisk_io::{cached_pages, page_size, read_if_cached};

use crate::database::Database;
use crate::error::Error;
use crate::snapshot::Snapshot;
use crate::untyped::pages::{BRANCH, ELSEWHERE, HEADER, LEAF, Meta, TreeRoot, Wire};

/// The two files of a database, to be read where they are in memory.
#[derive(Debug)]
pub(crate) struct ResidentPath {
    /// Not that of the mapping, whose reading ahead depends on what was read before.
    file: File,
    readers: File,
    page_size: usize,
}

/// A page of the path, and its bytes.
#[derive(Default)]
struct Step {
    page: u64,
    bytes: Vec<u8>,
}

thread_local! {
    /// The last pages that this thread has read, level by level.
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
}

impl ResidentPath {
    pub(crate) fn of(database: &Database) -> io::Result<Self> {
        let env = &database.inner.env;
        let own = env.try_clone_inner_file().map_err(io::Error::other)?;
        let mut readers = database.path().as_os_str().to_owned();
        readers.push("-lock");
        Ok(Self {
            // Also if the file has another name by now.
            file: File::open(format!("/proc/self/fd/{}", own.as_raw_fd()))?,
            readers: File::open(readers)?,
            page_size: usize::try_from(env.stat().page_size).map_err(io::Error::other)?,
        })
    }

    /// A snapshot, if all pages are in memory that it and the look-ups of these keys of a table need. Its pages are not used
    /// again while it lives, so what was found of them stays true until the kernel takes them away.
    pub(crate) fn snapshot<'d, 'k>(
        &self,
        database: &'d Database,
        table: &str,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<Snapshot<'d>>, Error> {
        let Some(meta) = self.newest() else {
            return Ok(None);
        };
        // A snapshot of another state compares layouts, and so reads more.
        let seen = database.inner.seen.load(Ordering::Relaxed);
        if !self.has_readers() || u64::try_from(seen) != Ok(meta.txn) {
            return Ok(None);
        }
        let snapshot = database.snapshot()?;
        if u64::try_from(snapshot.number()) != Ok(meta.txn) {
            return Ok(None);
        }
        let reaches_all = STEPS.with_borrow_mut(|steps| {
            // They may be of another file.
            steps.iter_mut().for_each(|step| step.page = 0);
            let mut walk = Walk { of: self, steps };
            let Some(tree) = walk.table(&meta, table)? else {
                return Some(());
            };
            keys.try_for_each(|key| walk.record(&meta, tree, key))
        });
        Ok(reaches_all.map(|()| snapshot))
    }

    /// What the file says of its newest state.
    fn newest(&self) -> Option<Meta> {
        let mut newest: Option<Meta> = None;
        for page in 0..2 {
            let mut bytes = [0; 152];
            let at = u64::try_from(self.page_size).ok()?.checked_mul(page)?;
            if !read_if_cached(&self.file, at, &mut bytes).ok()? {
                return None;
            }
            // A new file has one.
            let meta = Wire(&bytes).meta().ok()?;
            if newest.is_none_or(|newest| newest.txn < meta.txn) {
                newest = Some(meta);
            }
        }
        newest
    }

    /// Brings the places of readers into memory. Those behind the ones in use are touched by nobody, so what the kernel has
    /// taken of them would stay away.
    pub(crate) fn bring_readers(&self) {
        if !self.has_readers() {
            // Without them, later reads move, too.
            let mut bytes = vec![0; page_size()];
            (0_u64..)
                .step_by(bytes.len())
                .find(|at| !matches!(self.readers.read_at(&mut bytes, *at), Ok(1..)));
        }
    }

    /// Whether the places of readers are in memory. A snapshot takes one.
    fn has_readers(&self) -> bool {
        let has = || {
            let len = self.readers.metadata().ok()?.len();
            let pages = len.div_ceil(page_size() as u64);
            Some(cached_pages(&self.readers, 0, len).ok()? >= pages)
        };
        has() == Some(true)
    }
}

/// A walk from the newest state to records. None: a page is not in memory, or is not what was expected.
struct Walk<'p> {
    of: &'p ResidentPath,
    steps: &'p mut Vec<Step>,
}

impl Walk<'_> {
    /// The tree of a table. The inner none: there is no such table.
    fn table(&mut self, meta: &Meta, name: &str) -> Option<Option<TreeRoot>> {
        let leaf = self.find(meta.main, 0, name.as_bytes())?;
        match leaf {
            None => Some(None),
            Some((_, value, _)) => Some(Some(Wire(value).tree(0)?)),
        }
    }

    /// The record of a key.
    fn record(&mut self, meta: &Meta, tree: TreeRoot, key: &[u8]) -> Option<()> {
        let of = self.of;
        let found = self.find(tree, meta.main.depth.into(), key)?;
        let Some((flags, value, len)) = found else {
            return Some(());
        };
        if flags & ELSEWHERE == 0 {
            return Some(());
        }
        let page_size = u64::try_from(of.page_size).ok()?;
        let first = Wire(value).u64(0)?.checked_mul(page_size)?;
        let end = first.checked_add(u64::try_from(len.checked_add(HEADER)?).ok()?)?;
        let mut at = first;
        while at < end {
            if !read_if_cached(&of.file, at, &mut [0]).ok()? {
                return None;
            }
            at = at.checked_add(page_size)?;
        }
        Some(())
    }

    /// The flags, the value in the page and the length of the value of a key. `above` pages of the path are of other trees.
    fn find(
        &mut self,
        tree: TreeRoot,
        above: usize,
        key: &[u8],
    ) -> Option<Option<(u16, &[u8], usize)>> {
        let Some(mut page) = tree.root else {
            return Some(None);
        };
        let depth = usize::from(tree.depth);
        for level in 1..depth {
            let wire = Wire(self.read(above.checked_add(level)?, page)?);
            let count = wire.head(page, BRANCH).ok()?;
            // The first one stands for all that is before the second.
            let (mut from, mut until) = (0, count);
            while until.checked_sub(from)? > 1 {
                let middle = from.midpoint(until);
                match wire.node(middle, false)?.key <= key {
                    true => from = middle,
                    false => until = middle,
                }
            }
            page = wire.node(from, false)?.child;
        }
        let wire = Wire(self.read(above.checked_add(depth)?, page)?);
        let (mut from, mut until) = (0, wire.head(page, LEAF).ok()?);
        while from < until {
            let middle = from.midpoint(until);
            let node = wire.node(middle, true)?;
            match node.key.cmp(key) {
                std::cmp::Ordering::Less => from = middle.checked_add(1)?,
                std::cmp::Ordering::Equal => return Some(Some((node.flags, node.value, node.len))),
                std::cmp::Ordering::Greater => until = middle,
            }
        }
        Some(None)
    }

    /// A page, if it is in memory. Neighbours of the record before have most of them in common with it.
    fn read(&mut self, step: usize, page: u64) -> Option<&[u8]> {
        if self.steps.len() <= step {
            self.steps.resize_with(step.checked_add(1)?, Step::default);
        }
        let step = self.steps.get_mut(step)?;
        if step.page != page {
            // The first page is no part of a tree.
            step.page = 0;
            step.bytes.resize(self.of.page_size, 0);
            let at = page.checked_mul(u64::try_from(self.of.page_size).ok()?)?;
            if !read_if_cached(&self.of.file, at, &mut step.bytes).ok()? {
                return None;
            }
            step.page = page;
        }
        Some(&step.bytes)
    }
}
