//! `/-/metrics`: the numbers as Prometheus reads them (text format 0.0.4).

use std::fmt::Write;

use crate::metrics::{BOUNDS, Outcome, Snapshot, UpstreamNumbers};

/// The type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How large the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// Bytes of its files.
    pub bytes: u64,
    /// The most that they may have.
    pub limit: u64,
    /// Entries.
    pub entries: u64,
}

/// The numbers of all workers as text. A part that cannot be told is left out.
pub fn text(numbers: &Snapshot, size: Option<CacheSize>) -> String {
    let mut text = Text::default();
    text.family(
        "brisk_proxy_requests_total",
        "counter",
        "Requests by what came of them.",
    );
    for outcome in Outcome::ALL {
        let labels = [("outcome", outcome.name())];
        text.sample(
            "brisk_proxy_requests_total",
            &labels,
            numbers.requests(outcome),
        );
    }
    for (name, help, value) in [
        (
            "brisk_proxy_sent_bytes_total",
            "Bytes of bodies that clients got.",
            numbers.sent,
        ),
        (
            "brisk_proxy_saved_bytes_total",
            "Bytes of bodies that clients got from the cache.",
            numbers.saved,
        ),
        (
            "brisk_proxy_fetched_bytes_total",
            "Bytes of bodies that upstreams sent.",
            numbers.fetched,
        ),
        (
            "brisk_proxy_rewritten_pages_total",
            "Index pages that were rewritten for clients.",
            numbers.rewritten,
        ),
        (
            "brisk_proxy_wrong_digests_total",
            "Files that had another digest than is stated.",
            numbers.wrong_digests,
        ),
        (
            "brisk_proxy_replaced_workers_total",
            "Workers that ended before their time.",
            numbers.replaced,
        ),
    ] {
        text.family(name, "counter", help);
        text.sample(name, &[], value);
    }
    text.family(
        "brisk_proxy_upstream_answers_total",
        "counter",
        "Answers of upstreams by the class of their status; failed is none.",
    );
    for (host, upstream) in &numbers.upstreams {
        for (class, count) in &upstream.answers {
            let class = match class {
                0 => "failed".to_owned(),
                class => format!("{class}xx"),
            };
            let labels = [("upstream", host.as_str()), ("class", &class)];
            text.sample("brisk_proxy_upstream_answers_total", &labels, *count);
        }
    }
    text.family(
        "brisk_proxy_upstream_seconds",
        "histogram",
        "Time from a request to the head of its answer, by upstream.",
    );
    for (host, upstream) in &numbers.upstreams {
        text.histogram(host, upstream);
    }
    if let Some(size) = size {
        for (name, help, value) in [
            (
                "brisk_proxy_cache_bytes",
                "Bytes of the cache's files.",
                size.bytes,
            ),
            (
                "brisk_proxy_cache_limit_bytes",
                "The most that they may have.",
                size.limit,
            ),
            (
                "brisk_proxy_cache_entries",
                "Entries of the cache.",
                size.entries,
            ),
        ] {
            text.family(name, "gauge", help);
            text.sample(name, &[], value);
        }
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn histogram(&mut self, host: &str, upstream: &UpstreamNumbers) {
        let name = "brisk_proxy_upstream_seconds";
        let mut so_far = 0u64;
        for (bound, count) in BOUNDS.iter().zip(upstream.buckets) {
            so_far = so_far.saturating_add(count);
            let labels = [("upstream", host), ("le", &bound.to_string())];
            self.sample(&format!("{name}_bucket"), &labels, so_far);
        }
        let labels = [("upstream", host), ("le", "+Inf")];
        self.sample(&format!("{name}_bucket"), &labels, upstream.count());
        let labels = [("upstream", host)];
        let seconds = upstream.microseconds as f64 / 1e6;
        self.sample(&format!("{name}_sum"), &labels, seconds);
        self.sample(&format!("{name}_count"), &labels, upstream.count());
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let written = writeln!(self.0, "{line}");
        // Writing to a string cannot fail.
        debug_assert!(written.is_ok());
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use http::StatusCode;
    use std::time::Duration;

    #[test]
    fn every_sample_has_a_family_and_buckets_add_up() {
        let metrics = Metrics::default();
        metrics.answered(Outcome::Hit, 10);
        metrics.upstream_answered("a\"b", Duration::from_millis(30), Some(StatusCode::OK));
        metrics.upstream_answered("a\"b", Duration::from_secs(20), None);
        let size = CacheSize {
            bytes: 1,
            limit: 2,
            entries: 3,
        };
        let text = text(&metrics.total(), Some(size));
        for line in [
            "brisk_proxy_requests_total{outcome=\"hit\"} 1",
            "brisk_proxy_requests_total{outcome=\"miss\"} 0",
            "brisk_proxy_saved_bytes_total 10",
            "brisk_proxy_upstream_answers_total{upstream=\"a\\\"b\",class=\"failed\"} 1",
            "brisk_proxy_upstream_seconds_bucket{upstream=\"a\\\"b\",le=\"0.025\"} 0",
            "brisk_proxy_upstream_seconds_bucket{upstream=\"a\\\"b\",le=\"0.05\"} 1",
            "brisk_proxy_upstream_seconds_bucket{upstream=\"a\\\"b\",le=\"+Inf\"} 2",
            "brisk_proxy_upstream_seconds_sum{upstream=\"a\\\"b\"} 20.03",
            "brisk_proxy_upstream_seconds_count{upstream=\"a\\\"b\"} 2",
            "brisk_proxy_cache_entries 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let mut family = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap();
                let again = text.matches(&format!("# HELP {family} ")).count();
                assert_eq!(again, 1, "{family}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest.split(' ').next(), Some(family));
            } else {
                assert!(line.starts_with(family), "{line} is not of {family}");
            }
        }
        assert!(text.ends_with('\n'));
    }
}
