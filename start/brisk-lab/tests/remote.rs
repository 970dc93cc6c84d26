//! `brisk lab remote`: a download takes at least the time of the line, and nothing is left behind.
//!
//! No test depends on how fast this machine is.

mod measuring;

#[path = "../../brisk/tests/staging/mod.rs"]
mod staging;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use measuring::measuring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use staging::Stage;

/// How long a test may take, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// How long to wait for something that must happen.
const SOON: Duration = Duration::from_secs(60);

/// `brisk lab remote` on a line with 20 Mbit/s and 40 ms.
fn remote(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.brisk(&["lab", "remote", "app.img", "--out", "out", "--seed", "1"]);
    command
        .args(["--cold", "files", "--rtt", "40ms", "--rate", "20mbit"])
        .args(["--runs", "1", "--download-runs", "1"])
        .args(arguments)
        .args(["--", "bin/app", "cat", "/proc/net/dev"])
        .env("TMPDIR", stage.path("tmp"));
    command
}

fn on_stage(user: u32, test: impl FnOnce(&Stage) + Send + 'static) {
    measuring(File::lock_shared, LIMIT, move || {
        let stage = Stage::on_disk(user);
        fs::create_dir(stage.path("tmp")).unwrap();
        test(&stage);
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until there is no process and no file of the lab but its results, and no network of the lab with this number.
fn assert_nothing_left(stage: &Stage, lab: u32) {
    stage.assert_no_process(SOON);
    let networks = ["client", "server"].map(|host| format!("/run/netns/brisk-{host}-{lab}"));
    let deadline = Instant::now() + SOON;
    loop {
        let names = |path: &str| -> Vec<String> {
            let entries = fs::read_dir(stage.path(path)).into_iter().flatten();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name != "remote.json").collect()
        };
        let networks = networks.iter().filter(|path| Path::new(path).exists());
        let left = [names("out"), names("tmp"), networks.cloned().collect()].concat();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?} are left");
        thread::sleep(Duration::from_millis(5));
    }
}

fn ended(stage: &Stage, arguments: &[&str]) -> (u32, Output) {
    let mut command = remote(stage, arguments);
    let lab = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let lab = lab.spawn().unwrap();
    (lab.id(), lab.wait_with_output().unwrap())
}

#[test]
fn a_download_takes_the_time_of_the_line() {
    on_stage(0, |stage| {
        // A rival that downloads everything, too.
        let rival = format!(
            "sh -c 'curl --noproxy \"*\" -sS --fail -o \"$2/app.img\" \"$0/app.img\" && mount --bind {} \"$1\"'",
            stage.path("tree").display()
        );
        let (lab, output) = ended(stage, &["--json", "--registry", "--rival", &rival]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let kept = fs::read_to_string(stage.path("out/remote.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), results);
        let settings = &results["settings"];
        let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert_eq!(settings["congestion_control"], congestion.trim());
        let runs = results["runs"].as_array().unwrap();
        let run = |name: &str| runs.iter().find(|run| run["way"] == name).unwrap();
        for (name, size) in [
            ("download the image", &settings["image_bytes"]),
            ("download and unpack the tree", &settings["archive_bytes"]),
            ("rival 1", &settings["image_bytes"]),
        ] {
            let (run, bytes) = (run(name), size.as_f64().unwrap());
            assert!(run["to_client_bytes"].as_f64().unwrap() > bytes, "{run}");
            assert!(run["to_server_bytes"].as_f64().unwrap() > 0.0, "{run}");
            assert_eq!(run["answered_requests"], 1, "{run}");
            // The connection and the request take two round trips.
            let least = bytes * 8.0 / 20e6 + 0.080;
            assert!(run["seconds"].as_f64().unwrap() >= least, "{run}");
        }
        let registered = run("brisk run URL, registry");
        assert!(
            registered["counted"]["network_bytes"].as_u64() > Some(0),
            "{registered}"
        );
        assert_eq!(registered["answered_requests"], 0, "{registered}");
        // Nobody needs the network for what is here.
        assert_eq!(run("local image")["to_client_bytes"], 0);
        assert_eq!(run("local image")["answered_requests"], 0);
        assert_nothing_left(stage, lab);
    });
}

#[test]
fn a_lab_that_fails_or_is_interrupted_leaves_nothing_behind() {
    on_stage(0, |stage| {
        let (lab, output) = ended(stage, &["--ready", "line:no such line"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("the launch ended before it was ready"),
            "{said}"
        );
        assert_nothing_left(stage, lab);

        let mut lab = remote(stage, &["--loss", "90"]);
        let mut lab = lab.stderr(Stdio::null()).spawn().unwrap();
        let network = format!("/run/netns/brisk-client-{}", lab.id());
        let deadline = Instant::now() + SOON;
        while !Path::new(&network).exists() {
            assert!(Instant::now() < deadline, "the lab makes no network");
            thread::sleep(Duration::from_millis(1));
        }
        let pid = Pid::from_raw(lab.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        lab.wait().unwrap();
        assert_nothing_left(stage, lab.id());
    });
}

#[test]
fn only_root_can_make_networks() {
    on_stage(1000, |stage| {
        let (_, output) = ended(stage, &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(
            text(&output.stderr),
            "brisk: brisk lab remote needs root, to make network namespaces and to empty the page cache; run it as root, \
             for example with sudo\n"
        );
    });
}
