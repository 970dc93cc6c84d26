//! The answers of verbs, and how a program exits with one.

use std::io;
use std::process::ExitCode;

use crate::messages::say;

/// The exit code for a verb that failed, and for wrong arguments.
pub const FAILED: u8 = 2;

/// What a verb found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, or true: exit code 0.
    Yes,
    /// Not true, for example when two images differ: exit code 1.
    No,
    /// The program that the verb ran exited with this code.
    Exited(u8),
}

/// Ends a verb other than `run`: prints the error, if there is one, and returns the exit code.
pub fn end(answer: anyhow::Result<Answer>) -> ExitCode {
    exit_code(answer, |_| FAILED)
}

/// Prints the error, if there is one, and returns the exit code.
pub fn exit_code(
    answer: anyhow::Result<Answer>,
    code_of: impl FnOnce(&anyhow::Error) -> u8,
) -> ExitCode {
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Exited(code)) => ExitCode::from(code),
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("brisk: {e:#}"));
            ExitCode::from(code_of(&e))
        }
    }
}

/// True if whoever read our output, such as `head`, has closed it: that is not a fault.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
