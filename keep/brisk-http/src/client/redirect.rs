//! Where a redirect leads (RFC 9110, section 15.4).

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION,
};
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};

use crate::layer::FetchError;
use crate::near::is_near_address;
use crate::target::Target;

/// A request on its way over redirects.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    pub(crate) method: Method,
    pub(crate) url: String,
    headers: HeaderMap,
    extensions: Extensions,
    /// Whether a body goes with it, which is there only once.
    has_body: bool,
}

impl Hop {
    pub(crate) fn first(head: http::request::Parts, has_body: bool) -> Self {
        Self {
            method: head.method,
            url: head.uri.to_string(),
            headers: head.headers,
            extensions: head.extensions,
            has_body,
        }
    }

    /// The request that is to be sent now.
    pub(crate) fn request<B>(&self, body: B) -> Result<http::Request<B>, FetchError> {
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::try_from(&self.url).map_err(FetchError::upstream)?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        Ok(request)
    }

    /// Goes where a response leads. False: it leads nowhere, or nowhere that may be gone to, and is the answer itself. So is
    /// one that leads from https to http, one that leads from another host to an address of this machine or its link, and one for
    /// whose next request the body would have to be sent again.
    pub(crate) fn follow(&mut self, status: StatusCode, headers: &HeaderMap) -> bool {
        let becomes_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return false,
        };
        let Some(here) = Target::parse(&self.url) else {
            return false;
        };
        let location = headers
            .get(LOCATION)
            .and_then(|location| location.to_str().ok());
        let Some(there) = location.and_then(|location| here.join(location)) else {
            return false;
        };
        let is_clear = here.as_str().starts_with("https:") && there.as_str().starts_with("http:");
        if is_clear || leads_near(&here, &there) || (self.has_body && !becomes_get) {
            return false;
        }
        if !here.has_origin_of(&there) {
            let marked = self
                .headers
                .iter()
                .filter(|(_, value)| value.is_sensitive());
            let marked: Vec<_> = marked.map(|(name, _)| name.clone()).collect();
            for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION]
                .into_iter()
                .chain(marked)
            {
                self.headers.remove(name);
            }
        }
        if becomes_get {
            self.method = Method::GET;
            self.has_body = false;
            for name in [
                CONTENT_ENCODING,
                CONTENT_LANGUAGE,
                CONTENT_LENGTH,
                CONTENT_LOCATION,
                CONTENT_TYPE,
            ] {
                self.headers.remove(name);
            }
        }
        self.url = there.as_str().to_owned();
        true
    }
}

/// Whether a redirect leads to an address of this machine or of its link, and comes from elsewhere. What listens there may trust
/// whoever is here, and a server elsewhere must not choose what is asked of it.
fn leads_near(here: &Target<'_>, there: &Target<'_>) -> bool {
    is_near(there) && !is_near(here)
}

fn is_near(target: &Target<'_>) -> bool {
    let uri = Uri::try_from(target.as_str());
    let host = uri.as_ref().ok().and_then(Uri::host).unwrap_or("");
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) => is_near_address(address),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn hop(method: Method, has_body: bool) -> Hop {
        let mut marked = HeaderValue::from_static("secret");
        marked.set_sensitive(true);
        let request = http::Request::builder()
            .method(method)
            .uri("https://a.example/x/y?q")
            .header(AUTHORIZATION, "Basic c2VjcmV0")
            .header(COOKIE, "c=1")
            .header("x-marked", marked)
            .header(CONTENT_TYPE, "text/plain")
            .header("accept", "*/*");
        Hop::first(request.body(()).unwrap().into_parts().0, has_body)
    }

    fn follow(hop: &mut Hop, status: u16, location: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
        hop.follow(StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn credentials_stay_where_they_belong() {
        for (location, url, stays) in [
            ("../z", "https://a.example/z", true),
            ("https://A.example:443/z", "https://a.example/z", true),
            (
                "https://a.example:8443/z",
                "https://a.example:8443/z",
                false,
            ),
            ("//b.example/z", "https://b.example/z", false),
        ] {
            let mut hop = hop(Method::GET, false);
            assert!(follow(&mut hop, 302, location));
            assert_eq!(hop.url, url);
            assert_eq!(hop.headers.contains_key(AUTHORIZATION), stays, "{location}");
            assert_eq!(hop.headers.contains_key(COOKIE), stays, "{location}");
            assert_eq!(hop.headers.contains_key("x-marked"), stays, "{location}");
            assert_eq!(hop.headers["accept"], "*/*");
        }
    }

    #[test]
    fn the_status_says_which_method_is_next() {
        for (method, status, has_body, next) in [
            (Method::POST, 301, true, Some(Method::GET)),
            (Method::POST, 302, true, Some(Method::GET)),
            (Method::PUT, 303, true, Some(Method::GET)),
            (Method::HEAD, 303, false, Some(Method::HEAD)),
            (Method::PUT, 301, true, None),
            (Method::POST, 307, true, None),
            (Method::POST, 307, false, Some(Method::POST)),
            (Method::GET, 308, false, Some(Method::GET)),
            (Method::GET, 300, false, None),
            (Method::GET, 304, false, None),
            (Method::GET, 200, false, None),
        ] {
            let mut hop = hop(method.clone(), has_body);
            let followed = follow(&mut hop, status, "/z").then(|| hop.method.clone());
            assert_eq!(followed, next, "{method} {status}");
            let is_changed = next.is_some_and(|next| next != method);
            assert_eq!(
                hop.headers.contains_key(CONTENT_TYPE),
                !is_changed,
                "{method} {status}"
            );
        }
    }

    #[test]
    fn no_other_host_leads_to_this_machine() {
        for (here, there, may) in [
            ("http://a.example/", "http://127.0.0.1/x", false),
            ("http://a.example/", "http://[::1]:80/x", false),
            ("http://a.example/", "http://[::ffff:127.0.0.1]/x", false),
            ("http://a.example/", "http://169.254.169.254/latest", false),
            ("http://a.example/", "http://0.0.0.0/x", false),
            ("http://a.example/", "http://LocalHost/x", false),
            ("http://a.example/", "http://10.0.0.1/x", true),
            ("http://127.0.0.1:1/", "http://127.0.0.1:2/x", true),
            ("http://localhost/", "http://[::1]/x", true),
        ] {
            let request = http::Request::get(here).body(()).unwrap();
            let mut hop = Hop::first(request.into_parts().0, false);
            assert_eq!(follow(&mut hop, 302, there), may, "{here} {there}");
        }
    }

    #[test]
    fn nothing_leads_out_of_tls_or_to_other_schemes() {
        for location in [
            "http://a.example/",
            "ftp://a.example/",
            "mailto:a@b",
            "https://",
        ] {
            assert!(
                !follow(&mut hop(Method::GET, false), 302, location),
                "{location}"
            );
        }
        assert!(!hop(Method::GET, false).follow(StatusCode::FOUND, &HeaderMap::new()));
    }
}
