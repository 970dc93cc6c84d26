//! Upstreams over TLS.

mod staging;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use staging::{Answer, Program, Upstream, get};

/// What a server needs for these names, and the certificate of its authority.
fn certified(names: &[&str]) -> (rustls::ServerConfig, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // Two of one name would be taken for one another.
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("authority of {names:?}"));
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (tls, authority.pem())
}

#[test]
fn a_trusted_upstream_is_asked_over_tls() {
    let (tls, authority) = certified(&["localhost"]);
    let upstream = Upstream::start_tls(tls, |asked| Answer::of(200, &[], asked.target.clone()));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = home.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    let map = format!("/=https://localhost:{}", upstream.address.port());
    let variables = [("SSL_CERT_FILE", file.to_str().unwrap())];
    let proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &variables);
    let reply = get(proxy.address, "/x");
    assert_eq!((reply.status, reply.text().as_str()), (200, "/x"));
    // The protocol was agreed on: HTTP/2 has no Host.
    assert!(!upstream.asked()[0].headers.contains_key("host"));
}

/// A proxy that makes one tunnel, and returns the head of the request for it.
fn tunnel() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tunnel = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        // It knows where all names lead: here.
        let target = head.split(' ').nth(1).unwrap();
        let port = target.rsplit(':').next().unwrap().parse().unwrap();
        let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            client.write_all(b"HTTP/1.1 502 No\r\n\r\n").unwrap();
            return head;
        };
        client.write_all(b"HTTP/1.1 200 Yes\r\n\r\n").unwrap();
        let (mut back, mut from) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        // Each way ends when its connection does.
        std::thread::spawn(move || std::io::copy(&mut from, &mut back).ok());
        std::thread::spawn(move || std::io::copy(&mut client, &mut server).ok());
        head
    });
    (address.to_string(), tunnel)
}

#[test]
fn upstreams_over_tls_are_asked_through_the_proxy_of_the_surroundings() {
    let (tls, authority) = certified(&["localhost"]);
    let upstream = Upstream::start_tls(tls, |asked| Answer::of(200, &[], asked.target.clone()));
    let plain = Upstream::start(|asked| Answer::of(200, &[], asked.target.clone()));
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = home.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    let host = format!("localhost:{}", upstream.address.port());
    let maps = [
        format!("/tls=https://{host}"),
        format!("/plain={}", plain.url()),
    ];
    let args = ["--map", &maps[0], "--map", &maps[1]];
    let start = |variables: &[(&str, &str)]| {
        let trust = [("SSL_CERT_FILE", file.to_str().unwrap())];
        Program::start_with(Arc::clone(&home), &args, &[&trust[..], variables].concat())
    };
    let (address, tunnel) = tunnel();
    let name = format!("http://user:secret@{address}");
    let proxy = start(&[("https_proxy", &name), ("http_proxy", "http://127.0.0.1:9")]);
    assert_eq!(get(proxy.address, "/tls/x").text(), "/x");
    assert_eq!(get(proxy.address, "/plain/x").text(), "/x");
    let head = tunnel.join().unwrap();
    assert!(
        head.starts_with(&format!("CONNECT {host} HTTP/1.1\r\n")),
        "{head}"
    );
    let credentials = "proxy-authorization: basic dxnlcjpzzwnyzxq=";
    assert!(head.to_ascii_lowercase().contains(credentials), "{head}");
    // By now nobody listens there.
    let proxy = start(&[("https_proxy", &name), ("no_proxy", "localhost")]);
    assert_eq!(get(proxy.address, "/tls/y").text(), "/y");
    for (name, expected) in [
        (
            name.as_str(),
            format!("the proxy http://{address}/ gives no connection"),
        ),
        (
            "socks5://127.0.0.1:9",
            "can only name a proxy with http://".to_owned(),
        ),
    ] {
        let reply = get(start(&[("all_proxy", name)]).address, "/tls/z");
        assert_eq!(reply.status, 502);
        let text = reply.text();
        assert!(
            text.contains(&expected) && !text.contains("secret"),
            "{text}"
        );
    }
}

#[test]
fn names_of_pages_are_resolved_by_the_proxy_of_the_surroundings() {
    let (tls, authority) = certified(&["localhost", "far.example"]);
    let own_port = Arc::new(OnceLock::new());
    let known = Arc::clone(&own_port);
    let upstream = Upstream::start_tls(tls, move |asked| match asked.target.as_str() {
        "/x/" => {
            let port: &u16 = known.get().unwrap();
            let page = format!("<a href=\"https://far.example:{port}/x.whl\">x</a>");
            Answer::of(200, &[("content-type", "text/html")], page)
        }
        _ => Answer::of(200, &[], "file"),
    });
    let home = Arc::new(tempfile::tempdir().unwrap());
    let trust = home.path().join("authority.pem");
    std::fs::write(&trust, authority).unwrap();
    let port = upstream.address.port();
    own_port.set(port).unwrap();
    let map = format!("/py=python:https://localhost:{port}");
    let (address, tunnel) = tunnel();
    let name = format!("http://{address}");
    let variables = [
        ("SSL_CERT_FILE", trust.to_str().unwrap()),
        ("https_proxy", &name),
        ("no_proxy", "localhost"),
    ];
    let proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &variables);
    let page = get(proxy.address, "/py/x/").text();
    let link = page.split('"').nth(1).unwrap();
    // That the proxy of the surroundings is on this machine is no fault of the page.
    assert_eq!(get(proxy.address, link).text(), "file");
    let head = tunnel.join().unwrap();
    let expected = format!("CONNECT far.example:{port} HTTP/1.1\r\n");
    assert!(head.starts_with(&expected), "{head}");
}

#[test]
fn an_upstream_that_is_not_trusted_is_502_and_never_asked_in_clear() {
    for (names, trusted, expected) in [
        (&["localhost"][..], false, "UnknownIssuer"),
        (&["other.example"], true, "not valid for"),
    ] {
        let (tls, authority) = certified(names);
        let upstream = Upstream::start_tls(tls, |_| Answer::of(200, &[], "no"));
        let home = Arc::new(tempfile::tempdir().unwrap());
        let (_, other) = certified(&["x"]);
        let file = home.path().join("authority.pem");
        std::fs::write(&file, if trusted { authority } else { other }).unwrap();
        let map = format!("/=https://localhost:{}", upstream.address.port());
        let variables = [("SSL_CERT_FILE", file.to_str().unwrap())];
        let proxy = Program::start_with(Arc::clone(&home), &["--map", &map], &variables);
        let reply = get(proxy.address, "/x");
        assert_eq!(reply.status, 502);
        let text = reply.text();
        assert!(
            text.contains("the TLS connection to localhost:") && text.contains(expected),
            "{text}"
        );
        assert!(upstream.asked().is_empty());
    }
    // A server that speaks no TLS.
    let upstream = Upstream::start(|_| Answer::of(200, &[], "no"));
    let proxy = Program::mapping(&format!("/=https://localhost:{}", upstream.address.port()));
    let reply = get(proxy.address, "/x");
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains("the TLS connection to localhost:"),
        "{}",
        reply.text()
    );
    assert!(upstream.asked().is_empty());
}
