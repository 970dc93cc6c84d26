use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Where configuration is looked for.
#[derive(Debug)]
pub struct Surroundings {
    variables: BTreeMap<String, String>,
    root: PathBuf,
    here: PathBuf,
    /// Whether clients themselves may be asked.
    programs: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn real() -> anyhow::Result<Self> {
        let variables = std::env::vars_os();
        Ok(Self {
            // A setting that is not UTF-8 is no URL.
            variables: variables
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            root: PathBuf::from("/"),
            here: std::env::current_dir().context("cannot tell the current directory")?,
            programs: true,
        })
    }

    /// Those of a system in a directory, with these variables. HOME is `home` there.
    #[cfg(test)]
    pub fn of_test(root: &Path, variables: &[(&str, &str)]) -> Self {
        let mut variables: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let home = root.join("home").to_str().unwrap().to_owned();
        variables.entry("HOME".to_owned()).or_insert(home);
        Self {
            variables,
            root: root.to_owned(),
            here: root.join("home/here"),
            programs: false,
        }
    }

    /// A variable that has a value.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// The variable whose name is this in upper or lower case.
    pub fn variable_of_any_case(&self, name: &str) -> Option<&str> {
        let mut all = self.variables.iter();
        let found =
            all.find(|(other, value)| other.eq_ignore_ascii_case(name) && !value.trim().is_empty());
        found.map(|(_, value)| value.trim())
    }

    /// A file of the system.
    pub fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file of the user.
    pub fn home(&self, path: &str) -> Option<PathBuf> {
        Some(Path::new(self.variable("HOME")?).join(path))
    }

    /// A file of the user's configuration.
    pub fn config(&self, path: &str) -> Option<PathBuf> {
        match self.variable("XDG_CONFIG_HOME") {
            Some(home) if Path::new(home).is_absolute() => Some(Path::new(home).join(path)),
            _ => self.home(&format!(".config/{path}")),
        }
    }

    /// Files of the system's configuration, in the order of `XDG_CONFIG_DIRS`.
    pub fn system_config(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        let directories = match self.variable("XDG_CONFIG_DIRS") {
            Some(set) => std::env::split_paths(set).collect(),
            None => vec![self.system("etc/xdg")],
        };
        directories
            .into_iter()
            .map(move |directory| directory.join(path))
    }

    /// The current directory and those above.
    pub fn here_and_above(&self) -> impl Iterator<Item = &Path> {
        self.here.ancestors()
    }

    /// The text of a file. None if it does not exist.
    pub fn read(&self, path: &Path) -> anyhow::Result<Option<String>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(e) => match e.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(e).with_context(|| path.display().to_string()),
            },
        }
    }

    /// Whether a program is in a directory of `PATH`.
    pub fn has_program(&self, name: &str) -> bool {
        let is_program = |path: PathBuf| {
            let found = fs::metadata(path);
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let directories = self.variable("PATH").map(std::env::split_paths);
        let mut directories = directories.into_iter().flatten();
        directories.any(|directory| is_program(directory.join(name)))
    }

    /// What a client says on stderr when it fails with these variables. None if it does not exist or does not fail.
    pub fn complaint(
        &self,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Option<String> {
        if !self.programs {
            return None;
        }
        let output = Command::new(program)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stderr).ok()?;
        (!output.status.success()).then_some(text)
    }

    /// What a client prints. None if it does not exist or fails.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        if !self.programs {
            return None;
        }
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let line = text.trim();
        (output.status.success() && !line.is_empty()).then(|| line.to_owned())
    }
}
