use super::Surroundings;
use super::found::Found;

/// The proxy of go: the first URL of `GOPROXY`, or of what go says it is.
pub fn find(surroundings: &Surroundings) -> Option<Found> {
    let (list, place) = match surroundings.variable("GOPROXY") {
        Some(list) => (list.to_owned(), "GOPROXY"),
        None => (
            surroundings.ask("go", &["env", "GOPROXY"])?,
            "go env GOPROXY",
        ),
    };
    let mut entries = list.split([',', '|']).map(str::trim);
    let url =
        entries.find(|entry| entry.starts_with("http://") || entry.starts_with("https://"))?;
    Some(Found::new(url, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_first_url_counts() {
        for (list, expected) in [
            ("https://a.example,direct", Some("https://a.example")),
            ("off", None),
            (
                "direct|http://b.example/x,https://c",
                Some("http://b.example/x"),
            ),
            ("file:///x", None),
        ] {
            let surroundings = Surroundings::of_test(Path::new("/none"), &[("GOPROXY", list)]);
            let found = find(&surroundings).map(|found| found.url);
            assert_eq!(found.as_deref(), expected, "{list}");
        }
    }
}
