//! A database, from outside.

mod another_process;
mod choices;
mod copies;
mod damage;
mod fork;
mod guide;
mod killed_openings;
mod lazy;
mod ledger;
mod limits;
mod model;
mod network;
mod read_only;
mod schema;
mod untyped;
mod values;
