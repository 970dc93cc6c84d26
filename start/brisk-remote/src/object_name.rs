use std::fmt;

/// Amazon's object store in a region.
const AMAZON: &str = "amazonaws.com";

/// The region that Amazon's store has for those who name none.
pub const REGION: &str = "us-east-1";

/// What an image is called in an object store: `s3://BUCKET/KEY`, and for one that is not Amazon's, `?endpoint=URL` behind it.
///
/// 1. `bucket` begins with a letter or a digit, and has only these and any of `. _ -`.
/// 2. `key` is written as S3 signs it: all but letters, digits and any of `. _ ~ - /` by `%`. It has no part `.` or `..`, so it stays in
///    the bucket.
/// 3. `endpoint` is `http://` or `https://`, a host and perhaps a path, of letters, digits and any of `. _ ~ - : [ ] /`. It does not end
///    with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    endpoint: Option<String>,
    bucket: String,
    key: String,
}

impl ObjectName {
    /// Reads what stands behind `s3://`.
    ///
    /// # Errors
    ///
    /// What is wrong, and what is allowed.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let (path, endpoint) = match rest.split_once('?') {
            None => (rest, None),
            Some((path, query)) => match query.strip_prefix("endpoint=") {
                Some(endpoint) => (path, Some(to_endpoint(&decoded(endpoint)?)?)),
                None => {
                    return Err(
                        "behind ? may stand only endpoint= and the URL of an object store".into(),
                    );
                }
            },
        };
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        if key.is_empty() {
            return Err("expected a key behind the bucket, such as s3://BUCKET/KEY".into());
        }
        if !is_bucket(bucket) {
            return Err(
                "the bucket has other characters than letters, digits and any of . _ -, or begins with one of these".into(),
            );
        }
        let key = decoded(key)?;
        if key
            .split(|b| *b == b'/')
            .any(|part| matches!(part, b"." | b".."))
        {
            return Err("the key has a part . or .., which no URL can have".into());
        }
        Ok(Self {
            endpoint,
            bucket: bucket.to_owned(),
            key: encoded(&key),
        })
    }

    /// The same in another store.
    pub(crate) fn at(&self, endpoint: Option<String>) -> Self {
        Self {
            endpoint,
            ..self.clone()
        }
    }

    /// The object beside it.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> Self {
        Self {
            key: format!("{}{suffix}", self.key),
            ..self.clone()
        }
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Where the store is, if it is not Amazon's.
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// What keys are for: the bucket and the store.
    pub fn store(&self) -> String {
        let endpoint = self.endpoint.as_deref();
        let endpoint = endpoint.map_or(String::new(), |endpoint| format!("?endpoint={endpoint}"));
        format!("s3://{}{endpoint}", self.bucket)
    }

    /// The URL of the object in a store of this region. The bucket is in the host where Amazon has it there, or the endpoint begins with it.
    pub fn url(&self, region: &str) -> String {
        let Self { bucket, key, .. } = self;
        match &self.endpoint {
            Some(endpoint) if begins_with_bucket(endpoint, bucket) => format!("{endpoint}/{key}"),
            Some(endpoint) => format!("{endpoint}/{bucket}/{key}"),
            // No certificate is for a name with more dots.
            None if is_label(bucket) => format!("https://{bucket}.s3.{region}.{AMAZON}/{key}"),
            None => format!("https://s3.{region}.{AMAZON}/{bucket}/{key}"),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, "?endpoint={endpoint}"),
            None => Ok(()),
        }
    }
}

/// The endpoint of a store, as names have it.
///
/// # Errors
///
/// What is allowed.
pub(crate) fn to_endpoint(text: &[u8]) -> Result<String, String> {
    let wrong = || {
        "the endpoint is no URL of an object store, such as https://s3.example.org or http://localhost:9000".to_owned()
    };
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let rest = rest.trim_end_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let scheme = scheme.to_ascii_lowercase();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._~-:[]/".contains(&b);
    let leads_out = path.split('/').any(|part| matches!(part, "." | ".."));
    let is_host = !host.is_empty() && !host.starts_with(':');
    if !matches!(&*scheme, "http" | "https") || !is_host || !rest.bytes().all(is_plain) || leads_out
    {
        return Err(wrong());
    }
    let host = host.to_ascii_lowercase();
    Ok(match path {
        "" => format!("{scheme}://{host}"),
        path => format!("{scheme}://{host}/{path}"),
    })
}

/// The same endpoint with the bucket in its host.
pub(crate) fn with_bucket(endpoint: &str, bucket: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, rest)) if !begins_with_bucket(endpoint, bucket) => {
            format!("{scheme}://{}.{rest}", bucket.to_ascii_lowercase())
        }
        _ => endpoint.to_owned(),
    }
}

fn begins_with_bucket(endpoint: &str, bucket: &str) -> bool {
    let host = endpoint.split_once("://").map_or("", |(_, host)| host);
    let rest = host.get(bucket.len()..);
    host.get(..bucket.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(bucket))
        && rest.is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a name is that of a region, which stands in names of hosts.
pub fn is_region(name: &str) -> bool {
    (1..=63).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_bucket(name: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric();
    (1..=255).contains(&name.len())
        && name.bytes().next().is_some_and(is_word)
        && name.bytes().all(|b| is_word(b) || b"._-".contains(&b))
}

/// Whether it can be one part of the name of a host, in one way only.
fn is_label(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_plain) && !name.ends_with('-')
}

/// The bytes that a text with `%` stands for.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let byte = behind.split_at_checked(2).and_then(|(digits, behind)| {
            let digits = std::str::from_utf8(digits).ok()?;
            let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
            Some((byte, behind))
        });
        let (byte, behind) = byte
            .ok_or("behind % stand two hexadecimal digits; write %25 for the character itself")?;
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'.' | b'_' | b'~' | b'-' | b'/' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteUrl;

    #[test]
    fn a_bucket_stands_in_the_host_once() {
        for (endpoint, with) in [
            (
                "https://s3.example.org:90/x",
                "https://images.s3.example.org:90/x",
            ),
            (
                "https://images.s3.example.org",
                "https://images.s3.example.org",
            ),
            (
                "https://images2.example.org",
                "https://images.images2.example.org",
            ),
        ] {
            assert_eq!(with_bucket(endpoint, "images"), with);
        }
    }

    #[test]
    fn objects_are_written_and_asked_for_in_one_way() {
        for (url, text, asked, host, is_exposed) in [
            (
                "S3://images/x/app.img",
                "s3://images/x/app.img",
                "https://images.s3.eu-west-1.amazonaws.com/x/app.img",
                "s3.amazonaws.com",
                false,
            ),
            (
                "s3://a.dotted_name/app+1%2b @.img"
                    .replace(' ', "%20")
                    .as_str(),
                "s3://a.dotted_name/app%2B1%2B%20%40.img",
                "https://s3.eu-west-1.amazonaws.com/a.dotted_name/app%2B1%2B%20%40.img",
                "s3.amazonaws.com",
                false,
            ),
            (
                "s3://images/app.img?endpoint=http%3A%2F%2F127.0.0.1%3A9000%2F",
                "s3://images/app.img?endpoint=http://127.0.0.1:9000",
                "http://127.0.0.1:9000/images/app.img",
                "127.0.0.1",
                false,
            ),
            (
                "s3://images/app.img?endpoint=https://Images.s3.example.org",
                "s3://images/app.img?endpoint=https://images.s3.example.org",
                "https://images.s3.example.org/app.img",
                "images.s3.example.org",
                false,
            ),
            (
                "s3://images/app.img?endpoint=http://s3.example.org/storage/v1",
                "s3://images/app.img?endpoint=http://s3.example.org/storage/v1",
                "http://s3.example.org/storage/v1/images/app.img",
                "s3.example.org",
                true,
            ),
        ] {
            let url = RemoteUrl::parse(url).expect("a URL");
            let name = url.object().expect("an object");
            assert_eq!((url.as_str(), &*name.url("eu-west-1")), (text, asked));
            assert_eq!((url.host(), url.is_exposed()), (host, is_exposed), "{url}");
            assert_eq!(RemoteUrl::parse(text).expect("a URL"), url);
            let beside = RemoteUrl::parse(&url.beside(".remote")).expect("a URL");
            assert_eq!(beside.object(), Some(name.beside(".remote")));
        }
        let url = RemoteUrl::parse("https://a.example/x").expect("a URL");
        assert!(url.object().is_none());
    }

    #[test]
    fn nothing_leads_out_of_a_bucket() {
        for name in [
            "images",
            "images/",
            "/app.img",
            ".images/app.img",
            "im%2fages/app.img",
            "images:80/app.img",
            "images/../other/app.img",
            "images/x/%2e%2E/app.img",
            "images/./app.img",
            "images/app%2",
            "images/app%+1",
            "images/app.img?versionId=1",
            "images/app.img?endpoint=",
            "images/app.img?endpoint=s3.example.org",
            "images/app.img?endpoint=ftp://s3.example.org",
            "images/app.img?endpoint=https://u:p@s3.example.org",
            "images/app.img?endpoint=https://s3.example.org/../x",
            "images/app.img?endpoint=https://s3.example.org%3Fx",
            "images/app.img?endpoint=https://:80",
        ] {
            let found = RemoteUrl::parse(&format!("s3://{name}"));
            assert!(found.is_err(), "{name}: {found:?}");
        }
    }
}
