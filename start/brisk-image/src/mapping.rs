//! Mapped files.

pub(crate) use brisk_io::ImmutableMapping;
