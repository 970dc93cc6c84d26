//! The variables and files that a configuration is read from.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// What a program finds around it. Tests make their own.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// None: those of the process.
    variables: Option<BTreeMap<&'static str, OsString>>,
    /// Where files of the system are: `/`.
    root: PathBuf,
    /// The working directory. None if it is gone.
    pub(crate) directory: Option<PathBuf>,
}

impl Surroundings {
    pub(crate) fn of_process() -> Self {
        Self {
            variables: None,
            root: PathBuf::from("/"),
            directory: env::current_dir().ok(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_test(
        root: &Path,
        directory: &Path,
        variables: BTreeMap<&'static str, OsString>,
    ) -> Self {
        Self {
            variables: Some(variables),
            root: root.to_owned(),
            directory: Some(directory.to_owned()),
        }
    }

    pub(crate) fn raw(&self, name: &str) -> Option<OsString> {
        match &self.variables {
            Some(variables) => variables.get(name).cloned(),
            None => env::var_os(name),
        }
    }

    /// The text of a variable. An empty one counts as not set, as in pip and uv.
    pub(crate) fn variable(&self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        let Ok(value) = value.into_string() else {
            bail!("the variable {name} is no UTF-8; correct it or unset it");
        };
        Ok(Some(value).filter(|value| !value.trim_ascii().is_empty()))
    }

    /// A path, which may be relative to the working directory.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        let value = self.raw(name).filter(|value| !value.is_empty())?;
        Some(self.absolute(Path::new(&value)))
    }

    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        match &self.directory {
            Some(directory) => directory.join(path),
            None => path.to_owned(),
        }
    }

    /// A path that counts only if it is absolute, as those of XDG.
    pub(crate) fn xdg(&self, name: &str) -> Option<PathBuf> {
        self.raw(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// A file of the system.
    pub(crate) fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.xdg("HOME")
    }

    /// The netrc file, as pip finds it.
    pub(crate) fn netrc(&self) -> Option<PathBuf> {
        let of_home = || {
            let home = self.home()?;
            let mut files = [".netrc", "_netrc"].map(|name| home.join(name)).into_iter();
            files.find(|file| file.exists())
        };
        self.path("NETRC").or_else(of_home)
    }

    pub(crate) fn configuration_home(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME")
            .or_else(|| self.home().map(|home| home.join(".config")))
    }

    /// The directories of the system's configuration, the one that counts most first.
    pub(crate) fn configuration_directories(&self) -> Vec<PathBuf> {
        match self.raw("XDG_CONFIG_DIRS").filter(|set| !set.is_empty()) {
            Some(set) => env::split_paths(&set)
                .filter(|path| path.is_absolute())
                .collect(),
            None => vec![self.system("/etc/xdg")],
        }
    }

    /// The directory that python3 is installed in, as far as its path says that: that of a virtual environment, or the one
    /// above the directory of the program.
    pub(crate) fn python_prefix(&self) -> Option<PathBuf> {
        let path = self.raw("PATH")?;
        let mut programs = env::split_paths(&path).map(|directory| directory.join("python3"));
        let program = programs.find(|program| program.is_file())?;
        let prefix = |program: &Path| program.parent()?.parent().map(Path::to_owned);
        let of_link = prefix(&program)?;
        if of_link.join("pyvenv.cfg").is_file() {
            return Some(of_link);
        }
        prefix(&program.canonicalize().ok()?)
    }
}

/// The text of a file. None if there is no such file.
pub(crate) fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).with_context(|| file.display().to_string()),
    }
}

/// What pip and uv take for yes and no.
pub(crate) fn truth(text: &str, source: &str) -> anyhow::Result<bool> {
    match text.trim_ascii().to_ascii_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Ok(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Ok(false),
        _ => bail!("{source} is {text:?}, allowed are true and false; correct it there"),
    }
}

/// A value, and what it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: String,
    /// A variable, an option, or a file.
    pub(crate) source: String,
}

impl Setting {
    pub(crate) fn new(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            source: source.into(),
        }
    }
}
