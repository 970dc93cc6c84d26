//! Opens an image of 100,000 files, and lists it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, State, Timed, Tool, prepare};

use crate::codec::Codec;
use crate::{Setup, clear};

const DIRECTORIES: usize = 1000;
const FILES_PER_DIRECTORY: usize = 100;
const GOAL: f64 = 0.3;

pub(crate) fn measure(bench: &mut Bench, setup: &Setup) -> Result<()> {
    let tree = setup.work.join("many");
    let names = make_tree(&tree).context("cannot make a tree of 100,000 files")?;
    let image = setup.work.join("list.img");
    setup.reference_image(&tree, Codec::Zstd, &image)?;
    clear(&tree)?;

    let theirs: Vec<OsString> = vec!["-lls".into(), (&image).into()];
    let ours: Vec<OsString> = ["ls", "-l", "-R"]
        .into_iter()
        .map(OsString::from)
        .chain([(&image).into()])
        .collect();
    let (image, names) = (image.as_path(), &names);
    let lister = |tool, args| Lister {
        setup,
        tool,
        args,
        image,
        names,
    };
    bench.compare(
        "list",
        &format!("{} files, zstd 15", DIRECTORIES * FILES_PER_DIRECTORY),
        "image warm, proven",
        lister(&setup.unsquashfs, theirs).timed(),
        vec![(lister(&setup.brisk, ours).timed(), Some(GOAL))],
    )?;
    clear(image)
}

/// A tool that lists an image.
struct Lister<'a> {
    setup: &'a Setup,
    tool: &'a Tool,
    args: Vec<OsString>,
    image: &'a Path,
    names: &'a HashSet<String>,
}

impl<'a> Lister<'a> {
    fn timed(self) -> Timed<'a> {
        Timed {
            name: self.tool.name,
            work: Box::new(move || self.list()),
        }
    }

    /// Lists with the image in the page cache, and checks that each file is named.
    fn list(&self) -> Result<Duration> {
        let said = self.setup.said();
        clear(&said)?;
        prepare(self.image, State::Warm)?;
        let elapsed = self.tool.time(&self.args, &said)?;
        let listing = fs::read_to_string(&said).context("cannot read the listing")?;
        let listed = names_in(&listing);
        let missing = self
            .names
            .iter()
            .find(|name| !listed.contains(name.as_str()));
        ensure!(
            missing.is_none(),
            "the listing has {} names, and lacks {missing:?}",
            listed.len()
        );
        Ok(elapsed)
    }
}

/// The last name of the path at the end of each line of a long listing. The listing may show whole paths, or
/// names grouped by directory.
fn names_in(listing: &str) -> HashSet<&str> {
    listing
        .lines()
        .filter_map(|line| line.rsplit([' ', '/']).next())
        .collect()
}

/// Makes the tree, and returns the names of its files. Each name occurs once.
fn make_tree(tree: &Path) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for directory in 0..DIRECTORIES {
        let dir = tree.join(format!("directory-{directory}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES_PER_DIRECTORY {
            let name = format!("file-{directory}-{file}.txt");
            fs::write(dir.join(&name), &name)?;
            names.insert(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_kinds_of_listing() {
        let whole = "-rw-r--r-- root/root   12 2024-01-01 00:00 squashfs-root/d/file-1\n";
        let grouped = "d:\n-rw-r--r-- root root 12 2024-01-01 00:00 file-1\n";
        assert!(names_in(whole).contains("file-1"));
        assert!(names_in(grouped).contains("file-1"));
    }
}
