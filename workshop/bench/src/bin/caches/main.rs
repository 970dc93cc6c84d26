//! Measures caches on disk. The library says more.

#[cfg(feature = "cache-rivals")]
mod stores;

#[cfg(feature = "cache-rivals")]
use stores::RIVALS;

#[cfg(not(feature = "cache-rivals"))]
const RIVALS: [brisk_bench::caches::StoreKind; 0] = [];

fn main() -> std::process::ExitCode {
    brisk_bench::caches::run(&RIVALS, None)
}
