//! What lies between a program and a server: TLS, proxies, slowness and limits.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Manner, Place, Server, await_that, contents, text};
use crate::{is_whole, mounted, published, reader};

#[test]
fn a_server_is_believed_if_its_certificate_is() {
    let place = Place::new();
    let root = place.publish();
    let server = Server::start_tls(&place.path("www"), "localhost");
    // All of them have one cache.
    let mut place = Place::new();
    let authority = place.path("authority.pem");
    fs::write(
        &authority,
        server.authority.as_ref().expect("it speaks TLS"),
    )
    .expect("room");
    let believed = ("SSL_CERT_FILE", text(&authority));
    let port = server.address.port();
    for (host, variables, is_believed) in [
        ("localhost", vec![], false),
        ("127.0.0.1", vec![believed.clone()], false),
        ("localhost", vec![believed.clone()], true),
    ] {
        place.variables = variables;
        let url = format!("https://{host}:{port}/app.img#sha256={root}");
        if is_believed {
            assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
        } else {
            let message = place.fails(&["cat", &url, "data/1"]);
            assert!(message.contains("SSL_CERT_FILE"), "{host}: {message}");
        }
    }
    // From the directory that the user is in.
    place.variables = vec![("SSL_CERT_FILE", "authority.pem".to_owned())];
    let url = format!("https://localhost:{port}/app.img#sha256={root}");
    let mut read = place.brisk(&["cat", &url, "data/2"]);
    let read = read.current_dir(place.path("")).output();
    assert!(read.expect("brisk is built").stdout == contents("data/2"));
}

#[test]
fn the_wait_holds_before_anything_is_known_of_an_image() {
    let (place, server, url) = published();
    let said = "nothing has come for 2 s";
    server.behave(Manner::Mute);
    // On a terminal.
    let mut brisk = place.brisk(&["ls", &url, "--wait", "2s"]);
    let line = format!(
        "{} ls '{url}' --wait 2s",
        text(Path::new(brisk.get_program()))
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]);
    for (name, value) in brisk.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let shown = command.stdin(Stdio::null()).output().expect("installed");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("waiting for the network"), "{shown}");
    assert!(shown.contains(said), "{shown}");
    let output = brisk.output().expect("brisk is built");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(said), "{message}");

    // Nothing is beside the image, and its end does not come.
    fs::remove_file(place.path("www/app.img.remote")).expect("published");
    server.behave(Manner::Silent);
    let message = place.fails(&["ls", &server.url("app.img"), "--wait", "2s"]);
    assert!(message.contains(said), "{message}");
}

/// What a fetcher has of an earlier program would count for a later one, and a confined one would get its network.
#[test]
fn a_fetcher_is_for_programs_with_the_same_network() {
    let (place, _server, url) = published();
    let confined = |name: &str| {
        let brisk = place.brisk(&["cat", &url, name]);
        let mut command = Command::new("unshare");
        command.arg("--net").arg(brisk.get_program());
        command.args(brisk.get_args());
        for (name, value) in brisk.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().expect("it is installed");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unreachable = "Network is unreachable";
    let message = confined("data/1");
    assert!(message.contains(unreachable), "{message}");
    let read = place.done(&["cat", &url, "data/1", "--background", "never"]);
    assert!(read == contents("data/1"));
    let mnt = mounted(&place, &url);
    let message = confined("data/2");
    assert!(message.contains("another network"), "{message}");
    assert!(fs::read(mnt.join("data/3")).expect("it arrives") == contents("data/3"));
}

#[test]
fn proxies_are_asked_unless_the_host_is_named_in_no_proxy() {
    let files = Place::new();
    let root = files.publish();
    let (www, pin) = (files.path("www"), format!("#sha256={root}"));
    let plain = Server::start(&www);
    let mut place = Place::new();
    // By name, which leads to this machine.
    let proxy = format!("http://localhost:{}", plain.address.port());
    place.variables = vec![("HTTP_PROXY", proxy)];
    let url = format!("http://app.example/app.img{pin}");
    assert!(place.done(&["cat", &url, "data/1"]) == contents("data/1"));
    let asked = plain.asked();
    let through = |asked: &crate::support::Asked| asked.path.starts_with("http://app.example/");
    assert!(asked.iter().all(through), "{asked:?}");

    let tls = Server::start_tls(&www, "app.example");
    let authority = files.path("authority.pem");
    fs::write(&authority, tls.authority.as_ref().expect("it speaks TLS")).expect("room");
    let mut place = Place::new();
    place.variables = vec![
        ("HTTPS_PROXY", format!("http://{}", tls.address)),
        ("SSL_CERT_FILE", text(&authority)),
    ];
    let url = format!("https://app.example/app.img{pin}");
    assert!(place.done(&["cat", &url, "data/2"]) == contents("data/2"));
    let asked = tls.asked();
    let tunnel = "CONNECT app.example:443 HTTP/1.1";
    assert!(asked.iter().any(|asked| asked.path == tunnel), "{asked:?}");

    let mut place = Place::new();
    place.variables = vec![
        ("HTTP_PROXY", "http://127.0.0.1:1".into()),
        ("NO_PROXY", "127.0.0.1".into()),
    ];
    let url = format!("{}{pin}", plain.url("app.img"));
    assert!(place.done(&["cat", &url, "data/3"]) == contents("data/3"));
}

/// What is beside a file has the path of the file, and what is beside a host would be another host.
#[test]
fn a_password_goes_to_no_host_that_the_url_does_not_name() {
    let mut place = Place::new();
    let proxy = Server::start(&place.path("www"));
    place.variables = vec![("HTTP_PROXY", format!("http://{}", proxy.address))];
    let netrc = "machine files.example login joe password secret\n";
    fs::write(place.path("home/.netrc"), netrc).expect("room");
    let host = "http://files.example";
    for url in [host, &format!("{host}/"), &format!("{host}:80?x=1")] {
        let message = place.fails(&["ls", url, "--insecure"]);
        assert!(message.contains("the URL names no file"), "{message}");
    }
    place.fails(&["ls", &format!("{host}/app.img"), "--insecure"]);
    let asked = proxy.asked();
    assert!(!asked.is_empty());
    for asked in asked {
        assert!(asked.has_credentials, "{asked:?}");
        let path = format!("{host}/app.img");
        assert!(asked.path.starts_with(&path), "{asked:?}");
    }
}

/// It is asked once, and the user is told what to do.
#[test]
fn what_does_not_pass_before_the_image_is_known_is_said_at_once() {
    let once = |server: &Server| {
        let asked = server.asked();
        let documents = asked.iter().filter(|asked| asked.path.ends_with(".remote"));
        assert_eq!(documents.count(), 1, "{asked:?}");
    };
    let (place, server, url) = published();
    server.lock("me:secret");
    let message = place.fails(&["ls", &url]);
    assert!(message.contains("put them into ~/.netrc"), "{message}");
    once(&server);

    let tls = Server::start_tls(&place.path("www"), "localhost");
    let mut place = Place::new();
    let authority = place.path("authority.pem");
    fs::write(&authority, tls.authority.as_ref().expect("it speaks TLS")).expect("room");
    place.variables = vec![("SSL_CERT_FILE", text(&authority))];
    tls.move_to("http://localhost/");
    let port = tls.address.port();
    let message = place.fails(&["ls", &format!("https://localhost:{port}/moved/app.img")]);
    let said =
        "302 Found and leads to http://localhost; brisk follows no redirect from https to http";
    assert!(message.contains(said), "{message}");
    once(&tls);

    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = plain.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut hello = [0; 4096];
            if stream.read(&mut hello).is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
            }
        }
    });
    let message = place.fails(&["ls", &format!("https://{address}/app.img")]);
    let said = "the server speaks no TLS on this port";
    assert!(message.contains(said), "{message}");
    // The descriptor and its signature are asked for together.
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[test]
fn answers_that_drip_keep_no_other_read_and_end_with_the_wait() {
    for manner in [Manner::DrippingHead, Manner::DrippingBody] {
        let (place, server, url) = published();
        let mnt = mounted(&place, &url);
        server.behave_for(manner, 5);
        let asked = server.asked().len();
        let mut waiting: Vec<_> = (0..5)
            .map(|number| reader(&mnt.join(format!("data/{}", 7 * number + 1))))
            .collect();
        await_that("they ask", || server.asked().len() >= asked + 5);
        assert!(fs::read(mnt.join("data/39")).expect("it arrives") == contents("data/39"));
        for reader in &mut waiting {
            assert!(reader.try_wait().expect("ours").is_none(), "{manner:?}");
            reader.kill().expect("it waits");
        }
        place.done(&["umount", &text(&mnt)]);

        let (place, server, url) = published();
        server.behave(manner);
        let message = place.fails(&["cat", &url, "data/1", "--wait", "1s"]);
        assert!(message.contains("for 1 s"), "{manner:?}: {message}");
    }
}

/// Waiting costs nothing.
#[test]
fn a_fetcher_whose_rest_is_limited_sleeps() {
    let (place, _server, url) = published();
    let options = ["--background", "full", "--limit-rate", "1"];
    let mut read = place.brisk(&["cat", &url, "etc/text"]);
    let output = read.args(options).output().expect("brisk is built");
    assert!(output.stdout == contents("etc/text"));
    let woken = || -> u64 {
        let pids = place.fetchers().into_iter();
        let counts = pids.map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status"));
            let status = status.expect("it runs");
            let mut words = status.split_whitespace();
            words.find(|word| *word == "voluntary_ctxt_switches:");
            words
                .next()
                .and_then(|count| count.parse::<u64>().ok())
                .expect("a number")
        });
        counts.sum()
    };
    let before = woken();
    std::thread::sleep(Duration::from_secs(1));
    // A slow machine wakes it less often.
    assert!(woken() - before < 100);
}

#[test]
fn a_limit_holds_for_what_nobody_waits_for() {
    // A byte a second lets nothing come by itself.
    let (place, _server, url) = published();
    let options = ["--background", "full", "--limit-rate", "1"];
    for name in ["data/0", "data/1", "data/35"] {
        let mut read = place.brisk(&["cat", &url, name]);
        let output = read.args(options).output().expect("brisk is built");
        assert!(output.stdout == contents(name), "{name}");
    }
    assert!(!is_whole(&place));

    // 6 MB, of which the first second's come at once.
    let (place, _server, url) = published();
    let begun = Instant::now();
    let options = ["--background", "full", "--limit-rate", "2M"];
    let mut read = place.brisk(&["cat", &url, "etc/text"]);
    let output = read.args(options).output().expect("brisk is built");
    assert!(output.stdout == contents("etc/text"));
    await_that("the rest comes", || is_whole(&place));
    assert!(begun.elapsed() > Duration::from_secs(1));
}

/// Nobody vouches for the image but its server, and what that says does not fit together.
#[test]
fn a_whole_that_has_another_digest_is_dropped_and_the_user_is_told() {
    let (place, server, _) = published();
    let said = place.path("www/app.img.remote");
    let honest = fs::read_to_string(&said).expect("published");
    let lines = honest
        .lines()
        .filter_map(|line| match line.split_once(' ') {
            Some(("root-hash" | "hash-tree", _)) => None,
            Some(("sha256", _)) => Some(format!("sha256 {}\n", "ab".repeat(32))),
            _ => Some(format!("{line}\n")),
        });
    fs::write(&said, lines.collect::<String>()).expect("room");
    let url = server.url("app.img");
    let message = place.fails(&["remote", "fetch", &url, "-q"]);
    assert!(message.contains("and its publisher says abab"), "{message}");
    assert!(!is_whole(&place));
    let status = String::from_utf8(place.done(&["remote", "status", &url])).expect("text");
    assert!(status.contains("it was dropped from the cache"), "{status}");
    // It does not come again and again by itself.
    let sent = server.sent();
    let len = fs::metadata(place.path("www/app.img"))
        .expect("published")
        .len();
    assert!(sent < len + len / 2, "{sent} of {len}");
    fs::write(&said, &honest).expect("room");
    assert!(place.done(&["cat", &url, "data/1", "--refresh"]) == contents("data/1"));
}
