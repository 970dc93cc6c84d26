//! Repositories of small packages, made by the tests, and an upstream that serves them and fails when it is told to.
//!
//! Each has an application that needs a library, so that a client that is served only half of it notices.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

pub mod archives;
pub mod crates;
pub mod debian;
pub mod modules;
pub mod npm;
pub mod python;
pub mod repository;
pub mod site;

pub use repository::{Fault, Repository, Scope};
pub use site::Site;
