//! Results as tables, and as pictures.

use super::super::answers::too_few;
use super::super::load::answers::{digits_of, interval};
use super::super::reclaim;
use super::super::statistics::{Ratio, Spread};
use super::super::table::columns;
use super::results::{CacheResults, Figure};
use brisk::page::Page;
use brisk::page::chart::{self, Whose};

const HEAD: [&str; 5] = [
    "",
    "median (from-to)",
    "/brisk (95 %)",
    "processor user+system",
    "allocations, calls",
];

/// A ratio that brisk is to reach.
struct Goal {
    what: &'static str,
    ours: (Figure, &'static str, &'static str),
    theirs: (Figure, &'static str, &'static str),
    goal: f64,
    at_most: bool,
}

/// Bytes that are written are compared with a number, and not with a store.
const BYTES: [(&str, Figure, &str, f64); 2] = [
    (
        "bytes that an update of 400 gives to write calls",
        Figure::Update,
        "wchar",
        1024.0,
    ),
    (
        "bytes that the device writes for it",
        Figure::Update,
        "device",
        8192.0,
    ),
];

fn goals() -> Vec<Goal> {
    let goal = |what, figure, theirs, goal| {
        let (name, _, _) = Figure::measure(figure);
        Goal {
            what,
            ours: (figure, "brisk", name),
            theirs: (figure, theirs, name),
            goal,
            at_most: true,
        }
    };
    let mut goals = vec![
        goal("warm get of 1 KB, to LMDB", Figure::Get, "lmdb", 0.5),
        goal(
            "open and first get, to LMDB (heed)",
            Figure::Open,
            "lmdb",
            0.6,
        ),
        goal(
            "open and first get, to one file",
            Figure::Open,
            "files",
            2.0,
        ),
        goal(
            "update, relaxed, to heed without sync",
            Figure::Update,
            "lmdb",
            1.0,
        ),
        goal(
            "update, durable, to heed by default",
            Figure::DurableUpdate,
            "lmdb",
            1.0,
        ),
        goal(
            "one look-up in each table, warm, to files and rkyv",
            Figure::Tables,
            "files-rkyv",
            0.05,
        ),
        goal(
            "the same, cold on the slow disk",
            Figure::Cold,
            "files-rkyv",
            0.7,
        ),
        goal("get of many, to LMDB", Figure::GetMany, "lmdb", 0.7),
    ];
    goals.push(Goal {
        what: "open of many, to open of few",
        ours: (Figure::OpenMany, "brisk", "ns"),
        theirs: (Figure::Open, "brisk", "ns"),
        goal: 2.0,
        at_most: true,
    });
    goals
}

/// The goals, and what was reached.
fn reached(results: &CacheResults) -> Vec<[String; 4]> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let verdict = |value: f64, goal: f64, at_most: bool| match (value <= goal) == at_most {
        true => "yes",
        false => "no",
    };
    let mut rows = Vec::new();
    for goal in goals() {
        let values = |(figure, store, name)| results.values(figure, store, name);
        let ratio = Ratio::of_medians(&values(goal.ours), &values(goal.theirs), rng);
        if let Some(ratio) = ratio {
            rows.push([
                goal.what.to_owned(),
                format!("<= {}", goal.goal),
                interval(ratio),
                verdict(ratio.value, goal.goal, goal.at_most).to_owned(),
            ]);
        }
    }
    for (what, figure, name, goal) in BYTES {
        if let Some(Spread { median, min, max }) =
            Spread::of(&results.values(figure, "brisk", name))
        {
            rows.push([
                what.to_owned(),
                format!("<= {goal}"),
                format!("{median:.0} ({min:.0}-{max:.0})"),
                verdict(median, goal, true).to_owned(),
            ]);
        }
    }
    let scaling = |store| {
        let one = results.values(Figure::One, store, "per_second");
        let eight = results.values(Figure::Eight, store, "per_second");
        Ratio::of_medians(&eight, &one, &mut fastrand::Rng::with_seed(1))
    };
    if let (Some(ours), Some(own)) = (scaling("brisk"), scaling("memory")) {
        let (low, high) = (ours.low / own.high, ours.high / own.low);
        let value = ours.value / own.value;
        rows.push([
            format!(
                "scaling of 8 processes ({:.2}), to that of memory of their own ({:.2})",
                ours.value, own.value
            ),
            ">= 0.95".to_owned(),
            interval(Ratio { value, low, high }),
            verdict(value, 0.95, false).to_owned(),
        ]);
    }
    rows
}

fn title(figure: Figure, results: &CacheResults) -> String {
    let settings = &results.settings;
    let (entries, many) = (settings.entries, settings.many);
    match figure {
        Figure::Open => "Open and first get, in a fresh process".to_owned(),
        Figure::Get => format!("Warm gets of 1 KB, of {entries} entries"),
        Figure::Tables => {
            format!("Open, and one look-up in each of {entries} tables of 84 KB, warm")
        }
        Figure::Cold => format!(
            "The same, cold{}",
            settings
                .disk
                .as_ref()
                .map_or(String::new(), |disk| format!(" at {disk}"))
        ),
        Figure::Update => "Updates of 400 bytes, relaxed".to_owned(),
        Figure::DurableUpdate => {
            "Updates of 400 bytes, each on the disk when it returns".to_owned()
        }
        Figure::One => "Gets in a second by one process".to_owned(),
        Figure::Eight => "Gets in a second by eight processes at once".to_owned(),
        Figure::OpenMany => format!("Open and first get with {many} entries"),
        Figure::GetMany => format!("Gets at random, of {many} entries in memory"),
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

fn number(value: f64) -> String {
    let digits = digits_of(value);
    format!("{value:.digits$}")
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
        let shown =
            |count: Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.1}"));
        format!("{}, {}", shown(row.allocations), shown(row.system_calls))
    });
    [store.to_owned(), spread, ratio, processor, counted]
}

fn figures(results: &CacheResults) -> impl Iterator<Item = Figure> {
    Figure::ALL
        .into_iter()
        .filter(|figure| !rows(results, *figure).is_empty())
}

fn stored(results: &CacheResults) -> Vec<[String; 4]> {
    let rows = results.stored.iter().filter(|row| row.store != "memory");
    let rows = rows.map(|row| {
        [
            format!("{} of {}", row.what, row.store),
            format!("{:.1} MB", row.bytes as f64 / 1e6),
            number(row.bytes as f64 / row.values.max(1) as f64),
            format!("{:.2} s", row.seconds),
        ]
    });
    rows.collect()
}

const STORED: [&str; 4] = ["", "on the disk", "/bytes of values", "to make"];
const GOALS: [&str; 4] = ["goal", "", "reached (95 %)", ""];

fn conditions(results: &CacheResults) -> String {
    let last = results.runs.iter().map(|run| run.repetition).max();
    let made = last.map_or(0, |last| last.saturating_add(1));
    format!(
        "{} runs of each, in turns, on {}. Every run has a process of its own and checks what it reads.{}{} Allocations are \
         those of Rust: C libraries have others. Processor time is for each operation; the kernel counts it in ticks of \
         some ms for short runs.",
        made,
        results.machine.filesystem,
        too_few(made as usize),
        reclaim::sentence(&results.stopped)
    )
}

fn remarks(results: &CacheResults) -> Vec<String> {
    let missing = results.missing.iter();
    missing
        .map(|left| format!("{}: {}.", left.what, left.reason))
        .collect()
}

/// Tables.
pub fn of(results: &CacheResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = conditions(results) + "\n";
    for figure in figures(results) {
        let mut lines = vec![HEAD.map(str::to_owned)];
        for (store, values) in rows(results, figure) {
            lines.push(cells(results, figure, &store, &values, rng));
        }
        text += &format!("\n{}\n{}", title(figure, results), columns(&lines));
    }
    for (head, rows) in [(STORED, stored(results)), (GOALS, reached(results))] {
        if !rows.is_empty() {
            let mut lines = vec![head.map(str::to_owned)];
            lines.extend(rows);
            text += &format!("\n{}", columns(&lines));
        }
    }
    for line in remarks(results) {
        text += &format!("\n{}", brisk::printable(&line));
    }
    text + "\n"
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &CacheResults) {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    page.anchor(2, "cache", "Caches on disk");
    page.note(&conditions(results));
    if !reached(results).is_empty() {
        page.heading(3, "What brisk is to reach");
        page.table(GOALS, &reached(results), false);
    }
    for figure in figures(results) {
        let title = title(figure, results);
        let (_, unit, _) = figure.measure();
        let rows = rows(results, figure);
        let lines = rows.iter().map(|(store, values)| chart::Row {
            name: store.clone(),
            figure: Spread::of(values).map_or(String::new(), |spread| {
                format!("{} {unit}", number(spread.median))
            }),
            whose: match &**store {
                "brisk" | "brisk-copied" => Whose::Brisk,
                "files" | "memory" => Whose::Own,
                _ => Whose::Rival,
            },
            values: values.clone(),
        });
        let lines: Vec<_> = lines.collect();
        let caption = match chart::is_log(&lines) {
            true => "The axis is logarithmic: equal steps are equal ratios.",
            false => "Each dot is one run.",
        };
        page.heading(3, &title);
        page.figure(&chart::box_plots(&title, &lines, None, unit), caption);
        let table: Vec<_> = rows
            .iter()
            .map(|(store, values)| cells(results, figure, store, values, rng))
            .collect();
        page.table(HEAD, &table, false);
    }
    page.heading(3, "What the stores take on the disk");
    page.table(STORED, &stored(results), false);
    page.list(&remarks(results));
}

impl CacheResults {
    /// Tables of all results.
    pub fn text(&self) -> String {
        of(self)
    }
}
