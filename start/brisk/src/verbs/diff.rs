//! `brisk diff`: compares an image with another one, or with a tree.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use brisk_image::compare::{Aspect, Change, Difference};
use brisk_image::{Limits, Tree, TreeRules, Work};
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::warn;
use brisk_terminal::names::{path_from_root, shown};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::image_args::{ImageArgs, LimitArgs, open_image_within};
use crate::json;
use crate::progress::Progress;

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
    limits: LimitArgs,

    /// Another image, or a directory.
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
    let was = Tree::from_image(&args.image.open_within(args.limits.limits())?, &rules)?;
    let is = tree_at(&args.other, &rules, args.limits.limits())?;
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
        json::print(&json!({
            "equal": differences.is_empty(),
            "differences": differences.iter().map(to_json).collect::<Vec<_>>(),
        }))?;
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

/// The tree in the directory or image at `path`.
fn tree_at(path: &Path, rules: &TreeRules, limits: Limits) -> anyhow::Result<Tree> {
    if path.is_dir() {
        return Ok(Tree::from_directory(path, rules)?);
    }
    let image = open_image_within(path, None, limits)?;
    Ok(Tree::from_image(&image, rules)?)
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

fn to_json(Difference { path, change, .. }: &Difference) -> Value {
    let text = |name: &std::ffi::OsStr| json::name(name).0.into_owned();
    let names = |names: &[std::ffi::OsString]| -> Vec<String> {
        names.iter().map(|name| text(name)).collect()
    };
    let link = |link: &Option<PathBuf>| link.as_ref().map(|path| text(path.as_os_str()));
    let mut value = match change {
        Change::Removed(kind) => json!({"change": "removed", "type": json::file_type(*kind)}),
        Change::Added(kind) => json!({"change": "added", "type": json::file_type(*kind)}),
        Change::Type { was, is } => {
            json!({"change": "type", "was": json::file_type(*was), "is": json::file_type(*is)})
        }
        Change::Contents {
            first,
            was_len,
            is_len,
        } => json!({
            "change": "contents", "first": first, "was_bytes": was_len, "is_bytes": is_len,
        }),
        Change::Target { was, is } => {
            json!({"change": "target", "was": text(was), "is": text(is)})
        }
        Change::Device { was, is } => json!({
            "change": "device", "was": [was.major, was.minor], "is": [is.major, is.minor],
        }),
        Change::Mode { was, is } => json!({
            "change": "mode", "was": format!("{was:04o}"), "is": format!("{is:04o}"),
        }),
        Change::Owner { was, is } => json!({
            "change": "owner", "was": [was.0, was.1], "is": [is.0, is.1],
        }),
        Change::Mtime { was, is } => json!({"change": "mtime", "was": was, "is": is}),
        Change::Xattrs {
            removed,
            added,
            changed,
        } => json!({
            "change": "xattrs", "removed": names(removed), "added": names(added),
            "changed": names(changed),
        }),
        Change::HardLink { was, is } => {
            json!({"change": "hard link", "was": link(was), "is": link(is)})
        }
        other => json!({"change": format!("{other:?}")}),
    };
    let (name, hex) = json::name(path_from_root(path));
    value["path"] = name.into();
    if let Some(hex) = hex {
        value["path_hex"] = hex.into();
    }
    value
}
