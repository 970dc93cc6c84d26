use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::DirectoryArg;
use super::explain::reason;
use super::key::{KeyArg, shown_key};
use crate::answer::Answer;
use crate::messages::say;
use crate::names::shown;
use brisk_cache::Outcome;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
brisk compares all of the value with its checks before it writes the first byte, and each piece again when it writes \
it.\n\n\
Exits with 0 if the value was written, with 1 if the cache does not have it or if it is damaged, and with 2 after a \
failure.")]
pub(super) struct Args {
    #[command(flatten)]
    cache: DirectoryArg,

    #[command(flatten)]
    key: KeyArg,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let inspection = super::open(&args.cache.directory)?;
    let key = args.key.bytes()?;
    // Values can be large. `Stdout` would search them for line ends, for nothing.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let explanation = inspection.write_value(&key, &mut out)?;
    if explanation.outcome == Outcome::Found {
        return Ok(Answer::Yes);
    }
    say(&format!(
        "brisk: {}: {} is not found: {}",
        shown(&args.cache.directory),
        shown_key(&key),
        reason(&explanation)
    ));
    Ok(Answer::No)
}
