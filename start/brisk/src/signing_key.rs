//! A secret key of minisign, and signatures by it.

use std::fs;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use brisk_terminal::names::{printable, shown};
use ct_codecs::{Base64, Decoder};
use minisign::{PublicKey, SecretKey, SecretKeyBox};

/// Bytes of a stored secret key.
const STORED: usize = 158;

/// Where a stored key says how its password is used.
const KDF: Range<usize> = 2..4;

/// What it says if there is no password.
const NO_PASSWORD: [u8; 2] = [0; 2];

/// A secret key, and the file that it is from.
pub struct SigningKey {
    path: PathBuf,
    key: SecretKey,
}

impl SigningKey {
    /// Reads a secret key. If it has a password, that is in the first line of `password_file`, or is asked for at the terminal.
    /// No message has anything of its contents.
    pub fn read(path: &Path, password_file: Option<&Path>) -> anyhow::Result<Self> {
        let key = secret_key(path, password_file)?;
        let path = path.to_owned();
        Ok(Self { path, key })
    }

    /// The signature of `text`, the contents of the file at `path`. `kind` says for people what that is. The comment that is
    /// signed, too, names the file, and has `more`.
    pub fn sign(
        &self,
        text: &str,
        kind: &str,
        path: &Path,
        more: Option<&str>,
    ) -> anyhow::Result<String> {
        let name = path.file_name().map(|name| {
            let name = name.to_string_lossy();
            format!("file:{}", printable(&name))
        });
        let parts = [name.as_deref(), more, Some("hashed")];
        let trusted = parts.into_iter().flatten().collect::<Vec<_>>().join("\t");
        let untrusted = format!("signature of {kind} of brisk");
        match signature_of(text, &self.key, &trusted, &untrusted) {
            Some(signature) => Ok(signature),
            None => bail!(
                "{}: the key is damaged: it makes signatures that its public key refuses",
                shown(&self.path)
            ),
        }
    }
}

fn secret_key(path: &Path, password_file: Option<&Path>) -> anyhow::Result<SecretKey> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the secret key {}", shown(path)))?;
    let unusable = "it is not a secret key of minisign, or its password is another one";
    // A comment comes first.
    let stored = text
        .lines()
        .nth(1)
        .and_then(|line| Base64::decode_to_vec(line, None).ok());
    let stored = stored.filter(|bytes| bytes.len() == STORED);
    let Some(stored) = stored else {
        bail!("{}: {unusable}", shown(path));
    };
    if stored[KDF] == NO_PASSWORD {
        // The library wants a checksum, which the tool leaves out of such keys. The signature is checked instead.
        return match SecretKey::from_bytes(&stored) {
            Ok(key) => Ok(key),
            Err(_) => bail!("{}: {unusable}", shown(path)),
        };
    }
    let password = match password_file {
        Some(file) => {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read the password from {}", shown(file)))?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        None => rpassword::prompt_password(format!("Password of {}: ", shown(path))).context(
            "cannot ask for the password of the secret key; give it with --password-file",
        )?,
    };
    let key = SecretKeyBox::from_string(&text);
    match key.and_then(|key| key.into_secret_key(Some(password))) {
        Ok(key) => Ok(key),
        Err(_) => bail!("{}: {unusable}", shown(path)),
    }
}

/// Signs `text`, and checks the signature, because a damaged key makes one that nobody accepts.
fn signature_of(text: &str, key: &SecretKey, trusted: &str, untrusted: &str) -> Option<String> {
    let reader = || Cursor::new(text.as_bytes());
    let signature = minisign::sign(None, key, reader(), Some(trusted), Some(untrusted)).ok()?;
    let public = PublicKey::from_secret_key(key).ok()?;
    minisign::verify(&public, &signature, reader(), true, false, false).ok()?;
    Some(signature.into_string())
}
