//! What a user has for a server, and to whom it is said.

use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{Ask, Credential, Download, Upload};
use crate::remote_url::RemoteUrl;

/// What the user has for a registry, an object store or a web server. None: nothing.
pub type Login = fn(&str) -> Result<Option<Credential>>;

/// What to send if the fetcher wants to know who the user of a server is, to do this. The command that has asked says so of the
/// server that it has named, and of no other one.
///
/// # Errors
///
/// `Fetcher` for another registry, and those of `login`.
pub fn log_in(ask: &Ask, registry: String, login: Login) -> Result<Ask> {
    let Some(url) = url_of(ask) else {
        return Err(foreign(&registry, "what has no URL"));
    };
    let named = RemoteUrl::parse(url)?;
    let of_registry = named.registry().map(|name| name.host().to_owned());
    let of_store = named.object().map(|object| object.store());
    let of_server = named.origin().map(str::to_owned);
    if of_registry.or(of_store).or(of_server).as_deref() != Some(&*registry) {
        return Err(foreign(&registry, url));
    }
    Ok(Ask::Login {
        credential: login(&registry)?,
        registry,
    })
}

/// What to send before this is asked: what the user has for a web server goes with each request, and may have changed. None, if it is
/// about no web server.
///
/// # Errors
///
/// Those of `login`.
pub fn log_in_first(ask: &Ask, login: Login) -> Result<Option<Ask>> {
    let Some(url) = url_of(ask) else {
        return Ok(None);
    };
    let named = RemoteUrl::parse(url)?;
    let server = named.origin().map(str::to_owned);
    server.map(|server| log_in(ask, server, login)).transpose()
}

fn url_of(ask: &Ask) -> Option<&str> {
    match ask {
        Ask::Resolve { url, .. }
        | Ask::Open { url, .. }
        | Ask::Referrer { url, .. }
        | Ask::Cosigned { url, .. }
        | Ask::Push(Upload { url, .. })
        | Ask::PushIndex { url, .. }
        | Ask::Pull(Download { url, .. })
        | Ask::Refresh { url } => Some(url),
        Ask::Hello { .. }
        | Ask::Attach { .. }
        | Ask::Whole { .. }
        | Ask::Want { .. }
        | Ask::Renew { .. }
        | Ask::Login { .. } => None,
    }
}

fn foreign(registry: &str, asked: &str) -> Error {
    let text = format!(
        "brisk-fetch wants what you have for {}, though it was asked for {asked}; nothing was sent",
        registry.escape_debug()
    );
    Error::new(ErrorKind::Fetcher, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Class;

    /// Whoever has taken a fetcher over may ask for anything.
    #[test]
    fn only_the_registry_that_was_named_learns_who_the_user_is() {
        let of = |url: &str| Ask::Referrer {
            url: url.into(),
            subject: String::new(),
        };
        let login: Login = |registry| {
            Ok(Some(Credential {
                secret: registry.to_owned(),
                ..Credential::default()
            }))
        };
        for (ask, registry, may) in [
            (of("oci://a.example/x:1"), "a.example", true),
            (of("oci+http://a.example:5000/x"), "a.example:5000", true),
            (of("oci://a.example:5000/x"), "a.example", false),
            (of("oci://a.example/x"), "b.example", false),
            (of("https://a.example/x.img"), "a.example", false),
            (of("https://a.example/x.img"), "https://a.example", true),
            (of("https://a.example:5/x.img"), "https://a.example", false),
            (of("http://a.example/x.img"), "https://a.example", false),
            (
                of("https://a.example/x?X-Amz-Signature=1"),
                "https://a.example",
                false,
            ),
            (Ask::want(0..1, Class::Miss), "a.example", false),
        ] {
            let said = log_in(&ask, registry.into(), login);
            match said {
                Ok(Ask::Login { credential, .. }) if may => {
                    assert_eq!(credential.expect("there is one").secret, registry);
                }
                Err(e) if !may => {
                    let said = e.to_string();
                    let wanted = format!("brisk-fetch wants what you have for {registry}, though");
                    assert!(said.starts_with(&wanted), "{said}");
                }
                said => panic!("{ask:?} {registry}: {said:?}"),
            }
        }
    }
}
