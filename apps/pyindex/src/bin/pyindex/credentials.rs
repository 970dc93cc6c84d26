//! What an index wants to know of who asks.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use netrc::Netrc;
use percent_encoding::percent_decode_str;
use url::Url;

/// The value of `Authorization` for an index: from its URL, a netrc file, or the command keyring. Takes user and password out
/// of the URL.
pub(crate) fn authorization(url: &mut Url, keyring: bool) -> anyhow::Result<Option<HeaderValue>> {
    let decoded = |text: &str| -> Vec<u8> { percent_decode_str(text).collect() };
    let mut user = decoded(url.username());
    let mut password = url.password().map(decoded);
    let taken = url.set_username("").and_then(|()| url.set_password(None));
    if taken.is_err() {
        bail!("the URL of an index cannot be without its user; name another index");
    }
    let host = url.host_str().unwrap_or_default().to_owned();
    if password.is_none()
        && let Some((name, secret)) = of_netrc(&host, &user)?
    {
        (user, password) = (name, Some(secret));
    }
    if password.is_none() && keyring && !user.is_empty() {
        password = of_keyring(url, &String::from_utf8_lossy(&user))?;
    }
    if user.is_empty() && password.is_none() {
        return Ok(None);
    }
    let pair = [user.as_slice(), b":", &password.unwrap_or_default()].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// User and password that a netrc file has for a host, and for a user if one is given.
fn of_netrc(host: &str, user: &[u8]) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(file) = Netrc::get_file() else {
        return Ok(None);
    };
    let netrc = Netrc::from_file(&file).with_context(|| file.display().to_string())?;
    let found = netrc.hosts.get(host).or_else(|| netrc.hosts.get("default"));
    Ok(found
        .filter(|found| user.is_empty() || found.login.as_bytes() == user)
        .map(|found| (found.login.clone().into(), found.password.clone().into())))
}

fn of_keyring(url: &Url, user: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let output = Command::new("keyring")
        .args(["get", url.as_str(), user])
        .stdin(Stdio::null())
        .output()
        .context("--keyring: the command keyring cannot be started; install it, or write the password to a netrc file")?;
    let password = output.stdout.trim_ascii_end();
    Ok((output.status.success() && !password.is_empty()).then(|| password.to_vec()))
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
            let mut url = Url::parse(text).unwrap();
            let found = authorization(&mut url, false).unwrap();
            assert_eq!(url.as_str(), rest);
            assert_eq!(found.as_ref().map(|found| found.to_str().unwrap()), value);
            assert_eq!(format!("{found:?}"), "Some(Sensitive)");
        }
    }
}
