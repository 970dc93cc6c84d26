use std::fmt;
use std::marker::PhantomData;

use crate::value::{Place, Value};

/// A look at a stored list.
pub struct List<'a, V: Value> {
    /// The first value, in bytes that end where the list's parts of fixed width do.
    items: Place<'a>,
    /// The bytes of the record.
    record: Place<'a>,
    value: PhantomData<fn() -> V>,
}

impl<'a, V: Value> List<'a, V> {
    pub(crate) fn new(place: Place<'a>) -> Self {
        Self {
            items: place.heap(V::WIDTH),
            record: place,
            value: PhantomData,
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.items.rest().len().checked_div(V::WIDTH).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a number, from 0 on.
    pub fn get(&self, number: usize) -> Option<V::View<'a>> {
        (number < self.len()).then(|| self.view(number))
    }

    fn view(&self, number: usize) -> V::View<'a> {
        V::view_at(self.items.within(self.record).behind(number * V::WIDTH))
    }

    /// All values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = V::View<'a>> + use<'a, V> {
        let list = *self;
        (0..list.len()).map(move |number| list.view(number))
    }
}

impl<'a> List<'a, u8> {
    /// The bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.items.rest()
    }
}

impl<V: Value> Clone for List<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Value> Copy for List<'_, V> {}

impl<'a, V: Value> fmt::Debug for List<'a, V>
where
    V::View<'a>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
