use std::borrow::Cow;

use super::page_error::PageError;
use crate::digest;

/// A file as a page describes it.
#[derive(Debug, Default)]
pub(crate) struct PageFile<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) url: Cow<'a, str>,
    pub(crate) sha256: Option<[u8; 32]>,
    /// `algorithm=digest`.
    pub(crate) other_digest: Option<String>,
    pub(crate) requires_python: Option<Cow<'a, str>>,
    /// The reason, which may be empty.
    pub(crate) yanked: Option<Cow<'a, str>>,
    /// Whether the index has its metadata, and their SHA-256.
    pub(crate) metadata: Option<Option<[u8; 32]>>,
    pub(crate) size: Option<u64>,
    pub(crate) uploaded: Option<i64>,
}

impl PageFile<'_> {
    pub(super) fn wrong(
        &self,
        field: &'static str,
        found: &str,
        allowed: &'static str,
    ) -> PageError {
        PageError::Field {
            file: self.name.chars().take(200).collect(),
            field,
            found: found.chars().take(200).collect(),
            allowed,
        }
    }

    /// A digest of the file. SHA-256 is kept as bytes, and others only where there is none.
    pub(super) fn digest(&mut self, algorithm: &str, digest: &str) -> Result<(), PageError> {
        if algorithm.eq_ignore_ascii_case("sha256") {
            self.sha256 = Some(self.sha256_of("hashes.sha256", digest)?);
            self.other_digest = None;
        } else if self.sha256.is_none() {
            self.other_digest = Some(format!("{algorithm}={digest}"));
        }
        Ok(())
    }

    pub(super) fn sha256_of(
        &self,
        field: &'static str,
        digest: &str,
    ) -> Result<[u8; 32], PageError> {
        digest::of_hex(&digest.to_ascii_lowercase())
            .ok_or_else(|| self.wrong(field, digest, "64 hexadecimal digits"))
    }
}
