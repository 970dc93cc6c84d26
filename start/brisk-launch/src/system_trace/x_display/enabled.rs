//! An X display, through the X protocol.

use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::Connection;
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ChangeWindowAttributesAux, ConnectionExt, EventMask, MapState, Window,
    WindowClass,
};
use x11rb::rust_connection::RustConnection;

use crate::error::{Action, Cause, Error, Result};

/// How long to wait for an event before looking at all windows again. A window manager can show a window in a
/// frame, and a program can name it, without an event that is seen here.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// How much of a window's name is read, in units of four bytes.
const NAME: u32 = 1 << 10;

/// An X display, on which a program should show a window: a connection, and the clients that had windows when
/// it was made.
pub struct XDisplay {
    connection: RustConnection,
    /// `_NET_WM_NAME`.
    name: Atom,
    /// The clients that had windows before, by the part of a window's number that the display assigns to a
    /// client. A client without windows is removed, because another one may get its number.
    before: HashSet<u32>,
}

/// What a look at the display finds.
#[derive(Default)]
struct Seen {
    clients: HashSet<u32>,
    /// Top windows of programs, and not windows inside of them.
    shown: Vec<Window>,
}

impl XDisplay {
    /// Connects to the display of this name, such as `:0`, and records the windows that exist.
    ///
    /// # Errors
    ///
    /// `Place` if it cannot be reached.
    pub fn connect(name: &str) -> Result<Self> {
        Self::open(Some(name)).map_err(|cause| Error::new(Action::Wait, cause))
    }

    /// Like [`XDisplay::connect`]. Without a name, the environment names the display.
    pub fn open(name: Option<&str>) -> Result<Self, Cause> {
        let name = name.map_or_else(|| env::var("DISPLAY").unwrap_or_default(), str::to_owned);
        let unreachable = |source: io::Error| {
            let text = match name.as_str() {
                "" => "no X display is named in DISPLAY, on which a window could be waited for; start an X server, such as \
                       Xvfb, and name it"
                    .to_owned(),
                name => format!(
                    "the X display {name} cannot be reached; name one in DISPLAY that this user may use"
                ),
            };
            Cause::place(text).because(source)
        };
        let (connection, _) =
            x11rb::connect(Some(&name)).map_err(|e| unreachable(io::Error::other(e)))?;
        let mut display = Self {
            connection,
            name: AtomEnum::NONE.into(),
            before: HashSet::new(),
        };
        display
            .prepare()
            .map_err(|e| unreachable(io::Error::other(e)))?;
        Ok(display)
    }

    fn prepare(&mut self) -> Result<(), ReplyError> {
        let atom = self.connection.intern_atom(false, b"_NET_WM_NAME")?;
        self.name = atom.reply()?.atom;
        for root in self.roots() {
            let events =
                ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
            let changed = self.connection.change_window_attributes(root, &events)?;
            changed.check()?;
        }
        self.before = self.look(|_| true)?.clients;
        Ok(())
    }

    /// Returns when a client that had no window at the start shows one with `text` in its title or class.
    pub fn wait_for_window(&mut self, text: Option<&OsStr>) {
        loop {
            match self.is_there(text) {
                Ok(true) => return,
                Ok(false) => {}
                Err(e) => {
                    // From here on only the end of the program counts, and it may go on.
                    eprintln!("brisk: the display can no longer be asked for windows: {e}");
                    loop {
                        thread::sleep(Duration::from_secs(3600));
                    }
                }
            }
        }
    }

    /// Waits for an event, and looks.
    fn is_there(&mut self, text: Option<&OsStr>) -> Result<bool, ReplyError> {
        let seen = self.look(|client| self.before.contains(&client))?;
        self.before.retain(|client| seen.clients.contains(client));
        for window in seen.shown {
            let is_it = match text {
                None => true,
                Some(text) => self.is_named(window, text.as_bytes())?,
            };
            if is_it {
                return Ok(true);
            }
        }
        // Events may have arrived with the answers.
        let mut happened = false;
        while self.connection.poll_for_event()?.is_some() {
            happened = true;
        }
        if !happened {
            let stream = self.connection.stream();
            let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
            // A signal ends the wait with an error. Everything is checked again.
            poll(&mut fds, Some(&LOOK_EVERY)).ok();
        }
        Ok(false)
    }

    fn roots(&self) -> Vec<Window> {
        let screens = self.connection.setup().roots.iter();
        screens.map(|screen| screen.root).collect()
    }

    fn client(&self, window: Window) -> u32 {
        window & !self.connection.setup().resource_id_mask
    }

    /// Looks at the windows of all screens, and into those of clients for which `is_known` is true: window
    /// managers put the windows of others into their own.
    fn look(&self, is_known: impl Fn(u32) -> bool) -> Result<Seen, ReplyError> {
        let mut seen = Seen::default();
        let mut within = self.roots();
        // Roots, frames, and windows that some managers put in between.
        for _ in 0..4 {
            let mut queries = Vec::new();
            for window in &within {
                queries.push(self.connection.query_tree(*window)?);
            }
            within.clear();
            let mut windows = Vec::new();
            for query in queries {
                windows.extend(
                    gone(query.reply())?
                        .into_iter()
                        .flat_map(|tree| tree.children),
                );
            }
            let mut attributes = Vec::new();
            for window in windows {
                let client = self.client(window);
                seen.clients.insert(client);
                match is_known(client) {
                    true => within.push(window),
                    false => {
                        attributes.push((window, self.connection.get_window_attributes(window)?));
                    }
                }
            }
            for (window, attributes) in attributes {
                if gone(attributes.reply())?.is_some_and(|attributes| {
                    attributes.map_state == MapState::VIEWABLE
                        && attributes.class == WindowClass::INPUT_OUTPUT
                }) {
                    seen.shown.push(window);
                }
            }
        }
        Ok(seen)
    }

    /// Whether `text` is in the title or the class of the window.
    fn is_named(&self, window: Window, text: &[u8]) -> Result<bool, ReplyError> {
        let names = [
            self.name,
            AtomEnum::WM_NAME.into(),
            AtomEnum::WM_CLASS.into(),
        ];
        for name in names {
            let any = AtomEnum::ANY;
            let property = self
                .connection
                .get_property(false, window, name, any, 0, NAME)?;
            let is_in = |value: &[u8]| value.windows(text.len()).any(|part| part == text);
            if gone(property.reply())?.is_some_and(|property| is_in(&property.value)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// None for a window that has disappeared.
fn gone<T>(reply: Result<T, ReplyError>) -> Result<Option<T>, ConnectionError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(ReplyError::X11Error(_)) => Ok(None),
        Err(ReplyError::ConnectionError(e)) => Err(e),
    }
}
