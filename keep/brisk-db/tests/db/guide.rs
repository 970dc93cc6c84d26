//! The page about databases does what it says.

use std::process::Command;

use crate::ledger::Ledger;

/// The `console` blocks of the section: each command, and what it prints.
fn commands() -> Vec<(String, String)> {
    let page = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/databases.md"
    ));
    let start = page.find("## Look into a program's database").unwrap();
    let section = &page[start..];
    let end = section[3..].find("\n## ").unwrap();
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for line in section[..end].lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => is_inside = true,
            ("```", _) => is_inside = false,
            (_, Some(command)) if is_inside => commands.push((command.to_owned(), String::new())),
            _ if is_inside => {
                let (_, printed) = commands.last_mut().unwrap();
                printed.push_str(line);
                printed.push('\n');
            }
            _ => {}
        }
    }
    commands
}

#[test]
fn the_page_does_what_it_says() {
    let ledger = Ledger::new();
    let commands = commands();
    assert!(commands.len() > 8);
    let mut page = String::new();
    let mut is_same = true;
    for (command, expected) in commands {
        let script = format!(
            "set -o pipefail; brisk() {{ shift; \"$BRISK_DB\" \"$@\"; }}; {{ {command}; }} 2>&1"
        );
        let output = Command::new("bash")
            .args(["-c", &script])
            .env("BRISK_DB", env!("CARGO_BIN_EXE_brisk-db"))
            .current_dir(ledger.home.path())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {printed}");
        is_same &= printed == expected;
        page.push_str(&format!("$ {command}\n{printed}"));
    }
    assert!(is_same, "the section must say:\n{page}");
}
