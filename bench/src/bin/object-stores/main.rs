//! The stores of `brisk lab objects`.

mod brisk;
mod entry;
mod flat;
mod heed_typed;
mod lmdb;
mod redb_store;
mod sqlite;

use brisk_lab::ObjectKind;

const KINDS: [ObjectKind; 6] = [
    ObjectKind {
        name: "brisk",
        open: brisk::open,
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
        name: "pread",
        open: flat::open,
    },
];

fn main() -> std::process::ExitCode {
    brisk_lab::serve_objects(&KINDS)
}
