//! `brisk wrap`: a name of its own for an image, as a launcher and an entry in menus.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use brisk_bundle::entry::Entry;
use brisk_remote::RemoteUrl;
use brisk_terminal::answer::Answer;
use brisk_terminal::messages::{say, warn};
use brisk_terminal::names::shown;
use clap::{Args as _, FromArgMatches};

use super::run;
use crate::desktop_entries::data_of_user;
use crate::image_args::open_image;
use crate::launcher::beside;
use crate::menu_entry::{self, MenuEntry};
use crate::output_file::{check_output, is_same};
use crate::whole_file::{WholeFile, write_together};
use crate::wrapper::{Wrapper, is_wrapper};

/// What to wrap, or which launcher to remove.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A launcher is a small shell script that becomes brisk run IMAGE, with its own arguments behind those of the image's entry. \
It starts the image of that name beside itself, or else the one where it was wrapped, so both can be moved together. AppImages \
find in ARGV0 the name that the launcher was called by.\n\n\
--desktop takes the name, the languages and the categories from the .desktop file at the top of the image or in its \
usr/share/applications, and the icon from .DirIcon or from what Icon= names. The command is the launcher's. Actions and D-Bus \
are left out, and without --mime-types the kinds of files and URLs, too. If the launcher was moved, --remove also finds \
the entry of its former place.\n\n\
Examples:\n  \
  brisk wrap app.img -o app\n  \
  brisk wrap App.AppImage -o ~/.local/bin/app --desktop -- --auto\n  \
  brisk wrap --remove ~/.local/bin/app")]
pub struct Args {
    /// The image, or a file that contains one, such as an AppImage. It must have an entry: see brisk run.
    #[arg(required_unless_present = "remove")]
    image: Option<PathBuf>,

    /// The launcher to write. It replaces one that brisk has written, and no other file.
    #[arg(
        short,
        long,
        value_name = "LAUNCHER",
        required_unless_present = "remove"
    )]
    output: Option<PathBuf>,

    /// Also makes an entry with an icon in the menus of applications, in $XDG_DATA_HOME or ~/.local/share.
    #[arg(long)]
    desktop: bool,

    /// Lets the entry open the kinds of files and URLs that the image names. Desktops may then choose it for them.
    #[arg(long, requires = "desktop")]
    mime_types: bool,

    /// Makes the entry for all users, in /usr/local/share.
    #[arg(long, requires = "desktop")]
    system: bool,

    /// Removes this launcher, and its entry and icon in menus.
    #[arg(long, value_name = "LAUNCHER", conflicts_with_all = ["image", "output", "desktop", "mime_types", "system", "options"])]
    remove: Option<PathBuf>,

    /// Options of brisk run that the launcher gives. Their relative paths count from where the launcher is started.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    match (&args.remove, &args.image, &args.output) {
        (Some(launcher), ..) => remove(launcher),
        (None, Some(image), Some(output)) => wrap(args, image, output),
        // clap asks for both.
        (None, ..) => bail!("name an image, and a launcher with -o"),
    }
}

fn wrap(args: &Args, image: &Path, output: &Path) -> anyhow::Result<Answer> {
    check_output(output, "-o")?;
    let options = check_options(&args.options)?;
    match is_wrapper(output) {
        Ok(true) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Ok(false) => bail!(
            "{} is no launcher of brisk wrap, so it stays; name another file with -o",
            shown(output)
        ),
        Err(e) => return Err(e).with_context(|| format!("cannot examine {}", shown(output))),
    }
    let is_url = RemoteUrl::is_url(image.as_os_str());
    let opened = match is_url {
        true => options.open_url(image)?,
        false => open_image(image, None)?,
    };
    let entry = Entry::of(&opened)?.map_err(|why| why.to_be_recorded(image, "wrap"))?;
    let path = match is_url {
        true => Ok(image.to_owned()),
        false => image.canonicalize(),
    };
    let path = path.with_context(|| format!("cannot resolve {}", shown(image)))?;
    let launcher = resolved(output)?;
    let beside_it = launcher.with_file_name(path.file_name().unwrap_or_default());
    if !is_url && beside_it.exists() && !is_same(&beside_it, &path) {
        bail!(
            "{} is another image of this name beside the launcher, which would start it; rename one of them, or name another \
             launcher with -o",
            shown(&beside_it)
        );
    }
    let menu = match args.desktop {
        true => {
            let data = data(args.system)?;
            Some(MenuEntry::new(&opened, &launcher, &data, args.mime_types)?)
        }
        false => None,
    };
    let brisk = beside("brisk").context("cannot find brisk's own file")?;
    let wrapper = Wrapper {
        image: &path,
        brisk: &brisk,
        options: &args.options,
        launcher: &launcher,
    };
    let script = WholeFile {
        path: &launcher,
        bytes: &wrapper.script(),
        mode: 0o777,
    };
    let mut files = vec![script];
    if let Some(menu) = &menu {
        files.extend(menu.files()?);
    }
    write_together(&files)?;
    say(&format!(
        "{}: starts {} with {entry}",
        shown(output),
        shown(&path)
    ));
    // Another machine may have the place, so this is no error.
    if let Some(why) = options.lacks_place(&opened, &entry) {
        warn(&format!(
            "{}: starts will fail on this machine: {why}",
            shown(output)
        ));
    }
    if let Some(menu) = menu {
        say(&format!(
            "{}: in the menus of applications",
            shown(&menu.file)
        ));
        if let Some(kinds) = menu.left_out {
            say(&format!(
                "the image says that it opens {kinds} and brisk leaves that out; --mime-types takes it over"
            ));
        }
    }
    Ok(Answer::Yes)
}

/// The one path of a launcher, however it is named. The launcher itself may not exist.
fn resolved(launcher: &Path) -> anyhow::Result<PathBuf> {
    let resolve = || {
        let name = launcher.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = match launcher.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Ok::<_, io::Error>(directory.canonicalize()?.join(name))
    };
    resolve().with_context(|| format!("cannot resolve {}", shown(launcher)))
}

/// The options. Checks what would otherwise fail at each start, or do something else there.
fn check_options(options: &[OsString]) -> anyhow::Result<run::Args> {
    if let Some(word) = options
        .iter()
        .find(|word| *word == "--args" || *word == "--")
    {
        bail!(
            "{} is among the options of brisk run, allowed are others: the launcher itself gives its arguments to the image's \
             program",
            shown(word)
        );
    }
    let command = run::Args::augment_args(clap::Command::new("brisk run").no_binary_name(true));
    let words = ["image".into()].into_iter().chain(options.iter().cloned());
    let parsed =
        command.try_get_matches_from(words.chain(["--called-as=".into(), "--args".into()]));
    let parsed = parsed.and_then(|matches| run::Args::from_arg_matches(&matches));
    match parsed {
        Ok(parsed) => match parsed.layer().filter(|layer| layer.is_relative()) {
            None => Ok(parsed),
            Some(layer) => bail!(
                "--writable={} counts from the directory where the launcher is started, so each would get a layer of its own; \
                 name an absolute path",
                shown(layer)
            ),
        },
        Err(e) => {
            let text = e.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            bail!("brisk run would not take these options: {first}")
        }
    }
}

/// The directory of data where menus are found.
fn data(of_system: bool) -> anyhow::Result<PathBuf> {
    match of_system {
        true => Ok(menu_entry::SYSTEM.into()),
        false => data_of_user(),
    }
}

fn remove(path: &Path) -> anyhow::Result<Answer> {
    let launcher = resolved(path)?;
    let is_there = match is_wrapper(&launcher) {
        Ok(true) => true,
        Ok(false) => bail!(
            "{} is no launcher of brisk wrap, so it stays; remove it yourself",
            shown(path)
        ),
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e).with_context(|| format!("cannot examine {}", shown(path))),
    };
    let mut is_removed = menu_entry::remove(&launcher, Path::new(menu_entry::SYSTEM))?;
    match data_of_user() {
        Ok(data) => is_removed |= menu_entry::remove(&launcher, &data)?,
        Err(e) => warn(&format!(
            "{e:#}; entries of menus were not looked for there"
        )),
    }
    if is_there {
        fs::remove_file(&launcher).with_context(|| format!("cannot remove {}", shown(path)))?;
    } else if !is_removed {
        bail!(
            "there is no launcher {}, and no menu has an entry of it",
            shown(path)
        );
    }
    Ok(Answer::Yes)
}
