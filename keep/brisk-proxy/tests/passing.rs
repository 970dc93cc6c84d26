//! What passes through the proxy, and in which form.

mod staging;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use staging::program::outcome;
use staging::{
    Answer, HANG, Program, Reply, Upstream, exchange, get, get_by_halves, get_with, request,
};

/// An upstream that says what it is asked.
fn echo() -> Upstream {
    Upstream::start(|asked| {
        Answer::of(
            200,
            &[("x-own", "1")],
            format!("{} {}", asked.method, asked.target),
        )
    })
}

const LEAVES: &str = "brisk proxy: the path may leave its map: it has a segment . or .., a backslash or a zero byte, or it \
                      is escaped more than four times\n";

#[test]
fn the_longest_prefix_counts() {
    let (one, two) = (
        echo(),
        Upstream::start(|asked| Answer::of(200, &[], format!("two {}", asked.target))),
    );
    let (one_map, two_map) = (format!("/a={}/x", one.url()), format!("/a/b={}", two.url()));
    let proxy = Program::start(&["--map", &one_map, "--map", &two_map]);
    for (target, status, body) in [
        ("/a/c?d=e", 200, "GET /x/c?d=e"),
        ("/a/%2F", 200, "GET /x/%2F"),
        ("/a/@scope%2fname", 200, "GET /x/@scope%2fname"),
        ("/a/%252e.%41", 200, "GET /x/%252e.%41"),
        ("/a", 200, "GET /x"),
        ("/a/b", 200, "two /"),
        ("/a/b/c", 200, "two /c"),
        (
            "/ab",
            404,
            "brisk proxy: nothing is mapped to this path; mapped are /a/b/, /a/\n",
        ),
        ("/a/../c", 400, LEAVES),
        ("/a/%2e%2E/c", 400, LEAVES),
        ("/a/..%2fc", 400, LEAVES),
        ("/a/..%5cc", 400, LEAVES),
        ("/a/%252e%252e/c", 400, LEAVES),
        ("/a/x%00", 400, LEAVES),
        ("/a/..;x/c", 400, LEAVES),
    ] {
        let reply = get(proxy.address, target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, body),
            "{target}"
        );
    }
    // A redirect to such a path stays what it was: it does not become one of the map.
    let upstream = Upstream::start(|_| Answer::of(302, &[("location", "/x/..%2fsecret")], ""));
    let proxy = Program::mapping(&format!("/a={}/x", upstream.url()));
    let reply = get(proxy.address, "/a/c");
    assert_eq!(reply.field("location"), "/x/..%2fsecret");
}

#[test]
fn fields_that_steer_an_upstream_stay_here() {
    let upstream = Upstream::start(|asked| {
        let host = asked.headers.get("x-forwarded-host");
        let host = host.map_or("nothing", |host| host.to_str().unwrap());
        Answer::of(200, &[("cache-control", "max-age=60")], host.to_owned())
    });
    let map = format!("/={}", upstream.url());
    let steering = [
        ("x-forwarded-host", "evil.example"),
        ("x-original-url", "/admin"),
        ("x-http-method-override", "DELETE"),
        ("forwarded", "host=evil.example"),
    ];
    let proxy = Program::mapping(&map);
    assert_eq!(get_with(proxy.address, "/", &steering).text(), "nothing");
    assert_eq!(get(proxy.address, "/").text(), "nothing");
    let names: Vec<String> = upstream.asked()[0]
        .headers
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["via", "host"]);
    let proxy = Program::start(&["--map", &map, "--pass-field", "X-Forwarded-Host"]);
    assert_eq!(
        get_with(proxy.address, "/", &steering).text(),
        "evil.example"
    );
    let home = tempfile::tempdir().unwrap();
    let (code, _, message) = outcome(home.path(), &["--map", &map, "--pass-field", "a b"], &[]);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("--pass-field \"a b\": allowed is"),
        "{message}"
    );
}

#[test]
fn answers_stream_while_they_come() {
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&pieces);
    let upstream = Upstream::start(move |_| {
        let (sender, answer) = Answer::streamed(200, &[]);
        sender.send(Ok(Bytes::from_static(b"first "))).unwrap();
        kept.lock().unwrap().push(sender);
        answer
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut come = Vec::new();
    while !come.ends_with(b"first \r\n") {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&come));
        come.extend_from_slice(&piece[..length]);
    }
    // Only now the upstream sends more.
    let sender = pieces.lock().unwrap().pop().unwrap();
    sender.send(Ok(Bytes::from_static(b"second"))).unwrap();
    drop(sender);
    stream.read_to_end(&mut come).unwrap();
    let (reply, _) = Reply::read(&come, true).unwrap();
    assert_eq!((reply.text().as_str(), reply.whole), ("first second", true));
}

#[test]
fn large_bodies_pass_both_ways_unchanged() {
    let upstream = Upstream::start(|asked| Answer::of(200, &[], asked.body.clone()));
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let body: Vec<u8> = (0..20_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let reply = request(proxy.address, "PUT", "/", &[], &body);
    assert_eq!(reply.status, 200);
    assert!(reply.body == body);
    let mut chunked =
        b"PUT / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for chunk in body.chunks(100_000) {
        chunked.extend(format!("{:x};x=y\r\n", chunk.len()).into_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nx-trailer: 1\r\n\r\n");
    let answer = exchange(proxy.address, &chunked);
    assert!(Reply::read(&answer, true).unwrap().0.body == body);
}

#[test]
fn fields_of_a_connection_stay_with_it() {
    let upstream = Upstream::start(|_| {
        Answer::of(
            200,
            &[
                ("keep-alive", "1"),
                ("connection", "x-own"),
                ("x-own", "1"),
                ("x-end", "2"),
            ],
            "",
        )
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let fields = [
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eA=="),
        ("authorization", "Basic eQ=="),
        ("x-end", "1"),
    ];
    let reply = get_with(proxy.address, "/", &fields);
    assert_eq!(
        (
            reply.field("keep-alive"),
            reply.field("x-own"),
            reply.field("x-end")
        ),
        ("", "", "2")
    );
    assert!(reply.field("via").starts_with("1.1 brisk-"), "{reply:?}");
    let asked = &upstream.asked()[0].headers;
    for (name, expected) in [
        ("te", None),
        ("upgrade", None),
        ("connection", None),
        ("proxy-authorization", None),
        ("authorization", Some("Basic eQ==")),
        ("x-end", Some("1")),
    ] {
        assert_eq!(
            asked.get(name).map(|value| value.to_str().unwrap()),
            expected,
            "{name}"
        );
    }
    assert_eq!(asked["host"], upstream.address.to_string());
    assert!(asked["via"].to_str().unwrap().starts_with("1.1 brisk-"));
}

#[test]
fn head_ranges_and_conditions_pass() {
    let upstream = Upstream::start(|asked| match asked.headers.get("range") {
        Some(range) => {
            assert_eq!(range, "bytes=1-2");
            Answer::of(
                206,
                &[
                    ("content-range", "bytes 1-2/4"),
                    ("cache-control", "no-store"),
                ],
                "bc",
            )
        }
        None => Answer::of(200, &[("cache-control", "no-store")], "abcd"),
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let head = request(proxy.address, "HEAD", "/", &[], b"");
    assert_eq!((head.status, head.field("content-length")), (200, "4"));
    let part = get_with(proxy.address, "/", &[("range", "bytes=1-2")]);
    assert_eq!(
        (
            part.status,
            part.field("content-range"),
            part.text().as_str()
        ),
        (206, "bytes 1-2/4", "bc")
    );
}

#[test]
fn a_client_is_told_to_go_on_with_its_body() {
    let upstream = Upstream::start(|asked| Answer::of(200, &[], asked.body.clone()));
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
        .write_all(b"PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut line = [0; 25];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abcd").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Reply::read(&answer, true).unwrap().0.text(), "abcd");
    assert_eq!(
        get_with(proxy.address, "/", &[("expect", "more")]).status,
        417
    );
}

#[test]
fn redirects_within_maps_stay_with_the_proxy() {
    let other = Upstream::start(|asked| {
        let credentials = asked.headers.contains_key("authorization");
        Answer::of(200, &[], format!("other {} {credentials}", asked.target))
    });
    let other_url = other.url();
    let upstream = Upstream::start(move |asked| {
        let to = match asked.target.as_str() {
            "/x/inside" => "/x/target?q".to_owned(),
            "/x/outside" => "/y".to_owned(),
            "/x/relative" => "target".to_owned(),
            "/x/loop" => format!("{other_url}/loop"),
            _ => format!("{other_url}/file"),
        };
        Answer::of(302, &[("location", &to)], "")
    });
    let (map, host) = (
        format!("/a={}/x", upstream.url()),
        other.address.to_string(),
    );
    let proxy = Program::start(&["--map", &map]);
    for (target, location) in [
        ("/a/inside", "/a/target?q".to_owned()),
        ("/a/relative", "/a/target".to_owned()),
        ("/a/outside", "/y".to_owned()),
        ("/a/other", format!("{}/file", other.url())),
    ] {
        let reply = get(proxy.address, target);
        assert_eq!(
            (reply.status, reply.field("location")),
            (302, location.as_str()),
            "{target}"
        );
    }
    assert!(other.asked().is_empty());
    // With the option, the proxy goes there itself, without the credentials.
    let proxy = Program::start(&["--map", &map, "--follow", &host]);
    let reply = get_with(
        proxy.address,
        "/a/other",
        &[("authorization", "Basic eQ==")],
    );
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (200, "other /file false")
    );
}

#[test]
fn a_map_that_leads_back_is_no_loop() {
    let upstream = echo();
    let home = Arc::new(tempfile::tempdir().unwrap());
    let first = Program::start_with(
        Arc::clone(&home),
        &["--map", &format!("/={}", upstream.url())],
        &[],
    );
    // The same cache, so the same name.
    let second = Program::start_with(
        home,
        &["--map", &format!("/=http://{}", first.address)],
        &[],
    );
    let reply = get(second.address, "/x");
    assert_eq!(reply.status, 508, "{}", reply.text());
    assert!(upstream.asked().is_empty());
}

#[test]
fn http2_with_prior_knowledge_is_spoken() {
    let upstream = echo();
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (status, body) = runtime.block_on(async {
        use http_body_util::BodyExt;
        let stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(executor, hyper_util::rt::TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(format!("http://{}/a?b", proxy.address));
        let request = request.body(http_body_util::Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        (
            response.status(),
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    });
    assert_eq!((status.as_u16(), &body[..]), (200, &b"GET /a?b"[..]));
}

#[test]
fn upstreams_that_fail_are_named_with_the_reason() {
    let begun = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&begun);
    let upstream = Upstream::start(move |asked| match asked.target.as_str() {
        "/slow" => Answer::of(200, &[], "late").after(HANG),
        "/half" => {
            let (sender, answer) = Answer::streamed(200, &[("content-length", "10")]);
            sender.send(Ok(Bytes::from_static(b"abc"))).unwrap();
            *kept.lock().unwrap() = Some(sender);
            answer
        }
        target => Answer::of(
            target[1..].parse().unwrap(),
            &[("retry-after", "7")],
            "own words",
        ),
    });
    // No other test gets the same port here.
    let nobody = std::net::TcpListener::bind("127.0.0.4:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let maps = [
        format!("/u={}", upstream.url()),
        format!("/n=http://{nobody}"),
    ];
    let args = ["--map", &maps[0], "--map", &maps[1]];
    let proxy = Program::start(&args);
    let impatient = Program::start(&[&args[..], &["--upstream-timeout", "1s"]].concat());
    for (target, status, text) in [
        ("/u/500", 500, "own words".to_owned()),
        ("/u/429", 429, "own words".to_owned()),
        (
            "/n/x",
            502,
            format!("cannot connect to {nobody}: Connection refused"),
        ),
    ] {
        let reply = get(proxy.address, target);
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
        assert!(reply.text().contains(&text), "{target}: {}", reply.text());
    }
    assert_eq!(get(proxy.address, "/u/429").field("retry-after"), "7");
    let too_late = |reply: &Reply| {
        let text = "has not answered within 1 seconds";
        reply.status == 504 && reply.text().contains(text)
    };
    let reply = get(impatient.address, "/u/slow");
    assert!(too_late(&reply), "{reply:?}");
    let cut = || {
        let sender = begun.lock().unwrap();
        let cut = Err(std::io::Error::other("cut"));
        sender.as_ref().unwrap().send(cut).unwrap();
    };
    let cut = get_by_halves(proxy.address, "/u/half", "abc", cut);
    // On a slow machine the head may be late, too.
    let mut stuck = std::iter::repeat_with(|| get(impatient.address, "/u/half"));
    let stuck = stuck.find(|reply| !too_late(reply)).unwrap();
    for reply in [cut, stuck] {
        assert_eq!(
            (reply.status, reply.whole, reply.text().as_str()),
            (200, false, "abc")
        );
    }
}
