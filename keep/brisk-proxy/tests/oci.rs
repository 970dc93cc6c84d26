//! The proxy in front of registries of OCI images.

mod images;
mod staging;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use images::registry::part;
use images::{Image, Registry, Skopeo, containerd_fetches, digest, podman_pulls, registry};
use staging::upstream::Asked;
use staging::{Answer, HANG, Program, Reply, Upstream, get, get_with, request};

/// Bytes that repeat nowhere.
fn noise(len: u32) -> Vec<u8> {
    (0..len)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").starts_with("brisk; hit")
}

fn proxy(upstream: &str, more: &[&str]) -> Program {
    start(Arc::new(tempfile::tempdir().unwrap()), upstream, more)
}

fn start(home: Arc<tempfile::TempDir>, upstream: &str, more: &[&str]) -> Program {
    let map = format!("/v2/hub=oci:{upstream}/v2");
    Program::start_with(home, &[&["--map", map.as_str()], more].concat(), &[])
}

fn stop(mut proxy: Program) {
    proxy.terminate();
    assert!(proxy.wait(HANG).success());
}

fn blob_path(image: &Image) -> String {
    format!("/v2/hub/app/blobs/{}", image.layer)
}

/// How often something was asked of an upstream.
fn count(upstream: &Upstream, method: &str, part: &str) -> usize {
    let asked = upstream.asked();
    let fits = |asked: &&Asked| asked.method == method && asked.target.contains(part);
    asked.iter().filter(fits).count()
}

/// `basic` or `bearer` credentials that a registry knows, or else a challenge.
fn admits(asked: &Asked, known: &[&str]) -> Option<Answer> {
    let given = asked.headers.get("authorization");
    let is_known = given.is_some_and(|given| known.iter().any(|known| given == known));
    let challenge = [(
        "www-authenticate",
        "Bearer realm=\"https://auth.example/token\",service=\"x\"",
    )];
    (!is_known).then(|| {
        Answer::of(
            401,
            &challenge,
            "{\"errors\":[{\"code\":\"UNAUTHORIZED\"}]}",
        )
    })
}

#[test]
fn skopeo_pulls_again_without_the_registry() {
    let skopeo = Skopeo::new();
    let server = Registry::start(&skopeo.path(""));
    let image = Image::of(&noise(3_000_000));
    let direct = format!("{}/app:1", server.address);
    skopeo.pushes(&image, &direct).unwrap();
    let home = Arc::new(tempfile::tempdir().unwrap());
    let upstream = format!("http://{}", server.address);
    let proxy = start(Arc::clone(&home), &upstream, &[]);
    let of = |proxy: &Program| format!("{}/hub/app:1", proxy.address);
    skopeo.pulls(&[], &of(&proxy), "first", &image);
    drop(server);
    skopeo.pulls(&[], &of(&proxy), "second", &image);
    stop(proxy);
    let offline = start(home, &upstream, &["--offline"]);
    skopeo.pulls(&[], &of(&offline), "third", &image);
}

/// A proxy that has what skopeo has pulled, without its registry.
fn filled(image: &Image) -> Program {
    let upstream = registry(image, |_| None);
    let proxy = proxy_of(&upstream);
    Skopeo::new().pulls(&[], &format!("{}/hub/app:1", proxy.address), "first", image);
    proxy
}

#[test]
fn podman_pulls_what_skopeo_has_pulled() {
    let image = Image::of(&noise(3_000_000));
    let proxy = filled(&image);
    let config = podman_pulls(&format!("{}/hub", proxy.address));
    assert!(image.blobs.contains_key(&config), "{config}");
}

#[test]
fn containerd_pulls_what_skopeo_has_pulled() {
    let image = Image::of(&noise(3_000_000));
    let upstream = registry(&image, |_| None);
    let proxy = proxy_of(&upstream);
    let mirror = format!("http://{}/v2/hub", proxy.address);
    Skopeo::new().pulls(
        &[],
        &format!("{}/hub/app:1", proxy.address),
        "first",
        &image,
    );
    // It asks for the manifest by its digest, which skopeo does not.
    let name = digest(&image.manifest);
    assert_eq!(
        get(proxy.address, &format!("/v2/hub/app/manifests/{name}")).status,
        200
    );
    drop(upstream);
    let came = containerd_fetches(&mirror, &[&name, &image.layer]);
    assert!(came == [image.manifest.clone(), image.layer().to_vec()]);
}

#[test]
fn a_part_that_is_not_kept_moves_only_itself() {
    let image = Image::of(&noise(3_000_000));
    let layer = image.layer().to_vec();
    let upstream = registry(&image, |_| None);
    let proxy = proxy(&upstream.url(), &[]);
    let path = blob_path(&image);
    let range = [("range", "bytes=1000-1999")];
    for _ in 0..2 {
        let reply = get_with(proxy.address, &path, &range);
        assert_eq!(reply.status, 206);
        assert_eq!(
            reply.field("content-range"),
            format!("bytes 1000-1999/{}", layer.len())
        );
        assert!(reply.body == layer[1000..2000]);
        assert!(!is_hit(&reply), "{reply:?}");
    }
    let asked = upstream.asked();
    assert_eq!(asked.len(), 2);
    assert!(
        asked
            .iter()
            .all(|asked| asked.headers["range"] == range[0].1)
    );
    // Parts are not put together: nobody has checked them.
    assert!(get(proxy.address, &path).body == layer);
    assert!(!upstream.asked()[2].headers.contains_key("range"));
    // What came as a whole has all parts.
    for (range, expected) in [
        ("bytes=5-9", &layer[5..10]),
        ("bytes=-3", &layer[layer.len() - 3..]),
    ] {
        let reply = get_with(proxy.address, &path, &[("range", range)]);
        assert_eq!((reply.status, is_hit(&reply)), (206, true), "{reply:?}");
        assert!(reply.body == expected);
    }
    assert_eq!(upstream.asked().len(), 3);
}

#[test]
fn what_credentials_have_brought_is_for_those_who_may_pull() {
    let image = Image::of(b"secret");
    let layer = image.layer().to_vec();
    let (ann, bob) = (
        ("authorization", "Bearer ann"),
        ("authorization", "Bearer bob"),
    );
    let upstream = registry(&image, |asked| admits(asked, &["Bearer ann", "Bearer bob"]));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let proxy = start(Arc::clone(&home), &upstream.url(), &[]);
    let blob = blob_path(&image);
    // Ann shows that she may by a manifest, so no head is asked for.
    assert_eq!(
        get_with(proxy.address, "/v2/hub/app/manifests/1", &[ann]).status,
        200
    );
    assert!(get_with(proxy.address, &blob, &[ann]).body == layer);
    assert!(is_hit(&get_with(proxy.address, &blob, &[ann])));
    assert_eq!(count(&upstream, "GET", "/blobs/"), 1);
    assert_eq!(count(&upstream, "HEAD", ""), 0);
    // Bob by the head of the blob, once. The bytes come from the cache.
    for _ in 0..2 {
        let reply = get_with(proxy.address, &blob, &[bob]);
        assert!(is_hit(&reply) && reply.body == layer, "{reply:?}");
    }
    assert_eq!(count(&upstream, "GET", "/blobs/"), 1);
    assert_eq!(count(&upstream, "HEAD", "/blobs/"), 1);
    // Nobody else gets them, nor a part or the head.
    for others in [
        &[][..],
        &[("authorization", "Bearer eve")],
        &[("cookie", "ann")],
    ] {
        for range in [None, Some(("range", "bytes=0-3"))] {
            let fields: Vec<(&str, &str)> = others.iter().copied().chain(range).collect();
            let reply = get_with(proxy.address, &blob, &fields);
            assert_eq!(reply.status, 401, "{others:?}");
            assert!(reply.text().contains("UNAUTHORIZED"), "{reply:?}");
            let challenge = "Bearer realm=\"https://auth.example/token\",service=\"x\"";
            assert_eq!(reply.field("www-authenticate"), challenge);
            assert_eq!(
                request(proxy.address, "HEAD", &blob, &fields, b"").status,
                401
            );
        }
    }
    // What they have shown counts while the registry is away, and for them alone.
    let url = upstream.url();
    drop(upstream);
    assert!(get_with(proxy.address, &blob, &[bob]).body == layer);
    assert_eq!(
        get_with(proxy.address, &blob, &[("authorization", "Bearer eve")]).status,
        502
    );
    assert_eq!(get(proxy.address, &blob).status, 502);
    stop(proxy);
    let offline = start(home, &url, &["--offline"]);
    assert!(get_with(offline.address, &blob, &[bob]).body == layer);
    assert_eq!(
        get_with(offline.address, "/v2/hub/app/manifests/1", &[ann]).status,
        200
    );
    // Bob has never asked for it.
    assert_eq!(
        get_with(offline.address, "/v2/hub/app/manifests/1", &[bob]).status,
        504
    );
    for path in [blob.as_str(), "/v2/hub/app/manifests/1"] {
        assert_eq!(get(offline.address, path).status, 504);
        let eve = [("authorization", "Bearer eve")];
        assert_eq!(get_with(offline.address, path, &eve).status, 504);
    }
}

#[test]
fn what_a_digest_names_is_asked_for_once_by_all_tokens() {
    let image = Image::of(b"secret");
    let upstream = registry(&image, |asked| admits(asked, &["Bearer 1", "Bearer 2"]));
    let proxy = proxy(&upstream.url(), &[]);
    // As docker and containerd ask, with another token each time.
    for token in ["Bearer 1", "Bearer 2"] {
        let token = [("authorization", token)];
        let tag = "/v2/hub/app/manifests/1";
        let head = request(proxy.address, "HEAD", tag, &token, b"");
        let name = head.field("docker-content-digest");
        let manifest = get_with(
            proxy.address,
            &format!("/v2/hub/app/manifests/{name}"),
            &token,
        );
        assert!(manifest.body == image.manifest);
        assert!(get_with(proxy.address, &blob_path(&image), &token).body == image.layer());
    }
    assert_eq!(count(&upstream, "HEAD", "/manifests/1"), 2);
    assert_eq!(count(&upstream, "GET", "/manifests/sha256:"), 1);
    assert_eq!(count(&upstream, "GET", "/blobs/"), 1);
    assert_eq!(upstream.asked().len(), 4);
}

#[test]
fn a_page_to_log_in_shows_nothing() {
    let image = Image::of(b"secret");
    let page = noise(3_000_000);
    let login = Upstream::start({
        let page = page.clone();
        move |asked| match asked.headers.contains_key("if-none-match") {
            true => Answer::of(304, &[("etag", "\"page\"")], ""),
            false => Answer::of(200, &[("content-type", "text/html")], page.clone()),
        }
    });
    let to = login.url();
    let upstream = registry(&image, move |asked| {
        let given = asked.headers.get("authorization");
        let is_known = given.is_some_and(|given| given == "Bearer ann");
        (!is_known).then(|| Answer::of(302, &[("location", to.as_str())], ""))
    });
    let proxy = proxy(&upstream.url(), &[]);
    let (ann, eve) = (
        ("authorization", "Bearer ann"),
        ("authorization", "Bearer eve"),
    );
    let manifest = format!("/v2/hub/app/manifests/{}", digest(&image.manifest));
    let paths = ["/v2/hub/app/manifests/1", &manifest, &blob_path(&image)];
    for path in paths {
        assert_eq!(get_with(proxy.address, path, &[ann]).status, 200, "{path}");
    }
    let known = [eve, ("if-none-match", "\"page\"")];
    let reply = get_with(proxy.address, "/v2/hub/app/manifests/1", &known);
    assert_eq!(reply.status, 304);
    for path in ["/v2/hub/app/manifests/1", &blob_path(&image)] {
        for method in ["GET", "HEAD"] {
            let fields = [eve, ("range", "bytes=0-9")];
            let reply = request(proxy.address, method, path, &fields, b"");
            assert!(
                page.starts_with(&reply.body) && !is_hit(&reply),
                "{reply:?}"
            );
        }
    }
}

#[test]
fn what_nobody_needed_credentials_for_is_for_all() {
    let image = Image::of(b"public");
    let upstream = registry(&image, |_| None);
    let proxy = proxy(&upstream.url(), &[]);
    let blob = blob_path(&image);
    assert!(get(proxy.address, &blob).body == image.layer());
    let reply = get_with(proxy.address, &blob, &[("authorization", "Bearer ann")]);
    assert!(is_hit(&reply) && reply.body == image.layer(), "{reply:?}");
    assert_eq!(upstream.asked().len(), 1);
}

#[test]
fn one_repository_shows_nothing_of_another() {
    let image = Image::of(b"secret");
    let upstream = registry(&image, |asked| admits(asked, &["Bearer ann"]));
    let proxy = proxy(&upstream.url(), &[]);
    let (blob, ann) = (blob_path(&image), [("authorization", "Bearer ann")]);
    assert_eq!(get_with(proxy.address, &blob, &ann).status, 200);
    let other = blob.replace("/app/", "/private/");
    assert_eq!(get_with(proxy.address, &other, &ann).status, 404);
    assert_eq!(count(&upstream, "HEAD", "/private/"), 1);
}

#[test]
fn a_credential_of_the_operator_goes_to_the_registry_alone() {
    let image = Image::of(&noise(200_000));
    let layer = image.layer().to_vec();
    let far = Upstream::start({
        let layer = layer.clone();
        move |asked| part(asked, &layer)
    });
    let to = format!("{}/signed", far.url());
    let upstream = registry(&image, move |asked| {
        admits(asked, &["Bearer of-all"]).or_else(|| {
            let is_blob = asked.target.contains("/blobs/");
            is_blob.then(|| Answer::of(307, &[("location", to.as_str())], ""))
        })
    });
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = home.path().join("credential");
    std::fs::write(&file, "Authorization: Bearer of-all\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let credential = format!("/v2/hub={}", file.display());
    let url = upstream.url();
    let proxy = start(Arc::clone(&home), &url, &["--credential", &credential]);
    assert_eq!(get(proxy.address, "/v2/").status, 200);
    // With a field that could be a credential of the client's, too.
    let blob = blob_path(&image);
    assert!(get_with(proxy.address, &blob, &[("cookie", "mine")]).body == layer);
    assert!(get(proxy.address, &blob).body == layer);
    assert!(is_hit(&get(proxy.address, &blob)));
    for asked in far.asked() {
        assert!(!asked.headers.contains_key("authorization"), "{asked:?}");
        assert!(!asked.headers.contains_key("cookie"), "{asked:?}");
    }
    assert_eq!(
        far.asked()
            .iter()
            .filter(|asked| asked.method == "GET")
            .count(),
        2
    );
}

#[test]
fn another_digest_is_not_kept() {
    let image = Image::of(&noise(3_000_000));
    let (name, layer) = (image.layer.clone(), image.layer().to_vec());
    let wrong = layer.iter().rev().copied().collect::<Vec<u8>>();
    let upstream = registry(&image, move |asked| {
        asked.target.ends_with(&name).then(|| part(asked, &wrong))
    });
    let proxy = proxy(&upstream.url(), &[]);
    let blob = blob_path(&image);
    for times in 1..=2 {
        let reply = get(proxy.address, &blob);
        assert!(!reply.whole, "{reply:?}");
        assert_eq!(upstream.asked().len(), times);
    }
    assert_eq!(proxy.metric("brisk_proxy_wrong_digests_total"), Some(2));
    // The operator sees it, a little later than the client.
    let begun = Instant::now();
    while !proxy
        .messages()
        .ends_with("it is not kept; ask the operator of the registry\n")
    {
        assert!(begun.elapsed() < HANG, "{}", proxy.messages());
        std::thread::sleep(Duration::from_millis(10));
    }
    // A manifest as well.
    let other = format!("/v2/hub/app/manifests/{}", digest(b"other"));
    let upstream = registry(&image, move |asked| {
        asked
            .target
            .contains("/manifests/")
            .then(|| Answer::of(200, &[], "wrong"))
    });
    let proxy = proxy_of(&upstream);
    for times in 1..=2 {
        assert_eq!(get(proxy.address, &other).status, 502);
        assert_eq!(upstream.asked().len(), times);
    }
}

fn proxy_of(upstream: &Upstream) -> Program {
    proxy(&upstream.url(), &[])
}

#[test]
fn a_redirect_is_followed_without_the_credential() {
    let image = Image::of(&noise(200_000));
    let layer = image.layer().to_vec();
    let far = Upstream::start({
        let layer = layer.clone();
        move |asked| part(asked, &layer)
    });
    let (count_of, name) = (AtomicUsize::new(0), image.layer.clone());
    let to = far.url();
    let upstream = registry(&image, move |asked| {
        let next = count_of.fetch_add(1, Ordering::Relaxed);
        admits(asked, &["Bearer ann"]).or_else(|| {
            let location = format!("{to}/signed?token={next}");
            let fields = [
                ("location", location.as_str()),
                ("docker-content-digest", &name),
            ];
            asked
                .target
                .contains("/blobs/")
                .then(|| Answer::of(307, &fields, ""))
        })
    });
    let proxy = proxy(&upstream.url(), &[]);
    let (blob, ann) = (blob_path(&image), ("authorization", "Bearer ann"));
    let mine = [ann, ("cookie", "mine")];
    let part = get_with(proxy.address, &blob, &[ann, ("range", "bytes=7-9")]);
    assert_eq!(part.status, 206);
    assert!(part.body == layer[7..10]);
    let whole = get_with(proxy.address, &blob, &mine);
    assert!(whole.body == layer);
    assert_eq!(whole.field("docker-content-digest"), image.layer);
    assert!(is_hit(&get_with(proxy.address, &blob, &mine)));
    let followed = far.asked();
    assert_eq!(
        followed
            .iter()
            .filter(|asked| asked.method == "GET")
            .count(),
        2
    );
    for asked in followed {
        let secrets = ["authorization", "cookie"];
        assert!(
            secrets
                .iter()
                .all(|name| !asked.headers.contains_key(*name)),
            "{asked:?}"
        );
    }
}

#[test]
fn a_redirect_to_what_is_near_goes_to_the_client() {
    let image = Image::of(b"x");
    let layer = image.layer().to_vec();
    let near = Upstream::start(move |_| Answer::of(200, &[], layer.clone()));
    let to = format!("http://localhost:{}/x", near.address.port());
    let location = to.clone();
    let upstream = registry(&image, move |asked| {
        let fields = [
            ("location", location.as_str()),
            ("cache-control", "max-age=60"),
        ];
        asked
            .target
            .contains("/blobs/")
            .then(|| Answer::of(307, &fields, ""))
    });
    let alone = proxy(&upstream.url(), &[]);
    for _ in 0..2 {
        let reply = get(alone.address, &blob_path(&image));
        assert_eq!((reply.status, reply.field("location")), (307, to.as_str()));
        assert!(!is_hit(&reply), "{reply:?}");
    }
    assert!(near.asked().is_empty());
    // Unless the operator has named it.
    let follow = format!("localhost:{}", near.address.port());
    let follows = proxy(&upstream.url(), &["--follow", &follow]);
    assert!(get(follows.address, &blob_path(&image)).body == image.layer());
    assert_eq!(near.asked().len(), 1);
}

#[test]
fn heads_of_tags_bring_what_is_needed_without_the_registry() {
    let image = Image::of(b"x");
    let upstream = registry(&image, |_| None);
    let url = upstream.url();
    let home = Arc::new(tempfile::tempdir().unwrap());
    let proxy = start(Arc::clone(&home), &url, &[]);
    let types = "application/vnd.docker.distribution.manifest.v2+json, \
                 application/vnd.docker.distribution.manifest.list.v2+json, \
                 application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json";
    let as_docker = [
        ("accept", types),
        ("docker-distribution-api-version", "registry/2.0"),
    ];
    let as_containerd = [("accept", &*format!("{types}, */*"))];
    let (tag, name) = ("/v2/hub/app/manifests/1", digest(&image.manifest));
    let by_digest = format!("/v2/hub/app/manifests/{name}");
    for _ in 0..2 {
        let head = request(
            proxy.address,
            "HEAD",
            &format!("{tag}?ns=hub.example"),
            &as_containerd,
            b"",
        );
        assert_eq!(
            (head.status, head.field("docker-content-digest")),
            (200, name.as_str())
        );
        assert_eq!(
            head.field("content-length"),
            image.manifest.len().to_string()
        );
        assert!(get_with(proxy.address, &by_digest, &as_containerd).body == image.manifest);
    }
    let asked: Vec<(String, String)> = upstream
        .asked()
        .iter()
        .map(|asked| (asked.method.to_string(), asked.target.clone()))
        .collect();
    let own = |text: &str| text.replace("/hub", "");
    assert_eq!(
        asked,
        [
            // As a whole, because the cache had nothing.
            ("GET".to_owned(), own(tag)),
            ("GET".to_owned(), own(&by_digest)),
            ("HEAD".to_owned(), own(tag)),
        ]
    );
    drop(upstream);
    stop(proxy);
    let offline = start(home, &url, &["--offline"]);
    for method in ["HEAD", "GET"] {
        assert_eq!(
            request(offline.address, method, tag, &as_docker, b"").status,
            200
        );
        let reply = request(offline.address, method, &by_digest, &as_docker, b"");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.field("docker-content-digest"), name);
    }
    // Who knows one type alone may get another manifest.
    let old = [(
        "accept",
        "application/vnd.docker.distribution.manifest.v2+json",
    )];
    assert_eq!(get_with(offline.address, tag, &old).status, 504);
}

#[test]
fn a_tag_that_moved_is_kept_as_it_is_now() {
    let (old, new) = (Image::of(b"old"), Image::of(b"new"));
    let moved = Arc::new(AtomicBool::new(false));
    let is_moved = Arc::clone(&moved);
    let newer = new.clone();
    let upstream = registry(&old, move |asked| {
        let manifest = digest(&newer.manifest);
        let fields = [
            ("docker-content-digest", manifest.as_str()),
            ("etag", "\"new\""),
        ];
        (is_moved.load(Ordering::Relaxed) && asked.target.ends_with("/1"))
            .then(|| Answer::of(200, &fields, newer.manifest.clone()))
    });
    let proxy = proxy(&upstream.url(), &[]);
    let tag = "/v2/hub/app/manifests/1";
    let head = |proxy: &Program| {
        let reply = request(proxy.address, "HEAD", tag, &[], b"");
        reply.field("docker-content-digest").to_owned()
    };
    assert_eq!(head(&proxy), digest(&old.manifest));
    moved.store(true, Ordering::Relaxed);
    assert_eq!(head(&proxy), digest(&new.manifest));
    drop(upstream);
    assert_eq!(head(&proxy), digest(&new.manifest));
}

#[test]
fn pushes_are_refused_unless_the_map_says_otherwise() {
    let skopeo = Skopeo::new();
    let server = Registry::start(&skopeo.path(""));
    let image = Image::of(&noise(300_000));
    let upstream = format!("http://{}", server.address);
    let refusing = proxy(&upstream, &[]);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let reply = request(
            refusing.address,
            method,
            "/v2/hub/app/blobs/uploads/",
            &[],
            b"",
        );
        assert_eq!(reply.status, 405);
        assert_eq!(reply.field("content-type"), "application/json");
        let error: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(error["errors"][0]["code"], "UNSUPPORTED");
        let message = error["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains("oci-push"), "{message}");
    }
    let said = skopeo.pushes(&image, &format!("{}/hub/app:1", refusing.address));
    assert!(said.is_err());
    let map = format!("/v2/hub=oci-push:{upstream}/v2");
    let passing = Program::mapping(&map);
    let name = format!("{}/hub/app:1", passing.address);
    skopeo.pushes(&image, &name).unwrap();
    skopeo.pulls(&[], &name, "pulled", &image);
    skopeo.pulls(&[], &format!("{}/app:1", server.address), "direct", &image);
}

#[test]
fn tokens_pass_and_realms_stay() {
    let image = Image::of(&noise(100_000));
    // A token server that knows one user. A token says what it is for.
    let tokens = Upstream::start(|asked| {
        let given = asked.headers.get("authorization");
        let query = asked.target.split(['?', '&']);
        let scope = query
            .filter_map(|part| part.strip_prefix("scope="))
            .next_back();
        // ann:hush
        match given.is_some_and(|given| given == "Basic YW5uOmh1c2g=") {
            true => Answer::of(
                200,
                &[],
                format!("{{\"token\":\"{}\"}}", scope.unwrap_or("none")),
            ),
            false => Answer::of(401, &[], "{}"),
        }
    });
    let realm = format!(
        "Bearer realm=\"{}/token\",service=\"registry\"",
        tokens.url()
    );
    let challenge = realm.clone();
    let right = "Bearer repository%3Aapp%3Apull";
    let upstream = registry(&image, move |asked| {
        let challenge = match asked.headers.get("authorization") {
            None => challenge.clone(),
            Some(given) if given == right => return None,
            // The client knows the repository by the name that it has at the proxy.
            Some(_) => {
                format!("{challenge},scope=\"repository:app:pull\",error=\"insufficient_scope\"")
            }
        };
        Some(Answer::of(
            401,
            &[("www-authenticate", challenge.as_str())],
            "{}",
        ))
    });
    let proxy = proxy(&upstream.url(), &[]);
    assert_eq!(get(proxy.address, "/v2/").field("www-authenticate"), realm);
    let skopeo = Skopeo::new();
    let name = format!("{}/hub/app:1", proxy.address);
    for directory in ["first", "second"] {
        skopeo.pulls(&["--src-creds", "ann:hush"], &name, directory, &image);
    }
    // Of all who asked for the layer with the right token, one got it from there.
    let asked = upstream.asked();
    let admitted = asked.iter().filter(|asked| {
        asked.method == "GET"
            && asked.target.ends_with(&image.layer)
            && asked
                .headers
                .get("authorization")
                .is_some_and(|given| given == right)
    });
    assert_eq!(admitted.count(), 1);
    let wrong = skopeo.path("wrong");
    let wrong = format!("oci:{}", wrong.display());
    let copied = skopeo.copy(
        &["--src-creds", "eve:x"],
        &format!("docker://{name}"),
        &wrong,
    );
    assert!(copied.is_err());
    // The password goes to the token server alone.
    let basic = |asked: &Asked| {
        let given = asked.headers.get("authorization");
        given.is_some_and(|given| given.as_bytes().starts_with(b"Basic "))
    };
    assert!(!upstream.asked().iter().any(basic));
    assert!(tokens.asked().iter().any(basic));
}

#[test]
fn a_password_opens_what_is_kept_without_the_registry() {
    let image = Image::of(&noise(100_000));
    let basic = "Basic YW5uOmh1c2g=";
    let upstream = registry(&image, move |asked| {
        let given = asked.headers.get("authorization");
        given.is_none_or(|given| given != basic).then(|| {
            Answer::of(
                401,
                &[("www-authenticate", "Basic realm=\"registry\"")],
                "{}",
            )
        })
    });
    let url = upstream.url();
    let home = Arc::new(tempfile::tempdir().unwrap());
    let proxy = start(Arc::clone(&home), &url, &[]);
    let skopeo = Skopeo::new();
    let of = |proxy: &Program| format!("{}/hub/app:1", proxy.address);
    skopeo.pulls(&["--src-creds", "ann:hush"], &of(&proxy), "first", &image);
    drop(upstream);
    skopeo.pulls(&["--src-creds", "ann:hush"], &of(&proxy), "second", &image);
    stop(proxy);
    let offline = start(home, &url, &["--offline"]);
    skopeo.pulls(&["--src-creds", "ann:hush"], &of(&offline), "third", &image);
    let wrong = format!("oci:{}", skopeo.path("wrong").display());
    for creds in ["eve:hush", "ann:x"] {
        let from = format!("docker://{}", of(&offline));
        assert!(skopeo.copy(&["--src-creds", creds], &from, &wrong).is_err());
    }
}

/// What a proxy has of its own, in KiB.
fn memory(proxy: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid().as_raw_nonzero()));
    let status = status.unwrap();
    let of_its_own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let of_its_own = of_its_own.unwrap().trim().trim_end_matches(" kB");
    of_its_own.parse().unwrap()
}

#[test]
fn a_blob_that_is_longer_than_the_cache_passes_through() {
    let layer = noise(64 << 20);
    let name = digest(&layer);
    let path = format!("/v2/app/blobs/{name}");
    let served = layer.clone();
    let upstream = Upstream::start(move |asked| match asked.target == path {
        true => part(asked, &served),
        false => Answer::of(404, &[], ""),
    });
    let proxy = proxy(&upstream.url(), &["--limit", "16M"]);
    for times in 1..=2 {
        let reply = get(proxy.address, &format!("/v2/hub/app/blobs/{name}"));
        assert!(reply.whole && reply.body == layer);
        assert_eq!(upstream.asked().len(), times);
    }
    let peak = memory(&proxy);
    assert!(peak < 48 << 10, "{peak} KiB");
}

#[test]
fn several_registries_stand_side_by_side() {
    let (one, two) = (Image::of(b"one"), Image::of(b"two"));
    let (first, second) = (registry(&one, |_| None), registry(&two, |_| None));
    let maps = [
        format!("/v2/one=oci:{}/v2", first.url()),
        format!("/v2/two=oci:{}/v2/", second.url()),
    ];
    let proxy = Program::start(&["--map", &maps[0], "--map", &maps[1]]);
    let ping = get(proxy.address, "/v2/");
    assert_eq!((ping.status, ping.text().as_str()), (200, "{}"));
    assert_eq!(
        ping.field("docker-distribution-api-version"),
        "registry/2.0"
    );
    let skopeo = Skopeo::new();
    skopeo.pulls(&[], &format!("{}/one/app:1", proxy.address), "one", &one);
    skopeo.pulls(&[], &format!("{}/two/app:1", proxy.address), "two", &two);
    // The next page of a list is found through the proxy, too.
    let list = get(proxy.address, "/v2/two/app/tags/list?ns=two.example&n=1");
    assert_eq!(
        list.field("link"),
        "</v2/two/app/tags/list?last=1&n=1>; rel=\"next\""
    );
}

/// A client asks an address once where it gets tokens.
#[test]
fn registries_with_tokens_have_a_proxy_each_and_one_cache() {
    let images = [Image::of(b"one"), Image::of(b"two")];
    let servers = ["one", "two"].map(|name| {
        let token = format!("{{\"token\":\"{name}\"}}");
        Upstream::start(move |_| Answer::of(200, &[], token.clone()))
    });
    let upstreams = [("one", 0), ("two", 1)].map(|(name, number)| {
        let realm = format!("Bearer realm=\"{}/token\"", servers[number].url());
        registry(&images[number], move |asked| {
            let given = asked.headers.get("authorization");
            let is_right = given.is_some_and(|given| given == format!("Bearer {name}").as_str());
            let challenge = [("www-authenticate", realm.as_str())];
            (!is_right).then(|| Answer::of(401, &challenge, "{}"))
        })
    });
    let skopeo = Skopeo::new();
    let maps = [0, 1].map(|number| format!("/v2/{number}=oci:{}/v2", upstreams[number].url()));
    let both = Program::start(&["--map", &maps[0], "--map", &maps[1]]);
    for number in [0, 1] {
        let from = format!("docker://{}/{number}/app:1", both.address);
        let to = format!("oci:{}", skopeo.path("refused").display());
        assert!(skopeo.copy(&[], &from, &to).is_err());
    }
    let home = Arc::new(tempfile::tempdir().unwrap());
    let each = upstreams.each_ref().map(|upstream| {
        let map = format!("/v2=oci:{}/v2", upstream.url());
        Program::start_with(Arc::clone(&home), &["--map", &map], &[])
    });
    for turn in ["first", "second"] {
        for (proxy, image) in each.iter().zip(&images) {
            let name = format!("{turn}-{}", proxy.address.port());
            skopeo.pulls(&[], &format!("{}/app:1", proxy.address), &name, image);
        }
    }
    for (upstream, image) in upstreams.iter().zip(&images) {
        assert_eq!(count(upstream, "GET", &image.layer), 1);
    }
}

#[test]
fn a_head_of_another_digest_shows_nothing() {
    let image = Image::of(b"secret");
    let other = digest(b"other");
    let upstream = registry(&image, move |asked| {
        let fields = [("docker-content-digest", other.as_str())];
        let status = match asked.method == "HEAD" {
            true => 200,
            false => 403,
        };
        admits(asked, &["Bearer ann"]).map(|_| Answer::of(status, &fields, ""))
    });
    let proxy = proxy_of(&upstream);
    let blob = blob_path(&image);
    let ann = [("authorization", "Bearer ann")];
    assert!(get_with(proxy.address, &blob, &ann).body == image.layer());
    for range in [None, Some(("range", "bytes=0-3"))] {
        let eve = ("authorization", "Bearer eve");
        let fields: Vec<(&str, &str)> = range.into_iter().chain([eve]).collect();
        assert_eq!(get_with(proxy.address, &blob, &fields).status, 403);
    }
}

#[test]
fn what_may_lead_to_another_repository_shows_nothing_and_is_not_kept() {
    let image = Image::of(b"secret");
    let manifest = image.manifest.clone();
    let upstream = registry(&image, move |asked| {
        let fields = [
            ("content-type", "application/vnd.oci.image.manifest.v1+json"),
            ("cache-control", "max-age=600"),
        ];
        let is_other = ["%", "?", "sha384:"]
            .iter()
            .any(|mark| asked.target.contains(mark));
        match is_other {
            true => Some(Answer::of(200, &fields, manifest.clone())),
            false => admits(asked, &["Bearer ann"]),
        }
    });
    let proxy = proxy_of(&upstream);
    let blob = blob_path(&image);
    let ann = [("authorization", "Bearer ann")];
    let eve = [("authorization", "Bearer eve")];
    assert_eq!(get_with(proxy.address, &blob, &ann).status, 200);
    let hex = "a".repeat(64);
    for name in [
        "x%2fmanifests%2f1",
        "1?n%73=evil.example",
        &format!("sha256%3A{hex}"),
        &format!("sha384:{hex}"),
    ] {
        let path = format!("/v2/hub/app/manifests/{name}");
        for _ in 0..2 {
            let reply = get_with(proxy.address, &path, &eve);
            assert_eq!(reply.status, 200, "{name}");
            assert!(!is_hit(&reply), "{name} {reply:?}");
        }
        assert_eq!(get_with(proxy.address, &blob, &eve).status, 401, "{name}");
    }
}

#[test]
fn a_tag_may_be_called_as_the_question_for_a_registry() {
    let image = Image::of(b"secret");
    let upstream = registry(&image, |asked| admits(asked, &["Bearer ann"]));
    let proxy = proxy_of(&upstream);
    let tag = "/v2/hub/app/manifests/v2";
    assert_eq!(get(proxy.address, tag).status, 401);
    drop(upstream);
    assert_eq!(get(proxy.address, tag).status, 502);
}

#[test]
fn a_map_may_lead_to_one_repository() {
    let image = Image::of(b"x");
    let upstream = registry(&image, |_| None);
    let proxy = Program::mapping(&format!("/v2/app=oci:{}/v2/app", upstream.url()));
    let tag = "/v2/app/manifests/1";
    let types = [&[][..], &[("accept", "application/x")]];
    for types in types {
        assert!(get_with(proxy.address, tag, types).body == image.manifest);
    }
    drop(upstream);
    for types in types {
        assert!(get_with(proxy.address, tag, types).body == image.manifest);
    }
    assert_eq!(
        get_with(proxy.address, tag, &[("accept", "application/y")]).status,
        502
    );
}

#[test]
fn what_is_said_to_caches_of_servers_opens_nothing() {
    let image = Image::of(b"secret");
    let layer = image.layer().to_vec();
    let upstream = registry(&image, move |asked| {
        let fields = [
            ("cdn-cache-control", "public, max-age=600"),
            ("etag", "\"x\""),
        ];
        let coded = [&fields[..], &[("content-encoding", "gzip")]].concat();
        match asked.target.contains("/coded/") {
            true => Some(Answer::of(200, &coded, "unchecked")),
            false => admits(asked, &["Bearer ann"]).or_else(|| {
                let is_blob = asked.target.contains("/blobs/");
                is_blob.then(|| Answer::of(200, &fields, layer.clone()))
            }),
        }
    });
    let proxy = proxy_of(&upstream);
    let (blob, ann) = (blob_path(&image), [("authorization", "Bearer ann")]);
    let tag = "/v2/hub/app/manifests/1";
    assert_eq!(get_with(proxy.address, tag, &ann).status, 200);
    for is_kept in [false, true] {
        let reply = get_with(proxy.address, &blob, &ann);
        assert!(reply.body == image.layer());
        assert_eq!(is_hit(&reply), is_kept, "{reply:?}");
        assert_eq!(get(proxy.address, &blob).status, 401);
    }
    // Nobody has checked these.
    let coded = blob.replace("/app/", "/coded/");
    for _ in 0..2 {
        let reply = get(proxy.address, &coded);
        assert!(!is_hit(&reply) && reply.text() == "unchecked", "{reply:?}");
    }
    assert_eq!(count(&upstream, "GET", "/coded/"), 2);
}

#[test]
fn a_tag_that_stayed_for_long_is_asked_for_too() {
    let image = Image::of(b"x");
    let manifest = image.manifest.clone();
    let upstream = registry(&image, move |asked| {
        let fields = [("last-modified", "Fri, 01 Jan 2010 00:00:00 GMT")];
        let is_tag = asked.target.ends_with("/manifests/1");
        is_tag.then(|| match asked.headers.contains_key("if-modified-since") {
            true => Answer::of(304, &[("cache-control", "public")], ""),
            false => Answer::of(200, &fields, manifest.clone()),
        })
    });
    let proxy = proxy_of(&upstream);
    for times in 1..=3 {
        let reply = get(proxy.address, "/v2/hub/app/manifests/1");
        assert!(reply.body == image.manifest, "{reply:?}");
        assert_eq!(upstream.asked().len(), times);
    }
    // And what it was stands in.
    drop(upstream);
    let reply = get(proxy.address, "/v2/hub/app/manifests/1");
    assert!(reply.body == image.manifest, "{reply:?}");
}

#[test]
fn where_a_tag_is_kept_says_nothing_of_how_long_or_for_whom() {
    let image = Image::of(b"secret");
    let manifest = image.manifest.clone();
    let far = Upstream::start(move |_| {
        let fields = [("cache-control", "public, s-maxage=600, max-age=600")];
        Answer::of(200, &fields, manifest.clone())
    });
    let to = far.url();
    let upstream = registry(&image, move |asked| {
        admits(asked, &["Bearer ann"]).or_else(|| {
            let is_tag = asked.target.ends_with("/manifests/1");
            is_tag.then(|| Answer::of(307, &[("location", to.as_str())], ""))
        })
    });
    let proxy = proxy_of(&upstream);
    let tag = "/v2/hub/app/manifests/1";
    let ann = [("authorization", "Bearer ann")];
    for times in 1..=2 {
        assert!(get_with(proxy.address, tag, &ann).body == image.manifest);
        assert_eq!(far.asked().len(), times);
        assert_eq!(get(proxy.address, tag).status, 401);
    }
    drop((upstream, far));
    assert!(get_with(proxy.address, tag, &ann).body == image.manifest);
}

#[test]
fn a_push_sees_what_the_registry_has() {
    let (old, new) = (Image::of(b"old"), Image::of(b"new"));
    let is_lost = Arc::new(AtomicBool::new(false));
    let (lost, newer) = (Arc::clone(&is_lost), new.manifest.clone());
    let upstream = registry(&old, move |asked| {
        let is_tag = asked.target.ends_with("/manifests/1");
        match (asked.method.as_str(), lost.load(Ordering::Relaxed)) {
            ("PUT", _) => Some(Answer::of(201, &[], "")),
            (_, true) if is_tag => Some(Answer::of(200, &[], newer.clone())),
            (_, true) => Some(Answer::of(404, &[], "")),
            (_, false) => None,
        }
    });
    let map = format!("/v2/hub=oci-push:{}/v2", upstream.url());
    let ttl = format!("{}/*/manifests/*=1h", upstream.address);
    let home = Arc::new(tempfile::tempdir().unwrap());
    let proxy = Program::start_with(Arc::clone(&home), &["--map", &map, "--ttl", &ttl], &[]);
    let (blob, tag) = (blob_path(&old), "/v2/hub/app/manifests/1");
    let by_digest = format!("/v2/hub/app/manifests/{}", digest(&old.manifest));
    for path in [&blob, &by_digest, tag] {
        assert_eq!(get(proxy.address, path).status, 200);
        assert_eq!(request(proxy.address, "HEAD", path, &[], b"").status, 200);
        assert!(is_hit(&get(proxy.address, path)));
    }
    is_lost.store(true, Ordering::Relaxed);
    // Else the client would not push it again.
    for path in [&blob, &by_digest] {
        let head = request(proxy.address, "HEAD", path, &[], b"");
        assert_eq!(head.status, 404, "{head:?}");
        assert!(is_hit(&get(proxy.address, path)));
    }
    let pushed = request(proxy.address, "PUT", tag, &[], &new.manifest);
    assert_eq!(pushed.status, 201);
    assert!(get(proxy.address, tag).body == new.manifest);
    drop(upstream);
    let is_found = |proxy: &Program| {
        for path in [&blob, &by_digest] {
            assert_eq!(request(proxy.address, "HEAD", path, &[], b"").status, 200);
        }
    };
    is_found(&proxy);
    stop(proxy);
    is_found(&Program::start_with(
        home,
        &["--map", &map, "--offline"],
        &[],
    ));
}

#[test]
fn many_clients_that_take_a_long_manifest_slowly_cost_no_memory() {
    let mut image = Image::of(b"x");
    image.manifest.resize((4 << 20) - 1, b' ');
    let upstream = registry(&image, |_| None);
    let proxy = proxy_of(&upstream);
    let path = format!("/v2/hub/app/manifests/{}", digest(&image.manifest));
    assert!(get(proxy.address, &path).body == image.manifest);
    let clients: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut client = TcpStream::connect(proxy.address).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            let mut first = [0; 12];
            client.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            client
        })
        .collect();
    let found = memory(&proxy);
    assert!(found < 48 << 10, "{found} KiB");
    drop(clients);
}

#[test]
fn a_redirect_without_an_end_leads_to_no_path_of_the_registry() {
    let image = Image::of(b"x");
    let far = Upstream::start(|_| Answer::of(307, &[("location", "/v2/app/tags/list")], ""));
    let to = far.url();
    let upstream = registry(&image, move |asked| {
        let is_blob = asked.target.contains("/blobs/");
        is_blob.then(|| Answer::of(307, &[("location", to.as_str())], ""))
    });
    let proxy = proxy_of(&upstream);
    let reply = get(proxy.address, &blob_path(&image));
    assert_eq!((reply.status, far.asked().len()), (502, 5), "{reply:?}");
}
