//! Results of launches as tables for people.

use brisk_terminal::names::printable;
use brisk_terminal::page::escaped;

use super::answers::{self, Answer};
use super::app::Home;
use super::cells::{columns, markdown_line, megabytes};
use super::reclaim;
use super::results::{AppResults, Cannot, Figure, Recorded, Results, Row, Settings};
use super::statistics::{Ratio, Spread};
use super::training::Training;

/// Makes the cells of a row.
type Cells<const N: usize> = fn(&Row) -> [String; N];

pub const LAUNCHES: [&str; 7] = [
    "",
    "cold ms (from-to)",
    "/directory (95 %)",
    "gone % (95 %)",
    "warm ms (from-to)",
    "/directory (95 %)",
    "cached MB",
];

/// The same with the bound. Older results have none.
pub const BOUNDED: [&str; 9] = [
    "",
    "cold ms (from-to)",
    "/directory (95 %)",
    "gone % (95 %)",
    "bound ms (from-to)",
    "of bound % (95 %)",
    "warm ms (from-to)",
    "/directory (95 %)",
    "cached MB",
];

/// A terminal has no room for [`LAUNCHES`]. These have the same columns.
pub const COLD: [&str; 4] = [
    "",
    "cold ms (from-to)",
    "/directory (95 %)",
    "gone % (95 %)",
];
pub const BOUND: [&str; 3] = ["", "bound ms (from-to)", "of bound % (95 %)"];
pub const WARM: [&str; 4] = ["", "warm ms (from-to)", "/directory (95 %)", "cached MB"];

pub const SIZES: [&str; 4] = ["", "size MB", "/squashfs-zstd", "build s"];
pub const WALKS: [&str; 3] = ["", "walk ms (from-to)", "/directory (95 %)"];

/// The longest line of text, in characters.
const LONGEST_LINE: usize = 100;

/// Tables of each app, with what a reader must know about it.
pub fn of(results: &Results) -> String {
    let mut text = String::new();
    for app in &results.apps {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&heading(results, app));
        text.push('\n');
        if app.sample_of.is_none() {
            text += &(table(COLD, &app.rows, cold) + "\n");
            if app.has_bounds() {
                text += &(table(BOUND, &app.rows, bound) + "\n");
            }
            text += &(table(WARM, &app.rows, warm) + "\n");
        }
        text.push_str(&table(SIZES, &app.rows, sizes));
        if app.has_walks() {
            text += &("\n".to_owned() + &table(WALKS, &app.rows, walks));
        }
        for Answer {
            question,
            sentences,
        } in answers::of(app)
        {
            text.push_str(&format!("\n{question}\n"));
            for sentence in sentences {
                text.push_str(&wrapped(&printable(&sentence)));
            }
        }
    }
    if !results.cannot.is_empty() {
        text.push_str("\nCould not run here\n");
        for Cannot { name, reason } in &results.cannot {
            text.push_str(&wrapped(&printable(&format!("{name}: {reason}"))));
        }
    }
    text
}

/// Lines of at most [`LONGEST_LINE`] characters, unless a word is longer.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut len = 0;
    for word in text.split(' ') {
        let chars = word.chars().count();
        let is_first = len == 0;
        if !is_first && len + 1 + chars > LONGEST_LINE {
            lines.push('\n');
            len = 0;
        } else if !is_first {
            lines.push(' ');
            len += 1;
        }
        lines.push_str(word);
        len += chars;
    }
    lines + "\n"
}

/// The same text with heads of tables in bold, for a terminal. Heads begin with an empty cell.
pub fn emphasised(text: &str) -> String {
    let line = |line: &str| match line.starts_with("  ") {
        true => format!("\x1b[1m{line}\x1b[0m\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn table<const N: usize>(head: [&str; N], rows: &[Row], cells: Cells<N>) -> String {
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    columns(&lines)
}

/// Tables in Markdown, one for each app: the figures of launches, and sizes. The shortest cold launch is in
/// bold.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    for app in &results.apps {
        let title = format!("{}, {} MB", app.app.name, megabytes(app.tree_bytes));
        let has_bounds = app.has_bounds();
        let mut head = match has_bounds {
            true => BOUNDED.to_vec(),
            false => LAUNCHES.to_vec(),
        };
        head[0] = &title;
        head.extend(&SIZES[1..3]);
        let cold = |row: &Row| row.cold.map_or(f64::INFINITY, |cold| cold.seconds.median);
        let shortest = app.rows.iter().map(cold).fold(f64::INFINITY, f64::min);
        let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        let mut rule = vec!["---:".to_owned(); lines[0].len()];
        rule[0] = "---".to_owned();
        lines.push(rule);
        for row in &app.rows {
            let mut cells = match has_bounds {
                true => bounded(row).to_vec(),
                false => launches(row).to_vec(),
            };
            cells.extend_from_slice(&sizes(row)[1..3]);
            if cold(row) <= shortest && shortest.is_finite() {
                cells[1] = format!("**{}**", cells[1]);
            }
            lines.push(cells);
        }
        text += &lines.into_iter().map(markdown_line).collect::<String>();
        text += &format!("\n{}.\n\n", escaped(&conditions(results, app)));
    }
    text
}

/// The ratio of a cold launch, the share of the avoidable time that is gone, and the same of the bound.
pub fn ratio_and_gone(row: &Row) -> String {
    let [_, mut text] = figure(row.cold.as_ref());
    let shares = [(row.share_gone, ""), (row.share_of_bound, " of bound")];
    for (share, what) in shares {
        if let Some(share) = share {
            text += &format!(", {:.0} %{what}", share.value * 100.0);
        }
    }
    text
}

/// Where these were measured, and how often. What they have in common is said once.
pub fn machines_of(measured: &[(&Results, &AppResults)]) -> String {
    let once = |all: Vec<String>, between: &str| {
        let mut different: Vec<String> = Vec::new();
        for text in all {
            if !different.contains(&text) {
                different.push(text);
            }
        }
        different.join(between)
    };
    let machine = |(results, _): &(&Results, &AppResults)| {
        let Results {
            machine, settings, ..
        } = results;
        format!(
            "{}, {}, read-ahead {} KiB; {}",
            machine
                .processor
                .as_deref()
                .unwrap_or(&machine.architecture),
            machine.filesystem,
            settings.read_ahead_kib,
            machine.decoding(),
        )
    };
    let machines = once(measured.iter().map(machine).collect(), "; and ");
    let rates = measured
        .iter()
        .map(|(results, _)| results.machine.disk_rates);
    let rates = match rates.collect::<Option<Vec<_>>>() {
        Some(rates) => format!(
            "the disk gives {} MB/s and {} random reads/s",
            from_to(rates.iter().map(|rates| rates.bytes_per_second / 1_000_000)),
            from_to(rates.iter().map(|rates| rates.operations_per_second))
        ),
        None => "the disk's rates are not recorded for all".to_owned(),
    };
    let runs = |(results, app): &(&Results, &AppResults)| app.repetitions(results.settings.runs);
    let runs = once(measured.iter().map(runs).collect(), " or ");
    let runs = number_of(&runs, "run", "runs");
    format!("{machines}; {rates}; {runs} of each in turns")
}

/// The smallest and the largest of some numbers, or the only one.
fn from_to(numbers: impl Iterator<Item = u64> + Clone) -> String {
    match (numbers.clone().min(), numbers.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(only), _) => only.to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// What was measured, where, and how often.
pub fn conditions(results: &Results, app: &AppResults) -> String {
    let home = match app.app.home {
        Home::Fresh => "an empty home directory",
        Home::Kept => "a home directory that launches before have used",
    };
    format!(
        "{}, {} MB; images on {} ({}); {}; {} of each in turns, with {home}",
        number_of(&app.tree_files.to_string(), "file", "files"),
        megabytes(app.tree_bytes),
        results.machine.filesystem,
        disk_of(results),
        results.machine.reading(),
        number_of(&app.repetitions(results.settings.runs), "run", "runs"),
    )
}

/// A number, or one of several, and its noun.
fn number_of(number: &str, one: &str, many: &str) -> String {
    format!("{number} {}", if number == "1" { one } else { many })
}

fn heading(results: &Results, app: &AppResults) -> String {
    let runs = app.repetitions(results.settings.runs);
    let cold = match &*results.settings.cold {
        "system" => "nothing in memory",
        _ => "none of its files in memory, but names and the system's files",
    };
    let disk = disk_of(results);
    let (files, bytes) = (app.tree_files, megabytes(app.tree_bytes));
    let filesystem = &results.machine.filesystem;
    let text = match app.sample_of {
        Some(whole) => format!(
            "{}: a sample of {}, {bytes} MB of {} MB; images on {filesystem} ({disk}); {} of each in turns.\n",
            app.app.name,
            number_of(&files.to_string(), "file", "files"),
            megabytes(whole),
            number_of(&runs, "walk", "walks"),
        ),
        None => format!(
            "{}: {}\n{}.\n\
             Cold: {cold}, clock from before the mount. Warm: the first launch after it \
             that reads next to nothing.{}\n{}",
            app.app.name,
            app.app.command.as_typed(),
            conditions(results, app),
            reclaim::sentence(&results.stopped),
            demand(app, &results.settings),
        ),
    };
    let lines = text.lines().enumerate().map(|(number, line)| {
        let line = printable(line);
        // The command is a line of its own, however long, so that it can be copied.
        match number == 0 && app.sample_of.is_none() {
            true => line.into_owned() + "\n",
            false => wrapped(&line),
        }
    });
    lines.collect()
}

/// What the launch asks for, and what recording it cost. It says whether brisk can help.
pub fn demand(app: &AppResults, settings: &Settings) -> String {
    // The rest is of other files, whatever brisk does with this tree.
    let mut text = app.reach.map_or_else(String::new, |reach| {
        format!(
            "A cold start reads {} MB, of which {} MB lie in this tree. ",
            megabytes(reach.cached_bytes),
            megabytes(reach.of_tree_bytes)
        )
    });
    let Some(bytes) = app.demanded_bytes else {
        return match text.trim_end() {
            "" => text,
            said => format!("{said}\n"),
        };
    };
    text += &format!("It asks for {} MB; cached", megabytes(bytes));
    text += " is what a cold launch adds to the page cache, with images and hot packs. Gone is the share of the time \
             between a cold and a warm launch from the directory that a cold launch saves.";
    if app.has_bounds() {
        text += " The bound is the time of the same launch in a new session if all that it reads from the disk is in \
                 memory before. Of bound is the share of the time between that and the directory's cold launch.";
    }
    let directory = app.rows.iter().find(|row| row.name == "directory");
    let cold = directory.and_then(|row| row.cold.as_ref());
    // Profiles are recorded before the limits of the disk are set.
    let is_slow = settings.bytes_per_second.is_some() || settings.operations_per_second.is_some();
    let same = |recorded: &&Recorded| recorded.training == Training::Same && !is_slow;
    let recorded = app.recorded.iter().filter(same);
    let seconds: Vec<_> = recorded.map(|recorded| recorded.seconds).collect();
    if let (Some(cold), Some(recording)) = (cold, Spread::of(&seconds)) {
        let times = recording.median / cold.seconds.median;
        text += &match seconds.len() {
            1 => format!(" Recording took {times:.1} times the directory's cold launch."),
            count => format!(
                " Each of {count} recordings took {times:.1} times the directory's cold launch."
            ),
        };
    }
    text + "\n"
}

/// The disk, and its limits.
pub fn disk_of(results: &Results) -> String {
    let settings = &results.settings;
    let disk = match &results.disk {
        Some(disk) => format!("{disk}, read-ahead {} KiB", settings.read_ahead_kib),
        None => "no disk that the system names".to_owned(),
    };
    disk + &limits_of(settings)
}

/// The limits of the disk.
pub fn limits_of(settings: &Settings) -> String {
    let mut limits = String::new();
    if let Some(bytes) = settings.bytes_per_second {
        limits += &format!(", at most {} MB/s", megabytes(bytes));
    }
    if let Some(number) = settings.operations_per_second {
        limits += &format!(", at most {number} reads/s");
    }
    if settings.user.is_some() {
        limits += ", as an ordinary user";
    }
    limits
}

fn name(row: &Row) -> String {
    printable(&row.name).into_owned()
}

pub fn launches(row: &Row) -> [String; 7] {
    let [cold, cold_ratio] = figure(row.cold.as_ref());
    let [warm, warm_ratio] = figure(row.warm.as_ref());
    let cached = row
        .cached_bytes
        .map_or("-".to_owned(), |bytes| format!("{:.0}", bytes / 1e6));
    [
        name(row),
        cold,
        cold_ratio,
        percent(row.share_gone),
        warm,
        warm_ratio,
        cached,
    ]
}

pub fn bounded(row: &Row) -> [String; 9] {
    let [name, cold, cold_ratio, gone, warm, warm_ratio, cached] = launches(row);
    let [bound, _] = figure(row.resident.as_ref());
    let of_bound = percent(row.share_of_bound);
    [
        name, cold, cold_ratio, gone, bound, of_bound, warm, warm_ratio, cached,
    ]
}

pub fn cold(row: &Row) -> [String; 4] {
    let [name, cold, ratio, gone, ..] = launches(row);
    [name, cold, ratio, gone]
}

pub fn bound(row: &Row) -> [String; 3] {
    let [name, _, _, _, bound, of_bound, ..] = bounded(row);
    [name, bound, of_bound]
}

pub fn warm(row: &Row) -> [String; 4] {
    let [name, _, _, _, warm, ratio, cached] = launches(row);
    [name, warm, ratio, cached]
}

pub fn walks(row: &Row) -> [String; 3] {
    let [walk, ratio] = figure(row.walk.as_ref());
    [name(row), walk, ratio]
}

pub fn sizes(row: &Row) -> [String; 4] {
    let build = match row.built_by.is_empty() {
        true => "-".to_owned(),
        false => format!("{:.1}", row.build_seconds),
    };
    let size = row.bytes_to_squashfs_zstd;
    [
        name(row),
        megabytes(row.bytes),
        size.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        build,
    ]
}

/// A share in percent.
fn percent(share: Option<Ratio>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |Ratio { value, low, high }| {
            let [value, low, high] = [value, low, high].map(|share| (share * 100.0).round() as i64);
            match low == high {
                true => value.to_string(),
                false => format!("{value} ({low} to {high})"),
            }
        },
    )
}

fn figure(figure: Option<&Figure>) -> [String; 2] {
    let Some(figure) = figure else {
        return ["-".to_owned(), "-".to_owned()];
    };
    let [median, min, max] = [
        figure.seconds.median,
        figure.seconds.min,
        figure.seconds.max,
    ]
    .map(|s| s * 1e3);
    let ratio = |ratio: Ratio| {
        let Ratio { value, low, high } = ratio;
        match ratio.is_point() {
            true => format!("{value:.2}"),
            false => format!("{value:.2} ({low:.2}-{high:.2})"),
        }
    };
    [
        format!("{median:.0} ({min:.0}-{max:.0})"),
        figure.to_directory.map_or_else(|| "-".to_owned(), ratio),
    ]
}
