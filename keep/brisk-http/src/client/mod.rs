//! A client: reqwest below the cache.
//!
//! From the outside in: redirects, each hop of which is cached for itself; the cache; retries; a bound for each host;
//! reqwest. So a retry is part of one fetch, and requests that wait for that do not retry by themselves.

mod asynchronous;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "blocking")]
mod blocking_whole_body;
mod hosts;
mod progress;
mod redirect;
mod retries;
mod sender;
mod sent_body;
mod trust;

pub use asynchronous::{Client, ClientBuilder, ResponseUrl};
#[cfg(feature = "blocking")]
pub use blocking::{BlockingBody, BlockingClient};
#[cfg(feature = "blocking")]
pub use blocking_whole_body::BlockingWholeBody;
pub use progress::{Progress, ProgressStep};
pub use retries::Retries;
