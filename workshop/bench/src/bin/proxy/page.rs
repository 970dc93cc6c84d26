//! Index pages: how many a cache answers, and how long a small hit takes beside them.

use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::Setting;
use super::caches::Cache;
use super::client::Client;
use super::hit::{SCRIPT, check, wrk};
use super::origin::{Origin, SMALL};

/// Where the page is, for both: the proxy has a map of Python there.
const PAGE: &str = "/py/numpy/";

/// How many clients load it.
const CLIENTS: u32 = 8;

/// What was seen in one run.
#[derive(Debug, Serialize)]
struct Seen {
    subject: &'static str,
    contender: &'static str,
    answers_per_second: f64,
    processor_seconds: f64,
    /// Of small hits, in milliseconds: the 50th, 90th and 99th of a hundred, and the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<[f64; 4]>,
}

/// A cache that has the page.
struct Warm {
    cache: Cache,
    /// The bytes of the page as clients get it.
    len: u64,
    tag: String,
}

pub fn measure(bench: &mut Bench, runtime: &Runtime, setting: &Setting<'_>) -> Result<()> {
    let work = setting.work.join("page");
    let origin = runtime.block_on(Origin::start())?;
    let url = format!("http://{}", origin.address);
    let arguments = [
        "--map",
        &format!("/={url}"),
        "--map",
        &format!("/py=python:{url}/py"),
    ];
    let arguments = arguments.map(str::to_owned);
    let of_nginx = work.join("nginx");
    let nginx = Cache::nginx(&of_nginx, origin.address, setting.processors);
    let mut caches = vec![runtime.block_on(nginx)?];
    for (name, program) in [
        ("brisk proxy", Some(setting.proxy)),
        ("brisk proxy before", setting.before),
    ] {
        if let Some(program) = program {
            let directory = work.join(name.replace(' ', "-"));
            let cache = Cache::brisk(program, &directory, &arguments);
            caches.push(Cache {
                name,
                ..runtime.block_on(cache)?
            });
        }
    }
    let warm: Result<Vec<Warm>> = caches
        .into_iter()
        .map(|cache| runtime.block_on(warm(cache, &origin)))
        .collect();
    let warm = warm?;
    let script = work.join("totals.lua");
    std::fs::write(&script, SCRIPT)?;
    let seen = RefCell::new(Vec::new());
    let seconds = setting.seconds;
    let keep = |subject, one: &Warm, answers: f64, elapsed: f64, milliseconds, before: f64| {
        let processor_seconds = one.cache.server.processor_seconds()? - before;
        seen.borrow_mut().push(Seen {
            subject,
            contender: one.cache.name,
            answers_per_second: answers / elapsed,
            processor_seconds,
            milliseconds,
        });
        anyhow::Ok(())
    };
    for subject in [PAGES, NOT_MODIFIED, BESIDE] {
        let run = |one: &Warm| -> Result<Duration> {
            let asked = origin.asked();
            let before = one.cache.server.processor_seconds()?;
            let begun = Instant::now();
            let url = format!("http://{}{PAGE}", one.cache.address);
            let condition = format!("If-None-Match: {}", one.tag);
            let (answers, milliseconds) = match subject {
                PAGES => {
                    let (_, bytes) = wrk(&url, CLIENTS, seconds, &script, &[])?;
                    (bytes as f64 / one.len as f64, None)
                }
                NOT_MODIFIED => {
                    let (requests, bytes) = wrk(&url, CLIENTS, seconds, &script, &[&condition])?;
                    ensure!(bytes / requests.max(1) < 1000, "an answer has a body");
                    (requests as f64, None)
                }
                _ => {
                    let mut load = Command::new("wrk")
                        .args(["--threads", "1", "--connections", &CLIENTS.to_string()])
                        .args(["--duration", "1h", &url])
                        .stdout(std::process::Stdio::null())
                        .spawn()
                        .context("cannot start wrk")?;
                    let small = runtime.block_on(small_hits(&one.cache, seconds));
                    load.kill()?;
                    load.wait()?;
                    let mut small = small?;
                    small.sort_by(f64::total_cmp);
                    let of = |part: usize| small[(small.len() - 1) * part / 100];
                    (small.len() as f64, Some([50, 90, 99, 100].map(of)))
                }
            };
            let elapsed = begun.elapsed().as_secs_f64();
            ensure!(answers > 0.0, "nothing was answered");
            ensure!(origin.asked() == asked, "the cache asked the origin");
            keep(subject, one, answers, elapsed, milliseconds, before)?;
            Ok(Duration::from_secs_f64(match milliseconds {
                Some([median, ..]) => median / 1000.0,
                None => elapsed / answers,
            }))
        };
        let mut contenders = warm.iter().map(|one| {
            let run = &run;
            Timed {
                name: one.cache.name,
                work: Box::new(move || run(one)),
            }
        });
        let nginx = contenders.next().context("there is no nginx")?;
        let ours = contenders.map(|ours| (ours, None)).collect();
        bench.compare("page", subject, "everything", nginx, ours)?;
    }
    bench.keep("pages", serde_json::to_value(seen.into_inner())?)
}

const PAGES: &str = "2 MB, 8 connections";
const NOT_MODIFIED: &str = "304 of it, 8 connections";
const BESIDE: &str = "hit of 1 KB beside 8 clients that load it";

/// Small hits over one connection, one after the other, in milliseconds.
async fn small_hits(cache: &Cache, seconds: u64) -> Result<Vec<f64>> {
    // The load is there by then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut client = Client::connect(cache.address).await?;
    let (mut found, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs(seconds) {
        let asked = Instant::now();
        client.drain("/small", SMALL as u64).await?;
        found.push(asked.elapsed().as_secs_f64() * 1000.0);
        // As a client that has something to do between two requests.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(found)
}

/// Brings the page and the small body into a cache, and compares what it then has.
async fn warm(cache: Cache, origin: &Origin) -> Result<Warm> {
    check(&cache, origin, "/small").await?;
    let expected = origin.page();
    let mut client = Client::connect(cache.address).await?;
    for _ in 0..3 {
        let (headers, body) = client.body(PAGE).await?;
        let text = String::from_utf8(body.to_vec())?;
        // The proxy has changed nothing but the links.
        let links = text.matches("/py/~files/").count();
        let plain = match text.split_once("/py/~files/") {
            Some((_, rest)) => {
                let signature = rest.get(..32).context("a link is cut")?;
                let prefix = format!("/py/~files/{signature}/https/");
                text.replace(&prefix, "https://")
            }
            None => text,
        };
        ensure!(
            plain == expected && (cache.name == "nginx") == (links == 0),
            "{} has another page",
            cache.name
        );
        let tag = headers.get("etag").context("the page has no tag")?;
        let (len, tag) = (body.len() as u64, tag.to_str()?.to_owned());
        // Once more, until it is stored.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let status = headers.get("cache-status").map(|status| status.as_bytes());
        if status.is_some_and(|status| status == b"HIT" || status.starts_with(b"brisk; hit")) {
            return Ok(Warm { cache, len, tag });
        }
    }
    anyhow::bail!("{} does not keep the page", cache.name)
}
