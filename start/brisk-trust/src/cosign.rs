//! Signatures of cosign by a key that is given: ECDSA over P-256 with SHA-256, of a text that names the digest of a manifest.
//!
//! The text is that of `containers-signature(5)`. Certificates and logs, by which cosign signs without a key, are not looked at.

use brisk_remote::{Cosigned, RegistryName};
use ct_codecs::{Base64, Decoder};
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::DecodePublicKey;
use serde::Deserialize;

/// How the file of a key begins.
const PEM: &str = "-----BEGIN PUBLIC KEY-----";

/// What a text is that cosign signs of a manifest.
const KIND: &str = "cosign container image signature";

/// A public key, as `cosign generate-key-pair` writes it.
pub struct CosignKey(VerifyingKey);

/// What is signed. A field that stands there twice is an error.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    identity: Identity,
    image: Manifest,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    repository: Option<String>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl CosignKey {
    /// Whether a file with this text is meant to be such a key.
    pub fn is_one(text: &str) -> bool {
        text.trim_start().starts_with(PEM)
    }

    /// The key in a file with this text. None if it is of another kind.
    pub fn decode(text: &str) -> Option<Self> {
        VerifyingKey::from_public_key_pem(text.trim())
            .ok()
            .map(Self)
    }

    /// Whether it has made the signature, whatever that is of.
    pub fn has_signed(&self, cosigned: &Cosigned) -> bool {
        let signature = Base64::decode_to_vec(cosigned.signature.trim(), None).ok();
        let signature = signature.and_then(|bytes| Signature::from_der(&bytes).ok());
        let payload = cosigned.payload.as_bytes();
        signature.is_some_and(|signature| self.0.verify(payload, &signature).is_ok())
    }
}

/// Checks that a text which a key has signed is of this manifest, in this repository.
///
/// # Errors
///
/// What it is of instead.
pub fn check_payload(payload: &str, name: &RegistryName, manifest: &str) -> Result<(), String> {
    let signed = serde_json::from_str::<Payload>(payload);
    let signed = signed.map_err(|e| format!("a text that brisk cannot read: {e}"))?;
    let Critical {
        identity,
        image,
        kind,
    } = signed.critical;
    if kind != KIND {
        return Err(format!("a text of the type {kind:?}, allowed is {KIND:?}"));
    }
    if image.digest != manifest {
        return Err(format!(
            "a manifest with the digest {:?}, and here is {manifest}",
            image.digest
        ));
    }
    let asked = repository(&format!("{}/{}", name.host(), name.name())).to_owned();
    match identity.repository {
        Some(signed) if !signed.is_empty() && repository(&signed) != asked => Err(format!(
            "an image in {signed:?}, and asked for was {asked:?}"
        )),
        _ => Ok(()),
    }
}

/// A reference without its tag and digest. The Docker Hub has two names.
fn repository(reference: &str) -> &str {
    let reference = reference.split('@').next().unwrap_or("");
    let end = match (reference.rfind('/'), reference.rfind(':')) {
        (Some(slash), Some(colon)) if slash < colon => colon,
        _ => reference.len(),
    };
    let name = reference.get(..end).unwrap_or(reference);
    match name.strip_prefix("index.") {
        Some(rest) if rest.starts_with("docker.io/") => rest,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use brisk_remote::RemoteUrl;

    use super::*;

    /// cosign 2.4.1 has made these: `cosign sign --key` with `--sign-container-identity registry.example/tools/app`.
    const KEY: &str = include_str!("../testdata/cosign/cosign.pub");
    const PAYLOAD: &str = include_str!("../testdata/cosign/payload.json");
    const SIGNATURE: &str = include_str!("../testdata/cosign/signature");

    #[test]
    fn what_cosign_has_signed_is_right_and_nothing_else() {
        let key = CosignKey::decode(KEY).expect("a key");
        let has_signed = |signature: &str, payload: &str| {
            key.has_signed(&Cosigned {
                signature: signature.into(),
                payload: payload.into(),
            })
        };
        assert!(has_signed(SIGNATURE, PAYLOAD));
        assert!(!has_signed(SIGNATURE, &PAYLOAD.replace("null", "{}")));
        for signature in ["", "a", "AAAA", &SIGNATURE.replace('w', "x")] {
            assert!(!has_signed(signature, PAYLOAD), "{signature}");
        }
        assert!(CosignKey::is_one(KEY));
        assert!(CosignKey::decode(&KEY.replace("MFkw", "MFkx")).is_none());
    }

    #[test]
    fn a_signed_text_must_be_of_this_manifest_in_this_repository() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let other = format!("sha256:{}", "cd".repeat(32));
        let of = |repository: &str, image: &str, kind: &str| {
            format!(
                r#"{{"critical":{{"identity":{{"docker-reference":{repository}}},"image":{image},"type":"{kind}"}},"optional":null}}"#
            )
        };
        let image = |digests: &[&str]| {
            let fields = digests
                .iter()
                .map(|digest| format!(r#""docker-manifest-digest":"{digest}""#));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        };
        let this = &*image(&[&digest]);
        let near = "oci://localhost:5000/a/b:1";
        let hub = "oci://docker.io/app";
        let twice = "a text that brisk cannot read: duplicate field `docker-manifest-digest`";
        let others = format!("a manifest with the digest \"{other}\", and here is {digest}");
        let elsewhere =
            "an image in \"localhost:5000/a/c\", and asked for was \"localhost:5000/a/b\"";
        for (url, payload, expected) in [
            (near, of("\"localhost:5000/a/b\"", this, KIND), None),
            (near, of("\"localhost:5000/a/b:2\"", this, KIND), None),
            (near, of("\"\"", this, KIND), None),
            (near, of("null", this, KIND), None),
            (hub, of("\"index.docker.io/library/app\"", this, KIND), None),
            (
                near,
                of("\"localhost:5000/a/c\"", this, KIND),
                Some(elsewhere),
            ),
            (near, of("\"\"", &image(&[&other]), KIND), Some(&others)),
            (
                near,
                of("\"\"", &image(&[&other, &digest]), KIND),
                Some(twice),
            ),
            (
                near,
                of("\"\"", &image(&[&digest, &other]), KIND),
                Some(twice),
            ),
            (
                near,
                of("\"\"", "{}", KIND),
                Some("missing field `docker-manifest-digest`"),
            ),
            (
                near,
                of("\"\"", this, "atomic container signature"),
                Some("a text of the type"),
            ),
            (near, String::new(), Some("a text that brisk cannot read")),
        ] {
            let name = RemoteUrl::parse(url).expect("a URL").registry();
            let found = check_payload(&payload, &name.expect("a registry"), &digest);
            match (found, expected) {
                (Ok(()), None) => {}
                (Err(found), Some(expected)) => {
                    assert!(found.contains(expected), "{found}");
                }
                (found, _) => panic!("{payload}: {found:?}"),
            }
        }
    }
}
