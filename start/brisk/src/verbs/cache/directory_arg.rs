//! The directory that the verbs of `brisk cache` look at.

use std::io;
use std::path::{Path, PathBuf};

use brisk_cache::Inspection;
use brisk_terminal::messages::count;

use super::code_cache::CodeCacheFiles;

/// The directory of a cache.
#[derive(Debug, clap::Args)]
pub struct DirectoryArg {
    /// The directory of the cache.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// A directory that programs of brisk's libraries fill.
pub enum Directory {
    Cache(Inspection),
    CodeCache(CodeCacheFiles),
}

/// Finds out what the directory is, from the headers of its files.
pub fn recognise(directory: &Path) -> anyhow::Result<Directory> {
    match Inspection::open(directory) {
        Ok(inspection) => Ok(Directory::Cache(inspection)),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            match CodeCacheFiles::find(directory)? {
                Some(files) => Ok(Directory::CodeCache(files)),
                None => Err(e.into()),
            }
        }
        Err(e) => Err(e.into()),
    }
}

/// Opens a cache to look at it.
pub fn open(directory: &Path) -> anyhow::Result<Inspection> {
    match recognise(directory)? {
        Directory::Cache(inspection) => Ok(inspection),
        Directory::CodeCache(files) => anyhow::bail!(
            "{}: a cache of generated code of an older brisk, with {}, of which brisk cache stat alone knows something; \
             no program of this version finds them, so remove them",
            directory.display(),
            count(files.entries, "entry", "entries")
        ),
    }
}
