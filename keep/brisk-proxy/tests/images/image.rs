use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use super::digest;

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image of one layer.
#[derive(Clone)]
pub struct Image {
    pub manifest: Vec<u8>,
    /// Its configuration and its layer, by digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// The digest of the layer.
    pub layer: String,
}

impl Image {
    /// With a file of these bytes.
    pub fn of(file: &[u8]) -> Self {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(file.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "app", file).unwrap();
        let tar = tar.into_inner().unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        let layer = gzip.finish().unwrap();
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] }
        });
        let config = config.to_string().into_bytes();
        let part = |kind: &str, bytes: &[u8]| {
            serde_json::json!({
                "mediaType": format!("application/vnd.oci.image.{kind}"),
                "digest": digest(bytes), "size": bytes.len()
            })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("config.v1+json", &config),
            "layers": [part("layer.v1.tar+gzip", &layer)]
        });
        Self {
            manifest: manifest.to_string().into_bytes(),
            layer: digest(&layer),
            blobs: [config, layer].map(|blob| (digest(&blob), blob)).into(),
        }
    }

    /// The bytes of the layer.
    pub fn layer(&self) -> &[u8] {
        &self.blobs[&self.layer]
    }

    /// Writes it as a layout, under the name `made`.
    pub fn write(&self, directory: &Path) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let write = |bytes: &[u8]| {
            let digest = digest(bytes);
            fs::write(blobs.join(digest.strip_prefix("sha256:").unwrap()), bytes).unwrap();
        };
        write(&self.manifest);
        self.blobs.values().for_each(|blob| write(blob));
        let index = serde_json::json!({
            "schemaVersion": 2, "mediaType": INDEX,
            "manifests": [{
                "mediaType": MANIFEST, "digest": digest(&self.manifest), "size": self.manifest.len(),
                "annotations": { "org.opencontainers.image.ref.name": "made" }
            }]
        });
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
        fs::write(
            directory.join("oci-layout"),
            "{\"imageLayoutVersion\":\"1.0.0\"}",
        )
        .unwrap();
    }
}
