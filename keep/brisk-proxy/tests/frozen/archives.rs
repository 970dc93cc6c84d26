//! The containers that packages are in.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{Algorithm, SHA256, digest};
use zip::write::{SimpleFileOptions, ZipWriter};

/// A digest in lower hexadecimal.
pub fn hex(algorithm: &'static Algorithm, bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(digest(algorithm, bytes).as_ref())
}

/// A digest in base64.
pub fn base64(algorithm: &'static Algorithm, bytes: &[u8]) -> String {
    data_encoding::BASE64.encode(digest(algorithm, bytes).as_ref())
}

/// SHA-256 in lower hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&SHA256, bytes)
}

/// A zip of these files.
pub fn zipped(files: &[(String, String)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, text) in files {
        zip.start_file(name, options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A tar of these files, through gzip.
pub fn tarred(files: &[(String, String)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Through gzip.
pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An archive of `ar`.
pub fn archived(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let head = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            0,
            0,
            0,
            100_644,
            bytes.len()
        );
        archive.extend_from_slice(head.as_bytes());
        archive.extend_from_slice(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// Text that does not fit into one read of a socket.
pub fn long_text(of: &str) -> String {
    (0..4000)
        .map(|line| format!("# {of}, line {line}\n"))
        .collect()
}
