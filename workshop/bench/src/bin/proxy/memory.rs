//! Private memory of the proxy with a large cache and many connections.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::Bench;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::Setting;
use super::caches::Cache;
use super::client::Client;
use super::origin::{LARGE, Origin};

/// What it may have.
const ALLOWED: u64 = 100_000_000;

/// Connections that wait, and others that ask all the time.
const IDLE: usize = 500;
const ACTIVE: usize = 500;

/// How long memory is looked at, and how often.
const WATCHED: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// The bodies that fill the cache: half of the bytes in bodies of 10 MB, the rest in shorter ones.
fn path(number: u64) -> (String, u64) {
    let len = match number % 20 {
        0..10 => LARGE as u64,
        10..15 => 1_000_000,
        _ => 20_000,
    };
    (format!("/fill/{number}/{len}"), len)
}

pub fn measure(
    bench: &mut Bench,
    runtime: &Runtime,
    setting: &Setting<'_>,
    fill: u64,
) -> Result<()> {
    let directory = setting.work.join("memory");
    let origin = runtime.block_on(Origin::start())?;
    let arguments = [
        "--map".to_owned(),
        format!("/=http://{}", origin.address),
        "--limit".to_owned(),
        format!("{}", fill + fill / 4 + (1 << 30)),
    ];
    let start = || runtime.block_on(Cache::brisk(setting.proxy, &directory, &arguments));
    // Another process has filled it: what memory a fetch takes is no part of this.
    let filling = start()?;
    let entries = runtime.block_on(fill_cache(&filling, fill))?;
    drop(filling);
    let samples = RefCell::new(Vec::new());
    let work = |_: &str| -> Result<u64> {
        let cache = start()?;
        let (largest, sample) = runtime.block_on(watch(&cache, &origin, entries))?;
        samples.borrow_mut().push(sample);
        Ok(largest)
    };
    bench.measure_bytes(
        "memory",
        &format!(
            "1,000 connections, {:.1} GB in {entries} entries",
            fill as f64 / 1e9
        ),
        ("allowed", ALLOWED),
        "brisk proxy",
        setting.runs.min(3),
        work,
    )?;
    bench.keep("memory", serde_json::to_value(samples.into_inner())?)
}

/// Returns the number of entries.
async fn fill_cache(cache: &Cache, bytes: u64) -> Result<u64> {
    let mut client = Client::connect(cache.address).await?;
    let (mut number, mut done) = (0, 0);
    while done < bytes {
        let (path, len) = path(number);
        client.drain(&path, len).await?;
        number += 1;
        done += len;
        if number % 200 == 0 {
            eprintln!("memory: {:.1} GB are in the cache", done as f64 / 1e9);
        }
    }
    // The last ones are stored after they were answered.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(number)
}

/// Returns the largest private memory, and what was seen.
async fn watch(cache: &Cache, origin: &Origin, entries: u64) -> Result<(u64, serde_json::Value)> {
    let begin = cache.server.memory()?;
    let asked = origin.asked();
    let mut idle = Vec::new();
    for number in 0..IDLE as u64 {
        let mut client = Client::connect(cache.address).await?;
        let (path, len) = path(number % 20 / 5 * 5 + 15);
        client.drain(&path, len).await?;
        idle.push(client);
    }
    let waiting = cache.server.memory()?;
    let (ends, answers) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut active = JoinSet::new();
    for seed in 0..ACTIVE as u64 {
        let mut client = Client::connect(cache.address).await?;
        let (ends, answers) = (Arc::clone(&ends), Arc::clone(&answers));
        let mut rng = fastrand::Rng::with_seed(seed);
        active.spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                let (path, len) = path(rng.u64(..entries));
                client.drain(&path, len).await?;
                answers.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    let begun = Instant::now();
    let mut largest = waiting;
    let mut most_anonymous = 0;
    while begun.elapsed() < WATCHED {
        tokio::time::sleep(PAUSE).await;
        let now = cache.server.memory()?;
        most_anonymous = most_anonymous.max(now.anonymous);
        if now.private() > largest.private() {
            largest = now;
        }
    }
    ends.store(true, Ordering::Relaxed);
    while let Some(done) = active.join_next().await {
        done?.context("a connection failed")?;
    }
    let answers = answers.load(Ordering::Relaxed);
    ensure!(answers > 0, "nothing was answered");
    ensure!(idle.len() == IDLE, "some connections that wait were closed");
    let sample = serde_json::json!({
        "at_start": begin,
        "with_500_waiting": waiting,
        "largest": largest,
        "most_anonymous": most_anonymous,
        "answers": answers,
        "origin_asked": origin.asked() - asked,
    });
    eprintln!("memory: {sample}");
    Ok((largest.private(), sample))
}
