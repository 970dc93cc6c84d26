//! The credentials that the operator gives upstreams, in files.

use std::path::Path;

use anyhow::{Context, bail};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::map::{Map, Maps};
use crate::private_file;

const FORM: &str = "allowed is one line with a field, such as Authorization: Bearer TOKEN, or PRIVATE-TOKEN: TOKEN";

/// A field that goes to an upstream with each request. The cache does not see it, so what it brings is for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCredential {
    name: HeaderName,
    value: HeaderValue,
}

impl UpstreamCredential {
    fn parse(text: &str) -> anyhow::Result<Self> {
        // The line has a password in it, so no message shows it.
        let (name, value) = text.split_once(':').context(FORM)?;
        let name = HeaderName::try_from(name.trim()).ok().context(FORM)?;
        let mut value = HeaderValue::try_from(value.trim()).ok().context(FORM)?;
        if value.is_empty() {
            bail!(FORM);
        }
        value.set_sensitive(true);
        Ok(Self { name, value })
    }

    /// Removes what the client has in its place.
    pub fn replace(&self, headers: &mut HeaderMap) {
        headers.remove(&self.name);
    }

    /// Adds it to a request to its upstream.
    pub fn add(&self, headers: &mut HeaderMap) {
        headers.insert(self.name.clone(), self.value.clone());
    }
}

/// Those of all maps.
#[derive(Debug, Default)]
pub struct UpstreamCredentials(Vec<(String, UpstreamCredential)>);

impl UpstreamCredentials {
    /// Reads each `/PREFIX=FILE`.
    pub fn read(arguments: &[String], maps: &Maps) -> anyhow::Result<Self> {
        let read = |argument: &String| {
            let (prefix, file) = argument
                .split_once('=')
                .context("allowed is /PREFIX=FILE, with the prefix of a map")?;
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            if !maps.iter().any(|map| map.prefix() == prefix) {
                bail!("no map has the prefix {prefix}/");
            }
            let text = private_file::read(Path::new(file), "the file of the credential")?;
            Ok((prefix.to_owned(), UpstreamCredential::parse(&text)?))
        };
        let all = arguments
            .iter()
            .map(|argument| read(argument).with_context(|| format!("--credential {argument}")));
        Ok(Self(all.collect::<anyhow::Result<_>>()?))
    }

    /// That of a map.
    pub fn of(&self, map: &Map) -> Option<&UpstreamCredential> {
        let found = self.0.iter().find(|(prefix, _)| prefix == map.prefix());
        found.map(|(_, credential)| credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_one_field_and_never_shown() {
        let read = UpstreamCredential::parse("PRIVATE-TOKEN:  hush").unwrap();
        let mut headers = HeaderMap::new();
        read.add(&mut headers);
        assert_eq!(headers["private-token"], "hush");
        assert!(!format!("{read:?} {headers:?}").contains("hush"));
        for wrong in [
            "",
            "hush",
            "a b: hush",
            "Authorization:",
            "A: hush\nB: hush",
        ] {
            let error = format!("{:#}", UpstreamCredential::parse(wrong).unwrap_err());
            assert_eq!(error, FORM, "{wrong:?}");
        }
    }
}
