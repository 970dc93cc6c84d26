//! What is known of an observed process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{FileId, Files};
use super::pages::{MappedFile, look_at, look_at_all};
use super::rights::call_gives_rights;

/// The longest path (linux/limits.h).
const PATH_MAX: usize = 4096;

/// Bytes of a page, the smallest that any system has: memory may end at each.
const PAGE: u64 = 4096;

/// The absolute path that a call means whose directory is `base`. None if there is none, or if it goes up: then it may mean
/// anything.
pub(super) fn absolute(path: &Path, base: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    if path.as_os_str().is_empty() || path.components().any(|part| part.as_os_str() == "..") {
        return None;
    }
    if path.is_absolute() {
        return Some(path.to_owned());
    }
    let base = base()?;
    // `.` is no name.
    let path = path.strip_prefix(".").unwrap_or(path);
    base.is_absolute().then(|| base.join(path))
}

/// What a process has at this descriptor, or its working directory for `AT_FDCWD`. None if it has ended.
pub(super) fn directory_of(process: i32, descriptor: i32) -> Option<PathBuf> {
    let link = match descriptor {
        libc::AT_FDCWD => format!("/proc/{process}/cwd"),
        _ => format!("/proc/{process}/fd/{descriptor}"),
    };
    fs::read_link(link).ok()
}

/// A process: all threads that share memory.
#[derive(Debug, Default)]
pub(super) struct Process {
    number: i32,
    /// Files that it reads, by descriptor.
    open: HashMap<i32, OpenFile>,
    /// Files that it has mapped, and when.
    mapped: Vec<(MappedFile, Duration)>,
    cwd: Option<PathBuf>,
    memory: Option<File>,
    /// Whether its page tables were looked at for the last time.
    pub(super) is_over: bool,
}

/// A file that is read.
#[derive(Debug, Clone, Copy)]
struct OpenFile {
    /// None for what is no file on a disk.
    file: Option<FileId>,
    position: u64,
}

impl Process {
    /// The process with this number.
    pub(super) fn new(number: i32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// It has become another program.
    pub(super) fn becomes_program(&mut self) {
        *self = Self::new(self.number);
    }

    /// The text at an address: a path.
    pub(super) fn path_at(&mut self, address: u64) -> Option<PathBuf> {
        if self.memory.is_none() {
            self.memory = File::open(format!("/proc/{}/mem", self.number)).ok();
        }
        let memory = self.memory.as_ref()?;
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            let at = address.checked_add(path.len() as u64)?;
            let mut piece = [0; 256];
            let to_end_of_page = usize::try_from(PAGE - at % PAGE).ok()?;
            let piece = piece.get_mut(..to_end_of_page.min(256))?;
            memory.read_exact_at(piece, at).ok()?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    path.extend_from_slice(piece.get(..end)?);
                    return Some(PathBuf::from(OsStr::from_bytes(&path)));
                }
                None => path.extend_from_slice(piece),
            }
        }
        None
    }

    /// The absolute path that a call means. None as for [`absolute`].
    pub(super) fn absolute(&mut self, directory: i32, path: &Path) -> Option<PathBuf> {
        absolute(path, || match directory {
            libc::AT_FDCWD => {
                if self.cwd.is_none() {
                    self.cwd = directory_of(self.number, directory);
                }
                self.cwd.clone()
            }
            _ => directory_of(self.number, directory),
        })
    }

    /// It has another working directory.
    pub(super) fn moves(&mut self) {
        self.cwd = None;
    }

    fn descriptor(&self, fd: i32) -> PathBuf {
        format!("/proc/{}/fd/{fd}", self.number).into()
    }

    /// A descriptor means something else now.
    pub(super) fn forget(&mut self, fd: i32) {
        self.open.remove(&fd);
    }

    /// All descriptors may mean something else now.
    pub(super) fn forget_all(&mut self) {
        self.open.clear();
    }

    /// It has read so many bytes, from an offset or from where its descriptor was.
    pub(super) fn has_read(
        &mut self,
        files: &mut Files,
        fd: i32,
        offset: Option<u64>,
        len: u64,
        at: Duration,
    ) {
        let Some(open) = self.open_file(files, fd, |end| match offset {
            Some(_) => end,
            None => end.saturating_sub(len),
        }) else {
            return;
        };
        let start = offset.unwrap_or(open.position);
        if offset.is_none() {
            open.position = open.position.saturating_add(len);
        }
        if let Some(file) = open.file {
            files.asked(file, start, len, at);
        }
    }

    /// A descriptor stands at another byte now.
    pub(super) fn has_moved_to(&mut self, fd: i32, position: u64) {
        if let Some(open) = self.open.get_mut(&fd) {
            open.position = position;
        }
    }

    /// `before`: where a descriptor stood, from where it stands.
    fn open_file(
        &mut self,
        files: &mut Files,
        fd: i32,
        before: impl FnOnce(u64) -> u64,
    ) -> Option<&mut OpenFile> {
        if !self.open.contains_key(&fd) {
            let file = self.file_of(files, fd);
            let position = match file {
                Some(_) => before(self.position(fd)?),
                None => 0,
            };
            self.open.insert(fd, OpenFile { file, position });
        }
        self.open.get_mut(&fd)
    }

    fn file_of(&self, files: &mut Files, fd: i32) -> Option<FileId> {
        let path = fs::read_link(self.descriptor(fd)).ok()?;
        path.is_absolute().then(|| files.file(&path))?
    }

    /// Where a descriptor stands.
    fn position(&self, fd: i32) -> Option<u64> {
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.number)).ok()?;
        let position = info.lines().find_map(|line| line.strip_prefix("pos:"))?;
        position.trim().parse().ok()
    }

    /// It has mapped a part of a file.
    pub(super) fn has_mapped(&mut self, fd: i32, start: u64, len: u64, offset: u64, at: Duration) {
        if let Ok(path) = fs::read_link(self.descriptor(fd)) {
            let mapped = MappedFile {
                start,
                end: start.saturating_add(len),
                offset,
                path,
            };
            self.mapped.push((mapped, at));
        }
    }

    /// It is about to unmap these addresses.
    pub(super) fn unmaps(&mut self, files: &mut Files, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let pagemap = File::open(format!("/proc/{}/pagemap", self.number));
        let meets = |mapped: &MappedFile| mapped.start < end && start < mapped.end;
        for (mapped, at) in self.mapped.iter().filter(|(mapped, _)| meets(mapped)) {
            let skipped = start.saturating_sub(mapped.start);
            let part = MappedFile {
                start: mapped.start.max(start),
                end: mapped.end.min(end),
                offset: mapped.offset.saturating_add(skipped),
                path: mapped.path.clone(),
            };
            if let Ok(pagemap) = &pagemap {
                look_at(pagemap, &part, files, *at);
            }
        }
        // Of what is unmapped in part, the rest is seen at the end.
        self.mapped
            .retain(|(mapped, _)| !(start <= mapped.start && mapped.end <= end));
    }

    /// Looks at all its page tables.
    pub(super) fn look_at_all(&self, files: &mut Files, at: Duration) {
        look_at_all(self.number, files, at);
    }

    /// Whether the program that a call names gets more rights than its user has, and would not get them if it were traced.
    pub(super) fn gives_rights(&self, directory: i32, path: &Path) -> bool {
        call_gives_rights(self.number, directory, path)
    }
}
