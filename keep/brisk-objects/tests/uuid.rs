//! UUIDs as fields and keys.

use brisk_objects::{Options, Record, Value};
use uuid::Uuid;

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "part")]
struct Part {
    #[key]
    id: Uuid,
    #[index]
    owner: Option<Uuid>,
    serial: Uuid,
}

/// The same by bytes.
#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "part")]
struct PartOfBytes {
    #[key]
    id: [u8; 16],
    #[index]
    owner: Option<[u8; 16]>,
    serial: [u8; 16],
}

#[test]
fn uuids_are_found_in_their_order_and_are_bytes_in_the_file() {
    assert_eq!(Uuid::TYPE, <[u8; 16]>::TYPE);
    assert_eq!(Part::SCHEMA, PartOfBytes::SCHEMA);
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("parts.db");
    // SAFETY: nothing but LMDB writes to the file.
    let db = unsafe { Options::new().collection::<Part>().open(&path) }.unwrap();
    let uuid = |number: u128| Uuid::from_u128(number << 64 | 0xff);
    let part = |number: u128| Part {
        id: uuid(number),
        owner: number.is_multiple_of(2).then(|| uuid(1)),
        serial: uuid(number * 100),
    };
    db.write(|tx| {
        [5, 1, 300, 2, 4]
            .into_iter()
            .try_for_each(|n| tx.insert(&part(n)).map(|_| ()))
    })
    .unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<Part>().unwrap(), 5);
    let found = snapshot.get::<Part>(uuid(4)).unwrap().unwrap();
    assert_eq!((found.owner(), found.serial()), (Some(uuid(1)), uuid(400)));
    let all = snapshot.query::<Part>().range(uuid(2)..).collect().unwrap();
    assert_eq!(all, [2, 4, 5, 300].map(part));
    let owned = snapshot.query::<Part>().by(Part::OWNER).is(Some(uuid(1)));
    let keys: Vec<_> = owned.keys().unwrap().map(Result::unwrap).collect();
    assert_eq!(keys, [2, 4, 300].map(|n| (Some(uuid(1)), uuid(n))));
}
