//! What a user can do about an error of a library, in the words of the commands.

use std::process::ExitCode;

use brisk_launch::{Advice, Error};
use brisk_terminal::answer::{self, Answer};

fn words(advice: Advice) -> Option<&'static str> {
    Some(match advice {
        Advice::OtherCodec => "repack it with another codec: brisk repack --codec CODEC",
        Advice::ListMounts => "brisk stat lists sessions and mounts",
        Advice::EndPrograms => "end what uses it, or use --lazy to end it with the last program",
        Advice::AllowNamespaces => "brisk doctor says how to allow user namespaces",
        Advice::ChooseWhoSees => {
            "leave out --seen-by user, or do without --root, --writable, --bind and --with"
        }
        Advice::Unmount => "end it with brisk umount, or name another directory",
        Advice::NamePlace => "name a place with --at DIR",
        Advice::NamePlaces => "name one with --with IMAGE@DIR",
        Advice::NameDirectory => "name another directory with --chdir",
        Advice::OtherLayer => {
            "name another directory with --writable=DIR, or none, which keeps what is written in memory"
        }
        Advice::LayerTaken => {
            "wait for its end, end it with brisk umount, or name another directory with --writable=DIR"
        }
        Advice::PackAgain => "make it again with brisk hot",
        Advice::NameTrees => {
            "name an image, or each directory that the program starts from with --tree; as root, name none to trace the whole \
             system"
        }
        Advice::LeaveOutRoot => "leave out --root",
        Advice::NameCommand => "name one after --",
        _ => return None,
    })
}

/// An error with its reasons and what to do, in one line.
pub fn with_advice(error: &Error) -> String {
    let text = brisk_launch::with_reasons(error);
    match error.advice().and_then(words) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// Prints the error with what to do, if there is one, and returns the exit code.
pub fn exit_code(answer: anyhow::Result<Answer>, code_of: fn(&anyhow::Error) -> u8) -> ExitCode {
    let mut code = None;
    let answer = answer.map_err(|error| {
        let mut causes = error.chain();
        let cause = causes.find_map(|cause| cause.downcast_ref::<Error>());
        match cause.and_then(Error::advice).and_then(words) {
            Some(advice) => {
                code = Some(code_of(&error));
                anyhow::anyhow!("{error:#}; {advice}")
            }
            None => error,
        }
    });
    answer::exit_code(answer, |error| code.unwrap_or_else(|| code_of(error)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_to_do_stands_behind_all_reasons_and_leaves_the_exit_code() {
        let error = brisk_serve::unmount(Path::new("/none"), false).expect_err("nothing is there");
        let told = "cannot unmount /none: there is nothing of this name; brisk stat lists sessions and mounts";
        assert_eq!(with_advice(&error), told);
    }
}
