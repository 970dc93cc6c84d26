//! The client over reqwest, and what it gives: bodies, tables, its blocking face and the middleware.

mod asynchronous;
mod blocking;
mod origin;
mod tables;
mod whole_body;
