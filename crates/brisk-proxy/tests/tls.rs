//! Upstreams over TLS.

mod staging;

use std::sync::Arc;

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
