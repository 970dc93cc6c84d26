//! Which of the images of an index is meant.

use anyhow::bail;
use brisk_remote::Platform;
use oci_spec::image::{Descriptor, ImageConfiguration};

/// Platforms that a message names.
const NAMED: usize = 20;

pub fn of_configuration(configuration: &ImageConfiguration) -> Platform {
    Platform {
        os: configuration.os().to_string(),
        architecture: configuration.architecture().to_string(),
        variant: configuration.variant().clone(),
    }
}

fn of_descriptor(descriptor: &Descriptor) -> Option<Platform> {
    let platform = descriptor.platform().as_ref()?;
    Some(Platform {
        os: platform.os().to_string(),
        architecture: platform.architecture().to_string(),
        variant: platform.variant().clone(),
    })
}

/// The first of `manifests` that is for `asked`, or for this machine.
pub fn choose<'a>(
    asked: Option<&Platform>,
    manifests: &[&'a Descriptor],
) -> anyhow::Result<&'a Descriptor> {
    // Older tools write none for the only one.
    if let ([only], None) = (manifests, asked)
        && only.platform().is_none()
    {
        return Ok(only);
    }
    let wanted = asked.cloned().unwrap_or_else(Platform::here);
    let of = |manifest: &&&Descriptor| of_descriptor(manifest);
    let found = manifests
        .iter()
        .find(|manifest| of(manifest).is_some_and(|found| wanted.takes(&found)));
    if let Some(found) = found {
        return Ok(found);
    }
    let mut others: Vec<_> = manifests.iter().filter_map(|m| of_descriptor(m)).collect();
    // Attestations have this one.
    others.retain(|platform| platform.os != "unknown");
    let names: Vec<_> = others.iter().take(NAMED).map(Platform::to_string).collect();
    let more = if others.len() > NAMED { ", …" } else { "" };
    match names.is_empty() {
        true => bail!("there is no image for {wanted}, and none for any other platform"),
        false => bail!(
            "there is no image for {wanted}, but for {}{more}; choose one with --platform",
            names.join(", ")
        ),
    }
}
