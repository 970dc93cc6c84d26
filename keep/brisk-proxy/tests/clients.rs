//! Real clients, through a real proxy, with packages that the tests make.
//!
//! Each client begins with nothing of its own each time. So what makes it succeed comes from the upstream or from the
//! proxy's cache.

mod frozen;
mod installing;
mod staging;

use std::sync::Arc;

use frozen::repository::Answered;
use frozen::{Fault, Repository, Scope};
use installing::apt::Apt;
use installing::cargo::Cargo;
use installing::go::Go;
use installing::npm::Npm;
use installing::pip::Pip;
use installing::uv::{UvCompile, UvInstall};
use installing::{Client, Ran, Room};
use staging::{HANG, Program, get_with};

/// Pages are good for so long.
const FRESH: &str = "max-age=600";

/// A proxy whose cache goes on when it is started again.
struct Site {
    home: Arc<tempfile::TempDir>,
    map: String,
    proxy: Program,
}

impl Site {
    fn start<C: Client>(repository: &Repository) -> Self {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let map = format!("/{0}={0}:{1}{2}", C::KIND, repository.url(), C::INDEX);
        let proxy = start(&home, &map, &[]);
        Self { home, map, proxy }
    }

    /// Ends it, so that it has stored what came, and starts it again.
    fn restart(&mut self, args: &[&str]) {
        self.proxy.terminate();
        assert!(self.proxy.wait(HANG).success());
        self.proxy = start(&self.home, &self.map, args);
    }

    /// Has a client install all in a new room.
    fn install<C: Client>(&self) -> (Ran, Room) {
        let room = Room::new(self.proxy.address);
        let ran = C::install(&room);
        (ran, room)
    }

    /// The same, and it must be right.
    fn installs<C: Client>(&self, when: &str) {
        let (ran, room) = self.install::<C>();
        assert!(ran.done, "{when}: {}\n{}", ran.output, self.log());
        assert_eq!(C::installed(&room), C::expected(), "{when}: {}", ran.output);
    }

    /// What clients have asked this proxy for so far.
    fn asked(&self) -> Vec<String> {
        let log = self.log();
        let targets = log
            .lines()
            .filter_map(|line| line.split('"').nth(1)?.strip_prefix("GET "));
        targets.map(str::to_owned).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }
}

fn start(home: &Arc<tempfile::TempDir>, map: &str, args: &[&str]) -> Program {
    let log = home.path().join("log");
    let all = [&["--map", map, "--log", log.to_str().unwrap()][..], args].concat();
    Program::start_with(Arc::clone(home), &all, &[])
}

/// The files that were asked for.
fn files(answered: &[Answered]) -> Vec<&str> {
    let files = answered.iter().filter(|answered| answered.is_file);
    files.map(|answered| answered.path.as_str()).collect()
}

/// The first one asks the upstream once for each file. Later ones ask for no file, and need no upstream.
fn comes_from_the_cache<C: Client>() {
    let repository = Repository::start(C::site(), FRESH);
    let mut site = Site::start::<C>(&repository);
    site.installs::<C>("first");
    let answered = repository.take_answered();
    let mut asked = files(&answered);
    asked.sort_unstable();
    assert!(
        !asked.is_empty() && asked.windows(2).all(|two| two[0] != two[1]),
        "{answered:?}"
    );
    site.restart(&[]);
    site.installs::<C>("warm");
    let answered = repository.take_answered();
    assert_eq!(files(&answered), <[&str; 0]>::default(), "{}", site.log());
    // Some clients want to know whether a page has changed. It has not, or there is none.
    assert!(
        answered.iter().all(|page| matches!(page.status, 304 | 404)),
        "{answered:?}"
    );
    drop(repository);
    site.installs::<C>("without an upstream");
}

/// A slow upstream is waited for.
fn waits_for_a_slow_upstream<C: Client>() {
    let repository = Repository::start(C::site(), FRESH);
    repository.fail(Some((Fault::Slow, Scope::All)));
    Site::start::<C>(&repository).installs::<C>("slow");
}

/// While the upstream fails, the client says so and installs nothing wrong. When it does not fail any more, nothing is left
/// of the fault.
fn forgets<C: Client>(fault: Fault, scope: Scope) {
    let repository = Repository::start(C::site(), FRESH);
    let mut site = Site::start::<C>(&repository);
    repository.fail(Some((fault, scope)));
    let (ran, room) = site.install::<C>();
    assert!(
        !ran.done,
        "it should have failed: {}\n{}",
        ran.output,
        site.log()
    );
    nothing_wrong::<C>(&room, &ran);
    repository.fail(None);
    site.restart(&[]);
    site.installs::<C>("after the fault");
}

fn nothing_wrong<C: Client>(room: &Room, ran: &Ran) {
    let expected = C::expected();
    for (name, digest) in C::installed(room) {
        assert_eq!(expected.get(&name), Some(&digest), "{}", ran.output);
    }
}

/// The client finds files with wrong bytes. The proxy cannot know, and keeps them until it is told to ask again.
fn finds_wrong_bytes<C: Client>() {
    let repository = Repository::start(C::site(), FRESH);
    let mut site = Site::start::<C>(&repository);
    repository.fail(Some((Fault::Wrong, Scope::Files)));
    let (ran, room) = site.install::<C>();
    assert!(!ran.done, "{}", ran.output);
    nothing_wrong::<C>(&room, &ran);
    repository.fail(None);
    site.restart(&[]);
    for target in site.asked() {
        get_with(
            site.proxy.address,
            &target,
            &[("cache-control", "no-cache")],
        );
    }
    site.restart(&[]);
    site.installs::<C>("after a reload");
}

/// With pages that are stale at once, an upstream that answers with errors, and then does not answer.
fn stands_in_for_a_failing_upstream<C: Client>() {
    let repository = Repository::start(C::site(), "max-age=0");
    let mut site = Site::start::<C>(&repository);
    site.installs::<C>("first");
    site.restart(&[]);
    for fault in [Fault::Status(500), Fault::Status(429)] {
        repository.fail(Some((fault, Scope::All)));
        site.installs::<C>("with an upstream that fails");
    }
    drop(repository);
    site.installs::<C>("without an upstream");
    site.restart(&["--offline"]);
    site.installs::<C>("offline");
}

macro_rules! clients {
    ($($name:ident: $client:ty;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn comes_from_the_cache() {
                super::comes_from_the_cache::<$client>();
            }

            #[test]
            #[ignore = "one of many: make torture runs it"]
            fn waits_for_a_slow_upstream() {
                super::waits_for_a_slow_upstream::<$client>();
            }

            #[test]
            #[ignore = "one of many: make torture runs it"]
            fn forgets_errors() {
                for status in [500, 429] {
                    for scope in [Scope::All, Scope::Files] {
                        forgets::<$client>(Fault::Status(status), scope);
                    }
                }
            }

            #[test]
            #[ignore = "one of many: make torture runs it"]
            fn forgets_bodies_that_were_cut() {
                forgets::<$client>(Fault::Cut, Scope::All);
                forgets::<$client>(Fault::Cut, Scope::Files);
                forgets::<$client>(Fault::CutChunks, Scope::Files);
            }

            #[test]
            #[ignore = "one of many: make torture runs it"]
            fn finds_wrong_bytes() {
                super::finds_wrong_bytes::<$client>();
            }

            #[test]
            #[ignore = "one of many: make torture runs it"]
            fn gets_stale_pages_from_a_failing_upstream() {
                super::stands_in_for_a_failing_upstream::<$client>();
            }
        })*
    };
}

clients! {
    pip_download: Pip;
    uv_pip_install: UvInstall;
    uv_pip_compile: UvCompile;
    npm_install: Npm;
    cargo_fetch: Cargo;
    go_mod_download: Go;
    apt_get_update: Apt;
}
