//! A tree with one of everything, what a tree is seen as, all pairs of options, and the tools of
//! others. A tool that is missing fails the test that needs it.
#![allow(dead_code, unused_imports, reason = "each test program uses a part")]

mod pairs;
mod programs;
mod reader;
mod snapshot;
mod tools;
mod tree;

pub use pairs::all_pairs;
pub use reader::{check_access, check_reader, open_mapped};
pub use snapshot::{Content, Node, Snapshot};
pub use tools::{
    NOBODY, alone_in_namespace, as_nobody, brisk_extract, expect_root, in_own_process, mounted,
    run, run_quiet, vm_hwm,
};
pub use tree::{Random, Shape, build, noise, set_xattr, text, wide};
