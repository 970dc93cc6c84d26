/*!
The program `brisk-lab`, which measures how fast programs start and how fast files are read.

`brisk lab` becomes this program. It answers questions on the user's own machine, each with a verb:

| verb | question |
|---|---|
| `launch` | How fast does a program start from its directory, from brisk's images and from other tools' images? |
| `load` | Which way of loading a large file is fastest? |
| `reads` | What do many small reads cost? |
| `remote` | How fast does a program start from an image on a server, over a network? |
| `codecs` | Which codec suits this tree? |
| `report` | Writes a page from kept results. |

# Where to begin

`verbs` has the arguments. `launch` is the largest measurement: an `Experiment` starts an `App` in several `Format`s, in
random order, and keeps every single run in its `Results`. `load`, `reads`, `remote` and `network` have directories of
their own.

Each launch is checked before its time counts. Before the clock of a cold launch starts, the lab proves that the files
that the launch reads are not in the page cache. After a warm launch, it proves that the launch read next to nothing from
the disk.

The lab starts programs as a user would: brisk's formats by the command `brisk` itself, as a process of its own. Another
process (`undo`) restores what the lab changes on the machine, however the lab ends.

Nothing that brisk ships depends on this crate. From the crate `brisk` it takes only what both must do in the same way:
options, messages, pages. What is public here is for `workshop/bench/`, which compares brisk with others: so a figure and
a cold file mean the same in both.

# What this crate does not do

* Start programs: `brisk` does, and must be installed beside `brisk-lab`.
* Compare brisk with other tools, caches, indexes and databases: see `workshop/bench/`.
*/

mod ablation;
mod answers;
mod app;
mod cells;
mod cold;
mod cold_disk;
mod command_output;
mod contender;
mod disk_reads;
mod experiment;
mod file_sizes;
mod files;
mod format;
mod ip;
mod kept;
mod load;
mod machine;
mod network;
mod orphans;
mod probe;
mod program;
mod proof;
mod raw;
mod read_ahead;
mod reads;
mod recipe;
mod reclaim;
mod remote;
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

use brisk_terminal::answer::Answer;

pub use answers::too_few;
pub use cells::{columns, digits_of, escaped_text, interval, markdown_line};
pub use cold::{Chill, empty_caches};
pub use cold_disk::{ColdDisk, Coldness};
pub use files::{ATTEMPTS, directory_on_disk, ensure_room, is_warm, prepare};
pub use load::peers::missing as missing_tool;
pub use load::{LeftOut, State, processors};
pub use machine::Machine;
pub use read_ahead::present as read_ahead;
pub use reclaim::{sentence as stopped_sentence, stop as stop_reclaimers};
pub use statistics::{Ratio, Spread};
pub use undo::{Undo, restore, undoing};

/// The version of brisk, for results.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `brisk-lab` does: measures, as its arguments say.
pub fn run() -> ExitCode {
    brisk_terminal::answer::end(verbs::run())
}

/// What `brisk-reads` does: prints how often each read of a job, its argument, allocates.
pub fn count_allocations(allocations: fn() -> usize) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk_terminal::answer::end(reads::count_allocations(&job, allocations).map(|()| Answer::Yes))
}
