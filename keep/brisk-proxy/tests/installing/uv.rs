use super::{Client, Installed, Ran, Room, room, settings};
use crate::frozen::{Site, python};

/// Where workshop/lab/deps puts uv, which is no Debian package.
const UV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/uv/bin/uv");

/// `uv pip install`.
pub struct UvInstall;

/// `uv pip compile`.
pub struct UvCompile;

fn uv(room: &Room, args: &[&str]) -> Ran {
    let mut command = room.command(UV, "work");
    command
        .args(["--no-config", "--no-progress", "--cache-dir", "../cache"])
        .args(args)
        .env("UV_HTTP_RETRIES", "0")
        .env("UV_PYTHON_DOWNLOADS", "never")
        .envs(settings(room, "uv"));
    room.run(command, "the package uv of PyPI")
}

impl Client for UvInstall {
    const KIND: &'static str = "python";
    const INDEX: &'static str = "/simple";

    fn site() -> Site {
        python::site()
    }

    fn install(room: &Room) -> Ran {
        uv(room, &["pip", "install", "--target", "site", "frozen-app"])
    }

    fn installed(room: &Room) -> Installed {
        room.digests(&[
            ("frozen_app", room.path("work/site/frozen_app.py")),
            ("frozen_lib", room.path("work/site/frozen_lib.py")),
        ])
    }

    fn expected() -> Installed {
        room::expected(&[
            ("frozen_app", python::module("frozen_app").as_bytes()),
            ("frozen_lib", python::module("frozen_lib").as_bytes()),
        ])
    }
}

impl Client for UvCompile {
    const KIND: &'static str = "python";
    const INDEX: &'static str = "/simple";

    fn site() -> Site {
        python::site()
    }

    fn install(room: &Room) -> Ran {
        room.write("work/requirements.in", "frozen-app\n");
        let args = [
            "--no-header",
            "--no-annotate",
            "--generate-hashes",
            "-o",
            "requirements.txt",
        ];
        uv(
            room,
            &[&["pip", "compile"][..], &args, &["requirements.in"]].concat(),
        )
    }

    fn installed(room: &Room) -> Installed {
        room.digests(&[("requirements.txt", room.path("work/requirements.txt"))])
    }

    fn expected() -> Installed {
        let line = |name: &str, needs: &[&str]| {
            let sum = crate::frozen::archives::sha256(&python::wheel(name, needs).0);
            format!(
                "{}==1.0.0 \\\n    --hash=sha256:{sum}\n",
                name.replace('_', "-")
            )
        };
        let text = line("frozen_app", &["frozen-lib"]) + &line("frozen_lib", &[]);
        room::expected(&[("requirements.txt", text.as_bytes())])
    }
}
