//! Requirements (PEP 508), one by one and in the files of pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use pep508_rs::{MarkerEnvironment, VersionOrUrl};
use pyindex::{ProjectName, Specifiers};

/// A requirement whose markers hold.
#[derive(Debug)]
pub(crate) struct Requirement {
    /// As it is written.
    pub(crate) text: String,
    pub(crate) name: ProjectName,
    pub(crate) specifiers: Specifiers,
}

/// How deep files may name other files.
const MOST_DEPTH: usize = 20;

impl Requirement {
    /// None if its markers do not hold.
    pub(crate) fn parse(text: &str, markers: &MarkerEnvironment) -> anyhow::Result<Option<Self>> {
        let parsed = pep508_rs::Requirement::<url::Url>::from_str(text)
            .map_err(|e| anyhow::anyhow!("{e}"))
            .with_context(|| format!("{text:?} is no requirement"))?;
        let specifiers = match &parsed.version_or_url {
            None => String::new(),
            Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers.to_string(),
            Some(VersionOrUrl::Url(_)) => {
                bail!("{text:?} names a file by its URL, and pyindex looks only into indexes");
            }
        };
        if !parsed.marker.evaluate(markers, &[]) {
            return Ok(None);
        }
        Ok(Some(Self {
            text: text.to_owned(),
            name: ProjectName::parse(parsed.name.as_ref())?,
            specifiers: Specifiers::parse(&specifiers)?,
        }))
    }

    /// The requirements of a file, and of the files that it names.
    pub(crate) fn of_file(file: &Path, markers: &MarkerEnvironment) -> anyhow::Result<Vec<Self>> {
        let mut all = Vec::new();
        read(file, markers, 0, &mut all)?;
        Ok(all)
    }
}

fn read(
    file: &Path,
    markers: &MarkerEnvironment,
    depth: usize,
    all: &mut Vec<Requirement>,
) -> anyhow::Result<()> {
    let name = file.display();
    if depth > MOST_DEPTH {
        bail!("{name}: more than {MOST_DEPTH} files name each other with -r");
    }
    let text = fs::read_to_string(file).with_context(|| name.to_string())?;
    for (number, line) in logical_lines(&text) {
        let place = || format!("{name}, line {number}");
        let option = |long: &str, short: &str| {
            let rest = line
                .strip_prefix(long)
                .or_else(|| line.strip_prefix(short))?;
            let rest = rest
                .strip_prefix(['=', ' ', '\t'])
                .or_else(|| line.strip_prefix(short))?;
            Some(rest.trim())
        };
        if let Some(other) = option("--requirement", "-r") {
            let other = file
                .parent()
                .unwrap_or(Path::new(""))
                .join(PathBuf::from(other));
            read(&other, markers, depth + 1, all).with_context(place)?;
        } else if line.starts_with('-') {
            let option = line.split([' ', '=']).next().unwrap_or_default();
            bail!(
                "{}: {option} is not known here, allowed are requirements and -r; give indexes as options of pyindex",
                place()
            );
        } else {
            // Options of a single requirement, such as --hash.
            let text = line.split(" --").next().unwrap_or_default().trim();
            all.extend(Requirement::parse(text, markers).with_context(place)?);
        }
    }
    Ok(())
}

/// The lines without comments, those that end with a backslash joined with the next, and the number of their first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let comment = match line.trim_start().starts_with('#') {
            true => Some(0),
            false => line.find(" #").or_else(|| line.find("\t#")),
        };
        let line = comment
            .and_then(|at| line.get(..at))
            .unwrap_or(line)
            .trim_end();
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, before)) => before.push_str(line),
            None => lines.push((number, line.to_owned())),
        }
        goes_on = more;
    }
    for (_, line) in &mut lines {
        *line = line.trim().to_owned();
    }
    lines.retain(|(_, line)| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_comments_left_out() {
        let text = "# a comment\na==1  # why\nb>=2,\\\n  <3 \\\n --hash=sha256:00\n\n  c\t# d\ne # f\\\ng#h\n";
        let expected = [
            (2, "a==1"),
            (3, "b>=2,  <3  --hash=sha256:00"),
            (7, "c"),
            (8, "e"),
            (9, "g#h"),
        ];
        let expected = expected.map(|(number, line)| (number, line.to_owned()));
        assert_eq!(logical_lines(text), expected);
    }
}
