//! Jobs that processes of their own do, one after the other, for the labs of caches and of package indexes: the program that
//! does them, what they took, and what strace says of them.

mod cold_disk;
mod counting;
mod files;
mod program;
mod spent;
mod undoing;

pub use cold_disk::{ColdDisk, Coldness};
pub use counting::{system_calls, written_below};
pub use files::{all_are_warm, bytes_on_disk, make_cold, make_warm};
pub use program::{Program, READY, answer};
pub use spent::{Spent, Values, monotonic};
pub use undoing::undoing;
