//! A database for tasks.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brisk_objects::{AsyncDatabase, Database, Error, Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
struct Line {
    #[key(auto)]
    id: u64,
    #[index]
    text: String,
}

fn open(path: &std::path::Path) -> Database {
    let options = Options::new().collection::<Line>();
    // SAFETY: nothing else writes to the file.
    unsafe { options.open(path) }.unwrap()
}

fn line(text: &str) -> Line {
    Line {
        id: 0,
        text: text.to_owned(),
    }
}

#[tokio::test]
async fn reads_of_a_file_in_memory_stay_on_the_task() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("lines.db");
    let db = AsyncDatabase::new(open(&path)).unwrap();
    let id = db
        .write(|tx| (0..2000).try_fold(0, |_, number| tx.insert(&line(&number.to_string()))))
        .await
        .unwrap();
    assert_eq!(id, 2000);
    for _ in 0..500 {
        let found = db.get::<Line>(id).await.unwrap();
        assert_eq!(found.unwrap().text, "1999");
    }
    let counts = db.counts();
    assert_eq!(counts.inline + counts.moved, 500);
    assert!(counts.inline >= 400, "{counts:?}");
    let found = db.get_many::<Line, _>([3_u64, 5000, 1, 3]).await.unwrap();
    let texts: Vec<_> = found
        .iter()
        .map(|line| line.as_ref().map(|line| &*line.text))
        .collect();
    assert_eq!(texts, [Some("2"), None, Some("0"), Some("2")]);
    let count = db.read(|snapshot| {
        let numbers = snapshot.query::<Line>().by(Line::TEXT).starts_with("19");
        numbers.count()
    });
    assert_eq!(count.await.unwrap(), 111);
}

#[tokio::test]
async fn a_read_of_a_file_that_is_not_in_memory_lets_other_tasks_run() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("lines.db");
    let db = open(&path);
    db.write(|tx| {
        (0..50_000).try_for_each(|number: u64| tx.insert(&line(&number.to_string())).map(|_key| ()))
    })
    .unwrap();
    let db = AsyncDatabase::new(db).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let len = file.metadata().unwrap().size();
    let all = len.div_ceil(brisk_io::page_size() as u64);
    let ticks = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    let (counted, ended) = (Arc::clone(&ticks), Arc::clone(&ends));
    let other = tokio::spawn(async move {
        while !ended.load(Ordering::Relaxed) {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    for id in [1, 20_000, 50_000] {
        // What was read before is believed to be in memory for a while.
        std::thread::sleep(Duration::from_millis(150));
        brisk_io::evict(&file).unwrap();
        assert!(brisk_io::cached_pages(&file, 0, len).unwrap() < all);
        let before = ticks.load(Ordering::Relaxed);
        let found = db.get::<Line>(id).await.unwrap().unwrap();
        assert_eq!(found.text, (id - 1).to_string());
        // This runtime has one thread, so the other task ran because the read was elsewhere.
        assert!(ticks.load(Ordering::Relaxed) > before);
    }
    ends.store(true, Ordering::Relaxed);
    other.await.unwrap();
    assert_eq!((db.counts().inline, db.counts().moved), (0, 3));
}

#[tokio::test]
async fn errors_and_panics_come_from_where_the_work_is() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let db = AsyncDatabase::new(open(&home.path().join("lines.db"))).unwrap();
    let refused = db.write(|tx| {
        tx.insert(&line("a"))?;
        Err::<(), _>(Error::Failed)
    });
    assert!(matches!(refused.await, Err(Error::Failed)));
    assert_eq!(
        db.read(|snapshot| snapshot.count::<Line>()).await.unwrap(),
        0
    );
    let panics = tokio::spawn(async move {
        let read: Result<(), Error> = db.read(|_| panic!("in the work")).await;
        read
    });
    assert!(panics.await.unwrap_err().is_panic());
}
