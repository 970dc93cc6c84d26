use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{HANG, Reply};

/// A connection that lasts over several requests, and may be lost.
pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

/// A connection that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// How many bytes of the answer had come.
    pub come: usize,
}

impl Connection {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// Sends a request and reads its answer. If the connection is lost, the next request opens another one.
    pub fn get(&mut self, target: &str, fields: &[(&str, &str)]) -> Result<Reply, Lost> {
        let mut come = Vec::new();
        match self.exchange(target, fields, &mut come) {
            Ok(reply) => Ok(reply),
            Err(e) => {
                // Nobody kills a worker that hangs, so a time-out is no loss.
                let is_late = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!is_late, "{target} hangs after {} bytes", come.len());
                self.stream = None;
                Err(Lost { come: come.len() })
            }
        }
    }

    fn exchange(
        &mut self,
        target: &str,
        fields: &[(&str, &str)],
        come: &mut Vec<u8>,
    ) -> std::io::Result<Reply> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_read_timeout(Some(HANG))?;
                none.insert(stream)
            }
        };
        let mut head = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n", self.address);
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        let mut piece = [0; 64 * 1024];
        let mut wanted = None;
        while wanted.is_none_or(|wanted| come.len() < wanted) {
            match stream.read(&mut piece)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => come.extend_from_slice(&piece[..length]),
            }
            if wanted.is_none()
                && let Some(end) = come.windows(4).position(|window| window == b"\r\n\r\n")
            {
                let (head, _) = Reply::read(&come[..end + 4], false).unwrap();
                let length = match (head.status, head.field("content-length")) {
                    (304, _) => 0,
                    (_, length) => length
                        .parse()
                        .unwrap_or_else(|_| panic!("no length: {head:?}")),
                };
                wanted = Some(end + 4 + length);
            }
        }
        let (reply, rest) = Reply::read(come, true).unwrap();
        assert!(rest.is_empty() && reply.whole, "{target}: {reply:?}");
        Ok(reply)
    }
}
