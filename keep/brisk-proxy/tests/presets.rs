//! Index pages as clients get them. The pages are those of real indexes, cut short.

mod staging;

use std::io::Write;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use staging::{Answer, Program, Upstream, get, get_with, request};

/// `simple/six/` of a warehouse, as HTML. `FILES` stands for the host of files.
const SIX_HTML: &str = include_str!("pages/six.html");
const SIX_JSON: &str = include_str!("pages/six.json");
const LEFT_PAD: &str = include_str!("pages/left-pad.json");
const JSON: &str = "application/vnd.pypi.simple.v1+json";

/// The host of files, which says what it is asked.
fn files() -> Upstream {
    let fields = [("cache-control", "max-age=60")];
    Upstream::start(move |asked| Answer::of(200, &fields, content(&asked.target)))
}

fn content(target: &str) -> String {
    format!("file {target}")
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref())
}

/// A page of `six` with the digests of what [`files`] gives.
fn with_digests(page: &str) -> String {
    let links = SIX_HTML.split("FILES").skip(1);
    links.fold(page.to_owned(), |page, link| {
        let (target, digest) = link.split_once("#sha256=").unwrap();
        page.replace(&digest[..64], &sha256(&content(target)))
    })
}

/// A form without the digests that stand in front of paths, and how many there were.
fn without_digests(form: &str, prefix: &str, len: usize) -> (String, usize) {
    let mut parts = form.split(prefix);
    let first = parts.next().unwrap().to_owned();
    let rest: Vec<_> = parts.map(|part| &part[len..]).collect();
    (first + &rest.concat(), rest.len())
}

fn python_index(files: &Upstream) -> Upstream {
    let files = files.url();
    Upstream::start(move |asked| {
        let json = asked
            .headers
            .get("accept")
            .is_some_and(|accept| accept == JSON);
        let (kind, page) = match json {
            true => (JSON, SIX_JSON),
            false => ("text/html; charset=utf-8", SIX_HTML),
        };
        let fields = [
            ("content-type", kind),
            ("vary", "Accept"),
            ("etag", "\"upstream\""),
            ("cache-control", "max-age=600"),
            ("x-pypi-last-serial", "7"),
        ];
        let page = with_digests(page).replace("FILES", &files);
        Answer::of(200, &fields, page)
    })
}

/// The first link of a page that leads to a file.
fn file_link(page: &str) -> String {
    let start = page
        .find("/py/~files/")
        .unwrap_or_else(|| panic!("no link in {page}"));
    let link = page[start..].split(['"', '#']).next().unwrap();
    // Clients escape what they do not know to be harmless.
    assert!(
        link.chars()
            .all(|c| c.is_ascii_alphanumeric() || "/-._~".contains(c)),
        "{link}"
    );
    link.to_owned()
}

/// As a laptop's proxy behind that of a team, both with the prefix of the manual.
#[test]
fn files_come_through_two_proxies_with_one_prefix() {
    let files = files();
    let index = python_index(&files);
    let near_index = Program::mapping(&format!("/py=python:{}/simple", index.url()));
    let near_client = Program::mapping(&format!("/py=python:http://{}/py", near_index.address));
    for accept in ["text/html", JSON] {
        let page = get_with(near_client.address, "/py/six/", &[("accept", accept)]);
        assert_eq!(page.status, 200);
        let link = file_link(&page.text());
        let file = get(near_client.address, &link);
        assert_eq!(file.status, 200, "{link}: {}", file.text());
        let (_, path) = link.split_once("/packages/").unwrap();
        assert_eq!(file.text(), format!("file /packages/{path}"));
    }
}

#[test]
fn files_of_a_python_index_come_through_the_proxy() {
    let files = files();
    let index = python_index(&files);
    let proxy = Program::mapping(&format!("/py=python:{}/simple", index.url()));
    for (accept, page) in [("text/html", SIX_HTML), (JSON, SIX_JSON)] {
        let reply = get_with(proxy.address, "/py/six/", &[("accept", accept)]);
        assert_eq!(
            (reply.status, reply.field("x-pypi-last-serial")),
            (200, "7")
        );
        let (text, digests) = without_digests(&reply.text(), "/~sha256/", 64);
        let link = file_link(&text);
        // Nothing but the links has changed.
        let (prefix, _) = link.split_once("/packages/").unwrap();
        assert_eq!(text.replace(prefix, "FILES"), with_digests(page));
        assert_eq!(digests, page.matches("FILES").count());
        let file = get(proxy.address, &link);
        let (_, target) = link
            .split_once(&format!("127.0.0.1~{}", files.address.port()))
            .unwrap();
        assert_eq!(file.text(), format!("file {target}"));
        // The name has a digest of the content.
        assert_eq!(file.field("cache-control"), "max-age=31536000, immutable");
        // With the digest of its file in front, as clients make the link, too.
        let digest = sha256(&content(target));
        for stated in [String::new(), format!("/~sha256/{digest}")] {
            let metadata = get(proxy.address, &format!("{stated}{link}.metadata"));
            assert_eq!(metadata.text(), format!("file {target}.metadata"));
        }
        // Nothing else of that host is reached.
        let forged = link.replace(&files.address.port().to_string(), "1");
        for target in [forged, format!("{prefix}/secret.html")] {
            assert_eq!(get(proxy.address, &target).status, 404, "{target}");
        }
    }
}

#[test]
fn forms_of_a_page_have_validators_of_their_own() {
    let files = files();
    let index = python_index(&files);
    let home = Arc::new(tempfile::tempdir().unwrap());
    let map = format!("/py=python:{}/simple", index.url());
    let proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &[]);
    let whole = get(proxy.address, "/py/six/");
    let tag = whole.field("etag");
    assert!(tag != "\"upstream\"" && tag.starts_with('"'), "{tag}");
    for (known, status) in [
        (tag.to_owned(), 304),
        (format!("\"x\", W/{tag}"), 304),
        ("*".to_owned(), 304),
        ("\"upstream\"".to_owned(), 200),
    ] {
        let reply = get_with(proxy.address, "/py/six/", &[("if-none-match", &known)]);
        assert_eq!(
            (reply.status, reply.field("etag")),
            (status, tag),
            "{known}"
        );
        assert_eq!(reply.body.is_empty(), status == 304);
    }
    // The client's conditions and ranges are about the form, which the upstream does not know.
    assert!(index.asked().iter().all(|asked| {
        !asked.headers.contains_key("range")
            && asked
                .headers
                .get("if-none-match")
                .is_none_or(|tag| tag == "\"upstream\"")
    }));
    let reply = get_with(proxy.address, "/py/six/", &[("range", "bytes=0-1")]);
    assert_eq!((reply.status, reply.body == whole.body), (200, true));
    let head = request(proxy.address, "HEAD", "/py/six/", &[], b"");
    assert_eq!((head.status, head.field("etag")), (200, tag));
    assert_eq!(head.field("content-length"), whole.body.len().to_string());
    // Another map is another form.
    let more = [map.as_str(), &format!("/files={}", files.url())];
    let proxy = Program::start_with(home, &["--map", more[0], "--map", more[1]], &[]);
    let other = get(proxy.address, "/py/six/");
    assert_ne!(other.field("etag"), tag);
    let (text, _) = without_digests(&other.text(), "/~sha256/", 64);
    assert!(text.contains("href=\"/files/packages/"), "{text}");
}

#[test]
fn a_coded_page_is_decoded() {
    let files = files();
    let url = files.url();
    let index = Upstream::start(move |asked| {
        assert_eq!(asked.headers["accept-encoding"], "identity");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder
            .write_all(SIX_HTML.replace("FILES", &url).as_bytes())
            .unwrap();
        let (kind, coding) = match asked.target.as_str() {
            "/simple/odd/" => ("text/html", "zstd"),
            _ => ("text/html", "gzip"),
        };
        Answer::of(
            200,
            &[("content-type", kind), ("content-encoding", coding)],
            encoder.finish().unwrap(),
        )
    });
    let proxy = Program::mapping(&format!("/py=python:{}/simple", index.url()));
    let reply = get_with(
        proxy.address,
        "/py/six/",
        &[("accept-encoding", "gzip, br")],
    );
    assert_eq!((reply.status, reply.field("content-encoding")), (200, ""));
    file_link(&reply.text());
    let reply = get(proxy.address, "/py/odd/");
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains("in the coding \"zstd\""),
        "{}",
        reply.text()
    );
}

#[test]
fn tarballs_of_npm_are_whole_urls_of_the_proxy() {
    let address = Arc::new(std::sync::OnceLock::<String>::new());
    let own = Arc::clone(&address);
    let registry = Upstream::start(move |asked| match asked.target.ends_with(".tgz") {
        true => Answer::of(200, &[], format!("tarball {}", asked.target)),
        false => {
            let page = LEFT_PAD.replace("REGISTRY", own.get().unwrap());
            Answer::of(200, &[("content-type", "application/json")], page)
        }
    });
    address.set(registry.url()).unwrap();
    let map = format!("/npm=npm:{}", registry.url());
    let proxy = Program::start(&["--map", &map]);
    let reply = get_with(
        proxy.address,
        "/npm/left-pad",
        &[("host", "build.example:7077")],
    );
    let form = |reply: &str| without_digests(reply, "/~sha512/", 128);
    let tarballs = LEFT_PAD.matches("REGISTRY").count();
    let expected = LEFT_PAD.replace("REGISTRY", "http://build.example:7077/npm");
    assert_eq!(form(&reply.text()), (expected, tarballs));
    assert_eq!(
        get(proxy.address, "/npm/left-pad/-/left-pad-1.3.0.tgz").text(),
        "tarball /left-pad/-/left-pad-1.3.0.tgz"
    );
    let proxy = Program::start(&[
        "--map",
        &map,
        "--public-url",
        "https://build.example/brisk/",
    ]);
    let reply = get(proxy.address, "/npm/left-pad");
    let expected = LEFT_PAD.replace("REGISTRY", "https://build.example/brisk/npm");
    assert_eq!(form(&reply.text()), (expected, tarballs));
}

#[test]
fn crates_come_through_the_proxy() {
    let files = files();
    let dl = format!("{}/crates", files.url());
    let index = Upstream::start(move |asked| match asked.target.as_str() {
        "/config.json" => Answer::of(
            200,
            &[],
            format!("{{\"dl\":\"{dl}\",\n\"api\":\"https://index.example\"}}"),
        ),
        target => Answer::of(
            200,
            &[("etag", "\"1\"")],
            format!("{{\"dl\":\"{target}\"}}"),
        ),
    });
    let proxy = Program::mapping(&format!("/cargo=cargo:{}", index.url()));
    let config = get(proxy.address, "/cargo/config.json").text();
    let base = format!("{{\"dl\":\"http://{}", proxy.address);
    let path = config
        .strip_prefix(&base)
        .unwrap_or_else(|| panic!("{config}"));
    let (path, rest) = path.split_once('"').unwrap();
    assert_eq!(rest, ",\n\"api\":\"https://index.example\"}");
    let found = "file /crates/serde/1.0.0/download";
    // As cargo does.
    let path = path
        .replace("{sha256-checksum}", &sha256(found))
        .replace("{crate}", "serde")
        .replace("{version}", "1.0.0");
    assert!(
        path.starts_with("/~sha256/") && !path.contains('{'),
        "{path}"
    );
    assert_eq!(get(proxy.address, &path).text(), found);
    // Files of the index are as they are.
    let entry = get(proxy.address, "/cargo/se/rd/serde");
    assert_eq!(
        (entry.text().as_str(), entry.field("etag")),
        ("{\"dl\":\"/se/rd/serde\"}", "\"1\"")
    );
}

#[test]
fn credentials_for_the_index_do_not_reach_the_host_of_files() {
    let files = files();
    let index = python_index(&files);
    let proxy = Program::mapping(&format!("/py=python:{}/simple", index.url()));
    let credentials = [("authorization", "Basic eA=="), ("cookie", "a=b")];
    let link = file_link(&get_with(proxy.address, "/py/six/", &credentials).text());
    assert_eq!(get_with(proxy.address, &link, &credentials).status, 200);
    assert_eq!(index.asked()[0].headers["authorization"], "Basic eA==");
    let asked = &files.asked()[0].headers;
    assert!(!asked.contains_key("authorization") && !asked.contains_key("cookie"));
}
