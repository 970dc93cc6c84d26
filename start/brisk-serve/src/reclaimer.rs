//! What takes pages out of memory although there is room.
//!
//! DAMON (`Documentation/admin-guide/mm/damon/`) can page out what was not used lately. It watches places in
//! memory, and not the data that is there now. So it may also take data that was just read or stored and has
//! not been used yet.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Something that takes pages, and is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimer {
    /// Its name, for people.
    pub name: String,
    /// The kernel's file that stops and starts it.
    pub switch: PathBuf,
    /// The contents of that file while it runs.
    pub on: &'static str,
    /// What to write there to stop it.
    pub off: &'static str,
}

impl Reclaimer {
    /// All of the system. None if nothing was found but something cannot be read, for example without root.
    pub fn all() -> Option<Vec<Self>> {
        Self::of(Path::new("/sys"))
    }

    /// DAMON's reclaim module, and DAMON as somebody has set it up.
    fn of(sys: &Path) -> Option<Vec<Self>> {
        let mut found = Vec::new();
        let mut sees_all = true;
        let mut says = |path: &Path, word: &str| match fs::read_to_string(path) {
            Ok(text) => text.trim() == word,
            Err(e) => {
                // Besides the directories of threads and schemes, a file says how many there are.
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

/// The names in a directory, sorted. Empty if it cannot be read.
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
    use crate::system_state::directory_of;

    /// The names of the reclaimers below this directory.
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
        // A directory, in place of a file that cannot be read. Root can read every file.
        let enabled = "module/damon_reclaim/parameters/enabled";
        let found = directory_of(&[(&format!("{enabled}/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        let damon = "kernel/mm/damon/admin/kdamonds/0";
        let found = directory_of(&[(enabled, "N\n"), (&format!("{damon}/state/x"), "")]);
        assert_eq!(reclaimers(found.path()), None);
        // What was found is reported all the same.
        let found = directory_of(&[(enabled, "Y\n"), (&format!("{damon}/state/x"), "")]);
        let expected = vec!["damon_reclaim".to_owned()];
        assert_eq!(reclaimers(found.path()), Some(expected));
    }
}
