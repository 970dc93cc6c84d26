//! What is known of an observed process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{FileId, Files};
use super::gives_rights;
use super::pages::{MappedFile, mapped_files, touched};

/// The longest path (linux/limits.h).
const PATH_MAX: usize = 4096;

/// A mapping of at most so many bytes is short.
const SHORT: u64 = 2 << 20;

/// Bytes of a page, the smallest that any system has: memory may end at each.
const PAGE: u64 = 4096;

/// The absolute path that a call means whose directory is `base`. None if there is none, or if it goes up: then it may mean
/// anything.
pub(crate) fn absolute(path: &Path, base: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
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
pub(crate) fn directory_of(process: i32, descriptor: i32) -> Option<PathBuf> {
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
    /// When it became its program.
    began: Duration,
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
    pub(super) fn new(number: i32, began: Duration) -> Self {
        Self {
            number,
            began,
            ..Self::default()
        }
    }

    /// It has become another program.
    pub(super) fn becomes_program(&mut self, at: Duration) {
        *self = Self::new(self.number, at);
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

    /// It is traced, and has mapped files before.
    pub(super) fn is_attached(&mut self, at: Duration) {
        // If it has ended meanwhile, it has mapped nothing.
        if let Ok(mapped) = mapped_files(self.number) {
            self.mapped = mapped.into_iter().map(|mapped| (mapped, at)).collect();
        }
    }

    /// It is about to unmap these addresses.
    pub(super) fn unmaps(&mut self, files: &mut Files, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let meets = |mapped: &MappedFile| mapped.start < end && start < mapped.end;
        for (mapped, at) in self.mapped.iter().filter(|(mapped, _)| meets(mapped)) {
            let skipped = start.saturating_sub(mapped.start);
            let part = MappedFile {
                start: mapped.start.max(start),
                end: mapped.end.min(end),
                offset: mapped.offset.saturating_add(skipped),
                path: mapped.path.clone(),
            };
            self.look_at(files, &part, *at);
        }
        // Of what is unmapped in part, the rest is seen at the end.
        self.mapped
            .retain(|(mapped, _)| !(start <= mapped.start && mapped.end <= end));
    }

    /// Looks at all its page tables. False if it has mapped nothing any more. When a page was touched, they do not say, so
    /// short mappings come first: a program needs headers and data of all its libraries before it does anything.
    pub(super) fn look_at_all(&self, files: &mut Files) -> bool {
        let mut all = mapped_files(self.number).unwrap_or_default();
        let has_some = !all.is_empty();
        all.sort_by_key(|mapped| mapped.end.saturating_sub(mapped.start) > SHORT);
        for mapped in all {
            let same = |known: &&(MappedFile, Duration)| known.0.path == mapped.path;
            let at = self
                .mapped
                .iter()
                .find(same)
                .map_or(self.began, |(_, at)| *at);
            self.look_at(files, &mapped, at);
        }
        has_some
    }

    fn look_at(&self, files: &mut Files, mapped: &MappedFile, at: Duration) {
        let Some(file) = files.file(&mapped.path) else {
            return;
        };
        files.has_mapped(&mapped.path);
        // A process that has ended meanwhile tells nothing more.
        touched(self.number, mapped, |offset, len| {
            files.asked(file, offset, len, at);
        })
        .ok();
    }

    /// Whether the program at this path gets more rights than its user has, and would not get them if it were traced.
    pub(super) fn gives_rights(&self, directory: i32, path: &Path) -> bool {
        let path = match (path.is_absolute(), path.as_os_str().is_empty()) {
            (true, _) => format!("/proc/{}/root", self.number).into(),
            (_, true) => self.descriptor(directory),
            _ if directory == libc::AT_FDCWD => PathBuf::from(format!("/proc/{}/cwd", self.number)),
            _ => self.descriptor(directory),
        }
        .join(path.strip_prefix("/").unwrap_or(path));
        gives_rights(&path)
    }
}
