//! What the program of a bundle does.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use brisk_image::Extractor;
use brisk_launch::program::{ProgramPlace, become_program};
use brisk_launch::{ErrorKind, Variable, leave_first_process, with_reasons};
use brisk_serve::{Session, SessionFill, SessionImage, SharedMount};
use brisk_terminal::messages::say;
use brisk_terminal::names::shown;
use rustix::fs::{Access, access};

use crate::arguments::{Asked, help};
use crate::bundle_file::BundleFile;
use crate::elf::{SIGNATURE, UPDATE_INFORMATION};
use crate::entry::{Entry, Start, appimage_variables};
use crate::extraction::{afterwards, extract, extract_for_user, remove, temporary_directory};
use crate::sections;

/// What a bundle exits with if it cannot start its program, as other AppImages do.
const NOT_STARTED: u8 = 127;

/// What to do where nothing can be mounted.
const GO_ON: &str = "to start it without a mount, put --appimage-extract-and-run first, or set APPIMAGE_EXTRACT_AND_RUN=1";

/// Runs the program.
pub fn run() -> ExitCode {
    sections::keep();
    let asked = Asked::of(env::args_os().skip(1));
    // As other AppImages do.
    let failed = match asked {
        Asked::Extract(_) => 1,
        _ => NOT_STARTED,
    };
    let code = answer(asked).unwrap_or_else(|error| {
        say(&format!("{error:#}"));
        failed
    });
    ExitCode::from(code)
}

fn answer(asked: Asked) -> anyhow::Result<u8> {
    match &asked {
        Asked::Version => {
            // Where other AppImages say it.
            say(&format!("brisk-bundle {}", env!("CARGO_PKG_VERSION")));
            return Ok(0);
        }
        Asked::Unknown(option) => {
            say(&format!(
                "{} is no option of this AppImage; --appimage-help lists them",
                shown(option)
            ));
            return Ok(1);
        }
        _ => {}
    }
    let bundle = BundleFile::open()?;
    let mut out = io::stdout().lock();
    match asked {
        Asked::Start(arguments) => match start(&bundle, &arguments)? {},
        Asked::StartExtracted(arguments) => match start_extracted(&bundle, &arguments)? {},
        Asked::Extract(patterns) => extract_for_user(&bundle, &patterns)?,
        Asked::Mount => mount(&bundle)?,
        Asked::Offset => writeln!(out, "{}", bundle.image.offset())?,
        Asked::Help => out.write_all(help(bundle.path.as_os_str()).as_bytes())?,
        Asked::Portable(end) => make_portable(&bundle.beside(end))?,
        Asked::UpdateInformation => print_section(&bundle, UPDATE_INFORMATION)?,
        Asked::Signature => print_section(&bundle, SIGNATURE)?,
        Asked::Version | Asked::Unknown(_) => {}
    }
    Ok(0)
}

/// Makes a directory that stands for one of the user, for the user alone.
fn make_portable(directory: &Path) -> anyhow::Result<()> {
    let name = shown(directory);
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => say(&format!("made {name}")),
        Err(_) if directory.is_dir() => say(&format!("{name} is there already")),
        Err(e) => return Err(e).with_context(|| format!("cannot make {name}")),
    }
    Ok(())
}

fn print_section(bundle: &BundleFile, section: &'static str) -> anyhow::Result<()> {
    let mut text = bundle.text(section)?;
    text.push(b'\n');
    Ok(io::stdout().lock().write_all(&text)?)
}

/// What the bundle starts, with the variables of AppImages.
fn start_of(bundle: &BundleFile, arguments: &[OsString]) -> anyhow::Result<Start> {
    let entry = Entry::of(&bundle.image)?
        .map_err(|why| anyhow!("{}: nothing can be started: {why}", shown(&bundle.path)))?;
    let mut start = Start::by_entry(
        &entry,
        &bundle.path,
        &bundle.called_as,
        arguments,
        false,
        None,
    );
    start.variables = appimage_variables(&bundle.path, &bundle.called_as)
        .into_iter()
        .chain(start.variables)
        .chain(portable(bundle))
        .collect();
    Ok(start)
}

/// The directories beside the bundle that stand for those of the user.
fn portable(bundle: &BundleFile) -> Vec<Variable> {
    let of = |end, name| {
        let directory = bundle.beside(end);
        let is_usable = directory.is_dir() && access(&directory, Access::WRITE_OK).is_ok();
        is_usable.then(|| Variable::new(name, directory))
    };
    let found = [of("home", "HOME"), of("config", "XDG_CONFIG_HOME")];
    found.into_iter().flatten().collect()
}

/// Becomes the program, in a session that ends with it.
fn start(bundle: &BundleFile, arguments: &[OsString]) -> anyhow::Result<Infallible> {
    let start = start_of(bundle, arguments)?;
    let mut image = SessionImage::new(&bundle.opened_as);
    image.offset = bundle.image.offset();
    image.verity = bundle.verity;
    image.at = match start.root {
        true => None,
        false => bundle.image.recorded_place()?,
    };
    let mut session = Session::new(image, start.command);
    session.root = start.root;
    session.directory = start.directory;
    session.variables = start.variables;
    session.fill = Some(SessionFill::default());
    // Nothing of it is left when the program has ended: its user may unplug the disk that it is on.
    session.linger = Duration::ZERO;
    session.exec(|_| {}).map_err(|error| match error.kind() {
        ErrorKind::CommandNotFound | ErrorKind::CommandNotExecutable => {
            anyhow!("{}", with_reasons(&error))
        }
        _ => anyhow!(
            "{}; {GO_ON}",
            with_reasons(&error.within("start", &bundle.path))
        ),
    })
}

/// Becomes the program, in a directory that goes with it.
fn start_extracted(bundle: &BundleFile, arguments: &[OsString]) -> anyhow::Result<Infallible> {
    let start = start_of(bundle, arguments)?;
    leave_first_process()?;
    let directory = temporary_directory("appimage_extracted_", bundle.short_name())?;
    // Before there are threads. Whatever fails behind this, the directory goes.
    afterwards(|| {
        // Nobody is left to be told of a failure.
        remove(&directory).ok();
    })?;
    extract(bundle, &directory, Extractor::new())?;
    let error = become_program(
        &start.command,
        ProgramPlace::Image(&directory),
        start.directory.as_deref(),
        &start.variables,
    );
    Err(anyhow!("{}", with_reasons(&error)))
}

/// Mounts the image until this process ends.
fn mount(bundle: &BundleFile) -> anyhow::Result<()> {
    let directory = temporary_directory(".mount_", bundle.short_name())?;
    afterwards(|| {
        // The mount goes a moment after this process.
        for _ in 0..1000 {
            if fs::remove_dir(&directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    })?;
    let mut mount = SharedMount::new(&bundle.opened_as, &directory);
    mount.offset = bundle.image.offset();
    mount.verity = bundle.verity;
    mount
        .mount_in_foreground(|place| {
            let mut line = place.as_os_str().as_bytes().to_vec();
            line.push(b'\n');
            // If nobody reads it, the image is mounted all the same.
            io::stdout().lock().write_all(&line).ok();
        })
        .map_err(|error| anyhow!("{}", with_reasons(&error.within("mount", &bundle.path))))
}
