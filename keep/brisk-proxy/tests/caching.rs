//! What comes from the cache.

mod staging;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use staging::program::outcome;
use staging::{Answer, HANG, Program, Reply, Upstream, get, get_by_halves, get_with, request};

/// Asks until the answer is as it should be. What is stored after an answer has gone comes a little later.
fn until(address: std::net::SocketAddr, target: &str, is_right: impl Fn(&Reply) -> bool) -> Reply {
    let begun = Instant::now();
    loop {
        let reply = get(address, target);
        if is_right(&reply) {
            return reply;
        }
        assert!(begun.elapsed() < HANG, "{reply:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").starts_with("brisk; hit")
}

#[test]
fn a_hit_asks_nobody_and_outlives_the_upstream() {
    let body: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let copy = body.clone();
    let upstream =
        Upstream::start(move |_| Answer::of(200, &[("cache-control", "max-age=60")], copy.clone()));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let map = format!("/a={}", upstream.url());
    let mut proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &[]);
    let first = get(proxy.address, "/a/x");
    assert!(
        first
            .field("cache-status")
            .starts_with("brisk; fwd=uri-miss; fwd-status=200"),
        "{first:?}"
    );
    assert!(first.body == body);
    let hit = until(proxy.address, "/a/x", is_hit);
    assert!(hit.body == body);
    // A second may have passed meanwhile.
    let age: u64 = hit.field("age").parse().unwrap();
    assert!(age < 60, "{age}");
    let asked = upstream.asked().len();
    let part = get_with(proxy.address, "/a/x", &[("range", "bytes=1000-2999999")]);
    assert_eq!(
        (part.status, part.field("content-range")),
        (206, "bytes 1000-2999999/3000000")
    );
    assert!(part.body == body[1000..]);
    assert_eq!(upstream.asked().len(), asked);
    drop(upstream);
    proxy.terminate();
    assert!(proxy.wait(HANG).success());
    // Another process, the same directory.
    let proxy = Program::start_with(home, &["--map", &map], &[]);
    assert!(is_hit(&get(proxy.address, "/a/x")));
    assert_eq!(get(proxy.address, "/a/y").status, 502);
}

#[test]
fn stale_pages_stand_in_for_an_upstream_that_fails() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::start(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Answer::of(
            200,
            &[("content-type", "text/html"), ("etag", "\"1\"")],
            "<a href=\"x/\">x</a>",
        ),
        _ => Answer::of(500, &[], "broken"),
    });
    let proxy = Program::mapping(&format!("/py=python:{}", upstream.url()));
    assert_eq!(get(proxy.address, "/py/").status, 200);
    let stale = until(proxy.address, "/py/", |reply| {
        reply.status == 200 && asked.load(Ordering::Relaxed) > 1
    });
    assert_eq!(stale.text(), "<a href=\"x/\">x</a>");
    drop(upstream);
    for _ in 0..3 {
        assert_eq!(get(proxy.address, "/py/").status, 200);
    }
}

#[test]
fn a_304_makes_a_page_fresh_without_its_body() {
    let upstream = Upstream::start(|asked| match asked.headers.get("if-none-match") {
        Some(tag) => {
            assert_eq!(tag, "\"1\"");
            Answer::of(
                304,
                &[("etag", "\"1\""), ("cache-control", "max-age=60")],
                "",
            )
        }
        None => Answer::of(
            200,
            &[("etag", "\"1\""), ("cache-control", "no-cache")],
            "abc",
        ),
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    assert_eq!(get(proxy.address, "/").text(), "abc");
    let again = until(proxy.address, "/", |reply| {
        reply.field("cache-status").contains("fwd-status=304")
    });
    assert_eq!((again.status, again.text().as_str()), (200, "abc"));
    assert!(is_hit(&get(proxy.address, "/")));
}

#[test]
fn options_rule_lifetimes_and_offline() {
    let upstream = Upstream::start(|asked| {
        Answer::of(200, &[("cache-control", "max-age=0")], asked.target.clone())
    });
    let home = Arc::new(tempfile::tempdir().unwrap());
    let (map, ttl) = (
        format!("/={}", upstream.url()),
        format!("{}/kept*=1h", upstream.address),
    );
    let mut proxy = Program::start_with(Arc::clone(&home), &["--map", &map, "--ttl", &ttl], &[]);
    get(proxy.address, "/kept");
    let kept = until(proxy.address, "/kept", is_hit);
    let ttl = kept.field("cache-status").strip_prefix("brisk; hit; ttl=");
    let ttl: u32 = ttl.unwrap().parse().unwrap();
    assert!(ttl > 0 && ttl <= 3600, "{ttl}");
    get(proxy.address, "/other");
    assert!(!is_hit(&get(proxy.address, "/other")));
    proxy.terminate();
    proxy.wait(HANG);
    let asked = upstream.asked().len();
    let proxy = Program::start_with(home, &["--map", &map, "--offline"], &[]);
    for target in ["/kept", "/other"] {
        assert_eq!(get(proxy.address, target).text(), target);
    }
    let none = get(proxy.address, "/none");
    assert_eq!(none.status, 504);
    assert!(
        none.text().contains("the proxy runs with --offline"),
        "{}",
        none.text()
    );
    assert_eq!(upstream.asked().len(), asked);
}

/// A gateway before the upstream may answer so, and its answer may be stored like any other.
#[test]
fn a_504_of_an_upstream_keeps_its_words() {
    let upstream =
        Upstream::start(|_| Answer::of(504, &[("cache-control", "max-age=1")], "its words"));
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let hit = until(proxy.address, "/", is_hit);
    assert_eq!((hit.status, hit.text().as_str()), (504, "its words"));
    drop(upstream);
    let in_place = until(proxy.address, "/", |reply| {
        reply.field("cache-status").contains("stale-if-error")
    });
    assert_eq!(
        (in_place.status, in_place.text().as_str()),
        (504, "its words")
    );
}

#[test]
fn a_lasting_file_is_not_asked_for_again_even_by_a_reload() {
    let upstream = Upstream::start(|_| {
        Answer::of(
            200,
            &[("cache-control", "max-age=1"), ("etag", "\"1\"")],
            "file",
        )
    });
    let proxy = Program::mapping(&format!("/npm=npm:{}", upstream.url()));
    get(proxy.address, "/npm/x/-/x-1.0.0.tgz");
    until(proxy.address, "/npm/x/-/x-1.0.0.tgz", is_hit);
    let asked = upstream.asked().len();
    let reload = get_with(
        proxy.address,
        "/npm/x/-/x-1.0.0.tgz",
        &[("cache-control", "max-age=0")],
    );
    assert!(is_hit(&reload), "{reload:?}");
    assert_eq!(upstream.asked().len(), asked);
}

#[test]
fn variants_and_credentials_keep_answers_apart() {
    let upstream = Upstream::start(|asked| {
        let of = |name: &str| {
            asked
                .headers
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
        };
        let body = format!("{} {}", of("accept"), of("authorization"));
        Answer::of(
            200,
            &[("cache-control", "max-age=60"), ("vary", "accept")],
            body,
        )
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    for _ in 0..3 {
        for (accept, authorization) in [
            ("a", "Basic eA=="),
            ("b", "Basic eA=="),
            ("a", "Basic eQ=="),
        ] {
            let fields = [("accept", accept), ("authorization", authorization)];
            let reply = get_with(proxy.address, "/", &fields);
            assert_eq!(reply.text(), format!("{accept} {authorization}"));
        }
    }
    // What was stored for somebody is for nobody else.
    assert_eq!(
        get_with(proxy.address, "/", &[("accept", "a")]).text(),
        "a "
    );
}

/// What a private registry has for the fields of a request.
fn private_registry() -> Upstream {
    Upstream::start(|asked| {
        let own = ["authorization", "cookie", "private-token", "x-mine"];
        let values = own
            .iter()
            .filter_map(|name| asked.headers.get(*name)?.to_str().ok());
        let fields = [
            ("cache-control", "max-age=1, public"),
            ("set-cookie", "session=hush"),
        ];
        Answer::of(200, &fields, values.collect::<String>())
    })
}

#[test]
fn a_lasting_file_is_for_the_credential_that_brought_it() {
    let upstream = private_registry();
    for field in ["authorization", "cookie", "private-token", "x-mine"] {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let map = format!("/npm=npm:{}", upstream.url());
        let mut proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &[]);
        let file = "/npm/x/-/x-1.0.0.tgz";
        for value in ["ann", "bob"] {
            let begun = Instant::now();
            loop {
                let reply = get_with(proxy.address, file, &[(field, value)]);
                assert_eq!(
                    (reply.text().as_str(), reply.field("set-cookie")),
                    (value, "")
                );
                if is_hit(&reply) {
                    break;
                }
                assert!(
                    begun.elapsed() < Duration::from_secs(10),
                    "{field} {reply:?}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let other = get_with(proxy.address, file, &[(field, "eve")]);
        assert_eq!(other.text(), "eve", "{field}");
        assert_eq!(get(proxy.address, file).text(), "", "{field}");
        proxy.terminate();
        proxy.wait(Duration::from_secs(10));
        // Each has its own offline, too.
        let proxy = Program::start_with(home, &["--map", &map, "--offline"], &[]);
        for value in ["ann", "bob"] {
            let reply = get_with(proxy.address, file, &[(field, value)]);
            assert_eq!(
                (reply.status, reply.text().as_str()),
                (200, value),
                "{field}"
            );
        }
    }
}

#[test]
fn the_answers_of_a_team_are_there_when_the_upstream_is_not() {
    let upstream = Upstream::start(|asked| {
        let own = asked.headers.get("authorization");
        let own = own.map_or("", |value| value.to_str().unwrap());
        Answer::of(200, &[("cache-control", "max-age=0")], own.to_owned())
    });
    let home = Arc::new(tempfile::tempdir().unwrap());
    let map = format!("/={}", upstream.url());
    let mut proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &[]);
    for value in ["Bearer ann-hush", "Bearer bob-hush"] {
        let reply = get_with(proxy.address, "/page", &[("authorization", value)]);
        assert_eq!(reply.text(), value);
    }
    proxy.terminate();
    proxy.wait(Duration::from_secs(10));
    let proxy = Program::start_with(Arc::clone(&home), &["--map", &map, "--offline"], &[]);
    for (value, status) in [
        ("Bearer ann-hush", 200),
        ("Bearer bob-hush", 200),
        ("Bearer eve", 504),
    ] {
        let reply = get_with(proxy.address, "/page", &[("authorization", value)]);
        assert_eq!(reply.status, status, "{value}");
        if status == 200 {
            assert_eq!(reply.text(), value);
        }
    }
    assert_eq!(get(proxy.address, "/page").status, 504);
}

#[test]
fn a_credential_of_the_operator_goes_to_its_upstream_alone() {
    let files = Upstream::start(|_| Answer::of(200, &[], "file"));
    // One host, but another origin.
    let page = format!("<a href=\"{}/x.whl\">x</a>", files.url());
    let index = Upstream::start(move |asked| match asked.headers.get("private-token") {
        Some(token) if token == "hush" => {
            Answer::of(200, &[("content-type", "text/html")], page.clone())
        }
        _ => Answer::of(401, &[], "who are you?"),
    });
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = home.path().join("credential");
    std::fs::write(&file, "PRIVATE-TOKEN: hush\n").unwrap();
    let argument = format!("/py={}", file.display());
    let map = format!("/py=python:{}", index.url());
    let args = ["--map", &map, "--credential", &argument];
    let (code, _, message) = outcome(home.path(), &args, &[]);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("the file of the credential (mode 644); chmod 600 it"),
        "{message}"
    );
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong = format!("/npm={}", file.display());
    let (_, _, message) = outcome(home.path(), &["--map", &map, "--credential", &wrong], &[]);
    assert!(message.contains("no map has the prefix /npm/"), "{message}");
    let proxy = Program::start_with(Arc::clone(&home), &args, &[]);
    for own in ["eve", "hush"] {
        let fields = [("private-token", own), ("x-mine", own)];
        let page = get_with(proxy.address, "/py/x/", &fields);
        let text = page.text();
        let link = text.split('"').nth(1).unwrap();
        assert!(link.starts_with("/py/~files/"), "{page:?}");
        assert_eq!(get_with(proxy.address, link, &fields).text(), "file");
    }
    assert!(index.asked().iter().all(|asked| {
        let tokens: Vec<_> = asked.headers.get_all("private-token").iter().collect();
        tokens == ["hush"]
    }));
    assert!(!proxy.messages().contains("hush"));
    for asked in files.asked() {
        let headers = &asked.headers;
        assert!(!headers.contains_key("private-token") && !headers.contains_key("x-mine"));
    }
}

#[test]
fn a_method_that_reads_removes_nothing() {
    let upstream = Upstream::start(|asked| {
        Answer::of(
            207,
            &[("cache-control", "max-age=60")],
            asked.method.to_string(),
        )
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    get(proxy.address, "/x");
    until(proxy.address, "/x", is_hit);
    for method in ["PROPFIND", "REPORT", "SEARCH"] {
        for _ in 0..2 {
            let reply = request(proxy.address, method, "/x", &[], b"<x/>");
            assert_eq!((reply.text().as_str(), is_hit(&reply)), (method, false));
        }
        assert!(is_hit(&get(proxy.address, "/x")), "{method}");
    }
    assert!(!is_hit(&request(proxy.address, "POST", "/x", &[], b"x")));
    assert!(!is_hit(&get(proxy.address, "/x")));
}

#[test]
fn a_directory_that_was_deleted_is_made_anew() {
    let upstream = Upstream::start(|_| Answer::of(200, &[("cache-control", "max-age=60")], "page"));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let cache = home.path().join("own-cache");
    let map = format!("/={}", upstream.url());
    let args = [
        "--map",
        &map,
        "--cache",
        cache.to_str().unwrap(),
        "--workers",
        "2",
    ];
    let proxy = Program::start_with(Arc::clone(&home), &args, &[]);
    until(proxy.address, "/x", is_hit);
    std::fs::remove_dir_all(&cache).unwrap();
    let begun = Instant::now();
    while !proxy
        .messages()
        .contains("the directory of the cache was deleted")
        || !cache.exists()
    {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{}",
            proxy.messages()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    until(proxy.address, "/y", is_hit);
    let private = std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777;
    assert_eq!(private, 0o700);
    assert!(cache.join("entries").is_dir());
}

#[test]
fn an_unsafe_request_removes_what_it_changes() {
    let upstream = Upstream::start(|asked| {
        Answer::of(
            200,
            &[("cache-control", "max-age=60")],
            asked.method.to_string(),
        )
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    get(proxy.address, "/x");
    until(proxy.address, "/x", is_hit);
    assert_eq!(request(proxy.address, "PUT", "/x", &[], b"new").status, 200);
    assert!(!is_hit(&get(proxy.address, "/x")));
}

#[test]
fn clients_that_ask_together_share_a_fetch() {
    let upstream = Upstream::start(|_| {
        Answer::of(200, &[("cache-control", "max-age=60")], "shared")
            .after(Duration::from_millis(500))
    });
    let proxy = Program::start(&["--map", &format!("/={}", upstream.url()), "--workers", "2"]);
    let address = proxy.address;
    let clients: Vec<_> = (0..16)
        .map(|_| std::thread::spawn(move || get(address, "/x").text()))
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), "shared");
    }
    assert_eq!(upstream.asked().len(), 1);
}

#[test]
fn a_body_that_broke_off_is_not_stored() {
    let first = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&first);
    let upstream = Upstream::start(move |_| {
        let mut kept = kept.lock().unwrap();
        if kept.is_some() {
            return Answer::of(200, &[("cache-control", "max-age=60")], "abcdef");
        }
        let fields = [("cache-control", "max-age=60"), ("content-length", "6")];
        let (sender, answer) = Answer::streamed(200, &fields);
        sender.send(Ok("abc".into())).unwrap();
        *kept = Some(sender);
        answer
    });
    let proxy = Program::mapping(&format!("/={}", upstream.url()));
    let first = get_by_halves(proxy.address, "/x", "abc", || {
        let sender = first.lock().unwrap();
        let cut = Err(std::io::Error::other("cut"));
        sender.as_ref().unwrap().send(cut).unwrap();
    });
    assert_eq!((first.whole, first.text().as_str()), (false, "abc"));
    let second = get(proxy.address, "/x");
    assert_eq!(
        (second.whole, second.text().as_str(), is_hit(&second)),
        (true, "abcdef", false)
    );
}

#[test]
fn a_file_whose_end_nobody_announced_does_not_last() {
    // The connection ends in the middle of the file, as far as anybody can tell.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ntarb";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let proxy = Program::mapping(&format!("/npm=npm:http://{address}"));
    let reply = get(proxy.address, "/npm/x/-/x-1.0.0.tgz");
    assert_eq!(
        (reply.text().as_str(), reply.field("cache-control")),
        ("tarb", "")
    );
    upstream.join().unwrap();
}
