use http::HeaderName;

use crate::credentials::Credentials;
use crate::secret::Secret;

/// Whom a cache serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One user. `private` responses are stored, and `s-maxage`, `proxy-revalidate` and targeted fields do not count.
    Private,
    /// Several users. Responses that are `private`, or to requests with `Authorization`, are stored only as far as RFC
    /// 9111, sections 3.5 and 5.2.2.7, allows.
    Shared,
}

/// How long a response without a lifetime of its own may be used (RFC 9111, section 4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Heuristic {
    /// Per cent of the time between `Last-Modified` and `Date`.
    pub percent: u32,
    /// At most so many seconds.
    pub most: u32,
}

/// What a cache may do beyond and within the rules. All times are in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Whom the cache serves.
    pub mode: Mode,
    /// The lifetime of responses that have none. 10 % and at most a day by default. None: such a response is stale.
    pub heuristic: Option<Heuristic>,
    /// The fields that speak to this kind of cache (RFC 9213), the most specific one first. They count in
    /// [`Mode::Shared`] only, where `CDN-Cache-Control` is the default.
    pub targets: Vec<HeaderName>,
    /// Credentials are digested with this. Without it, responses that depend on credentials are not stored.
    pub secret: Option<Secret>,
    /// In [`Mode::Shared`], what a request with such fields brought is stored with a digest of them, and used for requests
    /// that have the same ones. What has `public`, `s-maxage` or `must-revalidate` is for all, whatever `Authorization` the
    /// request had (RFC 9111, section 3.5). None, as by default: no other field counts, and what is not for all is not stored.
    pub credentials: Option<Credentials>,
    /// The lifetime is at least this, whatever the response says. It does not store what is `no-store`.
    pub min_lifetime: Option<u32>,
    /// The lifetime is at most this.
    pub max_lifetime: Option<u32>,
    /// The lifetime of a 404, 405, 410, 414 or 501 that has none of its own.
    pub negative_lifetime: Option<u32>,
    /// For how long after its lifetime a response is used while it is revalidated, if it does not say itself (RFC 5861,
    /// section 3).
    pub stale_while_revalidate: Option<u32>,
    /// For how long after its lifetime a response stands in for an error, if it does not say itself (RFC 5861, section
    /// 4). With this, 429 (Too Many Requests) is an error, too: RFC 5861 does not name it.
    pub stale_if_error: Option<u32>,
    /// For how long after its lifetime a response stands in for an origin that cannot be reached, where nothing forbids
    /// it (RFC 9111, section 4.2.4). A day by default. None: not at all.
    pub stale_when_disconnected: Option<u32>,
    /// Whether a 404, 405, 410, 414 or 501 is used stale as other responses are. Not by default: what was missing may be there,
    /// and a client that hears of nothing may look elsewhere.
    pub stale_negative: bool,
    /// Whether these requests pass the cache by: nothing is stored or used.
    pub ignore: bool,
    /// Whether to ask no origin at all: a stored response of any age is used, and everything else is 504.
    pub offline: bool,
}

impl Options {
    /// Those of a cache for one user.
    pub fn private() -> Self {
        Self {
            mode: Mode::Private,
            heuristic: Some(Heuristic {
                percent: 10,
                most: 24 * 60 * 60,
            }),
            targets: Vec::new(),
            secret: None,
            credentials: None,
            min_lifetime: None,
            max_lifetime: None,
            negative_lifetime: None,
            stale_while_revalidate: None,
            stale_if_error: None,
            stale_when_disconnected: Some(24 * 60 * 60),
            stale_negative: false,
            ignore: false,
            offline: false,
        }
    }

    /// Those of a cache for several users.
    pub fn shared() -> Self {
        Self {
            mode: Mode::Shared,
            targets: vec![HeaderName::from_static("cdn-cache-control")],
            ..Self::private()
        }
    }

    /// Whether several users get what the origin did not let them have for so long.
    pub(crate) fn prolongs_for_all(&self) -> bool {
        let times = [
            self.min_lifetime,
            self.stale_while_revalidate,
            self.stale_if_error,
        ];
        self.mode == Mode::Shared && times.iter().any(Option::is_some)
    }

    /// The fields that count in this mode.
    pub(crate) fn counting_targets(&self) -> &[HeaderName] {
        match self.mode {
            Mode::Private => &[],
            Mode::Shared => &self.targets,
        }
    }
}
