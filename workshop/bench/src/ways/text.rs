//! Results as tables.

use brisk_lab::{Ratio, Spread, interval, stopped_sentence};

use super::results::{Figure, IndexSettings, More, Setting, Stored, Ways};
use crate::results::{Kind, Results};
use crate::table::{
    Group, Shown, Table, at_most, best_of, counted, goals, median_of, number, verdict,
};

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
fn reached(results: &Results<Ways>, rng: &mut fastrand::Rng) -> Table<4> {
    let mut rows = Vec::new();
    let mut ratio = |figure: Figure, packages: u64, what: String, goal: f64| {
        let values = |way| results.of(figure, packages, way, "ns");
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
    goals(rows)
}

/// What uv published of its step from parsed pages to archives
/// ([pull request 1249](https://github.com/astral-sh/uv/pull/1249), of February 2024), and the same steps here.
fn published(results: &Results<Ways>) -> Table<4> {
    let most = results.most(Figure::Warm);
    let time = |way| {
        let values = results.of(Figure::Warm, most?, way, "ns");
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
    let title = "From parsed pages to archives: uv's pull request 1249, and here".to_owned();
    Table::new(title, PUBLISHED, rows.into_iter().flatten().collect())
}

fn title(figure: Figure, packages: u64, results: &Results<Ways>) -> String {
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
            let largest = &results.more.pages.largest;
            format!(
                "The page of {} ({:.1} MB, {} files), warm: open, decide, choose a file",
                largest.name,
                largest.bytes as f64 / 1e6,
                largest.files
            )
        }
    }
}

fn group(
    results: &Results<Ways>,
    figure: Figure,
    packages: u64,
    ways: &[&str],
    rng: &mut fastrand::Rng,
) -> Group {
    let times = |way: &str| -> Vec<f64> {
        let values = results.of(figure, packages, way, "ns").into_iter();
        values.map(|ns| ns / 1e6).collect()
    };
    let rows = ways.iter().map(|&way| (way.to_owned(), times(way)));
    // A way without a run is left out.
    let rows: Vec<_> = rows.filter(|(_, values)| !values.is_empty()).collect();
    let peer = times(PEER);
    let cells = rows.iter().map(|(way, values)| {
        let ratio = Ratio::of_medians(values, &peer, rng).map_or("-".to_owned(), interval);
        let runs = |name| results.of(figure, packages, way, name);
        let both = runs("user_ns").into_iter().zip(runs("system_ns"));
        let both: Vec<f64> = both.map(|(user, system)| (user + system) / 1e3).collect();
        let median = |values: &[f64]| Spread::of(values).map(|spread| spread.median);
        let processor = median(&both).map_or("-".to_owned(), |us| format!("{} us", number(us)));
        let named = median(&runs("named_ns"))
            .map_or("-".to_owned(), |ns| format!("{} ms", number(ns / 1e6)));
        let counts = results.counted(figure, packages, way);
        let counts_of = counts.map_or("-".to_owned(), |row| {
            format!(
                "{}, {}",
                counted(row.allocations),
                counted(row.system_calls)
            )
        });
        let written = counts.and_then(|row| row.written);
        let written = written.map_or("-".to_owned(), |bytes| format!("{bytes:.0}"));
        let spread = median_of(values, "ms");
        [
            way.clone(),
            spread,
            ratio,
            processor,
            counts_of,
            written,
            named,
        ]
    });
    let mut table = Table::new(title(figure, packages, results), HEAD, cells.collect());
    table.best = best_of(&rows, false);
    Group {
        table: Box::new(table),
        unit: "ms",
        rows,
    }
}

fn stored(results: &Results<Ways>) -> Table<4> {
    let rows = results.stored.iter().map(|row| {
        [
            format!("{}: {} {}", row.way, row.packages, row.what),
            format!("{:.1} MB", row.bytes as f64 / 1e6),
            number(row.bytes as f64 / row.pages.max(1) as f64),
            format!("{:.2} s", row.seconds),
        ]
    });
    let title = "What the ways take on the disk".to_owned();
    Table::new(title, STORED, rows.collect())
}

/// What a reader must know about all tables.
fn conditions(results: &Results<Ways>) -> String {
    let (made, few) = results.runs_of_each();
    let pages = &results.more.pages;
    let text = format!(
        "{}, in turns, on {}. Each run is a fresh process, which chose the expected file of each package for \
         Python {} on {}, and asked the index as often as it had to.{}{} {} real pages of {:.1} MB with {} versions and {} \
         files; more packages are the same pages of other indexes, stored each for itself. A store has the largest number of \
         packages, and a run asks for some. Processor time (user and system), allocations, system calls and bytes written \
         are those of one package; allocations are those of Rust, and bytes are those given to write calls for files of the \
         store. The clock ends when all files are chosen; the last column is the time to make their names and URLs then.",
        made,
        results.machine.filesystem,
        pages.python,
        pages.platform,
        few,
        stopped_sentence(&results.stopped),
        pages.pages,
        pages.bytes as f64 / 1e6,
        pages.versions,
        pages.files,
    );
    text + &results.lost_sentence()
}

impl Kind for Ways {
    const NAME: &'static str = "index";
    const TITLE: &'static str = "Package indexes";
    const BRISK: &'static [&'static str] = &[OURS];
    const PLAIN: &'static [&'static str] = &[];

    type Settings = IndexSettings;
    type Setting = Setting;
    type Stored = Stored;
    type More = More;

    fn figure(setting: &Setting) -> String {
        setting.figure.name()
    }

    fn seed(settings: &IndexSettings) -> u64 {
        settings.seed
    }

    fn conditions(results: &Results<Self>) -> String {
        conditions(results)
    }

    fn goals(results: &Results<Self>, rng: &mut fastrand::Rng) -> Table<4> {
        reached(results, rng)
    }

    fn groups(results: &Results<Self>, rng: &mut fastrand::Rng) -> Vec<Group> {
        let measured = results.measured().into_iter();
        measured
            .map(|((figure, packages), ways)| group(results, figure, packages, &ways, rng))
            .collect()
    }

    fn others(results: &Results<Self>) -> Vec<Box<dyn Shown>> {
        vec![Box::new(stored(results)), Box::new(published(results))]
    }

    fn remarks(results: &Results<Self>) -> Vec<String> {
        let left_out = results.more.pages.left_out.iter();
        left_out
            .map(|left| format!("{} is in no run: {}.", left.name, left.why))
            .collect()
    }
}
