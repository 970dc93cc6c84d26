//! `caches`, which also counts allocations. It is a program of its own, because counting makes each slower.

#[cfg(feature = "cache-rivals")]
#[path = "caches/stores.rs"]
mod stores;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
#[cfg(feature = "cache-rivals")]
use stores::RIVALS;

#[cfg(not(feature = "cache-rivals"))]
const RIVALS: [brisk_bench::caches::StoreKind; 0] = [];

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::process::ExitCode {
    brisk_bench::caches::run(&RIVALS, Some(|| COUNTING.stats().allocations))
}
