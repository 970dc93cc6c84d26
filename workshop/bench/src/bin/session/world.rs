//! The surroundings of launches: directories to mount on, scratch space, and the command itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How long to wait for processes that a program leaves behind.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// The ordinary user of the figures. The system need not know this number.
const USER: u32 = 1000;

/// Who launches the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Root,
    User,
}

pub(crate) struct World {
    brisk: PathBuf,
    /// Empty before each launch, and bound on `/tmp`.
    scratch: PathBuf,
    /// Where the kernel or brisk mounts an image.
    pub(crate) mount_point: PathBuf,
    work: PathBuf,
}

impl World {
    pub(crate) fn new(brisk: &Path, work: &Path) -> Result<Self> {
        let work = work.canonicalize()?;
        fs::set_permissions(&work, fs::Permissions::from_mode(0o755))?;
        let world = Self {
            brisk: brisk.canonicalize().context("--brisk")?,
            scratch: work.join("scratch"),
            mount_point: work.join("mnt"),
            work,
        };
        fs::create_dir(&world.mount_point)?;
        fs::create_dir(&world.scratch)?;
        // In memory: on users' machines /tmp is in memory, or its files are gone before they reach a disk.
        run(Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(&world.scratch))?;
        for who in [As::Root, As::User] {
            let dir = world.runtime_dir(who);
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
            if who == As::User {
                chown(&dir, Some(USER), Some(USER))?;
            }
        }
        Ok(world)
    }

    fn runtime_dir(&self, who: As) -> PathBuf {
        self.work.join(match who {
            As::Root => "runtime-root",
            As::User => "runtime-user",
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    pub(crate) fn pack(&self, tree: &Path, name: &str) -> Result<PathBuf> {
        let image = self.path(name);
        run(Command::new(&self.brisk)
            .arg("pack")
            .arg(tree)
            .args(["-q", "--codec", "zstd", "--level", "15", "-o"])
            .arg(&image))?;
        fs::set_permissions(&image, fs::Permissions::from_mode(0o644))?;
        Ok(image)
    }

    /// The command `brisk` with `args`.
    pub(crate) fn brisk<A: AsRef<OsStr>>(&self, who: As, args: &[A]) -> Command {
        let mut command = self.launch(who, &self.brisk);
        command.args(args);
        command
    }

    /// Empties the scratch directory for a launch by `who`.
    pub(crate) fn clear_scratch(&self, who: As) -> Result<()> {
        for entry in fs::read_dir(&self.scratch)? {
            let path = entry?.path();
            match path.is_dir() {
                true => fs::remove_dir_all(&path)?,
                false => fs::remove_file(&path)?,
            }
        }
        let owner = match who {
            As::Root => 0,
            As::User => USER,
        };
        chown(&self.scratch, Some(owner), Some(owner))?;
        Ok(())
    }

    /// Binds `/proc`, `/dev` and the scratch directory into `root`, for a chroot.
    pub(crate) fn furnish(&self, root: &Path) -> Result<()> {
        for (source, name) in [
            (Path::new("/proc"), "proc"),
            (Path::new("/dev"), "dev"),
            (&self.scratch, "tmp"),
        ] {
            run(Command::new("mount")
                .arg("--rbind")
                .arg(source)
                .arg(root.join(name)))?;
        }
        Ok(())
    }

    pub(crate) fn unfurnish(&self, root: &Path) -> Result<()> {
        ["proc", "dev", "tmp"]
            .iter()
            .try_for_each(|name| until_free(|| umount_all(&root.join(name))))
    }

    /// Unmounts what `brisk mount` has mounted.
    pub(crate) fn unmount(&self) -> Result<()> {
        until_free(|| run(self.brisk(As::Root, &["umount"]).arg(&self.mount_point)))
    }

    /// `command` with `root` as its root directory, by chroot.
    pub(crate) fn chroot(&self, who: As, root: &Path, command: &[&str]) -> Command {
        let mut chroot = self.launch(As::Root, Path::new("chroot"));
        if who == As::User {
            chroot
                .arg(format!("--userspec={USER}:{USER}"))
                .env("XDG_RUNTIME_DIR", self.runtime_dir(who));
        }
        chroot.arg(root).args(command);
        chroot
    }

    /// `command` from `image` as its root directory, by `brisk run`.
    pub(crate) fn brisk_run(&self, who: As, image: &Path, command: &[&str]) -> Command {
        let mut run = self.brisk(who, &["run"]);
        let mut bind = self.scratch.clone().into_os_string();
        bind.push(":/tmp");
        run.arg(image)
            .args(["--no-fill", "--root", "--linger", "3600", "--bind"])
            .arg(bind)
            .arg("--")
            .args(command);
        run
    }

    /// Ends the sessions of `image` that `who` has.
    pub(crate) fn end_sessions(&self, who: As, image: &Path) -> Result<()> {
        until_free(|| run(self.brisk(who, &["umount"]).arg(image)))
    }

    fn launch(&self, who: As, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", "/tmp")
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MPLCONFIGDIR", "/tmp/mpl")
            .env("XDG_RUNTIME_DIR", self.runtime_dir(who))
            .stdin(Stdio::null());
        if who == As::User {
            command.uid(USER).gid(USER);
        }
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(e) = run(Command::new("umount").arg(&self.scratch)) {
            eprintln!("session: {e:#}");
        }
    }
}

fn umount_all(place: &Path) -> Result<()> {
    run(Command::new("umount").arg("--recursive").arg(place))
}

/// Repeats `end` for a while if it fails. Helpers of a browser run a moment longer than the browser.
fn until_free(end: impl Fn() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + STRAGGLERS;
    loop {
        match end() {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            result => return result,
        }
    }
}

/// Runs `command`, which must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
