/*!
Mounts SquashFS images, starts programs from them, and brings what a launch reads into memory ahead of it.

A program starts slowly when it has to wait for the disk. This crate serves what it asks for:

* **A session** ([`Session`]) starts a program from an image, without root. The image is visible only to that program and
  to later runs of the same user, which share the session. A small server process ([`serve`]) answers the kernel's
  requests through FUSE, and a [`Fill`] stores the pages of a hot pack in the page cache before the program asks.
  [`sessions`] lists what runs.
* **A mount** ([`KernelMount`], [`SharedMount`]) shows an image to all programs, through the kernel or through FUSE.
  [`Launch`] starts one program on a kernel mount of its own.

[`Trace`] records what a program asks for from an image or directories, by serving them. [`SystemTrace`] records what
it reads of the whole system, from events of the kernel. [`KernelSupport`] says what the running kernel allows. What needs no
mount, such as a replay, is in [`brisk_launch`].

# Where to begin

The example below is what `brisk run` does. In the source, begin with `session/mod.rs`; `fuse/` has the server,
`hot_pack/` the fill, and `trace/` the recording.

# Where decisions are

Each rule is a function of plain values in a file of its own. Its test is a table of cases.

| question | file |
|---|---|
| Is a server restarted, or its connection aborted? | `session/guardian/supervisor.rs` |
| Who sees the image of a session or a trace? | `session/world.rs` |
| When does a session end, and what keeps it? | `session/guardian/lifetime.rs` |
| May a run join? Is a request to end refused? What is lost when a peer disconnects? | `session/guardian/request.rs` |
| When is the watchdog replaced? | `session/guardian/watchdog.rs` |
| Which hot pack is used? Does brisk learn from the launch? | `hot_pack/choice.rs` |
| When is a hot pack first compared with its image, because of its owner? | `hot_pack/comparison.rs` |
| When does a fill stop before the end of its pack? | `hot_pack/fill_end.rs` |
| Is a pack filled again? | `hot_pack/cache_sample.rs` |
| Was a page late, evicted or missing in the pack? | `hot_pack/page_states.rs` |

# Example

```no_run
use brisk_serve::{Session, SessionFill, SessionImage};

# fn main() -> Result<(), brisk_serve::Error> {
let mut image = SessionImage::new("app.img");
image.at = Some("/opt/app".into());
let mut session = Session::new(image, vec!["bin/app".into(), "--version".into()]);
session.fill = Some(SessionFill::default());
let never = session.exec(|notice| eprintln!("{notice:?}"))?;
# match never {}
# }
```

# Trust

* **The kernel mounts an image:** this crate reads only its first 96 bytes and checks each value before use. The kernel
  reads the rest. Mount images of strangers only where you would expose the kernel's SquashFS code to them.
* **[`serve`] serves an image:** `brisk-image` reads it in the server process. The kernel sees no byte of its format.

# Features

The README lists them. Without `learning`, [`SessionFill::learning`] is an error, and without `remote`, [`SessionImage::remote`].

# What this crate does not do

* Mount through the kernel without root (`CAP_SYS_ADMIN`).
* Decode what is inside an image: see `brisk-image`.
*/
#![deny(missing_docs)]
#![deny(unsafe_code)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod action;
#[cfg_attr(
    not(feature = "learning"),
    allow(dead_code, reason = "only what records launches needs it")
)]
mod confinement;
mod existing_path;
#[cfg_attr(
    not(feature = "learning"),
    allow(dead_code, reason = "only what records launches needs it")
)]
mod fuse;
mod fusermount;
#[cfg_attr(
    not(feature = "learning"),
    allow(dead_code, reason = "only what records launches needs it")
)]
mod hot_pack;
mod kernel_mount;
mod kernel_support;
mod launch;
mod loop_device;
mod namespace;
mod reclaimer;
#[cfg_attr(not(feature = "remote"), path = "no_remote.rs")]
mod remote;
mod rooted_launch;
mod session;
mod squashfs_decoding;
#[expect(
    unsafe_code,
    reason = "what the kernel offers without a safe wrapper; unsafe code is in this directory only"
)]
mod sys;
mod system_state;
mod trace;
mod whole_pages;
mod working_directory;

/// Doors for fuzz targets and their tests. No product is built with them, and any release may change them.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::fuse::in_memory as fuse;
    pub use crate::session::rehearsal as session;
}

pub use brisk_launch::error::{Advice, Error, ErrorKind, Result, with_reasons};
pub use brisk_launch::program::Variable;
pub use brisk_launch::system_trace::readiness::Readiness;
pub use confinement::Confinement;
pub use existing_path::resolve_path;
pub use fuse::connection::{FuseConnection, mount_data};
pub use fuse::options::{OnFault, ServeOptions};
pub use fuse::owners::Owners;
pub use fuse::recorder::{Recorder, Recording};
pub use fuse::serve_counters::{OperationTimes, Percentiles, ServeCounters, ServeCounts};
pub use fuse::server::serve;
pub use hot_pack::candidate::{PackCandidate, open_arriving_pack};
pub use hot_pack::comparison::ImageOfPack;
pub use hot_pack::fill::{Fill, FillRoot};
pub use hot_pack::fill_counts::FillCounts;
pub use kernel_mount::{Backing, KernelMount, MountOptions, image_is_mounted, unmount};
pub use kernel_support::{DeviceNode, IoUring, KernelSupport, Support, UserNamespaces, read_ahead};
pub use launch::Launch;
pub use loop_device::{DirectIo, LoopDevice};
pub use namespace::enter_private;
pub use reclaimer::Reclaimer;
pub use rooted_launch::RootedLaunch;
pub use session::{
    Bind, FileState, FillPlan, ImageStatus, MissingPlace, Notice, OperationStatus, RemoteImage,
    RemotePack, SeenBy, Session, SessionEnd, SessionFill, SessionImage, SessionStatus, SharedMount,
    end_session, end_sessions, open_arriving, remove_logs, sessions,
};
pub use squashfs_decoding::{Decoders, SquashfsDecoding};
pub use system_state::SystemState;
pub use trace::{SystemTrace, Trace, TraceSource, Traced};
