//! Images that other tools make.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use brisk_image::profile::Profile;

use super::recipe::Recipe;
use super::undo::Undo;

/// A kind of image that another tool makes of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rival {
    /// By mksquashfs, with this codec.
    Squashfs(&'static str),
    /// By mksquashfs with zstd. The files that a profile asks for come first and are not compressed.
    SquashfsSorted,
    /// By mkfs.erofs, with this codec.
    Erofs(&'static str),
    /// SquashFS with these options of a codec.
    Packed(Recipe),
}

impl Rival {
    /// The type of its file system.
    pub fn filesystem(self) -> &'static str {
        match self {
            Self::Squashfs(_) | Self::SquashfsSorted | Self::Packed(_) => "squashfs",
            Self::Erofs(_) => "erofs",
        }
    }

    /// The command that makes it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Squashfs(_) | Self::SquashfsSorted => "mksquashfs",
            Self::Erofs(_) => "mkfs.erofs",
            Self::Packed(recipe) => recipe.tool(),
        }
    }

    /// The Debian package that has the command.
    fn package(self) -> &'static str {
        match self {
            Self::Squashfs(_) | Self::SquashfsSorted | Self::Packed(_) => "squashfs-tools",
            Self::Erofs(_) => "erofs-utils",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        match self {
            Self::Squashfs(codec) => format!("squashfs-{codec}.img"),
            Self::SquashfsSorted => "squashfs-zstd-sorted.img".to_owned(),
            Self::Erofs(codec) => format!("erofs-{codec}.img"),
            Self::Packed(recipe) => format!("{recipe}.img"),
        }
    }

    /// The command that makes the image of `tree`. It uses codecs as images for launches do: blocks of 128
    /// KiB, and the slowest level that is usual.
    pub fn command(self, tree: &Path, image: &Path, order: Option<&Order>) -> Result<Command> {
        let mut command = Command::new(self.tool());
        if let Self::Packed(recipe) = self {
            command = recipe.command(tree, image)?;
        } else if let Self::Erofs(codec) = self {
            command
                .args(erofs(codec))
                .arg("--quiet")
                .arg(image)
                .arg(tree);
        } else {
            command.arg(tree).arg(image);
            command.args(["-noappend", "-no-progress", "-quiet", "-b", "131072"]);
            command.args(squashfs(match self {
                Self::Squashfs(codec) => codec,
                _ => "zstd",
            }));
        }
        if let Some(order) = order {
            command.arg("-sort").arg(&order.sort);
            command.arg("-action-file").arg(&order.actions);
        }
        command.env_remove("SOURCE_DATE_EPOCH");
        Ok(command)
    }

    /// Makes the image with `command`.
    ///
    /// # Errors
    ///
    /// The reason in one line, if the tool is missing or fails.
    pub fn make(self, command: &mut Command, undo: &mut Undo) -> Result<()> {
        let (tool, package) = (self.tool(), self.package());
        let output = undo
            .output(command)
            .with_context(|| format!("cannot start {tool}; install {package}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().map(str::trim).find(|line| !line.is_empty());
            // For mkfs.erofs, without the level of the message.
            let first = first.map_or("it does not say why", |line| {
                line.trim_start_matches("<E> erofs: ")
            });
            bail!("{tool} ended with {}: {first}", output.status);
        }
        Ok(())
    }
}

fn squashfs(codec: &str) -> Vec<&str> {
    match codec {
        "none" => vec!["-noI", "-noD", "-noF", "-noX"],
        "zstd" => vec!["-comp", "zstd", "-Xcompression-level", "15"],
        "lz4" => vec!["-comp", "lz4", "-Xhc"],
        _ => vec!["-comp", codec],
    }
}

/// Clusters are as large as SquashFS blocks, or half of that for a codec that decodes fast.
fn erofs(codec: &str) -> &'static [&'static str] {
    match codec {
        "lz4" => &["-zlz4", "-C65536"],
        "lz4hc" => &["-zlz4hc,12", "-C65536"],
        "zstd" => &["-zzstd,15", "-C131072"],
        "lzma" => &["-zlzma,6", "-C131072"],
        _ => &[],
    }
}

/// Lists for mksquashfs, made from a profile: which files come first, and which are not compressed.
#[derive(Debug)]
pub struct Order {
    sort: PathBuf,
    actions: PathBuf,
}

impl Order {
    /// Writes both lists in `directory`. The files of `profile` are in the order in which it first asks for
    /// them.
    pub fn write(profile: &Profile, tree: &Path, directory: &Path) -> Result<Self> {
        let order = Self {
            sort: directory.join("sort"),
            actions: directory.join("actions"),
        };
        let mut first: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, range) in profile.ranges() {
            let next = first.len();
            first.entry(range.file).or_insert(next);
        }
        let mut files: Vec<_> = first.into_iter().map(|(file, rank)| (rank, file)).collect();
        files.sort_unstable();
        let mut sort = Vec::new();
        let mut actions = Vec::new();
        for (rank, number) in files {
            let path = usize::try_from(number)
                .ok()
                .and_then(|number| profile.files().get(number))
                .context("the profile has pages of a file that it does not have")?;
            let path = path.path.as_os_str();
            // A line holds one name.
            if path.as_bytes().contains(&b'\n') {
                continue;
            }
            for byte in tree.join(path).as_os_str().as_bytes() {
                if matches!(byte, b' ' | b'\t' | b'\\') {
                    sort.push(b'\\');
                }
                sort.push(*byte);
            }
            // The first file gets 32767, and the next ones less. Files for which no number is left share the
            // last one.
            let priority = 32767_usize.saturating_sub(rank).max(1);
            sort.extend(format!(" {priority}\n").into_bytes());
            if !is_pattern(path) {
                actions.extend(b"uncompressed@pathname(\"");
                actions.extend(path.as_bytes());
                actions.extend(b"\")\n");
            }
        }
        let written =
            fs::write(&order.sort, sort).and_then(|()| fs::write(&order.actions, actions));
        written.with_context(|| format!("cannot write lists in {}", directory.display()))?;
        Ok(order)
    }
}

/// Whether mksquashfs would read the name as a pattern.
fn is_pattern(name: &OsStr) -> bool {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'*' | b'?' | b'[' | b'(');
    name.as_bytes().iter().any(special)
}

/// The version that a tool reports if called with `argument`: the first line that begins with its name.
pub fn version(tool: &str, argument: &str) -> Option<String> {
    let output = Command::new(tool).arg(argument).output().ok()?;
    // Exit codes and output streams differ between releases.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().find(|line| line.starts_with(tool))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use brisk_image::profile::{Named, PAGE, ProfileBuilder, RootKind};
    use std::time::Duration;

    #[test]
    fn what_is_asked_for_first_comes_first() {
        let builder = ProfileBuilder::new();
        let root = builder.add_root("/tree", RootKind::Directory);
        for (id, page) in [(2, 5), (1, 0), (2, 0), (3, 0)] {
            builder.range(root, id, page * PAGE, PAGE, Duration::ZERO);
        }
        let name = |_, id: u64| {
            Some(Named::new(
                ["a b", "c", "d*"][usize::try_from(id).ok()?.checked_sub(1)?],
                6 * PAGE,
            ))
        };
        let profile = builder.finish(Vec::new(), None, name).unwrap().profile;
        let dir = tempfile::tempdir().unwrap();
        let order = Order::write(&profile, Path::new("/tree"), dir.path()).unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(
            text(&order.sort),
            "/tree/c 32767\n/tree/a\\ b 32766\n/tree/d* 32765\n"
        );
        assert_eq!(
            text(&order.actions),
            "uncompressed@pathname(\"c\")\nuncompressed@pathname(\"a b\")\n"
        );
    }
}
