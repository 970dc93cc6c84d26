//! The options of codecs, and which of them are compared.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result};
use brisk_terminal::size::parse_size_u32;

use brisk::beside;

/// The default block size.
const BLOCK: u32 = 128 << 10;
const LARGE: u32 = 1 << 20;

/// A codec with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recipe {
    pub codec: &'static str,
    /// None for the fast mode of lz4, and for codecs without levels.
    pub level: Option<u32>,
    /// The dictionary of xz in bytes. None if it is as large as a block.
    pub dict: Option<u32>,
    /// Whether xz tries the branch filter of this processor.
    pub bcj: bool,
    /// Bytes of a block.
    pub block: u32,
}

const CODECS: [&str; 6] = ["none", "lz4", "lzo", "gzip", "zstd", "xz"];

impl Recipe {
    /// A codec at a level, with default options.
    pub const fn new(codec: &'static str, level: Option<u32>) -> Self {
        Self {
            codec,
            level,
            dict: None,
            bcj: false,
            block: BLOCK,
        }
    }

    /// The recipes that answer the questions with few images, or `all` recipes.
    pub fn list(all: bool) -> Vec<Self> {
        let levels = |codec, few: &[u32], every: std::ops::RangeInclusive<u32>| -> Vec<Self> {
            let levels = match all {
                true => every.collect(),
                false => few.to_vec(),
            };
            let with = levels
                .into_iter()
                .map(|level| Self::new(codec, Some(level)));
            with.collect()
        };
        let mut list = vec![Self::new("none", None), Self::new("lz4", None)];
        list.extend(levels("lz4", &[12], 3..=12));
        list.extend(levels("lzo", &[1, 9], 1..=9));
        list.extend(levels("gzip", &[1, 9], 1..=12));
        list.extend(levels("zstd", &[1, 3, 9, 15, 22], 1..=22));
        let large = |recipe: Self| Self {
            block: LARGE,
            ..recipe
        };
        list.push(large(Self::new("zstd", Some(15))));
        list.extend(levels("xz", &[0, 3, 6, 9], 0..=9));
        let presets: &[u32] = match all {
            true => &[0, 3, 6, 9],
            false => &[6],
        };
        for preset in presets {
            let plain = Self::new("xz", Some(*preset));
            let dict = |dict| Self {
                dict: Some(dict),
                ..plain
            };
            let bcj = Self { bcj: true, ..plain };
            list.extend([dict(32 << 10), bcj, large(plain), large(dict(BLOCK))]);
            if all {
                list.extend([dict(64 << 10), large(dict(512 << 10)), large(bcj)]);
            }
        }
        if filter().is_none() {
            list.retain(|recipe| !recipe.bcj);
        }
        list
    }

    /// The command that makes such an image: `brisk pack`, or mksquashfs for the levels of lzo.
    pub fn tool(self) -> &'static str {
        match self.codec {
            "lzo" => "mksquashfs",
            _ => "brisk",
        }
    }

    /// The command that makes the image of `tree`.
    pub fn command(self, tree: &Path, image: &Path) -> Result<Command> {
        let block = self.block.to_string();
        if self.tool() == "mksquashfs" {
            let mut command = Command::new("mksquashfs");
            command.arg(tree).arg(image);
            command.args(["-noappend", "-no-progress", "-quiet", "-b", &block]);
            command.args(["-comp", self.codec]);
            if let Some(level) = self.level {
                command.args(["-Xcompression-level", &level.to_string()]);
            }
            return Ok(command);
        }
        let brisk = beside("brisk").context("cannot find brisk-lab's own file")?;
        let mut command = Command::new(brisk);
        command.args(["pack", "-q", "--no-recipe", "--codec", self.codec]);
        command.args(["--block-size", &block]);
        if let Some(level) = self.level {
            command.args(["--level", &level.to_string()]);
        }
        if let Some(dict) = self.dict {
            command.args(["--xz-dict", &dict.to_string()]);
        }
        if let Some(filter) = filter().filter(|_| self.bcj) {
            command.args(["--xz-bcj", filter]);
        }
        command.arg(tree).arg("-o").arg(image);
        Ok(command)
    }
}

/// The xz branch filter for programs of this processor.
fn filter() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86" | "x86_64" => Some("x86"),
        "aarch64" => Some("arm64"),
        "powerpc" | "powerpc64" => Some("powerpc"),
        "riscv64" => Some("riscv"),
        _ => None,
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec)?;
        if let Some(level) = self.level {
            write!(f, " {level}")?;
        }
        if let Some(dict) = self.dict {
            write!(f, ", dictionary {}K", dict >> 10)?;
        }
        if self.bcj {
            f.write_str(", branch filter")?;
        }
        match self.block {
            BLOCK => Ok(()),
            block => write!(f, ", blocks {}K", block >> 10),
        }
    }
}

impl FromStr for Recipe {
    type Err = anyhow::Error;

    /// Reads the form in which recipes are shown.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut parts = text.split(", ");
            let mut words = parts.next()?.split(' ');
            let name = words.next()?;
            let codec = CODECS.into_iter().find(|codec| *codec == name)?;
            let level = words.next().map(str::parse).transpose().ok()?;
            let mut recipe = Self::new(codec, level);
            for part in parts {
                match part.split_once(' ')? {
                    ("dictionary", size) => recipe.dict = Some(parse_size_u32(size).ok()?),
                    ("blocks", size) => recipe.block = parse_size_u32(size).ok()?,
                    ("branch", "filter") => recipe.bcj = true,
                    _ => return None,
                }
            }
            Some(recipe)
        };
        parse().with_context(|| format!("{text} is not a codec with its options"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_recipe_is_listed_once_and_has_one_name() {
        for (all, at_least) in [(false, 20), (true, 70)] {
            let list = Recipe::list(all);
            let names: BTreeSet<_> = list.iter().map(Recipe::to_string).collect();
            assert_eq!(names.len(), list.len());
            assert!(list.len() >= at_least, "{}", list.len());
            for recipe in list {
                assert_eq!(recipe.to_string().parse::<Recipe>().unwrap(), recipe);
            }
        }
        for odd in [
            "",
            "directory",
            "squashfs-zstd",
            "xz x",
            "xz 6, dictionary",
            "xz 6, more 1",
        ] {
            assert!(odd.parse::<Recipe>().is_err(), "{odd}");
        }
        let few = Recipe::list(false);
        assert!(few.iter().all(|recipe| Recipe::list(true).contains(recipe)));
    }
}
