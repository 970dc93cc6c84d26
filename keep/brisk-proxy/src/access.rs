//! Who may ask: the loopback, allowed nets, and clients with the token.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, bail};
use data_encoding::BASE64_NOPAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use ring::digest::{Digest, SHA256, digest};

use crate::net::Net;
use crate::private_file;
use crate::request_head::Refusal;

/// Why a client is sent away.
const NO_TOKEN: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "the token is missing or wrong; give the client the user name brisk and the token of the proxy as its password",
);
const NOT_ALLOWED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "this address may not ask; start the proxy with --allow and its net, or with --token-file",
);

/// The fewest bytes of a token.
const LEAST_TOKEN_BYTES: usize = 16;

/// Who may ask. The loopback always may, unless there is a token.
#[derive(Debug)]
pub struct Access {
    nets: Vec<Net>,
    /// Of the token, so that how long a comparison takes says nothing about it.
    token: Option<Digest>,
    /// Whether the proxy's own pages answer others than the loopback.
    pages: bool,
}

impl Access {
    /// The rules of these options.
    pub fn new(nets: Vec<Net>, token_file: Option<&Path>, pages: bool) -> anyhow::Result<Self> {
        let token = match token_file {
            Some(path) => Some(read_token(path).with_context(|| path.display().to_string())?),
            None => None,
        };
        Ok(Self { nets, token, pages })
    }

    /// Refuses an address to listen at that others can reach, as long as nothing says who may ask.
    pub fn check_listener(&self, address: IpAddr) -> anyhow::Result<()> {
        if is_loopback(address) || !self.nets.is_empty() || self.token.is_some() {
            return Ok(());
        }
        bail!(
            "{address} can be reached from other machines; say which may ask with --allow NET, or with --token-file FILE \
             that clients must know the token of"
        )
    }

    /// Lets a request in, or says why not. The token is removed: it is for this proxy alone.
    pub fn admit(&self, peer: IpAddr, headers: &mut HeaderMap) -> Result<(), Refusal> {
        if let Some(token) = &self.token {
            let given = headers.get(AUTHORIZATION).and_then(given_token);
            let is_right =
                given.is_some_and(|given| digest(&SHA256, &given).as_ref() == token.as_ref());
            if !is_right {
                return Err(NO_TOKEN);
            }
            headers.remove(AUTHORIZATION);
        }
        let near = is_loopback(peer);
        let allowed = match self.nets.is_empty() {
            true => near || self.token.is_some(),
            false => near || self.nets.iter().any(|net| net.contains(peer)),
        };
        match allowed {
            true => Ok(()),
            false => Err(NOT_ALLOWED),
        }
    }

    /// Whether the proxy's own pages answer this request. A page of the web may not read them through a browser on this
    /// machine, so the host must be an address or `localhost`: names can be made to lead here.
    pub fn admits_to_pages(&self, peer: IpAddr, host: Option<&str>) -> bool {
        self.pages || is_loopback(peer) && host.is_some_and(is_own_host)
    }
}

/// Whether an address is of this machine alone.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn read_token(path: &Path) -> anyhow::Result<Digest> {
    let token = private_file::read(path, "the file of the token")?;
    if token.len() < LEAST_TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "the token must have at least {LEAST_TOKEN_BYTES} visible ASCII characters on one line; \
             head -c 24 /dev/urandom | base64 makes one"
        );
    }
    Ok(digest(&SHA256, token.as_bytes()))
}

/// The password of `Basic`, or the token of `Bearer`.
fn given_token(value: &HeaderValue) -> Option<Vec<u8>> {
    let text = value.to_str().ok()?;
    let (scheme, given) = text.split_once(' ')?;
    let given = given.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(given.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    // Some clients leave the padding out.
    let pair = BASE64_NOPAD
        .decode(given.trim_end_matches('=').as_bytes())
        .ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair.get(colon.checked_add(1)?..)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(nets: &[&str], token: Option<&str>) -> Access {
        Access {
            nets: nets.iter().map(|net| Net::parse(net).unwrap()).collect(),
            token: token.map(|token| digest(&SHA256, token.as_bytes())),
            pages: false,
        }
    }

    fn admits(access: &Access, peer: &str, authorization: &str) -> Option<u16> {
        let mut headers = HeaderMap::new();
        if !authorization.is_empty() {
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        }
        let admitted = access.admit(peer.parse().unwrap(), &mut headers);
        admitted.err().map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn nets_and_tokens_decide() {
        let token = "0123456789abcdef";
        // brisk:0123456789abcdef
        let basic = "Basic YnJpc2s6MDEyMzQ1Njc4OWFiY2RlZg==";
        for (nets, with_token, peer, authorization, expected) in [
            (&[][..], false, "127.0.0.1", "", None),
            (&[], false, "::ffff:127.0.0.1", "", None),
            (&[], false, "10.0.0.1", "", Some(403)),
            (&["10.0.0.0/8"], false, "10.0.0.1", "", None),
            (&["10.0.0.0/8"], false, "11.0.0.1", "", Some(403)),
            (&["10.0.0.0/8"], false, "127.0.0.1", "", None),
            (&[], true, "127.0.0.1", "", Some(401)),
            (&[], true, "10.0.0.1", basic, None),
            (&[], true, "10.0.0.1", "bearer 0123456789abcdef", None),
            (&[], true, "10.0.0.1", "Bearer 0123456789abcdeg", Some(401)),
            (&[], true, "10.0.0.1", "Basic !", Some(401)),
            (&["10.0.0.0/8"], true, "11.0.0.1", basic, Some(403)),
            (&["10.0.0.0/8"], true, "10.0.0.1", "", Some(401)),
        ] {
            let access = access(nets, with_token.then_some(token));
            assert_eq!(
                admits(&access, peer, authorization),
                expected,
                "{nets:?} {peer} {authorization}"
            );
        }
    }

    #[test]
    fn own_pages_answer_no_name_of_a_host() {
        let access = access(&["0.0.0.0/0"], None);
        for (peer, host, expected) in [
            ("127.0.0.1", Some("127.0.0.1:7077"), true),
            ("127.0.0.1", Some("LOCALHOST"), true),
            ("::1", Some("[::1]:7077"), true),
            ("127.0.0.1", Some("rebound.example"), false),
            ("127.0.0.1", None, false),
            ("10.0.0.1", Some("127.0.0.1"), false),
        ] {
            let admitted = access.admits_to_pages(peer.parse().unwrap(), host);
            assert_eq!(admitted, expected, "{peer} {host:?}");
        }
    }

    #[test]
    fn only_the_loopback_is_open_by_itself() {
        let wide = "0.0.0.0".parse().unwrap();
        assert!(
            access(&[], None)
                .check_listener("::1".parse().unwrap())
                .is_ok()
        );
        assert!(access(&["10.0.0.0/8"], None).check_listener(wide).is_ok());
        assert!(access(&[], Some("t")).check_listener(wide).is_ok());
        let error = access(&[], None)
            .check_listener(wide)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--allow NET"), "{error}");
    }
}
