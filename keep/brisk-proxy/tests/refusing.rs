//! What the proxy refuses, over raw sockets.

mod staging;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::net::{AddressFamily, SocketType};

use staging::program::outcome;
use staging::{Answer, Program, Reply, Upstream, exchange, get, get_with, request};

fn upstream() -> Upstream {
    Upstream::start(|asked| Answer::of(200, &[], format!("{} {}", asked.target, asked.body.len())))
}

#[test]
fn requests_that_others_read_otherwise_are_refused() {
    let upstream = upstream();
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    for (request, status) in [
        ("GET /x HTTP/1.1\nhost: a\n\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\r\nx: y\r\n folded\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\r\n x: y\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\r\nx\0y: z\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\r\nx: y\rz\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET /x HTTP/1.1\r\n\r\n", 400),
        ("GET  /x HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET /x HTTP/1.1 \r\nhost: a\r\n\r\n", 400),
        ("GET /x\r\n\r\n", 400),
        ("GET /x HTTP/2.0\r\nhost: a\r\n\r\n", 505),
        ("GET http://a/x HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n", 405),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 3\r\n\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: +3\r\n\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\nabc",
            400,
        ),
        (
            "PUT /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 3\r\n\r\n",
            400,
        ),
    ] {
        // What stands behind must never be taken for a request.
        let smuggled = format!("{request}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = exchange(proxy.address, smuggled.as_bytes());
        let (reply, rest) = Reply::read(&answer, true).unwrap_or_else(|| panic!("{request:?}"));
        assert_eq!(reply.status, status, "{request:?}: {}", reply.text());
        assert!(
            reply.text().starts_with("brisk proxy: "),
            "{request:?}: {}",
            reply.text()
        );
        assert_eq!(reply.field("connection"), "close", "{request:?}");
        assert!(
            rest.is_empty(),
            "{request:?}: {}",
            String::from_utf8_lossy(rest)
        );
    }
    let asked = upstream.asked();
    assert!(
        asked.iter().all(|asked| asked.body == "(broken off)"),
        "{asked:?}"
    );
}

#[test]
fn requests_before_a_refused_one_are_answered() {
    let upstream = upstream();
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let good = "PUT /good HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\r\n";
    let bad =
        "GET /bad HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = exchange(proxy.address, format!("{good}{good}{bad}{good}").as_bytes());
    let (first, rest) = Reply::read(&answer, true).unwrap();
    let (second, rest) = Reply::read(rest, true).unwrap();
    let (third, rest) = Reply::read(rest, true).unwrap();
    assert_eq!([first.status, second.status, third.status], [200, 200, 400]);
    assert_eq!(first.text(), "/good 3");
    assert!(rest.is_empty());
}

#[test]
fn heads_and_bodies_have_bounds() {
    let upstream = upstream();
    let map = format!("/={}", upstream.url());
    let proxy = Program::start(&["--map", &map, "--upload-limit", "1K"]);
    let long = "a".repeat(9000);
    assert_eq!(get(proxy.address, &format!("/{long}")).status, 414);
    let fields = vec![("x", "y"); 101];
    assert_eq!(get_with(proxy.address, "/", &fields).status, 431);
    assert_eq!(
        get_with(proxy.address, "/", &[("x", &"a".repeat(40_000))]).status,
        431
    );
    assert_eq!(
        request(proxy.address, "PUT", "/", &[], &[0; 1024]).status,
        200
    );
    let reply = request(proxy.address, "PUT", "/", &[], &[0; 1025]);
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert!(reply.text().contains("--upload-limit"));
    let chunked = "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("401\r\n{}\r\n0\r\n\r\n", "a".repeat(0x401));
    let answer = exchange(proxy.address, format!("{chunked}{chunk}").as_bytes());
    assert_eq!(Reply::read(&answer, true).unwrap().0.status, 413);
}

/// What a client has for each piece in these tests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects and sends within the time that the proxy waits. On a slow machine that may take several tries. Returns the time
/// before, too.
fn send_in_time(address: SocketAddr, text: &str) -> (TcpStream, Instant) {
    loop {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        // The proxy may have closed it.
        let sent = stream.write_all(text.as_bytes());
        if begun.elapsed() < PATIENCE {
            sent.unwrap();
            return (stream, begun);
        }
    }
}

/// Without the option, the proxy would wait for a minute.
const LESS_THAN_DEFAULT: Duration = Duration::from_secs(50);

#[test]
fn slow_clients_are_not_waited_for() {
    let upstream = upstream();
    let map = format!("/={}", upstream.url());
    let proxy = Program::start(&["--map", &map, "--client-timeout", "1s"]);
    for (sent, status) in [
        ("GET / HTTP/1.1\r\nho", Some(408)),
        (
            "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc",
            Some(408),
        ),
        ("PRI * HTTP/2.0\r\n\r\nS", Some(408)),
        ("", None),
    ] {
        let (mut stream, begun) = send_in_time(proxy.address, sent);
        stream.set_read_timeout(Some(LESS_THAN_DEFAULT)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let reply = Reply::read(&answer, true).map(|(reply, _)| reply.status);
        assert_eq!(reply, status, "{sent:?}");
        assert!(begun.elapsed() >= PATIENCE, "{sent:?}");
    }
}

#[test]
fn a_client_that_waits_for_its_answer_may_be_silent() {
    let upstream =
        Upstream::start(|_| Answer::of(200, &[], "late").after(Duration::from_millis(2500)));
    let map = format!("/={}", upstream.url());
    let proxy = Program::start(&["--map", &map, "--client-timeout", "1s"]);
    let text = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let (mut stream, _) = send_in_time(proxy.address, text);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Reply::read(&answer, true).unwrap().0.text(), "late");
}

#[test]
fn others_are_refused_unless_they_are_allowed() {
    let home = tempfile::tempdir().unwrap();
    let map = ["--map", "/=http://127.0.0.1:9"];
    let run = |args: &[&str]| outcome(home.path(), &[&map[..], args].concat(), &[]);
    let (code, _, message) = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("say which may ask with --allow NET, or with --token-file FILE"),
        "{message}"
    );
    let (code, _, message) = run(&["--listen", "127.0.0.1:0", "--allow", "10.0.0.0/33"]);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("--allow 10.0.0.0/33: 10.0.0.0/33 has 33 bits; allowed are at most 32"),
        "{message}"
    );
    let token = home.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let path = token.to_str().unwrap();
    let (code, _, message) = run(&["--listen", "127.0.0.1:0", "--token-file", path]);
    assert_eq!(code, Some(2));
    assert!(message.contains("chmod 600 it"), "{message}");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let upstream = upstream();
    let proxy = Program::start(&[
        "--map",
        &format!("/={}", upstream.url()),
        "--token-file",
        path,
    ]);
    let refused = get(proxy.address, "/x");
    assert_eq!(
        (refused.status, refused.field("www-authenticate")),
        (401, "Basic realm=\"brisk proxy\"")
    );
    let basic = [("authorization", "Basic YnJpc2s6MDEyMzQ1Njc4OWFiY2RlZg==")];
    assert_eq!(get_with(proxy.address, "/x", &basic).status, 200);
    assert!(!upstream.asked()[0].headers.contains_key("authorization"));
}

#[test]
fn own_pages_answer_this_machine_alone() {
    let proxy = Program::mapping("/=http://127.0.0.1:9");
    for (host, status) in [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:1", 200),
        ("rebound.example", 403),
    ] {
        for target in ["/-/", "/-/metrics"] {
            let reply = get_with(proxy.address, target, &[("host", host)]);
            assert_eq!(reply.status, status, "{host} {target}");
        }
    }
    assert_eq!(get(proxy.address, "/-/other").status, 404);
    assert_eq!(request(proxy.address, "POST", "/-/", &[], b"x").status, 405);
    let open = Program::start(&["--map", "/=http://127.0.0.1:9", "--open-pages"]);
    assert_eq!(
        get_with(open.address, "/-/metrics", &[("host", "a.example")]).status,
        200
    );
}

/// A client of HTTP/2.
async fn http2<B>(address: std::net::SocketAddr, window: u32) -> http2::SendRequest<B>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn asked(address: std::net::SocketAddr, method: &str) -> http::request::Builder {
    let url = format!("http://{address}/x");
    http::Request::builder().method(method).uri(url)
}

#[test]
fn http2_has_the_bounds_of_http1() {
    let upstream = Upstream::start(|asked| match asked.method.as_str() {
        "GET" => Answer::of(200, &[], vec![7; 1 << 20]),
        _ => Answer::of(200, &[], "taken"),
    });
    let map = format!("/={}", upstream.url());
    let proxy = Program::start(&[
        "--map",
        &map,
        "--client-timeout",
        "3s",
        "--upload-limit",
        "1K",
    ]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bounded = http2_is_bounded(proxy.address);
    let most = Duration::from_secs(60);
    let ended = runtime.block_on(async { tokio::time::timeout(most, bounded).await });
    ended.expect("the proxy waits for ever");
}

async fn http2_is_bounded(address: std::net::SocketAddr) {
    let mut sender = http2(address, 1 << 20).await;
    // Heads.
    for (count, length, expected) in [(90, 1, 200), (101, 1, 431), (1, 40_000, 431)] {
        let value = "a".repeat(length);
        let mut request = asked(address, "PUT");
        for _ in 0..count {
            request = request.header("x", &value);
        }
        let request = request.body(Full::new(Bytes::new()).boxed()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, expected, "{count} {length} {text:?}");
        if count > 100 {
            // Upstreams have bounds of their own.
            assert_eq!(text, "brisk proxy: the head has more than 100 fields\n");
        }
    }
    let request = asked(address, "PUT").body(Full::new(Bytes::from(vec![0; 1025])).boxed());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 413);
    // A body that does not come. The connection goes on.
    let (body, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
    let silent = Silent(pieces).boxed();
    let answer = sender
        .send_request(asked(address, "PUT").body(silent).unwrap())
        .await;
    assert_eq!(answer.unwrap().status(), 408);
    drop(body);
    let request = asked(address, "PUT")
        .body(Full::new(Bytes::new()).boxed())
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    // A client that takes nothing of its answer, and says by pings that it is there.
    let mut sender = http2(address, 64 * 1024).await;
    let request = asked(address, "GET")
        .body(Full::new(Bytes::new()).boxed())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let closed = async {
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    closed.await;
    let mut body = answer.into_body();
    let mut come = 0;
    while let Some(Ok(frame)) = body.frame().await {
        come += frame.data_ref().map_or(0, Bytes::len);
    }
    assert!(come < 1 << 20, "{come}");
}

/// A body of pieces that nobody sends.
struct Silent(tokio::sync::mpsc::Receiver<Bytes>);

impl hyper::body::Body for Silent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[test]
fn one_client_does_not_take_all_connections() {
    let upstream = upstream();
    let map = format!("/={}", upstream.url());
    let proxy = Program::start(&["--map", &map, "--connections", "4"]);
    let asks = |stream: &mut TcpStream| {
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // The proxy may have closed the connection already.
        stream.write_all(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n").ok();
        let mut start = [0; 12];
        stream.read_exact(&mut start).is_ok() && start == *b"HTTP/1.1 200"
    };
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        assert!(asks(&mut stream));
        held.push(stream);
    }
    for _ in 0..8 {
        assert!(!asks(&mut TcpStream::connect(proxy.address).unwrap()));
    }
    let expected = "127.0.0.1 has 2 connections, and more of them are closed";
    let begun = Instant::now();
    while !proxy.messages().contains(expected) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{}",
            proxy.messages()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // Another client has room.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let other: std::net::SocketAddr = "127.0.0.2:0".parse().unwrap();
    rustix::net::bind(&socket, &other).unwrap();
    rustix::net::connect(&socket, &proxy.address).unwrap();
    assert!(asks(&mut TcpStream::from(socket)));
    // A place that is given back is free.
    drop(held);
    let begun = Instant::now();
    while !asks(&mut TcpStream::connect(proxy.address).unwrap()) {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_cache_of_another_user_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let run = || {
        let args = [
            "--map",
            "/=http://127.0.0.1:9",
            "--cache",
            "own",
            "--pass-field",
            "no name",
        ];
        outcome(home.path(), &args, &[]).2
    };
    let (cache, secret) = (home.path().join("own"), home.path().join("own/secret"));
    let chown =
        |path: &std::path::Path, owner| std::os::unix::fs::chown(path, Some(owner), None).unwrap();
    let chmod = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(&cache).unwrap();
    chown(&cache, 12345);
    let message = run();
    assert!(
        message.contains(
            "own: the directory of the cache belongs to user 12345, and the proxy runs as user 0"
        ),
        "{message}"
    );
    chown(&cache, 0);
    chmod(0o777);
    let message = run();
    assert!(
        message.contains("own: every user may write to the directory of the cache (mode 777)"),
        "{message}"
    );
    chmod(0o700);
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .mode(0o600)
        .open(&secret)
        .unwrap();
    file.write_all(&[7; 32]).unwrap();
    chown(&secret, 12345);
    let args = [
        "--map",
        "/=http://127.0.0.1:9",
        "--cache",
        "own",
        "--pass-field",
        "no name",
    ];
    let (code, _, message) = outcome(home.path(), &args, &[]);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("own/secret: the secret of the cache belongs to user 12345"),
        "{message}"
    );
}

#[test]
fn other_protocols_are_refused() {
    let upstream = upstream();
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let fields = [("upgrade", "websocket"), ("sec-websocket-key", "x")];
    assert_eq!(get_with(proxy.address, "/", &fields).status, 501);
    assert_eq!(request(proxy.address, "TRACE", "/", &[], b"").status, 405);
    assert!(upstream.asked().is_empty());
}
