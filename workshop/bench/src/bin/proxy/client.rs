//! A client that checks what servers answer.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection that is kept.
pub struct Client {
    send: SendRequest<Empty<Bytes>>,
    address: SocketAddr,
}

/// What of an answer is compared.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub digest: blake3::Hash,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        let (send, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with an error if the server closes the connection. The next request says so.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { send, address })
    }

    async fn ask(&mut self, path: &str) -> Result<http::Response<hyper::body::Incoming>> {
        let request = Request::get(path).header("host", self.address.to_string());
        self.send.ready().await?;
        let answer = self.send.send_request(request.body(Empty::new())?).await;
        answer.with_context(|| format!("GET http://{}{path}", self.address))
    }

    /// Gets a path, and digests all of its body.
    pub async fn get(&mut self, path: &str) -> Result<Reply> {
        let (head, mut body) = self.ask(path).await?.into_parts();
        let mut hasher = blake3::Hasher::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                hasher.update(&data);
            }
        }
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            digest: hasher.finalize(),
        })
    }

    /// Gets a path, and returns the fields and the body.
    pub async fn body(&mut self, path: &str) -> Result<(HeaderMap, Bytes)> {
        let (head, body) = self.ask(path).await?.into_parts();
        ensure!(
            head.status == StatusCode::OK,
            "{path}: found status {}",
            head.status
        );
        Ok((head.headers, body.collect().await?.to_bytes()))
    }

    /// Gets a path whose body has this length, and forgets it.
    pub async fn drain(&mut self, path: &str, expected: u64) -> Result<()> {
        let (head, mut body) = self.ask(path).await?.into_parts();
        ensure!(
            head.status == StatusCode::OK,
            "{path}: found status {}",
            head.status
        );
        let mut len = 0;
        while let Some(frame) = body.frame().await {
            len += frame?.data_ref().map_or(0, Bytes::len) as u64;
        }
        ensure!(
            len == expected,
            "{path}: found {len} bytes, expected {expected}"
        );
        Ok(())
    }
}
