//! Records of all types of values.

use std::time::{Duration, SystemTime};

use brisk_objects::{Options, Record, Stored, Value};

use crate::ledger::open_with;

#[derive(Value, Debug, Clone, PartialEq)]
struct Line {
    text: String,
    count: u16,
    discount: Option<f32>,
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(index(paid, at))]
struct Everything {
    #[key]
    region: String,
    #[key]
    number: i32,
    uuid: [u8; 16],
    #[index]
    at: SystemTime,
    paid: bool,
    #[index]
    rate: f64,
    #[index]
    reference: Option<String>,
    lines: Vec<Line>,
    raw: Vec<u8>,
    huge: u128,
    first: Line,
}

fn line(text: &str, discount: Option<f32>) -> Line {
    Line {
        text: text.to_owned(),
        count: 3,
        discount,
    }
}

fn everything(region: &str, number: i32) -> Everything {
    let seconds = Duration::from_millis(u64::from(number.unsigned_abs()) * 1500);
    Everything {
        region: region.to_owned(),
        number,
        uuid: [number as u8; 16],
        at: match number < 0 {
            true => SystemTime::UNIX_EPOCH - seconds,
            false => SystemTime::UNIX_EPOCH + seconds,
        },
        paid: number % 2 == 0,
        rate: f64::from(-number) / 3.0,
        reference: (number % 3 != 0).then(|| format!("of {number}")),
        lines: vec![
            line("one", None),
            line("", Some(0.5)),
            line("three", Some(-0.0)),
        ],
        raw: vec![0, 255, number as u8],
        huge: u128::MAX - 5,
        first: line("first", Some(f32::INFINITY)),
    }
}

#[test]
fn all_types_of_values_are_stored_and_found() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("all.db");
    let db = open_with(Options::new().collection::<Everything>(), &path).unwrap();
    let all: Vec<Everything> = ["north", "south", "so"]
        .iter()
        .flat_map(|region| (-4..5).map(|number| everything(region, number)))
        .collect();
    db.write(|tx| all.iter().try_for_each(|one| tx.insert(one).map(|_key| ())))
        .unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<Everything>().unwrap(), 27);
    let view = snapshot.get::<Everything>(("south", -3)).unwrap().unwrap();
    assert_eq!(view.to_owned(), everything("south", -3));
    let lines = view.lines();
    assert_eq!((lines.len(), lines.is_empty()), (3, false));
    let second = lines.get(1).unwrap();
    assert_eq!(
        (second.text(), second.count(), second.discount()),
        ("", 3, Some(0.5))
    );
    assert!(lines.get(3).is_none());
    assert_eq!(view.raw().as_bytes(), [0, 255, 253]);
    assert_eq!(view.first().text(), "first");
    assert!(format!("{view:?}").starts_with("Everything { region: \"south\", number: -3, "));

    let query = || snapshot.query::<Everything>();
    let numbers = |found: Vec<Everything>| found.iter().map(|one| one.number).collect::<Vec<_>>();
    // "so" is the beginning of "south", and is a part of its own all the same.
    assert_eq!(query().prefix(("so",)).count().unwrap(), 9);
    let range = query().range(("north", 2)..=("so", -3));
    assert_eq!(numbers(range.collect().unwrap()), [2, 3, 4, -4, -3]);
    let early = query()
        .by(Everything::AT)
        .range(..SystemTime::UNIX_EPOCH)
        .take(4);
    assert_eq!(numbers(early.collect().unwrap()), [-4, -4, -4, -3]);
    let low = query()
        .by(Everything::RATE)
        .range(..-0.9)
        .filter(|one| one.region() == "so");
    assert_eq!(numbers(low.collect().unwrap()), [4, 3]);
    let without = query().by(Everything::REFERENCE).is(None::<&str>);
    assert_eq!(without.count().unwrap(), 9);
    let with = query().by(Everything::REFERENCE).is(Some("of 4"));
    assert_eq!(with.count().unwrap(), 3);
    let unpaid = query()
        .by(Everything::PAID_AT)
        .prefix((false,))
        .rev()
        .take(4);
    assert_eq!(numbers(unpaid.collect().unwrap()), [3, 3, 3, 1]);
    assert_eq!(
        unpaid.explain(),
        "index paid_at(paid, at) of everything, only (false,), backwards; look up each record; take 4"
    );
    assert_eq!(
        unpaid.explain_keys(),
        "index paid_at(paid, at) of everything, only (false,), backwards; look up no record; take 4"
    );
    let filtered = query().by(Everything::RATE).filter(|one| one.paid());
    assert_eq!(
        filtered.explain_keys(),
        "index rate(rate) of everything, all of it; look up each record; filter"
    );
    assert_eq!(query().explain_keys(), query().explain());
    assert_eq!(
        query()
            .range(("a", 0)..)
            .order_by(|one| one.number())
            .skip(2)
            .explain(),
        "everything by region, number, from (\"a\", 0); sort all in memory; skip 2"
    );
}

/// The bytes and the number of version 1. They never change.
#[test]
fn the_bytes_of_a_record() {
    #[derive(Record, Debug)]
    struct Point {
        #[key]
        id: u16,
        name: Option<String>,
        ways: Vec<u16>,
    }
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("points.db");
    let db = open_with(Options::new().collection::<Point>(), &path).unwrap();
    let point = Point {
        id: 0x0102,
        name: Some("pt".to_owned()),
        ways: vec![7, 8],
    };
    db.write(|tx| tx.insert(&point)).unwrap();
    drop(db);
    assert_eq!(Point::FINGERPRINT, FINGERPRINT);
    let mut record = Vec::new();
    record.extend_from_slice(&0x0102u16.to_le_bytes());
    // The text begins at byte 19 of the value and has 2 bytes.
    record.extend_from_slice(&[1, 19, 0, 0, 0, 2, 0, 0, 0]);
    // The list begins behind it, and has 2 numbers.
    record.extend_from_slice(&[21, 0, 0, 0, 2, 0, 0, 0]);
    record.extend_from_slice(b"pt");
    record.extend_from_slice(&[7, 0, 8, 0]);
    record.resize(record.len().next_multiple_of(8), 0);
    let key = [1, 2, 0, 0, 0, 0, 0, 0];
    let seed = twox_hash::XxHash3_64::oneshot_with_seed(FINGERPRINT, &key);
    let check = twox_hash::XxHash3_64::oneshot_with_seed(seed, &record);
    let whole = [check.to_le_bytes().as_slice(), &record].concat();
    let file = std::fs::read(&path).unwrap();
    assert!(file.windows(whole.len()).any(|bytes| bytes == whole));
    // A value of a cache has the same form, without the check.
    assert_eq!(Point::view(&record).unwrap().name(), Some("pt"));
    assert!(Point::view(&record[..18]).is_none());
}

const FINGERPRINT: u64 = 15_549_750_612_718_003_839;

#[derive(Record, Debug, Clone, PartialEq)]
#[record(index(five, four, three, two, one))]
struct Wide {
    #[key]
    one: u8,
    #[key]
    two: i8,
    #[key]
    three: bool,
    #[key]
    four: String,
    #[key]
    five: Option<u32>,
    #[key]
    six: u16,
    #[key]
    seven: i64,
    #[key]
    eight: [u8; 2],
}

#[test]
fn a_key_has_up_to_eight_parts() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("wide.db");
    let db = open_with(Options::new().collection::<Wide>(), &path).unwrap();
    let wide = |number: u8| Wide {
        one: number / 8,
        two: -1,
        three: number % 2 == 1,
        four: "four".to_owned(),
        five: Some(5),
        six: 6,
        seven: i64::from(number % 4) - 2,
        eight: [8, number],
    };
    db.write(|tx| (0..32).try_for_each(|number| tx.insert(&wide(number)).map(|_key| ())))
        .unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<Wide>().unwrap(), 32);
    let key = (1, -1, true, "four", Some(5), 6, -1, [8, 9]);
    assert_eq!(
        snapshot.get::<Wide>(key).unwrap().unwrap().to_owned(),
        wide(9)
    );
    let seven = (1, -1, true, "four", Some(5), 6, -1);
    assert_eq!(snapshot.query::<Wide>().prefix(seven).count().unwrap(), 2);
    let five = (1, -1, true, "four", Some(5));
    let found = snapshot.query::<Wide>().prefix(five).collect().unwrap();
    assert_eq!(found, [9, 13, 11, 15].map(wide));
    let by_five = snapshot.query::<Wide>().by(Wide::FIVE_FOUR_THREE_TWO_ONE);
    let first = by_five.is((Some(5), "four", false, -1, 3)).first().unwrap();
    assert_eq!(first, Some(wide(24)));
}
