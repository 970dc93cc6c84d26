//! What a launch asks of servers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brisk_image::{Named, ProfileBuilder, Ready, Recorded, RootId, RootKind};

use super::wire::{EntryOut, ROOT};

/// A launch that is being recorded, over all that it is served.
#[derive(Debug)]
pub struct Recording {
    started: Instant,
    /// None when the recording was cut.
    builder: Mutex<Option<ProfileBuilder>>,
    recorders: Mutex<Vec<Arc<Recorder>>>,
}

/// Takes note of what one server is asked: see [`ServeOptions::recorder`](super::options::ServeOptions).
#[derive(Debug)]
pub struct Recorder {
    recording: Arc<Recording>,
    root: RootId,
    /// How each node was first found. The kernel knows no node that it did not look up, as long as
    /// listings come without nodes.
    found: Mutex<HashMap<u64, Found>>,
}

#[derive(Debug)]
struct Found {
    parent: u64,
    name: OsString,
    len: u64,
}

impl Recording {
    /// Starts the clock.
    pub fn start() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            builder: Mutex::new(Some(ProfileBuilder::new())),
            recorders: Mutex::default(),
        })
    }

    /// The recorder for a server of what the program sees at the absolute `path`. None if the
    /// recording was cut.
    pub fn add(
        self: &Arc<Self>,
        path: impl Into<PathBuf>,
        kind: RootKind,
    ) -> Option<Arc<Recorder>> {
        let root = lock(&self.builder).as_ref()?.add_root(path, kind);
        let recorder = Arc::new(Recorder {
            recording: Arc::clone(self),
            root,
            found: Mutex::default(),
        });
        lock(&self.recorders).push(Arc::clone(&recorder));
        Some(recorder)
    }

    /// Cuts the recording: what is asked for from now on is not in it. `by` says why it is cut.
    /// None if it was cut before.
    ///
    /// # Errors
    ///
    /// `Corrupt` if names that were found cannot be in a profile.
    pub fn cut(&self, command: Vec<OsString>, by: String) -> brisk_image::Result<Option<Recorded>> {
        let Some(builder) = lock(&self.builder).take() else {
            return Ok(None);
        };
        let at = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let recorders = lock(&self.recorders);
        let found: HashMap<_, _> = recorders
            .iter()
            .map(|recorder| (recorder.root, lock(&recorder.found)))
            .collect();
        let ready = Some(Ready { by, at });
        builder
            .finish(command, ready, |root, node| named(found.get(&root)?, node))
            .map(Some)
    }
}

impl Recorder {
    /// `name` was looked up in the node `directory`.
    pub(super) fn looked_up(&self, directory: u64, name: &[u8], entry: Option<&EntryOut>) {
        let at = self.recording.started.elapsed();
        let name = OsStr::from_bytes(name);
        let builder = lock(&self.recording.builder);
        let Some(builder) = builder.as_ref() else {
            return;
        };
        builder.look_up(self.root, directory, name, entry.is_some(), at);
        if let Some(entry) = entry
            && let Entry::Vacant(place) = lock(&self.found).entry(entry.nodeid)
        {
            place.insert(Found {
                parent: directory,
                name: name.to_owned(),
                len: entry.attr.size,
            });
        }
    }

    /// `size` bytes from `offset` of the file `node` were asked for.
    pub(super) fn read(&self, node: u64, offset: u64, size: u32) {
        let at = self.recording.started.elapsed();
        if let Some(builder) = lock(&self.recording.builder).as_ref() {
            builder.range(self.root, node, offset, size.into(), at);
        }
    }
}

/// What is behind the node's number.
fn named(found: &HashMap<u64, Found>, node: u64) -> Option<Named> {
    let mut names = Vec::new();
    let mut at = node;
    while at != ROOT {
        let step = found.get(&at)?;
        names.push(&step.name);
        // A node was found in one that was found before it, so this ends. Damaged images have
        // directories that are in themselves.
        if names.len() > found.len() {
            return None;
        }
        at = step.parent;
    }
    Some(Named {
        path: names.iter().rev().collect(),
        len: found.get(&node).map_or(0, |found| found.len),
        digest: None,
    })
}

/// All that is locked here is whole between any two statements that change it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
