//! A database for tasks.

#[path = "../examples/tasks.rs"]
#[expect(dead_code, reason = "its main is not used")]
mod tasks;

use std::os::unix::fs::MetadataExt;

use brisk_objects::{AsyncDatabase, Database, Error, Options, Record};

#[derive(Record, Debug, Clone, PartialEq)]
struct Line {
    #[key(auto)]
    id: u64,
    #[index]
    text: String,
}

/// A text of any length, because there is no index of it.
#[derive(Record, Debug, Clone, PartialEq)]
struct Text {
    #[key(auto)]
    id: u64,
    text: String,
}

fn text_of(text: String) -> Text {
    Text { id: 0, text }
}

fn open(path: &std::path::Path) -> Database {
    let options = Options::new().collection::<Line>().collection::<Text>();
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
async fn the_example_works_and_refuses_a_file_that_is_there() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("books.db");
    tasks::run(&path).await.unwrap();
    assert!(home.path().join("books.copy").exists());
    let again = tasks::run(&path).await.unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
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

/// Faults of this thread that have waited for a disk.
fn waits_of_this_thread() -> i64 {
    // SAFETY: it is made of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes a whole `rusage` to where one is.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert_eq!(done, 0);
    usage.ru_majflt
}

#[tokio::test]
async fn a_read_of_a_file_that_is_not_in_memory_lets_other_tasks_run() {
    const LINES: u64 = 300_000;
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("lines.db");
    let db = open(&path);
    let text = |id: u64| format!("{id:0100}");
    db.write(|tx| (1..=LINES).try_for_each(|id| tx.insert(&line(&text(id))).map(|_key| ())))
        .unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let len = file.metadata().unwrap().size();
    let all = len.div_ceil(brisk_io::page_size() as u64);
    // One read ahead does not bring all of it.
    assert!(len > 64 << 20);
    // Most of its places are touched by nobody.
    let readers = std::fs::File::open(home.path().join("lines.db-lock")).unwrap();
    let evict = || {
        brisk_io::evict(&readers).unwrap();
        brisk_io::evict(&file).unwrap();
        assert!(brisk_io::cached_pages(&file, 0, len).unwrap() < all / 2);
    };
    evict();
    let db = AsyncDatabase::new(db).unwrap();
    for id in [1_000, 20_000, 100_000, 200_000, 280_000] {
        let mut is_kept = false;
        // The first attempt brings what all need: the pages of the program, too. A system that pages out by itself may take
        // those of the file at any time.
        for _ in 0..8 {
            evict();
            let (moved, waits) = (db.counts().moved, waits_of_this_thread());
            let found = db.get::<Line>(id).await.unwrap().unwrap();
            assert_eq!(found.text, text(id));
            assert_eq!(db.counts().moved, moved + 1);
            // All pages on the way are in memory now, though most of the file is not.
            let inline = db.counts().inline;
            for _ in 0..10 {
                let found = db.get::<Line>(id).await.unwrap().unwrap();
                assert_eq!(found.text, text(id));
            }
            let found = db.get_many::<Line, _>([id, LINES + 1, id]).await.unwrap();
            assert_eq!(found.iter().flatten().count(), 2);
            // All tasks run on this thread, and it did not wait for the disk.
            is_kept = db.counts().inline > inline + 5 && waits_of_this_thread() == waits;
            if is_kept {
                break;
            }
        }
        assert!(is_kept, "{:?}", db.counts());
    }
    // Nobody knows which pages a query needs, so it moves.
    evict();
    let moved = db.counts().moved;
    let count = db.read(|snapshot| snapshot.query::<Line>().range(5..15u64).count());
    assert_eq!((count.await.unwrap(), db.counts().moved), (10, moved + 1));
}

/// Records of several pages, tables that are empty, and states that another transaction has made.
#[tokio::test]
async fn a_get_on_the_task_finds_what_a_get_elsewhere_does() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = home.path().join("lines.db");
    // In no state of this file is all of it in memory: behind its pages is a hole.
    let db = open(&path);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let db = AsyncDatabase::new(db).unwrap();
    assert_eq!(db.get::<Text>(1u64).await.unwrap(), None);
    let mut lines = Vec::new();
    for round in 0..40 {
        let mut added: Vec<Text> = (0..25).map(|n| text_of(format!("{round} {n}"))).collect();
        if let Some(last) = added.last_mut() {
            last.text = "long".repeat(1000 * round);
        }
        let keys = db.write({
            let added = added.clone();
            move |tx| {
                added
                    .iter()
                    .map(|line| tx.insert(line))
                    .collect::<Result<Vec<u64>, _>>()
            }
        });
        for (line, id) in added.iter_mut().zip(keys.await.unwrap()) {
            line.id = id;
        }
        lines.extend(added);
        for wanted in lines.iter().rev().step_by(13) {
            assert_eq!(
                db.get::<Text>(wanted.id).await.unwrap().as_ref(),
                Some(wanted)
            );
        }
        assert_eq!(db.get::<Text>(5_000_000u64).await.unwrap(), None);
        let ids: Vec<u64> = lines.iter().map(|line| line.id).rev().take(200).collect();
        let found = db.get_many::<Text, _>(ids).await.unwrap();
        assert!(found.iter().flatten().eq(lines.iter().rev().take(200)));
    }
    assert!(db.counts().inline > 1000, "{:?}", db.counts());
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
