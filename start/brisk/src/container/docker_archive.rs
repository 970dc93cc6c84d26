//! What `docker save` and `skopeo copy … docker-archive:` write: a tar archive with `manifest.json`, configurations and layers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_image::layers::{Layer, archive_files};
use brisk_io::ByteSource;
use brisk_remote::{Platform, is_sha256};
use brisk_terminal::names::shown;
use serde::Deserialize;

use super::container_image::{Container, MOST_JSON, check_digest, diff_ids, parse_json};

/// Names of images that a message has.
const NAMED: usize = 20;

/// An image in `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

impl Saved {
    fn tags(&self) -> &[String] {
        self.repo_tags.as_deref().unwrap_or_default()
    }

    /// Whether `tag` names it, with or without what Docker puts around names.
    fn is_named(&self, tag: &str) -> bool {
        self.tags().iter().any(|known| plain(known) == plain(tag))
    }
}

/// A name without Docker's own host and without `latest`.
fn plain(tag: &str) -> &str {
    let tag = tag.strip_prefix("docker.io/").unwrap_or(tag);
    let tag = tag.strip_prefix("library/").unwrap_or(tag);
    tag.strip_suffix(":latest").unwrap_or(tag)
}

pub(super) fn open(
    path: &Path,
    tag: Option<&str>,
    platform: Option<&Platform>,
) -> anyhow::Result<Container> {
    let opened = Archive::open(path).and_then(|archive| archive.container(tag, platform));
    opened.with_context(|| shown(path))
}

struct Archive {
    file: File,
    /// Where each file starts, and its length.
    files: BTreeMap<PathBuf, (u64, u64)>,
}

impl Archive {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).context("cannot open the archive")?;
        let files = archive_files(file.try_clone()?)?;
        Ok(Self { file, files })
    }

    fn place(&self, path: &Path) -> anyhow::Result<(u64, u64)> {
        let place = self.files.get(path).copied();
        place.with_context(|| {
            let path = shown(path);
            format!("the archive has no file {path}; save the image again, with docker save")
        })
    }

    fn json(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        let (start, len) = self.place(path)?;
        if len > MOST_JSON {
            let path = shown(path);
            bail!("{path} has {len} bytes, allowed are {MOST_JSON}");
        }
        // At most 4 MiB.
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_bytes_at(start, &mut bytes)?;
        Ok(bytes)
    }

    fn container(
        &self,
        tag: Option<&str>,
        platform: Option<&Platform>,
    ) -> anyhow::Result<Container> {
        let images: Vec<Saved> =
            parse_json("manifest.json", &self.json(Path::new("manifest.json"))?)?;
        let image = chosen(&images, tag)?;
        let bytes = self.json(&image.config)?;
        // Its name says its digest: as HEX.json, or as blobs/sha256/HEX.
        let hex = image.config.file_stem().and_then(|stem| stem.to_str());
        let digest = hex.map(|hex| format!("sha256:{hex}"));
        if let Some(digest) = digest.filter(|digest| is_sha256(digest)) {
            check_digest("configuration", &bytes, &digest)?;
        }
        let mut container = Container {
            layers: Vec::new(),
            configuration: parse_json("configuration", &bytes)?,
            warnings: Vec::new(),
            fetched: None,
        };
        let count = image.layers.len();
        let ids = diff_ids(&container.configuration, count)?;
        for ((number, path), diff_id) in (1..).zip(&image.layers).zip(ids) {
            let name = format!("layer {number} of {count} ({})", shown(path));
            let place = self.place(path)?;
            let layer = Layer::new(name, self.file.try_clone()?, place, diff_id)?;
            container.layers.push(layer);
        }
        container.check_platform(platform)?;
        Ok(container)
    }
}

fn chosen<'a>(images: &'a [Saved], tag: Option<&str>) -> anyhow::Result<&'a Saved> {
    let known = || {
        let tags: Vec<_> = images.iter().flat_map(Saved::tags).collect();
        let more = if tags.len() > NAMED { ", …" } else { "" };
        let first: Vec<_> = tags.iter().take(NAMED).map(shown).collect();
        format!("{}{more}", first.join(", "))
    };
    match (images, tag) {
        ([only], None) => Ok(only),
        ([], _) => bail!("manifest.json names no image"),
        (_, None) => bail!(
            "there are several images: {}; name one behind a colon",
            known()
        ),
        (_, Some(tag)) => {
            let found = images.iter().find(|image| image.is_named(tag));
            found.with_context(|| format!("no image is named {}, but {}", shown(tag), known()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_as_docker_shortens_it() {
        let saved = |tag: &str| Saved {
            config: PathBuf::new(),
            repo_tags: Some(vec![tag.to_owned()]),
            layers: Vec::new(),
        };
        for (known, asked, is_named) in [
            ("debian:12", "debian:12", true),
            ("docker.io/library/debian:12", "debian:12", true),
            ("debian:latest", "debian", true),
            ("localhost/app:latest", "localhost/app", true),
            ("localhost/app:1", "app:1", false),
            ("debian:12", "debian", false),
        ] {
            assert_eq!(saved(known).is_named(asked), is_named, "{known} {asked}");
        }
    }
}
