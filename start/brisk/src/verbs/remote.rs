//! `brisk remote`: the images from the network, as far as they are here.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use brisk_image::{Limits, Work};
use brisk_remote::{Artifact, Background, Class, Entry, RemoteCache, RemoteUrl};
use brisk_terminal::answer::Answer;
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::{count, moment, say, span};
use brisk_terminal::names::{printable, shown};
use brisk_terminal::size::parse_size;
use brisk_trust::OpenedRemote;
use clap::Subcommand;
use indicatif::BinaryBytes;
use rustix::fs::statvfs;
use serde::Serialize;

use crate::json;
use crate::progress::Progress;
use crate::verify_args::VerifyArgs;

/// What to do with images from the network.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image that brisk reads from the network arrives in $XDG_CACHE_HOME/brisk/remote, or else in ~/.cache/brisk/remote: first \
what a start needs, and then the rest. A complete image starts without the network.\n\n\
Examples:\n  \
  brisk remote list\n  \
  brisk remote status https://example.org/app.img\n  \
  brisk remote pin https://example.org/app.img\n  \
  brisk remote gc --to 2G")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists the images that are here, whole or in part, the last used first. Exits with 1 if there is none.
    List(ListArgs),
    /// Says of an image how much of it is here, what that has cost, and who vouches for it.
    Status(StatusArgs),
    /// Fetches an image whole, so that it starts without the network.
    Fetch(FetchArgs),
    /// Keeps an image, so that gc never removes it.
    Pin(NamedArgs),
    /// Lets gc remove an image again.
    Unpin(NamedArgs),
    /// Removes images, those first that were unused for the longest time. Those that are pinned or in use stay.
    Gc(GcArgs),
    /// Removes an image. Exits with 1 if it is in use.
    Forget(NamedArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Prints JSON: an object on each line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct NamedArgs {
    /// The image: its URL, or its key, which status shows.
    #[arg(value_name = "URL|KEY")]
    image: String,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    named: NamedArgs,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct FetchArgs {
    /// The URL of the image.
    url: PathBuf,

    /// Fetches only what a start needs first: the tables of the image, its hash tree and its hot pack.
    #[arg(long)]
    hot: bool,

    #[command(flatten)]
    verified: VerifyArgs,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
struct GcArgs {
    /// The most bytes that all images may have on the disk together. [default: a tenth of the disk]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    to: Option<u64>,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let cache = RemoteCache::of_user()?;
    match &args.action {
        Action::List(args) => list(&cache, args.json),
        Action::Status(args) => status(&args.named.find(&cache)?, args.json),
        Action::Fetch(args) => fetch(args),
        Action::Pin(args) => pin(&args.find(&cache)?, true),
        Action::Unpin(args) => pin(&args.find(&cache)?, false),
        Action::Gc(args) => gc(&cache, args),
        Action::Forget(args) => forget(&cache, &args.find(&cache)?),
    }
}

impl NamedArgs {
    fn find(&self, cache: &RemoteCache) -> anyhow::Result<Entry> {
        let found = match RemoteUrl::is_url(OsStr::new(&self.image)) {
            true => cache.known(&RemoteUrl::of_user(&self.image)?)?,
            false => cache.any_entry(&self.image)?,
        };
        found.with_context(|| {
            format!(
                "{}: nothing of such an image is here; brisk remote list shows what is",
                shown(&self.image)
            )
        })
    }
}

/// How many bytes are waited for at once.
const PIECE: u64 = 4 << 20;

fn fetch(args: &FetchArgs) -> anyhow::Result<Answer> {
    if !RemoteUrl::is_url(args.url.as_os_str()) {
        bail!(
            "{} is no URL, such as https://example.org/app.img",
            shown(&args.url)
        );
    }
    fetch_image(&args.verified, &args.url, args.hot, args.quiet).map(|_| Answer::Yes)
}

/// Fetches the image at `url` whole, or what a start needs first. An image that was fetched whole is right.
pub fn fetch_image(
    verified: &VerifyArgs,
    url: &Path,
    hot: bool,
    quiet: bool,
) -> anyhow::Result<OpenedRemote> {
    let background = match hot {
        true => Background::Never,
        false => Background::Full,
    };
    let opened = verified.open_remote(url, None, Limits::new(), Some(background))?;
    let len = opened.entry.about.len;
    let wanted = match hot {
        true => {
            let image = &opened.image;
            let start = image.offset().saturating_add(image.tables_start());
            let end = match image.hot_pack_range()? {
                Some(pack) => image.offset().saturating_add(pack.end),
                None => image.offset().saturating_add(image.bytes_used()),
            };
            // The rest, behind the hot pack, is the hash tree.
            let tree = if image.verified().is_some() {
                end.min(len)..len
            } else {
                len..len
            };
            [start..end.min(len), tree]
        }
        false => [0..len, len..len],
    };
    let total = wanted.iter().map(|bytes| bytes.end - bytes.start).sum();
    let progress = Progress::new(Some(total), quiet);
    let tell = progress.callback();
    for Range { start, end } in wanted {
        let mut at = start;
        while at < end {
            let piece = at..end.min(at.saturating_add(PIECE));
            opened
                .source
                .wait_for(piece.clone(), Class::Pack)
                .with_context(|| format!("cannot fetch {}", shown(url)))?;
            // It never cancels.
            let _: ControlFlow<()> = tell(piece.end - piece.start);
            at = piece.end;
        }
    }
    drop(progress);
    if hot {
        let pack = (verified.remote).hot(None, Some(&opened), || verified.keys())?;
        if let Some(pack) = pack {
            let fetched = pack.fetch();
            fetched.with_context(|| format!("cannot fetch the hot pack of {}", shown(url)))?;
        }
        return Ok(opened);
    }
    let whole = opened.source.wait_for_whole();
    whole.with_context(|| format!("cannot fetch {}", shown(url)))?;
    let entry = RemoteCache::of_user()?.entry(&opened.entry.key)?;
    let digest = entry.and_then(|entry| entry.about.sha256);
    if let (Some(verified), None) = (opened.image.verified(), digest) {
        // A digest that nobody has said, or that differs, does not find a wrong block.
        verified.check_all(&Work::new())?;
    }
    Ok(opened)
}

/// Who vouches for an image, as a word and for people.
fn vouched(entry: &Entry) -> (&'static str, &'static str) {
    let about = &entry.about;
    if entry.is_damaged {
        return ("nothing", "nobody; brisk remote forget removes it");
    }
    let url = RemoteUrl::parse(&about.url).ok();
    // What is not known is not vouched for.
    let is_exposed = url.as_ref().is_none_or(RemoteUrl::is_exposed);
    if about.root.is_some() && about.is_vouched && !entry.is_compared() {
        let text = "nobody yet: no start has compared it with the root hash that was named";
        ("nothing", text)
    } else if about.root.is_some() && about.is_vouched {
        let text = "a root hash that a URL named or a trusted key has signed";
        ("root_hash", text)
    } else if is_exposed {
        ("nothing", "nobody: it came by plain http")
    } else if about.root.is_some() {
        ("server_hash_tree", "the server, by its hash tree")
    } else if url.is_some_and(|url| !url.is_near() || about.url.starts_with("https:")) {
        ("server", "the server, by https")
    } else {
        ("this_machine", "a server on this machine")
    }
}

/// What it is called in a registry that has several images under its name.
fn variant(entry: &Entry) -> anyhow::Result<Option<String>> {
    let artifact = entry
        .described()?
        .manifest
        .map(|text| Artifact::parse(&text));
    Ok(artifact.and_then(|artifact| Some(artifact.ok()?.layer.variant()?.to_owned())))
}

/// The name of the image, as its URL has it.
fn name(entry: &Entry) -> String {
    match RemoteUrl::parse(&entry.about.url) {
        Ok(url) => url.file_name().to_owned(),
        Err(_) => entry.about.url.clone(),
    }
}

/// What the other verbs find it by: its URL, with its root hash if the URL alone leads elsewhere, or else its key.
fn listed(cache: &RemoteCache, entry: &Entry) -> String {
    let url = &entry.about.url;
    let pinned = |root| format!("{url}#sha256={root}");
    let names = [Some(url.clone()), entry.about.root.as_ref().map(pinned)];
    let leads_here = |name: &String| {
        let url = RemoteUrl::parse(name).ok();
        let found = url.and_then(|url| cache.known(&url).ok()?);
        found.is_some_and(|found| found.key == entry.key)
    };
    let name = names.into_iter().flatten().find(leads_here);
    name.unwrap_or_else(|| entry.key.clone())
}

/// Its URL, or its key if that is all that is known of it.
fn said(entry: &Entry) -> &str {
    match entry.is_damaged {
        true => &entry.key,
        false => &entry.about.url,
    }
}

/// When it was last opened.
fn used(entry: &Entry) -> SystemTime {
    let used = UNIX_EPOCH.checked_add(Duration::from_secs(entry.about.used));
    used.unwrap_or(UNIX_EPOCH)
}

fn state(entry: &Entry, present: u64) -> String {
    match entry.about.is_complete {
        _ if entry.is_damaged => "damaged".to_owned(),
        true => "complete".to_owned(),
        // Rounded down: what lacks a page is not all.
        false => format!(
            "{} %",
            u128::from(present) * 100 / u128::from(entry.about.len.max(1))
        ),
    }
}

fn list(cache: &RemoteCache, json: bool) -> anyhow::Result<Answer> {
    let entries = cache.entries()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let names: Vec<_> = entries.iter().map(|entry| listed(cache, entry)).collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    for (entry, name) in entries.iter().zip(&names) {
        if json {
            serde_json::to_writer(&mut out, &EntryJson::of(entry)?)?;
            writeln!(out)?;
            continue;
        }
        let pinned = if entry.is_pinned() { ", pinned" } else { "" };
        let line = format!(
            "{name:<width$}  {:>8}  {:>10}  used {} ago{pinned}, vouched for by {}",
            state(entry, entry.present()?),
            BinaryBytes(entry.about.len).to_string(),
            // A clock that was put back can make it a moment to come.
            span(used(entry).elapsed().unwrap_or_default()),
            vouched(entry).1
        );
        writeln!(out, "{}", printable(&line))?;
    }
    out.flush()?;
    if entries.is_empty() {
        say("no image from the network is here; brisk run URL reads one");
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

fn status(entry: &Entry, json: bool) -> anyhow::Result<Answer> {
    if json {
        json::print(&EntryJson::of(entry)?)?;
        return Ok(Answer::Yes);
    }
    let (about, counts, present) = (&entry.about, entry.about.counts, entry.present()?);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut fields = Fields::new(&mut out, 12);
    fields.line(said(entry))?;
    match about.is_complete {
        _ if entry.is_damaged => {
            fields.add("state", "damaged, so a start fetches it anew")?;
        }
        true => fields.add(
            "state",
            format_args!("complete: all {} are here", BinaryBytes(about.len)),
        )?,
        false => fields.add(
            "state",
            format_args!(
                "lazy: {} of {} are here ({})",
                BinaryBytes(present),
                BinaryBytes(about.len),
                state(entry, present)
            ),
        )?,
    }
    if let Some(fault) = &about.fault {
        fields.add("fault", fault)?;
    }
    fields.add(
        "kept",
        format_args!("{} on the disk", BinaryBytes(entry.stored())),
    )?;
    fields.add("vouched for", format_args!("by {}", vouched(entry).1))?;
    for (what, text) in [
        ("root hash", &about.root),
        ("sha256", &about.sha256),
        ("validator", &about.validator),
    ] {
        if let Some(text) = text {
            fields.add(what, text)?;
        }
    }
    if let Some(variant) = variant(entry)? {
        fields.add("variant", shown(&variant))?;
    }
    let requests = count(counts.requests, "request", "requests");
    fields.add(
        "network",
        format_args!("{} in {requests}", BinaryBytes(counts.bytes)),
    )?;
    if let Some(speed) = speed(counts.bytes, counts.busy_ms) {
        fields.add(
            "speed",
            format_args!("{}/s, while requests were under way", BinaryBytes(speed)),
        )?;
    }
    fields.add(
        "waits",
        format_args!(
            "programs waited {} for the network, {} together",
            count(counts.waits, "time", "times"),
            seconds(counts.waited_ms)
        ),
    )?;
    fields.add("pinned", if entry.is_pinned() { "yes" } else { "no" })?;
    fields.add("used", moment(used(entry))?)?;
    if !about.boot.is_empty() {
        fields.add("written", format_args!("last in the boot {}", about.boot))?;
    }
    fields.add("key", &entry.key)?;
    out.flush()?;
    Ok(Answer::Yes)
}

/// Bytes in a second. None if no request was under way.
fn speed(bytes: u64, busy_ms: u64) -> Option<u64> {
    let speed = (u128::from(bytes) * 1000).checked_div(u128::from(busy_ms))?;
    Some(u64::try_from(speed).unwrap_or(u64::MAX))
}

/// Milliseconds as seconds with one digit behind the point.
fn seconds(ms: u64) -> String {
    format!("{:.1} s", Duration::from_millis(ms).as_secs_f64())
}

fn pin(entry: &Entry, is_pinned: bool) -> anyhow::Result<Answer> {
    entry.set_pinned(is_pinned)?;
    let what = match is_pinned {
        true => "stays until it is unpinned or forgotten",
        false => "may be removed by gc again",
    };
    say(&format!("{}: {what}", shown(said(entry))));
    Ok(Answer::Yes)
}

fn gc(cache: &RemoteCache, args: &GcArgs) -> anyhow::Result<Answer> {
    let limit = match args.to {
        Some(limit) => limit,
        None => tenth_of_disk(cache)?,
    };
    // What they take on the disk is known only before they go.
    let before: Vec<_> = cache.entries()?.iter().map(RemovedJson::of).collect();
    let removed = cache.shrink(limit)?;
    let is_removed = |entry: &RemovedJson| removed.iter().any(|gone| gone.key == entry.key);
    let (removed, left): (Vec<_>, Vec<_>) = before.into_iter().partition(is_removed);
    let left = left.iter().map(|entry| entry.stored_bytes).sum();
    if args.json {
        json::print(&GcJson {
            removed,
            stored_bytes: left,
            limit_bytes: limit,
        })?;
        return Ok(Answer::Yes);
    }
    let mut out = io::stdout().lock();
    for RemovedJson {
        url, stored_bytes, ..
    } in &removed
    {
        writeln!(
            out,
            "removed {} ({})",
            shown(url),
            BinaryBytes(*stored_bytes)
        )?;
    }
    let why = match left > limit {
        true => ", as the others are pinned or in use",
        false => "",
    };
    say(&format!(
        "images from the network have {} on the disk, of {}{why}",
        BinaryBytes(left),
        BinaryBytes(limit)
    ));
    Ok(Answer::Yes)
}

/// A tenth of the disk that the cache lies on.
fn tenth_of_disk(cache: &RemoteCache) -> anyhow::Result<u64> {
    let found = statvfs(cache.path());
    let found =
        found.with_context(|| format!("cannot examine the disk of {}", shown(cache.path())))?;
    Ok(found.f_blocks.saturating_mul(found.f_frsize) / 10)
}

fn forget(cache: &RemoteCache, entry: &Entry) -> anyhow::Result<Answer> {
    let url = shown(said(entry));
    match cache.remove(entry)? {
        true => {
            say(&format!("{url}: forgotten"));
            Ok(Answer::Yes)
        }
        false => {
            say(&format!(
                "{url}: is in use, and stays; brisk stat shows by whom, and brisk umount ends that"
            ));
            Ok(Answer::No)
        }
    }
}

/// What `brisk remote list --json` prints on each line, and `brisk remote status --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EntryJson<'a> {
    /// Name of its directory in `$XDG_CACHE_HOME/brisk/remote/images`.
    key: &'a str,
    /// Where it comes from.
    ///
    /// Empty if its files are damaged.
    url: &'a str,
    /// The last part of the path of the URL.
    name: String,
    /// Whether all of it is here, with the digest that it should have.
    is_complete: bool,
    /// Whether `gc` never removes it.
    is_pinned: bool,
    /// Who vouches for it: `root_hash`, a root hash that a URL named or a trusted key has signed; `server_hash_tree`, the server,
    /// by the hash tree of the image; `server`, the server, by https; `this_machine`, a server on this machine; `nothing`, it came
    /// by plain http, or no start has compared it with the root hash that was named.
    vouched_by: &'static str,
    /// What it is called among several images under one name of a registry.
    ///
    /// Null if it is the only one there.
    variant: Option<String>,
    /// Root hash: 64 hexadecimal digits.
    ///
    /// Null without a hash tree.
    root_hash: Option<&'a str>,
    /// SHA-256 of the whole image, as its publisher says it.
    ///
    /// Null if nobody says it.
    sha256: Option<&'a str>,
    /// The `ETag` or `Last-Modified` of the server.
    ///
    /// Null if it has sent none.
    validator: Option<&'a str>,
    /// Size of the image.
    file_bytes: u64,
    /// Size of what is here of it.
    present_bytes: u64,
    /// Size that it has on the disk.
    stored_bytes: u64,
    /// When it was last opened.
    last_used: u64,
    /// The boot of the system in which bytes were last written, as `/proc/sys/kernel/random/boot_id` has it.
    boot: &'a str,
    /// Size of what came from the network.
    network_bytes: u64,
    /// Requests that were sent.
    requests: u64,
    /// How often a program waited for the network.
    waits: u64,
    /// How long programs waited, together.
    waited_seconds: f64,
    /// How long requests were under way. Those at the same time count once.
    busy_seconds: f64,
}

/// What `brisk remote gc --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GcJson {
    /// The images that were removed.
    removed: Vec<RemovedJson>,
    /// Size that the others have on the disk.
    stored_bytes: u64,
    /// Size that they may have.
    limit_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RemovedJson {
    /// Name of its directory, which is gone.
    key: String,
    /// Where it came from.
    url: String,
    /// Size that it had on the disk.
    stored_bytes: u64,
}

impl RemovedJson {
    fn of(entry: &Entry) -> Self {
        Self {
            key: entry.key.clone(),
            url: said(entry).to_owned(),
            stored_bytes: entry.stored(),
        }
    }
}

impl<'a> EntryJson<'a> {
    fn of(entry: &'a Entry) -> anyhow::Result<Self> {
        let (about, counts) = (&entry.about, entry.about.counts);
        let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
        Ok(Self {
            key: &entry.key,
            url: &about.url,
            name: name(entry),
            is_complete: about.is_complete,
            is_pinned: entry.is_pinned(),
            vouched_by: vouched(entry).0,
            variant: variant(entry)?,
            root_hash: about.root.as_deref(),
            sha256: about.sha256.as_deref(),
            validator: about.validator.as_deref(),
            file_bytes: about.len,
            present_bytes: entry.present()?,
            stored_bytes: entry.stored(),
            last_used: about.used,
            boot: &about.boot,
            network_bytes: counts.bytes,
            requests: counts.requests,
            waits: counts.waits,
            waited_seconds: seconds(counts.waited_ms),
            busy_seconds: seconds(counts.busy_ms),
        })
    }
}
