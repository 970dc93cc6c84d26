use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::HANG;

/// What a server answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the whole body came.
    pub whole: bool,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: String = self.text().chars().take(200).collect();
        write!(
            f,
            "{} {:?}, {} bytes, whole: {}: {start:?}",
            self.status,
            self.fields,
            self.body.len(),
            self.whole
        )
    }
}

impl Reply {
    /// The value of a field; "" if it is not there.
    pub fn field(&self, name: &str) -> &str {
        let found = self
            .fields
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads a reply. Returns what stands behind it, too.
    pub fn read(bytes: &[u8], has_body: bool) -> Option<(Self, &[u8])> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut rest = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().unwrap();
        let fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut reply = Self {
            status,
            fields,
            body: Vec::new(),
            whole: true,
        };
        if status < 200 {
            return Self::read(rest, has_body);
        }
        if !has_body || status == 304 || status == 204 {
            return Some((reply, rest));
        }
        if reply.field("transfer-encoding") == "chunked" {
            reply.whole = false;
            while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
                let size =
                    usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
                rest = &rest[line + 2..];
                if size == 0 {
                    rest = &rest[2.min(rest.len())..];
                    reply.whole = true;
                    break;
                }
                let come = size.min(rest.len());
                reply.body.extend_from_slice(&rest[..come]);
                rest = &rest[(come + 2).min(rest.len())..];
            }
            return Some((reply, rest));
        }
        let length = match reply.field("content-length") {
            "" => rest.len(),
            length => length.parse().unwrap(),
        };
        let come = length.min(rest.len());
        reply.body = rest[..come].to_vec();
        reply.whole = come == length;
        Some((reply, &rest[come..]))
    }
}

/// Sends bytes and reads until the server closes.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may answer and close before all has gone.
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    read_until(&mut stream, &mut answer, |_| false);
    answer
}

/// Gets a target. When `half` has come of the answer, this calls `then`, and reads the rest.
pub fn get_by_halves(address: SocketAddr, target: &str, half: &str, then: impl FnOnce()) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    read_until(&mut stream, &mut answer, |come| {
        let mut windows = come.windows(half.len());
        windows.any(|window| window == half.as_bytes())
    });
    then();
    read_until(&mut stream, &mut answer, |_| false);
    Reply::read(&answer, true).unwrap().0
}

/// Reads until it is enough, or the server closes.
fn read_until(stream: &mut TcpStream, come: &mut Vec<u8>, is_enough: impl Fn(&[u8]) -> bool) {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut piece = [0; 65536];
    while !is_enough(come) {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => come.extend_from_slice(&piece[..length]),
            Err(e) => {
                let is_late = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!is_late, "the answer hangs after {} bytes", come.len());
                return;
            }
        }
    }
}

/// Sends a request with these fields and this body, and reads the answer.
pub fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut head = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    if !fields.iter().any(|(name, _)| *name == "host") {
        head.push_str(&format!("host: {address}\r\n"));
    }
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let answer = exchange(address, &[head.as_bytes(), body].concat());
    let read = Reply::read(&answer, method != "HEAD");
    read.unwrap_or_else(|| {
        panic!(
            "no answer to {method} {target}: {:?}",
            String::from_utf8_lossy(&answer)
        )
    })
    .0
}

/// GET.
pub fn get(address: SocketAddr, target: &str) -> Reply {
    request(address, "GET", target, &[], b"")
}

/// GET with fields.
pub fn get_with(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Reply {
    request(address, "GET", target, fields, b"")
}
