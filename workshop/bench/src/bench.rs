//! Runs contenders against each other, and keeps the results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use brisk::write_whole;
use brisk_lab::{Ratio, Spread};
use serde::Serialize;

use crate::table::{Shown, Table};
use crate::turns::turns;

/// The heads of the columns of a table.
const HEAD: [&str; 8] = [
    "",
    "on",
    "page cache",
    "peer: median (min-max)",
    "ours: median (min-max)",
    "ratio (95 %)",
    "goal",
    "reached",
];

/// One comparison of a contender with its peer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The figure, for example pack or hit.
    pub figure: &'static str,
    /// What it is measured on, for example a tree and a codec.
    pub subject: String,
    /// What is in the page cache when the clock starts.
    pub state: &'static str,
    /// `s` or `bytes`.
    pub unit: &'static str,
    /// The tool that the contender is compared with.
    pub peer: &'static str,
    /// The peer's values.
    pub theirs: Spread,
    /// The tool that is compared.
    pub contender: &'static str,
    /// The contender's values.
    pub ours: Spread,
    /// The median of `ours` divided by the median of `theirs`.
    pub ratio: Ratio,
    /// The largest ratio that reaches the goal, if the row has one.
    pub goal: Option<f64>,
}

/// One single run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    figure: &'static str,
    subject: String,
    contender: &'static str,
    /// From 0.
    repetition: u32,
    /// Its position within the repetition, from 0.
    place: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// A tool that does the work of a row. Each call does the work once and returns the time of the part that
/// counts.
///
/// A call also prepares the work before the clock starts, and checks its result after the clock stops.
pub struct Timed<'a> {
    /// The name that runs and tables give it.
    pub name: &'static str,
    /// The work.
    pub work: Box<dyn FnMut() -> Result<Duration> + 'a>,
}

/// Runs contenders, and writes every run and row to a folder.
pub struct Bench {
    out: PathBuf,
    runs_per_contender: u32,
    rng: fastrand::Rng,
    /// The head of `raw.json`.
    about: serde_json::Value,
    runs: Vec<Run>,
    rows: Vec<Row>,
    /// What else is kept of figures.
    details: BTreeMap<&'static str, serde_json::Value>,
}

impl Bench {
    /// A bench that writes to the folder `out`. `seed` decides the orders.
    pub(crate) fn new(out: &Path, runs: u32, seed: u64, about: serde_json::Value) -> Self {
        Self {
            out: out.to_owned(),
            runs_per_contender: runs,
            rng: fastrand::Rng::with_seed(seed),
            about,
            runs: Vec::new(),
            rows: Vec::new(),
            details: BTreeMap::new(),
        }
    }

    /// Times `peer` and `contenders` interleaved, in a new random order in each repetition.
    ///
    /// Each contender becomes a row against `peer`; `goals` are in their order.
    pub fn compare(
        &mut self,
        figure: &'static str,
        subject: &str,
        state: &'static str,
        peer: Timed<'_>,
        contenders: Vec<(Timed<'_>, Option<f64>)>,
    ) -> Result<()> {
        let (contenders, goals): (Vec<_>, Vec<_>) = contenders.into_iter().unzip();
        let mut all = vec![peer];
        all.extend(contenders);
        let mut seconds = vec![Vec::new(); all.len()];
        for turn in turns(&mut self.rng, self.runs_per_contender, all.len()) {
            let Timed { name, work } = &mut all[turn.who];
            let elapsed = work()
                .with_context(|| format!("{figure}, {subject}: {name} failed"))?
                .as_secs_f64();
            eprintln!("{figure}, {subject}: {name} {elapsed:.3e} s");
            seconds[turn.who].push(elapsed);
            self.runs.push(Run {
                figure,
                subject: subject.to_owned(),
                contender: name,
                repetition: turn.repetition,
                place: turn.place,
                seconds: Some(elapsed),
                bytes: None,
            });
        }
        for (who, goal) in (1..all.len()).zip(goals) {
            self.add(
                (figure, subject, state, "s"),
                (all[0].name, &seconds[0]),
                (all[who].name, &seconds[who]),
                goal,
            )?;
        }
        self.write()
    }

    /// Compares two numbers of bytes, which do not vary from run to run.
    pub fn compare_bytes(
        &mut self,
        figure: &'static str,
        subject: &str,
        (peer, theirs): (&'static str, u64),
        (contender, ours): (&'static str, u64),
        goal: Option<f64>,
    ) -> Result<()> {
        self.add(
            (figure, subject, "-", "bytes"),
            (peer, &[theirs as f64]),
            (contender, &[ours as f64]),
            goal,
        )?;
        self.write()
    }

    /// Compares numbers of bytes that vary from run to run. Calls `work` with the names of the peer and the
    /// contender, in turns, in a new random order in each repetition.
    pub fn compare_measured_bytes(
        &mut self,
        figure: &'static str,
        subject: &str,
        names: [&'static str; 2],
        runs: u32,
        goal: Option<f64>,
        mut work: impl FnMut(&str) -> Result<u64>,
    ) -> Result<()> {
        let mut values = [Vec::new(), Vec::new()];
        for turn in turns(&mut self.rng, runs, names.len()) {
            let contender = names[turn.who];
            let bytes = work(contender)
                .with_context(|| format!("{figure}, {subject}: {contender} failed"))?;
            eprintln!("{figure}, {subject}: {contender} {bytes} bytes");
            values[turn.who].push(bytes as f64);
            self.runs.push(Run {
                figure,
                subject: subject.to_owned(),
                contender,
                repetition: turn.repetition,
                place: turn.place,
                seconds: None,
                bytes: Some(bytes),
            });
        }
        self.add(
            (figure, subject, "-", "bytes"),
            (names[0], &values[0]),
            (names[1], &values[1]),
            goal,
        )?;
        self.write()
    }

    /// Compares numbers of bytes, which vary from run to run, with a number that does not.
    pub fn measure_bytes(
        &mut self,
        figure: &'static str,
        subject: &str,
        (peer, theirs): (&'static str, u64),
        contender: &'static str,
        runs: u32,
        mut work: impl FnMut(&str) -> Result<u64>,
    ) -> Result<()> {
        let mut values = Vec::new();
        for repetition in 0..runs {
            let bytes = work(contender)
                .with_context(|| format!("{figure}, {subject}: {contender} failed"))?;
            eprintln!("{figure}, {subject}: {contender} {bytes} bytes");
            values.push(bytes as f64);
            self.runs.push(Run {
                figure,
                subject: subject.to_owned(),
                contender,
                repetition,
                place: 0,
                seconds: None,
                bytes: Some(bytes),
            });
        }
        self.add(
            (figure, subject, "-", "bytes"),
            (peer, &[theirs as f64]),
            (contender, &values),
            Some(1.0),
        )?;
        self.write()
    }

    /// Keeps what else was seen of a figure.
    pub fn keep(&mut self, figure: &'static str, details: serde_json::Value) -> Result<()> {
        self.details.insert(figure, details);
        self.write()
    }

    fn add(
        &mut self,
        (figure, subject, state, unit): (&'static str, &str, &'static str, &'static str),
        (peer, theirs): (&'static str, &[f64]),
        (contender, ours): (&'static str, &[f64]),
        goal: Option<f64>,
    ) -> Result<()> {
        let ratio =
            Ratio::of_medians(ours, theirs, &mut self.rng).context("nothing was measured")?;
        self.rows.push(Row {
            figure,
            subject: subject.to_owned(),
            state,
            unit,
            peer,
            theirs: Spread::of(theirs).context("nothing was measured")?,
            contender,
            ours: Spread::of(ours).context("nothing was measured")?,
            ratio,
            goal,
        });
        Ok(())
    }

    /// The table of all rows so far, for people.
    pub fn table(&self) -> String {
        table_of(&self.rows).plain()
    }

    /// Called after every comparison, so that a later failure loses no run.
    fn write(&self) -> Result<()> {
        let mut raw = serde_json::json!({
            "about": self.about,
            "rows": self.rows,
            "runs": self.runs,
        });
        if !self.details.is_empty() {
            raw["details"] = serde_json::to_value(&self.details)?;
        }
        let raw = serde_json::to_string_pretty(&raw)? + "\n";
        write_whole(&raw, &self.out.join("raw.json"))?;
        write_whole(&table_of(&self.rows).markdown(), &self.out.join("table.md"))
    }
}

fn table_of(rows: &[Row]) -> Table<8> {
    let rows = rows.iter().map(|row| {
        let (goal, reached) = match row.goal {
            Some(goal) => {
                let reached = match (row.ratio.low <= goal, row.ratio.high <= goal) {
                    (_, true) => "yes",
                    (false, _) => "missed",
                    (true, false) => "undecided",
                };
                (format!("<= {goal}"), reached)
            }
            None => ("-".to_owned(), "-"),
        };
        let Ratio { value, low, high } = row.ratio;
        [
            row.figure.to_owned(),
            row.subject.clone(),
            row.state.to_owned(),
            format!("{} {}", row.peer, shown(&row.theirs, row.unit)),
            format!("{} {}", row.contender, shown(&row.ours, row.unit)),
            format!("{value:.3} ({low:.3}-{high:.3})"),
            goal,
            reached.to_owned(),
        ]
    });
    Table::new("Comparisons".to_owned(), HEAD, rows.collect())
}

fn shown(spread: &Spread, unit: &str) -> String {
    let Spread { median, min, max } = spread;
    if unit == "s" && *median < 0.0001 {
        let [median, min, max] = [median, min, max].map(|seconds| seconds * 1e6);
        format!("{median:.2} us ({min:.2}-{max:.2})")
    } else if unit == "s" && *median < 0.1 {
        let [median, min, max] = [median, min, max].map(|seconds| seconds * 1e3);
        format!("{median:.2} ms ({min:.2}-{max:.2})")
    } else if unit == "s" {
        format!("{median:.3} s ({min:.3}-{max:.3})")
    } else {
        match min == max {
            true => format!("{median} {unit}"),
            false => format!("{median} {unit} ({min}-{max})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_repetition_runs_each_contender_once_and_all_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(dir.path(), 5, 1, serde_json::json!({}));
        let timed = |name, millis| Timed {
            name,
            work: Box::new(move || Ok(Duration::from_millis(millis))),
        };
        bench
            .compare(
                "pack",
                "t, zstd",
                "warm",
                timed("them", 200),
                vec![(timed("us", 100), Some(0.4))],
            )
            .unwrap();
        let table = fs::read_to_string(dir.path().join("table.md")).unwrap();
        assert_eq!(
            table.lines().nth(2),
            Some(
                "| pack | t, zstd | warm | them 0.200 s (0.200-0.200) | us 0.100 s (0.100-0.100) \
                 | 0.500 (0.500-0.500) | &lt;= 0.4 | missed |"
            )
        );
        let raw = fs::read_to_string(dir.path().join("raw.json")).unwrap();
        let raw: serde_json::Value = serde_json::from_str(&raw).unwrap();
        for repetition in 0..5 {
            let mut names: Vec<_> = raw["runs"].as_array().unwrap()[2 * repetition..][..2]
                .iter()
                .map(|run| run["contender"].as_str().unwrap())
                .collect();
            names.sort_unstable();
            assert_eq!(names, ["them", "us"]);
        }
    }

    #[test]
    fn a_failed_check_stops_and_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(dir.path(), 5, 1, serde_json::json!({}));
        let fail = Timed {
            name: "us",
            work: Box::new(|| anyhow::bail!("a byte differs")),
        };
        let e = bench
            .compare("pack", "t, zstd", "warm", fail, Vec::new())
            .unwrap_err();
        assert_eq!(format!("{e:#}"), "pack, t, zstd: us failed: a byte differs");
    }
}
