//! A directory in the OCI image layout: `index.json`, and blobs by digest.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use brisk_image::layers::Layer;
use brisk_remote::{Content, Index, Manifest, Platform, media_type};
use brisk_terminal::names::shown;
use rustix::fs::{Mode, OFlags, openat};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::container_image::{Container, MOST_JSON, check_digest, diff_ids, parse_json, sha256_of};
use super::platform;

/// How often an index may lead to another.
const MOST_INDEXES: usize = 4;

/// Names of images that a message has.
const NAMED: usize = 20;

/// The configuration of a container image, as Docker has it.
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// Annotations that name an image of a layout: of the specification, and of containerd.
const NAMES: [&str; 2] = [
    "org.opencontainers.image.ref.name",
    "io.containerd.image.name",
];

/// Which image of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Only,
    Named(String),
    Digest(String),
}

/// The image in the layout at `directory`. With a digest, it is enough that blobs are there.
pub(super) fn open(
    directory: &Path,
    choice: &Choice,
    platform: Option<&Platform>,
) -> anyhow::Result<Container> {
    let opened = Layout::open(directory).and_then(|layout| layout.container(choice, platform));
    opened.with_context(|| shown(directory))
}

/// The parts of an index or manifest that tell which it is.
#[derive(Deserialize)]
struct Kind {
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

struct Layout {
    directory: File,
}

impl Layout {
    fn open(directory: &Path) -> anyhow::Result<Self> {
        let directory = File::open(directory).context("cannot open the directory")?;
        if !directory.metadata()?.is_dir() {
            bail!("it is no directory; if it is an archive, name it with docker-archive:");
        }
        Ok(Self { directory })
    }

    /// The regular file that `path` leads to, in directories only: a link could lead anywhere.
    fn file(&self, path: &[&str]) -> anyhow::Result<File> {
        let Some((name, above)) = path.split_last() else {
            bail!("no file is named");
        };
        let opened = || {
            let mut directory = self.directory.try_clone()?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            for name in above {
                let flags = flags | OFlags::DIRECTORY;
                directory = openat(&directory, *name, flags, Mode::empty())?.into();
            }
            // What is no file is opened without waiting for anybody.
            let flags = flags | OFlags::NONBLOCK;
            let file = File::from(openat(&directory, *name, flags, Mode::empty())?);
            std::io::Result::Ok(file)
        };
        let path = path.join("/");
        let file = opened().with_context(|| {
            format!("cannot open {path}, which is to be a file and no link; fetch the image again")
        })?;
        if !file.metadata()?.is_file() {
            bail!("{path} is no regular file; fetch the image again");
        }
        Ok(file)
    }

    fn blob(&self, digest: &str) -> anyhow::Result<File> {
        sha256_of(digest)?;
        self.file(&["blobs", "sha256", &digest["sha256:".len()..]])
    }

    /// The bytes of the blob `what`, which have this digest.
    fn json(&self, what: &str, digest: &str) -> anyhow::Result<Vec<u8>> {
        let bytes = read_json(what, self.blob(digest)?)?;
        check_digest(what, &bytes, digest)?;
        Ok(bytes)
    }

    fn container(&self, choice: &Choice, platform: Option<&Platform>) -> anyhow::Result<Container> {
        // An index says for which platform an image is, and that counts.
        let (mut digest, mut is_chosen) = match choice {
            Choice::Digest(digest) => (digest.clone(), false),
            Choice::Only => self.chosen(None, platform)?,
            Choice::Named(name) => self.chosen(Some(name), platform)?,
        };
        for _ in 0..MOST_INDEXES {
            let bytes = self.json("manifest", &digest)?;
            let kind: Kind = parse_json("manifest", &bytes)?;
            match (kind.manifests, kind.layers) {
                (Some(_), Some(_)) => {
                    bail!("{digest} has manifests and layers, allowed is one of both");
                }
                (Some(_), None) => {
                    let index: Index = parse_json("index", &bytes)?;
                    let manifests: Vec<_> = index.manifests.iter().collect();
                    digest = platform::choose(platform, &manifests)?.digest.clone();
                    is_chosen = true;
                }
                (None, _) => {
                    let mut container = self.container_of(&parse_json("manifest", &bytes)?)?;
                    if !is_chosen || platform.is_none() {
                        container.check_platform(platform)?;
                    }
                    return Ok(container);
                }
            }
        }
        bail!("more than {MOST_INDEXES} indexes lead to the image; fetch it again")
    }

    /// The digest of what `index.json` has under `name`, or of all that it has, and whether a platform was chosen.
    fn chosen(
        &self,
        name: Option<&str>,
        platform: Option<&Platform>,
    ) -> anyhow::Result<(String, bool)> {
        let bytes = read_json("index.json", self.file(&["index.json"])?)?;
        let index: Index = parse_json("index.json", &bytes)?;
        let mut names: Vec<_> = index.manifests.iter().flat_map(names_of).collect();
        names.sort_unstable();
        names.dedup();
        let known = || {
            let more = if names.len() > NAMED { ", …" } else { "" };
            let first: Vec<_> = names.iter().take(NAMED).map(shown).collect();
            format!("{}{more}", first.join(", "))
        };
        let found: Vec<_> = match name {
            None => index.manifests.iter().collect(),
            Some(name) => {
                let is_named = |m: &&Content| names_of(m).any(|known| known == name);
                index.manifests.iter().filter(is_named).collect()
            }
        };
        match (&found[..], name) {
            ([], Some(name)) if names.is_empty() => {
                bail!("no image is named {}, and none has a name", shown(name))
            }
            ([], Some(name)) => {
                bail!("no image is named {}, but {}", shown(name), known())
            }
            ([], None) => bail!("index.json names no image"),
            ([only], _) => Ok((only.digest.clone(), false)),
            (_, None) if names.len() > 1 => {
                bail!(
                    "there are several images: {}; name one behind a colon",
                    known()
                )
            }
            (several, _) => Ok((platform::choose(platform, several)?.digest.clone(), true)),
        }
    }

    fn container_of(&self, manifest: &Manifest) -> anyhow::Result<Container> {
        let config = &manifest.config;
        if ![media_type::CONFIG, DOCKER_CONFIG].contains(&&*config.media_type) {
            bail!(
                "it is no container image, but an artifact of the type {}",
                shown(&config.media_type)
            );
        }
        let bytes = self.json("configuration", &config.digest)?;
        let mut container = Container {
            layers: Vec::new(),
            configuration: parse_json("configuration", &bytes)?,
            warnings: Vec::new(),
            fetched: None,
        };
        let count = manifest.layers.len();
        let ids = diff_ids(&container.configuration, count)?;
        for ((number, descriptor), diff_id) in (1..).zip(&manifest.layers).zip(ids) {
            let name = format!("layer {number} of {count} ({})", descriptor.digest);
            let layer = self.layer(name.clone(), descriptor, diff_id);
            container.layers.push(layer.context(name)?);
        }
        Ok(container)
    }

    fn layer(
        &self,
        name: String,
        descriptor: &Content,
        diff_id: [u8; 32],
    ) -> anyhow::Result<Layer> {
        let kind = &descriptor.media_type;
        if !is_archive(kind) {
            bail!("is of the type {}, and not a tar archive", shown(kind));
        }
        let file = self.blob(&descriptor.digest)?;
        let len = file.metadata()?.len();
        if len != descriptor.size {
            bail!(
                "has {len} bytes, and the manifest says {}; fetch the image again",
                descriptor.size
            );
        }
        let layer = Layer::new(name, file, (0, len), diff_id)?;
        Ok(layer.digest(sha256_of(&descriptor.digest)?))
    }
}

/// Whether layers of this type are tar archives. Their first bytes say how they are compressed.
fn is_archive(kind: &str) -> bool {
    let rest = kind
        .strip_prefix("application/vnd.oci.image.layer.v1.tar")
        .or_else(|| kind.strip_prefix("application/vnd.oci.image.layer.nondistributable.v1.tar"))
        .or_else(|| kind.strip_prefix("application/vnd.docker.image.rootfs.diff.tar"))
        .or_else(|| kind.strip_prefix("application/vnd.docker.image.rootfs.foreign.diff.tar"));
    matches!(rest, Some("" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
}

fn names_of(manifest: &Content) -> impl Iterator<Item = &str> {
    let names = NAMES.into_iter();
    names.filter_map(|name| manifest.annotations.get(name).map(String::as_str))
}

/// The bytes of `file`, which are `what`.
fn read_json(what: &str, file: File) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_JSON + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read the {what}"))?;
    if bytes.len() as u64 > MOST_JSON {
        bail!("the {what} has more than {MOST_JSON} bytes, which is the most that is read");
    }
    Ok(bytes)
}
