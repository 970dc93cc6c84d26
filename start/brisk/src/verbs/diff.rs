//! `brisk diff`: compares an image with another one, or with a tree.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use brisk_image::compare::{Aspect, Change, Difference};
use brisk_image::{Tree, TreeRules, Work};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::warn;
use brisk_terminal::names::{path_from_root, shown};
use clap::ValueEnum;
use serde::Serialize;

use crate::image_args::{ImageArgs, LimitArgs};
use crate::json;
use crate::progress::Progress;
use crate::verify_args::VerifyArgs;

/// What to compare.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a line for each difference, sorted by path: \"-\" is only in the first, \"+\" only in the second, and \"!\" in \
both but different. brisk compares contents byte by byte. It takes a directory as brisk pack would: times in \
whole seconds, and only the extended attributes that images can hold.\n\n\
Exits with 0 if there is no difference, with 1 if there is one, and with 2 after a failure.")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    verified: VerifyArgs,

    #[command(flatten)]
    limits: LimitArgs,

    /// Another image, or a directory. Verified as the first, if it is an image.
    #[arg(value_name = "IMAGE|TREE")]
    other: PathBuf,

    /// Does not report differences of these kinds.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignore>,

    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Shows no progress and no warnings.
    #[arg(short, long)]
    quiet: bool,
}

/// A difference that is not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ignore {
    /// User and group.
    Owner,
    /// Modification times.
    Mtime,
    /// Permissions.
    Mode,
    /// Extended attributes.
    Xattrs,
}

impl From<Ignore> for Aspect {
    fn from(ignore: Ignore) -> Self {
        match ignore {
            Ignore::Owner => Self::Owner,
            Ignore::Mtime => Self::Mtime,
            Ignore::Mode => Self::Mode,
            Ignore::Xattrs => Self::Xattrs,
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    args.limits.advise(compare(args))
}

fn compare(args: &Args) -> anyhow::Result<Answer> {
    let ignored: Vec<Aspect> = args.ignore.iter().copied().map(Aspect::from).collect();
    // What is not compared is not read, so it causes no warning.
    let rules = TreeRules::default().xattrs(!ignored.contains(&Aspect::Xattrs));
    let open = |verified: &VerifyArgs, path: &Path, offset| {
        let image = verified.open_within(path, offset, args.limits.limits())?;
        anyhow::Ok(Tree::from_image(&image, &rules)?)
    };
    let was = open(&args.verified, &args.image.image, args.image.offset)?;
    let is = match args.other.is_dir() {
        true => Tree::from_directory(&args.other, &rules)?,
        false => open(&args.verified.of_others(), &args.other, None)?,
    };
    if !args.quiet {
        for warning in was.warnings().iter().chain(is.warnings()) {
            warn(warning);
        }
    }
    let progress = Progress::new(Some(was.bytes().min(is.bytes())), args.quiet);
    let work = Work::new().progress(progress.callback());
    let differences = was.compare(&is, &ignored, &work)?;
    drop(progress);
    if args.json {
        json::print(&DiffJson {
            equal: differences.is_empty(),
            differences: differences.iter().map(DifferenceJson::of).collect(),
        })?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        for difference in &differences {
            writeln!(out, "{}", line(difference))?;
        }
        out.flush()?;
    }
    Ok(match differences.is_empty() {
        true => Answer::Yes,
        false => Answer::No,
    })
}

fn line(Difference { path, change, .. }: &Difference) -> String {
    let path = match path.as_os_str() {
        root if root.is_empty() => ".".to_owned(),
        path => shown(path),
    };
    match change {
        Change::Removed(kind) => format!("- {path} ({})", kind.name()),
        Change::Added(kind) => format!("+ {path} ({})", kind.name()),
        change => format!("! {path}: {}", words(change)),
    }
}

/// How a file that both have differs.
fn words(change: &Change) -> String {
    match change {
        Change::Type { was, is } => format!("{} -> {}", was.name(), is.name()),
        Change::Contents {
            first,
            was_len,
            is_len,
        } if was_len == is_len => format!("contents differ from byte {first} on"),
        Change::Contents {
            first,
            was_len,
            is_len,
        } => format!("contents differ from byte {first} on, {was_len} bytes -> {is_len} bytes"),
        Change::Target { was, is } => format!("target {} -> {}", shown(was), shown(is)),
        Change::Device { was, is } => format!(
            "device {}:{} -> {}:{}",
            was.major, was.minor, is.major, is.minor
        ),
        Change::Mode { was, is } => format!("mode {was:04o} -> {is:04o}"),
        Change::Owner { was, is } => {
            format!("owner {}:{} -> {}:{}", was.0, was.1, is.0, is.1)
        }
        Change::Mtime { was, is } => format!("mtime {was} -> {is}"),
        Change::Xattrs {
            removed,
            added,
            changed,
        } => {
            let mut text = "xattrs".to_owned();
            for (sign, names) in [("-", removed), ("+", added), ("!", changed)] {
                for name in names {
                    // Writing to a string cannot fail.
                    let written = write!(text, " {sign}{}", shown(name));
                    debug_assert!(written.is_ok());
                }
            }
            text
        }
        Change::HardLink { was, is } => {
            let shown = |link: &Option<PathBuf>| link.as_ref().map_or("none".to_owned(), shown);
            format!("hard link to {} -> {}", shown(was), shown(is))
        }
        other => format!("{other:?}"),
    }
}

/// What `brisk diff --json` prints.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffJson<'a> {
    /// Whether there is no difference.
    equal: bool,
    /// The differences. A directory precedes its contents, and names are in the order of their bytes.
    differences: Vec<DifferenceJson<'a>>,
}

#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DifferenceJson<'a> {
    /// Path from the root of both; `.` is the root itself.
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// What differs; the other fields depend on it.
    change: &'static str,
    /// The type of the file, as in [`ls`](#ls).
    ///
    /// Absent except for `removed` and `added`.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    /// The value in the first tree or image.
    ///
    /// Null or absent as below.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<Side<'a>>,
    /// The value in the second.
    ///
    /// Null or absent as below.
    #[serde(skip_serializing_if = "Option::is_none")]
    is: Option<Side<'a>>,
    /// The first byte that differs, or the length of the shorter file if the longer one begins with it.
    ///
    /// Absent except for `contents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    /// Size of the first file.
    ///
    /// Absent except for `contents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    was_bytes: Option<u64>,
    /// Size of the second file.
    ///
    /// Absent except for `contents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_bytes: Option<u64>,
    /// Names of extended attributes that only the first has.
    ///
    /// Absent except for `xattrs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<Vec<Cow<'a, str>>>,
    /// Names of extended attributes that only the second has.
    ///
    /// Absent except for `xattrs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<Vec<Cow<'a, str>>>,
    /// Names of extended attributes whose values differ.
    ///
    /// Absent except for `xattrs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Vec<Cow<'a, str>>>,
}

/// What one of the two has.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Side<'a> {
    Text(Cow<'a, str>),
    Pair([u32; 2]),
    Time(u32),
    Link(Option<Cow<'a, str>>),
}

impl<'a> Side<'a> {
    fn name(name: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self::Text(json::name(name).0)
    }

    fn link(link: Option<&'a Path>) -> Self {
        Self::Link(json::optional_name(link).0)
    }
}

impl<'a> DifferenceJson<'a> {
    fn of(Difference { path, change, .. }: &'a Difference) -> Self {
        let (path, path_hex) = json::name(path_from_root(path));
        let mut told = Self {
            path,
            path_hex,
            ..Self::default()
        };
        let (change, sides) = match change {
            Change::Removed(kind) => {
                told.r#type = Some(json::file_type(*kind));
                ("removed", None)
            }
            Change::Added(kind) => {
                told.r#type = Some(json::file_type(*kind));
                ("added", None)
            }
            Change::Type { was, is } => {
                let [was, is] = [was, is].map(|kind| Side::Text(json::file_type(*kind).into()));
                ("type", Some((was, is)))
            }
            Change::Contents {
                first,
                was_len,
                is_len,
            } => {
                told.first = Some(*first);
                told.was_bytes = Some(*was_len);
                told.is_bytes = Some(*is_len);
                ("contents", None)
            }
            Change::Target { was, is } => ("target", Some((Side::name(was), Side::name(is)))),
            Change::Device { was, is } => {
                let [was, is] = [was, is].map(|device| Side::Pair([device.major, device.minor]));
                ("device", Some((was, is)))
            }
            Change::Mode { was, is } => {
                let [was, is] = [was, is].map(|mode| Side::Text(format!("{mode:04o}").into()));
                ("mode", Some((was, is)))
            }
            Change::Owner { was, is } => {
                let [was, is] = [was, is].map(|owner| Side::Pair([owner.0, owner.1]));
                ("owner", Some((was, is)))
            }
            Change::Mtime { was, is } => ("mtime", Some((Side::Time(*was), Side::Time(*is)))),
            Change::Xattrs {
                removed,
                added,
                changed,
            } => {
                told.removed = Some(json::names(removed));
                told.added = Some(json::names(added));
                told.changed = Some(json::names(changed));
                ("xattrs", None)
            }
            Change::HardLink { was, is } => {
                let [was, is] = [was, is].map(|link| Side::link(link.as_deref()));
                ("hard link", Some((was, is)))
            }
            _ => ("other", None),
        };
        told.change = change;
        (told.was, told.is) = sides.unzip();
        told
    }
}
