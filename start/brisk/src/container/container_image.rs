//! A container image whose layers were found, and the checks of what describes it.

use anyhow::{Context, bail};
use brisk_image::layers::Layer;
use brisk_image::{ErrorKind, Tree, TreeRules};
use brisk_remote::{Platform, is_sha256};
use ct_codecs::{Decoder, Hex};
use serde::Deserialize;
use sha2::Digest;
use tempfile::TempDir;

/// Bytes of a manifest, an index or a configuration at most, as registries have it.
pub const MOST_JSON: u64 = 4 << 20;

/// A container image whose layers were found, and not read yet.
pub struct Container {
    pub layers: Vec<Layer>,
    pub configuration: Configuration,
    /// What of it is not as it would be in a container.
    pub warnings: Vec<String>,
    /// The directory that the layers are in, if they were fetched. It goes with this.
    pub fetched: Option<TempDir>,
}

/// What a container image says of itself, as the OCI image configuration has it.
#[derive(Deserialize)]
pub struct Configuration {
    architecture: String,
    os: String,
    variant: Option<String>,
    pub config: Option<Start>,
    rootfs: Layers,
}

/// How it starts its program.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Start {
    pub user: Option<String>,
    pub env: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub working_dir: Option<String>,
}

#[derive(Deserialize)]
struct Layers {
    diff_ids: Vec<String>,
}

/// The SHA-256 that `digest` is.
pub fn sha256_of(digest: &str) -> anyhow::Result<[u8; 32]> {
    if !is_sha256(digest) {
        bail!(
            "{digest:?} is no digest that brisk can check, allowed is sha256: and 64 digits; copy the image with skopeo copy"
        );
    }
    let mut bytes = [0; 32];
    Hex::decode(&mut bytes, &digest["sha256:".len()..], None)?;
    Ok(bytes)
}

/// Checks that `bytes`, which are `what`, have this digest.
pub fn check_digest(what: &str, bytes: &[u8], digest: &str) -> anyhow::Result<()> {
    let found: [u8; 32] = sha2::Sha256::digest(bytes).into();
    if found != sha256_of(digest)? {
        bail!("the {what} {digest} has another digest; fetch the image again");
    }
    Ok(())
}

/// The value in `bytes`, which are `what`.
pub fn parse_json<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(bytes).with_context(|| format!("cannot read the {what}"))
}

/// The digests of what the layers unpack to, for as many layers.
pub fn diff_ids(configuration: &Configuration, layers: usize) -> anyhow::Result<Vec<[u8; 32]>> {
    let ids = &configuration.rootfs.diff_ids;
    if ids.len() != layers {
        bail!(
            "the image has {layers} layers, but its configuration describes {}; fetch the image again",
            ids.len()
        );
    }
    ids.iter().map(|id| sha256_of(id)).collect()
}

impl Container {
    /// What its layers make, with at most this many bytes unpacked.
    pub fn into_tree(self, most_bytes: u64, rules: &TreeRules) -> anyhow::Result<Tree> {
        Tree::from_layers(self.layers, most_bytes, rules).map_err(|e| match e.kind() {
            ErrorKind::Limit => anyhow::Error::from(e)
                .context("the image is larger than is allowed; if you trust it, raise --max-size"),
            _ => e.into(),
        })
    }

    /// Checks that the image is for the platform that is asked for. Where none is, notes that it is not for this machine.
    pub fn check_platform(&mut self, asked: Option<&Platform>) -> anyhow::Result<()> {
        let found = Platform {
            os: self.configuration.os.clone(),
            architecture: self.configuration.architecture.clone(),
            variant: self.configuration.variant.clone(),
        };
        let here = Platform::here();
        match asked {
            Some(asked) if !asked.takes(&found) => {
                bail!("the image is for {found} only, and --platform asks for {asked}")
            }
            None if !here.takes(&found) => self.warnings.push(format!(
                "the image is for {found}, and this machine is {here}"
            )),
            _ => {}
        }
        Ok(())
    }
}
