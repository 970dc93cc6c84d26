//! The index that pip is configured with on this machine, asked by pip and by pyindex. Nothing of it is stored in the
//! project.

#[path = "../../../ground/brisk-io/tests/machine/mod.rs"]
mod machine;

use std::process::{Command, Output};

use serde_json::Value;

/// Projects with wheels of many kinds, only source distributions, versions that are yanked, and many versions.
const NAMES: [&str; 30] = [
    "attrs",
    "black",
    "botocore",
    "certifi",
    "charset-normalizer",
    "click",
    "cryptography",
    "django",
    "docutils",
    "flask",
    "grpcio",
    "idna",
    "jinja2",
    "lxml",
    "markupsafe",
    "numpy",
    "packaging",
    "pillow",
    "pip",
    "psutil",
    "pycparser",
    "pytest",
    "python-dateutil",
    "pytz",
    "pyyaml",
    "requests",
    "setuptools",
    "six",
    "urllib3",
    "wheel",
];

/// Where pyindex stores pages, and the index that pip asks: pyindex has none built in.
struct Stage {
    home: tempfile::TempDir,
    index: String,
}

impl Stage {
    fn new() -> Self {
        let python = |args: &[&str]| {
            let output = Command::new("python3").args(args).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let of = |key| python(&["-m", "pip", "config", "get", key]);
        let keys = [":env:.index-url", "install.index-url", "global.index-url"];
        let configured = keys.into_iter().map(of).find(|url| !url.is_empty());
        let default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
        Self {
            home: tempfile::tempdir().unwrap(),
            index: configured.unwrap_or_else(|| python(&["-c", default])),
        }
    }

    fn pyindex(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_pyindex"))
            .args(args)
            .args(["--index-url", &self.index, "--cache"])
            .arg(self.home.path())
            .output()
            .unwrap()
    }
}

/// What pip calls the available versions of a project, the newest first.
fn of_pip(name: &str) -> Result<Vec<String>, String> {
    let output = Command::new("python3")
        .args(["-m", "pip", "index", "versions", "--no-cache-dir"])
        .args(["--disable-pip-version-check", name])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("Available versions: "));
    let versions = line.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    Ok(versions.split(", ").map(str::to_owned).collect())
}

#[test]
#[ignore = "it asks a real index: make torture runs it"]
fn the_versions_are_those_of_pip() {
    let first = of_pip(NAMES[0]);
    if !machine::has("registries", first.map(|_| ())) {
        return;
    }
    let stage = Stage::new();
    for name in NAMES {
        let theirs = of_pip(name).unwrap();
        let listed = stage.pyindex(&["versions", name]);
        let said = String::from_utf8_lossy(&listed.stderr).into_owned();
        assert!(listed.status.success(), "{name}: {said}");
        let listed = String::from_utf8(listed.stdout).unwrap();
        let ours: Vec<&str> = listed.lines().collect();
        // pip lists versions that are yanked, too.
        let (both, only): (Vec<&str>, Vec<&str>) = theirs
            .iter()
            .map(String::as_str)
            .partition(|version| ours.contains(version));
        assert_eq!(ours, both, "{name}");
        // pip before 24.1 also lists what PEP 440 does not know as a version, such as 2004d.
        let is_version = |version: &&str| version.parse::<pep440_rs::Version>().is_ok();
        let only: Vec<&str> = only.into_iter().filter(is_version).collect();
        if only.is_empty() {
            continue;
        }
        let pinned: Vec<_> = only
            .iter()
            .map(|version| format!("{name}=={version}"))
            .collect();
        let mut args = vec!["best", "--json"];
        args.extend(pinned.iter().map(String::as_str));
        let told: Value = serde_json::from_slice(&stage.pyindex(&args).stdout).unwrap();
        for one in told.as_array().unwrap() {
            assert_eq!(one["yanked"], true, "{one}");
        }
    }
}
