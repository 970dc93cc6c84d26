//! Launches: warm and cold, one and eight at once.

use std::fs::File;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_bench::{Bench, Timed};

use crate::application::Application;
use crate::world::{As, World, run};

const GOAL_WARM: f64 = 1.03;
const GOAL_USER: f64 = 1.03;
const GOAL_COLD: f64 = 1.0;
const GOAL_EIGHT: f64 = 1.05;

/// How many programs to launch at once.
pub(crate) const AT_ONCE: usize = 8;

/// Runs that join a session, compared with the plain directory.
pub(crate) fn warm(bench: &mut Bench, world: &World, application: &Application) -> Result<()> {
    world.furnish(&application.tree)?;
    let directory = || world.chroot(As::Root, &application.tree, &application.command);
    let brisk = || world.brisk_run(As::Root, &application.image, &application.command);
    // The first run of each brings everything into the page cache.
    time_one(world, application, As::Root, directory())?;
    time_one(world, application, As::Root, brisk())?;
    let result = bench.compare(
        "warm launch",
        application.name,
        "everything, by a launch before",
        Timed {
            name: "directory",
            work: Box::new(|| time_one(world, application, As::Root, directory())),
        },
        vec![(
            Timed {
                name: "brisk run",
                work: Box::new(|| time_one(world, application, As::Root, brisk())),
            },
            Some(GOAL_WARM),
        )],
    );
    world.end_sessions(As::Root, &application.image)?;
    world.unfurnish(&application.tree)?;
    result
}

/// Runs of an ordinary user, compared with runs of root. Each joins a session of its own. They are also
/// compared with launches by the user from the plain directory, because a program may be slower for a user
/// anyway.
pub(crate) fn user(bench: &mut Bench, world: &World, application: &Application) -> Result<()> {
    world.furnish(&application.tree)?;
    let launch = |who| {
        let command = world.brisk_run(who, &application.image, &application.command);
        time_one(world, application, who, command)
    };
    let directory = |who| {
        let command = world.chroot(who, &application.tree, &application.command);
        time_one(world, application, who, command)
    };
    launch(As::Root)?;
    launch(As::User)?;
    directory(As::User)?;
    let result = bench
        .compare(
            "warm launch as a user",
            application.name,
            "everything, by a launch before",
            Timed {
                name: "directory",
                work: Box::new(|| directory(As::User)),
            },
            vec![
                (
                    Timed {
                        name: "brisk run",
                        work: Box::new(|| launch(As::User)),
                    },
                    Some(GOAL_WARM),
                ),
                (
                    Timed {
                        name: "directory, as root",
                        work: Box::new(|| directory(As::Root)),
                    },
                    None,
                ),
            ],
        )
        .and_then(|()| user_and_root(bench, application, &launch));
    world.end_sessions(As::Root, &application.image)?;
    world.end_sessions(As::User, &application.image)?;
    world.unfurnish(&application.tree)?;
    result
}

fn user_and_root(
    bench: &mut Bench,
    application: &Application,
    launch: &dyn Fn(As) -> Result<Duration>,
) -> Result<()> {
    bench.compare(
        "without root",
        application.name,
        "everything, by a launch before",
        Timed {
            name: "brisk run as root",
            work: Box::new(|| launch(As::Root)),
        },
        vec![(
            Timed {
                name: "brisk run as a user",
                work: Box::new(|| launch(As::User)),
            },
            Some(GOAL_USER),
        )],
    )
}

/// First runs with nothing cached, compared with the kernel's SquashFS, which is mounted before the clock
/// starts, and with the plain directory.
pub(crate) fn cold(bench: &mut Bench, world: &World, application: &Application) -> Result<()> {
    let mount_point = &world.mount_point;
    let kernel = || -> Result<Duration> {
        brisk_bench::empty_caches()?;
        run(world
            .brisk(As::Root, &["mount", "--kernel"])
            .arg(&application.image)
            .arg(mount_point))?;
        world.furnish(mount_point)?;
        let command = world.chroot(As::Root, mount_point, &application.command);
        let elapsed = time_one(world, application, As::Root, command);
        world.unfurnish(mount_point)?;
        world.unmount()?;
        elapsed
    };
    let brisk = || -> Result<Duration> {
        brisk_bench::empty_caches()?;
        let command = world.brisk_run(As::Root, &application.image, &application.command);
        let elapsed = time_one(world, application, As::Root, command);
        world.end_sessions(As::Root, &application.image)?;
        elapsed
    };
    world.furnish(&application.tree)?;
    let directory = || -> Result<Duration> {
        brisk_bench::empty_caches()?;
        let command = world.chroot(As::Root, &application.tree, &application.command);
        time_one(world, application, As::Root, command)
    };
    let result = bench.compare(
        "cold launch",
        application.name,
        "nothing",
        Timed {
            name: "kernel squashfs",
            work: Box::new(kernel),
        },
        vec![
            (
                Timed {
                    name: "brisk run",
                    work: Box::new(brisk),
                },
                Some(GOAL_COLD),
            ),
            (
                Timed {
                    name: "directory",
                    work: Box::new(directory),
                },
                None,
            ),
        ],
    );
    world.unfurnish(&application.tree)?;
    result
}

/// Eight runs at once that join one session, compared with eight from the plain directory.
pub(crate) fn eight(bench: &mut Bench, world: &World, application: &Application) -> Result<()> {
    world.furnish(&application.tree)?;
    let directory = || world.chroot(As::Root, &application.tree, &application.command);
    let brisk = || world.brisk_run(As::Root, &application.image, &application.command);
    time_one(world, application, As::Root, directory())?;
    time_one(world, application, As::Root, brisk())?;
    let result = bench.compare(
        "eight launches at once",
        application.name,
        "everything, by a launch before",
        Timed {
            name: "directory",
            work: Box::new(|| time_all(world, application, &directory)),
        },
        vec![(
            Timed {
                name: "brisk run",
                work: Box::new(|| time_all(world, application, &brisk)),
            },
            Some(GOAL_EIGHT),
        )],
    );
    world.end_sessions(As::Root, &application.image)?;
    world.unfurnish(&application.tree)?;
    result
}

fn time_one(
    world: &World,
    application: &Application,
    who: As,
    command: Command,
) -> Result<Duration> {
    world.clear_scratch(who)?;
    let start = Instant::now();
    let mut launched = Launched::start(world, command, 0)?;
    let status = launched.child.wait()?;
    let elapsed = start.elapsed();
    launched.check(status, application)?;
    Ok(elapsed)
}

fn time_all(
    world: &World,
    application: &Application,
    command: &dyn Fn() -> Command,
) -> Result<Duration> {
    world.clear_scratch(As::Root)?;
    let start = Instant::now();
    let launched: Vec<_> = (0..AT_ONCE)
        .map(|n| Launched::start(world, command(), n))
        .collect::<Result<_>>()?;
    let mut ended = Vec::new();
    for mut launched in launched {
        let status = launched.child.wait()?;
        ended.push((launched, status));
    }
    let elapsed = start.elapsed();
    for (launched, status) in ended {
        launched.check(status, application)?;
    }
    Ok(elapsed)
}

/// A launch whose output goes to files.
struct Launched {
    child: Child,
    said: [std::path::PathBuf; 2],
}

impl Launched {
    fn start(world: &World, mut command: Command, n: usize) -> Result<Self> {
        let said = [
            world.path(&format!("stdout-{n}")),
            world.path(&format!("stderr-{n}")),
        ];
        let child = command
            .stdout(File::create(&said[0])?)
            .stderr(File::create(&said[1])?)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, said })
    }

    fn check(&self, status: std::process::ExitStatus, application: &Application) -> Result<()> {
        let [stdout, stderr] = &self.said;
        let (stdout, stderr) = (std::fs::read(stdout)?, std::fs::read(stderr)?);
        ensure!(
            status.success() && String::from_utf8_lossy(&stdout).contains(application.prints),
            "a launch of {} ended with {status} and printed {:?}: {}",
            application.name,
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr).trim()
        );
        Ok(())
    }
}
