use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};

/// Which fields of a request are credentials in a shared cache that keeps what they bring for them alone: see
/// [`Options::credentials`](crate::Options::credentials).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Credentials {
    /// `Authorization`, `Cookie`, and each field whose name has a word for a secret in it, as `PRIVATE-TOKEN` and
    /// `X-Api-Key` have.
    Named,
    /// Each field that is not known to be none.
    Unknown,
}

/// How names of others of them begin. Browsers let no page set `Sec-`.
const HARMLESS_STARTS: [&str; 3] = ["sec-", "x-b3-", "x-datadog-"];

/// Words in names of fields that are credentials.
const WORDS: [&str; 14] = [
    "auth",
    "token",
    "secret",
    "key",
    "session",
    "password",
    "passwd",
    "credential",
    "cookie",
    "jwt",
    "otp",
    "saml",
    "signature",
    "identity",
];

/// Fields that say what a client wants or is, how a message came, or what to write into a log, and nothing of who asks.
const HARMLESS: [&str; 63] = [
    "a-im",
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-encoding",
    "accept-language",
    "age",
    "alt-used",
    "b3",
    "baggage",
    "cache-control",
    "cargo-protocol",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "date",
    "dnt",
    "docker-distribution-api-version",
    "early-data",
    "expect",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "npm-auth-type",
    "npm-command",
    "npm-in-ci",
    "npm-scope",
    "npm-session",
    "pacote-integrity",
    "pacote-pkg-id",
    "pacote-req-type",
    "pacote-version",
    "pragma",
    "priority",
    "proxy-connection",
    "purpose",
    "range",
    "referer",
    "request-id",
    "save-data",
    "sentry-trace",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "uber-trace-id",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-ot-span-context",
    "x-request-id",
];

impl Credentials {
    /// Whether a field is one.
    pub fn has(self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let is_known = [&AUTHORIZATION, &COOKIE, &PROXY_AUTHORIZATION].contains(&name);
        let is_harmless = HARMLESS.binary_search(&text).is_ok()
            || HARMLESS_STARTS.iter().any(|start| text.starts_with(start));
        match self {
            Self::Named => is_known || !is_harmless && WORDS.iter().any(|word| text.contains(word)),
            Self::Unknown => !is_harmless,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_credentials() {
        assert!(HARMLESS.is_sorted());
        for (name, named, unknown) in [
            ("authorization", true, true),
            ("proxy-authorization", true, true),
            ("cookie", true, true),
            ("private-token", true, true),
            ("x-api-key", true, true),
            ("x-amz-security-token", true, true),
            ("npm-otp", true, true),
            ("x-jfrog-art-api", false, true),
            ("origin", false, true),
            ("x-mine", false, true),
            ("npm-session", false, false),
            ("user-agent", false, false),
            ("accept", false, false),
            ("sec-fetch-mode", false, false),
            ("range", false, false),
            ("x-b3-traceid", false, false),
        ] {
            let name = HeaderName::from_static(name);
            let found = (
                Credentials::Named.has(&name),
                Credentials::Unknown.has(&name),
            );
            assert_eq!(found, (named, unknown), "{name}");
        }
    }
}
