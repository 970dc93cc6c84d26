//! A registry that does what a test says, and who gives its tokens.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use brisk_remote::{Content, Index, Manifest, Platform, media_type};
use data_encoding::BASE64;

use super::{Signer, manifest, payload, signatures};
use crate::support::{Manner, Place, Server, await_that, contents, text};

/// What it was asked for: method and path, and who asked.
type Asked = (String, Option<String>);

/// A registry that wants tokens.
struct Registry {
    host: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What a GET of a path gets, with its type.
    files: Mutex<HashMap<String, (String, Vec<u8>)>>,
    state: Mutex<State>,
    asked: Mutex<Vec<Asked>>,
}

#[derive(Default)]
struct State {
    host: String,
    /// The token that is good now. An earlier one is no more.
    token: u32,
    /// Where tokens come from, if not from here.
    realm: Option<String>,
    /// Where blobs are, if not here.
    moved: Option<String>,
    /// How requests for parts are answered.
    manner: Option<u16>,
    /// Who gets a token. None: everybody.
    user: Option<String>,
}

impl Registry {
    /// Has `www/app.img` of the place as `app:1`.
    fn start(place: &Place) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        shared.state.lock().expect("alive").host = address.to_string();
        let server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                // A client that has gone is no fault.
                thread::spawn(move || server.answer(stream).ok());
            }
        });
        let registry = Self {
            host: address.to_string(),
            shared,
        };
        place.publish();
        let text = manifest(place, "app:1");
        let kind = "application/vnd.oci.image.manifest.v1+json";
        registry.put("/v2/app/manifests/1", kind, text.as_bytes());
        let image = fs::read(place.path("www/app.img")).expect("published");
        let artifact = brisk_remote::Artifact::parse(&text).expect("it is one");
        let blob = format!("/v2/app/blobs/{}", artifact.layer.digest);
        registry.put(&blob, "application/octet-stream", &image);
        registry
    }

    fn put(&self, path: &str, kind: &str, bytes: &[u8]) {
        let mut files = self.shared.files.lock().expect("alive");
        files.insert(path.to_owned(), (kind.to_owned(), bytes.to_vec()));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().expect("alive"));
    }

    fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("alive").clone()
    }

    fn url(&self) -> String {
        format!("oci://{}/app:1", self.host)
    }

    /// Somebody who has logged in there as alice.
    fn alice(&self) -> Place {
        let place = Place::new();
        self.log_in(&place);
        place
    }

    /// As docker login does.
    fn log_in(&self, place: &Place) {
        let secret = BASE64.encode(b"alice:sesame");
        let auths = format!(
            "{{\"auths\":{{\"{}\":{{\"auth\":\"{secret}\"}}}}}}",
            self.host
        );
        fs::create_dir(place.path("home/.docker")).expect("room");
        fs::write(place.path("home/.docker/config.json"), auths).expect("room");
    }
}

fn alice() -> Option<String> {
    Some(format!("Basic {}", BASE64.encode(b"alice:sesame")))
}

/// Method and path, fields, and body.
type Received = (String, HashMap<String, String>, Vec<u8>);

/// The next request. None: there is none.
fn next_request(lines: &mut impl BufRead) -> std::io::Result<Option<Received>> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let request = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut fields: HashMap<String, String> = HashMap::new();
    loop {
        line.clear();
        lines.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let len = fields.get("content-length");
    let len = len.and_then(|len| len.parse().ok());
    let mut body = vec![0; len.unwrap_or(0)];
    lines.read_exact(&mut body)?;
    Ok(Some((request, fields, body)))
}

impl Shared {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let Some((request, fields, _)) = next_request(&mut lines)? else {
                return Ok(());
            };
            let who = fields.get("authorization").cloned();
            let asked = (request.clone(), who.clone());
            self.asked.lock().expect("alive").push(asked);
            let range = fields.get("range").map(String::as_str);
            self.reply(lines.get_mut(), &request, who, range)?;
        }
    }

    fn reply(
        &self,
        stream: &mut TcpStream,
        request: &str,
        who: Option<String>,
        range: Option<&str>,
    ) -> std::io::Result<()> {
        let nothing = "Content-Length: 0\r\n\r\n";
        let (method, path) = request.split_once(' ').expect("a request");
        let mut state = self.state.lock().expect("alive");
        if path.starts_with("/token") {
            let body = format!("{{\"token\":\"t{}\"}}", state.token);
            return match state.user.is_none() || state.user == who {
                true => write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
                false => write!(stream, "HTTP/1.1 401 No\r\n{nothing}"),
            };
        }
        if who != Some(format!("Bearer t{}", state.token)) {
            let own = format!("http://{}/token", state.host);
            let realm = state.realm.as_ref().unwrap_or(&own);
            return write!(
                stream,
                "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:app:pull\"\r\n{nothing}"
            );
        }
        let files = self.files.lock().expect("alive");
        let Some((kind, bytes)) = files.get(path) else {
            return write!(stream, "HTTP/1.1 404 No\r\n{nothing}");
        };
        let is_blob = path.contains("/blobs/");
        if let Some(moved) = state.moved.as_ref().filter(|_| is_blob) {
            return write!(
                stream,
                "HTTP/1.1 307 There\r\nLocation: {moved}\r\n{nothing}"
            );
        }
        let range = range.filter(|_| is_blob);
        match (state.manner, range) {
            (Some(429), Some(_)) => {
                state.manner = None;
                return write!(stream, "HTTP/1.1 429 No\r\nRetry-After: 1\r\n{nothing}");
            }
            (Some(400), Some(_)) => return write!(stream, "HTTP/1.1 400 No\r\n{nothing}"),
            (None, Some(range)) => {
                let range = range
                    .strip_prefix("bytes=")
                    .and_then(|range| range.split_once('-'));
                let (first, last) = range.expect("one range");
                let first: usize = first.parse().expect("a number");
                let last: usize = last.parse().expect("a number");
                write!(
                    stream,
                    "HTTP/1.1 206 Part\r\nContent-Range: bytes {first}-{last}/{}\r\nContent-Length: {}\r\n\r\n",
                    bytes.len(),
                    last + 1 - first
                )?;
                return stream.write_all(&bytes[first..=last]);
            }
            _ => {}
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            bytes.len()
        )?;
        match method {
            "HEAD" => Ok(()),
            _ => stream.write_all(bytes),
        }
    }
}

#[test]
fn a_token_that_expires_in_the_middle_is_got_anew() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let place = registry.alice();
    let mnt = place.path("mnt");
    place.done(&[
        "mount",
        &registry.url(),
        &text(&mnt),
        "--background",
        "never",
    ]);
    // Until the mount: who it is, a token, the manifest, and parts.
    let asked = registry.asked();
    assert!(asked.len() <= 8, "{asked:?}");
    for number in 1..4 {
        registry.change(|state| state.token += 1);
        let name = format!("data/{}", 7 * number);
        assert!(fs::read(mnt.join(&name)).expect("it arrives") == contents(&name));
    }
    place.done(&["umount", &text(&mnt)]);
    // The password goes to where tokens are only, and tokens are asked for once each.
    for (request, who) in registry.asked() {
        let is_basic = who.is_some_and(|who| who.starts_with("Basic"));
        assert_eq!(is_basic, request.contains("/token"), "{request}");
    }
    let tokens = registry
        .asked()
        .into_iter()
        .filter(|(request, _)| request.contains("/token"));
    assert_eq!(tokens.count(), 4);
}

/// It has forgotten who the user is, and nobody has asked for the manifest again.
#[test]
fn a_fetcher_that_was_started_anew_asks_who_the_user_is() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let place = registry.alice();
    assert!(
        place.done(&["cat", &registry.url(), "data/1", "--background", "never"])
            == contents("data/1")
    );
    for pid in place.fetchers() {
        crate::kill(u32::try_from(pid).expect("a number"), "-KILL");
    }
    assert!(place.done(&["cat", &registry.url(), "data/20"]) == contents("data/20"));
}

/// A whole image starts without the registry, so the question goes beside it, by a process of its own.
#[test]
fn a_newer_image_of_who_must_log_in_starts_the_next_time() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let (place, url) = (registry.alice(), registry.url());
    place.done(&["remote", "fetch", &url, "-q"]);
    for pid in place.fetchers() {
        crate::kill(u32::try_from(pid).expect("a number"), "-KILL");
    }
    let other = manifest(&files, "app:1").replace("app.img", "other.img");
    registry.put(
        "/v2/app/manifests/1",
        "application/vnd.oci.image.manifest.v1+json",
        other.as_bytes(),
    );
    // As if it was asked for a minute ago.
    let images = fs::read_dir(place.path("cache/brisk/remote/images")).expect("it is here");
    for image in images.flatten() {
        let about = image.path().join("about");
        let text = fs::read_to_string(&about).expect("it is here");
        let mut known: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        known["asked"] = 1.into();
        fs::write(&about, known.to_string()).expect("room");
    }
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    let names = place.path("cache/brisk/remote/names");
    await_that("it is noted", || {
        let mut names = fs::read_dir(&names).expect("it is here").flatten();
        names.any(|name| name.path().extension().is_some_and(|end| end == "newer"))
    });
}

#[test]
fn who_has_not_logged_in_is_told_how() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let place = Place::new();
    let message = place.fails(&["cat", &registry.url(), "etc/text"]);
    assert!(message.contains("does not let you in to app"), "{message}");
    assert!(message.contains("skopeo login"), "{message}");
    // What is open to everybody needs nobody.
    registry.change(|state| state.user = None);
    assert!(place.done(&["cat", &registry.url(), "etc/text"]) == contents("etc/text"));
    assert!(
        registry
            .asked()
            .iter()
            .all(|(_, who)| { who.as_ref().is_none_or(|who| who.starts_with("Bearer")) })
    );
}

/// By the fetcher that was told before that there is nothing.
#[test]
fn who_logs_in_is_let_in_at_once() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let place = Place::new();
    let message = place.fails(&["cat", &registry.url(), "etc/text"]);
    assert!(message.contains("skopeo login"), "{message}");
    registry.log_in(&place);
    assert!(place.done(&["cat", &registry.url(), "etc/text"]) == contents("etc/text"));
}

#[test]
fn a_blob_on_another_host_is_asked_for_there_without_the_token() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let server = Server::start(&files.path("www"));
    registry.change(|state| {
        state.user = alice();
        state.moved = Some(server.url("app.img"));
    });
    let place = registry.alice();
    for name in ["data/1", "data/20", "etc/text"] {
        assert!(place.done(&["cat", &registry.url(), name]) == contents(name));
    }
    let parts = server.asked();
    assert!(
        parts.iter().all(|asked| !asked.has_credentials),
        "{parts:?}"
    );
    // The registry says once where it is.
    let asked = registry.asked();
    let blobs = asked
        .iter()
        .filter(|(request, _)| request.starts_with("GET /v2/app/blobs/"));
    assert!(blobs.count() < parts.len(), "{asked:?}");
    // That place is there for some time only.
    server.behave_for(Manner::Status(403, None), 1);
    assert!(place.done(&["cat", &registry.url(), "data/33"]) == contents("data/33"));
}

#[test]
fn a_password_goes_to_no_host_that_may_not_have_it() {
    for (realm, said) in [
        (
            "http://auth.example/token",
            "anybody on the way could read your password",
        ),
        (
            "ftp://auth.example/token",
            "anybody on the way could read your password",
        ),
        ("token", "that is no URL"),
    ] {
        let files = Place::new();
        let registry = Registry::start(&files);
        registry.change(|state| state.realm = Some(realm.into()));
        let message = registry
            .alice()
            .fails(&["cat", &registry.url(), "etc/text"]);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn another_host_that_gives_tokens_is_named_once() {
    let (files, others) = (Place::new(), Place::new());
    let registry = Registry::start(&files);
    let tokens = Registry::start(&others);
    tokens.change(|state| state.user = alice());
    let port = tokens.host.rsplit(':').next().expect("a port");
    let realm = format!("http://localhost:{port}/token");
    registry.change(|state| state.realm = Some(realm));
    let place = registry.alice();
    for is_first in [true, false] {
        let output = place.output(&["cat", &registry.url(), "etc/text", "--refresh"]);
        assert!(output.stdout == contents("etc/text"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            said.contains("takes tokens of localhost"),
            is_first,
            "{said}"
        );
    }
}

#[test]
fn a_registry_without_ranges_gives_all_of_it() {
    for manner in [200, 400, 429] {
        let files = Place::new();
        let registry = Registry::start(&files);
        registry.change(|state| state.manner = Some(manner));
        let place = Place::new();
        for name in ["data/1", "data/30"] {
            assert!(
                place.done(&["cat", &registry.url(), name]) == contents(name),
                "{manner}"
            );
        }
    }
}

#[test]
fn a_manifest_that_is_another_one_is_refused() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let digest = format!("sha256:{}", "ab".repeat(32));
    let text = manifest(&files, "app:1");
    registry.put(&format!("/v2/app/manifests/{digest}"), "x", text.as_bytes());
    let url = format!("oci://{}/app@{digest}", registry.host);
    let message = Place::new().fails(&["cat", &url, "etc/text"]);
    assert!(
        message.contains("but asked for was sha256:abab"),
        "{message}"
    );
}

/// Lists as docker buildx makes them, and such as nobody does.
#[test]
fn a_list_leads_to_the_first_that_fits_and_nowhere_else() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let image = manifest(&files, "app:1");
    let at = |text: &str| {
        format!(
            "/v2/app/manifests/{}",
            Content::of(text.as_bytes(), "").digest
        )
    };
    registry.put(&at(&image), "x", image.as_bytes());
    let of = |text: &str, platform: &str, variant: &str| {
        let mut content = Content::of(text.as_bytes(), media_type::MANIFEST);
        content.platform = platform.parse().ok();
        if !variant.is_empty() {
            content.set_variant(variant, "zstd");
        }
        content
    };
    let here = Platform::here().to_string();
    let cat = |manifests: Vec<Content>, more: &[&str]| {
        let mut index = Index::of_none();
        index.manifests = manifests;
        registry.put("/v2/app/manifests/1", "x", index.to_text().as_bytes());
        let url = registry.url();
        let arguments = [&["cat", &*url, "etc/text"], more].concat();
        let output = Place::new().output(&arguments);
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    let sound = Ok(contents("etc/text"));
    let attestation = of("attestation", "unknown/unknown", "");
    assert_eq!(cat(vec![attestation, of(&image, &here, "")], &[]), sound);
    let twice = || vec![of(&image, &here, "a"), of("nothing", &here, "a")];
    assert_eq!(cat(twice(), &[]), sound);
    assert_eq!(cat(twice(), &["--variant", "a"]), sound);
    let refused = |manifests, more: &[&str], wanted: &str| {
        let why = cat(manifests, more).expect_err("it is refused");
        assert!(why.contains(wanted), "{why}");
    };
    refused(twice(), &["--variant", "b"], "(variant=b), only for ");
    let list = Index::of(of(&image, &here, "")).to_text();
    registry.put(&at(&list), "x", list.as_bytes());
    refused(vec![of(&list, &here, "")], &[], "leads to another list");
    registry.put(&at("other"), "x", image.as_bytes());
    refused(vec![of("other", &here, "")], &[], "but asked for was");
    let many = vec![of(&image, &here, ""); 5000];
    refused(many, &[], "it has more than 32768 bytes");
    registry.put("/v2/app/manifests/1", "x", image.as_bytes());
    let message = Place::new().fails(&["cat", &registry.url(), "etc/text", "--variant", "a"]);
    assert!(message.contains("no variant a"), "{message}");
}

/// Its blocks are compared with the hash tree that the digest of the manifest vouches for.
#[test]
fn a_registry_that_sends_wrong_bytes_is_found_out() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let text = manifest(&files, "app:1");
    let digest = Content::of(text.as_bytes(), "").digest;
    registry.put(&format!("/v2/app/manifests/{digest}"), "x", text.as_bytes());
    let artifact = brisk_remote::Artifact::parse(&text).expect("it is one");
    let mut image = fs::read(files.path("www/app.img")).expect("published");
    for byte in image.iter_mut().step_by(4096).skip(1) {
        *byte ^= 1;
    }
    let blob = format!("/v2/app/blobs/{}", artifact.layer.digest);
    registry.put(&blob, "application/octet-stream", &image);
    let url = format!("oci://{}/app@{digest}", registry.host);
    let place = Place::new();
    let message = place.fails(&["cat", &url, "data/1"]);
    assert!(message.contains("verity"), "{message}");
}

#[test]
fn a_registry_with_a_list_of_its_own_is_asked_for_that() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let (image, hot) = (text(&files.path("www/app.img")), files.path("hot"));
    let profile = crate::recorded(&files);
    files.done(&[
        "hot",
        &image,
        "--profile",
        &profile,
        "-q",
        "-o",
        &text(&hot),
    ]);
    let bytes = fs::read(&hot).expect("made");
    let layer = Content::of(&bytes, media_type::HOT_LAYER);
    let blob = format!("/v2/app/blobs/{}", layer.digest);
    registry.put(&blob, "x", &bytes);
    let pack = Manifest::of(Content::of(b"{}", media_type::EMPTY), layer).to_text();
    let mut found = Content::of(pack.as_bytes(), media_type::MANIFEST);
    registry.put(
        &format!("/v2/app/manifests/{}", found.digest),
        "x",
        pack.as_bytes(),
    );
    found.artifact_type = Some(media_type::HOT.into());
    let subject = Content::of(manifest(&files, "app:1").as_bytes(), "").digest;
    let list = format!("/v2/app/referrers/{subject}");
    registry.put(
        &list,
        media_type::INDEX,
        Index::of(found).to_text().as_bytes(),
    );
    let place = Place::new();
    let mut program = crate::waiting(&place, &[&registry.url()]);
    await_that("the pack is asked for", || {
        registry
            .asked()
            .iter()
            .any(|(request, _)| *request == format!("GET {blob}"))
    });
    drop(program.stdin.take());
    program.wait().expect("ours");
    assert!(
        registry
            .asked()
            .iter()
            .all(|(request, _)| !request.contains("manifests/sha256-"))
    );
}

/// What SingularityCE and stacker push, and any other layer that is an image.
#[test]
fn what_other_programs_push_is_read() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let of = |kinds: &[&str]| {
        let image = fs::read(files.path("www/app.img")).expect("published");
        let layer = |kind: &&str| {
            let content = Content::of(&image, kind);
            serde_json::to_string(&content).expect("JSON")
        };
        let layers: Vec<String> = kinds.iter().map(layer).collect();
        format!(
            "{{\"schemaVersion\":2,\"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:{}\",\
             \"size\":2}},\"layers\":[{}]}}",
            "44".repeat(32),
            layers.join(",")
        )
    };
    for kind in [
        "application/vnd.sylabs.image.layer.v1.squashfs",
        "application/vnd.sylabs.sif.layer.v1.sif",
        "application/vnd.stacker.image.layer.squashfs+zstd+verity",
    ] {
        registry.put("/v2/app/manifests/1", "x", of(&[kind]).as_bytes());
        let place = Place::new();
        let url = registry.url().replace("oci://", "oras://");
        assert!(
            place.done(&["cat", &url, "data/5"]) == contents("data/5"),
            "{kind}"
        );
        place.done(&["remote", "fetch", &url, "-q"]);
        assert!(crate::is_whole(&place), "{kind}");
    }
    let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
    registry.put("/v2/app/manifests/1", "x", of(&[tar, tar]).as_bytes());
    let message = Place::new().fails(&["cat", &registry.url(), "data/5"]);
    assert!(message.contains("brisk pack oci://"), "{message}");
    assert!(
        message.contains("it is an ordinary container image"),
        "{message}"
    );
}

/// A layer without a file is often there several times, and each time is on its way beside the others.
#[test]
fn a_layer_that_an_image_has_several_times_is_fetched_once() {
    let files = Place::new();
    let registry = Registry::start(&files);
    // The end of an archive, as Docker writes it for what changes no file.
    let empty = [0; 1024];
    let layer = Content::of(&empty, "application/vnd.oci.image.layer.v1.tar");
    let blob = format!("/v2/app/blobs/{}", layer.digest);
    registry.put(&blob, "x", &empty);
    let layers = vec![layer; 6];
    let sums: Vec<&str> = layers.iter().map(|layer| &*layer.digest).collect();
    let config = format!(
        "{{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":{}}}}}",
        serde_json::to_string(&sums).expect("JSON")
    );
    let described = Content::of(config.as_bytes(), media_type::CONFIG);
    let path = format!("/v2/app/blobs/{}", described.digest);
    registry.put(&path, "x", config.as_bytes());
    let manifest = format!(
        "{{\"schemaVersion\":2,\"config\":{},\"layers\":{}}}",
        serde_json::to_string(&described).expect("JSON"),
        serde_json::to_string(&layers).expect("JSON")
    );
    registry.put("/v2/app/manifests/1", "x", manifest.as_bytes());
    let place = Place::new();
    let image = text(&place.path("made.img"));
    place.done(&["pack", "-q", &registry.url(), "-o", &image]);
    assert_eq!(place.done(&["ls", &image]), b"");
    let asked = registry.asked();
    let asked = asked
        .iter()
        .filter(|(asked, _)| *asked == format!("GET {blob}"));
    assert_eq!(asked.count(), 1);
}

/// What is empty would lead to a file in the directory that the user is in, which may be somebody else's.
#[test]
fn an_empty_variable_names_no_file_with_credentials() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    for (name, file) in [
        ("DOCKER_CONFIG", "config.json"),
        ("XDG_CONFIG_HOME", "containers/auth.json"),
    ] {
        let mut place = registry.alice();
        let other = place.path("other").join(file);
        fs::create_dir_all(other.parent().expect("a directory")).expect("room");
        fs::write(&other, "{\"credsStore\":\"../x\"}").expect("room");
        place.variables = vec![(name, String::new())];
        let output = place
            .brisk(&["cat", &registry.url(), "etc/text"])
            .current_dir(place.path("other"))
            .output()
            .expect("brisk is built");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout == contents("etc/text"), "{name}: {said}");
    }
}

/// What a helper is called becomes a path, and who opens a pipe waits for who writes into it.
#[test]
fn a_file_with_credentials_starts_no_other_program_and_blocks_no_start() {
    let files = Place::new();
    let registry = Registry::start(&files);
    registry.change(|state| state.user = alice());
    let config = |text: &str| {
        let place = Place::new();
        fs::create_dir(place.path("home/.docker")).expect("room");
        fs::write(place.path("home/.docker/config.json"), text).expect("room");
        place
    };
    let cat = ["cat", &registry.url(), "etc/text"];
    let helpers = format!("{{\"credHelpers\":{{\"{}\":\"a/b\"}}}}", registry.host);
    for (text, helper) in [
        ("{\"credsStore\":\"../x\"}", "../x"),
        (&*helpers, "a/b"),
        ("{\"credsStore\":\"a b\"}", "a b"),
    ] {
        let message = config(text).fails(&cat);
        let expected = format!("the helper {helper:?} has other characters than letters, digits");
        assert!(message.contains(&expected), "{message}");
    }
    // An empty word is no helper.
    let secret = BASE64.encode(b"alice:sesame");
    let auths = format!("{{\"{}\":{{\"auth\":\"{secret}\"}}}}", registry.host);
    let place = config(&format!("{{\"credsStore\":\"\",\"auths\":{auths}}}"));
    assert!(place.done(&cat) == contents("etc/text"));
    let place = config("{\"credsStore\":\"\"}");
    assert!(place.fails(&cat).contains("does not let you in"));
    // A pipe has nothing, and the last file counts.
    let with_pipe = || {
        let place = registry.alice();
        let pipe = place.path("run/containers/auth.json");
        fs::create_dir_all(pipe.parent().expect("a directory")).expect("room");
        make_pipe(&pipe);
        (place, pipe)
    };
    assert!(with_pipe().0.done(&cat) == contents("etc/text"));
    // Nor does it wait for somebody who writes nothing.
    let (place, pipe) = with_pipe();
    let mut both = fs::OpenOptions::new();
    let _writer = both.read(true).write(true).open(&pipe).expect("ours");
    let message = place.fails(&cat);
    assert!(
        message.contains("containers/auth.json: what it has for"),
        "{message}"
    );
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("coreutils are installed").success());
}

/// The fetcher of all programs reads it.
#[test]
fn a_pipe_in_the_place_of_netrc_stops_no_fetcher() {
    let place = Place::new();
    place.publish();
    let server = Server::start(&place.path("www"));
    make_pipe(&place.path("home/.netrc"));
    assert!(place.done(&["cat", &server.url("app.img"), "etc/text"]) == contents("etc/text"));
}

/// A registry into which is pushed, behind a server that takes 4 MiB at once.
#[derive(Default)]
struct Taker {
    /// What was sent, and what it has, by digest.
    taken: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
    manifest: Vec<u8>,
    /// Ranges of pieces that it did not refuse.
    pieces: Vec<String>,
    /// What it says that it has after the first piece, if that is not true.
    lie: Option<u64>,
}

impl Taker {
    /// The answer to a request: a status and fields. None: it hangs up.
    fn answer(&mut self, request: &str, range: Option<String>, body: Vec<u8>) -> Option<String> {
        let (method, path) = request.split_once(' ').expect("a request");
        let place = "Location: /v2/app/blobs/uploads/1?a=b\r\n";
        match method {
            _ if body.len() > 4 << 20 => Some("413 No".into()),
            "HEAD" => Some("404 No".into()),
            "POST" => {
                self.taken.clear();
                Some(format!("202 Go\r\n{place}OCI-Chunk-Min-Length: 1000\r\n"))
            }
            "GET" => Some(format!("204 Here\r\n{place}{}", self.range())),
            "PATCH" => {
                let range = range.expect("a range");
                if !range.starts_with(&format!("{}-", self.taken.len())) {
                    return Some("416 No".into());
                }
                self.pieces.push(range);
                let taken = match self.pieces.len() {
                    1 | 2 => 1 << 20,
                    _ => body.len(),
                };
                self.taken.extend(&body[..taken]);
                let said = format!("202 Go\r\n{place}{}", self.range());
                Some(said).filter(|_| self.pieces.len() != 2)
            }
            "PUT" if path.contains("/manifests/") => {
                self.manifest = body;
                Some("201 Done".into())
            }
            "PUT" => {
                self.taken.extend(body);
                let digest = Content::of(&self.taken, "").digest;
                let is_right = path
                    .replace("%3A", ":")
                    .ends_with(&format!("?a=b&digest={digest}"));
                self.blobs.insert(digest, std::mem::take(&mut self.taken));
                Some(String::from(if is_right { "201 Done" } else { "400 No" }))
            }
            _ => Some("405 No".into()),
        }
    }

    fn range(&self) -> String {
        let last = (self.taken.len() as u64).saturating_sub(1);
        format!("Range: 0-{}\r\n", self.lie.unwrap_or(last))
    }

    /// Its address.
    fn start(lie: Option<u64>) -> (String, Arc<Mutex<Self>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let taker = Arc::new(Mutex::new(Self {
            lie,
            ..Self::default()
        }));
        let shared = Arc::clone(&taker);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let taker = Arc::clone(&shared);
                // A client that has gone is no fault.
                thread::spawn(move || Self::serve(&taker, stream).ok());
            }
        });
        (host, taker)
    }

    fn serve(taker: &Mutex<Self>, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let Some((request, fields, body)) = next_request(&mut lines)? else {
                return Ok(());
            };
            let range = fields.get("content-range").cloned();
            let said = taker.lock().expect("alive").answer(&request, range, body);
            let Some(said) = said else {
                return Ok(());
            };
            let said = said.trim_end();
            write!(
                lines.get_mut(),
                "HTTP/1.1 {said}\r\nContent-Length: 0\r\n\r\n"
            )?;
        }
    }
}

#[test]
fn a_push_goes_on_from_where_a_registry_says_that_it_is() {
    let place = Place::new();
    let image = super::packed(&place);
    let (host, taker) = Taker::start(None);
    super::pushed(&place, &image, &format!("oci://{host}/app:1"));
    let taker = taker.lock().expect("alive");
    let manifest = Manifest::parse(&String::from_utf8_lossy(&taker.manifest)).expect("ours");
    let blob = &taker.blobs[&manifest.layers[0].digest];
    let (mib, len) = (1 << 20, blob.len());
    let pieces = [(0, 4 * mib), (mib, 5 * mib), (2 * mib, len)];
    assert_eq!(
        taker.pieces,
        pieces.map(|(start, end)| format!("{start}-{}", end - 1))
    );
    drop(taker);
    // What it cannot have.
    for lie in [4 << 20, u64::MAX] {
        let (host, _) = Taker::start(Some(lie));
        let url = format!("oci://{host}/app:1");
        let message = place.fails(&["push", &image, &url, "-q"]);
        assert!(
            message.contains("though it was sent those from 0 to 4194304"),
            "{message}"
        );
    }
    // Nothing, again and again.
    let (host, _) = Taker::start(Some(0));
    let url = format!("oci://{host}/app:1");
    let message = place.fails(&["push", &image, &url, "-q"]);
    assert!(message.contains("takes no bytes from 0 on"), "{message}");
}

impl Registry {
    /// Has what cosign keeps of the manifest with this digest, and the texts that are signed.
    fn put_signatures(&self, digest: &str, signed: &[(Content, String)]) {
        for (layer, payload) in signed {
            let blob = format!("/v2/app/blobs/{}", layer.digest);
            self.put(&blob, "x", payload.as_bytes());
        }
        let layers = signed.iter().map(|(layer, _)| layer.clone()).collect();
        let tag = format!("/v2/app/manifests/{}.sig", digest.replace(':', "-"));
        self.put(&tag, "x", signatures(layers).as_bytes());
    }
}

#[test]
fn of_what_a_registry_has_of_cosign_only_a_right_signature_counts() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let signer = Signer::new(&files, "cosign.pub");
    let other = Signer::new(&files, "other.pub");
    let digest = Content::of(manifest(&files, "app:1").as_bytes(), "").digest;
    let of = |digest: &str| payload(&format!("{}/app", registry.host), digest);
    let signed = |signer: &Signer, payload: String| (signer.sign(&payload), payload);
    let right = || signed(&signer, of(&digest));
    let foreign = |number: usize| signed(&other, of(&format!("sha256:{number:064}")));
    let long = of(&digest).replace("null", &format!("{{\"a\":\"{}\"}}", "b".repeat(5000)));
    let twice = of(&digest).replace(
        "\"docker-manifest-digest\"",
        &format!("\"docker-manifest-digest\":\"{digest}\",\"docker-manifest-digest\""),
    );
    let changed = (right().0, of(&digest).replace("null", "{}"));
    let elsewhere = payload("a.example/app", &digest);
    let all = |right: Option<(Content, String)>| (0..40).map(foreign).chain(right).collect();
    let not_trusted = Some("of a key that is not trusted");
    let unsigned = Some("no signature by cosign");
    let cases: [(Vec<_>, Option<&str>); 8] = [
        (all(Some(right())), None),
        (
            [right()].into_iter().chain(all(None)).collect(),
            not_trusted,
        ),
        (vec![signed(&signer, long)], unsigned),
        (vec![changed], unsigned),
        (vec![signed(&signer, twice)], Some("duplicate field")),
        (
            vec![signed(&signer, of(&foreign(1).0.digest))],
            Some("has signed a manifest with the digest"),
        ),
        (
            vec![signed(&signer, elsewhere)],
            Some("has signed an image in \"a.example/app\""),
        ),
        (vec![right(), foreign(1)], None),
    ];
    for (number, (signed, expected)) in cases.into_iter().enumerate() {
        registry.put_signatures(&digest, &signed);
        let before = registry.asked().len();
        let place = Place::new();
        let verb = [
            "cat",
            &registry.url(),
            "etc/text",
            "--trust",
            &signer.public,
        ];
        match expected {
            None => assert!(place.done(&verb) == contents("etc/text"), "{number}"),
            Some(expected) => {
                let message = place.fails(&verb);
                assert!(message.contains(expected), "{number}: {message}");
            }
        }
        let asked = registry.asked().split_off(before);
        let is_payload = |request: &str| {
            let digests = signed.iter().map(|(layer, _)| &*layer.digest);
            digests.into_iter().any(|digest| request.ends_with(digest))
        };
        let payloads = asked.iter().filter(|(request, _)| is_payload(request));
        assert!(payloads.count() <= 16, "{number}: {asked:?}");
    }
    // What is no manifest.
    let tag = format!("/v2/app/manifests/{}.sig", digest.replace(':', "-"));
    registry.put(&tag, "x", b"<html>");
    let verb = [
        "cat",
        &registry.url(),
        "etc/text",
        "--trust",
        &signer.public,
    ];
    let message = Place::new().fails(&verb);
    assert!(
        message.contains("it is no manifest that brisk can read"),
        "{message}"
    );
    // Without a tag, the list of the registry says where they are.
    registry.put_signatures(&digest, &[right()]);
    let mut files = registry.shared.files.lock().expect("alive");
    let (kind, bytes) = files.remove(&tag).expect("put");
    drop(files);
    let mut found = Content::of(&bytes, media_type::MANIFEST);
    registry.put(
        &format!("/v2/app/manifests/{}", found.digest),
        &kind,
        &bytes,
    );
    found.artifact_type = Some(media_type::COSIGN.into());
    let list = format!("/v2/app/referrers/{digest}");
    registry.put(
        &list,
        media_type::INDEX,
        Index::of(found).to_text().as_bytes(),
    );
    assert!(Place::new().done(&verb) == contents("etc/text"));
}

#[test]
fn a_registry_exchanges_no_variants_that_cosign_has_signed() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let signer = Signer::new(&files, "cosign.pub");
    let mut image = Manifest::parse(&manifest(&files, "app:1")).expect("ours");
    image.layers[0].set_variant("zstd", "zstd");
    let text = image.to_text();
    let mut entry = Content::of(text.as_bytes(), media_type::MANIFEST);
    let path = format!("/v2/app/manifests/{}", entry.digest);
    registry.put(&path, "x", text.as_bytes());
    let payload = payload(&format!("{}/app", registry.host), &entry.digest);
    registry.put_signatures(&entry.digest, &[(signer.sign(&payload), payload)]);
    entry.platform = Some(Platform::here());
    let url = registry.url();
    let mut cat = |variant: &str| {
        entry.set_variant(variant, "zstd");
        let list = Index::of(entry.clone()).to_text();
        registry.put("/v2/app/manifests/1", "x", list.as_bytes());
        let verb = ["cat", &*url, "etc/text", "--variant", variant];
        Place::new().output(&[&verb[..], &["--trust", &signer.public]].concat())
    };
    assert!(cat("zstd").stdout == contents("etc/text"));
    let said = cat("small");
    let message = String::from_utf8_lossy(&said.stderr);
    let expected = "the key has signed the variant zstd, and asked for was small";
    assert!(
        !said.status.success() && message.contains(expected),
        "{message}"
    );
}

/// Only the digest of the whole is signed.
#[test]
fn an_image_without_a_root_hash_is_read_when_all_of_it_was_compared() {
    let files = Place::new();
    let registry = Registry::start(&files);
    let signer = Signer::new(&files, "cosign.pub");
    let mut image = fs::read(files.path("www/app.img")).expect("published");
    let layer = Content::of(&image, media_type::SYLABS_LAYER);
    let blob = format!("/v2/app/blobs/{}", layer.digest);
    let text = Manifest::of(Content::of(b"{}", media_type::CONFIG), layer).to_text();
    registry.put("/v2/app/manifests/1", "x", text.as_bytes());
    let digest = Content::of(text.as_bytes(), "").digest;
    let payload = payload("", &digest);
    registry.put_signatures(&digest, &[(signer.sign(&payload), payload)]);
    let place = Place::new();
    let url = registry.url();
    let verb = [
        "cat",
        &url,
        "etc/text",
        "--trust",
        &signer.public,
        "--background",
        "never",
    ];
    // Without the key, a part of it is enough.
    place.done(&["cat", &url, "etc/text", "--background", "never"]);
    assert!(!crate::is_whole(&place));
    assert!(place.done(&verb) == contents("etc/text"));
    assert!(crate::is_whole(&place));
    assert!(place.done(&verb) == contents("etc/text"));
    // A byte that no reader of the file looks at.
    *image.last_mut().expect("bytes") ^= 1;
    registry.put(&blob, "x", &image);
    let place = Place::new();
    assert!(place.done(&verb[..3]) == contents("etc/text"));
    let said = place.output(&verb);
    let message = String::from_utf8_lossy(&said.stderr);
    assert!(
        !said.status.success() && said.stdout.is_empty(),
        "{message}"
    );
    assert!(
        message.contains("the whole image has the SHA-256"),
        "{message}"
    );
}
