//! `brisk run`: starts a program from an image or from a directory.
//!
//! The runs of one image by one user share a session. From a directory, a profile is replayed.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use brisk_bundle::entry::{Entry, Start};
use brisk_image::Image;
use brisk_image::hot_pack::{Audit, Audited, AuditedFile};
use brisk_launch::{
    BackgroundReplay, ErrorKind, LEARNED_LIMIT, LearnedLaunch, LearnedOf, LearnedPacks, Learning,
    LeftAlone, Observe, Observed, ObservedLaunch, PlainLaunch, Replay, StartPlan, gives_rights,
    leave_first_process,
};
use brisk_remote::RemoteUrl;
use brisk_serve::{
    Launch, MissingPlace, Notice, RootedLaunch, SeenBy, Session, SessionFill, SessionImage, Trace,
    sessions,
};
use brisk_terminal::age::parse_linger;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{count, say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::shell_word::shell_word;
use brisk_terminal::size::parse_size;
use brisk_trust::OpenedRemote;

use super::profile::percent;
use super::replay::{self, ReadingArgs};
use super::{mount, stat};
use crate::advice::with_advice;
use crate::direct_launch::{DirectLaunch, exec_plain};
use crate::file_kind::check_hot_pack;
use crate::known_launch::{self, start_or_warn};
use crate::launch_name;
use crate::path_hint::{HintedError, with_program};
use crate::program_links::{next_in_path, own_arguments};
use crate::recorded_place::{recorded_place, tell_made, tell_made_of};
use crate::remote_images::{RemoteHot, UsedHot, whole_file};
use crate::surroundings::SurroundingsArgs;
use crate::verify_args::{OpenedImage, VerifyArgs};

/// How many files an audit shows, the worst first.
const WORST: usize = 20;

/// Headings of groups of options.
const FILL: &str = "Hot packs, of images";
const REPLAY: &str = "Profiles, of directories and with --kernel";
const LEARNING: &str = "Learning";

/// What to start, and from which image or directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without CMD, brisk starts the program that the image records (brisk pack --entry), or else AppRun or the program of the \
only .desktop file at the top of the image, as AppImages have them. --root, --at and --chdir then count more than what is \
recorded. brisk info shows what the image says.\n\n\
The program takes the place of brisk: signals, job control, descriptors and the exit status are the program's \
own. Of an ordinary user, all programs see the image, unless an option needs a namespace (--seen-by). BRISK_TREE in the \
environment is the mount point.\n\n\
The first run of an image starts three small processes that serve it. Later runs of the same user join them, and \
find in memory what earlier runs have read. They end some time after the last program (--linger). brisk stat \
shows them, and brisk umount ends them.\n\n\
If the image has a hot pack, the first run also fills memory from it while the program starts. brisk stat shows \
what was filled.\n\n\
With --auto an image needs no hot pack. brisk records the first launch of a session until its program ends, for \
15 s at most, and makes a pack of it in $XDG_CACHE_HOME/brisk/hot, or else in ~/.cache/brisk/hot, for this image \
at this place. A later launch that asks for much that the pack lacks adds to it.\n\n\
From a directory, brisk mounts nothing and becomes the program at once. Another process replays the profile \
beside it, as brisk replay does. brisk trace --tree DIR makes a profile, and so does --auto. With --root, the directory is \
the root directory of the program, which cannot write to it; --bind and --writable then work as for an image.\n\n\
With --auto and without an image, brisk starts any program where it is, and learns what it reads, wherever that lies. \
It looks at the first starts from outside, each for 15 s at most, and replays what it has seen at the next ones. Nobody attaches \
to the program: it stays the same process, and writes where it always does. What it makes or changes itself is not \
learned. After three starts at most, learning is over. If a program later reads much that is not known, or if more than a tenth \
of its files change, brisk learns again, at the earliest after 10 minutes. A program that reads less than 2 MiB is left \
alone. One with the rights of others (setuid) is not observed. Launches are told apart by the path of the program, for interpreters also by the \
script, for programs with verbs (git, cargo) by the verb, and for those that start another one (env, timeout) by that \
one.\n\n\
With --audit the program does not take brisk's place: brisk traces it, as brisk trace does. It exits as the \
program did, or with 128 and the number of the signal that ended it.\n\n\
Exits as the program does, or with 125 if brisk failed, 126 if the program cannot be executed and 127 if it does \
not exist.\n\n\
Examples:\n  \
  brisk run app.img -- bin/app\n  \
  brisk run app.img file.txt --args --line 3\n  \
  brisk run app.img --auto --linger 0 -- bin/app\n  \
  brisk run --auto -- libreoffice\n  \
  brisk run root.img --root --bind /data:/data:ro -- /usr/bin/app\n  \
  brisk run app --profile app.profile -- bin/app")]
pub struct Args {
    /// The image, a file that contains one, such as an AppImage, the URL of one (https://, http://, oci:// or s3://), or a directory (with
    /// --profile or --auto). With --auto it
    /// may be left out: the program starts where it is.
    #[arg(value_name = "IMAGE|DIR", required_unless_present = "auto")]
    image: Option<PathBuf>,

    /// The byte of the file at which the image starts. [default: brisk finds it]
    #[arg(long, value_name = "BYTES")]
    offset: Option<u64>,

    /// Arguments for the program that the image starts by itself, if no CMD is named. One that begins with a hyphen needs
    /// --args.
    #[arg(value_name = "ARG", conflicts_with = "command")]
    arguments: Vec<OsString>,

    /// The program and its arguments. A name with a slash is a path in the image or directory (bin/app), an absolute path is
    /// taken as it is, and a bare name is looked up in PATH. If a directory has no such file, the path counts from the
    /// working directory (app/bin/app).
    #[arg(last = true, required_unless_present = "image", value_name = "CMD")]
    command: Vec<OsString>,

    /// More arguments for the program that the image starts by itself: everything behind --args, so it comes last.
    #[arg(long = "args", value_name = "ARG", num_args = 0.., allow_hyphen_values = true, conflicts_with = "command")]
    more_arguments: Vec<OsString>,

    /// The name that the user called, for launchers of brisk wrap.
    #[arg(long, value_name = "NAME", hide = true)]
    called_as: Option<OsString>,

    /// The directory to mount the image on. The mount hides its contents, from the program only. If it does not exist, the
    /// program sees it all the same, and can make nothing new directly in the directory above it. [default: the place
    /// that the image records; else a directory of the session if all programs of the user see it, or the first of /mnt,
    /// /media and /srv that is empty]
    #[arg(long, value_name = "DIR", conflicts_with = "root")]
    at: Option<PathBuf>,

    /// Starts the program in this directory of the image or directory; an absolute path is taken as it is. [default:
    /// the directory that brisk is started in]
    #[arg(long, value_name = "DIR")]
    chdir: Option<PathBuf>,

    #[command(flatten)]
    surroundings: SurroundingsArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    /// Lets programs write where the image is. brisk keeps that in memory, and drops it when the session ends. With =DIR it
    /// keeps that in this directory, and a later run sees it. The image itself never changes.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, conflicts_with = "kernel")]
    writable: Option<Option<PathBuf>>,

    /// Who sees the image while the session runs: all programs of the user, or the program and what it starts alone, in a user
    /// namespace. There root's files belong to nobody, so ssh refuses them, and sudo gets no rights. [default: user, but for
    /// root, and with --at, --root, --writable, --bind, --with, or a place that the image records, program]
    #[arg(long, value_name = "WHO", conflicts_with = "kernel")]
    seen_by: Option<WhoSees>,

    /// How long the session stays after its last program: seconds, or a number with s, m, h or d, such as 5m. 0 leaves
    /// nothing. The value of the latest run counts. [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = parse_linger, conflicts_with = "kernel")]
    linger: Option<Duration>,

    /// Mounts through the kernel, for this run alone, without processes of brisk. Needs root.
    #[arg(long, conflicts_with_all = ["root", "bind", "with"])]
    kernel: bool,

    /// Says what brisk will fill, or why it fills nothing, and how long the session's answers took so far.
    /// With a profile, says what was replayed, when the replay is over.
    #[arg(short, long)]
    verbose: bool,

    /// Fills memory from this hot pack, instead of IMAGE.hot beside the image or the pack behind it. Programs get its pages
    /// without a comparison with the image: name only packs that you trust. Of a URL only the list of pages is used, which are then
    /// read from the image, unless a trusted key has signed the pack.
    #[arg(long, value_name = "FILE", help_heading = FILL, conflicts_with_all = ["kernel", "no_fill"])]
    hot: Option<PathBuf>,

    /// Does not fill memory: programs wait for what they ask for.
    #[arg(long, help_heading = FILL, conflicts_with = "kernel")]
    no_fill: bool,

    /// Fills at most this many bytes for each image, and never more than half of the free memory. [default: the whole
    /// hot pack]
    #[arg(long, value_name = "SIZE", help_heading = FILL, value_parser = parse_size,
          conflicts_with_all = ["kernel", "no_fill"])]
    fill_budget: Option<u64>,

    /// How many threads fill, for brisk lab.
    #[arg(long, value_name = "N", hide = true, conflicts_with_all = ["kernel", "no_fill"])]
    fill_threads: Option<NonZeroUsize>,

    /// Writes a log of what was stored when to this file, for brisk lab.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["kernel", "no_fill"])]
    fill_log: Option<PathBuf>,

    /// Traces the program, without a session. At its end brisk says which pages of the hot pack it asked for,
    /// which are useless, and which are missing.
    #[arg(long, help_heading = FILL, conflicts_with_all = ["kernel", "no_fill", "linger"])]
    audit: bool,

    /// Prints the result of --audit as one JSON object, also to standard error.
    #[arg(long, help_heading = FILL, requires = "audit")]
    json: bool,

    /// Replays this profile while the program starts. For a directory, or for an image with --kernel.
    #[arg(long, value_name = "PROFILE", help_heading = REPLAY)]
    profile: Option<PathBuf>,

    /// How to read what a profile lists.
    #[command(flatten, next_help_heading = REPLAY)]
    reading: ReadingArgs,

    /// Learns from the first run and uses that later: a hot pack for an image that has none, or a profile for
    /// a directory or for any program. The first run is slower. brisk auto lists and forgets what brisk has learned.
    #[arg(long, help_heading = LEARNING, conflicts_with_all = ["kernel", "no_fill", "profile"])]
    auto: bool,

    /// Limits the size of everything that brisk has learned. When it grows beyond that, brisk first deletes
    /// what has been unused for the longest time. Without this, what brisk auto limit has set counts, or 1G.
    #[arg(
        long,
        value_name = "SIZE",
        help_heading = LEARNING,
        value_parser = parse_size,
        requires = "auto"
    )]
    auto_limit: Option<u64>,

    /// With --auto and without an image: attaches to the program for 15 s at most and sees each system call of a start, however
    /// slow that makes it. BRISK_THOROUGH=1 in the environment does the same, for links of brisk auto on.
    #[arg(long, help_heading = LEARNING, requires = "auto")]
    thorough: bool,
}

/// What to do with an option that changes nothing.
const LEAVE: &str = "leave it out";

/// A [`SeenBy`] as it is written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum WhoSees {
    User,
    Program,
}

impl From<WhoSees> for SeenBy {
    fn from(who: WhoSees) -> Self {
        match who {
            WhoSees::User => Self::User,
            WhoSees::Program => Self::Program,
        }
    }
}

/// What is learned of a launch without an image.
struct Learned {
    /// The directory, if one is named.
    tree: Option<PathBuf>,
    /// The program, by the path that this process has for it.
    program: PathBuf,
    /// What tells its launches apart.
    parts: Vec<OsString>,
}

impl Learned {
    /// Whether an argument says what is launched: a script, a verb. Others name data.
    fn names(&self, argument: &OsStr) -> bool {
        let absolute = std::path::absolute(argument).unwrap_or_default();
        self.parts
            .iter()
            .any(|part| part == argument || Path::new(part) == absolute)
    }
}

/// Does not return if the program starts, unless the program is traced.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match args.image_to_audit() {
        Some(image) => {
            let located = args.locate(image)?;
            audit(args, &located)?.map_err(|error| located.explain(args, error))
        }
        None => start(args),
    }
}

/// An open image, and how its program is started.
struct LocatedImage {
    image: Image,
    /// Where it arrives, if it is on the network.
    remote: Option<OpenedRemote>,
    /// A hot pack on the network.
    hot: Option<RemoteHot>,
    /// The place that it records for its mount.
    recorded: Option<PathBuf>,
    start: Start,
}

impl LocatedImage {
    fn of(args: &Args) -> anyhow::Result<Self> {
        // This starts no thread: a process can enter a namespace only while it has one thread.
        let OpenedImage { image, remote } =
            args.verified
                .open_to_mount(args.image(), args.offset, args.kernel)?;
        let hot = match args.no_fill || args.kernel {
            true => None,
            false => {
                let (hot, keys) = (args.hot.as_deref(), || args.verified.keys());
                args.verified.remote.hot(hot, remote.as_ref(), keys)?
            }
        };
        let root = args.surroundings.root;
        let mut start = match args.command.is_empty() {
            true => {
                let arguments = [&*args.arguments, &*args.more_arguments].concat();
                let entry = args.entry_of(&image)?;
                let image = args.image();
                let called_as = args.called_as.as_deref().unwrap_or(image.as_os_str());
                let at = args.at.as_deref();
                Start::by_entry(&entry, image, called_as, &arguments, root, at)
            }
            false => Start::named(&args.command, root),
        };
        if args.at.as_deref() == Some(Path::new("/")) {
            bail!(
                "--at / would hide all of the system; to make the image the program's root directory, use --root"
            );
        }
        if start.root && args.kernel {
            bail!(
                "{}: the entry of the image makes it the root directory, which --kernel cannot; leave out --kernel, or name \
                 a place with --at DIR",
                shown(args.image())
            );
        }
        let recorded = match args.at {
            Some(_) => None,
            None if start.root => None,
            None => recorded_place(&image, "--at DIR")?,
        };
        start.directory = args.chdir.clone().or(start.directory);
        Ok(Self {
            image,
            remote,
            hot,
            recorded,
            start,
        })
    }

    fn at(&self, args: &Args) -> Option<PathBuf> {
        args.at.clone().or_else(|| self.recorded.clone())
    }

    /// The same error, with what to name instead if the image has no such program.
    fn explain(&self, args: &Args, error: brisk_launch::Error) -> anyhow::Error {
        let program = self.start.command.first().map_or(Path::new(""), Path::new);
        match self.recorded {
            Some(_) if error.kind() == ErrorKind::Place => anyhow::Error::from(error)
                .context("at the place that the image records; --at DIR names another"),
            _ if program.as_os_str().as_bytes().starts_with(b"-") => {
                anyhow::Error::from(error).context(format!(
                    "behind -- is a program; for arguments of the image's own program, put --args in its place: brisk run {} \
                     --args {}",
                    shown(args.image()),
                    shown(program)
                ))
            }
            _ => with_program(error, program, &self.image, self.start.root),
        }
    }
}

/// Starts the program, which takes the place of brisk, so this does not return then. It audits nothing
/// ([`Args::image_to_audit`]).
pub fn start(args: &Args) -> anyhow::Result<Answer> {
    let Some(image) = &args.image else {
        return run_where_it_is(args);
    };
    if !RemoteUrl::is_url(image.as_os_str()) && image.is_dir() {
        return run_directory(args, image);
    }
    let located = args.locate(image)?;
    let result = if args.kernel {
        // Opened before the mount, which may hide it.
        let profile = args
            .profile
            .as_ref()
            .map(|profile| replay::open_background(profile))
            .transpose()?;
        launch(args, &located)?.exec_after(|place| {
            if let Some(mut background) = profile {
                arrange(&mut background, args, place);
                start_or_warn(background);
            }
        })
    } else {
        let session = session(args, &located)?;
        if args.verbose {
            tell_fill(&session, located.hot.as_ref())?;
            tell_times(args.image())?;
        }
        session.exec(|notice| match notice {
            Notice::MountedForAll(place) => say(&format!(
                "the system refuses user namespaces, so the image is mounted on {}, where all your \
                 programs see it",
                place.display()
            )),
            Notice::PlaceMade(place) => tell_made(place),
            // A run of a desktop or a build has nobody to read it.
            Notice::InUserNamespace(why) if is_told(args) => tell_in_namespace(why),
            Notice::NoRoom(why) => warn(&format!(
                "the directory of sessions has no room ({why}), so no other run shares what this one has in memory; \
                 free space or inodes there"
            )),
            _ => {}
        })
    };
    match result {
        Ok(never) => match never {},
        Err(error) => Err(located.explain(args, error)),
    }
}

/// Says what it costs that `fusermount3` cannot mount the image.
pub fn tell_in_namespace(why: &brisk_launch::Error) {
    warn(&format!(
        "{}; so only the program sees the image, in a user namespace, where ssh refuses root's files and sudo gets no rights",
        with_advice(why)
    ));
}

/// Words as a shell takes them.
fn typed<'a>(words: impl Iterator<Item = &'a OsStr>) -> String {
    let words: Vec<_> = words.map(|word| shown(shell_word(word))).collect();
    words.join(" ")
}

impl Args {
    /// The image whose launch is only compared with a hot pack. The code that traces through a mount is large, and few runs need
    /// it, so only `brisk-tools` has it.
    pub fn image_to_audit(&self) -> Option<&Path> {
        let image = self.image.as_deref().filter(|_| self.audit);
        image.filter(|image| !image.is_dir())
    }

    /// Opens the image, if the options fit together.
    fn locate(&self, image: &Path) -> anyhow::Result<LocatedImage> {
        if let (Some(_), false) = (&self.profile, self.kernel) {
            bail!(
                "{}: --profile is for directories, and for an image with --kernel; make a hot pack \
                 with brisk hot --profile, and brisk run fills memory from it",
                image.display()
            );
        }
        self.refuse_lost_layer()?;
        if self.profile.is_none() && self.reading.is_given() {
            bail!("--disk and --budget need --profile, or a directory; leave them out");
        }
        if self.kernel {
            self.verified.refuse_with_kernel(image)?;
        }
        self.verified.refuse_with_others(&self.surroundings.with)?;
        let is_program = || !image.exists() && next_in_path(image.as_os_str()).is_some();
        let located = LocatedImage::of(self).map_err(|e| {
            match self.command.is_empty() && (self.auto || is_program()) {
                true => anyhow!(
                    "{e:#}; to start a program from where it is, name it behind --: brisk run --auto -- {}",
                    typed(std::iter::once(image.as_os_str()).chain(self.arguments.iter().map(OsString::as_os_str)))
                ),
                false => e,
            }
        })?;
        if let (true, Some(Some(layer))) = (self.audit, &self.writable) {
            bail!(
                "--audit traces the program and keeps nothing in {}; give --writable without a directory, or leave out --audit",
                shown(layer)
            );
        }
        Ok(located)
    }

    /// A directory behind `--writable` without an equals sign would be an argument of the image's program, and what the program
    /// writes would be lost.
    fn refuse_lost_layer(&self) -> anyhow::Result<()> {
        let given: Vec<_> = own_arguments().collect();
        let behind = given.windows(2).find_map(|two| match two {
            [option, word] if option == "--writable" => Some(word),
            _ => None,
        });
        let Some(word) = behind.filter(|word| self.arguments.contains(word)) else {
            return Ok(());
        };
        let word = shown(shell_word(word));
        bail!(
            "--writable {word}: to keep in a directory what the program writes, say --writable={word}; to give the program this \
             argument, put --args before it"
        )
    }
}

/// Starts the program from a directory, in place.
fn run_directory(args: &Args, directory: &Path) -> anyhow::Result<Answer> {
    let named = directory.display();
    if args.command.is_empty() {
        bail!(
            "{named} is a directory, which starts no program by itself: name one behind --, as in brisk run {named} --auto \
             -- bin/app"
        );
    }
    args.refuse_or_ignore(&format!("{named} is a directory"))?;
    // An absolute path, for a program that changes its directory.
    let tree = std::path::absolute(directory).context("cannot resolve the directory's name")?;
    let launch = direct_launch(args, &tree);
    if let Some(profile) = &args.profile {
        let mut background = replay::open_background(profile)?;
        arrange(&mut background, args, &tree);
        start_or_warn(background);
        match launch.exec()? {}
    }
    if !args.auto {
        bail!(
            "{named} is a directory: name its profile with --profile (brisk trace --tree {named} \
             records one), or let the first run record one with --auto"
        );
    }
    let canonical = directory
        .canonicalize()
        .context("cannot resolve the directory's name")?;
    let (program, arguments) = match args.command.split_first() {
        Some((program, arguments)) => (program.as_os_str(), arguments),
        None => (OsStr::new(""), &[][..]),
    };
    let in_tree = match args.surroundings.root {
        true => Path::new(program)
            .strip_prefix("/")
            .map_or(program, Path::as_os_str),
        false => program,
    };
    let mut parts = launch_name::parts(&named_in(&canonical, in_tree), arguments);
    if args.surroundings.root {
        // Its names are of another root directory. No program has this name.
        parts.insert(0, "--root".into());
    }
    let learned = Learned {
        program: named_in(&canonical, in_tree),
        tree: Some(canonical),
        parts,
    };
    learn_or_replay(args, &launch, learned)
}

fn direct_launch(args: &Args, tree: &Path) -> DirectLaunch {
    if args.surroundings.root {
        let mut launch = RootedLaunch::new(tree, args.command.clone());
        launch.binds.clone_from(&args.surroundings.bind);
        launch.writable = args.writable.is_some();
        launch.directory.clone_from(&args.chdir);
        return DirectLaunch::Rooted(launch);
    }
    let mut launch = PlainLaunch::new(args.command.clone());
    launch.tree = Some(tree.to_owned());
    launch.directory.clone_from(&args.chdir);
    DirectLaunch::Plain(launch)
}

/// The path of a program that is named in one of several ways, if it is in the directory: `bin/x`, `./bin/x`, and the whole
/// path are one. Any other name stays what it is.
fn named_in(directory: &Path, program: &OsStr) -> PathBuf {
    let program = Path::new(program);
    let inside = program.strip_prefix(directory).unwrap_or(program);
    let inside: PathBuf = inside
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .collect();
    match directory.join(&inside).is_file() {
        true => directory.join(inside),
        false => program.to_owned(),
    }
}

/// Starts the program where it is.
fn run_where_it_is(args: &Args) -> anyhow::Result<Answer> {
    args.refuse_or_ignore("none is named")?;
    let mut launch = PlainLaunch::new(args.command.clone());
    launch.directory.clone_from(&args.chdir);
    let program = launch.program()?;
    if gives_rights(&program) {
        if args.verbose {
            say(&format!(
                "{} gets more rights than you have, so brisk learns nothing of it",
                program.display()
            ));
        }
        match exec_plain(&launch)? {}
    }
    let arguments = args.command.get(1..).unwrap_or_default();
    let learned = Learned {
        tree: None,
        parts: launch_name::parts(&program, arguments),
        program,
    };
    learn_or_replay(args, &DirectLaunch::Plain(launch), learned)
}

/// Replays what was learned, or has the launch observed. The program starts whatever fails of that.
fn learn_or_replay(args: &Args, launch: &DirectLaunch, learned: Learned) -> anyhow::Result<Answer> {
    let Some(learning) = learning(args) else {
        match launch.exec()? {}
    };
    // In another root directory, the names are others.
    let has_names = matches!(launch, DirectLaunch::Plain(_)) && !args.reading.is_given();
    let planned = LearnedPacks::open(&learning.packs).and_then(|packs| {
        let key = match &learned.tree {
            Some(tree) => packs.key_of_directory(tree, &learned.parts),
            None => packs.key_of_launch(&learned.parts),
        }?;
        let plan = packs.plan_start(&key, &learned.program, has_names);
        Ok((plan, packs, key))
    });
    let (plan, packs, key) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            tell_unlearned(args, &error);
            match launch.exec()? {}
        }
    };
    let (known, look, is_learning) = match plan {
        StartPlan::Replay(known, look) => (Some(Arc::new(known)), look, false),
        StartPlan::ReplayAndObserve(known, look) => (Some(Arc::new(known)), look, true),
        StartPlan::Observe => (None, None, true),
        StartPlan::LeaveAlone(_) | StartPlan::InMemory => {
            if args.verbose {
                say(match plan {
                    StartPlan::LeaveAlone(LeftAlone::Short) => {
                        "the disk gives all that this program reads in so short a time that a replay gains nothing; brisk auto \
                         forget has it observed again"
                    }
                    StartPlan::LeaveAlone(_) => {
                        "this program reads so little that a replay gains nothing; brisk auto forget has it observed again"
                    }
                    _ => "what this program reads seems to be in memory; nothing is replayed",
                });
            }
            match launch.exec()? {}
        }
    };
    if let Some(known) = &known {
        let known = Arc::clone(known);
        let mut background = match is_learning {
            // Only a replay of all that is to be learned tells whether that is enough.
            true => BackgroundReplay::of_learned(known),
            false => known_launch::replay_of(known, learning.packs.clone(), key.clone()),
        };
        background.look = look;
        background.at = launch.places();
        args.reading.apply(&mut background);
        background.report = args.verbose.then_some(replay::summary);
        start_or_warn(background);
    }
    match is_learning {
        true => observe(args, launch, packs, key, learned, learning.limit, known),
        false => match launch.exec()? {},
    }
}

/// Becomes the program, which another process observes. `known` is what is replayed meanwhile.
fn observe(
    args: &Args,
    launch: &DirectLaunch,
    packs: LearnedPacks,
    key: String,
    learned: Learned,
    limit: u64,
    known: Option<Arc<LearnedLaunch>>,
) -> anyhow::Result<Answer> {
    let secret = match leave_first_process().and_then(|()| packs.secret()) {
        Ok(secret) => secret,
        Err(error) => {
            tell_unlearned(args, &error);
            match launch.exec()? {}
        }
    };
    // Where nothing can be locked, whoever forgets does not wait for this launch.
    let held = packs.observing().ok().map(Arc::new);
    let observed_launch = ObservedLaunch {
        key,
        of: match learned.tree {
            Some(_) => LearnedOf::Directory,
            None => LearnedOf::Program,
        },
        name: learned
            .tree
            .clone()
            .unwrap_or_else(|| learned.program.clone()),
        command: launch_name::shown(&learned.parts),
        is_anew: known.is_none(),
        charge: args.reading.charge(),
    };
    let mut plan = Observe::new();
    plan.every_call =
        args.thorough || std::env::var_os("BRISK_THOROUGH").is_some_and(|value| !value.is_empty());
    if plan.every_call && is_traced() {
        // It is observed with the program that has started it.
        match launch.exec()? {}
    }
    plan.arguments = launch.command().iter().skip(1).cloned().collect();
    plan.arguments.retain(|argument| !learned.names(argument));
    // In another root directory, the packs may have no path.
    plan.held = std::iter::once(packs.handle())
        .chain(held.clone())
        .collect();
    let is_again = known.is_some();
    plan.known = known;
    plan.secret = secret;
    // In the other process, which can tell nobody. If something cannot be written, the next launch is observed again.
    let keep = move |observed: Observed| {
        // Measures the disk now, because the next run has no time for it. If it cannot be measured, brisk takes
        // what is usual for a disk of its kind.
        let replay = Replay::new(observed.profile.clone(), &[], observed_launch.charge);
        replay.and_then(|replay| replay.measure(false)).ok();
        packs.keep_launch(&observed_launch, &observed, limit).ok();
        if let Some(held) = held {
            LearnedPacks::has_observed(&held);
        }
    };
    let every_call = plan.every_call;
    let start = || match plan.start(keep) {
        Ok(()) if is_told(args) => say(match (is_again, every_call) {
            (_, true) => {
                "brisk attaches to this program and sees each of its calls, which makes this start slow, and the next one faster"
            }
            (false, _) => "brisk observes this start, and makes the next one faster",
            (true, _) => "brisk observes this start, too: it has not seen all of the earlier ones",
        }),
        Ok(()) => {}
        Err(error) => tell_unlearned(args, &error),
    };
    match launch.exec_after(start)? {}
}

/// Whether brisk says what it does. Without -v and a terminal it does not: a build would take the line for an error of the
/// program.
fn is_told(args: &Args) -> bool {
    args.verbose || std::io::stderr().is_terminal()
}

/// Says that nothing is learned, and why. The program starts all the same. If an image or a directory is named, brisk says so
/// in any case.
fn tell_unlearned(args: &Args, error: &brisk_launch::Error) {
    if args.image.is_some() || is_told(args) {
        warn(&format!("{}; nothing is learned", with_advice(error)));
    }
}

/// Whether another process traces this one.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// The answer after running a program that has ended.
fn exited(status: Option<ExitStatus>) -> Answer {
    let code = status.and_then(|s| s.code().or_else(|| Some(128 + s.signal()?)));
    Answer::Exited(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125))
}

fn arrange(background: &mut BackgroundReplay, args: &Args, place: &Path) {
    background.at = vec![place.to_owned()];
    args.reading.apply(background);
    background.report = args.verbose.then_some(replay::summary);
}

impl Args {
    /// Opens the image of a URL, as these options say.
    pub fn open_url(&self, url: &Path) -> anyhow::Result<Image> {
        self.verified.open(url, None)
    }

    /// The directory that keeps what programs write, if one is named.
    pub fn layer(&self) -> Option<&Path> {
        self.writable.as_ref()?.as_deref()
    }

    /// Why starts of `image` by its entry would fail on this machine for want of its place, and what to do. None if they
    /// would not.
    pub fn lacks_place(&self, image: &Image, entry: &Entry) -> Option<String> {
        let start = Start::by_entry(
            entry,
            Path::new(""),
            OsStr::new(""),
            &[],
            self.surroundings.root,
            self.at.as_deref(),
        );
        // A relative place counts from where the launcher is started.
        if start.root || self.at.as_deref().is_some_and(Path::is_relative) {
            return None;
        }
        let found = || -> anyhow::Result<_> {
            let recorded = match self.at {
                Some(_) => None,
                None => recorded_place(image, "--at DIR")?,
            };
            let place = self.at.clone().or(recorded);
            Ok(place
                .as_deref()
                .map(MissingPlace::of)
                .transpose()?
                .flatten())
        };
        let missing = match found() {
            Ok(found) => found?,
            Err(error) => return Some(format!("{error:#}")),
        };
        let needs = match self.seen_by {
            Some(WhoSees::User) => "--seen-by user",
            _ if self.kernel => "--kernel",
            _ => return None,
        };
        Some(format!(
            "{} does not exist, and {needs} needs a directory that does; make the directory first, or leave out {needs}",
            shown(missing.path())
        ))
    }

    /// The image. Empty if none is named.
    fn image(&self) -> &Path {
        self.image.as_deref().unwrap_or(Path::new(""))
    }

    /// How the image starts its program by itself.
    fn entry_of(&self, image: &Image) -> anyhow::Result<Entry> {
        let given = self.arguments.first().or(self.more_arguments.first());
        let given = given.map(PathBuf::from);
        Entry::of(image)?.map_err(|why| why.to_error(self.image(), given.as_deref(), "run"))
    }

    /// Refuses options that are only for images. With --auto, options that say only how an image is filled are ignored with a
    /// warning: a program starts whether or not brisk can make that faster. Others say what the program sees, so without them
    /// it would be another launch.
    fn refuse_or_ignore(&self, why: &str) -> anyhow::Result<()> {
        if let Some((option, instead)) = self.seen_of_images() {
            bail!("{option} is only for images, and {why}; {instead}");
        }
        for (option, instead) in self.fills_of_images() {
            if !self.auto {
                bail!("{option} is only for images, and {why}; {instead}");
            }
            warn(&format!(
                "{option} is only for images, and {why}; it is ignored"
            ));
        }
        Ok(())
    }

    /// The first option that is only for images and says what the program sees, and what to do instead.
    fn seen_of_images(&self) -> Option<(&'static str, &'static str)> {
        let is_directory = self.image.is_some();
        let in_root = is_directory && self.surroundings.root;
        let pack = "pack it with brisk pack, and run the image";
        let surroundings = &self.surroundings;
        let verify = self.verified.given();
        let options = [
            ("--offset", self.offset.is_some(), LEAVE),
            ("--at", self.at.is_some(), pack),
            ("--root", surroundings.root && !is_directory, LEAVE),
            ("--bind", !surroundings.bind.is_empty() && !in_root, pack),
            ("--with", !surroundings.with.is_empty(), pack),
            ("--writable=DIR", self.layer().is_some(), pack),
            ("--writable", self.writable.is_some() && !in_root, pack),
            (verify.unwrap_or("--verify"), verify.is_some(), pack),
            ("--audit", self.audit, pack),
            ("--seen-by", self.seen_by.is_some(), LEAVE),
        ];
        let given = options.into_iter().find(|(_, given, _)| *given);
        given.map(|(option, _, instead)| (option, instead))
    }

    /// The options that are only for images and change nothing but speed, and what to do instead.
    fn fills_of_images(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let profile = "name its profile with --profile";
        let options = [
            ("--linger", self.linger.is_some(), LEAVE),
            ("--hot", self.hot.is_some(), profile),
            ("--no-fill", self.no_fill, LEAVE),
            (
                "--fill-budget",
                self.fill_budget.is_some(),
                "limit it with --budget",
            ),
            ("--kernel", self.kernel, LEAVE),
        ];
        let given = options.into_iter().filter(|(_, given, _)| *given);
        given.map(|(option, _, instead)| (option, instead))
    }
}

fn launch(args: &Args, located: &LocatedImage) -> anyhow::Result<Launch> {
    let file = match &located.remote {
        Some(remote) => whole_file(remote)?,
        None => args.image().to_owned(),
    };
    let mut launch = Launch::new(file, located.start.command.clone());
    launch.at = located.at(args);
    launch.directory.clone_from(&located.start.directory);
    launch.variables.clone_from(&located.start.variables);
    launch.options = mount::options(&located.image);
    Ok(launch)
}

fn session(args: &Args, located: &LocatedImage) -> anyhow::Result<Session> {
    // A session that exists already would not look at it.
    let named = args.hot.as_deref().filter(|_| located.hot.is_none());
    named.map(check_hot_pack).transpose()?;
    let image = &located.image;
    let name = match &located.remote {
        Some(remote) => Path::new(&remote.entry.about.url),
        None => args.image(),
    };
    let mut first = SessionImage::new(name);
    first.offset = image.offset();
    first.verity = image.verified().map(|file| file.verity());
    first.at = located.at(args);
    first.remote = located.remote.as_ref().map(OpenedRemote::remote);
    if let Some(UsedHot::Signed(pack)) = located.hot.as_ref().map(|hot| &hot.used) {
        first.pack = Some(pack.clone());
    }
    let mut session = Session::new(first, located.start.command.clone());
    let others = args.verified.of_others();
    session.with = args.surroundings.with(|path| {
        let OpenedImage { image, remote } = others.open_to_mount(path, None, false)?;
        let mut with = match &remote {
            Some(remote) => SessionImage::new(&remote.entry.about.url),
            None => SessionImage::new(path),
        };
        with.remote = remote.map(|remote| remote.remote());
        Ok((with, image))
    })?;
    session.root = located.start.root;
    session.binds.clone_from(&args.surroundings.bind);
    session.writable = args.writable.is_some();
    session.layer = args.writable.clone().flatten();
    session.directory.clone_from(&located.start.directory);
    session.variables.clone_from(&located.start.variables);
    session.linger = args.linger.unwrap_or(session.linger);
    session.seen_by = args.seen_by.map(SeenBy::from);
    session.fill = fill(args, located.hot.as_ref());
    Ok(session)
}

fn fill(args: &Args, remote: Option<&RemoteHot>) -> Option<SessionFill> {
    if args.no_fill || args.kernel {
        return None;
    }
    let mut fill = SessionFill::default();
    (fill.hot, fill.hot_is_list) = match remote.map(|remote| &remote.used) {
        Some(UsedHot::List { path, .. }) => (Some(path.clone()), true),
        Some(UsedHot::Signed(_)) => (None, false),
        None => (args.hot.clone(), false),
    };
    fill.budget = args.fill_budget;
    fill.threads = args.fill_threads;
    fill.log.clone_from(&args.fill_log);
    fill.learning = if args.auto { learning(args) } else { None };
    Some(fill)
}

/// None, with a warning, if there is no place for what is learned: the program starts all the same.
fn learning(args: &Args) -> Option<Learning> {
    let opened = LearnedPacks::path_of_user().and_then(|packs| {
        let opened = LearnedPacks::open(&packs)?;
        // What is wrong with the one that is set, brisk auto limit says.
        let set = || opened.limit().ok().flatten();
        Ok((packs, args.auto_limit.or_else(set)))
    });
    match opened {
        Ok((packs, limit)) => Some(Learning::new(packs, limit.unwrap_or(LEARNED_LIMIT))),
        Err(error) => {
            tell_unlearned(args, &error);
            None
        }
    }
}

/// Says what will be filled, as far as that is known beforehand. `remote`: a hot pack on the network.
fn tell_fill(session: &Session, remote: Option<&RemoteHot>) -> anyhow::Result<()> {
    if session.fill.is_none() {
        return Ok(());
    }
    let plan = session.plan_fill()?;
    match &plan.pack {
        Some(Ok(pack)) => {
            say(&format!(
                "a new session fills {} from its {}hot pack; brisk stat shows the progress",
                count(pack.data_len(), "byte", "bytes"),
                if plan.learned { "learned " } else { "" }
            ));
            let fill = session.fill.as_ref();
            let is_named = fill.is_some_and(|fill| fill.hot.is_some());
            if plan.is_compared && is_named {
                say(
                    "--hot names this hot pack: nobody compares its pages with the image before programs get them",
                );
            }
            if let Some(remote) = remote {
                match &remote.used {
                    UsedHot::Signed(_) => say(
                        "a trusted key has signed this hot pack: the session reads its pages from it, and compares each block with \
                         its hash tree",
                    ),
                    UsedHot::List { why, .. } => say(&format!(
                        "only the list of pages of this hot pack is used, and the session reads them from the image: {why}"
                    )),
                }
            } else if !plan.is_compared && session.image.verity.is_some() {
                say(
                    "the hash tree of the image does not cover this hot pack: the session reads its pages from the image",
                );
            } else if !plan.is_compared {
                say(
                    "anybody may have made this hot pack: the session reads its pages from the image, and compares the \
                     two after the launch; name the pack with --hot if you trust it",
                );
            }
        }
        Some(Err(_)) | None if plan.learns => {
            say("there is no usable hot pack: a new session learns one from this run");
        }
        Some(Err(error)) => say(&with_advice(error)),
        None => say("there is no hot pack: nothing is filled"),
    }
    Ok(())
}

/// Says how long requests took that the sessions of the image have answered so far.
fn tell_times(image: &Path) -> anyhow::Result<()> {
    for session in sessions()?.iter().filter(|session| session.is_about(image)) {
        for image in &session.images {
            say(&format!(
                "{} on {}",
                shown(&image.path),
                shown(&image.place)
            ));
            for line in stat::operation_lines(image) {
                say(&line);
            }
        }
    }
    Ok(())
}

/// Traces the program, and compares what it asked for with the hot pack that a session would fill. The inner
/// error says that the program could not be started.
fn audit(
    args: &Args,
    located: &LocatedImage,
) -> anyhow::Result<Result<Answer, brisk_launch::Error>> {
    let session = session(args, located)?;
    let pack = match session.plan_fill()?.pack {
        Some(pack) => pack?,
        None => bail!(
            "{}: there is no hot pack to audit; make one with brisk hot, or run the image with --auto \
             first",
            args.image().display()
        ),
    };
    let mut trace = Trace::new(session.command);
    trace.image = Some(session.image);
    trace.with = session.with;
    trace.root = session.root;
    trace.binds = session.binds;
    trace.writable = session.writable;
    trace.seen_by = session.seen_by;
    trace.directory = session.directory;
    trace.variables = session.variables;
    if !trace.root {
        tell_made_of(trace.image.iter().chain(&trace.with));
    }
    let traced = trace.record(|notice| {
        if let Notice::InUserNamespace(why) = notice {
            tell_in_namespace(why);
        }
    });
    let traced = match traced {
        Ok(traced) => traced,
        Err(error) => return Ok(Err(error)),
    };
    // The image is the first root.
    let audit = traced.profile.audit(0, &pack);
    if args.json {
        // Printed without `say`, which would write escapes that JSON does not know. If standard error is
        // closed, there is no other place to say so.
        writeln!(
            std::io::stderr().lock(),
            "{}",
            serde_json::to_string(&audit)?
        )
        .ok();
    } else {
        for line in audit_lines(&audit) {
            say(&line);
        }
    }
    Ok(Ok(exited(traced.status)))
}

/// The result of an audit, for people.
fn audit_lines(audit: &Audit) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, found) in [("pages", audit.pages), ("look-ups", audit.look_ups)] {
        let (asked, in_pack) = (found.asked(), found.in_pack());
        lines.push(format!(
            "{what}: of {asked} asked for, {} are in the hot pack ({}) and {} are not; of {in_pack} in \
             the pack, {} are useless ({})",
            found.used,
            percent(found.used, asked),
            found.missed,
            found.useless,
            percent(found.useless, in_pack)
        ));
    }
    if !audit.files.is_empty() {
        lines.push(format!(
            "  {:>10}{:>10}{:>10}  path",
            "useless", "missed", "used"
        ));
    }
    for AuditedFile { path, pages, .. } in audit.files.iter().take(WORST) {
        let Audited {
            useless,
            missed,
            used,
            ..
        } = pages;
        lines.push(format!(
            "  {useless:>10}{missed:>10}{used:>10}  {}",
            shown(path)
        ));
    }
    if let Some(more) = audit.files.len().checked_sub(WORST + 1) {
        let more = count(more as u64 + 1, "more file", "more files");
        lines.push(format!("  and {more}"));
    }
    lines
}

/// The exit code for a failure of [`run`].
pub fn exit_code(e: &anyhow::Error) -> u8 {
    let hinted = e.downcast_ref().map(|hinted: &HintedError| &hinted.error);
    let error = e.downcast_ref::<brisk_launch::Error>().or(hinted);
    error.map_or(125, brisk_launch::Error::exit_code)
}
