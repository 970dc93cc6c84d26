//! Digests that an index page, or its own name, states of a file. A file with another one is not kept.
//!
//! A link in the form of a page has the digest in front of its path, so a request for the file brings it along, whatever
//! the cache has kept of the page meanwhile: `/~sha256/HEX/MAP/...`.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use hyper::body::{Body, Frame, SizeHint};
use ring::digest::{self, Algorithm, SHA256, SHA512};

use crate::body::BodyError;

/// What a path begins with if a digest follows, and how long that is in hexadecimal.
const PREFIXES: [(&str, &Algorithm, usize); 2] =
    [("/~sha256/", &SHA256, 64), ("/~sha512/", &SHA512, 128)];

/// What a template of downloads of cargo begins with: cargo puts the digest in.
pub const OF_CARGO: &str = "/~sha256/{sha256-checksum}";

/// Files beside a file, which links to that file lead to as well. Their digests are others.
const BESIDE: [&str; 3] = [".metadata", ".asc", ".provenance"];

/// A digest that a file must have.
#[derive(Debug, Clone)]
pub struct Stated {
    algorithm: &'static Algorithm,
    hex: String,
}

impl Stated {
    /// The digest in front of a path, if it has one, and the path behind it.
    pub fn of_path(path: &str) -> (Option<Self>, &str) {
        for (prefix, algorithm, len) in PREFIXES {
            let Some((hex, behind)) = path
                .strip_prefix(prefix)
                .and_then(|rest| rest.split_at_checked(len))
            else {
                continue;
            };
            if is_hex(hex) && behind.starts_with('/') {
                let is_beside = BESIDE.iter().any(|end| behind.ends_with(end));
                let hex = hex.to_ascii_lowercase();
                return ((!is_beside).then_some(Self { algorithm, hex }), behind);
            }
        }
        (None, path)
    }

    /// That of a file of apt which is named by its digest.
    pub fn of_by_hash(rest: &str) -> Option<Self> {
        let (_, hex) = rest.rsplit_once("/by-hash/SHA256/")?;
        Self::of_page(&format!("sha256={hex}"))
    }

    /// What stands in front of the path.
    pub fn prefix(&self) -> String {
        let known = PREFIXES.iter();
        let mut of_this = known.filter(|(_, _, len)| *len == self.hex.len());
        let prefix = of_this.next().map_or("", |(prefix, ..)| prefix);
        format!("{prefix}{}", self.hex)
    }

    /// A digest as pages write it: `sha256=HEX`.
    pub fn of_page(text: &str) -> Option<Self> {
        let (name, hex) = text.split_once('=')?;
        let (_, algorithm, len) = PREFIXES
            .into_iter()
            .find(|(prefix, ..)| prefix.trim_matches(['/', '~']) == name)?;
        (hex.len() == len && is_hex(hex)).then(|| Self {
            algorithm,
            hex: hex.to_ascii_lowercase(),
        })
    }

    /// A digest as registries of OCI images write it: `sha256:HEX`, in lower case.
    pub fn of_oci(text: &str) -> Option<Self> {
        let (name, hex) = text.split_once(':')?;
        let is_lower = !hex.bytes().any(|byte| byte.is_ascii_uppercase());
        Self::of_page(&format!("{name}={hex}")).filter(|_| is_lower)
    }

    /// One of Subresource Integrity, as npm has it: `sha512-BASE64`. Of several, the first that is known.
    pub fn of_integrity(text: &str) -> Option<Self> {
        text.split_ascii_whitespace().find_map(|one| {
            let (name, base64) = one.split_once('-')?;
            let digest = BASE64.decode(base64.split('?').next()?.as_bytes()).ok()?;
            Self::of_page(&format!("{name}={}", HEXLOWER.encode(&digest)))
        })
    }

    /// `body`, which ends with an error in place of its last piece if it has another digest. `tell` gets to know of that.
    pub fn check<B>(
        self,
        body: B,
        tell: impl FnOnce(&WrongDigest) + Send + 'static,
    ) -> CheckedBody<B> {
        CheckedBody {
            body,
            check: Some(Check {
                context: digest::Context::new(self.algorithm),
                stated: self.hex,
                tell: Box::new(tell),
            }),
        }
    }
}

/// A file has another digest than is stated.
#[derive(Debug)]
pub struct WrongDigest {
    /// What is stated, in hexadecimal.
    pub stated: String,
    /// What the file has.
    pub found: String,
}

impl fmt::Display for WrongDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the file has the digest {}, and {} is stated for it; so it is not kept",
            self.found, self.stated
        )
    }
}

impl Error for WrongDigest {}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A body whose digest is stated.
pub struct CheckedBody<B> {
    body: B,
    /// None when it is decided.
    check: Option<Check>,
}

struct Check {
    /// Of what has come.
    context: digest::Context,
    /// What all of it must have.
    stated: String,
    tell: Box<dyn FnOnce(&WrongDigest) + Send>,
}

impl<B> CheckedBody<B> {
    /// Decides, when all has come.
    fn decide(&mut self) -> Result<(), WrongDigest> {
        let Some(Check {
            context,
            stated,
            tell,
        }) = self.check.take()
        else {
            return Ok(());
        };
        let found = HEXLOWER.encode(context.finish().as_ref());
        if found == stated {
            return Ok(());
        }
        let wrong = WrongDigest { stated, found };
        tell(&wrong);
        Err(wrong)
    }
}

impl<B> Body for CheckedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame.transpose().map_err(Into::into),
        };
        let checked = frame.and_then(|frame| {
            let data = frame.as_ref().and_then(Frame::data_ref);
            if let (Some(data), Some(check)) = (data, &mut this.check) {
                check.context.update(data);
            }
            if frame.is_none() || this.body.is_end_stream() {
                this.decide()?;
            }
            Ok(frame)
        });
        Poll::Ready(checked.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.check.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_path_may_have_a_digest_in_front() {
        let of = |path: &str| {
            let (stated, rest) = Stated::of_path(path);
            (stated.map(|stated| stated.prefix()), rest.to_owned())
        };
        let prefix = format!("/~sha256/{EMPTY}");
        for (path, stated, rest) in [
            (format!("{prefix}/py/x-1.whl"), true, "/py/x-1.whl"),
            (
                format!("{}/py/x", prefix.to_uppercase().replace("~SHA", "~sha")),
                true,
                "/py/x",
            ),
            (
                format!("{prefix}/py/x-1.whl.metadata"),
                false,
                "/py/x-1.whl.metadata",
            ),
            ("/py/~sha256/x".to_owned(), false, "/py/~sha256/x"),
            ("/~sha256/ab/x".to_owned(), false, "/~sha256/ab/x"),
            (format!("{prefix}x"), false, &format!("{prefix}x")),
        ] {
            assert_eq!(
                of(&path),
                (stated.then(|| prefix.clone()), rest.to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn digests_of_pages_are_read() {
        let of_page = |text: &str| Some(Stated::of_page(text)?.prefix());
        assert_eq!(
            of_page(&format!("sha256={EMPTY}")),
            Some(format!("/~sha256/{EMPTY}"))
        );
        for other in [
            "sha256=ab",
            "md5=d41d8cd98f00b204e9800998ecf8427e",
            "egg=x",
            "",
        ] {
            assert_eq!(of_page(other), None, "{other}");
        }
        let by_hash = Stated::of_by_hash(&format!("/dists/x/by-hash/SHA256/{EMPTY}"));
        assert_eq!(by_hash.unwrap().prefix(), format!("/~sha256/{EMPTY}"));
        assert!(Stated::of_by_hash("/dists/x/by-hash/MD5Sum/x").is_none());
        let of_npm = |text: &str| Some(Stated::of_integrity(text)?.prefix());
        let base64 = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(
            of_npm(&format!(
                "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk= sha256-{base64}?x"
            )),
            Some(format!("/~sha256/{EMPTY}"))
        );
        assert_eq!(of_npm("sha512-x"), None);
    }

    #[tokio::test]
    async fn another_file_ends_with_an_error() {
        let hex = HEXLOWER.encode(digest::digest(&SHA256, b"file").as_ref());
        let checked = |body: &'static str| {
            let stated = Stated::of_page(&format!("sha256={hex}")).unwrap();
            let tell = |wrong: &WrongDigest| assert_ne!(wrong.found, wrong.stated);
            stated.check(Full::new(Bytes::from(body)), tell).collect()
        };
        assert_eq!(checked("file").await.unwrap().to_bytes(), "file");
        for other in ["fill", ""] {
            let error = checked(other).await.unwrap_err().to_string();
            let end = format!(", and {hex} is stated for it; so it is not kept");
            assert!(error.ends_with(&end), "{error}");
        }
    }
}
