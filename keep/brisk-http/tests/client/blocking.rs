//! The client of programs without a runtime. No test beside these makes one, because one counts its threads.

use std::fs;
use std::io::Read;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use crate::origin::{Backwards, Origin, backwards, response};
use crate::whole_body::{CASES, Numbers, answer, said};
use brisk_cache::{Cache, CacheOptions};
use brisk_http::{
    BlockingClient, BlockingWholeBody, Client, FetchErrorKind, Options, TableAnswer, TableInput,
    TableOptions, TableSource,
};
use http::Request;

/// An origin on a runtime in a thread of its own, until the sender is dropped.
fn start() -> (String, mpsc::Sender<()>, thread::JoinHandle<usize>) {
    let (url_there, url) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let origin = runtime.block_on(Origin::start(|asked| async move {
            match &*asked.path {
                "/moved" => response(
                    301,
                    &[("location", "/a"), ("cache-control", "max-age=60")],
                    "",
                ),
                "/long" => response(200, &[("cache-control", "max-age=60")], vec![7; 3 << 20]),
                path if CASES.iter().any(|case| case.path == path) => answer(path),
                path => response(200, &[("cache-control", "max-age=60")], path.to_owned()),
            }
        }));
        url_there.send(origin.url("")).unwrap();
        assert!(ended.recv().is_err());
        origin.asked().len()
    });
    (url.recv().unwrap(), end, thread)
}

/// The threads of this process that the client has started.
fn own_threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().map(|task| {
        // A thread may end meanwhile.
        fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    });
    names.filter(|name| name.starts_with("brisk-http")).count()
}

/// Waits until a thread has its name.
fn wait_for_threads() {
    while own_threads() == 0 {
        thread::yield_now();
    }
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn a_program_whose_answers_are_stored_starts_no_runtime() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (origin, end, thread) = start();
    let home = tempfile::tempdir().unwrap();
    let client = || {
        // SAFETY: only this test and the crates that it tests write to the directory.
        #[allow(unsafe_code, reason = "the promise that open_mapped asks for")]
        let cache =
            unsafe { Cache::open_mapped(&home.path().join("http"), CacheOptions::new()) }.unwrap();
        BlockingClient::from(Client::build(cache, Options::private()).finish())
    };
    let get_as = |client: &BlockingClient| {
        let request = Request::get(format!("{origin}/table")).body(()).unwrap();
        let make = |input: &TableInput<'_>| Ok::<_, String>(backwards(input.body));
        match client
            .get_as::<Backwards, _>(request, &TableOptions::default(), make)
            .unwrap()
        {
            TableAnswer::Table(table) => {
                assert_eq!(table.view().unwrap().1, b"elbat/");
                table.source()
            }
            TableAnswer::Response(response) => panic!("{response:?}"),
        }
    };
    let first = client();
    assert_eq!(own_threads(), 0);
    assert_eq!(
        first
            .get(&format!("{origin}/a"))
            .unwrap()
            .into_body()
            .into_bytes()
            .unwrap(),
        "/a"
    );
    let mut read = Vec::new();
    let mut long = first.get(&format!("{origin}/long")).unwrap().into_body();
    long.read_to_end(&mut read).unwrap();
    assert_eq!(read, vec![7; 3 << 20]);
    assert_eq!(
        first
            .get(&format!("{origin}/moved"))
            .unwrap()
            .into_body()
            .into_bytes()
            .unwrap(),
        "/a"
    );
    assert_eq!(get_as(&first), TableSource::Fetched);
    wait_for_threads();
    first.idle();
    drop((first, long));
    assert_eq!(own_threads(), 0);

    let second = client();
    assert_eq!(
        second
            .get(&format!("{origin}/a"))
            .unwrap()
            .into_body()
            .into_bytes()
            .unwrap(),
        "/a"
    );
    let mut read = Vec::new();
    second
        .get(&format!("{origin}/long"))
        .unwrap()
        .into_body()
        .read_to_end(&mut read)
        .unwrap();
    assert_eq!(read, vec![7; 3 << 20]);
    assert_eq!(get_as(&second), TableSource::Stored);
    assert_eq!(second.client().layer().counts().hits, 3);
    second.idle();
    assert_eq!(own_threads(), 0);
    // A hop over a redirect is a matter of the other client.
    assert_eq!(
        second
            .get(&format!("{origin}/moved"))
            .unwrap()
            .into_body()
            .into_bytes()
            .unwrap(),
        "/a"
    );
    wait_for_threads();

    drop(end);
    assert_eq!(thread.join().unwrap(), 4);
    let e = second.get(&format!("{origin}/gone")).unwrap_err();
    assert_eq!(e.kind(), FetchErrorKind::Upstream);
}

#[test]
fn a_program_without_a_runtime_reads_bytes_text_and_json() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (origin, end, thread) = start();
    let home = tempfile::tempdir().unwrap();
    let cache = Cache::open(home.path(), CacheOptions::new()).unwrap();
    let client = BlockingClient::from(Client::build(cache, Options::private()).finish());
    for case in CASES {
        let get = || client.get(&format!("{origin}{}", case.path)).unwrap();
        let text = said(get().text());
        assert_eq!(text.as_deref().map_err(String::as_str), case.text);
        let json = said(get().json::<Numbers>());
        let one = json.as_ref().map(|numbers| numbers["one"]);
        assert_eq!(one.map_err(String::as_str), case.json);
        let len = get().bytes().unwrap().len() as u64;
        assert_eq!(get().at_most(len).bytes().unwrap().len() as u64, len);
        assert_eq!(
            said(get().at_most(len - 1).bytes()).unwrap_err(),
            format!(
                "the body has more than the {} bytes that are allowed; allow more with at_most()",
                len - 1
            )
        );
    }
    drop(client);
    drop(end);
    // Each case was fetched once, and read from the cache right after.
    assert_eq!(thread.join().unwrap(), CASES.len());
}
