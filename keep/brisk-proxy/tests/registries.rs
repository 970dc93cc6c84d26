//! The registries that the clients of this machine are configured with, through a proxy that finds them by itself. Nothing
//! here names one.
//!
//! These tests need a network, so `make test` leaves them out.

mod frozen;
mod installing;
#[path = "../../../ground/brisk-io/tests/machine/mod.rs"]
mod machine;
mod staging;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use frozen::archives::sha256;
use installing::{Installed, Ran, Room, settings};
use staging::{HANG, Program};

/// `brisk proxy`, as the user of this machine runs it. The maps come from the clients' configuration.
fn start(home: &Arc<tempfile::TempDir>, more: &[&str]) -> Result<Program, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brisk-proxy"));
    command
        .args(["--listen", "127.0.0.1:0", "--cache"])
        .arg(home.path().join("cache"))
        .args(more);
    Program::try_spawn(Arc::clone(home), command)
}

/// What is in a directory.
fn tree(directory: &Path) -> Installed {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|e| panic!("{}: {e}", next.display())) {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().display().to_string();
                    found.insert(name, sha256(&fs::read(path).unwrap()));
                }
            }
        }
    }
    found
}

/// A client installs through the proxy, and again without any upstream. `directory` has what it installed.
fn comes_from_a_registry(kind: &str, directory: &str, install: fn(&Room) -> Ran) {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let started = start(&home, &[]);
    let served = match &started {
        Ok(proxy)
            if proxy
                .messages()
                .contains(&format!("brisk proxy: /{kind}/ = ")) =>
        {
            Ok(())
        }
        Ok(proxy) => Err(proxy.messages()),
        Err(messages) => Err(messages.clone()),
    };
    let served = served.map_err(|messages| {
        let reason = messages
            .lines()
            .find(|line| line.contains(&format!("{kind}: ")));
        reason.unwrap_or(&messages).trim().to_owned()
    });
    if !machine::has("registries", served) {
        return;
    }
    let mut proxy = started.unwrap();
    let room = Room::new(proxy.address);
    let ran = install(&room);
    assert!(ran.done, "{}\n{}", ran.output, proxy.messages());
    let first = tree(&room.path(directory));
    assert!(!first.is_empty(), "{}", ran.output);
    proxy.terminate();
    assert!(proxy.wait(HANG).success());
    let proxy = start(&home, &["--offline"]).unwrap();
    let room = Room::new(proxy.address);
    let ran = install(&room);
    assert!(ran.done, "offline: {}\n{}", ran.output, proxy.messages());
    assert_eq!(tree(&room.path(directory)), first);
}

#[test]
#[ignore = "it asks a real index: make torture runs it"]
fn pip_downloads_from_the_index_of_this_machine() {
    comes_from_a_registry("python", "work/files", |room| {
        let mut command = room.command("python3", "work");
        command
            .args([
                "-m",
                "pip",
                "download",
                "--no-cache-dir",
                "--disable-pip-version-check",
            ])
            .args(["--no-deps", "--dest", "files", "six==1.16.0"])
            .env("PIP_CONFIG_FILE", "/dev/null")
            .envs(settings(room, "pip"));
        room.run(command, "python3-pip")
    });
}

#[test]
#[ignore = "it asks a real registry: make torture runs it"]
fn npm_installs_from_the_registry_of_this_machine() {
    comes_from_a_registry("npm", "work/node_modules/is-number", |room| {
        let npm = |args: &[&str]| {
            let mut command = room.command("npm", "work");
            command
                .args(args)
                .args(["--no-audit", "--no-fund", "--no-update-notifier"])
                .arg(format!("--cache={}", room.text("cache")))
                .arg(format!("--globalconfig={}", room.text("npmrc")))
                .envs(settings(room, "npm"));
            room.run(command, "npm")
        };
        let viewed = npm(&["view", "is-number@7.0.0", "version"]);
        assert_eq!((viewed.done, viewed.output.trim()), (true, "7.0.0"));
        npm(&["install", "is-number@7.0.0"])
    });
}

#[test]
#[ignore = "it asks a real index: make torture runs it"]
fn cargo_fetches_from_the_index_of_this_machine() {
    comes_from_a_registry("cargo", "cargo/registry/cache", |room| {
        room.write(
            "work/Cargo.toml",
            "[package]\nname = \"work\"\nversion = \"1.0.0\"\n[dependencies]\nitoa = \"=1.0.10\"\n",
        );
        installing::cargo::fetch(room)
    });
}

#[test]
#[ignore = "it asks a real proxy: make torture runs it"]
fn go_downloads_from_the_proxy_of_this_machine() {
    comes_from_a_registry("go", "go/pkg/mod/github.com", |room| {
        installing::go::go(room, &["mod", "download", "github.com/pkg/errors@v0.9.1"])
    });
}
