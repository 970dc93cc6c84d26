//! Who vouches for an image on the network.
//!
//! 1. A root hash in the URL decides alone: it names one image, whoever sends it. What the server says of the image must agree.
//! 2. So does the digest of a manifest in a registry, if that manifest names a root hash. The digest of a list of manifests vouches for
//!    each manifest in it.
//! 3. Where keys are asked for, one of them must have signed what is said of the image: its name, a serial number that is not
//!    smaller than an earlier one, and its root hash.
//!    Where one of the keys is of cosign, and no signature by minisign decides, it must have signed the manifest, which names the root
//!    hash, or else the digest of the whole image, and the variant if it is one. It knows no serial number and no tag.
//! 4. Else the server vouches for what it sends, if nobody on the way can change that: by https, or on this machine. By
//!    [`insecure`](crate::RemoteOptions::insecure) also where somebody can.

use std::borrow::Cow;

use brisk_remote::{Artifact, Descriptor, Error, RemoteUrl, Resolved, Result, digits};
use sha2::{Digest, Sha256};

use crate::argument_names::ArgumentNames;
use crate::trusted_keys::{SignedText, TrustedKeys, untrusted};

/// What somebody vouches for of an image: nothing if only its server does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The root hash that somebody vouches for.
    pub root: Option<String>,
    /// SHA-256 of the whole image, if a key vouches for that alone: so nothing of it is read before the whole was compared.
    pub whole: Option<String>,
    /// The serial number that a trusted key has signed.
    pub serial: Option<u64>,
}

/// Who vouches for the image at `url`, of which the server says `resolved`.
///
/// `trusted` has the keys, if they are asked for. `largest_serial` is the largest serial number that one of them has signed for
/// this URL before. Without keys, nothing looks at a signature. `names` are for the message.
///
/// # Errors
///
/// `Untrusted`, if nobody does. The text says what to do.
pub fn judge(
    url: &RemoteUrl,
    resolved: &Resolved,
    trusted: Option<&TrustedKeys>,
    largest_serial: u64,
    insecure: bool,
    names: &ArgumentNames,
) -> Result<Trust> {
    if let Some(pin) = url.pin() {
        return by_pin(url, resolved, pin);
    }
    if let Some(keys) = trusted {
        let resolved = of_digest(url, resolved)?;
        return by_key(url, &resolved, keys, largest_serial);
    }
    if let Some(root) = resolved.root_by_digest(url) {
        return Ok(Trust {
            root: Some(root),
            ..Trust::default()
        });
    }
    if url.is_exposed() && !insecure {
        return Err(untrusted(format!(
            "{url}: nobody vouches for an image by plain http, which anybody on the way can change; name its root hash \
             ({url}#sha256=HASH), or trust the publisher's key ({}), or read it all the same ({})",
            names.trust_key, names.insecure
        )));
    }
    Ok(Trust::default())
}

/// What the manifest itself says whose digest is in the URL, so that a key vouches for no other image than the one that the user names.
fn of_digest<'a>(url: &RemoteUrl, resolved: &'a Resolved) -> Result<Cow<'a, Resolved>> {
    if url.registry().is_none_or(|name| name.digest().is_none()) {
        return Ok(Cow::Borrowed(resolved));
    }
    let manifest = resolved.manifest_by_digest(url).ok_or_else(|| {
        untrusted(format!(
            "{url}: what came is not the manifest of this digest; ask again (brisk remote forget), or get the digest anew from the publisher"
        ))
    })?;
    let Artifact {
        descriptor,
        signature,
        ..
    } = Artifact::parse(manifest)?;
    Ok(Cow::Owned(Resolved {
        descriptor,
        signature,
        ..resolved.clone()
    }))
}

/// Where it is said what the publisher says of an image, and where its signature is.
fn places(url: &RemoteUrl) -> (String, String) {
    match url.registry() {
        Some(_) => (
            format!("{url} (its manifest)"),
            format!("{url} (the signature in its manifest)"),
        ),
        None => (url.beside(".remote"), url.beside(".remote.minisig")),
    }
}

fn by_pin(url: &RemoteUrl, resolved: &Resolved, pin: &str) -> Result<Trust> {
    let said = places(url).0;
    match found(resolved).map(|descriptor| descriptor.root_hash) {
        Some(Some(root)) if root != pin => Err(untrusted(format!(
            "{url}: the URL names the root hash {pin}, and {said} says {root}: the image was replaced, or the hash is that of another \
             one; get both anew from the publisher"
        ))),
        Some(None) => Err(untrusted(format!(
            "{url}: the URL names the root hash {pin}, and {said} says that the image has no hash tree; ask the publisher to publish \
             it with brisk publish"
        ))),
        _ => Ok(Trust {
            root: Some(pin.to_owned()),
            ..Trust::default()
        }),
    }
}

fn by_key(
    url: &RemoteUrl,
    resolved: &Resolved,
    keys: &TrustedKeys,
    largest_serial: u64,
) -> Result<Trust> {
    let (name, name_of_signature) = places(url);
    let asked = match url.registry() {
        Some(_) => "push it with brisk push --key",
        None => "publish it with brisk publish --key",
    };
    keys.check_any(url.as_str())?;
    if asks_cosign(url, resolved, keys) {
        return by_cosign(url, resolved, keys);
    }
    let (Some(text), Some(signature)) = (&resolved.descriptor, &resolved.signature) else {
        return Err(untrusted(format!(
            "{url}: the image is not signed: expected what is said of it and its signature in {name} and {name_of_signature}; ask the \
             publisher to {asked}"
        )));
    };
    keys.check(&SignedText {
        text,
        name: &name,
        signature,
        name_of_signature: &name_of_signature,
    })?;
    let unusable = |e: Error| e.about(format_args!("{name}: cannot use it"));
    let signed = Descriptor::parse(text).map_err(unusable)?;
    let wanted = match url.registry() {
        Some(name) => name.signed_name(),
        None => url.file_name().to_owned(),
    };
    // A digest stands for any tag.
    let is_fixed = url.registry().is_some_and(|name| name.digest().is_some());
    let signed_name = match is_fixed {
        true => signed.name.split(':').next().unwrap_or(""),
        false => &signed.name,
    };
    if signed_name != wanted {
        return Err(untrusted(format!(
            "{url}: the key has signed an image of the name {}, and the URL ends with {wanted}; use the URL that the publisher names",
            signed.name
        )));
    }
    let Some(root) = signed.root_hash else {
        return Err(untrusted(format!(
            "{url}: the image has no hash tree, so what arrives cannot be compared with what was signed; ask the publisher to \
             {asked}"
        )));
    };
    if signed.serial < largest_serial {
        return Err(untrusted(format!(
            "{url}: it is an older image under the same name: its serial number is {}, and one with {largest_serial} was there before; \
             tell the publisher, or if you want the older one, name its root hash: {url}#sha256={root}",
            signed.serial
        )));
    }
    Ok(Trust {
        root: Some(root),
        serial: Some(signed.serial),
        ..Trust::default()
    })
}

/// Whether it is for cosign to vouch for the image: where a signature by minisign can be checked, that alone decides, because it has a
/// serial number.
pub fn asks_cosign(url: &RemoteUrl, resolved: &Resolved, keys: &TrustedKeys) -> bool {
    let has_other = keys.has_minisign() && resolved.signature.is_some();
    keys.has_cosign() && !has_other && url.pin().is_none() && url.registry().is_some()
}

/// What a manifest says that a key of cosign has signed.
fn by_cosign(url: &RemoteUrl, resolved: &Resolved, keys: &TrustedKeys) -> Result<Trust> {
    let (Some(name), Some(text)) = (url.registry(), resolved.manifest.as_deref()) else {
        return Err(untrusted(format!(
            "{url}: nothing is known of its manifest"
        )));
    };
    let digest = format!("sha256:{}", digits(&Sha256::digest(text)));
    keys.check_cosigned(url.as_str(), &name, &digest, &resolved.cosigned)?;
    let unusable = |e: Error| e.about(format_args!("{url} (its manifest): cannot use it"));
    let Artifact {
        layer, descriptor, ..
    } = Artifact::parse(text).map_err(unusable)?;
    // No key has signed the list that leads to it.
    if let (Some(signed), Some(wanted)) = (layer.variant(), &name.choice().variant)
        && signed != wanted
    {
        return Err(untrusted(format!(
            "{url}: the key has signed the variant {signed}, and asked for was {wanted}; tell the publisher that the list in the \
             registry is wrong"
        )));
    }
    let root = match descriptor {
        Some(text) => Descriptor::parse(&text)?.root_hash,
        None => None,
    };
    let whole = layer.digest.strip_prefix("sha256:");
    Ok(Trust {
        whole: whole.filter(|_| root.is_none()).map(str::to_owned),
        root,
        serial: None,
    })
}

/// What the server says of the image. A text that is no descriptor is none: some servers answer each name with a page.
fn found(resolved: &Resolved) -> Option<Descriptor> {
    Descriptor::parse(resolved.descriptor.as_ref()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::path::Path;

    use brisk_launch::with_reasons;
    use brisk_remote::{Content, Cosigned, Index};
    use minisign::KeyPair;

    use super::*;

    const NAMES: ArgumentNames = ArgumentNames {
        trust: "--trust",
        trust_key: "--trust KEY.pub",
        insecure: "--insecure",
        refresh: "--refresh",
        variant: "--variant",
    };

    const URL: &str = "https://a.example/app.img";
    const PLAIN: &str = "http://a.example/app.img";
    const NEAR: &str = "http://127.0.0.1:8000/app.img";

    fn root() -> String {
        "cd".repeat(32)
    }

    fn descriptor() -> Descriptor {
        Descriptor {
            name: "app.img".into(),
            serial: 7,
            file_bytes: 100_000,
            sha256: "ab".repeat(32),
            root_hash: Some(root()),
            tables: 50_000,
            frames: None,
            neighbours: None,
            hash_tree: Some(94_208),
        }
    }

    fn without_tree() -> Descriptor {
        Descriptor {
            root_hash: None,
            hash_tree: None,
            ..descriptor()
        }
    }

    fn said(descriptor: Option<String>) -> Resolved {
        Resolved {
            descriptor,
            ..Resolved::default()
        }
    }

    /// What the server says, signed by this key.
    fn signed(descriptor: &Descriptor, keys: &KeyPair) -> Resolved {
        let text = descriptor.to_string();
        let reader = Cursor::new(text.as_bytes());
        let signature = minisign::sign(None, &keys.sk, reader, Some("c"), Some("c"));
        Resolved {
            signature: Some(signature.unwrap().into_string()),
            ..said(Some(text))
        }
    }

    fn trust(root: Option<String>, serial: Option<u64>) -> Trust {
        Trust {
            root,
            serial,
            ..Trust::default()
        }
    }

    fn judged(
        url: &str,
        resolved: &Resolved,
        trusted: Option<&TrustedKeys>,
        largest_serial: u64,
        insecure: bool,
    ) -> Result<Trust, String> {
        let url = RemoteUrl::parse(url).unwrap();
        judge(&url, resolved, trusted, largest_serial, insecure, &NAMES)
            .map_err(|e| with_reasons(&e))
    }

    #[test]
    fn a_pin_decides_alone_and_else_the_way_must_be_safe() {
        let (pinned, other) = (format!("{PLAIN}#sha256={}", root()), "ef".repeat(32));
        let plain = "http://a.example/app.img: nobody vouches for an image by plain http, which anybody on the way can change; name \
                     its root hash (http://a.example/app.img#sha256=HASH), or trust the publisher's key (--trust KEY.pub), or read \
                     it all the same (--insecure)";
        let replaced = format!(
            "http://a.example/app.img: the URL names the root hash {other}, and http://a.example/app.img.remote says {}: the image \
             was replaced, or the hash is that of another one; get both anew from the publisher",
            root()
        );
        let treeless = format!(
            "http://a.example/app.img: the URL names the root hash {}, and http://a.example/app.img.remote says that the image has \
             no hash tree; ask the publisher to publish it with brisk publish",
            root()
        );
        let sound = || said(Some(descriptor().to_string()));
        let by_pin = || Ok(trust(Some(root()), None));
        let by_server = || Ok(trust(None, None));
        for (url, resolved, insecure, expected) in [
            (&*pinned, sound(), false, by_pin()),
            (&pinned, said(None), false, by_pin()),
            (&pinned, said(Some("<html>".into())), false, by_pin()),
            (
                &format!("{PLAIN}#sha256={other}"),
                sound(),
                true,
                Err(replaced),
            ),
            (
                &pinned,
                said(Some(without_tree().to_string())),
                true,
                Err(treeless),
            ),
            (URL, sound(), false, by_server()),
            (URL, said(None), false, by_server()),
            (URL, said(Some("<html>".into())), false, by_server()),
            (
                URL,
                said(Some(without_tree().to_string())),
                false,
                by_server(),
            ),
            (NEAR, sound(), false, by_server()),
            (PLAIN, sound(), false, Err(plain.into())),
            (PLAIN, said(None), false, Err(plain.into())),
            (PLAIN, sound(), true, by_server()),
        ] {
            assert_eq!(
                judged(url, &resolved, None, 0, insecure),
                expected,
                "{url} {resolved:?}"
            );
        }
    }

    #[test]
    fn the_digest_of_a_manifest_vouches_for_the_root_hash_in_it() {
        let text = Artifact::manifest(&descriptor(), None, "app.img").to_text();
        let bare = Artifact::manifest(&without_tree(), None, "app.img").to_text();
        let digest = |text: &str| digits(&Sha256::digest(text));
        let of = |digest: &str| format!("oci+http://a.example/app@sha256:{digest}");
        let plain = "oci+http://a.example/app@sha256:";
        let list = |text: &str| Index::of(Content::of(text.as_bytes(), "x")).to_text();
        let (listed, other) = (list(&text), list("other"));
        for (url, text, index, root) in [
            (of(&digest(&text)), &text, None, Some(root())),
            (of(&digest(&listed)), &text, Some(&listed), Some(root())),
            // The registry says another one, or none, so nobody vouches for what comes by plain http.
            (of(&"ab".repeat(32)), &text, None, None),
            (of(&digest(&bare)), &bare, None, None),
            (of(&digest(&other)), &text, Some(&other), None),
            (of(&digest(&other)), &text, Some(&listed), None),
            (of(&digest(&listed)), &text, None, None),
        ] {
            let resolved = Resolved {
                manifest: Some(text.clone()),
                index: index.cloned(),
                ..Resolved::default()
            };
            match (judged(&url, &resolved, None, 0, false), root) {
                (found, Some(root)) => assert_eq!(found, Ok(trust(Some(root), None))),
                (found, None) => {
                    let message = found.unwrap_err();
                    assert!(message.starts_with(plain), "{message}");
                    assert!(message.contains("nobody vouches"), "{message}");
                }
            }
        }
    }

    #[test]
    fn a_key_of_cosign_vouches_for_what_the_manifest_names() {
        let file = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/cosign");
            path.join(name)
        };
        let read = |name| fs::read_to_string(file(name)).unwrap();
        let cosigned = Cosigned {
            signature: read("signature"),
            payload: read("payload.json"),
        };
        let resolved = |manifest: String, cosigned: &[&Cosigned]| Resolved {
            manifest: Some(manifest),
            cosigned: cosigned.iter().copied().cloned().collect(),
            ..Resolved::default()
        };
        let trusted = TrustedKeys::named(&[file("cosign.pub")], NAMES).unwrap();
        let manifest = read("manifest.json");
        let root = "ec4d1ca578be824c7dee43b169d10db2f1fc177692af5c803d6a096b3696d85d";
        let url = "oci+http://registry.example/tools/app:1";
        let damaged = Cosigned {
            payload: cosigned.payload.replace("null", "{}"),
            ..cosigned.clone()
        };
        let at = |digest: &str| format!("oci+http://registry.example/tools/app@sha256:{digest}");
        let by_key = Ok(trust(Some(root.to_owned()), None));
        for (url, resolved, expected) in [
            (
                url,
                resolved(manifest.clone(), &[&cosigned]),
                by_key.clone(),
            ),
            (
                url,
                resolved(manifest.clone(), &[&damaged, &cosigned]),
                by_key.clone(),
            ),
            (
                url,
                resolved(manifest.clone(), &[]),
                Err("its registry has no signature by cosign of the manifest sha256:13c1d94e"),
            ),
            (
                url,
                resolved(manifest.clone(), &[&damaged]),
                Err("the signature by cosign is of a key that is not trusted"),
            ),
            (
                url,
                resolved(manifest.replace("app:1", "app:2"), &[&cosigned]),
                Err("cosign.pub has signed a manifest with the digest \"sha256:13c1d94e"),
            ),
            (
                "oci://registry.example/tools/other:1",
                resolved(manifest.clone(), &[&cosigned]),
                Err("cosign.pub has signed an image in \"registry.example/tools/app\""),
            ),
            (
                &at(&"ab".repeat(32)),
                resolved(manifest.clone(), &[&cosigned]),
                Err("what came is not the manifest of this digest"),
            ),
            (
                &at(&digits(&Sha256::digest(&manifest))),
                resolved(manifest.clone(), &[&cosigned]),
                by_key,
            ),
            (
                URL,
                resolved(manifest, &[&cosigned]),
                Err("the image is not signed"),
            ),
        ] {
            match (judged(url, &resolved, Some(&trusted), 0, false), expected) {
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned)),
            }
        }
    }

    #[test]
    fn a_trusted_key_must_have_signed_name_number_and_root_hash() {
        let (keys, others) = (
            KeyPair::generate_unencrypted_keypair().unwrap(),
            KeyPair::generate_unencrypted_keypair().unwrap(),
        );
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("k.pub");
        fs::write(&file, keys.pk.to_box().unwrap().into_string()).unwrap();
        let trusted = TrustedKeys::named(std::slice::from_ref(&file), NAMES).unwrap();
        let sound = || signed(&descriptor(), &keys);
        let unsigned = "https://a.example/app.img: the image is not signed: expected what is said of it and its signature in \
                        https://a.example/app.img.remote and https://a.example/app.img.remote.minisig; ask the publisher to \
                        publish it with brisk publish --key";
        let untrusted = format!(
            "https://a.example/app.img.remote.minisig: the signature is by a key that is not trusted; trusted are {}; name the \
             right key with --trust if you trust it",
            file.display()
        );
        let changed = format!(
            "https://a.example/app.img.remote: it is not what the key in {} has signed (The signature verification failed): it or its signature was \
             changed; get both again",
            file.display()
        );
        let other_name = Descriptor {
            name: "old.img".into(),
            ..descriptor()
        };
        let renamed = "https://a.example/app.img: the key has signed an image of the name old.img, and the URL ends with app.img; \
                       use the URL that the publisher names";
        let treeless = "https://a.example/app.img: the image has no hash tree, so what arrives cannot be compared with what was \
                        signed; ask the publisher to publish it with brisk publish --key";
        let older = format!(
            "https://a.example/app.img: it is an older image under the same name: its serial number is 7, and one with 8 was there \
             before; tell the publisher, or if you want the older one, name its root hash: https://a.example/app.img#sha256={}",
            root()
        );
        let no_signature = "https://a.example/app.img.remote.minisig: it is not a signature of minisign (Invalid encoding in \
                            minisign data); get another copy";
        let by_key = || Ok(trust(Some(root()), Some(7)));
        let with = |text: String, signature: &str| Resolved {
            signature: Some(signature.to_owned()),
            ..said(Some(text))
        };
        let signature = sound().signature.unwrap();
        let raised = descriptor().to_string().replace("serial 7", "serial 8");
        for (url, resolved, largest, expected) in [
            (URL, sound(), 0, by_key()),
            (URL, sound(), 7, by_key()),
            // The key vouches for it, whoever is on the way.
            (PLAIN, sound(), 0, by_key()),
            ("https://a.example/app.img?v=2", sound(), 0, by_key()),
            (URL, sound(), 8, Err(older)),
            (URL, said(None), 0, Err(unsigned.into())),
            (URL, said(sound().descriptor), 0, Err(unsigned.into())),
            (URL, signed(&descriptor(), &others), 0, Err(untrusted)),
            (URL, with(raised, &signature), 0, Err(changed)),
            (
                URL,
                with(descriptor().to_string(), "a"),
                0,
                Err(no_signature.into()),
            ),
            (URL, signed(&other_name, &keys), 0, Err(renamed.into())),
            (URL, signed(&without_tree(), &keys), 0, Err(treeless.into())),
        ] {
            assert_eq!(
                judged(url, &resolved, Some(&trusted), largest, false),
                expected,
                "{url} {resolved:?}"
            );
        }
        // Of a digest counts what its manifest says, and not what somebody says of it.
        let own = Descriptor {
            name: "app:1".into(),
            ..descriptor()
        };
        let text = Artifact::manifest(&own, signed(&own, &keys).signature.as_deref(), "app.img");
        let manifest = text.to_text();
        let other = Descriptor {
            root_hash: Some("ef".repeat(32)),
            ..own
        };
        let told = Resolved {
            manifest: Some(manifest.clone()),
            ..signed(&other, &keys)
        };
        let url = format!(
            "oci+http://a.example/app@sha256:{}",
            digits(&Sha256::digest(&manifest))
        );
        assert_eq!(judged(&url, &told, Some(&trusted), 0, false), by_key());
        // A root hash in the URL decides alone.
        let pinned = format!("{URL}#sha256={}", root());
        let by_pin = Ok(trust(Some(root()), None));
        assert_eq!(
            judged(&pinned, &said(None), Some(&trusted), 9, false),
            by_pin
        );
        let none = TrustedKeys::named(&[], NAMES).unwrap();
        let said = judged(URL, &sound(), Some(&none), 0, true).unwrap_err();
        assert!(
            said.starts_with("https://a.example/app.img: no key is trusted"),
            "{said}"
        );
    }
}
