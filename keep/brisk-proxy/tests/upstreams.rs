//! Upstreams that answer wrongly, and names that lead to the wrong place.

mod staging;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;

use staging::{Answer, Program, Upstream, get};

/// A server that sends these bytes to each request, and leaves its connections open.
fn raw(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|come| come > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn answers_that_others_read_otherwise_are_502() {
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "sent Content-Length and Transfer-Encoding together",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "sent a Transfer-Encoding that is not chunked alone",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "sent a Transfer-Encoding that is not chunked alone",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            "sent more than one Content-Length",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc",
            "changed to another protocol, and nobody had asked for that",
        ),
    ] {
        let address = raw(answer);
        let proxy = Program::mapping(&format!("/=http://{address}"));
        for _ in 0..2 {
            let reply = get(proxy.address, "/x");
            assert_eq!(reply.status, 502, "{answer:?} {reply:?}");
            assert_eq!(reply.text(), format!("brisk proxy: {address} {expected}\n"));
        }
    }
    // One of them alone is right.
    let address = raw("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let proxy = Program::mapping(&format!("/=http://{address}"));
    assert_eq!(get(proxy.address, "/x").text(), "abc");
}

#[test]
fn no_name_of_a_page_leads_to_this_machine() {
    let files = Upstream::start(|_| Answer::of(200, &[], "a service of this machine"));
    let port = files.address.port();
    let page = format!("<a href=\"http://far.example:{port}/x.whl\">x</a>");
    let index =
        Upstream::start(move |_| Answer::of(200, &[("content-type", "text/html")], page.clone()));
    let own_port = index.address.port();
    let home = Arc::new(tempfile::tempdir().unwrap());
    let hosts = home.path().join("hosts");
    // A name server says this of a name, after the page has named it.
    std::fs::write(&hosts, "127.0.0.1 far.example index.example\n").unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c"])
        .arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"")
        .arg(&hosts)
        .arg(env!("CARGO_BIN_EXE_brisk-proxy"))
        .args(["--listen", "127.0.0.1:0"])
        .args([
            "--map",
            &format!("/py=python:http://index.example:{own_port}"),
        ])
        .args(["--map", &format!("/own=http://far.example:{port}/own")])
        .env("HOME", home.path())
        .env("XDG_CACHE_HOME", home.path().join("cache"));
    let proxy = Program::spawn(home, command);
    // What the operator names may be here.
    let page = get(proxy.address, "/py/x/").text();
    assert_eq!(
        get(proxy.address, "/own/x").text(),
        "a service of this machine"
    );
    let link = page.split('"').nth(1).unwrap();
    assert!(link.starts_with("/py/~files/"), "{page}");
    let reply = get(proxy.address, link);
    assert_eq!(reply.status, 502, "{reply:?}");
    let expected = "its address is 127.0.0.1, which is of this machine or its link";
    assert!(reply.text().contains(expected), "{reply:?}");
    assert_eq!(files.asked().len(), 1);
}
