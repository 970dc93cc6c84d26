//! What an index wants to know of who asks.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use netrc::Netrc;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::configuration::ConfiguredIndex;

/// The value of `Authorization` for an index: from variables of uv, its URL, a netrc file, or the command keyring. Takes user
/// and password out of the URL.
pub(crate) fn authorization(
    index: &mut ConfiguredIndex,
    netrc: Option<&Path>,
    keyring: bool,
) -> anyhow::Result<Option<HeaderValue>> {
    let url = &mut index.url;
    let decoded = |text: &str| -> Vec<u8> { percent_decode_str(text).collect() };
    let mut user = decoded(url.username());
    let mut password = url.password().map(decoded);
    let taken = url.set_username("").and_then(|()| url.set_password(None));
    if taken.is_err() {
        bail!("the URL of an index cannot be without its user; name another index");
    }
    if let Some((name, secret)) = index.credentials.take() {
        (user, password) = (name.into(), secret.map(String::into_bytes));
    }
    if password.is_none()
        && let Some((name, secret)) = of_netrc(netrc, url, &user)?
    {
        (user, password) = (name, Some(secret));
    }
    if password.is_none() && keyring && !user.is_empty() {
        password = of_keyring(url, &String::from_utf8_lossy(&user))?;
    }
    if user.is_empty() && password.is_none() {
        return Ok(None);
    }
    basic(&user, &password.unwrap_or_default()).map(Some)
}

/// The value of `Authorization` for a file that is at no index: from a netrc file.
pub(crate) fn authorization_of_file(
    url: &Url,
    netrc: Option<&Path>,
) -> anyhow::Result<Option<HeaderValue>> {
    let found = of_netrc(netrc, url, &[])?;
    found
        .map(|(user, password)| basic(&user, &password))
        .transpose()
}

fn basic(user: &[u8], password: &[u8]) -> anyhow::Result<HeaderValue> {
    let pair = [user, b":", password].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
    value.set_sensitive(true);
    Ok(value)
}

/// User and password that a netrc file has for a host, and for a user if one is given.
fn of_netrc(
    file: Option<&Path>,
    url: &Url,
    user: &[u8],
) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(file) = file.filter(|file| file.exists()) else {
        return Ok(None);
    };
    let host = url.host_str().unwrap_or_default();
    let netrc = Netrc::from_file(file).with_context(|| file.display().to_string())?;
    let found = netrc.hosts.get(host).or_else(|| netrc.hosts.get("default"));
    Ok(found
        .filter(|found| user.is_empty() || found.login.as_bytes() == user)
        .map(|found| (found.login.clone().into(), found.password.clone().into())))
}

/// What the command keyring has for the URL of an index, or else for its host, as pip asks it.
fn of_keyring(url: &Url, user: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let host = url.host_str().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    for service in [url.as_str(), &host] {
        let output = Command::new("keyring")
            .args(["get", service, user])
            .stdin(Stdio::null())
            .output()
            .context("the command keyring cannot be started; install it, or write the password to a netrc file")?;
        let password = output.stdout.trim_ascii_end();
        if output.status.success() && !password.is_empty() {
            return Ok(Some(password.to_vec()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_the_url() {
        for (text, rest, value) in [
            (
                "https://me:s%2Fe@a.example/x/",
                "https://a.example/x/",
                Some("Basic bWU6cy9l"),
            ),
            (
                "https://token@a.example/",
                "https://a.example/",
                Some("Basic dG9rZW46"),
            ),
            (
                "https://me:%zz@a.example/",
                "https://a.example/",
                Some("Basic bWU6JXp6"),
            ),
        ] {
            let mut index = ConfiguredIndex {
                url: Url::parse(text).unwrap(),
                credentials: None,
            };
            let found = authorization(&mut index, None, false).unwrap();
            assert_eq!(index.url.as_str(), rest);
            assert_eq!(found.as_ref().map(|found| found.to_str().unwrap()), value);
            assert_eq!(format!("{found:?}"), "Some(Sensitive)");
        }
    }
}
