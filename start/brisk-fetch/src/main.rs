//! `brisk-fetch CACHE`: asks web servers for images, and writes what they send into the directory CACHE.
//!
//! It is started by whoever needs it, and is nobody's child. A small process watches it and starts it again if it dies, so that no
//! program has to. What it does for an image is in `image`, what is asked next is decided by `brisk_remote::Schedule`, and how servers
//! answer is judged in `answer`.

mod answer;
mod confine;
mod image;
mod log;
mod netrc;
mod origin;
mod pace;
mod server;
mod sums;
mod supervisor;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(cache) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!(
            "brisk-fetch: the directory of images is missing; brisk starts this program by itself"
        );
        return ExitCode::from(2);
    };
    match supervisor::start(&cache) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("brisk-fetch: {}: {e}", cache.display());
            ExitCode::from(2)
        }
    }
}
