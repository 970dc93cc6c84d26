//! What the tests of registries have together: an image, a registry in this process, and programs that pull.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod image;
pub mod programs;
pub mod registry;

pub use image::Image;
pub use programs::{Registry, Skopeo, containerd_fetches, podman_pulls};
pub use registry::{digest, registry};
