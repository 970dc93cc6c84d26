use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

use super::*;
use crate::sys::namespaces::unshare_mounts;

/// A file that may be read, one that may not, and a directory that may be written in.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["image", "secret"] {
            fs::write(dir.path().join(name), name).expect("room");
        }
        fs::create_dir(dir.path().join("packs")).expect("room");
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// What a thread that was confined found.
struct Found {
    limits: Confinement,
    /// Its lines in `/proc`.
    status: String,
    execute: io::Error,
    socket: Result<(), Errno>,
    local_socket: Result<(), Errno>,
    unshare: Result<(), Errno>,
    unmount: Result<(), Errno>,
    create: Result<(), Option<i32>>,
    create_in_packs: Result<(), Option<i32>>,
    read_image: Result<(), Option<i32>>,
    read_secret: Result<(), Option<i32>>,
    works: bool,
}

/// Limits a thread to `role`, and tries. The kernel keeps all limits by thread, so the others keep what they have.
fn try_as(role: Role, place: &Place) -> Found {
    let image = File::open(place.path("image")).expect("a file");
    let packs = File::open(place.path("packs")).expect("a directory");
    let opened = |result: io::Result<File>| result.map(drop).map_err(|e| e.raw_os_error());
    thread::scope(|scope| {
        let tries = scope.spawn(|| {
            let files = Files {
                read: vec![image.as_fd()],
                write: (role == Role::Learner).then(|| packs.as_fd()),
            };
            let limits = confine(role, &files);
            let unix = |family| socket(family, SocketType::STREAM, None).map(drop);
            Found {
                limits,
                status: fs::read_to_string("/proc/thread-self/status").expect("proc"),
                // If this worked, the whole test would end with an error.
                execute: Command::new("/bin/false").exec(),
                socket: unix(AddressFamily::INET),
                local_socket: unix(AddressFamily::UNIX),
                unshare: unshare_mounts(),
                unmount: rustix::mount::unmount("/no/mount", rustix::mount::UnmountFlags::FORCE),
                create: opened(File::create(place.path("new"))),
                create_in_packs: opened(File::create(place.path("packs/new"))),
                read_image: opened(File::open(place.path("image"))),
                read_secret: opened(File::open(place.path("secret"))),
                works: works(&image),
            }
        });
        tries.join().expect("no panic")
    })
}

/// Whether a process can still do its work: read what it has, start threads, and tell of a panic.
fn works(mut image: &File) -> bool {
    let mut text = String::new();
    image.read_to_string(&mut text).expect("open before");
    let sum = thread::spawn(|| (1..=4).sum::<u32>()).join();
    let panicked = std::panic::catch_unwind(|| panic!("this panic is a part of the test"));
    text == "image" && matches!(sum, Ok(10)) && panicked.is_err()
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.expect(name).trim_start_matches(':').trim()
}

const NOTHING: &str = "0000000000000000";

#[test]
fn each_role_can_do_its_work_and_little_else() {
    assert!(can_filter_calls(), "this needs seccomp");
    assert!(landlock_version().is_some(), "this needs Landlock");
    assert!(
        Path::new("/proc/thread-self").exists(),
        "this needs Linux 3.17"
    );
    let place = Place::new();
    let as_guardian = Role::Guardian { by_name: false };
    let as_watchdog = Role::Watchdog { by_name: false };
    for role in [Role::Server, Role::Learner, as_watchdog, as_guardian] {
        let found = try_as(role, &place);
        let decodes = matches!(role, Role::Server | Role::Learner);
        let expected = Confinement {
            capabilities: true,
            calls: true,
            files: decodes,
        };
        assert_eq!(found.limits, expected, "{role:?}");
        assert!(found.works, "{role:?}");

        // What it has.
        let caps = match role {
            Role::Server | Role::Learner => NOTHING,
            Role::Watchdog { .. } | Role::Guardian { .. } => "0000000000280000",
        };
        for set in ["CapEff", "CapPrm"] {
            assert_eq!(line(&found.status, set), caps, "{set} of {role:?}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(line(&found.status, set), NOTHING, "{set} of {role:?}");
        }
        assert_eq!(line(&found.status, "NoNewPrivs"), "1", "{role:?}");
        assert_eq!(line(&found.status, "Seccomp"), "2", "{role:?}");

        // Nobody executes, connects or leaves.
        assert_eq!(found.execute.raw_os_error(), Some(libc::ENOSYS), "{role:?}");
        assert_eq!(found.unshare, Err(Errno::NOSYS), "{role:?}");
        let refused = match role {
            Role::Guardian { .. } => Errno::PERM,
            _ => Errno::NOSYS,
        };
        assert_eq!(found.socket, Err(refused), "{role:?}");
        assert_eq!(found.local_socket.is_ok(), role == as_guardian, "{role:?}");
        let unmount = match decodes {
            true => Errno::NOSYS,
            false => Errno::NOENT,
        };
        assert_eq!(found.unmount, Err(unmount), "{role:?}");

        // Files.
        let (eperm, eacces) = (Err(Some(libc::EPERM)), Err(Some(libc::EACCES)));
        let (create, in_packs) = match role {
            Role::Server | Role::Watchdog { .. } => (eperm, eperm),
            Role::Learner => (eacces, Ok(())),
            Role::Guardian { .. } => (Ok(()), Ok(())),
        };
        assert_eq!(found.create, create, "{role:?}");
        assert_eq!(found.create_in_packs, in_packs, "{role:?}");
        assert_eq!(found.read_image, Ok(()), "{role:?}");
        assert_eq!(
            found.read_secret,
            if decodes { eacces } else { Ok(()) },
            "{role:?}"
        );
    }
    // This thread has kept everything.
    fs::write(place.path("new"), "").expect("room");
    assert!(socket(AddressFamily::INET, SocketType::STREAM, None).is_ok());
}

#[test]
fn limits_are_named_and_read_again() {
    let all = Confinement {
        capabilities: true,
        calls: true,
        files: true,
    };
    let some = Confinement {
        files: false,
        ..all
    };
    for (limits, text) in [
        (Confinement::default(), "nothing"),
        (some, "capabilities, calls"),
        (all, "capabilities, calls, files"),
    ] {
        assert_eq!(limits.to_string(), text);
        assert_eq!(Confinement::parse(text), limits);
    }
}
