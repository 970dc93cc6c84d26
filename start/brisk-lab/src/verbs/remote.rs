//! `brisk lab remote`: measures how fast a program starts from an image on a server.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use brisk_terminal::answer::Answer;

use super::readiness;
use crate::app::{App, Words};
use crate::cold::Chill;
use crate::network::Line;
use crate::remote::{Program, RemoteLab};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The lab makes two hosts, which are network namespaces, and a line between them: a process that carries each packet after \
half a round trip, at the rate, and drops what finds its queue full. The queue holds as many bytes as are on the way when \
the line is full, but at least 64 KiB. Both ends are TCP of this kernel, with slow start. nginx serves the directory of \
the image on one host. On the other, these ways take turns, in random order:\n\n  \
  download the image            curl, then brisk run with the file\n  \
  local image                   brisk run with the same file again\n  \
  download and unpack the tree  curl and tar, of the same tree as tar.zst, then the program from the directory\n  \
  brisk run URL                 nothing of the image is on the client\n  \
  brisk run URL, input N        the same, with another input than the command\n  \
  brisk run URL, registry       the same from a docker-registry, with --registry\n  \
  brisk run URL, again          what the first run has fetched is on the disk\n  \
  brisk run URL, offline        the image is complete, and the line is cut\n  \
  rival N                       the command of --rival, then the program from the directory that it has mounted\n\n\
Before each run, no session runs, and no file of brisk, of the image or of the tree is in the client's memory. The files \
of the server are in memory. The clock runs from before the download or the mount until the program has ended, or is ready. For each \
run the lab counts bytes in both directions, dropped packets, the processor time of the line and the requests that the server has \
answered, and for brisk run URL how often the program waited for the network, as brisk remote list says.\n\n\
OUT/remote.json has every run. Needs root, curl, ip (iproute2), nginx, tar, zstd and /dev/net/tun.\n\n\
Examples:\n  \
  brisk lab remote app.img --rtt 50ms --rate 100mbit -- bin/app --version\n  \
  brisk lab remote app.img --input 'bin/app --help' -- bin/app --version\n  \
  brisk lab remote chromium.img --app chromium.toml --loss 0.1")]
pub struct Args {
    /// The image. Its directory is what the server shows.
    image: PathBuf,

    /// A spec that describes the program, as for brisk lab launch. Its train commands are other inputs.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["command", "ready"])]
    app: Option<PathBuf>,

    /// The folder with the tree of the spec. [default: where the spec is]
    #[arg(long, value_name = "DIR", requires = "app")]
    trees: Option<PathBuf>,

    /// The time from one host to the other and back, such as 50ms.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time)]
    rtt: Duration,

    /// Bits that the line carries in a second, in each direction, such as 100mbit.
    #[arg(long, value_name = "RATE", default_value = "100mbit", value_parser = rate)]
    rate: u64,

    /// Percent of the packets that are lost.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss: f64,

    /// How many runs to make of each way with a URL.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// How many runs to make of each way that downloads everything first.
    #[arg(long, value_name = "N", default_value_t = 3)]
    download_runs: u32,

    /// Another command of the same program, in one argument with the quotes of a shell. May be given more than once.
    #[arg(long, value_name = "CMD")]
    input: Vec<String>,

    /// A command that mounts the tree in another way, in one argument with the quotes of a shell. The lab adds the URL of the
    /// image's directory, the mount point, and an empty directory for the command's own files. May be given more than once.
    #[arg(long, value_name = "CMD")]
    rival: Vec<String>,

    /// Also starts the program from a registry, to which the lab has pushed the image. Needs docker-registry.
    #[arg(long)]
    registry: bool,

    /// When a launch is ready: exit, line:TEXT, window or window:TITLE. [default: exit]
    #[arg(long, value_name = "WHAT", value_parser = readiness)]
    ready: Option<String>,

    /// What is not in memory before a run: anything of the system, or only the files of brisk and the image.
    #[arg(long, value_name = "WHAT", default_value = "system")]
    cold: Chill,

    /// The directory for remote.json. The client's files are also below it, so it chooses the disk.
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "DIR",
        default_value = "brisk-lab"
    )]
    out: PathBuf,

    /// Seed of the random orders and of the loss. [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Prints the contents of remote.json instead of the table.
    #[arg(long)]
    json: bool,

    /// Shows no progress.
    #[arg(short, long)]
    quiet: bool,

    /// The command and its arguments. A name with a slash is a path in the tree (bin/app), an absolute path is taken
    /// as it is, and a bare name is looked up in PATH.
    #[arg(last = true, required_unless_present = "app", value_name = "CMD")]
    command: Vec<OsString>,
}

fn time(text: &str) -> anyhow::Result<Duration> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    let time = parsed.and_then(|time| Duration::try_from(time).ok());
    time.context("allowed is a number with its unit, such as 50ms or 1s")
}

fn rate(text: &str) -> anyhow::Result<u64> {
    const UNITS: [(&str, u64); 4] = [
        ("kbit", 1000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
        ("bit", 1),
    ];
    let parsed = UNITS.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*bits)
    });
    parsed.context("allowed is a whole number with its unit, such as 500kbit, 100mbit or 1gbit")
}

/// The commands of an option.
fn commands(option: &str, texts: &[String]) -> anyhow::Result<Vec<Words>> {
    let of = |text: &String| {
        let words = shlex::split(text).and_then(Words::new);
        words.with_context(|| {
            format!("{option}: found {text}, allowed is a command as a shell takes it")
        })
    };
    texts.iter().map(of).collect()
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut inputs = Vec::new();
    let program = match (&args.app, Words::new(args.command.clone())) {
        (Some(spec), _) => {
            let app = App::open(spec, args.trees.as_deref())?;
            inputs.clone_from(&app.train);
            Program::Spec(Box::new(app))
        }
        (None, Some(words)) => Program::Command {
            words,
            ready: args.ready.clone().unwrap_or_else(|| "exit".to_owned()),
        },
        (None, None) => {
            bail!("there is nothing to launch: name a spec with --app, or a command after --")
        }
    };
    inputs.extend(commands("--input", &args.input)?);
    let lab = RemoteLab {
        image: args.image.clone(),
        program,
        inputs,
        rivals: commands("--rival", &args.rival)?,
        registry: args.registry,
        line: Line::new(args.rtt, args.rate, args.loss)?,
        runs: args.runs,
        download_runs: args.download_runs,
        chill: args.cold,
        out: args.out.clone(),
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
        quiet: args.quiet,
    };
    let results = lab.run()?;
    let mut out = io::stdout().lock();
    match args.json {
        true => {
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
        false => out.write_all(results.text().as_bytes())?,
    }
    out.flush().context("cannot write the table")?;
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_and_inputs_are_read_as_people_write_them() {
        for (text, expected) in [
            ("8000bit", Some(8000)),
            ("500kbit", Some(500_000)),
            ("100mbit", Some(100_000_000)),
            ("1gbit", Some(1_000_000_000)),
            ("100", None),
            ("100MB", None),
            ("18446744073709551615kbit", None),
        ] {
            assert_eq!(rate(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("50ms", Some(Duration::from_millis(50))),
            ("1s", Some(Duration::from_secs(1))),
            ("-1s", None),
            ("50", None),
        ] {
            assert_eq!(time(text).ok(), expected, "{text}");
        }
        let commands = |text: &str| commands("--input", &[text.to_owned()]);
        let words = commands("bin/app 'a b' c").unwrap();
        assert_eq!(words[0].shown(), ["bin/app", "a b", "c"]);
        assert!(commands("bin/app 'a b").is_err());
        assert!(commands("").is_err());
    }
}
