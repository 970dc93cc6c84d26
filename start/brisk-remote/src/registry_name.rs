use std::fmt;

use crate::choice::{Choice, MOST_TAG, is_tag};
use crate::hex::is_digest;
use crate::remote_url::is_loopback;

/// The longest name in a registry, in bytes: that of the distribution specification.
const MOST_NAME: usize = 255;

/// What an image is called in a registry: `oci://HOST[:PORT]/NAME[:TAG|@sha256:DIGEST][#CHOICE]`.
///
/// 1. `name` has parts of lower case letters, digits and any of `. _ -`, with `/` between them.
/// 2. `reference` is a tag, or `sha256:` and 64 digits.
/// 3. `host` has letters, digits and any of `. _ - : [ ]`, so what follows it in a URL is no part of it. All three can stand in a URL
///    as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryName {
    /// Whether it is asked by plain HTTP though it is another machine.
    is_plain: bool,
    /// The host, with a port if it has its own, as users and their credentials name it.
    host: String,
    name: String,
    reference: String,
    /// Which image, if there are several under this name.
    choice: Choice,
}

impl RegistryName {
    /// Reads what stands behind `scheme://`.
    ///
    /// # Errors
    ///
    /// What is wrong, and what is allowed.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Result<Self, String> {
        let (rest, choice) = match rest.split_once('#') {
            Some((rest, choice)) => (rest, Choice::parse(choice)?),
            None => (rest, Choice::default()),
        };
        let Some((host, path)) = rest.split_once('/') else {
            return Err("expected a name behind the host, such as oci://HOST/NAME:TAG".into());
        };
        if !host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-:[]".contains(&b))
        {
            return Err(
                "the host has other characters than letters, digits and any of . _ - : [ ]".into(),
            );
        }
        // The tag of a name that has a digest, too, says nothing more.
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (name, tag) = match path.split_once(':') {
            Some((name, tag)) => (name, tag),
            None => (path, "latest"),
        };
        if digest.is_some_and(|digest| !is_sha256(digest)) {
            return Err("behind @ stands sha256: and the 64 hexadecimal digits of a manifest, in lower case".into());
        }
        if !is_tag(tag) {
            return Err(format!(
                "the tag has other characters than letters, digits and any of . _ -, or more than {MOST_TAG} of them"
            ));
        }
        if name.len() > MOST_NAME || !name.split('/').all(is_part) {
            return Err(format!(
                "the name in a registry has other characters than lower case letters, digits and any of . _ - /, or more than \
                 {MOST_NAME} of them"
            ));
        }
        let name = match host {
            "docker.io" if !name.contains('/') => format!("library/{name}"),
            _ => name.to_owned(),
        };
        Ok(Self {
            is_plain: scheme == "oci+http" && !is_loopback(without_port(host)),
            host: host.to_owned(),
            name,
            reference: digest.unwrap_or(tag).to_owned(),
            choice,
        })
    }

    /// The host, with its port, as users name it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The name, without tag or digest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tag or the digest.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Which image is wanted, if there are several under this name.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The same name, and which image is wanted. What `choice` leaves open stays.
    pub(crate) fn choosing(&self, choice: &Choice) -> Self {
        Self {
            choice: self.choice.with(choice),
            ..self.clone()
        }
    }

    /// The digest, with `sha256:`, if it has one in place of a tag.
    pub fn digest(&self) -> Option<&str> {
        is_sha256(&self.reference).then_some(&*self.reference)
    }

    /// Scheme, host and port of the web server that answers. A registry on this machine is asked by plain HTTP.
    pub fn origin(&self) -> String {
        let is_near = is_loopback(without_port(&self.host));
        let scheme = if self.is_plain || is_near {
            "http"
        } else {
            "https"
        };
        match &*self.host {
            "docker.io" => "https://registry-1.docker.io".into(),
            host => format!("{scheme}://{host}"),
        }
    }

    /// The URL of a manifest of this name.
    pub fn manifest_url(&self, reference: &str) -> String {
        format!("{}/v2/{}/manifests/{reference}", self.origin(), self.name)
    }

    /// The URL of a blob with this digest.
    pub fn blob_url(&self, digest: &str) -> String {
        format!("{}/v2/{}/blobs/{digest}", self.origin(), self.name)
    }

    /// The URL of a list of what is said of the manifest with this digest.
    pub fn referrers_url(&self, digest: &str) -> String {
        format!("{}/v2/{}/referrers/{digest}", self.origin(), self.name)
    }

    /// The URL that begins an upload.
    pub fn upload_url(&self) -> String {
        format!("{}/v2/{}/blobs/uploads/", self.origin(), self.name)
    }

    /// The URL of the manifest with this digest.
    pub fn at_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.repository())
    }

    /// The name that a publisher signs: the last part of the name, and the tag.
    pub fn signed_name(&self) -> String {
        let last = self.name.rsplit('/').next().unwrap_or("");
        match self.digest() {
            Some(_) => last.to_owned(),
            None => format!("{last}:{}", self.reference),
        }
    }

    /// The URL without tag or digest.
    pub(crate) fn repository(&self) -> String {
        let scheme = if self.is_plain { "oci+http" } else { "oci" };
        format!("{scheme}://{}/{}", self.host, self.name)
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.digest().is_some() { '@' } else { ':' };
        write!(f, "{}{mark}{}", self.repository(), self.reference)?;
        match self.choice == Choice::default() {
            true => Ok(()),
            false => write!(f, "#{}", self.choice),
        }
    }
}

/// Whether it is `sha256:` and a digest.
pub fn is_sha256(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_digest)
}

fn without_port(host: &str) -> &str {
    match host.starts_with('[') {
        true => host.rsplit_once("]:").map_or(host, |(host, _)| host),
        false => host.split(':').next().unwrap_or(""),
    }
}

fn is_part(part: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = part.bytes().next().zip(part.bytes().last());
    ends.is_some_and(|(first, last)| is_plain(first) && is_plain(last))
        && part.bytes().all(|b| is_plain(b) || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use crate::RemoteUrl;

    #[test]
    fn names_are_written_in_one_way() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (url, text, origin) in [
            (
                "oci://a.example/x/app",
                "oci://a.example/x/app:latest",
                "https://a.example",
            ),
            (
                "ORAS://a.example:5/app:1",
                "oci://a.example:5/app:1",
                "https://a.example:5",
            ),
            (
                "oci://localhost:5000/app:1",
                "oci://localhost:5000/app:1",
                "http://localhost:5000",
            ),
            (
                "oci+http://[::1]:5000/app:1",
                "oci://[::1]:5000/app:1",
                "http://[::1]:5000",
            ),
            (
                "oci+http://a.example/app:1",
                "oci+http://a.example/app:1",
                "http://a.example",
            ),
            (
                "oci://a.example/app#codecs=xz+gzip,variant=small",
                "oci://a.example/app:latest#variant=small,codecs=gzip+xz",
                "https://a.example",
            ),
            (
                "oci://docker.io/app:1",
                "oci://docker.io/library/app:1",
                "https://registry-1.docker.io",
            ),
            (
                &format!("oci://a.example/app:1@{digest}"),
                &format!("oci://a.example/app@{digest}"),
                "https://a.example",
            ),
        ] {
            let url = RemoteUrl::parse(url).expect("a URL");
            let name = url.registry().expect("a registry");
            assert_eq!((url.as_str(), &*name.origin()), (text, origin));
            assert_eq!(RemoteUrl::parse(text).expect("a URL"), url);
            assert_eq!(url.is_fixed(), text.contains('@'));
        }
        let url = RemoteUrl::parse("oci://a.example/x/app:1").expect("a URL");
        let name = url.registry().expect("a registry");
        assert_eq!(name.signed_name(), "app:1");
        assert_eq!(
            name.blob_url(&digest),
            format!("https://a.example/v2/x/app/blobs/{digest}")
        );
        assert!(
            RemoteUrl::parse("https://a.example/x:1")
                .expect("a URL")
                .registry()
                .is_none()
        );
    }

    #[test]
    fn nothing_leads_out_of_a_name() {
        for name in [
            "a.example",
            "a.example/",
            "a.example/../x",
            "a.example?x/app",
            "a.example\\.b.example/app",
            "a.example%2f/app",
            "a.example/x/",
            "a.example/X",
            "a.example/x?y",
            "a.example/x%2f",
            "a.example/x:",
            "a.example/x:a/b",
            "a.example/x:.a",
            "a.example/x@sha256:12",
            "a.example/x@sha512:12",
            "a.example/x#variant=",
            "a.example/x#variant=a/b",
            "a.example/x#codecs=gzip++xz",
            "a.example/x#size=1",
        ] {
            let found = RemoteUrl::parse(&format!("oci://{name}"));
            assert!(found.is_err(), "{name}");
        }
    }
}
