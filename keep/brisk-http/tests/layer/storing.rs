//! Requests that come while what has come is being stored.

use std::fs::File;
use std::path::Path;

use brisk_http::Options;
use http::Method;

use crate::origin::Asked;
use crate::setup::{Setup, all, answer, at_once, cache_status, request, soon, whole};

const FRESH: &str = "Cache-Control: max-age=60";
const HIT: &str = "brisk; hit; ttl=60";

/// Lets nobody write to a cache until this is dropped.
fn stop_writers(directory: &Path) -> File {
    let ledger = directory.join("ledger");
    let file = File::options().read(true).write(true).open(ledger).unwrap();
    file.lock().unwrap();
    file
}

#[tokio::test(start_paused = true)]
async fn whoever_has_read_a_body_finds_it_stored() {
    let len = 400_000;
    for announced in [true, false] {
        // In memory, and in the directory.
        for memory in [1 << 20, 100_000] {
            // With others that ask for the same, and alone.
            for is_alone in [false, true] {
                for (line, status, expected) in [
                    ("Accept: */*", 200, len),
                    ("Range: bytes=0-9", 206, 10),
                    ("If-None-Match: \"1\"", 304, 0),
                    ("Cache-Control: only-if-cached", 200, len),
                ] {
                    let case = (announced, memory, is_alone, line);
                    let mut setup =
                        Setup::with(Options::private(), |builder| builder.memory(memory));
                    let origin = |asked: Asked| match is_alone {
                        // A response that is of no use to others.
                        true => asked.answer(200, &["Cache-Control: no-store"], "mine"),
                        false => asked.answer(200, &["Cache-Control: max-age=60"], "old"),
                    };
                    setup.exchange(Method::GET, &[], origin).await;
                    let other = setup.send_to("http://example.org/b", Method::GET, &[]);
                    setup.origin.next().await.answer(200, &[FRESH], "other");
                    whole(answer(other).await).await;
                    setup.idle().await;
                    let client = setup.get(&["Cache-Control: no-cache"]);
                    let asked = setup.origin.next().await;
                    let length = format!("Content-Length: {len}");
                    let lines = [FRESH, "ETag: \"1\"", &length];
                    let pipe = asked.begin(200, &lines[..2 + usize::from(announced)]);
                    let mut response = answer(client).await;
                    let stopped = stop_writers(setup.home.path());
                    for _ in 0..4 {
                        pipe.send(vec![b'x'; len / 4]);
                    }
                    drop(pipe);
                    // The end comes although nothing can be stored. A long body has to be begun before that.
                    let stopped = match memory < len as u64 {
                        true => {
                            drop(stopped);
                            None
                        }
                        false => Some(stopped),
                    };
                    let (bytes, error) = all(&mut response).await;
                    assert!(bytes == vec![b'x'; len] && error.is_none(), "{case:?}");

                    let again = setup.call(request(crate::setup::URL, Method::GET, &[line]));
                    let mut again = Box::pin(again);
                    if let Some(stopped) = stopped {
                        assert!(at_once(again.as_mut()).is_none(), "{case:?}");
                        drop(stopped);
                    }
                    let got = soon(again).await.unwrap();
                    assert_eq!(cache_status(&got), HIT, "{case:?}");
                    let got = whole(got).await;
                    assert_eq!((got.status, got.body.len()), (status, expected), "{case:?}");
                    assert_eq!(setup.origin.count(), 3, "{case:?}");
                }
            }
        }
    }
}
