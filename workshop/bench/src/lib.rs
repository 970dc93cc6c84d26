/*!
Measures brisk against other tools and libraries that do the same work.

There are two ways to measure, and one table, one order of turns and one set of statistics for both:

* A [`Bench`] compares contenders with a peer, as its program's [`Options`] say. It times what this process does itself, or programs. The binaries in `src/bin`
  say what they measure, and how they check each result before its time counts. Begin with `src/bin/image/main.rs`.
* `experiment` makes each run a job of a fresh process, in as many figures as the experiment has: [`caches`], [`ways`] of
  reading a package index, and [`objects`]. What each knows stands in a folder of its own: what a job does (`worker`), what the
  file keeps (`results`), what the tables say (`text`). The contenders are in the binaries, behind features, because they are
  heavy dependencies.

Cold files, the limit of a disk and the [`Machine`] are those of `brisk lab`, so that a figure means the same in both.

# What this crate does not do

* Measure launches of any program: see `brisk lab`.
* Decide: it prints a missed goal, but does not fail. `workshop/lab/case` does.
*/

mod bench;
pub mod caches;
mod experiment;
mod jobs;
mod kept;
pub mod objects;
mod processors;
mod program;
mod report;
mod results;
mod superblock;
mod table;
mod tool;
mod tree;
mod turns;
pub mod ways;

pub use bench::{Bench, Row, Run, Timed};
// The same as in `brisk lab`, so that a figure, and a warm or a cold file, means the same in both.
pub use brisk_lab::{Machine, Ratio, Spread, State, empty_caches, prepare};
pub use experiment::start;
pub use jobs::bytes_on_disk;
pub use kept::{Kept, markdown, write_page};
pub use processors::give_processors;
pub use program::{Options, end};
pub use superblock::Superblock;
pub use tool::Tool;
pub use tree::Tree;
