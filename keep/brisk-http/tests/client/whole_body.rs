//! Whole bodies: bytes, texts and values of JSON, and what is wrong with those that are none.

use std::collections::BTreeMap;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{BodyError, Client, Options, WholeBody};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;

use crate::origin::{Origin, response};

/// What JSON is read as.
pub type Numbers = BTreeMap<String, u32>;

/// A response, and what comes of its body.
pub struct Case {
    pub path: &'static str,
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static [u8],
    pub text: Result<&'static str, &'static str>,
    pub json: Result<u32, &'static str>,
}

const STATUS: &str = "the answer is 404 Not Found, and only a success (2xx) is read as text or JSON; read this one with \
                      bytes()";
const CODING: &str = "the body has the Content-Encoding \"gzip\", and only one without is read as text or JSON; send no \
                      Accept-Encoding, or decode what bytes() gives";
const CHARSET: &str = "the body has the charset \"ISO-8859-1\", and only UTF-8 is read as text or JSON; decode what bytes() \
                       gives";

pub const CASES: &[Case] = &[
    Case {
        path: "/json",
        status: 200,
        fields: &[("content-type", "application/json; Charset=\"UTF-8\"")],
        body: b"{\"one\": 1}",
        text: Ok("{\"one\": 1}"),
        json: Ok(1),
    },
    Case {
        path: "/marked",
        status: 203,
        fields: &[("content-encoding", "identity")],
        body: b"\xef\xbb\xbf{\"one\": 1}",
        text: Ok("{\"one\": 1}"),
        json: Ok(1),
    },
    Case {
        path: "/html",
        status: 200,
        fields: &[("content-type", "text/html")],
        body: b"<html>\xc3\xbc",
        text: Ok("<html>\u{fc}"),
        json: Err(
            "the body is not the JSON that was asked for: expected value at line 1 column 1; its Content-Type is \
             \"text/html\"",
        ),
    },
    Case {
        path: "/other",
        status: 200,
        fields: &[],
        body: b"{\n  \"one\": 1,\n  \"two\": -2\n}",
        text: Ok("{\n  \"one\": 1,\n  \"two\": -2\n}"),
        json: Err(
            "the body is not the JSON that was asked for: invalid value: integer `-2`, expected u32 at line 3 column 11; it \
             has no Content-Type",
        ),
    },
    Case {
        path: "/missing",
        status: 404,
        fields: &[("content-type", "application/json")],
        body: b"{\"one\": 1}",
        text: Err(STATUS),
        json: Err(STATUS),
    },
    Case {
        path: "/gzip",
        status: 200,
        fields: &[("content-encoding", "gzip")],
        body: b"\x1f\x8b",
        text: Err(CODING),
        json: Err(CODING),
    },
    Case {
        path: "/latin",
        status: 200,
        fields: &[("content-type", "text/plain; charset=ISO-8859-1")],
        body: b"\xfc",
        text: Err(CHARSET),
        json: Err(CHARSET),
    },
    Case {
        path: "/picture",
        status: 200,
        fields: &[("content-type", "image/png")],
        body: b"one\x89PNG",
        text: Err(
            "the body is not UTF-8 from byte 3 on, and its Content-Type is \"image/png\"; read it with bytes()",
        ),
        json: Err(
            "the body is not the JSON that was asked for: expected value at line 1 column 1; its Content-Type is \
             \"image/png\"",
        ),
    },
];

/// The response of a case.
pub fn answer(path: &str) -> Response<Full<Bytes>> {
    let case = CASES.iter().find(|case| case.path == path).unwrap();
    let fields = [case.fields, &[("cache-control", "max-age=60")]].concat();
    response(case.status, &fields, case.body)
}

/// What comes of a body, in words.
pub fn said<T>(read: Result<T, BodyError>) -> Result<T, String> {
    read.map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_body_is_bytes_text_or_json_or_an_error_that_says_why_not() {
    let origin = Origin::start(|asked| async move { answer(&asked.path) }).await;
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let client = Client::build(cache, Options::private()).finish();
    // From the origin, and from the cache.
    for case in CASES {
        let get = || async { client.get(&origin.url(case.path)).await.unwrap() };
        for _ in 0..2 {
            let text = said(get().await.text().await);
            assert_eq!(text.as_deref().map_err(String::as_str), case.text);
            let json = said(get().await.json::<Numbers>().await);
            let one = json.as_ref().map(|numbers| numbers["one"]);
            assert_eq!(one.map_err(String::as_str), case.json);
            assert_eq!(get().await.bytes().await.unwrap(), case.body);
        }
        let len = case.body.len() as u64;
        let read = get().await.at_most(len).bytes().await.unwrap();
        assert_eq!(read, case.body);
        let error = said(get().await.at_most(len - 1).bytes().await);
        assert_eq!(
            error.unwrap_err(),
            format!(
                "the body has more than the {} bytes that are allowed; allow more with at_most()",
                len - 1
            )
        );
    }
    assert_eq!(origin.take_count(), CASES.len());
}
