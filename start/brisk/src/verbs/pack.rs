//! `brisk pack`: makes an image of a directory, a tar archive or a container image.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use brisk_image::codec::Bcj;
use brisk_image::hot_pack::HotSummary;
use brisk_image::rules::{ModeChange, PlanRules, Times};
use brisk_image::summary::Summary;
use brisk_image::{Codec, Compression, ErrorKind, Image, ImageWriter, Tree, TreeRules};
use brisk_remote::Platform;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::shell_word::shell_word;
use brisk_terminal::size::{parse_size, parse_size_u32};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::BinaryBytes;
use serde::Serialize;

use super::profile::percent;
use super::verity::report_behind;
use crate::container::{Container, Place};
use crate::entry_args::EntryArgs;
use crate::entry_faults::faults_of;
use crate::file_kind::FileKind;
use crate::hot_pack_args::{self, BehindArgs};
use crate::kernel_feature::{self, KernelFeature, KernelVersion};
use crate::output_file::{check_no_input, check_output, check_outside};
use crate::progress::Progress;
use crate::recorded_place::fault_of_place;
use crate::stale_pack::{older_beside, remove_stale_pack};
use crate::summary_args::SummaryArgs;

/// What to pack, and how.
// The groups come last: the options after one would stand under its heading.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The same tree, options and version of brisk give the same image.\n\n\
With --entry, brisk run app.img starts that program, in the root directory, the directory and with the variables that \
were recorded. An entry says nothing that a user could not say to brisk run and env, and it shows no other files and \
lets nothing be written.\n\n\
Examples:\n  \
  brisk pack app -o app.img\n  \
  brisk pack app -o app.img --owner 0:0 --chown '/home/=1000:1000' --chmod '*.sh=a+x'\n  \
  brisk pack app -o app.img --env LANG=C --entry bin/app --quiet\n  \
  brisk pack app -o app.img --codec lz4 --level 12 --exclude '*.pyc' --exclude '.git/'\n  \
  zstd -dc app.tar.zst | brisk pack - -o app.img\n  \
  brisk pack oci://docker.io/library/python:3.13 -o python.img\n  \
  brisk pack oci-layout:dir:1.2 -o app.img\n  \
  brisk pack docker-archive:app.tar -o app.img --platform linux/arm64")]
pub struct Args {
    /// The directory to pack, or - for a tar archive on standard input. Or a container image: oci://HOST/NAME[:TAG|@DIGEST] in a
    /// registry, oci-layout:DIR[:NAME|@DIGEST], or docker-archive:FILE[:TAG].
    tree: PathBuf,

    /// The image to write. It replaces a file of this name when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,

    /// Sets the time of every file and of the image. Without it, SOURCE_DATE_EPOCH from the environment is the time
    /// of the image, and no file is later.
    #[arg(long, value_name = "SECONDS")]
    time: Option<u32>,

    /// Threads that read and compress; the image is the same with any number. [default: one for
    /// each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Warns if this release of Linux cannot read the image: 4.9, for example, or the output of uname -r.
    #[arg(long, value_name = "KERNEL")]
    target: Option<KernelVersion>,

    #[command(flatten)]
    summary: SummaryArgs,

    #[command(flatten)]
    codec: CodecArgs,

    #[command(flatten)]
    layout: LayoutArgs,

    #[command(flatten)]
    hot: BehindArgs,

    #[command(flatten)]
    entry: EntryArgs,

    #[command(flatten)]
    container: ContainerArgs,

    #[command(flatten)]
    rules: RuleArgs,
}

/// Which container image, and how much of it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Container images")]
struct ContainerArgs {
    /// Takes the image for this platform: linux/arm64, for example, or linux/arm/v6. [default: that of this machine]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,

    /// The most that the layers may unpack to, all together. [default: 64G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
}

/// Bytes that the layers of a container image unpack to, at most, unless the user says another number.
const MOST_UNPACKED: u64 = 64 << 30;

/// How to compress.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Compression")]
pub struct CodecArgs {
    /// The compressor. [default: zstd]
    #[arg(
        long,
        value_name = "CODEC",
        value_parser = PossibleValuesParser::new(["none", "gzip", "lzo", "lz4", "xz", "zstd"])
            .try_map(|name| name.parse::<Compression>())
    )]
    codec: Option<Compression>,

    /// The level: gzip 1 to 12 [default: 9]; lz4 3 to 12 in its slow mode [default: the fast mode]; xz 0 to 9
    /// [default: 6]; zstd 1 to 22 [default: 15].
    #[arg(long, value_name = "N")]
    level: Option<u8>,

    /// Uses the slower variant of the xz level.
    #[arg(long)]
    xz_extreme: bool,

    /// The size of the xz dictionary: 2^n or 2^n + 2^(n-1) bytes, 8K to the block size.
    /// [default: the block size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    xz_dict: Option<u32>,

    /// Also tries each data block with these branch filters of xz and keeps the smallest result: x86,
    /// powerpc, ia64, arm, armthumb, sparc, arm64, riscv.
    #[arg(long, value_name = "FILTER,…", value_delimiter = ',', value_parser = str::parse::<Bcj>)]
    xz_bcj: Vec<Bcj>,

    /// Bytes in a data block: a power of two from 4K to 1M. [default: 128K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    block_size: Option<u32>,
}

/// Where things go in the image.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Layout")]
pub struct LayoutArgs {
    /// Gives every file its own blocks.
    #[arg(long, alias = "no-fragments")]
    no_shared_blocks: bool,

    /// Lets the ends of large files share blocks, too. The image is smaller, and slower to read.
    #[arg(long, conflicts_with = "no_shared_blocks")]
    tails: bool,

    /// Stores files with the same contents more than once.
    #[arg(long)]
    no_deduplicate: bool,

    /// Leaves out the table that finds inodes by number, which NFS needs.
    #[arg(long)]
    no_export: bool,

    /// Does not record how the image was made.
    #[arg(long)]
    no_recipe: bool,

    /// Records the directory that the tree belongs at.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,

    /// Puts a dm-verity hash tree over everything behind the image, and writes its root hash to IMAGE.roothash.
    #[arg(long)]
    verity: bool,

    /// Puts files that match an earlier line of FILE before those that match a later line, and both before the rest.
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,

    /// Stores matching files uncompressed and in one piece, so that programs can map them.
    #[arg(long, value_name = "PATTERN")]
    raw: Vec<String>,
}

/// What of the tree to pack, with which owners and permissions.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tree (patterns as in .gitignore, from the root of the tree)")]
struct RuleArgs {
    /// Leaves out what matches. A pattern that starts with ! takes back in what an earlier pattern left out.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Leaves out what matches a line of FILE. The patterns of --exclude come after these.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Gives everything to this user, this group (:GID), or both; 0:0 is root.
    #[arg(long, value_name = "UID[:GID]", value_parser = parse_owner)]
    owner: Option<Owner>,

    /// Gives what matches to this user, group or both. Later ones win, and all win over --owner.
    #[arg(long, value_name = "PATTERN=UID:GID", value_parser = parse_chown)]
    chown: Vec<(String, Owner)>,

    /// Changes the permissions of what matches, as chmod does: 0644, or u+x,go=rX.
    #[arg(long, value_name = "PATTERN=MODE", value_parser = parse_chmod)]
    chmod: Vec<(String, ModeChange)>,

    /// Leaves out extended attributes.
    #[arg(long, conflicts_with_all = ["xattrs_include", "xattrs_exclude"])]
    no_xattrs: bool,

    /// Keeps only the extended attributes whose names match, such as user.*
    #[arg(long, value_name = "PATTERN")]
    xattrs_include: Vec<String>,

    /// Leaves out the extended attributes whose names match.
    #[arg(long, value_name = "PATTERN")]
    xattrs_exclude: Vec<String>,
}

/// A user, a group, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

fn parse_owner(text: &str) -> anyhow::Result<Owner> {
    let (uid, gid) = match text.split_once(':') {
        Some((uid, gid)) => (uid, Some(gid)),
        None => (text, None),
    };
    let number = |digits: &str| {
        digits
            .parse()
            .ok()
            .context("allowed is UID, UID:GID or :GID, in numbers")
    };
    Ok(Owner {
        uid: match (uid, gid) {
            ("", Some(_)) => None,
            _ => Some(number(uid)?),
        },
        gid: gid.map(number).transpose()?,
    })
}

fn parse_chown(text: &str) -> anyhow::Result<(String, Owner)> {
    // Owners contain no equals sign, but patterns may.
    let (pattern, owner) = text
        .rsplit_once('=')
        .context("allowed is PATTERN=UID, PATTERN=UID:GID or PATTERN=:GID")?;
    Ok((pattern.to_owned(), parse_owner(owner)?))
}

fn parse_chmod(text: &str) -> anyhow::Result<(String, ModeChange)> {
    // Both sides may contain equals signs. The pattern ends at the first one that is followed by a valid
    // mode.
    let mut first_fault = None;
    for (at, _) in text.match_indices('=') {
        match text[at + 1..].parse() {
            Ok(mode) => return Ok((text[..at].to_owned(), mode)),
            Err(e) => first_fault = first_fault.or(Some(e)),
        }
    }
    match first_fault {
        Some(e) => Err(e.into()),
        None => bail!("allowed is PATTERN=MODE, such as *.sh=0755 or *.sh=a+x"),
    }
}

/// What `brisk pack --json` and `brisk repack --json` print.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PackJson<'a> {
    /// Path of the image, as given.
    image: std::borrow::Cow<'a, str>,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Duration.
    seconds: f64,
    /// The warnings.
    warnings: &'a [String],
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let started = Instant::now();
    check_output(&args.output, "-o")?;
    check_no_input(&args.output, args.hot.inputs())?;
    let place = Place::parse(args.tree.as_os_str())?;
    let inputs = place.iter().filter_map(Place::path);
    let inputs = inputs.map(|path| (path, "container image"));
    check_no_input(&args.output, inputs)?;
    let exclude = args.rules.exclude_lines()?;
    let rules = args.tree_rules(&exclude)?;
    let mut writer = args.writer()?;
    let mut warnings = Vec::new();
    let mut note = |more: &[String]| {
        more.iter().for_each(|text| warn(text));
        warnings.extend_from_slice(more);
    };
    let mut container = args.container(place)?;
    // Its layers are read until the image is whole.
    let _fetched = container
        .as_mut()
        .and_then(|container| container.fetched.take());
    if let Some(container) = &container {
        let (entry, differences) = container.entry()?;
        note(&differences);
        if let Some(entry) = entry.filter(|_| !args.entry.is_given()) {
            writer = writer.entry_point(entry);
        }
    } else if args.tree.is_file() {
        let (file, output) = (shown(&args.tree), shown(&args.output));
        match FileKind::of(&args.tree) {
            Some(FileKind::Image) => bail!(
                "{file} is an image already; brisk repack {file} -o {output} packs its tree again"
            ),
            _ => bail!(
                "{file} is no directory; if it is a tar archive: brisk pack - -o {output} < {file}"
            ),
        }
    }
    if container.is_none() && !args.is_archive() {
        check_outside(&args.tree, &args.output, &rules)?;
    }

    // Before the work, so that the user can stop it.
    note(&args.missing(&args.codec.features()));
    let tree = args.read_tree(container, &rules)?;
    note(tree.warnings());
    if tree.has_xattrs() {
        note(&args.missing(&[KernelFeature::Xattrs]));
    }
    let summary = {
        let progress = Progress::new(Some(tree.bytes()), args.summary.quiet);
        let writer = writer.progress(progress.callback());
        let written = writer.write(&tree, &args.output);
        written.map_err(|e| args.advise(e))?
    };
    note(remove_stale_pack(&args.output)?.as_slice());
    note(&faults_of_written(&args.output, &summary)?);

    report(&Written {
        output: &args.output,
        summary: &summary,
        seconds: started.elapsed().as_secs_f64(),
        warnings: &warnings,
        json: args.summary.json,
        quiet: args.summary.quiet,
    })?;
    Ok(Answer::Yes)
}

/// What to say of the image at `path`, which was written: why starts by its entry would fail, and what beside
/// it is of another image.
pub fn faults_of_written(path: &Path, summary: &Summary) -> anyhow::Result<Vec<String>> {
    let image = Image::open(path)?;
    let of_entry = match image.entry_point()? {
        Some(entry) => faults_of(&image, &entry, image.recorded_place()?.as_deref())?,
        None => Vec::new(),
    };
    let others = fault_of_place(&image)?
        .into_iter()
        .chain(older_beside(path, summary.verity.is_some()));
    Ok(of_entry.into_iter().chain(others).collect())
}

/// An image that was written, and how to report it.
pub struct Written<'a> {
    pub output: &'a Path,
    pub summary: &'a Summary,
    pub seconds: f64,
    /// Warnings that were printed already.
    pub warnings: &'a [String],
    pub json: bool,
    pub quiet: bool,
}

/// Reports how a tree was packed.
pub fn report(written: &Written<'_>) -> anyhow::Result<()> {
    let Written {
        output,
        summary,
        seconds,
        ..
    } = *written;
    let mut warnings = written.warnings.to_vec();
    if let Some(text) = summary.hot_pack.as_ref().and_then(HotSummary::left_out) {
        warn(&text);
        warnings.push(text);
    }
    if written.json {
        let report = PackJson {
            image: output.to_string_lossy(),
            summary,
            seconds,
            warnings: &warnings,
        };
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        io::stdout().lock().write_all(&line)?;
    } else if !written.quiet {
        say(&summary_text(output, summary, seconds));
        if let Some(pack) = &summary.hot_pack {
            say(&format!("hot pack: {}", hot_pack_args::summary_text(pack)));
        }
    }
    match &summary.verity {
        Some(tree) => report_behind(tree, output, written.json || written.quiet),
        None => Ok(()),
    }
}

fn summary_text(output: &Path, summary: &Summary, seconds: f64) -> String {
    let data = &summary.data;
    let mut text = format!(
        "{}: {} in {}, {} in, {} out",
        output.display(),
        count(summary.files, "file", "files"),
        count(summary.directories, "directory", "directories"),
        BinaryBytes(data.bytes),
        BinaryBytes(summary.file_bytes),
    );
    // An image has at least 4096 bytes, so a percentage of a few bytes says nothing.
    if summary.file_bytes <= data.bytes {
        text += &format!(" ({})", percent(summary.file_bytes, data.bytes));
    }
    if data.duplicate_files > 0 {
        text += &format!(
            "; {} of {}",
            count(data.duplicate_files, "duplicate", "duplicates"),
            BinaryBytes(data.duplicate_bytes)
        );
    }
    let threads = count(summary.threads as u64, "thread", "threads");
    text + &format!("; {seconds:.1} s on {threads}")
}

impl Args {
    /// True if the tree is a tar archive on standard input.
    fn is_archive(&self) -> bool {
        self.tree.as_os_str() == "-"
    }

    /// The directory of the image, which has room for its contents.
    fn directory(&self) -> &Path {
        match self.output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    /// The container image at `place`, if it is one that is packed.
    fn container(&self, place: Option<Place>) -> anyhow::Result<Option<Container>> {
        let ContainerArgs { platform, max_size } = &self.container;
        match place {
            Some(place) => {
                let most = max_size.unwrap_or(MOST_UNPACKED);
                let opened = place.open(
                    platform.as_ref(),
                    most,
                    self.directory(),
                    self.summary.quiet,
                );
                opened.map(Some)
            }
            None if platform.is_some() || max_size.is_some() => bail!(
                "--platform and --max-size are for container images; name one with oci://, oci-layout: or docker-archive:"
            ),
            None => Ok(None),
        }
    }

    fn read_tree(&self, container: Option<Container>, rules: &TreeRules) -> anyhow::Result<Tree> {
        if let Some(container) = container {
            let most = self.container.max_size.unwrap_or(MOST_UNPACKED);
            return container.into_tree(most, rules);
        }
        if !self.is_archive() {
            return Tree::from_directory(&self.tree, rules).map_err(|e| self.advise(e));
        }
        let archive = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let tree = if archive.metadata()?.is_file() {
            Tree::from_tar_file(archive, rules)
        } else {
            Tree::from_tar(archive, self.directory(), rules)
        };
        tree.context("cannot read the archive on standard input")
    }

    /// The same error. If the system refuses to read something in the tree, it says how to leave that out.
    fn advise(&self, e: brisk_image::Error) -> anyhow::Error {
        let refused = e.path().filter(|path| *path != self.output);
        let refused = refused.and_then(|path| path.strip_prefix(&self.tree).ok());
        match refused.and_then(exclude_pattern) {
            Some(pattern) if e.kind() == ErrorKind::Io => {
                let (e, pattern) = (anyhow::Error::from(e), shell_word(pattern.as_ref()));
                let pattern = shown(pattern);
                anyhow::anyhow!("{e:#}; to pack the tree without it, add --exclude {pattern}")
            }
            _ => e.into(),
        }
    }

    fn missing(&self, features: &[KernelFeature]) -> Vec<String> {
        self.target
            .map(|kernel| kernel_feature::missing(kernel, features))
            .unwrap_or_default()
    }

    fn writer(&self) -> anyhow::Result<ImageWriter> {
        let mut writer = self.codec.writer(&self.layout)?;
        if let Some(threads) = self.threads {
            writer = writer.threads(threads.get());
        }
        if let Times::AtMost(time) | Times::All(time) = self.times()? {
            writer = writer.time(time);
        }
        if let Some(entry) = self.entry.entry()? {
            writer = writer.entry_point(entry);
        }
        writer.check()?;
        self.hot.apply(writer)
    }

    fn times(&self) -> anyhow::Result<Times> {
        if let Some(time) = self.time {
            return Ok(Times::All(time));
        }
        let Some(epoch) = std::env::var_os("SOURCE_DATE_EPOCH") else {
            return Ok(Times::Keep);
        };
        let time = epoch.to_str().and_then(|digits| digits.parse().ok());
        time.map(Times::AtMost).with_context(|| {
            format!(
                "SOURCE_DATE_EPOCH is {epoch:?}, allowed is a number of seconds since 1970, up to {}; \
                 correct or unset it, or pass --time",
                u32::MAX
            )
        })
    }

    fn tree_rules(&self, exclude: &[String]) -> anyhow::Result<TreeRules> {
        let args = &self.rules;
        let mut rules = TreeRules::default()
            .exclude(exclude)?
            .xattrs(!args.no_xattrs)
            .xattr_names(&args.xattrs_include, &args.xattrs_exclude)?
            .times(self.times()?);
        if let Some(threads) = self.threads {
            rules = rules.threads(threads.get());
        }
        if let Some(Owner { uid, gid }) = args.owner {
            rules = rules.owner("*", uid, gid)?;
        }
        for (pattern, Owner { uid, gid }) in &args.chown {
            rules = rules.owner(pattern, *uid, *gid)?;
        }
        for (pattern, change) in &args.chmod {
            rules = rules.mode(pattern, change.clone())?;
        }
        Ok(rules)
    }
}

impl CodecArgs {
    /// A writer that compresses in this way and arranges the image as `layout` says.
    pub fn writer(&self, layout: &LayoutArgs) -> anyhow::Result<ImageWriter> {
        let mut writer = ImageWriter::new()
            .compression(self.compression()?)
            .shared_blocks(!layout.no_shared_blocks)
            .tails(layout.tails)
            .deduplicate(!layout.no_deduplicate)
            .export(!layout.no_export)
            .rules(PlanRules::new(layout.order_lines()?, layout.raw.clone())?);
        if let Some(bytes) = self.block_size {
            writer = writer.block_size(bytes);
        }
        Ok(layout.behind(writer))
    }

    /// Whether any of these options was given.
    pub fn is_given(&self) -> bool {
        let Self {
            codec,
            level,
            xz_extreme,
            xz_dict,
            xz_bcj,
            block_size,
        } = self;
        let numbers = level.is_some() || xz_dict.is_some() || block_size.is_some();
        codec.is_some() || numbers || *xz_extreme || !xz_bcj.is_empty()
    }

    fn codec(&self) -> Compression {
        let default = || Compression::default_for(Codec::Zstd);
        self.codec.unwrap_or_else(default)
    }

    fn compression(&self) -> anyhow::Result<Compression> {
        let codec = self.codec();
        if codec.codec() == Some(Codec::Lzo) && !cfg!(feature = "lzo-encode") {
            bail!(
                "this brisk was built without its lzo encoder, because nobody has proven that encoder sound; \
                 choose another codec, such as gzip, which every kernel with lzo can read, \
                 or build brisk with `--features lzo-encode`"
            );
        }
        let mut compression = match self.level {
            Some(level) => codec.with_level(level)?,
            None => codec,
        };
        match &mut compression {
            Compression::Xz {
                extreme,
                dict_size,
                filters,
                ..
            } => {
                *extreme = self.xz_extreme;
                *dict_size = self.xz_dict;
                *filters = self.xz_bcj.iter().copied().collect();
            }
            other => {
                let asked = [
                    ("--xz-extreme", self.xz_extreme),
                    ("--xz-dict", self.xz_dict.is_some()),
                    ("--xz-bcj", !self.xz_bcj.is_empty()),
                ];
                if let Some((option, _)) = asked.iter().find(|(_, asked)| *asked) {
                    let codec = other.codec().map_or("none", |codec| codec.name());
                    bail!("{option} is only for xz, but the codec is {codec}; add --codec xz");
                }
            }
        }
        Ok(compression)
    }

    fn features(&self) -> Vec<KernelFeature> {
        let codec = self.codec().codec().map(KernelFeature::Codec);
        let filters = self.xz_bcj.iter().copied().map(KernelFeature::Filter);
        codec.into_iter().chain(filters).collect()
    }
}

impl LayoutArgs {
    /// Whether the image records a directory for its tree.
    pub fn has_place(&self) -> bool {
        self.at.is_some()
    }

    /// Whether an option was given about how the contents of files are stored, or how inodes are found.
    pub fn is_arranged(&self) -> bool {
        let Self {
            no_shared_blocks,
            tails,
            no_deduplicate,
            no_export,
            no_recipe: _,
            at: _,
            verity: _,
            order,
            raw,
        } = self;
        let flags = [*no_shared_blocks, *tails, *no_deduplicate, *no_export];
        flags.contains(&true) || order.is_some() || !raw.is_empty()
    }

    /// `writer`, with what the options put behind the image.
    pub fn behind(&self, writer: ImageWriter) -> ImageWriter {
        let writer = writer.recipe(!self.no_recipe).verity(self.verity);
        match &self.at {
            Some(place) => writer.place(place.clone()),
            None => writer,
        }
    }

    fn order_lines(&self) -> anyhow::Result<Vec<String>> {
        match &self.order {
            Some(path) => Ok(PlanRules::parse_order(&read_lines(path, "order")?)),
            None => Ok(Vec::new()),
        }
    }
}

impl RuleArgs {
    fn exclude_lines(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for path in &self.exclude_from {
            let text = read_lines(path, "exclude")?;
            lines.extend(text.lines().map(str::to_owned));
        }
        lines.extend(self.exclude.iter().cloned());
        Ok(lines)
    }
}

/// The pattern that matches only `path`, which is in the tree. None for the root, and for names that no pattern can have.
fn exclude_pattern(path: &Path) -> Option<String> {
    let mut pattern = String::new();
    for name in path {
        pattern.push('/');
        for c in name.to_str()?.chars() {
            if r"\*?[]{}!# ".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
    }
    let rules = TreeRules::default().exclude(std::slice::from_ref(&pattern));
    let is_right = rules.is_ok_and(|rules| rules.leaves_out(path, false));
    is_right.then_some(pattern)
}

fn read_lines(path: &Path, what: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("{}: cannot read the {what} file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_a_user_a_group_or_both() {
        let owner = |uid, gid| Some(Owner { uid, gid });
        let table = [
            ("0", owner(Some(0), None)),
            ("0:5", owner(Some(0), Some(5))),
            (":5", owner(None, Some(5))),
            ("", None),
            (":", None),
            ("0:", None),
            ("root", None),
            ("4294967296", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_owner(text).ok(), expected, "{text:?}");
        }
        let (pattern, owner) = parse_chown("a=b=1:2").unwrap();
        assert_eq!(
            (pattern.as_str(), owner.uid, owner.gid),
            ("a=b", Some(1), Some(2))
        );
    }

    #[test]
    fn what_is_refused_is_left_out_by_name() {
        use std::os::unix::ffi::OsStrExt;

        for (path, pattern) in [
            ("a/b.c", Some("/a/b.c")),
            ("a b/[x]*?", Some(r"/a\ b/\[x\]\*\?")),
            ("{a,b}", Some(r"/\{a,b\}")),
            ("#a/!b", Some(r"/\#a/\!b")),
            (r"a\b", Some(r"/a\\b")),
            ("end ", Some(r"/end\ ")),
            ("", None),
        ] {
            assert_eq!(
                exclude_pattern(Path::new(path)).as_deref(),
                pattern,
                "{path}"
            );
        }
        let other = std::ffi::OsStr::from_bytes(b"a\xff");
        assert_eq!(exclude_pattern(Path::new(other)), None);
    }

    #[test]
    fn a_pattern_ends_where_a_mode_starts() {
        let table = [
            ("*.sh=0755", "*.sh", "0755"),
            ("*=go=rX", "*", "go=rX"),
            ("a=b=u+x,go=rX", "a=b", "u+x,go=rX"),
        ];
        for (text, pattern, mode) in table {
            let expected = (pattern.to_owned(), mode.parse().unwrap());
            assert_eq!(parse_chmod(text).ok(), Some(expected), "{text}");
        }
        let message = |text| parse_chmod(text).unwrap_err().to_string();
        assert_eq!(
            message("*.sh"),
            "allowed is PATTERN=MODE, such as *.sh=0755 or *.sh=a+x"
        );
        assert_eq!(
            message("*.sh=rwx"),
            "mode is \"rwx\", allowed is an octal number up to 7777, or clauses such as u+x,go=rX"
        );
    }
}
