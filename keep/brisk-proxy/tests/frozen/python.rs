//! An index of Python packages, as PEP 503 and PEP 691 have it, with metadata beside the files (PEP 658).

use super::Site;
use super::archives::{long_text, sha256, zipped};

pub const JSON: &str = "application/vnd.pypi.simple.v1+json";
const HTML: &str = "text/html";

/// What a package has in its module.
pub fn module(name: &str) -> String {
    format!("NAME = '{name}'\n{}", long_text(name))
}

/// The file name of a package.
pub fn wheel_name(name: &str) -> String {
    format!("{name}-1.0.0-py3-none-any.whl")
}

/// The file of a package, and its metadata.
pub fn wheel(name: &str, needs: &[&str]) -> (Vec<u8>, String) {
    let mut metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n");
    for need in needs {
        metadata.push_str(&format!("Requires-Dist: {need} >=1.0\n"));
    }
    let info = format!("{name}-1.0.0.dist-info");
    let tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let files = [
        (format!("{name}.py"), module(name)),
        (format!("{info}/METADATA"), metadata.clone()),
        (format!("{info}/WHEEL"), tag.to_owned()),
        (
            format!("{info}/RECORD"),
            format!("{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"),
        ),
    ];
    (zipped(&files), metadata)
}

/// The index at `/simple`, with frozen_app, which needs frozen_lib. Files stand under their digest, as on a warehouse.
pub fn site() -> Site {
    let mut site = Site::default();
    for (name, needs) in [("frozen_app", &["frozen-lib"][..]), ("frozen_lib", &[])] {
        let (wheel, metadata) = wheel(name, needs);
        let (sum, sum_of_metadata) = (sha256(&wheel), sha256(metadata.as_bytes()));
        let file = wheel_name(name);
        let path = format!(
            "/packages/{}/{}/{}/{file}",
            &sum[..2],
            &sum[2..4],
            &sum[4..]
        );
        let page = format!("/simple/{}/", name.replace('_', "-"));
        let html = format!(
            "<!DOCTYPE html><html><body><h1>{name}</h1>\n<a href=\"UPSTREAM{path}#sha256={sum}\" \
             data-dist-info-metadata=\"sha256={sum_of_metadata}\" \
             data-core-metadata=\"sha256={sum_of_metadata}\">{file}</a><br />\n</body></html>\n"
        );
        let json = serde_json::json!({
            "meta": {"api-version": "1.1"},
            "name": name.replace('_', "-"),
            "versions": ["1.0.0"],
            "files": [{
                "filename": file,
                "url": format!("UPSTREAM{path}"),
                "hashes": {"sha256": sum},
                "core-metadata": {"sha256": sum_of_metadata},
                "size": wheel.len(),
                "yanked": false,
            }],
        });
        site.page(&page, HTML, html);
        site.page(&page, JSON, json.to_string());
        site.file(&format!("{path}.metadata"), metadata);
        site.file(&path, wheel);
    }
    site
}
