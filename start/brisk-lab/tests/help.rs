//! The help of the lab is the text in `tests/help`, and the manual has it.
//!
//! After an intended change, write the texts again and look at the difference:
//!
//! ```text
//! BRISK_WRITE_HELP=1 cargo test -p brisk-lab --test help; git diff start/brisk-lab/tests/help
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

/// The output of `brisk`. Tests start it as users do, and it becomes the lab.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(staging::built())
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that help lists.
fn verbs(help: &str) -> Vec<String> {
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !verb.is_empty() && *verb != "help");
    listed.map(str::to_owned).collect()
}

#[test]
fn help_is_what_is_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let write = std::env::var_os("BRISK_WRITE_HELP").is_some();
    let whole = printed(&["lab", "--help"]);
    let verbs = verbs(&whole);
    assert!(verbs.contains(&"launch".to_owned()), "{whole}");
    let mut texts = vec![("lab.txt".to_owned(), whole)];
    for verb in &verbs {
        let text = printed(&["lab", verb, "--help"]);
        assert_eq!(text, printed(&["help", "lab", verb]));
        texts.push((format!("{verb}.txt"), text));
    }
    for (file, text) in &texts {
        let path = directory.join(file);
        if write {
            fs::write(&path, text).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == *text,
            "the help differs from tests/help/{file}; if that is meant, write it anew as the head of \
             tests/help.rs says. It is now:\n{text}"
        );
    }
    let expected: BTreeSet<_> = texts.into_iter().map(|(file, _)| file).collect();
    let files = fs::read_dir(&directory).unwrap();
    let files: BTreeSet<_> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, expected, "every text has a verb");
}

#[test]
fn the_manual_of_brisk_has_the_lab() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().to_str().unwrap();
    assert_eq!(printed(&["man", pages]), "");
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(read("brisk.1").contains("brisk\\-lab"));
    assert!(read("brisk-pack.1").contains("xz\\-bcj"));
    assert!(read("brisk-lab-launch.1").contains("ablation"));
    for name in ["brisk-lab-restore.1", "brisk-lab-man.1", "brisk-man.1"] {
        assert!(!directory.path().join(name).exists(), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        for option in ["block-size", "ablation"] {
            assert!(script.contains(option), "{shell}: {option}");
        }
    }
}
