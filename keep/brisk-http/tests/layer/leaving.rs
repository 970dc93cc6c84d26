//! Clients that leave.

use http::Method;

use crate::origin::{Asked, Pipe};
use crate::setup::{Setup, all, answer, cache_status, next, read, settle};

const FRESH: &[&str] = &["Cache-Control: max-age=60"];

fn finishing_below(bytes: u64) -> Setup {
    Setup::with(brisk_http::Options::private(), |builder| {
        builder.finish_below(bytes)
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_the_head_ends_no_fetch_that_others_wait_for() {
    let mut setup = finishing_below(0);
    let leaving = setup.get(&[]);
    let asked = setup.origin.next().await;
    let waiting = setup.get(&[]);
    settle().await;
    leaving.abort();
    settle().await;
    assert!(!asked.is_given_up());
    asked.answer(200, FRESH, "a page");
    assert_eq!(read(waiting).await.text(), (200, "a page"));
    setup.idle().await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "a page"));
    assert_eq!(setup.origin.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_a_body_ends_no_fetch_that_others_read() {
    let mut setup = finishing_below(0);
    let leaving = setup.get(&[]);
    let asked = setup.origin.next().await;
    let waiting = setup.get(&[]);
    settle().await;
    let pipe = asked.begin(200, &[FRESH[0], "Content-Length: 10"]);
    let (mut leaving, mut waiting) = (answer(leaving).await, answer(waiting).await);
    pipe.send("01234");
    settle().await;
    assert_eq!(next(&mut leaving).unwrap().unwrap(), "01234");
    assert!(cache_status(&waiting).ends_with("collapsed"));
    drop(leaving);
    settle().await;
    assert!(!pipe.is_given_up());
    pipe.send("56789");
    drop(pipe);
    let (bytes, error) = all(&mut waiting).await;
    assert!(bytes == b"0123456789" && error.is_none());
    setup.idle().await;
    assert_eq!(setup.cached().await.unwrap().text(), (200, "0123456789"));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_when_nobody_waits_for_its_head() {
    let mut setup = Setup::private();
    let clients = [setup.get(&[]), setup.get(&[])];
    let asked = setup.origin.next().await;
    settle().await;
    for client in clients {
        assert!(!asked.is_given_up());
        client.abort();
        settle().await;
    }
    assert!(asked.is_given_up());
    setup.idle().await;
    // Who comes next joins no dead fetch.
    let client = setup.get(&[]);
    setup.origin.next().await.answer(200, FRESH, "a page");
    assert_eq!(read(client).await.text(), (200, "a page"));
}

/// Begins a body of 1,000 bytes, sends 400, and lets its only client go.
async fn left_after_400(setup: &mut Setup, announced: bool) -> Pipe {
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    let lines = ["Cache-Control: max-age=60", "Content-Length: 1000"];
    let pipe = asked.begin(200, &lines[..1 + usize::from(announced)]);
    let mut response = answer(client).await;
    pipe.send(vec![b'x'; 400]);
    settle().await;
    assert_eq!(next(&mut response).unwrap().unwrap().len(), 400);
    drop(response);
    settle().await;
    pipe
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_nobody_reads_ends_unless_little_is_left() {
    for (finish_below, announced, goes_on) in [
        (600, true, true),
        (599, true, false),
        // Nobody knows how much is left.
        (600, false, false),
        (u64::MAX, false, false),
        (0, true, false),
    ] {
        let case = (finish_below, announced);
        let mut setup = finishing_below(finish_below);
        let pipe = left_after_400(&mut setup, announced).await;
        assert_eq!(pipe.is_given_up(), !goes_on, "{case:?}");
        pipe.send(vec![b'x'; 600]);
        drop(pipe);
        setup.idle().await;
        let stored = setup.cached().await.map(|got| got.body.len());
        assert_eq!(stored, goes_on.then_some(1000), "{case:?}");
        assert_eq!(setup.layer.counts().stored, u64::from(goes_on));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_goes_on_alone_is_waited_for() {
    let mut setup = finishing_below(600);
    let pipe = left_after_400(&mut setup, true).await;
    let client = setup.get(&[]);
    settle().await;
    assert!(setup.origin.take().is_none(), "one fetch is enough");
    pipe.send(vec![b'x'; 600]);
    drop(pipe);
    assert_eq!(read(client).await.body.len(), 1000);
    assert_eq!(setup.origin.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_goes_on_alone_and_fails_stores_nothing() {
    for broken in [true, false] {
        let mut setup = finishing_below(600);
        let pipe = left_after_400(&mut setup, true).await;
        pipe.send(vec![b'x'; 599]);
        match broken {
            true => pipe.fail(),
            false => drop(pipe),
        }
        setup.idle().await;
        assert!(setup.cached().await.is_none());
        assert_eq!(setup.layer.counts().stored, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_what_is_not_stored_ends_it() {
    let mut setup = Setup::private();
    let origin = |asked: Asked| asked.answer(200, &["Cache-Control: no-store"], "mine");
    setup.exchange(Method::GET, &[], origin).await;
    // Before the head, in a request of its own.
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    client.abort();
    settle().await;
    assert!(asked.is_given_up());
    // In the body.
    let client = setup.get(&[]);
    let asked = setup.origin.next().await;
    let pipe = asked.begin(200, &["Cache-Control: no-store"]);
    drop(answer(client).await);
    settle().await;
    assert!(pipe.is_given_up());
}
