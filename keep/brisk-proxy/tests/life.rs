//! How the proxy starts, serves with several processes, and ends.

#[path = "../../../start/brisk/tests/staging/programs.rs"]
mod programs;
mod staging;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use programs::make_executable;
use rustix::process::{Signal, kill_process};
use staging::program::{command, outcome};
use staging::{Answer, HANG, Program, Reply, Upstream, get};

/// Waits until it is so.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn workers_that_are_killed_are_replaced_and_counted() {
    let upstream = Upstream::start(|asked| {
        Answer::of(
            200,
            &[("cache-control", "max-age=60")],
            asked.target.clone(),
        )
    });
    let mut proxy = Program::start(&["--map", &format!("/={}", upstream.url()), "--workers", "3"]);
    wait_for("three workers", || proxy.children().len() == 3);
    for n in 0..30 {
        assert_eq!(get(proxy.address, &format!("/{n}")).text(), format!("/{n}"));
    }
    wait_for("all are counted", || {
        proxy.metric("brisk_proxy_requests_total{outcome=\"miss\"}") == Some(30)
    });
    let old = proxy.children();
    for worker in &old[..2] {
        kill_process(*worker, Signal::KILL).unwrap();
    }
    wait_for("new workers", || {
        let now = proxy.children();
        now.len() == 3 && now.iter().filter(|pid| old.contains(pid)).count() == 1
    });
    for n in 0..30 {
        assert_eq!(get(proxy.address, &format!("/{n}")).text(), format!("/{n}"));
    }
    wait_for("no number falls", || {
        let of = |outcome: &str| {
            proxy
                .metric(&format!(
                    "brisk_proxy_requests_total{{outcome=\"{outcome}\"}}"
                ))
                .unwrap()
        };
        of("miss") + of("hit") + of("revalidated") == 60
    });
    assert_eq!(proxy.metric("brisk_proxy_replaced_workers_total"), Some(2));
    assert!(
        proxy.messages().contains("it is replaced"),
        "{}",
        proxy.messages()
    );
    proxy.terminate();
    assert!(proxy.wait(HANG).success());
    assert!(TcpStream::connect(proxy.address).is_err());
}

#[test]
fn workers_end_with_their_supervisor() {
    let upstream = Upstream::start(|_| Answer::of(200, &[], ""));
    let proxy = Program::start(&["--map", &format!("/={}", upstream.url()), "--workers", "2"]);
    wait_for("two workers", || proxy.children().len() == 2);
    assert_eq!(get(proxy.address, "/").status, 200);
    let workers = proxy.children();
    kill_process(proxy.pid(), Signal::KILL).unwrap();
    wait_for("they are gone", || {
        workers.iter().all(|worker| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", worker.as_raw_nonzero()));
            // Whoever adopts them may not wait for them at once.
            stat.map_or(true, |stat| stat.contains(") Z "))
        })
    });
}

#[test]
fn answers_that_are_under_way_are_finished() {
    for workers in ["1", "2"] {
        let upstream =
            Upstream::start(|_| Answer::of(200, &[], "late").after(Duration::from_secs(1)));
        let mut proxy = Program::start(&[
            "--map",
            &format!("/={}", upstream.url()),
            "--workers",
            workers,
        ]);
        let address = proxy.address;
        let client = std::thread::spawn(move || get(address, "/"));
        wait_for("it is asked", || upstream.asked().len() == 1);
        // One that waits for its next request does not hold the end up.
        let _idle = TcpStream::connect(address).unwrap();
        proxy.terminate();
        assert_eq!(client.join().unwrap().text(), "late");
        assert!(proxy.wait(HANG).success());
    }
}

#[test]
fn the_grace_has_an_end() {
    let upstream = Upstream::start(|_| Answer::of(200, &[], "late").after(HANG));
    let mut proxy = Program::start(&["--map", &format!("/={}", upstream.url()), "--grace", "1s"]);
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    wait_for("it is asked", || upstream.asked().len() == 1);
    let begun = Instant::now();
    proxy.terminate();
    proxy.wait(HANG);
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn systemd_hands_sockets_over() {
    let upstream = Upstream::start(|_| Answer::of(200, &[], "served"));
    // systemd-socket-activate takes no port 0. At this address, no other test gets the same port meanwhile.
    let address = TcpListener::bind("127.0.0.2:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for workers in ["1", "2"] {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let program = command(home.path());
        let mut activate = Command::new("systemd-socket-activate");
        activate
            .arg(format!("--listen={address}"))
            .arg(format!("--setenv=XDG_CACHE_HOME={}", home.path().display()))
            .arg(program.get_program())
            .args([
                "--workers",
                workers,
                "--map",
                &format!("/={}", upstream.url()),
            ])
            .stderr(std::process::Stdio::piped());
        let mut child = activate.spawn().unwrap();
        let begun = Instant::now();
        let served = loop {
            if let Ok(mut stream) = TcpStream::connect(address) {
                stream
                    .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                    .unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                break Reply::read(&answer, true).unwrap().0.text();
            }
            assert!(begun.elapsed() < HANG);
            std::thread::sleep(Duration::from_millis(20));
        };
        kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(served, "served");
    }
}

#[test]
fn wrong_arguments_say_what_is_allowed() {
    let home = tempfile::tempdir().unwrap();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    for (args, expected) in [
        (
            &["--map", "/a"][..],
            "--map /a: allowed is /PREFIX=URL or /PREFIX=KIND:URL",
        ),
        (
            &["--map", "/a=https://u:secret@h/"],
            "--map /a: the URL of h has a user name or a password",
        ),
        (
            &["--preset", "ruby=https://h/"],
            "--preset ruby: allowed are python, npm, cargo, go and apt",
        ),
        (
            &["--preset", "python"],
            "--preset python: neither pip nor uv names an index; install one of them",
        ),
        (
            &["--map", "/=https://h", "--ttl", "x"],
            "allowed is PATTERN=TIME",
        ),
        (
            &["--map", "/=https://h", "--listen", &busy],
            "cannot listen at",
        ),
    ] {
        let (code, _, message) = outcome(home.path(), args, &[("PATH", "/none")]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(expected), "{args:?}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

#[test]
fn workers_that_cannot_begin_are_not_replaced_for_ever() {
    for workers in ["1", "2"] {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let mut command = command(home.path());
        command.args(["--listen", "127.0.0.1:0", "--map", "/=http://127.0.0.1:1"]);
        command.args(["--workers", workers, "--limit", "1M"]);
        match Program::try_spawn(home, command) {
            Ok(proxy) => panic!("it listens: {}", proxy.messages()),
            Err(message) => assert!(message.contains("cannot open the cache"), "{message}"),
        }
    }
}

#[test]
fn clients_of_this_system_say_what_is_served() {
    let upstream =
        Upstream::start(|_| Answer::of(200, &[("content-type", "text/html")], "<a href=\"x/\">"));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let url = format!("{}/simple/", upstream.url());
    let pip = home.path().join(".config/pip");
    fs::create_dir_all(&pip).unwrap();
    fs::write(
        pip.join("pip.conf"),
        format!("[global]\nindex-url = {url}\n"),
    )
    .unwrap();
    let proxy = Program::start_with(Arc::clone(&home), &["--preset", "python"], &[]);
    assert!(
        proxy.messages().contains("/python/ comes from "),
        "{}",
        proxy.messages()
    );
    assert_eq!(get(proxy.address, "/python/six/").status, 200);
    assert_eq!(upstream.asked()[0].target, "/simple/six/");
    // A client that uses the proxy already leads nowhere else.
    let own = [("PIP_INDEX_URL", "http://127.0.0.1:7077/python/")];
    let (code, _, message) = outcome(home.path(), &["--preset", "python"], &own);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("PIP_INDEX_URL leads to this proxy itself"),
        "{message}"
    );
}

#[test]
fn clients_without_configuration_say_their_defaults() {
    let upstream = Upstream::start(|asked| Answer::of(200, &[], asked.target.clone()));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let url = upstream.url();
    for (name, script) in [
        (
            "pip",
            format!("echo ' --index-url <url>  Base URL (default\n  {url}/simple). It'"),
        ),
        (
            "cargo",
            format!(
                "[ \"$CARGO_HTTP_PROXY\" ] && echo 'failed to download from `{url}/crates/config.json`' >&2; exit 101"
            ),
        ),
    ] {
        let path = home.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        make_executable(&path);
    }
    let path = [("PATH", home.path().to_str().unwrap())];
    let args = ["--preset", "python", "--preset", "cargo"];
    let proxy = Program::start_with(Arc::clone(&home), &args, &path);
    for note in [
        "/python/ comes from the default of pip",
        "/cargo/ comes from the default of cargo",
    ] {
        assert!(proxy.messages().contains(note), "{}", proxy.messages());
    }
    assert_eq!(get(proxy.address, "/python/six/").text(), "/simple/six/");
    assert_eq!(
        get(proxy.address, "/cargo/se/rd/serde").text(),
        "/crates/se/rd/serde"
    );
    // Who does not ask for it is served what is configured.
    let mut command = command(home.path());
    command.args(["--listen", "127.0.0.1:0"]).envs(path);
    let messages = match Program::try_spawn(Arc::clone(&home), command) {
        Ok(proxy) => proxy.messages(),
        Err(messages) => messages,
    };
    for note in [
        "python: neither pip nor uv names an index in its configuration; say --preset python to serve the one that pip asks by \
         default, or set PIP_INDEX_URL or UV_DEFAULT_INDEX, or index-url in pip.conf or uv.toml, or say --preset python=URL\n",
        "cargo: cargo names no sparse index in its configuration; say --preset cargo to serve the one that cargo asks by \
         default, or set the replace-with of crates-io in the config.toml of cargo, or say --preset cargo=URL\n",
        "npm: npm names no registry in its configuration; set npm_config_registry, or registry in .npmrc, or say --preset npm=URL\n",
    ] {
        assert!(messages.contains(note), "{messages}");
    }
    // Clients that do not say it are installed all the same.
    for (name, preset, expected) in [
        (
            "pip",
            "python",
            "neither pip nor uv names an index in its configuration, and pip does not say which one it asks by default; set ",
        ),
        (
            "cargo",
            "cargo",
            "cargo names no sparse index in its configuration, and cargo does not say which one it asks by default; set ",
        ),
    ] {
        fs::write(home.path().join(name), "#!/bin/sh\nexit 1\n").unwrap();
        let (code, _, message) = outcome(home.path(), &["--preset", preset], &path);
        assert_eq!(code, Some(2), "{message}");
        let expected = format!("--preset {preset}: {expected}");
        assert!(message.contains(&expected), "{message}");
    }
    // What is configured is named.
    let vendored = "[source.crates-io]\nreplace-with = 'own'\n[source.own]\ndirectory = 'vendor'\n";
    fs::create_dir(home.path().join(".cargo")).unwrap();
    fs::write(home.path().join(".cargo/config.toml"), vendored).unwrap();
    let (_, _, message) = outcome(home.path(), &["--preset", "cargo"], &path);
    let expected = "/.cargo/config.toml replaces crates-io by own, which is a directory (vendor); the proxy serves a registry";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn env_prints_settings() {
    let home = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (
            &["env", "pip"][..],
            "export PIP_INDEX_URL=http://127.0.0.1:7077/python/\n",
        ),
        (
            &["env", "uv", "--url", "http://10.0.0.1:80/"],
            "export UV_DEFAULT_INDEX=http://10.0.0.1/python/\n",
        ),
        (
            &["env", "npm", "--prefix", "/a/b"],
            "export npm_config_registry=http://127.0.0.1:7077/a/b/\n",
        ),
        (&["env", "go"], "export GOPROXY=http://127.0.0.1:7077/go\n"),
        (
            &["env", "cargo"],
            "[source.crates-io]\nreplace-with = \"brisk\"\n\n[source.brisk]\nregistry = \"sparse+http://127.0.0.1:7077/cargo/\"\n",
        ),
    ] {
        let (code, text, message) = outcome(home.path(), args, &[]);
        assert_eq!((code, text.as_str()), (Some(0), expected), "{message}");
    }
}

#[test]
fn requests_are_logged_without_secrets() {
    let upstream = Upstream::start(|_| Answer::of(200, &[("cache-control", "max-age=60")], "abc"));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let log = home.path().join("log");
    let path = log.to_str().unwrap().to_owned();
    let map = format!("/={}", upstream.url());
    let proxy = Program::start_with(home, &["--map", &map, "--log", &path], &[]);
    get(proxy.address, "/x?token=secret");
    wait_for("a line", || {
        fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n'))
    });
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains(" 127.0.0.1 \"GET /x?token=*\" 200 3 ")
            && text.contains("s brisk; fwd=uri-miss"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}
