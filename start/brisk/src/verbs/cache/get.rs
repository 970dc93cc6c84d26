use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::directory_arg::DirectoryArg;
use super::explain::reason;
use super::key::{KeyArg, json_key, shown_key};
use crate::json;
use brisk_cache::{Inspection, Outcome};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use serde::Serialize;

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

    /// Prints JSON, with the value in it. All of the value is in memory meanwhile.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let inspection = super::directory_arg::open(&args.cache.directory)?;
    let key = args.key.bytes()?;
    if args.json {
        return print_json(&inspection, &key);
    }
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

fn print_json(inspection: &Inspection, key: &[u8]) -> anyhow::Result<Answer> {
    let mut value = Vec::new();
    let explanation = inspection.write_value(key, &mut value)?;
    let is_found = explanation.outcome == Outcome::Found;
    // As keys are.
    let (text, value_hex) = json_key(&value);
    let (key, key_hex) = json_key(key);
    json::print(&GetJson {
        key,
        key_hex,
        is_found,
        outcome: explanation.outcome.name(),
        bytes: is_found.then_some(value.len()),
        value: is_found.then_some(text),
        value_hex,
    })?;
    Ok(match is_found {
        true => Answer::Yes,
        false => Answer::No,
    })
}

/// What `brisk cache get --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GetJson<'a> {
    /// The key.
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Whether the value is found, and all of it is right.
    is_found: bool,
    /// As in `cache explain`.
    outcome: &'static str,
    /// Size of the value.
    ///
    /// Null if it is not found.
    bytes: Option<usize>,
    /// The value; each piece that is no UTF-8 becomes U+FFFD.
    ///
    /// Null if it is not found.
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}
