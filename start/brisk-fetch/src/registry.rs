//! Asks registries: the distribution specification, and how they let people in.
//!
//! A registry that wants to know who asks says so by 401 and where it takes tokens of. A token is for one name and one kind of access.
//! It is in memory only, and goes to the registry only: never to where that leads.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use brisk_http::{CacheBody, ResponseUrl, is_near_address};
use brisk_remote::{Credential, RegistryName};
use data_encoding::BASE64;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_auth::parser::ChallengeParser;
use reqwest::{Body, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::origin::{Origin, whole};
use crate::refusal::Refusal;

/// How often something is asked for, in a row.
pub const TRIES: u32 = 4;

/// The most bytes of an answer with a token.
const MOST_TOKEN: u64 = 64 << 10;

/// What is to be done with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    Pull,
    Push,
}

/// Asks until there is an answer, a few times.
pub async fn several<T, F: Future<Output = Result<T, Refusal>>>(
    ask: impl Fn() -> F,
) -> Result<T, Refusal> {
    let mut pause = Duration::from_millis(200);
    for _ in 1..TRIES {
        match ask().await {
            Err(Refusal::Later(_)) => {}
            answer => return answer,
        }
        sleep(pause).await;
        pause *= 2;
    }
    ask().await
}

/// What registries know of the user.
#[derive(Default)]
pub struct Logins {
    hosts: RefCell<HashMap<String, Host>>,
}

#[derive(Default)]
struct Host {
    /// None: the user was not asked. Some(None): there is nothing.
    login: Option<Option<Credential>>,
    /// It has let nobody in since the user was asked. What arrives meanwhile may need the same credentials, so they stay.
    is_refused: bool,
    /// Names of which it has given something without asking who the user is.
    open: HashSet<String>,
    /// Values of `Authorization`.
    tokens: HashMap<(String, Access), HeaderValue>,
    /// The host that gives tokens, if that is another one.
    realm: Option<String>,
    /// One asks for a token at a time: others want the same one.
    one: Rc<Mutex<()>>,
}

/// What a server wants for an answer.
#[derive(Debug, PartialEq)]
enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Logins {
    /// What the user has for a registry.
    pub fn set(&self, host: &str, credential: Option<Credential>) {
        let mut hosts = self.hosts.borrow_mut();
        let host = hosts.entry(host.to_owned()).or_default();
        if host.login.as_ref() != Some(&credential) {
            host.tokens.clear();
        }
        host.login = Some(credential);
    }

    /// Whether the user should be asked again, who may have logged in since a registry has let nobody in. This forgets it.
    pub fn takes_refused(&self, name: &RegistryName) -> bool {
        let mut hosts = self.hosts.borrow_mut();
        let host = hosts.get_mut(name.host());
        host.is_some_and(|host| std::mem::take(&mut host.is_refused))
    }

    /// Whether anything is known of how a registry lets this user in.
    pub fn knows(&self, name: &RegistryName) -> bool {
        let hosts = self.hosts.borrow();
        let host = hosts.get(name.host());
        host.is_some_and(|host| host.login.is_some() || host.open.contains(name.name()))
    }

    fn note_open(&self, name: &RegistryName) {
        let mut hosts = self.hosts.borrow_mut();
        let host = hosts.entry(name.host().to_owned()).or_default();
        host.open.insert(name.name().to_owned());
    }

    /// The host that gives tokens for a registry, if that is another one.
    pub fn realm(&self, name: &RegistryName) -> Option<String> {
        self.hosts.borrow().get(name.host())?.realm.clone()
    }

    /// Whoever has this lock gets a token of a registry.
    pub fn one(&self, name: &RegistryName) -> Rc<Mutex<()>> {
        let mut hosts = self.hosts.borrow_mut();
        let host = hosts.entry(name.host().to_owned()).or_default();
        Rc::clone(&host.one)
    }

    fn token(&self, name: &RegistryName, access: Access) -> Option<HeaderValue> {
        let hosts = self.hosts.borrow();
        let key = (name.name().to_owned(), access);
        hosts.get(name.host())?.tokens.get(&key).cloned()
    }
}

impl Origin {
    /// Sends a request to a registry, and again with a token if it wants one. An answer of 401 is one that the user's credentials do not
    /// change.
    pub async fn ask_registry(
        &self,
        name: &RegistryName,
        access: Access,
        make: impl Fn() -> Result<Request<Body>, String>,
    ) -> Result<Response<CacheBody>, Refusal> {
        self.name_host(host_of(&name.origin()));
        let mut used = None;
        for _ in 0..2 {
            let token = self.logins.token(name, access);
            // Another request may have got a token meanwhile.
            let response = self.send_with(&make, token.as_ref()).await?;
            if response.status() != StatusCode::UNAUTHORIZED || !is_of(&response, name) {
                if token.is_none() {
                    self.logins.note_open(name);
                }
                return Ok(response);
            }
            used = token;
            let challenges = response.headers().clone();
            drop(response);
            let got = self.get_token(name, access, &challenges, used.as_ref());
            // That is also the wait for another request that gets one.
            let got = timeout(self.silence, got).await;
            if !got.map_err(|_| self.slow_tokens(name))?? {
                break;
            }
        }
        let token = self.logins.token(name, access);
        match token == used {
            true => Err(self.refuse(name)),
            false => Ok(self.send_with(&make, token.as_ref()).await?),
        }
    }

    async fn send_with(
        &self,
        make: &impl Fn() -> Result<Request<Body>, String>,
        token: Option<&HeaderValue>,
    ) -> Result<Response<CacheBody>, Refusal> {
        let mut request = make()?;
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.send(request).await
    }

    /// Gets a token in place of the one that was `used`. False: there is none that would be another.
    async fn get_token(
        &self,
        name: &RegistryName,
        access: Access,
        headers: &HeaderMap,
        used: Option<&HeaderValue>,
    ) -> Result<bool, Refusal> {
        let one = self.logins.one(name);
        let _one = one.lock().await;
        if self.logins.token(name, access).as_ref() != used {
            return Ok(true);
        }
        let Some(challenge) = challenge(headers) else {
            return Ok(false);
        };
        let login = {
            let hosts = self.logins.hosts.borrow();
            hosts.get(name.host()).and_then(|host| host.login.clone())
        };
        let login = login.ok_or_else(|| Refusal::Login(name.host().to_owned()))?;
        // What other programs use for this host.
        let basic = match &login {
            Some(Credential {
                user: Some(user),
                secret,
                ..
            }) => Some(basic(user, secret)),
            _ => None,
        };
        let token = match challenge {
            Challenge::Basic => match basic {
                Some(basic) => basic,
                None => return Ok(false),
            },
            Challenge::Bearer {
                realm,
                service,
                scope,
            } => {
                let realm = realm_of(&realm, name).map_err(Refusal::Never)?;
                self.note_realm(name, &realm);
                let actions = match access {
                    Access::Pull => "pull",
                    Access::Push => "pull,push",
                };
                let scope =
                    scope.unwrap_or_else(|| format!("repository:{}:{actions}", name.name()));
                let mut fields = vec![("scope", &*scope)];
                fields.extend(service.as_deref().map(|service| ("service", service)));
                let request = match &login {
                    Some(Credential {
                        user: None, secret, ..
                    }) => by_identity(&realm, &fields, secret),
                    _ => by_user(&realm, &fields, basic.as_deref()),
                };
                let token = self.token_of(name, &realm, request?).await?;
                format!("Bearer {token}")
            }
        };
        let mut token = HeaderValue::try_from(token)
            .map_err(|_| "the token has characters that no header has".to_owned())?;
        token.set_sensitive(true);
        let is_new = Some(&token) != used;
        let mut hosts = self.logins.hosts.borrow_mut();
        let tokens = &mut hosts.entry(name.host().to_owned()).or_default().tokens;
        tokens.insert((name.name().to_owned(), access), token);
        Ok(is_new)
    }

    /// The registry does not let the user in.
    pub fn refuse(&self, name: &RegistryName) -> Refusal {
        let mut hosts = self.logins.hosts.borrow_mut();
        hosts.entry(name.host().to_owned()).or_default().is_refused = true;
        Refusal::Never(refused(name))
    }

    fn slow_tokens(&self, name: &RegistryName) -> String {
        let realm = self.logins.realm(name);
        let realm = realm.as_deref().unwrap_or_else(|| name.host());
        format!(
            "{realm}, which gives tokens for {}, is too slow",
            name.host()
        )
    }

    fn note_realm(&self, name: &RegistryName, realm: &Url) {
        let realm = realm.host_str().unwrap_or("");
        if realm.eq_ignore_ascii_case(host_of(&name.origin())) {
            return;
        }
        // A registry on this machine may name this machine in another way.
        if is_near(host_of(&name.origin())) {
            self.name_host(realm);
        }
        let mut hosts = self.logins.hosts.borrow_mut();
        hosts.entry(name.host().to_owned()).or_default().realm = Some(realm.to_owned());
    }

    async fn token_of(
        &self,
        name: &RegistryName,
        realm: &Url,
        request: Request<Body>,
    ) -> Result<String, Refusal> {
        let host = realm.host_str().unwrap_or("");
        let response = self.send(request).await?;
        let status = response.status();
        if matches!(status.as_u16(), 400 | 401 | 403) {
            return Err(self.refuse(name));
        }
        if status != StatusCode::OK {
            return Err(format!(
                "{host}, which gives tokens for {}, answers {status}",
                name.host()
            )
            .into());
        }
        let bytes = whole(response.into_body(), MOST_TOKEN).await?;
        let token: Option<Token> = serde_json::from_slice(&bytes).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        token.ok_or_else(|| {
            format!("{host}, which gives tokens for {}, sends none", name.host()).into()
        })
    }
}

/// The value of `Authorization` for a user and a password.
pub fn basic(user: &str, password: &str) -> String {
    let pair = format!("{user}:{password}");
    format!("Basic {}", BASE64.encode(pair.as_bytes()))
}

/// What to do where a registry does not let the user in.
pub fn refused(name: &RegistryName) -> String {
    format!(
        "{} does not let you in to {}; if it needs a user and a password, log in: skopeo login, podman login or docker login {}",
        name.host(),
        name.name(),
        name.host()
    )
}

/// Whether an answer is the registry's own, and not of where it leads.
fn is_of(response: &Response<CacheBody>, name: &RegistryName) -> bool {
    let url = response.extensions().get::<ResponseUrl>();
    url.is_none_or(|url| is_at(&url.0, &name.origin()))
}

/// Whether a URL is of this origin.
pub fn is_at(url: &str, origin: &str) -> bool {
    let (Ok(url), Ok(origin)) = (Url::parse(url), Url::parse(origin)) else {
        return false;
    };
    url.origin() == origin.origin()
}

/// What a server wants: a token rather than a password.
fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut found = None;
    for challenge in texts.flat_map(ChallengeParser::new).map_while(Result::ok) {
        let value = |wanted: &str| {
            let mut params = challenge.params.iter();
            let param = params.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            param.map(|(_, value)| value.to_unescaped())
        };
        if challenge.scheme.eq_ignore_ascii_case("bearer") {
            if let Some(realm) = value("realm") {
                return Some(Challenge::Bearer {
                    realm,
                    service: value("service"),
                    scope: value("scope"),
                });
            }
        } else if challenge.scheme.eq_ignore_ascii_case("basic") {
            found = Some(Challenge::Basic);
        }
    }
    found
}

/// Where tokens of a registry come from, if a password may go there: by https, or on this machine from a registry on this machine.
fn realm_of(realm: &str, name: &RegistryName) -> Result<Url, String> {
    let wrong = |why: &str| {
        format!(
            "{} wants a token of {}: {why}",
            name.host(),
            realm.escape_debug()
        )
    };
    let url = Url::parse(realm).map_err(|_| wrong("that is no URL"))?;
    let host = url.host_str().unwrap_or("");
    let is_plain = name.origin().starts_with("http:") && is_at(realm, &name.origin());
    if leads_near(&url, name) {
        return Err(wrong(
            "that is this machine or on its link, and the registry is not",
        ));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_near(host) || is_plain => Ok(url),
        _ => Err(wrong(
            "anybody on the way could read your password; allowed is https",
        )),
    }
}

/// Where an upload goes that a registry wants elsewhere: nowhere by plain http if it is asked by https, and not to this machine from
/// elsewhere.
pub fn upload_place(place: &str, name: &RegistryName) -> Option<Url> {
    let url = Url::parse(&name.upload_url()).ok()?.join(place).ok()?;
    let is_clear = url.scheme() == "http" && name.origin().starts_with("https:");
    let may = matches!(url.scheme(), "https" | "http") && !is_clear && !leads_near(&url, name);
    may.then_some(url)
}

/// Whether a registry elsewhere leads to this machine or its link.
fn leads_near(url: &Url, name: &RegistryName) -> bool {
    is_near(url.host_str().unwrap_or("")) && !is_near(host_of(&name.origin()))
}

/// Asks by GET, as everybody does who has a password or nothing.
fn by_user(
    realm: &Url,
    fields: &[(&str, &str)],
    basic: Option<&str>,
) -> Result<Request<Body>, String> {
    let mut url = realm.clone();
    url.query_pairs_mut().extend_pairs(fields);
    let mut request = Request::get(url.as_str()).header(CACHE_CONTROL, "no-store");
    if let Some(basic) = basic {
        let mut value = HeaderValue::try_from(basic).map_err(|e| e.to_string())?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    request.body(Body::from("")).map_err(|e| e.to_string())
}

/// Asks by an identity token, as OAuth has it.
fn by_identity(
    realm: &Url,
    fields: &[(&str, &str)],
    secret: &str,
) -> Result<Request<Body>, String> {
    let mut form = Url::parse("form:").map_err(|e| e.to_string())?;
    form.query_pairs_mut()
        .extend_pairs(fields)
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", "brisk")
        .append_pair("refresh_token", secret);
    let body = form.query().unwrap_or("").to_owned();
    Request::post(realm.as_str())
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(body))
        .map_err(|e| e.to_string())
}

/// The host in `https://HOST:PORT`.
pub fn host_of(origin: &str) -> &str {
    let host = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    }
}

fn is_near(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) => is_near_address(address),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use brisk_remote::RemoteUrl;

    use super::*;

    fn name(url: &str) -> RegistryName {
        let url = RemoteUrl::parse(url).expect("a URL");
        url.registry().expect("a registry")
    }

    #[test]
    fn a_token_is_wanted_rather_than_a_password() {
        let found = |values: &[&'static str]| {
            let fields = values
                .iter()
                .map(|value| (WWW_AUTHENTICATE, HeaderValue::from_static(value)));
            challenge(&fields.collect())
        };
        let bearer =
            "Bearer realm=\"https://a.example/token\",service=\"a, b\",scope=\"repository:x:pull\"";
        let token = Challenge::Bearer {
            realm: "https://a.example/token".into(),
            service: Some("a, b".into()),
            scope: Some("repository:x:pull".into()),
        };
        assert_eq!(found(&["Basic realm=\"x\"", bearer]), Some(token));
        assert_eq!(found(&["basic realm=x"]), Some(Challenge::Basic));
        assert_eq!(found(&["Bearer", "Negotiate"]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_password_goes_by_https_or_stays_on_this_machine() {
        for (registry, realm, may) in [
            ("oci://a.example/x", "https://auth.example/token?a=b", true),
            ("oci://a.example/x", "http://auth.example/token", false),
            ("oci://a.example/x", "http://a.example/token", false),
            ("oci+http://a.example/x", "http://a.example/token", true),
            ("oci+http://a.example/x", "http://b.example/token", false),
            ("oci://a.example/x", "http://127.0.0.1/token", false),
            ("oci://a.example/x", "https://127.0.0.1/token", false),
            ("oci://a.example/x", "https://[::1]/token", false),
            ("oci://a.example/x", "https://169.254.169.254/token", false),
            (
                "oci://localhost:5000/x",
                "http://127.0.0.1:5001/token",
                true,
            ),
            ("oci://localhost:5000/x", "http://auth.example/token", false),
            ("oci://a.example/x", "ftp://auth.example/token", false),
            ("oci://a.example/x", "token", false),
        ] {
            let found = realm_of(realm, &name(registry));
            assert_eq!(found.is_ok(), may, "{registry} {realm}: {found:?}");
        }
    }

    #[test]
    fn an_upload_goes_where_a_registry_may_lead() {
        for (registry, place, may) in [
            ("oci://a.example/x", "/v2/x/blobs/uploads/1?state=2", true),
            ("oci://a.example/x", "https://b.example/1", true),
            ("oci://a.example/x", "http://a.example/1", false),
            ("oci://a.example/x", "https://127.0.0.1/1", false),
            ("oci://a.example/x", "ftp://b.example/1", false),
            ("oci://localhost:5000/x", "http://127.0.0.1:5000/1", true),
        ] {
            let found = upload_place(place, &name(registry));
            assert_eq!(found.is_some(), may, "{registry} {place}: {found:?}");
        }
    }

    #[test]
    fn what_asks_for_a_token_says_for_what() {
        let realm = Url::parse("https://a.example/token?x=1").expect("a URL");
        let fields = [("scope", "repository:a/b:pull,push"), ("service", "a b")];
        let request = by_user(&realm, &fields, Some("Basic dTpw")).expect("a request");
        assert_eq!(
            request.uri().to_string(),
            "https://a.example/token?x=1&scope=repository%3Aa%2Fb%3Apull%2Cpush&service=a+b"
        );
        assert!(request.headers()[AUTHORIZATION].is_sensitive());
        let request = by_identity(&realm, &fields, "a&b").expect("a request");
        assert_eq!(request.method(), http::Method::POST);
        let body = request.body().as_bytes().expect("one piece");
        assert!(String::from_utf8_lossy(body).ends_with("refresh_token=a%26b"));
    }
}
