//! Starts a program from an image: `run IMAGE AT COMMAND [ARGUMENT]…`, with `-` as AT for the
//! default place. Exits like the program, or with 125, 126 or 127.
use std::process::ExitCode;

use brisk_serve::Launch;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(at)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: run IMAGE AT|- COMMAND [ARGUMENT]...");
        return ExitCode::from(125);
    };
    let mut launch = Launch::new(image, arguments.collect());
    launch.at = (at != "-").then(|| at.into());
    let error = match launch.exec() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("{error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        eprintln!("  {error}");
        cause = error.source();
    }
    ExitCode::from(error.exit_code())
}
