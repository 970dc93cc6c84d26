//! `cache-rivals`, which also counts allocations. It is a program of its own, because counting makes each slower.

#[path = "cache-rivals/stores.rs"]
mod stores;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    brisk_lab::serve_cache(&stores::RIVALS, Some(|| COUNTING.stats().allocations))
}
