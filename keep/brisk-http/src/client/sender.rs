use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::Body;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tower_service::Service;

use super::hosts::Hosts;
use super::progress::{Hook, ProgressStep};
use super::sent_body::SentBody;
use crate::layer::RequestBody;

/// Makes the client of reqwest.
pub(crate) type Connect = dyn Fn() -> reqwest::Result<reqwest::Client> + Send + Sync;

/// Sends requests by reqwest, a bounded number to each host at once.
#[derive(Clone)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

struct Shared {
    /// Made when the first request is sent: that takes longer than many a hit.
    client: OnceCell<reqwest::Client>,
    connect: Arc<Connect>,
    hosts: Hosts,
    hook: Hook,
}

impl Sender {
    pub(crate) fn new(connect: Arc<Connect>, hosts: Hosts, hook: Hook) -> Self {
        Self {
            shared: Arc::new(Shared {
                client: OnceCell::new(),
                connect,
                hosts,
                hook,
            }),
        }
    }
}

impl Shared {
    async fn client(&self) -> reqwest::Result<&reqwest::Client> {
        let connect = || async {
            let connect = Arc::clone(&self.connect);
            match spawn_blocking(move || connect()).await {
                Ok(client) => client,
                Err(e) => match e.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends, and drops this future soon.
                    Err(_) => std::future::pending().await,
                },
            }
        };
        self.client.get_or_try_init(connect).await
    }

    async fn send(
        &self,
        request: http::Request<RequestBody<reqwest::Body>>,
    ) -> reqwest::Result<http::Response<SentBody>> {
        let url = request.uri().to_string();
        let permit = self.hosts.permit(request.uri()).await;
        let client = self.client().await?;
        let body = |body: RequestBody<reqwest::Body>| match body.into_inner() {
            Some(body) => body,
            None => reqwest::Body::from(""),
        };
        self.hook.tell(&url, ProgressStep::Sent);
        let sent = client
            .execute(reqwest::Request::try_from(request.map(body))?)
            .await;
        let response = match sent {
            Ok(response) => http::Response::<reqwest::Body>::from(response),
            Err(e) => {
                self.hook.tell(&url, ProgressStep::BrokenOff);
                return Err(e);
            }
        };
        let step = ProgressStep::Answered {
            status: response.status(),
            len: response.body().size_hint().exact(),
        };
        self.hook.tell(&url, step);
        let hook = self.hook.clone();
        Ok(response.map(|body| SentBody::new(body, permit, hook, url)))
    }
}

impl Service<http::Request<RequestBody<reqwest::Body>>> for Sender {
    type Response = http::Response<SentBody>;
    type Error = reqwest::Error;
    type Future = Pin<Box<dyn Future<Output = reqwest::Result<http::Response<SentBody>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<reqwest::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody<reqwest::Body>>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.send(request).await })
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("client", &self.shared.client.get())
            .field("hosts", &self.shared.hosts)
            .finish_non_exhaustive()
    }
}
