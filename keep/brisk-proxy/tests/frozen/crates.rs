//! A sparse index of Rust crates.

use super::Site;
use super::archives::{long_text, sha256, tarred};

/// What a crate has in its library.
pub fn library(name: &str) -> String {
    format!(
        "pub const NAME: &str = \"{name}\";\n/*\n{}*/\n",
        long_text(name)
    )
}

/// The index at `/index`, with frozen-app, which needs frozen-lib.
pub fn site() -> Site {
    let mut site = Site::default();
    let config = serde_json::json!({"dl": "UPSTREAM/crates", "api": "UPSTREAM"});
    site.page("/index/config.json", "application/json", config.to_string());
    for (name, need) in [("frozen-app", Some("frozen-lib")), ("frozen-lib", None)] {
        let mut manifest =
            format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
        if let Some(need) = need {
            manifest.push_str(&format!("[dependencies]\n{need} = \"1\"\n"));
        }
        let tarball = tarred(&[
            (format!("{name}-1.0.0/Cargo.toml"), manifest),
            (format!("{name}-1.0.0/src/lib.rs"), library(name)),
        ]);
        let needs: Vec<_> = need
            .into_iter()
            .map(|need| {
                serde_json::json!({
                    "name": need, "req": "^1", "features": [], "optional": false, "default_features": true,
                    "target": null, "kind": "normal",
                })
            })
            .collect();
        let entry = serde_json::json!({
            "name": name, "vers": "1.0.0", "deps": needs, "cksum": sha256(&tarball), "features": {}, "yanked": false,
        });
        let page = format!("/index/fr/oz/{name}");
        site.page(&page, "text/plain", format!("{entry}\n"));
        site.file(&format!("/crates/{name}/1.0.0/download"), tarball);
    }
    site
}
