use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::body::BodyError;
use crate::connector::Connector;
use brisk_http::is_near_address;

/// Connects to hosts that pages name, and to none that is this machine or of its link.
///
/// A name says nothing of where it leads, and may lead elsewhere the next time. So the connection is judged, before
/// anything is sent. Through a proxy, it is the proxy that finds out where a name leads.
#[derive(Clone)]
pub struct FarConnector(Connector);

/// A name leads to this machine or its link.
#[derive(Debug)]
struct Near(IpAddr);

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its address is {}, which is of this machine or its link, where a page must not lead; if it is right, give it a \
             map of its own",
            self.0
        )
    }
}

impl std::error::Error for Near {}

impl FarConnector {
    /// Connects by this one.
    pub fn new(connector: Connector) -> Self {
        Self(connector)
    }
}

impl Service<Uri> for FarConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BodyError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let is_straight = self.0.is_straight(&url);
        let connecting = self.0.call(url);
        Box::pin(async move {
            let stream = connecting.await?;
            if !is_straight {
                return Ok(stream);
            }
            let peer = stream.inner().peer_addr()?.ip();
            let own = stream.inner().local_addr()?.ip();
            // Who asks one of its own addresses asks from the same one.
            match is_near_address(peer) || peer == own {
                true => Err(Near(peer).into()),
                false => Ok(stream),
            }
        })
    }
}
