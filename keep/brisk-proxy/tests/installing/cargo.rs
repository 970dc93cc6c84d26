use std::path::Path;

use super::{Client, Installed, Ran, Room, room};
use crate::frozen::{Site, crates};

/// `cargo fetch`.
pub struct Cargo;

/// Fetches what `work/Cargo.toml` needs.
pub fn fetch(room: &Room) -> Ran {
    room.write("work/.cargo/config.toml", &room.settings("cargo"));
    room.write("work/src/lib.rs", "");
    // The cargo that has built this test is no shim, which would want the home of its user.
    let cargo = Path::new(env!("CARGO"));
    let mut command = room.command(cargo, "work");
    command
        .arg("fetch")
        .env("CARGO_HOME", room.path("cargo"))
        .env("CARGO_NET_RETRY", "0")
        .env("RUSTC", cargo.with_file_name("rustc"));
    room.run(command, "cargo")
}

impl Client for Cargo {
    const KIND: &'static str = "cargo";
    const INDEX: &'static str = "/index";

    fn site() -> Site {
        crates::site()
    }

    fn install(room: &Room) -> Ran {
        room.write(
            "work/Cargo.toml",
            "[package]\nname = \"work\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\nfrozen-app = \"1\"\n",
        );
        fetch(room)
    }

    fn installed(room: &Room) -> Installed {
        let unpacked = room::directories(&room.path("cargo/registry/src"));
        let root = unpacked.first().cloned().unwrap_or_default();
        let library = |name| root.join(format!("{name}-1.0.0/src/lib.rs"));
        room.digests(&["frozen-app", "frozen-lib"].map(|name| (name, library(name))))
    }

    fn expected() -> Installed {
        let texts = ["frozen-app", "frozen-lib"].map(|name| (name, crates::library(name)));
        room::expected(
            &texts
                .each_ref()
                .map(|(name, text)| (*name, text.as_bytes())),
        )
    }
}
