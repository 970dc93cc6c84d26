//! Connections to upstreams: straight, or through the proxy that `https_proxy` names.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::body::BodyError;

/// Connects, as the variables `https_proxy`, `all_proxy` and `no_proxy` say, in lower or upper case.
#[derive(Clone)]
pub struct Connector {
    straight: HttpConnector,
    proxies: Arc<Matcher>,
}

impl Connector {
    /// With the variables of this process.
    pub fn new(straight: HttpConnector) -> Self {
        Self {
            straight,
            proxies: Arc::new(Matcher::from_env()),
        }
    }

    /// Whether the host of a URL is asked without a proxy between.
    pub fn is_straight(&self, url: &Uri) -> bool {
        self.proxy(url).is_none()
    }

    /// The proxy of a URL. An upstream without TLS is asked straight: a proxy would see and change what it says.
    fn proxy(&self, url: &Uri) -> Option<Intercept> {
        match url.scheme_str() {
            Some("https") => self.proxies.intercept(url),
            _ => None,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.straight.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let Some(proxy) = self.proxy(&url) else {
            let connecting = self.straight.call(url);
            return Box::pin(async move { Ok(connecting.await?) });
        };
        // It has no user and no password.
        let name = proxy.uri().to_string();
        if proxy.uri().scheme_str() != Some("http") {
            let reason = "https_proxy and all_proxy can only name a proxy with http://";
            return Box::pin(async move { Err(ProxyError::new(&name, &reason).into()) });
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.straight.clone());
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let connecting = tunnel.call(url);
        Box::pin(async move {
            let connected = connecting.await;
            connected.map_err(|e| ProxyError::new(&name, &e).into())
        })
    }
}

/// A proxy that leads nowhere.
#[derive(Debug)]
struct ProxyError(String);

impl ProxyError {
    fn new(proxy: &str, reason: &dyn fmt::Display) -> Self {
        Self(format!("the proxy {proxy} gives no connection: {reason}"))
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProxyError {}
