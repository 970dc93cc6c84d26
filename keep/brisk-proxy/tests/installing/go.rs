use super::{Client, Installed, Ran, Room, room, settings};
use crate::frozen::{Site, modules};

/// `go mod download`.
pub struct Go;

/// Runs go, which keeps all of its own in the room.
pub fn go(room: &Room, args: &[&str]) -> Ran {
    let mut command = room.command("go", "work");
    command
        .args(args)
        .env("GOENV", "off")
        .env("GOTOOLCHAIN", "local")
        // Without the right to write, nobody but root could remove the directory.
        .env("GOFLAGS", "-mod=mod -modcacherw")
        .env("GOSUMDB", "off")
        .env("GOPATH", room.path("go"))
        .env("GOCACHE", room.path("cache"))
        .envs(settings(room, "go"));
    room.run(command, "golang-go")
}

impl Client for Go {
    const KIND: &'static str = "go";
    const INDEX: &'static str = "";

    fn site() -> Site {
        modules::site()
    }

    fn install(room: &Room) -> Ran {
        room.write(
            "work/go.mod",
            "module frozen.example/work\n\ngo 1.17\n\nrequire frozen.example/app v1.0.0\n\nrequire frozen.example/lib v1.0.0 // indirect\n",
        );
        room.write("work/go.sum", &modules::sums());
        go(room, &["mod", "download"])
    }

    fn installed(room: &Room) -> Installed {
        let root = room.path("go/pkg/mod/frozen.example");
        room.digests(&["app", "lib"].map(|name| {
            let file = root.join(format!("{name}@v1.0.0/{name}.go"));
            (name, file)
        }))
    }

    fn expected() -> Installed {
        let texts = ["app", "lib"].map(|name| (name, modules::package(name)));
        room::expected(
            &texts
                .each_ref()
                .map(|(name, text)| (*name, text.as_bytes())),
        )
    }
}
