//! Files of settings in sections, as pip and npm have them.

use configparser::ini::{Ini, IniDefault};

/// What a value is, where its line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// It goes on in the lines below that are indented further, as Python's `configparser` reads pip's files.
    OfLines,
    /// It ends, as in npm's files.
    OfOneLine,
}

/// The settings of a file, by section and name as they are written. Those before all sections are in "".
pub fn parse(text: &str, values: Values) -> anyhow::Result<Ini> {
    let mut form = IniDefault::default();
    form.default_section = String::new();
    form.case_sensitive = true;
    // A URL may have a #.
    form.enable_inline_comments = false;
    form.multiline = values == Values::OfLines;
    let mut ini = Ini::new_from_defaults(form);
    ini.read(text.to_owned()).map_err(anyhow::Error::msg)?;
    Ok(ini)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_sections() {
        let text = "a = 0\n[x]\n# a = 1\na = https://b:1/#%(c)s ; d\n e : f\n\n; g\n\th\nA: 'c'\n[ y ]\na=\n";
        let of_python = parse(text, Values::OfLines).unwrap();
        let of_npm = parse(text, Values::OfOneLine).unwrap();
        for ini in [&of_python, &of_npm] {
            assert_eq!(ini.get("", "a").as_deref(), Some("0"));
            assert_eq!(ini.get("x", "A").as_deref(), Some("'c'"));
            assert_eq!(ini.get("y", "a").as_deref(), Some(""));
        }
        let long = "https://b:1/#%(c)s ; d\ne : f\n\nh";
        assert_eq!(of_python.get("x", "a").as_deref(), Some(long));
        assert_eq!(of_python.get("x", "e"), None);
        assert_eq!(
            of_npm.get("x", "a").as_deref(),
            Some("https://b:1/#%(c)s ; d")
        );
        assert_eq!(of_npm.get("x", "e").as_deref(), Some("f"));
        let wrong = parse("a=b\n[x\n", Values::OfLines).unwrap_err();
        assert!(wrong.to_string().starts_with("line 2: "), "{wrong}");
    }
}
