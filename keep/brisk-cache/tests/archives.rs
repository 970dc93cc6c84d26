//! Archives of a program's own types.

use std::io;
use std::path::Path;

use brisk_cache::{
    About, ArchivedHit, Cache, CacheOptions, OwnedArchive, StoredArchive, fingerprint,
};
use rkyv::{Archive, Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
#[rkyv(compare(PartialEq))]
struct Page {
    title: String,
    links: Vec<String>,
    size: Option<u64>,
}

impl StoredArchive for Page {
    const FINGERPRINT: u64 =
        fingerprint("page 1: title String, links Vec<String>, size Option<u64>");
}

/// The same fields in the same order, with another meaning.
#[derive(Archive, Serialize)]
struct LaterPage {
    _heading: String,
    _links: Vec<String>,
    _size: Option<u64>,
}

impl StoredArchive for LaterPage {
    const FINGERPRINT: u64 = fingerprint("page 2");
}

/// Its author forgot to change the fingerprint.
#[derive(Archive, Serialize)]
struct ShortPage {
    title: String,
}

impl StoredArchive for ShortPage {
    const FINGERPRINT: u64 = Page::FINGERPRINT;
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn mapped(path: &Path) -> Cache {
    // SAFETY: only brisk writes to the directory.
    unsafe { Cache::open_mapped(path, CacheOptions::new()) }.unwrap()
}

fn page(links: usize) -> Page {
    Page {
        title: "A page with a title".to_owned(),
        links: (0..links)
            .map(|n| format!("https://example.org/{n}"))
            .collect(),
        size: Some(links as u64),
    }
}

fn assert_auto_traits<T: Send + Sync + 'static>() {}

#[test]
fn what_was_archived_is_found_mapped_and_copied() {
    assert_auto_traits::<ArchivedHit<Page>>();
    assert_auto_traits::<OwnedArchive<Page>>();
    let home = home();
    let (mapped, copied) = (
        mapped(home.path()),
        Cache::open(home.path(), CacheOptions::new()).unwrap(),
    );
    // In one check, in chunks, and in a file of its own.
    for links in [0, 3, 2_000, 50_000] {
        let value = page(links);
        let pages = mapped.archives::<str, Page>().bucket(7);
        pages.insert("key", &value).unwrap();
        let hit = pages.get("key").unwrap().unwrap();
        assert!(hit.is_mapped());
        assert_eq!((*hit == value, hit.bucket()), (true, 7));
        assert_eq!(hit.links.len(), links);
        let owned = hit.to_owned().unwrap();
        assert_eq!(owned.as_bytes(), hit.as_bytes());
        assert_eq!(owned.to_value().unwrap(), value);
        let copy = copied.archives::<str, Page>().get("key").unwrap().unwrap();
        assert!(!copy.is_mapped());
        assert_eq!(copy.as_bytes(), hit.as_bytes());
    }
    let pages = mapped.archives::<str, Page>();
    let kept = pages.get("key").unwrap().unwrap();
    assert!(pages.remove("key").unwrap());
    assert!(pages.get("key").unwrap().is_none());
    drop((mapped, copied));
    assert_eq!(kept.links[49_999], "https://example.org/49999");
}

#[test]
fn an_archive_of_another_layout_is_a_counted_miss() {
    let home = home();
    let cache = mapped(home.path());
    cache
        .archives::<str, Page>()
        .insert("key", &page(3))
        .unwrap();
    let later = cache.archives::<str, LaterPage>();
    assert!(later.get("key").unwrap().is_none());
    // The size of the archived type tells the two apart.
    let short = cache.archives::<str, ShortPage>();
    assert!(short.get("key").unwrap().is_none());
    assert_eq!(cache.counts().unknown, 2);
    // What is missing is fetched, and replaces what this program does not know.
    let title = "short".to_owned();
    let fetch = || io::Result::Ok(ShortPage { title });
    let hit = short.get_or_insert_with("key", fetch).unwrap();
    assert_eq!(hit.title, "short");
    assert!(hit.is_mapped());
    assert!(cache.archives::<str, Page>().get("key").unwrap().is_none());
}

#[test]
fn bytes_that_are_no_archive_are_a_counted_miss() {
    let home = home();
    let cache = mapped(home.path());
    let pages = cache.archives::<[u8], Page>();
    pages.insert(b"key", &page(3)).unwrap();
    let hit = cache.get(b"key").unwrap().unwrap();
    let about = About {
        fingerprint: hit.fingerprint(),
        bucket: 0,
    };
    let right = hit.to_vec().unwrap();
    let mut misses = 0;
    // Inserted by somebody with the fingerprint, so the cache's own checks pass.
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 0xFF;
        cache.insert(b"key", &wrong, about).unwrap();
        match pages.get(b"key").unwrap() {
            // It has other texts or numbers, which are whole.
            Some(hit) => assert!(hit.links.iter().all(|link| link.len() <= right.len())),
            None => misses += 1,
        }
    }
    assert!(misses > 20, "{misses}");
    assert_eq!(cache.counts().unknown, misses);
    for len in 0..right.len() {
        assert!(OwnedArchive::<Page>::from_bytes(&right[..len]).is_err());
    }
    let e = OwnedArchive::<Page>::from_bytes(&[]).unwrap_err();
    let text = e.to_string();
    assert!(
        text.starts_with("0 bytes are no archive of the wanted type: ")
            && text.ends_with("; archive the value again"),
        "{text}"
    );
}

#[test]
fn a_fetched_value_that_cannot_be_stored_is_returned() {
    let home = home();
    let options = CacheOptions::new().limit(6 << 20).segment_len(1 << 20);
    let cache = Cache::open(home.path(), options).unwrap();
    let pages = cache.archives::<str, Page>();
    let fetch = || io::Result::Ok(page(100_000));
    let hit = pages.get_or_insert_with("key", fetch).unwrap();
    assert_eq!((hit.links.len(), hit.is_mapped()), (100_000, false));
    assert_eq!(cache.counts().unstored, 1);
    let fail = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    let e = pages.get_or_insert_with("other", fail).unwrap_err();
    assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
}
