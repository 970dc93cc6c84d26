//! `brisk auto`: the hot packs and profiles that `brisk run --auto` has learned.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{self, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, ensure};
use brisk_image::profile::{Profile, ProfileFile};
use brisk_launch::{
    DiskCharge, LEARNED_LIMIT, LearnedOf, LearnedPack, LearnedPacks, LeftAlone, Replay, budget,
    warm,
};
use brisk_terminal::answer::{Answer, FAILED};
use brisk_terminal::fields::Fields;
use brisk_terminal::messages::{count, moment, say, warn};
use brisk_terminal::names::shown;
use brisk_terminal::size::parse_size;
use clap::Subcommand;
use indicatif::BinaryBytes;
use rustix::fs::statvfs;
use serde::Serialize;

use super::profile::percent;
use super::replay::summary;
use super::warm::summary as warm_summary;
use crate::advice::with_advice;
use crate::desktop_entries::{self, Entry, data_of_user};
use crate::json;
use crate::launcher::beside;
use crate::program_links::{LINKS, is_link_to_brisk, next_in_path};

/// How long to wait for observers without a word, and how long then. What a launch that has just ended has read is written
/// down in a moment. One that goes on is observed for 15 s at most.
const AT_ONCE: Duration = Duration::from_millis(500);
const OBSERVERS: Duration = Duration::from_secs(20);

/// What to do with learned hot packs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A learned hot pack belongs to an image and to the place where it was mounted. A learned profile belongs to a \
directory and a program, or to a program alone. brisk keeps both in $XDG_CACHE_HOME/brisk/hot, or else in \
~/.cache/brisk/hot.\n\n\
brisk auto on makes a link to brisk with the name of a program, in $XDG_DATA_HOME/brisk/bin, or else in \
~/.local/share/brisk/bin. With that directory first in PATH, each start of the program is one by brisk run --auto. The \
link starts the next program of its name in PATH. It also copies entries of the desktop's menus that start the program to \
$XDG_DATA_HOME/applications, with the link in place of the program. brisk auto off removes both.\n\n\
Examples:\n  \
  brisk auto on libreoffice gcc git\n  \
  brisk auto list\n  \
  brisk auto limit 500M\n  \
  brisk auto replay --budget 1G\n  \
  brisk auto off git")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists what brisk has learned, the last used first, and the links of brisk auto on. Exits with 1 if nothing is learned.
    List(ListArgs),
    /// Forgets what brisk has learned about an image, a directory or a program, or everything. Exits with 1 if there is
    /// nothing.
    Forget(ForgetArgs),
    /// Says how many bytes everything that brisk has learned may take, or sets that. What was unused for the longest time goes
    /// first.
    Limit(LimitArgs),
    /// Reads into memory what was learned of programs that were used lately, the last used first, and waits for it: profiles,
    /// and the hot packs of images. A unit for systemd does so at login. Exits with 1 if there is nothing.
    Replay(ReplayArgs),
    /// Makes programs faster under their own names: puts links to brisk into a directory for PATH.
    On(LinkArgs),
    /// Removes links that brisk auto on has made.
    Off(LinkArgs),
}

#[derive(Debug, clap::Args)]
struct LinkArgs {
    /// Names of programs in PATH.
    #[arg(required = true, value_name = "PROGRAM")]
    programs: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ForgetArgs {
    /// The image, directory or program, which need not exist any more. A name without a slash is looked up in PATH, too.
    #[arg(value_name = "IMAGE|DIR|PROGRAM")]
    image: Option<PathBuf>,

    /// Forgets everything.
    #[arg(long, conflicts_with = "image")]
    all: bool,
}

#[derive(Debug, clap::Args)]
struct ReplayArgs {
    /// How many days ago a program was used at most.
    #[arg(long, value_name = "DAYS", default_value_t = 3)]
    days: u32,

    /// Reads at most this many bytes, and never more than half of the free memory. [default: everything]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget: Option<u64>,

    /// Prints nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// The bytes that the record of a large program takes.
const ROOM: u64 = 128 << 10;

/// The least [`LimitArgs::size`] that needs no unit.
const LEAST_WITHOUT_UNIT: u64 = 64 << 10;

#[derive(Debug, clap::Args)]
struct LimitArgs {
    /// The new limit: a number of bytes, or with K, M or G behind it of KiB, MiB or GiB.
    #[arg(value_parser = limit_of)]
    size: Option<u64>,

    /// Goes back to 1G.
    #[arg(long, conflicts_with = "size")]
    default: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match &args.action {
        Action::On(args) => return on(&args.programs),
        Action::Off(args) => return off(&args.programs),
        _ => {}
    }
    let packs = LearnedPacks::open(&LearnedPacks::path_of_user()?)?;
    match &args.action {
        Action::List(args) => {
            packs.wait_for_observers(AT_ONCE);
            list(&packs.list()?, args.json)
        }
        Action::Forget(args) => {
            ensure!(
                args.all || args.image.is_some(),
                "name what to forget, or say --all for everything; brisk auto list shows what is learned"
            );
            forget(&packs, args.image.as_deref())
        }
        Action::Limit(args) => limit(&packs, args),
        Action::Replay(args) => {
            packs.wait_for_observers(AT_ONCE);
            replay(&packs, args)
        }
        Action::On(_) | Action::Off(_) => Ok(Answer::Yes),
    }
}

/// Reads what was used lately. What cannot be read is left out.
fn replay(packs: &LearnedPacks, args: &ReplayArgs) -> anyhow::Result<Answer> {
    let lately = Duration::from_secs(86_400) * args.days;
    // Once for all: what was read counts as free memory again.
    let mut left = budget(args.budget);
    let mut answer = Answer::No;
    for pack in packs.list()? {
        // A clock that was wrong may have written times of the future.
        let age = pack.used.elapsed().unwrap_or_default();
        if age > lately {
            continue;
        }
        let read = match pack.of {
            LearnedOf::Image => warm_pack(packs, &pack, left),
            _ => replay_profile(packs, &pack, left),
        };
        let Some(read) = read else {
            continue;
        };
        answer = Answer::Yes;
        let name = pack.image.as_deref().unwrap_or(Path::new(""));
        match read {
            Ok((asked, summary)) => {
                left = left.saturating_sub(asked);
                if !args.quiet {
                    writeln!(io::stdout(), "{}: {summary}", shown(name))?;
                }
            }
            Err(error) => warn(&format!("{}: {}", shown(name), with_advice(&error))),
        }
        if left == 0 {
            break;
        }
    }
    if answer == Answer::No && !args.quiet {
        say(
            "nothing was learned of a program that was used lately; brisk auto list shows what is learned",
        );
    }
    Ok(answer)
}

/// How many bytes were asked for, and what is said about it.
type ReadAhead = brisk_launch::Result<(u64, String)>;

/// Reads the learned hot pack of an image, at most `budget` bytes of it. None if there is none, or if the image has gone or
/// changed since the pack was used: the next session makes one.
fn warm_pack(packs: &LearnedPacks, pack: &LearnedPack, budget: u64) -> Option<ReadAhead> {
    let image = pack.image.as_deref()?.metadata().ok()?;
    if image.modified().ok()? > pack.used {
        return None;
    }
    let (path, file) = packs.pack(&pack.key)?;
    let len = file.metadata().ok()?.len();
    let warmed = warm(vec![(path, len)], Some(budget));
    Some(warmed.map(|warmed| (warmed.pages.asked, warm_summary(len, &warmed))))
}

/// Replays what was learned of a program or a directory, at most `budget` bytes of it. None if there is no profile.
fn replay_profile(packs: &LearnedPacks, pack: &LearnedPack, budget: u64) -> Option<ReadAhead> {
    let profile = packs.profile_of(&pack.key)?;
    let directory = pack.image.as_deref().unwrap_or(Path::new(""));
    let places = places_of(pack.of, directory, &profile);
    let replay = Replay::new(profile, &places, DiskCharge::default());
    let replayed = replay.and_then(|mut replay| {
        replay.budget = Some(budget);
        // There is no program to race.
        replay.race = false;
        replay.run()
    });
    Some(replayed.map(|replayed| (replayed.pages.asked, summary(&replayed))))
}

/// So many files tell in which of two places they are.
const COMPARED: usize = 16;

/// Where the files of a profile are, if not where it says: below a directory that was the root directory of its launches.
fn places_of(of: LearnedOf, directory: &Path, profile: &Profile) -> Vec<PathBuf> {
    if of != LearnedOf::Directory {
        return Vec::new();
    }
    let is_in = |root: &Path, file: &ProfileFile| {
        let found = root.join(&file.path).metadata();
        found.is_ok_and(|found| found.len() == file.len)
    };
    let (mut recorded, mut below) = (0, 0);
    for file in profile.files().iter().take(COMPARED) {
        let root = profile.roots().get(file.root as usize);
        recorded += usize::from(root.is_some_and(|root| is_in(&root.path, file)));
        below += usize::from(is_in(directory, file));
    }
    match below > recorded {
        true => vec![directory.to_owned()],
        false => Vec::new(),
    }
}

/// Makes links of these names to brisk, and entries of menus that start them.
fn on(programs: &[OsString]) -> anyhow::Result<Answer> {
    let data = data_of_user()?;
    let links = data.join(LINKS);
    let brisk = beside("brisk").context("cannot find brisk's own file")?;
    fs::create_dir_all(&links).with_context(|| format!("cannot make {}", shown(&links)))?;
    let mut answer = Answer::Yes;
    for program in programs {
        if let Err(error) = link(program, &brisk, &links, &data) {
            say(&format!("brisk: {error:#}"));
            answer = Answer::Exited(FAILED);
        }
    }
    if !linked_in(&links).is_empty() && !is_first_in_path(&links) {
        say(&format!(
            "put its directory first in PATH, for example in ~/.profile: export PATH={}:\"$PATH\"",
            shown(&links)
        ));
    }
    Ok(answer)
}

/// Makes the link of a program, and entries of menus that start it.
fn link(program: &OsStr, brisk: &Path, links: &Path, data: &Path) -> anyhow::Result<()> {
    let name = name_of(program)?;
    let real = next_in_path(name)
        .with_context(|| format!("{}: there is no such program in PATH", shown(name)))?;
    let named = Path::new(program);
    ensure!(
        named == Path::new(name) || named.canonicalize().ok() == real.canonicalize().ok(),
        "{}: the link would start {}, which is the first of this name in PATH; put {} before it in PATH, or name that one",
        shown(program),
        shown(&real),
        shown(named.parent().unwrap_or(named))
    );
    let link = links.join(name);
    if link.symlink_metadata().is_ok() {
        ensure!(
            is_link_to_brisk(&link),
            "{}: is there already, and is no link to brisk; move it away",
            shown(&link)
        );
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", shown(&link)))?;
    }
    symlink(brisk, &link).with_context(|| format!("cannot make {}", shown(&link)))?;
    say(&format!(
        "{} now starts {} faster",
        shown(&link),
        shown(&real)
    ));
    for entry in desktop_entries::make(name, &real, &link, data)? {
        match entry {
            Entry::Made(file) => say(&format!("{} starts it from menus", shown(&file))),
            Entry::IsOfUser(file) => say(&format!(
                "{}: is an entry of your own, and is left as it is",
                shown(&file)
            )),
        }
    }
    if let Some(home) = home_of_jdk(&real) {
        warn(&format!(
            "scripts that find the JDK by `readlink -f` of {} find brisk now; set JAVA_HOME={}",
            shown(name),
            shown(home)
        ));
    }
    Ok(())
}

/// The directory of the JDK that a program belongs to: it has a file `release`, and programs in `bin`.
fn home_of_jdk(program: &Path) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let home = real.parent()?.parent()?;
    let is_jdk = home.join("release").is_file() && home.join("bin/java").is_file();
    is_jdk.then(|| home.to_owned())
}

/// Removes links of these names, and entries of menus that start them.
fn off(programs: &[OsString]) -> anyhow::Result<Answer> {
    let data = data_of_user()?;
    let links = data.join(LINKS);
    let mut answer = Answer::Yes;
    for program in programs {
        let name = name_of(program)?;
        desktop_entries::remove(name, &data)?;
        let link = links.join(name);
        if is_link_to_brisk(&link) {
            fs::remove_file(&link).with_context(|| format!("cannot remove {}", shown(&link)))?;
        } else {
            say(&format!("{}: brisk auto on has not made it", shown(&link)));
            answer = Answer::No;
        }
    }
    Ok(answer)
}

/// The name of a program, which may be given as a path.
fn name_of(program: &OsStr) -> anyhow::Result<&OsStr> {
    let name = Path::new(program).file_name();
    name.filter(|name| !name.as_bytes().starts_with(b"brisk"))
        .with_context(|| {
            format!(
                "{}: is no name of a program other than brisk",
                shown(program)
            )
        })
}

fn list(packs: &[LearnedPack], json: bool) -> anyhow::Result<Answer> {
    let links = Links::of_user();
    if json {
        json::print(&ListJson {
            learned: packs.iter().map(LearnedJson::of).collect(),
            linked: links.as_ref().map(Links::to_json),
        })?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for pack in packs {
            print(&mut out, pack)?;
        }
        if let Some(links) = links {
            links.print(&mut out)?;
        }
        out.flush()?;
        if packs.is_empty() {
            say("nothing is learned yet; brisk run --auto -- PROGRAM learns from a start");
        }
        if let Some(path) = LearnedPacks::path_of_user()
            .ok()
            .filter(|path| is_full(path))
        {
            warn(&format!(
                "{} lies on a disk that is full, so brisk learns nothing more; free space or inodes there",
                shown(path)
            ));
        }
    }
    Ok(match packs.is_empty() {
        true => Answer::No,
        false => Answer::Yes,
    })
}

/// Whether the filesystem of a directory has no room for one more record.
fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|found| {
        let is_limited = found.f_files > 0;
        found.f_bavail.saturating_mul(found.f_frsize) < ROOM || (is_limited && found.f_favail == 0)
    })
}

fn print(out: &mut impl Write, pack: &LearnedPack) -> anyhow::Result<()> {
    let mut fields = Fields::new(out, 12);
    match (&pack.image, &pack.place) {
        (Some(name), _) if pack.of == LearnedOf::Directory => {
            fields.line(format_args!("{}, a directory", shown(name)))?;
        }
        (Some(name), _) if pack.of == LearnedOf::Program => {
            fields.line(format_args!("{}, a program", shown(name)))?;
        }
        (Some(image), Some(place)) => {
            fields.line(format_args!("{} on {}", shown(image), shown(place)))?;
        }
        (Some(image), None) => fields.line(shown(image))?,
        (None, _) => fields.line(format_args!("{}: of an unknown image", shown(&pack.key)))?,
    }
    fields.add("state", state(pack).1)?;
    if let Some(start) = pack.last_start.filter(|start| start.all() > 0) {
        let (read, first) = match pack.of {
            LearnedOf::Image => ("read", "filled"),
            _ => ("read from the disk", "asked for"),
        };
        fields.add(
            "gain",
            format_args!(
                "of {} that its last start {read}, brisk {first} {} first ({})",
                BinaryBytes(start.all()),
                BinaryBytes(start.ahead),
                percent(start.ahead, start.all())
            ),
        )?;
    }
    match pack.pages {
        Some(pages) => fields.add("pages", pages)?,
        None => fields.add("pages", "none")?,
    }
    fields.add(
        "kept",
        format_args!("{} on the disk", BinaryBytes(pack.bytes)),
    )?;
    if let Some(runs) = pack.runs {
        fields.add(
            "learned",
            format_args!("from {}", count(runs.into(), "launch", "launches")),
        )?;
    }
    if !pack.command.is_empty() {
        let command: Vec<_> = pack.command.iter().map(shown).collect();
        fields.add("command", command.join(" "))?;
    }
    fields.add("used", moment(pack.used)?)?;
    Ok(())
}

/// The links that brisk auto on has made, of which there is at least one.
struct Links {
    directory: PathBuf,
    programs: Vec<OsString>,
    /// Whether they count.
    is_first_in_path: bool,
}

impl Links {
    fn of_user() -> Option<Self> {
        let directory = data_of_user().ok()?.join(LINKS);
        let programs = linked_in(&directory);
        (!programs.is_empty()).then(|| Self {
            is_first_in_path: is_first_in_path(&directory),
            directory,
            programs,
        })
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<_> = self.programs.iter().map(shown).collect();
        let where_in_path = match self.is_first_in_path {
            true => "",
            false => ", which is not first in PATH",
        };
        writeln!(
            out,
            "links that start programs through brisk: {} (in {}{where_in_path})",
            names.join(", "),
            shown(&self.directory)
        )
    }

    fn to_json(&self) -> LinksJson<'_> {
        let (directory, directory_hex) = json::name(&self.directory);
        LinksJson {
            directory,
            directory_hex,
            programs: json::names(&self.programs),
            is_first_in_path: self.is_first_in_path,
        }
    }
}

/// The names of the links to brisk in this directory, sorted.
fn linked_in(links: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(links).into_iter().flatten().flatten();
    let own = entries.filter(|entry| is_link_to_brisk(&entry.path()));
    let mut names: Vec<_> = own.map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

fn is_first_in_path(links: &Path) -> bool {
    let search = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&search).next().as_deref() == Some(links)
}

/// What brisk does at the next launch, as a word and for people.
fn state(pack: &LearnedPack) -> (&'static str, String) {
    if let Some(why) = pack.left_alone {
        let text = match why {
            LeftAlone::Short => {
                "left alone: the disk gives all that it reads in so short a time that nothing can be gained"
            }
            _ => "left alone: it reads so little that nothing can be gained",
        };
        ("small", text.to_owned())
    } else if pack.is_learning {
        let text = "learning: brisk has not seen all that the program reads, so the next start is observed, too";
        ("learning", text.to_owned())
    } else if pack.of == LearnedOf::Image && pack.pages.is_none() {
        let text =
            "learning: the next session records all that the program asks for, and makes the pack";
        ("learning", text.to_owned())
    } else {
        ("learned", "learned".to_owned())
    }
}

/// What `brisk auto list --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListJson<'a> {
    /// The learned packs and profiles; the last used one comes first.
    learned: Vec<LearnedJson<'a>>,
    /// The links of `brisk auto on`.
    ///
    /// Null if there is none.
    linked: Option<LinksJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LearnedJson<'a> {
    /// Name of its files in `$XDG_CACHE_HOME/brisk/hot`.
    key: &'a str,
    /// What it is: `program`, a profile of a launch of a program; `directory`, one of a launch from a directory; `image`, a
    /// hot pack of an image, or anything whose profile is missing or damaged.
    kind: &'static str,
    /// What brisk does at the next launch: `learned`; `learning`, the next launch is observed, too, and of an image the next
    /// session makes the pack; `small`, the launch reads so little, or what the disk gives in so short a time, that it is
    /// left alone.
    state: &'static str,
    /// What the last start read from the disk with a replay beside it, of which one that read less than 2 MiB is not noted;
    /// of an image: what the last start that began a session read.
    ///
    /// Null if there was none.
    last_start: Option<StartJson>,
    /// The image, directory or program, by its name when brisk learned it.
    ///
    /// Null if it is not known.
    image: Option<Cow<'a, str>>,
    image_hex: Option<String>,
    /// Where the image was mounted.
    ///
    /// Null of a directory or a program, and if the profile is missing or damaged.
    place: Option<Cow<'a, str>>,
    place_hex: Option<String>,
    /// The program, with the script or the verb that tells its launches apart; empty if the profile is missing or damaged.
    command: Vec<Cow<'a, str>>,
    /// Learned launches.
    ///
    /// Null if the profile is missing or damaged.
    runs: Option<u32>,
    /// Pages in the pack or the profile.
    ///
    /// Null if it is damaged, or if the next launch will make it.
    pages: Option<u64>,
    /// Size of its files.
    bytes: u64,
    /// When it was last used; if never, when it was made.
    ///
    /// Null if that was before 1970.
    last_used: Option<u64>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StartJson {
    /// Bytes that brisk asked for before the program did; of an image: bytes that brisk filled before they were asked for.
    ahead_bytes: u64,
    /// Bytes that the program read by itself within 15 seconds, with those of the processes that it has waited for; of an
    /// image: bytes that the kernel asked for and that were not filled by then.
    own_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LinksJson<'a> {
    /// The directory that they are in.
    directory: Cow<'a, str>,
    directory_hex: Option<String>,
    /// Their names, sorted.
    programs: Vec<Cow<'a, str>>,
    /// Whether that directory is first in `PATH`, so that they count.
    is_first_in_path: bool,
}

impl<'a> LearnedJson<'a> {
    fn of(pack: &'a LearnedPack) -> Self {
        let used = pack.used.duration_since(UNIX_EPOCH).ok();
        let (image, image_hex) = json::optional_name(pack.image.as_deref());
        let (place, place_hex) = json::optional_name(pack.place.as_deref());
        Self {
            key: &pack.key,
            kind: match pack.of {
                LearnedOf::Directory => "directory",
                LearnedOf::Program => "program",
                _ => "image",
            },
            state: state(pack).0,
            last_start: pack.last_start.map(|start| StartJson {
                ahead_bytes: start.ahead,
                own_bytes: start.own,
            }),
            image,
            image_hex,
            place,
            place_hex,
            command: json::names(&pack.command),
            runs: pack.runs,
            pages: pack.pages,
            bytes: pack.bytes,
            last_used: used.map(|used| used.as_secs()),
        }
    }
}

/// Says what everything may take, and what it takes.
fn limit(packs: &LearnedPacks, args: &LimitArgs) -> anyhow::Result<Answer> {
    let before = packs.list()?.len();
    if args.default || args.size.is_some() {
        packs.set_limit(args.size)?;
    }
    let limit = packs.limit()?.unwrap_or(LEARNED_LIMIT);
    let left = packs.list()?;
    let taken = left.iter().map(|pack| pack.bytes).sum::<u64>();
    let (limit, taken) = (BinaryBytes(limit), BinaryBytes(taken));
    writeln!(io::stdout(), "at most {limit}, {taken} now")?;
    if let forgotten @ 1.. = before.saturating_sub(left.len()) {
        let launches = count(forgotten as u64, "launch", "launches");
        say(&format!("forgot {launches} that had no room any more"));
    }
    Ok(Answer::Yes)
}

/// A size in bytes. A number without a unit is one of megabytes by mistake if it has no room for one launch.
fn limit_of(text: &str) -> anyhow::Result<u64> {
    let size = parse_size(text)?;
    let is_without_unit = text.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(
        size > 0,
        "nothing has room in 0 bytes; brisk auto forget --all forgets all that brisk has learned"
    );
    ensure!(
        size >= LEAST_WITHOUT_UNIT || !is_without_unit,
        "{text} bytes have no room for anything, so brisk would forget all that it has learned; for that there is brisk auto \
         forget --all; say {text}M for {text} MiB"
    );
    Ok(size)
}

/// Removes the packs of `image`, which is found by its name, or all packs.
fn forget(packs: &LearnedPacks, image: Option<&Path>) -> anyhow::Result<Answer> {
    if packs.wait_for_observers(AT_ONCE) {
        say("waiting for a launch that is still observed");
        if packs.wait_for_observers(OBSERVERS) {
            say("a launch is still observed, and what is learned from it will be kept");
        }
    }
    let mut found = packs.list()?;
    if let Some(image) = image {
        let absolute = path::absolute(image).context("cannot resolve the name")?;
        let in_path = match image.as_os_str().as_bytes().contains(&b'/') {
            true => None,
            false => next_in_path(image.as_os_str()),
        };
        // What was learned of an image or a directory has its real name.
        let names = [image.canonicalize().ok(), Some(absolute), in_path];
        found.retain(|pack| pack.image.is_some() && names.contains(&pack.image));
    }
    match image {
        _ if !found.is_empty() => {}
        Some(image) => say(&format!("nothing is learned of {}", shown(image))),
        None => say("nothing is learned yet, so there is nothing to forget"),
    }
    for pack in &found {
        packs.forget(&pack.key)?;
    }
    Ok(match found.is_empty() {
        true => Answer::No,
        false => Answer::Yes,
    })
}
