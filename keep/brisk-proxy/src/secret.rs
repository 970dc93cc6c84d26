//! The secret of a cache: random bytes in a file that only its owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use brisk_http::Credentials;
use data_encoding::HEXLOWER;
use http::HeaderMap;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::private_file;

/// Random bytes that others do not know. Names of users and hosts are signed with them.
#[derive(Clone)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    const LEN: usize = 32;

    /// The secret in a directory. Whoever comes first makes it.
    pub fn of_directory(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("secret");
        Self::open(&path).with_context(|| path.display().to_string())
    }

    fn open(path: &Path) -> anyhow::Result<Self> {
        match File::open(path) {
            Ok(file) => return Self::read(&file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).context("cannot open the secret of the cache"),
        }
        let mut bytes = [0; Self::LEN];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
        // It appears whole, and of several processes that make one, one wins.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let made = (|| {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            match fs::hard_link(&new, path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            }
        })();
        fs::remove_file(&new).ok();
        made.context("cannot make the secret of the cache")?;
        Self::read(&File::open(path)?)
    }

    fn read(mut file: &File) -> anyhow::Result<Self> {
        let found = file.metadata()?;
        private_file::check(
            &found,
            "the secret of the cache",
            "remove it, so that a new one is made",
        )?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        match bytes.try_into() {
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => {
                bail!("the secret of the cache is damaged; remove it, so that a new one is made")
            }
        }
    }

    /// Hexadecimal digits that only who has the secret can tell, for a text and its purpose.
    pub fn sign(&self, purpose: &str, text: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut signing = hmac::Context::with_key(&key);
        signing.update(purpose.as_bytes());
        signing.update(&[0]);
        signing.update(text.as_bytes());
        let tag = signing.sign();
        let (half, _) = tag.as_ref().split_at(16);
        HEXLOWER.encode(half)
    }

    /// A keyed digest of the credentials of a request. Empty: it has none.
    pub fn whose(&self, headers: &HeaderMap) -> String {
        let mut credentials: Vec<String> = headers
            .iter()
            .filter(|(name, _)| Credentials::Unknown.has(name))
            .map(|(name, value)| format!("{name}:{}\n", value.as_bytes().escape_ascii()))
            .collect();
        if credentials.is_empty() {
            return String::new();
        }
        credentials.sort_unstable();
        self.sign("whose", &credentials.concat())
    }

    /// What credentials are digested with before they are stored.
    pub fn for_credentials(&self) -> brisk_http::Secret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, b"credentials");
        let mut bytes = [0; 16];
        for (byte, from) in bytes.iter_mut().zip(tag.as_ref()) {
            *byte = *from;
        }
        brisk_http::Secret::new(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_directory_keeps_its_secret() {
        let directory = tempfile::tempdir().unwrap();
        let signature = |purpose: &str, text: &str| {
            let secret = Secret::of_directory(directory.path()).unwrap();
            secret.sign(purpose, text)
        };
        let first = signature("a", "b");
        assert_eq!(first.len(), 32);
        assert_eq!(first, signature("a", "b"));
        for other in [
            signature("a", "c"),
            signature("ab", ""),
            signature("", "ab"),
        ] {
            assert_ne!(first, other);
        }
        let path = directory.path().join("secret");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Secret::of_directory(directory.path())
            .map(drop)
            .unwrap_err();
        assert!(format!("{error:#}").contains("mode 644"), "{error:#}");
        fs::remove_file(&path).unwrap();
        assert_ne!(first, signature("a", "b"));
    }
}
