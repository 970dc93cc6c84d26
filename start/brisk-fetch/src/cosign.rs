//! Finds what cosign has signed of a manifest, in the registry of that. Nothing is verified here.

use brisk_remote::{Content, Cosigned, Manifest, RegistryName, digits, media_type};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::log::say;
use crate::origin::{MOST_INDEX, Origin, SILENCE, reasons, referrers_tag, whole};
use crate::refusal::Refusal;

/// The annotation of a layer with the signature of that.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The most signatures that are fetched. The last are the newest.
const MOST_SIGNATURES: usize = 16;

/// The most bytes of a text that is signed: mostly it has 300.
const MOST_PAYLOAD: u64 = 4 << 10;

/// The most bytes of all together, in JSON: they go in one line with the manifest.
const MOST_TOGETHER: usize = 16 << 10;

impl Origin {
    /// What cosign has signed of the manifest with this digest: nothing, if the registry has nothing of the kind.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn cosigned(
        &self,
        name: &RegistryName,
        digest: &str,
    ) -> Result<Vec<Cosigned>, Refusal> {
        let mut found = Vec::new();
        let Some(text) = self.cosign_manifest(name, digest).await? else {
            return Ok(found);
        };
        let manifest = Manifest::parse(&text).map_err(|e| {
            let why = format!("what {} has of cosign: {}", name.host(), reasons(&e));
            Refusal::Never(why)
        })?;
        let signed = manifest.layers.iter().rev().filter_map(|layer| {
            let is_one = layer.media_type == media_type::COSIGN_LAYER;
            let signature = layer.annotations.get(SIGNATURE).filter(|_| is_one)?;
            Some((layer, signature))
        });
        for (layer, signature) in signed.take(MOST_SIGNATURES) {
            let Some(payload) = self.payload(name, layer).await? else {
                say!("{name}: {} is not what cosign signs", layer.digest);
                continue;
            };
            found.push(Cosigned {
                signature: signature.clone(),
                payload,
            });
            if serde_json::to_vec(&found).is_ok_and(|line| line.len() > MOST_TOGETHER) {
                found.pop();
                break;
            }
        }
        Ok(found)
    }

    /// The manifest that cosign keeps its signatures in: under a tag, or in the list of what is said of the signed one.
    async fn cosign_manifest(
        &self,
        name: &RegistryName,
        digest: &str,
    ) -> Result<Option<String>, Refusal> {
        let tag = format!("{}.sig", referrers_tag(digest));
        match self.manifest(name, &tag, true, MOST_INDEX).await {
            Err(Refusal::Never(_)) => {}
            found => return found.map(|found| Some(found.text)),
        }
        let list = match self.referrers(name, digest).await {
            Err(Refusal::Never(_)) => return Ok(None),
            list => list?,
        };
        let Some(Content { digest, .. }) = list.last_of(media_type::COSIGN) else {
            return Ok(None);
        };
        let found = self.manifest(name, digest, false, MOST_INDEX).await?;
        Ok(Some(found.text))
    }

    /// A text that is signed. None if it is too long, or another one than its digest says.
    async fn payload(
        &self,
        name: &RegistryName,
        layer: &Content,
    ) -> Result<Option<String>, Refusal> {
        if layer.size > MOST_PAYLOAD {
            return Ok(None);
        }
        let slow = |_| format!("{} is too slow", name.host());
        let asked = timeout(SILENCE, self.blob(name, &layer.digest, None)).await;
        let response = asked.map_err(slow)??;
        if !response.status().is_success() {
            return Ok(None);
        }
        let read = timeout(SILENCE, whole(response.into_body(), MOST_PAYLOAD)).await;
        let Ok(bytes) = read.map_err(slow)? else {
            return Ok(None);
        };
        let is_it = layer.digest == format!("sha256:{}", digits(&Sha256::digest(&bytes)));
        Ok(String::from_utf8(bytes).ok().filter(|_| is_it))
    }
}
