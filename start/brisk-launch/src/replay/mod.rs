/*!
Replays a profile: asks the kernel to read what a launch will need, before the launch asks.

[`profile_replay`] finds the files of a profile where they are now ([`profile_files`]). It plans the reads by what
the disk charges ([`disk`]) and by free memory ([`budget`]), and several threads ask for them in the order of the
profile. Others look up the names ([`look_ups`]), so that the kernel has its directory data in memory too. A replay
changes no file, and reads nothing again that is in memory.

[`background_replay`] does this in a process of its own, while a program starts. The program gives it a [`head_start`]. The
process watches the program ([`watched_program`]), and [`verdict`] decides whether the replay goes on, pauses or gives up.

Before there is such a process, a start by a learned profile asks for a [`sample`] of it, and replays nothing if all of that
is in memory.

[`disk_measurement`] measures what disks charge, and [`warm`] reads whole files.
*/

mod background_replay;
mod budget;
mod disk;
mod disk_measurement;
mod head_start;
mod look_ups;
mod profile_files;
mod profile_replay;
mod sample;
mod verdict;
mod warm;
mod watched_program;

pub use self::background_replay::{AfterReplay, BackgroundReplay};
pub use self::budget::budget;
pub use self::disk::DiskCharge;
pub use self::disk_measurement::MeasuredDisk;
pub use self::profile_replay::{Replay, Replayed};
pub use self::sample::Look;
pub use self::sample::Sample;
pub use self::verdict::{GivenUp, NextLaunch, ReplayEnd, StartReads};
pub use self::warm::{Warmed, warm};
