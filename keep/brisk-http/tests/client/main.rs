//! The client over reqwest, and what it gives: bodies, tables, and its blocking face.

mod asynchronous;
mod blocking;
mod origin;
mod tables;
mod whole_body;
