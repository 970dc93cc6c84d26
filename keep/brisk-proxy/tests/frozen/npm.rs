//! A registry of npm packages.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA512};

use super::Site;
use super::archives::{base64, hex, long_text, tarred};

/// The packages, and what the names of their tarballs begin with.
pub const PACKAGES: [(&str, &str); 2] = [("frozen-app", "frozen-app"), ("@frozen/lib", "lib")];

/// What a package has in its module.
pub fn module(name: &str) -> String {
    format!("exports.name = '{name}';\n/*\n{}*/\n", long_text(name))
}

/// The registry at `/`, with frozen-app, which needs @frozen/lib.
pub fn site() -> Site {
    let mut site = Site::default();
    for (name, short) in PACKAGES {
        let needs = match name {
            "frozen-app" => serde_json::json!({"@frozen/lib": "^1.0.0"}),
            _ => serde_json::json!({}),
        };
        let manifest = serde_json::json!({
            "name": name, "version": "1.0.0", "main": "index.js", "dependencies": needs,
        });
        let tarball = tarred(&[
            ("package/package.json".to_owned(), manifest.to_string()),
            ("package/index.js".to_owned(), module(name)),
        ]);
        let path = format!("/{name}/-/{short}-1.0.0.tgz");
        let mut version = manifest.clone();
        version["dist"] = serde_json::json!({
            "tarball": format!("UPSTREAM{path}"),
            "integrity": format!("sha512-{}", base64(&SHA512, &tarball)),
            "shasum": hex(&SHA1_FOR_LEGACY_USE_ONLY, &tarball),
        });
        let page = serde_json::json!({
            "name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version},
        });
        // npm escapes the slash of a scope.
        let at = format!("/{}", name.replace('/', "%2f"));
        site.page(&at, "application/vnd.npm.install-v1+json", page.to_string());
        site.file(&path, tarball);
    }
    site
}
