//! Jobs that processes of their own do: the program that does them, what they took, and what strace says of them.

mod counting;
mod files;
mod program;
mod spent;

pub(crate) use counting::{system_calls, written_below};
pub use files::bytes_on_disk;
pub(crate) use files::{all_are_warm, make_cold, make_warm};
pub(crate) use program::{Program, READY};
pub use spent::Values;
pub(crate) use spent::{Spent, monotonic};
