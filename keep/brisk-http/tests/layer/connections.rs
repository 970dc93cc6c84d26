//! A client of hyper, and connections that break.

use std::io;

use brisk_http::{CacheLayer, CacheService, FetchErrorKind, Options, RequestBody};
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service};

use crate::setup::{all, home, open, request, small, soon, whole};

type Http = Client<HttpConnector, RequestBody<Full<Bytes>>>;

struct Connected {
    _home: TempDir,
    layer: CacheLayer,
    service: CacheService<Http>,
    listener: TcpListener,
    url: String,
}

async fn connected() -> Connected {
    let home = home();
    let layer = CacheLayer::build(open(home.path(), small()), Options::private())
        .memory(100_000)
        .finish();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a", listener.local_addr().unwrap());
    Connected {
        _home: home,
        service: layer.layer(Client::builder(TokioExecutor::new()).build_http()),
        layer,
        listener,
        url,
    }
}

/// Accepts a connection, reads the head of a request, and writes an answer. None: it breaks the connection before.
async fn answer(listener: &TcpListener, bytes: Option<&[u8]>) -> io::Result<Vec<u8>> {
    let (mut stream, _) = listener.accept().await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let Some(bytes) = bytes else {
        return Ok(head);
    };
    stream.write_all(bytes).await?;
    end(stream).await?;
    Ok(head)
}

/// Ends a connection so that all that was written arrives.
async fn end(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = Vec::new();
    // The client may reset it.
    stream.read_to_end(&mut rest).await.ok();
    Ok(())
}

impl Connected {
    fn get(&self) -> brisk_http::ResponseFuture {
        let request = request(&self.url, Method::GET, &[]);
        self.service.clone().call(request)
    }

    async fn is_stored(&self) -> bool {
        soon(self.layer.idle()).await;
        let lines = ["Cache-Control: only-if-cached"];
        let request = request(&self.url, Method::GET, &lines);
        let answer = self.service.clone().call(request).await;
        answer.unwrap().status() == 200
    }
}

fn chunked(chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for chunk in chunks {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[tokio::test]
async fn a_whole_answer_is_stored_and_a_broken_one_is_not() {
    let piece = vec![b'x'; 300_000];
    let whole_chunks = [&chunked(&[b"first", &piece])[..], b"0\r\n\r\n"].concat();
    let no_end = chunked(&[b"first", &piece]);
    let half_chunk = no_end[..no_end.len() - 100].to_vec();
    let bad_size = [&chunked(&[b"first"])[..], b"zz\r\n"].concat();
    let of_len = |len: usize, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: {len}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    for (name, answer_bytes, is_whole) in [
        ("chunks", whole_chunks, true),
        ("chunks without an end", no_end, false),
        ("half a chunk", half_chunk, false),
        ("a chunk without a size", bad_size, false),
        ("a length", of_len(5, b"first"), true),
        ("a long length", of_len(300_000, &piece), true),
        ("too short", of_len(6, b"first"), false),
        ("too short and long", of_len(300_001, &piece), false),
        ("nothing of a body", of_len(5, b""), false),
    ] {
        let connected = connected().await;
        let client = connected.get();
        let serving = answer(&connected.listener, Some(&answer_bytes));
        let read = async {
            let mut response = client.await.unwrap();
            all(&mut response).await
        };
        let (head, (bytes, error)) = soon(async { tokio::join!(serving, read) }).await;
        assert!(head.unwrap().starts_with(b"GET /a HTTP/1.1\r\n"));
        assert_eq!(error.is_none(), is_whole, "{name}: {error:?}");
        if let Some(error) = error {
            assert_eq!(error.kind(), FetchErrorKind::Upstream, "{name}");
        }
        assert!(bytes.len() <= 300_005);
        assert_eq!(connected.is_stored().await, is_whole, "{name}");
        let counts = connected.layer.counts();
        assert_eq!(counts.stored, u64::from(is_whole), "{name}");
        assert_eq!((counts.troubles, counts.unstored), (0, 0), "{name}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_head_is_an_error() {
    let connected = connected().await;
    let client = connected.get();
    let serving = answer(&connected.listener, None);
    let (head, answered) = soon(async { tokio::join!(serving, client) }).await;
    assert!(!head.unwrap().is_empty());
    assert_eq!(answered.unwrap_err().kind(), FetchErrorKind::Upstream);
    // Nobody listens any more.
    let Connected {
        listener,
        service,
        url,
        ..
    } = connected;
    drop(listener);
    let refused = service.clone().call(request(&url, Method::GET, &[]));
    assert_eq!(
        soon(refused).await.unwrap_err().kind(),
        FetchErrorKind::Upstream
    );
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_connection() {
    let connected = connected().await;
    let client = tokio::spawn(connected.get());
    let (mut stream, _) = connected.listener.accept().await.unwrap();
    let mut first = [0; 16];
    stream.read_exact(&mut first).await.unwrap();
    client.abort();
    // It ends, as the fetch does.
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.ok();
    soon(connected.layer.idle()).await;
    let client = connected.get();
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let serving = answer(&connected.listener, Some(bytes));
    let (_, answered) = soon(async { tokio::join!(serving, client) }).await;
    assert_eq!(whole(answered.unwrap()).await.text(), (200, "ok"));
}
