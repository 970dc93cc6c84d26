use super::{Client, Installed, Ran, Room, room};
use crate::frozen::{Site, debian};

/// `apt-get update` and `apt-get install --download-only`, with directories of its own.
pub struct Apt;

impl Client for Apt {
    const KIND: &'static str = "apt";
    const INDEX: &'static str = "/debian";

    fn site() -> Site {
        debian::site()
    }

    fn install(room: &Room) -> Ran {
        room.write(
            "apt/etc/sources.list",
            &format!("deb [trusted=yes] http://{}/apt frozen main\n", room.proxy),
        );
        for directory in [
            "apt/etc/preferences.d",
            "apt/etc/apt.conf.d",
            "apt/state/lists/partial",
            "apt/cache/archives/partial",
        ] {
            std::fs::create_dir_all(room.path(directory)).unwrap();
        }
        room.write("apt/status", "");
        // This is read before the configuration of the system, which it leads elsewhere.
        let configuration = format!(
            "Dir::Etc \"{etc}\";\nDir::State \"{state}\";\nDir::State::status \"{status}\";\nDir::Cache \"{cache}\";\n\
             Dir::Log \"{log}\";\nAPT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Sandbox::User \"\";\nAPT::Update::Error-Mode \"any\";\nAcquire::Languages \"none\";\n\
             Acquire::Retries \"0\";\n",
            etc = room.text("apt/etc"),
            state = room.text("apt/state"),
            status = room.text("apt/status"),
            cache = room.text("apt/cache"),
            log = room.text("apt/log"),
        );
        room.write("apt/apt.conf", &configuration);
        let mut output = String::new();
        for args in [
            &["update"][..],
            &["install", "--yes", "--download-only", "frozen-app"],
        ] {
            let mut command = room.command("apt-get", "work");
            command
                .args(args)
                .env("APT_CONFIG", room.path("apt/apt.conf"));
            let ran = room.run(command, "apt");
            output.push_str(&ran.output);
            if !ran.done {
                return Ran {
                    done: false,
                    output,
                };
            }
        }
        Ran { done: true, output }
    }

    fn installed(room: &Room) -> Installed {
        room.digests(&[(
            "frozen-app",
            room.path("apt/cache/archives/frozen-app_1.0_all.deb"),
        )])
    }

    fn expected() -> Installed {
        room::expected(&[("frozen-app", &debian::package())])
    }
}
