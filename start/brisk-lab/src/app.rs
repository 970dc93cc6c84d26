//! A program to launch: what a spec says, and where its files are.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail, ensure};
use brisk_launch::Readiness;
use brisk_serve::Bind;
use brisk_terminal::messages::say;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use brisk::parse_bind;
use brisk::parse_readiness;

use super::undo::Undo;

/// What a program finds in its home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Home {
    /// Nothing.
    #[default]
    Fresh,
    /// What earlier launches have left there.
    Kept,
}

/// A place that a tree lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingPlace {
    pub path: PathBuf,
    /// Whether a directory belongs there, and not a file.
    pub is_directory: bool,
}

/// A program's name and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub program: OsString,
    pub arguments: Vec<OsString>,
}

impl Words {
    /// None if there is no program.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Option<Self> {
        let mut words = words.into_iter().map(Into::into);
        Some(Self {
            program: words.next()?,
            arguments: words.collect(),
        })
    }

    /// The command as a shell takes it.
    pub fn as_typed(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let words = words.map(|word| {
            brisk_terminal::shell_word::shell_word(word)
                .to_string_lossy()
                .into_owned()
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The words as people read them.
    pub fn shown(&self) -> Vec<String> {
        std::iter::once(&self.program)
            .chain(&self.arguments)
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.shown())
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        Self::new(words).ok_or_else(|| D::Error::custom("there is no program"))
    }
}

/// A program to launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct App {
    /// The name in tables and results.
    pub name: String,
    /// The tree, as a canonical path.
    pub tree: PathBuf,
    /// The place where the program expects its tree. If it is `/`, the tree is the program's root directory.
    pub at: PathBuf,
    /// The command to measure.
    pub command: Words,
    /// Commands that run the same program on other inputs.
    pub train: Vec<Words>,
    /// Variables of the environment besides `PATH`, `HOME` and `LC_ALL`.
    pub env: BTreeMap<String, String>,
    /// The working directory, below the tree's place. None is that of the lab.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// `SRC:DST` or `SRC:DST:ro`.
    pub binds: Vec<String>,
    /// When a launch is ready, in the form that [`ready`] reads.
    pub ready: String,
    /// A text that every launch prints somewhere on standard output.
    pub prints: Option<String>,
    /// The whole text that every launch prints on standard output.
    pub prints_exactly: Option<String>,
    /// What is in the home directory.
    pub home: Home,
    /// A command that puts something there before each launch.
    #[serde(default)]
    pub setup: Option<Words>,
    /// The exit statuses of a launch that counts. Without any it is 0.
    #[serde(default)]
    pub exits: Vec<i32>,
    /// Whether the lab starts an X server for it.
    #[serde(default)]
    pub display: bool,
}

/// A spec, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Spec {
    name: String,
    tree: PathBuf,
    /// The program that builds the tree, and its arguments. The lab adds the tree's path after them.
    #[serde(default)]
    build: Vec<String>,
    #[serde(default)]
    root: bool,
    at: Option<PathBuf>,
    command: Vec<String>,
    #[serde(default)]
    train: Vec<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    #[serde(default)]
    binds: Vec<String>,
    ready: Option<String>,
    prints: Option<String>,
    prints_exactly: Option<String>,
    #[serde(default)]
    home: Home,
    #[serde(default)]
    setup: Vec<String>,
    #[serde(default)]
    exits: Vec<u8>,
    #[serde(default)]
    display: bool,
}

impl App {
    /// The app that the spec at `path` describes. Its tree is in `trees`, or beside the spec. If it is
    /// missing, the spec's program builds it there.
    pub fn open(path: &Path, trees: Option<&Path>) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the spec {}", path.display()))?;
        let spec: Spec = toml::from_str(&text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let before = text.get(..at).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().len() + 1;
            let what = e.message().replace('\n', ", ");
            anyhow::anyhow!("{}, line {line}, column {column}: {what}", path.display())
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let tree = trees.unwrap_or(folder).join(&spec.tree);
        if !tree.exists() {
            build(&spec.build, folder, &tree)
                .with_context(|| format!("{}, field tree", path.display()))?;
        }
        let words = |field: &str, words: Vec<String>| {
            let no_program = || format!("{}, field {field}: there is no program", path.display());
            Words::new(words).with_context(no_program)
        };
        let train = spec.train.into_iter().map(|train| words("train", train));
        let setup = match spec.setup.is_empty() {
            true => None,
            false => {
                let mut setup = words("setup", spec.setup)?;
                // Relative to the spec, as the field build.
                if setup.program.as_encoded_bytes().contains(&b'/') {
                    let program = std::path::absolute(folder.join(&setup.program));
                    setup.program = program.context("field setup")?.into();
                }
                Some(setup)
            }
        };
        let at = match (spec.root, spec.at) {
            (true, Some(_)) => bail!(
                "{}: root and at are both given, allowed is one: a root directory has no other place",
                path.display()
            ),
            (true, None) => Some(PathBuf::from("/")),
            (false, at) => at,
        };
        let app = Self {
            name: spec.name,
            env: spec.env,
            directory: spec.directory,
            binds: spec.binds,
            ready: spec.ready.unwrap_or_else(|| "exit".to_owned()),
            prints: spec.prints,
            prints_exactly: spec.prints_exactly,
            home: spec.home,
            setup,
            exits: spec.exits.into_iter().map(i32::from).collect(),
            display: spec.display,
            train: train.collect::<Result<_>>()?,
            ..Self::new(&tree, at.as_deref(), words("command", spec.command)?)?
        };
        app.check()
            .with_context(|| path.display().to_string())
            .map(|()| app)
    }

    /// The program `command` in `tree`. It expects the tree at `at`, or where the tree is.
    pub fn new(tree: &Path, at: Option<&Path>, command: Words) -> Result<Self> {
        let tree = tree
            .canonicalize()
            .with_context(|| format!("cannot find the tree {}", tree.display()))?;
        ensure!(tree.is_dir(), "{} is not a directory", tree.display());
        let at = match at {
            Some(at) => at
                .canonicalize()
                .with_context(|| format!("cannot find the place {}", at.display()))?,
            None => tree.clone(),
        };
        let name = tree.file_name().unwrap_or(OsStr::new("/"));
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            tree,
            at,
            command,
            train: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            binds: Vec::new(),
            ready: "exit".to_owned(),
            prints: None,
            prints_exactly: None,
            home: Home::Fresh,
            setup: None,
            exits: Vec::new(),
            display: false,
        })
    }

    /// Whether the tree is the program's root directory.
    pub fn is_root(&self) -> bool {
        self.at == Path::new("/")
    }

    /// Whether a launch that ends in this way has done what it should.
    pub fn accepts(&self, status: ExitStatus) -> bool {
        match self.exits.is_empty() {
            true => status.success(),
            false => status.code().is_some_and(|code| self.exits.contains(&code)),
        }
    }

    /// The binds, parsed.
    pub fn binds(&self) -> Result<Vec<Bind>> {
        let bind = |text: &String| {
            parse_bind(text.as_ref()).map_err(|e| anyhow::anyhow!("field binds: found {text}, {e}"))
        };
        self.binds.iter().map(bind).collect()
    }

    /// What is shown to the program in a tree that is its root directory, but has no place there: each missing directory
    /// before what is in it. brisk run makes these places. The kernel cannot, in an image that it mounts.
    pub fn missing_places(&self) -> Result<Vec<MissingPlace>> {
        let binds = self.binds()?;
        let mut missing: Vec<MissingPlace> = Vec::new();
        if !self.is_root() {
            return Ok(missing);
        }
        let binds = binds.iter().map(|bind| {
            // The setup may make it.
            let is_directory = !bind.source.exists() || bind.source.is_dir();
            ("binds: something is shown at", &*bind.target, is_directory)
        });
        let tmp = ("root: programs have their home in", Path::new("/tmp"), true);
        for (what, target, is_directory) in std::iter::once(tmp).chain(binds) {
            let place = self.tree.join(target.strip_prefix("/").unwrap_or(target));
            let above: Vec<_> = place.ancestors().collect();
            let lacking = above.iter().take_while(|path| !path.exists()).count();
            let stands_in = above.get(lacking).and_then(|path| path.canonicalize().ok());
            let stands_in = stands_in.unwrap_or_else(|| place.clone());
            let shown = target.display();
            ensure!(
                stands_in.starts_with(&self.tree),
                "field {what} {shown}, which leads out of the tree, to {}; allowed is a place in the tree",
                stands_in.display()
            );
            ensure!(
                lacking == 0 || stands_in.is_dir(),
                "field {what} {shown}, for which the tree has no place: {} is no directory",
                stands_in.display()
            );
            for path in above.iter().take(lacking).rev() {
                if !missing.iter().any(|known| known.path == *path) {
                    missing.push(MissingPlace {
                        path: path.to_path_buf(),
                        is_directory: is_directory || *path != place,
                    });
                }
            }
        }
        Ok(missing)
    }

    /// Makes what [`App::missing_places`] names, for as long as the lab runs.
    pub fn make_places(&self, undo: &mut Undo) -> Result<()> {
        for MissingPlace { path, is_directory } in self.missing_places()? {
            undo.remove_place(&path)?;
            let made = match is_directory {
                true => fs::create_dir(&path),
                false => fs::File::create_new(&path).map(drop),
            };
            made.with_context(|| {
                format!(
                    "the tree lacks {}, and it cannot be made there",
                    path.display()
                )
            })?;
        }
        Ok(())
    }

    /// Finds errors before anything is built.
    fn check(&self) -> Result<()> {
        ready(&self.ready).with_context(|| format!("field ready: found {}", self.ready))?;
        self.missing_places()?;
        if let Some(directory) = &self.directory {
            ensure!(
                !self.is_root(),
                "field directory: found {}, allowed is none, because the tree is a root directory",
                directory.display()
            );
            ensure!(
                self.tree.join(directory).is_dir(),
                "field directory: found {}, allowed is a directory in the tree",
                directory.display()
            );
        }
        let commands = [("command", &self.command)]
            .into_iter()
            .chain(self.train.iter().map(|command| ("train", command)));
        for (field, command) in commands {
            let program = Path::new(&command.program);
            ensure!(
                !self.is_root() || program.is_absolute(),
                "field {field}: found {}, allowed is an absolute path in the tree",
                program.display()
            );
        }
        Ok(())
    }
}

/// When a launch is ready. The clock stops then. So a fixed time is refused, which would measure nothing, and
/// so is everything that is found by polling, which is found late.
pub fn ready(text: &str) -> Result<Readiness> {
    match parse_readiness(text.into()) {
        Ok(ready @ (Readiness::Exit | Readiness::Line(_) | Readiness::Window(_))) => Ok(ready),
        _ => bail!("allowed are exit, line:TEXT, window and window:TITLE"),
    }
}

fn build(program: &[String], folder: &Path, tree: &Path) -> Result<()> {
    let Some((program, arguments)) = program.split_first() else {
        bail!(
            "there is no {}, and the spec has no field build that says how to make it; name the folder that has it with --trees",
            tree.display()
        );
    };
    // Relative to the spec, whatever the working directory is.
    let program = match program.contains('/') {
        true => folder.join(program),
        false => program.into(),
    };
    say(&format!("{}: building it first", tree.display()));
    let status = Command::new(&program)
        .args(arguments)
        .arg(tree)
        // stdout is for the table.
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(
        status.success() && tree.is_dir(),
        "{} did not make {}: it ended with {status}",
        program.display(),
        tree.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt;

    fn spec(text: &str) -> Result<App> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/tmp")).unwrap();
        fs::write(dir.path().join("tree/file"), "").unwrap();
        symlink("/usr", dir.path().join("tree/out")).unwrap();
        fs::write(dir.path().join("app.toml"), text).unwrap();
        App::open(&dir.path().join("app.toml"), None)
    }

    fn refusal(text: &str) -> String {
        let text = format!("{:#}", spec(text).unwrap_err());
        text.split_once("app.toml").unwrap().1.to_owned()
    }

    #[test]
    fn a_spec_is_read() {
        let app = spec(
            "name = 'a'\ntree = 'tree'\nroot = true\ncommand = ['/bin/a', 'x']\n\
             train = [['/bin/a', 'y']]\nhome = 'kept'\nprints-exactly = \"x\\n\"\n",
        )
        .unwrap();
        assert!(app.is_root() && app.tree.ends_with("tree"));
        assert_eq!(app.command.shown(), ["/bin/a", "x"]);
        assert_eq!(app.train, [Words::new(["/bin/a", "y"]).unwrap()]);
        assert_eq!(
            (app.home, app.prints_exactly.as_deref()),
            (Home::Kept, Some("x\n"))
        );
    }

    #[test]
    fn places_that_a_tree_lacks_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/data")).unwrap();
        let text = "name = 'a'\ntree = 'tree'\nroot = true\ncommand = ['/a']\n\
                    binds = ['/etc:/data/x/etc', '/etc/passwd:/data/x/passwd', '/usr:/data']\n";
        fs::write(dir.path().join("app.toml"), text).unwrap();
        let app = App::open(&dir.path().join("app.toml"), None).unwrap();
        let missing = app.missing_places().unwrap();
        let missing = missing.iter().map(|place| {
            let path = place.path.strip_prefix(&app.tree).unwrap();
            (path.to_str().unwrap(), place.is_directory)
        });
        let expected = [
            ("tmp", true),
            ("data/x", true),
            ("data/x/etc", true),
            ("data/x/passwd", false),
        ];
        assert_eq!(missing.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn exit_statuses_can_be_named() {
        let ended = |code: i32| ExitStatus::from_raw(code << 8);
        let plain = spec("name = 'a'\ntree = 'tree'\ncommand = ['a']\n").unwrap();
        assert!(plain.accepts(ended(0)) && !plain.accepts(ended(1)));
        let named = spec(
            "name = 'a'\ntree = 'tree'\ncommand = ['a']\nexits = [1, 3]\nsetup = ['./make-home', 'x']\n",
        )
        .unwrap();
        let accepted: Vec<_> = (0..5).filter(|code| named.accepts(ended(*code))).collect();
        assert_eq!(accepted, [1, 3]);
        // By a signal.
        assert!(!named.accepts(ExitStatus::from_raw(1)));
        let setup = named.setup.unwrap();
        assert!(Path::new(&setup.program).is_absolute());
        assert!(setup.program.to_str().unwrap().ends_with("make-home"));
    }

    #[test]
    fn each_fault_of_a_spec_says_its_place() {
        let table = [
            (
                "name = 'a'\ntree = 'tree'\n  trees = 'x'\n",
                ", line 3, column 3: unknown field `trees`, expected one of",
            ),
            (
                "name = 'a'\ntree = 'tree'\n",
                ", line 1, column 1: missing field `command`",
            ),
            (
                "name = 'a'\ntree = 'none'\ncommand = ['a']\n",
                ", field tree: there is no ",
            ),
            (
                "name = 'a'\ntree = 'tree'\ncommand = ['a']\nready = 'after:1'\n",
                ": field ready: found after:1: allowed are exit, line:TEXT, window and window:TITLE",
            ),
            (
                "name = 'a'\ntree = 'tree'\ncommand = ['a']\nbinds = ['a']\n",
                ": field binds: found a, allowed is SRC:DST or SRC:DST:ro",
            ),
            (
                "name = 'a'\ntree = 'tree'\nroot = true\ncommand = ['/a']\nbinds = ['/etc:/file/etc']\n",
                ": field binds: something is shown at /file/etc, for which the tree has no place: ",
            ),
            (
                "name = 'a'\ntree = 'tree'\nroot = true\ncommand = ['/a']\nbinds = ['/etc:/out/etc']\n",
                ": field binds: something is shown at /out/etc, which leads out of the tree, to /usr",
            ),
            (
                "name = 'a'\ntree = 'tree'\ncommand = ['a']\nexits = [256]\n",
                ", line 4, column 10: invalid value: integer `256`, expected u8",
            ),
            (
                "name = 'a'\ntree = 'tree'\nroot = true\ncommand = ['a']\n",
                ": field command: found a, allowed is an absolute path in the tree",
            ),
            (
                "name = 'a'\ntree = 'tree'\ncommand = ['a']\ntrain = [[]]\n",
                ", field train: there is no program",
            ),
        ];
        for (text, message) in table {
            let found = refusal(text);
            assert!(found.starts_with(message), "{found}");
        }
    }
}
