//! A container image in a registry.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, ensure};
use brisk_remote::{Ask, Download, Job, RemoteUrl};
use brisk_terminal::messages::warn;
use brisk_terminal::names::shown;

use super::container_image::Container;
use super::layout::{self, Choice};
use super::platform::Platform;
use crate::launcher::beside;
use crate::progress::Progress;
use crate::registry_login::login;
use crate::remote_images::FETCH;

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
    let program = beside(FETCH).context("cannot find brisk's own file")?;
    let mut job = Job::start(&program, fetched.path(), None)?;
    let wanted = Download {
        url: url.as_str().to_owned(),
        platform: platform.map_or_else(
            || Platform::of_this_machine().to_string(),
            Platform::to_string,
        ),
        most,
    };
    let progress = Progress::new(None, quiet);
    let tell = progress.callback();
    let done = job.run(&Ask::Pull(wanted), login, |bytes| {
        // It never cancels.
        let _: ControlFlow<()> = tell(bytes);
    });
    drop(progress);
    let done = done.with_context(|| format!("cannot fetch {url}"))?;
    if let Some(realm) = &done.realm {
        warn(&format!(
            "{} takes tokens of {}, which has seen your credentials if you have some",
            shown(registry.host()),
            shown(realm)
        ));
    }
    let container = layout::open(fetched.path(), &Choice::Only, platform)?;
    Ok(Container {
        fetched: Some(fetched),
        ..container
    })
}
