//! Two processes on one directory.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use brisk_http::Options;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::setup::{FORKS, Setup, home, open, read, small, soon};

/// The directory that the other process uses.
const DIRECTORY: &str = "BRISK_LAYER_DIRECTORY";
/// Stands before what the other process says, among what its harness says.
const SAYS: &str = "other process: ";

const FRESH: &[&str] = &["Cache-Control: max-age=60"];
const WHILE_REVALIDATING: &[&str] = &["Cache-Control: max-age=60, stale-while-revalidate=30"];

/// A layer that waits for others as long as they live.
fn patient(home: TempDir, directory: &Path) -> Setup {
    let options = small().fetch_wait(Duration::from_secs(60 * 60));
    let cache = open(directory, options);
    Setup::over(home, cache, Options::private(), |builder| builder)
}

fn first() -> (Setup, PathBuf) {
    let home = home();
    let directory = home.path().join("cache");
    (patient(home, &directory), directory)
}

/// A process that sends one request, 70 seconds after noon of the tests. If its origin is asked, it says so, and answers
/// with what it is told.
struct Other {
    child: Child,
    stdin: ChildStdin,
    said: mpsc::UnboundedReceiver<String>,
}

impl Other {
    fn start(directory: &Path) -> Self {
        let forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::as_another_process", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(forks);
        let (sender, said) = mpsc::unbounded_channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                // The harness ends no line before its tests begin.
                if let Some((_, said)) = line.split_once(SAYS) {
                    sender.send(said.to_owned()).ok();
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, said }
    }

    async fn says(&mut self) -> String {
        soon(self.said.recv()).await.expect("it says something")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until a process has the file open by which it waits for the fetches of others, or carries out its own.
async fn waits_for_its_turn(process: u32, directory: &Path) {
    let flights = fs::canonicalize(directory).unwrap().join("flights");
    let has_it = || {
        let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let mut files = open.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        files.any(|file| file == flights)
    };
    soon(async {
        while !has_it() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Time enough for one that would not wait.
        tokio::time::sleep(Duration::from_millis(50)).await;
    })
    .await;
}

/// What [`Other`] runs. Without a directory, it has nothing to do.
#[tokio::test]
async fn as_another_process() {
    let Ok(directory) = env::var(DIRECTORY) else {
        return;
    };
    let mut setup = patient(home(), Path::new(&directory));
    setup.later(70);
    let (sender, mut told) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            sender.send(line.unwrap()).ok();
        }
    });
    let mut client = setup.get(&[]);
    println!("{SAYS}sent");
    let client = tokio::select! {
        got = &mut client => tokio::spawn(async move { got.unwrap() }),
        asked = setup.origin.next() => {
            println!("{SAYS}asked");
            let body = told.recv().await.unwrap();
            asked.answer(200, FRESH, body);
            client
        }
    };
    let got = read(client).await;
    println!("{SAYS}{} {}", got.text().1, got.cache_status());
    setup.idle().await;
    println!("{SAYS}idle");
}

#[tokio::test]
async fn another_process_waits_for_a_fetch_and_gets_what_it_stored() {
    let (mut setup, directory) = first();
    setup.later(70);
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    let mut other = Other::start(&directory);
    assert_eq!(other.says().await, "sent");
    waits_for_its_turn(other.child.id(), &directory).await;
    let pipe = asked.begin(200, FRESH);
    pipe.send("a ");
    waits_for_its_turn(other.child.id(), &directory).await;
    assert!(other.said.try_recv().is_err(), "it waits for the whole");
    pipe.send("page");
    drop(pipe);
    assert_eq!(read(client).await.text(), (200, "a page"));
    assert_eq!(other.says().await, "a page brisk; hit; ttl=60");
    assert_eq!(other.says().await, "idle");
    other.end();
}

#[tokio::test]
async fn this_process_waits_for_the_fetch_of_another() {
    let (mut setup, directory) = first();
    setup.later(70);
    let mut other = Other::start(&directory);
    assert_eq!(other.says().await, "sent");
    assert_eq!(other.says().await, "asked");
    let clients = [setup.get(&[]), setup.get(&[])];
    waits_for_its_turn(std::process::id(), &directory).await;
    assert!(setup.origin.take().is_none());
    other.tell("a page");
    assert_eq!(
        other.says().await,
        "a page brisk; fwd=uri-miss; fwd-status=200; ttl=60; stored"
    );
    for client in clients {
        assert_eq!(read(client).await.text(), (200, "a page"));
    }
    assert_eq!(other.says().await, "idle");
    assert_eq!(setup.origin.count(), 0);
    other.end();
}

#[tokio::test]
async fn a_killed_process_lets_the_next_one_fetch_at_once() {
    let (mut setup, directory) = first();
    let mut other = Other::start(&directory);
    assert_eq!(other.says().await, "sent");
    assert_eq!(other.says().await, "asked");
    let client = setup.get(&[]);
    waits_for_its_turn(std::process::id(), &directory).await;
    assert!(setup.origin.take().is_none());
    other.child.kill().unwrap();
    // It would wait for an hour.
    setup.origin.next().await.answer(200, FRESH, "a page");
    assert_eq!(read(client).await.text(), (200, "a page"));
    setup.idle().await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "a page"));
}

#[tokio::test]
async fn one_process_revalidates_and_the_other_uses_the_stale_page() {
    let (mut setup, directory) = first();
    setup.store(WHILE_REVALIDATING, "old").await;
    setup.later(70);
    assert_eq!(read(setup.get(&[])).await.text(), (200, "old"));
    let asked = setup.origin.next().await;
    let mut other = Other::start(&directory);
    assert_eq!(other.says().await, "sent");
    assert_eq!(other.says().await, "old brisk; hit; ttl=-10");
    // Its revalidation has ended, too: another process carries it out.
    assert_eq!(other.says().await, "idle");
    other.end();
    asked.answer(200, FRESH, "new");
    setup.idle().await;
    assert_eq!(read(setup.get(&[])).await.text(), (200, "new"));
    assert_eq!(setup.origin.count(), 2);
}

#[tokio::test]
async fn a_fetch_of_another_process_is_waited_for_no_longer_than_the_options_say() {
    let home = home();
    let directory = home.path().join("cache");
    let mut other = Other::start(&directory);
    assert_eq!(other.says().await, "sent");
    assert_eq!(other.says().await, "asked");
    let cache = open(&directory, small().fetch_wait(Duration::from_millis(100)));
    let mut setup = Setup::over(home, cache, Options::private(), |builder| builder);
    let client = setup.get(&[]);
    setup.origin.next().await.answer(200, FRESH, "mine");
    assert_eq!(read(client).await.text(), (200, "mine"));
}
