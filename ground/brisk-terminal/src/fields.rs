//! What is known of one thing, on lines with a name and a text.

use std::fmt::Display;
use std::io::{self, Write};

use crate::names::printable;

/// Writes such lines, with all texts in one column. A terminal obeys nothing in them.
pub struct Fields<'a, W> {
    out: &'a mut W,
    width: usize,
}

impl<'a, W: Write> Fields<'a, W> {
    /// Names take `width` characters.
    pub fn new(out: &'a mut W, width: usize) -> Self {
        Self { out, width }
    }

    /// Writes a line with a name and a text.
    pub fn add(&mut self, name: &str, text: impl Display) -> io::Result<()> {
        let width = self.width;
        self.line(format_args!("  {name:<width$}{text}"))
    }

    /// Writes a line as it is.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        let line = text.to_string();
        writeln!(self.out, "{}", printable(line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_in_one_column() {
        let mut out = Vec::new();
        let mut fields = Fields::new(&mut out, 8);
        fields.add("codec", "zstd").unwrap();
        fields.add("place", "\u{1b}[2J").unwrap();
        fields.add("recipe", "").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  codec   zstd\n  place   \\u{1b}[2J\n  recipe\n"
        );
    }
}
