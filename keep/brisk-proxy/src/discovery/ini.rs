//! Files of settings in sections, as pip and npm have them.

/// The value of the last setting in a section that has one of these names. Settings before all sections are in "".
pub fn value<'t>(text: &'t str, section: &str, names: &[&str]) -> Option<&'t str> {
    let mut current = "";
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            current = name.trim();
            continue;
        }
        let Some((name, value)) = line.split_once(['=', ':']) else {
            continue;
        };
        if current == section && names.contains(&name.trim()) {
            found = Some(unquoted(value.trim()));
        }
    }
    found.filter(|value| !value.is_empty())
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_sections() {
        let text = "a = 0\n[x]\n# a = 1\na = https://b:1/\n a: 'c'\n[ y ]\na=\n";
        assert_eq!(value(text, "", &["a"]), Some("0"));
        assert_eq!(value(text, "x", &["b", "a"]), Some("c"));
        assert_eq!(value(text, "y", &["a"]), None);
        assert_eq!(
            value("[x]\na = https://b:1/", "x", &["a"]),
            Some("https://b:1/")
        );
    }
}
