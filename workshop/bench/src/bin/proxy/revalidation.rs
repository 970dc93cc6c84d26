//! A 304 for an entry of 1 MB, against storing the entry again.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brisk_bench::{Bench, Timed};
use brisk_cache::{Cache, CacheOptions, Hit};
use brisk_http::{
    Engine, Exchange, Kept, Options, Outcome, Overrides, Request, Response, Step, Times, Timestamp,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::Setting;

const BODY: usize = 1_000_000;
const URL: &str = "https://index.example/simple/package/";
/// Tue, 14 Nov 2023 22:13:20 GMT
const BEGIN: u64 = 1_700_000_000;

/// How many are done for one figure.
const TIMES: u32 = 200;

const TIME_GOAL: f64 = 0.05;
const ALLOWED_BYTES: u64 = 1024;

/// A cache whose one entry is asked for anew again and again.
struct Subject {
    engine: Engine<Cache>,
    now: u64,
    request: HeaderMap,
    bodies: [Vec<u8>; 2],
    stored: usize,
}

fn headers(fields: &[(&'static str, &str)]) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
    }
    Ok(headers)
}

impl Subject {
    fn new(directory: &Path) -> Result<Self> {
        let cache = Cache::open(directory, CacheOptions::new())?;
        let mut rng = fastrand::Rng::with_seed(1);
        let mut body = || {
            let mut body = vec![0; BODY];
            rng.fill(&mut body);
            body
        };
        let mut subject = Self {
            engine: Engine::new(cache, Options::shared(), Overrides::default(), "bench"),
            now: BEGIN,
            request: headers(&[("accept", "text/html"), ("host", "index.example")])?,
            bodies: [body(), body()],
            stored: 0,
        };
        subject.store()?;
        Ok(subject)
    }

    /// Asks, when what is stored is no longer fresh.
    fn ask(&mut self) -> Result<Box<Exchange<Hit>>> {
        self.now += 1_000;
        let request = Request {
            method: &Method::GET,
            url: URL,
            headers: &self.request,
        };
        match self
            .engine
            .begin(&request, Timestamp::from_unix(self.now))?
        {
            Step::Ask(exchange) => Ok(exchange),
            _ => bail!("the entry is fresh"),
        }
    }

    fn tag(&self) -> String {
        format!("\"{}\"", self.stored)
    }

    fn answer(
        &self,
        exchange: Box<Exchange<Hit>>,
        status: StatusCode,
        length: Option<usize>,
    ) -> Result<Outcome<Hit>> {
        let tag = self.tag();
        let mut headers = headers(&[
            ("cache-control", "max-age=600, public"),
            ("content-type", "text/html"),
            ("etag", &tag),
            ("vary", "accept"),
        ])?;
        if let Some(length) = length {
            headers.insert("content-length", HeaderValue::from(length));
        }
        let response = Response {
            status,
            headers: &headers,
        };
        let times = Times::at(Timestamp::from_unix(self.now));
        Ok(self.engine.answered(exchange, &response, times)?)
    }

    /// The origin has another body.
    fn store(&mut self) -> Result<()> {
        let exchange = self.ask()?;
        self.stored = 1 - self.stored;
        let Outcome::Pass(pass) = self.answer(exchange, StatusCode::OK, Some(BODY))? else {
            bail!("the answer is not passed on");
        };
        let keep = pass.keep.context("it is not stored")?;
        let kept = self.engine.keep(keep, &self.bodies[self.stored])?;
        ensure!(kept == Kept::Stored, "it was not stored: {kept:?}");
        Ok(())
    }

    /// The origin has the same one.
    fn revalidate(&mut self) -> Result<()> {
        let exchange = self.ask()?;
        ensure!(
            exchange
                .headers
                .get("if-none-match")
                .map(HeaderValue::as_bytes)
                == Some(self.tag().as_bytes()),
            "no entity tag is sent"
        );
        let Outcome::Answer(answer) = self.answer(exchange, StatusCode::NOT_MODIFIED, None)? else {
            bail!("the entry does not hold");
        };
        let (_, range) = answer.body.as_ref().context("the answer has no body")?;
        ensure!(
            (answer.status, range.len()) == (StatusCode::OK, BODY),
            "the answer has status {} and {} bytes",
            answer.status,
            range.len()
        );
        Ok(())
    }

    /// Whether the entry has the right body.
    fn check(&mut self) -> Result<()> {
        let exchange = self.ask()?;
        let Outcome::Answer(answer) = self.answer(exchange, StatusCode::NOT_MODIFIED, None)? else {
            bail!("the entry does not hold");
        };
        ensure!(
            answer.body()? == self.bodies[self.stored],
            "the entry has another body"
        );
        Ok(())
    }
}

pub fn measure(bench: &mut Bench, setting: &Setting<'_>) -> Result<()> {
    let mut subject = Subject::new(&setting.work.join("revalidation"))?;
    subject.check()?;
    let subject = std::cell::RefCell::new(subject);
    let timed = |one: fn(&mut Subject) -> Result<()>| {
        let subject = &subject;
        move || -> Result<Duration> {
            let mut subject = subject.borrow_mut();
            let begun = Instant::now();
            for _ in 0..TIMES {
                one(&mut subject)?;
            }
            let elapsed = begun.elapsed() / TIMES;
            subject.check()?;
            Ok(elapsed)
        }
    };
    bench.compare(
        "304",
        "entry of 1 MB, time",
        "everything",
        Timed {
            name: "stored again",
            work: Box::new(timed(Subject::store)),
        },
        vec![(
            Timed {
                name: "304",
                work: Box::new(timed(Subject::revalidate)),
            },
            Some(TIME_GOAL),
        )],
    )?;
    bench.measure_bytes(
        "304",
        "entry of 1 MB, bytes written",
        ("allowed", ALLOWED_BYTES),
        "304",
        setting.runs,
        |_| {
            let before = written()?;
            subject.borrow_mut().revalidate()?;
            Ok(written()? - before)
        },
    )
}

/// The bytes that this process has written so far, to anything. Nothing else writes meanwhile.
fn written() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.context("/proc/self/io has no wchar")?
        .parse()
        .context("wchar is no number")
}
