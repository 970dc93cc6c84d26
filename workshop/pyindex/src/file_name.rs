use crate::project_name::ProjectName;
use crate::version_parts::VersionParts;

/// A file name in its parts: `numpy` `-` `1.26.4` `-cp312-cp312-win_amd64.whl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileName<'a> {
    /// The project as the file spells it.
    pub(crate) stem: &'a str,
    pub(crate) version: &'a str,
    /// All behind the version: the tags of a wheel, the ending of a source distribution.
    pub(crate) tail: &'a str,
}

/// Why a file is not one that an installer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoFile {
    /// Its ending: an egg, an installer of Windows, a signature.
    Kind,
    /// It is of another project.
    Project,
    /// What it has as its version is none.
    Version,
    /// It has too few or too many parts.
    Form,
}

/// The endings of source distributions, the best one first.
pub(crate) const SDIST_ENDINGS: [&str; 7] = [
    ".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz", ".tar.Z", ".tar",
];

impl<'a> FileName<'a> {
    pub(crate) fn parse(name: &'a str, project: &ProjectName) -> Result<Self, NoFile> {
        if let Some(parts) = name.strip_suffix(".whl") {
            return Self::wheel(name, parts, project);
        }
        let ending = SDIST_ENDINGS
            .iter()
            .find(|ending| name.ends_with(*ending))
            .ok_or(NoFile::Kind)?;
        let (full, tail) = name.split_at(name.len() - ending.len());
        // Names and versions may have dashes: the project says where its name ends.
        let mut ours = full
            .match_indices('-')
            .filter(|(at, _)| project.is(&full[..*at]))
            .peekable();
        ours.peek().ok_or(NoFile::Project)?;
        ours.map(|(at, _)| (&full[..at], &full[at + 1..]))
            .find(|(_, version)| VersionParts::parse(version).is_some())
            .map(|(stem, version)| Self {
                stem,
                version,
                tail,
            })
            .ok_or(NoFile::Version)
    }

    fn wheel(name: &'a str, parts: &'a str, project: &ProjectName) -> Result<Self, NoFile> {
        let dashes = parts.bytes().filter(|b| *b == b'-').count();
        // A build number is between the version and the tags.
        if !(4..=5).contains(&dashes) || parts.split('-').any(str::is_empty) {
            return Err(NoFile::Form);
        }
        let (stem, rest) = parts.split_once('-').ok_or(NoFile::Form)?;
        let (version, _) = rest.split_once('-').ok_or(NoFile::Form)?;
        if !project.is(stem) {
            return Err(NoFile::Project);
        }
        VersionParts::parse(version).ok_or(NoFile::Version)?;
        let file = Self {
            stem,
            version,
            tail: &name[stem.len() + 1 + version.len()..],
        };
        match Tail::parse(file.tail) {
            Some(Tail::Wheel { .. }) => Ok(file),
            _ => Err(NoFile::Form),
        }
    }
}

/// What the end of a file name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail<'a> {
    Wheel {
        /// The number and the text of a build, if there is one.
        build: Option<(u64, &'a str)>,
        pythons: &'a str,
        abis: &'a str,
        platforms: &'a str,
    },
    /// The place of the ending among [`SDIST_ENDINGS`].
    Sdist(usize),
}

impl<'a> Tail<'a> {
    /// None if a hostile table has something else.
    pub(crate) fn parse(tail: &'a str) -> Option<Self> {
        let Some(tags) = tail.strip_suffix(".whl") else {
            return SDIST_ENDINGS
                .iter()
                .position(|ending| tail == *ending)
                .map(Self::Sdist);
        };
        let mut parts = tags.strip_prefix('-')?.rsplit('-');
        let (platforms, abis, pythons) = (parts.next()?, parts.next()?, parts.next()?);
        let build = match parts.next() {
            None => None,
            Some(build) => {
                let digits = build.bytes().take_while(u8::is_ascii_digit).count();
                Some((build[..digits].parse().ok()?, &build[digits..]))
            }
        };
        parts.next().is_none().then_some(Self::Wheel {
            build,
            pythons,
            abis,
            platforms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(name: &'a str, project: &str) -> Result<(&'a str, &'a str, &'a str), NoFile> {
        FileName::parse(name, &ProjectName::parse(project).unwrap())
            .map(|file| (file.stem, file.version, file.tail))
    }

    #[test]
    fn names_are_cut_where_the_version_is() {
        for (name, project, parts) in [
            (
                "a_b-1.0-py3-none-any.whl",
                "a-b",
                ("a_b", "1.0", "-py3-none-any.whl"),
            ),
            (
                "a-1.0-2x-cp39-cp39-linux_x86_64.whl",
                "a",
                ("a", "1.0", "-2x-cp39-cp39-linux_x86_64.whl"),
            ),
            ("a-b-1.0.tar.gz", "a-b", ("a-b", "1.0", ".tar.gz")),
            ("A.B-1.0-1.zip", "a-b", ("A.B", "1.0-1", ".zip")),
            ("a-2-3.tar.gz", "a-2", ("a-2", "3", ".tar.gz")),
        ] {
            assert_eq!(parse(name, project), Ok(parts), "{name}");
        }
        for (name, why) in [
            ("a-1.0-py2.7.egg", NoFile::Kind),
            ("a-1.0.tar.gz.asc", NoFile::Kind),
            ("b-1.0.tar.gz", NoFile::Project),
            ("b-1.0-py3-none-any.whl", NoFile::Project),
            ("a-1.0-linux.tar.gz", NoFile::Version),
            ("a-x-py3-none-any.whl", NoFile::Version),
            ("a-1.0-none-any.whl", NoFile::Form),
            ("a-1.0-x-py3-none-any.whl", NoFile::Form),
            ("a-1.0-1-2-py3-none-any.whl", NoFile::Form),
            ("a-1.0--none-any.whl", NoFile::Form),
        ] {
            assert_eq!(parse(name, "a"), Err(why), "{name}");
        }
    }

    #[test]
    fn builds_are_a_number_and_a_text() {
        let Some(Tail::Wheel {
            build,
            pythons,
            abis,
            platforms,
        }) = Tail::parse("-12b-cp39-abi3-any.whl")
        else {
            panic!("a wheel");
        };
        assert_eq!(
            (build, pythons, abis, platforms),
            (Some((12, "b")), "cp39", "abi3", "any")
        );
        assert_eq!(Tail::parse(".zip"), Some(Tail::Sdist(2)));
        for wrong in ["", "-", ".egg", "-a.whl", "-a-b-c-d.whl", "-1-1-a-b-c.whl"] {
            assert_eq!(Tail::parse(wrong), None, "{wrong}");
        }
    }
}
