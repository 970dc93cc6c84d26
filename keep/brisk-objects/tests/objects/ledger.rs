//! Invoices and accounts, as several tests use them.

use std::path::Path;

use brisk_objects::{Database, Error, Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "invoices")]
pub struct Invoice {
    #[key(auto)]
    pub id: u64,
    #[index]
    pub account: u32,
    #[unique]
    pub number: String,
    pub cents: i64,
}

#[derive(Record, Debug, Clone, PartialEq)]
pub struct Account {
    #[key]
    pub id: u32,
    /// The sum of its invoices.
    pub cents: i64,
    pub invoices: u64,
}

pub fn options() -> Options {
    Options::new()
        .collection::<Invoice>()
        .collection::<Account>()
        .limit(256 << 20)
}

pub fn open(path: &Path) -> Database {
    open_with(options(), path).unwrap()
}

pub fn open_with(options: Options, path: &Path) -> Result<Database, Error> {
    // SAFETY: nothing but LMDB writes to the file while somebody reads it.
    unsafe { options.open(path) }
}

pub fn invoice(account: u32, number: impl Into<String>, cents: i64) -> Invoice {
    Invoice {
        id: 0,
        account,
        number: number.into(),
        cents,
    }
}

/// Adds an invoice, and changes its account.
pub fn book(db: &Database, account: u32, number: String, cents: i64) -> Result<u64, Error> {
    db.write(|tx| {
        let id = tx.insert(&invoice(account, number, cents))?;
        let before = tx.get::<Account>(account)?.map(|view| view.to_owned());
        let mut after = before.unwrap_or(Account {
            id: account,
            cents: 0,
            invoices: 0,
        });
        after.cents += cents;
        after.invoices += 1;
        tx.upsert(&after)?;
        Ok(id)
    })
}

/// Returns the number of invoices. Panics if the books do not agree.
pub fn audit(db: &Database) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let invoices = snapshot.check::<Invoice>().unwrap();
    snapshot.check::<Account>().unwrap();
    let mut booked = 0;
    for account in snapshot.query::<Account>().iter().unwrap() {
        let account = account.unwrap();
        let of_account = snapshot
            .query::<Invoice>()
            .by(Invoice::ACCOUNT)
            .is(account.id());
        let cents: Vec<i64> = of_account
            .iter()
            .unwrap()
            .map(|i| i.unwrap().cents())
            .collect();
        assert_eq!(cents.iter().sum::<i64>(), account.cents());
        assert_eq!(cents.len() as u64, account.invoices());
        booked += account.invoices();
    }
    assert_eq!(booked, invoices);
    invoices
}
