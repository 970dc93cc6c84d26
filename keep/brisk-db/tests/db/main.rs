//! `brisk-db`, on databases that programs of brisk-objects have made.

#[path = "../../../../start/brisk/tests/staging/documented.rs"]
mod documented;
#[path = "../../../../start/brisk/tests/staging/programs.rs"]
mod programs;

mod checking;
mod guide;
mod hostile;
mod ledger;
mod looking;
mod moving;
