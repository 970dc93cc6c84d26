//! `brisk trace`: records what a launch asks for, as a profile.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_bundle::entry::{Entry, Start};
use brisk_image::profile::{Demand, Origin, Profile};
use brisk_image::{Image, Tree, TreeRules, Work};
use brisk_launch::{DiskCharge, ErrorKind, Readiness, Replay};
use brisk_remote::RemoteUrl;
use brisk_serve::{Notice, SessionImage, SystemTrace, Trace, TraceSource, Traced};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;
use clap::builder::TypedValueParser as _;
use indicatif::BinaryBytes;

use super::profile::percent;
use super::remote::fetch_image;
use super::run::tell_in_namespace;
use crate::image_args::{open_image_within, unlimited};
use crate::output_file::{check_no_input, check_output};
use crate::path_hint::{with_program, with_program_of_directory};
use crate::progress::Progress;
use crate::readiness::parse_readiness;
use crate::recorded_place::{recorded_place, tell_made_of};
use crate::remote_images::local_name;
use crate::surroundings::SurroundingsArgs;
use crate::verify_args::{OpenedImage, VerifyArgs};

/// What to record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
brisk serves the image, and each tree at its own place. Nothing of them is in memory at first, and they are read-only \
without --writable. An ordinary user's programs all see an image that is named alone, and what they ask of it is recorded, \
too. With --tree, --at, --root, --bind, --with, --writable or a place that the image records, and for root, only the command \
and what it starts see them, without root in a user namespace: there root's files belong to nobody, so ssh refuses them, and \
sudo gets no rights. brisk does not record the \
system's other files, and says how much of them the command maps if that is at least 4 MiB. When the recording \
ends, brisk ends what the command has left running.\n\n\
With neither an image nor a tree, brisk traces the whole system, which needs root: each page that the kernel \
brings into memory for the command's processes, and the names that they look up. It empties the page cache first, \
for all programs, and turns off the disks' read-ahead until the command has ended. It misses what stays in memory \
because other programs have it mapped (the C library), what the command has written, and files on overlays and in \
memory.\n\n\
With --root and no image, the first tree is the command's root directory. PATH is as the command sees it. \
BRISK_TREE in the environment is the place of the image, or of the first tree.\n\n\
A launch asks for other pages with another input, such as another document or page. Trace one launch with each \
input that matters, and give brisk pack and brisk hot a --profile for each: what all launches ask for comes first. \
Over a network that saves the most.\n\n\
A launch can be ready:\n  \
  exit           when the command exits\n  \
  after:SECONDS  after a time\n  \
  file:PATH      when a file exists\n  \
  socket:PATH    when a Unix socket accepts a connection\n  \
  line:TEXT      when the text is in a line of its standard output or standard error\n  \
  window         when it shows a window on the X display that DISPLAY names\n  \
  window:TITLE   when it shows a window with this in its title or class\n\n\
Exits with 0 if brisk wrote the profile, whatever the command exited with, or with 125 if brisk failed, 126 if \
the command cannot be executed and 127 if it does not exist.\n\n\
Examples:\n  \
  brisk trace --tree app -o app.profile -- app/bin/app\n  \
  brisk trace app.img --runs 3 --ready line:listening -- bin/app\n  \
  brisk trace -o app.profile --ready after:10 -- /usr/bin/app\n  \
  brisk trace -o all.profile --all-processes --keep-cache -- sleep 60")]
pub struct Args {
    /// The image to start from, a file that contains one, such as an AppImage, or a URL, whose image brisk first fetches whole.
    /// Without it and without --tree, brisk traces the whole system, which needs root.
    image: Option<PathBuf>,

    /// The byte of the file at which the image starts. [default: brisk finds it]
    #[arg(long, value_name = "BYTES", requires = "image")]
    offset: Option<u64>,

    /// A directory that the command reads from. May be repeated.
    #[arg(long = "tree", value_name = "DIR")]
    trees: Vec<PathBuf>,

    /// The directory to mount the image on. The mount hides its contents, from the command only. [default: the place
    /// that the image records; else a directory of its own if all programs of the user see it, or the first of /mnt, /media
    /// and /srv that is empty]
    #[arg(long, value_name = "DIR", requires = "image", conflicts_with = "root")]
    at: Option<PathBuf>,

    #[command(flatten)]
    surroundings: SurroundingsArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    /// Traces the whole system without first emptying the page cache. The profile then lacks what is in the
    /// cache.
    #[arg(long, conflicts_with_all = ["image", "trees"])]
    keep_cache: bool,

    /// Traces the whole system, and records what any of its processes reads while the command runs.
    #[arg(long, conflicts_with_all = ["image", "trees"])]
    all_processes: bool,

    /// Lets the command write to the trees and to the image's place. brisk keeps that in memory, and drops it when
    /// the command ends.
    #[arg(long)]
    writable: bool,

    /// The profile to write. [default: IMAGE.profile, the last part of the URL with .profile, DIR.profile if there is one tree,
    /// or trace.profile]
    #[arg(short, long, value_name = "PROFILE")]
    output: Option<PathBuf>,

    /// How often to run the command. What every run asks for comes first in the profile.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// When the launch is ready. brisk records nothing after that.
    #[arg(long, value_name = "WHEN", default_value = "exit",
          value_parser = clap::builder::OsStringValueParser::new().try_map(parse_readiness))]
    ready: Readiness,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,

    /// The command and its arguments. A name with a slash is a path in the image or directory (bin/app), an absolute path is
    /// taken as it is, and a bare name is looked up in PATH. If a directory has no such file, the path counts from the
    /// working directory (app/bin/app).
    /// Without it, brisk starts the program that the image starts by itself, as brisk run does.
    #[arg(last = true, required_unless_present = "image", value_name = "CMD")]
    command: Vec<OsString>,
}

/// What was named, or else what the image starts by itself.
fn start_of(args: &Args, image: Option<&Image>) -> anyhow::Result<Start> {
    let root = args.surroundings.root;
    let (Some(image), Some(path), true) = (image, &args.image, args.command.is_empty()) else {
        return Ok(Start::named(&args.command, root));
    };
    let entry = Entry::of(image)?.map_err(|why| why.to_error(path, None, "trace"))?;
    let at = args.at.as_deref();
    Ok(Start::by_entry(
        &entry,
        path,
        path.as_os_str(),
        &[],
        root,
        at,
    ))
}

/// Runs the command, and writes the profile.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    if let Some(directory) = args.image.as_deref().filter(|path| path.is_dir()) {
        let name = shown(directory);
        bail!(
            "{name} is a directory: brisk trace --tree {name} -- CMD traces a command that reads from it"
        );
    }
    if args.image.is_none() {
        args.verified.refuse_without_image()?;
    }
    args.verified.refuse_with_others(&args.surroundings.with)?;
    // This starts no thread: recording works only in a process with one thread.
    let opened = args.image.as_deref().map(|path| {
        let opened = open(args, &args.verified, path, args.offset)?;
        anyhow::Ok((opened.file(path), opened))
    });
    // This keeps what was fetched in the cache.
    let opened = opened.transpose()?;
    let file = opened.as_ref().map(|(file, _)| file.clone());
    let image = opened.as_ref().map(|(_, opened)| &opened.image);
    let started = start_of(args, image)?;
    let recorded = match (image, &args.at) {
        (Some(image), None) if !started.root => recorded_place(image, "--at DIR")?,
        _ => None,
    };
    let output = args.output.clone().unwrap_or_else(|| default_output(args));
    check_output(&output, "-o")?;
    check_no_input(&output, args.image.as_deref().map(|image| (image, "image")))?;
    let system = args.image.is_none() && args.trees.is_empty();
    if let (true, Some(option)) = (system, args.of_what_is_served()) {
        bail!("{option} needs an image, or a directory with --tree");
    }
    let mut served = Trace::new(started.command.clone());
    served.directory.clone_from(&started.directory);
    served.variables.clone_from(&started.variables);
    served.image = file.as_ref().zip(image).map(|(path, image)| {
        let mut of_session = SessionImage::new(path);
        of_session.offset = image.offset();
        of_session.verity = image.verified().map(|file| file.verity());
        of_session.at = args.at.clone().or_else(|| recorded.clone());
        of_session
    });
    served.trees.clone_from(&args.trees);
    let others = args.verified.of_others();
    let mut fetched = Vec::new();
    served.with = args.surroundings.with(|path| {
        let opened = open(args, &others, path, None)?;
        let served = (SessionImage::new(opened.file(path)), opened.image);
        fetched.extend(opened.remote);
        Ok(served)
    })?;
    served.root = started.root;
    served.binds.clone_from(&args.surroundings.bind);
    served.writable = args.writable;
    served.ready = args.ready.clone();
    if !served.root {
        tell_made_of(served.image.iter().chain(&served.with));
    }
    let mut whole = SystemTrace::new(args.command.clone());
    whole.all_processes = args.all_processes;
    whole.keep_cache = args.keep_cache;
    whole.ready = args.ready.clone();
    let mut profiles = Vec::new();
    let mut sources = Vec::new();
    let mut outside = 0;
    for run in 0..args.runs {
        let traced = match system {
            true => whole.record(),
            false => served.record(|notice| {
                if let Notice::InUserNamespace(why) = notice
                    && run == 0
                {
                    tell_in_namespace(why);
                }
            }),
        };
        let traced = match traced {
            Err(error) if recorded.is_some() && error.kind() == ErrorKind::Place => {
                return Err(error)
                    .context("at the place that the image records; --at DIR names another");
            }
            Err(error) => return Err(with_similar(error, args, &started, image)),
            Ok(traced) => traced,
        };
        tell(&traced, args);
        outside = outside.max(traced.outside);
        profiles.push(traced.profile);
        sources = traced.sources;
    }
    let mut profile = match <[Profile; 1]>::try_from(profiles) {
        Ok([profile]) => profile,
        Err(profiles) => {
            let (merged, changed) = Profile::merge_unchanged(profiles)?;
            if changed > 0 {
                warn(&format!(
                    "left out: {} that changed between the runs",
                    count(changed as u64, "file", "files")
                ));
            }
            merged
        }
    };
    if system {
        // Each run may have its own roots.
        let roots = profile.roots().iter();
        sources = roots
            .map(|root| TraceSource::Directory(root.path.clone()))
            .collect();
    }
    let is_nothing = |demand: &Demand| (demand.files, demand.found, demand.absent) == (0, 0, 0);
    if profile.demand_by_root().iter().all(is_nothing) {
        warn(
            "the command has read nothing of what was named, so a profile is of no use; name a program in it behind --, by a \
             path with a slash",
        );
        if output.exists() {
            say(&format!("{}: stays as it was", shown(&output)));
            return Ok(Answer::Yes);
        }
    }
    // The trees as they are outside of the command's namespace.
    add_digests(&mut profile, &sources, args.quiet)?;
    profile.write(&output)?;
    measure(&profile, if system { &[] } else { &sources });
    let whole = match system {
        true => None,
        // The size is unknown if some directories cannot be entered.
        false => bytes_of(&sources).ok(),
    };
    say(&summary(&profile, &output, whole));
    if outside >= MUCH {
        say(&out_of_reach(&profile, outside));
    }
    Ok(Answer::Yes)
}

/// Opens an image. One on the network is fetched first: what a launch reads until a time would depend on the network.
fn open(
    args: &Args,
    verified: &VerifyArgs,
    path: &Path,
    offset: Option<u64>,
) -> anyhow::Result<OpenedImage> {
    if !RemoteUrl::is_url(path.as_os_str()) {
        let image = verified.open(path, offset)?;
        return Ok(OpenedImage {
            image,
            remote: None,
        });
    }
    say(&format!(
        "fetching {}, which is traced when all of it is here",
        shown(path)
    ));
    let fetched = fetch_image(verified, path, false, args.quiet)?;
    let verified = verified.of_fetched(fetched.entry.about.root.as_deref());
    Ok(OpenedImage {
        image: verified.open(&fetched.entry.image_path(), offset)?,
        remote: Some(fetched),
    })
}

/// With less than this outside of what is served, nothing is worth saying.
const MUCH: u64 = 4 << 20;

/// Says how much of a start the profile lacks.
fn out_of_reach(profile: &Profile, outside: u64) -> String {
    let demand = profile.demand_by_root().into_iter();
    let inside = demand.map(|demand| demand.bytes).sum::<u64>();
    format!(
        "a cold start reads at least about {}, of which {} are in the profile; the rest lies elsewhere, and \
         brisk run --auto learns it, too",
        BinaryBytes(inside.saturating_add(outside)),
        BinaryBytes(inside)
    )
}

impl Args {
    /// An option that says how an image or a tree is served.
    fn of_what_is_served(&self) -> Option<&'static str> {
        let options = [
            ("--root", self.surroundings.root),
            ("--bind", !self.surroundings.bind.is_empty()),
            ("--with", !self.surroundings.with.is_empty()),
            ("--writable", self.writable),
        ];
        let given = options.into_iter().find(|(_, given)| *given);
        given.map(|(option, _)| option)
    }
}

/// The same error. If there is no such command, it says what the image or the first tree has.
fn with_similar(
    error: brisk_launch::Error,
    args: &Args,
    started: &Start,
    image: Option<&Image>,
) -> anyhow::Error {
    let program = started.command.first().map_or(Path::new(""), Path::new);
    match (image, args.trees.first()) {
        (Some(image), _) => with_program(error, program, image, started.root),
        (None, Some(tree)) => with_program_of_directory(error, program, tree),
        (None, None) => error.into(),
    }
}

fn default_output(args: &Args) -> PathBuf {
    let mut name = match (&args.image, &*args.trees) {
        (Some(image), _) => local_name(image),
        // One without a name, as `.`, has the name of where it leads, and is not to get the profile into it.
        (None, [tree]) if tree.file_name().is_none() => {
            let found = tree.canonicalize().ok();
            let found = found.filter(|found| found.file_name().is_some());
            found.unwrap_or_else(|| PathBuf::from("trace"))
        }
        // Without a slash at the end.
        (None, [tree]) => tree.components().collect(),
        (None, _) => PathBuf::from("trace"),
    }
    .into_os_string();
    name.push(".profile");
    name.into()
}

/// Warns about anything odd in a run.
fn tell(traced: &Traced, args: &Args) {
    if !traced.was_ready {
        warn(&format!(
            "the command ended before it was ready ({}); the profile has everything that it asked for",
            args.ready.describe()
        ));
    }
    if let Some(status) = traced.status.filter(|status| !status.success()) {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => status.to_string(),
        };
        warn(&format!(
            "the command {how}; the profile has what it asked for until then"
        ));
    }
    if traced.left > 0 {
        warn(&format!(
            "brisk ended {} of the command, still running when it exited; to record such a launch, use --ready \
             after:SECONDS, file:PATH or socket:PATH",
            count(traced.left, "process", "processes")
        ));
    }
    if traced.dropped > 0 {
        warn(&format!(
            "left out: {}, because the recording was full; end it earlier with --ready",
            count(traced.dropped, "request", "requests")
        ));
    }
    if traced.written > 0 {
        warn(&format!(
            "left out: {} written meanwhile",
            count(traced.written, "file", "files")
        ));
    }
    if traced.unnamed > 0 {
        warn(&format!(
            "left out: {} for files without a name",
            count(traced.unnamed, "request", "requests")
        ));
    }
}

fn origin(source: &TraceSource) -> anyhow::Result<Origin> {
    Ok(match source {
        TraceSource::Directory(path) => Origin::directory(path)?,
        TraceSource::Image { path, offset } => Origin::image(&open_unlimited(path, *offset)?),
    })
}

/// An image that was traced. Its program has run, so it is trusted however many names and bytes it has.
fn open_unlimited(path: &Path, offset: u64) -> anyhow::Result<Image> {
    open_image_within(path, Some(offset), unlimited())
}

/// Adds the digests of the files that were read, as they are now. `sources` are those of the profile's roots.
fn add_digests(profile: &mut Profile, sources: &[TraceSource], quiet: bool) -> anyhow::Result<()> {
    // One may be gone: another program has unmounted the file system.
    let told = |error: &anyhow::Error| warn(&format!("{error:#}"));
    let origins = sources.iter();
    let origins: Vec<_> = origins
        .map(|one| origin(one).inspect_err(told).ok())
        .collect();
    let bytes = profile.files().iter().map(|file| file.len).sum();
    let progress = Progress::new(Some(bytes), quiet);
    let work = Work::new().progress(progress.callback());
    let mut without = 0;
    for (number, origin) in (0u32..).zip(&origins) {
        without += match origin {
            Some(origin) => profile.add_digests(number, origin, &work)?,
            None => {
                let files = profile.files().iter();
                files.filter(|file| file.root == number).count() as u64
            }
        };
    }
    drop(progress);
    if without > 0 {
        warn(&format!(
            "without a digest in the profile: {} that changed or cannot be read",
            count(without, "file", "files")
        ));
    }
    Ok(())
}

/// Measures the disks that the profile's files are on, unless they were measured before. There is time for it
/// now, but none when the profile is replayed. For a disk that is not measured, brisk takes what is usual for
/// its kind.
fn measure(profile: &Profile, sources: &[TraceSource]) {
    let directory = |source: &TraceSource| match source {
        TraceSource::Directory(path) => Some(path.clone()),
        TraceSource::Image { .. } => None,
    };
    let at: Vec<_> = sources.iter().filter_map(directory).collect();
    let replay = Replay::new(profile.clone(), &at, DiskCharge::default());
    // A disk that cannot be measured, or a result that cannot be kept, is no reason to fail.
    replay.and_then(|replay| replay.measure(false)).ok();
}

fn summary(profile: &Profile, output: &Path, whole: Option<u64>) -> String {
    let (mut files, mut pages, mut bytes, mut found, mut absent) = (0u64, 0u64, 0u64, 0u64, 0u64);
    for demand in profile.demand_by_root() {
        files = files.saturating_add(demand.files);
        pages = pages.saturating_add(demand.pages);
        bytes = bytes.saturating_add(demand.bytes);
        found = found.saturating_add(demand.found);
        absent = absent.saturating_add(demand.absent);
    }
    let share = whole.map_or_else(String::new, |whole| {
        format!(", {} of the whole", percent(bytes, whole))
    });
    format!(
        "{}: {}, {} ({}{share}), look-ups: {found} found, {absent} absent",
        output.display(),
        count(files, "file", "files"),
        count(pages, "page", "pages"),
        BinaryBytes(bytes)
    )
}

fn bytes_of(sources: &[TraceSource]) -> anyhow::Result<u64> {
    let rules = TreeRules::default().xattrs(false);
    let mut bytes = 0u64;
    for source in sources {
        let tree = match source {
            TraceSource::Directory(path) => Tree::from_directory(path, &rules)?,
            TraceSource::Image { path, offset } => {
                Tree::from_image(&open_unlimited(path, *offset)?, &rules)?
            }
        };
        bytes = bytes.saturating_add(tree.bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::Limits;

    #[test]
    fn a_file_system_that_is_gone_at_the_end_costs_only_digests() {
        let gone = tempfile::tempdir().expect("room").path().to_owned();
        let here = tempfile::tempdir().expect("room");
        std::fs::write(here.path().join("file"), "12345").expect("room");
        let text = r#"{"brisk_profile": 1, "brisk": "0.1.0", "command": ["app"], "runs": 1,
"roots": [["/gone", "system"], ["/here", "system"]],
"files": [[0, "file", 5, null], [1, "file", 5, null]], "directories": [],
"steps": [["pages", 0, 0, 1, 0, 1], ["pages", 1, 0, 1, 1, 1]]}"#;
        let mut profile = Profile::from_text(text.as_bytes(), &Limits::default()).expect("valid");
        let sources = [gone, here.path().to_owned()].map(TraceSource::Directory);
        add_digests(&mut profile, &sources, true).expect("no reason to fail");
        let has = profile.files().iter().map(|file| file.digest.is_some());
        assert_eq!(has.collect::<Vec<_>>(), [false, true]);
    }
}
