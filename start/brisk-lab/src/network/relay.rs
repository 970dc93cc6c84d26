//! The process that carries packets between two hosts, as a line with a rate and a delay does.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brisk_terminal::messages::warn;
use nix::sys::resource::{UsageWho, getrusage};
use rustix::io::Errno;
use rustix::process::setpriority_process;
use serde::{Deserialize, Serialize};

use super::link::{Fate, Line, Link};
use super::tun_device::TunDevice;

/// The longest packet of the devices, which have the length of Ethernet, 1500.
const LONGEST: usize = 2048;

/// The highest priority. The relay stands for a network, which waits for no program of the machine.
const PRIORITY: i32 = -20;

/// What a relay is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    line: Line,
    seed: u64,
    /// The names of the devices of the server and of the client.
    devices: [String; 2],
}

/// What the lab asks a relay.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Request {
    /// Only to count.
    Count,
    /// To throw all packets away from now on.
    Cut,
    /// To carry packets again.
    Mend,
}

/// What a relay has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Bytes of packets from the server to the client, with their headers, without those that were dropped.
    pub to_client_bytes: u64,
    pub to_server_bytes: u64,
    /// Packets that found a full queue, in both directions.
    pub dropped_packets: u64,
    /// Packets that were lost on the way, in both directions.
    pub lost_packets: u64,
    /// Processor time of the relay.
    pub relay_seconds: f64,
}

impl Carried {
    /// What was done since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            to_client_bytes: self.to_client_bytes.saturating_sub(before.to_client_bytes),
            to_server_bytes: self.to_server_bytes.saturating_sub(before.to_server_bytes),
            dropped_packets: self.dropped_packets.saturating_sub(before.dropped_packets),
            lost_packets: self.lost_packets.saturating_sub(before.lost_packets),
            relay_seconds: self.relay_seconds - before.relay_seconds,
        }
    }
}

/// The lab's end of a relay. The relay ends with it.
pub struct Relay {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Relay {
    /// Starts a relay, which makes two devices with these names in the network namespace of this process.
    pub fn start(line: &Line, seed: u64, devices: [String; 2]) -> Result<Self> {
        let job = Job {
            line: *line,
            seed,
            devices,
        };
        let lab = std::env::current_exe().context("cannot find brisk-lab's own file")?;
        let mut process = Command::new(lab)
            .arg("relay")
            .arg(serde_json::to_string(&job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // An interrupt from the terminal reaches only the lab.
            .process_group(0)
            .spawn()
            .context("cannot start the relay")?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, answers) = pipes.context("pipes were asked for")?;
        let mut relay = Self {
            process,
            requests,
            answers: BufReader::new(answers),
        };
        // It answers when its devices are there.
        relay.carried()?;
        Ok(relay)
    }

    pub fn carried(&mut self) -> Result<Carried> {
        self.ask(Request::Count)
    }

    /// Cuts the line, or mends it.
    pub fn cut(&mut self, is_cut: bool) -> Result<()> {
        let request = if is_cut { Request::Cut } else { Request::Mend };
        self.ask(request).map(drop)
    }

    fn ask(&mut self, request: Request) -> Result<Carried> {
        let mut asked = || -> Result<Carried> {
            writeln!(self.requests, "{}", serde_json::to_string(&request)?)?;
            let mut answer = String::new();
            self.answers.read_line(&mut answer)?;
            ensure!(!answer.is_empty(), "it has ended");
            Ok(serde_json::from_str(&answer)?)
        };
        asked().context("the relay does not answer")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// What the threads of a relay share.
#[derive(Debug, Default)]
struct State {
    is_cut: AtomicBool,
    /// To the client, and to the server.
    bytes: [AtomicU64; 2],
    dropped: AtomicU64,
    lost: AtomicU64,
}

impl State {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn carried(&self) -> Result<Carried> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot ask for processor time")?;
        let seconds = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Ok(Carried {
            to_client_bytes: of(&self.bytes[0]),
            to_server_bytes: of(&self.bytes[1]),
            dropped_packets: of(&self.dropped),
            lost_packets: of(&self.lost),
            relay_seconds: seconds.iter().sum(),
        })
    }
}

/// Runs `brisk-lab relay`, until standard input ends.
pub fn run(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("this is not a job of brisk lab remote")?;
    setpriority_process(None, PRIORITY).context("cannot raise the priority of the relay")?;
    let open = |name: &String| -> Result<Arc<TunDevice>> {
        let device = TunDevice::new(name);
        let device = device.with_context(|| {
            format!(
                "cannot make the network device {name}, for which the kernel needs /dev/net/tun"
            )
        })?;
        Ok(Arc::new(device))
    };
    let [server, client] = [open(&job.devices[0])?, open(&job.devices[1])?];
    let state = Arc::new(State::default());
    let clock = Instant::now();
    for (direction, from, to) in [(0, &server, &client), (1, &client, &server)] {
        let link = Link::new(job.line, job.seed.wrapping_add(direction as u64));
        let (packets, arriving) = channel();
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        let (taking, giving) = (Arc::clone(&state), Arc::clone(&state));
        thread::spawn(move || ended(take(&from, link, clock, &taking, direction, &packets)));
        thread::spawn(move || ended(give(&to, clock, &giving, &arriving)));
    }
    for line in io::stdin().lock().lines() {
        match serde_json::from_str(&line?).context("this is no request to a relay")? {
            Request::Count => {}
            Request::Cut => state.is_cut.store(true, Ordering::Relaxed),
            Request::Mend => state.is_cut.store(false, Ordering::Relaxed),
        }
        println!("{}", serde_json::to_string(&state.carried()?)?);
    }
    Ok(())
}

/// Ends the relay, because a direction of it has ended. The lab then says that it does not answer.
fn ended(result: io::Result<()>) {
    if let Err(e) = result {
        warn(&format!("the relay ends: {e}"));
        std::process::exit(2);
    }
}

/// A packet, and when it arrives.
type Packet = (Duration, Vec<u8>);

/// Takes packets from a device, for as long as it exists.
fn take(
    from: &TunDevice,
    mut link: Link,
    clock: Instant,
    state: &State,
    direction: usize,
    packets: &Sender<Packet>,
) -> io::Result<()> {
    let mut buffer = [0; LONGEST];
    loop {
        let len = from.receive(&mut buffer)?;
        if state.is_cut() {
            continue;
        }
        match link.send(clock.elapsed(), len) {
            Fate::Arrives(at) => {
                state.bytes[direction].fetch_add(len as u64, Ordering::Relaxed);
                let packet = (at, buffer[..len].to_vec());
                packets.send(packet).map_err(io::Error::other)?;
            }
            Fate::Lost => drop(state.lost.fetch_add(1, Ordering::Relaxed)),
            Fate::Dropped => drop(state.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Gives packets to a device, each when it arrives.
fn give(
    to: &TunDevice,
    clock: Instant,
    state: &State,
    arriving: &Receiver<Packet>,
) -> io::Result<()> {
    while let Ok((at, packet)) = arriving.recv() {
        thread::sleep(at.saturating_sub(clock.elapsed()));
        if state.is_cut() {
            continue;
        }
        match to.deliver(&packet) {
            // The host is not up yet, so it gets nothing.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::IO) => {}
            delivered => delivered?,
        }
    }
    Ok(())
}
