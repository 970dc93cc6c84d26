/*!
Sessions: an image that a user's programs share, served by processes of its own.

The first run of an image makes the session: namespaces, a FUSE mount in them, and three processes without a
terminal.

* The *guardian* ([`guardian`]) holds the connection to the kernel, and lets later runs join.
* The *server* ([`server`]) answers the kernel. If it dies, the guardian starts another one on the same connection.
* The *watchdog* ([`guardian::watchdog`]) waits until guardian and server are both dead. If something still keeps the
  connection open then, it aborts the connection.

If a session learns what its launch asks for, a *learner* ([`recorded_launch`]) also runs for a moment.

Later runs join ([`join`]): they enter the namespaces and execute their program. They find everything that the kernel
has cached. The process that the user started becomes the program, in the first run too. So no process of a session is
an ancestor of a program, and signals, job control, descriptors and the exit status are the program's own.

A session ends some time after its last program. [`members`] says which processes count.
*/

mod bound_tree;
mod brief_mount;
mod control;
mod dead_mounts;
mod dev_fuse;
mod directory;
mod enter;
mod entered;
mod guardian;
mod image_source;
mod join;
mod lasting_layer;
mod layout;
pub(crate) mod log;
mod members;
pub(crate) mod message;
mod missing_place;
mod mount_handle;
mod open_image;
mod overlay;
mod own_limits;
mod process_end;
mod process_title;
mod program;
#[cfg_attr(not(feature = "learning"), path = "no_recorded_launch.rs")]
mod recorded_launch;
mod root;
mod server;
mod session_fill;
mod set_up;
mod shared;
mod shared_mount_point;
mod starter;
mod surroundings;
mod world;

#[cfg(feature = "fuzzing")]
pub use guardian::rehearsal;

pub(crate) use bound_tree::BoundTree;
pub(crate) use brief_mount::{BriefMount, BriefMountEnd};
pub use control::{
    FileState, ImageStatus, OperationStatus, SessionEnd, SessionStatus, end_session, end_sessions,
    remove_logs, sessions,
};
pub(crate) use dev_fuse::mount_channel;
pub use enter::Notice;
pub(crate) use layout::Layout;
pub use missing_place::MissingPlace;
pub(crate) use missing_place::make as make_places;
pub(crate) use open_image::{OpenImage, mount_directory, no_place, places_overlap};
pub use open_image::{RemoteImage, RemotePack, SessionImage, open_arriving};
pub use program::{Bind, SeenBy, Session, SessionFill};
pub use session_fill::FillPlan;
pub use shared::SharedMount;
pub(crate) use shared::is_of_way;
pub(crate) use world::{Needs, World, world};
