//! Databases whose types only the file tells.

use std::fs;
use std::path::Path;

use brisk_objects::{Error, Options, PageFaults, Plain, Record, UntypedDatabase, UntypedWriter};

use crate::ledger::{Account, Invoice, book, invoice, open, open_with};

#[derive(Record, Debug, Clone, PartialEq)]
struct Page {
    #[key]
    id: u32,
    #[index]
    name: String,
    text: String,
}

fn pages() -> Options {
    Options::new().collection::<Page>().limit(64 << 20)
}

fn page(id: u32) -> Page {
    Page {
        id,
        name: format!("{:0100}", id.wrapping_mul(0x9e37_79b9)),
        text: "t".repeat(if id.is_multiple_of(50) { 9_000 } else { 30 }),
    }
}

/// A database with branches, long records, and pages that are unused again.
fn make(path: &Path) {
    let db = open_with(pages(), path).unwrap();
    for first in (0..600).step_by(100) {
        db.write(|tx| (first..first + 100).try_for_each(|id| tx.insert(&page(id)).map(|_id| ())))
            .unwrap();
    }
    db.write(|tx| {
        (200..350).try_for_each(|id| tx.delete::<Page>(id).map(|was_there| assert!(was_there)))
    })
    .unwrap();
}

fn untyped(path: &Path) -> Result<UntypedDatabase, Error> {
    // SAFETY: nothing but LMDB writes to the file while somebody reads it.
    unsafe { UntypedDatabase::open(path) }
}

fn check_pages(path: &Path) -> Result<PageFaults, Error> {
    // SAFETY: as above.
    unsafe { UntypedDatabase::check_pages(path) }
}

/// Reads all that there is. Returns the number of records and of faults.
fn read_all(database: &UntypedDatabase) -> (u64, u64) {
    let (mut records, mut faults) = (0, 0);
    for collection in database.collections() {
        let checked = collection.check(|_fault| {
            faults += 1;
            Ok::<_, Error>(())
        });
        records += checked.unwrap_or(0);
    }
    (records, faults)
}

#[test]
fn a_file_tells_its_types() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("ledger.db");
    let db = open(&path);
    for number in 0..10u32 {
        book(&db, number % 3, number.to_string(), 5).unwrap();
    }
    drop(db);
    let database = untyped(&path).unwrap();
    let schemas: Vec<_> = database.collections().map(|one| *one.schema()).collect();
    // The order of indexes is no part of what is stored.
    assert_eq!(schemas, [Account::SCHEMA, Invoice::SCHEMA]);
    let invoices = database.collection("invoices").unwrap();
    assert_eq!(
        (invoices.len().unwrap(), invoices.next_key().unwrap()),
        (10, Some(11))
    );
    let record = invoices.get(&[Plain::Unsigned(4)]).unwrap().unwrap();
    assert_eq!(record.field("number"), Some(&Plain::Text("3".to_owned())));
    let e = invoices.get(&[Plain::Signed(4)]).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the value for the key of invoices is of another type; allowed is id: u64"
    );
    let by_account = invoices
        .query()
        .by("account")
        .unwrap()
        .from(&[Plain::Unsigned(1)])
        .unwrap();
    assert_eq!(by_account.iter().unwrap().count(), 6);
    assert_eq!(read_all(&database), (13, 0));
    drop(database);
    // The program that wrote it has it as before.
    let db = open(&path);
    assert_eq!(crate::ledger::audit(&db), 10);
    db.write(|tx| tx.insert(&invoice(1, "next", 1))).unwrap();
    let e = untyped(&path).unwrap_err();
    assert!(matches!(e, Error::OpenAlready { .. }), "{e}");
}

#[test]
fn all_pages_of_a_whole_file_are_right() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("pages.db");
    make(&path);
    assert_eq!(check_pages(&path).unwrap(), PageFaults::default());
    let database = untyped(&path).unwrap();
    assert_eq!(read_all(&database), (450, 0));
    let collection = database.collection("page").unwrap();
    let tree = collection.records_size().unwrap();
    // The test is of all kinds of pages.
    assert!(tree.branch_pages > 0 && tree.overflow_pages > 0, "{tree:?}");
    assert!(collection.index_sizes().unwrap()[0].depth > 1);
}

/// A number of the bytes of a file.
fn number<const N: usize>(whole: &[u8], at: usize) -> usize {
    let bytes: [u8; N] = whole[at..at + N].try_into().unwrap();
    bytes
        .iter()
        .rev()
        .fold(0, |all, byte| all << 8 | usize::from(*byte))
}

/// Where the nodes of a page are.
fn nodes(whole: &[u8], page: usize) -> Vec<usize> {
    let at = page * 4096;
    let count = (number::<2>(whole, at + 12) - 16) / 2;
    let slots = (0..count).map(|slot| number::<2>(whole, at + 16 + slot * 2));
    slots.map(|node| at + node).collect()
}

/// The root page of a tree that stands in a file.
fn root(whole: &[u8], tree: usize) -> usize {
    number::<8>(whole, tree + 40)
}

#[test]
fn wrong_pages_are_named() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("pages.db");
    make(&path);
    let whole = fs::read(&path).unwrap();
    let newest = match number::<8>(&whole, 144) > number::<8>(&whole, 4096 + 144) {
        true => 0,
        false => 4096,
    };
    // The tables are the layouts, the collection and its index. The value of each node is its tree.
    let main = root(&whole, newest + 88);
    let tables = nodes(&whole, main);
    let records = tables[1];
    assert_eq!(&whole[records + 8..records + 12], b"page");
    let records = records + 12;
    let branch = root(&whole, records);
    let leaf = |place: usize| number::<4>(&whole, nodes(&whole, branch)[place]);
    let free = root(&whole, newest + 40);
    // A list of unused pages: how many, and then each of them.
    let list = nodes(&whole, free)[0] + 8 + 8;
    let told = |changes: &[(usize, &[u8])]| {
        let mut changed = whole.clone();
        for (at, bytes) in changes {
            changed[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        fs::write(&path, &changed).unwrap();
        let faults = check_pages(&path).unwrap();
        faults.described.first().cloned().unwrap_or_default()
    };
    let page_of = |tree: &str, page: usize, what: &str| {
        format!("page {page} of {tree}, at byte {}: {what}", page * 4096)
    };
    let page = |page: usize, what: &str| page_of("page", page, what);
    let small = |number: usize| [number as u8];
    assert_eq!(told(&[]), "");
    assert_eq!(
        told(&[(list + 8, &small(main))]),
        page_of(
            "unused pages",
            main,
            "it is in use, but also among the unused, which the next transaction overwrites"
        )
    );
    let first = leaf(0);
    let slots = first * 4096 + 16;
    let swapped = [&whole[slots + 2..slots + 4], &whole[slots..slots + 2]].concat();
    assert_eq!(
        told(&[(slots, &swapped)]),
        page(first, "its entry 1: its key is not behind the one before")
    );
    // The second child of the branch begins with a larger key than its first record has, or with a smaller one.
    let key = nodes(&whole, branch)[1] + 8;
    assert_eq!(
        told(&[(key, &[9])]),
        page(
            leaf(1),
            "its entry 0: its key is before what the page above says"
        )
    );
    assert_eq!(
        told(&[(key, &[0; 4])]),
        page(
            branch,
            &format!("a key below it is not before that of page {}", leaf(1))
        )
    );
    assert_eq!(
        told(&[(nodes(&whole, branch)[1], &small(first))]),
        page(first, "it is named twice")
    );
    assert_eq!(
        told(&[(nodes(&whole, branch)[1], &[255, 255])]),
        page(
            65_535,
            &format!("it is named, but pages are 2 to {}", whole.len() / 4096 - 1)
        )
    );
    assert_eq!(
        told(&[(records + 32, &[0, 9])]),
        "the tree of page: it has 450 entries, but says 2304"
    );
    assert_eq!(
        told(&[(records + 4, &[4])]),
        "the tree of page: its flags are 0x4, allowed is 0x0"
    );
    assert_eq!(
        told(&[(records + 6, &[33])]),
        "the tree of page: it has 33 levels, allowed are 1 to 32"
    );
    assert_eq!(
        told(&[(tables[1] + 4, &[0])]),
        page_of("tables", main, "its entry 1: it is no tree")
    );
    // LMDB writes neither, and would read entries that are not there.
    let head = |page: usize| page * 4096 + 12;
    assert_eq!(
        told(&[(head(first), &[16])]),
        page(first, "it has 0 entries, allowed is 1 at least")
    );
    assert_eq!(
        told(&[(head(branch), &[18])]),
        page(branch, "it has 1 entries, allowed is 2 at least")
    );
    // The second entry is the first one. LMDB would move both past the page if one went.
    assert_eq!(
        told(&[(slots + 2, &whole[slots..slots + 2])]),
        page(first, "its entries 0 and 1 have the same bytes")
    );
    let node = nodes(&whole, first)[1];
    let length = whole[node] + 2;
    assert_eq!(
        told(&[(node, &[length])]),
        page(first, "its entries 1 and 0 have the same bytes")
    );
    let key = nodes(&whole, branch)[1] + 6;
    assert_eq!(
        told(&[(key, &[0])]),
        page(
            branch,
            "its entry 1: its key has 0 bytes, allowed are 1 to 511"
        )
    );
    // What LMDB notes of a page in memory, which it then does not copy before it writes to it.
    assert_eq!(
        told(&[(first * 4096 + 10, &[0x12])]),
        page(
            first,
            &format!("it says that it is page {first} with flags 0x12, allowed is 0x2")
        )
    );
    let swapped = [&whole[list + 16..list + 24], &whole[list + 8..list + 16]].concat();
    assert_eq!(
        told(&[(list + 8, &swapped)]),
        page_of(
            "unused pages",
            free,
            "its entry 0: its pages are not in descending order"
        )
    );
    assert_eq!(
        told(&[(nodes(&whole, free)[0] + 8, &[0; 8])]),
        page_of(
            "unused pages",
            free,
            "its entry 0: its transaction is 0, allowed is 1 at least"
        )
    );
}

/// A list of unused pages, none of which there is.
#[test]
fn a_hundred_faults_are_described() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("pages.db");
    let db = open_with(pages(), &path).unwrap();
    let long = Page {
        id: 1,
        name: "long".to_owned(),
        text: "t".repeat(150 * 4096),
    };
    db.write(|tx| tx.insert(&long)).unwrap();
    db.write(|tx| tx.delete::<Page>(1)).unwrap();
    drop(db);
    let mut whole = fs::read(&path).unwrap();
    let newest = match number::<8>(&whole, 144) > number::<8>(&whole, 4096 + 144) {
        true => 0,
        false => 4096,
    };
    let free = root(&whole, newest + 40);
    let lists = nodes(&whole, free).into_iter();
    let longest = lists.max_by_key(|node| number::<8>(&whole, node + 16));
    let longest = longest.unwrap();
    let pages = number::<8>(&whole, longest + 16);
    assert!(pages > 150, "{pages}");
    for page in 0..pages {
        let at = longest + 24 + page * 8;
        whole[at..at + 8].copy_from_slice(&(u64::MAX - 1 - page as u64).to_le_bytes());
    }
    fs::write(&path, &whole).unwrap();
    let found = check_pages(&path).unwrap();
    assert_eq!(
        (found.described.len(), found.more),
        (100, pages as u64 - 100)
    );
}

/// LMDB maps as many bytes as the first pages say, also if those are less than two pages.
#[test]
fn a_wrong_last_page_is_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("pages.db");
    make(&path);
    let mut whole = fs::read(&path).unwrap();
    for page in [0, 4096] {
        whole[page + 32..page + 40].copy_from_slice(&4096u64.to_le_bytes());
    }
    for last in [0, u64::MAX, 1 << 52, 1 << 35] {
        for page in [0, 4096] {
            whole[page + 136..page + 144].copy_from_slice(&last.to_le_bytes());
        }
        fs::write(&path, &whole).unwrap();
        let refused = check_pages(&path).unwrap_err().to_string();
        let expected = format!(": its last page is {last}, allowed are 1 to 34359738367");
        assert!(refused.ends_with(&expected), "{refused}");
    }
}

/// LMDB reads the page of an odd or an even transaction, whatever number that page has.
#[test]
fn first_pages_of_each_others_transactions_are_refused() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("pages.db");
    make(&path);
    let whole = fs::read(&path).unwrap();
    let refused = |first: u64, second: u64| {
        let mut changed = whole.clone();
        changed[144..152].copy_from_slice(&first.to_le_bytes());
        changed[4096 + 144..4096 + 152].copy_from_slice(&second.to_le_bytes());
        fs::write(&path, &changed).unwrap();
        let checked = check_pages(&path).unwrap_err().to_string();
        assert_eq!(untyped(&path).unwrap_err().to_string(), checked);
        let found = checked.rsplit_once(": ").unwrap().1;
        found.to_owned()
    };
    let first = "its first page is of transaction 5, allowed is an even number";
    assert_eq!(refused(5, 5), first);
    assert_eq!(refused(5, 4), first);
    assert_eq!(
        refused(4, 4),
        "its second page is of transaction 4, allowed is an odd number"
    );
    assert_eq!(
        refused(4, u64::MAX),
        "its last transaction is 18446744073709551615, allowed are 0 to 9223372036854775807"
    );
}

/// Removes records and adds others, as far as what is stored allows it.
fn write_some(path: &Path) {
    let Ok(db) = open_with(pages(), path) else {
        return;
    };
    for first in [0, 300] {
        let written = db.write(|tx| {
            for id in (first..first + 300).step_by(3) {
                tx.delete::<Page>(id)?;
            }
            for id in (1000 + first..).take(40) {
                tx.insert(&page(id))?;
            }
            Ok::<_, Error>(())
        });
        written.ok();
    }
}

/// Bits all over the file are changed. What is called right, LMDB reads and writes without harm.
fn change_bits(seed: u64, rounds: u32) {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (home.path().join("pages.db"), home.path().join("copy.db"));
    make(&path);
    let whole = fs::read(&path).unwrap();
    let (mut named, mut right) = (0, 0);
    let mut random = seed;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for round in 0..rounds {
        let mut changed = whole.clone();
        // Half of them are in the first bytes of a page, which say what is where.
        let at = match round % 2 {
            0 => next(whole.len()),
            _ => next(whole.len() / 4096) * 4096 + next(200),
        };
        changed[at] ^= 1 << next(8);
        fs::write(&copy, &changed).unwrap();
        match check_pages(&copy) {
            Ok(faults) if faults.is_empty() => {
                right += 1;
                if let Ok(database) = untyped(&copy) {
                    read_all(&database);
                }
                write_some(&copy);
            }
            Ok(faults) => {
                named += 1;
                assert!(faults.described.iter().all(|fault| !fault.is_empty()));
            }
            Err(_) => named += 1,
        }
    }
    assert!(
        named > rounds / 15 && right > rounds / 15,
        "{named} {right}"
    );
}

#[test]
fn what_is_called_right_can_be_used() {
    change_bits(7, 3_000);
}

#[test]
#[ignore = "takes minutes"]
fn what_is_called_right_can_be_used_for_long() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = now.as_nanos() as u64;
    println!("seed {seed}");
    change_bits(seed, 200_000);
}

#[test]
fn a_file_that_came_meanwhile_is_not_replaced() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("new.db");
    let work = |_: &mut UntypedWriter<'_>| {
        make(&path);
        Ok::<_, Error>(())
    };
    // SAFETY: nothing but LMDB writes to the file.
    let e = unsafe { UntypedDatabase::write(&path, 64 << 20, work) }.unwrap_err();
    let expected = format!(
        "another program has made {} meanwhile; nothing was written, so write again",
        path.display()
    );
    assert_eq!(e.to_string(), expected);
    assert!(matches!(e, Error::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists));
    assert_eq!(read_all(&untyped(&path).unwrap()).1, 0);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}
