use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use brisk_cache::Stored;
use bytes::{Buf, Bytes};
use http_body::Body;
use tokio::runtime::{Builder, Runtime};

use super::asynchronous::{Client, ResponseUrl};
use crate::engine::Step;
use crate::head::Request;
use crate::layer::{
    CacheBody, FetchError, TableAnswer, TableError, TableInput, TableOptions, joined,
};

/// A [`Client`] for programs without a runtime.
///
/// The calling thread looks into the cache by itself. So a program whose answers are all stored starts no runtime, no
/// thread and no TLS. Only when a request is sent, this makes a runtime of its own, with one thread, which also stores what
/// comes while the caller reads it.
///
/// It must not be used, or dropped, by a task of a runtime.
#[derive(Debug)]
pub struct BlockingClient {
    client: Client,
    runtime: Arc<OnceLock<Runtime>>,
}

impl From<Client> for BlockingClient {
    fn from(client: Client) -> Self {
        Self {
            client,
            runtime: Arc::default(),
        }
    }
}

impl BlockingClient {
    /// The client of tasks.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn runtime(&self) -> io::Result<&Runtime> {
        started(&self.runtime)
    }

    /// Gets a URL.
    ///
    /// # Errors
    ///
    /// As [`BlockingClient::send`].
    pub fn get(&self, url: &str) -> Result<http::Response<BlockingBody>, FetchError> {
        let request = http::Request::get(url).body(reqwest::Body::from(""));
        self.send(request.map_err(FetchError::upstream)?)
    }

    /// Answers a request from the cache, or sends it: see [`Client::send`].
    ///
    /// # Errors
    ///
    /// As [`Client::send`], and if no runtime can be made.
    pub fn send(
        &self,
        request: http::Request<reqwest::Body>,
    ) -> Result<http::Response<BlockingBody>, FetchError> {
        let response = match self.stored(&request) {
            Some(response) => response,
            None => {
                let runtime = self.runtime().map_err(FetchError::upstream)?;
                runtime.block_on(self.client.send(request))?
            }
        };
        Ok(response.map(|body| BlockingBody {
            body,
            piece: Bytes::new(),
            runtime: Arc::clone(&self.runtime),
        }))
    }

    /// What is stored, if it is a whole answer and leads nowhere else.
    fn stored(&self, request: &http::Request<reqwest::Body>) -> Option<http::Response<CacheBody>> {
        if !request.body().is_end_stream() {
            return None;
        }
        let shared = &self.client.layer().shared;
        let url = request.uri().to_string();
        let asked = Request {
            method: request.method(),
            url: &url,
            headers: request.headers(),
        };
        if shared.fetches.stored(&url).is_some() {
            // A response that is being stored is waited for by the other client.
            return None;
        }
        match shared.engine.begin(&asked, shared.now()) {
            Ok(Step::Answer(answer)) if !answer.status.is_redirection() => {
                shared.counts.add_hit();
                let mut response = shared.respond(answer, Some(&url));
                response.extensions_mut().insert(ResponseUrl(url));
                Some(response)
            }
            _ => None,
        }
    }

    /// Gets a URL as a table: see [`Client::get_as`]. A fresh one needs no runtime.
    ///
    /// # Errors
    ///
    /// As [`Client::get_as`], and if no runtime can be made.
    pub fn get_as<T, E>(
        &self,
        request: http::Request<()>,
        options: &TableOptions,
        make: impl Fn(&TableInput<'_>) -> Result<Vec<u8>, E> + Clone + Send + 'static,
    ) -> Result<TableAnswer<T>, TableError<E>>
    where
        T: Stored + 'static,
        E: Send + 'static,
    {
        let url = request.uri().to_string();
        let asked = Request {
            method: request.method(),
            url: &url,
            headers: request.headers(),
        };
        if let Some(found) = self.client.layer().find_as(&asked) {
            return Ok(TableAnswer::Table(found));
        }
        let runtime = self.runtime().map_err(FetchError::upstream)?;
        runtime.block_on(self.client.get_as(request, options, make))
    }

    /// Waits until all is stored that will be. Without a request that was sent, it returns at once.
    pub fn idle(&self) {
        if let Some(runtime) = self.runtime.get() {
            runtime.block_on(self.client.idle());
        }
    }
}

/// The runtime, which is made when it is first needed.
fn started(runtime: &OnceLock<Runtime>) -> io::Result<&Runtime> {
    if let Some(runtime) = runtime.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("brisk-http")
        .enable_all()
        .build()?;
    // Another thread may have been faster. Then this one goes.
    Ok(runtime.get_or_init(|| made))
}

/// The body of a response of a [`BlockingClient`]. That of a hit copies nothing until it is read.
#[derive(Debug)]
pub struct BlockingBody {
    body: CacheBody,
    piece: Bytes,
    runtime: Arc<OnceLock<Runtime>>,
}

impl BlockingBody {
    /// The next bytes, as they come or as they lie in the cache. None: there are no more.
    ///
    /// # Errors
    ///
    /// [`FetchError`], if the body breaks off or what is stored is damaged.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, FetchError> {
        if !self.piece.is_empty() {
            return Ok(Some(std::mem::take(&mut self.piece)));
        }
        loop {
            let frame = match self.body.stored() {
                Some(_) => next_stored_frame(&mut self.body),
                None if self.body.is_end_stream() => return Ok(None),
                None => {
                    let runtime = started(&self.runtime).map_err(FetchError::upstream)?;
                    runtime.block_on(next_frame(&mut self.body))
                }
            };
            match frame.transpose()? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// All of it. A hit in one piece is not copied.
    ///
    /// # Errors
    ///
    /// As [`BlockingBody::next_piece`].
    pub fn into_bytes(self) -> Result<Bytes, FetchError> {
        Ok(self.all(u64::MAX)?.unwrap_or_default())
    }

    /// All of it. None if it has more than `most` bytes.
    pub(crate) fn all(mut self, most: u64) -> Result<Option<Bytes>, FetchError> {
        if self.body.size_hint().lower() > most {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        let mut found: u64 = 0;
        while let Some(piece) = self.next_piece()? {
            found = found.saturating_add(piece.len() as u64);
            if found > most {
                return Ok(None);
            }
            pieces.push(piece);
        }
        Ok(Some(joined(pieces)))
    }
}

type Frame = Option<Result<http_body::Frame<Bytes>, FetchError>>;

async fn next_frame(body: &mut CacheBody) -> Frame {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await
}

/// The next bytes of a stored body, which are there at once.
fn next_stored_frame(body: &mut CacheBody) -> Frame {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(body).poll_frame(&mut context) {
        std::task::Poll::Ready(frame) => frame,
        std::task::Poll::Pending => None,
    }
}

impl Read for BlockingBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            self.piece = self
                .next_piece()
                .map_err(io::Error::other)?
                .unwrap_or_default();
        }
        let count = self.piece.len().min(buf.len());
        if let Some(target) = buf.get_mut(..count) {
            self.piece.copy_to_slice(target);
        }
        Ok(count)
    }
}
