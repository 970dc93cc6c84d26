use super::{Client, Installed, Ran, Room, room, settings};
use crate::frozen::{Site, python};

/// `pip download`.
pub struct Pip;

impl Client for Pip {
    const KIND: &'static str = "python";
    const INDEX: &'static str = "/simple";

    fn site() -> Site {
        python::site()
    }

    fn install(room: &Room) -> Ran {
        let mut command = room.command("python3", "work");
        command
            .args(["-m", "pip", "download", "--no-cache-dir", "--retries", "0"])
            .args([
                "--disable-pip-version-check",
                "--dest",
                "files",
                "frozen-app",
            ])
            .env("PIP_CONFIG_FILE", "/dev/null")
            .envs(settings(room, "pip"));
        room.run(command, "python3-pip")
    }

    fn installed(room: &Room) -> Installed {
        let file = |name| room.path("work/files").join(python::wheel_name(name));
        room.digests(&[
            ("frozen_app", file("frozen_app")),
            ("frozen_lib", file("frozen_lib")),
        ])
    }

    fn expected() -> Installed {
        room::expected(&[
            (
                "frozen_app",
                &python::wheel("frozen_app", &["frozen-lib"]).0,
            ),
            ("frozen_lib", &python::wheel("frozen_lib", &[]).0),
        ])
    }
}
