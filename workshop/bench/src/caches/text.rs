//! Results as tables.

use brisk_lab::{Ratio, Spread, interval, stopped_sentence};

use super::results::{CacheSettings, Caches, Figure, More, Setting, Stored};
use crate::results::{Kind, Results};
use crate::table::{
    Group, Shown, Table, at_most, best_of, bytes, counted, goals, median_of, number, verdict,
};

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
fn reached(results: &Results<Caches>, rng: &mut fastrand::Rng) -> Table<4> {
    let mut rows = Vec::new();
    for goal in RATIOS {
        let values = |figure: Figure, store| results.of(figure, store, figure.measure().0);
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
        let values = results.of(Figure::Update, "brisk", name);
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
        let one = results.of(Figure::One, store, "per_second");
        let eight = results.of(Figure::Eight, store, "per_second");
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
    goals(rows)
}

fn title(figure: Figure, results: &Results<Caches>) -> String {
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

fn group(results: &Results<Caches>, figure: Figure, rng: &mut fastrand::Rng) -> Group {
    let (name, unit, by) = figure.measure();
    let values = |store: &str| -> Vec<f64> {
        let values = results.of(figure, store, name).into_iter();
        values.map(|value| value / by).collect()
    };
    let stores = results.stores(figure).into_iter();
    let rows = stores.map(|store| (store.to_owned(), values(store)));
    let rows: Vec<_> = rows.filter(|(_, values)| !values.is_empty()).collect();
    let own = values("brisk");
    let counts = results.counts();
    let cells = rows.iter().map(|(store, values)| {
        let ratio = Ratio::of_medians(values, &own, rng).map_or("-".to_owned(), interval);
        let median =
            |name| Spread::of(&results.of(figure, store, name)).map(|spread| spread.median);
        let processor = median("user_ns")
            .zip(median("system_ns"))
            .map_or("-".to_owned(), |(user, system)| {
                format!("{}+{} us", number(user / 1e3), number(system / 1e3))
            });
        let counted = counts
            .get(&(figure, &**store))
            .map_or("-".to_owned(), |row| {
                format!(
                    "{}, {}",
                    counted(row.allocations),
                    counted(row.system_calls)
                )
            });
        let spread = median_of(values, unit);
        [store.clone(), spread, ratio, processor, counted]
    });
    let mut table = Table::new(title(figure, results), HEAD, cells.collect());
    table.best = best_of(&rows, matches!(figure, Figure::One | Figure::Eight));
    Group {
        table: Box::new(table),
        unit,
        rows,
    }
}

fn written(results: &Results<Caches>) -> Table<5> {
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
        let cell = |figure, name| bytes(&results.of(figure, store, name));
        [
            store.to_owned(),
            cell(Figure::Update, "wchar"),
            cell(Figure::Update, "device"),
            cell(Figure::DurableUpdate, "wchar"),
            cell(Figure::DurableUpdate, "device"),
        ]
    });
    let title = "Bytes that an update of 400 bytes writes".to_owned();
    Table::new(title, WRITTEN, rows.collect())
}

fn stored(results: &Results<Caches>) -> Table<4> {
    let rows = results.stored.iter().map(|row| {
        [
            format!("{} of {}", row.what, row.store),
            format!("{:.1} MB", row.bytes as f64 / 1e6),
            number(row.bytes as f64 / row.values.max(1) as f64),
            format!("{:.2} s", row.seconds),
        ]
    });
    let title = "What the stores take on the disk".to_owned();
    Table::new(title, STORED, rows.collect())
}

/// What a reader must know about all tables.
fn conditions(results: &Results<Caches>) -> String {
    let (made, few) = results.runs_of_each();
    let mut text = format!(
        "{made}, in turns, on {}. Every run has a process of its own and checks what it reads.{}{} Allocations are \
         those of Rust: C libraries have others. Allocations, system calls and processor time are those of one operation; \
         the kernel counts processor time in ticks of some ms for short runs. Bytes are counted up to the last update, and \
         on the device up to a sync behind it: what closing a store writes is not among them.",
        results.machine.filesystem,
        few,
        stopped_sentence(&results.stopped)
    );
    if results.rows.iter().any(|row| row.figure == Figure::Cold) {
        text += &results.settings.coldness.sentences();
    }
    text + &results.lost_sentence()
}

impl Kind for Caches {
    const NAME: &'static str = "cache";
    const TITLE: &'static str = "Caches on disk";
    const BRISK: &'static [&'static str] = &["brisk", "brisk-copied"];
    const PLAIN: &'static [&'static str] = &["files", "memory"];

    type Settings = CacheSettings;
    type Setting = Setting;
    type Stored = Stored;
    type More = More;

    fn figure(setting: &Setting) -> String {
        setting.figure.name()
    }

    fn seed(settings: &CacheSettings) -> u64 {
        settings.seed
    }

    fn conditions(results: &Results<Self>) -> String {
        conditions(results)
    }

    fn goals(results: &Results<Self>, rng: &mut fastrand::Rng) -> Table<4> {
        reached(results, rng)
    }

    fn groups(results: &Results<Self>, rng: &mut fastrand::Rng) -> Vec<Group> {
        let figures = Figure::ALL.into_iter();
        figures.map(|figure| group(results, figure, rng)).collect()
    }

    fn others(results: &Results<Self>) -> Vec<Box<dyn Shown>> {
        vec![Box::new(written(results)), Box::new(stored(results))]
    }
}
