//! Whatever is done to a database, it answers as a map and naive searches do.

use std::collections::BTreeMap;

use brisk_objects::{Database, Error, Options, Record, Snapshot, Value};
use proptest::prelude::*;

#[derive(Value, Debug, Clone, PartialEq)]
struct Address {
    street: String,
    zip: Option<u32>,
}

#[derive(Record, Debug, Clone, PartialEq)]
#[record(index(city, age), unique(city, nick))]
struct Person {
    #[key]
    id: u32,
    #[index]
    name: String,
    city: Option<String>,
    #[index]
    age: i16,
    nick: Option<String>,
    addresses: Vec<Address>,
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Person),
    Update(Person),
    Upsert(Person),
    Delete(u32),
    /// The steps since the last commit are given up, or made.
    End(bool),
    Reopen,
}

fn text() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ab\u{0}\u{ff}]{0,3}").unwrap()
}

fn person() -> impl Strategy<Value = Person> {
    let address = (text(), any::<Option<u32>>()).prop_map(|(street, zip)| Address { street, zip });
    let addresses = proptest::collection::vec(address, 0..3);
    let (city, nick) = (proptest::option::of(text()), proptest::option::of(text()));
    (0..12u32, text(), city, -3..3i16, nick, addresses).prop_map(
        |(id, name, city, age, nick, addresses)| Person {
            id,
            name,
            city,
            age,
            nick,
            addresses,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => person().prop_map(Step::Insert),
        2 => person().prop_map(Step::Update),
        3 => person().prop_map(Step::Upsert),
        2 => (0..12u32).prop_map(Step::Delete),
        2 => any::<bool>().prop_map(Step::End),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<u32, Person>;

/// What a step does to the model, or why it must be refused.
fn on_model(model: &mut Model, step: &Step) -> Option<&'static str> {
    let (person, must_be) = match step {
        Step::Delete(id) => {
            model.remove(id);
            return None;
        }
        Step::Insert(person) => (person, Some(false)),
        Step::Update(person) => (person, Some(true)),
        Step::Upsert(person) => (person, None),
        Step::End(_) | Step::Reopen => return None,
    };
    let is_same = |other: &Person| {
        other.id != person.id
            && person.city.is_some()
            && person.nick.is_some()
            && (&other.city, &other.nick) == (&person.city, &person.nick)
    };
    let is_there = model.contains_key(&person.id);
    if must_be == Some(true) && !is_there {
        return Some("missing");
    }
    // Both may be wrong: then either is said.
    if model.values().any(is_same) {
        return Some(if must_be == Some(false) && is_there {
            "either"
        } else {
            "unique"
        });
    }
    if must_be == Some(false) && is_there {
        return Some("exists");
    }
    model.insert(person.id, person.clone());
    None
}

fn on_database(tx: &mut brisk_objects::Transaction<'_>, step: &Step) -> Result<(), Error> {
    match step {
        Step::Insert(person) => tx.insert(person).map(|key| assert_eq!(key, person.id)),
        Step::Update(person) => tx.update(person),
        Step::Upsert(person) => tx.upsert(person),
        Step::Delete(id) => tx.delete::<Person>(*id).map(|_| ()),
        Step::End(_) | Step::Reopen => Ok(()),
    }
}

fn kind(e: &Error) -> &'static str {
    match e {
        Error::Exists { .. } => "exists",
        Error::Missing { .. } => "missing",
        Error::NotUnique {
            index: "city_nick", ..
        } => "unique",
        e => panic!("{e}"),
    }
}

/// All queries that the test knows, against searches of the model.
fn compare(snapshot: &Snapshot, model: &Model, probe: &Person) {
    assert_eq!(snapshot.check::<Person>().unwrap(), model.len() as u64);
    for id in 0..12 {
        let found = snapshot.get::<Person>(id).unwrap();
        assert_eq!(found.map(|view| view.to_owned()).as_ref(), model.get(&id));
    }
    // Twice the same, missing ones, and in no order.
    let ids = [7, 0, 11, 7, 100, 3, probe.id];
    let found = snapshot.get_many::<Person, _>(ids).unwrap();
    let found = found
        .into_iter()
        .map(|view| view.map(|view| view.to_owned()));
    assert!(found.eq(ids.iter().map(|id| model.get(id).cloned())));
    let people = || snapshot.query::<Person>();
    let sorted = |wanted: &dyn Fn(&Person) -> bool,
                  by: &dyn Fn(&Person, &Person) -> std::cmp::Ordering| {
        let mut all: Vec<Person> = model
            .values()
            .filter(|person| wanted(person))
            .cloned()
            .collect();
        // By the key where the rest is equal.
        all.sort_by(|one, two| by(one, two).then(one.id.cmp(&two.id)));
        all
    };
    let by_id = |_: &Person, _: &Person| std::cmp::Ordering::Equal;
    let by_name = |one: &Person, two: &Person| one.name.cmp(&two.name);
    let by_age = |one: &Person, two: &Person| one.age.cmp(&two.age);
    let both = |person: &Person| (person.city.clone(), person.age);
    let by_both = |one: &Person, two: &Person| both(one).cmp(&both(two));
    let (id, name, age) = (probe.id, probe.name.as_str(), probe.age);

    assert_eq!(people().collect().unwrap(), sorted(&|_| true, &by_id));
    assert_eq!(
        people().range(id..).collect().unwrap(),
        sorted(&|p| p.id >= id, &by_id)
    );
    assert_eq!(
        people().range(..=id).collect().unwrap(),
        sorted(&|p| p.id <= id, &by_id)
    );
    assert_eq!(
        people().is(id).count().unwrap(),
        usize::from(model.contains_key(&id))
    );
    let named = people().by(Person::NAME);
    assert_eq!(named.collect().unwrap(), sorted(&|_| true, &by_name));
    assert_eq!(
        named.range(name..).collect().unwrap(),
        sorted(&|p| *p.name >= *name, &by_name)
    );
    assert_eq!(
        people().by(Person::NAME).range(..name).collect().unwrap(),
        sorted(&|p| *p.name < *name, &by_name)
    );
    assert_eq!(
        people().by(Person::NAME).is(name).collect().unwrap(),
        sorted(&|p| p.name == name, &by_name)
    );
    assert_eq!(
        people()
            .by(Person::NAME)
            .starts_with(name)
            .collect()
            .unwrap(),
        sorted(&|p| p.name.starts_with(name), &by_name)
    );
    let aged = people().by(Person::AGE).range(-1..=age).rev();
    let mut expected = sorted(&|p| (-1..=age).contains(&p.age), &by_age);
    expected.reverse();
    assert_eq!(aged.collect().unwrap(), expected);
    let keys: Vec<(i16, u32)> = aged.keys().unwrap().map(Result::unwrap).collect();
    assert_eq!(
        keys,
        expected.iter().map(|p| (p.age, p.id)).collect::<Vec<_>>()
    );
    assert_eq!(aged.count().unwrap(), expected.len());
    let city = probe.city.as_deref();
    assert_eq!(
        people()
            .by(Person::CITY_AGE)
            .prefix((city,))
            .collect()
            .unwrap(),
        sorted(&|p| p.city.as_deref() == city, &by_both)
    );
    assert_eq!(
        people()
            .by(Person::CITY_AGE)
            .range((city, age)..)
            .collect()
            .unwrap(),
        sorted(&|p| both(p) >= (city.map(str::to_owned), age), &by_both)
    );
    let rich = people()
        .by(Person::NAME)
        .filter(|p| !p.addresses().is_empty())
        .order_by(|p| std::cmp::Reverse(p.addresses().len()))
        .skip(1)
        .take(3);
    let mut expected = sorted(&|p| !p.addresses.is_empty(), &by_name);
    expected.sort_by_key(|p| std::cmp::Reverse(p.addresses.len()));
    let expected: Vec<Person> = expected.into_iter().skip(1).take(3).collect();
    assert_eq!(rich.collect().unwrap(), expected);
    pages(snapshot, &sorted(&|_| true, &by_name), false);
    let mut backwards = sorted(&|_| true, &by_name);
    backwards.reverse();
    pages(snapshot, &backwards, true);
}

/// Page by page, each by a cursor that was bytes in between.
fn pages(snapshot: &Snapshot, expected: &[Person], rev: bool) {
    let mut found = Vec::new();
    let mut cursor: Option<Vec<u8>> = None;
    loop {
        let mut query = snapshot.query::<Person>().by(Person::NAME).take(2);
        if rev {
            query = query.rev();
        }
        if let Some(bytes) = &cursor {
            let cursor = brisk_objects::Cursor::from_bytes(bytes).unwrap();
            query = query.after(&cursor).unwrap();
        }
        let mut records = query.iter().unwrap();
        found.extend(records.by_ref().map(|view| view.unwrap().to_owned()));
        match records.cursor() {
            Some(end) => cursor = Some(end.to_bytes()),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

/// A query whose pages are read in different states of the database, also after it was opened anew.
struct Paging {
    rev: bool,
    /// What came last, and the bytes of the cursor behind it.
    last: Option<((String, u32), Vec<u8>)>,
}

impl Paging {
    /// Reads the next page. Behind the last one, it begins again.
    fn turn(&mut self, snapshot: &Snapshot, model: &Model) {
        let place = |person: &Person| (person.name.clone(), person.id);
        let is_behind = |person: &&Person| match &self.last {
            None => true,
            Some((last, _)) if self.rev => place(person) < *last,
            Some((last, _)) => place(person) > *last,
        };
        let mut expected: Vec<&Person> = model.values().filter(is_behind).collect();
        expected.sort_by_key(|person| place(person));
        let mut query = snapshot.query::<Person>().by(Person::NAME).take(2);
        if self.rev {
            expected.reverse();
            query = query.rev();
        }
        expected.truncate(2);
        if let Some((_, bytes)) = &self.last {
            let cursor = brisk_objects::Cursor::from_bytes(bytes).unwrap();
            query = query.after(&cursor).unwrap();
        }
        let mut records = query.iter().unwrap();
        let found: Vec<Person> = records
            .by_ref()
            .map(|view| view.unwrap().to_owned())
            .collect();
        assert!(found.iter().eq(expected.iter().copied()), "{found:?}");
        let end = records.cursor().map(|cursor| cursor.to_bytes());
        self.last = found.last().map(place).zip(end);
    }
}

fn open(path: &std::path::Path) -> Database {
    let options = Options::new().collection::<Person>().limit(64 << 20);
    // SAFETY: nothing else writes to the file.
    unsafe { options.open(path) }.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_answers_as_a_map_does(steps in proptest::collection::vec(step(), 1..60), probe in person()) {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = home.path().join("people.db");
        let mut db = open(&path);
        let mut committed = Model::new();
        let mut pagings = [false, true].map(|rev| Paging { rev, last: None });
        let mut steps = steps.into_iter().peekable();
        while steps.peek().is_some() {
            let mut model = committed.clone();
            let before = db.snapshot().unwrap();
            let mut tx = db.begin().unwrap();
            let mut commits = true;
            let mut reopens = false;
            for step in steps.by_ref() {
                let expected = on_model(&mut model, &step);
                let done = on_database(&mut tx, &step);
                match (expected, done) {
                    (None, Ok(())) => {}
                    (Some("either"), Err(e)) => prop_assert!(["exists", "unique"].contains(&kind(&e))),
                    (Some(expected), Err(e)) => prop_assert_eq!(kind(&e), expected),
                    (expected, done) => prop_assert!(false, "{step:?}: {expected:?} {done:?}"),
                }
                match step {
                    Step::End(end) => {
                        commits = end;
                        break;
                    }
                    Step::Reopen => {
                        reopens = true;
                        break;
                    }
                    _ => {}
                }
            }
            // It sees what it has written, and nobody else does.
            prop_assert_eq!(tx.count::<Person>().unwrap(), model.len() as u64);
            let own: Vec<Person> = tx.query::<Person>().unwrap().collect().unwrap();
            prop_assert_eq!(own, model.values().cloned().collect::<Vec<_>>());
            if commits {
                tx.commit().unwrap();
            } else {
                drop(tx);
            }
            compare(&before, &committed, &probe);
            drop(before);
            if commits {
                committed = model;
            }
            if reopens {
                drop(db);
                db = open(&path);
            }
            let snapshot = db.snapshot().unwrap();
            compare(&snapshot, &committed, &probe);
            for paging in &mut pagings {
                paging.turn(&snapshot, &committed);
            }
        }
    }
}
