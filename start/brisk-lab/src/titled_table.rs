//! Tables with a title, in plain text, in Markdown and on the page, and the numbers in them.

use brisk_terminal::page::Page;

use super::load::answers::{digits_of, interval};
use super::statistics::{Ratio, Spread};
use super::table::{columns, markdown_line};

/// Lines of cells with a title.
pub struct Table<const N: usize> {
    pub title: String,
    pub head: [&'static str; N],
    pub rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// With columns of equal width.
    pub fn plain(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut lines = vec![self.head.map(str::to_owned)];
        lines.extend_from_slice(&self.rows);
        format!("\n{}\n{}", self.title, columns(&lines))
    }

    /// The title stands above the names of the rows.
    pub fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut head = self.head.map(str::to_owned).to_vec();
        let mut rule = vec!["---:".to_owned(); N];
        if let (Some(title), Some(left)) = (head.first_mut(), rule.first_mut()) {
            title.clone_from(&self.title);
            "---".clone_into(left);
        }
        let rows = self.rows.iter().map(|row| row.to_vec());
        let lines = [head, rule].into_iter().chain(rows);
        lines.map(markdown_line).collect::<String>() + "\n"
    }

    /// Puts the second cell of the row with the least of these numbers, one for each row, in bold Markdown.
    pub fn embolden_least(&mut self, numbers: impl Iterator<Item = f64>) {
        let least = numbers.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let row = least.and_then(|(number, _)| self.rows.get_mut(number));
        if let Some(cell) = row.and_then(|row| row.get_mut(1)) {
            *cell = format!("**{cell}**");
        }
    }

    /// On the page.
    pub fn draw(&self, page: &mut Page) {
        if !self.rows.is_empty() {
            page.heading(3, &self.title);
            page.table(self.head, &self.rows, false);
        }
    }
}

/// Whether a goal is reached.
pub fn verdict(is_reached: bool) -> String {
    match is_reached {
        true => "yes".to_owned(),
        false => "no".to_owned(),
    }
}

/// A row of goals: a ratio, which is to be at most so much.
pub fn at_most(what: String, ratio: Ratio, goal: f64) -> [String; 4] {
    [
        what,
        format!("<= {goal}"),
        interval(ratio),
        verdict(ratio.value <= goal),
    ]
}

/// A number with as many digits as say something.
pub fn number(value: f64) -> String {
    let digits = digits_of(value);
    format!("{value:.digits$}")
}

/// How often something is done in one operation.
pub fn counted(count: Option<f64>) -> String {
    match count {
        None => "-".to_owned(),
        Some(count) if count.fract() == 0.0 => format!("{count:.0}"),
        Some(count) => format!("{count:.2}"),
    }
}

/// Bytes, with the range.
pub fn bytes(values: &[f64]) -> String {
    Spread::of(values).map_or("-".to_owned(), |Spread { median, min, max }| {
        format!("{median:.0} ({min:.0}-{max:.0})")
    })
}
