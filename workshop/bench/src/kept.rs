//! Kept results of experiments, of whatever kind.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use brisk::write_whole;

use crate::caches::Caches;
use crate::objects::Objects;
use crate::report::{Report, page_of};
use crate::results::Results;
use crate::ways::Ways;

/// Results in a file.
pub struct Kept {
    name: String,
    /// Without white space.
    text: String,
    report: Box<dyn Report>,
}

impl Kept {
    /// Reads a cache.json, an index.json or an objects.json.
    pub fn open(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let parsed = || {
            let value = serde_json::from_slice(&text).context("this is not JSON")?;
            let report: Box<dyn Report> = if let Some(results) = Results::<Caches>::parse(&value) {
                Box::new(results?)
            } else if let Some(results) = Results::<Ways>::parse(&value) {
                Box::new(results?)
            } else if let Some(results) = Results::<Objects>::parse(&value) {
                Box::new(results?)
            } else {
                bail!("this is no cache.json, index.json or objects.json");
            };
            let text = serde_json::to_string(&value)?;
            Ok(Self { name, text, report })
        };
        parsed().with_context(|| path.display().to_string())
    }
}

/// The tables of results in Markdown.
pub fn markdown(all: &[Kept]) -> String {
    let tables = all.iter().map(|kept| kept.report.markdown());
    tables.collect::<String>().trim_end().to_owned() + "\n"
}

/// Writes a page with pictures of results.
pub fn write_page(all: &[Kept], path: &Path) -> Result<()> {
    let all = all.iter();
    let all = all.map(|kept| (kept.name.clone(), kept.text.clone(), &*kept.report));
    write_whole(&page_of(&all.collect::<Vec<_>>()), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_cannot_be_read_are_told_as_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        for (text, why) in [
            ("{\"brisk_lab", "this is not JSON"),
            ("{\"brisk_lab_index\": 1}", "this is no index.json"),
            ("{\"brisk_lab_objects\": 1}", "this is no objects.json"),
            (
                "{\"brisk_lab_cache\": 2}",
                "field brisk_lab_cache: found 2, allowed is 1: a newer brisk wrote it",
            ),
            ("{}", "this is no cache.json, index.json or objects.json"),
        ] {
            fs::write(&path, text).unwrap();
            let e = Kept::open(&path).err().unwrap();
            let chain: Vec<_> = e.chain().map(|e| e.to_string()).collect();
            assert_eq!(chain[..2], [path.display().to_string(), why.to_owned()]);
        }
    }
}
