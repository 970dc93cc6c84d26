//! Results as text for people.

use brisk_terminal::names::printable;

use super::super::answers::{Answer, too_few};
use super::super::cells::{columns, megabytes};
use super::super::reclaim;
use super::answers;
use super::pages::Grain;
use super::results::{LoadResults, LoadRow, Processor};
use super::worker::Memory;

/// The heads of the columns of a case.
pub const HEAD: [&str; 13] = [
    "",
    "exit ms (from-to)",
    "mean ms",
    "first ms",
    "last ms",
    "end ms",
    "user ms",
    "system ms",
    "faults",
    "of disk",
    "memory MB",
    "resident MB",
    "shared MB",
];

/// What the columns mean.
pub const LEGEND: &str = "Exit is the time from the start of loading until the parent has seen the last process \
    end. First and last are the times at which the first and the last page were touched. End is the time from the \
    last use to the exit. Processor times (mean ± deviation, and range), faults and memory are those of all \
    processes together. Memory is counted in a run of its own: it counts a page that several processes share \
    once, but resident and shared count it for each process. A warm file was read from its start to its end \
    before. Where the fastest of several ways is compared, the same runs say which one is the fastest, so it \
    looks a little faster than it is.";

/// The cells of a row.
pub fn cells(row: &LoadRow) -> [String; 13] {
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    let name = match &row.taken {
        Some(taken) if *taken != row.way.to_string() => format!("{}: {taken}", row.way),
        _ => row.way.to_string(),
    };
    let memory = |of: fn(&Memory) -> u64| {
        row.memory.map_or("-".to_owned(), |memory| {
            megabytes(of(&memory).saturating_mul(1024))
        })
    };
    let processor = |time: Processor| {
        let Processor {
            mean,
            deviation,
            min,
            max,
        } = time;
        format!("{} ± {} ({}-{})", ms(mean), ms(deviation), ms(min), ms(max))
    };
    [
        name,
        format!(
            "{} ({}-{})",
            ms(row.exit.median),
            ms(row.exit.min),
            ms(row.exit.max)
        ),
        format!("{} ± {}", ms(row.mean), ms(row.deviation)),
        ms(row.first),
        ms(row.last),
        ms(row.end),
        processor(row.user),
        processor(row.system),
        format!("{:.0}", row.minor_faults),
        format!("{:.0}", row.major_faults),
        memory(|memory| memory.proportional_kib),
        memory(|memory| memory.resident_kib),
        memory(|memory| memory.shared_kib),
    ]
}

/// Where and how it was measured.
pub fn conditions(results: &LoadResults) -> String {
    let disk = match (&results.disk, results.read_ahead_kib) {
        (Some(disk), Some(kib)) => format!("{disk}, read-ahead {kib} KiB"),
        (Some(disk), None) => disk.clone(),
        (None, _) => "no disk that the system names".to_owned(),
    };
    let file = match &results.settings.file {
        Some(file) => file.display().to_string(),
        None => "files of random bytes".to_owned(),
    };
    let grain = match results.settings.grain {
        Grain::Word => "eight bytes of each touched page",
        Grain::Page => "all of each touched page",
    };
    let last = results.runs.iter().map(|run| run.repetition).max();
    let made = last.map_or(0, |last| last.saturating_add(1));
    let runs = match results.settings.runs {
        asked if asked == made => made.to_string(),
        asked => format!("{made} of {asked}"),
    };
    format!(
        "{file} on {} ({disk}); {runs} runs of each, in turns. Every run has processes of its own, which read \
         {grain}.{}{}",
        results.machine.filesystem,
        too_few(made as usize),
        reclaim::sentence(&results.stopped)
    )
}

/// What a reader must know besides the figures.
pub fn remarks(results: &LoadResults) -> Vec<String> {
    let mut remarks = Vec::new();
    if results.lost > 0 {
        remarks.push(format!(
            "{} runs do not count, because pages of the warm file left memory each time.",
            results.lost
        ));
    }
    remarks
}

/// A table for each case, the answers, and what is left out.
pub fn of(results: &LoadResults) -> String {
    let mut text = printable(&conditions(results)).into_owned() + "\n" + LEGEND + "\n";
    for (number, case) in results.cases.iter().enumerate() {
        let rows = results.rows(number);
        if rows.is_empty() {
            continue;
        }
        text += &format!("\n{case}\n");
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(rows.iter().map(cells));
        text += &columns(&lines);
    }
    for Answer {
        question,
        sentences,
    } in answers::of(results)
    {
        text += &format!("\n{question}\n");
        for sentence in sentences {
            text += &(sentence + "\n");
        }
    }
    text += &results.peers.text();
    for remark in remarks(results) {
        text += &format!("\n{remark}\n");
    }
    if !results.left_out.is_empty() {
        text += "\nLeft out\n";
        for left_out in &results.left_out {
            text += &printable(&format!("{}: {}", left_out.what, left_out.reason));
            text.push('\n');
        }
    }
    text
}
