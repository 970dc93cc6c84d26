//! How much memory the bodies of a layer take.

use std::alloc::System;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_cache::{Cache, CacheOptions};
use brisk_http::{CacheBody, CacheLayer, Options, RequestBody, Upstream};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tower::{Layer, Service, service_fn};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for all threads together, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const PIECE: usize = 1 << 16;
const MIB: usize = 1 << 20;

/// The bytes that are allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}

/// A body of pieces that are allocated when they are asked for.
struct Fresh {
    left: usize,
    /// The most bytes that were allocated when a piece was asked for.
    most: Arc<AtomicUsize>,
}

impl Body for Fresh {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.most.fetch_max(allocated(), Ordering::Relaxed);
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= PIECE;
        let piece = vec![(self.left / PIECE) as u8; PIECE];
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

/// A layer over an origin that sends bodies of `len` bytes, with 1 MiB of memory for each.
fn fetching(
    len: usize,
    fields: &'static [(&'static str, &'static str)],
) -> (
    TempDir,
    CacheLayer,
    impl Upstream<Empty<Bytes>>,
    Arc<AtomicUsize>,
) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = CacheOptions::new().limit(512 << 20);
    // SAFETY: only brisk writes to the directory.
    let cache = unsafe { Cache::open_mapped(home.path(), options) }.unwrap();
    let layer = CacheLayer::build(cache, Options::private())
        .memory(MIB as u64)
        .finish();
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let origin = service_fn(move |_: Request<RequestBody<Empty<Bytes>>>| {
        let most = Arc::clone(&seen);
        async move {
            let mut response = Response::builder();
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            Ok::<_, Infallible>(response.body(Fresh { left: len, most }).unwrap())
        }
    });
    (home, layer, origin, most)
}

async fn get<U: Upstream<Empty<Bytes>>>(layer: &CacheLayer, origin: &U) -> Response<CacheBody> {
    let request = Request::get("http://example.org/").body(Empty::new());
    let answer = layer.layer(origin.clone()).call(request.unwrap());
    answer.await.unwrap()
}

/// Reads a body piece by piece, and says its length.
async fn drain(response: Response<CacheBody>) -> usize {
    let mut body = response.into_body();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        len += frame.unwrap().into_data().unwrap().len();
    }
    len
}

#[tokio::test(start_paused = true)]
async fn a_long_body_takes_little_memory_while_it_comes() {
    let _alone = ONE_AT_A_TIME.lock().await;
    for fields in [
        &[("cache-control", "max-age=60")][..],
        &[
            ("cache-control", "max-age=60"),
            ("content-length", "67108864"),
        ],
        &[("cache-control", "no-store")],
    ] {
        for is_slow in [false, true] {
            let (home, layer, origin, most) = fetching(64 * MIB, fields);
            let before = allocated();
            let slow = get(&layer, &origin).await;
            if is_slow {
                // The fetch goes as far as it can without its reader.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(drain(slow).await, 64 * MIB);
            layer.idle().await;
            let more = most.load(Ordering::Relaxed).saturating_sub(before);
            assert!(more < 4 * MIB, "{more} bytes, {fields:?}");
            let stored = layer.counts().stored_bytes;
            let is_stored = fields[0].1 != "no-store";
            assert_eq!(stored, (64 * MIB * usize::from(is_stored)) as u64);
            drop(home);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_hit_takes_no_memory() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (_home, layer, origin, _) = fetching(64 * MIB, &[("cache-control", "max-age=60")]);
    for _ in 0..2 {
        // The second is the first hit, which opens files.
        drain(get(&layer, &origin).await).await;
        layer.idle().await;
    }
    let before = ALLOCATOR.stats();
    let len = drain(get(&layer, &origin).await).await;
    let taken = ALLOCATOR.stats() - before;
    assert_eq!((len, layer.counts().hits), (64 * MIB, 2));
    // A head, and for each of 256 pieces who owns it.
    assert!(taken.bytes_allocated < 64 << 10, "{taken:?}");
    assert!(taken.allocations < 2 * 256 + 100, "{taken:?}");
}
