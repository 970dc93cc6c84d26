//! Asks object stores: signs requests, and says why a store refuses them.
//!
//! A key is in memory only. It signs what goes to its own bucket and store, and the signature goes to no host that these lead to.

use std::cell::RefCell;
use std::collections::HashMap;

use brisk_http::CacheBody;
use brisk_remote::{Credential, ObjectName, REGION, is_region};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::refusal::Refusal;

/// The most characters that are shown of what a server says.
const SHOWN: usize = 200;

/// What is known of buckets, by [`ObjectName::store`].
#[derive(Default)]
pub struct Buckets(RefCell<HashMap<String, Bucket>>);

#[derive(Default)]
struct Bucket {
    /// None: the user was not asked. Some(None): there is nothing, so requests are not signed.
    key: Option<Option<Credential>>,
    /// The key that the store has refused, and why.
    refused: Option<(Credential, String)>,
    /// Where the store says that the bucket is.
    region: Option<String>,
}

/// How an object is asked for.
pub struct Signed {
    pub url: String,
    /// What has to be in the request.
    pub fields: HeaderMap,
    key: Option<Credential>,
    region: String,
}

/// Why a server refuses a request, as the XML in its answer says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    code: String,
    message: String,
    region: Option<String>,
    /// Whether an object store was asked without a key.
    is_unsigned: bool,
}

impl Buckets {
    /// What the user has for a store.
    pub fn set(&self, store: &str, key: Option<Credential>) {
        let mut buckets = self.0.borrow_mut();
        buckets.entry(store.to_owned()).or_default().key = Some(key);
    }

    /// How an object is asked for now.
    ///
    /// # Errors
    ///
    /// `Login`, if the user was not asked for a key, and `Never` if what the user has was refused.
    pub fn sign(&self, name: &ObjectName) -> Result<Signed, Refusal> {
        let mut buckets = self.0.borrow_mut();
        let bucket = buckets.entry(name.store()).or_default();
        let Some(key) = bucket.key.clone() else {
            return Err(Refusal::Login(name.store()));
        };
        if let Some((refused, why)) = bucket.refused.take()
            && key.as_ref() == Some(&refused)
        {
            // Who asks next may have another one.
            bucket.key = None;
            return Err(Refusal::Never(why));
        }
        let of_key = key.as_ref().and_then(|key| key.region.clone());
        let region = bucket
            .region
            .clone()
            .or(of_key)
            .filter(|region| is_region(region));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let url = name.url(&region);
        let fields = match &key {
            Some(key) => signature(&url, key, &region).map_err(Refusal::Never)?,
            None => HeaderMap::new(),
        };
        Ok(Signed {
            url,
            fields,
            key,
            region,
        })
    }

    /// Whether the user was asked for a key.
    ///
    /// # Errors
    ///
    /// `Login`, if not.
    pub fn check(&self, name: &ObjectName) -> Result<(), Refusal> {
        let buckets = self.0.borrow();
        let bucket = buckets.get(&name.store());
        match bucket.is_some_and(|bucket| bucket.key.is_some()) {
            true => Ok(()),
            false => Err(Refusal::Login(name.store())),
        }
    }

    /// Learns where the bucket is, and that a key is not good. True: the bucket is elsewhere, and is to be asked for there.
    ///
    /// # Errors
    ///
    /// `Login`, if the store refuses the key: the user may have another one by now.
    pub fn learn(
        &self,
        name: &ObjectName,
        signed: &Signed,
        response: &mut Response<CacheBody>,
    ) -> Result<bool, Refusal> {
        let status = response.status();
        let there = response.headers().get("x-amz-bucket-region");
        let there = there
            .and_then(|region| region.to_str().ok())
            .map(str::to_owned);
        let mut refused = response.extensions_mut().get_mut::<Refused>();
        let there = there.or_else(|| refused.as_ref()?.region.clone());
        let there = there.filter(|there| is_region(there) && *there != signed.region);
        let mut buckets = self.0.borrow_mut();
        let bucket = buckets.entry(name.store()).or_default();
        if matches!(status.as_u16(), 301 | 400 | 403) && there.is_some() {
            bucket.region = there;
            return Ok(true);
        }
        if let (Some(key), Some(refused)) = (&signed.key, &refused)
            && refused.is_of_key()
        {
            if bucket.key.as_ref() == Some(&signed.key) {
                bucket.key = None;
                bucket.refused = Some((key.clone(), refused.text(status)));
            }
            return Err(Refusal::Login(name.store()));
        }
        if let Some(refused) = &mut refused {
            refused.is_unsigned = signed.key.is_none();
        }
        Ok(false)
    }
}

/// What says in a request for `url` that who has the key asks. The bytes that are asked for may vary.
fn signature(url: &str, key: &Credential, region: &str) -> Result<HeaderMap, String> {
    let is_text = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
    let texts = [
        key.user.as_deref(),
        Some(&*key.secret),
        key.token.as_deref(),
    ];
    if !texts.into_iter().flatten().all(is_text) {
        return Err("the key for the object store has characters that none has".into());
    }
    let credential = AwsCredential {
        key_id: key.user.clone().unwrap_or_default(),
        secret_key: key.secret.clone(),
        token: key.token.clone(),
    };
    let mut request = Request::get(url)
        .body(HttpRequestBody::empty())
        .map_err(|e| e.to_string())?;
    AwsAuthorizer::new(&credential, "s3", region)
        .try_authorize(&mut request, None)
        .map_err(|_| "the request cannot be signed".to_owned())?;
    let mut fields = std::mem::take(request.headers_mut());
    for name in [AUTHORIZATION.as_str(), "x-amz-security-token"] {
        if let Some(value) = fields.get_mut(name) {
            value.set_sensitive(true);
        }
    }
    Ok(fields)
}

impl Refused {
    /// Whether an answer may say why the server refuses, as object stores do.
    pub fn may_be_in(response: &Response<CacheBody>) -> bool {
        let kind = response.headers().get(CONTENT_TYPE);
        let is_xml = kind.is_some_and(|kind| kind.as_bytes().ends_with(b"/xml"));
        let status = response.status();
        is_xml && (status.is_client_error() || status == StatusCode::MOVED_PERMANENTLY)
    }

    /// Notes in such an answer what its body says.
    pub fn note(response: &mut Response<CacheBody>, body: &[u8]) {
        if let Some(refused) = Self::parse(body) {
            response.extensions_mut().insert(refused);
        }
    }

    /// Reads `<Error><Code>…</Code><Message>…</Message><Region>…</Region></Error>`.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut reader = Reader::from_reader(text);
        let mut inside: Vec<Vec<u8>> = Vec::new();
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => inside.push(start.name().as_ref().to_vec()),
                Event::End(_) => drop(inside.pop()),
                Event::Text(text) => {
                    let text = text.decode().ok()?;
                    found.add(&inside, &text);
                }
                Event::GeneralRef(name) => {
                    let character = match name.resolve_char_ref().ok()? {
                        Some(character) => character.to_string(),
                        None => {
                            let name = name.decode().ok()?;
                            quick_xml::escape::resolve_predefined_entity(&name)?.to_owned()
                        }
                    };
                    found.add(&inside, &character);
                }
                Event::Eof => break,
                _ => {}
            }
        }
        (!found.code.is_empty()).then_some(found)
    }

    fn add(&mut self, inside: &[Vec<u8>], text: &str) {
        let [root, name] = inside else {
            return;
        };
        match (&**root, &**name) {
            (b"Error", b"Code") => self.code.push_str(text),
            (b"Error", b"Message") => self.message.push_str(text),
            (b"Error", b"Region") => self.region.get_or_insert_default().push_str(text),
            _ => {}
        }
    }

    /// Whether the key is the reason, and not what was asked for.
    fn is_of_key(&self) -> bool {
        matches!(
            &*self.code,
            "ExpiredToken"
                | "InvalidAccessKeyId"
                | "InvalidToken"
                | "SignatureDoesNotMatch"
                | "TokenRefreshRequired"
        )
    }

    /// The same for people, and what to do.
    pub fn text(&self, status: StatusCode) -> String {
        let shown = |text: &str| -> String { text.escape_debug().take(SHOWN).collect() };
        let cure = match &*self.code {
            "AccessDenied" | "AccountProblem" if self.is_unsigned => {
                "; it was asked without a key, because there is none for this store: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL_S3 if the store is not Amazon's"
            }
            "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken" => {
                "; get a new token, and start the program again"
            }
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
                "; look at the key in AWS_PROFILE or AWS_ACCESS_KEY_ID"
            }
            "NoSuchBucket" | "NoSuchKey" => "; look at the URL",
            "RequestTimeTooSkewed" => "; set the clock of this machine",
            _ => "",
        };
        format!(
            "the server answers {status}: {}: {}{cure}",
            shown(&self.code),
            shown(self.message.trim_end_matches('.'))
        )
    }
}

/// Why an answer brings nothing: what its server says, or else `why`.
pub fn why_refused(response: &Response<CacheBody>, why: String) -> String {
    match response.extensions().get::<Refused>() {
        Some(refused) => refused.text(response.status()),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        for (status, text, said) in [
            (
                403,
                "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Request has expired &amp; gone</Message>\
                 <Expires>1</Expires></Error>",
                Some("the server answers 403 Forbidden: AccessDenied: Request has expired & gone"),
            ),
            (
                404,
                "<Error xmlns=\"a\"><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>",
                Some(
                    "the server answers 404 Not Found: NoSuchKey: The specified key does not exist; look at the URL",
                ),
            ),
            (
                403,
                "<Error><Code>RequestTimeTooSkewed</Code><Message>too &#x1b;[31m large</Message></Error>",
                Some(
                    "the server answers 403 Forbidden: RequestTimeTooSkewed: too \\u{1b}[31m large; set the clock of this machine",
                ),
            ),
            (403, "<html><Code>x</Code></html>", None),
            (403, "<Error><A><Code>x</Code></A></Error>", None),
            (403, "<Error><Code>x</Error>", None),
            (
                403,
                "<!DOCTYPE a [<!ENTITY b \"c\">]><Error><Code>&b;</Code></Error>",
                None,
            ),
            (403, "", None),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let found = Refused::parse(text.as_bytes()).map(|refused| refused.text(status));
            assert_eq!(found.as_deref(), said, "{text}");
        }
        let long = format!(
            "<Error><Code>x</Code><Message>{}</Message></Error>",
            "a".repeat(1000)
        );
        let found = Refused::parse(long.as_bytes()).expect("an error");
        assert!(found.text(StatusCode::BAD_REQUEST).len() < 300);
    }

    #[test]
    fn a_key_that_no_field_can_have_signs_nothing() {
        let key = |token: &str| Credential {
            user: Some("AK".into()),
            secret: "secret".into(),
            token: Some(token.into()),
            region: None,
        };
        let url = "https://images.s3.us-east-1.amazonaws.com/app.img";
        let fields = signature(url, &key("token"), REGION).expect("signed");
        assert!(fields[AUTHORIZATION].is_sensitive());
        assert!(fields["x-amz-security-token"].is_sensitive());
        assert!(!format!("{fields:?}").contains("secret"));
        signature(url, &key("a\nb"), REGION).expect_err("it has a line end");
    }
}
