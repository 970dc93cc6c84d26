//! What a registry is asked for by a process that ends with it.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context;
use brisk_remote::{Ask, Done, Job, RegistryName};
use brisk_terminal::messages::warn;
use brisk_trust::{login, said_of_realm};

use crate::launcher::beside;
use crate::progress::Progress;
use crate::remote_images::FETCH;

/// Asks a registry. What is sent is in `input`, and what comes goes into `directory`. `bytes`: how many it will be.
pub fn run(
    ask: &Ask,
    directory: &Path,
    input: Option<File>,
    bytes: Option<u64>,
    quiet: bool,
) -> anyhow::Result<Done> {
    let program = beside(FETCH).context("cannot find brisk's own file")?;
    let mut job = Job::start(&program, directory, input)?;
    let progress = Progress::new(bytes, quiet);
    let tell = progress.callback();
    let done = job.run(ask, login, |bytes| {
        // It never cancels.
        let _: ControlFlow<()> = tell(bytes);
    });
    drop(progress);
    Ok(done?)
}

/// Says which other host gives tokens for a registry.
pub fn warn_of_realm(name: &RegistryName, realm: &str) {
    warn(&said_of_realm(name, realm));
}
