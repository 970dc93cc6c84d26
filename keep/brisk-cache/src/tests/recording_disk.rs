use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;

use crate::directory::{Directory, FileId};
use crate::disk::{Disk, RealDisk};

/// Does what the real disk does, and keeps a record of it.
#[derive(Debug, Default)]
pub(super) struct RecordingDisk {
    pub(super) calls: Mutex<Vec<Call>>,
}

#[derive(Debug, Clone)]
pub(super) enum Call {
    /// Without a name, nobody finds it.
    Create {
        name: Option<String>,
        file: FileId,
    },
    Link {
        file: FileId,
        name: String,
    },
    Reserve {
        file: FileId,
        to: u64,
    },
    Write {
        file: FileId,
        at: u64,
        bytes: Vec<u8>,
    },
    Sync {
        file: FileId,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncNames,
}

impl RecordingDisk {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    pub(super) fn len(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

impl Disk for RecordingDisk {
    fn create(&self, directory: &Directory, name: &str) -> io::Result<File> {
        let made = RealDisk.create(directory, name)?;
        let file = FileId::of(&made)?;
        self.note(Call::Create {
            name: Some(name.to_owned()),
            file,
        });
        Ok(made)
    }

    fn create_unnamed(&self, directory: &Directory) -> io::Result<Option<File>> {
        let made = RealDisk.create_unnamed(directory)?;
        if let Some(made) = &made {
            let file = FileId::of(made)?;
            self.note(Call::Create { name: None, file });
        }
        Ok(made)
    }

    fn link(&self, directory: &Directory, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        RealDisk.link(directory, file, name)?;
        let (file, name) = (FileId::of(file)?, name.to_owned());
        self.note(Call::Link { file, name });
        Ok(())
    }

    fn reserve(&self, file: BorrowedFd<'_>, from: u64, to: u64) -> io::Result<()> {
        RealDisk.reserve(file, from, to)?;
        let file = FileId::of(file)?;
        self.note(Call::Reserve { file, to });
        Ok(())
    }

    fn write(&self, file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, at, bytes)?;
        let file = FileId::of(file)?;
        self.note(Call::Write {
            file,
            at,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    fn copy(
        &self,
        from: BorrowedFd<'_>,
        range: Range<u64>,
        to: BorrowedFd<'_>,
        at: u64,
    ) -> io::Result<()> {
        RealDisk.copy(from, range.clone(), to, at)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let copied = File::from(to.try_clone_to_owned()?);
        copied.read_exact_at(&mut bytes, at)?;
        let file = FileId::of(to)?;
        self.note(Call::Write { file, at, bytes });
        Ok(())
    }

    fn sync(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        // The real disk is not switched off, so nothing has to be waited for.
        let file = FileId::of(file)?;
        self.note(Call::Sync { file });
        Ok(())
    }

    fn rename(&self, directory: &Directory, from: &str, to: &str) -> io::Result<()> {
        RealDisk.rename(directory, from, to)?;
        self.note(Call::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        });
        Ok(())
    }

    fn remove(&self, directory: &Directory, name: &str) -> io::Result<bool> {
        let removed = RealDisk.remove(directory, name)?;
        self.note(Call::Remove {
            name: name.to_owned(),
        });
        Ok(removed)
    }

    fn sync_names(&self, _: &Directory) -> io::Result<()> {
        self.note(Call::SyncNames);
        Ok(())
    }
}

const PAGE: u64 = 4096;

/// What a loss of power leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Everything is there: the process was killed.
    Nothing,
    /// Nothing is there.
    Everything,
    /// All names are there, and nothing of the contents.
    Contents,
    /// Some of it: each page has some of its writes, each file its old or new length, and the names are as they were at
    /// some time.
    Random(u64),
    /// One of the same, by its number. `states` is the product of the choices so far. A number of which `rest` is left at
    /// the end is too high.
    Numbered { rest: u64, states: u64 },
}

impl Loss {
    /// How many of `most` changes are there.
    fn keep(&mut self, most: usize) -> usize {
        match self {
            Self::Nothing => most,
            Self::Everything | Self::Contents => 0,
            Self::Random(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                ((*state >> 20) % (most as u64 + 1)) as usize
            }
            Self::Numbered { rest, states } => {
                let choices = most as u64 + 1;
                let chosen = *rest % choices;
                *rest /= choices;
                *states = states.saturating_mul(choices);
                chosen as usize
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Content {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.len = self.len.max(at + bytes.len() as u64);
        for (at, part) in in_pages(at, bytes) {
            let page = self
                .pages
                .entry(at / PAGE)
                .or_insert_with(|| vec![0; PAGE as usize]);
            let from = (at % PAGE) as usize;
            page[from..from + part.len()].copy_from_slice(part);
        }
    }
}

/// Parts of some bytes, each in one page.
fn in_pages(mut at: u64, mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let n = rest.len().min((PAGE - at % PAGE) as usize);
        let (part, behind) = rest.split_at(n);
        let found = (at, part);
        (at, rest) = (at + n as u64, behind);
        (n > 0).then_some(found)
    })
}

#[derive(Debug, Clone, Default)]
struct Kept {
    synced: Content,
    /// Writes and lengths since then, in order.
    since: Vec<(Option<u64>, u64, Vec<u8>)>,
}

impl Kept {
    fn sync(&mut self) {
        for (len, at, bytes) in std::mem::take(&mut self.since) {
            match len {
                Some(len) => self.synced.len = self.synced.len.max(len),
                None => self.synced.write(at, &bytes),
            }
        }
    }
}

/// The files of a directory, as they are on the disk and in memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    files: HashMap<FileId, Kept>,
    names: BTreeMap<String, FileId>,
    /// The names after each change since they were synced.
    since: Vec<BTreeMap<String, FileId>>,
    synced_names: BTreeMap<String, FileId>,
}

impl Machine {
    /// What is in a directory now, all of it on the disk.
    pub(super) fn of(directory: &Path) -> Self {
        let mut machine = Self::default();
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let id = FileId {
                device: metadata.dev(),
                inode: metadata.ino(),
            };
            let mut content = Content::default();
            for (page, bytes) in fs::read(entry.path())
                .unwrap()
                .chunks(PAGE as usize)
                .enumerate()
            {
                if bytes.iter().any(|&byte| byte != 0) {
                    content.write(page as u64 * PAGE, bytes);
                }
            }
            content.len = metadata.len();
            let kept = Kept {
                synced: content,
                since: Vec::new(),
            };
            machine.files.insert(id, kept);
            machine
                .names
                .insert(entry.file_name().into_string().unwrap(), id);
        }
        machine.synced_names = machine.names.clone();
        machine
    }

    pub(super) fn apply(&mut self, call: &Call) {
        match call {
            Call::Create { name, file } => {
                self.files.insert(*file, Kept::default());
                if let Some(name) = name {
                    self.names.insert(name.clone(), *file);
                    self.since.push(self.names.clone());
                }
            }
            Call::Link { file, name } => {
                self.names.insert(name.clone(), *file);
                self.since.push(self.names.clone());
            }
            Call::Reserve { file, to } => {
                self.files
                    .get_mut(file)
                    .unwrap()
                    .since
                    .push((Some(*to), 0, Vec::new()));
            }
            Call::Write { file, at, bytes } => {
                let kept = self.files.get_mut(file).unwrap();
                // One for each page, because pages reach the disk one by one.
                let parts = in_pages(*at, bytes).map(|(at, part)| (None, at, part.to_vec()));
                kept.since.extend(parts);
            }
            Call::Sync { file } => self.files.get_mut(file).unwrap().sync(),
            Call::Rename { from, to } => {
                let file = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), file);
                self.since.push(self.names.clone());
            }
            Call::Remove { name } => {
                self.names.remove(name);
                self.since.push(self.names.clone());
            }
            Call::SyncNames => self.sync_names(),
        }
    }

    fn sync_names(&mut self) {
        self.since.clear();
        self.synced_names = self.names.clone();
    }

    /// The kernel has written everything to the disk.
    pub(super) fn sync(&mut self) {
        self.files.values_mut().for_each(Kept::sync);
        self.sync_names();
    }

    /// Makes a directory with what is left. Returns what is left of the choices.
    pub(super) fn leave(&self, mut loss: Loss, directory: &Path) -> Loss {
        let since = match loss {
            Loss::Contents => self.since.len(),
            _ => loss.keep(self.since.len()),
        };
        let names = match since {
            0 => &self.synced_names,
            n => &self.since[n - 1],
        };
        for (name, id) in names {
            let kept = &self.files[id];
            let mut content = kept.synced.clone();
            let mut changes: BTreeMap<Option<u64>, Vec<_>> = BTreeMap::new();
            for change in &kept.since {
                let page = change.0.is_none().then_some(change.1 / PAGE);
                changes.entry(page).or_default().push(change);
            }
            // The key `None`, of lengths, comes first.
            for changes in changes.values() {
                for (len, at, bytes) in &changes[..loss.keep(changes.len())] {
                    match len {
                        Some(len) => content.len = content.len.max(*len),
                        None if at + bytes.len() as u64 <= content.len || kept.since.is_empty() => {
                            content.write(*at, bytes);
                        }
                        // The length of the file is not on the disk. A write beyond it makes it longer, or is lost.
                        None if loss == Loss::Nothing || loss.keep(1) == 1 => {
                            content.write(*at, bytes);
                        }
                        None => {}
                    }
                }
            }
            let file = File::create_new(directory.join(name)).unwrap();
            file.set_len(content.len).unwrap();
            for (page, bytes) in &content.pages {
                let at = page * PAGE;
                let n = content.len.saturating_sub(at).min(PAGE) as usize;
                file.write_all_at(&bytes[..n], at).unwrap();
            }
        }
        loss
    }
}
