//! `brisk-reads` counts how often small reads allocate memory, for `brisk lab reads`.
//!
//! It is a program of its own, because counting makes each allocation slower.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    brisk_lab::count_allocations(|| COUNTING.stats().allocations)
}
