//! Bodies that break off, and readers that are slow.

use std::sync::atomic::Ordering;

use brisk_http::{CacheBody, FetchErrorKind, Options};
use bytes::Bytes;
use http::{Method, Response};
use http_body::Body;
use http_body_util::BodyExt;

use crate::origin::Pipe;
use crate::setup::{Setup, all, answer, at_once, contents, read, settle};

const PIECE: usize = 1 << 16;
/// How far the origin may be ahead of the slowest reader of a body that is not kept in memory.
const WINDOW: usize = 1 << 20;

fn remembering(bytes: u64) -> Setup {
    Setup::with(Options::private(), |builder| builder.memory(bytes))
}

/// How a body ends.
#[derive(Debug, Clone, Copy)]
enum End {
    TooShort,
    TooLong,
    Broken,
    BrokenLate,
}

impl End {
    const ALL: [Self; 4] = [
        Self::TooShort,
        Self::TooLong,
        Self::Broken,
        Self::BrokenLate,
    ];

    /// Sends a body of `len` bytes that ends like this.
    fn send(self, pipe: Pipe, len: usize) {
        let piece = |len| vec![b'x'; len];
        pipe.send(piece(len - 1));
        match self {
            Self::TooShort => {}
            Self::TooLong => pipe.send(piece(2)),
            Self::Broken => pipe.fail(),
            Self::BrokenLate => {
                pipe.send(piece(1));
                pipe.fail();
            }
        }
    }

    fn kind(self) -> FetchErrorKind {
        match self {
            Self::TooShort | Self::TooLong => FetchErrorKind::Length,
            Self::Broken | Self::BrokenLate => FetchErrorKind::Upstream,
        }
    }

    fn says(self, len: usize) -> String {
        match self {
            Self::TooShort => {
                let found = len - 1;
                format!("a body ended after {found} bytes, but its Content-Length is {len}")
            }
            Self::TooLong => {
                format!("a body has more than the {len} bytes that its Content-Length says")
            }
            Self::Broken | Self::BrokenLate => "the origin gave no whole answer".to_owned(),
        }
    }

    /// Reads what has ended like this.
    async fn assert_read(self, mut response: Response<CacheBody>, len: usize) {
        let (bytes, error) = all(&mut response).await;
        let error = error.unwrap_or_else(|| panic!("{self:?} of {len} looks whole"));
        assert_eq!(
            (error.kind(), error.to_string()),
            (self.kind(), self.says(len))
        );
        assert!(bytes.len() <= len && bytes.iter().all(|byte| *byte == b'x'));
        // After an error, there is no more.
        assert!(at_once(response.body_mut().frame()).unwrap().is_none());
        assert!(response.body().is_end_stream());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_whole_is_not_stored_and_its_readers_are_told() {
    // In memory, and in the directory.
    for len in [1_000, 400_000] {
        for end in End::ALL {
            let mut setup = remembering(100_000);
            setup
                .store(&["Cache-Control: max-age=60", "ETag: \"1\""], "before")
                .await;
            setup.later(60);
            let clients = [setup.get(&[]), setup.get(&[])];
            let asked = setup.origin.next().await;
            settle().await;
            let pipe = asked.begin(
                200,
                &[
                    "Cache-Control: max-age=60",
                    "ETag: \"2\"",
                    &format!("Content-Length: {len}"),
                ],
            );
            let mut responses = Vec::new();
            for client in clients {
                responses.push(answer(client).await);
            }
            end.send(pipe, len);
            for response in responses {
                end.assert_read(response, len).await;
            }
            setup.idle().await;
            let counts = setup.layer.counts();
            assert_eq!((counts.stored, counts.troubles), (1, 0), "{end:?}");
            // The old one stays, with its fields.
            let old = setup.cached().await.unwrap();
            assert_eq!(old.text(), (200, "before"), "{end:?}");
            assert_eq!(old.field("etag"), Some("\"1\""));
            let left = setup.layer.cache().stat().unwrap();
            assert_eq!(left.entries, 2, "a policy and a body: {left:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_chunked_body_that_breaks_off_is_not_stored() {
    for len in [1_000, 400_000] {
        let mut setup = remembering(100_000);
        let client = setup.get(&[]);
        let asked = setup.origin.next().await;
        let pipe = asked.begin(200, &["Cache-Control: max-age=60"]);
        let response = answer(client).await;
        assert_eq!(response.body().size_hint().exact(), None);
        End::Broken.send(pipe, len);
        End::Broken.assert_read(response, len).await;
        setup.idle().await;
        assert!(setup.cached().await.is_none());
        let files = contents(setup.home.path());
        let values = files.keys().filter(|name| name.ends_with(".value"));
        assert_eq!(values.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_what_is_not_stored_are_told_too() {
    for end in End::ALL {
        let mut setup = Setup::private();
        let client = setup.get(&[]);
        let asked = setup.origin.next().await;
        let pipe = asked.begin(200, &["Cache-Control: no-store", "Content-Length: 1000"]);
        let response = answer(client).await;
        assert_eq!(response.body().size_hint().lower(), 0);
        end.send(pipe, 1000);
        end.assert_read(response, 1000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn readers_are_told_when_a_fetch_panics() {
    let mut setup = Setup::private();
    let first = setup.get(&[]);
    let asked = setup.origin.next().await;
    let clients = [first, setup.get(&[])];
    settle().await;
    asked.panic(&["Cache-Control: max-age=60"]);
    for client in clients {
        let (bytes, error) = all(&mut answer(client).await).await;
        assert!(bytes.is_empty());
        assert_eq!(error.unwrap().kind(), FetchErrorKind::Ended);
    }
    setup.idle().await;
    let client = setup.get(&[]);
    let whole = setup.origin.next().await;
    whole.answer(200, &["Cache-Control: max-age=60"], "whole");
    assert_eq!(read(client).await.text(), (200, "whole"));
}

#[test]
fn readers_are_told_when_the_runtime_of_a_fetch_ends() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut setup = Setup::private();
    let (mut response, _pipe) = runtime.block_on(async {
        let client = setup.get(&[]);
        let asked = setup.origin.next().await;
        let pipe = asked.begin(200, &["Cache-Control: max-age=60"]);
        (answer(client).await, pipe)
    });
    drop(runtime);
    let another = tokio::runtime::Runtime::new().unwrap();
    let (bytes, error) = another.block_on(all(&mut response));
    assert!(bytes.is_empty());
    assert_eq!(error.unwrap().kind(), FetchErrorKind::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_head_has_a_length_and_no_body() {
    let mut setup = Setup::private();
    let client = setup.send(Method::HEAD, &[]);
    let asked = setup.origin.next().await;
    drop(asked.begin(200, &["Cache-Control: max-age=60", "Content-Length: 1000"]));
    let mut head = answer(client).await;
    assert_eq!(head.headers()["content-length"], "1000");
    let (bytes, error) = all(&mut head).await;
    assert!(bytes.is_empty() && error.is_none());
}

/// Reads what is there, and says how much that was.
fn read_what_is_there(response: &mut Response<CacheBody>) -> usize {
    let mut read = 0;
    while let Some(Some(frame)) = at_once(response.body_mut().frame()) {
        read += frame.unwrap().into_data().unwrap().len();
    }
    read
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_stops_others_only_by_the_window() {
    let memory = 4 * PIECE;
    let pieces = 64;
    let mut setup = remembering(memory as u64);
    let clients = [setup.get(&[]), setup.get(&[])];
    let asked = setup.origin.next().await;
    settle().await;
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let taken = asked.flood(&["Cache-Control: max-age=60"], piece, pieces);
    let [slow, fast] = clients;
    let (mut slow, mut fast) = (answer(slow).await, answer(fast).await);
    settle().await;
    let taken = || taken.load(Ordering::Relaxed) as usize * PIECE;
    // Nobody has read, so the origin is ahead by the window, and by the piece that goes beyond it.
    assert_eq!(taken(), WINDOW + PIECE);
    // One reads all there is, and gets no more than that before the other goes on.
    assert_eq!(read_what_is_there(&mut fast), WINDOW + PIECE);
    settle().await;
    assert_eq!(
        (taken(), read_what_is_there(&mut fast)),
        (WINDOW + PIECE, 0)
    );
    assert!(at_once(slow.body_mut().frame()).unwrap().is_some());
    settle().await;
    assert_eq!(taken(), WINDOW + 2 * PIECE);
    assert_eq!(read_what_is_there(&mut fast), PIECE);
    // When it leaves, nothing holds the other up.
    drop(slow);
    let (rest, error) = all(&mut fast).await;
    assert!(error.is_none());
    assert_eq!(rest.len(), pieces as usize * PIECE - WINDOW - 2 * PIECE);
    setup.idle().await;
    let got = setup.cached().await.unwrap();
    assert!(got.body == vec![b'x'; pieces as usize * PIECE]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_short_body_stops_nobody() {
    let mut setup = remembering(1 << 20);
    let clients = [setup.get(&[]), setup.get(&[])];
    let asked = setup.origin.next().await;
    settle().await;
    let piece = Bytes::from(vec![b'x'; PIECE]);
    asked.flood(&["Cache-Control: max-age=60"], piece, 16);
    let [slow, fast] = clients;
    let (mut slow, mut fast) = (answer(slow).await, answer(fast).await);
    let (bytes, error) = all(&mut fast).await;
    assert!(bytes.len() == 16 * PIECE && error.is_none());
    setup.idle().await;
    assert!(setup.cached().await.is_some());
    let (bytes, error) = all(&mut slow).await;
    assert!(bytes.len() == 16 * PIECE && error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_a_piece_is_written_costs_nothing() {
    let piece = Bytes::from(vec![b'x'; 4 * PIECE]);
    for read_first in 1..8 {
        let mut setup = Setup::with(Options::private(), |builder| {
            builder.memory(PIECE as u64).finish_below(2 << 20)
        });
        let client = setup.get(&[]);
        let asked = setup.origin.next().await;
        let lines = ["Cache-Control: max-age=60", "Content-Length: 2097152"];
        asked.flood(&lines, piece.clone(), 8);
        let mut response = answer(client).await;
        for _ in 0..read_first {
            response.body_mut().frame().await.unwrap().unwrap();
        }
        // Now a thread writes the last piece that came.
        drop(response);
        setup.idle().await;
        let counts = setup.layer.counts();
        assert_eq!(
            (counts.stored, counts.unstored, counts.troubles),
            (1, 0, 0),
            "left after {read_first} of 8 pieces"
        );
        assert!(setup.cached().await.unwrap().body == vec![b'x'; 2 << 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_for_the_cache_is_passed_on() {
    // A quarter of 64 MiB may be stored.
    for lines in [
        &["Cache-Control: max-age=60"][..],
        &["Cache-Control: max-age=60", "Content-Length: 17825792"],
    ] {
        let mut setup = Setup::private();
        let client = setup.get(&[]);
        let asked = setup.origin.next().await;
        asked.flood(lines, Bytes::from(vec![b'x'; PIECE]), 272);
        let mut response = answer(client).await;
        let (bytes, error) = all(&mut response).await;
        assert!(bytes.len() == 272 * PIECE && error.is_none());
        setup.idle().await;
        let counts = setup.layer.counts();
        assert_eq!((counts.stored, counts.unstored, counts.troubles), (0, 1, 0));
        assert!(setup.cached().await.is_none());
    }
}
