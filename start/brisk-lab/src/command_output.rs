//! What commands print that the lab starts.

use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// What `command` prints. It must succeed.
pub fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output();
    checked(command, output.map_err(Into::into))
}

/// What a command has printed that ended in this way. It must have succeeded.
pub fn checked(command: &Command, output: Result<Output>) -> Result<Vec<u8>> {
    let output =
        output.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}: {}",
            shown(command).join(" "),
            output.status,
            said.trim().replace('\n', " / ")
        );
    }
    Ok(output.stdout)
}

/// The words of a command, for people.
pub fn shown(command: &Command) -> Vec<String> {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
