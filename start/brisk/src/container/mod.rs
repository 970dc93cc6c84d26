//! Container images, as `brisk pack` takes them: from a registry, from a directory in the OCI image layout, or
//! from an archive of Docker.
//!
//! Nothing that such a directory or archive says is believed: names of blobs are digests and nothing else, and what is read is
//! bounded and checked against its digest.

mod container_image;
mod docker_archive;
mod layout;
mod place;
mod platform;
mod registry;
mod start;

pub use container_image::Container;
pub use place::Place;
