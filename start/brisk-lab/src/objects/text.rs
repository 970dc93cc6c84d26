//! Results as tables, in plain text and in Markdown, and as pictures.

use super::super::answers::too_few;
use super::super::load::LeftOut;
use super::super::load::answers::interval;
use super::super::reclaim;
use super::super::statistics::{Ratio, Spread};
use super::super::table::escaped_text;
use super::super::titled_table::{Table, at_most, number, verdict};
use super::results::{Figure, ObjectsResults};
use super::worker::ONE_BY_ONE;
use brisk::page::chart::{self, Whose};
use brisk_terminal::page::Page;

const HEAD: [&str; 6] = [
    "",
    "median (from-to)",
    "/sqlite (95 %)",
    "/lmdb (95 %)",
    "processor",
    "again",
];
const STORED: [&str; 2] = ["", "bytes of each record"];
const GOALS: [&str; 4] = ["", "goal", "reached (95 %)", ""];

const OURS: &str = "brisk";
/// The same by its asynchronous calls.
const ASYNC: &str = "brisk-async";
const SQLITE: &str = "sqlite";
/// LMDB by heed, with records that are copied bytes, and indexes by hand.
const LMDB: &str = "lmdb";
/// A file of records of equal length, each read by one `pread`.
const FLAT: &str = "pread";

/// A goal: at most this part of the time of another store.
struct Goal {
    figure: Figure,
    ours: &'static str,
    to: (Figure, &'static str),
    goal: f64,
}

impl Goal {
    const fn of(figure: Figure, peer: &'static str, goal: f64) -> Self {
        Self {
            figure,
            ours: OURS,
            to: (figure, peer),
            goal,
        }
    }

    const fn asynchronous(figure: Figure, peer: &'static str, goal: f64) -> Self {
        Self {
            ours: ASYNC,
            ..Self::of(figure, peer, goal)
        }
    }

    fn what(&self) -> String {
        let how = match self.ours {
            ASYNC => ", asynchronously",
            _ => "",
        };
        let (figure, peer) = self.to;
        let one_by_one = match figure == self.figure {
            true => "",
            false => " one by one",
        };
        format!("{}{how}, to {peer}{one_by_one}", title(self.figure))
    }
}

const GOALS_OF: [Goal; 13] = [
    Goal::of(Figure::Get, LMDB, 1.2),
    Goal::of(Figure::ScanKeys, SQLITE, 0.3),
    Goal::of(Figure::ScanRecords, SQLITE, 0.6),
    Goal::of(Figure::InsertFull, SQLITE, 1.0),
    Goal::of(Figure::InsertNormal, SQLITE, 1.0),
    Goal::of(Figure::OneByOne, FLAT, 0.5),
    Goal::of(Figure::OneByOneNear, FLAT, 0.5),
    Goal::asynchronous(Figure::OneByOne, FLAT, 0.75),
    Goal::asynchronous(Figure::OneByOneNear, FLAT, 0.75),
    Goal::asynchronous(Figure::OneByOne, OURS, 1.5),
    Goal::asynchronous(Figure::OneByOneNear, OURS, 1.5),
    Goal::of(Figure::Cold, FLAT, 1.1),
    Goal {
        to: (Figure::Cold, FLAT),
        ..Goal::of(Figure::ColdMany, FLAT, 0.5)
    },
];

/// As many milliseconds as the records of one figure may take, warm and one by one.
const MOST_MILLISECONDS: f64 = 2.0;

/// The rows of that goal.
fn reached_in_time(results: &ObjectsResults) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    let figures = [Figure::OneByOne, Figure::OneByOneNear];
    for (figure, ours) in figures
        .into_iter()
        .flat_map(|figure| [(figure, OURS), (figure, ASYNC)])
    {
        let mut row = |name: &str, what: String| {
            let milliseconds = results
                .values(figure, ours, name)
                .iter()
                .map(|ns| ns * ONE_BY_ONE as f64 / 1e6)
                .collect::<Vec<_>>();
            if let Some(Spread { median, min, max }) = Spread::of(&milliseconds) {
                rows.push([
                    what,
                    format!("<= {MOST_MILLISECONDS} ms"),
                    format!("{} ({}-{}) ms", number(median), number(min), number(max)),
                    verdict(median <= MOST_MILLISECONDS),
                ]);
            }
        };
        let how = match ours {
            ASYNC => ", asynchronously",
            _ => "",
        };
        row("ns", format!("{}{how}, all of them", title(figure)));
        row("again_ns", "the same, again".to_owned());
    }
    rows
}

fn reached(results: &ObjectsResults) -> Table<4> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut rows = Vec::new();
    for goal in GOALS_OF {
        let (figure, peer) = goal.to;
        let mut row = |name: &str, what: String| {
            let own = results.values(goal.figure, goal.ours, name);
            let peers = results.values(figure, peer, name);
            if let Some(ratio) = Ratio::of_medians(&own, &peers, rng) {
                rows.push(at_most(what, ratio, goal.goal));
            }
        };
        row("ns", goal.what());
        if !figure.is_cold() {
            row("again_ns", format!("the same, again, to {peer}"));
        }
    }
    rows.extend(reached_in_time(results));
    Table {
        title: "What brisk is to reach".to_owned(),
        head: GOALS,
        rows,
    }
}

fn title(figure: Figure) -> &'static str {
    match figure {
        Figure::Get => "Get by key, at random, in one transaction",
        Figure::OneByOne => "Get 5,000 records by key, at random, one by one",
        Figure::OneByOneNear => "Get 5,000 neighbouring records by key, one by one",
        Figure::Cold => "Get 5,000 records by key, at random, one by one, cold",
        Figure::ColdMany => "Get 5,000 records by key, at random, by one call, cold",
        Figure::ScanKeys => "Scan an index of 10,000 entries, without the records",
        Figure::ScanRecords => "Scan an index of 10,000 entries, with the records",
        Figure::InsertFull => {
            "Insert 20,000 records with two indexes into an empty store, 1,000 for each commit, which waits for the disk"
        }
        Figure::InsertNormal => {
            "Insert 200,000 records with two indexes into an empty store, 1,000 for each commit, of which a loss of power may undo the last"
        }
    }
}

/// Nanoseconds of each store. Stores without a run are left out.
fn times(results: &ObjectsResults, figure: Figure, stores: &[&str]) -> Vec<(String, Vec<f64>)> {
    let rows = stores
        .iter()
        .map(|&store| (store.to_owned(), results.values(figure, store, "ns")));
    rows.filter(|(_, values)| !values.is_empty()).collect()
}

fn table(
    results: &ObjectsResults,
    figure: Figure,
    stores: &[&str],
    rng: &mut fastrand::Rng,
) -> Table<6> {
    let rows = times(results, figure, stores)
        .into_iter()
        .map(|(store, values)| {
            let spread =
                Spread::of(&values).map_or(String::new(), |Spread { median, min, max }| {
                    format!("{} ({}-{}) ns", number(median), number(min), number(max))
                });
            let mut to = |peer| {
                let peer = results.values(figure, peer, "ns");
                Ratio::of_medians(&values, &peer, rng).map_or("-".to_owned(), interval)
            };
            let (sqlite, lmdb) = (to(SQLITE), to(LMDB));
            let runs = |name| results.values(figure, &store, name);
            let both = runs("user_ns").into_iter().zip(runs("system_ns"));
            let both: Vec<f64> = both.map(|(user, system)| user + system).collect();
            let processor = Spread::of(&both).map_or("-".to_owned(), |spread| {
                format!("{} ns", number(spread.median))
            });
            let again = Spread::of(&runs("again_ns")).map_or("-".to_owned(), |spread| {
                format!("{} ns", number(spread.median))
            });
            [store, spread, sqlite, lmdb, processor, again]
        });
    Table {
        title: format!("{}, for each record", title(figure)),
        head: HEAD,
        rows: rows.collect(),
    }
}

fn stored(results: &ObjectsResults) -> Table<2> {
    let records = results.settings.records.max(1) as f64;
    let rows = results.stored.iter();
    let rows = rows.map(|row| [row.store.clone(), number(row.bytes as f64 / records)]);
    Table {
        title: "On the disk, with two indexes".to_owned(),
        head: STORED,
        rows: rows.collect(),
    }
}

/// What a reader must know about all tables.
fn conditions(results: &ObjectsResults) -> String {
    let last = results.runs.iter().map(|run| run.repetition).max();
    let made = last.map_or(0, |last| last.saturating_add(1));
    let mut text = format!(
        "{made} runs of each, in turns, on {}. Each run is a fresh process, which read the same records as the others, of {} \
         records of about 100 bytes, and whose sums were right.{}{} The store is open when the clock starts, and the process has not read anything of it. In \
         the last column, and where it says so, it reads the same again. Before and after \
         a run that reads and is not cold, all files of the store are in memory.",
        results.machine.filesystem,
        results.settings.records,
        too_few(made as usize),
        reclaim::sentence(&results.stopped),
    );
    if let Some(kib) = results.settings.read_ahead_kib {
        text += &format!(" The kernel reads ahead {kib} KiB on this disk.");
    }
    if results.rows.iter().any(|row| row.figure.is_cold()) {
        text += &results.settings.coldness.sentences();
    }
    for LeftOut { what, reason } in &results.missing {
        text += &format!(" Not measured: {what}: {reason}.");
    }
    if results.lost > 0 {
        text += &format!(
            " {} runs were lost, because pages of a warm store left memory each time.",
            results.lost
        );
    }
    text
}

/// Tables for people.
pub fn of(results: &ObjectsResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = conditions(results) + "\n";
    for (figure, stores) in results.groups() {
        text += &table(results, figure, &stores, rng).plain();
    }
    text += &stored(results).plain();
    text += &reached(results).plain();
    text + "\n"
}

/// Tables in Markdown, the goals first. The best median is in bold.
pub fn markdown(results: &ObjectsResults) -> String {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let mut text = reached(results).markdown();
    for (figure, stores) in results.groups() {
        let medians = times(results, figure, &stores).into_iter();
        let medians = medians
            .map(|(_, values)| Spread::of(&values).map_or(f64::INFINITY, |spread| spread.median));
        let mut table = table(results, figure, &stores, rng);
        table.embolden_least(medians);
        text += &table.markdown();
    }
    text += &stored(results).markdown();
    text += &format!("{}\n", escaped_text(&conditions(results)));
    text
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &ObjectsResults) {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    page.anchor(2, "objects", "Typed records");
    page.note(&conditions(results));
    reached(results).draw(page);
    for (figure, stores) in results.groups() {
        let title = title(figure);
        let lines = times(results, figure, &stores)
            .into_iter()
            .map(|(store, values)| chart::Row {
                figure: Spread::of(&values).map_or(String::new(), |spread| {
                    format!("{} ns", number(spread.median))
                }),
                whose: match &*store {
                    OURS | ASYNC => Whose::Brisk,
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
        page.heading(3, title);
        page.figure(
            &chart::box_plots(title, &lines, chart::Lines::default(), "ns"),
            caption,
        );
        let table = table(results, figure, &stores, rng);
        page.table(HEAD, &table.rows, false);
    }
    stored(results).draw(page);
}

impl ObjectsResults {
    /// Tables of all results.
    pub fn text(&self) -> String {
        of(self)
    }
}
