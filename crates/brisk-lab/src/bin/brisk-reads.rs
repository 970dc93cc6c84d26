//! `brisk-reads`: counts what small reads allocate, for `brisk lab reads`.
//!
//! Counting costs each allocation something, so it is a program of its own.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    brisk_lab::count_allocations(|| COUNTING.stats().allocations)
}
