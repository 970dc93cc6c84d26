/*!
How long a program takes to start from an image on a server: `brisk lab remote`.

A [`RemoteLab`] makes a [`Network`] of two hosts, starts a web server on one of them, and starts the program on the other:
after a download of the image, after a download of the same tree as tar.zst, by `brisk run URL`, and after other commands have
mounted the tree. The ways take turns in random order. Before each run nothing of the image is on the client: no file, no session, no page in memory. The files of the
server are in memory, as those of a busy server are.
*/

mod results;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk::{beside, write_whole};
use brisk_terminal::messages::say;

use super::app::{App, Words};
use super::cold::Chill;
use super::command_output::output_of;
use super::contender::Start;
use super::files::directory_on_disk;
use super::load::{LeftOut, processors};
use super::machine::Machine;
use super::network::{Line, Network, Registry, WebServer};
use super::program;
use super::read_ahead::ReadAhead;
use super::reclaim;
use super::stage::{Stage, work_off};
use super::undo::{Undo, undoing};
use super::x_server::XServer;
use results::{Counted, RemoteRun, RemoteSettings, Way};

pub use results::RemoteResults;

/// How long to wait for what a fetcher writes.
const SETTLE: Duration = Duration::from_millis(300);

/// The program of brisk that has the sockets. It is not part of every build.
const FETCH: &str = "brisk-fetch";

/// The level of zstd of the archive. Images of brisk have the same.
const LEVEL: &str = "zstd -15 -T0";

/// The read-ahead of the client's disk, in KiB. Most machines have it.
const READ_AHEAD: u32 = 128;

/// What to measure, and how.
#[derive(Debug)]
pub struct RemoteLab {
    /// The image. The server shows the directory that has it.
    pub image: PathBuf,
    pub program: Program,
    /// The same program with other inputs.
    pub inputs: Vec<Words>,
    /// Commands that mount the tree in another way than brisk.
    pub rivals: Vec<Words>,
    /// Whether to start the program from a registry, too.
    pub registry: bool,
    pub line: Line,
    pub runs: u32,
    /// How often to measure the ways that download everything first.
    pub download_runs: u32,
    pub chill: Chill,
    /// The directory for results.
    pub out: PathBuf,
    pub seed: u64,
    /// Shows no progress.
    pub quiet: bool,
}

/// The program to start.
#[derive(Debug)]
pub enum Program {
    /// What a spec says. Its tree is where the program finds its files.
    Spec(Box<App>),
    /// A command, and when it is ready. The lab chooses the place of its files.
    Command { words: Words, ready: String },
}

/// What takes part in all runs.
struct Measuring<'a> {
    lab: &'a RemoteLab,
    app: App,
    stage: Stage,
    network: Network,
    server: WebServer,
    /// The image in it has the URL [`REGISTERED`].
    registry: Option<Registry>,
    /// Where programs show their windows, if the spec wants a display. It runs on the client, and ends with all that runs there.
    x_server: Option<XServer>,
    undo: &'a mut Undo,
    results: RemoteResults,
    /// The files that the server shows.
    image: PathBuf,
    archive: PathBuf,
    url: String,
    /// What the client keeps, on the disk.
    client: PathBuf,
    repetition: u32,
    place: usize,
}

impl RemoteLab {
    /// Measures everything. After every repetition, `remote.json` holds the results so far.
    ///
    /// The process enters namespaces of its own, so it must have one thread.
    pub fn run(&self) -> Result<RemoteResults> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "brisk lab remote needs root, to make network namespaces and to empty the page cache; run it as root, for \
             example with sudo"
        );
        undoing(|undo| self.measure(undo))
    }

    fn measure(&self, undo: &mut Undo) -> Result<RemoteResults> {
        let ground = undo
            .runtime()
            .parent()
            .context("sessions have a directory")?;
        let ground = ground.to_owned();
        let image = self
            .image
            .canonicalize()
            .with_context(|| format!("cannot find the image {}", self.image.display()))?;
        let name = image.file_name().and_then(|name| name.to_str());
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = name
            .filter(|name| name.chars().all(plain))
            .with_context(|| {
                format!(
                    "the name of {} would need escapes in a URL; allowed are letters, digits, dots, dashes and underscores",
                    image.display()
                )
            })?;
        let work = directory_on_disk(&self.out, "remote-")?;
        undo.remove(&work)?;
        let network = Network::start(&self.line, self.seed, undo)?;
        brisk_serve::enter_private()?;
        let stage = Stage::new(&work, &ground, ReadAhead::new(READ_AHEAD), None)?;
        let fetch = beside(FETCH)?;
        if fetch.exists() {
            fs::copy(&fetch, stage.path(FETCH))
                .with_context(|| format!("cannot copy {}", fetch.display()))?;
        }
        let client = stage.path("client");
        fs::create_dir_all(client.join("tree"))?;
        let app = self.program.in_tree(&client.join("tree"))?;
        let archive = self.archive(&stage, &image, undo)?;
        let shown = [
            ("image", image.parent().unwrap_or(Path::new("/"))),
            ("tree", archive.parent().unwrap_or(Path::new("/"))),
        ];
        let place = stage.path("nginx");
        let mut server = WebServer::start(&place, &shown)?;
        let registry = match self.registry {
            true => Some(self.pushed(&stage, &image, undo)?),
            false => None,
        };
        network.client.enter()?;
        server.await_connection(&Network::ADDRESS, &place)?;
        let results = RemoteResults {
            brisk_lab_remote: 1,
            brisk: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            machine: Machine::describe(&work, processors())?,
            stopped: reclaim::stop(undo)?,
            settings: RemoteSettings {
                image: name.to_owned(),
                image_bytes: fs::metadata(&image)?.len(),
                archive_bytes: fs::metadata(&archive)?.len(),
                command: app.command.shown(),
                inputs: self.inputs.iter().map(Words::shown).collect(),
                rivals: self.rivals.iter().map(Words::shown).collect(),
                ready: app.ready.clone(),
                runs: self.runs,
                download_runs: self.download_runs,
                seed: self.seed,
                cold: match self.chill {
                    Chill::System => "system",
                    Chill::Files => "files",
                }
                .to_owned(),
                line: self.line,
                congestion_control: network.congestion_control.clone(),
            },
            runs: Vec::new(),
            missing: Vec::new(),
        };
        let mut measuring = Measuring {
            lab: self,
            app,
            stage,
            network,
            server,
            registry,
            x_server: None,
            undo,
            results,
            image: image.clone(),
            archive,
            url: format!("http://{}/image/{name}", Network::ADDRESS.ip()),
            client,
            repetition: 0,
            place: 0,
        };
        measuring.run()?;
        Ok(measuring.results)
    }

    /// Makes the archive of the tree that the image has.
    fn archive(&self, stage: &Stage, image: &Path, undo: &mut Undo) -> Result<PathBuf> {
        self.say("making a tar.zst of the same tree");
        let (tree, archive) = (stage.path("tree"), stage.path("served/tree.tar.zst"));
        fs::create_dir(stage.path("served"))?;
        work_off(stage.brisk(&["extract"]).arg(image).arg(&tree), undo)?;
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "-I", LEVEL, "-cf"]);
        work_off(tar.arg(&archive).arg("-C").arg(&tree).arg("."), undo)?;
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
        Ok(archive)
    }

    /// Starts a registry with the image. This thread is on the server.
    fn pushed(&self, stage: &Stage, image: &Path, undo: &mut Undo) -> Result<Registry> {
        self.say("pushing the image to a registry");
        let registry = Registry::start(&stage.path("registry"), &Network::REGISTRY)?;
        let mut push = stage.brisk(&["push", "-q", "--insecure"]);
        work_off(push.arg(image).arg(REGISTERED), undo)?;
        Ok(registry)
    }

    fn repetitions(&self) -> u32 {
        self.runs.max(self.download_runs)
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }
}

impl Program {
    /// The program, whose files are in `tree`.
    fn in_tree(&self, tree: &Path) -> Result<App> {
        Ok(match self {
            Self::Spec(app) => App {
                tree: tree.to_owned(),
                ..App::clone(app)
            },
            Self::Command { words, ready } => App {
                ready: ready.clone(),
                ..App::new(tree, None, words.clone())?
            },
        })
    }
}

impl Measuring<'_> {
    fn run(&mut self) -> Result<()> {
        // The other ways follow one of these.
        let mut ways = vec![Way::DownloadImage, Way::DownloadTree];
        ways.extend((0..self.lab.rivals.len()).map(Way::Rival));
        let help = self.stage.brisk(&["remote", "list", "--help"]).output();
        match help.context("cannot start brisk")?.status.success() {
            true => {
                ways.push(Way::Url);
                ways.extend(self.registry.as_ref().map(|_| Way::Registry));
                ways.extend((0..self.lab.inputs.len()).map(Way::Input));
            }
            false => self.results.missing.push(LeftOut {
                what: "brisk run URL".to_owned(),
                reason: "the installed brisk has no verb remote".to_owned(),
            }),
        }
        let mut rng = fastrand::Rng::with_seed(self.lab.seed);
        for repetition in 0..self.lab.repetitions() {
            self.repetition = repetition;
            rng.shuffle(&mut ways);
            for (place, way) in ways.clone().into_iter().enumerate() {
                self.place = place;
                let runs = match way {
                    Way::DownloadImage | Way::DownloadTree => self.lab.download_runs,
                    _ => self.lab.runs,
                };
                if repetition < runs {
                    self.empty_client()?;
                    self.measure(way).with_context(|| way.to_string())?;
                }
            }
            let text = serde_json::to_string(&self.results)?;
            write_whole(&text, &self.lab.out.join("remote.json"))?;
        }
        self.end_brisk()
    }

    /// Starts the program in this way with nothing on the client, and then in the ways that follow it.
    fn measure(&mut self, way: Way) -> Result<()> {
        let url = OsString::from(&self.url);
        match way {
            Way::DownloadImage | Way::Local => {
                let image = self.client.join("app.img");
                let mut download = Command::new(CURL);
                download.args(CURL_OPTIONS).arg("-o").arg(&image).arg(&url);
                self.start(Way::DownloadImage, Some(download), image.clone().into())?;
                self.end_brisk()?;
                self.start(Way::Local, None, image.into())
            }
            Way::DownloadTree => self.start_unpacked(),
            Way::Registry => self.start(way, None, REGISTERED.into()),
            Way::Rival(number) => self.start_mounted(number),
            Way::Input(number) => {
                let other = App {
                    command: self.lab.inputs[number].clone(),
                    prints: None,
                    prints_exactly: None,
                    ..self.app.clone()
                };
                let usual = std::mem::replace(&mut self.app, other);
                let started = self.start(way, None, url);
                self.app = usual;
                started
            }
            Way::Url | Way::Again | Way::Offline => {
                self.start(Way::Url, None, url.clone())?;
                self.end_brisk()?;
                self.start(Way::Again, None, url.clone())?;
                let arguments = ["remote", "fetch", "--insecure"];
                let mut fetch = self.stage.brisk_of_launch(&self.app, &arguments);
                fetch.arg(&url).env("XDG_CACHE_HOME", self.cache());
                work_off(&mut fetch, self.undo)?;
                self.end_brisk()?;
                self.network.relay.cut(true)?;
                let started = self.start(Way::Offline, None, url);
                self.network.relay.cut(false)?;
                started
            }
        }
    }

    /// Makes the client as if it had never seen the image.
    fn empty_client(&mut self) -> Result<()> {
        self.end_brisk()?;
        // What rivals have mounted.
        self.stage.uncover(&self.client)?;
        let emptied = || {
            fs::remove_dir_all(&self.client)?;
            fs::create_dir_all(self.cache())?;
            fs::create_dir(self.client.join("tree"))
        };
        emptied().with_context(|| format!("cannot empty {}", self.client.display()))
    }

    /// Where the client's brisk keeps what it fetches.
    fn cache(&self) -> PathBuf {
        self.client.join("cache")
    }

    /// Ends the sessions of the client, and then all its processes. If the program needs a display, it has a new one then.
    fn end_brisk(&mut self) -> Result<()> {
        let mut restore = Command::new(std::env::current_exe()?);
        restore
            .arg("restore")
            .env("XDG_RUNTIME_DIR", self.undo.runtime());
        output_of(restore.stdin(Stdio::null()))?;
        if let Some(server) = self.x_server.take() {
            server.end(self.undo)?;
        }
        self.network.client.end_processes()?;
        if self.app.display {
            let server = self.x_server.insert(XServer::start(self.undo)?);
            let name = server.name.clone();
            self.app.env.insert("DISPLAY".to_owned(), name);
        }
        Ok(())
    }

    /// Takes everything that a run reads out of memory, but not what the server shows.
    fn chill(&self, way: Way) -> Result<()> {
        let mut files = self.stage.starters();
        files.push(self.stage.path(FETCH));
        files.retain(|file| file.exists());
        add_files(&self.client, &mut files)
            .with_context(|| format!("cannot list {}", self.client.display()))?;
        self.lab.chill.prove(files.iter().map(PathBuf::as_path))?;
        if let Way::DownloadTree | Way::Rival(_) = way {
            self.stage.read_chroot(&self.app, &Start::Directory)?;
        }
        let mut served = Vec::new();
        match way {
            Way::DownloadTree => served.push(self.archive.clone()),
            Way::Local | Way::Offline => {}
            Way::DownloadImage | Way::Url | Way::Input(_) | Way::Registry | Way::Again => {
                served.push(self.image.clone());
            }
            Way::Rival(_) => {
                let shown = self.image.parent().unwrap_or(Path::new("/"));
                add_files(shown, &mut served)
                    .with_context(|| format!("cannot list {}", shown.display()))?;
            }
        }
        for file in &served {
            let read = File::open(file).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
            read.with_context(|| format!("cannot read {}", file.display()))?;
        }
        Ok(())
    }

    /// Starts the program by `brisk run` from an image, which is a file or a URL, after a download if there is one.
    fn start(&mut self, way: Way, download: Option<Command>, image: OsString) -> Result<()> {
        let urls = [self.url.clone(), REGISTERED.to_owned()];
        let url = urls.into_iter().find(|url| image == **url);
        let options = match url {
            Some(_) => vec!["--insecure".into()],
            None => Vec::new(),
        };
        let mut launch = self
            .stage
            .launch_image(&self.app, &image, &options, &self.app.command);
        launch.env("XDG_CACHE_HOME", self.cache());
        self.timed(way, url.as_deref(), |measuring, clock| {
            if let Some(mut download) = download {
                work_off(&mut download, measuring.undo)?;
            }
            program::time(launch, &measuring.app, clock, measuring.undo)
        })
    }

    /// Starts the program from its directory, which is downloaded and unpacked before.
    fn start_unpacked(&mut self) -> Result<()> {
        let url = format!("http://{}/tree/tree.tar.zst", Network::ADDRESS.ip());
        let tree = self.app.tree.clone();
        // A download that fails must not look like a short archive.
        let mut download = Command::new("bash");
        download
            .args([
                "-c",
                "set -o pipefail; \"${@:2}\" | tar --zstd -x -C \"$1\"",
                "bash",
            ])
            .arg(&tree)
            .arg(CURL)
            .args(CURL_OPTIONS)
            .arg(url);
        self.timed(Way::DownloadTree, None, |measuring, clock| {
            work_off(&mut download, measuring.undo)?;
            measuring.app.make_places(measuring.undo)?;
            measuring.start_in_tree(clock)
        })
    }

    /// Starts the program from its directory, where a rival mounts the tree before.
    fn start_mounted(&mut self, number: usize) -> Result<()> {
        let Words { program, arguments } = &self.lab.rivals[number];
        let files = self.client.join("files");
        fs::create_dir(&files).with_context(|| format!("cannot make {}", files.display()))?;
        let mut mount = Command::new(program);
        mount
            .args(arguments)
            .arg(format!("http://{}/image", Network::ADDRESS.ip()))
            .arg(&self.app.tree)
            .arg(&files);
        self.timed(Way::Rival(number), None, |measuring, clock| {
            work_off(&mut mount, measuring.undo)?;
            measuring.start_in_tree(clock)
        })
    }

    /// Starts the program from its directory.
    fn start_in_tree(&mut self, clock: Instant) -> Result<Duration> {
        let Self {
            stage, app, undo, ..
        } = self;
        stage.set_up(app, &Start::Directory, undo)?;
        let launch = stage.launch(app, &Start::Directory, None, &app.command);
        let time = program::time(launch, app, clock, undo);
        stage.tear_down(undo)?;
        time
    }

    /// Makes one run, and keeps what it took.
    fn timed(
        &mut self,
        way: Way,
        url: Option<&str>,
        run: impl FnOnce(&mut Self, Instant) -> Result<Duration>,
    ) -> Result<()> {
        self.stage.prepare_home(&self.app)?;
        self.chill(way)?;
        let (before, answered) = (self.network.relay.carried()?, self.server.answered()?);
        let time = run(self, Instant::now())?;
        let carried = self.network.relay.carried()?.since(before);
        let answered_requests = self.server.answered()?.saturating_sub(answered);
        let counted = url.map(|url| self.counted(url)).transpose()?;
        let seconds = time.as_secs_f64();
        let (number, runs) = (self.repetition + 1, self.lab.repetitions());
        self.lab.say(&format!(
            "{number}/{runs}: {way}: {seconds:.3} s, {:.1} MB",
            carried.to_client_bytes as f64 / 1e6
        ));
        self.results.runs.push(RemoteRun {
            way,
            repetition: self.repetition,
            place: self.place,
            seconds,
            carried,
            answered_requests,
            counted,
        });
        Ok(())
    }

    /// What brisk has counted of the image.
    fn counted(&self, url: &str) -> Result<Counted> {
        // The fetcher writes its counters when the session has gone.
        thread::sleep(SETTLE);
        let mut list = self.stage.brisk(&["remote", "list", "--json"]);
        let text = output_of(list.env("XDG_CACHE_HOME", self.cache()))?;
        let listed = serde_json::Deserializer::from_slice(&text).into_iter::<Counted>();
        let listed = listed.collect::<Result<Vec<_>, _>>();
        let listed = listed.context("the output of brisk remote list --json has another form")?;
        let ours = listed.into_iter().find(|image| image.url == url);
        ours.with_context(|| format!("brisk remote list does not have {url}"))
    }
}

/// Adds the regular files below a directory.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => add_files(&entry.path(), files)?,
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

/// The image in the registry.
const REGISTERED: &str = "oci+http://10.0.0.1:5000/app:1";

const CURL: &str = "curl";

/// No proxy is between the hosts. An error is said, and ends curl as one.
const CURL_OPTIONS: [&str; 4] = ["--noproxy", "*", "-sS", "--fail"];
