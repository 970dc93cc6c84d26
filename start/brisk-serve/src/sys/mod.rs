//! What the kernel offers to mounts and their processes and no crate wraps safely, a file for each facility.
//!
//! No file here imports anything of this crate from above. Each descriptor whose driver gives an ioctl its meaning is in a
//! type that has checked its device.

pub(crate) mod arguments;
pub(crate) mod fuse_device;
pub(crate) mod landlock;
pub(crate) mod loop_node;
pub(crate) mod namespaces;
pub(crate) mod refused_call;
pub(crate) mod scheduling;
