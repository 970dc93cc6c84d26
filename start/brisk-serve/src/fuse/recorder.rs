//! Records what a launch asks of servers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brisk_image::profile::{Named, PAGE, ProfileBuilder, Ready, Recorded, RootId, RootKind};

use super::listing::entries;
use super::wire::{EntryOut, ROOT};

/// The limits of a recording in the server of a session: requests, bytes of names, and nodes with their
/// names. Together they take at most 30 MB. A launch like Chromium's uses a fifth of that.
const BRIEF: (usize, usize, usize) = (1 << 17, 4 << 20, 1 << 17);

/// A launch that is being recorded, by all its servers together.
#[derive(Debug)]
pub struct Recording {
    launch: Arc<Launch>,
    recorders: Mutex<Vec<Arc<Recorder>>>,
}

/// What the recorders of one launch share. It knows none of them, so that it ends with the last of them.
#[derive(Debug)]
struct Launch {
    started: Instant,
    /// None when the recording was cut.
    builder: Mutex<Option<ProfileBuilder>>,
    /// Whether it was cut. This can be read without waiting for the lock.
    over: AtomicBool,
    /// How many nodes each recorder keeps names of.
    most_nodes: usize,
}

/// Records what one server is asked: see [`ServeOptions::recorder`](super::options::ServeOptions).
#[derive(Debug)]
pub struct Recorder {
    launch: Arc<Launch>,
    root: RootId,
    /// How each node was first found: by a look-up or in a listing.
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
        Self::with(ProfileBuilder::new(), usize::MAX)
    }

    /// Like [`Recording::start`], but with little memory, for a process that has other work.
    pub(crate) fn start_brief() -> Arc<Self> {
        let (requests, names, nodes) = BRIEF;
        Self::with(ProfileBuilder::bounded(requests, names), nodes)
    }

    fn with(builder: ProfileBuilder, most_nodes: usize) -> Arc<Self> {
        Arc::new(Self {
            launch: Arc::new(Launch {
                started: Instant::now(),
                builder: Mutex::new(Some(builder)),
                over: AtomicBool::new(false),
                most_nodes,
            }),
            recorders: Mutex::default(),
        })
    }

    /// How long the recording has lasted, or lasted until it was cut.
    pub(crate) fn elapsed(&self) -> Duration {
        self.launch.started.elapsed()
    }

    /// The recorder for a server whose files the program sees at the absolute `path`. None if the recording
    /// was cut.
    pub fn add(
        self: &Arc<Self>,
        path: impl Into<PathBuf>,
        kind: RootKind,
    ) -> Option<Arc<Recorder>> {
        let root = lock(&self.launch.builder).as_ref()?.add_root(path, kind);
        let recorder = Arc::new(Recorder {
            launch: Arc::clone(&self.launch),
            root,
            found: Mutex::default(),
        });
        lock(&self.recorders).push(Arc::clone(&recorder));
        Some(recorder)
    }

    /// Cuts the recording: it does not have what is asked for from now on. `by` says why it is cut. None if
    /// it was cut before.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a profile cannot hold some of the names.
    pub fn cut(&self, command: Vec<OsString>, by: String) -> brisk_image::Result<Option<Recorded>> {
        let Some(builder) = lock(&self.launch.builder).take() else {
            return Ok(None);
        };
        self.launch.over.store(true, Ordering::Relaxed);
        let at = u64::try_from(self.launch.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let recorders = lock(&self.recorders);
        let found: HashMap<_, _> = recorders
            .iter()
            .map(|recorder| (recorder.root, lock(&recorder.found)))
            .collect();
        let ready = Some(Ready::new(by, at));
        let recorded = builder.finish(command, ready, |root, node| named(found.get(&root)?, node));
        for mut found in found.into_values() {
            // The server may run for days.
            *found = HashMap::new();
        }
        recorded.map(Some)
    }
}

impl Recorder {
    /// Whether requests are recorded now.
    pub(super) fn is_recording(&self) -> bool {
        !self.launch.over.load(Ordering::Relaxed)
    }

    /// `name` was looked up in the node `directory`.
    pub(super) fn looked_up(&self, directory: u64, name: &[u8], entry: Option<&EntryOut>) {
        if !self.is_recording() {
            return;
        }
        let at = self.launch.started.elapsed();
        let name = OsStr::from_bytes(name);
        let builder = lock(&self.launch.builder);
        let Some(builder) = builder.as_ref() else {
            return;
        };
        if builder.look_up(self.root, directory, name, entry.is_some(), at)
            && let Some(entry) = entry
        {
            self.name(directory, name, entry);
        }
    }

    /// `part` of a listing of the node `directory` was sent, with nodes. So the kernel knows those without
    /// looking up their names.
    pub(super) fn listed(&self, directory: u64, part: &[u8]) {
        if self.is_recording() {
            for (entry, name) in entries(part) {
                self.name(directory, OsStr::from_bytes(name), &entry);
            }
        }
    }

    fn name(&self, parent: u64, name: &OsStr, entry: &EntryOut) {
        let mut found = lock(&self.found);
        if found.len() < self.launch.most_nodes
            && let Entry::Vacant(place) = found.entry(entry.nodeid)
        {
            place.insert(Found {
                parent,
                name: name.to_owned(),
                len: entry.attr.size,
            });
        }
    }

    /// `pages` of the file `node` were asked for.
    pub(super) fn read_pages(&self, node: u64, pages: Range<u64>) {
        let offset = pages.start.saturating_mul(PAGE);
        let len = pages.end.saturating_mul(PAGE).saturating_sub(offset);
        self.read(node, offset, len);
    }

    /// `len` bytes from `offset` of the file `node` were asked for.
    pub(super) fn read(&self, node: u64, offset: u64, len: u64) {
        if !self.is_recording() {
            return;
        }
        let at = self.launch.started.elapsed();
        if let Some(builder) = lock(&self.launch.builder).as_ref() {
            builder.range(self.root, node, offset, len, at);
        }
    }
}

/// The root and the path of a node.
fn named(found: &HashMap<u64, Found>, node: u64) -> Option<Named> {
    let mut names = Vec::new();
    let mut at = node;
    while at != ROOT {
        let step = found.get(&at)?;
        names.push(&step.name);
        // Every node was found in one that was found before it, so this ends. Damaged images have directories
        // that contain themselves.
        if names.len() > found.len() {
            return None;
        }
        at = step.parent;
    }
    Some(Named::new(
        names.iter().rev().collect::<PathBuf>(),
        found.get(&node).map_or(0, |found| found.len),
    ))
}

/// A panic leaves nothing half-changed: every statement under these locks leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_ends_with_its_recorders() {
        let recording = Recording::start();
        let recorder = recording.add("/app", RootKind::Image).expect("it goes on");
        let (launch, of_recorder) = (Arc::downgrade(&recording.launch), Arc::downgrade(&recorder));
        drop((recording, recorder));
        assert_eq!(of_recorder.strong_count(), 0);
        assert_eq!(launch.strong_count(), 0);
    }
}
