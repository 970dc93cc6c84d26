//! Tables that are made of responses, by the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::origin::{Backwards, Origin, backwards, response};
use brisk_cache::{Cache, CacheOptions, Stored, fingerprint};
use brisk_http::{
    Client, Options, Override, Overrides, Retries, TableAnswer, TableError, TableInput, TableOf,
    TableOptions, TableSource, Timestamp,
};
use http::Request;
use http_body_util::BodyExt;

struct Stage {
    client: Client,
    now: Arc<AtomicU64>,
    made: Arc<AtomicUsize>,
    _home: tempfile::TempDir,
}

fn open(directory: &std::path::Path) -> Cache {
    // SAFETY: only this test and the crates that it tests write to the directory.
    #[allow(unsafe_code, reason = "the promise that open_mapped asks for")]
    unsafe { Cache::open_mapped(directory, CacheOptions::new()) }.unwrap()
}

impl Stage {
    fn new() -> Self {
        Self::with(|options| options)
    }

    fn with(change: impl FnOnce(Options) -> Options) -> Self {
        let home = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicU64::new(1_700_000_000));
        let clock = Arc::clone(&now);
        let client = Client::build(open(&home.path().join("http")), change(Options::private()))
            .layer(|layer| layer.clock(move || Timestamp::from_unix(clock.load(Ordering::SeqCst))))
            .retries(Retries::at_most(0))
            .finish();
        Self {
            client,
            now,
            made: Arc::default(),
            _home: home,
        }
    }

    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds, Ordering::SeqCst);
    }

    fn made(&self) -> usize {
        self.made.swap(0, Ordering::SeqCst)
    }

    async fn get_with(
        &self,
        url: &str,
        options: &TableOptions,
    ) -> Result<TableAnswer<Backwards>, TableError<String>> {
        let made = Arc::clone(&self.made);
        let make = move |input: &TableInput<'_>| {
            made.fetch_add(1, Ordering::SeqCst);
            match input.body {
                b"bad" => Err("it is bad".to_owned()),
                b"wrong" => Ok(b"no table".to_vec()),
                body => Ok(backwards(body)),
            }
        };
        let request = Request::get(url).body(()).unwrap();
        self.client.get_as(request, options, make).await
    }

    async fn table(&self, url: &str) -> TableOf<Backwards> {
        match self.get_with(url, &TableOptions::default()).await.unwrap() {
            TableAnswer::Table(table) => table,
            TableAnswer::Response(response) => panic!("{response:?}"),
        }
    }

    async fn expect(&self, url: &str, source: TableSource, bytes: &[u8]) {
        let table = self.table(url).await;
        assert_eq!(table.view().unwrap().1, bytes);
        assert_eq!(table.source(), source);
    }
}

#[tokio::test]
async fn a_table_is_made_once_and_a_304_keeps_it() {
    let origin = Origin::start(|asked| async move {
        let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
        match asked.headers.get("if-none-match") {
            Some(_) => response(304, &fields, ""),
            None => response(200, &fields, "abc"),
        }
    })
    .await;
    let stage = Stage::new();
    let url = origin.url("/a");
    stage.expect(&url, TableSource::Fetched, b"cba").await;
    assert_eq!((origin.take_count(), stage.made()), (1, 1));
    for _ in 0..3 {
        let table = stage.table(&url).await;
        assert_eq!(table.view().unwrap(), (3, b"cba".as_slice()));
        assert_eq!(table.source(), TableSource::Stored);
        assert!(table.hit().is_some());
        assert_eq!(table.headers()["etag"], "\"1\"");
    }
    assert_eq!((origin.take_count(), stage.made()), (0, 0));
    stage.pass(60);
    stage.expect(&url, TableSource::Validated, b"cba").await;
    assert_eq!((origin.take_count(), stage.made()), (1, 0));
    stage.pass(59);
    stage.expect(&url, TableSource::Stored, b"cba").await;
    assert_eq!((origin.take_count(), stage.made()), (0, 0));
}

#[tokio::test]
async fn a_status_is_found_while_it_is_fresh() {
    let origin = Origin::start(|asked| async move {
        match asked.path.as_str() {
            "/none" => response(404, &[("cache-control", "max-age=60")], "none"),
            "/never" => response(404, &[("cache-control", "no-store")], "none"),
            _ => response(200, &[("cache-control", "max-age=60")], "abc"),
        }
    })
    .await;
    let stage = Stage::new();
    for (path, status) in [
        ("/none", Some(404)),
        ("/never", None),
        // The table is there, and not the response as a whole.
        ("/table", None),
    ] {
        let url = origin.url(path);
        let headers = http::HeaderMap::new();
        let request = brisk_http::Request {
            method: &http::Method::GET,
            url: &url,
            headers: &headers,
        };
        let find = || {
            stage
                .client
                .layer()
                .find_status(&request)
                .map(|found| found.as_u16())
        };
        assert_eq!(find(), None, "{path}");
        drop(
            stage
                .get_with(&url, &TableOptions::default())
                .await
                .unwrap(),
        );
        stage.client.idle().await;
        assert_eq!(find(), status, "{path}");
        stage.pass(60);
        assert_eq!(find(), None, "{path}");
    }
}

#[tokio::test]
async fn an_equal_body_is_not_made_again() {
    let origin = Origin::start(|asked| async move {
        let etag = format!("\"{}\"", asked.number);
        let body = if asked.number < 2 { "abc" } else { "abd" };
        response(
            200,
            &[("cache-control", "max-age=60"), ("etag", &etag)],
            body,
        )
    })
    .await;
    let stage = Stage::new();
    let url = origin.url("/a");
    stage.expect(&url, TableSource::Fetched, b"cba").await;
    stage.pass(60);
    stage.expect(&url, TableSource::Validated, b"cba").await;
    assert_eq!(stage.made(), 1);
    assert_eq!(stage.table(&url).await.headers()["etag"], "\"1\"");
    stage.pass(60);
    stage.expect(&url, TableSource::Fetched, b"dba").await;
    assert_eq!(stage.made(), 1);
}

#[tokio::test]
async fn a_response_of_which_no_table_is_made_leaves_what_was_stored() {
    let origin = Origin::start(|asked| async move {
        let body = ["abc", "bad", "wrong", "abcd"][asked.number];
        response(200, &[("cache-control", "max-age=60")], body)
    })
    .await;
    let stage = Stage::with(|mut options| {
        options.stale_if_error = Some(1000);
        options
    });
    let url = origin.url("/a");
    stage.expect(&url, TableSource::Fetched, b"cba").await;
    stage.pass(60);
    let e = stage
        .get_with(&url, &TableOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(e, TableError::Make(_)));
    assert_eq!(e.to_string(), "it is bad");
    let e = stage
        .get_with(&url, &TableOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "what was made of a response has 8 bytes and is not of the layout {:016x}; build it as that layout says",
            Backwards::FINGERPRINT
        )
    );
    let mut options = TableOptions::default();
    options.most_body = 3;
    let e = stage.get_with(&url, &options).await.unwrap_err();
    assert_eq!(
        e.to_string(),
        "the body of a response has more than the 3 bytes that are allowed"
    );
    // What was stored first is there: it stands in for an origin that is gone.
    drop(origin);
    stage.expect(&url, TableSource::Stored, b"cba").await;
}

#[tokio::test]
async fn another_layout_is_fetched_without_validators_and_both_stay() {
    struct Count;
    impl Stored for Count {
        const FINGERPRINT: u64 = fingerprint("count 1: U64");
        type View<'a> = u64;
        fn view(bytes: &[u8]) -> Option<u64> {
            bytes.try_into().ok().map(u64::from_le_bytes)
        }
    }
    let origin = Origin::start(|asked| async move {
        assert!(!asked.headers.contains_key("if-none-match"));
        response(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
            "abc",
        )
    })
    .await;
    let stage = Stage::new();
    let url = origin.url("/a");
    stage.expect(&url, TableSource::Fetched, b"cba").await;
    let count = |stage: &Stage| {
        let client = stage.client.clone();
        let request = Request::get(&url).body(()).unwrap();
        async move {
            let make = |input: &TableInput<'_>| {
                Ok::<_, String>((input.body.len() as u64).to_le_bytes().to_vec())
            };
            match client
                .get_as::<Count, _>(request, &TableOptions::default(), make)
                .await
            {
                Ok(TableAnswer::Table(table)) => (table.view().unwrap(), table.source()),
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(count(&stage).await, (3, TableSource::Fetched));
    assert_eq!(origin.take_count(), 2);
    assert_eq!(count(&stage).await, (3, TableSource::Stored));
    stage.expect(&url, TableSource::Stored, b"cba").await;
    assert_eq!(origin.take_count(), 0);
}

#[tokio::test]
async fn tables_and_bodies_are_made_of_each_other_without_a_request() {
    let origin = Origin::start(|asked| async move {
        response(200, &[("cache-control", "max-age=60")], asked.path)
    })
    .await;
    let stage = Stage::new();
    // A table of a body that is stored.
    let first = stage.client.get(&origin.url("/body")).await.unwrap();
    first.into_body().collect().await.unwrap();
    stage.client.idle().await;
    stage
        .expect(&origin.url("/body"), TableSource::Body, b"ydob/")
        .await;
    stage
        .expect(&origin.url("/body"), TableSource::Stored, b"ydob/")
        .await;
    assert_eq!((origin.take_count(), stage.made()), (1, 1));
    // A body that was kept beside a table.
    let mut options = TableOptions::default();
    options.keep_body = true;
    stage
        .get_with(&origin.url("/both"), &options)
        .await
        .unwrap();
    let body = stage.client.get(&origin.url("/both")).await.unwrap();
    assert_eq!(
        body.into_body().collect().await.unwrap().to_bytes(),
        "/both"
    );
    assert_eq!(origin.take_count(), 1);
    // A table alone is no body, so that is fetched.
    stage
        .expect(&origin.url("/table"), TableSource::Fetched, b"elbat/")
        .await;
    let body = stage.client.get(&origin.url("/table")).await.unwrap();
    assert_eq!(
        body.into_body().collect().await.unwrap().to_bytes(),
        "/table"
    );
    assert_eq!(origin.take_count(), 2);
}

#[tokio::test]
async fn tasks_that_want_one_table_fetch_it_once() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let origin = Origin::start(move |_| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|is_open| *is_open).await.unwrap();
            response(200, &[("cache-control", "max-age=60")], "abc")
        }
    })
    .await;
    let stage = Arc::new(Stage::new());
    let url = origin.url("/a");
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (stage, url) = (Arc::clone(&stage), url.clone());
            tokio::spawn(async move { stage.table(&url).await.source() })
        })
        .collect();
    while origin.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    open.send(true).unwrap();
    let mut fetched = 0;
    for task in tasks {
        fetched += usize::from(task.await.unwrap() == TableSource::Fetched);
    }
    assert_eq!((origin.take_count(), stage.made(), fetched), (1, 1, 1));
}

#[tokio::test]
async fn a_stale_table_is_used_while_its_page_is_asked_for_anew() {
    let origin = Origin::start(|asked| async move {
        let fields = [("cache-control", "max-age=60, stale-while-revalidate=600")];
        response(200, &fields, ["abc", "abcd"][asked.number])
    })
    .await;
    let stage = Stage::new();
    let url = origin.url("/a");
    stage.expect(&url, TableSource::Fetched, b"cba").await;
    stage.pass(61);
    stage.expect(&url, TableSource::Stored, b"cba").await;
    stage.client.idle().await;
    assert_eq!(origin.asked().len(), 2);
    stage.expect(&url, TableSource::Stored, b"dcba").await;
    assert_eq!(origin.asked().len(), 2);
}

#[tokio::test]
async fn only_a_200_becomes_a_table() {
    let origin = Origin::start(|asked| async move {
        match &*asked.path {
            "/moved" => response(
                301,
                &[("location", "/a?x#y"), ("cache-control", "max-age=60")],
                "",
            ),
            "/missing" => response(404, &[("cache-control", "max-age=60")], "no such page"),
            "/private" => response(200, &[("cache-control", "no-store")], "abc"),
            _ => response(200, &[("cache-control", "max-age=60")], "abc"),
        }
    })
    .await;
    let stage = Stage::new();
    for requests in [1, 0] {
        let answer = stage
            .get_with(&origin.url("/missing"), &TableOptions::default())
            .await;
        let Ok(TableAnswer::Response(missing)) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(missing.status(), 404);
        assert_eq!(
            missing.into_body().collect().await.unwrap().to_bytes(),
            "no such page"
        );
        stage.client.idle().await;
        assert_eq!(origin.take_count(), requests);
    }
    // Each hop of a redirect is stored for itself.
    stage
        .expect(&origin.url("/moved"), TableSource::Fetched, b"cba")
        .await;
    assert_eq!(origin.take_count(), 2);
    stage.client.idle().await;
    stage
        .expect(&origin.url("/moved"), TableSource::Stored, b"cba")
        .await;
    assert_eq!(origin.take_count(), 0);
    // What may not be stored becomes a table all the same.
    for _ in 0..2 {
        stage
            .expect(&origin.url("/private"), TableSource::Fetched, b"cba")
            .await;
    }
    assert_eq!(origin.take_count(), 2);
}

#[tokio::test]
async fn an_offline_client_has_what_is_stored_and_asks_nobody() {
    let origin =
        Origin::start(|_| async { response(200, &[("cache-control", "max-age=60")], "abc") }).await;
    let home = tempfile::tempdir().unwrap();
    let request = || Request::get(origin.url("/a")).body(()).unwrap();
    let make = |input: &TableInput<'_>| Ok::<_, String>(backwards(input.body));
    let get = |offline| {
        let mut overrides = Overrides::default();
        let rule = Override {
            offline,
            ..Override::default()
        };
        overrides.add("*", rule);
        let client = Client::build(open(home.path()), Options::private())
            .layer(|layer| layer.overrides(overrides))
            .finish();
        async move {
            client
                .get_as::<Backwards, _>(request(), &TableOptions::default(), make)
                .await
                .unwrap()
        }
    };
    let TableAnswer::Response(missing) = get(true).await else {
        panic!("nothing is stored");
    };
    assert_eq!(missing.status(), 504);
    assert_eq!(origin.take_count(), 0);
    assert!(matches!(get(false).await, TableAnswer::Table(_)));
    assert!(matches!(get(true).await, TableAnswer::Table(_)));
    assert_eq!(origin.take_count(), 1);
}
