//! Values as they are stored in a record: a part of fixed width for each, and a heap behind all of them.

use std::time::{Duration, SystemTime};

use crate::kind::{TIME_WIDTH, Type};
use crate::list::List;

/// A type that a record can have as a field.
///
/// Booleans, numbers, text, byte arrays, moments, options, lists and maps of values are. A struct of values becomes one by
/// `#[derive(Value)]`, and so does an enum, whose variants can have values:
///
/// ```
/// use std::collections::BTreeMap;
///
/// use brisk_objects::{Record, Value};
///
/// #[derive(Value, Debug, Clone, Copy, PartialEq)]
/// enum State {
///     Open,
///     Paid,
/// }
///
/// #[derive(Value, Debug, Clone, PartialEq)]
/// enum Address {
///     None,
///     Box(u32),
///     Street { name: String, number: u16 },
/// }
///
/// #[derive(Record)]
/// struct Customer {
///     #[key]
///     id: u64,
///     #[index]
///     state: State,
///     address: Address,
///     notes: BTreeMap<String, String>,
/// }
///
/// fn show(customer: &CustomerView<'_>) {
///     match customer.address() {
///         AddressView::None => println!("nowhere"),
///         AddressView::Box(number) => println!("box {number}"),
///         AddressView::Street { name, number } => println!("{name} {number}"),
///     }
///     if customer.state() == State::Open {
///         println!("{:?}", customer.notes().get("reminded"));
///     }
/// }
/// ```
///
/// * An enum whose variants have no values is its own view. It derives `Debug`, `Clone` and `Copy`, too, and can be a key or be in
///   an index. It sorts by the order of its variants.
/// * Another one has a view with the same variants, which borrow: `AddressView`. Every value takes the bytes of the longest variant,
///   beside what is in the heap.
/// * A map is a `BTreeMap` or a `HashMap` whose keys can be keys of records. It is stored in their order.
/// * A variant that is added changes the layout, as a field does: give a migration.
pub trait Value: Sized {
    /// Bytes of the part of fixed width.
    const WIDTH: usize;
    /// The type in the schema.
    const TYPE: Type;
    /// A look at a stored value. It copies nothing.
    type View<'a>;

    /// Writes the value. Its part of fixed width is at `at`.
    fn write(&self, out: &mut ValueWriter<'_>, at: usize);

    /// The value at a place.
    fn view_at(place: Place<'_>) -> Self::View<'_>;

    /// A copy that borrows nothing.
    fn owned(view: Self::View<'_>) -> Self;
}

/// Where a value is in the bytes of a record.
///
/// What a place reads was checked as a whole before: see [`Record`](crate::Record). Somebody who forges the check can make
/// a value say that it lies outside of the record. Then it reads as zero, or as empty.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    record: &'a [u8],
    at: usize,
}

impl<'a> Place<'a> {
    /// The value that is all of a record. None if the bytes are too few for it.
    #[inline]
    pub fn of_value<V: Value>(record: &'a [u8]) -> Option<Self> {
        (record.len() >= V::WIDTH).then_some(Self { record, at: 0 })
    }

    /// The place so many bytes behind this.
    #[inline]
    pub fn behind(self, bytes: usize) -> Self {
        let at = self.at.saturating_add(bytes);
        Self { at, ..self }
    }

    /// So many bytes at this place.
    #[inline]
    fn bytes<const N: usize>(self) -> [u8; N] {
        let from_here = self.record.get(self.at..).unwrap_or_default();
        from_here.first_chunk().copied().unwrap_or([0; N])
    }

    /// The bytes in the heap that a reference at this place means, whose unit has so many bytes.
    #[inline]
    pub(crate) fn heap(self, unit: usize) -> Self {
        let reference = u64::from_le_bytes(self.bytes());
        let (start, count) = (reference as u32 as usize, (reference >> 32) as usize);
        let part = count
            .checked_mul(unit)
            .and_then(|len| self.record.get(..start.checked_add(len)?));
        match part {
            Some(record) => Self { record, at: start },
            None => Self { record: &[], at: 0 },
        }
    }

    /// All bytes from this place on.
    #[inline]
    pub(crate) fn rest(self) -> &'a [u8] {
        self.record.get(self.at..).unwrap_or_default()
    }

    /// The same place in bytes that end later.
    #[inline]
    pub(crate) fn within(self, whole: Self) -> Self {
        Self {
            record: whole.record,
            at: self.at,
        }
    }
}

/// The bytes of a record that is being written.
#[derive(Debug)]
pub struct ValueWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// Where the record begins.
    start: usize,
    /// The heap is longer than a reference can say.
    is_too_long: bool,
}

impl<'a> ValueWriter<'a> {
    /// Writes a value behind other bytes. None if it has more than 4 GiB.
    pub(crate) fn write<V: Value>(value: &V, bytes: &'a mut Vec<u8>) -> Option<()> {
        Self::write_by(bytes, V::WIDTH, |writer| value.write(writer, 0))
    }

    /// The same of a value that `write` writes, whose part of fixed width has so many bytes.
    pub(crate) fn write_by(
        bytes: &'a mut Vec<u8>,
        width: usize,
        write: impl FnOnce(&mut Self),
    ) -> Option<()> {
        let start = bytes.len();
        bytes.resize(start + width, 0);
        let mut writer = Self {
            bytes,
            start,
            is_too_long: false,
        };
        write(&mut writer);
        (!writer.is_too_long).then_some(())
    }

    /// Puts bytes of fixed width at a place.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let at = self.start + at;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Adds zeros to the heap and puts a reference to them at a place: to so many units. Returns where they begin.
    pub(crate) fn add(&mut self, at: usize, count: usize, unit: usize) -> usize {
        let start = self.bytes.len() - self.start;
        self.bytes.resize(self.bytes.len() + count * unit, 0);
        match (u32::try_from(start), u32::try_from(count)) {
            (Ok(start), Ok(count)) => {
                let reference = u64::from(start) | u64::from(count) << 32;
                self.put(at, &reference.to_le_bytes());
            }
            _ => self.is_too_long = true,
        }
        start
    }
}

macro_rules! numbers {
    ($kind:ident: $($number:ty),*) => {
        $(impl Value for $number {
            const WIDTH: usize = size_of::<$number>();
            const TYPE: Type = Type::$kind(size_of::<$number>() as u8);
            type View<'a> = $number;

            fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
                out.put(at, &self.to_le_bytes());
            }

            #[inline]
            fn view_at(place: Place<'_>) -> Self {
                Self::from_le_bytes(place.bytes())
            }

            fn owned(view: Self) -> Self {
                view
            }
        })*
    };
}

numbers!(Unsigned: u8, u16, u32, u64, u128);
numbers!(Signed: i8, i16, i32, i64, i128);
numbers!(Float: f32, f64);

impl Value for bool {
    const WIDTH: usize = 1;
    const TYPE: Type = Type::Bool;
    type View<'a> = bool;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        out.put(at, &[u8::from(*self)]);
    }

    #[inline]
    fn view_at(place: Place<'_>) -> bool {
        place.bytes() != [0]
    }

    fn owned(view: bool) -> bool {
        view
    }
}

impl<const N: usize> Value for [u8; N] {
    const WIDTH: usize = N;
    const TYPE: Type = Type::Array(N);
    type View<'a> = [u8; N];

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        out.put(at, self);
    }

    #[inline]
    fn view_at(place: Place<'_>) -> [u8; N] {
        place.bytes()
    }

    fn owned(view: [u8; N]) -> [u8; N] {
        view
    }
}

impl Value for String {
    const WIDTH: usize = 8;
    const TYPE: Type = Type::Text;
    type View<'a> = &'a str;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        let start = out.add(at, self.len(), 1);
        out.put(start, self.as_bytes());
    }

    #[inline]
    fn view_at(place: Place<'_>) -> &str {
        std::str::from_utf8(place.heap(1).rest()).unwrap_or_default()
    }

    fn owned(view: &str) -> String {
        view.to_owned()
    }
}

/// The largest of some widths. For the derive macro.
#[doc(hidden)]
pub const fn widest(widths: &[usize]) -> usize {
    let (mut most, mut at) = (0, 0);
    while at < widths.len() {
        if widths[at] > most {
            most = widths[at];
        }
        at += 1;
    }
    most
}

/// The seconds since 1970, rounded down, and the nanoseconds of the second.
pub(crate) fn parts_of(time: SystemTime) -> (i64, u32) {
    let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (signed(after.as_secs()), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-signed(before.as_secs()), 0),
                nanos => (-signed(before.as_secs()) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// The moment of these parts. The first one of 1970 if the system cannot say it.
pub(crate) fn time_of(seconds: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(whole),
        false => SystemTime::UNIX_EPOCH.checked_add(whole),
    };
    start
        .and_then(|start| start.checked_add(Duration::from_nanos(nanos.into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

impl Value for SystemTime {
    const WIDTH: usize = TIME_WIDTH;
    const TYPE: Type = Type::Time;
    type View<'a> = SystemTime;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        let (seconds, nanos) = parts_of(*self);
        out.put(at, &seconds.to_le_bytes());
        out.put(at + 8, &nanos.to_le_bytes());
    }

    fn view_at(place: Place<'_>) -> SystemTime {
        let seconds = i64::from_le_bytes(place.bytes());
        time_of(seconds, u32::from_le_bytes(place.behind(8).bytes()))
    }

    fn owned(view: SystemTime) -> SystemTime {
        view
    }
}

impl<V: Value> Value for Option<V> {
    const WIDTH: usize = 1 + V::WIDTH;
    const TYPE: Type = Type::Option(&V::TYPE);
    type View<'a> = Option<V::View<'a>>;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        if let Some(value) = self {
            out.put(at, &[1]);
            value.write(out, at + 1);
        }
    }

    #[inline]
    fn view_at(place: Place<'_>) -> Option<V::View<'_>> {
        bool::view_at(place).then(|| V::view_at(place.behind(1)))
    }

    fn owned(view: Option<V::View<'_>>) -> Option<V> {
        view.map(V::owned)
    }
}

impl<V: Value> Value for Vec<V> {
    const WIDTH: usize = 8;
    const TYPE: Type = Type::List(&V::TYPE);
    type View<'a> = List<'a, V>;

    fn write(&self, out: &mut ValueWriter<'_>, at: usize) {
        const { assert!(V::WIDTH > 0, "a list of values without bytes has no length") };
        let start = out.add(at, self.len(), V::WIDTH);
        for (number, value) in self.iter().enumerate() {
            value.write(out, start + number * V::WIDTH);
        }
    }

    #[inline]
    fn view_at(place: Place<'_>) -> List<'_, V> {
        List::new(place)
    }

    fn owned(view: List<'_, V>) -> Vec<V> {
        view.iter().map(V::owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    fn stored<V: Value>(value: &V) -> Vec<u8> {
        // Behind other bytes.
        let mut bytes = vec![0xaa; 5];
        ValueWriter::write(value, &mut bytes).unwrap();
        bytes.split_off(5)
    }

    fn survives<V: Value + PartialEq + Debug>(value: V) {
        let bytes = stored(&value);
        let back = V::owned(V::view_at(Place::of_value::<V>(&bytes).unwrap()));
        assert_eq!(back, value);
    }

    type Nested = Vec<Option<(Vec<String>, i64)>>;

    /// Tuples are no values, so the pairs are stored as two lists.
    fn nested(all: Nested) {
        survives(
            all.iter()
                .map(|one| one.as_ref().map(|one| one.1))
                .collect::<Vec<_>>(),
        );
        survives(
            all.into_iter()
                .map(|one| one.map(|one| one.0))
                .collect::<Vec<_>>(),
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            text in any::<Option<String>>(),
            bytes in any::<Vec<u8>>(),
            time in any::<(i32, u32)>(),
            numbers in any::<(u128, i16, f64, bool)>(),
            all in any::<Nested>(),
        ) {
            survives(text);
            survives(bytes);
            survives(time_of(time.0.into(), time.1 % 1_000_000_000));
            survives(numbers.0);
            survives(numbers.1);
            survives(numbers.3);
            survives([numbers.0.to_le_bytes()[0]; 3]);
            let float = stored(&numbers.2);
            prop_assert_eq!(float, numbers.2.to_le_bytes());
            nested(all);
        }

        /// What somebody has forged is read all the same, and nothing outside of it.
        #[test]
        fn forged_bytes_are_read(bytes in any::<Vec<u8>>()) {
            type Deep = Vec<Option<Vec<String>>>;
            if let Some(place) = Place::of_value::<Deep>(&bytes) {
                let owned = Deep::view_at(place).iter().take(100).map(Option::owned);
                let count = owned.map(|one: Option<Vec<String>>| one.map_or(0, |one| one.len())).sum::<usize>();
                prop_assert!(count <= bytes.len().saturating_mul(100));
            }
            if let Some(place) = Place::of_value::<SystemTime>(&bytes) {
                SystemTime::view_at(place);
            }
        }
    }
}
