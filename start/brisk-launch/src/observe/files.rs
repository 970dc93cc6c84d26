//! Files and directories that a launch asks for, with numbers for the profile's builder.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_image::profile::{Named, ProfileBuilder, Ready, Recorded, RootId, RootKind};

use super::inputs::Inputs;
use crate::chosen_names::{self, ChosenNames};
use crate::mount_table::{MountEntry, mounts};
use crate::system_trace::opened_files::is_on_disk;

/// How many names are remembered at most: some 100 MB.
const MOST: usize = 1 << 19;

/// The numbers of directories have this bit, so that they are none of a file.
const DIRECTORY: u64 = 1 << 63;

/// Everything that a launch asks for, as it comes.
pub(super) struct Files {
    inputs: Inputs,
    builder: ProfileBuilder,
    /// The mounts with files on disks, those with the longest paths first, and the roots of those that were used.
    mounts: Vec<(PathBuf, Option<RootId>)>,
    /// Mounts whose files are of no interest: in memory, or made by the kernel.
    others: Vec<PathBuf>,
    files: HashMap<PathBuf, Option<FileId>>,
    /// By their numbers, with their absolute paths.
    known_files: Vec<(PathBuf, Named)>,
    /// Parts of files that were asked for.
    asked: HashSet<(FileId, u64, u64)>,
    directories: HashMap<PathBuf, Option<FileId>>,
    known_directories: Vec<Named>,
    /// Digests of the names that were looked up, with what was found.
    looked_up: HashSet<u64>,
    chosen: ChosenNames<FileId>,
    /// Files that were mapped.
    mapped: HashSet<PathBuf>,
}

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    root: RootId,
    number: u64,
}

impl Files {
    /// Knows the mounts of this process, and nothing that was asked for.
    pub(super) fn new(inputs: Inputs) -> io::Result<Self> {
        let (on_disk, others): (Vec<_>, Vec<_>) = mounts()?.into_iter().partition(is_on_disk);
        let target = |mount: MountEntry| mount.target;
        let mut on_disk: Vec<_> = on_disk.into_iter().map(target).collect();
        on_disk.sort_by_key(|target| std::cmp::Reverse(target.as_os_str().len()));
        on_disk.dedup();
        Ok(Self {
            inputs,
            builder: ProfileBuilder::new(),
            mounts: on_disk.into_iter().map(|target| (target, None)).collect(),
            others: others.into_iter().map(target).collect(),
            files: HashMap::new(),
            known_files: Vec::new(),
            asked: HashSet::new(),
            directories: HashMap::new(),
            known_directories: Vec::new(),
            looked_up: HashSet::new(),
            chosen: ChosenNames::default(),
            mapped: HashSet::new(),
        })
    }

    /// Knows as much again as before anything was asked for.
    pub(super) fn begin_again(&mut self) {
        for (_, root) in &mut self.mounts {
            *root = None;
        }
        self.builder = ProfileBuilder::new();
        self.files.clear();
        self.known_files.clear();
        self.asked.clear();
        self.directories.clear();
        self.known_directories.clear();
        self.looked_up.clear();
        self.chosen = ChosenNames::default();
        self.mapped.clear();
    }

    /// The regular file at this absolute path. None if it is no such file on a disk.
    pub(super) fn file(&mut self, path: &Path) -> Option<FileId> {
        if let Some(known) = self.files.get(path) {
            return *known;
        }
        let found = self.find_file(path);
        if self.files.len() < MOST {
            self.files.insert(path.to_owned(), found);
        }
        found
    }

    fn find_file(&mut self, path: &Path) -> Option<FileId> {
        let (root, inside) = self.root_of(path)?;
        let metadata = fs::symlink_metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() == 0 || !self.inputs.has(&metadata) {
            return None;
        }
        if !self.inputs.may_name(path) {
            return None;
        }
        let number = self.known_files.len() as u64;
        let named = Named::new(inside, metadata.len());
        self.known_files.push((path.to_owned(), named));
        Some(FileId { root, number })
    }

    /// The directory at this absolute path, which may contain symbolic links.
    fn directory(&mut self, path: &Path) -> Option<FileId> {
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        let found = self.find_directory(path);
        if self.directories.len() < MOST {
            self.directories.insert(path.to_owned(), found);
        }
        found
    }

    fn find_directory(&mut self, path: &Path) -> Option<FileId> {
        // What the kernel makes up may do anything when it is looked at.
        self.root_of(path)?;
        let real = fs::canonicalize(path).ok()?;
        if real != path {
            return self.directory(&real);
        }
        let (root, inside) = self.root_of(&real)?;
        let number = DIRECTORY | self.known_directories.len() as u64;
        self.known_directories.push(Named::new(inside, 0));
        Some(FileId { root, number })
    }

    /// The root of the mount that has this path, and the path in it.
    fn root_of(&mut self, path: &Path) -> Option<(RootId, PathBuf)> {
        let within = |mount: &&PathBuf| path.starts_with(mount);
        let other = self.others.iter().filter(within);
        let other = other.map(|mount| mount.as_os_str().len()).max();
        let on_disk = self.mounts.iter_mut();
        let (mount, root) = on_disk
            .map(|(mount, root)| (&*mount, root))
            .find(|(mount, _)| path.starts_with(mount))?;
        if other.is_some_and(|len| len > mount.as_os_str().len()) {
            return None;
        }
        let inside = path.strip_prefix(mount).ok()?.to_owned();
        let builder = &self.builder;
        let root = *root.get_or_insert_with(|| builder.add_root(mount, RootKind::Directory));
        Some((root, inside))
    }

    /// The directories in which anything was found, and those above modules of interpreters.
    pub(super) fn used_directories(&self) -> HashSet<PathBuf> {
        let directories = self.directories.iter();
        let found = directories.filter_map(|(path, found)| found.map(|_| path.as_path()));
        let files = self.files.iter().filter(|(_, found)| found.is_some());
        let files = files.map(|(path, _)| path.as_path());
        let parents = files.clone().filter_map(Path::parent);
        // An interpreter maps modules, and reads scripts in the directory above them.
        let is_module = |path: &&Path| {
            path.extension()
                .is_some_and(|end| end == "so" || end == "node")
        };
        let above = files.filter(is_module);
        let above = above.filter_map(|path| path.parent()?.parent());
        let all = found.chain(parents).chain(above);
        all.map(Path::to_owned).collect()
    }

    /// Notes that the launch has mapped a file.
    pub(super) fn has_mapped(&mut self, path: &Path) {
        if !self.mapped.contains(path) {
            self.mapped.insert(path.to_owned());
        }
    }

    pub(super) fn is_mapped(&self, path: &Path) -> bool {
        self.mapped.contains(path)
    }

    /// Notes that the launch asked for a part of a file.
    pub(super) fn asked(&mut self, file: FileId, offset: u64, len: u64, at: Duration) {
        // Page tables say the same at each look.
        if self.asked.len() >= MOST || self.asked.insert((file, offset, len)) {
            self.builder.range(file.root, file.number, offset, len, at);
        }
    }

    /// Notes that the launch looked up an absolute path.
    pub(super) fn looked_up(&mut self, path: &Path, found: bool, at: Duration) {
        let digest = chosen_names::digest(path, found);
        if self.looked_up.len() >= MOST || !self.looked_up.insert(digest) {
            return;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        if let Some(directory) = self.directory(parent)
            && self.inputs.may_name(path)
            && self.chosen.chooses(directory, path, found, digest)
        {
            let FileId { root, number } = directory;
            self.builder.look_up(root, number, name, found, at);
        }
    }

    /// Digests of documents that are not named: see [`Inputs::met`].
    pub(super) fn documents(&self) -> Vec<u64> {
        self.inputs.met()
    }

    /// The profile, without files that were changed meanwhile.
    pub(super) fn finish(
        self,
        command: Vec<OsString>,
        ready: Ready,
    ) -> brisk_image::Result<Recorded> {
        let (files, directories, inputs) = (self.known_files, self.known_directories, self.inputs);
        let is_input =
            |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| inputs.has(&found));
        let files: Vec<_> = files
            .into_iter()
            .map(|(path, named)| is_input(&path).then_some(named))
            .collect();
        self.builder.finish(command, Some(ready), |_, number| {
            let at = usize::try_from(number & !DIRECTORY).ok()?;
            match number & DIRECTORY {
                0 => files.get(at)?.clone(),
                _ => directories.get(at).cloned(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chosen_names::FIRST;
    use brisk_image::profile::Asked;

    fn files() -> io::Result<Files> {
        Files::new(Inputs::of_test())
    }

    #[test]
    fn files_of_the_kernel_are_none() {
        let mut files = files().expect("a mount table");
        assert_eq!(files.file(Path::new("/proc/self/status")), None);
        assert_eq!(files.file(Path::new("/usr")), None);
        assert_eq!(files.file(Path::new("/usr/bin/none")), None);
        let program = std::env::current_exe().expect("this");
        let file = files.file(&program);
        assert!(file.is_some());
        assert_eq!(files.file(&program), file);
    }

    #[test]
    fn some_of_many_names_are_noted() {
        // On a disk, as the program itself.
        let program = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(program.parent().expect("a directory")).expect("room");
        let home = home.path().canonicalize().expect("there");
        let noted = |names: std::ops::Range<u32>| {
            let mut files = files().expect("a mount table");
            for name in names {
                files.looked_up(&home.join(name.to_string()), true, Duration::ZERO);
            }
            let profile = files.finish(Vec::new(), Ready::new("test", 0));
            profile.expect("a profile").profile.steps().len()
        };
        assert_eq!(noted(0..FIRST), FIRST as usize);
        let many = noted(0..FIRST + 1000);
        assert!((80..200).contains(&many), "{many}");
        // Each directory is.
        for name in 0..100 {
            fs::create_dir(home.join(name.to_string())).expect("room");
        }
        assert_eq!(noted(0..100), 100);
    }

    #[test]
    fn names_are_looked_up_once_in_the_real_directory() {
        // On a disk, as the program itself.
        let program = std::env::current_exe().expect("this");
        let home = tempfile::tempdir_in(program.parent().expect("a directory")).expect("room");
        let home = home.path().canonicalize().expect("there");
        fs::create_dir(home.join("real")).expect("room");
        std::os::unix::fs::symlink("real", home.join("link")).expect("room");
        let mut files = files().expect("a mount table");
        let at = Duration::ZERO;
        for (name, found) in [
            ("link/a", true),
            ("real/a", true),
            ("real/b", false),
            ("none/c", false),
        ] {
            files.looked_up(&home.join(name), found, at);
            files.looked_up(&home.join(name), found, at);
        }
        let ready = Ready::new("test", 0);
        let profile = files.finish(Vec::new(), ready).expect("a profile").profile;
        let look_ups = profile.steps().iter().map(|step| match &step.asked {
            Asked::LookUp(look_up) => (look_up.name.clone(), look_up.found),
            _ => panic!("{step:?}"),
        });
        let expected = [("a".into(), true), ("b".into(), false)];
        assert_eq!(look_ups.collect::<Vec<_>>(), expected);
        let [directory] = profile.directories() else {
            panic!("{profile:?}");
        };
        let root = &profile.roots()[directory.root as usize].path;
        assert_eq!(root.join(&directory.path), home.join("real"));
    }
}
