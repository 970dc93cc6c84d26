//! What an answer to a request for a range means: a pure table.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED, LOCATION,
    RETRY_AFTER,
};
use http::{HeaderMap, StatusCode};
use httpdate::parse_http_date;
use reqwest::Url;

/// The longest pause that a server can ask for. One that wants more fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// The bytes that were asked for follow, or the first of them.
    Part(Range<u64>),
    /// All of the file follows: the server has no ranges.
    Whole,
    /// Nothing now. Ask again, after this time if the server says one.
    Later(String, Option<Duration>),
    /// The file is another one now.
    Changed(String),
    /// It will not come.
    Never(String),
}

/// Judges an answer to a request for `asked` of a file of `len` bytes with this validator. Both may be unknown.
pub fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    asked: &Range<u64>,
    len: Option<u64>,
    validator: Option<&str>,
) -> Judged {
    if let Some(coding) = text(headers, CONTENT_ENCODING).filter(|coding| *coding != "identity")
        && status.is_success()
    {
        return Judged::Never(format!(
            "the server sends the image with Content-Encoding: {coding}, allowed is none; it must send the file as it is"
        ));
    }
    let found = validator_of(headers);
    let is_other = |found: &str| validator.is_some_and(|known| known != found);
    match status.as_u16() {
        206 => {
            if let Some(found) = found.as_deref().filter(|found| is_other(found)) {
                return changed(validator, found);
            }
            let Some((part, total)) = text(headers, CONTENT_RANGE).and_then(content_range) else {
                return Judged::Never(
                    "the server sends a part without a Content-Range that can be read".into(),
                );
            };
            if len.is_some_and(|len| len != total) {
                return Judged::Changed(format!(
                    "the file on the server has {total} bytes, and {} when the image was begun",
                    len.unwrap_or(0)
                ));
            }
            let is_asked = part.start == asked.start && part.end <= asked.end;
            // The first request may ask for the end of a file whose length nobody knows.
            match is_asked || (len.is_none() && part.end == total) {
                true => Judged::Part(part),
                false => Judged::Never(format!(
                    "the server sends bytes {} to {}, but asked for were {} to {}",
                    part.start, part.end, asked.start, asked.end
                )),
            }
        }
        200 => {
            if let Some(found) = found.as_deref().filter(|found| is_other(found)) {
                return changed(validator, found);
            }
            let total: Option<u64> = text(headers, CONTENT_LENGTH).and_then(|len| len.parse().ok());
            match (len, total) {
                (Some(len), Some(total)) if len != total => Judged::Changed(format!(
                    "the file on the server has {total} bytes, and {len} when the image was begun"
                )),
                _ => Judged::Whole,
            }
        }
        412 | 416 => {
            Judged::Changed("the server does not have these bytes of the file any more".into())
        }
        408 | 425 | 429 | 500..=599 => {
            let pause = retry_after(headers);
            let why = format!("the server answers {status}");
            match pause {
                Some(pause) if pause > LONGEST_PAUSE => Judged::Never(format!(
                    "{why}, and asks to come again in {} s",
                    pause.as_secs()
                )),
                pause => Judged::Later(why, pause),
            }
        }
        401 | 403 => Judged::Never(format!(
            "the server answers {status}; if the image needs a user and a password, put them into ~/.netrc (machine HOST login \
             USER password WORD), and start the program again"
        )),
        300..=399 if text(headers, LOCATION).is_some() => Judged::Never(format!(
            "the server answers {status} and leads to {}; brisk follows no redirect from https to http, and none from another host to \
             this machine or its link",
            origin_of(text(headers, LOCATION).unwrap_or(""))
        )),
        404 | 410 => Judged::Never(format!("the server answers {status}; look at the URL")),
        _ => Judged::Never(format!(
            "the server answers {status}, allowed are 206 and 200"
        )),
    }
}

/// For how long a server asks to wait: seconds, or the time by its own clock, which may be another than this machine's.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let after = text(headers, RETRY_AFTER)?.trim();
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = parse_http_date(after).ok()?;
    let date = text(headers, DATE).and_then(|date| parse_http_date(date).ok());
    let now = date.unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// Scheme and host of where a server leads. The rest may be a secret.
fn origin_of(location: &str) -> String {
    let url = Url::parse(location);
    url.map_or_else(
        |_| "elsewhere".to_owned(),
        |url| url.origin().ascii_serialization(),
    )
}

fn changed(validator: Option<&str>, found: &str) -> Judged {
    let [found, known] = [found, validator.unwrap_or("")]
        .map(|tag| tag.trim_matches('"').escape_debug().to_string());
    Judged::Changed(format!(
        "the file on the server is {found}, and was {known} when the image was begun"
    ))
}

/// What tells a file from a later one: a strong `ETag`, or `Last-Modified`.
pub fn validator_of(headers: &HeaderMap) -> Option<String> {
    let tag = text(headers, ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| text(headers, LAST_MODIFIED))
        .map(str::to_owned)
}

/// The bytes and the length of the file in `bytes 0-9/100`.
pub fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last < total).then(|| (first..last + 1, total))
}

/// The length of the whole file, as an answer says it.
pub fn total_len(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    match status {
        StatusCode::PARTIAL_CONTENT => text(headers, CONTENT_RANGE)
            .and_then(content_range)
            .map(|(_, total)| total),
        _ => text(headers, CONTENT_LENGTH)?.parse().ok(),
    }
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        fields.collect()
    }

    #[test]
    fn each_answer_means_one_thing() {
        use Judged::{Changed, Later, Never, Part, Whole};
        type Fields = &'static [(&'static str, &'static str)];
        let right: Fields = &[("content-range", "bytes 10-19/100"), ("etag", "\"1\"")];
        let table: [(u16, Fields, Judged); 20] = [
            (206, right, Part(10..20)),
            (206, &[("content-range", "bytes 10-14/100")], Part(10..15)),
            (206, &[("content-range", "bytes 10-19/100"), ("etag", "W/\"2\"")], Part(10..20)),
            (
                206,
                &[("content-range", "bytes 10-19/100"), ("etag", "\"2\"")],
                Changed("the file on the server is 2, and was 1 when the image was begun".into()),
            ),
            (
                206,
                &[("content-range", "bytes 10-19/101")],
                Changed("the file on the server has 101 bytes, and 100 when the image was begun".into()),
            ),
            (
                206,
                &[("content-range", "bytes 0-19/100")],
                Never("the server sends bytes 0 to 20, but asked for were 10 to 20".into()),
            ),
            (206, &[], Never("the server sends a part without a Content-Range that can be read".into())),
            (
                206,
                &[("content-encoding", "gzip"), ("content-range", "bytes 10-19/100")],
                Never(
                    "the server sends the image with Content-Encoding: gzip, allowed is none; it must send the file as it is"
                        .into(),
                ),
            ),
            (200, &[("content-length", "100")], Whole),
            (200, &[], Whole),
            (
                200,
                &[("content-length", "99")],
                Changed("the file on the server has 99 bytes, and 100 when the image was begun".into()),
            ),
            (416, &[], Changed("the server does not have these bytes of the file any more".into())),
            (503, &[], Later("the server answers 503 Service Unavailable".into(), None)),
            (
                429,
                &[("retry-after", "7")],
                Later("the server answers 429 Too Many Requests".into(), Some(Duration::from_secs(7))),
            ),
            (
                429,
                &[("retry-after", "3600")],
                Never("the server answers 429 Too Many Requests, and asks to come again in 3600 s".into()),
            ),
            (
                503,
                &[("date", "Mon, 30 Nov 2026 08:00:00 GMT"), ("retry-after", "Mon, 30 Nov 2026 08:00:09 GMT")],
                Later("the server answers 503 Service Unavailable".into(), Some(Duration::from_secs(9))),
            ),
            (
                503,
                &[("date", "Mon, 30 Nov 2026 08:00:00 GMT"), ("retry-after", "Monday, 30-Nov-26 09:00:00 GMT")],
                Never("the server answers 503 Service Unavailable, and asks to come again in 3600 s".into()),
            ),
            (
                503,
                &[("retry-after", "Mon, 30 Nov 1998 08:00:00 GMT")],
                Later("the server answers 503 Service Unavailable".into(), Some(Duration::ZERO)),
            ),
            (
                302,
                &[("location", "http://joe:secret@a.example:81/x?key=1")],
                Never(
                    "the server answers 302 Found and leads to http://a.example:81; brisk follows no redirect from https to http, and \
                     none from another host to this machine or its link"
                        .into(),
                ),
            ),
            (302, &[], Never("the server answers 302 Found, allowed are 206 and 200".into())),
        ];
        for (status, fields, judged) in table {
            let status = StatusCode::from_u16(status).expect("a status");
            let found = judge(
                status,
                &headers(fields),
                &(10..20),
                Some(100),
                Some("\"1\""),
            );
            assert_eq!(found, judged, "{status} {fields:?}");
        }
        // The end of a file of unknown length.
        let status = StatusCode::PARTIAL_CONTENT;
        assert_eq!(
            judge(status, &headers(right), &(0..50), None, None),
            Never("the server sends bytes 10 to 20, but asked for were 0 to 50".into())
        );
        let end = headers(&[("content-range", "bytes 90-99/100")]);
        assert_eq!(judge(status, &end, &(0..50), None, None), Part(90..100));
    }
}
