//! The command line: help, man pages and completions all come from here.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::manual::Manual;
use crate::verbs;

/// Packs programs into small SquashFS images and starts them from there.
///
/// Exit codes: 0 done; 1 the answer is no, as when two images differ; 2 wrong usage or a failure.
/// `brisk run` exits as its program does, or with 125 if brisk failed, 126 if the program cannot
/// be executed and 127 if there is none; `brisk trace` exits with 0, or with these.
#[derive(Debug, Parser)]
#[command(name = "brisk", bin_name = "brisk", version, max_term_width = 100)]
pub struct Brisk {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What brisk can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Makes an image of a directory or a tar archive.
    Pack(Box<verbs::pack::Args>),
    /// Makes a new image of an old one, such as a snap or what an AppImage carries.
    Repack(Box<verbs::repack::Args>),
    /// Lists what is in an image.
    Ls(verbs::ls::Args),
    /// Writes the contents of files in an image to stdout.
    Cat(verbs::cat::Args),
    /// Writes the tree of an image, or a part of it, into a directory.
    Extract(verbs::extract::Args),
    /// Says how an image was made, and where its bytes are.
    Info(verbs::info::Args),
    /// Says what makes an image differ from another, or from a directory.
    Diff(verbs::diff::Args),
    /// Reads and decodes all of an image, and can make it again.
    Verify(verbs::verify::Args),
    /// Writes the pages that a launch asks for beside a directory or an image.
    Hot(verbs::hot::Args),
    /// Looks at profiles, which say what a launch asked for, and makes one of several.
    Profile(verbs::profile::Args),
    /// Records what a launch asks for, as a profile.
    Trace(verbs::trace::Args),
    /// Starts a program from an image or a directory.
    Run(verbs::run::Args),
    /// Has what a launch asks for read before it does.
    Replay(verbs::replay::Args),
    /// Reads an image, a directory or what a profile asks for into memory.
    Warm(verbs::warm::Args),
    /// Lists and forgets what brisk run --auto has learned.
    Auto(verbs::auto::Args),
    /// Mounts an image for everybody.
    Mount(verbs::mount::Args),
    /// Says what runs from images, and what serves it.
    Stat(verbs::stat::Args),
    /// Unmounts an image, or ends its sessions.
    Umount(verbs::umount::Args),
    /// Measures how fast a program starts from its directory and from images.
    ///
    /// This is the program brisk-lab, which is installed beside brisk. `brisk lab --help` says what it
    /// measures.
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
    /// Says what this system allows, and what to do where it does not.
    Doctor(verbs::doctor::Args),
    #[command(flatten)]
    Manual(Manual),
}

/// What `brisk-lab` is told.
#[derive(Debug, clap::Args)]
pub struct LabArgs {
    /// What to measure, and how.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}
