//! The choice of a file by the types of uv, which looks only at what it needs.

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use brisk_bench::ways::{Package, Question};
use uv_distribution_filename::{BuildTag, DistFilename, SourceDistExtension};
use uv_normalize::PackageName;
use uv_pep440::{Operator, Version, VersionSpecifiers};
use uv_platform_tags::{Arch, Os, Platform, TagCompatibility, TagPriority, Tags, TagsOptions};

/// What files are for.
pub(crate) struct Target {
    tags: Tags,
    python: Version,
}

impl Target {
    pub(crate) fn of(question: &Question) -> Result<Self> {
        Self::new(&question.python, &question.platform)
    }

    pub(crate) fn new(python: &str, platform: &str) -> Result<Self> {
        let python = Version::from_str(python)?;
        let [major, minor, ..] = *python.release() else {
            bail!("{python} is no version of Python");
        };
        let version = (u8::try_from(major)?, u8::try_from(minor)?);
        // manylinux_2_28_x86_64
        let mut parts = platform.splitn(4, '_');
        let (Some("manylinux"), Some(major), Some(minor), Some(arch)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            bail!("{platform} is no tag of manylinux");
        };
        let os = Os::Manylinux {
            major: major.parse()?,
            minor: minor.parse()?,
        };
        let platform = Platform::new(os, Arch::from_str(arch).map_err(anyhow::Error::msg)?);
        let options = TagsOptions {
            manylinux_compatible: true,
            ..TagsOptions::default()
        };
        let tags = Tags::from_env(platform, version, "cpython", version, options)?;
        Ok(Self { tags, python })
    }

    /// Whether a file takes the Python. A text that is no specifier takes every Python.
    pub(crate) fn is_taken_by(&self, requires_python: Option<&str>) -> bool {
        let specifiers = requires_python.and_then(|text| VersionSpecifiers::from_str(text).ok());
        self.is_in(specifiers.as_ref())
    }

    pub(crate) fn is_in(&self, requires_python: Option<&VersionSpecifiers>) -> bool {
        requires_python.is_none_or(|specifiers| specifiers.contains(&self.python))
    }
}

/// A package and what is wanted of it.
pub(crate) struct Want {
    pub(crate) name: PackageName,
    specifiers: VersionSpecifiers,
    names_prerelease: bool,
    pins: bool,
}

impl Want {
    pub(crate) fn of(package: &Package) -> Result<Self> {
        Self::new(&package.name, &package.specifiers)
    }

    pub(crate) fn new(name: &str, specifiers: &str) -> Result<Self> {
        let specifiers = VersionSpecifiers::from_str(specifiers)
            .with_context(|| format!("{name}{specifiers}"))?;
        let pins = |operator: &Operator| matches!(operator, Operator::Equal | Operator::ExactEqual);
        Ok(Self {
            name: PackageName::from_str(name)?,
            names_prerelease: specifiers.iter().any(|one| one.any_prerelease()),
            pins: specifiers.iter().any(|one| pins(one.operator())),
            specifiers,
        })
    }
}

/// How good a file is: the greater, the better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A source distribution: whether it is the form that comes first.
    Source(bool),
    Wheel(TagPriority, Option<BuildTag>),
}

/// What to do with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Offer its files.
    Look,
    /// Go on to the next one.
    Skip,
    /// A file is chosen.
    Done,
}

/// A look through versions, the newest first.
pub(crate) struct Choosing<'a, F> {
    want: &'a Want,
    target: &'a Target,
    prereleases: bool,
    skipped: bool,
    best: Option<(Rank, F)>,
}

impl<F> Choosing<'_, F> {
    /// Whether to look at the files of the next version.
    pub(crate) fn version(&mut self, version: &Version) -> Next {
        if self.best.is_some() {
            return Next::Done;
        }
        if !self.prereleases && version.any_prerelease() {
            self.skipped = true;
            return Next::Skip;
        }
        match self.want.specifiers.contains(version) {
            true => Next::Look,
            false => Next::Skip,
        }
    }

    /// A file of this version, whose name is parsed.
    pub(crate) fn offer(
        &mut self,
        name: &DistFilename,
        is_yanked: bool,
        takes_python: impl FnOnce() -> bool,
        file: impl FnOnce() -> F,
    ) {
        if is_yanked && !self.want.pins {
            return;
        }
        let rank = match name {
            DistFilename::SourceDistFilename(name) => {
                Rank::Source(name.extension == SourceDistExtension::TarGz)
            }
            DistFilename::WheelFilename(name) => match name.compatibility(&self.target.tags) {
                TagCompatibility::Compatible(priority) => {
                    Rank::Wheel(priority, name.build_tag().cloned())
                }
                TagCompatibility::Incompatible(_) => return,
            },
        };
        let is_better = self.best.as_ref().is_none_or(|(best, _)| rank >= *best);
        if is_better && takes_python() {
            self.best = Some((rank, file()));
        }
    }

    /// A file of this version by its name.
    pub(crate) fn offer_named(
        &mut self,
        name: &str,
        is_yanked: bool,
        takes_python: impl FnOnce() -> bool,
        file: impl FnOnce() -> F,
    ) {
        if let Some(name) = DistFilename::try_from_filename(name, &self.want.name) {
            self.offer(&name, is_yanked, takes_python, file);
        }
    }
}

/// The best file. `pass` offers the versions, the newest first. It is called twice if only pre-releases may do.
pub(crate) fn choose<F>(
    want: &Want,
    target: &Target,
    mut pass: impl FnMut(&mut Choosing<'_, F>) -> Result<()>,
) -> Result<Option<F>> {
    let mut choosing = Choosing {
        want,
        target,
        prereleases: want.names_prerelease,
        skipped: false,
        best: None,
    };
    pass(&mut choosing)?;
    if choosing.best.is_none() && choosing.skipped {
        choosing.prereleases = true;
        pass(&mut choosing)?;
    }
    Ok(choosing.best.map(|(_, file)| file))
}
