//! `/-/`: the numbers as people read them. The page needs nothing else, and escapes every name.

use brisk_terminal::messages::count;
use brisk_terminal::page::Page;

use crate::exposition::CacheSize;
use crate::map::Maps;
use crate::metrics::{Outcome, Snapshot};

/// How many rows a table has at most.
pub const MOST_ROWS: usize = 20;

/// A large entry of the cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LargeEntry {
    /// Its bytes.
    pub len: u64,
    /// The URL that it is of.
    pub url: String,
}

/// The page.
pub fn html(
    numbers: &Snapshot,
    maps: &Maps,
    size: Option<CacheSize>,
    largest: &[LargeEntry],
) -> String {
    let mut page = Page::default();
    page.heading(1, "brisk proxy");
    let of = |outcome| numbers.requests(outcome);
    let cached = of(Outcome::Hit) + of(Outcome::Revalidated) + of(Outcome::Stale);
    let all = cached + of(Outcome::Miss) + of(Outcome::Failed);
    page.paragraph(&match all {
        0 => "Nobody has asked for anything yet.".to_owned(),
        _ => format!(
            "The cache had {cached} of {all} answers ({} %), and saved {}.",
            cached
                .saturating_mul(100)
                .checked_div(all)
                .unwrap_or_default(),
            bytes(numbers.saved)
        ),
    });
    if let Some(size) = size {
        page.paragraph(&format!(
            "It holds {} entries in {}; its limit is {}.",
            size.entries,
            bytes(size.bytes),
            bytes(size.limit)
        ));
    }
    if numbers.wrong_digests > 0 {
        let files = count(numbers.wrong_digests, "file", "files");
        page.paragraph(&format!(
            "Not kept, since the digest is another one than is stated: {files}. A warning on stderr has the URL and both digests of \
             each."
        ));
    }
    page.heading(2, "Answers");
    let rows = Outcome::ALL.map(|outcome| {
        let meaning = match outcome {
            Outcome::Hit => "from the cache",
            Outcome::Revalidated => "from the cache, after an upstream said that they hold",
            Outcome::Stale => "from the cache, in place of an upstream",
            Outcome::Miss => "from an upstream",
            Outcome::Own => "the proxy's own pages",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed, since no upstream answered",
        };
        [meaning.to_owned(), of(outcome).to_string()]
    });
    page.table(["answers", "number"], &rows, false);
    page.heading(2, "Upstreams, slowest first");
    let mut upstreams: Vec<_> = numbers.upstreams.iter().collect();
    let mean = |microseconds: u64, count: u64| {
        microseconds.checked_div(count).unwrap_or_default() as f64 / 1e6
    };
    upstreams.sort_by(|(_, a), (_, b)| {
        let (a, b) = (
            mean(a.microseconds, a.count()),
            mean(b.microseconds, b.count()),
        );
        b.total_cmp(&a)
    });
    let rows: Vec<[String; 4]> = upstreams
        .iter()
        .take(MOST_ROWS)
        .map(|(host, upstream)| {
            let failed = upstream.answers.get(&0).copied().unwrap_or_default();
            [
                (*host).clone(),
                format!("{:.3} s", mean(upstream.microseconds, upstream.count())),
                upstream.count().to_string(),
                failed.to_string(),
            ]
        })
        .collect();
    table(
        &mut page,
        ["upstream", "mean time to answer", "requests", "failed"],
        &rows,
    );
    page.heading(2, "Largest entries");
    let rows: Vec<[String; 2]> = largest
        .iter()
        .map(|entry| [entry.url.clone(), bytes(entry.len)])
        .collect();
    table(&mut page, ["URL", "size"], &rows);
    page.heading(2, "What stands where");
    let rows: Vec<[String; 3]> = maps
        .iter()
        .map(|map| {
            [
                format!("{}/", map.prefix()),
                map.upstream().to_string(),
                map.kind().name().to_owned(),
            ]
        })
        .collect();
    page.table(["path", "URL", "kind"], &rows, true);
    page.note("/-/metrics has these numbers for Prometheus. Numbers are those of all workers since the proxy was started.");
    page.finish("brisk proxy")
}

fn table<const N: usize>(page: &mut Page, head: [&str; N], rows: &[[String; N]]) {
    match rows.is_empty() {
        true => page.paragraph("None yet."),
        false => page.table(head, rows, false),
    };
}

/// A number of bytes with a unit.
fn bytes(number: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{number} bytes"),
        _ => format!(
            "{value:.1} {}",
            units.get(unit).copied().unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Map;
    use crate::metrics::Metrics;
    use std::time::Duration;

    #[test]
    fn names_are_escaped_and_nothing_comes_from_elsewhere() {
        let metrics = Metrics::default();
        metrics.answered(Outcome::Hit, 3 << 20);
        metrics.answered(Outcome::Miss, 1);
        metrics.upstream_answered("<b>slow", Duration::from_secs(2), None);
        metrics.upstream_answered("fast", Duration::from_millis(2), None);
        let maps = Maps::new(vec![Map::parse("/a=https://a.example/x&y").unwrap()]).unwrap();
        let largest = [LargeEntry {
            len: 5000,
            url: "https://a/<script>alert(1)</script>".to_owned(),
        }];
        let html = html(&metrics.total(), &maps, None, &largest);
        assert!(
            html.contains("1 of 2 answers (50 %), and saved 3.0 MiB"),
            "{html}"
        );
        assert!(
            html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{html}"
        );
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(!html.contains("src=") && !html.contains("href="), "{html}");
        assert!(html.find("&lt;b&gt;slow") < html.find("fast"), "{html}");
        assert!(html.contains("4.9 KiB"), "{html}");
        assert!(!html.contains("digest"), "{html}");
    }
}
