//! Results as text for people, and as a part of a page with pictures.

use std::collections::BTreeMap;

use super::super::answers::{Answer, Verdict, too_few};
use super::super::cells::{columns, digits_of, interval};
use super::super::load::State;
use super::super::reclaim;
use super::super::statistics::{Ratio, Spread};
use super::reader::Reader;
use super::results::{ReadsResults, ReadsSettings, Setting, What};
use brisk::page::chart::{self, Whose};
use brisk_terminal::page::Page;

/// The heads of the columns of a table.
const HEAD: [&str; 5] = ["", "ns (from-to)", "/memcpy", "/pread", "/tokio"];

/// The heads of the columns of the counts.
const COUNTED: [&str; 4] = ["", "allocations", "system calls", "what it does"];

/// What readers must know about the figures.
fn legend(settings: &ReadsSettings) -> String {
    let rounds = match settings.short_rounds {
        0..=2 => String::new(),
        rounds => format!(
            ", or the median of the {} rounds after the first if a read makes no system call",
            rounds - 1
        ),
    };
    format!(
        "Nanoseconds of one read: the median of all runs, and with several threads the slowest one. Cold \
         reads include opening, mapping and populating the file. Warm reads with everything in memory \
         are those of a second round{rounds}."
    )
}

/// The groups of rows that were measured in turns.
fn groups(results: &ReadsResults) -> Vec<Setting> {
    let mut groups: Vec<Setting> = Vec::new();
    for row in &results.rows {
        let same = |known: &Setting| {
            Setting {
                reader: row.reader,
                ..*known
            } == *row
        };
        if !groups.iter().any(same) {
            groups.push(*row);
        }
    }
    groups
}

fn title(results: &ReadsResults, group: Setting) -> String {
    let state = match group.state {
        State::Cold => "cold",
        State::Warm => "warm",
    };
    let settings = &results.settings;
    let what = match group.what {
        What::Small { random: false } => format!("{state}, in order"),
        What::Small { random: true } => format!("{state}, at random"),
        What::Mixed => "pages at random, 5 of 100 not in memory".to_owned(),
        What::Deep => format!("cold pages at random, {} reads at once", settings.depth),
    };
    match group.threads {
        1 => what,
        threads => format!("{what}, {threads} threads"),
    }
}

fn rows(results: &ReadsResults, group: Setting) -> Vec<(Reader, Vec<f64>)> {
    let of_group = |row: &&Setting| {
        Setting {
            reader: row.reader,
            ..group
        } == **row
    };
    let rows = results.rows.iter().filter(of_group);
    let rows = rows.map(|row| (row.reader, results.nanoseconds(*row)));
    let shown = |(reader, runs): &(Reader, Vec<f64>)| *reader != Reader::Gone && !runs.is_empty();
    rows.filter(shown).collect()
}

fn cells(results: &ReadsResults, group: Setting, reader: Reader, runs: &[f64]) -> [String; 5] {
    let Some(Spread { median, min, max }) = Spread::of(runs) else {
        return [
            reader.to_string(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ];
    };
    let to = |other: Reader| {
        let other = results.nanoseconds(Setting {
            reader: other,
            ..group
        });
        let ratio = Spread::of(&other).map(|other| median / other.median);
        ratio.map_or_else(
            || "-".to_owned(),
            |ratio| {
                let digits = digits_of(ratio);
                format!("{ratio:.digits$}")
            },
        )
    };
    [
        reader.to_string(),
        format!("{median:.0} ({min:.0}-{max:.0})"),
        to(Reader::Memcpy),
        to(Reader::Pread),
        to(Reader::Tokio),
    ]
}

fn counted(results: &ReadsResults) -> Vec<[String; 4]> {
    let number =
        |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
    let shown = results
        .counted
        .iter()
        .filter(|row| row.reader != Reader::Gone);
    let rows = shown.map(|row| {
        let mut known = Reader::IN_TURN.iter();
        let known = known.find(|(reader, ..)| *reader == row.reader);
        [
            row.reader.to_string(),
            number(row.allocations),
            number(row.system_calls),
            known.map_or(String::new(), |(_, _, what)| (*what).to_owned()),
        ]
    });
    rows.collect()
}

fn peers(results: &ReadsResults) -> Vec<String> {
    let words = results.peers.iter().filter_map(|peer| {
        let Spread { median, min, max } = Spread::of(&peer.nanoseconds)?;
        let state = match (peer.state, peer.deep) {
            (State::Cold, _) => "cold pages of the larger file",
            (State::Warm, _) => "warm",
        };
        Some(format!(
            "fio {}, {state}: {median:.0} ns ({min:.0}-{max:.0}).",
            peer.engine
        ))
    });
    words.collect()
}

fn conditions(results: &ReadsResults) -> String {
    let settings = &results.settings;
    let last = results.runs.iter().map(|run| run.repetition).max();
    let made = last.map_or(0, |last| last.saturating_add(1));
    let runs = match settings.runs {
        asked if asked == made => made.to_string(),
        asked => format!("{made} of {asked}"),
    };
    format!(
        "{} reads of {} bytes, on {}; {runs} runs of each, in turns. Every run has a process of its \
         own.{}{} {}",
        settings.reads,
        settings.size,
        results.machine.filesystem,
        too_few(made as usize),
        reclaim::sentence(&results.stopped),
        legend(settings)
    )
}

fn answers(results: &ReadsResults) -> Vec<Answer> {
    let rng = &mut fastrand::Rng::with_seed(results.settings.seed);
    let warm = |reader| Setting {
        reader,
        what: What::Small { random: true },
        state: State::Warm,
        threads: 1,
    };
    let mut ratio = |ours: Setting, theirs: Setting| {
        let [a, b] = [ours, theirs].map(|setting| results.nanoseconds(setting));
        Ratio::of_medians(&a, &b, rng)
    };
    let mut worth = Vec::new();
    for (ours, theirs) in [
        (Reader::MappingReadAt, Reader::Memcpy),
        (Reader::MappingReadAt, Reader::SeekRead),
        (Reader::AsyncMapping, Reader::MappingReadAt),
        (Reader::AsyncMemcpy, Reader::Memcpy),
        (Reader::AsyncMapping, Reader::AsyncMemcpy),
        (Reader::AsyncMapping, Reader::Tokio),
        (Reader::AsyncFile, Reader::Pread),
        (Reader::AsyncFile, Reader::Tokio),
        (Reader::AsyncFile, Reader::InThread),
    ] {
        if let Some(ratio) = ratio(warm(ours), warm(theirs)) {
            worth.push(format!(
                "{ours} takes {} of the time of {theirs}.",
                interval(ratio)
            ));
        }
    }
    let mixed = |reader| Setting {
        what: What::Mixed,
        ..warm(reader)
    };
    let inline = ratio(mixed(Reader::AsyncFile), mixed(Reader::InThread));
    let runs = [Reader::AsyncFile, Reader::InThread]
        .map(|reader| results.nanoseconds(mixed(reader)).len());
    let inline = inline.map(|ratio| {
        let runs = runs[0].min(runs[1]);
        let verdict = match Verdict::of(ratio, runs) {
            Verdict::First => "yes",
            Verdict::Second => "no",
            Verdict::NotClear => "not clear",
        };
        format!(
            "With 5 of 100 pages not in memory: {verdict}, {} of the time.",
            interval(ratio)
        )
    });
    let deep = |reader| Setting {
        what: What::Deep,
        state: State::Cold,
        ..warm(reader)
    };
    let fio = results.peers.iter().find(|peer| peer.deep);
    let theirs = [
        (
            "pread in threads",
            results.nanoseconds(deep(Reader::Threads)),
        ),
        (
            "io_uring (fio)",
            fio.map_or(Vec::new(), |peer| peer.nanoseconds.clone()),
        ),
    ];
    let mut queue = Vec::new();
    let ours = results.nanoseconds(deep(Reader::Queued));
    for (peer, theirs) in &theirs {
        if let Some(ratio) = Ratio::of_medians(&ours, theirs, rng) {
            queue.push(format!(
                "AsyncFile takes {} of the time of {peer}.",
                interval(ratio)
            ));
        }
    }
    let answers = [
        ("What does a small read of a warm file cost?", worth),
        (
            "Is it worth asking first for what is in memory?",
            inline.into_iter().collect(),
        ),
        ("What do several cold reads at once gain?", queue),
        (
            "Where does the time of the slow pattern go?",
            costs(results),
        ),
    ];
    Answer::given(answers)
}

/// The costs of the slow pattern, part by part, and what avoids them.
fn costs(results: &ReadsResults) -> Vec<String> {
    let setting = |reader| Setting {
        reader,
        what: What::Small { random: true },
        state: State::Warm,
        threads: 1,
    };
    let median = |reader| Some(Spread::of(&results.nanoseconds(setting(reader)))?.median);
    let rounds = |reader| results.by_repetition(setting(reader));
    let plain = rounds(Reader::Pread);
    let more = |reader| more_than(&plain, &rounds(reader));
    let all = || {
        Some(vec![
            format!(
                "A new buffer for each read, a thread to wait for, a report of progress, and a copy: {:.0} ns \
                 in all.",
                median(Reader::Pattern)?
            ),
            format!(
                "The system call takes {:.0} ns of that (medians), the buffer {}, the copy {}, and the thread {}.",
                median(Reader::Pread)?,
                more(Reader::PreadBuffer)?,
                more(Reader::PreadCopy)?,
                more(Reader::InThread)?
            ),
            format!(
                "A synchronous read from the same handle takes {:.0} ns, and one from a mapping {:.0}.",
                median(Reader::SyncFace)?,
                median(Reader::MappingReadAt)?
            ),
        ])
    };
    all().unwrap_or_default()
}

/// What runs take more than others of the same rounds, in words. Both are by their rounds. None if there are none.
fn more_than(plain: &BTreeMap<u32, f64>, runs: &BTreeMap<u32, f64>) -> Option<String> {
    let more = runs
        .iter()
        .filter_map(|(round, run)| Some(run - plain.get(round)?));
    let more: Vec<_> = more.collect();
    let slower = more.iter().filter(|more| **more > 0.0).count();
    let median = Spread::of(&more)?.median;
    Some(match chance_of(slower, more.len()) < 0.05 {
        true => format!("{median:.0}"),
        false => "too little to tell".to_owned(),
    })
}

/// How likely so many rounds, or more, are slower if there is no difference.
fn chance_of(slower: usize, rounds: usize) -> f64 {
    let ways = |some: usize| {
        (0..some)
            .map(|n| (rounds - n) as f64 / (n + 1) as f64)
            .product::<f64>()
    };
    (slower..=rounds).map(ways).sum::<f64>()
        / 2.0_f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX))
}

fn remarks(results: &ReadsResults) -> Vec<String> {
    let missing = results.missing.iter();
    let mut remarks: Vec<_> = missing
        .map(|left| format!("{}: {}.", left.what, left.reason))
        .collect();
    if results.lost > 0 {
        remarks.push(format!(
            "{} runs do not count, because pages of the warm file left memory each time.",
            results.lost
        ));
    }
    remarks
}

/// Tables, answers, and counts.
pub fn of(results: &ReadsResults) -> String {
    let mut text = conditions(results) + "\n";
    for group in groups(results) {
        let rows = rows(results, group);
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(
            rows.iter()
                .map(|(reader, runs)| cells(results, group, *reader, runs)),
        );
        text += &format!("\n{}\n{}", title(results, group), columns(&lines));
    }
    let counted = counted(results);
    if !counted.is_empty() {
        text += "\nOf each read, warm and at random\n";
        let mut table = vec![[COUNTED[0], COUNTED[1], COUNTED[2]].map(str::to_owned)];
        table.extend(
            counted
                .iter()
                .map(|[name, a, b, _]| [name, a, b].map(String::clone)),
        );
        text += &columns(&table);
    }
    for Answer {
        question,
        sentences,
    } in answers(results)
    {
        text += &format!("\n{question}\n");
        for sentence in sentences {
            text += &(sentence + "\n");
        }
    }
    for (number, line) in peers(results)
        .into_iter()
        .chain(remarks(results))
        .enumerate()
    {
        if number == 0 {
            text.push('\n');
        }
        text += &(brisk_terminal::names::printable(&line).into_owned() + "\n");
    }
    text
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &ReadsResults) {
    page.anchor(2, "reads", "Small reads of a file");
    page.note(&conditions(results));
    for Answer {
        question,
        sentences,
    } in answers(results)
    {
        page.heading(3, question);
        page.list(&sentences);
    }
    for group in groups(results) {
        let title = title(results, group);
        let rows = rows(results, group);
        let lines = rows.iter().map(|(reader, runs)| chart::Row {
            name: reader.to_string(),
            figure: Spread::of(runs).map_or(String::new(), |s| format!("{:.0} ns", s.median)),
            whose: match reader {
                Reader::MappingReadAt
                | Reader::AsyncMapping
                | Reader::AsyncFile
                | Reader::SyncFace
                | Reader::Queued => Whose::Brisk,
                Reader::Memcpy | Reader::AsyncMemcpy => Whose::Own,
                _ => Whose::Rival,
            },
            values: runs.clone(),
        });
        let lines: Vec<_> = lines.collect();
        let mut caption = legend(&results.settings);
        if chart::is_log(&lines, chart::Lines::default()) {
            caption += " The axis is logarithmic: equal steps are equal ratios.";
        }
        page.heading(3, &title);
        page.figure(
            &chart::box_plots(&title, &lines, chart::Lines::default(), "ns"),
            &caption,
        );
        let table = rows
            .iter()
            .map(|(reader, runs)| cells(results, group, *reader, runs));
        page.table(HEAD, &table.collect::<Vec<_>>(), false);
    }
    page.heading(3, "What each read does, warm and at random");
    page.table(COUNTED, &counted(results), false);
    let words = peers(results).into_iter().chain(remarks(results));
    page.list(&words.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_if_it_is_no_chance() {
        let plain: BTreeMap<u32, f64> = (0..6).map(|round| (round, 10.0)).collect();
        let than = |more: &[f64]| {
            let runs = (0..).zip(more.iter().map(|more| 10.0 + more));
            more_than(&plain, &runs.collect())
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(than(&[5.0, 6.0, 7.0, 8.0, 9.0, 9.0]), said("8"));
        let little = said("too little to tell");
        assert_eq!(than(&[5.0, 6.0, 7.0, 8.0, 9.0, -1.0]), little);
        assert_eq!(than(&[5.0]), little);
        assert_eq!(than(&[]), None);
        // The rounds are compared, whichever is lost.
        let runs = [(1, 15.0), (9, 1000.0)].into();
        assert_eq!(more_than(&plain, &runs), little);
        for (slower, rounds, chance) in [(0, 3, 1.0), (3, 3, 0.125), (12, 15, 576.0 / 32768.0)] {
            assert!((chance_of(slower, rounds) - chance).abs() < 1e-9);
        }
    }
}
