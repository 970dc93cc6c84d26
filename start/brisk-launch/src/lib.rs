/*!
Learns what starts of programs read, and has the kernel read it ahead of the next start.

A program starts slowly when it has to wait for the disk. This crate needs no mount and no root:

* **To learn**, [`Observe`] looks at a launch from outside, and [`LearnedPacks`] keeps what it saw.
* **To replay**, [`Replay`] asks the kernel to read what a recorded launch has read, from a plain directory or any mount.
  [`BackgroundReplay`] does so while the calling process becomes the program ([`PlainLaunch`]).
* **To record everything** that a launch reads of the whole system, [`system_trace`] takes events of the kernel. This needs root.

`brisk-serve` stands on it: it serves images to programs, and fills the page cache from hot packs.

# Where to begin

`learn/rules.rs` decides what a start does. `observe/mod.rs` learns, and `replay/mod.rs` replays.

# Where decisions are

Each rule is a function of plain values in a file of its own. Its test is a table of cases.

| question | file |
|---|---|
| Is a start observed? Is what was learned replayed, or learned again? | `learn/rules.rs`, `learn/start_plan.rs` |
| Is a recorded launch of an image worth learning from, and what does it change? | `learn/rules.rs` |
| Does a replay go on, pause or give up? | `replay/verdict.rs` |
| What does a disk charge? | `replay/disk.rs` |
| How much may be read ahead? | `replay/budget.rs` |

# For `brisk-serve`

The modules are public because `brisk-serve` is built of the same parts: [`error`], [`sys`], [`mount_table`] and others. Programs
use what stands at the top of this page.
*/
#![deny(missing_docs)]
#![deny(unsafe_code)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod beneath;
mod chosen_names;
pub mod error;
pub mod file_identity;
mod first_process;
mod interpreter;
pub mod key;
pub mod learn;
pub mod memory;
pub mod mount_table;
mod observe;
pub mod open;
pub mod owner;
pub mod page_log;
pub mod private_directory;
mod process_maps;
pub mod program;
mod replay;
#[expect(
    unsafe_code,
    reason = "what the kernel offers without a safe wrapper; unsafe code is in this directory only"
)]
pub mod sys;
pub mod system_trace;

pub use error::{Advice, Error, ErrorKind, Result, with_reasons};
pub use first_process::leave_first_process;
pub use learn::learned_packs::{
    LEARNED_LIMIT, LearnedLaunch, LearnedPack, LearnedPacks, Learning, ObservedLaunch,
};
pub use learn::record::LearnedOf;
pub use learn::rules::{LAUNCH, LeftAlone};
pub use learn::start_plan::StartPlan;
pub use memory::MemoryLimit;
pub use mount_table::mount_points;
pub use observe::{ObservationEnd, Observe, Observed, gives_rights};
pub use owner::is_of_user_or_root;
pub use page_log::PageEvent;
pub use program::{PlainLaunch, Variable};
pub use replay::{
    AfterReplay, BackgroundReplay, DiskCharge, GivenUp, Look, MeasuredDisk, NextLaunch, Replay,
    ReplayEnd, Replayed, StartReads, Warmed, budget, warm,
};
pub use sys::inherited::become_command;
pub use sys::signal::ignore_requests_to_end;
pub use system_trace::readiness::Readiness;
pub use system_trace::x_display::XDisplay;
