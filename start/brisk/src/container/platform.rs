//! Which of the images of an index is meant.

use anyhow::bail;
use brisk_remote::{Content, Platform};

/// Platforms that a message names.
const NAMED: usize = 20;

/// The first of `manifests` that is for `asked`, or for this machine.
pub fn choose<'a>(
    asked: Option<&Platform>,
    manifests: &[&'a Content],
) -> anyhow::Result<&'a Content> {
    // Older tools write none for the only one.
    if let ([only], None) = (manifests, asked)
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let wanted = asked.cloned().unwrap_or_else(Platform::here);
    let found = manifests.iter().find(|manifest| {
        let found = manifest.platform.as_ref();
        found.is_some_and(|found| wanted.takes(found))
    });
    if let Some(found) = found {
        return Ok(found);
    }
    let mut others: Vec<_> = manifests
        .iter()
        .filter_map(|m| m.platform.as_ref())
        .collect();
    // Attestations have this one.
    others.retain(|platform| platform.os != "unknown");
    let names: Vec<_> = others
        .iter()
        .take(NAMED)
        .map(|found| found.to_string())
        .collect();
    let more = if others.len() > NAMED { ", …" } else { "" };
    match names.is_empty() {
        true => bail!("there is no image for {wanted}, and none for any other platform"),
        false => bail!(
            "there is no image for {wanted}, but for {}{more}; choose one with --platform",
            names.join(", ")
        ),
    }
}
