//! What the user calls a container image.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use brisk_remote::{Platform, RemoteUrl};

use super::container_image::{Container, sha256_of};
use super::layout::Choice;
use super::{docker_archive, layout, registry};

/// Where a container image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory in the OCI image layout, and which of its images.
    Layout(PathBuf, Choice),
    /// A name in a registry.
    Registry(RemoteUrl),
    /// What `docker save` writes, and the name of one of its images.
    Archive(PathBuf, Option<String>),
}

impl Place {
    /// The place that `word` names with `oci://`, `oci-layout:` or `docker-archive:`. None if it names another thing.
    ///
    /// # Errors
    ///
    /// If it is a URL of no registry, or if the name or the digest behind the path cannot be one.
    pub fn parse(word: &OsStr) -> anyhow::Result<Option<Self>> {
        let bytes = word.as_bytes();
        if RemoteUrl::is_url(word) {
            return Ok(Some(Self::Registry(RemoteUrl::parse(
                &word.to_string_lossy(),
            )?)));
        }
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        if let Some(rest) = bytes.strip_prefix(b"docker-archive:") {
            let (file, tag) = split_name(rest)?;
            return Ok(Some(Self::Archive(path(file), tag)));
        }
        let Some(rest) = bytes.strip_prefix(b"oci-layout:") else {
            return Ok(None);
        };
        let at = rest.windows(8).rposition(|part| part == b"@sha256:");
        Ok(Some(match at {
            Some(at) => {
                let digest = String::from_utf8_lossy(&rest[at + 1..]).into_owned();
                sha256_of(&digest)?;
                Self::Layout(path(&rest[..at]), Choice::Digest(digest))
            }
            None => {
                let (directory, name) = split_name(rest)?;
                let choice = name.map_or(Choice::Only, Choice::Named);
                Self::Layout(path(directory), choice)
            }
        }))
    }

    /// The directory or the archive.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Registry(_) => None,
            Self::Layout(path, _) | Self::Archive(path, _) => Some(path),
        }
    }

    /// The image there, for this platform; none for that of this machine. What a registry sends, which is `most` bytes at most, goes
    /// into `directory`.
    pub fn open(
        &self,
        platform: Option<&Platform>,
        most: u64,
        directory: &Path,
        quiet: bool,
    ) -> anyhow::Result<Container> {
        match self {
            Self::Registry(url) => registry::open(url, platform, most, directory, quiet),
            Self::Layout(directory, choice) => layout::open(directory, choice, platform),
            Self::Archive(file, tag) => docker_archive::open(file, tag.as_deref(), platform),
        }
    }
}

/// The path and the name behind it. Both may have colons, and the name starts behind the first, as with skopeo.
fn split_name(bytes: &[u8]) -> anyhow::Result<(&[u8], Option<String>)> {
    let Some(at) = bytes.iter().position(|byte| *byte == b':') else {
        return Ok((bytes, None));
    };
    let name = std::str::from_utf8(&bytes[at + 1..]);
    let name = name.context("the name of the image is no UTF-8")?;
    Ok((&bytes[..at], Some(name.to_owned())))
}
