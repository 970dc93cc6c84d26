//! `index-ways`, which also counts allocations. It is a program of its own, because counting makes each slower.

#[path = "index-ways/ways/mod.rs"]
mod ways;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    brisk_bench::ways::count(&ways::WAYS, || COUNTING.stats().allocations)
}
