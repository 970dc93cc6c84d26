//! Measures apps in several formats, interleaved.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::iter::repeat_n;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use brisk_image::Limits;
use brisk_image::profile::{PAGE, Profile};
use brisk_io::{Residency, residency};
use brisk_launch::PageEvent;
use brisk_terminal::messages::say;
use rustix::time::{ClockId, clock_gettime};

use super::ablation::Change;
use super::app::{App, Words};
use super::cold::Chill;
use super::command_output::shown;
use super::contender::{Contender, Replay, Start};
use super::file_sizes::up_to;
use super::format::{Format, Learned};
use super::machine::Machine;
use super::orphans;
use super::probe::reason_against;
use super::program;
use super::proof::{self, Proven};
use super::read_ahead::{ReadAhead, device_of};
use super::reclaim;
use super::results::{AppResults, Cannot, Kind, Measured, Reach, Recorded, Results, Run, Settings};
use super::rival::{Order, Rival, version};
use super::sample;
use super::stage::{Stage, work_off};
use super::throttle::{Lift, Throttle, allows};
use super::training::Training;
use super::undo::{Undo, runtime};
use super::walk::{Walked, walk};
use super::wrong;
use super::x_server::XServer;
use brisk::timeline::{Filling, Timeline};
use brisk::{Rate, one_of_each_kind};

/// How many bytes a warm launch may read from the disk: one or two files of the system with their read-ahead,
/// or a share of what the cold launch read. The kernel's SquashFS caches no directory listings: it reads them
/// again each time that a program lists them.
const WARM: u64 = 256 << 10;
const WARM_SHARE: u64 = 50;

/// How many launches may follow a cold one until one of them reads next to nothing from the disk. The same for launches
/// that find everything in memory.
const UNTIL_WARM: u32 = 5;

/// How many starts `brisk run --auto` may take to learn a program.
const MOST_LEARNING: u32 = 10;

/// How long a server may take to write the log of its fill.
const LOGGING: Duration = Duration::from_secs(30);

/// How many ranges of a profile the results keep. A picture shows fewer. All files are kept.
const TOUCHES: usize = 10_000;

/// What to measure, and how.
#[derive(Debug)]
pub struct Experiment {
    pub apps: Vec<App>,
    pub formats: Vec<Format>,
    pub runs: u32,
    /// How often each command is recorded for one profile.
    pub recordings: u32,
    /// The directory for results. Images are made below it, and removed.
    pub out: PathBuf,
    pub read_ahead_kib: u32,
    pub chill: Chill,
    /// Limits of the disks that hold trees and images, while launches are measured.
    pub limits: Vec<Rate>,
    /// Seed of the random orders.
    pub seed: u64,
    /// The ordinary user who starts programs, if root does not.
    pub user: Option<u32>,
    /// Measures only launches.
    pub skip_walks: bool,
    /// Measures only walks, of a sample of about this many bytes of each tree.
    pub sample: Option<u64>,
    /// Shows no progress.
    pub quiet: bool,
}

/// The measurement of one app.
struct Measuring<'a> {
    experiment: &'a Experiment,
    app: &'a App,
    /// The formats that can run here.
    formats: &'a [Format],
    stage: &'a mut Stage,
    undo: &'a mut Undo,
    /// The tree as it was at the start.
    tree: Walked,
    /// The size of the whole tree, if `tree` is a sample of it.
    sample_of: Option<u64>,
    recorded: Vec<Recorded>,
    /// The timeline of the launch that is measured.
    timeline: Option<Timeline>,
    demanded: Option<u64>,
    /// What the disk charges. The inner value is None if that cannot be measured, the outer one before it was
    /// tried.
    charge: Option<Option<String>>,
}

/// Whether a launch finds a mount of its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mount {
    /// It makes one.
    New,
    /// That of the launch before.
    Kept,
}

/// One launch.
struct Timed {
    /// From before the mount, if it is new, until the program was ready.
    launch: Duration,
    /// Until no process of brisk read any more that the launch has left behind.
    reading: Duration,
    /// Bytes read from the disk meanwhile.
    read: u64,
    /// Bytes added to the page cache meanwhile.
    cached: u64,
}

impl Experiment {
    /// Finds errors before anything is changed.
    pub fn check(&self) -> Result<()> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "brisk lab needs root, to mount images and to empty the page cache; run it as \
             root, for example with sudo"
        );
        for (at, format) in self.formats.iter().enumerate() {
            ensure!(
                !self.formats[..at].contains(format),
                "--formats has {format} twice, allowed is once"
            );
            let same = |other: &&Format| {
                other
                    .image_name()
                    .is_some_and(|name| format.image_name() == Some(name))
            };
            if let Some(other) = self.formats[..at].iter().find(same) {
                bail!(
                    "--formats has {other} and {format}, which would have the same name in tables; allowed are images \
                     with different file names: make a link with another name to one of them"
                );
            }
        }
        one_of_each_kind(&self.limits).context("--disk")
    }

    /// Checks that trees and results can be where they are.
    fn check_places(&self) -> Result<()> {
        for path in self
            .apps
            .iter()
            .flat_map(|app| [&app.tree, &app.at])
            .chain([&self.out])
        {
            ensure!(
                path.to_str().is_some(),
                "the path {} is not UTF-8, and results can only hold UTF-8; give the directory another \
                 name",
                path.display()
            );
        }
        // The part of the path that exists already.
        let out = std::path::absolute(&self.out)?;
        let out = out.ancestors().find_map(|path| path.canonicalize().ok());
        let around = |app: &&App| out.as_ref().is_some_and(|out| out.starts_with(&app.tree));
        if let Some(app) = self.apps.iter().find(around) {
            bail!(
                "--out is {}, which is in the tree {}, so images and results would become part of it; allowed is a \
                 directory outside",
                self.out.display(),
                app.tree.display()
            );
        }
        Ok(())
    }

    /// Measures everything. After every repetition, `raw.json` holds the results so far.
    ///
    /// The process enters a mount namespace of its own, so it must have one thread.
    pub fn run(&self) -> Result<Results> {
        self.check_places()?;
        let made = || {
            fs::create_dir_all(&self.out)?;
            let out = self.out.canonicalize()?;
            let work = tempfile::Builder::new().prefix("work-").tempdir_in(&out)?;
            let ground = tempfile::Builder::new().prefix("brisk-lab-").tempdir()?;
            let runtime = runtime(ground.path());
            fs::create_dir(&runtime)?;
            fs::set_permissions(&runtime, Permissions::from_mode(0o700))?;
            if let Some(user) = self.user {
                chown(&runtime, Some(user), Some(user))?;
                for path in [work.path(), ground.path()] {
                    fs::set_permissions(path, Permissions::from_mode(0o755))?;
                }
            }
            Ok::<_, std::io::Error>((out, work, ground))
        };
        let (out, work, ground) =
            made().with_context(|| format!("cannot make {}", self.out.display()))?;
        let mut undo = Undo::start(&runtime(ground.path()))?;
        undo.user(self.user)?;
        // From here on, the other process removes these directories. It does not see what this process will
        // mount in them.
        undo.remove(work.path())?;
        undo.remove(ground.path())?;
        let (work, ground) = (work.keep(), ground.keep());
        let measured = self.measure(&out, &work, &ground, &mut undo);
        let undone = undo.finish();
        let results = measured?;
        undone.map(|()| results)
    }

    fn measure(&self, out: &Path, work: &Path, ground: &Path, undo: &mut Undo) -> Result<Results> {
        brisk_serve::enter_private()?;
        let processors = std::thread::available_parallelism().map_or(1, Into::into);
        let disk = device_of(work)?;
        let mut results = Results {
            brisk_lab: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            mksquashfs: None,
            tools: Vec::new(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(work, processors)?,
            disk: disk
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned()),
            read_ahead: Vec::new(),
            stopped: Vec::new(),
            settings: Settings {
                runs: self.runs,
                recordings: self.recordings,
                seed: self.seed,
                read_ahead_kib: self.read_ahead_kib,
                bytes_per_second: self.limits.iter().find_map(|limit| match limit {
                    Rate::Bytes(bytes) => Some(*bytes),
                    Rate::Operations(_) => None,
                }),
                operations_per_second: self.limits.iter().find_map(|limit| match limit {
                    Rate::Bytes(_) => None,
                    Rate::Operations(number) => Some(*number),
                }),
                proven: Vec::new(),
                cold: match self.chill {
                    Chill::System => "system",
                    Chill::Files => "files",
                }
                .to_owned(),
                user: self.user,
            },
            cannot: Vec::new(),
            apps: Vec::new(),
        };
        let mut stage = Stage::new(work, ground, ReadAhead::new(self.read_ahead_kib), self.user)?;
        let formats = self.probe(&mut stage, undo, &mut results)?;
        let formats = self.without_auto(formats, &mut results);
        results.stopped = reclaim::stop(undo)?;
        for app in &self.apps {
            let mut app = app.clone();
            for path in [work, &app.tree] {
                stage.read_ahead().set(path, undo)?;
            }
            stage.uncover(&app.tree)?;
            app.make_places(undo)?;
            let mut tree = walk(&app.tree)?;
            let sample_of = self.sample.map(|_| tree.bytes);
            if let Some(size) = self.sample.filter(|size| *size < tree.bytes) {
                let sample = stage.path("sample");
                sample::take(&app.tree, &tree.files, size, &sample)?;
                tree = walk(&sample)?;
                app.tree = sample;
            }
            let x_server = match app.display {
                true => Some(XServer::start(undo)?),
                false => None,
            };
            if let Some(server) = &x_server {
                app.env.insert("DISPLAY".to_owned(), server.name.clone());
            }
            let app = &app;
            let mut measuring = Measuring {
                experiment: self,
                app,
                formats: &formats,
                stage: &mut stage,
                undo: &mut *undo,
                tree,
                sample_of,
                recorded: Vec::new(),
                timeline: None,
                demanded: None,
                charge: None,
            };
            measuring
                .run(out, &mut results)
                .with_context(|| app.name.clone())?;
            if let Some(server) = x_server {
                server.end(undo)?;
            }
        }
        Ok(results)
    }

    /// The formats without `--auto` if a tree is a root directory: a program that is started by chroot is not where it lies.
    fn without_auto(&self, mut formats: Vec<Format>, results: &mut Results) -> Vec<Format> {
        let Some(app) = self.apps.iter().find(|app| app.is_root()) else {
            return formats;
        };
        for format in formats.extract_if(.., |format| matches!(format, Format::Auto(_))) {
            results.cannot.push(Cannot {
                name: format.to_string(),
                reason: format!("the tree of {} is a root directory", app.name),
            });
        }
        formats
    }

    /// Finds out which formats can run here, and records why others cannot.
    fn probe(
        &self,
        stage: &mut Stage,
        undo: &mut Undo,
        results: &mut Results,
    ) -> Result<Vec<Format>> {
        let mut formats = Vec::new();
        for format in &self.formats {
            match reason_against(format, stage, undo) {
                None => formats.push(format.clone()),
                Some(reason) => {
                    if !self.quiet {
                        say(&format!("{format} cannot run here: {reason}"));
                    }
                    results.cannot.push(Cannot {
                        name: format.to_string(),
                        reason,
                    });
                }
            }
        }
        if let [Cannot { name, reason }, others @ ..] = &*results.cannot
            && formats.is_empty()
        {
            let others = match others.len() {
                0 => String::new(),
                count => format!("; {count} more cannot either"),
            };
            bail!("no format can run here: {name} cannot, because {reason}{others}");
        }
        let tools = [
            ("mksquashfs", "-version"),
            ("mkfs.erofs", "--version"),
            ("squashfuse", "--help"),
        ];
        let uses = |tool: &str, format: &Format| match tool {
            "squashfuse" => matches!(format, Format::Squashfuse(_)),
            _ => format.rival().is_some_and(|rival| rival.tool() == tool),
        };
        for (tool, argument) in tools {
            if formats.iter().any(|format| uses(tool, format)) {
                results.tools.extend(version(tool, argument));
            }
        }
        results.mksquashfs = results
            .tools
            .iter()
            .find(|t| t.starts_with("mksq"))
            .cloned();
        Ok(formats)
    }
}

impl Measuring<'_> {
    fn run(&mut self, out: &Path, results: &mut Results) -> Result<()> {
        // Removes what another app has left.
        self.stage.empty_home()?;
        let launches = self.experiment.sample.is_none();
        if launches {
            self.try_all()?;
            // A first launch may write caches into the tree. Images of the tree then have them too.
            self.tree = walk(&self.app.tree)?;
        }
        let index = results.apps.len();
        results.apps.push(AppResults {
            app: self.app.clone(),
            tree_files: self.tree.files.len(),
            tree_bytes: self.tree.bytes,
            sample_of: self.sample_of,
            file_sizes: up_to(self.tree.files.iter().map(|file| file.len)),
            timeline: None,
            filling: None,
            replaying: None,
            demanded_bytes: None,
            reach: None,
            recorded: Vec::new(),
            rows: Vec::new(),
            runs: Vec::new(),
        });
        let contenders = self.build()?;
        results.apps[index].recorded = std::mem::take(&mut self.recorded);
        results.apps[index].timeline = self.timeline.take();
        results.apps[index].demanded_bytes = self.demanded;
        let commands: Vec<_> = contenders
            .iter()
            .map(|c| shown(&self.launch_of(c)))
            .collect();
        // Images are made without the limits.
        let (lifts, proven) = self.throttle(out)?;
        for proof in proven {
            let known = &mut results.settings.proven;
            if !known
                .iter()
                .any(|p| (&p.disk, &p.of) == (&proof.disk, &proof.of))
            {
                known.push(proof);
            }
        }
        let mut tasks = Vec::new();
        if launches {
            tasks.extend((0..contenders.len()).map(|who| (who, Kind::Cold)));
        }
        // A mount of an ordinary user's is not for the lab to read.
        let walks = !self.experiment.skip_walks && self.experiment.user.is_none();
        let walks = (0..contenders.len()).filter(|who| walks && contenders[*who].walks());
        tasks.extend(walks.map(|who| (who, Kind::Walk)));
        let mut rng = fastrand::Rng::with_seed(self.experiment.seed);
        for repetition in 0..self.experiment.runs {
            rng.shuffle(&mut tasks);
            for (place, &(who, kind)) in tasks.iter().enumerate() {
                let contender = &contenders[who];
                let name = contender.name();
                let measured = match kind {
                    Kind::Walk => self.walk(contender),
                    Kind::Cold | Kind::Warm | Kind::Resident => self.launch(contender),
                };
                for measured in measured.with_context(|| name.clone())? {
                    self.say(&format!(
                        "{} {}/{}: {name}, {measured}",
                        self.app.name,
                        repetition + 1,
                        self.experiment.runs,
                    ));
                    results.apps[index].runs.push(Run {
                        contender: who,
                        name: name.clone(),
                        repetition,
                        place,
                        measured,
                    });
                }
            }
            results.apps[index].tally(&contenders, &commands, self.experiment.seed);
            results.read_ahead = self.stage.read_ahead().devices();
            results.write(out)?;
        }
        let directory = contenders.iter().find(|c| c.format == Format::Directory);
        // Otherwise files of the system are in memory before.
        let whole = launches && self.experiment.chill == Chill::System;
        if let Some(directory) = directory.filter(|_| whole) {
            results.apps[index].reach = Some(self.reach(directory).context("reach")?);
            results.write(out)?;
        }
        // A launch of its own, because recording everything takes time.
        if let Some(timeline) = results.apps[index].timeline.clone().filter(|_| launches) {
            let mut watch = |is_one: fn(&Format) -> bool| -> Result<Option<Filling>> {
                let same = |c: &&Contender| c.training == Some(Training::Same) && is_one(&c.format);
                let Some(contender) = contenders.iter().find(same) else {
                    return Ok(None);
                };
                self.watch(contender, &timeline).context("watched")
            };
            let app = &mut results.apps[index];
            app.filling = watch(|format| matches!(format, Format::Filled(_)))?;
            app.replaying = watch(|format| matches!(format, Format::DirectoryReplayed))?;
            results.write(out)?;
        }
        lifts.into_iter().rev().try_for_each(Lift::lift)
    }

    /// Limits what can be read from the disks of the tree and of `out`, and proves that the limits hold.
    fn throttle(&mut self, out: &Path) -> Result<(Vec<Lift>, Vec<Proven>)> {
        let limits = &self.experiment.limits;
        let mut disks = Vec::new();
        let (mut lifts, mut proven) = (Vec::new(), Vec::new());
        if limits.is_empty() {
            return Ok((lifts, proven));
        }
        let throttle = Throttle::find()?;
        let largest = self.tree.files.iter().max_by_key(|file| file.len);
        let made = proof::make_file(&self.stage.path("."))?;
        let files = [
            (out, Some(&*made)),
            (&*self.app.tree, largest.map(|file| &*file.path)),
        ];
        for (path, file) in files {
            let disk = device_of(path)?.with_context(|| {
                format!(
                    "the system names no disk for {}, and --disk needs one",
                    path.display()
                )
            })?;
            if !disks.contains(&disk) {
                lifts.extend(throttle.set(limits, &disk, self.undo)?);
                let file =
                    file.context("the tree has no file large enough to prove that --disk works")?;
                for proof in proof::prove(limits, &disk, file)? {
                    self.say(&format!(
                        "{}: the limit is {:.0} {}/s, direct reads get {:.0}",
                        proof.disk, proof.asked_per_second, proof.of, proof.got_per_second
                    ));
                    proven.push(proof);
                }
                disks.push(disk);
            }
        }
        Ok((lifts, proven))
    }

    fn say(&self, text: &str) {
        if !self.experiment.quiet {
            say(text);
        }
    }

    /// Runs every command from the tree, so that nothing is built for one that fails.
    fn try_all(&mut self) -> Result<()> {
        let commands = std::iter::once(&self.app.command).chain(&self.app.train);
        for words in commands {
            self.stage.prepare_home(self.app)?;
            self.stage.set_up(self.app, &Start::Directory, self.undo)?;
            let command = self.stage.launch(self.app, &Start::Directory, None, words);
            let shown = shown(&command).join(" ");
            // What the program prints on other inputs is not known.
            let app = match words == &self.app.command {
                true => self.app.clone(),
                false => App {
                    prints: None,
                    prints_exactly: None,
                    ..self.app.clone()
                },
            };
            let tried = program::time(command, &app, Instant::now(), self.undo);
            self.stage.tear_down(self.undo)?;
            tried.with_context(|| format!("from the directory: {shown}"))?;
        }
        Ok(())
    }

    /// Makes images, profiles and hot packs. Contenders that need the same file share it, and the time to
    /// make it counts for each of them.
    fn build(&mut self) -> Result<Vec<Contender>> {
        let mut own = None;
        let mut images: BTreeMap<Rival, Built> = BTreeMap::new();
        let mut contenders = Vec::new();
        let formats = self.formats;
        let trains = formats.iter().any(Format::is_trained);
        let image = self.stage.path("brisk.img");
        if trains || formats.contains(&Format::Brisk) {
            let mut pack = self
                .stage
                .brisk(&["pack", "-q", "--codec", "zstd", "--level", "15"]);
            pack.arg(&self.app.tree).arg("-o").arg(&image);
            own = Some(self.make(image.clone(), pack, work_off)?);
        }
        let profiles = match trains {
            true => self.record(&image)?,
            false => Vec::new(),
        };
        for format in formats {
            if let Some(rival) = format.rival()
                && !images.contains_key(&rival)
            {
                let image = self.stage.path(&rival.file_name());
                let order = match (rival, &*profiles) {
                    (Rival::SquashfsSorted, [(_, profile), ..]) => {
                        let profile = Profile::open(profile, &Limits::of_profiles())?;
                        Some(Order::write(
                            &profile,
                            &self.app.tree,
                            &self.stage.path("."),
                        )?)
                    }
                    _ => None,
                };
                let command = rival.command(&self.app.tree, &image, order.as_ref())?;
                images.insert(
                    rival,
                    self.make(image, command, |pack, undo| rival.make(pack, undo))?,
                );
            }
            if let Format::Auto(learned) = format {
                contenders.push(self.learned(format, *learned)?);
                continue;
            }
            let image = match format {
                Format::Auto(_)
                | Format::Directory
                | Format::DirectoryReplayed
                | Format::DirectoryWrong
                | Format::ReplayedBut(_) => None,
                Format::Kernel(_)
                | Format::KernelReplayed(_)
                | Format::Squashfuse(_)
                | Format::Beside(_) => format.rival().and_then(|rival| images.get(&rival)),
                Format::Brisk | Format::Filled(_) | Format::FilledBut(_) | Format::Wrong => {
                    own.as_ref()
                }
                Format::BesideImage(path) => Some(&Built::given(path)?),
            };
            let Some(image) = image.cloned() else {
                contenders.extend(self.replayed(
                    &Contender {
                        format: format.clone(),
                        training: None,
                        start: Start::Directory,
                        replay: None,
                        bytes: self.tree.bytes,
                        build_seconds: 0.0,
                        built_by: Vec::new(),
                    },
                    &profiles,
                )?);
                continue;
            };
            let Some(prefer) = format.hot_pack() else {
                let path = image.path.clone();
                let contender = Contender {
                    format: format.clone(),
                    training: None,
                    start: match format {
                        Format::Kernel(rival) | Format::KernelReplayed(rival) => Start::Kernel {
                            image: path,
                            filesystem: rival.filesystem(),
                        },
                        Format::Squashfuse(by) => Start::Squashfuse {
                            image: path,
                            by: *by,
                        },
                        _ => Start::Session {
                            image: path,
                            hot: None,
                            threads: None,
                            log: None,
                        },
                    },
                    replay: None,
                    bytes: image.bytes,
                    build_seconds: image.seconds,
                    built_by: image.by,
                };
                contenders.extend(self.replayed(&contender, &profiles)?);
                continue;
            };
            for (training, profile) in &profiles {
                if !format.takes(*training) {
                    continue;
                }
                let number = contenders.len();
                let profile = &self.changed(format, profile)?;
                let hot = self.stage.path(&format!("{number}.hot"));
                let mut make = self.stage.brisk(&["hot", "-q", "--prefer"]);
                make.arg(prefer);
                make.arg(&image.path).arg("--profile").arg(profile);
                make.arg("-o").arg(&hot);
                let built = self.make(hot, make, work_off)?;
                contenders.push(Contender {
                    format: format.clone(),
                    training: Some(*training),
                    start: Start::Session {
                        image: image.path.clone(),
                        hot: Some(built.path.clone()),
                        threads: format.change().and_then(Change::threads),
                        log: None,
                    },
                    replay: None,
                    bytes: image.bytes + built.bytes,
                    build_seconds: image.seconds + built.seconds,
                    built_by: image.by.iter().cloned().chain(built.by).collect(),
                });
            }
        }
        Ok(contenders)
    }

    /// A start by `brisk run --auto`, which has learned what it is to know.
    fn learned(&mut self, format: &Format, learned: Learned) -> Result<Contender> {
        let cache = self.stage.make_cache(&format!("learned-{format}"))?;
        let mut contender = Contender {
            format: format.clone(),
            training: None,
            start: Start::Auto {
                learned,
                cache: cache.clone(),
            },
            replay: None,
            bytes: self.tree.bytes,
            build_seconds: 0.0,
            built_by: Vec::new(),
        };
        for _ in 0..MOST_LEARNING {
            let starts = contender.built_by.len();
            if self.stage.knows(learned, &cache, starts)? {
                break;
            }
            self.stage.prepare_home(self.app)?;
            self.stage.set_up(self.app, &contender.start, self.undo)?;
            // Of a start that finds its files in memory, brisk learns nothing more.
            self.chill(&contender)?;
            let command = self.launch_of(&contender);
            contender.built_by.push(shown(&command));
            let took = program::time(command, self.app, Instant::now(), self.undo);
            contender.build_seconds += took.context("learning")?.as_secs_f64();
            self.stage.await_brisk(&contender)?;
            self.stage.tear_down(self.undo)?;
        }
        self.say(&format!(
            "{}: {format}: {} {}",
            self.app.name,
            match learned {
                Learned::Everything => "learned, starts:",
                Learned::Nothing => "measured the disk, starts:",
            },
            contender.built_by.len()
        ));
        Ok(contender)
    }

    /// The contender, or one for each profile if its format replays one.
    fn replayed(
        &mut self,
        contender: &Contender,
        profiles: &[(Training, PathBuf)],
    ) -> Result<Vec<Contender>> {
        if !contender.format.is_replayed() {
            return Ok(vec![contender.clone()]);
        }
        let mut contenders = Vec::new();
        for (training, profile) in profiles {
            if contender.format.takes(*training) {
                contenders.push(Contender {
                    training: Some(*training),
                    replay: Some(Replay {
                        disk: self.charge(profile)?,
                        profile: self.changed(&contender.format, profile)?,
                        threads: contender.format.change().and_then(Change::threads),
                        log: None,
                    }),
                    ..contender.clone()
                });
            }
        }
        Ok(contenders)
    }

    /// The profile, or a variant of it for a format that changes it.
    fn changed(&self, format: &Format, profile: &Path) -> Result<PathBuf> {
        let Some(change) = format.change() else {
            return Ok(profile.to_owned());
        };
        let whole = Profile::open(profile, &Limits::of_profiles())?;
        let Some(changed) = change.of(&whole, !format.is_replayed())? else {
            return Ok(profile.to_owned());
        };
        let path = self.stage.path(&format!("{format}.profile"));
        changed.write(&path)?;
        Ok(path)
    }

    /// What the disk of the tree charges under the limits. None if that cannot be measured and there are no
    /// limits.
    fn charge(&mut self, profile: &Path) -> Result<Option<String>> {
        if let Some(known) = &self.charge {
            return Ok(known.clone());
        }
        let measured = self.stage.charge(self.app, profile, self.undo)?;
        let (mut bytes, mut operations) = measured.unzip();
        for limit in &self.experiment.limits {
            let (known, most) = match limit {
                Rate::Bytes(most) => (&mut bytes, *most),
                Rate::Operations(most) => (&mut operations, *most),
            };
            *known = Some(known.map_or(most, |known| known.min(most)));
        }
        let bytes = bytes.map(|number| format!("bps={number}"));
        let operations = operations.map(|number| format!("iops={number}"));
        let charge: Vec<_> = bytes.into_iter().chain(operations).collect();
        let charge = (!charge.is_empty()).then(|| charge.join(","));
        Ok(self.charge.insert(charge).clone())
    }

    fn make(
        &mut self,
        path: PathBuf,
        mut command: Command,
        make: impl FnOnce(&mut Command, &mut Undo) -> Result<()>,
    ) -> Result<Built> {
        let words = shown(&command);
        let clock = Instant::now();
        make(&mut command, self.undo)?;
        let seconds = clock.elapsed().as_secs_f64();
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.say(&format!(
            "{}: {} made in {seconds:.1} s",
            self.app.name,
            name.display()
        ));
        Ok(Built {
            bytes: bytes_of(&path)?,
            path,
            seconds,
            by: vec![words],
        })
    }

    /// Records the profiles for the hot packs.
    fn record(&mut self, image: &Path) -> Result<Vec<(Training, PathBuf)>> {
        let command = std::slice::from_ref(&self.app.command);
        let same = self.record_all(image, Training::Same, command)?;
        let right = Profile::open(&same, &Limits::of_profiles())?;
        self.timeline = Some(Timeline::of(&right, TOUCHES));
        let demand = right.demand_by_root();
        self.demanded = Some(demand.iter().map(|root| root.pages * PAGE).sum());
        let wrong = self.stage.path("wrong.profile");
        wrong::profile(&right, &self.app.tree, &self.tree.files)?.write(&wrong)?;
        let mut profiles = vec![(Training::Same, same)];
        if !self.app.train.is_empty() {
            let another = self.record_all(image, Training::Another, &self.app.train)?;
            profiles.push((Training::Another, another));
        }
        profiles.push((Training::Wrong, wrong));
        Ok(profiles)
    }

    /// Records launches of all `commands`, each several times, and merges them into one profile.
    fn record_all(
        &mut self,
        image: &Path,
        training: Training,
        commands: &[Words],
    ) -> Result<PathBuf> {
        let mut parts = Vec::new();
        let times = self.experiment.recordings as usize;
        let launches = commands.iter().flat_map(|words| repeat_n(words, times));
        for words in launches {
            let part = self
                .stage
                .path(&format!("{training}-{}.profile", parts.len()));
            self.stage.prepare_home(self.app)?;
            let mut trace = self.stage.trace(self.app, image, &part, words);
            let clock = Instant::now();
            work_off(&mut trace, self.undo)?;
            let seconds = clock.elapsed().as_secs_f64();
            self.say(&format!(
                "{}: profile ({training}) recorded in {seconds:.1} s",
                self.app.name
            ));
            self.recorded.push(Recorded {
                training,
                command: shown(&trace),
                seconds,
            });
            parts.push(part);
        }
        if let [part] = &*parts {
            return Ok(part.clone());
        }
        let merged = self.stage.path(&format!("{training}.profile"));
        let mut merge = self.stage.brisk(&["profile", "merge"]);
        work_off(merge.args(parts).arg("-o").arg(&merged), self.undo)?;
        Ok(merged)
    }

    /// A cold launch, a warm one after it, and one that gives the bound, if the contender has one.
    fn launch(&mut self, contender: &Contender) -> Result<Vec<Measured>> {
        let start = &contender.start;
        // The lab knows the processes of a session, and asks them.
        orphans::adopt(!matches!(start, Start::Session { .. }))?;
        self.stage.prepare_home(self.app)?;
        self.chill(contender)?;
        self.stage.prepare_cache(start)?;
        self.stage.read_chroot(self.app, start)?;
        self.stage.read_asker(start)?;
        let cold = self.time(contender, Mount::New).context("cold")?;
        for limit in &self.experiment.limits {
            ensure!(
                allows(*limit, cold.read, cold.reading.as_secs_f64()),
                "--disk has no effect: {} bytes were read in {:.3} s",
                cold.read,
                cold.reading.as_secs_f64()
            );
        }
        let mut found = vec![Measured {
            kind: Kind::Cold,
            seconds: cold.launch.as_secs_f64(),
            read_bytes: Some(cold.read),
            cached_bytes: Some(cold.cached),
            attempt: None,
        }];
        let allowed = WARM.max(cold.read / WARM_SHARE);
        let mut read = 0;
        for attempt in 1..=UNTIL_WARM {
            self.stage.prepare_home(self.app)?;
            self.stage.prepare_cache(start)?;
            let warm = self.time(contender, Mount::Kept).context("warm")?;
            read = warm.read;
            if read <= allowed {
                found.push(Measured {
                    kind: Kind::Warm,
                    seconds: warm.launch.as_secs_f64(),
                    read_bytes: Some(read),
                    cached_bytes: None,
                    attempt: Some(attempt),
                });
                break;
            }
        }
        ensure!(
            found.len() == 2,
            "no launch is warm: launch {} after the cold one read {read} bytes from the disk, \
             allowed are {allowed}; check that there is enough memory, and that nothing else empties the page cache",
            UNTIL_WARM
        );
        self.end(start)?;
        if contender.has_bound() {
            found.push(self.launch_resident(contender, allowed)?);
        }
        Ok(found)
    }

    /// The cold launch once more, after the session has ended, but with all that it reads from the disk in memory. It may
    /// read at most `allowed` bytes from there.
    fn launch_resident(&mut self, contender: &Contender, allowed: u64) -> Result<Measured> {
        let mut resident = contender.clone();
        if let Start::Session {
            image,
            hot: Some(hot),
            ..
        } = &mut resident.start
        {
            // brisk reads a pack past the page cache. A launch asks for some of its pages before they are filled, each launch
            // for others, and these come from the image. Everything else is in memory since the cold launch.
            *hot = self.stage.copy_to_memory(hot)?;
            read_whole(image)?;
        }
        let start = &resident.start;
        let mut read = 0;
        for attempt in 1..=UNTIL_WARM {
            self.stage.prepare_home(self.app)?;
            self.stage.prepare_cache(start)?;
            let timed = self.time(&resident, Mount::New).context("resident")?;
            self.end(start)?;
            read = timed.read;
            if read <= allowed {
                return Ok(Measured {
                    kind: Kind::Resident,
                    seconds: timed.launch.as_secs_f64(),
                    read_bytes: Some(read),
                    cached_bytes: None,
                    attempt: Some(attempt),
                });
            }
        }
        bail!(
            "no launch finds everything in memory: launch {UNTIL_WARM} read {read} bytes from the disk, allowed are {allowed}; \
             check that there is enough memory, and that nothing else empties the page cache"
        )
    }

    /// Makes one launch of a contender for which everything is prepared.
    fn time(&mut self, contender: &Contender, mount: Mount) -> Result<Timed> {
        let start = &contender.start;
        // What is left of the launch before has read for that.
        orphans::reap()?;
        let before = match mount {
            Mount::New => self.stage.reads_before()?,
            Mount::Kept => self.stage.reads(self.app, start)?,
        };
        let cached = page_cache()?;
        let command = self.launch_of(contender);
        let clock = Instant::now();
        if mount == Mount::New {
            self.stage.set_up(self.app, start, self.undo)?;
        }
        let launch = program::time(command, self.app, clock, self.undo)?;
        self.stage.await_brisk(contender)?;
        let reading = clock.elapsed();
        let cached = page_cache()?.saturating_sub(cached);
        orphans::reap()?;
        Ok(Timed {
            launch,
            reading,
            read: self.stage.reads(self.app, start)?.since(&before),
            cached,
        })
    }

    /// Makes a cold launch of a contender that is filled or replayed, and returns what was stored or asked
    /// for when, and what the program waited for. None if the server or the replay did not end properly.
    fn watch(&mut self, contender: &Contender, timeline: &Timeline) -> Result<Option<Filling>> {
        let path = self.stage.path("pages.log");
        self.stage.make_writable(&path)?;
        let mut watched = contender.clone();
        if let Start::Session { log, .. } = &mut watched.start {
            *log = Some(path.clone());
        }
        if let Some(replay) = &mut watched.replay {
            replay.log = Some(path.clone());
        }
        self.stage.prepare_home(self.app)?;
        self.chill(&watched)?;
        self.stage.read_chroot(self.app, &watched.start)?;
        let command = self.launch_of(&watched);
        let (clock, started) = (Instant::now(), clock_gettime(ClockId::Monotonic));
        self.stage.set_up(self.app, &watched.start, self.undo)?;
        let time = program::time(command, self.app, clock, self.undo)?;
        self.stage.await_brisk(&watched)?;
        self.end(&watched.start)?;
        // A server writes its log when it ends, which is after the mount of the session is gone. A replay
        // writes its log when it has read everything, which may be after the launch.
        let deadline = Instant::now() + LOGGING;
        let events = loop {
            let events = PageEvent::list(&fs::read(&path).unwrap_or_default());
            if events.is_some() || Instant::now() > deadline {
                break events;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let Some((events, left_out)) = events else {
            self.say(&format!(
                "{}: there is no log of what was read ahead",
                contender.name()
            ));
            return Ok(None);
        };
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        let (name, started) = (
            contender.name(),
            Duration::try_from(started).unwrap_or_default(),
        );
        let mut filling = Filling::of(name, time, started, &events, left_out, timeline);
        if watched.replay.is_some() {
            // Nobody sees which pages the program reads from a plain directory.
            filling.waited = None;
        }
        Ok(Some(filling))
    }

    /// Makes a cold launch from the directory, and looks at what it brought into memory. A launch of its own, because
    /// the look brings names into memory.
    fn reach(&mut self, contender: &Contender) -> Result<Reach> {
        self.stage.prepare_home(self.app)?;
        self.chill(contender)?;
        self.stage.read_chroot(self.app, &contender.start)?;
        let command = self.launch_of(contender);
        let before = page_cache()?;
        self.stage.set_up(self.app, &contender.start, self.undo)?;
        program::time(command, self.app, Instant::now(), self.undo)?;
        let cached = page_cache()?.saturating_sub(before);
        self.end(&contender.start)?;
        let page = rustix::param::page_size() as u64;
        let mut of_tree = 0u64;
        for file in &self.tree.files {
            let opened = File::open(&file.path);
            // The launch may have removed a file.
            if let Ok(Residency::Pages { resident, .. }) = opened.and_then(|file| residency(&file))
            {
                of_tree = of_tree.saturating_add(resident.saturating_mul(page));
            }
        }
        Ok(Reach {
            cached_bytes: cached.max(of_tree),
            of_tree_bytes: of_tree,
        })
    }

    /// The command that launches a contender.
    fn launch_of(&self, contender: &Contender) -> Command {
        let Contender { start, replay, .. } = contender;
        self.stage
            .launch(self.app, start, replay.as_ref(), &self.app.command)
    }

    /// Undoes the set-up.
    fn end(&mut self, start: &Start) -> Result<()> {
        if let Start::Session { image, .. } = start {
            self.stage.end_session(image)?;
        }
        self.stage.tear_down(self.undo)
    }

    /// Reads every file, starting with nothing in memory.
    fn walk(&mut self, contender: &Contender) -> Result<Vec<Measured>> {
        let start = &contender.start;
        self.chill(contender)?;
        let clock = Instant::now();
        let root = match start {
            Start::Directory | Start::Auto { .. } => self.app.tree.clone(),
            _ => self.stage.mount_image(start, self.undo)?,
        };
        let walked = walk(&root);
        let seconds = clock.elapsed().as_secs_f64();
        self.stage.tear_down(self.undo)?;
        let walked = walked?;
        ensure!(
            walked.digest == self.tree.digest,
            "a walk finds {} files with {} bytes, the tree has {} with {}, and the names or \
             contents differ",
            walked.files.len(),
            walked.bytes,
            self.tree.files.len(),
            self.tree.bytes
        );
        Ok(vec![Measured {
            kind: Kind::Walk,
            seconds,
            read_bytes: None,
            cached_bytes: None,
            attempt: None,
        }])
    }

    /// Proves that nothing that a launch reads is in memory.
    fn chill(&self, contender: &Contender) -> Result<()> {
        let files = self.stage.files_of(contender);
        let tree = match contender.start {
            Start::Directory | Start::Auto { .. } => &*self.tree.files,
            _ => &[],
        };
        let tree = tree.iter().map(|file| &*file.path);
        self.experiment
            .chill
            .prove(files.iter().map(|path| &**path).chain(tree))
    }
}

/// Reads all of a file, so that it is in memory.
fn read_whole(path: &Path) -> Result<()> {
    let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(())
}

/// How many bytes of files are in memory.
fn page_cache() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let kib = |name: &str| -> u64 {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_suffix("kB"));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    };
    // Shared memory counts as cached, but it is on no disk.
    let kib = (kib("Cached:") + kib("Buffers:")).saturating_sub(kib("Shmem:"));
    Ok(kib * 1024)
}

/// A file that the lab made, or was given.
#[derive(Debug, Clone)]
struct Built {
    path: PathBuf,
    bytes: u64,
    seconds: f64,
    by: Vec<Vec<String>>,
}

impl Built {
    /// A file that the lab did not make.
    fn given(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot find the image {}", path.display()))?;
        Ok(Self {
            bytes: bytes_of(&path)?,
            path,
            seconds: 0.0,
            by: Vec::new(),
        })
    }
}

fn bytes_of(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path);
    Ok(metadata
        .with_context(|| format!("cannot examine {}", path.display()))?
        .len())
}
