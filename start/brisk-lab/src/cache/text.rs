//! Results as tables, in plain text and in Markdown, and as pictures.

use std::collections::BTreeMap;

use super::super::answers::too_few;
use super::super::load::answers::interval;
use super::super::reclaim;
use super::super::statistics::{Ratio, Spread};
use super::super::table::escaped_text;
use super::super::titled_table::{Table, at_most, bytes, counted, number, verdict};
use super::results::{CacheResults, Figure};
use brisk::page::chart::{self, Whose};
use brisk_terminal::page::Page;

const HEAD: [&str; 5] = [
    "",
    "median (from-to)",
    "/brisk (95 %)",
    "processor user+system",
    "allocations, calls",
];
const WRITTEN: [&str; 5] = [
    "",
    "relaxed: to write calls (from-to)",
    "on the device (from-to)",
    "durable: to write calls (from-to)",
    "on the device (from-to)",
];
const STORED: [&str; 4] = ["", "on the disk", "/bytes of values", "to make"];
const GOALS: [&str; 4] = ["", "goal", "reached (95 %)", ""];

/// A ratio that brisk is to reach at most.
struct Goal {
    what: &'static str,
    ours: Figure,
    theirs: (Figure, &'static str),
    goal: f64,
}

impl Goal {
    /// Of the same figure.
    const fn to(store: &'static str, figure: Figure, what: &'static str, goal: f64) -> Self {
        Self {
            what,
            ours: figure,
            theirs: (figure, store),
            goal,
        }
    }

    /// Of two figures of brisk.
    const fn within(what: &'static str, ours: Figure, theirs: Figure, goal: f64) -> Self {
        Self {
            what,
            ours,
            theirs: (theirs, "brisk"),
            goal,
        }
    }
}

const RATIOS: [Goal; 13] = [
    Goal::to(
        "lmdb",
        Figure::Get,
        "warm get of 1 KB, to LMDB with a transaction for each",
        0.5,
    ),
    Goal::to(
        "lmdb-one-txn",
        Figure::Get,
        "warm get of 1 KB, to LMDB in one transaction",
        0.5,
    ),
    Goal::to(
        "lmdb",
        Figure::Open,
        "open and first get, to LMDB (heed)",
        0.6,
    ),
    Goal::to(
        "files",
        Figure::Open,
        "open and first get, to one file",
        2.0,
    ),
    Goal::to(
        "lmdb",
        Figure::Update,
        "update, relaxed, to heed without sync",
        1.0,
    ),
    Goal::to(
        "lmdb",
        Figure::DurableUpdate,
        "update, durable, to heed by default",
        1.0,
    ),
    Goal::to(
        "files-rkyv",
        Figure::Tables,
        "one look-up in each table, in a fresh process, to files and rkyv",
        0.05,
    ),
    Goal::to(
        "files-rkyv",
        Figure::Again,
        "the same, in a process that has looked before",
        0.05,
    ),
    Goal::to(
        "files-rkyv",
        Figure::Cold,
        "the same, in a fresh process, cold",
        0.7,
    ),
    Goal::to(
        "lmdb",
        Figure::GetMany,
        "get of many, to LMDB with a transaction for each",
        0.7,
    ),
    Goal::to(
        "lmdb-one-txn",
        Figure::GetMany,
        "get of many, to LMDB in one transaction",
        0.7,
    ),
    Goal::within(
        "open of many, to open of few",
        Figure::OpenMany,
        Figure::OpenFew,
        2.0,
    ),
    Goal::within(
        "get of many, to get of few",
        Figure::GetMany,
        Figure::GetFew,
        1.5,
    ),
];

/// Bytes that an update of brisk writes are compared with a number, and not with a store.
const BYTES: [(&str, &str, f64); 2] = [
    (
        "bytes that an update of 400, relaxed, gives to write calls",
        "wchar",
        1024.0,
    ),
    ("bytes that the device writes for it", "device", 8192.0),
];

/// The goals, and what was reached.
fn reached(results: &CacheResults) -> Table<4> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut rows = Vec::new();
    for goal in RATIOS {
        let values = |figure: Figure, store| results.values(figure, store, figure.measure().0);
        let (figure, store) = goal.theirs;
        let (ours, theirs) = (values(goal.ours, "brisk"), values(figure, store));
        if let Some(ratio) = Ratio::of_medians(&ours, &theirs, rng) {
            rows.push(at_most(goal.what.to_owned(), ratio, goal.goal));
        }
    }
    if let Some(row) = results.counts().get(&(Figure::Get, "brisk")) {
        let counts = [
            ("allocations of a warm get", row.allocations),
            ("system calls of a warm get", row.system_calls),
        ];
        for (what, count) in counts {
            if let Some(count) = count {
                rows.push([
                    what.to_owned(),
                    "0".to_owned(),
                    counted(Some(count)),
                    verdict(count == 0.0),
                ]);
            }
        }
    }
    for (what, name, goal) in BYTES {
        let values = results.values(Figure::Update, "brisk", name);
        if let Some(spread) = Spread::of(&values) {
            rows.push([
                what.to_owned(),
                format!("<= {goal}"),
                bytes(&values),
                verdict(spread.median <= goal),
            ]);
        }
    }
    let mut scaling = |store| {
        let one = results.values(Figure::One, store, "per_second");
        let eight = results.values(Figure::Eight, store, "per_second");
        Ratio::of_medians(&eight, &one, rng)
    };
    if let Some(ours) = scaling("brisk") {
        // The goal is one for two processors.
        if results.machine.processors == 2 {
            rows.push([
                "gets in a second of 8 processes, to those of one".to_owned(),
                ">= 1.9".to_owned(),
                interval(ours),
                verdict(ours.value >= 1.9),
            ]);
        }
        if let Some(own) = scaling("memory") {
            let (low, high) = (ours.low / own.high, ours.high / own.low);
            let value = ours.value / own.value;
            rows.push([
                format!(
                    "scaling of 8 processes ({:.2}), to that of memory of their own ({:.2})",
                    ours.value, own.value
                ),
                ">= 0.95".to_owned(),
                interval(Ratio { value, low, high }),
                verdict(value >= 0.95),
            ]);
        }
    }
    Table {
        title: "What brisk is to reach".to_owned(),
        head: GOALS,
        rows,
    }
}

fn title(figure: Figure, results: &CacheResults) -> String {
    let settings = &results.settings;
    let (entries, few, many) = (settings.entries, settings.few, settings.many);
    match figure {
        Figure::Open => "Open and first get of 1 KB, in a fresh process".to_owned(),
        Figure::Get => format!("Warm gets of 1 KB, of {entries} entries"),
        Figure::Tables => {
            format!("Open, and one look-up in each of {entries} tables of 84 KB, warm")
        }
        Figure::Again => format!(
            "One look-up in each of {entries} tables of 84 KB, in a process that has looked before"
        ),
        Figure::Cold => {
            let disk = settings.disk.as_ref();
            let limit = disk.map_or(String::new(), |disk| format!(" at {disk}"));
            format!("Open, and one look-up in each of {entries} tables of 84 KB, cold{limit}")
        }
        Figure::Update => "Updates of 400 bytes, relaxed".to_owned(),
        Figure::DurableUpdate => {
            "Updates of 400 bytes, each on the disk when it returns".to_owned()
        }
        Figure::One => "Gets of 1 KB in a second by one process".to_owned(),
        Figure::Eight => "Gets of 1 KB in a second by eight processes at once".to_owned(),
        Figure::OpenFew => format!("Open and first get of 64 bytes, of {few} entries"),
        Figure::OpenMany => format!("Open and first get of 64 bytes, of {many} entries"),
        Figure::GetFew => format!("Gets of 64 bytes at random, of {few} entries in memory"),
        Figure::GetMany => format!("Gets of 64 bytes at random, of {many} entries in memory"),
    }
}

fn rows(results: &CacheResults, figure: Figure) -> Vec<(String, Vec<f64>)> {
    let (name, _, unit) = figure.measure();
    let stores = results.stores(figure).into_iter();
    let rows = stores.map(|store| {
        let values = results.values(figure, store, name);
        (
            store.to_owned(),
            values.into_iter().map(|value| value / unit).collect(),
        )
    });
    rows.filter(|(_, values): &(String, Vec<f64>)| !values.is_empty())
        .collect()
}

fn cells(
    results: &CacheResults,
    figure: Figure,
    store: &str,
    values: &[f64],
    rng: &mut fastrand::Rng,
) -> [String; 5] {
    let (name, unit, by) = figure.measure();
    let spread = Spread::of(values).map_or(String::new(), |Spread { median, min, max }| {
        format!(
            "{} ({}-{}) {unit}",
            number(median),
            number(min),
            number(max)
        )
    });
    let own: Vec<f64> = results
        .values(figure, "brisk", name)
        .iter()
        .map(|value| value / by)
        .collect();
    let ratio = Ratio::of_medians(values, &own, rng).map_or("-".to_owned(), interval);
    let median =
        |name| Spread::of(&results.values(figure, store, name)).map(|spread| spread.median);
    let processor = median("user_ns")
        .zip(median("system_ns"))
        .map_or("-".to_owned(), |(user, system)| {
            format!("{}+{} us", number(user / 1e3), number(system / 1e3))
        });
    let counts = results.counts();
    let counted = counts.get(&(figure, store)).map_or("-".to_owned(), |row| {
        format!(
            "{}, {}",
            counted(row.allocations),
            counted(row.system_calls)
        )
    });
    [store.to_owned(), spread, ratio, processor, counted]
}

fn figures(results: &CacheResults) -> impl Iterator<Item = Figure> {
    Figure::ALL
        .into_iter()
        .filter(|figure| !rows(results, *figure).is_empty())
}

fn table(results: &CacheResults, figure: Figure, rng: &mut fastrand::Rng) -> Table<5> {
    let rows = rows(results, figure).into_iter();
    let rows = rows.map(|(store, values)| cells(results, figure, &store, &values, rng));
    Table {
        title: title(figure, results),
        head: HEAD,
        rows: rows.collect(),
    }
}

fn written(results: &CacheResults) -> Table<5> {
    let stores = results.rows.iter().filter_map(|row| {
        let is_update = matches!(row.figure, Figure::Update | Figure::DurableUpdate);
        is_update.then_some(&*row.store)
    });
    let mut names: Vec<&str> = Vec::new();
    for store in stores {
        if !names.contains(&store) {
            names.push(store);
        }
    }
    let rows = names.into_iter().map(|store| {
        let cell = |figure, name| bytes(&results.values(figure, store, name));
        [
            store.to_owned(),
            cell(Figure::Update, "wchar"),
            cell(Figure::Update, "device"),
            cell(Figure::DurableUpdate, "wchar"),
            cell(Figure::DurableUpdate, "device"),
        ]
    });
    Table {
        title: "Bytes that an update of 400 bytes writes".to_owned(),
        head: WRITTEN,
        rows: rows.collect(),
    }
}

fn stored(results: &CacheResults) -> Table<4> {
    let rows = results.stored.iter().map(|row| {
        [
            format!("{} of {}", row.what, row.store),
            format!("{:.1} MB", row.bytes as f64 / 1e6),
            number(row.bytes as f64 / row.values.max(1) as f64),
            format!("{:.2} s", row.seconds),
        ]
    });
    Table {
        title: "What the stores take on the disk".to_owned(),
        head: STORED,
        rows: rows.collect(),
    }
}

/// What a reader must know about all tables.
fn conditions(results: &CacheResults) -> String {
    let mut made = BTreeMap::new();
    for run in &results.runs {
        let Some(row) = results.rows.get(run.row) else {
            continue;
        };
        let most: &mut u32 = made.entry(row.figure).or_default();
        *most = (*most).max(run.repetition.saturating_add(1));
    }
    let least = made.values().copied().min().unwrap_or(0);
    let more = made.iter().filter(|&(_, &runs)| runs > least);
    let more: Vec<_> = more
        .map(|(figure, runs)| format!("{runs} of {}", figure.name()))
        .collect();
    let more = match more.is_empty() {
        true => String::new(),
        false => format!(" ({})", more.join(", ")),
    };
    let mut text = format!(
        "{} runs of each{more}, in turns, on {}. Every run has a process of its own and checks what it reads.{}{} Allocations are \
         those of Rust: C libraries have others. Allocations, system calls and processor time are those of one operation; \
         the kernel counts processor time in ticks of some ms for short runs. Bytes are counted up to the last update, and \
         on the device up to a sync behind it: what closing a store writes is not among them.",
        least,
        results.machine.filesystem,
        too_few(least as usize),
        reclaim::sentence(&results.stopped)
    );
    if results.rows.iter().any(|row| row.figure == Figure::Cold) {
        text += &results.settings.coldness.sentences();
    }
    if results.lost > 0 {
        text += &format!(
            " {} runs were lost, because pages of a warm store left memory each time.",
            results.lost
        );
    }
    text
}

fn remarks(results: &CacheResults) -> Vec<String> {
    let missing = results.missing.iter();
    missing
        .map(|left| format!("{}: {}.", left.what, left.reason))
        .collect()
}

/// Tables for people.
pub fn of(results: &CacheResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = conditions(results) + "\n";
    for figure in figures(results) {
        text += &table(results, figure, rng).plain();
    }
    text += &written(results).plain();
    text += &stored(results).plain();
    text += &reached(results).plain();
    for line in remarks(results) {
        text += &format!("\n{}", brisk_terminal::names::printable(&line));
    }
    text + "\n"
}

/// Tables in Markdown, the goals first. The best median is in bold.
pub fn markdown(results: &CacheResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = reached(results).markdown();
    for figure in figures(results) {
        let medians = rows(results, figure).into_iter().map(|(_, values)| {
            let median = Spread::of(&values).map_or(f64::INFINITY, |spread| spread.median);
            match figure {
                Figure::One | Figure::Eight => -median,
                _ => median,
            }
        });
        let mut table = table(results, figure, rng);
        table.embolden_least(medians);
        text += &table.markdown();
    }
    text += &written(results).markdown();
    text += &stored(results).markdown();
    text += &format!("{}\n", escaped_text(&conditions(results)));
    for line in remarks(results) {
        text += &format!("\n* {}", escaped_text(&line));
    }
    text + "\n"
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &CacheResults) {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    page.anchor(2, "cache", "Caches on disk");
    page.note(&conditions(results));
    reached(results).draw(page);
    for figure in figures(results) {
        let title = title(figure, results);
        let (_, unit, _) = figure.measure();
        let lines = rows(results, figure)
            .into_iter()
            .map(|(store, values)| chart::Row {
                figure: Spread::of(&values).map_or(String::new(), |spread| {
                    format!("{} {unit}", number(spread.median))
                }),
                whose: match &*store {
                    "brisk" | "brisk-copied" => Whose::Brisk,
                    "files" | "memory" => Whose::Own,
                    _ => Whose::Rival,
                },
                name: store,
                values,
            });
        let lines: Vec<_> = lines.collect();
        let caption = match chart::is_log(&lines, chart::Lines::default()) {
            true => "The axis is logarithmic: equal steps are equal ratios.",
            false => "Each dot is one run.",
        };
        page.heading(3, &title);
        page.figure(
            &chart::box_plots(&title, &lines, chart::Lines::default(), unit),
            caption,
        );
        page.table(HEAD, &table(results, figure, rng).rows, false);
    }
    written(results).draw(page);
    stored(results).draw(page);
    page.list(&remarks(results));
}

impl CacheResults {
    /// Tables of all results.
    pub fn text(&self) -> String {
        of(self)
    }
}
