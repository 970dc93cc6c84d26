//! Measures stores of typed records. The library says more.

#[cfg(feature = "object-stores")]
mod asynchronous;
#[cfg(feature = "object-stores")]
mod brisk;
#[cfg(feature = "object-stores")]
mod entry;
mod flat;
#[cfg(feature = "object-stores")]
mod heed_typed;
#[cfg(feature = "object-stores")]
mod lmdb;
#[cfg(feature = "object-stores")]
mod native;
#[cfg(feature = "object-stores")]
mod redb_store;
#[cfg(feature = "object-stores")]
mod sqlite;

use brisk_bench::objects::ObjectKind;

const KINDS: &[ObjectKind] = &[
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "brisk",
        open: brisk::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "brisk-async",
        open: asynchronous::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "lmdb",
        open: lmdb::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "heed",
        open: heed_typed::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "sqlite",
        open: sqlite::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "redb",
        open: redb_store::open,
    },
    #[cfg(feature = "object-stores")]
    ObjectKind {
        name: "native-db",
        open: native::open,
    },
    ObjectKind {
        name: "pread",
        open: flat::open,
    },
];

/// Keys in the order in which a store has them: so it touches each place once.
fn sorted(ids: &[u64]) -> Vec<u64> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

fn main() -> std::process::ExitCode {
    brisk_bench::objects::run(KINDS)
}
