//! The help of every verb is the text in `tests/help`.
//!
//! After an intended change, write the texts again and look at the difference:
//!
//! ```text
//! BRISK_WRITE_HELP=1 cargo test -p brisk --test help; git diff start/brisk/tests/help
//! ```

mod sandbox;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sandbox::Sandbox;

/// The verbs that the help of the whole command lists, and those that it hides.
fn verbs(help: &str) -> BTreeSet<String> {
    let listed = help
        .lines()
        .skip_while(|line| !line.starts_with("I start"))
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        // The lab has its own help.
        .filter(|verb| !verb.is_empty() && !["help", "lab"].contains(verb));
    listed
        .chain(["completions", "man"])
        .map(str::to_owned)
        .collect()
}

fn help_of(sandbox: &Sandbox, args: &[&str]) -> String {
    let output = sandbox
        .command(args)
        .env("COLUMNS", "100")
        .output()
        .expect("the command starts");
    sandbox::outcome(output).stdout
}

#[test]
fn help_is_what_is_written() {
    let sandbox = Sandbox::empty();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let write = std::env::var_os("BRISK_WRITE_HELP").is_some();
    let whole = help_of(&sandbox, &["--help"]);
    let mut expected_files = BTreeSet::from(["brisk.txt".to_owned()]);
    let mut texts = vec![("brisk.txt".to_owned(), whole.clone())];
    for verb in verbs(&whole) {
        let file = format!("{verb}.txt");
        expected_files.insert(file.clone());
        texts.push((file, help_of(&sandbox, &[&verb, "--help"])));
    }
    for (file, text) in &texts {
        let path = directory.join(file);
        if write {
            fs::write(&path, text).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == *text,
            "the help differs from tests/help/{file}; if that is meant, write it anew as the head \
             of tests/help.rs says. It is now:\n{text}"
        );
    }
    let files = fs::read_dir(&directory).unwrap();
    let files: BTreeSet<_> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files, expected_files, "every text has a verb");
}

#[test]
fn every_verb_has_a_man_page_and_completions() {
    let sandbox = Sandbox::empty();
    assert_eq!(sandbox.stdout(&["man", "share/man1"]), "");
    let page = fs::read_to_string(sandbox.path("share/man1/brisk-pack.1")).unwrap();
    assert!(
        page.contains(".SH SYNOPSIS") && page.contains("xz\\-bcj"),
        "{page}"
    );
    assert!(sandbox.path("share/man1/brisk.1").exists());
    let page = fs::read_to_string(sandbox.path("share/man1/brisk-run.1")).unwrap();
    let headings: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix(".SH "))
        .collect();
    assert_eq!(
        headings,
        [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"IMAGES ON THE NETWORK\"",
            "\"HOT PACKS, OF IMAGES\"",
            "\"PROFILES, OF DIRECTORIES AND WITH --KERNEL\"",
            "LEARNING",
            "NOTES",
            "\"EXIT STATUS\"",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ]
    );
    for part in [
        "\n.TP\n\\fBIMAGE.hot\\fR\nThe hot pack beside an image.\n",
        "\nbrisk run app.img \\-\\- bin/app\n",
        "brisk(1), brisk\\-stat(1), brisk\\-umount(1), ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!sandbox.path("share/man1/brisk-man.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            sandbox
                .stdout(&["completions", shell])
                .contains("block-size")
        );
    }
}
