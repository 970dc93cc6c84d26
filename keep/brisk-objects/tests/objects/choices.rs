//! Enums and maps in records.

use std::collections::{BTreeMap, HashMap};

use brisk_objects::{Options, Plain, Record, UntypedDatabase, Value};

use crate::ledger::open_with;

#[derive(Value, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Open,
    Paid,
    r#Void,
}

#[derive(Value, Debug, Clone, PartialEq)]
enum Address {
    None,
    Box(u32, Option<State>),
    Street { name: String, r#in: Place },
}

#[derive(Value, Debug, Clone, PartialEq)]
struct Place {
    town: String,
    state: State,
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(name = "customers", index(state, name))]
struct Customer {
    #[key]
    state: State,
    #[key]
    id: u32,
    name: String,
    #[index]
    earlier: Option<State>,
    address: Address,
    all: Vec<Address>,
    notes: BTreeMap<String, Address>,
    numbers: HashMap<i16, Vec<String>>,
}

fn customer(state: State, id: u32) -> Customer {
    let address = match id % 3 {
        0 => Address::None,
        1 => Address::Box(id, Some(State::Void)),
        _ => Address::Street {
            name: format!("street {id}"),
            r#in: Place {
                town: "town".to_owned(),
                state,
            },
        },
    };
    let word = |number: i16| format!("word {number}");
    Customer {
        state,
        id,
        name: format!("name {}", id % 4),
        earlier: id.is_multiple_of(2).then_some(State::Paid),
        all: vec![address.clone(), Address::None, address.clone()],
        notes: ["b", "", "a"]
            .map(|key| (key.to_owned(), address.clone()))
            .into(),
        numbers: (-2..id as i16)
            .map(|number| (number, vec![word(number); 2]))
            .collect(),
        address,
    }
}

#[test]
fn enums_and_maps_are_stored_and_found() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = home.path().join("customers.db");
    let db = open_with(Options::new().collection::<Customer>(), &path).unwrap();
    let states = [State::Void, State::Open, State::Paid];
    let mut all: Vec<Customer> = states
        .iter()
        .flat_map(|state| (0..7).map(|id| customer(*state, id)))
        .collect();
    db.write(|tx| all.iter().try_for_each(|one| tx.insert(one).map(|_key| ())))
        .unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.check::<Customer>().unwrap(), 21);
    // They sort by the order of the variants.
    all.sort_by_key(|one| (one.state, one.id));
    let query = snapshot.query::<Customer>();
    let found: Vec<Customer> = query
        .iter()
        .unwrap()
        .map(|one| one.unwrap().to_owned())
        .collect();
    assert_eq!(found, all);
    let by = snapshot.query::<Customer>().by(Customer::STATE_NAME);
    let by = by.range((State::Paid, "name 2")..);
    let names: Vec<_> = by.keys().unwrap().map(|key| key.unwrap().0).collect();
    let expected = ["name 2", "name 2", "name 3"].map(|name| (State::Paid, name.to_owned()));
    assert_eq!(names[..3], expected);
    let by = snapshot.query::<Customer>().by(Customer::EARLIER);
    assert_eq!(by.is(Some(State::Paid)).count().unwrap(), 12);

    let view = snapshot
        .get::<Customer>((State::Paid, 5u32))
        .unwrap()
        .unwrap();
    assert_eq!(view.state(), State::Paid);
    match view.address() {
        AddressView::Street { name, r#in } => {
            assert_eq!(
                (name, r#in.town(), r#in.state()),
                ("street 5", "town", State::Paid)
            );
        }
        other => panic!("{other:?}"),
    }
    let notes = view.notes();
    let keys: Vec<&str> = notes.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["", "a", "b"]);
    assert_eq!(
        notes.get("a").unwrap().to_owned(),
        customer(State::Paid, 5).address
    );
    assert!(notes.get("aa").is_none() && notes.get("c").is_none());
    let numbers = view.numbers();
    assert_eq!((numbers.len(), numbers.is_empty()), (7, false));
    let words: Vec<&str> = numbers.get(-1i16).unwrap().iter().collect();
    assert_eq!(words, ["word -1", "word -1"]);
    assert!(numbers.get(5i16).is_none());
}

/// The form of version 1. It never changes.
#[test]
fn the_layout_of_enums_and_maps() {
    assert_eq!(
        Customer::SCHEMA.layout_text(),
        "{state: enum{Open: {}, Paid: {}, Void: {}}, id: u32, name: text, earlier: option<enum{Open: {}, Paid: {}, Void: \
         {}}>, address: enum{None: {}, Box: {0: u32, 1: option<enum{Open: {}, Paid: {}, Void: {}}>}, Street: {name: text, \
         in: {town: text, state: enum{Open: {}, Paid: {}, Void: {}}}}}, all: list<enum{None: {}, Box: {0: u32, 1: \
         option<enum{Open: {}, Paid: {}, Void: {}}>}, Street: {name: text, in: {town: text, state: enum{Open: {}, Paid: {}, \
         Void: {}}}}}>, notes: map<text, enum{None: {}, Box: {0: u32, 1: option<enum{Open: {}, Paid: {}, Void: {}}>}, \
         Street: {name: text, in: {town: text, state: enum{Open: {}, Paid: {}, Void: {}}}}}>, numbers: map<i16, \
         list<text>>} key state, id"
    );
    // One byte, and the longest variant: a text and a place of 9 bytes.
    assert_eq!((State::WIDTH, Address::WIDTH), (1, 1 + 8 + 9));
}

#[test]
fn a_file_tells_its_enums_and_maps() {
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (
        home.path().join("customers.db"),
        home.path().join("copy.db"),
    );
    let db = open_with(Options::new().collection::<Customer>(), &path).unwrap();
    let all: Vec<Customer> = (0..7).map(|id| customer(State::Void, id)).collect();
    db.write(|tx| all.iter().try_for_each(|one| tx.insert(one).map(|_key| ())))
        .unwrap();
    drop(db);
    // SAFETY: nobody writes to the file meanwhile.
    let untyped = unsafe { UntypedDatabase::open(&path) }.unwrap();
    let customers = untyped.collection("customers").unwrap();
    let schema = *customers.schema();
    assert_eq!(schema.layout_text(), Customer::SCHEMA.layout_text());
    let records = customers.query().iter().unwrap();
    let records: Vec<Plain> = records.map(Result::unwrap).collect();
    let unit = |name| Plain::Enum(name, Plain::Struct(Vec::new()).into());
    assert_eq!(records[1].field("state"), Some(&unit("Void")));
    assert_eq!(
        records[1].field("address"),
        Some(&Plain::Enum(
            "Box",
            Plain::Struct(vec![
                ("0", Plain::Unsigned(1)),
                ("1", Plain::Option(Some(unit("Void").into()))),
            ])
            .into()
        ))
    );
    let words = Plain::List(vec![Plain::Text("word -2".to_owned()); 2]);
    assert_eq!(
        records[0].field("numbers"),
        Some(&Plain::Map(vec![
            (Plain::Signed(-2), words),
            (
                Plain::Signed(-1),
                Plain::List(vec![Plain::Text("word -1".to_owned()); 2])
            ),
        ]))
    );
    // What is written of them is what the program would have written.
    // SAFETY: the file is new.
    unsafe {
        UntypedDatabase::write(&copy, 1 << 30, |writer| {
            let indexes = schema.indexes.iter().map(ToString::to_string);
            let indexes: Vec<String> = indexes.collect();
            let layout = schema.layout_text();
            let number = writer.collection("customers", &layout, &indexes, None)?;
            records
                .iter()
                .try_for_each(|record| writer.put(number, record, false).map(|_| ()))
        })
    }
    .unwrap();
    let db = open_with(Options::new().collection::<Customer>(), &copy).unwrap();
    let found: Vec<Customer> = (0..7)
        .map(|id| db.get::<Customer>((State::Void, id)).unwrap().unwrap())
        .collect();
    assert_eq!(found, all);
}
