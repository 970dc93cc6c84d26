//! What a user has for a registry or an object store, and to whom it is said.

use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{Ask, Credential, Download, Upload};
use crate::remote_url::RemoteUrl;

/// What the user has for a registry or an object store. None: nothing.
pub type Login = fn(&str) -> Result<Option<Credential>>;

/// What to send if the fetcher wants to know who the user of a registry is, to do this. The command that has asked says so of the
/// registry that it has named, and of no other one.
///
/// # Errors
///
/// `Fetcher` for another registry, and those of `login`.
pub fn log_in(ask: &Ask, registry: String, login: Login) -> Result<Ask> {
    let (Ask::Resolve { url, .. }
    | Ask::Open { url, .. }
    | Ask::Referrer { url, .. }
    | Ask::Cosigned { url, .. }
    | Ask::Push(Upload { url, .. })
    | Ask::PushIndex { url, .. }
    | Ask::Pull(Download { url, .. })) = ask
    else {
        return Err(foreign(&registry, "what has no URL"));
    };
    let named = RemoteUrl::parse(url)?;
    let of_registry = named.registry().map(|name| name.host().to_owned());
    let of_store = named.object().map(|object| object.store());
    if of_registry.or(of_store).as_deref() != Some(&*registry) {
        return Err(foreign(&registry, url));
    }
    Ok(Ask::Login {
        credential: login(&registry)?,
        registry,
    })
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
