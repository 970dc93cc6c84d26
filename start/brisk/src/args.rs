//! The command line: help, man pages and completions all come from here.

use std::ffi::OsString;

use brisk_terminal::db_args::DbArgs;
use brisk_terminal::proxy_args::ProxyArgs;
use clap::builder::Styles;
use clap::{Command, Parser, Subcommand};

use crate::manual::Manual;
use crate::verbs;

/// Starts programs faster, from their directories and from small SquashFS images.
///
/// Exit codes: 0 done; 1 the answer is no, for example when two images differ; 2 wrong usage or a failure. `brisk
/// run` exits as its program does, or with 125 if brisk failed, 126 if the program cannot be executed and 127 if it
/// does not exist. `brisk trace` exits with 0, or with one of these three.
#[derive(Debug, Parser)]
#[command(name = "brisk", bin_name = "brisk", version, max_term_width = 100, help_template = by_person())]
pub struct Brisk {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs of brisk.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Packs a directory, a tar archive or a container image into an image.
    Pack(Box<verbs::pack::Args>),
    /// Makes a new image from an old one, such as a snap or the payload of an AppImage.
    Repack(Box<verbs::repack::Args>),
    /// Lists the contents of an image.
    Ls(verbs::ls::Args),
    /// Prints files of an image.
    Cat(verbs::cat::Args),
    /// Extracts an image, or a part of it, into a directory.
    Extract(verbs::extract::Args),
    /// Shows how an image was made, and what its bytes are used for.
    Info(verbs::info::Args),
    /// Compares an image with another one, or with a directory.
    Diff(verbs::diff::Args),
    /// Checks all of an image, and can pack its tree again to compare.
    Verify(verbs::verify::Args),
    /// Writes the dm-verity hash tree of an image, by which every block of it can be checked.
    Verity(verbs::verity::Args),
    /// Signs an image, so that others can tell who made it and that it is unchanged.
    Sign(verbs::sign::Args),
    /// Writes what a web server needs, so that others can start programs from an image.
    Publish(verbs::publish::Args),
    /// Puts an image into a registry, so that others can start programs from it.
    Push(verbs::push::Args),
    /// Makes a hot pack, the pages that a launch asks for, beside a directory or an image.
    Hot(verbs::hot::Args),
    /// Shows, checks, merges and compares profiles, which say what a launch asks for.
    Profile(verbs::profile::Args),
    /// Records what a launch asks for, as a profile.
    Trace(verbs::trace::Args),
    /// Starts a program: any one with --auto, or from an image or a directory.
    Run(Box<verbs::run::Args>),
    /// Makes one executable file of an image: an AppImage, which starts without brisk.
    Bundle(verbs::bundle::Args),
    /// Gives an image a name of its own: a launcher, and an entry in menus.
    Wrap(verbs::wrap::Args),
    /// Reads the pages of a profile into memory ahead of a program.
    Replay(verbs::replay::Args),
    /// Reads an image, a directory or the pages of a profile into memory.
    Warm(verbs::warm::Args),
    /// Lists and forgets what brisk run --auto has learned.
    Auto(verbs::auto::Args),
    /// Lists, keeps and removes images from the network, and says what they have cost.
    Remote(verbs::remote::Args),
    /// Looks at the caches of programs, checks them, and makes them smaller.
    Cache(verbs::cache::Args),
    /// Mounts an image for all programs.
    Mount(verbs::mount::Args),
    /// Lists sessions: the programs that run from images, and the processes that serve them.
    Stat(verbs::stat::Args),
    /// Unmounts an image, or ends its sessions.
    Umount(verbs::umount::Args),
    /// Measures how fast a program starts from its directory and from images.
    ///
    /// brisk becomes the program brisk-lab, which is installed beside it. `brisk lab --help` lists what it measures.
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
    /// Looks into the database of a program, checks it, and moves it.
    ///
    /// brisk becomes the program brisk-db, which is installed beside it.
    Db(Box<DbArgs>),
    /// Serves package indexes and other sites from a cache, fast and offline.
    ///
    /// brisk becomes the program brisk-proxy, which is installed beside it.
    Proxy(Box<ProxyArgs>),
    /// Checks what this system allows, and says what to do about the rest.
    Doctor(verbs::doctor::Args),
    #[command(flatten)]
    Manual(Manual),
}

/// Which verbs are for whom.
const PERSONS: [(&str, &[&str]); 3] = [
    (
        "I start programs",
        &[
            "run", "auto", "mount", "umount", "stat", "remote", "ls", "cat", "extract", "info",
            "replay", "warm", "doctor",
        ],
    ),
    (
        "I ship programs",
        &[
            "trace", "profile", "pack", "hot", "repack", "lab", "diff", "verify", "verity", "sign",
            "publish", "push", "bundle", "wrap",
        ],
    ),
    ("I write programs", &["cache", "db", "proxy"]),
];

/// The help of brisk: the verbs of each person together.
fn by_person() -> String {
    let verbs = Verb::augment_subcommands(Command::new("brisk"));
    let styles = Styles::default();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (person, names) in PERSONS {
        text.push_str(&format!("\n{header}{person}:{header:#}\n"));
        for name in names {
            let about = verbs.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {literal}{name:<8}{literal:#} {about}\n"));
        }
    }
    text.push_str(&format!(
        "\n{header}Options:{header:#}\n{{options}}\nbrisk VERB --help says more."
    ));
    text
}

/// The arguments of `brisk-lab`.
#[derive(Debug, clap::Args)]
pub struct LabArgs {
    /// What to measure, and how.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_for_one_person() {
        let verbs = Verb::augment_subcommands(Command::new("brisk"));
        let shown = verbs.get_subcommands().filter(|verb| !verb.is_hide_set());
        let mut shown: Vec<_> = shown.map(Command::get_name).collect();
        let mut listed: Vec<_> = PERSONS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        shown.sort_unstable();
        listed.sort_unstable();
        assert_eq!(shown, listed);
    }
}
