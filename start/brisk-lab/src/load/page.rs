//! Results as a part of a page with pictures.

use anyhow::{Context, Result, ensure};
use brisk_terminal::page::Page;

use super::super::answers::Answer;
use super::answers;
use super::case::{State, Way};
use super::peers;
use super::results::LoadResults;
use super::text::{self, HEAD, LEGEND};
use brisk::page::chart::{self, Whose};

/// Reads what `brisk lab load` has written.
pub fn parse(text: &[u8]) -> Result<LoadResults> {
    let results: LoadResults =
        serde_json::from_slice(text).context("this is not a load.json of brisk lab load")?;
    ensure!(
        results.brisk_lab_load == 1,
        "field brisk_lab_load: found {}, allowed is 1: a newer brisk wrote it",
        results.brisk_lab_load
    );
    Ok(results)
}

/// Whether `brisk lab load` has written this, in any version.
pub fn is_of_load(text: &serde_json::Value) -> bool {
    text.get("brisk_lab_load").is_some()
}

/// Draws all results.
pub fn draw(page: &mut Page, results: &LoadResults) {
    page.anchor(2, "load", "Loading a large file");
    page.note(&text::conditions(results));
    for Answer {
        question,
        sentences,
    } in answers::of(results)
    {
        page.heading(3, question);
        page.list(&sentences);
    }
    for (number, case) in results.cases.iter().enumerate() {
        if results.is_base(case) {
            draw_case(page, results, number);
        }
    }
    page.heading(3, "All cases of loading");
    page.note(LEGEND);
    for (number, case) in results.cases.iter().enumerate() {
        let rows = results.rows(number);
        if rows.is_empty() {
            continue;
        }
        page.paragraph(&case.to_string());
        let rows: Vec<_> = rows.iter().map(text::cells).collect();
        page.table(HEAD, &rows, false);
    }
    if !results.peers.compared.is_empty() {
        page.heading(3, "Beside fio");
        let rows = results.peers.compared.iter().map(peers::Compared::cells);
        page.note(peers::NOTE);
        page.table(peers::HEAD, &rows.collect::<Vec<_>>(), false);
    }
    let counted = results.peers.counted.iter().map(peers::Counted::words);
    page.list(&counted.chain(text::remarks(results)).collect::<Vec<_>>());
    let left_out = results.left_out.iter().chain(&results.peers.missing);
    let left_out: Vec<_> = left_out
        .map(|left| [left.what.clone(), left.reason.clone()])
        .collect();
    if !left_out.is_empty() {
        page.heading(3, "Which cases of loading are left out, and why");
        page.table(["", "reason"], &left_out, true);
    }
}

/// Times to the exit, one line for each way.
fn draw_case(page: &mut Page, results: &LoadResults, number: usize) {
    let case = &results.cases[number];
    let rows = results.rows(number).into_iter().map(|row| {
        let values = results.values(number, row.way, |run| run.exit_seconds * 1e3);
        let [name, ..] = text::cells(&row);
        chart::Row {
            name,
            figure: format!("{:.2} ms", row.exit.median * 1e3),
            whose: match row.way {
                Way::Chosen => Whose::Brisk,
                Way::Nothing => Whose::Own,
                Way::As(_) => Whose::Rival,
            },
            values,
        }
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let what = match case.state {
        State::Cold => "with no page in memory before",
        State::Warm => "with every page in memory before",
    };
    let mut caption = format!(
        "Time from the start of loading until the parent has seen the process end, {what}. {}",
        chart::marks_in_words(&rows)
    );
    if chart::is_log(&rows, chart::Lines::default()) {
        caption += " The axis is logarithmic: equal steps are equal ratios.";
    }
    page.heading(3, &case.to_string());
    page.figure(
        &chart::box_plots(&case.to_string(), &rows, chart::Lines::default(), "ms"),
        &caption,
    );
}
