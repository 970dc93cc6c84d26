use super::{Client, Installed, Ran, Room, room, settings};
use crate::frozen::{Site, npm};

/// `npm install`.
pub struct Npm;

impl Client for Npm {
    const KIND: &'static str = "npm";
    const INDEX: &'static str = "";

    fn site() -> Site {
        npm::site()
    }

    fn install(room: &Room) -> Ran {
        room.write(
            "work/package.json",
            "{\"name\": \"work\", \"version\": \"1.0.0\", \"dependencies\": {\"frozen-app\": \"^1.0.0\"}}",
        );
        let mut command = room.command("npm", "work");
        command
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--no-progress",
                "--loglevel=http",
            ])
            .arg("--fetch-retries=0")
            .arg("--no-update-notifier")
            .arg(format!("--cache={}", room.text("cache")))
            .arg(format!("--globalconfig={}", room.text("npmrc")))
            .envs(settings(room, "npm"));
        room.run(command, "npm")
    }

    fn installed(room: &Room) -> Installed {
        room.digests(&npm::PACKAGES.map(|(name, _)| {
            let file = room.path("work/node_modules").join(name).join("index.js");
            (name, file)
        }))
    }

    fn expected() -> Installed {
        let texts = npm::PACKAGES.map(|(name, _)| (name, npm::module(name)));
        room::expected(
            &texts
                .each_ref()
                .map(|(name, text)| (*name, text.as_bytes())),
        )
    }
}
