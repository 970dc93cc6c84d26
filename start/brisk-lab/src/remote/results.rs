//! Results: every run.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::super::cells::{columns, megabytes};
use super::super::load::LeftOut;
use super::super::machine::Machine;
use super::super::network::{Carried, Line};
use super::super::statistics::Spread;

/// A way to start the program, in the order of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The image is downloaded first.
    DownloadImage,
    /// The image is there already.
    Local,
    /// The tree is downloaded and unpacked first.
    DownloadTree,
    /// `brisk run` has the URL, and nothing is there.
    Url,
    /// The same with the other input of this number, from 0.
    Input(usize),
    /// The same as `Url`, from a registry.
    Registry,
    /// What the start by URL has fetched is there.
    Again,
    /// Everything is there, and the network is not.
    Offline,
    /// Another command, of this number from 0, mounts the tree from the server.
    Rival(usize),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DownloadImage => write!(f, "download the image"),
            Self::Local => write!(f, "local image"),
            Self::DownloadTree => write!(f, "download and unpack the tree"),
            Self::Url => write!(f, "brisk run URL"),
            Self::Input(number) => write!(f, "brisk run URL, input {}", number + 1),
            Self::Registry => write!(f, "brisk run URL, registry"),
            Self::Again => write!(f, "brisk run URL, again"),
            Self::Offline => write!(f, "brisk run URL, offline"),
            Self::Rival(number) => write!(f, "rival {}", number + 1),
        }
    }
}

impl Serialize for Way {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Everything in `remote.json`.
#[derive(Debug, Serialize)]
pub struct RemoteResults {
    /// The version of this format.
    pub brisk_lab_remote: u32,
    pub brisk: String,
    /// The time of the start, as RFC 3339 writes it.
    pub started: String,
    pub machine: Machine,
    /// What takes pages out of memory although there is room. The lab stopped it.
    pub stopped: Vec<String>,
    pub settings: RemoteSettings,
    pub runs: Vec<RemoteRun>,
    pub missing: Vec<LeftOut>,
}

/// The arguments, and what follows from them.
#[derive(Debug, Serialize)]
pub struct RemoteSettings {
    pub image: String,
    pub image_bytes: u64,
    /// The size of the same tree as tar, compressed by zstd.
    pub archive_bytes: u64,
    pub command: Vec<String>,
    /// The other commands, which start the same program with other inputs.
    pub inputs: Vec<Vec<String>>,
    /// The commands that mount the tree in another way than brisk.
    pub rivals: Vec<Vec<String>>,
    pub ready: String,
    pub runs: u32,
    pub download_runs: u32,
    pub seed: u64,
    /// What is emptied before a run: `system` or `files`.
    pub cold: String,
    pub line: Line,
    /// How TCP of the server reacts to queues and loss, as the kernel names it.
    pub congestion_control: String,
}

/// One single run.
#[derive(Debug, Serialize)]
pub struct RemoteRun {
    pub way: Way,
    /// From 0.
    pub repetition: u32,
    /// The position within the repetition, from 0, of the way that began with nothing on the client.
    pub place: usize,
    /// From before the download, or before `brisk run`, until the program was ready.
    pub seconds: f64,
    /// What the relay did in that time.
    #[serde(flatten)]
    pub carried: Carried,
    /// How many requests the web server has answered in that time. One that still runs is not among them, and those of the registry
    /// are not.
    pub answered_requests: u64,
    /// What brisk counted of the image then. None if the run asked brisk for no URL.
    pub counted: Option<Counted>,
}

/// What `brisk remote list --json` says of an image, as far as a lab needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    pub url: String,
    pub is_complete: bool,
    /// Bytes that came from the network.
    pub network_bytes: u64,
    /// As far as the fetcher has written its counters.
    pub requests: u64,
    /// How often the program waited for the network, and how long in total.
    pub waits: u64,
    pub waited_seconds: f64,
}

/// The heads of the columns of the table.
const HEAD: [&str; 8] = [
    "",
    "seconds (from-to)",
    "MB to client",
    "MB to server",
    "dropped",
    "requests",
    "waits",
    "relay s",
];

impl RemoteResults {
    /// The results as a table for people.
    pub fn text(&self) -> String {
        let settings = &self.settings;
        let line = &settings.line;
        let mut text = format!(
            "{}: {} MB, and {} MB as tar.zst. Program: {}\n{} ms round trip, {} Mbit/s, {} % loss, a queue of {} KB, \
             TCP with {}. Median seconds until the program is {}, with nothing in memory.\n\n",
            settings.image,
            megabytes(settings.image_bytes),
            megabytes(settings.archive_bytes),
            settings.command.join(" "),
            line.round_trip_seconds * 1000.0,
            line.bits_per_second as f64 / 1e6,
            line.loss_percent,
            line.queue_bytes / 1000,
            settings.congestion_control,
            match &*settings.ready {
                "exit" => "done",
                _ => "ready",
            },
        );
        let ways: BTreeSet<Way> = self.runs.iter().map(|run| run.way).collect();
        let rows = ways.into_iter().map(|way| self.row(way));
        let head = std::iter::once(HEAD.map(str::to_owned));
        text += &columns(&head.chain(rows).collect::<Vec<_>>());
        for (number, input) in settings.inputs.iter().enumerate() {
            text += &format!("\nInput {}: {}\n", number + 1, input.join(" "));
        }
        for (number, rival) in settings.rivals.iter().enumerate() {
            text += &format!("\nRival {}: {}\n", number + 1, rival.join(" "));
        }
        for LeftOut { what, reason } in &self.missing {
            text += &format!("\nNot measured: {what}: {reason}\n");
        }
        text
    }

    fn row(&self, way: Way) -> [String; 8] {
        let of = |value: &dyn Fn(&RemoteRun) -> Option<f64>| {
            let runs = self.runs.iter().filter(|run| run.way == way);
            Spread::of(&runs.filter_map(value).collect::<Vec<_>>())
        };
        let cell = |digits: usize, value: &dyn Fn(&RemoteRun) -> Option<f64>| {
            of(value).map_or_else(
                || "-".to_owned(),
                |spread| format!("{:.digits$}", spread.median),
            )
        };
        let seconds = of(&|run| Some(run.seconds)).map_or_else(String::new, |spread| {
            let Spread { median, min, max } = spread;
            format!("{median:.3} ({min:.3}-{max:.3})")
        });
        [
            way.to_string(),
            seconds,
            cell(1, &|run| Some(run.carried.to_client_bytes as f64 / 1e6)),
            cell(1, &|run| Some(run.carried.to_server_bytes as f64 / 1e6)),
            cell(0, &|run| {
                let carried = &run.carried;
                Some((carried.dropped_packets + carried.lost_packets) as f64)
            }),
            cell(0, &|run| Some(run.answered_requests as f64)),
            cell(0, &|run| {
                let counted = run.counted.as_ref();
                counted.map(|counted| counted.waits as f64)
            }),
            cell(2, &|run| Some(run.carried.relay_seconds)),
        ]
    }
}
