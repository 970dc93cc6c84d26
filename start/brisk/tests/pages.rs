//! Runs the commands of the pages that people read first, exactly as they are there.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A comment with this says that the command answers no.
const ANSWERS_NO: &str = "# exits with 1";

/// The lines of all `sh` blocks of a page. A command that answers no must exit with 1, all others with 0.
fn commands(page: &str) -> String {
    let mut script = "set -eu\n".to_owned();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside && line.contains(ANSWERS_NO) => {
                let code = "code=0; ";
                let test =
                    "[ $code -eq 1 ] || { echo \"exit code $code, expected 1\" >&2; exit 9; }";
                let (command, _) = line.split_once('#').unwrap_or((line, ""));
                script.push_str(&format!("{code}{command} || code=$?\n{test}\n"));
            }
            _ if inside => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

fn run(page: &str) {
    let script = commands(page);
    assert!(script.contains("brisk pack"), "the page has commands");
    let script =
        format!("trap 'for i in *.img; do brisk umount $i 2>/dev/null || :; done' EXIT\n{script}");
    let directory = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_brisk")).parent().unwrap();
    let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        // The page has its own sessions and learned packs, which end with it.
        .env("XDG_RUNTIME_DIR", directory.path())
        .env("XDG_CACHE_HOME", directory.path())
        .env_remove("SOURCE_DATE_EPOCH")
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("hello from "), "{stdout}");
}

#[test]
fn a_command_that_fails_ends_the_script() {
    let page = "```sh\ntrue\nfalse # exits with 1\necho last\n```\n";
    let ran = |page: &str| Command::new("sh").args(["-c", &commands(page)]).output();
    let output = ran(page).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), b"last\n".to_vec())
    );
    let code = |page: &str| ran(page).unwrap().status.code();
    assert_eq!(code(&page.replace("true", "false")), Some(1));
    assert_eq!(code(&page.replace("false", "true")), Some(9));
    assert_eq!(code(&page.replace("false", "(exit 2)")), Some(9));
}

#[test]
fn the_page_for_who_starts_programs_does_what_it_says() {
    run(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/start.md"
    )));
}

#[test]
fn the_page_for_who_ships_programs_does_what_it_says() {
    run(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/ship.md"
    )));
}

#[test]
fn the_readme_does_what_it_says() {
    run(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../README.md"
    )));
}

#[test]
fn no_page_in_docs_has_commands_that_nobody_runs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = 0;
    for entry in fs::read_dir(docs).unwrap() {
        let path = entry.unwrap().path();
        let is_run = ["start.md", "ship.md"].map(|page| path.ends_with(page));
        if path.extension().is_some_and(|end| end == "md") && is_run == [false; 2] {
            let page = fs::read_to_string(&path).unwrap();
            assert!(
                !page.lines().any(|line| line == "```sh"),
                "{} has a block sh, which only the README and the two pages above may have: take console",
                path.display()
            );
            pages += 1;
        }
    }
    assert!(pages > 10, "{pages}");
}
