use std::ffi::OsStr;
use std::fmt;
use std::net::IpAddr;

use crate::aws_settings::endpoint;
use crate::choice::Choice;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::{is_digest, sha256_of};
use crate::object_name::ObjectName;
use crate::registry_name::RegistryName;

/// The URL of an image, with what its writer knows of the image.
///
/// 1. `text` starts with `http://`, `https://`, `oci://` or `oci+http://` and a host, or with `s3://` and a bucket. It has no user, no
///    spaces and no control characters. Of the fragment it has only which image of several is wanted, and only in a registry.
///    Behind the host of a web server is a path that is longer than `/`, so a suffix of the path changes no host.
/// 2. After `oci://` and `oci+http://` it is what [`RegistryName`] writes, and after `s3://` what [`ObjectName`] does.
/// 3. It has no part of a signature. `signed` is the URL with that, if it was presigned.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    signed: Option<String>,
    pin: Option<String>,
}

impl RemoteUrl {
    /// Whether a name of an image is a URL, and not a path.
    pub fn is_url(name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        let scheme = name
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        scheme.is_some_and(|scheme| {
            !scheme.is_empty()
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        })
    }

    /// Reads a URL. Behind `#sha256=` may stand the root hash of the image's hash tree, and in a registry a [`Choice`], with a comma
    /// between them.
    ///
    /// # Errors
    ///
    /// `Name`.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = |why: &str| Error::new(ErrorKind::Name, format!("{}: {why}", shown(url)));
        let (text, fragment) = match url.split_once('#') {
            Some((text, fragment)) => (text, Some(fragment)),
            None => (url, None),
        };
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(
            &*scheme,
            "http" | "https" | "oci" | "oras" | "oci+http" | "s3"
        ) {
            return Err(wrong(
                "brisk reads images by https://, http://, oci:// and s3:// only",
            ));
        }
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(wrong(
                "a URL has no spaces and no control characters; write %20 for a space",
            ));
        }
        let authority = rest.split(['/', '?']).next().unwrap_or("");
        if authority.is_empty() || authority.starts_with(':') {
            return Err(wrong("the URL names no host"));
        }
        if authority.contains('@') {
            return Err(wrong(
                "a URL with a user or a password ends up in logs; put them into ~/.netrc (machine HOST login USER password WORD)",
            ));
        }
        if let Some(port) = port(authority).filter(|port| port.parse::<u16>().is_err()) {
            let port = port.escape_debug();
            return Err(wrong(&format!(
                "the port is {port}, allowed are 0 to 65535"
            )));
        }
        let path = rest[authority.len()..].split('?').next().unwrap_or("");
        if matches!(&*scheme, "http" | "https") && matches!(path, "" | "/") {
            return Err(wrong(
                "the URL names no file; write the path of the image behind the host",
            ));
        }
        let parts = fragment.unwrap_or("").split(',');
        let (pins, choices): (Vec<_>, Vec<_>) = parts
            .filter(|part| !part.is_empty())
            .partition(|part| part.starts_with("sha256="));
        let pin = match &*pins {
            [] => None,
            [pin] => Some(pin["sha256=".len()..].to_ascii_lowercase()),
            _ => return Err(wrong("behind # stands one root hash")),
        };
        if pin.as_ref().is_some_and(|pin| !is_digest(pin)) {
            return Err(wrong(
                "behind #sha256= stand the 64 hexadecimal digits of the root hash",
            ));
        }
        let text = match &*scheme {
            "http" | "https" if choices.is_empty() => format!("{scheme}://{rest}"),
            "s3" if choices.is_empty() => ObjectName::parse(rest)
                .map_err(|why| wrong(&why))?
                .to_string(),
            "http" | "https" | "s3" => {
                return Err(wrong(
                    "behind # may stand only sha256= and the root hash of the image",
                ));
            }
            _ => RegistryName::parse(&scheme, &format!("{rest}#{}", choices.join(",")))
                .map_err(|why| wrong(&why))?
                .to_string(),
        };
        let (text, signed) = match without_signature(&text) {
            Some(unsigned) => (unsigned, Some(text)),
            None => (text, None),
        };
        Ok(Self { text, signed, pin })
    }

    /// The same, as the user means it: an object in a store that the URL does not name is in the one of the user's settings.
    ///
    /// # Errors
    ///
    /// `Name`.
    pub fn of_user(url: &str) -> Result<Self> {
        let parsed = Self::parse(url)?;
        match parsed.object().filter(|name| name.endpoint().is_none()) {
            Some(name) => Ok(Self {
                text: name.at(endpoint(name.bucket())?).to_string(),
                ..parsed
            }),
            None => Ok(parsed),
        }
    }

    /// The URL, without the root hash. Of a presigned URL it is what another signature of the same object leaves the same, and no
    /// secret.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the server is asked for. Of a presigned URL it lets whoever has it in, so it is for the fetcher only.
    pub fn asked(&self) -> &str {
        self.signed.as_deref().unwrap_or(&self.text)
    }

    /// Whether the URL has a signature, which is for this file and for no other.
    pub fn is_presigned(&self) -> bool {
        self.signed.is_some()
    }

    /// The root hash of the image, if the URL names it.
    pub fn pin(&self) -> Option<&str> {
        self.pin.as_deref()
    }

    /// Which registry the image is in, and what it is called there. None for one on a web server.
    pub fn registry(&self) -> Option<RegistryName> {
        let (scheme, rest) = self.text.split_once("://")?;
        match scheme {
            "oci" | "oci+http" => RegistryName::parse(scheme, rest).ok(),
            _ => None,
        }
    }

    /// The same URL, and which image is wanted if there are several under this name. None outside of a registry, where there are none.
    pub fn choosing(&self, choice: &Choice) -> Option<Self> {
        Some(Self {
            text: self.registry()?.choosing(choice).to_string(),
            ..self.clone()
        })
    }

    /// What the image is called in an object store. None for one elsewhere.
    pub fn object(&self) -> Option<ObjectName> {
        ObjectName::parse(self.text.strip_prefix("s3://")?).ok()
    }

    /// Whether the URL names one image for ever.
    pub fn is_fixed(&self) -> bool {
        self.pin.is_some() || self.registry().is_some_and(|name| name.digest().is_some())
    }

    /// What an image has in common with others that only the digest tells from it: the URL, without a tag or digest.
    pub(crate) fn place(&self) -> String {
        match self.registry() {
            Some(name) => name.repository(),
            None => self.text.clone(),
        }
    }

    /// The URL of a file beside the image. What asks the server something (`?`) stays behind the name.
    pub fn beside(&self, suffix: &str) -> String {
        match self.text.split_once('?') {
            Some((path, query)) => format!("{path}{suffix}?{query}"),
            None => format!("{}{suffix}", self.text),
        }
    }

    /// The last part of the path.
    pub fn file_name(&self) -> &str {
        let path = self.text.split(['?', '#']).next().unwrap_or("");
        let name = path.rsplit('/').next().unwrap_or("");
        if name.is_empty() { "image" } else { name }
    }

    /// The host, without a port.
    pub fn host(&self) -> &str {
        let (_, rest) = self.place_of_server().split_once("://").unwrap_or(("", ""));
        host_of(rest.split(['/', '?']).next().unwrap_or(""))
    }

    /// Scheme, host and port of the web server that the user names, which gets the user's password. None for an image elsewhere, and
    /// for a presigned URL: a server takes a signature or a password, and not both.
    pub fn origin(&self) -> Option<&str> {
        let (scheme, rest) = self.text.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        let is_web = matches!(scheme, "http" | "https") && !self.is_presigned();
        let end = scheme.len() + "://".len() + authority.len();
        self.text.get(..end).filter(|_| is_web)
    }

    /// Whether somebody between here and the server can read and change what it sends: it is plain HTTP, and the host is not
    /// this machine.
    pub fn is_exposed(&self) -> bool {
        let place = self.place_of_server();
        let is_plain = place.starts_with("http:") || place.starts_with("oci+http:");
        is_plain && !self.is_near()
    }

    /// What begins with the scheme and the host that are asked.
    fn place_of_server(&self) -> &str {
        match self.text.strip_prefix("s3:") {
            Some(object) => object
                .split_once("?endpoint=")
                .map_or("https://s3.amazonaws.com", |(_, endpoint)| endpoint),
            None => &self.text,
        }
    }

    /// Whether the host is this machine.
    pub fn is_near(&self) -> bool {
        is_loopback(self.host())
    }

    /// A name for a file about this URL.
    pub(crate) fn digest(&self) -> String {
        sha256_of(&[self.text.as_bytes()])
    }
}

/// The host of `HOST:PORT`. The brackets of an address of IPv6 are no part of it.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => authority.split(':').next().unwrap_or(""),
    }
}

/// The port of `HOST:PORT`. The host may be an address of IPv6 in brackets.
fn port(authority: &str) -> Option<&str> {
    let behind = authority.rsplit(']').next().unwrap_or("");
    let (_, port) = behind.split_once(':')?;
    (!port.is_empty()).then_some(port)
}

/// The parameters of a query that are a signature, by the one that only a signature has.
const SIGNATURES: [(&str, &[&str]); 4] = [
    (
        "x-amz-signature",
        &[
            "x-amz-algorithm",
            "x-amz-credential",
            "x-amz-date",
            "x-amz-expires",
            "x-amz-security-token",
            "x-amz-signature",
            "x-amz-signedheaders",
        ],
    ),
    (
        "x-goog-signature",
        &[
            "x-goog-algorithm",
            "x-goog-credential",
            "x-goog-date",
            "x-goog-expires",
            "x-goog-signature",
            "x-goog-signedheaders",
        ],
    ),
    // The second version of S3's, and that of its content network.
    (
        "signature",
        &[
            "awsaccesskeyid",
            "expires",
            "googleaccessid",
            "key-pair-id",
            "policy",
            "signature",
            "x-amz-security-token",
        ],
    ),
    // Azure's.
    (
        "sig",
        &[
            "se", "sig", "sip", "ske", "skoid", "sks", "skt", "sktid", "skv", "sp", "spr", "sr",
            "st", "sv",
        ],
    ),
];

/// The same URL without the signature in its query. None if it has none.
fn without_signature(url: &str) -> Option<String> {
    let (path, query) = url.split_once('?')?;
    let name = |field: &str| field.split('=').next().unwrap_or("").to_ascii_lowercase();
    let (_, signature) = SIGNATURES
        .iter()
        .find(|(mark, _)| query.split('&').any(|field| name(field) == *mark))?;
    let kept: Vec<&str> = query
        .split('&')
        .filter(|field| !signature.contains(&&*name(field)))
        .collect();
    Some(match kept.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", kept.join("&")),
    })
}

/// Without the signature, which lets in whoever has it.
impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteUrl")
            .field("text", &self.text)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a host, which has no port, is this machine by its name.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A name from outside, for a message. A signature in it is left out.
fn shown(text: &str) -> String {
    let unsigned = without_signature(text);
    let text = unsigned.as_deref().unwrap_or(text);
    text.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for (name, is_url) in [
            ("https://a/b.img", true),
            ("HTTP://a/b", true),
            ("oci://a/b:1", true),
            ("app.img", false),
            ("a://", true),
            ("://a", false),
            ("/srv/http://x", false),
        ] {
            assert_eq!(RemoteUrl::is_url(OsStr::new(name)), is_url, "{name}");
        }
    }

    #[test]
    fn a_url_may_name_the_root_hash() {
        let pin = "0123456789abcdef".repeat(4);
        let url = RemoteUrl::parse(&format!(
            "HTTPS://a.example:8443/x/app.img?v=1#sha256={}",
            pin.to_uppercase()
        ));
        let url = url.expect("a URL");
        assert_eq!(url.as_str(), "https://a.example:8443/x/app.img?v=1");
        assert_eq!(url.pin(), Some(&*pin));
        assert_eq!(
            url.beside(".remote"),
            "https://a.example:8443/x/app.img.remote?v=1"
        );
        assert_eq!((url.host(), url.file_name()), ("a.example", "app.img"));
    }

    #[test]
    fn a_new_signature_names_the_same_image() {
        let v4 = |signature: &str| {
            format!(
                "https://a.example/b/app.img?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F1&versionId=7&X-Amz-Date=1\
                 &X-Amz-Expires=60&x-amz-security-token=t&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
            )
        };
        for (url, text) in [
            (&*v4("aa"), "https://a.example/b/app.img?versionId=7"),
            (&*v4("bb"), "https://a.example/b/app.img?versionId=7"),
            (
                "https://a.example/x?X-Goog-Signature=aa&X-Goog-Date=1",
                "https://a.example/x",
            ),
            (
                "https://a.example/x?AWSAccessKeyId=AK&Signature=aa&Expires=9",
                "https://a.example/x",
            ),
            (
                "https://a.example/x?sv=2024&se=9&snapshot=1&sr=b&sp=r&sig=aa",
                "https://a.example/x?snapshot=1",
            ),
        ] {
            let found = RemoteUrl::parse(url).expect("a URL");
            assert_eq!((found.as_str(), found.asked()), (text, url));
            assert!(found.is_presigned());
            assert!(!format!("{found} {found:?}").contains("aa"));
            let why = RemoteUrl::parse(&format!("{url}&x= ")).unwrap_err();
            assert!(!why.to_string().contains("aa"), "{why}");
        }
        for url in [
            "https://a.example/x?sv=1&expires=2&X-Amz-Date=3",
            "https://a.example/Signature=1",
        ] {
            let found = RemoteUrl::parse(url).expect("a URL");
            assert_eq!((found.as_str(), found.asked()), (url, url));
            assert!(!found.is_presigned());
        }
    }

    #[test]
    fn only_plain_http_to_others_is_exposed() {
        for (url, exposed) in [
            ("http://127.0.0.1:8000/a", false),
            ("http://localhost/a", false),
            ("http://[::1]:80/a", false),
            ("https://a.example/a", false),
            ("http://a.example/a", true),
            ("http://127.0.0.1.a.example/a", true),
            ("oci://a.example/a", false),
            ("oci+http://a.example/a", true),
            ("oci+http://[::1]:5000/a", false),
        ] {
            assert_eq!(
                RemoteUrl::parse(url).expect("a URL").is_exposed(),
                exposed,
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_url_of_an_image_is_said() {
        for (url, message) in [
            (
                "ftp://a/b",
                "ftp://a/b: brisk reads images by https://, http://, oci:// and s3:// only",
            ),
            ("https:///b", "https:///b: the URL names no host"),
            (
                "https://a.example",
                "https://a.example: the URL names no file; write the path of the image behind the host",
            ),
            (
                "http://a.example:8080/?x=1/b",
                "http://a.example:8080/?x=1/b: the URL names no file; write the path of the image behind the host",
            ),
            (
                "http://a.example?x=1/b",
                "http://a.example?x=1/b: the URL names no file; write the path of the image behind the host",
            ),
            (
                "http://[::1]:99999/b",
                "http://[::1]:99999/b: the port is 99999, allowed are 0 to 65535",
            ),
            (
                "oci://a.example:x/b",
                "oci://a.example:x/b: the port is x, allowed are 0 to 65535",
            ),
            (
                "http://a/b c",
                "http://a/b c: a URL has no spaces and no control characters; write %20 for a space",
            ),
            (
                "https://u:p@a/b",
                "https://u:p@a/b: a URL with a user or a password ends up in logs; put them into ~/.netrc (machine HOST login \
                 USER password WORD)",
            ),
            (
                "https://a/b#sha256=12",
                "https://a/b#sha256=12: behind #sha256= stand the 64 hexadecimal digits of the root hash",
            ),
            (
                "https://a/b#top",
                "https://a/b#top: behind # may stand only sha256= and the root hash of the image",
            ),
        ] {
            assert_eq!(RemoteUrl::parse(url).unwrap_err().to_string(), message);
        }
    }
}
