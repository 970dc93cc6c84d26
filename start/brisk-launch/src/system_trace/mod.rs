/*!
Records what a launch reads of the whole system, by the kernel's own events, and knows when a program is ready.

[`system`] records, [`readiness`] cuts: a window of an [`x_display`], a line of output, a file, an exit, or some seconds.
*/

mod asked_names;
pub mod mapped_files;
pub(crate) mod opened_files;
mod places;
pub mod readiness;
mod restorer;
pub mod system;
mod tracefs;

pub mod x_display;

pub use self::tracefs::Instance;
