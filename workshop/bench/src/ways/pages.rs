//! The frozen pages of an index, and what is to be chosen from them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The name of the list beside the pages.
const LIST: &str = "packages.json";

/// The list of frozen pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pages {
    /// The version of this format.
    pub brisk_index_pages: u32,
    /// The Python that files are for.
    pub python: String,
    /// The platform that files are for.
    pub platform: String,
    /// In the order in which they are asked for.
    pub packages: Vec<Page>,
    /// The page that is asked for alone. It is no other.
    pub largest: Page,
    /// Pages that are in no experiment.
    pub left_out: Vec<PageLeftOut>,
}

/// A page, with a requirement, and the file that every way must choose for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page {
    /// The normalised name of the project. The page is `NAME.page`.
    pub name: String,
    /// The specifiers of the requirement.
    pub specifiers: String,
    /// Bytes of the page.
    pub bytes: u64,
    /// Versions with files.
    pub versions: u64,
    /// Files.
    pub files: u64,
    /// The name of the file to choose.
    pub file: String,
    /// Its URL.
    pub url: String,
}

/// A page that is in no experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PageLeftOut {
    /// The name of the project.
    pub name: String,
    /// What is different about it.
    pub why: String,
}

impl Pages {
    /// Reads the list in a directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(LIST);
        let text = fs::read(&path).with_context(|| {
            format!(
                "--pages: cannot read {}; index-ways pages makes it",
                path.display()
            )
        })?;
        let pages: Self =
            serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        ensure!(
            pages.brisk_index_pages == 1,
            "{}: field brisk_index_pages: found {}, allowed is 1",
            path.display(),
            pages.brisk_index_pages
        );
        ensure!(
            !pages.packages.is_empty(),
            "{}: there are no packages",
            path.display()
        );
        Ok(pages)
    }

    /// Writes the list into a directory.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(LIST);
        let text = serde_json::to_vec_pretty(self)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// The number of the index and the page of each of so many packages: an index has each page once.
    pub fn repeated(&self, packages: u64) -> impl Iterator<Item = (u64, &Page)> {
        let each = self.packages.len() as u64;
        let pages = self.packages.iter().cycle();
        (0..packages)
            .zip(pages)
            .map(move |(n, page)| (n / each, page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_each_page_once() {
        let page = |name: &str| Page {
            name: name.to_owned(),
            specifiers: String::new(),
            bytes: 1,
            versions: 1,
            files: 1,
            file: String::new(),
            url: String::new(),
        };
        let pages = Pages {
            brisk_index_pages: 1,
            python: "3.12.0".to_owned(),
            platform: "any".to_owned(),
            packages: vec![page("a"), page("b")],
            largest: page("c"),
            left_out: Vec::new(),
        };
        let asked = pages.repeated(5).map(|(index, page)| (index, &*page.name));
        let expected = [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a")];
        assert_eq!(asked.collect::<Vec<_>>(), expected);
        let directory = tempfile::tempdir().unwrap();
        pages.write(directory.path()).unwrap();
        let read = Pages::open(directory.path()).unwrap();
        assert_eq!(read.packages[1].name, "b");
    }
}
