//! Results of launches as a page with pictures. Everything in it is made from the raw runs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use brisk_terminal::page::Page;

use super::answers::{self, Answer};
use super::cells::{escaped_text, markdown_line, megabytes};
use super::kept::{self, Part};
use super::raw::Raw;
use super::results::{AppResults, Figure, Kind, Row};
use super::statistics::Ratio;
use super::table::{self, disk_of};
use brisk::page::chart::{self, Curve, Plots, Scale, Whose};
use brisk::page::touches;
use brisk::write_whole;

/// How many rows a table for a first look may have.
const MOST_ROWS: usize = 16;

/// What the share of the bound is.
const OF_BOUND: &str = "Of bound is the share of what the same launch saves if all that it reads from the disk is in memory before: \
    (directory cold - this) / (directory cold - bound).";

/// One table in Markdown, with a row for each program: the time from the directory, and for each other contender its ratio to
/// that, and the shares of the avoidable time and of the bound that are gone.
pub fn summary(raws: &[Raw]) -> Result<String> {
    let all: Vec<_> = raws
        .iter()
        .flat_map(|raw| raw.results.apps.iter().map(move |app| (raw, app)))
        .collect();
    ensure!(
        all.len() <= MOST_ROWS,
        "--summary: found {} programs, allowed are {MOST_ROWS}: name fewer files",
        all.len()
    );
    let mut names: Vec<&str> = Vec::new();
    for (_, app) in &all {
        for row in app.rows.iter().filter(|row| row.format != "directory") {
            if !names.contains(&&*row.name) {
                names.push(&row.name);
            }
        }
    }
    let mut head = vec!["cold launch", "directory ms", "warm"];
    head.extend(&names);
    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let rule = std::iter::once("---").chain(std::iter::repeat("---:"));
    lines.push(rule.take(lines[0].len()).map(str::to_owned).collect());
    for (raw, app) in &all {
        let of = |name: &str| app.rows.iter().find(|row| row.name == name);
        let directory = of("directory");
        let cold = directory.and_then(|row| row.cold);
        let warm = directory.and_then(|row| row.warm);
        let cold_ms = cold.map(|figure| format!("{:.0}", figure.seconds.median * 1e3));
        let warm_ratio = cold
            .zip(warm)
            .map(|(cold, warm)| format!("{:.2}", warm.seconds.median / cold.seconds.median));
        let mut line = vec![app.app.name.clone() + &table::limits_of(&raw.results.settings)];
        line.extend([cold_ms, warm_ratio].map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
        let cells = names.iter().map(|name| of(name).map(table::ratio_and_gone));
        line.extend(cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
        lines.push(line);
    }
    let mut text = lines.into_iter().map(markdown_line).collect::<String>();
    text += "\nRatios to the cold launch from the directory, with intervals of 95 %; behind them the share of the \
             avoidable time that is gone: (directory cold - this) / (directory cold - directory warm).";
    if all.iter().any(|(_, app)| app.has_bounds()) {
        text += " ";
        text += OF_BOUND;
    }
    let measured: Vec<_> = all.iter().map(|(raw, app)| (&raw.results, *app)).collect();
    let where_to = table::machines_of(&measured);
    text += &format!(" {}.\n", escaped_text(&where_to));
    Ok(text)
}

/// Tables of launches in Markdown.
pub fn markdown(raws: &[Raw]) -> String {
    let tables = raws.iter().map(|raw| table::markdown(&raw.results));
    tables.collect::<String>().trim_end().to_owned() + "\n"
}

/// A picture of all cold launches, as a file of its own.
pub fn picture(raws: &[Raw]) -> String {
    let apps = raws
        .iter()
        .flat_map(|raw| raw.results.apps.iter().map(move |app| (raw, app)));
    let plots = apps.map(|(raw, app)| Plots {
        heading: format!("{}: cold launch", title_of(raw, app, raws)),
        ..plots_of(app, Kind::Cold)
    });
    chart::standalone(&plots.collect::<Vec<_>>(), "ms")
}

/// Writes the page of all results to `path`, whole or not at all.
pub fn write(raws: &[Raw], parts: &[Part], path: &Path) -> Result<()> {
    let text = match raws {
        [] => page_of_parts(parts),
        raws => page(raws, parts),
    };
    write_whole(&text, path)
}

/// Writes `report.html` from the results in `out`.
pub fn write_in(out: &Path) -> Result<()> {
    let (raws, parts) = kept::open_in(out);
    write(&raws, &parts, &out.join("report.html"))
}

/// A page without launches.
fn page_of_parts(parts: &[Part]) -> String {
    let mut page = Page::default();
    let titles: Vec<_> = parts.iter().map(Part::title).collect();
    let title = titles.join("; ");
    page.heading(1, &title);
    parts.iter().for_each(|part| part.draw(&mut page));
    page.finish(&title)
}

fn page(raws: &[Raw], parts: &[Part]) -> String {
    let mut page = Page::default();
    let apps = || {
        raws.iter()
            .flat_map(|raw| raw.results.apps.iter().map(move |app| (raw, app)))
    };
    let names: Vec<_> = apps().map(|(raw, app)| title_of(raw, app, raws)).collect();
    let answers = apps().all(|(_, app)| answers::is_of_codecs(app));
    let title = match &*names {
        names if answers => format!("What codecs cost: {}", names.join("; ")),
        [name] => format!("How fast {name} starts"),
        _ => "How fast programs start".to_owned(),
    };
    page.heading(1, &title);
    page.paragraph(match answers {
        true => {
            "Images of the same files, one for each codec, which the kernel mounts. A walk reads every file, \
             with nothing in memory before. Each dot is one run."
        }
        false => {
            "The program starts from its directory and from images of it: cold, with nothing in memory, \
         and warm, right after that. A walk reads every file. Each dot is one run."
        }
    });
    page.html(
        "<p class=\"keys\"><span><i class=\"k-brisk\"></i>brisk</span>\
         <span><i class=\"k-rival\"></i>other images</span>\
         <span><i class=\"k-own\"></i>the plain directory</span></p>\n",
    );
    if names.len() > 1 {
        page.html("<nav>");
        for (number, name) in names.iter().enumerate() {
            let name = brisk_terminal::page::escaped(name);
            page.html(&format!("<a href=\"#app-{number}\">{name}</a>"));
        }
        page.html("</nav>\n");
    }
    for (number, ((raw, app), name)) in apps().zip(&names).enumerate() {
        page.anchor(2, &format!("app-{number}"), name);
        draw_app(&mut page, raw, app);
    }
    parts.iter().for_each(|part| part.draw(&mut page));
    cannot(&mut page, raws);
    machines(&mut page, raws);
    method(&mut page);
    page.heading(2, "Every single run");
    page.paragraph(
        "This page contains the runs that it was made from; brisk lab report makes the page again.",
    );
    for raw in raws {
        page.download(&raw.name, "application/json", &raw.text);
    }
    page.finish(&title)
}

/// The name of an app, with the disk if several results have the app.
fn title_of(raw: &Raw, app: &AppResults, raws: &[Raw]) -> String {
    let name = &app.app.name;
    let apps = raws.iter().flat_map(|raw| &raw.results.apps);
    match apps.filter(|other| other.app.name == *name).count() {
        0 | 1 => name.clone(),
        _ => format!("{name}, {}", disk_of(&raw.results)),
    }
}

fn whose(row: &Row) -> Whose {
    match &*row.format {
        "directory" => Whose::Own,
        format if ["brisk", "beside"].iter().any(|by| format.starts_with(by)) => Whose::Brisk,
        // A replay is brisk's, whatever it runs beside.
        format if format.contains("-replay") => Whose::Brisk,
        _ => Whose::Rival,
    }
}

fn draw_app(page: &mut Page, raw: &Raw, app: &AppResults) {
    if app.sample_of.is_none() {
        page.code(&app.app.command.as_typed());
    }
    if let Some(whole) = app.sample_of {
        page.note(&format!(
            "A sample of {} MB. No program is launched from it.",
            megabytes(whole)
        ));
    }
    page.note(&table::conditions(&raw.results, app));
    page.paragraph(&table::demand(app, &raw.results.settings));
    if !answers::is_of_codecs(app) {
        page.list(&in_words(app));
    }
    for Answer {
        question,
        sentences,
    } in answers::of(app)
    {
        page.heading(3, question);
        page.list(&sentences);
    }
    for (kind, heading, caption) in [
        (
            Kind::Cold,
            "Cold launch",
            "Time from before the mount until the program is ready.",
        ),
        (
            Kind::Warm,
            "Warm launch",
            "The first launch after the cold one that reads next to nothing, in the same mount.",
        ),
        (
            Kind::Resident,
            "Bound",
            "The cold launch once more, in a new session, but with all that it reads from the disk in memory before.",
        ),
        (
            Kind::Walk,
            "Cold walk",
            "Time to read and hash every file, from before the mount.",
        ),
    ] {
        draw_times(page, app, kind, heading, caption);
    }
    page.heading(3, "Size");
    let rows = app.rows.iter().map(|row| {
        let ratio = row
            .bytes_to_squashfs_zstd
            .map_or_else(String::new, |ratio| format!(" · {ratio:.2}"));
        chart::Row {
            name: row.name.clone(),
            figure: format!("{} MB{ratio}", megabytes(row.bytes)),
            whose: whose(row),
            values: vec![row.bytes as f64 / 1e6],
        }
    });
    let rows: Vec<_> = rows.collect();
    page.figure(
        &chart::bars("Sizes", &rows, "MB"),
        "Size of all files of the directory, or of image and hot pack, and its ratio to squashfs-zstd.",
    );
    page.heading(3, "All figures");
    draw_rows(page, app, table::COLD, table::cold);
    if app.has_bounds() {
        draw_rows(page, app, table::BOUND, table::bound);
    }
    draw_rows(page, app, table::WARM, table::warm);
    draw_rows(page, app, table::SIZES, table::sizes);
    if app.has_walks() {
        draw_rows(page, app, table::WALKS, table::walks);
    }
    page.note(
        "Medians with their ranges, and ratios to the directory's median with intervals of 95 %. Gone is the \
         share of the avoidable time that a cold launch saves: (directory cold - this) / (directory cold - \
         directory warm), in the same rounds.",
    );
    if app.has_bounds() {
        page.note(OF_BOUND);
    }
    draw_sizes(page, app);
    if let Some(timeline) = &app.timeline {
        touches::draw(page, timeline);
        for filling in app.filling.iter().chain(&app.replaying) {
            touches::draw_filling(page, timeline, filling);
        }
    }
}

fn draw_rows<const N: usize>(
    page: &mut Page,
    app: &AppResults,
    head: [&str; N],
    cells: fn(&Row) -> [String; N],
) {
    let rows: Vec<_> = app.rows.iter().map(cells).collect();
    page.table(head, &rows, false);
}

/// What the figures say in words, if there are enough of them.
fn in_words(app: &AppResults) -> Vec<String> {
    let mut words = Vec::new();
    for (of, who) in [
        (Whose::Brisk, "of brisk's"),
        (Whose::Rival, "of the other images"),
    ] {
        let rows = app.rows.iter().filter(|row| whose(row) == of);
        let rows = rows.filter_map(|row| Some((row, row.cold?)));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|(_, a), (_, b)| a.seconds.median.total_cmp(&b.seconds.median));
        let Some(((row, fastest), others)) = rows.split_first() else {
            continue;
        };
        let ratio = fastest.to_directory.map_or_else(String::new, of_directory);
        let milliseconds = |figure: &Figure| format!("{:.0} ms", figure.seconds.median * 1e3);
        let gone = row.share_gone.filter(|gone| gone.low > 0.0);
        let gone = gone.map_or_else(String::new, avoidable_time);
        let mut text = format!(
            "From cold, {} is the fastest {who}: {}{ratio}{gone}",
            row.name,
            milliseconds(fastest)
        );
        let ties = others.iter().filter(|(_, other)| is_tie(fastest, other));
        let ties = ties.map(|(row, figure)| format!("{} ({})", row.name, milliseconds(figure)));
        let ties: Vec<_> = ties.collect();
        if !ties.is_empty() {
            text += &format!("; the runs do not tell it apart from {}", listed(&ties));
        }
        words.push(text + ".");
    }
    // A replayed directory is brisk's, but it is not an image.
    let images = app.rows.iter();
    let images = images.filter(|row| !row.format.starts_with("directory"));
    if let Some(bytes) = images.clone().map(|row| row.bytes).min() {
        let smallest = images.filter(|row| (row.bytes - bytes) as f64 <= bytes as f64 * SAME_SIZE);
        let names: Vec<_> = smallest.map(|row| row.name.clone()).collect();
        words.push(format!(
            "{} {} the smallest: {} MB, {:.2} of the directory's bytes.",
            listed(&names),
            if names.len() == 1 { "is" } else { "are" },
            megabytes(bytes),
            bytes as f64 / app.tree_bytes.max(1) as f64
        ));
    }
    words
}

/// Images whose sizes differ by less than this share have the same size.
const SAME_SIZE: f64 = 0.001;

/// Times that differ by less than this share are the same.
const SAME_TIME: f64 = 0.01;

/// Whether the runs do not tell two times apart, of which the first is the shorter one.
fn is_tie(shorter: &Figure, longer: &Figure) -> bool {
    let is_near = longer.seconds.median <= shorter.seconds.median * (1.0 + SAME_TIME);
    let overlap = match (shorter.to_directory, longer.to_directory) {
        // A point says nothing about its neighbours.
        (Some(a), Some(b)) if !a.is_point() && !b.is_point() => {
            b.low <= a.value && b.value <= a.high
        }
        _ => false,
    };
    is_near || overlap
}

/// The share of the avoidable time that is gone.
fn avoidable_time(gone: Ratio) -> String {
    let [share, low, high] = [gone.value, gone.low, gone.high].map(|share| 100.0 * share);
    let mut text = format!("; {share:.0} % of the avoidable time is gone");
    if !gone.is_point() {
        text += &format!(" (95 %: {low:.0} to {high:.0})");
    }
    text
}

fn of_directory(ratio: Ratio) -> String {
    let mut text = format!(", {:.2} of the directory's time", ratio.value);
    if !ratio.is_point() {
        text += &format!(" (95 %: {:.2} to {:.2})", ratio.low, ratio.high);
    }
    text
}

/// Names in a sentence.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The runs of one kind, compared with the directory's.
fn plots_of(app: &AppResults, kind: Kind) -> Plots {
    let figure_of = |row: &Row| row.figure(kind);
    let rows = app.rows.iter().filter_map(|row| {
        let figure = figure_of(row)?;
        let ratio = figure
            .to_directory
            .map_or_else(String::new, |ratio| format!(" · {:.2}", ratio.value));
        let runs = app.runs_of(&row.name, kind);
        Some(chart::Row {
            name: row.name.clone(),
            figure: format!("{:.0} ms{ratio}", figure.seconds.median * 1e3),
            whose: whose(row),
            values: runs.map(|run| run.seconds * 1e3).collect(),
        })
    });
    let directory = app.rows.iter().find(|row| row.format == "directory");
    let of_directory = |kind| {
        let figure = directory?.figure(kind)?;
        Some(figure.seconds.median * 1e3)
    };
    Plots {
        heading: String::new(),
        rows: rows.collect(),
        lines: chart::Lines {
            reference: of_directory(kind),
            floor: match kind {
                Kind::Cold => of_directory(Kind::Warm),
                _ => None,
            },
        },
    }
}

fn draw_times(page: &mut Page, app: &AppResults, kind: Kind, heading: &str, caption: &str) {
    let Plots { rows, lines, .. } = plots_of(app, kind);
    if rows.is_empty() {
        return;
    }
    let mut caption = format!("{caption} {}", chart::marks_in_words(&rows));
    if lines.reference.is_some() {
        caption += " At the end of each line are the median and its ratio to the median of the directory, \
                    which is the dashed line.";
    }
    if lines.floor.is_some() {
        caption += " The dotted line is the median of a warm launch from the directory: the time that remains if a launch \
                    waits for no disk.";
    }
    if chart::is_log(&rows, lines) {
        caption += " The axis is logarithmic: equal steps are equal ratios.";
    }
    page.heading(3, heading);
    page.figure(&chart::box_plots(heading, &rows, lines, "ms"), &caption);
}

fn draw_sizes(page: &mut Page, app: &AppResults) {
    let Some(last) = app.file_sizes.last() else {
        return;
    };
    // One step of the axis for each power of two. Empty files come before the first.
    let log = |size: u64| match size {
        0 => 0.0,
        size => 1.0 + (size as f64).log2(),
    };
    let max = log(last.size);
    let curve = |share: &dyn Fn(&super::file_sizes::UpTo) -> f64, is_second| {
        let mut points = vec![(0.0, 0.0)];
        points.extend(
            app.file_sizes
                .iter()
                .map(|step| (log(step.size), share(step))),
        );
        Curve { points, is_second }
    };
    let (files, bytes) = (last.files.max(1) as f64, last.bytes.max(1) as f64);
    let ticks: Vec<_> = [
        (1_u64 << 10, "1K"),
        (32 << 10, "32K"),
        (1 << 20, "1M"),
        (32 << 20, "32M"),
    ]
    .into_iter()
    .map(|(size, text)| (log(size), text.to_owned()))
    .filter(|(at, _)| *at <= max)
    .collect();
    let across = Scale { ticks: &ticks, max };
    let shares = [25.0, 50.0, 75.0, 100.0].map(|share| (share, format!("{share:.0} %")));
    let down = Scale {
        ticks: &shares,
        max: 100.0,
    };
    page.heading(3, "Sizes of files");
    page.html(
        "<p class=\"keys\"><span><i class=\"k-brisk\"></i>files, in full</span>\
         <span><i class=\"k-second\"></i>their bytes, dashed</span></p>\n",
    );
    page.figure(
        &chart::curves(
            "Cumulative sizes of files",
            &[
                curve(&|step| 100.0 * step.files as f64 / files, false),
                curve(&|step| 100.0 * step.bytes as f64 / bytes, true),
            ],
            across,
            down,
        ),
        &format!(
            "What share of the {} files, and of the {} MB in them, is in files of at most this size.",
            last.files,
            megabytes(last.bytes)
        ),
    );
}

fn cannot(page: &mut Page, raws: &[Raw]) {
    let found: BTreeSet<_> = raws
        .iter()
        .flat_map(|raw| &raw.results.cannot)
        .map(|cannot| [cannot.name.clone(), cannot.reason.clone()])
        .collect();
    if !found.is_empty() {
        let rows: Vec<_> = found.into_iter().collect();
        page.heading(2, "What could not run, and why");
        page.table(["format", "reason"], &rows, true);
    }
}

fn machines(page: &mut Page, raws: &[Raw]) {
    page.heading(2, "The machine");
    let mut said = BTreeSet::new();
    for raw in raws {
        let results = &raw.results;
        let machine = &results.machine;
        let mut rows = vec![
            ("kernel", format!("Linux {}", machine.kernel)),
            (
                "processor",
                format!(
                    "{} of {}",
                    machine.processors,
                    machine
                        .processor
                        .as_deref()
                        .unwrap_or(&machine.architecture)
                ),
            ),
            (
                "disk",
                format!("{}, {}", machine.filesystem, disk_of(results)),
            ),
            ("brisk", results.brisk.clone()),
            ("tools", results.tools.join("; ")),
            (
                "settings",
                format!(
                    "{} runs, seed {}",
                    results.settings.runs, results.settings.seed
                ),
            ),
        ];
        if !results.stopped.is_empty() {
            rows.push(("stopped during the measurement", results.stopped.join(", ")));
        }
        if let Some(kib) = machine.memory_kib {
            rows.push(("memory", format!("{} MiB", kib / 1024)));
        }
        if let Some(governor) = &machine.governor {
            rows.push(("governor", governor.clone()));
        }
        for proven in &results.settings.proven {
            rows.push((
                "limit",
                format!(
                    "{}: the limit is {:.0} {}/s; before the first launch, direct reads got {:.0}",
                    proven.disk, proven.asked_per_second, proven.of, proven.got_per_second
                ),
            ));
        }
        if let Some(decoding) = &machine.squashfs_decoding {
            rows.push(("kernel's SquashFS", decoding.clone()));
        }
        if let Some(rates) = machine.disk_rates {
            rows.push(("rates of the disk", rates.to_string()));
        }
        rows.retain(|(_, text)| !text.is_empty());
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(name, text)| [name.to_owned(), text])
            .collect();
        if said.insert(rows.clone()) {
            page.note(&format!("{}, {}", raw.name, results.started));
            page.table(["", ""], &rows, true);
        }
    }
}

fn method(page: &mut Page) {
    page.heading(2, "The method");
    page.list(
        &[
            "Each repetition launches every format cold and then warm, and walks it cold if walks are measured, in \
             random order. So anything that slows the machine down for a while slows all of them.",
            "Before a cold launch, the lab proves that the files that it reads are not in memory. After a warm \
             launch, it proves that the launch read nothing from the disk, or next to nothing.",
            "The clock starts before the mount, and stops when the program is ready. The kernel mounts images \
             through a loop device with direct I/O, or squashfuse or brisk run mounts them. If a launch needs \
             the system's chroot command, it is in memory before.",
            "The bound is what brisk reaches if reading takes no time: the cold launch once more, in a new session with a \
             new mount, but with brisk, the profile, the image, the hot pack and the system's files in memory. Formats \
             that the kernel or squashfuse mounts have none.",
            "A launch counts only if the program does what it should. If it does not, the experiment ends.",
            "A ratio is the ratio of two medians. Its interval is a percentile bootstrap: both sides are drawn \
             again 10,000 times, and 95 % of these ratios are within it. With few runs it is too narrow.",
            "Hot packs are made from a profile of the launch itself, which is the best case. Rows \"trained on \
             another\" use a profile of other inputs, and brisk-wrong one of pages that the launch never \
             asks for.",
        ]
        .map(str::to_owned),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::keep;
    use serde_json::{Value, json};

    /// Invented results with this many apps, formats and runs.
    fn made_up(apps: usize, formats: usize, runs: usize) -> Value {
        let mut rng = fastrand::Rng::with_seed(1);
        let names: Vec<_> = (0..formats)
            .map(|n| match n {
                0 => "directory".to_owned(),
                1..=4 => format!("brisk-{n}"),
                _ => format!("squashfs-<{n}>"),
            })
            .collect();
        let figure = || {
            json!({
                "seconds": {"median": 1.0, "min": 0.9, "max": 1.2},
                "to_directory": {"value": 1.0, "low": 0.9, "high": 1.1},
            })
        };
        let app = |number: usize, rng: &mut fastrand::Rng| {
            let rows = names.iter().map(|name| {
                json!({
                    "name": name, "format": name, "training": null, "bytes": 123_456_789,
                    "bytes_to_squashfs_zstd": 1.0, "build_seconds": 12.5,
                    "built_by": [["mksquashfs", "/some/path/to/a/tree", "image"]],
                    "launched_by": ["chroot", "/some/path", "/usr/bin/program", "--option"],
                    "cold": figure(), "warm": figure(), "walk": figure(),
                })
            });
            let rows: Vec<_> = rows.collect();
            let mut all = Vec::new();
            for repetition in 0..runs {
                for (place, name) in names.iter().enumerate() {
                    for kind in ["cold", "warm", "walk"] {
                        all.push(json!({
                            "name": name, "repetition": repetition, "place": place, "kind": kind,
                            "seconds": rng.f64() + 0.5, "read_bytes": rng.u32(..),
                        }));
                    }
                }
            }
            let files = (0..1500).map(|n| {
                json!({"path": format!("usr/lib/python3/dist-packages/package/module_{n}.py"), "len": 60_000})
            });
            let touches =
                (0..10_000_u64).map(|n| format!("{} {} 1 {}", n % 1500, rng.u32(..15), n * 100));
            json!({
                "app": {
                    "name": format!("app <{number}>"), "tree": "/trees/app", "at": "/",
                    "command": ["/usr/bin/<program>", "--dump"], "train": [], "env": {}, "binds": [],
                    "ready": "exit", "prints": null, "prints_exactly": null, "home": "fresh",
                },
                "tree_files": 10_000, "tree_bytes": 600_000_000, "recorded": [], "rows": rows,
                "runs": all,
                "file_sizes": (0..30).map(|n| json!({"size": 1_u64 << n, "files": n * 300, "bytes": n * n * 1000})).collect::<Vec<_>>(),
                "timeline": {
                    "files": files.collect::<Vec<_>>(), "touches": touches.collect::<Vec<_>>(),
                    "left_out": 0,
                },
            })
        };
        json!({
            "brisk_lab": 1, "brisk": "0.1.0", "mksquashfs": null, "tools": ["mksquashfs 4.5.1"],
            "started": "2026-01-01T00:00:00Z",
            "machine": {
                "kernel": "6.18", "architecture": "x86_64", "processor": "<processor>",
                "processors": 2, "governor": null, "memory_kib": 1 << 20, "filesystem": "ext4",
            },
            "disk": "vda", "read_ahead": [],
            "settings": {
                "runs": runs, "seed": 1, "read_ahead_kib": 128, "bytes_per_second": null,
                "operations_per_second": null, "cold": "system",
            },
            "cannot": [{"name": "erofs-zstd", "reason": "<no> codec"}],
            "apps": (0..apps).map(|n| app(n, &mut rng)).collect::<Vec<_>>(),
        })
    }

    fn raw(value: &Value) -> Raw {
        Raw::parse(
            "raw.json".to_owned(),
            serde_json::to_vec_pretty(value).unwrap(),
        )
        .unwrap()
    }

    /// Checks that every element is closed in order, and that only allowed elements stay open.
    fn assert_well_formed(html: &str) {
        let mut open = Vec::new();
        let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap();
        while let Some(at) = rest.find('<') {
            let text = &rest[..at];
            assert!(
                !text.contains('>') || open.last() == Some(&"style"),
                "{text}"
            );
            let end = at + rest[at..].find('>').unwrap();
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else {
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                let name = tag.split([' ', '\n', '/']).next().unwrap();
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert_eq!(open, [""; 0]);
    }

    #[test]
    fn a_page_of_twelve_formats_and_four_apps_is_small_and_well_formed() {
        let html = page(&[raw(&made_up(4, 12, 10))], &[]);
        assert!(html.len() < 5_000_000, "{} bytes", html.len());
        assert_well_formed(&html);
        // The page fetches nothing, and nothing from outside becomes markup.
        for absent in [
            "http:",
            "https:",
            "<script",
            "src=",
            "<no>",
            "<program>",
            "NaN",
        ] {
            assert!(!html.contains(absent), "{absent}");
        }
        assert!(html.contains("&lt;no&gt; codec") && html.contains("app &lt;3&gt;"));
        // A dot for each run.
        assert_eq!(html.matches("<circle").count(), 4 * 12 * 10 * 3);
        let link = "<a download=\"raw.json\" href=\"data:application/json;base64,";
        assert_eq!(html.matches(link).count(), 1);
        assert_eq!(html.matches("<h3>What is read, in order</h3>").count(), 4);
    }

    #[test]
    fn results_of_several_files_are_told_apart() {
        let fast = made_up(1, 3, 1);
        let mut slow = fast.clone();
        slow["settings"]["bytes_per_second"] = json!(200_000_000);
        // Like older results, without the fields that came later.
        let fields = slow.as_object_mut().unwrap();
        fields.remove("cannot");
        fields.remove("tools");
        let app = slow["apps"][0].as_object_mut().unwrap();
        app.remove("file_sizes");
        app.remove("timeline");
        let html = page(&[raw(&fast), raw(&slow)], &[]);
        assert_well_formed(&html);
        assert!(html.contains(">app &lt;0&gt;, vda, read-ahead 128 KiB</h2>"));
        assert!(html.contains("at most 200.0 MB/s</h2>"), "{html}");
        assert_eq!(html.matches("<nav>").count(), 1);
    }

    #[test]
    fn tables_and_pictures_are_of_the_formats_that_are_asked_for() {
        let mut results = made_up(1, 6, 2);
        let rates = json!({"bytes_per_second": 1_500_000_000u64, "operations_per_second": 20_000});
        results["machine"]["disk_rates"] = rates;
        results["machine"]["squashfs_decoding"] = json!("one decoder");
        // For two rounds: cold and warm from the directory, and the row that is looked at.
        set_seconds(&mut results, "directory", [[10.0, 6.0], [10.0, 6.0]]);
        set_seconds(&mut results, "squashfs-<5>", [[6.0, 6.0], [8.0, 6.0]]);
        let mut raws = [raw(&results)];
        let formats = ["directory", "squashfs-<5>"].map(str::to_owned);
        keep(&mut raws, &formats).unwrap();
        assert_eq!(
            markdown(&raws),
            "| app &lt;0&gt;, 600.0 MB | cold ms (from-to) | /directory (95 %) | gone % (95 %) | warm ms (from-to) | \
             /directory (95 %) | cached MB | size MB | /squashfs-zstd |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n\
             | directory | **1000 (900-1200)** | 1.00 (0.90-1.10) | - | 1000 (900-1200) | \
             1.00 (0.90-1.10) | - | 123.5 | 1.00 |\n\
             | squashfs-&lt;5&gt; | **1000 (900-1200)** | 1.00 (0.90-1.10) | 75 (50 to 100) | \
             1000 (900-1200) | 1.00 (0.90-1.10) | - | 123.5 | 1.00 |\n\n\
             10000 files, 600.0 MB; images on ext4 (vda, read-ahead 128 KiB); the kernel decodes SquashFS \
             with one decoder; the disk gives 1500 MB/s and 20000 random reads/s; 2 runs of each in turns, \
             with an empty home directory.\n"
        );
        let svg = picture(&raws);
        assert_well_formed(&format!("<!DOCTYPE html>{svg}"));
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\""));
        assert_eq!(svg.matches("<circle").count(), 2 * 2);
        assert!(svg.contains("app &lt;0&gt;: cold launch") && !svg.contains("brisk-1"));
        let e = keep(&mut raws, &["brisk-9".to_owned()]).unwrap_err();
        let expected = "--formats: found \"brisk-9\", the runs have directory, squashfs-<5>, each of which may \
                        have /same or /another behind it, where they have such a profile";
        assert_eq!(e.to_string(), expected);
    }

    /// Sets the cold and warm times of each round of a row.
    fn set_seconds(results: &mut Value, name: &str, rounds: [[f64; 2]; 2]) {
        for run in results["apps"][0]["runs"].as_array_mut().unwrap() {
            let round = run["repetition"].as_u64().unwrap();
            let [cold, warm] = rounds[usize::try_from(round).unwrap()];
            match run["kind"].as_str() {
                Some("cold") if run["name"] == name => run["seconds"] = json!(cold),
                Some("warm") if run["name"] == name => run["seconds"] = json!(warm),
                _ => {}
            }
        }
    }

    #[test]
    fn the_bound_is_shown_where_it_was_measured() {
        let mut results = made_up(1, 3, 2);
        set_seconds(&mut results, "directory", [[10.0, 6.0], [10.0, 6.0]]);
        set_seconds(&mut results, "brisk-1", [[6.0, 6.0], [8.0, 6.0]]);
        let page_of = |results: &Value| page(&[raw(results)], &[]);
        // Like older results.
        assert!(!table::of(&raw(&results).results).contains("bound"));
        assert!(!page_of(&results).contains("bound ms"));
        let app = &mut results["apps"][0];
        app["rows"][1]["resident"] = json!({
            "seconds": {"median": 5.0, "min": 5.0, "max": 5.0}, "to_directory": null,
        });
        let runs = app["runs"].as_array_mut().unwrap();
        for repetition in 0..2 {
            runs.push(json!({
                "name": "brisk-1", "repetition": repetition, "place": 1, "kind": "resident", "seconds": 5.0,
                "read_bytes": 0, "attempt": 1,
            }));
        }
        let raw = raw(&results);
        let markdown = table::markdown(&raw.results);
        let lines: Vec<_> = markdown.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "| app &lt;0&gt;, 600.0 MB | cold ms (from-to) | /directory (95 %) | gone % (95 %) | \
                 bound ms (from-to) | of bound % (95 %) | warm ms (from-to) | /directory (95 %) | cached MB | \
                 size MB | /squashfs-zstd |",
                "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
                "| directory | **1000 (900-1200)** | 1.00 (0.90-1.10) | - | - | - | 1000 (900-1200) | \
                 1.00 (0.90-1.10) | - | 123.5 | 1.00 |",
                // In the first round, (10 - 6) of (10 - 5); in the second, (10 - 8).
                "| brisk-1 | **1000 (900-1200)** | 1.00 (0.90-1.10) | 75 (50 to 100) | 5000 (5000-5000) | \
                 60 (40 to 80) | 1000 (900-1200) | 1.00 (0.90-1.10) | - | 123.5 | 1.00 |",
            ]
        );
        let short = summary(std::slice::from_ref(&raw)).unwrap();
        assert!(
            short.contains("| 1.00 (0.90-1.10), 75 %, 60 % of bound |"),
            "{short}"
        );
        assert!(short.contains(OF_BOUND), "{short}");
        let text = table::of(&raw.results);
        assert!(text.contains("  5000 (5000-5000)  "), "{text}");
        let html = page_of(&results);
        assert_well_formed(&html);
        assert!(html.contains("<td>60 (40 to 80)</td>"), "{html}");
        assert!(html.contains(">Bound</h3>"), "{html}");
    }

    #[test]
    fn a_summary_has_a_row_for_each_program() {
        let mut fast = made_up(1, 6, 2);
        fast["machine"]["disk_rates"] =
            json!({ "bytes_per_second": 1_500_000_000, "operations_per_second": 20_000 });
        let trained = &mut fast["apps"][0]["rows"][1];
        (trained["format"], trained["training"]) = (json!("brisk-speed"), json!("same"));
        trained["name"] = json!("brisk-speed");
        let trained = &mut fast["apps"][0]["rows"][2];
        (trained["format"], trained["training"]) = (json!("brisk-speed"), json!("another"));
        trained["name"] = json!("brisk-speed, trained on another");
        for run in fast["apps"][0]["runs"].as_array_mut().unwrap() {
            if run["name"] == "brisk-2" {
                run["name"] = json!("brisk-speed, trained on another");
            }
        }
        set_seconds(&mut fast, "directory", [[10.0, 5.0]; 2]);
        let another = "brisk-speed, trained on another";
        set_seconds(&mut fast, another, [[6.0, 5.0]; 2]);
        let mut slow = fast.clone();
        slow["settings"]["operations_per_second"] = json!(2000);
        slow["apps"][0]["rows"].as_array_mut().unwrap().remove(2);
        let mut raws = [raw(&fast), raw(&slow)];
        let formats = ["directory", "squashfs-<5>", "brisk-speed/another"].map(str::to_owned);
        keep(&mut raws, &formats).unwrap();
        assert_eq!(
            summary(&raws).unwrap().lines().take(4).collect::<Vec<_>>(),
            [
                "| cold launch | directory ms | warm | brisk-speed, trained on another | squashfs-&lt;5&gt; |",
                "| --- | ---: | ---: | ---: | ---: |",
                &format!(
                    "| app &lt;0&gt; | 1000 | 1.00 | 1.00 (0.90-1.10), 80 % | {} |",
                    cell_of(&raws[0], "squashfs-<5>")
                ),
                &format!(
                    "| app &lt;0&gt;, at most 2000 reads/s | 1000 | 1.00 | - | {} |",
                    cell_of(&raws[1], "squashfs-<5>")
                ),
            ]
        );
        let caption = |raws: &[Raw]| {
            let text = summary(raws).unwrap();
            let (_, said) = text.trim_end().rsplit_once("directory warm). ").unwrap();
            said.rsplit_once("; the disk").unwrap().1.to_owned()
        };
        assert_eq!(
            caption(&raws),
            " gives 1500 MB/s and 20000 random reads/s; 2 runs of each in turns."
        );
        let mut faster = fast.clone();
        faster["machine"]["disk_rates"]["bytes_per_second"] = json!(2_000_000_000_u64);
        faster["settings"]["runs"] = json!(3);
        assert_eq!(
            caption(&[raw(&fast), raw(&faster)]),
            " gives 1500 to 2000 MB/s and 20000 random reads/s; 2 or 2 of 3 runs of each in turns."
        );
        faster["machine"]["disk_rates"] = Value::Null;
        assert_eq!(
            caption(&[raw(&fast), raw(&faster)]),
            "&#39;s rates are not recorded for all; 2 or 2 of 3 runs of each in turns."
        );
        let many: Vec<_> = (0..17).map(|_| raw(&fast)).collect();
        assert_eq!(
            summary(&many).unwrap_err().to_string(),
            "--summary: found 17 programs, allowed are 16: name fewer files"
        );
    }

    fn cell_of(raw: &Raw, name: &str) -> String {
        let mut rows = raw.results.apps[0].rows.iter();
        table::ratio_and_gone(rows.find(|row| row.name == name).unwrap())
    }

    #[test]
    fn a_directory_that_is_replayed_is_no_smallest_image() {
        let words = |formats: [&str; 3]| {
            let mut results = made_up(1, 3, 1);
            for (number, format) in formats.into_iter().enumerate() {
                let row = &mut results["apps"][0]["rows"][number];
                (row["format"], row["bytes"]) = (json!(format), json!(20_000_000 * (number + 1)));
                row["name"] = json!(format);
            }
            in_words(&raw(&results).results.apps[0])
        };
        let smallest = |words: &[String]| {
            let mut found = words
                .iter()
                .filter(|text| text.contains(" is the smallest: "));
            found.next().cloned()
        };
        let found = smallest(&words(["directory", "directory-replay", "brisk"]));
        let expected = "brisk is the smallest: 60.0 MB, 0.10 of the directory's bytes.";
        assert_eq!(found.as_deref(), Some(expected));
        let none = words(["directory", "directory-replay", "directory-replay-wrong"]);
        assert_eq!(smallest(&none), None);
    }

    #[test]
    fn ties_are_told_as_ties() {
        let mut results = made_up(1, 4, 1);
        let figure = |median: f64, low: f64, high: f64| {
            json!({
                "seconds": {"median": median, "min": median, "max": median},
                "to_directory": {"value": median, "low": low, "high": high},
            })
        };
        for (number, (format, bytes, cold)) in [
            ("directory", 500_000_000, figure(1.0, 1.0, 1.0)),
            ("brisk-speed", 139_004_096, figure(0.5, 0.45, 0.55)),
            ("directory-replay", 500_000_000, figure(0.53, 0.48, 0.56)),
            ("squashfs-zstd", 139_000_000, figure(1.2, 1.2, 1.2)),
        ]
        .into_iter()
        .enumerate()
        {
            let row = &mut results["apps"][0]["rows"][number];
            (row["format"], row["name"]) = (json!(format), json!(format));
            (row["bytes"], row["cold"]) = (json!(bytes), cold);
        }
        let words = |results: &Value| in_words(&raw(results).results.apps[0]);
        assert_eq!(
            words(&results),
            [
                "From cold, brisk-speed is the fastest of brisk's: 500 ms, 0.50 of the directory's time (95 %: 0.45 to \
                 0.55); the runs do not tell it apart from directory-replay (530 ms).",
                "From cold, squashfs-zstd is the fastest of the other images: 1200 ms, 1.20 of the directory's time.",
                "brisk-speed and squashfs-zstd are the smallest: 139.0 MB, 0.23 of the directory's bytes.",
            ]
        );
        results["apps"][0]["rows"][2]["cold"] = figure(0.57, 0.56, 0.58);
        results["apps"][0]["rows"][1]["bytes"] = json!(138_000_000);
        let words = words(&results);
        assert!(words[0].ends_with("(95 %: 0.45 to 0.55)."), "{words:?}");
        assert!(
            words[2].starts_with("brisk-speed is the smallest: 138.0 MB"),
            "{words:?}"
        );
        let mut raw = raw(&results);
        let mut first = |low| {
            let (value, high) = (0.7, 0.8);
            raw.results.apps[0].rows[1].share_gone = Some(Ratio { value, low, high });
            in_words(&raw.results.apps[0]).swap_remove(0)
        };
        let gone = first(0.6);
        assert!(
            gone.ends_with("; 70 % of the avoidable time is gone (95 %: 60 to 80)."),
            "{gone}"
        );
        let gone = first(-0.1);
        assert!(!gone.contains("gone"), "{gone}");
        // One run has no interval, in the table either.
        results["apps"][0]["reach"] =
            json!({"cached_bytes": 33_000_000, "of_tree_bytes": 3_900_000});
        let raw = self::raw(&results);
        let table = table::of(&raw.results);
        assert!(
            table.contains("\nA cold start reads 33.0 MB, of which 3.9 MB lie in this tree.\n"),
            "{table}"
        );
        assert!(
            table.lines().all(|line| line.chars().count() <= 100),
            "{table}"
        );
        let words = table.replace('\n', " ");
        assert!(words.contains("; 1 run of each in turns"), "{table}");
        assert!(
            table.contains(" 1.20 ") && !table.contains("(1.20-1.20)"),
            "{table}"
        );
    }

    #[test]
    fn the_warm_launch_is_the_floor_of_cold_ones() {
        let html = page(&[raw(&made_up(1, 2, 3))], &[]);
        let (_, cold) = html.split_once(">Cold launch</h3>").unwrap();
        let (cold, warm) = cold.split_once(">Warm launch</h3>").unwrap();
        let lines = |html: &str| html.matches("<line class=\"floor\"").count();
        assert_eq!((lines(cold), lines(warm)), (1, 0));
        assert!(cold.contains("The dotted line is "), "{cold}");
    }

    #[test]
    fn few_runs_are_dots_without_a_box() {
        for (runs, boxes) in [(5, 0), (6, 2)] {
            let html = page(&[raw(&made_up(1, 2, runs))], &[]);
            let cold = html.split_once(">Cold launch</h3>").unwrap().1;
            let cold = cold.split_once(">Warm launch</h3>").unwrap().0;
            assert_eq!(cold.matches("class=\"box ").count(), boxes, "{runs} runs");
            assert_eq!(cold.matches("<circle").count(), 2 * runs);
            assert_eq!(cold.contains("The box holds"), boxes > 0);
            // A median's gap is for boxes: it would take a dot away.
            assert_eq!(
                cold.matches("class=\"median\"").count(),
                boxes,
                "{runs} runs"
            );
        }
    }

    #[test]
    fn an_interrupted_experiment_has_the_runs_it_has() {
        let mut interrupted = made_up(1, 2, 3);
        let html = page(&[raw(&interrupted)], &[]);
        assert!(html.contains("; 3 runs of each in turns"), "{html}");
        interrupted["settings"]["runs"] = json!(10);
        let raw = raw(&interrupted);
        let table = table::of(&raw.results);
        let words = table.replace('\n', " ");
        assert!(words.contains("; 3 of 10 runs of each in turns"), "{table}");
        let html = page(&[raw], &[]);
        assert!(html.contains("; 3 of 10 runs of each in turns"), "{html}");
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let refusal = |text: &[u8]| {
            let e = Raw::parse("x".to_owned(), text.to_vec()).err().unwrap();
            format!("{e:#}")
        };
        let said = refusal(b"{\n  \"brisk_lab\": 1,\n  x");
        let expected =
            "this is not a raw.json of brisk lab launch: key must be a string at line 3 column 3";
        assert_eq!(said, expected);
        let mut newer = made_up(0, 1, 1);
        newer["brisk_lab"] = json!(2);
        let said = refusal(&serde_json::to_vec(&newer).unwrap());
        assert_eq!(
            said,
            "field brisk_lab: found 2, allowed is 1: a newer brisk wrote it"
        );
    }

    #[test]
    fn a_page_is_made_without_the_neighbours_that_cannot_be_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join("load.json"),
            "{\"brisk_lab_load\": 2}",
        )
        .unwrap();
        std::fs::write(directory.path().join("raw.json"), "{").unwrap();
        write_in(directory.path()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
        assert!(page.starts_with("<!"), "{page}");
    }
}
