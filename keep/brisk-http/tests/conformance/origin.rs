//! The suite's server: it answers a request with what the test says about it, and notes what it saw.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;

/// What the server saw and sent, for the checks afterwards.
pub struct Seen {
    pub number: Option<u64>,
    pub method: String,
    pub headers: HeaderMap,
    /// The fields of the response that the client must get as they are.
    pub response_headers: Vec<(String, Vec<String>)>,
}

pub struct Origin<'a> {
    uuid: String,
    requests: &'a [Value],
    /// The fields of each response as they were sent, with dates in place of numbers.
    sent: BTreeMap<usize, Vec<(String, String)>>,
    pub seen: Vec<Seen>,
}

/// A response of the server, or none because it closed the connection.
pub struct Sent {
    pub interim: Vec<(u16, HeaderMap)>,
    pub head: Option<(StatusCode, HeaderMap, Vec<u8>)>,
    pub pause: u64,
}

impl<'a> Origin<'a> {
    pub fn new(uuid: &str, requests: &'a [Value]) -> Self {
        Self {
            uuid: uuid.to_owned(),
            requests,
            sent: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    pub fn serve(&mut self, method: &Method, path: &str, headers: &HeaderMap, now: u64) -> Sent {
        let client_number: Option<u64> = headers
            .get("req-num")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok());
        let number = client_number.unwrap_or(self.seen.len() as u64 + 1) as usize;
        let config = &self.requests[number - 1];
        let pause = config["response_pause"].as_u64().unwrap_or(0);
        let now = now + pause * 1000;
        let interim = interim_of(&config["interim_responses"]);

        let mut status = config["response_status"][0].as_u64().unwrap_or(200) as u16;
        let expects = config["expected_type"].as_str().unwrap_or_default();
        if expects.ends_with("validated") {
            let previous = |name: &str| {
                let sent = self.sent.get(&(number - 2));
                let sent = sent.and_then(|sent| last(sent, name));
                sent.or_else(|| last(&texts(&self.requests[number - 2]["response_headers"]), name))
            };
            let same = |name: &str, previous: Option<String>| {
                previous.is_some_and(|value| text_of(headers, name) == Some(value))
            };
            status = match same("if-modified-since", previous("last-modified"))
                || same("if-none-match", previous("etag"))
            {
                true => 304,
                false => 999,
            };
        }

        let mut response = HeaderMap::new();
        append(&mut response, "Server-Base-Url", path);
        append(
            &mut response,
            "Server-Request-Count",
            &(self.seen.len() + 1).to_string(),
        );
        let client = client_number.map_or("NaN".to_owned(), |number| number.to_string());
        append(&mut response, "Client-Request-Count", &client);
        append(&mut response, "Server-Now", &now.to_string());
        let mut saved: Vec<(String, Vec<String>)> = Vec::new();
        let mut sent = Vec::new();
        for header in config["response_headers"].as_array().into_iter().flatten() {
            let name = header[0].as_str().expect("a field has a name");
            let value = fixed(header, now, path, config);
            append(&mut response, name, &value);
            sent.push((name.to_owned(), value));
            if header[2].is_null() || header[2] == Value::Bool(true) {
                let values = texts_of(&response, name);
                saved.retain(|(saved, _)| saved != name);
                saved.push((name.to_owned(), values));
            }
        }
        self.sent.insert(number - 1, sent);
        if !response.contains_key("content-type") {
            append(&mut response, "Content-Type", "text/plain");
        }
        self.seen.push(Seen {
            number: client_number,
            method: method.to_string(),
            headers: headers.clone(),
            response_headers: saved,
        });
        let numbers: Vec<String> = self
            .seen
            .iter()
            .map(|seen| {
                seen.number
                    .map_or("NaN".to_owned(), |number| number.to_string())
            })
            .collect();
        append(&mut response, "Request-Numbers", &numbers.join(" "));
        if config["disconnect"] == Value::Bool(true) {
            return Sent {
                interim,
                head: None,
                pause,
            };
        }
        let mut body = match status {
            204 | 304 => Vec::new(),
            _ => config["response_body"]
                .as_str()
                .unwrap_or(&self.uuid)
                .as_bytes()
                .to_vec(),
        };
        // As a server of HTTP/1.1 does.
        if !matches!(status, 204 | 304) && !response.contains_key("content-length") {
            append(&mut response, "Content-Length", &body.len().to_string());
        }
        if !response.contains_key("date") {
            append(&mut response, "Date", &date(now, 0, false));
        }
        if *method == Method::HEAD {
            body.clear();
        } else if let Some(len) = text_of(&response, "content-length") {
            // The reader stops there.
            body.truncate(len.parse().unwrap_or(body.len()));
        }
        let status = StatusCode::from_u16(status).expect("a status has three digits");
        Sent {
            interim,
            head: Some((status, response, body)),
            pause,
        }
    }
}

fn interim_of(value: &Value) -> Vec<(u16, HeaderMap)> {
    let responses = value.as_array().into_iter().flatten();
    responses
        .map(|response| {
            let mut headers = HeaderMap::new();
            for header in response[1].as_array().into_iter().flatten() {
                append(
                    &mut headers,
                    header[0].as_str().unwrap_or_default(),
                    header[1].as_str().unwrap_or_default(),
                );
            }
            (response[0].as_u64().unwrap_or(0) as u16, headers)
        })
        .collect()
}

/// The value of a field of a configuration, with a date in place of a number, and a path in place of a name.
pub fn fixed(header: &Value, now: u64, base: &str, config: &Value) -> String {
    let name = header[0].as_str().unwrap_or_default().to_lowercase();
    let dates = [
        "date",
        "expires",
        "last-modified",
        "if-modified-since",
        "if-unmodified-since",
    ];
    if let (true, Some(delta)) = (dates.contains(&name.as_str()), header[1].as_i64()) {
        let old = config["rfc850date"].as_array().into_iter().flatten();
        return date(now, delta, old.into_iter().any(|value| *value == *name));
    }
    let text = header[1].as_str().unwrap_or_default();
    let has_path = matches!(name.as_str(), "location" | "content-location");
    if has_path && config["magic_locations"] == Value::Bool(true) {
        return match text {
            "" => base.to_owned(),
            text => format!("{base}/{text}"),
        };
    }
    text.to_owned()
}

fn date(now: u64, delta: i64, rfc850: bool) -> String {
    let seconds = (now / 1000)
        .checked_add_signed(delta)
        .expect("a time after 1970");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let text = httpdate::fmt_http_date(time);
    if !rfc850 {
        return text;
    }
    let (day, rest) = text.split_once(", ").expect("a date has a day");
    let mut parts = rest.split(' ');
    let mut next = || parts.next().expect("a date has five parts");
    let long = [
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ];
    let long = long
        .iter()
        .find(|long| long.starts_with(day))
        .expect("a day of the week");
    let (number, month, year, clock) = (next(), next(), next(), next());
    format!("{long}, {number}-{month}-{} {clock} GMT", &year[2..])
}

fn texts(headers: &Value) -> Vec<(String, String)> {
    let headers = headers.as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    headers
        .map(|header| (text(&header[0]), text(&header[1])))
        .collect()
}

fn last(headers: &[(String, String)], name: &str) -> Option<String> {
    let mut same = headers
        .iter()
        .filter(|(found, _)| found.eq_ignore_ascii_case(name));
    same.next_back().map(|(_, value)| value.clone())
}

/// Adds a line, as it goes over the wire: characters are bytes, and spaces at the ends are no part of the value.
pub fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    let bytes: Vec<u8> = value
        .trim()
        .chars()
        .map(|c| u8::try_from(c).expect("Latin-1"))
        .collect();
    headers.append(
        HeaderName::from_bytes(name.as_bytes()).expect("a name"),
        HeaderValue::from_bytes(&bytes).expect("a value"),
    );
}

pub fn texts_of(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lines = headers.get_all(name).into_iter();
    lines
        .map(|line| {
            line.as_bytes()
                .iter()
                .map(|byte| char::from(*byte))
                .collect()
        })
        .collect()
}

/// All lines of a field, joined.
pub fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = texts_of(headers, name);
    (!lines.is_empty()).then(|| lines.join(", "))
}
