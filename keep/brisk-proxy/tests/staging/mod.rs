//! What the tests of the proxy have together: an upstream in this process, the real program, and a client that speaks
//! over a raw socket.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

use std::time::Duration;

/// What takes so long hangs, however slow the machine is.
pub const HANG: Duration = Duration::from_secs(300);

pub mod client;
pub mod connection;
pub mod program;
pub mod random;
pub mod upstream;

pub use client::{Reply, exchange, get, get_by_halves, get_with, request};
pub use connection::{Connection, Lost};
pub use program::Program;
pub use random::Random;
pub use upstream::{Answer, Upstream};
