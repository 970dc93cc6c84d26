//! Results as tables.

use brisk_lab::{Ratio, Spread, interval, stopped_sentence};

use super::results::{Figure, Objects, ObjectsSettings, Setting, Stored, Version};
use super::worker::ONE_BY_ONE;
use crate::results::{Kind, Results};
use crate::table::{Group, Shown, Table, at_most, best_of, goals, median_of, number, verdict};

const HEAD: [&str; 6] = [
    "",
    "median (from-to)",
    "/sqlite (95 %)",
    "/lmdb (95 %)",
    "processor",
    "again",
];
const STORED: [&str; 2] = ["", "bytes of each record"];

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
fn reached_in_time(results: &Results<Objects>) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    let figures = [Figure::OneByOne, Figure::OneByOneNear];
    for (figure, ours) in figures
        .into_iter()
        .flat_map(|figure| [(figure, OURS), (figure, ASYNC)])
    {
        let mut row = |name: &str, what: String| {
            let milliseconds = results
                .of(figure, ours, name)
                .iter()
                .map(|ns| ns * ONE_BY_ONE as f64 / 1e6)
                .collect::<Vec<_>>();
            if let Some(Spread { median, .. }) = Spread::of(&milliseconds) {
                rows.push([
                    what,
                    format!("<= {MOST_MILLISECONDS} ms"),
                    median_of(&milliseconds, "ms"),
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

fn reached(results: &Results<Objects>, rng: &mut fastrand::Rng) -> Table<4> {
    let mut rows = Vec::new();
    for goal in GOALS_OF {
        let (figure, peer) = goal.to;
        let mut row = |name: &str, what: String| {
            let own = results.of(goal.figure, goal.ours, name);
            let peers = results.of(figure, peer, name);
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
    goals(rows)
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

fn group(
    results: &Results<Objects>,
    figure: Figure,
    stores: &[&str],
    rng: &mut fastrand::Rng,
) -> Group {
    let rows = stores
        .iter()
        .map(|&store| (store.to_owned(), results.of(figure, store, "ns")));
    // Stores without a run cannot do this.
    let rows: Vec<_> = rows.filter(|(_, values)| !values.is_empty()).collect();
    let cells = rows.iter().map(|(store, values)| {
        let mut to = |peer| {
            let peer = results.of(figure, peer, "ns");
            Ratio::of_medians(values, &peer, rng).map_or("-".to_owned(), interval)
        };
        let (sqlite, lmdb) = (to(SQLITE), to(LMDB));
        let runs = |name| results.of(figure, store, name);
        let both = runs("user_ns").into_iter().zip(runs("system_ns"));
        let both: Vec<f64> = both.map(|(user, system)| user + system).collect();
        let median = |values: &[f64]| {
            Spread::of(values).map_or("-".to_owned(), |spread| {
                format!("{} ns", number(spread.median))
            })
        };
        let (processor, again) = (median(&both), median(&runs("again_ns")));
        let spread = median_of(values, "ns");
        [store.clone(), spread, sqlite, lmdb, processor, again]
    });
    let title = format!("{}, for each record", title(figure));
    let mut table = Table::new(title, HEAD, cells.collect());
    table.best = best_of(&rows, false);
    Group {
        table: Box::new(table),
        unit: "ns",
        rows,
    }
}

fn stored(results: &Results<Objects>) -> Table<2> {
    let records = results.settings.records.max(1) as f64;
    let rows = results.stored.iter();
    let rows = rows.map(|row| [row.store.clone(), number(row.bytes as f64 / records)]);
    let title = "On the disk, with two indexes".to_owned();
    Table::new(title, STORED, rows.collect())
}

/// What a reader must know about all tables.
fn conditions(results: &Results<Objects>) -> String {
    let (made, few) = results.runs_of_each();
    let mut text = format!(
        "{made}, in turns, on {}. Each run is a fresh process, which read the same records as the others, of {} \
         records of about 100 bytes, and whose sums were right.{}{} The store is open when the clock starts, and the process has not read anything of it. In \
         the last column, and where it says so, it reads the same again. Before and after \
         a run that reads and is not cold, all files of the store are in memory.",
        results.machine.filesystem,
        results.settings.records,
        few,
        stopped_sentence(&results.stopped),
    );
    if let Some(kib) = results.settings.read_ahead_kib {
        text += &format!(" The kernel reads ahead {kib} KiB on this disk.");
    }
    if results.rows.iter().any(|row| row.figure.is_cold()) {
        text += &results.settings.coldness.sentences();
    }
    text + &results.lost_sentence()
}

impl Kind for Objects {
    const NAME: &'static str = "objects";
    const TITLE: &'static str = "Typed records";
    const BRISK: &'static [&'static str] = &[OURS, ASYNC];
    const PLAIN: &'static [&'static str] = &[];

    type Settings = ObjectsSettings;
    type Setting = Setting;
    type Stored = Stored;
    type More = Version;

    fn figure(setting: &Setting) -> String {
        setting.figure.name()
    }

    fn seed(settings: &ObjectsSettings) -> u64 {
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
            .map(|(figure, stores)| group(results, figure, &stores, rng))
            .collect()
    }

    fn others(results: &Results<Self>) -> Vec<Box<dyn Shown>> {
        vec![Box::new(stored(results))]
    }
}
