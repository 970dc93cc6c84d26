use std::io::{self, Write};
use std::time::SystemTime;

use anyhow::{Context, bail};
use brisk_cache::{Inspection, Outcome};
use brisk_http::{
    Action, BodyName, Mode, Options, Request, StoredPolicy, Timestamp, Variants, stored_keys,
};
use brisk_terminal::messages::count;
use brisk_terminal::names::printable;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Serialize;

/// What a cache has of a URL, as brisk-http keeps it.
pub(super) struct HttpResponses {
    url: String,
    headers: HeaderMap,
    now: Timestamp,
    /// The [`Variants`].
    bytes: Vec<u8>,
    /// Whether the body of each is there, in order.
    bodies: Vec<bool>,
}

/// A field of a request, from `NAME: VALUE`.
pub(super) fn field(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let Some((name, value)) = text.split_once(':') else {
        bail!("{text:?} has no colon, allowed is NAME: VALUE");
    };
    let name = HeaderName::try_from(name.trim())
        .with_context(|| format!("{:?} is no name of a field", name.trim()))?;
    let value = HeaderValue::try_from(value.trim())
        .with_context(|| format!("the value of {name} has characters that no field has"))?;
    Ok((name, value))
}

impl HttpResponses {
    /// None if the cache has no responses of it, or if it is no URL of http or https.
    pub(super) fn look(
        inspection: &Inspection,
        url: &[u8],
        headers: &[(HeaderName, HeaderValue)],
    ) -> io::Result<Option<Self>> {
        let keys = std::str::from_utf8(url)
            .ok()
            .and_then(|url| Some((url, stored_keys(url, &BodyName::of(&[]))?)));
        let Some((url, (key, _))) = keys else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        if inspection.write_value(&key, &mut bytes)?.outcome != Outcome::Found {
            return Ok(None);
        }
        let Some(variants) = Variants::view(&bytes) else {
            return Ok(None);
        };
        let mut bodies = Vec::new();
        for (_, policy) in variants.iter() {
            let name = policy.body();
            let is_there = match stored_keys(url, &name) {
                Some((_, body)) if !name.is_empty() => {
                    inspection.explain(&body)?.outcome == Outcome::Found
                }
                _ => true,
            };
            bodies.push(is_there);
        }
        Ok(Some(Self {
            url: url.to_owned(),
            headers: headers.iter().cloned().collect(),
            now: Timestamp::from(SystemTime::now()),
            bytes,
            bodies,
        }))
    }

    fn each<R>(&self, mut show: impl FnMut(usize, bool, &StoredPolicy<'_>, bool) -> R) -> Vec<R> {
        let Some(variants) = Variants::view(&self.bytes) else {
            return Vec::new();
        };
        let selected = variants.select(&self.headers, None).map(|(at, _)| at);
        let all = variants.iter().zip(&self.bodies);
        all.map(|((at, policy), has_body)| show(at, Some(at) == selected, &policy, *has_body))
            .collect()
    }

    fn explain(&self, policy: &StoredPolicy<'_>) -> (Action, String) {
        let options = match policy.mode() {
            Mode::Private => Options::private(),
            Mode::Shared => Options::shared(),
        };
        let request = Request {
            method: &Method::GET,
            url: &self.url,
            headers: &self.headers,
        };
        let action = policy.decide(&request, self.now, &options).action;
        (action, policy.explain(&request, self.now, &options))
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let stored = count(self.bodies.len() as u64, "response", "responses");
        writeln!(out, "url        {} has {stored}", printable(&self.url))?;
        let shown = self.each(|at, is_selected, policy, has_body| {
            let (_, text) = self.explain(policy);
            let mut lines = format!("response   {}", at + 1);
            if !is_selected {
                lines.push_str(", which this request does not select");
            }
            for line in text.lines() {
                lines.push_str("\n           ");
                lines.push_str(&printable(line));
            }
            if !has_body {
                lines.push_str(", which is not stored (a table may be, in its place)");
            }
            lines
        });
        for lines in shown {
            writeln!(out, "{lines}")?;
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Vec<ResponseJson> {
        self.each(|_, selected, policy, body_found| {
            let (action, text) = self.explain(policy);
            ResponseJson {
                selected,
                status: policy.status().as_u16(),
                age_seconds: policy.age(self.now),
                action: match action {
                    Action::Use => "use",
                    Action::UseAndRevalidate => "use-and-revalidate",
                    Action::Revalidate => "revalidate",
                    Action::Forward => "forward",
                    Action::GatewayTimeout => "gateway-timeout",
                },
                body_bytes: policy.body().len(),
                body_found,
                text,
            }
        })
    }
}

/// A response that is stored.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResponseJson {
    /// Whether the request selects it.
    selected: bool,
    /// Its status.
    status: u16,
    /// Its age.
    age_seconds: u64,
    /// What would happen: `use`, `use-and-revalidate`, `revalidate`, `forward`, `gateway-timeout`.
    action: &'static str,
    /// Length of its body.
    body_bytes: u64,
    /// Whether its body is stored. A table may be stored in its place.
    body_found: bool,
    /// All that in words.
    text: String,
}
