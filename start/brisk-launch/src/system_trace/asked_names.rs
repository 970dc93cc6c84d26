//! Names that processes have asked for, by opening them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

/// How many names are kept, and how many wait: about 200 MB.
const MAX_NAMES: usize = 1 << 20;

/// A name that a traced process asked for, the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Absolute, and possibly through links.
    pub path: PathBuf,
    pub at: Duration,
}

/// The names that traced processes have asked for.
///
/// A process may end before anybody hears that it is a traced one, and what it has asked for. So names wait until that is
/// known.
#[derive(Debug, Default)]
pub(super) struct AskedNames {
    /// Each with the number of the process.
    waiting: Vec<(i32, Asked)>,
    known: HashSet<PathBuf>,
    names: Vec<Asked>,
}

impl AskedNames {
    /// Notes what a process asked for.
    pub(super) fn add(&mut self, process: i32, asked: Asked) {
        if self.waiting.len() < MAX_NAMES {
            self.waiting.push((process, asked));
        }
    }

    /// Keeps the names of traced processes, and forgets those of others.
    pub(super) fn settle(&mut self, is_traced: impl Fn(i32) -> bool) {
        for (process, asked) in self.waiting.drain(..) {
            if self.names.len() < MAX_NAMES
                && is_traced(process)
                && self.known.insert(asked.path.clone())
            {
                self.names.push(asked);
            }
        }
    }

    /// In the order in which they were asked for.
    pub(super) fn into_names(self) -> Vec<Asked> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_wait_until_it_is_known_who_is_traced() {
        let asked = |path: &str, at| Asked {
            path: path.into(),
            at: Duration::from_secs(at),
        };
        let mut names = AskedNames::default();
        names.add(1, asked("/a", 1));
        names.add(2, asked("/b", 2));
        names.add(1, asked("/a", 3));
        names.settle(|process| process == 1);
        // It is too late for what has waited.
        names.settle(|_| true);
        names.add(2, asked("/a", 5));
        names.add(2, asked("/c", 6));
        names.settle(|_| true);
        let expected = [asked("/a", 1), asked("/c", 6)];
        assert_eq!(names.into_names(), expected);
    }
}
