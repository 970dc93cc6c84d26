//! A launch beside the replay of a profile that is named. The program `brisk` does this by itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brisk_launch::{BackgroundReplay, DiskCharge, PlainLaunch};

use crate::disk_rate::parse_charge;
use crate::file_kind::check_profile;
use crate::known_launch::start_or_warn;

/// What `run DIR --profile PROFILE -- CMD` and `replay PROFILE -- CMD` say, if they say nothing else but `--at` and `--disk`.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedReplay {
    /// The directory of `run`.
    tree: Option<PathBuf>,
    profile: PathBuf,
    /// Where the files are.
    at: Vec<PathBuf>,
    charge: DiskCharge,
    command: Vec<OsString>,
}

impl NamedReplay {
    /// None if the arguments say something else.
    pub fn parse(arguments: &[OsString]) -> Option<Self> {
        let end = arguments.iter().position(|argument| argument == "--")?;
        let (options, command) = arguments.split_at(end);
        let command = command.get(1..).filter(|command| !command.is_empty())?;
        let (verb, options) = options.split_first()?;
        let mut options = options.iter();
        let (mut named, mut profile, mut at, mut charge) = (None, None, Vec::new(), None);
        while let Some(option) = options.next() {
            if !option.as_bytes().starts_with(b"-") {
                set(&mut named, PathBuf::from(option))?;
                continue;
            }
            let (option, value) = match option.as_bytes().iter().position(|byte| *byte == b'=') {
                Some(equals) => {
                    let (option, value) = option.as_bytes().split_at(equals);
                    (OsStr::from_bytes(option), value.get(1..)?)
                }
                None => (&**option, options.next()?.as_bytes()),
            };
            // It would be another option.
            if value.is_empty() || value.starts_with(b"-") {
                return None;
            }
            let path = || PathBuf::from(OsStr::from_bytes(value));
            match (option.to_str()?, verb.to_str()?) {
                ("--profile", "run") => set(&mut profile, path())?,
                ("--at", "replay") => at.push(path()),
                ("--disk", _) => {
                    let text = std::str::from_utf8(value).ok()?;
                    set(&mut charge, parse_charge(text).ok()?)?;
                }
                _ => return None,
            }
        }
        let (tree, profile) = match verb.to_str()? {
            "run" => (Some(named?), profile?),
            "replay" => (None, named?),
            _ => return None,
        };
        Some(Self {
            tree,
            profile,
            at,
            charge: charge.unwrap_or_default(),
            command: command.to_vec(),
        })
    }

    /// Replays, and becomes the program. None if there is more to do, or if something is wrong: `brisk-run` does it, or says
    /// what. The error says why the program does not start.
    pub fn become_program(self) -> Option<brisk_launch::Error> {
        let mut launch = PlainLaunch::new(self.command);
        let mut at = self.at;
        if let Some(tree) = self.tree {
            // An image is none, and neither is an empty name.
            if !tree.is_dir() {
                return None;
            }
            let tree = std::path::absolute(tree).ok()?;
            at.push(tree.clone());
            launch.tree = Some(tree);
        }
        launch.program().ok()?;
        check_profile(&self.profile).ok()?;
        let mut background = BackgroundReplay::open(&*self.profile).ok()?;
        background.at = at;
        background.charge = self.charge;
        start_or_warn(background);
        launch.exec().err()
    }
}

/// None if there was one.
fn set<T>(option: &mut Option<T>, value: T) -> Option<()> {
    option.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn parse(text: &str) -> Option<NamedReplay> {
        let arguments: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        NamedReplay::parse(&arguments)
    }

    #[test]
    fn what_a_replay_needs_is_found() {
        let command = vec![OsString::from("a"), "--".into(), "--at".into()];
        let charge = DiskCharge {
            operations_per_second: NonZeroU64::new(7),
            ..DiskCharge::default()
        };
        let replay = NamedReplay {
            tree: None,
            profile: "p".into(),
            at: vec!["x".into(), "y=z".into()],
            charge,
            command: command.clone(),
        };
        let text = "replay --at x p --disk iops=7 --at=y=z -- a -- --at";
        assert_eq!(parse(text), Some(replay));
        let run = NamedReplay {
            tree: Some("d".into()),
            profile: "p".into(),
            at: Vec::new(),
            charge: DiskCharge::default(),
            command,
        };
        assert_eq!(parse("run --profile=p d -- a -- --at"), Some(run));
    }

    #[test]
    fn what_else_is_said_is_for_others() {
        for text in [
            "replay p",
            "replay p --",
            "replay -- a",
            "replay p q -- a",
            "replay p -v -- a",
            "replay p --at -- a",
            "replay p --at= -- a",
            "replay p --at -x -- a",
            "replay p --disk iops=0 -- a",
            "replay p --disk iops=7 --disk iops=7 -- a",
            "replay p --profile q -- a",
            "run d -- a",
            "run --profile p -- a",
            "run d --auto --profile p -- a",
            "run d --profile p --profile p -- a",
            "run d --at x --profile p -- a",
            "run d --profile p --root -- a",
            "trace d --profile p -- a",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
