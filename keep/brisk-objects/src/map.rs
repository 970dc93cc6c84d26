use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use crate::key::{AsKey, Key};
use crate::key_bytes::KeyBytes;
use crate::kind::Type;
use crate::value::{Place, Value, ValueWriter};

/// A look at a stored map, which has its keys in their order.
pub struct Map<'a, K: Value, V: Value> {
    /// The first key, in bytes that end where the parts of fixed width of all entries do.
    entries: Place<'a>,
    /// The bytes of the record.
    record: Place<'a>,
    entry: PhantomData<fn() -> (K, V)>,
}

impl<'a, K: Value, V: Value> Map<'a, K, V> {
    const WIDTH: usize = K::WIDTH + V::WIDTH;

    fn new(place: Place<'a>) -> Self {
        Self {
            entries: place.heap(Self::WIDTH),
            record: place,
            entry: PhantomData,
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        let bytes = self.entries.rest().len();
        bytes.checked_div(Self::WIDTH).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, number: usize) -> Place<'a> {
        let first = self.entries.within(self.record);
        first.behind(number * Self::WIDTH)
    }

    fn key(&self, number: usize) -> K::View<'a> {
        K::view_at(self.place(number))
    }

    fn value(&self, number: usize) -> V::View<'a> {
        V::view_at(self.place(number).behind(K::WIDTH))
    }

    /// The value of a key. It looks at some keys, and not at all.
    pub fn get<Q: AsKey<K>>(&self, key: Q) -> Option<V::View<'a>>
    where
        K::View<'a>: AsKey<K>,
    {
        let wanted = encoded::<K>(&key);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match encoded::<K>(&self.key(middle)).cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(self.value(middle)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All keys and their values, in the order of the keys.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (K::View<'a>, V::View<'a>)> + use<'a, K, V> {
        let map = *self;
        (0..map.len()).map(move |number| (map.key(number), map.value(number)))
    }
}

impl<K: Value, V: Value> Clone for Map<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Value, V: Value> Copy for Map<'_, K, V> {}

impl<'a, K: Value, V: Value> fmt::Debug for Map<'a, K, V>
where
    K::View<'a>: fmt::Debug,
    V::View<'a>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The bytes that a key sorts by.
fn encoded<K>(key: &impl AsKey<K>) -> KeyBytes {
    let mut bytes = KeyBytes::new();
    key.encode_key(&mut bytes);
    bytes
}

/// Writes the entries of a map, in the order of their keys.
fn write<'m, K: Value + Key + 'm, V: Value + 'm>(
    entries: impl Iterator<Item = (&'m K, &'m V)>,
    out: &mut ValueWriter<'_>,
    at: usize,
) {
    const {
        assert!(
            K::WIDTH + V::WIDTH > 0,
            "a map of values without bytes has no length"
        );
    };
    let keyed = entries.map(|(key, value)| (encoded::<K>(key), key, value));
    let mut entries: Vec<_> = keyed.collect();
    entries.sort_by(|one, two| one.0.cmp(&two.0));
    let width = K::WIDTH + V::WIDTH;
    let start = out.add(at, entries.len(), width);
    for (number, (_, key, value)) in entries.into_iter().enumerate() {
        let at = start + number * width;
        key.write(out, at);
        value.write(out, at + K::WIDTH);
    }
}

impl<K: Value + Key + Ord, V: Value> Value for BTreeMap<K, V> {
    const WIDTH: usize = 8;
    const TYPE: Type = Type::Map(&K::TYPE, &V::TYPE);
    type View<'a> = Map<'a, K, V>;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        write(self.iter(), out, at);
    }

    #[inline]
    fn view_at(place: Place<'_>) -> Map<'_, K, V> {
        Map::new(place)
    }

    fn owned(view: Map<'_, K, V>) -> Self {
        let entries = view.iter();
        entries
            .map(|(key, value)| (K::owned(key), V::owned(value)))
            .collect()
    }
}

impl<K: Value + Key + Eq + Hash, V: Value, S: BuildHasher + Default> Value for HashMap<K, V, S> {
    const WIDTH: usize = 8;
    const TYPE: Type = Type::Map(&K::TYPE, &V::TYPE);
    type View<'a> = Map<'a, K, V>;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        write(self.iter(), out, at);
    }

    #[inline]
    fn view_at(place: Place<'_>) -> Map<'_, K, V> {
        Map::new(place)
    }

    fn owned(view: Map<'_, K, V>) -> Self {
        let entries = view.iter();
        entries
            .map(|(key, value)| (K::owned(key), V::owned(value)))
            .collect()
    }
}
