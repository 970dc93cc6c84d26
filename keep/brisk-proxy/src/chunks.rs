//! The chunks of a request's body (RFC 9112, section 7.1), judged byte by byte.

use http::StatusCode;

use crate::request_head::{Refusal, check_field};

/// The most bytes of a chunk's line, and of all trailer fields.
const MOST_LINE_BYTES: usize = 256;
const MOST_TRAILER_BYTES: usize = 8 * 1024;

/// Fields that must not come after a body: they would change how it, or the next request, is read.
const NOT_IN_TRAILERS: [&[u8]; 5] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"trailer",
    b"te",
];

/// How far a chunked body has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunks {
    /// In the line of a chunk: what has come of it.
    Line(Vec<u8>),
    /// In the data of a chunk: what is left of it.
    Data(u64),
    /// Behind the data of a chunk: how many bytes of the line end have come.
    DataEnd(u8),
    /// In a line of the trailer: what has come of it, and the bytes of all lines before.
    Trailer(Vec<u8>, usize),
    /// Behind the body.
    Done,
}

impl Chunks {
    /// Before the first chunk.
    pub fn new() -> Self {
        Self::Line(Vec::new())
    }

    /// Judges what comes next. Returns how many of the bytes belong to the body.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let step = match self {
                Self::Done => break,
                Self::Data(left) => {
                    let step =
                        usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    // A slice has at most 2^64 bytes.
                    *left = left.saturating_sub(step as u64);
                    if *left == 0 {
                        *self = Self::DataEnd(0);
                    }
                    step
                }
                Self::DataEnd(come) => {
                    match (*come, rest.first()) {
                        (0, Some(b'\r')) => *come = 1,
                        (1, Some(b'\n')) => *self = Self::new(),
                        _ => return Err(Refusal::bad("a chunk is longer than its size says")),
                    }
                    1
                }
                Self::Line(line) => {
                    let (step, ended) = extend(line, rest, MOST_LINE_BYTES)
                        .ok_or(Refusal::bad("the line of a chunk is longer than 256 bytes"))?;
                    if ended {
                        *self = match size(line)? {
                            0 => Self::Trailer(Vec::new(), 0),
                            size => Self::Data(size),
                        };
                    }
                    step
                }
                Self::Trailer(line, before) => {
                    let room = MOST_TRAILER_BYTES.saturating_sub(*before);
                    let (step, ended) = extend(line, rest, room).ok_or(Refusal::new(
                        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                        "the trailer is longer than 8 KiB",
                    ))?;
                    if ended {
                        *self = match line.strip_suffix(b"\r\n") {
                            Some(b"") => Self::Done,
                            Some(field) => {
                                let (name, _) = check_field(field)?;
                                if NOT_IN_TRAILERS
                                    .iter()
                                    .any(|no| name.eq_ignore_ascii_case(no))
                                {
                                    return Err(Refusal::bad(
                                        "the trailer has a field that says how a request is read",
                                    ));
                                }
                                Self::Trailer(Vec::new(), before.saturating_add(line.len()))
                            }
                            None => {
                                return Err(Refusal::bad(
                                    "a line of the trailer ends without a carriage return",
                                ));
                            }
                        };
                    }
                    step
                }
            };
            taken = taken.saturating_add(step);
        }
        Ok(taken)
    }
}

/// Adds to a line up to its end. Returns the number of bytes added, and whether that was the end. None: it is too long.
fn extend(line: &mut Vec<u8>, bytes: &[u8], most: usize) -> Option<(usize, bool)> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let step = end.map_or(bytes.len(), |end| end.saturating_add(1));
    line.extend_from_slice(bytes.get(..step)?);
    (line.len() <= most).then_some((step, end.is_some()))
}

/// The size that the line of a chunk says.
fn size(line: &[u8]) -> Result<u64, Refusal> {
    const WRONG: Refusal = Refusal::bad("the size of a chunk is no hexadecimal number");
    let line = line.strip_suffix(b"\r\n").ok_or(Refusal::bad(
        "the line of a chunk ends without a carriage return",
    ))?;
    let (digits, extension) = match line.iter().position(|byte| *byte == b';') {
        Some(at) => line.split_at(at),
        None => (line, [].as_slice()),
    };
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(WRONG);
    }
    let is_text = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f;
    if !extension.iter().all(is_text) {
        return Err(Refusal::bad(
            "the extension of a chunk has a control character",
        ));
    }
    let text = std::str::from_utf8(digits).map_err(|_| WRONG)?;
    u64::from_str_radix(text, 16).map_err(|_| WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a body whole and byte by byte, which must come to the same.
    fn judge(body: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut whole = Chunks::new();
        let judged = whole.take(body);
        let mut single = Chunks::new();
        let mut taken = 0;
        let bytewise = body.iter().try_for_each(|byte| {
            taken += single.take(&[*byte])?;
            Ok(())
        });
        assert_eq!(judged.clone().map(|_| ()), bytewise, "{body:?}");
        let judged = judged?;
        assert_eq!((judged, &whole), (taken, &single));
        Ok((judged, whole == Chunks::Done))
    }

    #[test]
    fn a_body_ends_with_its_trailer() {
        for (body, expected) in [
            ("0\r\n\r\nGET", (5, true)),
            ("3\r\nabc\r\n0\r\n\r\n", (13, true)),
            ("A;x=\"y z\"\r\n0123456789\r\n0\r\n\r\n", (28, true)),
            ("0\r\nX: y\r\n\r\n", (11, true)),
            ("3\r\nab", (5, false)),
            ("3\r\nabc\r\n0\r\n", (11, false)),
        ] {
            assert_eq!(judge(body.as_bytes()), Ok(expected), "{body:?}");
        }
    }

    #[test]
    fn what_others_might_read_otherwise_is_refused() {
        for (body, expected) in [
            ("3\nabc\r\n", "without a carriage return"),
            ("3 \r\nabc\r\n", "no hexadecimal number"),
            ("0x3\r\nabc\r\n", "no hexadecimal number"),
            ("+3\r\nabc\r\n", "no hexadecimal number"),
            ("-3\r\nabc\r\n", "no hexadecimal number"),
            ("\r\nabc\r\n", "no hexadecimal number"),
            ("FFFFFFFFFFFFFFFFF\r\n", "no hexadecimal number"),
            ("3\r\nabcd\r\n", "longer than its size"),
            ("3\r\nabc\n", "longer than its size"),
            ("3;a\rb\r\nabc\r\n", "control character"),
            ("0\r\nX : y\r\n\r\n", "name of a field"),
            ("0\r\nContent-Length: 3\r\n\r\n", "how a request is read"),
            ("0\r\nX: y\n\r\n", "without a carriage return"),
        ] {
            let refusal = judge(body.as_bytes()).unwrap_err();
            assert!(refusal.reason.contains(expected), "{body:?}: {refusal}");
        }
        let long = format!("3;{}", "a".repeat(MOST_LINE_BYTES));
        assert!(judge(long.as_bytes()).is_err());
    }
}
