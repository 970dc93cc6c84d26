/*!
What `brisk lab` measures, and how.

An [`Experiment`] starts an [`App`] in several [`Format`]s, interleaved in random order, and keeps
every single run in its [`Results`](results::Results). Each launch is checked before its time counts.
Before the clock of a cold one starts, the files it reads are proven not to be in the page cache; a
warm one is proven to have read nothing from the disk, or next to nothing.

Formats are started as a user would: brisk's by the command itself, as a process of its own. What
the lab changes on the machine is put back by another process ([`undo`]), whatever becomes of it.
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
pub mod kept;
pub mod load;
mod machine;
mod probe;
mod program;
mod proof;
mod read_ahead;
pub mod reads;
mod recipe;
mod reclaim;
pub mod report;
mod results;
mod rival;
mod sample;
mod stage;
mod statistics;
pub mod table;
mod throttle;
mod training;
pub mod undo;
mod walk;
mod wrong;
mod x_server;

pub use app::{App, Home, Words, ready};
pub use cold::Chill;
pub use experiment::Experiment;
pub use format::{Format, Formats};
pub use recipe::Recipe;
pub use rival::Rival;
