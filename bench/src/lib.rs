/*!
Measures brisk against the tools it stands beside.

A [`Bench`] runs contenders interleaved in random order, keeps every single run, and writes them
with the [`Machine`] they ran on to `raw.json` and as medians to `table.md`. What is measured, and
how each result is checked before its time counts, stands with each binary.

# What this crate does not do

* Measure launches of any program: see `brisk lab`.
* Decide: a goal that is missed is printed, and is no failure of the bench.
*/

mod bench;
mod processors;
mod superblock;
mod table;
mod tool;
mod tree;

pub use bench::{Bench, Row, Run, Timed};
// Those of `brisk lab`, so that a figure means the same in both.
pub use brisk_lab::{Machine, Ratio, Spread};
pub use processors::give_processors;
pub use superblock::Superblock;
pub use tool::Tool;
pub use tree::{Tree, warm_file};
