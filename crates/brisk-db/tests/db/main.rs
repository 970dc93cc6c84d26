//! `brisk-db`, on databases that programs of brisk-objects have made.

#[path = "../../../brisk/tests/staging/documented.rs"]
mod documented;

mod checking;
mod guide;
mod hostile;
mod ledger;
mod looking;
mod moving;
