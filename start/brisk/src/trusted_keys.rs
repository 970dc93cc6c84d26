//! The public keys whose signatures a user trusts.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_io::open_at_once;
use brisk_launch::is_of_user_or_root;
use brisk_remote::{Cosigned, RegistryName};
use brisk_terminal::names::shown;
use minisign_verify::{PublicKey, Signature};
use rustix::process::geteuid;

use crate::cosign::{CosignKey, check_payload};
use crate::manifest::{MOST_BYTES, Manifest, manifest_beside, signature_beside};

/// The keys that the administrator trusts, for all users.
const OF_SYSTEM: &str = "/etc/brisk/trusted.d";

/// Public keys, with the files that they are from.
#[derive(Default)]
pub struct TrustedKeys {
    keys: Vec<(PathBuf, PublicKey)>,
    /// Those of cosign, which sign only manifests in registries.
    of_cosign: Vec<(PathBuf, CosignKey)>,
    /// Where the keys were looked for, for messages.
    places: Vec<PathBuf>,
}

/// A text and a signature of it, with their names for messages.
pub struct SignedText<'a> {
    pub text: &'a str,
    pub name: &'a str,
    pub signature: &'a str,
    pub name_of_signature: &'a str,
}

impl TrustedKeys {
    /// The keys in these files.
    pub fn named(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut keys = Self {
            places: files.to_vec(),
            ..Self::default()
        };
        for file in files {
            keys.read(file, false)?;
        }
        Ok(keys)
    }

    /// The keys in the files `*.pub` of `/etc/brisk/trusted.d` and of `brisk/trusted.d` in the user's configuration.
    ///
    /// # Errors
    ///
    /// If a key cannot be read, is no key, belongs to another user, or others may write to it.
    pub fn installed() -> anyhow::Result<Self> {
        let mut places = vec![PathBuf::from(OF_SYSTEM)];
        places.extend(of_user());
        let mut keys = Self::default();
        for place in &places {
            let entries = match fs::read_dir(place) {
                Ok(entries) => entries,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e).with_context(|| format!("cannot read {}", shown(place))),
            };
            check_installed(place)?;
            let mut files = Vec::new();
            for entry in entries {
                let entry = entry.with_context(|| format!("cannot read {}", shown(place)))?;
                files.push(entry.path());
            }
            files.retain(|file| file.extension().is_some_and(|end| end == "pub"));
            files.sort();
            for file in &files {
                keys.read(file, true)?;
            }
        }
        Ok(Self { places, ..keys })
    }

    /// Takes the key in a file, as [`read_key`] reads it.
    fn read(&mut self, file: &Path, installed: bool) -> anyhow::Result<()> {
        let text = read_key(file, installed)?;
        if CosignKey::is_one(&text) {
            let key = CosignKey::decode(&text).with_context(|| {
                format!(
                    "{}: it is not a public key of cosign that brisk can use, which is one of ECDSA over P-256; cosign \
                     generate-key-pair makes a pair of keys",
                    shown(file)
                )
            })?;
            self.of_cosign.push((file.to_owned(), key));
            return Ok(());
        }
        let key = PublicKey::decode(&text).map_err(|e| {
            anyhow::anyhow!(
                "{}: it is not a public key of minisign ({e}); minisign -G makes a pair of keys",
                shown(file)
            )
        })?;
        self.keys.push((file.to_owned(), key));
        Ok(())
    }

    /// Whether a key of minisign is trusted.
    pub fn has_minisign(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether a key of cosign is trusted.
    pub fn has_cosign(&self) -> bool {
        !self.of_cosign.is_empty()
    }

    /// The manifest beside the image at `path`, if one of the keys has signed it.
    ///
    /// # Errors
    ///
    /// If manifest or signature are missing or damaged, or none of the keys has made the signature. The text says what
    /// to do.
    pub fn manifest_of(&self, path: &Path) -> anyhow::Result<Manifest> {
        self.check_any(&shown(path))?;
        let (manifest_path, signature_path) = (manifest_beside(path), signature_beside(path));
        let read = |file: &Path| {
            let open = open_at_once(file).map_err(anyhow::Error::from);
            open.and_then(|open| read_short(open, file)).with_context(|| {
                format!(
                    "{}: the image is not signed: expected its manifest and signature in {} and {}; get them from the \
                     publisher, or sign the image with brisk sign",
                    shown(path),
                    shown(&manifest_path),
                    shown(&signature_path)
                )
            })
        };
        let (manifest, signature) = (read(&manifest_path)?, read(&signature_path)?);
        self.check(&SignedText {
            text: &manifest,
            name: &shown(&manifest_path),
            signature: &signature,
            name_of_signature: &shown(&signature_path),
        })?;
        Manifest::parse(&manifest)
            .with_context(|| format!("{}: cannot use it", shown(&manifest_path)))
    }

    /// Checks that there is a key. `image` is what should be signed by one, for the message.
    pub fn check_any(&self, image: &str) -> anyhow::Result<()> {
        if !self.has_minisign() && !self.has_cosign() {
            bail!(
                "{image}: no key is trusted, because there is no file *.pub in {}; put the publisher's public key there, or \
                 name it with --trust",
                self.looked_in()
            );
        }
        Ok(())
    }

    /// Checks that one of the keys has signed exactly this text.
    pub fn check(&self, signed: &SignedText<'_>) -> anyhow::Result<()> {
        let signature = Signature::decode(signed.signature).map_err(|e| {
            anyhow::anyhow!(
                "{}: it is not a signature of minisign ({e}); get another copy",
                signed.name_of_signature
            )
        })?;
        let mut of_key = None;
        for (file, key) in &self.keys {
            match key.verify(signed.text.as_bytes(), &signature, false) {
                Ok(()) => return Ok(()),
                Err(minisign_verify::Error::UnexpectedKeyId) => {}
                Err(e) => of_key = Some((file, e)),
            }
        }
        match of_key {
            Some((file, e)) => bail!(
                "{}: it is not what the key in {} has signed ({e}): it or its signature was changed; get both again",
                signed.name,
                shown(file)
            ),
            None => bail!(
                "{}: the signature is by a key that is not trusted; trusted are {}; name the right key with --trust if \
                 you trust it",
                signed.name_of_signature,
                self.names()
            ),
        }
    }

    /// Checks that one of the keys of cosign has signed the manifest with the digest `manifest`. `image` is its name, for messages.
    pub fn check_cosigned(
        &self,
        image: &str,
        name: &RegistryName,
        manifest: &str,
        cosigned: &[Cosigned],
    ) -> anyhow::Result<()> {
        let mut of_key = None;
        for (signed, (file, key)) in cosigned
            .iter()
            .flat_map(|signed| self.of_cosign.iter().map(move |key| (signed, key)))
        {
            if key.has_signed(signed) {
                match check_payload(&signed.payload, name, manifest) {
                    Ok(()) => return Ok(()),
                    Err(what) => of_key = Some((file, what)),
                }
            }
        }
        match of_key {
            Some((file, what)) => bail!(
                "{image}: the key in {} has signed {what}; ask the publisher to sign this one with cosign",
                shown(file)
            ),
            None if cosigned.is_empty() => bail!(
                "{image}: the image is not signed: its registry has no signature by cosign of the manifest {manifest}, and a \
                 bundle of cosign 3 is none; ask the publisher to sign it with cosign sign --key, and with cosign 3 to add \
                 --new-bundle-format=false"
            ),
            None => bail!(
                "{image}: the signature by cosign is of a key that is not trusted; trusted are {}; name the right key with \
                 --trust if you trust it",
                self.names()
            ),
        }
    }

    fn looked_in(&self) -> String {
        let places = self.places.iter().map(|place| shown(place).to_string());
        places.collect::<Vec<_>>().join(" or ")
    }

    fn names(&self) -> String {
        let minisign = self.keys.iter().map(|(file, _)| file);
        let files = minisign.chain(self.of_cosign.iter().map(|(file, _)| file));
        let files = files.map(|file| shown(file).to_string());
        files.collect::<Vec<_>>().join(", ")
    }
}

/// The user's own directory of keys. None if the environment names no home.
fn of_user() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(config?.join("brisk/trusted.d"))
}

/// The text of a key in a file. `installed` is one that nobody has named, so that its owner counts.
///
/// What is checked is the open file: it may be behind a symbolic link, and the path may lead elsewhere by now.
fn read_key(file: &Path, installed: bool) -> anyhow::Result<String> {
    let open = open_at_once(file).with_context(|| format!("cannot open {}", shown(file)))?;
    let found = open.metadata();
    let found = found.with_context(|| format!("cannot examine {}", shown(file)))?;
    if installed {
        check_owner(file, &found)?;
    }
    check_writers(file, &found)?;
    read_short(open, file).with_context(|| format!("cannot read the key {}", shown(file)))
}

/// Checks that only the user and root can change what is in a directory of keys, or replace it.
fn check_installed(place: &Path) -> anyhow::Result<()> {
    let real = place.canonicalize();
    let real = real.with_context(|| format!("cannot find {}", shown(place)))?;
    for directory in real.ancestors() {
        let found = fs::symlink_metadata(directory);
        let found = found.with_context(|| format!("cannot examine {}", shown(directory)))?;
        check_owner(directory, &found)?;
        // In a directory like /tmp, nobody can replace what is of others.
        if directory == real || found.mode() & 0o1000 == 0 {
            check_writers(directory, &found)?;
        }
    }
    Ok(())
}

/// Checks that a file belongs to the user or to root.
fn check_owner(path: &Path, found: &fs::Metadata) -> anyhow::Result<()> {
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if is_of_user_or_root(owner) {
        return Ok(());
    }
    let unknown = match owner == user {
        true => ", like the files of every user that this user namespace does not map",
        false => "",
    };
    bail!(
        "{}: it belongs to user {owner}{unknown}, so it cannot be trusted; allowed are root and the user {user}; chown \
         it, or name the key with --trust",
        shown(path)
    );
}

/// Checks that nobody else can change what is trusted.
fn check_writers(path: &Path, found: &fs::Metadata) -> anyhow::Result<()> {
    if found.mode() & 0o022 != 0 {
        bail!(
            "{}: others may write to it (mode {:04o}), so it cannot be trusted; chmod go-w {}",
            shown(path),
            found.mode() & 0o7777,
            shown(path)
        );
    }
    Ok(())
}

/// The text of a short file.
fn read_short(open: fs::File, file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    open.take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", shown(file)))?;
    if text.len() as u64 > MOST_BYTES {
        bail!("{}: it has more than {MOST_BYTES} bytes", shown(file));
    }
    Ok(text)
}
