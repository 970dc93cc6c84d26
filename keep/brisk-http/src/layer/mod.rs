//! The cache in front of a client: one layer of tower.
//!
//! A hit is answered at once, by the task that asks. A miss is a *fetch*: a task of its own, which the requests of this
//! process for the same URL share. They get the bytes as they come. Over processes, one fetches at a time.

mod body_error;
mod cache_body;
mod cache_layer;
mod counts;
mod directory;
mod fetch;
mod fetch_error;
mod fetches;
mod get_as;
mod long_body;
mod request_body;
mod service;
mod spool;
mod table_answer;
mod unless;
mod upstream;
pub(crate) mod whole_body;

pub use body_error::BodyError;
pub use cache_body::CacheBody;
#[cfg(feature = "reqwest")]
pub(crate) use cache_layer::system_time;
pub use cache_layer::{CacheLayer, CacheLayerBuilder};
pub use counts::FetchCounts;
#[cfg(feature = "blocking")]
pub(crate) use fetch::joined;
pub use fetch_error::{FetchError, FetchErrorKind};
pub use get_as::{TableInput, TableOptions};
pub use request_body::RequestBody;
pub use service::{CacheService, ResponseFuture};
pub use table_answer::{TableAnswer, TableError, TableOf, TableSource};
pub use upstream::Upstream;
pub use whole_body::WholeBody;
