//! An image in a registry: a manifest whose only layer is the image, byte for byte.
//!
//! What `IMAGE.remote` says of an image on a web server stands in annotations of the layer, each line of [`Descriptor`] in one of its
//! own, and its signature, too. The layer has the length and the digest itself.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::choice::Choice;
use crate::descriptor::Descriptor;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::digits;
use crate::registry_name::is_sha256;

/// The most bytes of the manifest of an image to start from. Those of container images may be longer.
pub const MOST_MANIFEST: u64 = 32 << 10;

/// The config of an artifact, which has none.
pub const EMPTY_CONFIG: &str = "{}";

/// Names of kinds of files in registries.
pub mod media_type {
    /// An image of brisk, as `artifactType`.
    pub const ARTIFACT: &str = "application/vnd.brisk.image.v1";
    /// Its layer.
    pub const LAYER: &str = "application/vnd.brisk.image.layer.v1.squashfs";
    /// A SIF file, as SingularityCE pushes it.
    pub const SIF: &str = "application/vnd.sylabs.sif.layer.v1.sif";
    /// The config of a SIF file.
    pub const SIF_CONFIG: &str = "application/vnd.sylabs.sif.config.v1+json";
    /// An image that is the layer of a container image, as SingularityCE runs it.
    pub const SYLABS_LAYER: &str = "application/vnd.sylabs.image.layer.v1.squashfs";
    /// The config of a container image.
    pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// A hot pack for an image of the same name, as `artifactType`.
    pub const HOT: &str = "application/vnd.brisk.hot.v1";
    /// Its layer.
    pub const HOT_LAYER: &str = "application/vnd.brisk.hot.layer.v1";
    /// A manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// A manifest of Docker.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// A list of manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// A list of manifests of Docker.
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// What cosign has signed of a manifest, as `artifactType`.
    pub const COSIGN: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
    /// A layer of it: a text that is signed.
    pub const COSIGN_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
    /// A config without anything in it.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
}

/// The name under which other programs write the layer into a directory.
const TITLE: &str = "org.opencontainers.image.title";

/// How the names of annotations begin that say what `IMAGE.remote` says.
const PREFIX: &str = "dev.brisk.image.";

/// The lines of a descriptor that stand in annotations: before the length and the digest, and behind them.
const FIRST: [&str; 2] = ["name", "serial"];
const LATER: [&str; 5] = [
    "root-hash",
    "tables",
    "hot-frames",
    "hot-neighbours",
    "hash-tree",
];

/// The annotation with the signature.
const SIGNATURE: &str = "minisig";

/// The annotations of a manifest in a list, and of its layer, with what it is called there and with its codec.
const VARIANT: &str = "variant";
const CODEC: &str = "codec";

/// How many images of a list a message names.
const NAMED: usize = 20;

/// Other manifests than these are never of this version.
const SCHEMA: u8 = 2;

/// A manifest: a config and layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    schema_version: u8,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What it is of, if not a container image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The config.
    pub config: Content,
    /// The layers, the lowest first.
    pub layers: Vec<Content>,
    /// The manifest of the image that it says something of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Content>,
}

/// A list of manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    schema_version: u8,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The manifests.
    pub manifests: Vec<Content>,
}

/// What a manifest or an index says of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// What it is.
    pub media_type: String,
    /// What it is of, if it is the manifest of an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Its digest, with `sha256:`.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
    /// For which platform it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The architecture, as Go names it.
    pub architecture: String,
    /// The system.
    pub os: String,
    /// The kind of the architecture, such as `v8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The layer that is the image.
    pub layer: Content,
    /// The text that `IMAGE.remote` would have.
    pub descriptor: Option<String>,
    /// Its signature.
    pub signature: Option<String>,
}

impl Artifact {
    /// The image of a manifest.
    ///
    /// # Errors
    ///
    /// `Format`: what the manifest is instead, and what to do.
    pub fn parse(manifest: &str) -> Result<Self> {
        let manifest = Manifest::parse(manifest)?;
        let is_tar = |layer: &Content| {
            let kind = &layer.media_type;
            kind.contains(".tar") || kind.contains("rootfs.diff") || kind.ends_with("+encrypted")
        };
        let mut images = manifest.layers.iter().filter(|layer| !is_tar(layer));
        let (Some(layer), None) = (images.next(), images.next()) else {
            let why = match manifest.layers.iter().find(|layer| is_tar(layer)) {
                Some(_) => {
                    "it is an ordinary container image, whose layers are archives; brisk pack makes an image of it: brisk pack \
                     oci://HOST/NAME:TAG -o IMAGE"
                        .to_owned()
                }
                None => format!(
                    "the manifest has {} layers, allowed is one that is an image",
                    manifest.layers.len()
                ),
            };
            return Err(Error::new(ErrorKind::Format, why));
        };
        if manifest.layers.iter().any(is_tar) {
            let why = "some layers of the manifest are archives, and one is none; allowed is one layer that is an image";
            return Err(Error::new(ErrorKind::Format, why));
        }
        let descriptor = described(layer);
        let signature = layer.annotations.get(&format!("{PREFIX}{SIGNATURE}"));
        Ok(Self {
            signature: signature.filter(|_| descriptor.is_some()).cloned(),
            layer: layer.clone(),
            descriptor,
        })
    }

    /// The manifest of an image. `title` is its name as a file.
    pub fn manifest(descriptor: &Descriptor, signature: Option<&str>, title: &str) -> Manifest {
        let (bytes, sha256) = (descriptor.file_bytes, &*descriptor.sha256);
        let mut layer = Content::of_file(bytes, sha256, media_type::LAYER, title);
        let text = descriptor.to_string();
        for line in text.lines() {
            let Some((what, value)) = line.split_once(' ') else {
                continue;
            };
            if FIRST.contains(&what) || LATER.contains(&what) {
                let value = value.strip_prefix("sha256 ").unwrap_or(value);
                let what = format!("{PREFIX}{what}");
                layer.annotations.insert(what, value.to_owned());
            }
        }
        if let Some(signature) = signature {
            let what = format!("{PREFIX}{SIGNATURE}");
            layer.annotations.insert(what, signature.to_owned());
        }
        let config = Content::of(EMPTY_CONFIG.as_bytes(), media_type::EMPTY);
        Manifest {
            artifact_type: Some(media_type::ARTIFACT.into()),
            ..Manifest::of(config, layer)
        }
    }
}

/// The text that `IMAGE.remote` would have, if the annotations of a layer say it.
fn described(layer: &Content) -> Option<String> {
    let value = |what: &str| layer.annotations.get(&format!("{PREFIX}{what}"));
    let mut text = String::from("brisk-remote 1\n");
    for what in FIRST {
        text += &format!("{what} {}\n", value(what)?);
    }
    let digest = layer.digest.strip_prefix("sha256:")?;
    text += &format!("file-bytes {}\nsha256 {digest}\n", layer.size);
    for what in LATER {
        if let Some(value) = value(what) {
            let kind = if what == "root-hash" { "sha256 " } else { "" };
            text += &format!("{what} {kind}{value}\n");
        }
    }
    // A value of several lines could say two things.
    Descriptor::parse(&text).is_ok().then_some(text)
}

impl Manifest {
    /// With one layer.
    pub fn of(config: Content, layer: Content) -> Self {
        Self {
            schema_version: SCHEMA,
            media_type: Some(media_type::MANIFEST.into()),
            artifact_type: None,
            config,
            layers: vec![layer],
            subject: None,
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// `Format`.
    pub fn parse(text: &str) -> Result<Self> {
        let manifest: Self = serde_json::from_str(text).map_err(|e| {
            Error::new(
                ErrorKind::Format,
                format!("it is no manifest that brisk can read: {e}"),
            )
        })?;
        let all = manifest.layers.iter().chain([&manifest.config]);
        check_digests(all)?;
        Ok(manifest)
    }

    /// Its text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Index {
    /// A list of one manifest.
    pub fn of(manifest: Content) -> Self {
        Self {
            manifests: vec![manifest],
            ..Self::of_none()
        }
    }

    /// Whether it has this manifest.
    pub fn has(&self, digest: &str) -> bool {
        self.manifests.iter().any(|found| found.digest == digest)
    }

    /// A list of no manifest.
    pub fn of_none() -> Self {
        Self {
            schema_version: SCHEMA,
            media_type: Some(media_type::INDEX.into()),
            manifests: Vec::new(),
        }
    }

    /// Reads a list of manifests. None if the text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let index: Self = serde_json::from_str(text).ok()?;
        check_digests(&index.manifests).ok()?;
        Some(index)
    }

    /// Its text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The last of its manifests that is of this kind.
    pub fn last_of(&self, artifact_type: &str) -> Option<&Content> {
        let is_it = |found: &&Content| found.artifact_type.as_deref() == Some(artifact_type);
        self.manifests.iter().rfind(is_it)
    }

    /// The manifest for a platform, of those that `choice` takes: one that names the platform, or else one that names none. Of several,
    /// the first.
    ///
    /// # Errors
    ///
    /// `Format`: which there are.
    pub fn choose(&self, platform: &Platform, choice: &Choice) -> Result<&Content> {
        let fits = |found: &&Content| choice.takes(found.variant(), found.codec());
        let all = || self.manifests.iter().filter(fits);
        let named = all().find(|found| {
            let found = found.platform.as_ref();
            found.is_some_and(|found| platform.takes(found))
        });
        let any = || all().find(|found| found.platform.is_none());
        named.or_else(any).ok_or_else(|| {
            let wanted = described_variant(platform, &choice.to_string());
            let there = self.manifests.iter().filter_map(|found| {
                let of =
                    |what: &str, value: Option<&str>| value.map(|value| format!("{what}={value}"));
                let (variant, codec) = (of(VARIANT, found.variant()), of(CODEC, found.codec()));
                let parts: Vec<_> = variant.into_iter().chain(codec).collect();
                Some(described_variant(
                    found.platform.as_ref()?,
                    &parts.join(","),
                ))
            });
            let mut there: Vec<_> = there.collect();
            let more = there.len().saturating_sub(NAMED);
            there.truncate(NAMED);
            if more > 0 {
                there.push(format!("and {more} more"));
            }
            let why = format!("there is none for {wanted}, only for {}", there.join(", "));
            Error::new(ErrorKind::Format, why.escape_debug().to_string())
        })
    }
}

/// A platform, and what more is said of an image, for people.
fn described_variant(platform: &Platform, more: &str) -> String {
    match more {
        "" => platform.to_string(),
        more => format!("{platform} ({more})"),
    }
}

impl Content {
    /// What it is called in a list of several images.
    pub fn variant(&self) -> Option<&str> {
        self.said(VARIANT)
    }

    /// The codec of the image, or `none`.
    pub fn codec(&self) -> Option<&str> {
        self.said(CODEC)
    }

    /// Says what it is called in a list of several images, and its codec.
    pub fn set_variant(&mut self, variant: &str, codec: &str) {
        for (what, value) in [(VARIANT, variant), (CODEC, codec)] {
            let what = format!("{PREFIX}{what}");
            self.annotations.insert(what, value.to_owned());
        }
    }

    fn said(&self, what: &str) -> Option<&str> {
        let value = self.annotations.get(&format!("{PREFIX}{what}"));
        value.map(String::as_str)
    }

    /// What a manifest says of a file of this length and SHA-256. `title` is its name as a file.
    pub fn of_file(size: u64, sha256: &str, media_type: &str, title: &str) -> Self {
        Self {
            media_type: media_type.into(),
            artifact_type: None,
            digest: format!("sha256:{sha256}"),
            size,
            platform: None,
            annotations: BTreeMap::from([(TITLE.to_owned(), title.to_owned())]),
        }
    }

    /// What a manifest says of a file with these bytes.
    pub fn of(bytes: &[u8], media_type: &str) -> Self {
        Self {
            media_type: media_type.into(),
            artifact_type: None,
            digest: format!("sha256:{}", digits(&Sha256::digest(bytes))),
            size: bytes.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }
}

impl Platform {
    /// That of this machine.
    pub fn here() -> Self {
        let is_little = cfg!(target_endian = "little");
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if is_little => "ppc64le",
            "powerpc64" => "ppc64",
            "loongarch64" => "loong64",
            other => other,
        };
        Self::linux(architecture)
    }

    /// That for which a program was built, of which `start` has at least the first 20 bytes. None if they are not of an ELF file, or of
    /// another architecture than these.
    pub fn of_elf(start: &[u8]) -> Option<Self> {
        // Section "ELF Header" of the System V ABI: EI_CLASS, EI_DATA and e_machine.
        let [0x7f, b'E', b'L', b'F', class, data, ..] = *start else {
            return None;
        };
        let machine: [u8; 2] = start.get(18..20)?.try_into().ok()?;
        let machine = match data {
            1 => u16::from_le_bytes(machine),
            2 => u16::from_be_bytes(machine),
            _ => return None,
        };
        match (machine, class, data) {
            (62, 2, 1) => Some("amd64"),
            (183, 2, 1) => Some("arm64"),
            (3, 1, 1) => Some("386"),
            (40, 1, 1) => Some("arm"),
            (243, 2, 1) => Some("riscv64"),
            (22, 2, 2) => Some("s390x"),
            (21, 2, 1) => Some("ppc64le"),
            (21, 2, 2) => Some("ppc64"),
            (258, 2, 1) => Some("loong64"),
            _ => None,
        }
        .map(Self::linux)
    }

    fn linux(architecture: &str) -> Self {
        Self {
            architecture: architecture.into(),
            os: "linux".into(),
            variant: None,
        }
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

    /// Whether what is for `other` is for this one, too. Where no variant is named, the usual one is meant.
    pub fn takes(&self, other: &Self) -> bool {
        self.os == other.os
            && self.architecture == other.architecture
            && self.variant() == other.variant()
    }
}

impl FromStr for Platform {
    type Err = String;

    /// Reads `linux/arm64/v8`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
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

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

fn check_digests<'a>(all: impl IntoIterator<Item = &'a Content>) -> Result<()> {
    match all.into_iter().find(|content| !is_sha256(&content.digest)) {
        None => Ok(()),
        Some(content) => Err(Error::new(
            ErrorKind::Format,
            format!(
                "the manifest names the digest {:?}, allowed are those of SHA-256",
                content.digest
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor {
            name: "app:1".into(),
            serial: 7,
            file_bytes: 100_000,
            sha256: "ab".repeat(32),
            root_hash: Some("cd".repeat(32)),
            tables: 50_000,
            frames: Some(60_000..70_000),
            neighbours: Some(80_000),
            hash_tree: Some(94_208),
        }
    }

    #[test]
    fn a_manifest_says_what_a_descriptor_says() {
        let bare = Descriptor {
            frames: None,
            neighbours: None,
            root_hash: None,
            hash_tree: None,
            ..descriptor()
        };
        for descriptor in [descriptor(), bare] {
            let manifest = Artifact::manifest(&descriptor, Some("s\nt\n"), "app.img");
            let artifact = Artifact::parse(&manifest.to_text()).expect("it is one");
            assert_eq!(artifact.descriptor, Some(descriptor.to_string()));
            assert_eq!(artifact.signature.as_deref(), Some("s\nt\n"));
            assert_eq!(artifact.layer.size, 100_000);
        }
        let mut manifest = Artifact::manifest(&descriptor(), Some("s"), "app.img");
        let serial = "7\nfile-bytes 5".to_owned();
        manifest.layers[0]
            .annotations
            .insert(format!("{PREFIX}serial"), serial);
        let artifact = Artifact::parse(&manifest.to_text()).expect("it is one");
        assert_eq!((artifact.descriptor, artifact.signature), (None, None));
    }

    #[test]
    fn what_is_no_image_is_said() {
        let of = |kinds: &[&str], digest: &str| {
            let layers = kinds.iter().map(|kind| Content {
                digest: digest.into(),
                ..Content::of(b"", kind)
            });
            let manifest = Manifest {
                layers: layers.collect(),
                ..Artifact::manifest(&descriptor(), None, "a")
            };
            Artifact::parse(&manifest.to_text())
                .map(|found| found.layer.media_type)
                .map_err(|e| e.to_string())
        };
        let sha = format!("sha256:{}", "0".repeat(64));
        let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let sylabs = "application/vnd.sylabs.sif.layer.v1.sif";
        assert_eq!(of(&[sylabs], &sha).as_deref(), Ok(sylabs));
        for (kinds, digest, message) in [
            (
                &[tar, tar][..],
                &*sha,
                "brisk pack oci://HOST/NAME:TAG -o IMAGE",
            ),
            (&[docker], &sha, "it is an ordinary container image"),
            (
                &[sylabs, sylabs],
                &sha,
                "the manifest has 2 layers, allowed is one that is an image",
            ),
            (
                &[],
                &sha,
                "the manifest has 0 layers, allowed is one that is an image",
            ),
            (
                &[sylabs, tar],
                &sha,
                "some layers of the manifest are archives",
            ),
            (
                &[sylabs],
                "sha512:00",
                "the manifest names the digest \"sha512:00\", allowed are those of SHA-256",
            ),
        ] {
            let found = of(kinds, digest).unwrap_err();
            assert!(found.contains(message), "{found}");
        }
        assert!(Artifact::parse("<html>").is_err());
    }

    #[test]
    fn a_platform_is_chosen_by_what_is_known_of_it() {
        let of = |platform: &str| Content {
            platform: platform.parse().ok(),
            ..Content::of(platform.as_bytes(), media_type::MANIFEST)
        };
        let names = [
            "linux/amd64",
            "linux/arm64/v8",
            "windows/amd64",
            "linux/arm/v7",
            "linux/arm/v6",
        ];
        let mut index = Index::of(of(""));
        index.manifests = names.into_iter().map(of).collect();
        let chosen = |index: &Index, name: &str| {
            let platform = name.parse().expect("one");
            let found = index
                .choose(&platform, &Choice::default())
                .map_err(|e| e.to_string())?;
            Ok::<_, String>(found.platform.as_ref().map(ToString::to_string))
        };
        for (wanted, found) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/arm64", "linux/arm64/v8"),
            ("linux/arm64/v8", "linux/arm64/v8"),
            ("linux/arm/v6", "linux/arm/v6"),
        ] {
            assert_eq!(chosen(&index, wanted), Ok(Some(found.to_owned())));
        }
        let message = "there is none for linux/s390x, only for linux/amd64, linux/arm64/v8, windows/amd64, linux/arm/v7, linux/arm/v6";
        assert_eq!(chosen(&index, "linux/s390x"), Err(message.to_owned()));
        index.manifests.push(of(""));
        assert_eq!(chosen(&index, "linux/s390x"), Ok(None));
    }

    #[test]
    fn a_variant_that_is_not_named_is_the_usual_one() {
        let platform = |text: &str| text.parse::<Platform>().expect("one");
        for (asked, found, takes) in [
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
            assert_eq!(platform(asked).takes(&found), takes, "{asked} {found}");
        }
        for text in ["linux", "linux/", "/amd64", "linux/arm/", "a/b/c/d", ""] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_variant_is_chosen_by_what_is_asked_and_what_can_be_read() {
        let of = |(number, (platform, variant, codec)): (usize, (&str, &str, &str))| {
            let mut found =
                Content::of(&[u8::try_from(number).expect("few")], media_type::MANIFEST);
            found.platform = platform.parse().ok();
            if !variant.is_empty() {
                found.set_variant(variant, codec);
            }
            found
        };
        let offered = [
            ("unknown/unknown", "", ""),
            ("linux/amd64", "small", "xz"),
            ("linux/amd64", "zstd", "zstd"),
            ("linux/arm64", "zstd", "zstd"),
            ("linux/amd64", "zstd", "lz4"),
            ("linux/amd64", "raw", "none"),
            ("linux/riscv64", "", ""),
        ];
        let index = Index {
            manifests: offered.into_iter().enumerate().map(of).collect(),
            ..Index::of_none()
        };
        let there = "linux/amd64 (variant=small,codec=xz), linux/amd64 (variant=zstd,codec=zstd), \
                     linux/arm64 (variant=zstd,codec=zstd), linux/amd64 (variant=zstd,codec=lz4), \
                     linux/amd64 (variant=raw,codec=none), linux/riscv64";
        for (platform, choice, found) in [
            // The first is what its publisher wants.
            ("linux/amd64", "", Ok(1)),
            ("linux/arm64", "", Ok(3)),
            ("linux/arm64/v8", "variant=zstd", Ok(3)),
            // Of the same name, too.
            ("linux/amd64", "variant=zstd", Ok(2)),
            ("linux/amd64", "variant=zstd,codecs=lz4", Ok(4)),
            ("linux/amd64", "codecs=gzip+zstd", Ok(2)),
            ("linux/amd64", "codecs=gzip+none", Ok(5)),
            // Of a codec that is not known, the mount says more.
            ("linux/riscv64", "codecs=gzip", Ok(6)),
            (
                "linux/riscv64",
                "variant=zstd",
                Err("linux/riscv64 (variant=zstd)"),
            ),
            (
                "linux/arm64",
                "variant=small",
                Err("linux/arm64 (variant=small)"),
            ),
            (
                "linux/arm64",
                "codecs=gzip",
                Err("linux/arm64 (codecs=gzip)"),
            ),
        ] {
            let asked = platform.parse().expect("one");
            let choice = Choice::parse(choice).expect("one");
            let chosen = index.choose(&asked, &choice).map_err(|e| e.to_string());
            let wanted = match found {
                Ok(number) => Ok(&index.manifests[number]),
                Err(wanted) => Err(format!(
                    "there is none for {wanted}, only for unknown/unknown, {there}"
                )),
            };
            assert_eq!(chosen, wanted, "{platform} {choice}");
        }
    }

    #[test]
    fn a_message_names_some_of_thousands() {
        let mut one = Content::of(b"", media_type::MANIFEST);
        one.platform = "linux/amd64".parse().ok();
        let index = Index {
            manifests: vec![one; 5000],
            ..Index::of_none()
        };
        let asked = "linux/arm64".parse().expect("one");
        let why = index.choose(&asked, &Choice::default()).expect_err("none");
        let why = why.to_string();
        assert!(why.ends_with("linux/amd64, and 4980 more"), "{why}");
        assert!(why.len() < 500, "{why}");
    }

    #[test]
    fn a_program_says_what_it_was_built_for() {
        let elf = |class: u8, data: u8, machine: [u8; 2]| {
            let mut start = [0; 20];
            start[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data]);
            start[18..].copy_from_slice(&machine);
            Platform::of_elf(&start).map(|found| found.to_string())
        };
        for (start, found) in [
            ((2, 1, [62, 0]), Some("linux/amd64")),
            ((2, 1, [183, 0]), Some("linux/arm64")),
            ((1, 1, [3, 0]), Some("linux/386")),
            ((1, 1, [40, 0]), Some("linux/arm")),
            ((2, 1, [243, 0]), Some("linux/riscv64")),
            ((2, 2, [0, 22]), Some("linux/s390x")),
            ((2, 1, [21, 0]), Some("linux/ppc64le")),
            ((2, 2, [0, 21]), Some("linux/ppc64")),
            ((2, 1, [2, 1]), Some("linux/loong64")),
            ((1, 1, [62, 0]), None),
            ((2, 9, [62, 0]), None),
        ] {
            assert_eq!(elf(start.0, start.1, start.2).as_deref(), found);
        }
        let own = std::fs::read("/proc/self/exe").expect("it runs");
        assert_eq!(Platform::of_elf(&own), Some(Platform::here()));
        assert_eq!(Platform::of_elf(b"#!/bin/sh"), None);
        assert_eq!(Platform::of_elf(b"\x7fELF\x02\x01"), None);
    }
}
