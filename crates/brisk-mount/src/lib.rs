/*!
Mounts SquashFS images through the kernel, serves them through FUSE, and starts programs from them
in a mount namespace of their own.

The central types are [`Session`], a program that takes the place of the calling process and sees an
image that it shares with the user's other runs, and [`KernelMount`], an image mounted for everybody.
A session stands on [`serve`], which answers the requests of a [`FuseConnection`] and needs neither
root nor a kernel that can read the image; [`sessions`] lists them. [`Launch`] starts a program through
the kernel's mount alone, on a [`LoopDevice`]. [`KernelSupport`] says what the running kernel allows.

[`Trace`] serves an image or plain directories to a program and records what it asks for;
[`SystemTrace`] records by the kernel's events what it reads of the whole system. [`Replay`] has the
kernel read what was recorded, wherever the files are now, and [`BackgroundReplay`] does that while the
calling process becomes a program.

# Where decisions are

Each rule is a function of plain values in a file of its own, with a table of cases as its test:

| when | file |
|---|---|
| a replay goes on, pauses or is given up, and a learned profile is recorded again | `replay/verdict.rs` |
| a server is restarted, or its connection aborted | `session/guardian/supervisor.rs` |
| a session ends, and what keeps it | `session/guardian/lifetime.rs` |
| a run may join, a request to end is refused, and what is lost with a peer | `session/guardian/request.rs` |
| the watchdog is replaced | `session/guardian/watchdog.rs` |
| which hot pack is taken, and whether the launch is learned from | `hot_pack/choice.rs` |
| a hot pack of somebody else is not used | `hot_pack/trust.rs` |
| a fill ends before its pack does | `hot_pack/fill_end.rs` |
| a page was late, evicted or not in the pack | `hot_pack/page_states.rs` |
| a recorded launch is worth learning from, and what it changes | `hot_pack/learning.rs` |
| what a disk is taken to charge | `replay/disk.rs` |
| how much is read ahead at most | `replay/budget.rs` |

# Example

```no_run
use std::time::Duration;

use brisk_mount::{Session, SessionFill, SessionImage};

# fn main() -> Result<(), brisk_mount::Error> {
let session = Session {
    image: SessionImage {
        path: "app.img".into(),
        offset: 0,
        at: Some("/opt/app".into()),
    },
    with: Vec::new(),
    root: false,
    binds: Vec::new(),
    writable: false,
    linger: Duration::from_secs(300),
    fill: Some(SessionFill::default()),
    command: vec!["bin/app".into(), "--version".into()],
};
let never = session.exec(|place| eprintln!("mounted for all on {}", place.display()))?;
# match never {}
# }
```

# Trust

This crate reads only the first 96 bytes of an image that the kernel mounts, and checks each value before
use. The kernel reads the rest: mount images of strangers only where you would expose the kernel's
SquashFS to them. `brisk-image` reads an image that [`serve`] serves, in the process, and the kernel sees
no byte of its format.

# What this crate does not do

* Mount through the kernel without root (`CAP_SYS_ADMIN`).
* Decode what is inside an image: see `brisk-image`.
*/
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod beneath;
mod error;
mod fuse;
mod fusermount;
mod hot_pack;
mod kernel_mount;
mod kernel_support;
mod key;
mod loop_device;
mod memory;
mod mount_table;
mod namespace;
mod open;
mod page_log;
mod private_directory;
mod reclaimer;
mod replay;
mod run;
mod session;
mod squashfs_decoding;
#[expect(
    unsafe_code,
    reason = "ioctls, unshare and fork have no safe wrapper; this file is the only one that may"
)]
mod syscalls;
mod system_state;
mod trace;
mod whole_pages;
mod working_directory;

pub use error::{Error, ErrorKind, Result, with_reasons};
pub use fuse::connection::{FuseConnection, mount_data};
pub use fuse::options::{OnFault, ServeOptions};
pub use fuse::owners::Owners;
pub use fuse::recorder::{Recorder, Recording};
pub use fuse::serve_counters::{OperationTimes, Percentiles, ServeCounters, ServeCounts};
pub use fuse::server::serve;
pub use hot_pack::candidate::PackCandidate;
pub use hot_pack::fill::{Fill, FillRoot};
pub use hot_pack::fill_counts::FillCounts;
pub use hot_pack::learned_packs::{LearnedPack, LearnedPacks};
pub use hot_pack::learning::Learning;
pub use kernel_mount::{Backing, KernelMount, MountOptions, image_is_mounted, unmount};
pub use kernel_support::{DeviceNode, IoUring, KernelSupport, Support, UserNamespaces, read_ahead};
pub use loop_device::{DirectIo, LoopDevice};
pub use memory::MemoryLimit;
pub use mount_table::mount_points;
pub use namespace::enter_private;
pub use page_log::PageEvent;
pub use reclaimer::Reclaimer;
pub use replay::{
    AfterReplay, BackgroundReplay, DiskCharge, GivenUp, MeasuredDisk, NextLaunch, Replay, Replayed,
    warm,
};
pub use run::{Launch, PlainLaunch};
pub use session::{
    Bind, FillPlan, ImageStatus, OperationStatus, Session, SessionFill, SessionImage,
    SessionStatus, SharedMount, end_session, sessions,
};
pub use squashfs_decoding::{Decoders, SquashfsDecoding};
pub use syscalls::ignore_requests_to_end;
pub use system_state::SystemState;
pub use trace::{Readiness, SystemTrace, Trace, TraceSource, Traced, XDisplay};
