//! Raw runs of launches, as an experiment kept them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::results::{Results, Row};

/// The largest file of raw runs in bytes: a hundred times what the largest experiment writes.
const LARGEST: u64 = 64 << 20;

/// Raw runs from a file.
pub struct Raw {
    /// The name of the file.
    pub name: String,
    pub text: Vec<u8>,
    pub results: Results,
}

impl Raw {
    /// Reads the contents of a file that `brisk lab launch` wrote.
    pub fn parse(name: String, text: Vec<u8>) -> Result<Self> {
        let mut results: Results =
            serde_json::from_slice(&text).context("this is not a raw.json of brisk lab launch")?;
        ensure!(
            results.brisk_lab == 1,
            "field brisk_lab: found {}, allowed is 1: a newer brisk wrote it",
            results.brisk_lab
        );
        let seed = results.settings.seed;
        results.apps.iter_mut().for_each(|app| app.add_shares(seed));
        // Written again without white space.
        let text = serde_json::to_vec(&serde_json::from_slice::<serde_json::Value>(&text)?)?;
        Ok(Self {
            name,
            text,
            results,
        })
    }

    /// The formats that have figures.
    fn formats(&self) -> impl Iterator<Item = &str> {
        let rows = self.results.apps.iter().flat_map(|app| &app.rows);
        rows.map(|row| &*row.format)
    }
}

/// Whether `format`, as `--formats` has it, means this row. `brisk-speed` means it with any profile,
/// `brisk-speed/another` with the profile of another launch.
fn means(format: &str, row: &Row) -> bool {
    format == row.format
        || row
            .training
            .is_some_and(|training| format == format!("{}/{training}", row.format))
}

/// Keeps only the rows of these formats.
pub fn keep(raws: &mut [Raw], formats: &[String]) -> Result<()> {
    let apps = || raws.iter().flat_map(|raw| &raw.results.apps);
    for format in formats {
        let is_known = apps()
            .flat_map(|app| &app.rows)
            .any(|row| means(format, row));
        let known: BTreeSet<_> = raws.iter().flat_map(Raw::formats).collect();
        ensure!(
            is_known,
            "--formats: found {format:?}, the runs have {}, each of which may have /same or /another behind it, \
             where they have such a profile",
            known.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    for app in raws.iter_mut().flat_map(|raw| &mut raw.results.apps) {
        app.rows
            .retain(|row| formats.iter().any(|format| means(format, row)));
    }
    Ok(())
}

/// Reads a file that an experiment wrote, and returns its name and its bytes.
pub fn read(path: &Path) -> Result<(String, Vec<u8>)> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        text.len() as u64 <= LARGEST,
        "{} has more than {LARGEST} bytes, so it cannot be results of the lab",
        path.display()
    );
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok((name.to_string_lossy().into_owned(), text))
}
