//! Rows as a table for people.

use crate::{Row, Spread};

/// A Markdown table of `rows`.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| figure | on | page cache | peer: median (min-max) | ours: median (min-max) \
         | ratio (95 %) | goal | reached |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
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
        text += &format!(
            "| {} | {} | {} | {} {} | {} {} | {:.3} ({:.3}-{:.3}) | {goal} | {reached} |\n",
            row.figure,
            row.subject,
            row.state,
            row.peer,
            shown(&row.theirs, row.unit),
            row.contender,
            shown(&row.ours, row.unit),
            row.ratio.value,
            row.ratio.low,
            row.ratio.high,
        );
    }
    text.pop();
    text
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
