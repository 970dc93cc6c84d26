//! The state that a reader sees: what the file says of it, and whether its pages are there.

use std::fs::File;

use heed::{Env, RoTxn, WithoutTls};

use super::pages::{Meta, PageFaults, both, check, newest};
use crate::error::Error;
use crate::store_error::Told;

/// How often a state is looked for that a writer has overwritten meanwhile.
const TRIES: usize = 100;

/// Begins to read, and finds what the file says of that state. Each transaction overwrites what it said of the one before the
/// last.
pub(crate) fn begin(
    env: &Env<WithoutTls>,
    file: &File,
) -> Result<(RoTxn<'static, WithoutTls>, Meta), Error> {
    for _ in 0..TRIES {
        let txn = env.clone().static_read_txn();
        let txn = txn.told(env)?;
        let wanted = u64::try_from(txn.id()).unwrap_or(u64::MAX);
        let [even, odd] = both(file, env.path())?;
        // The number of a transaction says which of them LMDB reads.
        let meta = if wanted.is_multiple_of(2) { even } else { odd };
        if meta.txn == wanted {
            return Ok((txn, meta));
        }
    }
    let message = format!(
        "programs write to {} faster than it can be looked at; try again",
        env.path().display()
    );
    Err(std::io::Error::new(std::io::ErrorKind::ResourceBusy, message).into())
}

/// Refuses a file that ends before a page of a state, which a mapping does not have then.
pub(crate) fn refuse_cut(env: &Env<WithoutTls>, file: &File, meta: &Meta) -> Result<(), Error> {
    let len = file.metadata()?.len();
    // The last pages of a file may never have been written, if nothing is in them.
    if len < meta.needed()
        && let Some((page, needed)) = check(file, meta)?.beyond
    {
        return Err(Error::Cut {
            path: env.path().to_owned(),
            len,
            page,
            needed,
        });
    }
    Ok(())
}

/// Refuses an open file that ends too early, and, if it `is_checked`, one with a wrong page.
pub(crate) fn refuse_wrong(
    env: &Env<WithoutTls>,
    file: &File,
    is_checked: bool,
) -> Result<(), Error> {
    let newest = newest(file, env.path())?;
    if !is_checked && file.metadata()?.len() >= newest.needed() {
        return Ok(());
    }
    // Meanwhile no page of it is used again.
    let (_txn, meta) = begin(env, file)?;
    refuse_cut(env, file, &meta)?;
    let faults = match is_checked {
        true => check(file, &meta)?,
        false => PageFaults::default(),
    };
    match faults.first() {
        Some((page, more)) => Err(Error::Pages {
            path: env.path().to_owned(),
            page,
            more,
        }),
        None => Ok(()),
    }
}
