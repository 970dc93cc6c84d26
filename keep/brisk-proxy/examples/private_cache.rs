//! `private_cache LISTEN ORIGIN DIR`: what the cache of a client does, where a program that speaks HTTP can see it.
//!
//! It answers at LISTEN for the server at ORIGIN, through a [`CacheLayer`] in private mode in DIR, and passes the rest on.
//! `make conformance` runs the suite of cache tests against it. It is no proxy for use: it bounds nothing, checks nothing
//! and keeps what is one user's.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{CacheBody, CacheLayer, CacheService, Options, RequestBody};
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

type Cached = CacheService<Client<HttpConnector, RequestBody<Incoming>>>;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, origin, directory] = arguments.as_slice() else {
        return Err("usage: private_cache LISTEN ORIGIN DIR".into());
    };
    let listen: SocketAddr = listen.parse()?;
    let origin: Authority = origin.parse()?;
    let cache = Cache::open(Path::new(directory), CacheOptions::new().limit(1 << 30))?;
    let layer = CacheLayer::build(cache, Options::private()).finish();
    let client = layer.layer(Client::builder(TokioExecutor::new()).build_http());
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, origin) = (client.clone(), origin.clone());
        let service = service_fn(move |request| {
            let (client, origin) = (client.clone(), origin.clone());
            async move { Ok::<_, Infallible>(answer(client, origin, request).await) }
        });
        tokio::spawn(async move {
            let server = hyper::server::conn::http1::Builder::new();
            // A client may leave at any time.
            server
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

/// The answer to a request, which goes to the origin if the cache has none.
async fn answer(
    mut client: Cached,
    origin: Authority,
    request: Request<Incoming>,
) -> Response<Either<CacheBody, Full<Bytes>>> {
    match ask(&mut client, origin, request).await {
        Ok(mut response) => {
            of_the_message(response.headers_mut());
            response.map(Either::Left)
        }
        Err(e) => {
            let mut response = Response::new(Either::Right(Full::from(e.to_string())));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

async fn ask(
    client: &mut Cached,
    origin: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<CacheBody>, Failure> {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(origin);
    *request.uri_mut() = Uri::from_parts(uri)?;
    of_the_message(request.headers_mut());
    request.headers_mut().remove(HOST);
    Ok(client.call(request).await?)
}

/// Leaves the fields that are not of one connection alone.
fn of_the_message(headers: &mut HeaderMap) {
    for name in [
        CONNECTION,
        TRANSFER_ENCODING,
        "keep-alive".parse().expect("a name"),
    ] {
        headers.remove(name);
    }
}
