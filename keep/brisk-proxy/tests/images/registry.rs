use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest as ring_digest};

use super::image::{Image, MANIFEST};
use crate::staging::upstream::Asked;
use crate::staging::{Answer, Upstream};

/// As registries write it.
pub fn digest(bytes: &[u8]) -> String {
    format!(
        "sha256:{}",
        HEXLOWER.encode(ring_digest(&SHA256, bytes).as_ref())
    )
}

/// A registry that has an image as `app:1`. `admit` may answer before it.
pub fn registry(
    image: &Image,
    admit: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
) -> Upstream {
    let image = image.clone();
    Upstream::start(move |asked| admit(asked).unwrap_or_else(|| answer(&image, asked)))
}

fn answer(image: &Image, asked: &Asked) -> Answer {
    let manifest = digest(&image.manifest);
    match asked.target.as_str() {
        "/v2/" => Answer::of(200, &[("content-type", "application/json")], "{}"),
        "/v2/app/tags/list?n=1" => Answer::of(
            200,
            &[("link", "</v2/app/tags/list?last=1&n=1>; rel=\"next\"")],
            "{\"name\":\"app\",\"tags\":[\"1\"]}",
        ),
        target
            if target == "/v2/app/manifests/1"
                || target == format!("/v2/app/manifests/{manifest}") =>
        {
            let fields = [
                ("content-type", MANIFEST),
                ("docker-content-digest", &manifest),
                ("etag", &format!("\"{manifest}\"")),
            ];
            match asked.headers.get("if-none-match") {
                Some(tag) if *tag == format!("\"{manifest}\"") => Answer::of(304, &fields, ""),
                _ => Answer::of(200, &fields, image.manifest.clone()),
            }
        }
        target => match target
            .strip_prefix("/v2/app/blobs/")
            .map(|name| image.blobs.get(name))
        {
            Some(Some(blob)) => part(asked, blob),
            _ => Answer::of(404, &[], "{\"errors\":[{\"code\":\"NAME_UNKNOWN\"}]}"),
        },
    }
}

/// A blob, or the part of it that is asked for.
pub fn part(asked: &Asked, blob: &[u8]) -> Answer {
    let digest = digest(blob);
    let tag = format!("\"{digest}\"");
    let lasting = [
        ("cache-control", "max-age=31536000"),
        ("docker-content-digest", digest.as_str()),
        ("etag", tag.as_str()),
    ];
    let range = asked
        .headers
        .get("range")
        .map(|range| range.to_str().unwrap());
    let Some((first, last)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
    else {
        return Answer::of(200, &lasting, blob.to_vec());
    };
    let first: usize = first.parse().unwrap();
    let last: usize = last.parse().unwrap_or(blob.len() - 1);
    let range = format!("bytes {first}-{last}/{}", blob.len());
    let fields = [&lasting[..], &[("content-range", range.as_str())]].concat();
    Answer::of(206, &fields, blob[first..=last].to_vec())
}
