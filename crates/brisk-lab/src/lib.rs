/*!
What `brisk lab` measures, and how.

An `Experiment` starts an `App` in several `Format`s, interleaved in random order, and keeps every
single run in its `Results`. Each launch is checked before its time counts. Before the clock of a cold
launch starts, the files that it reads are proven not to be in the page cache. A warm launch is proven
to have read next to nothing from the disk.

Formats are started as a user would: brisk's by the command `brisk` itself, as a process of its own.
Another process (`undo`) puts back what the lab changes on the machine, however the lab ends.

This is the program `brisk-lab`, which `brisk lab` becomes. Nothing that brisk ships depends on it.
From the crate `brisk` it takes only what makes both speak in one voice: options, messages, pages.
[`Machine`] and the statistics are public, so that a figure means the same in `bench/`.

# What this crate does not do

* Start programs: `brisk` does, and must stand beside `brisk-lab`.
* Compare brisk with other tools that pack and list images: see `bench/`.
*/

mod ablation;
mod answers;
mod app;
mod cold;
mod contender;
mod disk_reads;
mod experiment;
mod file_sizes;
mod format;
mod kept;
mod load;
mod machine;
mod probe;
mod program;
mod proof;
mod read_ahead;
mod reads;
mod recipe;
mod reclaim;
mod report;
mod results;
mod rival;
mod sample;
mod stage;
mod statistics;
mod table;
mod throttle;
mod training;
mod undo;
mod verbs;
mod walk;
mod wrong;
mod x_server;

use std::process::ExitCode;

use brisk::Answer;

pub use machine::Machine;
pub use statistics::{Ratio, Spread};

/// What `brisk-lab` does: measures, as its arguments say.
pub fn run() -> ExitCode {
    brisk::end(verbs::run())
}

/// What `brisk-reads` does: prints how often each read of a job, its argument, allocates.
pub fn count_allocations(allocations: fn() -> usize) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk::end(reads::count_allocations(&job, allocations).map(|()| Answer::Yes))
}
