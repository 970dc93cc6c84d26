//! Hits: processor time of the cache for each request.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::Setting;
use super::caches::Cache;
use super::client::Client;
use super::origin::{LARGE, Origin, SMALL};

/// How many times as long as nginx a hit may take: 1 / 1.0, and 1 / 0.9 where the kernel sends from the file.
const SMALL_GOAL: f64 = 1.0;
const LARGE_GOAL: f64 = 1.0 / 0.9;

/// What wrk says at its end, and what else was seen during one run.
#[derive(Debug, Serialize)]
struct Hits {
    subject: String,
    contender: &'static str,
    requests: u64,
    bytes: u64,
    seconds: f64,
    processor_seconds: f64,
    private_memory: u64,
}

/// Prints the totals of a run of wrk.
pub const SCRIPT: &str = "\
function done(summary)
    local e = summary.errors
    local bad = e.connect + e.read + e.write + e.status + e.timeout
    io.write(string.format(\"totals %d %d %d\\n\", summary.requests, summary.bytes, bad))
end
";

pub fn measure(bench: &mut Bench, runtime: &Runtime, setting: &Setting<'_>) -> Result<()> {
    let work = setting.work.join("hit");
    let origin = runtime.block_on(Origin::start())?;
    let url = format!("/=http://{}", origin.address);
    let arguments = ["--map".to_owned(), url];
    let (of_brisk, of_nginx) = (work.join("brisk"), work.join("nginx"));
    let brisk = runtime.block_on(Cache::brisk(setting.proxy, &of_brisk, &arguments))?;
    let nginx = Cache::nginx(&of_nginx, origin.address, setting.processors);
    let nginx = runtime.block_on(nginx)?;
    let script = work.join("totals.lua");
    std::fs::write(&script, SCRIPT)?;
    let kept = RefCell::new(Vec::new());
    for (path, len, goal) in [("/small", SMALL, SMALL_GOAL), ("/large", LARGE, LARGE_GOAL)] {
        for cache in [&brisk, &nginx] {
            runtime.block_on(check(cache, &origin, path))?;
        }
        for connections in [64, 8] {
            let size = if len == SMALL { "1 KB" } else { "10 MB" };
            let subject = format!("{size}, {connections} connections");
            let [theirs, ours] = [&nginx, &brisk].map(|cache| {
                let (name, address) = (cache.name, cache.address);
                let (origin, script, kept, subject) = (&origin, &script, &kept, subject.clone());
                let server = &cache.server;
                move || -> Result<Duration> {
                    let asked = origin.asked();
                    let before = server.processor_seconds()?;
                    let begun = Instant::now();
                    let url = format!("http://{address}{path}");
                    let (requests, bytes) = wrk(&url, connections, setting.seconds, script, &[])?;
                    let seconds = begun.elapsed().as_secs_f64();
                    let processor_seconds = server.processor_seconds()? - before;
                    ensure!(origin.asked() == asked, "the cache asked the origin");
                    kept.borrow_mut().push(Hits {
                        subject: subject.clone(),
                        contender: name,
                        requests,
                        bytes,
                        seconds,
                        processor_seconds,
                        private_memory: server.memory()?.private(),
                    });
                    // A long run ends in the middle of answers, whose bytes count as far as they came.
                    let answers = match len == SMALL {
                        true => requests as f64,
                        false => bytes as f64 / len as f64,
                    };
                    ensure!(answers > 0.0, "nothing was answered");
                    Ok(Duration::from_secs_f64(processor_seconds / answers))
                }
            });
            bench.compare(
                "hit",
                &subject,
                "everything",
                Timed {
                    name: nginx.name,
                    work: Box::new(theirs),
                },
                vec![(
                    Timed {
                        name: brisk.name,
                        work: Box::new(ours),
                    },
                    Some(goal),
                )],
            )?;
        }
    }
    bench.keep("hits", serde_json::to_value(kept.into_inner())?)
}

/// Brings a path into a cache, and compares what the cache then has.
pub async fn check(cache: &Cache, origin: &Origin, path: &str) -> Result<()> {
    let mut client = Client::connect(cache.address).await?;
    let expected = origin.digest(path).context("the origin has no such path")?;
    let begun = Instant::now();
    loop {
        let reply = client.get(path).await?;
        let found = (reply.status.as_u16(), reply.digest);
        ensure!(found == (200, expected), "{} has another body", cache.name);
        let status = reply.headers.get("cache-status");
        let status = status.map_or("", |status| status.to_str().unwrap_or_default());
        if status == "HIT" || status.contains("; hit") {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(10),
            "{} does not keep {path}",
            cache.name
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the numbers of answers and of their bytes.
pub fn wrk(
    url: &str,
    connections: u32,
    seconds: u64,
    script: &Path,
    fields: &[&str],
) -> Result<(u64, u64)> {
    let output = Command::new("wrk")
        .args(["--threads", "1", "--timeout", "30s"])
        .args(["--connections", &connections.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .args(fields.iter().flat_map(|field| ["--header", field]))
        .arg("--script")
        .args([script.as_os_str(), url.as_ref()])
        .output()
        .context("cannot start wrk; install it (Debian: wrk)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let totals = text.lines().find_map(|line| line.strip_prefix("totals "));
    let totals = totals.map(|line| {
        line.split(' ')
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u64>>()
    });
    match totals.as_deref() {
        Some([requests, bytes, 0]) => Ok((*requests, *bytes)),
        _ => anyhow::bail!(
            "wrk had errors: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
