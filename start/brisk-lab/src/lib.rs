/*!
The program `brisk-lab`, which measures how fast programs start and how fast files are read.

`brisk lab` becomes this program. It answers questions on the user's own machine, each with a verb:

| verb | question |
|---|---|
| `launch` | How fast does a program start from its directory, from brisk's images and from other tools' images? |
| `load` | Which way of loading a large file is fastest? |
| `reads` | What do many small reads cost? |
| `cache` | What does a cache on disk cost? |
| `index` | What does reading a package index from a cache cost? |
| `objects` | What do reading and writing typed records cost? |
| `codecs` | Which codec suits this tree? |
| `report` | Writes a page from kept results. |

# Where to begin

`verbs` has the arguments. `launch` is the largest measurement: an `Experiment` starts an `App` in several `Format`s, in
random order, and keeps every single run in its `Results`. `load` and `reads` have directories of their own.

Each launch is checked before its time counts. Before the clock of a cold launch starts, the lab proves that the files
that the launch reads are not in the page cache. After a warm launch, it proves that the launch read next to nothing from
the disk.

The lab starts programs as a user would: brisk's formats by the command `brisk` itself, as a process of its own. Another
process (`undo`) restores what the lab changes on the machine, however the lab ends.

Nothing that brisk ships depends on this crate. From the crate `brisk` it takes only what both must do in the same way:
options, messages, pages. [`Machine`] and the statistics are public, so that a figure means the same in `workshop/bench/`.

# What this crate does not do

* Start programs: `brisk` does, and must be installed beside `brisk-lab`.
* Compare brisk with other tools that pack and list images: see `workshop/bench/`.
*/

mod ablation;
mod answers;
mod app;
mod cache;
mod cold;
mod contender;
mod disk_reads;
mod experiment;
mod file_sizes;
mod format;
mod index;
mod jobs;
mod kept;
mod load;
mod machine;
mod objects;
mod orphans;
mod probe;
mod program;
mod proof;
mod raw;
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
mod titled_table;
mod training;
mod undo;
mod verbs;
mod walk;
mod wrong;
mod x_server;

use std::process::ExitCode;

use brisk_terminal::answer::Answer;

pub use cache::{
    Hex as CacheHex, Key as CacheKey, Open as OpenCache, Opening as CacheOpening,
    Purpose as CachePurpose, Store as CacheStore, StoreKind as CacheKind,
};
pub use index::{
    Chosen as IndexChosen, Package as IndexPackage, Page as IndexPage,
    PageLeftOut as IndexPageLeftOut, Pages as IndexPages, Prepare as PrepareIndexWay,
    Question as IndexQuestion, Way as IndexWay, WayKind as IndexWayKind,
};
pub use machine::Machine;
pub use objects::{Object, ObjectKind, ObjectStore, OpenObjects, Safety, Sums};
pub use statistics::{Ratio, Spread};

/// What `brisk-lab` does: measures, as its arguments say.
pub fn run() -> ExitCode {
    brisk_terminal::answer::end(verbs::run())
}

/// What `brisk-reads` does: prints how often each read of a job, its argument, allocates.
pub fn count_allocations(allocations: fn() -> usize) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk_terminal::answer::end(reads::count_allocations(&job, allocations).map(|()| Answer::Yes))
}

/// What a program of `brisk lab cache --rivals` does: a job, its argument, with these stores besides the lab's own.
/// `allocations` counts those of Rust in this process.
pub fn serve_cache(rivals: &[CacheKind], allocations: Option<fn() -> usize>) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk_terminal::answer::end(cache::serve(rivals, &job, allocations).map(|()| Answer::Yes))
}

/// What a program of `brisk lab index --ways` does: a job, its argument, by one of these ways. `allocations` counts those of
/// Rust in this process.
pub fn serve_index(ways: &[IndexWayKind], allocations: Option<fn() -> usize>) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk_terminal::answer::end(index::serve(ways, &job, allocations).map(|()| Answer::Yes))
}

/// What a program of `brisk lab objects --program` does: a job, its argument, with one of these stores.
pub fn serve_objects(kinds: &[ObjectKind]) -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    brisk_terminal::answer::end(objects::serve(kinds, &job).map(|()| Answer::Yes))
}
