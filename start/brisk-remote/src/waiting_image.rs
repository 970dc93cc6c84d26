//! An image that arrives, for programs whose reads wait.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brisk_io::ByteSource;

use crate::arriving::{Absent, Arriving, Window, may_renew};
use crate::error::Result;
use crate::fetcher::{Fetcher, FetcherPlace, Lines};
use crate::protocol::{Ask, Tell};
use crate::schedule::Class;

/// How often a reader tries to reach a fetcher, in a row.
const TRIES: u32 = 5;

/// How long a program waits before it is told.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// An image that arrives. A read of bytes that are absent asks the fetcher for them, and waits.
///
/// Threads can share one value. If the fetcher ends, another is started.
pub struct WaitingImage {
    arriving: Arc<Arriving>,
    fetcher: FetcherPlace,
    state: Mutex<State>,
    changed: Condvar,
}

/// The connection to the fetcher.
struct State {
    /// None while there is no connection.
    out: Option<std::os::unix::net::UnixStream>,
    /// None while a thread reads from it, and while there is no connection.
    lines: Option<Lines>,
    /// With another number, whoever waits asks again: over another connection, or because bytes that had come were wrong.
    number: u64,
    /// How often in a row there was none.
    tries: u32,
    /// What was wanted and does not come, and why.
    failed: Vec<(Range<u64>, String)>,
    /// Why the fetcher has nothing of the image.
    refused: Option<String>,
    window: Window,
    /// Units that were asked for again because they were wrong.
    renewed: Vec<Range<u64>>,
}

impl WaitingImage {
    /// What arrives of `arriving`, by the fetcher there.
    pub fn new(arriving: Arc<Arriving>, fetcher: FetcherPlace) -> Self {
        Self {
            arriving,
            fetcher,
            state: Mutex::new(State {
                out: None,
                lines: None,
                number: 0,
                tries: 0,
                failed: Vec::new(),
                refused: None,
                window: Window::default(),
                renewed: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// What has arrived.
    pub fn arriving(&self) -> &Arc<Arriving> {
        &self.arriving
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `bytes` are there.
    ///
    /// # Errors
    ///
    /// Why they do not come.
    pub fn wait_for(&self, bytes: Range<u64>, class: Class) -> io::Result<()> {
        let begun = Instant::now();
        let wanted = self.arriving.whole_units(&bytes);
        let (mut sent, mut told) = (None, false);
        let mut state = self.lock();
        loop {
            if self.arriving.first_absent(&bytes)?.is_none() {
                return Ok(());
            }
            if let Some(why) = &state.refused {
                return Err(io::Error::other(why.clone()));
            }
            // That of this read, and not of another one near it, which waits for its own.
            if let Some(at) = state
                .failed
                .iter()
                .position(|(failed, _)| *failed == wanted)
            {
                return Err(io::Error::other(state.failed.swap_remove(at).1));
            }
            if sent != Some(state.number) || state.out.is_none() {
                self.send(&mut state, &bytes, class)?;
                sent = Some(state.number);
                continue;
            }
            if !told && begun.elapsed() > LONG {
                (told, ()) = (true, (self.fetcher.on_wait)());
            }
            let Some(mut lines) = state.lines.take() else {
                let waited = self.changed.wait_timeout(state, LONG);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            // Others send meanwhile, and wait for what this thread reads.
            drop(state);
            let read = lines.next(LONG);
            state = self.lock();
            match read {
                Ok(tell) => {
                    state.lines = Some(lines);
                    if let Some(Tell::Here { start, end }) = tell {
                        self.arriving.has_come(&(start..end));
                    } else if let Some(Tell::Failed { start, end, why }) = tell {
                        state.failed.push((start..end, why));
                    } else if let Some(Tell::Refused { why }) = tell {
                        state.refused = Some(why);
                    }
                }
                // The fetcher has ended.
                Err(_) => state.out = None,
            }
            self.changed.notify_all();
        }
    }

    /// Waits until all of it is there, and was compared with what it should be.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn wait_for_whole(&self) -> Result<()> {
        match self.arriving.is_whole() {
            true => Ok(()),
            false => Fetcher::at(&self.fetcher)?.whole(&self.arriving),
        }
    }

    /// Asks for `bytes`, over a new connection if there is none.
    fn send(&self, state: &mut State, bytes: &Range<u64>, class: Class) -> io::Result<()> {
        if state.out.is_none() {
            state.lines = None;
            if state.tries > TRIES {
                return Err(io::Error::other(
                    "brisk-fetch ends again and again; its log is in the cache of images",
                ));
            }
            state.tries += 1;
            let mut fetcher = Fetcher::at(&self.fetcher).map_err(io::Error::other)?;
            fetcher.attach(&self.arriving).map_err(io::Error::other)?;
            let (out, lines) = fetcher.into_parts();
            (state.out, state.lines) = (Some(out), Some(lines));
            state.number += 1;
        }
        let behind = match class {
            Class::Miss => state.window.behind(bytes, self.arriving.len()),
            _ => 0..0,
        };
        let State { out: Some(out), .. } = state else {
            return Ok(());
        };
        let mut asks = vec![Ask::want(self.arriving.whole_units(bytes), class)];
        if !behind.is_empty() {
            asks.push(Ask::want(behind, Class::Behind));
        }
        let sent = asks
            .iter()
            .try_for_each(|ask| crate::protocol::write_line(&mut *out, ask));
        match sent {
            Ok(()) => state.tries = 0,
            Err(_) => state.out = None,
        }
        Ok(())
    }
}

impl ByteSource for WaitingImage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.arriving.len())
    }

    fn read_bytes_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = offset
            .saturating_add(buf.len() as u64)
            .min(self.arriving.len());
        loop {
            if self.arriving.first_absent(&(offset..end))?.is_some() {
                self.wait_for(offset..end, Class::Miss)?;
            }
            match self.arriving.read_there(offset, buf) {
                // Another read has found a part of it wrong meanwhile.
                Err(e) if Absent::of(&e).is_some() => {}
                read => return read,
            }
        }
    }

    fn read_again(&self, bytes: &Range<u64>) -> bool {
        let bytes = self.arriving.whole_units(bytes);
        let mut state = self.lock();
        if self.arriving.is_renewing(&bytes) {
            return true;
        }
        if !may_renew(&state.renewed, &bytes) {
            return false;
        }
        let renew = Ask::Renew {
            start: bytes.start,
            end: bytes.end,
        };
        if state.out.is_none() && self.send(&mut state, &(0..0), Class::Behind).is_err() {
            return false;
        }
        let sent = state
            .out
            .as_mut()
            .map(|out| crate::protocol::write_line(out, &renew));
        self.arriving.forget(&bytes);
        state.renewed.push(bytes);
        // Others were told that their bytes are here, and wait for the part of them that is forgotten now.
        state.number += 1;
        self.changed.notify_all();
        matches!(sent, Some(Ok(())))
    }
}

impl fmt::Debug for WaitingImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingImage")
            .field("arriving", &self.arriving)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::cache::{About, RemoteCache, open_own};
    use crate::fetcher::SOCKET;
    use crate::presence::UNIT;
    use crate::protocol::{parse_line, write_line};

    /// Two reads share a unit. One was told that its bytes are here when the other one finds that unit wrong.
    #[test]
    fn all_who_wait_for_bytes_that_were_wrong_ask_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Arc::new(RemoteCache::at(&dir.path().join("remote")).expect("room"));
        let about = About {
            url: "http://127.0.0.1:1/app.img".into(),
            len: 3 * UNIT,
            ..About::default()
        };
        let entry = cache.make("a", &about).expect("room");
        let file = open_own(&entry.image_path(), false).expect("made");
        file.set_len(3 * UNIT).expect("room");
        let arriving = Arc::new(Arriving::open(&entry).expect("made"));
        let (wrong, read) = (0..2 * UNIT, UNIT..3 * UNIT);
        arriving.has_come(&wrong);
        let socket = UnixListener::bind(cache.path().join(SOCKET)).expect("room");
        let place = FetcherPlace::new(Arc::clone(&cache), "no program".as_ref());
        let image = WaitingImage::new(arriving, place);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = vec![1; 2 * UNIT as usize];
                image.read_bytes_at(UNIT, &mut bytes)
            });
            let (stream, _) = socket.accept().expect("it connects");
            // Without the second question, this is not to wait for ever.
            stream.set_read_timeout(Some(60 * LONG)).expect("a socket");
            let mut out = stream.try_clone().expect("a socket");
            let mut lines = BufReader::new(stream).lines();
            let mut asked = || {
                let line = lines.next().expect("it asks").expect("in time");
                parse_line::<Ask>(line.as_bytes()).expect("a question")
            };
            let mut say = |tell: Tell| write_line(&mut out, &tell).expect("it listens");
            let here = |bytes: &Range<u64>| Tell::Here {
                start: bytes.start,
                end: bytes.end,
            };
            let want = Ask::want(read.clone(), Class::Miss);
            assert!(matches!(asked(), Ask::Hello { .. }));
            say(Tell::Welcome);
            while asked() != want {}
            assert!(image.read_again(&wrong));
            say(here(&read));
            while asked() != want {}
            say(here(&wrong));
            say(here(&read));
            let read = reader.join().expect("no panic");
            assert_eq!(read.expect("it is here"), 2 * UNIT as usize);
        });
    }
}
