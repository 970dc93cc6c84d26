//! The public keys whose signatures a user trusts.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brisk_io::open_at_once;
use brisk_launch::is_of_user_or_root;
use brisk_remote::{Cosigned, Error, ErrorKind, RegistryName, Result};
use minisign_verify::{PublicKey, Signature};
use rustix::process::geteuid;

use crate::argument_names::ArgumentNames;
use crate::cosign::{CosignKey, check_payload};

/// The most bytes of a key, a manifest or a signature that brisk reads: far more than any of them needs.
pub const MOST_BYTES: u64 = 16 << 10;

/// The keys that the administrator trusts, for all users.
const OF_SYSTEM: &str = "/etc/brisk/trusted.d";

/// Public keys, with the files that they are from.
pub struct TrustedKeys {
    keys: Vec<(PathBuf, PublicKey)>,
    /// Those of cosign, which sign only manifests in registries.
    of_cosign: Vec<(PathBuf, CosignKey)>,
    /// Where the keys were looked for, for messages.
    places: Vec<PathBuf>,
    /// For messages, too.
    names: ArgumentNames,
}

/// A text and a signature of it, with their names for messages.
pub struct SignedText<'a> {
    /// The text.
    pub text: &'a str,
    /// Where it is.
    pub name: &'a str,
    /// The signature, as minisign writes it.
    pub signature: &'a str,
    /// Where that is.
    pub name_of_signature: &'a str,
}

/// Nobody whom the user trusts vouches for what is named.
pub(crate) fn untrusted(text: String) -> Error {
    Error::new(ErrorKind::Untrusted, text)
}

impl TrustedKeys {
    fn none(places: Vec<PathBuf>, names: ArgumentNames) -> Self {
        Self {
            keys: Vec::new(),
            of_cosign: Vec::new(),
            places,
            names,
        }
    }

    /// The keys in these files.
    ///
    /// # Errors
    ///
    /// If one cannot be read, is no key, or others may write to it.
    pub fn named(files: &[PathBuf], names: ArgumentNames) -> Result<Self> {
        let mut keys = Self::none(files.to_vec(), names);
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
    pub fn installed(names: ArgumentNames) -> Result<Self> {
        let mut places = vec![PathBuf::from(OF_SYSTEM)];
        places.extend(of_user());
        let mut keys = Self::none(places.clone(), names);
        for place in &places {
            let failed = |e| Error::io(format_args!("read {}", place.display()), e);
            let entries = match fs::read_dir(place) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(failed(e)),
            };
            check_installed(place, &names)?;
            let mut files = Vec::new();
            for entry in entries {
                files.push(entry.map_err(failed)?.path());
            }
            files.retain(|file| file.extension().is_some_and(|end| end == "pub"));
            files.sort();
            for file in &files {
                keys.read(file, true)?;
            }
        }
        Ok(keys)
    }

    /// Takes the key in a file, as [`read_key`] reads it.
    fn read(&mut self, file: &Path, installed: bool) -> Result<()> {
        let text = read_key(file, installed, &self.names)?;
        if CosignKey::is_one(&text) {
            let key = CosignKey::decode(&text).ok_or_else(|| {
                untrusted(format!(
                    "{}: it is not a public key of cosign that brisk can use, which is one of ECDSA over P-256; cosign \
                     generate-key-pair makes a pair of keys",
                    file.display()
                ))
            })?;
            self.of_cosign.push((file.to_owned(), key));
            return Ok(());
        }
        let key = PublicKey::decode(&text).map_err(|e| {
            untrusted(format!(
                "{}: it is not a public key of minisign ({e}); minisign -G makes a pair of keys",
                file.display()
            ))
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

    /// Checks that there is a key. `image` is what should be signed by one, for the message.
    ///
    /// # Errors
    ///
    /// `Untrusted`.
    pub fn check_any(&self, image: &str) -> Result<()> {
        if !self.has_minisign() && !self.has_cosign() {
            return Err(untrusted(format!(
                "{image}: no key is trusted, because there is no file *.pub in {}; put the publisher's public key there, or \
                 name it with {}",
                self.looked_in(),
                self.names.trust
            )));
        }
        Ok(())
    }

    /// Checks that one of the keys has signed exactly this text.
    ///
    /// # Errors
    ///
    /// `Untrusted`.
    pub fn check(&self, signed: &SignedText<'_>) -> Result<()> {
        let signature = Signature::decode(signed.signature).map_err(|e| {
            untrusted(format!(
                "{}: it is not a signature of minisign ({e}); get another copy",
                signed.name_of_signature
            ))
        })?;
        let mut of_key = None;
        for (file, key) in &self.keys {
            match key.verify(signed.text.as_bytes(), &signature, false) {
                Ok(()) => return Ok(()),
                Err(minisign_verify::Error::UnexpectedKeyId) => {}
                Err(e) => of_key = Some((file, e)),
            }
        }
        Err(untrusted(match of_key {
            Some((file, e)) => format!(
                "{}: it is not what the key in {} has signed ({e}): it or its signature was changed; get both again",
                signed.name,
                file.display()
            ),
            None => format!(
                "{}: the signature is by a key that is not trusted; trusted are {}; name the right key with {} if you trust it",
                signed.name_of_signature,
                self.files(),
                self.names.trust
            ),
        }))
    }

    /// Checks that one of the keys of cosign has signed the manifest with the digest `manifest`. `image` is its name, for messages.
    pub(crate) fn check_cosigned(
        &self,
        image: &str,
        name: &RegistryName,
        manifest: &str,
        cosigned: &[Cosigned],
    ) -> Result<()> {
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
        Err(untrusted(match of_key {
            Some((file, what)) => format!(
                "{image}: the key in {} has signed {what}; ask the publisher to sign this one with cosign",
                file.display()
            ),
            None if cosigned.is_empty() => format!(
                "{image}: the image is not signed: its registry has no signature by cosign of the manifest {manifest}, and a \
                 bundle of cosign 3 is none; ask the publisher to sign it with cosign sign --key, and with cosign 3 to add \
                 --new-bundle-format=false"
            ),
            None => format!(
                "{image}: the signature by cosign is of a key that is not trusted; trusted are {}; name the right key with \
                 {} if you trust it",
                self.files(),
                self.names.trust
            ),
        }))
    }

    fn looked_in(&self) -> String {
        let places = self.places.iter().map(|place| place.display().to_string());
        places.collect::<Vec<_>>().join(" or ")
    }

    fn files(&self) -> String {
        let minisign = self.keys.iter().map(|(file, _)| file);
        let files = minisign.chain(self.of_cosign.iter().map(|(file, _)| file));
        let files = files.map(|file| file.display().to_string());
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
fn read_key(file: &Path, installed: bool, names: &ArgumentNames) -> Result<String> {
    let failed =
        |doing: &'static str| move |e| Error::io(format_args!("{doing} {}", file.display()), e);
    let open = open_at_once(file).map_err(failed("open"))?;
    let found = open.metadata().map_err(failed("examine"))?;
    if installed {
        check_owner(file, &found, names)?;
    }
    check_writers(file, &found)?;
    let unread = |e: Error| e.about(format_args!("cannot read the key {}", file.display()));
    read_short(open, file).map_err(unread)
}

/// Checks that only the user and root can change what is in a directory of keys, or replace it.
fn check_installed(place: &Path, names: &ArgumentNames) -> Result<()> {
    let real = place.canonicalize();
    let real = real.map_err(|e| Error::io(format_args!("find {}", place.display()), e))?;
    for directory in real.ancestors() {
        let found = fs::symlink_metadata(directory);
        let found =
            found.map_err(|e| Error::io(format_args!("examine {}", directory.display()), e))?;
        check_owner(directory, &found, names)?;
        // In a directory like /tmp, nobody can replace what is of others.
        if directory == real || found.mode() & 0o1000 == 0 {
            check_writers(directory, &found)?;
        }
    }
    Ok(())
}

/// Checks that a file belongs to the user or to root.
fn check_owner(path: &Path, found: &fs::Metadata, names: &ArgumentNames) -> Result<()> {
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if is_of_user_or_root(owner) {
        return Ok(());
    }
    let unknown = match owner == user {
        true => ", like the files of every user that this user namespace does not map",
        false => "",
    };
    Err(untrusted(format!(
        "{}: it belongs to user {owner}{unknown}, so it cannot be trusted; allowed are root and the user {user}; chown \
         it, or name the key with {}",
        path.display(),
        names.trust
    )))
}

/// Checks that nobody else can change what is trusted.
fn check_writers(path: &Path, found: &fs::Metadata) -> Result<()> {
    if found.mode() & 0o022 != 0 {
        return Err(untrusted(format!(
            "{}: others may write to it (mode {:04o}), so it cannot be trusted; chmod go-w {}",
            path.display(),
            found.mode() & 0o7777,
            path.display()
        )));
    }
    Ok(())
}

/// The text of a file that has at most [`MOST_BYTES`].
///
/// # Errors
///
/// Also if it has more.
pub fn read_short(open: fs::File, file: &Path) -> Result<String> {
    let mut text = String::new();
    open.take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|e| Error::io(format_args!("read {}", file.display()), e))?;
    if text.len() as u64 > MOST_BYTES {
        let file = file.display();
        return Err(untrusted(format!(
            "{file}: it has more than {MOST_BYTES} bytes"
        )));
    }
    Ok(text)
}
