//! `brisk-fetch CACHE`: asks web servers, registries and object stores for images, and writes what they send into the directory CACHE.
//! `brisk-fetch --job DIRECTORY` does one thing with a registry for the program that starts it: see `job`.
//!
//! It is started by whoever needs it, and is nobody's child. A small process watches it and starts it again if it dies, so that no
//! program has to. What it does for an image is in `image`, what is asked next is decided by `brisk_remote::Schedule`, and how servers
//! answer is judged in `answer`. How registries let people in is in `registry`, and how object stores do is in `s3`.

mod answer;
mod confine;
mod cosign;
mod image;
mod job;
mod log;
mod origin;
mod pace;
mod refusal;
mod registry;
mod s3;
mod server;
mod sums;
mod supervisor;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use brisk_remote::JOB;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let first = arguments.next();
    let is_job = first.as_deref() == Some(JOB.as_ref());
    let directory = match is_job {
        true => arguments.next(),
        false => first,
    };
    let Some(directory) = directory.map(PathBuf::from) else {
        eprintln!(
            "brisk-fetch: the directory of images is missing; brisk starts this program by itself"
        );
        return ExitCode::from(2);
    };
    let done = match is_job {
        true => job::run(&directory),
        false => supervisor::start(&directory),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("brisk-fetch: {}: {e}", directory.display());
            ExitCode::from(2)
        }
    }
}
