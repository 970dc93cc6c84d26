//! When a program is ready.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::x_display::XDisplay;

/// How often to look for a file or socket.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// When a program counts as ready. The recording is cut then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// When it has exited.
    Exit,
    /// When this much time has passed since it started.
    After(Duration),
    /// When something exists at this path.
    File(PathBuf),
    /// When a Unix socket at this path accepts a connection.
    Socket(PathBuf),
    /// When it shows a window on the X display that `DISPLAY` names, with this in its title or class. This
    /// needs the feature `window`.
    Window(Option<OsString>),
    /// When it has written this to its standard output or standard error, in one line. Both are pipes then,
    /// and are passed on.
    Line(OsString),
}

impl Readiness {
    /// For people and profiles: `socket /run/app`.
    pub fn describe(&self) -> String {
        match self {
            Self::Exit => "exit".to_owned(),
            Self::After(time) => format!("after {} s", time.as_secs_f64()),
            Self::File(path) => format!("file {}", path.display()),
            Self::Socket(path) => format!("socket {}", path.display()),
            Self::Window(None) => "window".to_owned(),
            Self::Window(Some(text)) => format!("window {}", text.display()),
            Self::Line(text) => format!("line {}", text.display()),
        }
    }

    /// Whether it is found from outside, by looking again and again.
    pub fn is_looked_for(&self) -> bool {
        matches!(self, Self::File(_) | Self::Socket(_) | Self::Window(_))
    }

    /// Looks until it is there. Only for a process that does nothing else and does not serve, because the
    /// path may lead into what is served. `display` is needed to look for a window.
    pub fn look(&self, display: Option<&mut XDisplay>) {
        if let (Self::Window(text), Some(display)) = (self, display) {
            return display.wait_for_window(text.as_deref());
        }
        loop {
            let is_there = match self {
                Self::File(path) => path.symlink_metadata().is_ok(),
                Self::Socket(path) => UnixStream::connect(path).is_ok(),
                Self::Exit | Self::After(_) | Self::Line(_) | Self::Window(_) => return,
            };
            if is_there {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Looks for a text in a stream.
pub struct Search {
    text: Vec<u8>,
    /// The last bytes of what was searched. The text may start in them.
    end: Vec<u8>,
}

impl Search {
    /// For this text.
    pub fn new(text: &OsStr) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            end: Vec::new(),
        }
    }

    /// Whether the text ends in `bytes`, which follow what was searched before.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.end.extend_from_slice(bytes);
        let len = self.text.len();
        let found = len == 0 || self.end.windows(len).any(|window| window == self.text);
        let keep = len.saturating_sub(1).min(self.end.len());
        self.end.drain(..self.end.len() - keep);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_pieces() {
        for (text, pieces, found_at) in [
            ("ready", &["ready\n"][..], Some(0)),
            ("ready", &["I am re", "ad", "y now"], Some(2)),
            ("aab", &["aa", "ab"], Some(1)),
            ("ready", &["rea", "", "d\ny"], None),
            ("r", &["", "never", "later"], Some(1)),
        ] {
            let mut search = Search::new(text.as_ref());
            let found = pieces
                .iter()
                .position(|piece| search.push(piece.as_bytes()));
            assert_eq!(found, found_at, "{text} in {pieces:?}");
        }
    }
}
