//! What takes pages out of memory although there is room.
//!
//! DAMON (`Documentation/admin-guide/mm/damon/`) can be told to page out what was not used lately. It
//! looks at places in memory rather than at what has come to be in them, so that what was just read
//! or stored, and is not used yet, may go too.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Something that takes pages, and runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimer {
    /// For people.
    pub name: String,
    /// The file of the kernel's that stops it and lets it run.
    pub switch: PathBuf,
    /// What is in that file.
    pub on: &'static str,
    /// What stops it, written there.
    pub off: &'static str,
}

impl Reclaimer {
    /// All of the system; none if nothing was found and something cannot be read, as by a user other
    /// than root.
    pub fn all() -> Option<Vec<Self>> {
        Self::of(Path::new("/sys"))
    }

    /// DAMON as a module that reclaims, and as what somebody has set up.
    fn of(sys: &Path) -> Option<Vec<Self>> {
        let mut found = Vec::new();
        let mut sees_all = true;
        let mut says = |path: &Path, word: &str| match fs::read_to_string(path) {
            Ok(text) => text.trim() == word,
            Err(e) => {
                // Beside directories of threads and schemes, a file says how many there are.
                let is_there =
                    ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind());
                sees_all &= !is_there;
                false
            }
        };
        let switch = sys.join("module/damon_reclaim/parameters/enabled");
        if says(&switch, "Y") {
            found.push(Self {
                name: "damon_reclaim".to_owned(),
                switch,
                on: "Y",
                off: "N",
            });
        }
        let threads = sys.join("kernel/mm/damon/admin/kdamonds");
        for thread in names(&threads) {
            let thread = threads.join(thread);
            let switch = thread.join("state");
            if !says(&switch, "on") {
                continue;
            }
            let contexts = thread.join("contexts");
            let mut pages_out = false;
            for context in names(&contexts) {
                let schemes = contexts.join(context).join("schemes");
                for scheme in names(&schemes) {
                    pages_out |= says(&schemes.join(scheme).join("action"), "pageout");
                }
            }
            if pages_out {
                found.push(Self {
                    name: format!("DAMON by {}", thread.display()),
                    switch,
                    on: "on",
                    off: "off",
                });
            }
        }
        (sees_all || !found.is_empty()).then_some(found)
    }
}

/// The names in a directory, in order; none if it cannot be read.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::directory_of;

    /// The names of those below this directory.
    fn reclaimers(sys: &Path) -> Option<Vec<String>> {
        let found = Reclaimer::of(sys)?;
        for reclaimer in &found {
            let text = fs::read_to_string(&reclaimer.switch).unwrap();
            let by_thread = reclaimer.switch.ends_with("state");
            let words = if by_thread { ["on", "off"] } else { ["Y", "N"] };
            assert_eq!([reclaimer.on, reclaimer.off], words);
            assert_eq!(text.trim(), reclaimer.on);
        }
        Some(found.into_iter().map(|found| found.name).collect())
    }

    #[test]
    fn those_who_take_pages_are_named() {
        let damon = "kernel/mm/damon/admin/kdamonds";
        let [state, action] = ["state", "contexts/0/schemes/0/action"];
        let at = |thread: u32, file: &str| format!("{damon}/{thread}/{file}");
        let found = directory_of(&[
            ("module/damon_reclaim/parameters/enabled", "Y\n"),
            (&at(0, state), "on\n"),
            (&at(0, action), "pageout\n"),
            (&at(0, "contexts/0/schemes/1/action"), "pageout\n"),
            (&at(1, state), "off\n"),
            (&at(1, action), "pageout\n"),
            (&at(2, state), "on\n"),
            (&at(2, action), "stat\n"),
            (&format!("{damon}/nr_kdamonds"), "3\n"),
        ]);
        let by = format!("DAMON by {}", found.path().join(damon).join("0").display());
        let expected = vec!["damon_reclaim".to_owned(), by];
        assert_eq!(reclaimers(found.path()), Some(expected));
        let none = found.path().join("none");
        assert_eq!(reclaimers(&none), Some(Vec::new()));
        let none = directory_of(&[(&format!("{damon}/nr_kdamonds"), "0\n")]);
        assert_eq!(reclaimers(none.path()), Some(Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_off() {
        // A directory stands for a file that is there and cannot be read: root reads every other.
        let enabled = "module/damon_reclaim/parameters/enabled";
        let found = directory_of(&[(&format!("{enabled}/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        let damon = "kernel/mm/damon/admin/kdamonds/0";
        let found = directory_of(&[(enabled, "N\n"), (&format!("{damon}/state/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        // What was found is told all the same.
        let found = directory_of(&[(enabled, "Y\n"), (&format!("{damon}/state/x"), "")]);
        let expected = vec!["damon_reclaim".to_owned()];
        assert_eq!(reclaimers(found.path()), Some(expected));
    }
}
