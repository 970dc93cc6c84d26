//! What is said of wrong arguments, and how brisk exits then.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use brisk_terminal::names::shown;
use brisk_terminal::shell_word::shell_word;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::program_links::{next_in_path, own_arguments};

/// The exit code of a verb that starts a program, as a shell has it for what goes wrong before the program.
const BEFORE_PROGRAM: i32 = 125;

/// Prints the help that was asked for, or what is wrong with the arguments, and exits.
pub fn exit(error: clap::Error) -> ! {
    let arguments: Vec<_> = own_arguments().collect();
    let starts_program = match arguments.first().and_then(|verb| verb.to_str()) {
        Some("run" | "trace") => true,
        Some("replay") => arguments.iter().any(|argument| argument == "--"),
        _ => false,
    };
    let error = said_plainly(advised(error, &arguments));
    if !error.use_stderr() || !starts_program {
        error.exit();
    }
    // There is no other place to report a failure.
    error.print().ok();
    std::process::exit(BEFORE_PROGRAM)
}

/// The same error, with what is allowed in place of what the standard library says of numbers.
fn said_plainly(error: clap::Error) -> clap::Error {
    use std::error::Error;
    let allowed = match error.source().map(ToString::to_string).as_deref() {
        Some("number would be zero for non-zero type") => "allowed is a number from 1",
        Some("invalid digit found in string") => "allowed is a number, in digits",
        _ => return error,
    };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (value, option) = (
        text(ContextKind::InvalidValue),
        text(ContextKind::InvalidArg),
    );
    clap::Error::raw(
        ErrorKind::ValueValidation,
        format!(
            "invalid value '{}' for '{option}': {allowed}\n",
            shown(&value)
        ),
    )
}

/// The same error, with what to type instead. `arguments` begin with the verb.
fn advised(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    match arguments.split_first() {
        Some((verb, _)) if verb == "run" => advised_of_program(error, arguments),
        Some((verb, rest)) => advised_of_output(error, verb, rest),
        None => error,
    }
}

/// An argument more than a verb takes is mostly what it is to write.
fn advised_of_output(mut error: clap::Error, verb: &OsStr, rest: &[OsString]) -> clap::Error {
    let output = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => word.clone(),
        _ => return error,
    };
    // Other verbs that write take more than what they write: a command, a profile.
    let writes = ["pack", "repack", "wrap"]
        .into_iter()
        .any(|known| verb == known);
    let is_output = |argument: &OsString| {
        let bytes = argument.as_encoded_bytes();
        let is_short = bytes.starts_with(b"-") && !bytes.starts_with(b"--");
        bytes.starts_with(b"--output") || is_short && bytes.contains(&b'o')
    };
    if error.kind() == ErrorKind::UnknownArgument && writes && !rest.iter().any(is_output) {
        let tip = format!("to write it to '{}', use '-o {0}'", shown(&output));
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

fn advised_of_program(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let tips = match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips.clone(),
        _ => Vec::new(),
    };
    let tips = match command_of_start(arguments, error.kind()) {
        // Whatever option of brisk is like one of the program's is beside the point.
        Some(command) => {
            error.remove(ContextKind::SuggestedArg);
            let tip = format!("to start a program where it is, put --auto -- before it: {command}");
            vec![tip.into()]
        }
        // Behind `--` is a program, so what is put there is no argument for the program of an image.
        None => {
            let advice =
                "to pass it to the program that an image starts by itself, put --args before it";
            let replaced =
                tips.into_iter()
                    .map(|tip| match tip.to_string().contains("as a value, use") {
                        true => advice.into(),
                        false => tip,
                    });
            replaced.collect()
        }
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    error
}

/// The command that starts a program where it is, if that seems to be meant: `run --auto gcc -c x.c`, `run gcc -c x.c` and
/// `run -- gcc -c x.c`.
fn command_of_start(arguments: &[OsString], kind: ErrorKind) -> Option<String> {
    let given = arguments.get(1..)?;
    let end = given.iter().position(|argument| argument == "--");
    let (options, command) = match end {
        Some(end) if kind == ErrorKind::MissingRequiredArgument => {
            (given.get(..end)?, given.get(end + 1..)?)
        }
        Some(_) => return None,
        None => {
            let is_option = |argument: &&OsString| argument.as_encoded_bytes().starts_with(b"-");
            let program = given.iter().take_while(is_option).count();
            (given.get(..program)?, given.get(program..)?)
        }
    };
    let program = command.first()?;
    // A file or directory of this name is an image.
    let is_image = end.is_none() && Path::new(program).exists();
    if is_image || (end.is_none() && next_in_path(program).is_none()) {
        return None;
    }
    let options = options.iter().filter(|option| *option != "--auto");
    let words = ["brisk", "run", "--auto"].map(OsString::from);
    let words = words.iter().chain(options).map(|word| word.as_os_str());
    let words = words.chain(["--".as_ref()]);
    let words = words.chain(command.iter().map(|word| word.as_os_str()));
    let words: Vec<_> = words.map(|word| shown(shell_word(word))).collect();
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_path_is_to_stand_behind_two_hyphens() {
        for (given, kind, expected) in [
            (
                "--auto sh -c",
                ErrorKind::UnknownArgument,
                Some("brisk run --auto -- sh -c"),
            ),
            (
                "sh -c",
                ErrorKind::UnknownArgument,
                Some("brisk run --auto -- sh -c"),
            ),
            (
                "--auto --thorough sh --version",
                ErrorKind::UnknownArgument,
                Some("brisk run --auto --thorough -- sh --version"),
            ),
            (
                "-- sh -c",
                ErrorKind::MissingRequiredArgument,
                Some("brisk run --auto -- sh -c"),
            ),
            ("--nosuch -- sh", ErrorKind::UnknownArgument, None),
            (
                "--auto no-such-program --x",
                ErrorKind::UnknownArgument,
                None,
            ),
            // An image.
            ("/etc/passwd --x", ErrorKind::UnknownArgument, None),
            ("", ErrorKind::MissingRequiredArgument, None),
        ] {
            let words = format!("run {given}");
            let arguments: Vec<_> = words.split_whitespace().map(OsString::from).collect();
            let found = command_of_start(&arguments, kind);
            assert_eq!(found.as_deref(), expected, "{given}");
        }
    }
}
