/*!
Replaying a profile: asking the kernel for what a launch will ask for, ahead of it.

[`profile_replay`] looks for the files of a profile where they are now ([`profile_files`]), plans what to
ask for by what the disk charges ([`disk`]) and by free memory ([`budget`]), and asks for it in the order
of the profile, by several threads. Another thread looks up the names, so that what the kernel needs to
find files is in memory too. Nothing of a file is changed, and nothing that is in memory is read again.

[`background_replay`] does this in a process of its own for a program that starts meanwhile. That
process watches the program ([`watched_program`]). When it goes on, pauses or gives up is decided in
[`verdict`].

[`disk_measurement`] measures what disks charge, and [`warm`] reads whole files.
*/

mod background_replay;
mod budget;
mod disk;
mod disk_measurement;
mod profile_files;
mod profile_replay;
mod verdict;
mod warm;
mod watched_program;

pub use self::background_replay::{AfterReplay, BackgroundReplay};
pub use self::disk::DiskCharge;
pub use self::disk_measurement::MeasuredDisk;
pub use self::profile_replay::{Replay, Replayed};
pub use self::verdict::{GivenUp, NextLaunch};
pub use self::warm::warm;
