//! The commands of the pages that people read first: they are run as they stand there.

use std::path::Path;
use std::process::Command;

/// The lines of all `sh` blocks of a page.
fn commands(page: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
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
    // What differs says so with exit code 1, and the guide shows that too.
    let script = format!(
        "set -eu\nbrisk() {{ command brisk \"$@\" || [ $? -eq 1 ]; }}\n\
         trap 'for i in *.img; do brisk umount $i 2>/dev/null || :; done' EXIT\n{script}"
    );
    let directory = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_brisk")).parent().unwrap();
    let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        // Sessions of its own, which end with the page, and what they learn.
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
fn the_guide_does_what_it_says() {
    run(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../GUIDE.md"
    )));
}

#[test]
fn the_readme_does_what_it_says() {
    run(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../README.md"
    )));
}
