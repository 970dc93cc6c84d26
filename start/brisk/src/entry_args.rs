//! The arguments that say how an image starts its program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brisk_image::EntryPoint;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// How the image starts its program.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Entry")]
pub struct EntryArgs {
    /// Records that brisk run starts this program if none is named. Everything behind --entry is the program and its
    /// arguments, so it comes last. They mean what they mean behind -- of brisk run.
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    entry: Vec<OsString>,

    /// Makes the image the program's root directory, as brisk run --root does. Before --entry.
    #[arg(long, requires = "entry", conflicts_with = "at")]
    root: bool,

    /// Starts the program in this directory of the image, as brisk run --chdir does. Before --entry.
    #[arg(long, value_name = "DIR", requires = "entry")]
    chdir: Option<PathBuf>,

    /// Sets a variable in the program's environment, whatever the user's environment has. May be repeated. Before --entry.
    #[arg(long, value_name = "NAME=VALUE", requires = "entry",
          value_parser = OsStringValueParser::new().try_map(|text| parse_variable(&text)))]
    env: Vec<(OsString, OsString)>,
}

fn parse_variable(text: &OsStr) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        None | Some(0) => Err("allowed is NAME=VALUE".to_owned()),
        Some(at) => {
            let (name, value) = bytes.split_at(at);
            let value = value.strip_prefix(b"=").unwrap_or(value);
            Ok((
                OsStr::from_bytes(name).into(),
                OsStr::from_bytes(value).into(),
            ))
        }
    }
}

impl EntryArgs {
    /// Whether `--entry` was given.
    pub fn is_given(&self) -> bool {
        !self.entry.is_empty()
    }

    /// The entry that was given. None without `--entry`.
    pub fn entry(&self) -> anyhow::Result<Option<EntryPoint>> {
        // Behind -- as in brisk run.
        let words = match self.entry.split_first() {
            Some((first, rest)) if first == "--" => rest,
            _ => &self.entry,
        };
        if self.entry.is_empty() {
            return Ok(None);
        }
        let mut entry = EntryPoint::new(words.to_vec())?.root(self.root);
        if let Some(directory) = &self.chdir {
            entry = entry.directory(directory)?;
        }
        for (name, value) in &self.env {
            entry = entry.variable(name, value)?;
        }
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_name_and_may_have_an_empty_value() {
        for (text, found) in [
            ("A=b=c", Some(("A", "b=c"))),
            ("A=", Some(("A", ""))),
            ("=b", None),
            ("A", None),
            ("", None),
        ] {
            let found = found.map(|(name, value)| (name.into(), value.into()));
            assert_eq!(parse_variable(OsStr::new(text)).ok(), found, "{text}");
        }
    }
}
