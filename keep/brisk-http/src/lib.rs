/*!
HTTP caching (RFC 9111), decided on the stored bytes: no client, no clock, no parse.

The central type is [`StoredPolicy`], a look at the stored facts of a response. Its [`decide`](StoredPolicy::decide) says
whether the response answers a request, and allocates nothing. [`Policy`] makes such bytes. [`Engine`] is a whole cache
over a [`Storage`], but for the network: it says what to send, and what to do with what comes back.

# Example

```
use brisk_http::{Action, Options, Policy, Request, Response, StoredPolicy, Times, Timestamp};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

let none = HeaderMap::new();
let request = Request { method: &Method::GET, url: "https://example.org/", headers: &none };
let mut fields = HeaderMap::new();
fields.insert("cache-control", HeaderValue::from_static("max-age=60"));
fields.insert("etag", HeaderValue::from_static("\"1\""));
let response = Response { status: StatusCode::OK, headers: &fields };

let options = Options::private();
let noon = Timestamp::from_unix(1_700_000_000);
let policy = Policy::of(&request, &response, Times::at(noon), &options)?;
let bytes = policy.as_bytes();

// Later, in another process.
let stored = StoredPolicy::view(bytes).expect("it was stored");
assert_eq!(stored.decide(&request, noon.plus(59), &options).action, Action::Use);
let decision = stored.decide(&request, noon.plus(60), &options);
assert_eq!(decision.action, Action::Revalidate);
assert_eq!(stored.validators().etag, Some(b"\"1\"".as_slice()));
# Ok::<(), brisk_http::Refusal>(())
```

# Features

All are off by default.

| feature | what it brings |
|---|---|
| `tower` | `CacheLayer`, the cache in front of any client of tower. `WholeBody` reads a response as bytes or text. `CacheService::get_as` keeps a table of yours in place of a body, and gives it back without a parse |
| `reqwest` | `Client`: reqwest with rustls below the layer, with retries, redirects that are cached hop by hop, a bound for each host, and progress |
| `blocking` | `BlockingClient`, for programs without a runtime. It starts one only when a request is sent |
| `json` | `WholeBody::json`: values of serde from bodies in JSON |

# Rules

| specification | what is done |
|---|---|
| RFC 9111 | all of it, for [`Mode::Private`] and [`Mode::Shared`] |
| RFC 5861 | `stale-while-revalidate`, and `stale-if-error` in responses and requests |
| RFC 8246 | a reload sends nothing for a fresh `immutable` response |
| RFC 9211 | `Cache-Status` on every answer of an [`Engine`] |
| RFC 9213 | `CDN-Cache-Control` in shared mode |

Where a choice is left open:

1. Times are whole seconds, rounded down. An age that equals the lifetime is stale. Sums saturate.
2. If a directive comes twice, the first one counts. A directive with an invalid number counts as 0.
3. A response without a lifetime gets 10 % of the time since its last change, at most a day, unless
   [`Options::heuristic`] says otherwise.
4. A stale response is used only if the request, the response or the options allow it.
5. A part is stored only if it is of one range, and only if its length is right. A whole is made of parts only if a strong
   validator joins them.
6. What depends on credentials is stored with a digest of them, made with a [`Secret`], or not at all. Credentials are in
   no key, no message and no `Debug` text. [`Options::credentials`] makes a shared cache keep what a request with
   credentials brought, for them alone.
7. An update may name more fields in `Vary` than the stored response, and not fewer: its body was selected by all of them.
8. A 404, or another negative answer, is used stale only if the request or the options want that.
9. A shared cache gives `Set-Cookie` to others only as long as the response itself is fresh.

# Trust

Requests and responses are untrusted. Nothing here panics on them, and time and memory are a small multiple of their
length. Stored bytes may be damaged: then a view has fewer fields, or matches nothing.

# What this crate does not do

* Send anything without the feature `tower`: then it has no client, no clock and no thread.
* Bound what is stored: see [`brisk_cache::CacheOptions::limit`].
* Complete a response whose body broke off: it is not stored.
*/
#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The examples of the README. One needs these features.
#[cfg(all(doctest, feature = "blocking", feature = "json"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod body_name;
mod cache_status;
#[cfg(feature = "reqwest")]
mod client;
mod credentials;
mod date;
mod decision;
mod directives;
mod engine;
mod entity_tag;
mod explain;
mod head;
mod invalidation;
#[cfg(feature = "tower")]
mod layer;
mod near;
mod options;
mod overrides;
mod policy;
mod range;
mod refusal;
mod reply;
mod secret;
mod selecting;
mod status;
mod storage;
mod stored_policy;
mod target;
mod targeted;
mod timestamp;
mod update;
mod variants;
mod wire;

pub use body_name::{BodyHasher, BodyName};
#[cfg(feature = "blocking")]
pub use client::{BlockingBody, BlockingClient, BlockingWholeBody};
#[cfg(feature = "reqwest")]
pub use client::{Client, ClientBuilder, Progress, ProgressStep, ResponseUrl, Retries};
pub use credentials::Credentials;
pub use decision::{Action, Decision, Failure, Reason};
pub use engine::{Answer, Completion, Engine, Exchange, Found, Keep, Kept, Outcome, Pass, Step};
pub use head::{Request, Response};
pub use invalidation::invalidates;
#[cfg(feature = "tower")]
pub use layer::{
    BodyError, CacheBody, CacheLayer, CacheLayerBuilder, CacheService, FetchCounts, FetchError,
    FetchErrorKind, RequestBody, ResponseFuture, TableAnswer, TableError, TableInput, TableOf,
    TableOptions, TableSource, Upstream, WholeBody,
};
pub use near::is_near_address;
pub use options::{Heuristic, Mode, Options};
pub use overrides::{Override, Overrides};
pub use policy::{Policy, Times};
pub use refusal::Refusal;
pub use reply::{Reply, Validators};
pub use secret::Secret;
pub use storage::{MemoryStorage, Storage, StoredBytes, stored_keys};
pub use stored_policy::{StoredField, StoredPolicy};
pub use timestamp::Timestamp;
pub use update::NotUpdated;
pub use variants::{MOST_VARIANTS, Variants};
