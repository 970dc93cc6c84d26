//! Learns which names traced processes look up, whether there is something or not.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::io::Result;

use super::asked_names::{Asked, AskedNames};
use super::look_up_probe::LookUpProbe;
use crate::observe::{absolute, directory_of};

pub(super) struct LookedUpNames {
    probe: LookUpProbe,
    names: AskedNames,
    /// Working directories of processes that have changed theirs. By the time that somebody looks, it may be another one.
    moved: HashMap<i32, PathBuf>,
    /// Of each process, whether its root directory is that of this one.
    is_in_root: HashMap<i32, bool>,
    /// Device and inode.
    root: Option<(u64, u64)>,
}

impl LookedUpNames {
    /// Watches all processes from now on. Errors are those of [`LookUpProbe::start`].
    pub(super) fn watch() -> Result<Self> {
        Ok(Self {
            probe: LookUpProbe::start()?,
            names: AskedNames::default(),
            moved: HashMap::new(),
            is_in_root: HashMap::new(),
            root: identity("/"),
        })
    }

    /// Notes what processes have looked up. False if there was nothing.
    pub(super) fn read(&mut self) -> Result<bool> {
        let mut batch = Vec::new();
        while let Some(seen) = self.probe.next()? {
            batch.push(seen);
        }
        // How often each process will still change its working directory. What it was until then, nobody has seen.
        let mut to_come: HashMap<i32, u32> = HashMap::new();
        for seen in batch.iter().filter(|seen| seen.moves) {
            *to_come.entry(seen.process).or_default() += 1;
        }
        let some = !batch.is_empty();
        for seen in batch {
            let will_move = to_come.get(&seen.process).is_some_and(|moves| *moves > 0);
            let path = PathBuf::from(OsString::from_vec(seen.path));
            let base = || match self.moved.get(&seen.process) {
                _ if seen.directory != libc::AT_FDCWD => directory_of(seen.process, seen.directory),
                None if will_move => None,
                None => directory_of(seen.process, seen.directory),
                moved => moved.cloned(),
            };
            let path = absolute(&path, base);
            if seen.moves {
                to_come.entry(seen.process).and_modify(|moves| *moves -= 1);
                match &path {
                    Some(path) => self.moved.insert(seen.process, path.clone()),
                    None => self.moved.remove(&seen.process),
                };
            }
            if let Some(path) = path
                && self.is_in_root(seen.process)
            {
                let asked = Asked {
                    path,
                    found: seen.found,
                    at: seen.at,
                };
                self.names.add(seen.process, asked);
            }
        }
        Ok(some)
    }

    /// Keeps what traced processes have looked up, and forgets the rest.
    pub(super) fn settle(&mut self, is_traced: impl Fn(i32) -> bool) {
        self.names.settle(is_traced);
    }

    /// Whether a process means the same names as this one. One that has ended already is taken for such: most are, and a name
    /// that is not there, or there and not expected, does no harm.
    fn is_in_root(&mut self, process: i32) -> bool {
        let root = self.root;
        *self.is_in_root.entry(process).or_insert_with(|| {
            let own = identity(&format!("/proc/{process}/root"));
            own.is_none() || own == root
        })
    }

    pub(super) fn into_names(self) -> Vec<Asked> {
        self.names.into_names()
    }
}

fn identity(path: &str) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
