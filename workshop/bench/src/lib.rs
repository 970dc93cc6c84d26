/*!
Measures brisk against other tools that do the same work.

A [`Bench`] runs contenders in turns, in random order. It keeps every single run, and writes them to `raw.json`, with a
description of the [`Machine`], and their medians to `table.md`. The binaries in `src/bin` say what they measure, and how
they check each result before its time counts. Begin with `src/bin/image/main.rs`.

# What this crate does not do

* Measure launches of any program: see `brisk lab`.
* Decide: it prints a missed goal, but does not fail.
*/

mod bench;
mod processors;
mod superblock;
mod table;
mod tool;
mod tree;

pub use bench::{Bench, Row, Run, Timed};
// The same as in `brisk lab`, so that a figure means the same in both.
pub use brisk_lab::{Machine, Ratio, Spread};
pub use processors::give_processors;
pub use superblock::Superblock;
pub use tool::Tool;
pub use tree::{Tree, warm_file};
