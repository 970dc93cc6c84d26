//! `brisk trace --ready window`: which windows count.

mod staging;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brisk_image::Limits;
use brisk_image::profile::Profile;
use staging::{Stage, each_user};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, CreateWindowAux, PropMode, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// An X server without a screen. It ends with the test.
struct Server {
    process: Child,
    display: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new("Xvfb")
            .args(["-displayfd", "1", "-ac", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need Xvfb: workshop/lab/deps installs it");
        let mut number = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        Self { process, display }
    }

    fn client(&self) -> Client {
        let (connection, screen) = x11rb::connect(Some(&self.display)).unwrap();
        let root = connection.setup().roots[screen].root;
        Client { connection, root }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already if it crashed.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

struct Client {
    connection: RustConnection,
    root: Window,
}

impl Client {
    fn make(&self, parent: Window, class: WindowClass, title: &str) -> Window {
        let window = self.connection.generate_id().unwrap();
        let how = CreateWindowAux::new().override_redirect(1);
        let created = self
            .connection
            .create_window(0, window, parent, 0, 0, 50, 40, 0, class, 0, &how);
        created.unwrap().check().unwrap();
        let (name, text) = (AtomEnum::WM_NAME, AtomEnum::STRING);
        let named = self.connection.change_property8(
            PropMode::REPLACE,
            window,
            name,
            text,
            title.as_bytes(),
        );
        named.unwrap().check().unwrap();
        window
    }

    fn map(&self, window: Window) {
        self.connection.map_window(window).unwrap().check().unwrap();
    }

    fn show(&self, class: WindowClass, title: &str) {
        self.map(self.make(self.root, class, title));
    }
}

/// A trace of a program that has started and waits.
fn trace(stage: &Stage, display: &str, ready: &str) -> Child {
    let up = stage.writable().join("up");
    std::fs::remove_file(&up).ok();
    let script =
        "cat tree/many/1 > /dev/null; touch home/up; sleep 40; cat tree/many/2 > /dev/null";
    let brisk = stage
        .brisk(&[
            "trace",
            "--tree",
            "tree",
            "-o",
            "home/profile",
            "--ready",
            ready,
        ])
        .args(["--", "sh", "-c", script])
        .env("DISPLAY", display)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !up.exists() {
        assert!(Instant::now() < deadline, "the program does not start");
        thread::sleep(Duration::from_millis(5));
    }
    brisk
}

/// Whether brisk still waits, after enough time to look at all windows. On a slow machine this may miss a
/// fault, but it reports none that does not exist.
fn still_waits(brisk: &mut Child) -> bool {
    thread::sleep(Duration::from_millis(300));
    brisk.try_wait().unwrap().is_none()
}

fn assert_ready(stage: &Stage, brisk: Child, by: &str) {
    let output = brisk.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("warning"),
        "{output:?}"
    );
    let profile = Profile::open(stage.writable().join("profile"), &Limits::default()).unwrap();
    assert_eq!(profile.ready().unwrap().by, by);
    assert_eq!(profile.files().len(), 1);
}

#[test]
fn a_launch_is_ready_when_it_shows_a_window() {
    each_user(|stage| {
        let server = Server::start();
        let old = server.client();
        old.show(WindowClass::INPUT_OUTPUT, "old");
        let mut brisk = trace(stage, &server.display, "window");
        let new = server.client();
        // A window of a client that was there before; one that nobody can see; one that is not shown.
        old.show(WindowClass::INPUT_OUTPUT, "a menu");
        new.show(WindowClass::INPUT_ONLY, "input only");
        let window = new.make(new.root, WindowClass::INPUT_OUTPUT, "hidden");
        assert!(still_waits(&mut brisk));
        new.map(window);
        assert_ready(stage, brisk, "window");
    });
}

#[test]
fn a_window_is_chosen_by_its_title() {
    each_user(|stage| {
        let server = Server::start();
        let mut brisk = trace(stage, &server.display, "window:eady no");
        let new = server.client();
        new.show(WindowClass::INPUT_OUTPUT, "Splash");
        assert!(still_waits(&mut brisk));
        new.show(WindowClass::INPUT_OUTPUT, "Ready now");
        assert_ready(stage, brisk, "window eady no");
    });
}

/// A window manager puts windows into its own frames. Windows that exist already do not count, even if their
/// programs have no other window.
#[test]
fn a_window_in_a_frame_counts() {
    each_user(|stage| {
        let server = Server::start();
        let (manager, old) = (server.client(), server.client());
        let frame = |client: &Client, window: Window| {
            let frame = manager.make(manager.root, WindowClass::INPUT_OUTPUT, "frame");
            manager.map(frame);
            let moved = client.connection.reparent_window(window, frame, 0, 0);
            moved.unwrap().check().unwrap();
            client.map(window);
        };
        frame(&old, old.make(old.root, WindowClass::INPUT_OUTPUT, "old"));
        let mut brisk = trace(stage, &server.display, "window");
        let new = server.client();
        let window = new.make(new.root, WindowClass::INPUT_OUTPUT, "new");
        assert!(still_waits(&mut brisk));
        frame(&new, window);
        assert_ready(stage, brisk, "window");
    });
}

#[test]
fn a_display_that_cannot_be_reached_is_an_error_before_the_command_runs() {
    each_user(|stage| {
        for (display, said) in [
            ("", "no X display is named in DISPLAY"),
            (
                ":4711",
                "the X display :4711 cannot be reached; name one in DISPLAY",
            ),
        ] {
            let output = stage
                .brisk(&[
                    "trace",
                    "--tree",
                    "tree",
                    "-o",
                    "home/profile",
                    "--ready",
                    "window",
                ])
                .args(["--", "touch", "home/up"])
                .env("DISPLAY", display)
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            assert!(
                String::from_utf8_lossy(&output.stderr).contains(said),
                "{output:?}"
            );
            assert!(!stage.writable().join("up").exists());
        }
    });
}
