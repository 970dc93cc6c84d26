//! A proxy of Go modules.

use ring::digest::SHA256;

use super::Site;
use super::archives::{base64, long_text, sha256, zipped};

/// What a module has in its package.
pub fn package(name: &str) -> String {
    let comment = long_text(name).replace("# ", "// ");
    format!("package {name}\n\nconst Name = \"{name}\"\n\n{comment}")
}

fn manifest(name: &str) -> String {
    let need = match name {
        "app" => "\nrequire frozen.example/lib v1.0.0\n",
        _ => "",
    };
    format!("module frozen.example/{name}\n\ngo 1.17\n{need}")
}

fn files(name: &str) -> Vec<(String, String)> {
    let root = format!("frozen.example/{name}@v1.0.0");
    vec![
        (format!("{root}/{name}.go"), package(name)),
        (format!("{root}/go.mod"), manifest(name)),
    ]
}

/// The sums of files, as `go.sum` has them.
fn sum(files: &[(String, String)]) -> String {
    let mut lines: Vec<String> = files
        .iter()
        .map(|(name, text)| format!("{}  {name}\n", sha256(text.as_bytes())))
        .collect();
    lines.sort_by(|a, b| {
        a.split_once("  ")
            .map(|(_, name)| name)
            .cmp(&b.split_once("  ").map(|(_, name)| name))
    });
    format!("h1:{}", base64(&SHA256, lines.concat().as_bytes()))
}

/// `go.sum` of something that needs app.
pub fn sums() -> String {
    let mut text = String::new();
    for name in ["app", "lib"] {
        let of_manifest = sum(&[("go.mod".to_owned(), manifest(name))]);
        text.push_str(&format!(
            "frozen.example/{name} v1.0.0 {}\nfrozen.example/{name} v1.0.0/go.mod {of_manifest}\n",
            sum(&files(name)),
        ));
    }
    text
}

/// The proxy at `/`, with frozen.example/app, which needs frozen.example/lib.
pub fn site() -> Site {
    let mut site = Site::default();
    for name in ["app", "lib"] {
        let root = format!("/frozen.example/{name}/@v");
        let info = "{\"Version\":\"v1.0.0\",\"Time\":\"2020-01-01T00:00:00Z\"}";
        site.page(&format!("{root}/list"), "text/plain", "v1.0.0\n");
        site.file(&format!("{root}/v1.0.0.info"), info);
        site.file(&format!("{root}/v1.0.0.mod"), manifest(name));
        site.file(&format!("{root}/v1.0.0.zip"), zipped(&files(name)));
    }
    site
}
