use brisk_cache::Stored;

use crate::key::Key;
use crate::key_bytes::KeyBytes;
use crate::schema::Schema;
use crate::value::Value;

/// A type whose values a database keeps, each under its key.
///
/// `#[derive(Record)]` makes a struct one, whose fields are all a [`Value`]:
///
/// * `#[key]` on a field makes it the key; on several, all of them in their order. `#[key(auto)]` on a field of type `u64`
///   lets [`insert`](crate::Transaction::insert) choose the key of a record that has 0 there. Any other key is kept: it is an
///   error if there is such a record already. [`update`](crate::Transaction::update) and
///   [`upsert`](crate::Transaction::upsert) take every key as it is.
/// * `#[index]` and `#[unique]` on a field make an index of its name. `#[record(index(a, b))]` and `#[record(unique(a, b))]`
///   on the struct make one over several fields. Each is a constant of the struct: [`Index`](crate::Index) `A_B`.
/// * `#[record(name = "…")]` on the struct names the collection. Otherwise it is the name of the struct in snake case.
///
/// For a struct `Invoice` it also makes the view `InvoiceView`, which has a method of the name of each field and
/// `to_owned`.
///
/// A database has a record with a check of its bytes and its key, which each look-up computes.
pub trait Record: Value + Stored {
    /// What is stored, and how it is found.
    const SCHEMA: Schema;
    /// Where the key is in the stored bytes, if the database chooses it.
    const AUTO_KEY_AT: Option<usize>;
    /// The key.
    type Key: Key;

    /// Writes the key of a stored record.
    fn encode_key_of(view: &ViewOf<'_, Self>, out: &mut KeyBytes);

    /// Writes what the index of a number is ordered by. Returns whether no part of that is missing.
    fn encode_index_key(view: &ViewOf<'_, Self>, number: usize, out: &mut KeyBytes) -> bool;

    /// What the index of a number is ordered by, in words.
    fn describe_index_key(number: usize, bytes: &[u8]) -> String;
}

/// The view of a record type.
pub type ViewOf<'a, R> = <R as Value>::View<'a>;
