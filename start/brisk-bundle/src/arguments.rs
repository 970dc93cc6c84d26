//! The arguments of a bundle.

use std::env;
use std::ffi::{OsStr, OsString};

/// What the user of a bundle asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To start its program with these arguments.
    Start(Vec<OsString>),
    /// The same from a directory that the image is extracted to.
    StartExtracted(Vec<OsString>),
    /// To extract what matches the pattern. All without one; more than one is a mistake.
    Extract(Vec<OsString>),
    Mount,
    Offset,
    Version,
    Help,
    /// A directory beside the bundle with this end of its name.
    Portable(&'static str),
    UpdateInformation,
    Signature,
    /// Something that starts like an option of AppImages, and is none.
    Unknown(OsString),
}

impl Asked {
    /// Only the first argument can be an option of AppImages. All others are the program's.
    pub(crate) fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter().peekable();
        let option = arguments.peek().and_then(|first| first.to_str());
        let Some(option) = option.and_then(|first| first.strip_prefix("--appimage-")) else {
            return match env::var_os("APPIMAGE_EXTRACT_AND_RUN").is_some() {
                true => Self::StartExtracted(arguments.collect()),
                false => Self::Start(arguments.collect()),
            };
        };
        let asked = match option {
            "extract" => None,
            "extract-and-run" => {
                return Self::StartExtracted(arguments.skip(1).collect());
            }
            "mount" => Some(Self::Mount),
            "offset" => Some(Self::Offset),
            "version" => Some(Self::Version),
            "help" => Some(Self::Help),
            "portable-home" => Some(Self::Portable("home")),
            "portable-config" => Some(Self::Portable("config")),
            "updateinformation" | "updateinfo" => Some(Self::UpdateInformation),
            "signature" => Some(Self::Signature),
            _ => Some(Self::Unknown(OsString::from(option))),
        };
        match asked {
            Some(Self::Unknown(_)) => Self::Unknown(arguments.next().unwrap_or_default()),
            Some(asked) => asked,
            None => Self::Extract(arguments.skip(1).collect()),
        }
    }
}

/// What `--appimage-help` says. `name`: the path of the bundle.
pub(crate) fn help(name: &OsStr) -> String {
    let name = brisk_terminal::names::shown(name);
    format!(
        "\
Starts the program of this file. All arguments are the program's, unless the first is one of these:

  --appimage-extract [PATTERN]   Extracts all, or what matches the pattern, to squashfs-root. Files there
                                 are replaced
  --appimage-extract-and-run     Starts the program from a directory that is removed afterwards, where nothing can be
                                 mounted. The variable APPIMAGE_EXTRACT_AND_RUN=1 does the same
  --appimage-mount               Mounts the image, prints where, and unmounts it at Ctrl-C
  --appimage-offset              Prints the byte at which the image starts
  --appimage-version             Prints the version of the program in front of the image
  --appimage-portable-home       Makes {name}.home. While it is there, it is HOME of the program
  --appimage-portable-config     Makes {name}.config. While it is there, it is XDG_CONFIG_HOME of the program
  --appimage-updateinfo[rmation] Prints where newer versions are, if the file says so
  --appimage-signature           Prints the signature in the file, if there is one
  --appimage-help                Prints this
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_argument_is_an_option() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (given, asked) in [
            (&[][..], Asked::Start(words(&[]))),
            (
                &["a", "--appimage-help"],
                Asked::Start(words(&["a", "--appimage-help"])),
            ),
            (&["--help"], Asked::Start(words(&["--help"]))),
            (
                &["--appimage-extract-and-run", "a", "b"],
                Asked::StartExtracted(words(&["a", "b"])),
            ),
            (&["--appimage-extract"], Asked::Extract(words(&[]))),
            (
                &["--appimage-extract", "usr/*"],
                Asked::Extract(words(&["usr/*"])),
            ),
            (&["--appimage-updateinfo"], Asked::UpdateInformation),
            (&["--appimage-portable-home"], Asked::Portable("home")),
            (
                &["--appimage-list", "a"],
                Asked::Unknown("--appimage-list".into()),
            ),
        ] {
            assert_eq!(Asked::of(words(given)), asked, "{given:?}");
        }
    }
}
