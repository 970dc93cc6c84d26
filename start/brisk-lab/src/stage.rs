//! The place of launches: the directories that they see, the commands that start them, and the mounts that
//! they need.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::Seek;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brisk_launch::mount_points;
use brisk_serve::{DirectIo, KernelMount, LoopDevice, MountOptions};
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};

use super::app::{App, Home, Words};
use super::command_output::{checked, output_of};
use super::contender::{Contender, Replay, Start};
use super::disk_reads::DiskReads;
use super::format::{Learned, Squashfuse};
use super::read_ahead::{ReadAhead, device_of};
use super::undo::{Undo, runtime};
use brisk::{PROGRAMS, RUN, TOOLS, beside};

/// How long to wait for processes that a program leaves behind.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// How long squashfuse may take to mount.
const MOUNTING: Duration = Duration::from_secs(60);

/// How long a replay may go on after the end of its launch.
const REPLAYING: Duration = Duration::from_secs(60);

/// The system's directories that a program finds in its root directory.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The place of launches.
pub struct Stage {
    /// A copy of this command. Nothing of it is in memory at first.
    brisk: PathBuf,
    /// The directory for images, hot packs and profiles.
    work: PathBuf,
    /// The directory for sessions.
    runtime: PathBuf,
    /// The home directory of programs, in memory. If the tree is their root directory, it is `/tmp` there.
    home: PathBuf,
    /// A directory in memory, for files that a launch finds there.
    memory: PathBuf,
    /// A mount point for images without a place of their own.
    mount_point: PathBuf,
    read_ahead: ReadAhead,
    /// The ordinary user who starts programs, if root does not.
    user: Option<u32>,
    /// The mounts for the current launch, the latest last.
    mounted: Vec<Mounted>,
    /// The server of the mount, if it is squashfuse.
    squashfuse: Option<Child>,
}

/// A directory with a mount on it.
struct Mounted {
    place: PathBuf,
    /// Whether the mount is an image. It must be gone before the next cold launch.
    is_image: bool,
}

/// What `brisk auto list --json` prints, as far as a lab needs it.
#[derive(serde::Deserialize)]
struct Listed {
    learned: Vec<LearnedLaunch>,
}

#[derive(serde::Deserialize)]
struct LearnedLaunch {
    state: String,
}

impl Stage {
    /// Makes the directories: `work` is on the disk, `ground` is not. The process has its own mount
    /// namespace.
    pub fn new(
        work: &Path,
        ground: &Path,
        read_ahead: ReadAhead,
        user: Option<u32>,
    ) -> Result<Self> {
        let stage = Self {
            brisk: work.join("brisk"),
            work: work.to_owned(),
            runtime: runtime(ground),
            home: ground.join("home"),
            memory: ground.join("memory"),
            mount_point: ground.join("mnt"),
            read_ahead,
            user,
            mounted: Vec::new(),
            squashfuse: None,
        };
        let made = || {
            for name in PROGRAMS {
                fs::copy(beside(name)?, work.join(name))?;
            }
            fs::create_dir(&stage.mount_point)?;
            // On a disk, the kernel would sometimes read files of the home from there and sometimes not.
            for place in [&stage.home, &stage.memory] {
                fs::create_dir(place)?;
                mount("brisk-lab", place, "tmpfs", MountFlags::empty(), None)?;
            }
            fs::set_permissions(&stage.home, Permissions::from_mode(0o1777))
        };
        made().context("cannot make the place for launches")?;
        if let Some(user) = user {
            let tried = output_of(&mut stage.brisk_of_session(&["--version"]));
            tried.with_context(|| {
                format!(
                    "user {user} cannot start {}; allowed is an --out that every user can enter",
                    stage.brisk.display()
                )
            })?;
        }
        Ok(stage)
    }

    /// Unmounts, in this namespace only, what others have mounted inside the tree: it does not belong to the
    /// tree.
    pub fn uncover(&self, tree: &Path) -> Result<()> {
        let places = mount_points().context("cannot read /proc/self/mountinfo")?;
        // Later mounts may be inside earlier ones.
        for place in places.into_iter().rev() {
            if place != tree && place.starts_with(tree) {
                unmount(&place, UnmountFlags::DETACH)
                    .with_context(|| format!("cannot uncover {}", place.display()))?;
            }
        }
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    pub fn read_ahead(&mut self) -> &mut ReadAhead {
        &mut self.read_ahead
    }

    /// A command with the environment of launches.
    fn command(&self, program: &OsStr, app: &App) -> Command {
        let mut command = Command::new(program);
        let home = match app.is_root() {
            true => Path::new("/tmp"),
            false => &self.home,
        };
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", home)
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_RUNTIME_DIR", &self.runtime)
            // brisk sets the same variable.
            .env("BRISK_TREE", &app.at)
            .envs(&app.env);
        command
    }

    /// The command `brisk` with `arguments`.
    pub fn brisk<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(&self.brisk);
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env_remove("SOURCE_DATE_EPOCH");
        command
    }

    /// The same with the environment of launches, as one fetcher serves both.
    pub fn brisk_of_launch(&self, app: &App, arguments: &[&str]) -> Command {
        let mut command = self.command(self.brisk.as_os_str(), app);
        command.args(arguments);
        command
    }

    /// The same for a session, which belongs to whoever starts programs.
    fn brisk_of_session(&self, arguments: &[&str]) -> Command {
        let mut command = self.brisk(arguments);
        self.as_user(&mut command);
        command
    }

    /// Lets the ordinary user run the command, if there is one.
    fn as_user(&self, command: &mut Command) {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
    }

    /// A copy of a file, in memory. It takes the place of the copy before.
    pub fn copy_to_memory(&self, path: &Path) -> Result<PathBuf> {
        let copy = self.memory.join("copy");
        fs::copy(path, &copy)
            .with_context(|| format!("cannot copy {} to memory", path.display()))?;
        Ok(copy)
    }

    /// Makes an empty file that whoever starts programs can write.
    pub fn make_writable(&self, path: &Path) -> Result<()> {
        let made = File::create(path).and_then(|_| chown(path, self.user, self.user));
        made.with_context(|| format!("cannot create {}", path.display()))
    }

    /// What a launch reads besides the files of the tree: images, and the commands that serve them.
    pub fn files_of(&self, contender: &Contender) -> Vec<PathBuf> {
        let mut files = match &contender.start {
            Start::Directory => Vec::new(),
            Start::Auto { cache, .. } => {
                let mut files = self.starters();
                files.extend(learned_files(cache));
                files
            }
            Start::Kernel { image, .. } => vec![image.clone()],
            Start::Squashfuse { image, by } => {
                let mut files = vec![image.clone()];
                files.extend(in_path(by.command()));
                files
            }
            Start::Session { image, hot, .. } => {
                let mut files = self.starters();
                files.push(image.clone());
                files.extend(hot.clone());
                files
            }
        };
        if let Some(replay) = &contender.replay {
            files.extend(self.starters());
            files.push(replay.profile.clone());
        }
        files
    }

    /// The programs of brisk that start others.
    pub fn starters(&self) -> Vec<PathBuf> {
        vec![self.brisk.clone(), self.brisk.with_file_name(RUN)]
    }

    /// Removes everything from the home directory.
    pub fn empty_home(&self) -> Result<()> {
        empty(&self.home, |_| false)
    }

    /// Prepares the home directory for a launch of `app`. What the setup reads is in memory then.
    pub fn prepare_home(&self, app: &App) -> Result<()> {
        if app.home == Home::Fresh {
            self.empty_home()?;
        }
        let Some(setup) = &app.setup else {
            return Ok(());
        };
        let mut command = self.command(&setup.program, app);
        // It runs outside of the tree.
        command.args(&setup.arguments).env("HOME", &self.home);
        command.env("BRISK_TREE", &app.tree).stdin(Stdio::null());
        self.as_user(&mut command);
        output_of(&mut command)
            .map(drop)
            .context("the setup of the spec")
    }

    /// Mounts what launches of `app` need. A session mounts its image itself.
    pub fn set_up(&mut self, app: &App, start: &Start, undo: &mut Undo) -> Result<()> {
        let root = match start {
            Start::Session { .. } => return Ok(()),
            Start::Directory if app.is_root() => app.tree.clone(),
            Start::Directory | Start::Auto { .. } => {
                if app.at != app.tree {
                    self.bind(&app.tree, &app.at, false)?;
                }
                PathBuf::from("/")
            }
            Start::Kernel { .. } | Start::Squashfuse { .. } => {
                let at = self.place_of(app).to_owned();
                self.mount_image_at(start, &at, undo)?;
                match app.is_root() {
                    true => at,
                    false => PathBuf::from("/"),
                }
            }
        };
        let inside = |place: &Path| root.join(place.strip_prefix("/").unwrap_or(place));
        if app.is_root() {
            for place in SYSTEM.map(Path::new) {
                // If the tree does not have the directory, the program does without it.
                if inside(place).is_dir() {
                    self.bind(place, &inside(place), true)?;
                }
            }
            let home = self.home.clone();
            self.bind(&home, &inside(Path::new("/tmp")), false)?;
        }
        for bind in app.binds()? {
            let target = inside(&bind.target);
            self.bind(&bind.source, &target, true)?;
            if bind.read_only {
                mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, "")
                    .with_context(|| format!("cannot make {} read-only", target.display()))?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, source: &Path, target: &Path, all: bool) -> Result<()> {
        let bound = match all {
            true => mount_bind_recursive(source, target),
            false => mount_bind(source, target),
        };
        bound.with_context(|| {
            format!(
                "cannot show {} at {}; the tree must have the place",
                source.display(),
                target.display()
            )
        })?;
        self.note(target, false);
        Ok(())
    }

    /// Where an image of `app` is mounted, if brisk does not mount it.
    fn place_of<'a>(&'a self, app: &'a App) -> &'a Path {
        match app.is_root() {
            true => &self.mount_point,
            false => &app.at,
        }
    }

    fn note(&mut self, place: &Path, is_image: bool) {
        self.mounted.push(Mounted {
            place: place.to_owned(),
            is_image,
        });
    }

    fn mount_image_at(&mut self, start: &Start, at: &Path, undo: &mut Undo) -> Result<()> {
        match start {
            Start::Directory | Start::Auto { .. } => bail!("a directory is not an image"),
            Start::Kernel { image, filesystem } => {
                mount_by_kernel(image, filesystem, at)?;
                self.note(at, true);
                self.read_ahead.set(at, undo)
            }
            Start::Squashfuse { image, by } => self.mount_by_squashfuse(*by, image, at, undo),
            Start::Session { image, .. } => {
                output_of(self.brisk(&["mount"]).arg(image).arg(at))?;
                self.note(at, true);
                Ok(())
            }
        }
    }

    fn mount_by_squashfuse(
        &mut self,
        by: Squashfuse,
        image: &Path,
        at: &Path,
        undo: &mut Undo,
    ) -> Result<()> {
        let name = by.command();
        let device = |at: &Path| Ok::<_, std::io::Error>(fs::metadata(at)?.dev());
        let before = device(at)?;
        let said = tempfile::tempfile().context("cannot create a file for what squashfuse says")?;
        let mut server = Command::new(name)
            // In the foreground, as a child process, so that the lab can end it.
            .arg("-f")
            .arg(image)
            .arg(at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}; install squashfuse"))?;
        undo.server(Some(server.id()))?;
        let deadline = Instant::now() + MOUNTING;
        loop {
            // The server answered, so the mount works.
            if device(at)? != before {
                break;
            }
            let ended = server.try_wait()?;
            if ended.is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            server.kill().ok();
            server.wait()?;
            undo.server(None)?;
            let said = std::io::read_to_string(rewound(said)?).unwrap_or_default();
            bail!(
                "{name} does not mount the image: {}",
                said.trim().replace('\n', " / ")
            );
        }
        self.note(at, true);
        self.squashfuse = Some(server);
        Ok(())
    }

    /// Mounts an image on a mount point of its own, and returns that.
    pub fn mount_image(&mut self, start: &Start, undo: &mut Undo) -> Result<PathBuf> {
        let at = self.mount_point.clone();
        self.mount_image_at(start, &at, undo)?;
        Ok(at)
    }

    /// Unmounts everything.
    pub fn tear_down(&mut self, undo: &mut Undo) -> Result<()> {
        while let Some(Mounted { place, is_image }) = self.mounted.pop() {
            until_free(|| match is_image {
                true => unmount(&place, UnmountFlags::empty()),
                false => unmount(&place, UnmountFlags::DETACH),
            })
            .with_context(|| format!("cannot unmount {}", place.display()))?;
        }
        if let Some(mut server) = self.squashfuse.take() {
            // It ends by itself when it is unmounted.
            let deadline = Instant::now() + STRAGGLERS;
            while server.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    server.kill()?;
                }
                thread::sleep(Duration::from_millis(1));
            }
            undo.server(None)?;
        }
        Ok(())
    }

    /// Ends the session of an image.
    pub fn end_session(&self, image: &Path) -> Result<()> {
        until_free(|| output_of(self.brisk_of_session(&["umount"]).arg(image)).map(drop))
    }

    /// Reads the system's `chroot` into memory if a launch needs it. It does not belong to the program, and
    /// launches by brisk do not need it.
    pub fn read_chroot(&self, app: &App, start: &Start) -> Result<()> {
        if app.is_root() && !matches!(start, Start::Session { .. }) {
            output_of(self.command(OsStr::new(CHROOT), app).arg("--version"))?;
        }
        Ok(())
    }

    /// The command that launches `words` of `app`.
    pub fn launch(
        &self,
        app: &App,
        start: &Start,
        replay: Option<&Replay>,
        words: &Words,
    ) -> Command {
        let launch = self.plain_launch(app, start, words);
        let Some(replay) = replay else {
            return launch;
        };
        let mut command = self.command(self.brisk.as_os_str(), app);
        command.arg("replay").arg(&replay.profile);
        command.arg("--at").arg(self.seen_at(app, start));
        if let Some(disk) = &replay.disk {
            command.args(["--disk", disk]);
        }
        if let Some(threads) = replay.threads {
            command.arg(format!("--threads={threads}"));
        }
        if let Some(log) = &replay.log {
            command.arg("--log").arg(log);
        }
        command
            .arg("--")
            .arg(launch.get_program())
            .args(launch.get_args());
        if let Some(directory) = launch.get_current_dir() {
            command.current_dir(directory);
        }
        // Under chroot, only the program itself is the user's.
        if !app.is_root() {
            self.as_user(&mut command);
        }
        command
    }

    /// Where this process sees the tree that `app` is launched from.
    fn seen_at<'a>(&'a self, app: &'a App, start: &Start) -> &'a Path {
        match start {
            _ if !app.is_root() => &app.at,
            Start::Directory => &app.tree,
            _ => self.place_of(app),
        }
    }

    /// What the disk of the tree charges: bytes and operations in a second. None if no file of the profile
    /// can be used to measure it.
    pub fn charge(&self, app: &App, profile: &Path, undo: &mut Undo) -> Result<Option<(u64, u64)>> {
        let mut measure = self.brisk(&["replay", "--measure"]);
        measure.arg(profile).arg("--at").arg(&app.tree);
        // A directory of its own, because the result may be that of a disk with limits, which nobody else
        // should use.
        measure.env("XDG_CACHE_HOME", self.path("cache"));
        let output = undo.output(&mut measure);
        let output = output.context("cannot start brisk replay")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "brisk replay --measure: {said}");
        let number = |word: &str, name: &str| -> Option<u64> {
            word.strip_prefix(name)?.trim_end_matches(',').parse().ok()
        };
        let of_line = |line: &str| {
            let words = line.strip_prefix("disk ")?.split(' ');
            let of = |name| words.clone().find_map(|word| number(word, name));
            Some((of("bps=")?, of("iops=")?))
        };
        Ok(said.lines().find_map(of_line))
    }

    /// The command that launches `words` of `app` from an image, which is a file or a URL, by `brisk run` with these
    /// options.
    pub fn launch_image(
        &self,
        app: &App,
        image: &OsStr,
        options: &[OsString],
        words: &Words,
    ) -> Command {
        let mut command = self.command(self.brisk.as_os_str(), app);
        command
            .arg("run")
            .arg(image)
            .args(self.place_arguments(app))
            .args(options)
            // Longer than any launch. The lab ends the session itself.
            .args(["--linger", "3600", "--"])
            .arg(self.program(app, &words.program))
            .args(&words.arguments);
        self.as_user(&mut command);
        command
    }

    fn plain_launch(&self, app: &App, start: &Start, words: &Words) -> Command {
        let Words { program, arguments } = words;
        if let Start::Session {
            image,
            hot,
            threads,
            log,
        } = start
        {
            let mut options: Vec<OsString> = match hot {
                Some(hot) => vec!["--hot".into(), hot.into()],
                None => vec!["--no-fill".into()],
            };
            if let Some(threads) = threads {
                options.push(format!("--fill-threads={threads}").into());
            }
            if let Some(log) = log {
                options.extend(["--fill-log".into(), log.into()]);
            }
            return self.launch_image(app, image.as_os_str(), &options, words);
        }
        if let Start::Auto { cache, .. } = start {
            let mut command = self.command(self.brisk.as_os_str(), app);
            command
                .args(["run", "--auto", "--"])
                .arg(self.program(app, program))
                .args(arguments)
                .env("XDG_CACHE_HOME", cache);
            self.go_to_directory(app, &mut command);
            self.as_user(&mut command);
            return command;
        }
        if app.is_root() {
            let mut command = self.command(OsStr::new(CHROOT), app);
            // Only root may change the root directory.
            if let Some(user) = self.user {
                command.arg(format!("--userspec={user}:{user}"));
            }
            command
                .arg(self.seen_at(app, start))
                .arg(program)
                .args(arguments);
            return command;
        }
        let mut command = self.command(&self.program(app, program), app);
        command.args(arguments);
        self.go_to_directory(app, &mut command);
        self.as_user(&mut command);
        command
    }

    /// Lets a command begin in the working directory of `app`.
    fn go_to_directory(&self, app: &App, command: &mut Command) {
        let directory = match &app.directory {
            Some(directory) => Ok(app.at.join(directory)),
            // By its name, which may lead into a mount by now.
            None => std::env::current_dir(),
        };
        if let Ok(directory) = directory {
            command.current_dir(directory);
        }
    }

    /// A directory for what `brisk run --auto` learns, which belongs to whoever starts programs.
    pub fn make_cache(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        // Of the app before.
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let made = fs::create_dir(&path).and_then(|()| chown(&path, self.user, self.user));
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// Removes what programs have left in their cache directory, and what brisk has learned of the program if it is to know
    /// nothing. What it knows of the disk stays: it measures that once for all programs.
    pub fn prepare_cache(&self, start: &Start) -> Result<()> {
        let Start::Auto { learned, cache } = start else {
            return Ok(());
        };
        empty(cache, |name| name == BRISK_CACHE)?;
        let of_brisk = cache.join(BRISK_CACHE);
        match learned {
            Learned::Nothing if of_brisk.exists() => empty(&of_brisk, |name| name == DISKS),
            Learned::Nothing | Learned::Everything => Ok(()),
        }
    }

    /// Whether brisk knows as much as it is to know below `cache`, after so many starts.
    pub fn knows(&self, learned: Learned, cache: &Path, starts: usize) -> Result<bool> {
        match learned {
            Learned::Nothing => Ok(starts > 0),
            Learned::Everything => self.has_learned(cache),
        }
    }

    /// Whether brisk has nothing more to learn of the only program whose launches it has learned below `cache`.
    fn has_learned(&self, cache: &Path) -> Result<bool> {
        let mut list = self.brisk_of_session(&["auto", "list", "--json"]);
        list.env("XDG_CACHE_HOME", cache);
        let output = list.output().context("cannot start brisk auto list")?;
        let list: Listed = serde_json::from_slice(&output.stdout)
            .context("the output of brisk auto list --json has another form")?;
        Ok(matches!(&*list.learned, [one] if one.state != "learning"))
    }

    /// The command that records a profile of a launch of `words`.
    pub fn trace(&self, app: &App, image: &Path, profile: &Path, words: &Words) -> Command {
        let mut command = self.command(self.brisk.as_os_str(), app);
        command
            .args(["trace", "-q", "--ready", &app.ready, "-o"])
            .arg(profile);
        command.arg(image).args(self.place_arguments(app)).arg("--");
        command
            .arg(self.program(app, &words.program))
            .args(&words.arguments);
        command
    }

    /// A program with a slash belongs to the tree, unless it starts with a slash.
    fn program(&self, app: &App, program: &OsStr) -> OsString {
        match program.as_encoded_bytes().contains(&b'/') {
            true => app.at.join(program).into(),
            false => program.to_owned(),
        }
    }

    /// Where an image and everything else goes for `app`, as options of `run` and `trace`.
    fn place_arguments(&self, app: &App) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if app.is_root() {
            let mut home = OsString::from(&self.home);
            home.push(":/tmp");
            arguments.extend(["--root".into(), "--bind".into(), home]);
        } else {
            arguments.extend(["--at".into(), app.at.clone().into()]);
        }
        for bind in &app.binds {
            arguments.extend(["--bind".into(), bind.into()]);
        }
        arguments
    }

    /// Reads into memory the program that the lab uses to ask for the servers of a session. It takes no part
    /// in the launch, but what is read of it would count as the launch's.
    pub fn read_asker(&self, start: &Start) -> Result<()> {
        if let Start::Session { .. } = start {
            let tools = self.brisk.with_file_name(TOOLS);
            fs::read(&tools).with_context(|| format!("cannot read {}", tools.display()))?;
        }
        Ok(())
    }

    /// Waits until no replay runs any more for this contender, and no observer. What a replay reads after the end of its
    /// launch would be in memory for the next one, or would keep a mount busy.
    pub fn await_brisk(&self, contender: &Contender) -> Result<()> {
        let deadline = Instant::now() + REPLAYING;
        while contender.leaves_brisk() && self.is_busy()? {
            ensure!(
                Instant::now() < deadline,
                "brisk does not end {} s after its launch",
                REPLAYING.as_secs()
            );
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Whether a process of the lab's brisk is replaying or observing.
    fn is_busy(&self) -> Result<bool> {
        let processes = fs::read_dir("/proc").context("cannot list processes")?;
        // Only sessions also have processes of this program, and no session runs now.
        let is_one = |entry: fs::DirEntry| {
            let program = fs::read_link(entry.path().join("exe"));
            program.is_ok_and(|program| program.parent() == self.brisk.parent())
        };
        Ok(processes.flatten().any(is_one))
    }

    /// What has been read from disks so far, by the processes and devices that will read for launches. All
    /// loop devices are in it, because it is not known which one the mount will use.
    pub fn reads_before(&self) -> Result<DiskReads> {
        let mut reads = DiskReads::default();
        reads.add_own()?;
        reads.add_loop_devices()?;
        Ok(reads)
    }

    /// The same, while the mount or the session exists.
    pub fn reads(&self, app: &App, start: &Start) -> Result<DiskReads> {
        let mut reads = DiskReads::default();
        reads.add_own()?;
        match start {
            Start::Directory | Start::Auto { .. } => {}
            Start::Kernel { .. } => {
                let device = device_of(self.place_of(app))?;
                reads.add_device(&device.context("a mounted image has no device")?)?;
            }
            Start::Squashfuse { .. } => {
                let server = self.squashfuse.as_ref().context("squashfuse has ended")?;
                reads.add_process(&server.id().to_string())?;
            }
            Start::Session { image, .. } => {
                for server in self.servers(image)? {
                    reads.add_process(&server.to_string())?;
                }
            }
        }
        Ok(reads)
    }

    fn servers(&self, image: &Path) -> Result<Vec<u64>> {
        let text = output_of(self.brisk_of_session(&["stat", "--json"]).arg(image))?;
        let sessions: serde_json::Value = serde_json::from_slice(&text)
            .context("the output of brisk stat --json has another form")?;
        let images = sessions
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|session| session["images"].as_array())
            .flatten();
        let servers: Vec<_> = images
            .filter_map(|image| image["server_pid"].as_u64())
            .collect();
        ensure!(
            !servers.is_empty(),
            "the session of {} has no server",
            image.display()
        );
        Ok(servers)
    }
}

/// Removes what is in a directory, but not entries with these names.
fn empty(directory: &Path, is_kept: impl Fn(&OsStr) -> bool) -> Result<()> {
    let removed = || {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                _ if is_kept(&entry.file_name()) => {}
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    removed().with_context(|| format!("cannot empty {}", directory.display()))
}

/// Where brisk keeps what it has learned, in the user's directory for caches.
const BRISK_CACHE: &str = "brisk";

/// Where it keeps there what disks charge.
const DISKS: &str = "devices";

/// The files that brisk has learned.
fn learned_files(cache: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(cache.join(BRISK_CACHE).join("hot"));
    let files = files.into_iter().flatten().flatten();
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    files.filter(is_file).map(|entry| entry.path()).collect()
}

/// A command of the system.
const CHROOT: &str = "chroot";

/// The file of a command in PATH.
fn in_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(command));
    files.find(|file| file.is_file())
}

/// This process mounts the image itself, through a loop device with direct I/O, so the clock does not wait
/// for a command.
fn mount_by_kernel(image: &Path, filesystem: &str, at: &Path) -> Result<()> {
    if filesystem == "squashfs" {
        KernelMount::new(image, at, &MountOptions::default())?;
        return Ok(());
    }
    let file = File::open(image).with_context(|| format!("cannot open {}", image.display()))?;
    let device = LoopDevice::attach(&file, 0, None, DirectIo::WhenPossible)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount(device.path(), at, filesystem, flags, None)
        .with_context(|| format!("the kernel does not mount {filesystem} (dmesg may say why)"))
}

fn rewound(mut file: File) -> std::io::Result<File> {
    file.rewind()?;
    Ok(file)
}

/// Repeats `end` for a while if it fails. Helpers of a browser run a moment longer than the browser.
fn until_free<E>(end: impl Fn() -> Result<(), E>) -> Result<(), E> {
    let deadline = Instant::now() + STRAGGLERS;
    loop {
        match end() {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// Runs `command`, which may take a while and must succeed.
pub fn work_off(command: &mut Command, undo: &mut Undo) -> Result<()> {
    let output = undo.output(command);
    checked(command, output).map(drop)
}
