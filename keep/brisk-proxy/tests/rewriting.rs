//! When index pages are rewritten: once, and not for an answer whose form the client or the cache has.

mod staging;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use staging::{Answer, HANG, Program, Reply, Upstream, exchange, get, get_with, request};

const REWRITTEN: &str = "brisk_proxy_rewritten_pages_total";

/// A page with so many links to files of another host.
fn page(links: usize) -> String {
    let link = |n| format!("<a href=\"https://files.example/packages/six-{n}.tar.gz\">six</a>\n");
    (0..links).map(link).collect()
}

/// An index whose pages all are `page`, fresh for as long as `control` says.
fn index(control: &'static str, page: String) -> Upstream {
    Upstream::start(move |asked| {
        let fields = [
            ("content-type", "text/html"),
            ("cache-control", control),
            ("etag", "\"upstream\""),
        ];
        match asked.headers.contains_key("if-none-match") {
            true => Answer::of(304, &fields, ""),
            false => Answer::of(200, &fields, page.clone()),
        }
    })
}

fn start(home: &Arc<tempfile::TempDir>, index: &Upstream) -> Program {
    let map = format!("/py=python:{}", index.url());
    Program::start_with(Arc::clone(home), &["--map", &map], &[])
}

fn home() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

#[test]
fn a_page_is_rewritten_once() {
    // A short one, and one that is sent from its file.
    for links in [10, 3_000] {
        let index = index("max-age=600", page(links));
        let home = home();
        let proxy = start(&home, &index);
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let address = proxy.address;
                std::thread::spawn(move || get(address, "/py/six/"))
            })
            .collect();
        let mut replies = clients.into_iter().map(|client| client.join().unwrap());
        let first = replies.next().unwrap();
        assert_eq!(first.text().matches("/py/~files/").count(), links);
        assert!(replies.all(|reply| reply.body == first.body));
        let known = [("if-none-match", first.field("etag"))];
        for proxy in [&proxy, &start(&home, &index)] {
            let warm = get(proxy.address, "/py/six/");
            assert_eq!((warm.status, &warm.body), (200, &first.body));
            let head = request(proxy.address, "HEAD", "/py/six/", &[], b"");
            assert_eq!(head.field("content-length"), first.body.len().to_string());
            assert_eq!(get_with(proxy.address, "/py/six/", &known).status, 304);
            // The upstream says that the page holds.
            let asked = index.asked().len();
            let anew = get_with(proxy.address, "/py/six/", &[("cache-control", "no-cache")]);
            assert_eq!((anew.status, &anew.body), (200, &first.body));
            assert_eq!(index.asked().len(), asked + 1);
            // Links are paths, so the name of the proxy makes no difference.
            let other = get_with(proxy.address, "/py/six/", &[("host", "other.example")]);
            assert_eq!(other.body, first.body);
        }
        assert_eq!(proxy.metric(REWRITTEN), Some(1));
        assert_eq!(start(&home, &index).metric(REWRITTEN), Some(0));
    }
}

/// A text that has a word sooner or later.
fn await_in(text: impl Fn() -> String, word: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = text();
        if text.contains(word) {
            return text;
        }
        assert!(begun.elapsed() < HANG, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The page has the digest of "file".
#[test]
fn a_file_is_kept_if_it_has_the_digest_that_its_page_states() {
    const DIGEST: &str = "3b9c358f36f0a31b6ad3e14f309c7cf198ac9246e8316f9ce543d5b19ac02b80";
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let index = Upstream::start(move |request| {
        let fresh = ("cache-control", "max-age=600");
        match request.target.as_str() {
            "/six/" => {
                let page = format!("<a href=\"six-1.tar.gz#sha256={DIGEST}\">six</a>");
                Answer::of(200, &[("content-type", "text/html"), fresh], page)
            }
            _ => match counted.fetch_add(1, Ordering::Relaxed) {
                0 => Answer::of(200, &[fresh], "fill"),
                _ => Answer::of(200, &[fresh], "file"),
            },
        }
    });
    let home = home();
    let log = home.path().join("log");
    let map = format!("/py=python:{}", index.url());
    let args = ["--map", &map, "--log", log.to_str().unwrap()];
    let proxy = Program::start_with(Arc::clone(&home), &args, &[]);
    let page = get(proxy.address, "/py/six/");
    let path = format!("/~sha256/{DIGEST}/py/six/six-1.tar.gz");
    assert_eq!(
        page.text(),
        format!("<a href=\"{path}#sha256={DIGEST}\">six</a>")
    );
    // The client sees that it broke off.
    let asks = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = exchange(proxy.address, asks.as_bytes());
    let text = String::from_utf8(answer).unwrap();
    assert!(!text.contains("fill"), "{text}");
    // The operator sees it, too.
    assert_eq!(proxy.metric("brisk_proxy_wrong_digests_total"), Some(1));
    let wrong = "dcd32479a72e55b29a03a586d8a483a05be0ce87cc5c25c7bad23079fc0356b3";
    let warning = format!(
        "brisk: warning: {}/six/six-1.tar.gz has the digest {wrong}, but {DIGEST} is stated for it, so no client gets it and it is \
         not kept; if the index has changed, ask for its page with Cache-Control: no-cache; otherwise do not use the file, and \
         tell the operator of the index\n",
        index.url().trim_end_matches('/')
    );
    let messages = await_in(|| proxy.messages(), "warning");
    assert!(messages.ends_with(&warning), "{messages}");
    let status = get(proxy.address, "/-/").text();
    assert!(
        status.contains("another one than is stated: 1 file."),
        "{status}"
    );
    let logged = await_in(|| fs::read_to_string(&log).unwrap(), "~sha256");
    let line = logged
        .lines()
        .find(|line| line.contains("~sha256"))
        .unwrap();
    let end = "s brisk; fwd=uri-miss; fwd-status=200; ttl=600; detail=wrong-digest";
    assert!(line.contains("\" 200 0+ ") && line.ends_with(end), "{line}");
    for _ in 0..2 {
        let reply = get(proxy.address, &path);
        assert_eq!((reply.status, &*reply.text()), (200, "file"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_page_that_has_changed_is_rewritten_again() {
    let version = Arc::new(AtomicUsize::new(1));
    let links = Arc::clone(&version);
    let index = Upstream::start(move |_| {
        let fields = [
            ("content-type", "text/html"),
            ("cache-control", "max-age=0"),
        ];
        Answer::of(200, &fields, page(links.load(Ordering::Relaxed)))
    });
    let proxy = start(&home(), &index);
    // Beyond the time for which a stale page is used, so each request asks.
    let get = || get_with(proxy.address, "/py/six/", &[("cache-control", "no-cache")]);
    let mut tags = Vec::new();
    for links in [1, 2, 2, 1] {
        version.store(links, Ordering::Relaxed);
        let reply = get();
        assert_eq!(reply.text(), {
            let link = reply.text().lines().next().unwrap().to_owned() + "\n";
            (0..links)
                .map(|n| link.replace("six-0", &format!("six-{n}")))
                .collect::<String>()
        });
        tags.push(reply.field("etag").to_owned());
    }
    assert!(tags[0] != tags[1] && tags[1] == tags[2] && tags[0] == tags[3]);
    // The newest form took the place of the one before.
    assert_eq!(proxy.metric(REWRITTEN), Some(3));
}

#[test]
fn the_form_of_a_page_that_is_not_stored_is_not_kept() {
    let index = index("no-store", page(10));
    let home = home();
    let proxy = start(&home, &index);
    let first = get(proxy.address, "/py/six/");
    assert_eq!(get(proxy.address, "/py/six/").body, first.body);
    assert_eq!(proxy.metric(REWRITTEN), Some(2));
    // The tag is asked before the page is rewritten.
    let known = [("if-none-match", first.field("etag"))];
    assert_eq!(get_with(proxy.address, "/py/six/", &known).status, 304);
    assert_eq!(proxy.metric(REWRITTEN), Some(2));
    assert!(!has(home.path(), b"six-9.tar.gz"));
}

#[test]
fn a_form_is_for_the_credentials_that_brought_its_page() {
    // Two pages are alike, and one is not.
    let index = Upstream::start(|asked| {
        let token = asked.headers.get("private-token");
        let links = match token.map(|token| token.as_bytes()) {
            Some(b"ann-hush" | b"bob-hush") => 2,
            _ => 1,
        };
        let fields = [
            ("content-type", "text/html"),
            ("cache-control", "max-age=600"),
        ];
        Answer::of(200, &fields, page(links))
    });
    let home = home();
    let own = |proxy: &Program, token, fields: &[(&str, &str)]| {
        let fields = [&[("private-token", token)], fields].concat();
        get_with(proxy.address, "/py/six/", &fields)
    };
    let mut proxy = start(&home, &index);
    let mut tags = Vec::new();
    for _ in 0..3 {
        for (token, links) in [("ann-hush", 2), ("bob-hush", 2), ("eve-hush", 1)] {
            let reply = own(&proxy, token, &[]);
            let found = reply.text().matches("/py/~files/").count();
            assert_eq!(found, links, "{token}");
            tags.push(reply.field("etag").to_owned());
        }
    }
    // None is another one's, and none takes the place of another one's.
    assert_eq!(proxy.metric(REWRITTEN), Some(3));
    let known = [("if-none-match", tags[0].as_str())];
    assert_eq!(own(&proxy, "ann-hush", &known).status, 304);
    assert_eq!(own(&proxy, "eve-hush", &known).status, 200);
    proxy.terminate();
    proxy.wait(HANG);
    assert!(!has(home.path(), b"-hush"));
    let map = format!("/py=python:{}", index.url());
    let proxy = Program::start_with(home, &["--map", &map, "--offline"], &[]);
    for (token, status) in [("ann-hush", 200), ("eve-hush", 200), ("mallory", 504)] {
        assert_eq!(own(&proxy, token, &[]).status, status, "{token}");
    }
    assert_eq!(get(proxy.address, "/py/six/").status, 504);
    assert_eq!(proxy.metric(REWRITTEN), Some(0));
}

#[test]
fn that_a_page_cannot_be_rewritten_is_kept() {
    let index = Upstream::start(|_| {
        let fields = [
            ("content-type", "application/json"),
            ("cache-control", "max-age=600"),
        ];
        Answer::of(200, &fields, "<no JSON>")
    });
    let proxy = start(&home(), &index);
    for _ in 0..3 {
        let reply = get(proxy.address, "/py/six/");
        assert_eq!(reply.status, 502);
        assert!(
            reply
                .text()
                .contains("cannot be rewritten, because it is no JSON"),
            "{}",
            reply.text()
        );
    }
    assert_eq!(proxy.metric(REWRITTEN), Some(1));
}

#[test]
fn a_form_that_is_damaged_is_made_again() {
    for links in [10, 3_000] {
        let index = index("max-age=600", page(links));
        let home = home();
        let proxy = start(&home, &index);
        let first = get(proxy.address, "/py/six/");
        drop(proxy);
        // Of page and form, only the form has this.
        let mark = b"files.example/packages/six-7.tar.gz";
        damage(home.path(), &[b"/https/", &mark[..]].concat());
        let proxy = start(&home, &index);
        // A long one is checked when it is sent, so the answer breaks off, and the next ones are right.
        let get = || {
            let text = b"GET /py/six/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            let reply = Reply::read(&exchange(proxy.address, text), true)?.0;
            reply.whole.then_some(reply.body)
        };
        let begun = Instant::now();
        let body = loop {
            match get() {
                Some(body) => break body,
                None => assert!(links > 10 && begun.elapsed() < HANG),
            }
        };
        assert!(body == first.body);
        assert_eq!(proxy.metric(REWRITTEN), Some(1));
    }
}

/// Servers of files do not know what an index is.
#[test]
fn pages_without_a_type_are_known_by_their_first_byte() {
    let html = page(1);
    let json = r#" {"files":[{"url":"https://files.example/six-1.whl"}]}"#;
    let package = r#"{"dist":{"tarball":"https://files.example/six-1.tgz"}}"#;
    let pages = [html.as_str(), json, package, "neither"].map(str::to_owned);
    let index = Upstream::start(move |asked| {
        let number: usize = asked.target[1..2].parse().unwrap();
        let fields = [("content-type", "application/octet-stream")];
        match asked.target.contains("untyped") {
            true => Answer::of(200, &[], pages[number].clone()),
            false => Answer::of(200, &fields, pages[number].clone()),
        }
    });
    let maps = ["python", "npm"].map(|kind| format!("/{kind}={kind}:{}", index.url()));
    let proxy = Program::start(&["--map", &maps[0], "--map", &maps[1]]);
    for (target, is_rewritten) in [
        ("/python/0/", true),
        ("/python/1/", true),
        ("/python/1/untyped.json", true),
        ("/python/0/installer.exe", false),
        ("/python/3/", false),
        ("/npm/2", true),
        ("/npm/2-untyped", true),
        ("/npm/3", false),
    ] {
        let reply = get(proxy.address, target);
        assert_eq!(reply.status, 200, "{target}");
        assert_eq!(
            reply.text().contains("~files"),
            is_rewritten,
            "{target}: {reply:?}"
        );
    }
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn has(directory: &Path, part: &[u8]) -> bool {
    let found = |path: &std::path::PathBuf| position(&fs::read(path).unwrap(), part).is_some();
    files(directory).iter().any(found)
}

/// Changes a byte where a file has `part`.
fn damage(directory: &Path, part: &[u8]) {
    let mut places = 0;
    for path in files(directory) {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = position(&bytes, part) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            places += 1;
        }
    }
    assert_eq!(places, 1);
}
