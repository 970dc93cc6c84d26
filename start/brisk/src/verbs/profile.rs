//! `brisk profile`: looks at profiles, and makes one of several.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use brisk_image::profile::{
    Demand, FileState, Origin, PAGE, PagesByState, PagesOfBoth, Profile, ProfileFile,
};
use brisk_image::{Limits, Tree, TreeRules, Work};
use brisk_terminal::answer::Answer;
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::{count, say};
use brisk_terminal::names::shown;
use brisk_terminal::page::Page;
use clap::Subcommand;
use indicatif::BinaryBytes;
use serde::Serialize;

use crate::file_kind::explain_profile;
use crate::image_args::{LimitArgs, open_image_within};
use crate::json;
use crate::output_file::check_output;

use crate::page::touches;
use crate::progress::Progress;
use crate::timeline::Timeline;
use crate::whole_file::write_whole;

/// What to do with profiles.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A profile says what a launch asked for: pages of files and names, in the order in which the launch first asked \
for them. A page has 4096 bytes.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what a profile asks for.
    Show(ShowArgs),
    /// Checks whether a tree or an image is still what the profile was recorded from.
    Check(CheckArgs),
    /// Makes one profile of several.
    Merge(MergeArgs),
    /// Compares two profiles.
    Diff(DiffArgs),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The profile.
    profile: PathBuf,

    /// Also shows which share of this directory or image it asks for.
    #[arg(value_name = "TREE|IMAGE")]
    tree: Option<PathBuf>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Shows this many of the files with the most pages.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Also writes a page with pictures: where in the files and in which order the launch asks for pages, and
    /// how many bytes by when.
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a line for each file that changed: \"-\" is gone, \"!\" has other contents. brisk compares lengths, and \
digests where the profile has them.\n\n\
Exits with 0 if no file changed, with 1 if one did, and with 2 after a failure.")]
struct CheckArgs {
    /// The profile.
    profile: PathBuf,

    /// The directory or the image.
    #[arg(value_name = "TREE|IMAGE")]
    tree: PathBuf,

    #[command(flatten)]
    limits: LimitArgs,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Pages that every run needs come first, in the order of the median time at which the runs first asked for them. \
Then come those that fewer and fewer runs need.")]
struct MergeArgs {
    /// The profiles.
    #[arg(required = true, value_name = "PROFILE")]
    profiles: Vec<PathBuf>,

    /// The profile to write. It replaces a file of this name when it is complete.
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a line for each file with other pages in one profile than in the other: \"-\" pages are only in the first, \
\"+\" only in the second, \"=\" in both.\n\n\
Exits with 0 if both have the same pages, with 1 if not, and with 2 after a failure.")]
struct DiffArgs {
    /// A profile.
    first: PathBuf,

    /// Another one.
    second: PathBuf,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match &args.action {
        Action::Show(args) => args.limits.advise(show(args)),
        Action::Check(args) => args.limits.advise(check(args)),
        Action::Merge(args) => merge(args),
        Action::Diff(args) => diff(args),
    }
}

/// The profile in the file at `path`.
pub fn open(path: &Path) -> anyhow::Result<Profile> {
    Profile::open(path, &Limits::of_profiles()).map_err(|e| explain_profile(e, path))
}

/// One profile of those in the files at `paths`, of which there is at least one.
pub fn open_all(paths: &[PathBuf]) -> anyhow::Result<Profile> {
    let profiles = paths.iter().map(|path| open(path));
    let profiles = profiles.collect::<anyhow::Result<Vec<_>>>()?;
    match <[Profile; 1]>::try_from(profiles) {
        Ok([profile]) => Ok(profile),
        Err(profiles) => Ok(Profile::merge(&profiles)?),
    }
}

/// The directory or image at `path`.
pub fn origin(path: &Path, limits: &LimitArgs) -> anyhow::Result<Origin> {
    if path.is_dir() {
        return Ok(Origin::directory(path)?);
    }
    let image = open_image_within(path, None, limits.limits())?;
    Ok(Origin::image(&image))
}

/// Bytes of all files in the directory or image at `path`.
fn bytes_of_tree(path: &Path, limits: &LimitArgs) -> anyhow::Result<u64> {
    let rules = TreeRules::default().xattrs(false);
    let tree = match path.is_dir() {
        true => Tree::from_directory(path, &rules)?,
        false => Tree::from_image(&open_image_within(path, None, limits.limits())?, &rules)?,
    };
    Ok(tree.bytes())
}

/// A file, how many of its pages a launch asks for, and what share of it that is.
struct TopFile<'a> {
    file: &'a ProfileFile,
    pages: u64,
    bytes: u64,
}

fn show(args: &ShowArgs) -> anyhow::Result<Answer> {
    let mut profile = open(&args.profile)?;
    let mut share = None;
    if let Some(path) = &args.tree {
        let origin = origin(path, &args.limits)?;
        profile = origin.narrow(&profile)?.into_owned();
        let root = origin.root_of(&profile)?;
        share = Some((usize::try_from(root)?, bytes_of_tree(path, &args.limits)?));
    }
    if let Some(page) = &args.html {
        write_whole(&page_of(&profile, &args.profile), page)?;
    }
    let demand = profile.demand_by_root();
    let mut top: Vec<_> = profile
        .files()
        .iter()
        .zip(profile.demand_by_file())
        .filter(|(_, (pages, _))| *pages > 0)
        .map(|(file, (pages, bytes))| TopFile { file, pages, bytes })
        .collect();
    // The sort is stable: files with equally many pages stay in the order of first touch.
    top.sort_by_key(|file| std::cmp::Reverse(file.pages));
    top.truncate(args.top);
    if args.json {
        json::print(&show_json(&profile, &demand, share, &top))?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        writeln!(out, "{}", shown(&args.profile))?;
        print_show(&mut out, &profile, &demand, share, &top)?;
        out.flush()?;
    }
    Ok(Answer::Yes)
}

/// How many ranges a page shows.
const SHOWN: usize = 50_000;

fn page_of(profile: &Profile, path: &Path) -> String {
    let mut page = Page::default();
    let title = format!(
        "What {} asks for",
        shown(path.file_name().unwrap_or_default())
    );
    page.heading(1, &title);
    let command: Vec<_> = profile.command().iter().map(shown).collect();
    page.code(&command.join(" "));
    let demand = profile.demand_by_root();
    let rows = profile.roots().iter().zip(&demand).map(|(root, demand)| {
        [
            shown(&root.path),
            demand.files.to_string(),
            demand.pages.to_string(),
            format!("{:.1}", demand.bytes as f64 / 1e6),
            demand.ranges.to_string(),
            demand.found.to_string(),
            demand.absent.to_string(),
        ]
    });
    let head = [
        "tree",
        "files",
        "pages",
        "MB",
        "ranges",
        "names found",
        "names absent",
    ];
    page.table(head, &rows.collect::<Vec<_>>(), false);
    touches::draw(&mut page, &Timeline::of(profile, SHOWN));
    page.finish(&title)
}

fn print_show(
    out: &mut impl Write,
    profile: &Profile,
    demand: &[Demand],
    share: Option<(usize, u64)>,
    top: &[TopFile<'_>],
) -> io::Result<()> {
    let mut fields = Fields::new(out, 11);
    let command: Vec<_> = profile.command().iter().map(shown).collect();
    fields.add("command", command.join(" "))?;
    fields.add("runs", profile.runs())?;
    if let Some(ready) = profile.ready() {
        fields.add(
            "cut",
            format_args!("after {} ms, at: {}", ready.at / 1000, shown(&ready.by)),
        )?;
    }
    fields.add("brisk", shown(profile.brisk()))?;
    for (i, (root, demand)) in profile.roots().iter().zip(demand).enumerate() {
        let Demand {
            files,
            pages,
            bytes,
            ranges,
            found,
            absent,
            ..
        } = demand;
        let outside = match share {
            Some((known, _)) if known != i => ", outside of the tree",
            _ => "",
        };
        fields.line("")?;
        let (path, kind) = (shown(&root.path), root.kind.name());
        fields.line(format_args!("{path} ({kind}{outside})"))?;
        fields.add("files", files)?;
        let of_tree = match share {
            Some((known, whole)) if known == i => {
                format!(", {} of the tree", percent(*bytes, whole))
            }
            _ => String::new(),
        };
        let ranges = count(*ranges, "range", "ranges");
        fields.add("pages", format_args!("{pages} in {ranges}"))?;
        fields.add(
            "bytes",
            format_args!("{bytes} ({}{of_tree})", BinaryBytes(*bytes)),
        )?;
        fields.add("look-ups", format_args!("{found} found, {absent} absent"))?;
    }
    if !top.is_empty() {
        writeln!(out, "\nThe files with the most pages\n")?;
        writeln!(
            out,
            "  {:>10}{:>15}{:>9}  path",
            "pages", "bytes", "of file"
        )?;
        for TopFile { file, pages, bytes } in top {
            writeln!(
                out,
                "  {pages:>10}{bytes:>15}{:>9}  {}",
                percent(*bytes, file.len),
                shown(path_of(profile, file))
            )?;
        }
    }
    Ok(())
}

/// The path of a file as the program saw it.
fn path_of(profile: &Profile, file: &ProfileFile) -> PathBuf {
    let root = usize::try_from(file.root)
        .ok()
        .and_then(|root| profile.roots().get(root));
    root.map_or_else(|| file.path.clone(), |root| root.path.join(&file.path))
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => {
            // 128 bits: tenths of a percent of 2^64 bytes do not fit into 64.
            let tenths = u128::from(part) * 1000 / u128::from(whole);
            format!("{}.{} %", tenths / 10, tenths % 10)
        }
    }
}

/// What `brisk profile show --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShowJson<'a> {
    /// Version of brisk that wrote the profile.
    brisk: &'a str,
    /// Recorded command with its arguments; if there are several commands, the first one.
    command: Vec<Cow<'a, str>>,
    /// Recorded launches.
    runs: u32,
    /// What ended the recording.
    ///
    /// Null if the profile does not say.
    ready: Option<ReadyJson<'a>>,
    /// Ranges of pages and names, together.
    steps: usize,
    /// The directories and images that the launch asks for.
    roots: Vec<RootJson<'a>>,
    /// The files with the most pages, most first; `--top` says how many (10).
    top: Vec<TopJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReadyJson<'a> {
    /// What it was, for people.
    by: &'a str,
    /// From the start until then.
    seconds: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RootJson<'a> {
    /// Absolute path at which the program saw the root.
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// What it is: `directory`, `image`, `system`.
    kind: &'static str,
    /// What the launch asks for in it.
    demand: DemandJson,
    /// Whether the root is not the directory or image that was named.
    ///
    /// Absent if none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_outside: Option<bool>,
    /// Size of all files in the directory or image that was named.
    ///
    /// Absent in other roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_bytes: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DemandJson {
    /// Files with at least one page that the launch asks for.
    files: u64,
    /// Pages that it asks for.
    pages: u64,
    /// Size of these pages.
    bytes: u64,
    /// Ranges of pages.
    ranges: u64,
    /// Names that it looks up.
    look_ups: FoundJson,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FoundJson {
    /// Names that exist.
    pub found: u64,
    /// Names that do not exist.
    pub absent: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TopJson {
    /// Path as the program saw it.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Pages of the file that the launch asks for.
    pages: u64,
    /// Size of these pages.
    bytes: u64,
    /// Size of the whole file.
    file_bytes: u64,
}

fn show_json<'a>(
    profile: &'a Profile,
    demand: &[Demand],
    share: Option<(usize, u64)>,
    top: &[TopFile<'_>],
) -> ShowJson<'a> {
    let roots = profile.roots().iter().zip(demand).enumerate();
    let roots = roots.map(|(i, (root, demand))| {
        let (path, path_hex) = json::name(&root.path);
        RootJson {
            path,
            path_hex,
            kind: root.kind.name(),
            demand: DemandJson {
                files: demand.files,
                pages: demand.pages,
                bytes: demand.bytes,
                ranges: demand.ranges,
                look_ups: FoundJson {
                    found: demand.found,
                    absent: demand.absent,
                },
            },
            is_outside: share.map(|(known, _)| known != i),
            tree_bytes: share
                .filter(|(known, _)| *known == i)
                .map(|(_, whole)| whole),
        }
    });
    let files = top.iter().map(|TopFile { file, pages, bytes }| {
        let (path, path_hex) = json::owned_name(path_of(profile, file));
        TopJson {
            path,
            path_hex,
            pages: *pages,
            bytes: *bytes,
            file_bytes: file.len,
        }
    });
    ShowJson {
        brisk: profile.brisk(),
        command: json::names(profile.command()),
        runs: profile.runs(),
        ready: profile.ready().map(|ready| ReadyJson {
            by: &ready.by,
            seconds: ready.at as f64 / 1e6,
        }),
        steps: profile.steps().len(),
        roots: roots.collect(),
        top: files.collect(),
    }
}

/// What `brisk profile check --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckJson<'a> {
    /// Whether a file with pages changed or is gone.
    stale: bool,
    /// Pages of the profile.
    pages: PagesByState,
    /// Names of the root.
    look_ups: ChangedJson,
    /// The files that changed or are gone.
    files: Vec<ChangedFileJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ChangedJson {
    /// Names that are found or absent as they were.
    pub same: u64,
    /// Names that were found and are absent now, or the reverse.
    pub changed: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ChangedFileJson<'a> {
    /// Path of the file in its root.
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// What became of it: `missing`, `changed`.
    state: &'static str,
    /// Size of the file when it was recorded.
    ///
    /// Absent if it has the same size, or if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    was_bytes: Option<u64>,
    /// Size of the file now.
    ///
    /// Absent if it has the same size, or if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_bytes: Option<u64>,
}

impl<'a> ChangedFileJson<'a> {
    fn of((file, state): &(&'a ProfileFile, &FileState)) -> Self {
        let (path, path_hex) = json::name(&file.path);
        let (was_bytes, is_bytes) = match state {
            FileState::Length(now) => (Some(file.len), Some(*now)),
            _ => (None, None),
        };
        let state = match state {
            FileState::Missing => "missing",
            _ => "changed",
        };
        Self {
            path,
            path_hex,
            state,
            was_bytes,
            is_bytes,
        }
    }
}

/// What `brisk profile diff --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffJson {
    /// Pages of all files.
    pages: PagesOfBoth,
    /// The files with other pages in one profile than in the other.
    files: Vec<DifferentFileJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DifferentFileJson {
    /// Path as the program saw it.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// Pages of this file.
    pages: PagesOfBoth,
}

impl DifferentFileJson {
    fn of((root, path, pages): &(PathBuf, PathBuf, PagesOfBoth)) -> Self {
        let (path, path_hex) = json::owned_name(root.join(path));
        Self {
            path,
            path_hex,
            pages: *pages,
        }
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<Answer> {
    let profile = open(&args.profile)?;
    let origin = origin(&args.tree, &args.limits)?;
    let progress = Progress::new(None, args.quiet);
    let staleness = profile.check(&origin, &Work::new().progress(progress.callback()))?;
    drop(progress);
    let changed: Vec<_> = profile
        .files()
        .iter()
        .zip(&staleness.files)
        .filter(|(_, state)| !matches!(state, FileState::Same | FileState::Outside))
        .collect();
    if args.json {
        json::print(&CheckJson {
            stale: staleness.is_stale(),
            pages: staleness.pages,
            look_ups: ChangedJson {
                same: staleness
                    .look_ups
                    .saturating_sub(staleness.look_ups_changed),
                changed: staleness.look_ups_changed,
            },
            files: changed.iter().map(ChangedFileJson::of).collect(),
        })?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for (file, state) in &changed {
            let path = shown(&file.path);
            let line = match state {
                FileState::Missing => format!("- {path}"),
                FileState::Length(now) => {
                    let [was, is] = [file.len, *now].map(|n| count(n, "byte", "bytes"));
                    format!("! {path}: {was} -> {is}")
                }
                _ => format!("! {path}: other contents"),
            };
            writeln!(out, "{line}")?;
        }
        let pages = staleness.pages;
        let here = pages
            .same
            .saturating_add(pages.changed)
            .saturating_add(pages.missing);
        writeln!(
            out,
            "{}: {} of {} ({}) in unchanged files, {} in changed and {} in missing ones; {} outside of it",
            shown(&args.tree),
            pages.same,
            count(here, "page", "pages"),
            percent(pages.same, here),
            pages.changed,
            pages.missing,
            pages.outside
        )?;
        if staleness.look_ups > 0 {
            writeln!(
                out,
                "{}: {} of {} look-ups now have another answer",
                shown(&args.tree),
                staleness.look_ups_changed,
                staleness.look_ups
            )?;
        }
        out.flush()?;
    }
    Ok(match staleness.is_stale() {
        false => Answer::Yes,
        true => Answer::No,
    })
}

fn merge(args: &MergeArgs) -> anyhow::Result<Answer> {
    let profiles: anyhow::Result<Vec<_>> = args.profiles.iter().map(|path| open(path)).collect();
    let merged = Profile::merge(&profiles?)?;
    check_output(&args.output, "-o")?;
    merged.write(&args.output)?;
    let pages = merged
        .demand_by_root()
        .into_iter()
        .map(|demand| demand.pages);
    let pages = pages.fold(0, u64::saturating_add);
    let common = merged
        .ranges()
        .filter(|(step, _)| step.runs == merged.runs());
    let common = common
        .map(|(_, range)| range.count)
        .fold(0, u64::saturating_add);
    say(&format!(
        "{}: {} ({}) of {}; every run needs {common} of them",
        args.output.display(),
        count(pages, "page", "pages"),
        BinaryBytes(pages.saturating_mul(PAGE)),
        count(merged.runs().into(), "run", "runs")
    ));
    Ok(Answer::Yes)
}

fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    let difference = open(&args.first)?.compare(&open(&args.second)?);
    if args.json {
        json::print(&DiffJson {
            pages: difference.total,
            files: difference.files.iter().map(DifferentFileJson::of).collect(),
        })?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        let signs = |pages: &PagesOfBoth| {
            format!(
                "-{} +{} ={}",
                pages.only_first, pages.only_second, pages.both
            )
        };
        for (root, path, pages) in &difference.files {
            writeln!(out, "{}: {}", shown(root.join(path)), signs(pages))?;
        }
        writeln!(out, "pages: {}", signs(&difference.total))?;
        out.flush()?;
    }
    Ok(match difference.files.is_empty() {
        true => Answer::Yes,
        false => Answer::No,
    })
}
