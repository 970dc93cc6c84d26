//! The pages of LMDB, as its `mdb.c` has them for data version 1, read without it.
//!
//! LMDB trusts what its pages say of places in them and of other pages. This trusts nothing: it looks at each page that the
//! newest state names, and says what is wrong.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::table::MOST_KEY;

const MAGIC: u32 = 0xbeef_c0de;
const VERSION: u32 = 1;
/// Bytes before what a page has.
pub(crate) const HEADER: usize = 16;
/// Bytes before the key of a node.
const NODE: usize = 8;
/// A program has no addresses for more.
const MOST_BYTES: u64 = 1 << 47;
/// No file has seen more transactions.
const MOST_TXN: u64 = u64::MAX >> 1;
/// Levels of a tree at most.
const DEEPEST: u16 = 32;

pub(crate) const BRANCH: u16 = 1;
pub(crate) const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const META: u16 = 8;

/// The value of a node is on pages of its own.
pub(crate) const ELSEWHERE: u16 = 1;
/// The value of a node is a tree.
const TREE: u16 = 2;

/// The bits of the flags of a tree that say how its keys are ordered, and whether a key may have several values.
const ORDERS: u16 = 0x7e;
/// Keys are numbers.
const NUMBERS: u16 = 0x08;

/// One of the two pages that name all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    page_size: u32,
    free: TreeRoot,
    pub(crate) main: TreeRoot,
    last_page: u64,
    /// The transaction that wrote it.
    pub(crate) txn: u64,
}

/// What a file says of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeRoot {
    flags: u16,
    pub(crate) depth: u16,
    entries: u64,
    /// None: the tree is empty.
    pub(crate) root: Option<u64>,
}

/// How many faults are described.
const DESCRIBED: usize = 100;

/// What is wrong with the pages of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// The first 100, in words.
    pub described: Vec<String>,
    /// How many there are besides.
    pub more: u64,
    /// A page in use that the file does not have, and where it ends.
    pub(crate) beyond: Option<(String, u64)>,
}

impl PageFaults {
    /// Whether all pages are right.
    pub fn is_empty(&self) -> bool {
        self.described.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        let described = u64::try_from(self.described.len()).unwrap_or(u64::MAX);
        described.saturating_add(self.more)
    }

    /// The first one, and how many there are besides.
    pub(crate) fn first(&self) -> Option<(String, u64)> {
        let first = self.described.first()?;
        Some((first.clone(), self.count().saturating_sub(1)))
    }

    fn push(&mut self, fault: &Fault) {
        if let Fault::Beyond { page, tree, end } = fault {
            let page = || (format!("page {page} of {tree}"), *end);
            self.beyond.get_or_insert_with(page);
        }
        if self.described.len() < DESCRIBED {
            self.described.push(fault.to_string());
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    /// The file ends before the end of it.
    Beyond {
        page: u64,
        tree: String,
        end: u64,
    },
    Page {
        page: u64,
        at: u64,
        tree: String,
        what: String,
    },
    Tree {
        tree: String,
        what: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { page, tree, end } => write!(
                f,
                "the file ends before byte {end}, where page {page} of {tree} ends"
            ),
            Self::Page {
                page,
                at,
                tree,
                what,
            } => write!(f, "page {page} of {tree}, at byte {at}: {what}"),
            Self::Tree { tree, what } => write!(f, "the tree of {tree}: {what}"),
        }
    }
}

impl Meta {
    /// How many bytes a file has that was written to its last page.
    pub(crate) fn needed(&self) -> u64 {
        let pages = self.last_page.saturating_add(1);
        pages.saturating_mul(self.page_size.into())
    }

    /// Room for all tables, and for some that come meanwhile.
    pub(crate) fn room(&self) -> u32 {
        let tables = u32::try_from(self.main.entries).unwrap_or(u32::MAX);
        tables.min(1 << 16).saturating_add(64)
    }
}

/// Numbers of a page. None: the page ends before them.
#[derive(Clone, Copy)]
pub(crate) struct Wire<'a>(pub(crate) &'a [u8]);

impl<'a> Wire<'a> {
    fn bytes(self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(len)?)
    }

    fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    pub(crate) fn u64(self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    /// A tree at a place.
    pub(crate) fn tree(self, at: usize) -> Option<TreeRoot> {
        Some(TreeRoot {
            flags: self.u16(at.checked_add(4)?)?,
            depth: self.u16(at.checked_add(6)?)?,
            entries: self.u64(at.checked_add(32)?)?,
            root: Some(self.u64(at.checked_add(40)?)?).filter(|root| *root != u64::MAX),
        })
    }

    pub(crate) fn meta(self) -> Result<Meta, String> {
        let short = || "it ends within its first pages".to_owned();
        let number = |at| self.u32(at).ok_or_else(short);
        let (kind, magic, version) = (self.u16(10).ok_or_else(short)?, number(16)?, number(20)?);
        if kind & META == 0 || magic != MAGIC {
            return Err("it does not begin as a file of LMDB does".to_owned());
        }
        if version != VERSION {
            return Err(format!(
                "the version of its LMDB is {version}, allowed is {VERSION}"
            ));
        }
        let page_size = number(40)?;
        // LMDB takes that of the system that makes the file. On smaller ones, not all keys have room.
        if !page_size.is_power_of_two() || !(0x1000..=0x8000).contains(&page_size) {
            return Err(format!(
                "its pages have {page_size} bytes, allowed is a power of two from 4096 to 32768"
            ));
        }
        let rest = || {
            Some(Meta {
                page_size,
                free: self.tree(40)?,
                main: self.tree(88)?,
                last_page: self.u64(136)?,
                txn: self.u64(144)?,
            })
        };
        let meta: Meta = rest().ok_or_else(short)?;
        // LMDB maps the pages up to this one, and then reads both first ones there.
        let most = MOST_BYTES / u64::from(page_size);
        if !(1..most).contains(&meta.last_page) {
            return Err(format!(
                "its last page is {}, allowed are 1 to {}",
                meta.last_page,
                most.saturating_sub(1)
            ));
        }
        // The next ones come from adding to this one.
        if meta.txn > MOST_TXN {
            return Err(format!(
                "its last transaction is {}, allowed are 0 to {MOST_TXN}",
                meta.txn
            ));
        }
        Ok(meta)
    }
}

/// Both metas of a file: that of even transactions, and that of odd ones.
pub(super) fn both(file: &File, path: &Path) -> Result<[Meta; 2], Error> {
    let foreign = |found: String| Error::Foreign {
        path: path.to_owned(),
        found,
    };
    let read = |at: u64| {
        let mut bytes = [0; 152];
        let mut len = 0;
        while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match file.read_at(
                rest,
                at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX)),
            )? {
                0 => break,
                more => len = len.saturating_add(more),
            }
        }
        Ok::<_, io::Error>((bytes, len))
    };
    let (bytes, len) = read(0)?;
    if len == 0 {
        return Err(foreign("it is empty".to_owned()));
    }
    let first = Wire(bytes.get(..len).unwrap_or_default())
        .meta()
        .map_err(foreign)?;
    let (bytes, len) = read(first.page_size.into())?;
    let second = Wire(bytes.get(..len).unwrap_or_default())
        .meta()
        .map_err(foreign)?;
    if first.page_size != second.page_size {
        let sizes = (first.page_size, second.page_size);
        return Err(foreign(format!(
            "its first pages tell two sizes of pages: {} and {}",
            sizes.0, sizes.1
        )));
    }
    // LMDB takes the page that the number of a transaction says, and does not look whether that page has the number.
    if !first.txn.is_multiple_of(2) {
        return Err(foreign(format!(
            "its first page is of transaction {}, allowed is an even number",
            first.txn
        )));
    }
    // A new file has none yet.
    if second.txn.is_multiple_of(2) && second.txn != 0 {
        return Err(foreign(format!(
            "its second page is of transaction {}, allowed is an odd number",
            second.txn
        )));
    }
    Ok([first, second])
}

/// The meta of the newest state.
pub(crate) fn newest(file: &File, path: &Path) -> Result<Meta, Error> {
    let [first, second] = both(file, path)?;
    Ok(if second.txn > first.txn {
        second
    } else {
        first
    })
}

/// How often a first look is taken at a file that another process may just be making.
const LOOKS: u32 = 3;

/// Refuses a file that is no database of LMDB, before LMDB trusts its first pages. There may be none yet.
pub(crate) fn refuse_foreign(path: &Path) -> Result<(), Error> {
    for look in 1.. {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if file.metadata()?.len() == 0 {
            return Ok(());
        }
        match newest(&file, path) {
            Err(Error::Foreign { .. }) if look < LOOKS => thread::sleep(Duration::from_millis(1)),
            newest => return newest.map(|_| ()),
        }
    }
    Ok(())
}

/// Looks at all pages of a state.
pub(crate) fn check(file: &File, meta: &Meta) -> Result<PageFaults, Error> {
    let len = file.metadata()?.len();
    let mut walk = Walk {
        file,
        name: String::new(),
        page_size: meta.page_size,
        pages: (len / u64::from(meta.page_size)).min(meta.last_page.saturating_add(1)),
        last_page: meta.last_page,
        in_use: PageSet::default(),
        free: PageSet::default(),
        free_behind: HashSet::new(),
        faults: PageFaults::default(),
    };
    walk.tree("tables", Kind::Main, meta.main)?;
    walk.tree("unused pages", Kind::Free, meta.free)?;
    Ok(walk.faults)
}

/// The first fault of a file that nobody changes meanwhile, and how many there are besides. None if there is none, or if the
/// file cannot be read.
pub(crate) fn first_fault(path: &Path) -> Option<(String, u64)> {
    let file = File::open(path).ok()?;
    let newest = match newest(&file, path) {
        Ok(newest) => newest,
        Err(Error::Foreign { found, .. }) => return Some((found, 0)),
        Err(_) => return None,
    };
    let faults = check(&file, &newest).ok()?;
    faults.first()
}

/// Numbers of pages, a bit for each.
#[derive(Default)]
struct PageSet(HashMap<u64, Box<[u64; 64]>>);

impl PageSet {
    /// The number of the piece, of the word in it, and the bit.
    fn place(page: u64) -> (u64, usize, u64) {
        let word = usize::try_from(page / 64 % 64).unwrap_or(0);
        (page / 4096, word, 1 << (page % 64))
    }

    fn contains(&self, page: u64) -> bool {
        let (piece, word, bit) = Self::place(page);
        let word = self.0.get(&piece).and_then(|words| words.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    /// Whether it was not there.
    fn insert(&mut self, page: u64) -> bool {
        let (piece, word, bit) = Self::place(page);
        let words = self.0.entry(piece).or_insert_with(|| Box::new([0; 64]));
        let Some(word) = words.get_mut(word) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// What the entries of a tree are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Under the number of a transaction, the pages that it has left.
    Free,
    /// Under its name, a table.
    Main,
    Table,
}

struct Walk<'f> {
    file: &'f File,
    /// The tree that is being looked at: a collection, an index, or one of LMDB's own.
    name: String,
    page_size: u32,
    /// Pages that the file has.
    pages: u64,
    last_page: u64,
    in_use: PageSet,
    free: PageSet,
    /// Unused pages behind the end of the file. There a forged list may name pages far from each other, which would each
    /// take a piece of a set.
    free_behind: HashSet<u64>,
    faults: PageFaults,
}

/// A page below another one, and what keys there are at least. The first one of a page has no such bound.
type Child = (Option<Vec<u8>>, u64);

/// What is wrong, or something that is right.
pub(crate) type Wrong<T> = Result<T, String>;

/// A tree that is being looked at.
struct Tree {
    kind: Kind,
    depth: u16,
    entries: u64,
    /// The last key, behind which the next one must be.
    last: Option<Vec<u8>>,
    /// What a branch says that the next key is at least.
    least: Option<Vec<u8>>,
    /// Tables that were found.
    tables: Vec<(String, TreeRoot)>,
}

impl Walk<'_> {
    fn tree(&mut self, name: &str, kind: Kind, root: TreeRoot) -> Result<(), Error> {
        let told = |what: String| Fault::Tree {
            tree: name.to_owned(),
            what,
        };
        name.clone_into(&mut self.name);
        let allowed = if kind == Kind::Free { NUMBERS } else { 0 };
        if root.flags & ORDERS != allowed {
            self.faults.push(&told(format!(
                "its flags are {:#x}, allowed is {allowed:#x}",
                root.flags
            )));
            return Ok(());
        }
        let mut tree = Tree {
            kind,
            depth: root.depth,
            entries: 0,
            last: None,
            least: None,
            tables: Vec::new(),
        };
        let before = self.faults.count();
        if let Some(page) = root.root {
            if !(1..=DEEPEST).contains(&root.depth) {
                self.faults.push(&told(format!(
                    "it has {} levels, allowed are 1 to {DEEPEST}",
                    root.depth
                )));
                return Ok(());
            }
            self.page(&mut tree, page, 1)?;
        }
        if self.faults.count() == before && tree.entries != root.entries {
            self.faults.push(&told(format!(
                "it has {} entries, but says {}",
                tree.entries, root.entries
            )));
        }
        for (name, root) in tree.tables {
            self.tree(&name, Kind::Table, root)?;
        }
        Ok(())
    }

    /// Looks at a page of a tree and at all below it.
    fn page(&mut self, tree: &mut Tree, page: u64, level: u16) -> Result<(), Error> {
        if !self.take(page, 1) {
            return Ok(());
        }
        let bytes = self.read(page)?;
        let children = match self.nodes(tree, Wire(&bytes), page, level)? {
            Ok(children) => children,
            Err(what) => {
                self.wrong(page, what);
                return Ok(());
            }
        };
        for (least, child) in children {
            if let Some(least) = least {
                if let Some(last) = &tree.last
                    && !is_before(tree.kind, last, &least)
                {
                    let what = format!("a key below it is not before that of page {child}");
                    self.wrong(page, what);
                }
                tree.least = Some(least);
            }
            self.page(tree, child, level.saturating_add(1))?;
        }
        Ok(())
    }

    /// Notes what is wrong with a page of the tree that is being looked at.
    fn wrong(&mut self, page: u64, what: String) {
        let (at, tree) = (
            page.saturating_mul(self.page_size.into()),
            self.name.clone(),
        );
        self.faults.push(&Fault::Page {
            page,
            at,
            tree,
            what,
        });
    }

    /// Notes that pages are in use. False, with a fault, if they cannot be.
    fn take(&mut self, page: u64, count: u64) -> bool {
        let end = page.saturating_add(count);
        if page < 2 || end > self.last_page.saturating_add(1) {
            let what = format!("it is named, but pages are 2 to {}", self.last_page);
            self.wrong(page, what);
            return false;
        }
        if end > self.pages {
            let (tree, end) = (self.name.clone(), end.saturating_mul(self.page_size.into()));
            self.faults.push(&Fault::Beyond { page, tree, end });
            return false;
        }
        for page in page..end {
            let what = match (self.in_use.insert(page), self.free.contains(page)) {
                (true, false) => continue,
                (true, true) => USED_AND_UNUSED,
                (false, _) => "it is named twice",
            };
            self.wrong(page, what.to_owned());
            return false;
        }
        true
    }

    fn read(&self, page: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; usize::try_from(self.page_size).unwrap_or(0)];
        let at = page.saturating_mul(self.page_size.into());
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Looks at a page, and returns those that it names.
    fn nodes(
        &mut self,
        tree: &mut Tree,
        page: Wire<'_>,
        number: u64,
        level: u16,
    ) -> Result<Wrong<Vec<Child>>, Error> {
        let is_leaf = level == tree.depth;
        let wanted = if is_leaf { LEAF } else { BRANCH };
        let count = match page.head(number, wanted) {
            Ok(count) => count,
            Err(what) => return Ok(Err(what)),
        };
        // LMDB looks at the first entry, and of a branch at the second one, without asking whether it is there.
        let least = if is_leaf { 1 } else { 2 };
        if count < least {
            return Ok(Err(format!(
                "it has {count} entries, allowed is {least} at least"
            )));
        }
        let nodes = match page.all_nodes(count, is_leaf) {
            Ok(nodes) => nodes,
            Err(what) => return Ok(Err(what)),
        };
        let mut children = Vec::new();
        for (place, node) in nodes.into_iter().enumerate() {
            if !is_leaf {
                // The first one has none that counts.
                if place > 0
                    && let Err(what) = tree.check_key(node.key)
                {
                    return Ok(Err(format!("its entry {place}: {what}")));
                }
                let least = (place > 0).then(|| node.key.to_vec());
                children.push((least, node.child));
                continue;
            }
            if let Err(what) = tree.next_key(node.key) {
                return Ok(Err(format!("its entry {place}: {what}")));
            }
            if let Err(what) = self.value(tree, &node)? {
                return Ok(Err(format!("its entry {place}: {what}")));
            }
        }
        Ok(Ok(children))
    }

    /// Looks at the value of an entry.
    fn value(&mut self, tree: &mut Tree, node: &Node<'_>) -> Result<Wrong<()>, Error> {
        if node.flags & !(ELSEWHERE | TREE) != 0 {
            return Ok(Err(format!(
                "its flags are {:#x}, allowed are 0 to 3",
                node.flags
            )));
        }
        let is_tree = node.flags & TREE != 0;
        if is_tree != (tree.kind == Kind::Main) {
            let what = if is_tree {
                "it is a tree"
            } else {
                "it is no tree"
            };
            return Ok(Err(what.to_owned()));
        }
        let far;
        let mut value = node.value;
        if node.flags & ELSEWHERE != 0 {
            let Some(page) = Wire(value).u64(0) else {
                return Ok(Err("it names no page".to_owned()));
            };
            if let Err(what) = self.far(page, node.len)? {
                return Ok(Err(what));
            }
            match tree.kind {
                Kind::Free => far = self.far_bytes(page, node.len)?,
                Kind::Main => return Ok(Err("a tree is on pages of its own".to_owned())),
                Kind::Table => return Ok(Ok(())),
            }
            value = &far;
        }
        match tree.kind {
            Kind::Free => Ok(self.free_pages(value)),
            Kind::Main => match Wire(value).tree(0).filter(|_| value.len() == 48) {
                Some(root) => {
                    let name = String::from_utf8_lossy(node.key).into_owned();
                    tree.tables.push((name, root));
                    Ok(Ok(()))
                }
                None => Ok(Err(format!(
                    "it is a tree of {} bytes, allowed are 48",
                    value.len()
                ))),
            },
            Kind::Table => Ok(Ok(())),
        }
    }

    /// Looks at the first page of a value of so many bytes that is on pages of its own.
    fn far(&mut self, page: u64, len: usize) -> Result<Wrong<()>, Error> {
        let whole = u64::try_from(len.saturating_add(HEADER)).unwrap_or(u64::MAX);
        let count = whole.div_ceil(self.page_size.into());
        if !self.take(page, count) {
            return Ok(Err(format!(
                "its value of {len} bytes is on {count} pages from page {page} on, which are no such"
            )));
        }
        let first = self.read(page)?;
        let wire = Wire(&first);
        let kind = wire.u16(10).unwrap_or(0);
        let pages = wire.u32(12).unwrap_or(0);
        if wire.u64(0) != Some(page) || kind != OVERFLOW || u64::from(pages) != count {
            return Ok(Err(format!(
                "its value of {len} bytes is on page {page}, which is no first page of {count}"
            )));
        }
        Ok(Ok(()))
    }

    /// A value that is on pages of its own, in a file that has them.
    fn far_bytes(&self, page: u64, len: usize) -> Result<Vec<u8>, Error> {
        let at = page.saturating_mul(self.page_size.into());
        let mut bytes = vec![0; len];
        let start = at.saturating_add(u64::try_from(HEADER).unwrap_or(0));
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    /// Notes that a page is unused. Whether it was not noted before.
    fn insert_free(&mut self, page: u64) -> bool {
        match page < self.pages {
            true => self.free.insert(page),
            false => self.free_behind.insert(page),
        }
    }

    /// Looks at a list of unused pages. Those that are in use would be overwritten.
    fn free_pages(&mut self, list: &[u8]) -> Wrong<()> {
        let count = Wire(list).u64(0).unwrap_or(0);
        let numbers = list.chunks_exact(8).skip(1);
        if u64::try_from(numbers.len()).ok() != Some(count) {
            return Err(format!("it has {} pages, but says {count}", numbers.len()));
        }
        let mut before = u64::MAX;
        for page in numbers.filter_map(|bytes| Wire(bytes).u64(0)) {
            // LMDB takes neighbours in the list for neighbours in the file.
            if page >= before {
                return Err("its pages are not in descending order".to_owned());
            }
            before = page;
            let what = if page < 2 || page > self.last_page {
                format!(
                    "it is among the unused, but pages are 2 to {}",
                    self.last_page
                )
            } else if self.in_use.contains(page) {
                USED_AND_UNUSED.to_owned()
            } else if !self.insert_free(page) {
                "it is among the unused twice".to_owned()
            } else {
                continue;
            };
            self.wrong(page, what);
        }
        Ok(())
    }
}

const USED_AND_UNUSED: &str =
    "it is in use, but also among the unused, which the next transaction overwrites";

/// Whether a key comes before another one.
fn is_before(kind: Kind, one: &[u8], two: &[u8]) -> bool {
    match kind {
        Kind::Free => Wire(one).u64(0) < Wire(two).u64(0),
        _ => one < two,
    }
}

impl Tree {
    /// Refuses a key that no entry has.
    fn check_key(&self, key: &[u8]) -> Wrong<()> {
        if key.is_empty() || key.len() > MOST_KEY {
            return Err(format!(
                "its key has {} bytes, allowed are 1 to {MOST_KEY}",
                key.len()
            ));
        }
        if self.kind == Kind::Free && key.len() != 8 {
            return Err(format!("its key has {} bytes, allowed are 8", key.len()));
        }
        Ok(())
    }

    /// Refuses a key that is not behind the last one.
    fn next_key(&mut self, key: &[u8]) -> Wrong<()> {
        self.check_key(key)?;
        // LMDB would read the list of that transaction, which is none, again and again, and use its pages twice.
        if self.kind == Kind::Free && Wire(key).u64(0) == Some(0) {
            return Err("its transaction is 0, allowed is 1 at least".to_owned());
        }
        if self
            .last
            .as_ref()
            .is_some_and(|last| !is_before(self.kind, last, key))
        {
            return Err("its key is not behind the one before".to_owned());
        }
        let least = self.least.take();
        if least.is_some_and(|least| is_before(self.kind, key, &least)) {
            return Err("its key is before what the page above says".to_owned());
        }
        self.last = Some(key.to_vec());
        self.entries = self.entries.saturating_add(1);
        Ok(())
    }
}

/// An entry of a page.
pub(crate) struct Node<'a> {
    /// The page below, in a branch.
    pub(crate) child: u64,
    pub(crate) flags: u16,
    pub(crate) key: &'a [u8],
    /// In the page.
    pub(crate) value: &'a [u8],
    /// Bytes of the value, wherever it is.
    pub(crate) len: usize,
    /// Where it is in the page. All of these begin at even places.
    place: Range<usize>,
}

impl<'a> Wire<'a> {
    /// The number of nodes.
    pub(crate) fn head(self, number: u64, wanted: u16) -> Wrong<u16> {
        // A flag that a page has only in memory would let LMDB write to it where it may not.
        let kind = self.u16(10).unwrap_or(0);
        if self.u64(0) != Some(number) || kind != wanted {
            return Err(format!(
                "it says that it is page {} with flags {kind:#x}, allowed is {wanted:#x}",
                self.u64(0).unwrap_or(0)
            ));
        }
        let (lower, upper) = (self.u16(12).unwrap_or(0), self.u16(14).unwrap_or(0));
        let first = u16::try_from(HEADER).unwrap_or(0);
        if lower < first || lower > upper || usize::from(upper) > self.0.len() {
            return Err(format!(
                "its free space is from {lower} to {upper}, allowed is from {first} to {}",
                self.0.len()
            ));
        }
        Ok(lower.saturating_sub(first) / 2)
    }

    /// All nodes. LMDB moves them about in the page when one goes or comes, so none may be in another one's place.
    fn all_nodes(self, count: u16, is_leaf: bool) -> Wrong<Vec<Node<'a>>> {
        // Two always have room, as the `me_nodemax` of LMDB wants it.
        let half = self.0.len().saturating_sub(HEADER) / 2;
        let most = (half & !1).saturating_sub(2);
        let mut nodes = Vec::with_capacity(count.into());
        let mut places = Vec::with_capacity(count.into());
        for place in 0..count {
            let Some(node) = self.node(place, is_leaf) else {
                return Err(format!("its entry {place} lies outside of it"));
            };
            if node.place.len() > most {
                let bytes = node.place.len();
                return Err(format!(
                    "its entry {place} has {bytes} bytes, allowed are {most}"
                ));
            }
            places.push((node.place.start, node.place.end, place));
            nodes.push(node);
        }
        places.sort_unstable();
        let overlap = places.windows(2).find_map(|pair| match pair {
            [(_, end, one), (start, _, two)] if start < end => Some((one, two)),
            _ => None,
        });
        match overlap {
            Some((one, two)) => Err(format!("its entries {one} and {two} have the same bytes")),
            None => Ok(nodes),
        }
    }

    pub(crate) fn node(self, place: u16, is_leaf: bool) -> Option<Node<'a>> {
        let slot = usize::from(place).checked_mul(2)?.checked_add(HEADER)?;
        let at = usize::from(self.u16(slot)?);
        let upper = usize::from(self.u16(14)?);
        if at < upper || !at.is_multiple_of(2) {
            return None;
        }
        let number = |field: usize| self.u16(at.checked_add(field)?);
        let (low, high, flags, key_len) =
            (number(0)?, number(2)?, number(4)?, usize::from(number(6)?));
        let key_at = at.checked_add(NODE)?;
        let key = self.bytes(key_at, key_len)?;
        let len = u32::from(high) << 16 | u32::from(low);
        if !is_leaf {
            return Some(Node {
                child: u64::from(flags) << 32 | u64::from(len),
                flags: 0,
                key,
                value: &[],
                len: 0,
                place: at..key_at.checked_add(key_len)?,
            });
        }
        let len = usize::try_from(len).ok()?;
        let here = if flags & ELSEWHERE != 0 { 8 } else { len };
        let value_at = key_at.checked_add(key_len)?;
        Some(Node {
            child: 0,
            flags,
            key,
            value: self.bytes(value_at, here)?,
            len,
            place: at..value_at.checked_add(here)?,
        })
    }
}
