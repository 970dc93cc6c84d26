use std::fmt;

/// The name of a project as indexes know it: lower case, with single dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

/// A text that is no name of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectNameError(String);

impl fmt::Display for ProjectNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no name of a project: a name has ASCII letters and digits, with -, _ or . between them",
            self.0
        )
    }
}

impl std::error::Error for ProjectNameError {}

impl ProjectName {
    /// The normalised form of a name (PEP 503).
    ///
    /// # Errors
    ///
    /// If the text is no name.
    pub fn parse(name: &str) -> Result<Self, ProjectNameError> {
        let separates = |b: Option<u8>| b.is_none_or(|b| !b.is_ascii_alphanumeric());
        let valid = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !valid || separates(name.bytes().next()) || separates(name.bytes().next_back()) {
            return Err(ProjectNameError(name.chars().take(100).collect()));
        }
        Ok(Self(normal(name).collect()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is another spelling of the name.
    pub(crate) fn is(&self, spelled: &str) -> bool {
        normal(spelled).eq(self.0.chars())
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs of separators become one dash.
fn normal(name: &str) -> impl Iterator<Item = char> + '_ {
    let mut separated = false;
    name.chars().filter_map(move |c| {
        let separates = matches!(c, '-' | '_' | '.');
        let again = separates && separated;
        separated = separates;
        match (separates, again) {
            (_, true) => None,
            (true, _) => Some('-'),
            (false, _) => Some(c.to_ascii_lowercase()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_pep_503() {
        for (spelled, normal) in [
            ("Flask.SQL__Alchemy", "flask-sql-alchemy"),
            ("a-._b", "a-b"),
            ("A", "a"),
        ] {
            let name = ProjectName::parse(spelled).unwrap();
            assert_eq!(name.as_str(), normal);
            assert!(name.is(spelled) && !name.is("b"));
        }
        for wrong in ["", "-a", "a-", "a b", "ä", "../a"] {
            assert_eq!(
                ProjectName::parse(wrong).unwrap_err().to_string(),
                format!(
                    "{wrong:?} is no name of a project: a name has ASCII letters and digits, with -, _ or . between them"
                )
            );
        }
    }
}
