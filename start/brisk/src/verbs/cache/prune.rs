use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use brisk_cache::{Cache, CacheOptions};
use brisk_terminal::age::parse_age;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, warn};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;
use serde::Serialize;

use super::directory_arg::DirectoryArg;
use crate::json;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Entries older than --max-age go first, and then the oldest files until all have at most --limit bytes. Entries that were \
used since they were put there are copied to the newest file as long as there is room. The programs that use the cache go \
on meanwhile. Each of them has its own limit, and may fill the cache again.\n\n\
The index does not become smaller: brisk cache clear makes it small again.")]
pub(super) struct PruneArgs {
    #[command(flatten)]
    cache: DirectoryArg,

    /// The most bytes that the files of the cache may have, at least 512K.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "max_age")]
    limit: Option<u64>,

    /// The greatest age of an entry since it was inserted: 90s, 15m, 12h or 30d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    max_age: Option<Duration>,

    #[command(flatten)]
    group: GroupArg,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
When this ends, the entries are gone from the disk, too. Programs that use the cache go on: what they look at stays as it \
is until they let go of it, and later look-ups find nothing.")]
pub(super) struct ClearArgs {
    #[command(flatten)]
    cache: DirectoryArg,

    #[command(flatten)]
    group: GroupArg,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct GroupArg {
    /// The group whose members share the cache, if it has one.
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
}

/// What `brisk cache prune --json` and `brisk cache clear --json` print.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PruneJson {
    /// Entries that were removed for their age.
    ///
    /// Absent for `clear`.
    #[serde(skip_serializing_if = "Option::is_none")]
    expired: Option<u64>,
    /// Entries that were removed for space.
    ///
    /// Absent for `clear`.
    #[serde(skip_serializing_if = "Option::is_none")]
    evicted: Option<u64>,
    /// Entries that were removed.
    ///
    /// Absent for `prune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    /// Size of all files before.
    bytes_before: u64,
    /// Size of all files after.
    bytes: u64,
}

/// Opens a cache to write. Its directory must be one already.
fn open(directory: &Path, group: &GroupArg, options: CacheOptions) -> anyhow::Result<Cache> {
    super::directory_arg::open(directory)?;
    let options = match group.group {
        Some(gid) => options.group(gid),
        None => options,
    };
    Ok(Cache::open(directory, options)?)
}

pub(super) fn prune(args: &PruneArgs) -> anyhow::Result<Answer> {
    let directory = &args.cache.directory;
    let limit = args.limit.unwrap_or(u64::MAX);
    let options = CacheOptions::new()
        .limit(limit)
        .segment_len((limit / 32).clamp(64 << 10, 64 << 20))
        .max_age(args.max_age);
    let pruned = open(directory, &args.group, options)?.prune()?;
    if args.json {
        json::print(&PruneJson {
            expired: Some(pruned.expired),
            evicted: Some(pruned.evicted),
            entries: None,
            bytes_before: pruned.bytes_before,
            bytes: pruned.bytes_after,
        })?;
    } else {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{}: removed {} for their age and {} for space; {} bytes -> {} bytes",
            shown(directory),
            count(pruned.expired, "entry", "entries"),
            count(pruned.evicted, "entry", "entries"),
            pruned.bytes_before,
            pruned.bytes_after
        )?;
        out.flush()?;
    }
    if pruned.bytes_after > limit {
        warn(&format!(
            "{}: it has {} bytes, allowed are {limit}: the index and what others write meanwhile take them; brisk cache \
             clear makes the index small",
            shown(directory),
            pruned.bytes_after
        ));
    }
    Ok(Answer::Yes)
}

pub(super) fn clear(args: &ClearArgs) -> anyhow::Result<Answer> {
    let directory = &args.cache.directory;
    let cache = open(directory, &args.group, CacheOptions::new())?;
    let before = cache.stat()?;
    cache.clear()?;
    let after = cache.stat()?;
    if args.json {
        json::print(&PruneJson {
            expired: None,
            evicted: None,
            entries: Some(before.entries),
            bytes_before: before.bytes,
            bytes: after.bytes,
        })?;
    } else {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{}: removed {}; {} bytes -> {} bytes",
            shown(directory),
            count(before.entries, "entry", "entries"),
            before.bytes,
            after.bytes
        )?;
        out.flush()?;
    }
    Ok(Answer::Yes)
}
