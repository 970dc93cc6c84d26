//! Results as tables, in plain text and in Markdown, and as pictures.

use super::super::answers::too_few;
use super::super::load::answers::interval;
use super::super::reclaim;
use super::super::statistics::{Ratio, Spread};
use super::super::table::escaped_text;
use super::super::titled_table::{Table, at_most, counted, number, verdict};
use super::results::{Figure, IndexResults};
use brisk::page::chart::{self, Whose};
use brisk_terminal::page::Page;

const HEAD: [&str; 7] = [
    "",
    "median (from-to)",
    "/uv-client (95 %)",
    "processor",
    "allocations, calls",
    "written",
    "then names, URLs",
];
const STORED: [&str; 4] = ["", "on the disk", "/bytes of pages", "to make"];
const GOALS: [&str; 4] = ["", "goal", "reached (95 %)", ""];
const PUBLISHED: [&str; 4] = ["", "published", "uv-client here", "brisk here"];

/// The way that the others are compared with.
const PEER: &str = "uv-client";
const OURS: &str = "brisk";
/// The way in which uv read before it read archives.
const BEFORE: &str = "parsed";

/// The most of uv-client's time for all packages, warm.
const WARM_GOAL: f64 = 0.05;
/// The most of uv-client's time for the largest page.
const LARGEST_GOAL: f64 = 0.01;
/// The most of uv-client's bytes on the disk.
const BYTES_GOAL: f64 = 0.8;
/// The most allocations for a package.
const ALLOCATIONS_GOAL: f64 = 2.0;

/// The goals, and what was reached.
fn reached(results: &IndexResults) -> Table<4> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut rows = Vec::new();
    let mut ratio = |figure: Figure, packages: u64, what: String, goal: f64| {
        let values = |way| results.values(figure, packages, way, "ns");
        if let Some(ratio) = Ratio::of_medians(&values(OURS), &values(PEER), rng) {
            rows.push(at_most(what, ratio, goal));
        }
    };
    let most = results.most(Figure::Warm);
    if let Some(most) = most {
        let what = format!("{most} warm packages: open, decide, choose, to {PEER}");
        ratio(Figure::Warm, most, what, WARM_GOAL);
    }
    let what = format!("the largest page: hit to chosen file, to {PEER}");
    ratio(Figure::Largest, 1, what, LARGEST_GOAL);
    let bytes = |way| results.bytes(way, "fresh");
    if let (Some(ours), Some(theirs)) = (bytes(OURS), bytes(PEER)) {
        let ratio = ours as f64 / theirs.max(1) as f64;
        rows.push([
            format!("bytes on the disk, the same packages, to {PEER}"),
            format!("<= {BYTES_GOAL}"),
            format!("{ratio:.2}"),
            verdict(ratio <= BYTES_GOAL),
        ]);
    }
    let counts = most.and_then(|most| results.counted(Figure::Warm, most, OURS));
    if let Some(allocations) = counts.and_then(|counted| counted.allocations) {
        rows.push([
            "allocations for each warm package".to_owned(),
            format!("<= {ALLOCATIONS_GOAL}"),
            counted(Some(allocations)),
            verdict(allocations <= ALLOCATIONS_GOAL),
        ]);
    }
    Table {
        title: "What brisk is to reach".to_owned(),
        head: GOALS,
        rows,
    }
}

/// What uv published of its step from parsed pages to archives
/// ([pull request 1249](https://github.com/astral-sh/uv/pull/1249), of February 2024), and the same steps here.
fn published(results: &IndexResults) -> Table<4> {
    let most = results.most(Figure::Warm);
    let time = |way| {
        let values = results.values(Figure::Warm, most?, way, "ns");
        Spread::of(&values).map(|spread| spread.median)
    };
    let faster = |way| Some(time(BEFORE)? / time(way)?);
    let bytes = |way| results.bytes(way, "fresh").map(|bytes| bytes as f64);
    let larger = |way| Some(bytes(way)? / bytes(BEFORE)?);
    let row = |name: &str, published: &str, [theirs, ours]: [Option<f64>; 2]| {
        let [name, published] = [name, published].map(str::to_owned);
        Some([name, published, number(theirs?), number(ours?)])
    };
    let rows = [
        row(
            "warm, times faster",
            "1.1, a whole uv pip compile",
            [PEER, OURS].map(faster),
        ),
        row("bytes on the disk, times", "1.8", [PEER, OURS].map(larger)),
    ];
    Table {
        title: "From parsed pages to archives: uv's pull request 1249, and here".to_owned(),
        head: PUBLISHED,
        rows: rows.into_iter().flatten().collect(),
    }
}

fn title(figure: Figure, packages: u64, results: &IndexResults) -> String {
    let packages = match packages {
        1 => "1 package".to_owned(),
        packages => format!("{packages} packages"),
    };
    match figure {
        Figure::Warm => format!("Warm, {packages}: open, decide, choose a file of each"),
        Figure::Stale => {
            format!("Stale, {packages}: the same, and the index says that each page holds")
        }
        Figure::Miss => {
            format!("Nothing stored, {packages}: fetch and store each, choose a file of each")
        }
        Figure::Largest => {
            let largest = &results.pages.largest;
            format!(
                "The page of {} ({:.1} MB, {} files), warm: open, decide, choose a file",
                largest.name,
                largest.bytes as f64 / 1e6,
                largest.files
            )
        }
    }
}

/// Times in milliseconds of each way of a group. Ways without a run are left out.
fn times(
    results: &IndexResults,
    figure: Figure,
    packages: u64,
    ways: &[&str],
) -> Vec<(String, Vec<f64>)> {
    let rows = ways.iter().map(|&way| {
        let values = results.values(figure, packages, way, "ns").into_iter();
        (way.to_owned(), values.map(|ns| ns / 1e6).collect())
    });
    rows.filter(|(_, values): &(String, Vec<f64>)| !values.is_empty())
        .collect()
}

fn table(
    results: &IndexResults,
    figure: Figure,
    packages: u64,
    ways: &[&str],
    rng: &mut fastrand::Rng,
) -> Table<7> {
    let peer = times(results, figure, packages, &[PEER]);
    let peer = peer.first().map_or(&[][..], |(_, values)| values);
    let mut cells = |way: String, values: &[f64]| {
        let spread = Spread::of(values).map_or(String::new(), |Spread { median, min, max }| {
            format!("{} ({}-{}) ms", number(median), number(min), number(max))
        });
        let ratio = Ratio::of_medians(values, peer, rng).map_or("-".to_owned(), interval);
        let runs = |name| results.values(figure, packages, &way, name);
        let both = runs("user_ns").into_iter().zip(runs("system_ns"));
        let both: Vec<f64> = both.map(|(user, system)| (user + system) / 1e3).collect();
        let median = |values: &[f64]| Spread::of(values).map(|spread| spread.median);
        let processor = median(&both).map_or("-".to_owned(), |us| format!("{} us", number(us)));
        let named = median(&runs("named_ns"))
            .map_or("-".to_owned(), |ns| format!("{} ms", number(ns / 1e6)));
        let counts = results.counted(figure, packages, &way);
        let counts_of = counts.map_or("-".to_owned(), |row| {
            format!(
                "{}, {}",
                counted(row.allocations),
                counted(row.system_calls)
            )
        });
        let written = counts.and_then(|row| row.written);
        let written = written.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        [way, spread, ratio, processor, counts_of, written, named]
    };
    let rows = times(results, figure, packages, ways);
    Table {
        title: title(figure, packages, results),
        head: HEAD,
        rows: rows
            .into_iter()
            .map(|(way, values)| cells(way, &values))
            .collect(),
    }
}

fn stored(results: &IndexResults) -> Table<4> {
    let rows = results.stored.iter().map(|row| {
        [
            format!("{}: {} {}", row.way, row.packages, row.what),
            format!("{:.1} MB", row.bytes as f64 / 1e6),
            number(row.bytes as f64 / row.pages.max(1) as f64),
            format!("{:.2} s", row.seconds),
        ]
    });
    Table {
        title: "What the ways take on the disk".to_owned(),
        head: STORED,
        rows: rows.collect(),
    }
}

/// What a reader must know about all tables.
fn conditions(results: &IndexResults) -> String {
    let last = results.runs.iter().map(|run| run.repetition).max();
    let made = last.map_or(0, |last| last.saturating_add(1));
    let pages = &results.pages;
    let mut text = format!(
        "{} runs of each, in turns, on {}. Each run is a fresh process, which chose the expected file of each package for \
         Python {} on {}, and asked the index as often as it had to.{}{} {} real pages of {:.1} MB with {} versions and {} \
         files; more packages are the same pages of other indexes, stored each for itself. A store has the largest number of \
         packages, and a run asks for some. Processor time (user and system), allocations, system calls and bytes written \
         are those of one package; allocations are those of Rust, and bytes are those given to write calls for files of the \
         store. The clock ends when all files are chosen; the last column is the time to make their names and URLs then.",
        made,
        results.machine.filesystem,
        pages.python,
        pages.platform,
        too_few(made as usize),
        reclaim::sentence(&results.stopped),
        pages.pages,
        pages.bytes as f64 / 1e6,
        pages.versions,
        pages.files,
    );
    if results.lost > 0 {
        text += &format!(
            " {} runs were lost, because pages of a warm store left memory each time.",
            results.lost
        );
    }
    text
}

fn remarks(results: &IndexResults) -> Vec<String> {
    let missing = results.missing.iter();
    let missing = missing.map(|left| format!("{}: {}.", left.what, left.reason));
    let left_out = results.pages.left_out.iter();
    let left_out = left_out.map(|left| format!("{} is in no run: {}.", left.name, left.why));
    missing.chain(left_out).collect()
}

/// Tables for people.
pub fn of(results: &IndexResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = conditions(results) + "\n";
    for ((figure, packages), ways) in results.groups() {
        text += &table(results, figure, packages, &ways, rng).plain();
    }
    text += &stored(results).plain();
    text += &reached(results).plain();
    text += &published(results).plain();
    for line in remarks(results) {
        text += &format!("\n{}", brisk_terminal::names::printable(&line));
    }
    text + "\n"
}

/// Tables in Markdown, the goals first. The best median is in bold.
pub fn markdown(results: &IndexResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = reached(results).markdown();
    for ((figure, packages), ways) in results.groups() {
        let medians = times(results, figure, packages, &ways).into_iter();
        let medians = medians
            .map(|(_, values)| Spread::of(&values).map_or(f64::INFINITY, |spread| spread.median));
        let mut table = table(results, figure, packages, &ways, rng);
        table.embolden_least(medians);
        text += &table.markdown();
    }
    text += &stored(results).markdown();
    text += &published(results).markdown();
    text += &format!("{}\n", escaped_text(&conditions(results)));
    for line in remarks(results) {
        text += &format!("\n* {}", escaped_text(&line));
    }
    text + "\n"
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &IndexResults) {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    page.anchor(2, "index", "Package indexes");
    page.note(&conditions(results));
    reached(results).draw(page);
    for ((figure, packages), ways) in results.groups() {
        let title = title(figure, packages, results);
        let lines = times(results, figure, packages, &ways)
            .into_iter()
            .map(|(way, values)| chart::Row {
                figure: Spread::of(&values).map_or(String::new(), |spread| {
                    format!("{} ms", number(spread.median))
                }),
                whose: match &*way {
                    OURS => Whose::Brisk,
                    _ => Whose::Rival,
                },
                name: way,
                values,
            });
        let lines: Vec<_> = lines.collect();
        let caption = match chart::is_log(&lines, chart::Lines::default()) {
            true => "The axis is logarithmic: equal steps are equal ratios.",
            false => "Each dot is one run.",
        };
        page.heading(3, &title);
        page.figure(
            &chart::box_plots(&title, &lines, chart::Lines::default(), "ms"),
            caption,
        );
        let table = table(results, figure, packages, &ways, rng);
        page.table(HEAD, &table.rows, false);
    }
    stored(results).draw(page);
    published(results).draw(page);
    page.list(&remarks(results));
}

impl IndexResults {
    /// Tables of all results.
    pub fn text(&self) -> String {
        of(self)
    }
}
