//! Tables with a title, in plain text, in Markdown and on a page, and the numbers in them.

use brisk_lab::{Ratio, Spread, columns, digits_of, interval, markdown_line};
use brisk_terminal::page::Page;

/// Lines of cells with a title.
pub(crate) struct Table<const N: usize> {
    pub(crate) title: String,
    pub(crate) head: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
    /// The row whose figure, the second cell, is the best.
    pub(crate) best: Option<usize>,
}

/// A table of any width.
pub(crate) trait Shown {
    /// What it is about.
    fn title(&self) -> &str;

    /// With columns of equal width.
    fn plain(&self) -> String;

    /// In Markdown. The title stands above the names of the rows, and the best figure is in bold.
    fn markdown(&self) -> String;

    /// On a page, without its title.
    fn draw(&self, page: &mut Page);

    /// Whether it says nothing.
    fn is_empty(&self) -> bool;
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(title: String, head: [&'static str; N], rows: Vec<[String; N]>) -> Self {
        Self {
            title,
            head,
            rows,
            best: None,
        }
    }
}

impl<const N: usize> Shown for Table<N> {
    fn title(&self) -> &str {
        &self.title
    }

    fn plain(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut lines = vec![self.head.map(str::to_owned)];
        lines.extend_from_slice(&self.rows);
        format!("\n{}\n{}", self.title, columns(&lines))
    }

    fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut head = self.head.map(str::to_owned).to_vec();
        let mut rule = vec!["---:".to_owned(); N];
        if let (Some(title), Some(left)) = (head.first_mut(), rule.first_mut()) {
            title.clone_from(&self.title);
            "---".clone_into(left);
        }
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let mut row = row.to_vec();
            if let (true, Some(cell)) = (self.best == Some(number), row.get_mut(1)) {
                *cell = format!("**{cell}**");
            }
            row
        });
        let lines = [head, rule].into_iter().chain(rows);
        lines.map(markdown_line).collect::<String>() + "\n"
    }

    fn draw(&self, page: &mut Page) {
        page.table(self.head, &self.rows, false);
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A figure of all contenders.
pub(crate) struct Group {
    pub(crate) table: Box<dyn Shown>,
    pub(crate) unit: &'static str,
    /// The runs of each contender, in that unit.
    pub(crate) rows: Vec<(String, Vec<f64>)>,
}

/// The number of the row with the least median, or with the largest.
pub(crate) fn best_of(rows: &[(String, Vec<f64>)], largest: bool) -> Option<usize> {
    let medians = rows.iter().map(|(_, values)| {
        let median = Spread::of(values).map_or(f64::INFINITY, |spread| spread.median);
        if largest { -median } else { median }
    });
    let least = medians.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(row, _)| row)
}

/// The goals of an experiment, and what was reached.
pub(crate) fn goals(rows: Vec<[String; 4]>) -> Table<4> {
    let head = ["", "goal", "reached (95 %)", ""];
    Table::new("What brisk is to reach".to_owned(), head, rows)
}

/// Whether a goal is reached.
pub(crate) fn verdict(is_reached: bool) -> String {
    match is_reached {
        true => "yes".to_owned(),
        false => "no".to_owned(),
    }
}

/// A row of goals: a ratio, which is to be at most so much.
pub(crate) fn at_most(what: String, ratio: Ratio, goal: f64) -> [String; 4] {
    [
        what,
        format!("<= {goal}"),
        interval(ratio),
        verdict(ratio.value <= goal),
    ]
}

/// A number with as many digits as say something.
pub(crate) fn number(value: f64) -> String {
    let digits = digits_of(value);
    format!("{value:.digits$}")
}

/// A median in a unit, with the range.
pub(crate) fn median_of(values: &[f64], unit: &str) -> String {
    Spread::of(values).map_or(String::new(), |Spread { median, min, max }| {
        format!(
            "{} ({}-{}) {unit}",
            number(median),
            number(min),
            number(max)
        )
    })
}

/// How often something is done in one operation.
pub(crate) fn counted(count: Option<f64>) -> String {
    match count {
        None => "-".to_owned(),
        Some(count) if count.fract() == 0.0 => format!("{count:.0}"),
        Some(count) => format!("{count:.2}"),
    }
}

/// Bytes, with the range.
pub(crate) fn bytes(values: &[f64]) -> String {
    Spread::of(values).map_or("-".to_owned(), |Spread { median, min, max }| {
        format!("{median:.0} ({min:.0}-{max:.0})")
    })
}
