//! Which of the images of an index is meant.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration};

/// Platforms that a message names.
const NAMED: usize = 20;

/// A platform as indexes name it: the operating system, and the processor as Go calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => ("", "", None),
        };
        match os.is_empty() || architecture.is_empty() || variant == Some("") {
            true => Err("allowed is OS/ARCH or OS/ARCH/VARIANT, such as linux/arm64".to_owned()),
            false => Ok(Self {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: variant.map(str::to_owned),
            }),
        }
    }
}

impl Platform {
    pub fn of_this_machine() -> Self {
        Self {
            os: "linux".to_owned(),
            architecture: Arch::default().to_string(),
            variant: None,
        }
    }

    pub fn of_configuration(configuration: &ImageConfiguration) -> Self {
        Self {
            os: configuration.os().to_string(),
            architecture: configuration.architecture().to_string(),
            variant: configuration.variant().clone(),
        }
    }

    fn of_descriptor(descriptor: &Descriptor) -> Option<Self> {
        let platform = descriptor.platform().as_ref()?;
        Some(Self {
            os: platform.os().to_string(),
            architecture: platform.architecture().to_string(),
            variant: platform.variant().clone(),
        })
    }

    /// The variant that is meant where none is named.
    fn variant(&self) -> &str {
        match (self.variant.as_deref(), &*self.architecture) {
            (Some(variant), _) => variant,
            (None, "amd64") => "v1",
            (None, "arm64") => "v8",
            (None, "arm") => "v7",
            (None, _) => "",
        }
    }

    /// Whether `found` is what is asked for.
    pub fn is_met_by(&self, found: &Self) -> bool {
        self.os == found.os
            && self.architecture == found.architecture
            && self.variant() == found.variant()
    }

    /// The first of `manifests` that is for `asked`, or for this machine.
    pub fn choose<'a>(
        asked: Option<&Self>,
        manifests: &[&'a Descriptor],
    ) -> anyhow::Result<&'a Descriptor> {
        // Older tools write none for the only one.
        if let ([only], None) = (manifests, asked)
            && only.platform().is_none()
        {
            return Ok(only);
        }
        let wanted = asked.cloned().unwrap_or_else(Self::of_this_machine);
        let of = |manifest: &&&Descriptor| Self::of_descriptor(manifest);
        let found = manifests
            .iter()
            .find(|manifest| of(manifest).is_some_and(|found| wanted.is_met_by(&found)));
        if let Some(found) = found {
            return Ok(found);
        }
        let mut others: Vec<_> = manifests
            .iter()
            .filter_map(|m| Self::of_descriptor(m))
            .collect();
        // Attestations have this one.
        others.retain(|platform| platform.os != "unknown");
        let names: Vec<_> = others.iter().take(NAMED).map(Self::to_string).collect();
        let more = if others.len() > NAMED { ", …" } else { "" };
        match names.is_empty() {
            true => bail!("there is no image for {wanted}, and none for any other platform"),
            false => bail!(
                "there is no image for {wanted}, but for {}{more}; choose one with --platform",
                names.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_that_is_not_named_is_the_usual_one() {
        let platform = |text: &str| text.parse::<Platform>().unwrap();
        for (asked, found, is_met) in [
            ("linux/amd64", "linux/amd64", true),
            ("linux/amd64", "linux/amd64/v3", false),
            ("linux/arm64", "linux/arm64/v8", true),
            ("linux/arm64/v8", "linux/arm64", true),
            ("linux/arm", "linux/arm/v6", false),
            ("linux/arm/v6", "linux/arm/v6", true),
            ("linux/amd64", "windows/amd64", false),
            ("linux/riscv64", "linux/riscv64", true),
        ] {
            let found = platform(found);
            assert_eq!(platform(asked).is_met_by(&found), is_met, "{asked} {found}");
        }
        for text in ["linux", "linux/", "/amd64", "linux/arm/", "a/b/c/d", ""] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }
}
