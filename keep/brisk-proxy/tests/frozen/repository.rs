use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use super::site::{OWN_URL, Site};
use crate::staging::upstream::Asked;
use crate::staging::{Answer, Upstream};

/// How an upstream fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Heads come late, and bodies in small pieces.
    Slow,
    /// It answers with this status.
    Status(u16),
    /// Bodies end in the middle, although their length was announced.
    Cut,
    /// Bodies end in the middle, and chunks have no end.
    CutChunks,
    /// Bodies have other bytes.
    Wrong,
}

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All answers.
    All,
    /// Files alone.
    Files,
}

/// An upstream that serves a [`Site`].
pub struct Repository {
    upstream: Upstream,
    state: Arc<State>,
}

struct State {
    site: Site,
    /// `Cache-Control` of pages. Files have none: that they last, nobody says.
    of_pages: String,
    url: OnceLock<String>,
    fault: Mutex<Option<(Fault, Scope)>>,
    answered: Mutex<Vec<Answered>>,
}

/// What the upstream has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub method: String,
    pub path: String,
    pub status: u16,
    pub is_file: bool,
}

impl Repository {
    /// Serves a site whose pages have this `Cache-Control`.
    pub fn start(site: Site, of_pages: &str) -> Self {
        let state = Arc::new(State {
            site,
            of_pages: of_pages.to_owned(),
            url: OnceLock::new(),
            fault: Mutex::new(None),
            answered: Mutex::default(),
        });
        let serving = Arc::clone(&state);
        let upstream = Upstream::start(move |asked| serving.answer(asked));
        state.url.set(upstream.url()).unwrap();
        Self { upstream, state }
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        self.upstream.url()
    }

    /// From now on, it fails so, or not.
    pub fn fail(&self, fault: Option<(Fault, Scope)>) {
        *self.state.fault.lock().unwrap() = fault;
    }

    /// What it has answered since it was asked for this the last time.
    pub fn take_answered(&self) -> Vec<Answered> {
        std::mem::take(&mut self.state.answered.lock().unwrap())
    }
}

impl State {
    fn answer(&self, asked: &Asked) -> Answer {
        let path = asked.target.split('?').next().unwrap_or_default();
        let fields = &asked.headers;
        let of = |name: &str| fields.get(name).map_or("", |value| value.to_str().unwrap());
        let is_file = self.site.bytes(path).is_some();
        let fault = *self.fault.lock().unwrap();
        let fault = fault.filter(|(_, scope)| is_file || *scope == Scope::All);
        let fault = fault.map(|(fault, _)| fault);
        let (status, answer) = match (fault, self.found(path, of("accept"))) {
            (Some(Fault::Status(status)), _) => {
                let fields = [("retry-after", "0"), ("cache-control", "no-cache")];
                (status, Answer::of(status, &fields, "the upstream fails"))
            }
            (_, None) => (404, Answer::of(404, &[], "there is no such file")),
            (_, Some((mut fields, bytes))) => {
                let bytes = match fault {
                    Some(Fault::Wrong) => wrong(&bytes),
                    _ => bytes,
                };
                let tag = tag(&bytes);
                fields.push(("etag", tag.clone()));
                let known = of("if-none-match")
                    .split(',')
                    .any(|known| known.trim() == tag);
                let fields: Vec<(&str, &str)> = fields
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                match known {
                    true => (304, Answer::of(304, &fields, "")),
                    false => (200, answer(fault, &fields, bytes)),
                }
            }
        };
        self.answered.lock().unwrap().push(Answered {
            method: asked.method.to_string(),
            path: path.to_owned(),
            status,
            is_file,
        });
        match fault {
            Some(Fault::Slow) => answer.after(Duration::from_millis(200)),
            _ => answer,
        }
    }

    /// What stands under a path, and its fields.
    fn found(&self, path: &str, accept: &str) -> Option<(Vec<(&'static str, String)>, Bytes)> {
        if let Some(bytes) = self.site.bytes(path) {
            let fields = vec![("content-type", "application/octet-stream".to_owned())];
            return Some((fields, bytes.clone()));
        }
        let (form, has_others) = self.site.form(path, accept)?;
        let mut fields = vec![
            ("content-type", form.content_type.to_owned()),
            ("cache-control", self.of_pages.clone()),
        ];
        if has_others {
            fields.push(("vary", "accept".to_owned()));
        }
        let bytes = match std::str::from_utf8(&form.text) {
            Ok(text) => text.replace(OWN_URL, self.url.get()?).into(),
            Err(_) => form.text.clone(),
        };
        Some((fields, bytes))
    }
}

/// An answer with a body, as a fault wants it.
fn answer(fault: Option<Fault>, fields: &[(&str, &str)], bytes: Bytes) -> Answer {
    let length = bytes.len().to_string();
    let with_length = [fields, &[("content-length", length.as_str())]].concat();
    match fault {
        None | Some(Fault::Wrong | Fault::Status(_)) => Answer::of(200, fields, bytes),
        Some(Fault::Slow) => {
            let (pieces, answer) = Answer::streamed(200, &with_length);
            let size = bytes.len().div_ceil(8).max(1);
            tokio::spawn(async move {
                for at in (0..bytes.len()).step_by(size) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    let end = bytes.len().min(at + size);
                    // The proxy may have left.
                    pieces.send(Ok(bytes.slice(at..end))).ok();
                }
            });
            answer
        }
        Some(cut @ (Fault::Cut | Fault::CutChunks)) => {
            let (pieces, answer) = match cut {
                Fault::Cut => Answer::streamed(200, &with_length),
                _ => Answer::streamed(200, fields),
            };
            tokio::spawn(async move {
                pieces.send(Ok(bytes.slice(..bytes.len() / 2))).ok();
                // What has come so far goes on before the connection breaks.
                tokio::time::sleep(Duration::from_millis(50)).await;
                pieces.send(Err(std::io::Error::other("cut"))).ok();
            });
            answer
        }
    }
}

/// Other bytes, as many.
fn wrong(bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x55;
    }
    bytes.into()
}

fn tag(bytes: &[u8]) -> String {
    let sum = data_encoding::HEXLOWER.encode(digest(&SHA256, bytes).as_ref());
    format!("\"{}\"", &sum[..16])
}
