//! What this crate and the crate `http-cache-semantics` decide about one exchange, and why they differ.
//!
//! Each kind of difference has a name, and a judgement by the RFC: see [`KINDS`]. A difference of no kind is a fault of one
//! of both, which nobody has judged yet.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_http::{
    Decision, NotUpdated, Options, Policy, Reason, Refusal, Request, Response, Secret, Times,
    Timestamp,
};
use http::header::{AGE, AUTHORIZATION, CACHE_CONTROL, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_cache_semantics::{AfterResponse, CacheOptions, CachePolicy};

/// When responses come: Tue, 14 Nov 2023 22:13:20 GMT
pub const NOW: u64 = 1_700_000_000;

pub const URL: &str = "https://example.org/a";

/// A request, its response, and a later request for which the response may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    pub shared: bool,
    pub method: Method,
    pub asked: HeaderMap,
    pub status: StatusCode,
    pub answered: HeaderMap,
    /// When the response comes: [`NOW`].
    came: u64,
    /// The seconds from the request to its response.
    pub delay: u64,
    /// The seconds from the response to the later request.
    pub after: u64,
    pub method_again: Method,
    pub asked_again: HeaderMap,
    /// The fields of a 304 that answers the later request.
    pub not_modified: Option<HeaderMap>,
}

/// What one of both decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The response is not stored.
    NotStored,
    /// The crate panics.
    Panics,
    Stored(Figures),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// When the later request comes.
    pub age: u64,
    /// It is fresh while its age is less.
    pub lifetime: u64,
    /// Whether it answers the later request without a question to the origin.
    pub used: bool,
    pub updated: Option<Updated>,
}

/// What a 304 does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// It is about another response.
    Not,
    /// It is about this one, which as updated must not be stored.
    Refused,
    /// The response now has this lifetime.
    To(u64),
}

impl Verdict {
    /// Without what a 304 does.
    fn without_update(self) -> Self {
        match self {
            Self::Stored(figures) => Self::Stored(Figures {
                updated: None,
                ..figures
            }),
            other => other,
        }
    }

    fn figures(self) -> Option<Figures> {
        match self {
            Self::Stored(figures) => Some(figures),
            Self::NotStored | Self::Panics => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = match self {
            Self::NotStored => return f.write_str("not stored"),
            Self::Panics => return f.write_str("panics"),
            Self::Stored(figures) => figures,
        };
        let used = if figures.used { "used" } else { "not used" };
        write!(
            f,
            "age {}, lifetime {}, {used}",
            figures.age, figures.lifetime
        )?;
        match figures.updated {
            None => Ok(()),
            Some(Updated::Not) => f.write_str(", 304 of another"),
            Some(Updated::Refused) => f.write_str(", 304 forbids to store it"),
            Some(Updated::To(lifetime)) => write!(f, ", 304 gives lifetime {lifetime}"),
        }
    }
}

use Question::{Age, Lifetime, Match, Stored, Update, Used};
use Right::{Both, Brisk};

/// A question that both answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Stored,
    Age,
    Lifetime,
    Used,
    /// Whether a 304 is about the stored response.
    Match,
    /// The lifetime after the 304.
    Update,
}

impl Scenario {
    pub fn options(&self) -> Options {
        let mut options = match self.shared {
            true => Options::shared(),
            false => Options::private(),
        };
        options.secret = Some(Secret::new([1; 16]));
        options
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            url: URL,
            headers: &self.asked,
        }
    }

    fn request_again(&self) -> Request<'_> {
        Request {
            method: &self.method_again,
            url: URL,
            headers: &self.asked_again,
        }
    }

    fn times(&self) -> Times {
        Times {
            request: Timestamp::from_unix(self.came - self.delay),
            response: Timestamp::from_unix(self.came),
        }
    }

    fn policy(&self) -> Result<Policy, Refusal> {
        let response = Response {
            status: self.status,
            headers: &self.answered,
        };
        Policy::of(&self.request(), &response, self.times(), &self.options())
    }

    fn decision(&self, policy: &Policy) -> Decision {
        let now = Timestamp::from_unix(self.came + self.after);
        policy
            .view()
            .decide(&self.request_again(), now, &self.options())
    }

    /// What brisk-http decides.
    pub fn brisk(&self) -> Verdict {
        let Ok(policy) = self.policy() else {
            return Verdict::NotStored;
        };
        let (view, options) = (policy.view(), self.options());
        let now = Timestamp::from_unix(self.came + self.after);
        let decision = self.decision(&policy);
        let updated = self.not_modified.as_ref().map(|fields| {
            let updated = view.validated(&self.request(), fields, Times::at(now), &options);
            match updated {
                Ok(updated) => Updated::To(updated.view().lifetime(&options)),
                Err(NotUpdated::Refused(_)) => Updated::Refused,
                Err(_) => Updated::Not,
            }
        });
        Verdict::Stored(Figures {
            age: decision.age,
            lifetime: decision.lifetime,
            used: decision.is_use(),
            updated,
        })
    }

    /// What http-cache-semantics decides.
    pub fn peer(&self) -> Verdict {
        if self.peer_panics() {
            return Verdict::Panics;
        }
        self.peer_alone()
    }

    /// As [`peer`](Self::peer), even if that panics.
    pub fn peer_alone(&self) -> Verdict {
        let policy = self.peer_policy(&self.answered);
        if !policy.is_storable() {
            return Verdict::NotStored;
        }
        // It does not tell the lifetime itself, but the time that is left: without an Age, at once, that is all of it.
        let bare = self.peer_policy(&without_age(&self.answered));
        let now = peer_time(self.came + self.after);
        let again = peer_request(&self.method_again, &self.asked_again);
        let updated = self.not_modified.as_ref().map(|fields| {
            let mut response = http::Response::new(());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.headers_mut() = without_age(fields);
            let request = peer_request(&self.method, &self.asked);
            match bare.after_response(&request, &response, now) {
                AfterResponse::NotModified(updated, _) if !updated.is_storable() => {
                    Updated::Refused
                }
                AfterResponse::NotModified(updated, _) => {
                    Updated::To(updated.time_to_live(now).as_secs())
                }
                AfterResponse::Modified(..) => Updated::Not,
            }
        });
        Verdict::Stored(Figures {
            age: policy.age(now).as_secs(),
            lifetime: bare.time_to_live(peer_time(self.came)).as_secs(),
            used: policy
                .before_request(&again, now)
                .satisfies_without_revalidation(),
            updated,
        })
    }

    fn peer_policy(&self, answered: &HeaderMap) -> CachePolicy {
        let mut response = http::Response::new(());
        *response.status_mut() = self.status;
        *response.headers_mut() = answered.clone();
        let options = CacheOptions {
            shared: self.shared,
            ..CacheOptions::default()
        };
        let request = peer_request(&self.method, &self.asked);
        CachePolicy::new_options(&request, &response, peer_time(self.came), options)
    }

    /// Whether the peer adds to an age that has no room for it.
    fn peer_panics(&self) -> bool {
        let age = self.answered.get(AGE).and_then(|age| age.to_str().ok());
        age.and_then(|age| age.parse::<u64>().ok())
            .is_some_and(|age| age.checked_add(self.after).is_none())
    }

    /// The same with fields that are spelled in another way.
    fn spelled(&self, spell: fn(&str, &[u8]) -> Vec<u8>) -> Self {
        let spelled = |headers: &HeaderMap| {
            let mut spelled = HeaderMap::new();
            for (name, value) in headers {
                let value = HeaderValue::from_bytes(&spell(name.as_str(), value.as_bytes()));
                spelled.append(name, value.expect("it is a value again"));
            }
            spelled
        };
        Self {
            asked: spelled(&self.asked),
            answered: spelled(&self.answered),
            asked_again: spelled(&self.asked_again),
            not_modified: self.not_modified.as_ref().map(spelled),
            ..self.clone()
        }
    }

    /// The scenario whose response has the fields that this one has after its 304.
    fn merged(&self) -> Option<Self> {
        let policy = self.policy().ok()?;
        let now = Times::at(Timestamp::from_unix(self.came + self.after));
        let answered = policy
            .view()
            .merged_headers(self.not_modified.as_ref()?, now);
        Some(Self {
            // The peer is asked for the lifetime alone.
            answered: without_age(&answered),
            came: self.came + self.after,
            not_modified: None,
            ..self.clone()
        })
    }
}

fn peer_time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn peer_request(method: &Method, headers: &HeaderMap) -> http::Request<()> {
    let mut request = http::Request::new(());
    *request.method_mut() = method.clone();
    *request.uri_mut() = URL.parse().expect("a URL");
    *request.headers_mut() = headers.clone();
    request
}

fn without_age(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(AGE);
    headers
}

/// Who is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Brisk,
    /// The section leaves it open, so both are.
    Both,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Brisk => "brisk",
            Self::Both => "both",
        })
    }
}

/// A kind of difference, with its judgement.
pub struct Kind {
    pub name: &'static str,
    pub right: Right,
    /// Of RFC 9111, if it names no other.
    section: &'static str,
    /// What the section says.
    pub reason: &'static str,
    how: How,
}

/// How a kind is recognised.
enum How {
    /// The peer decides otherwise if the fields of all messages are spelled in this way, which means the same.
    Spelling(fn(&str, &[u8]) -> Vec<u8>),
    /// This is so, and the difference is about one of these questions.
    Fact(&'static [Question], fn(&Difference<'_>) -> bool),
}

impl Kind {
    /// With the name of its RFC.
    pub fn section(&self) -> String {
        match self.section.split_once(", ") {
            Some((rfc, section)) => format!("{rfc}, section {section}"),
            None => format!("RFC 9111, section {}", self.section),
        }
    }
}

/// A question to which both give different answers.
struct Difference<'a> {
    scenario: &'a Scenario,
    brisk: Option<Figures>,
    peer: Option<Figures>,
}

impl Difference<'_> {
    /// Why brisk does not store the response.
    fn refusal(&self) -> Option<Refusal> {
        self.scenario.policy().err()
    }

    /// Why brisk uses the response, or does not.
    fn reason(&self) -> Option<Reason> {
        Some(self.scenario.decision(&self.scenario.policy().ok()?).reason)
    }

    fn is_used_by_brisk(&self) -> bool {
        self.brisk.is_some_and(|brisk| brisk.used)
    }

    fn is_stored_by_brisk(&self) -> bool {
        self.brisk.is_some()
    }

    fn peer_lives(&self, lifetime: u64) -> bool {
        self.peer.is_some_and(|peer| peer.lifetime == lifetime)
    }

    /// Whether the response has a directive, whatever its argument.
    fn says(&self, name: &str) -> bool {
        says(&self.scenario.answered, name)
    }

    fn answered(&self, name: &str) -> Option<&[u8]> {
        self.scenario.answered.get(name).map(HeaderValue::as_bytes)
    }

    fn asked_again(&self, name: &str) -> Option<&[u8]> {
        self.scenario
            .asked_again
            .get(name)
            .map(HeaderValue::as_bytes)
    }

    fn not_modified(&self, name: &str) -> Option<&[u8]> {
        let fields = self.scenario.not_modified.as_ref()?;
        fields.get(name).map(HeaderValue::as_bytes)
    }

    fn has_age(&self, is: fn(&str) -> bool) -> bool {
        let age = self.answered("age").unwrap_or_default();
        std::str::from_utf8(age).is_ok_and(is)
    }

    fn method_again(&self) -> &Method {
        &self.scenario.method_again
    }
}

/// The directives of a line as the peer finds them, by commas and the first `=` alone. Names are in lower case.
fn directives(line: &[u8]) -> Vec<(String, Option<String>)> {
    let text = String::from_utf8_lossy(line);
    text.split(',')
        .map(|part| match part.split_once('=') {
            Some((name, argument)) => (lower(name.trim()), Some(argument.to_owned())),
            None => (lower(part.trim()), None),
        })
        .collect()
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// Those of all lines of a message.
fn all_directives(headers: &HeaderMap) -> impl Iterator<Item = (String, Option<String>)> {
    let lines = headers.get_all(CACHE_CONTROL).into_iter();
    lines.flat_map(|line| directives(line.as_bytes()))
}

fn says(headers: &HeaderMap, name: &str) -> bool {
    all_directives(headers).any(|(said, _)| said == name)
}

/// A value with other directives, if it is one of Cache-Control.
fn with_directives(
    name: &str,
    value: &[u8],
    change: impl Fn(&str, Option<&str>) -> Option<String>,
) -> Vec<u8> {
    if name != "cache-control" {
        return value.to_vec();
    }
    let parts: Vec<String> = directives(value)
        .into_iter()
        .map(|(name, argument)| {
            let same = || match &argument {
                Some(argument) => format!("{name}={argument}"),
                None => name.clone(),
            };
            change(&name, argument.as_deref()).unwrap_or_else(same)
        })
        .collect();
    parts.join(",").into_bytes()
}

fn has_number(name: &str) -> bool {
    matches!(
        name,
        "max-age"
            | "s-maxage"
            | "min-fresh"
            | "max-stale"
            | "stale-while-revalidate"
            | "stale-if-error"
    )
}

/// What stands between quotes, or all of it.
fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a number is more than a cache of 32 bits can tell.
fn is_huge(text: &str) -> bool {
    is_number(text)
        && text
            .parse::<u64>()
            .map_or(true, |number| number >= u64::from(u32::MAX))
}

/// A line without the commas that stand inside of quotes.
fn without_quoted_commas(line: &[u8]) -> Vec<u8> {
    let (mut quoted, mut escaped) = (false, false);
    let bytes = line.iter().map(|byte| {
        let was_escaped = std::mem::take(&mut escaped);
        match byte {
            b'"' if !was_escaped => quoted = !quoted,
            b'\\' if quoted && !was_escaped => escaped = true,
            b',' if quoted => return b';',
            _ => {}
        }
        *byte
    });
    bytes.collect()
}

fn is_date(name: &str) -> bool {
    matches!(name, "date" | "expires" | "last-modified")
}

/// Whether an entity tag has the form that they must have.
fn is_entity_tag(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"W/").unwrap_or(text);
    matches!(text, [b'"', inner @ .., b'"'] if !inner.contains(&b'"') && !inner.contains(&b' '))
}

fn is_weak(text: &[u8]) -> bool {
    text.starts_with(b"W/")
}

fn has_several_lines(headers: &HeaderMap) -> bool {
    headers.len() > headers.keys_len()
}

/// The kinds of difference. The first one that explains a difference counts.
pub const KINDS: &[Kind] = &[
    // How fields are read.
    Kind {
        name: "names-have-no-case",
        right: Brisk,
        section: "5.2",
        reason: "Directives are compared without case.",
        how: How::Spelling(|name, value| match name {
            "cache-control" => value.to_ascii_lowercase(),
            _ => value.to_vec(),
        }),
    },
    Kind {
        name: "quoted-commas",
        right: Brisk,
        section: "RFC 9110, 5.6.4",
        reason: "A comma inside of quotes separates no directives.",
        how: How::Spelling(|name, value| match name {
            "cache-control" => without_quoted_commas(value),
            _ => value.to_vec(),
        }),
    },
    Kind {
        name: "bytes-beyond-ascii",
        right: Brisk,
        section: "RFC 9110, 5.5",
        reason: "Such bytes are opaque. They do not make the whole line void.",
        how: How::Spelling(|_, value| {
            let bytes = value.iter().map(|byte| match byte.is_ascii() {
                true => *byte,
                false => b'z',
            });
            bytes.collect()
        }),
    },
    Kind {
        name: "misplaced-blanks",
        right: Both,
        section: "5.2",
        reason: "With a blank before its `=` or a word behind its name, it is no directive. Brisk takes the worse meaning.",
        how: How::Spelling(|name, value| {
            let text = String::from_utf8_lossy(value).replace(" =", " ");
            with_directives(name, text.as_bytes(), |name, _| {
                let (name, _) = name.split_once(' ')?;
                Some(match has_number(name) {
                    true => format!("{name}=0"),
                    false => name.to_owned(),
                })
            })
        }),
    },
    Kind {
        name: "huge-numbers",
        right: Brisk,
        section: "1.2.2",
        reason: "A number that is too large counts as the largest one that the cache can tell.",
        how: How::Spelling(|name, value| {
            with_directives(name, value, |name, argument| {
                let is_huge = has_number(name) && argument.map(unquoted).is_some_and(is_huge);
                is_huge.then(|| format!("{name}={}", u32::MAX - 1))
            })
        }),
    },
    Kind {
        name: "no-numbers",
        right: Brisk,
        section: "4.2.1",
        reason: "What has no valid number is stale, or wants no stale response. A sign or a blank is no part of a number.",
        how: How::Spelling(|name, value| {
            with_directives(name, value, |name, argument| {
                let is_bare = name == "max-stale" && argument.is_none();
                let is_valid = is_bare || argument.map(unquoted).is_some_and(is_number);
                (has_number(name) && !is_valid).then(|| format!("{name}=0"))
            })
        }),
    },
    Kind {
        name: "dates-of-old-forms",
        right: Brisk,
        section: "RFC 9110, 5.6.7",
        reason: "A recipient accepts all three forms of a date.",
        how: How::Spelling(|name, value| {
            let text = std::str::from_utf8(value).unwrap_or_default();
            match httpdate::parse_http_date(text) {
                Ok(date) if is_date(name) => httpdate::fmt_http_date(date).into_bytes(),
                _ => value.to_vec(),
            }
        }),
    },
    Kind {
        name: "zones",
        right: Brisk,
        section: "4.2",
        reason: "A date with another zone than GMT is invalid.",
        how: How::Spelling(|name, value| {
            match is_date(name) && (value.ends_with(b" +0000") || value.ends_with(b" EST")) {
                true => b"0".to_vec(),
                false => value.to_vec(),
            }
        }),
    },
    Kind {
        name: "dates-before-1970",
        right: Both,
        section: "4.2.3",
        reason: "A Date before 1970 is wrong. Brisk takes it for 1970, and the peer for no Date.",
        how: How::Spelling(|name, value| {
            match name == "date" && value.windows(4).any(|year| year == b"1900") {
                true => b"Thu, 01 Jan 1970 00:00:00 GMT".to_vec(),
                false => value.to_vec(),
            }
        }),
    },
    Kind {
        name: "targeted-fields",
        right: Brisk,
        section: "RFC 9213, 2.2",
        reason: "A shared cache takes CDN-Cache-Control in place of Cache-Control and Expires.",
        how: How::Fact(&[Stored, Lifetime, Used], |it| {
            it.scenario.shared && it.answered("cdn-cache-control").is_some()
        }),
    },
    // What is stored.
    Kind {
        name: "answers-to-head",
        right: Both,
        section: "3",
        reason: "A cache need not store an answer to HEAD.",
        how: How::Fact(&[Stored], |it| {
            it.scenario.method == Method::HEAD && it.refusal() == Some(Refusal::Method)
        }),
    },
    Kind {
        name: "answers-to-post",
        right: Brisk,
        section: "RFC 9110, 9.3.3",
        reason: "An answer to POST is stored only if Content-Location names the target.",
        how: How::Fact(&[Stored], |it| {
            it.scenario.method == Method::POST && it.refusal() == Some(Refusal::Method)
        }),
    },
    Kind {
        name: "parts",
        right: Both,
        section: "3.3",
        reason: "A cache may store a part of a representation.",
        how: How::Fact(&[Stored], |it| {
            it.is_stored_by_brisk() && it.scenario.status == StatusCode::PARTIAL_CONTENT
        }),
    },
    Kind {
        name: "all-final-statuses",
        right: Brisk,
        section: "3",
        reason: "A final status need not be understood, unless the response says must-understand.",
        how: How::Fact(&[Stored], |it| {
            const UNDERSTOOD: [u16; 14] = [
                200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501,
            ];
            it.is_stored_by_brisk() && !UNDERSTOOD.contains(&it.scenario.status.as_u16())
        }),
    },
    Kind {
        name: "must-understand",
        right: Brisk,
        section: "5.2.2.3",
        reason: "A cache that knows must-understand and the status ignores no-store.",
        how: How::Fact(&[Stored], |it| {
            it.is_stored_by_brisk() && it.says("must-understand") && it.says("no-store")
        }),
    },
    Kind {
        name: "updates-of-what-would-not-be-stored",
        right: Both,
        section: "3.2",
        reason: "An update may take from a stored response what made it storable. What is left has no lifetime.",
        how: How::Fact(&[Stored], |it| {
            let is_stale = it.brisk.is_some_and(|brisk| brisk.lifetime == 0);
            is_stale && it.refusal() == Some(Refusal::NotCacheable(it.scenario.status))
        }),
    },
    Kind {
        name: "private-in-a-private-cache",
        right: Brisk,
        section: "3",
        reason: "In a private cache, private makes a response of any status storable.",
        how: How::Fact(&[Stored], |it| {
            it.is_stored_by_brisk() && !it.scenario.shared && it.says("private")
        }),
    },
    Kind {
        name: "private-fields",
        right: Brisk,
        section: "5.2.2.7",
        reason: "With names of fields, private is about these, and the rest is stored.",
        how: How::Fact(&[Stored], |it| {
            it.is_stored_by_brisk() && it.scenario.shared && it.says("private")
        }),
    },
    Kind {
        name: "repeated-directives-and-credentials",
        right: Brisk,
        section: "3.5",
        reason: "That a directive has two values does not allow to store an answer to credentials.",
        how: How::Fact(&[Stored], |it| {
            it.refusal() == Some(Refusal::Authorization) && is_contradicted(&it.scenario.answered)
        }),
    },
    Kind {
        name: "no-cache-without-validator",
        right: Both,
        section: "3",
        reason: "A cache need not store what it can never use.",
        how: How::Fact(&[Stored], |it| it.refusal() == Some(Refusal::NeverUsable)),
    },
    Kind {
        name: "vary-star",
        right: Both,
        section: "4.1",
        reason: "Vary with a `*`, or with what is no name, matches no request. A cache need not store such a response.",
        how: How::Fact(&[Stored], |it| it.refusal() == Some(Refusal::VaryNothing)),
    },
    // Ages.
    Kind {
        name: "several-ages",
        right: Brisk,
        section: "5.1",
        reason: "The first one of a list of ages counts.",
        how: How::Fact(&[Age], |it| it.has_age(|age| age.contains(','))),
    },
    Kind {
        name: "huge-ages",
        right: Brisk,
        section: "1.2.2",
        reason: "An age that is too large counts as the largest one that the cache can tell.",
        how: How::Fact(&[Age], |it| it.has_age(is_huge)),
    },
    Kind {
        name: "signed-ages",
        right: Brisk,
        section: "5.1",
        reason: "An age that is no number does not count.",
        how: How::Fact(&[Age], |it| it.has_age(|age| age.starts_with('+'))),
    },
    Kind {
        name: "slow-answers",
        right: Brisk,
        section: "4.2.3",
        reason: "The time from the request to its answer counts, because the answer may be as old.",
        how: How::Fact(&[Age], |it| it.scenario.delay > 0),
    },
    Kind {
        name: "old-dates",
        right: Brisk,
        section: "4.2.3",
        reason: "A response is at least as old as its Date says.",
        how: How::Fact(&[Age], |it| {
            let ages = (
                it.brisk.map(|brisk| brisk.age),
                it.peer.map(|peer| peer.age),
            );
            it.answered("date").is_some() && ages.0 > ages.1
        }),
    },
    // Lifetimes.
    Kind {
        name: "no-cache-of-fields",
        right: Brisk,
        section: "5.2.2.4",
        reason: "With names of fields, no-cache is about these, and the rest may be used.",
        how: How::Fact(&[Lifetime], |it| {
            let mut all = all_directives(&it.scenario.answered);
            let is_of_all = |(name, argument): (String, Option<String>)| {
                name == "no-cache" && argument.is_none()
            };
            it.says("no-cache") && !all.any(is_of_all) && it.peer_lives(0)
        }),
    },
    Kind {
        name: "lifetime-with-no-cache",
        right: Both,
        section: "5.2.2.4",
        reason: "no-cache forbids to use a response without validation. Its lifetime does not matter.",
        how: How::Fact(&[Lifetime], |it| it.says("no-cache") && it.peer_lives(0)),
    },
    Kind {
        name: "pragma-of-a-response",
        right: Brisk,
        section: "5.4",
        reason: "Pragma means nothing in a response.",
        how: How::Fact(&[Lifetime], |it| {
            let alone = it.answered("cache-control").is_none();
            it.answered("pragma").is_some() && alone && it.peer_lives(0)
        }),
    },
    Kind {
        name: "cookies",
        right: Brisk,
        section: "7.3",
        reason: "Set-Cookie does not keep a shared cache from using a response.",
        how: How::Fact(&[Lifetime], |it| {
            it.scenario.shared && it.answered("set-cookie").is_some() && it.peer_lives(0)
        }),
    },
    Kind {
        name: "proxy-revalidate",
        right: Brisk,
        section: "5.2.2.8",
        reason: "proxy-revalidate is about responses that are stale.",
        how: How::Fact(&[Lifetime], |it| {
            it.scenario.shared && it.says("proxy-revalidate") && it.peer_lives(0)
        }),
    },
    Kind {
        name: "immutable-and-expires",
        right: Brisk,
        section: "RFC 8246, 2",
        reason: "immutable is about the lifetime that a response has. It makes it no longer.",
        how: How::Fact(&[Lifetime], |it| {
            it.says("immutable") && it.answered("expires").is_some() && it.peer_lives(86_400)
        }),
    },
    Kind {
        name: "immutable-alone",
        right: Both,
        section: "4.2.2",
        reason: "A cache may estimate a lifetime of a day if the response has none, and need not.",
        how: How::Fact(&[Lifetime], |it| {
            it.says("immutable") && it.answered("expires").is_none() && it.peer_lives(86_400)
        }),
    },
    Kind {
        name: "estimates-of-days",
        right: Both,
        section: "4.2.2",
        reason: "A cache may bound the lifetimes that it estimates. Brisk takes a day at most.",
        how: How::Fact(&[Lifetime], |it| {
            let is_bound = |figures: Figures| figures.lifetime == 86_400;
            it.answered("last-modified").is_some() && it.brisk.is_some_and(is_bound)
        }),
    },
    Kind {
        name: "lifetimes-of-centuries",
        right: Both,
        section: "1.2.2",
        reason: "A lifetime that is too large counts as the largest one that the cache can tell.",
        how: How::Fact(&[Lifetime], |it| {
            it.brisk
                .is_some_and(|brisk| brisk.lifetime == u64::from(u32::MAX - 1))
        }),
    },
    // Uses.
    Kind {
        name: "get-from-post",
        right: Brisk,
        section: "RFC 9110, 9.3.3",
        reason: "A stored answer to POST answers GET and HEAD, and never POST.",
        how: How::Fact(&[Used], |it| {
            it.scenario.method == Method::POST
                && it.is_used_by_brisk() != (it.method_again() == Method::POST)
        }),
    },
    Kind {
        name: "head-from-get",
        right: Brisk,
        section: "RFC 9110, 9.3.2",
        reason: "A stored answer to GET answers HEAD.",
        how: How::Fact(&[Used], |it| {
            it.is_used_by_brisk() && it.method_again() == Method::HEAD
        }),
    },
    Kind {
        name: "preconditions",
        right: Brisk,
        section: "4.3.2",
        reason: "If-Match and If-Unmodified-Since are for the origin.",
        how: How::Fact(&[Used], |it| it.reason() == Some(Reason::Precondition)),
    },
    Kind {
        name: "identities-in-a-private-cache",
        right: Both,
        section: "3.5",
        reason: "A private cache need not use for one identity what it has stored for another.",
        how: How::Fact(&[Used], |it| {
            let identity = |headers: &HeaderMap| headers.get(AUTHORIZATION).cloned();
            it.reason() == Some(Reason::Vary)
                && !it.scenario.shared
                && identity(&it.scenario.asked) != identity(&it.scenario.asked_again)
        }),
    },
    Kind {
        name: "several-lines-of-a-selecting-field",
        right: Brisk,
        section: "4.1",
        reason: "All lines of a selecting field are compared, and not only the first one.",
        how: How::Fact(&[Used], |it| {
            let scenario = it.scenario;
            let several =
                has_several_lines(&scenario.asked) || has_several_lines(&scenario.asked_again);
            it.reason() == Some(Reason::Vary) && several
        }),
    },
    Kind {
        name: "normal-forms-of-selecting-fields",
        right: Brisk,
        section: "4.1",
        reason: "Selecting fields match if they mean the same.",
        how: How::Fact(&[Used], |it| {
            let names = it.scenario.answered.get_all("vary").into_iter();
            let names = names.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
            let mut names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
            let value = |headers: &HeaderMap, name: &HeaderName| headers.get(name).cloned();
            it.is_used_by_brisk()
                && names.any(|name| {
                    value(&it.scenario.asked, &name) != value(&it.scenario.asked_again, &name)
                })
        }),
    },
    Kind {
        name: "reload-of-immutable",
        right: Brisk,
        section: "RFC 8246, 2",
        reason: "A reload of a fresh immutable response asks nobody.",
        how: How::Fact(&[Used], |it| {
            it.reason() == Some(Reason::Fresh)
                && it.says("immutable")
                && says(&it.scenario.asked_again, "max-age")
        }),
    },
    Kind {
        name: "age-equals-max-age",
        right: Both,
        section: "5.2.1.1",
        reason: "The client prefers a response that is no older than this. Brisk knows whole seconds, so it may be older.",
        how: How::Fact(&[Used], |it| {
            let age = it.brisk.map(|brisk| brisk.age.to_string());
            it.reason() == Some(Reason::RequestMaxAge)
                && all_directives(&it.scenario.asked_again).any(|(name, argument)| {
                    name == "max-age" && argument.as_deref().map(unquoted) == age.as_deref()
                })
        }),
    },
    Kind {
        name: "max-stale-and-no-cache",
        right: Brisk,
        section: "5.2.2.4",
        reason: "no-cache wants validation, whatever the request accepts.",
        how: How::Fact(&[Used], |it| it.reason() == Some(Reason::NoCache)),
    },
    Kind {
        name: "max-stale-and-s-maxage",
        right: Brisk,
        section: "5.2.2.10",
        reason: "In a shared cache, s-maxage says what proxy-revalidate says.",
        how: How::Fact(&[Used], |it| {
            it.reason() == Some(Reason::Stale) && it.scenario.shared && it.says("s-maxage")
        }),
    },
    Kind {
        name: "max-stale-and-proxy-revalidate",
        right: Brisk,
        section: "5.2.2.8",
        reason: "In a shared cache, a stale response with proxy-revalidate is not used without validation.",
        how: How::Fact(&[Used], |it| {
            it.reason() == Some(Reason::Stale) && it.scenario.shared && it.says("proxy-revalidate")
        }),
    },
    Kind {
        name: "repeated-directives",
        right: Both,
        section: "4.2.1",
        reason: "Of two values of a directive, the first one counts, or the response is stale. For the peer it must be revalidated, too.",
        how: How::Fact(&[Used], |it| {
            it.reason() == Some(Reason::MaxStale) && is_contradicted(&it.scenario.answered)
        }),
    },
    Kind {
        name: "staleness-equals-max-stale",
        right: Brisk,
        section: "5.2.1.2",
        reason: "The client accepts what is stale for no more than this time.",
        how: How::Fact(&[Used], |it| {
            let stale = it
                .brisk
                .map(|brisk| brisk.age.saturating_sub(brisk.lifetime).to_string());
            it.reason() == Some(Reason::MaxStale)
                && all_directives(&it.scenario.asked_again).any(|(name, argument)| {
                    name == "max-stale" && argument.as_deref().map(unquoted) == stale.as_deref()
                })
        }),
    },
    Kind {
        name: "stale-while-revalidate",
        right: Both,
        section: "RFC 5861, 3",
        reason: "A cache may use a stale response while it validates it.",
        how: How::Fact(&[Used], |it| {
            it.reason() == Some(Reason::StaleWhileRevalidate)
        }),
    },
    Kind {
        name: "pragma-of-a-request",
        right: Both,
        section: "5.4",
        reason: "Pragma is deprecated. Cache-Control says what a client wants.",
        how: How::Fact(&[Used], |it| {
            it.is_used_by_brisk() && it.asked_again("pragma").is_some()
        }),
    },
    // Updates.
    Kind {
        name: "invalid-entity-tags",
        right: Brisk,
        section: "RFC 9110, 8.8.3",
        reason: "What is no entity tag is no validator.",
        how: How::Fact(&[Match], |it| {
            let tags = [it.answered("etag"), it.not_modified("etag")];
            tags.into_iter().flatten().any(|tag| !is_entity_tag(tag))
        }),
    },
    Kind {
        name: "strong-tag-of-a-weak-response",
        right: Brisk,
        section: "4.3.4",
        reason: "A 304 with a strong validator is about a response with the same strong validator.",
        how: How::Fact(&[Match], |it| {
            let (new, old) = (it.not_modified("etag"), it.answered("etag"));
            new.is_some_and(|new| !is_weak(new)) && old.is_some_and(is_weak)
        }),
    },
    Kind {
        name: "tag-that-is-not-stored",
        right: Both,
        section: "4.3.4",
        reason: "Of the two weak validators of the 304, one is that of the stored response, and one is not.",
        how: How::Fact(&[Match], |it| {
            it.not_modified("etag").is_some_and(is_weak) && it.answered("etag").is_none()
        }),
    },
    Kind {
        name: "304-without-the-stored-validator",
        right: Both,
        section: "4.3.3",
        reason: "A 304 means that the response that was asked for can be updated, but section 4.3.4 names none.",
        how: How::Fact(&[Match], |it| {
            let policy = it.scenario.policy();
            let has_date =
                policy.is_ok_and(|policy| policy.view().validators().last_modified.is_some());
            it.not_modified("etag").is_none()
                && (it.not_modified("last-modified").is_none() || !has_date)
        }),
    },
    Kind {
        name: "several-lines-of-an-update",
        right: Brisk,
        section: "3.2",
        reason: "All lines of a field are kept, or brought by the 304.",
        how: How::Fact(&[Update], |it| {
            let new = it.scenario.not_modified.as_ref();
            has_several_lines(&it.scenario.answered) || new.is_some_and(has_several_lines)
        }),
    },
    Kind {
        name: "new-fields-of-a-304",
        right: Brisk,
        section: "3.2",
        reason: "A 304 adds the fields that the stored response does not have.",
        how: How::Fact(&[Update], |it| {
            let new = it.scenario.not_modified.as_ref();
            new.is_some_and(|new| {
                new.keys()
                    .any(|name| !it.scenario.answered.contains_key(name))
            })
        }),
    },
    Kind {
        name: "304-without-date",
        right: Brisk,
        section: "RFC 9110, 6.6.1",
        reason: "A 304 without a Date has that of its arrival, and not the stored one.",
        how: How::Fact(&[Update], |it| {
            it.not_modified("date").is_none() && it.answered("date").is_some()
        }),
    },
];

/// Whether a directive comes with two values. For the peer, `a="b", a="b"` is that too.
fn is_contradicted(headers: &HeaderMap) -> bool {
    let all: Vec<_> = all_directives(headers).collect();
    all.iter().enumerate().any(|(at, (name, first))| {
        let first = first.as_deref().map(|first| first.trim().trim_matches('"'));
        let mut later = all.iter().skip(at + 1);
        later.any(|(other, value)| name == other && value.as_deref().map(str::trim) != first)
    })
}

/// A difference that no kind explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unexplained(pub Question);

/// The names of the kinds of the differences, in order.
///
/// # Panics
///
/// If brisk decides otherwise about what means the same.
pub fn explain(scenario: &Scenario) -> Result<Vec<&'static str>, Unexplained> {
    let mut found = Vec::new();
    // First every field gets a spelling that both understand. What is left is no matter of spelling.
    let (mut scenario, mut peer) = (scenario.clone(), scenario.peer());
    let brisk = scenario.brisk();
    if peer == Verdict::Panics {
        return Ok(match brisk {
            Verdict::NotStored => found,
            _ => vec!["huge-ages"],
        });
    }
    for kind in KINDS {
        if let How::Spelling(spell) = kind.how {
            let spelled = scenario.spelled(spell);
            let answer = spelled.peer();
            if answer != peer {
                found.push(kind.name);
            }
            (scenario, peer) = (spelled, answer);
        }
    }
    let again = scenario.brisk();
    assert_eq!(again.without_update(), brisk.without_update(), "{scenario}");
    explain_spelled(&scenario, again, peer, &mut found)?;
    Ok(found)
}

fn explain_spelled(
    scenario: &Scenario,
    brisk: Verdict,
    peer: Verdict,
    found: &mut Vec<&'static str>,
) -> Result<(), Unexplained> {
    let mut look = |question, scenario: &Scenario, (brisk, peer)| {
        let it = Difference {
            scenario,
            brisk,
            peer,
        };
        let kind = KINDS.iter().find(|kind| match kind.how {
            How::Spelling(_) => false,
            How::Fact(questions, is_so) => questions.contains(&question) && is_so(&it),
        });
        let name = kind.ok_or(Unexplained(question))?.name;
        if !found.contains(&name) {
            found.push(name);
        }
        Ok(())
    };
    let both = (brisk.figures(), peer.figures());
    let (Some(ours), Some(theirs)) = both else {
        if both.0.is_some() != both.1.is_some() {
            look(Stored, scenario, both)?;
        }
        return Ok(());
    };
    if ours.age != theirs.age {
        look(Age, scenario, both)?;
    }
    if ours.lifetime != theirs.lifetime {
        look(Lifetime, scenario, both)?;
    }
    // Otherwise it follows from that whether the response is used.
    let as_fresh = (ours.age, ours.lifetime) == (theirs.age, theirs.lifetime);
    if ours.used != theirs.used && as_fresh {
        look(Used, scenario, both)?;
    }
    match (ours.updated, theirs.updated) {
        (Some(Updated::Not), Some(Updated::Not)) => (),
        (Some(ours), Some(theirs)) if ours == Updated::Not || theirs == Updated::Not => {
            look(Match, scenario, both)?;
        }
        (Some(ours), Some(theirs)) => {
            // First what the right fields mean, and then whether the peer has the right fields.
            let merged = scenario.merged().ok_or(Unexplained(Update))?;
            let peer = merged.peer().figures();
            let right = peer.map(|figures| figures.lifetime);
            let of_fields = (figures_of(ours), peer);
            if lifetime_of(ours).is_some() != right.is_some() {
                look(Stored, &merged, of_fields)?;
            } else if lifetime_of(ours) != right {
                look(Lifetime, &merged, of_fields)?;
            }
            if lifetime_of(theirs) != right {
                look(Update, scenario, both)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The lifetime after an update. None if the response is not stored any more.
fn lifetime_of(updated: Updated) -> Option<u64> {
    match updated {
        Updated::To(lifetime) => Some(lifetime),
        Updated::Not | Updated::Refused => None,
    }
}

fn figures_of(updated: Updated) -> Option<Figures> {
    lifetime_of(updated).map(|lifetime| Figures {
        age: 0,
        lifetime,
        used: false,
        updated: None,
    })
}

const METHODS: [&str; 8] = ["GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT"];
const STATUSES: [u16; 20] = [
    200, 200, 200, 200, 200, 200, 200, 201, 203, 204, 206, 301, 302, 304, 403, 404, 410, 416, 500,
    599,
];
const AFTER: [u64; 18] = [
    0,
    0,
    1,
    9,
    10,
    29,
    30,
    59,
    60,
    61,
    99,
    100,
    101,
    360,
    3_600,
    86_400,
    864_000,
    1_000_000_000,
];
const NUMBERS: [&str; 20] = [
    "=60",
    "=60",
    "=60",
    "=60",
    "=0",
    "=1",
    "=30",
    "=100",
    "=\"60\"",
    "=4294967294",
    "=4294967295",
    "=18446744073709551615",
    "=99999999999999999999",
    "",
    "=",
    "=+60",
    "= 60",
    " =60",
    "=-1",
    "=60.5",
];
const OF_RESPONSES: [&str; 16] = [
    "max-age",
    "max-age",
    "max-age",
    "s-maxage",
    "stale-while-revalidate",
    "stale-if-error",
    "no-cache",
    "no-store",
    "private",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "immutable",
    "x",
    "post-check",
];
const OF_REQUESTS: [&str; 8] = [
    "max-age",
    "min-fresh",
    "max-stale",
    "max-stale",
    "no-cache",
    "no-store",
    "only-if-cached",
    "x",
];
const ARGUMENTS: [&str; 12] = [
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "=\"foo\"",
    "=foo",
    "=\"foo, no-store\"",
    "=\"foo\\\", max-age=1\"",
    " foo",
];
const AGES: [&str; 10] = [
    "0",
    "1",
    "10",
    "60",
    "7, 9",
    "+7",
    "-7",
    "x",
    "4294967295",
    "18446744073709551615",
];
const TAGS: [&str; 6] = ["\"1\"", "W/\"1\"", "\"2\"", "W/\"2\"", "1", "\"\u{FC}\""];
const VARY: [&str; 9] = [
    "foo",
    "foo",
    "Foo",
    "foo, accept-language",
    "accept-language",
    "authorization",
    "*",
    "foo, *",
    "foo bar",
];
const FOO: [&str; 6] = ["1", "2", "1,2", "1, 2", "\u{FC}", ""];
const LANGUAGES: [&str; 4] = ["de, en", "en,de", "en;q=0.5, de", "EN"];

/// Makes messages from choices.
struct Making<F> {
    /// A number below another one.
    choose: F,
}

impl<F: FnMut(usize) -> usize> Making<F> {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.choose)(all.len())]
    }

    /// Whether something is so: once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        (self.choose)(times) + 1 == times
    }

    fn add_control(&mut self, headers: &mut HeaderMap, names: &[&str]) {
        for _ in 0..self.of(&[0, 1, 1, 1, 2]) {
            let mut line = String::new();
            for at in 0..self.of(&[1, 2, 3]) {
                if at > 0 {
                    line.push_str(self.of(&[", ", ", ", ", ", ","]));
                }
                let name = self.of(names);
                match self.once_in(12) {
                    true => line.push_str(&name.to_ascii_uppercase()),
                    false => line.push_str(name),
                }
                line.push_str(match has_number(name) || name == "stale-if-error" {
                    true if self.once_in(2) => self.of(&NUMBERS),
                    true => self.of(&NUMBERS[..8]),
                    false => self.of(&ARGUMENTS),
                });
            }
            if self.once_in(24) {
                line.push_str(", \u{FC}");
            }
            add(headers, "cache-control", &line);
        }
    }

    /// A date so many seconds from [`NOW`], or one of those that are odd.
    fn date(&mut self, offsets: &[i64]) -> String {
        let at = NOW.saturating_add_signed(self.of(offsets));
        let text = httpdate::fmt_http_date(peer_time(at));
        let words: Vec<&str> = text.split(' ').collect();
        let &[weekday, day, month, year, clock, _] = &words[..] else {
            unreachable!("six words");
        };
        let short = weekday.trim_end_matches(',');
        let long = [
            "Monday",
            "Tuesday",
            "Wednesday",
            "Thursday",
            "Friday",
            "Saturday",
            "Sunday",
        ];
        let long = long
            .iter()
            .find(|long| long.starts_with(short))
            .expect("it is one");
        let odd = self.of(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        match odd {
            1 => format!("{long}, {day}-{month}-{} {clock} GMT", &year[2..]),
            2 => format!("{short} {month} {day} {clock} {year}"),
            3 => text.replace("GMT", "+0000"),
            4 => text.replace("GMT", "EST"),
            5 => text.to_ascii_lowercase(),
            6 => "0".to_owned(),
            7 => "yesterday".to_owned(),
            8 => "Mon, 01 Jan 1900 00:00:00 GMT".to_owned(),
            9 => "Fri, 31 Dec 9999 23:59:59 GMT".to_owned(),
            10 => format!("{}\u{FC}", text.trim_end_matches('T')),
            _ => text,
        }
    }

    fn request(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.once_in(2) {
            self.add_control(&mut headers, &OF_REQUESTS);
        }
        let fields: [(&str, &[&str], usize); 8] = [
            ("pragma", &["no-cache", "x"], 12),
            ("authorization", &["Basic a", "Basic b"], 6),
            ("foo", &FOO, 3),
            ("foo", &FOO, 10),
            ("accept-language", &LANGUAGES, 4),
            ("range", &["bytes=0-4"], 12),
            ("if-match", &TAGS, 16),
            (
                "if-unmodified-since",
                &["Tue, 14 Nov 2023 22:13:20 GMT"],
                16,
            ),
        ];
        self.add_some(&mut headers, &fields, 1);
        headers
    }

    /// A response that has each field at most once in so many times.
    fn response(&mut self, times: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.add_control(&mut headers, &OF_RESPONSES);
        let dates: [(&str, &[i64], usize); 4] = [
            ("date", &[0, 0, 0, -1, -10, -60, -3_600, 10], 2),
            ("expires", &[-10, 0, 1, 60, 100, 3_600, 1_000_000], 3),
            ("expires", &[60], 16),
            (
                "last-modified",
                &[
                    -1,
                    -9,
                    -10,
                    -100,
                    -3_600,
                    -864_000,
                    -864_010,
                    -900_000_000,
                    10,
                ],
                3,
            ),
        ];
        for (name, offsets, times) in dates {
            if self.once_in(times) {
                let date = self.date(offsets);
                add(&mut headers, name, &date);
            }
        }
        let fields: [(&str, &[&str], usize); 10] = [
            ("age", &AGES, 4),
            ("age", &AGES, 16),
            ("etag", &TAGS, 3),
            ("vary", &VARY, 6),
            ("vary", &VARY, 24),
            ("set-cookie", &["a=b"], 8),
            ("pragma", &["no-cache"], 8),
            ("content-location", &["/a", "/b"], 8),
            ("content-range", &["bytes 0-4/10"], 16),
            (
                "cdn-cache-control",
                &["max-age=10", "no-store", "max-age=x"],
                24,
            ),
        ];
        self.add_some(&mut headers, &fields, times);
        headers
    }

    fn add_some(
        &mut self,
        headers: &mut HeaderMap,
        fields: &[(&'static str, &[&str], usize)],
        times: usize,
    ) {
        for (name, values, of_field) in fields {
            if self.once_in(times.max(*of_field)) {
                add(headers, name, self.of(values));
            }
        }
    }
}

/// Adds a field. The characters of its text are bytes.
fn add(headers: &mut HeaderMap, name: &'static str, text: &str) {
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let value = HeaderValue::from_bytes(bytes.trim_ascii()).expect("the texts are values");
    headers.append(HeaderName::from_static(name), value);
}

impl Scenario {
    /// A scenario of values that mean something. `choose` chooses a number below the one that it is given, and 0 when it
    /// has nothing left to choose with.
    pub fn made(choose: impl FnMut(usize) -> usize) -> Self {
        let mut make = Making { choose };
        let method = |name: &str| name.parse().expect("it is a method");
        let asked = make.request();
        Self {
            shared: make.once_in(2),
            method: method(make.of(&METHODS)),
            status: StatusCode::from_u16(make.of(&STATUSES)).expect("they are statuses"),
            answered: make.response(1),
            came: NOW,
            delay: make.of(&[0, 0, 0, 0, 0, 0, 1, 30]),
            after: make.of(&AFTER),
            method_again: method(make.of(&METHODS)),
            // Most clients ask again as before.
            asked_again: match make.once_in(3) {
                true => make.request(),
                false => asked.clone(),
            },
            not_modified: make.once_in(3).then(|| make.response(4)),
            asked,
        }
    }
}

/// A scenario as text: see `testdata/differential.txt`.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.shared { "shared" } else { "private" })?;
        writeln!(f, "> {}", self.method)?;
        write_fields(f, ">", &self.asked)?;
        writeln!(f, "< {}", self.status.as_u16())?;
        write_fields(f, "<", &self.answered)?;
        if self.delay > 0 {
            writeln!(f, "came after {}", self.delay)?;
        }
        writeln!(f, "after {}", self.after)?;
        writeln!(f, ">> {}", self.method_again)?;
        write_fields(f, ">>", &self.asked_again)?;
        if let Some(fields) = &self.not_modified {
            writeln!(f, "<< 304")?;
            write_fields(f, "<<", fields)?;
        }
        Ok(())
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, sign: &str, headers: &HeaderMap) -> fmt::Result {
    for (name, value) in headers {
        write!(f, "{sign} {name}: ")?;
        for byte in value.as_bytes() {
            match byte {
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                byte => write!(f, "<{byte:02X}>")?,
            }
        }
        writeln!(f)?;
    }
    Ok(())
}

impl Scenario {
    /// The scenario of such a text. None if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scenario = Self {
            shared: false,
            method: Method::GET,
            asked: HeaderMap::new(),
            status: StatusCode::OK,
            answered: HeaderMap::new(),
            came: NOW,
            delay: 0,
            after: 0,
            method_again: Method::GET,
            asked_again: HeaderMap::new(),
            not_modified: None,
        };
        for line in text.lines() {
            let Some((sign, rest)) = line.split_once(' ') else {
                scenario.shared = match line {
                    "shared" => true,
                    "private" => false,
                    _ => return None,
                };
                continue;
            };
            let headers = match (sign, rest.split_once(": ")) {
                ("came", _) => {
                    scenario.delay = rest.strip_prefix("after ")?.parse().ok()?;
                    continue;
                }
                ("after", _) => {
                    scenario.after = rest.parse().ok()?;
                    continue;
                }
                (">", None) => {
                    scenario.method = rest.parse().ok()?;
                    continue;
                }
                (">>", None) => {
                    scenario.method_again = rest.parse().ok()?;
                    continue;
                }
                ("<", None) => {
                    scenario.status = rest.parse().ok()?;
                    continue;
                }
                ("<<", None) => {
                    scenario.not_modified = Some(HeaderMap::new());
                    continue;
                }
                (">", _) => &mut scenario.asked,
                (">>", _) => &mut scenario.asked_again,
                ("<", _) => &mut scenario.answered,
                ("<<", _) => scenario.not_modified.as_mut()?,
                _ => return None,
            };
            let (name, value) = rest.split_once(": ")?;
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                value_of(value)?,
            );
        }
        Some(scenario)
    }
}

/// A value in which `<FC>` is a byte.
fn value_of(text: &str) -> Option<HeaderValue> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        bytes.extend_from_slice(before.as_bytes());
        let (digits, after) = after.split_once('>')?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    HeaderValue::from_bytes(&bytes).ok()
}
