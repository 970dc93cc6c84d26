//! A ledger of a million bookings: fills it, asks it, and goes through it page by page.
//!
//! ```text
//! cargo run --release -p brisk-objects --example ledger -- ledger.db
//! ```

use std::path::Path;
use std::time::Instant;

use brisk_objects::{Cursor, Database, Durability, Error, Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "bookings", index(account, day))]
struct Booking {
    #[key(auto)]
    id: u64,
    account: u32,
    /// Days since 1970.
    day: i32,
    #[unique]
    voucher: String,
    cents: i64,
    note: Option<String>,
}

#[derive(Record, Debug, Clone, PartialEq)]
struct Account {
    #[key]
    id: u32,
    #[index]
    owner: String,
    cents: i64,
}

const ACCOUNTS: u32 = 1_000;
const BOOKINGS: u64 = 1_000_000;
/// Bookings of one transaction.
const TOGETHER: u64 = 10_000;

fn booking(number: u64) -> Booking {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    Booking {
        id: 0,
        account: (mixed % u64::from(ACCOUNTS)) as u32,
        day: 18_000 + (number * 2_000 / BOOKINGS) as i32,
        voucher: format!("V-{number:07}"),
        cents: (mixed % 20_001) as i64 - 10_000,
        note: number
            .is_multiple_of(10)
            .then(|| format!("note of {number}")),
    }
}

/// A booking and its account change together, or not at all.
fn fill(db: &Database) -> Result<(), Error> {
    db.write(|tx| {
        (0..ACCOUNTS).try_for_each(|id| {
            let owner = format!("owner {:03}", id % 317);
            tx.upsert(&Account {
                id,
                owner,
                cents: 0,
            })
        })
    })?;
    for first in (0..BOOKINGS).step_by(TOGETHER as usize) {
        db.write(|tx| {
            for number in first..first + TOGETHER {
                let booking = booking(number);
                tx.insert(&booking)?;
                let account = tx.get::<Account>(booking.account)?;
                let mut account = account.expect("they are all there").to_owned();
                account.cents += booking.cents;
                tx.update(&account)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

fn took<T>(what: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let started = Instant::now();
    let done = work()?;
    println!("{what}: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    Ok(done)
}

fn run(path: &Path) -> Result<(), Error> {
    let options = Options::new()
        .collection::<Booking>()
        .collection::<Account>()
        .durability(Durability::Last);
    // SAFETY: nothing but this program writes to the file.
    let db = unsafe { options.open(path) }?;
    if db.snapshot()?.count::<Booking>()? < BOOKINGS {
        took("a million bookings", || fill(&db))?;
    }
    let snapshot = db.snapshot()?;

    // By key, by a unique voucher, and a range of days of one account.
    let one = snapshot.get::<Booking>(4711)?.expect("it was inserted");
    let same = snapshot
        .query::<Booking>()
        .by(Booking::VOUCHER)
        .is(one.voucher());
    assert_eq!(same.first()?.map(|booking| booking.id), Some(4711));
    let spring = snapshot
        .query::<Booking>()
        .by(Booking::ACCOUNT_DAY)
        .range((42, 18_100)..(42, 18_200))
        .filter(|booking| booking.note().is_some());
    println!("{}", spring.explain());
    took("these", || {
        spring.count().map(|count| println!("{count} bookings"))
    })?;

    // The books agree: each account has the sum of its bookings.
    took("an audit", || {
        for account in snapshot.query::<Account>().iter()? {
            let account = account?;
            let bookings = snapshot.query::<Booking>().by(Booking::ACCOUNT_DAY);
            let mut cents = 0;
            for booking in bookings.prefix((account.id(),)).iter()? {
                cents += booking?.cents();
            }
            assert_eq!(cents, account.cents(), "account {}", account.id());
        }
        Ok(())
    })?;

    // Page by page: the cursor is bytes that a link could have.
    let page = |after: Option<&[u8]>| {
        let mut query = snapshot
            .query::<Booking>()
            .by(Booking::ACCOUNT_DAY)
            .prefix((7,))
            .take(100);
        if let Some(after) = after {
            query = query.after(&Cursor::from_bytes(after)?)?;
        }
        let mut bookings = query.iter()?;
        let count = bookings
            .by_ref()
            .try_fold(0, |count, booking| booking.map(|_| count + 1))?;
        Ok::<_, Error>((count, bookings.cursor().map(|cursor| cursor.to_bytes())))
    };
    let (mut pages, mut all) = (0, 0);
    let mut next = page(None)?;
    while let (count, Some(cursor)) = next {
        (pages, all) = (pages + 1, all + count);
        next = page(Some(&cursor))?;
    }
    println!("{all} bookings of account 7 on {pages} pages");
    took("a check of all records and indexes", || {
        snapshot.check::<Booking>()
    })?;
    Ok(())
}

fn main() -> std::process::ExitCode {
    let path = std::env::args_os().nth(1).unwrap_or("ledger.db".into());
    match run(Path::new(&path)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ledger: {e}");
            std::process::ExitCode::from(2)
        }
    }
}
