//! Lines of cells, and the numbers in them.

use std::fmt::Write;

use brisk_terminal::page::escaped;

use super::statistics::Ratio;

/// Lines of cells in columns. The first column is left-aligned, the others are right-aligned.
pub fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let mut text = String::new();
    let width = |column: usize| {
        let len = |line: &[String; N]| line[column].chars().count();
        lines.iter().map(len).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..N).map(width).collect();
    for line in lines {
        let mut row = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            // Writing to a string cannot fail.
            let written = write!(row, "  {cell:>width$}");
            debug_assert!(written.is_ok());
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// A line of a table in Markdown.
pub fn markdown_line(cells: Vec<String>) -> String {
    let cells = cells.iter().map(|cell| escaped_text(cell));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// `text` without characters that would be markup or end a cell.
pub fn escaped_text(text: &str) -> String {
    escaped(text).replace('|', "&#124;")
}

/// A ratio with its interval.
pub fn interval(ratio: Ratio) -> String {
    let Ratio { value, low, high } = ratio;
    let digits = digits_of(value);
    format!("{value:.digits$} (95 %: {low:.digits$} to {high:.digits$})")
}

/// How many decimals to show of a ratio. A small one needs more.
pub fn digits_of(ratio: f64) -> usize {
    if ratio < 0.1 { 4 } else { 2 }
}

pub fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
