//! Reads results that experiments have written, and makes one page of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use brisk_terminal::messages::warn;
use brisk_terminal::page::Page;

use super::load::{LoadResults, page as load_page};
use super::raw::{self, Raw};
use super::reads::{self, ReadsResults};

/// The files that experiments write in their directory.
const NAMES: [&str; 3] = ["raw.json", "load.json", "reads.json"];

/// Results of an experiment that starts no program.
pub struct Part {
    /// The name of the file.
    name: String,
    text: Vec<u8>,
    what: What,
}

enum What {
    Load(LoadResults),
    Reads(ReadsResults),
}

/// Results of any experiment.
enum Kept {
    Launch(Raw),
    Part(Part),
}

impl Kept {
    fn open(path: &Path) -> Result<Self> {
        let (name, text) = raw::read(path)?;
        let parsed = || {
            // If the file is not JSON, it cannot be results of any kind.
            let value: serde_json::Value = serde_json::from_slice(&text)
                .context("this is not JSON, but all results are JSON")?;
            let what = if load_page::is_of_load(&value) {
                What::Load(load_page::parse(&text)?)
            } else if reads::is_of_reads(&value) {
                What::Reads(reads::parse(&text)?)
            } else {
                return Ok(Self::Launch(Raw::parse(name, text)?));
            };
            // Written again without white space.
            let text = serde_json::to_vec(&value)?;
            Ok(Self::Part(Part { name, text, what }))
        };
        let parsed: Result<Self> = parsed();
        parsed.with_context(|| path.display().to_string())
    }
}

impl Part {
    /// Its subject, for a title.
    pub fn title(&self) -> &'static str {
        match self.what {
            What::Load(_) => "Loading a large file",
            What::Reads(_) => "Small reads of a file",
        }
    }

    /// Draws all results, with a link that saves them.
    pub fn draw(&self, page: &mut Page) {
        let machine = match &self.what {
            What::Load(results) => {
                load_page::draw(page, results);
                &results.machine
            }
            What::Reads(results) => {
                reads::draw(page, results);
                &results.machine
            }
        };
        page.note(&machine.words());
        page.download(&self.name, "application/json", &self.text);
    }
}

/// Reads results: those of launches, and the others.
pub fn open(kept: &[PathBuf]) -> Result<(Vec<Raw>, Vec<Part>)> {
    let (mut raws, mut parts) = (Vec::new(), Vec::new());
    for path in kept {
        match Kept::open(path)? {
            Kept::Launch(raw) => raws.push(raw),
            Kept::Part(part) => parts.push(part),
        }
    }
    Ok((raws, parts))
}

/// Reads the results in `out`. Results that cannot be read, for example those of another version, are left out with a
/// warning.
pub fn open_in(out: &Path) -> (Vec<Raw>, Vec<Part>) {
    let (mut raws, mut parts) = (Vec::new(), Vec::new());
    let paths = NAMES.map(|name| out.join(name));
    for path in paths.iter().filter(|path| path.exists()) {
        match Kept::open(path) {
            Ok(Kept::Launch(raw)) => raws.push(raw),
            Ok(Kept::Part(part)) => parts.push(part),
            Err(e) => warn(&format!(
                "report.html leaves these results out: {e:#}; remove the file, or measure again"
            )),
        }
    }
    (raws, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn results_that_cannot_be_read_are_told_as_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("load.json");
        let table = [
            ("{\"brisk_lab", "this is not JSON, but all results are JSON"),
            (
                "{\"brisk_lab_load\": 1}",
                "this is not a load.json of brisk lab load",
            ),
            ("{}", "this is not a raw.json of brisk lab launch"),
        ];
        for (text, why) in table {
            fs::write(&path, text).unwrap();
            let e = open(std::slice::from_ref(&path)).err().unwrap();
            let chain: Vec<_> = e.chain().map(|e| e.to_string()).collect();
            assert_eq!(chain[..2], [path.display().to_string(), why.to_owned()]);
        }
    }
}
