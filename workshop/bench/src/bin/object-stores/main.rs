//! The stores of `brisk lab objects`.

mod asynchronous;
mod brisk;
mod entry;
mod flat;
mod heed_typed;
mod lmdb;
mod native;
mod redb_store;
mod sqlite;

use brisk_lab::ObjectKind;

const KINDS: [ObjectKind; 8] = [
    ObjectKind {
        name: "brisk",
        open: brisk::open,
    },
    ObjectKind {
        name: "brisk-async",
        open: asynchronous::open,
    },
    ObjectKind {
        name: "lmdb",
        open: lmdb::open,
    },
    ObjectKind {
        name: "heed",
        open: heed_typed::open,
    },
    ObjectKind {
        name: "sqlite",
        open: sqlite::open,
    },
    ObjectKind {
        name: "redb",
        open: redb_store::open,
    },
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
    brisk_lab::serve_objects(&KINDS)
}
