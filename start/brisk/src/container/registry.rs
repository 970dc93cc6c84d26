//! A container image in a registry.

use std::path::Path;

use anyhow::{Context, ensure};
use brisk_remote::{Ask, Download, Platform, RemoteUrl};
use brisk_terminal::names::shown;

use super::container_image::Container;
use super::layout::{self, Choice};
use crate::registry_job;

/// The image at `url`. Its layers, of `most` bytes at most, come into a directory in `directory`.
pub fn open(
    url: &RemoteUrl,
    platform: Option<&Platform>,
    most: u64,
    directory: &Path,
    quiet: bool,
) -> anyhow::Result<Container> {
    let registry = url
        .registry()
        .with_context(|| format!("{url} is in no registry, such as oci://HOST/NAME:TAG"))?;
    ensure!(
        registry.digest().is_some() || !url.is_exposed(),
        "{url}: everyone between here and the registry can change what plain HTTP brings; name its digest, {}",
        registry.at_digest("sha256:...")
    );
    let fetched = tempfile::Builder::new()
        .prefix(".brisk-")
        .tempdir_in(directory)
        .with_context(|| format!("cannot write into {}", shown(directory)))?;
    let platform_asked = platform.cloned().unwrap_or_else(Platform::here);
    let wanted = Ask::Pull(Download {
        url: url.as_str().to_owned(),
        platform: platform_asked.to_string(),
        most,
    });
    let done = registry_job::run(&wanted, fetched.path(), None, None, quiet)
        .with_context(|| format!("cannot fetch {url}"))?;
    if let Some(realm) = &done.realm {
        registry_job::warn_of_realm(&registry, realm);
    }
    let container = layout::open(fetched.path(), &Choice::Only, platform)?;
    Ok(Container {
        fetched: Some(fetched),
        ..container
    })
}
