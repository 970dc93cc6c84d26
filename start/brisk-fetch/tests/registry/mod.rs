//! Images in registries: those of Debian's docker-registry, and those of one that does what a test says.

mod hostile;
mod real;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use brisk_remote::{Artifact, Content, Descriptor, Manifest, media_type};
use data_encoding::BASE64;
use rcgen::{KeyPair, SigningKey};

use crate::support::{Place, await_that, text};

/// A docker-registry of its own. It ends with the test.
struct Registry {
    process: Child,
    /// `HOST:PORT`.
    host: String,
}

impl Registry {
    /// Keeps its files in the place. With `is_closed`, only alice may use it, with the password `open sesame`.
    fn start(place: &Place, is_closed: bool) -> Self {
        let host = free_host();
        let auth = match is_closed {
            true => {
                let users = Command::new("htpasswd")
                    .args(["-nbB", "alice", "open sesame"])
                    .output()
                    .expect("apache2-utils is installed");
                let path = place.path("users");
                fs::write(&path, users.stdout).expect("room");
                format!(
                    "auth: {{htpasswd: {{realm: x, path: \"{}\"}}}}\n",
                    text(&path)
                )
            }
            false => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\nstorage:\n  filesystem: {{rootdirectory: \"{}\"}}\n\
             http: {{addr: \"{host}\"}}\n{auth}",
            text(&place.path("blobs"))
        );
        let path = place.path("registry.yml");
        fs::write(&path, config).expect("room");
        let process = Command::new("docker-registry")
            .args(["serve", &text(&path)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is installed");
        await_that("it listens", || TcpStream::connect(&host).is_ok());
        Self { process, host }
    }

    fn url(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.host)
    }

    fn end(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.end();
    }
}

/// An nginx before a registry. It ends with the test.
struct Front {
    process: Child,
    /// `HOST:PORT`.
    host: String,
}

impl Front {
    /// Has in its log what it was asked for, and what the answer was.
    fn start(place: &Place, registry: &str, more: &str) -> Self {
        let host = free_host();
        let files = place.path("nginx");
        fs::create_dir_all(&files).expect("room");
        let config = format!(
            "daemon off; pid pid; error_log error; events {{}}\nhttp {{\n log_format said '$request_method $request_uri $status';\n \
             access_log log said; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n uwsgi_temp_path \
             uwsgi; scgi_temp_path scgi;\n server {{ listen {host}; {more} location / {{ proxy_pass http://{registry}; \
             proxy_set_header Host $http_host; }} }} }}\n"
        );
        let path = files.join("nginx.conf");
        fs::write(&path, config).expect("room");
        let process = Command::new("nginx")
            .args(["-p", &text(&files), "-c", &text(&path)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        await_that("it listens", || TcpStream::connect(&host).is_ok());
        Self { process, host }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Its workers end with it.
        crate::kill(self.process.id(), "-TERM");
        self.process.wait().ok();
    }
}

/// An address of this machine at which nobody listens, and no other test gets the same port.
fn free_host() -> String {
    let port = TcpListener::bind("127.0.0.3:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    format!("127.0.0.3:{port}")
}

/// The image `made.img` of some files, without a hash tree.
fn packed(place: &Place) -> String {
    let image = place.path("made.img");
    pack(place, &image);
    text(&image)
}

fn pack(place: &Place, image: &Path) {
    let tree = place.path("tree");
    for (name, bytes) in crate::support::files() {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("room");
        fs::write(&path, bytes).expect("room");
    }
    place.done(&["pack", &text(&tree), "-o", &text(image), "-q"]);
}

/// What brisk prints of a push, in one piece.
fn pushed(place: &Place, image: &str, url: &str) -> String {
    let printed = place.done(&["push", image, url, "-q"]);
    let printed = String::from_utf8(printed).expect("text");
    let url = printed.trim().strip_prefix("brisk run ");
    url.expect("a command").to_owned()
}

/// Who signs as cosign does, by a key of ECDSA over P-256.
struct Signer {
    key: KeyPair,
    /// The file of the public key.
    public: String,
}

impl Signer {
    fn new(place: &Place, name: &str) -> Self {
        let key = KeyPair::generate().expect("random numbers");
        let path = place.path(name);
        fs::write(&path, key.public_key_pem()).expect("room");
        Self {
            key,
            public: text(&path),
        }
    }

    /// The layer that has a signature of `payload`.
    fn sign(&self, payload: &str) -> Content {
        let signature = self.key.sign(payload.as_bytes()).expect("a signature");
        let mut layer = Content::of(payload.as_bytes(), media_type::COSIGN_LAYER);
        layer.annotations.insert(
            "dev.cosignproject.cosign/signature".into(),
            BASE64.encode(&signature),
        );
        layer
    }
}

/// What cosign signs of a manifest with this digest.
fn payload(repository: &str, digest: &str) -> String {
    format!(
        "{{\"critical\":{{\"identity\":{{\"docker-reference\":\"{repository}\"}},\"image\":{{\"docker-manifest-digest\":\"{digest}\"}},\
         \"type\":\"cosign container image signature\"}},\"optional\":null}}"
    )
}

/// The manifest in which cosign keeps signatures.
fn signatures(layers: Vec<Content>) -> String {
    let config = Content::of(b"{}", media_type::CONFIG);
    let first = layers.first().expect("one").clone();
    let mut manifest = Manifest::of(config, first);
    manifest.layers = layers;
    manifest.to_text()
}

/// The manifest of `www/app.img`, under this name.
fn manifest(place: &Place, name: &str) -> String {
    let said = fs::read_to_string(place.path("www/app.img.remote")).expect("published");
    let descriptor = Descriptor {
        name: name.to_owned(),
        ..Descriptor::parse(&said).expect("published")
    };
    Artifact::manifest(&descriptor, None, "app.img").to_text()
}
