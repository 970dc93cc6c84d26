use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use zerocopy::byteorder::{self, BigEndian, LittleEndian};

use crate::fingerprint::{OFFSET, fold};
use crate::{FlatTable, Text};

/// A type whose layout is known to the compiler: a number that changes with the names, the order and the types of its fields.
///
/// Derive it, so that a changed type has another fingerprint. This also catches two fields of one type that change places, which
/// their bytes alone cannot tell.
///
/// ```
/// use brisk_cache::Layout;
///
/// #[derive(Layout)]
/// struct Before { width: u32, height: u32 }
/// #[derive(Layout)]
/// struct After { height: u32, width: u32 }
///
/// assert_ne!(Before::LAYOUT, After::LAYOUT);
/// ```
///
/// * The name of the type is no part of it. The names, the order and the fields of an enum's variants are.
/// * Describe a field of another crate's type in words: `#[layout = "chrono 0.4 date"]`. Do the same for a field through which a
///   type contains itself. Change the words when the type changes.
/// * Also put in words what the compiler does not see, such as the unit of a number or the order of rows: see
///   [`fingerprint_of`].
pub trait Layout {
    /// The number.
    const LAYOUT: u64;
}

/// The fingerprint of a layout whose values have this meaning beside it, for example `"sizes in KiB, sorted by name"`.
///
/// ```
/// use brisk_cache::{FlatTable, Layout, fingerprint_of};
///
/// assert_ne!(fingerprint_of::<u32>("in KiB"), fingerprint_of::<u32>("in MiB"));
/// ```
pub const fn fingerprint_of<T: Layout + ?Sized>(meaning: &str) -> u64 {
    fold(fold(OFFSET, &T::LAYOUT.to_le_bytes()), meaning.as_bytes())
}

/// The layout of a type that has these fields. For the derive macro.
#[doc(hidden)]
pub const fn layout_of_fields(fields: &[(&str, u64)]) -> u64 {
    let mut layout = fold(OFFSET, &(fields.len() as u64).to_le_bytes());
    let mut at = 0;
    while at < fields.len() {
        let (name, field) = fields[at];
        layout = fold(layout, &(name.len() as u64).to_le_bytes());
        layout = fold(layout, name.as_bytes());
        layout = fold(layout, &field.to_le_bytes());
        at += 1;
    }
    layout
}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => {$(
        impl Layout for $kind {
            const LAYOUT: u64 = crate::fingerprint(stringify!($kind));
        }
    )*};
}

plain!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    str,
    String,
    Text,
);

macro_rules! of_bytes {
    ($($kind:ident),* $(,)?) => {$(
        impl Layout for byteorder::$kind<LittleEndian> {
            const LAYOUT: u64 = crate::fingerprint(concat!("little-endian ", stringify!($kind)));
        }

        impl Layout for byteorder::$kind<BigEndian> {
            const LAYOUT: u64 = crate::fingerprint(concat!("big-endian ", stringify!($kind)));
        }
    )*};
}

of_bytes!(U16, U32, U64, U128, I16, I32, I64, I128, F32, F64);

macro_rules! of_parts {
    ($($name:literal: $kind:ty, $($part:ident),+;)*) => {$(
        impl<$($part: Layout),+> Layout for $kind {
            const LAYOUT: u64 = layout_of_fields(&[$(($name, $part::LAYOUT)),+]);
        }
    )*};
}

of_parts! {
    "option": Option<T>, T;
    "box": Box<T>, T;
    "rc": Rc<T>, T;
    "arc": Arc<T>, T;
    "list": Vec<T>, T;
    "list": Box<[T]>, T;
    "list": VecDeque<T>, T;
    "set": BTreeSet<T>, T;
    "map": BTreeMap<K, V>, K, V;
    "result": Result<T, E>, T, E;
    "tuple": (A,), A;
    "tuple": (A, B), A, B;
    "tuple": (A, B, C), A, B, C;
    "tuple": (A, B, C, D), A, B, C, D;
    "tuple": (A, B, C, D, E), A, B, C, D, E;
    "tuple": (A, B, C, D, E, F), A, B, C, D, E, F;
}

impl<T: Layout, const N: usize> Layout for [T; N] {
    const LAYOUT: u64 = layout_of_fields(&[("array", T::LAYOUT), ("", N as u64)]);
}

impl<T: Layout, S> Layout for HashSet<T, S> {
    const LAYOUT: u64 = layout_of_fields(&[("hash set", T::LAYOUT)]);
}

impl<K: Layout, V: Layout, S> Layout for HashMap<K, V, S> {
    const LAYOUT: u64 = layout_of_fields(&[("hash map", K::LAYOUT), ("", V::LAYOUT)]);
}

impl<T: Layout + ToOwned + ?Sized> Layout for Cow<'_, T> {
    const LAYOUT: u64 = T::LAYOUT;
}

impl<R: Layout> Layout for FlatTable<'_, R> {
    const LAYOUT: u64 = layout_of_fields(&[("table", R::LAYOUT)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint;
    use shapes::{
        Described, Form, Longer, Moved, Nested, Number, Other, Pair, Renamed, Sides, Signed, Swap,
        Swapped,
    };
    use zerocopy::{big_endian, little_endian};

    #[expect(dead_code, reason = "only their layouts are used")]
    mod shapes {
        use crate::Layout;

        #[derive(Layout)]
        pub struct Sides {
            width: u32,
            height: u32,
        }

        #[derive(Layout)]
        pub struct Other<T> {
            width: T,
            height: T,
        }

        #[derive(Layout)]
        pub struct Pair(u32, u32);

        /// Each differs from [`Sides`] in one thing.
        #[derive(Layout)]
        pub struct Swapped {
            height: u32,
            width: u32,
        }

        #[derive(Layout)]
        pub struct Renamed {
            width: u32,
            depth: u32,
        }

        #[derive(Layout)]
        pub struct Signed {
            width: u32,
            height: i32,
        }

        #[derive(Layout)]
        pub struct Longer {
            width: u32,
            height: u32,
            depth: (),
        }

        #[derive(Layout)]
        pub struct Nested {
            sides: Sides,
        }

        #[derive(Layout)]
        pub struct Described {
            width: u32,
            #[layout = "height of another crate"]
            height: std::num::NonZeroU32,
        }

        #[derive(Layout)]
        pub enum Form {
            Point,
            Line { width: u32 },
            Box(u32, u32),
        }

        #[derive(Layout)]
        pub enum Swap {
            Line { width: u32 },
            Point,
            Box(u32, u32),
        }

        #[derive(Layout)]
        pub enum Number {
            One = 1,
            Two = 2,
        }

        #[derive(Layout)]
        pub enum Moved {
            One = 1,
            Two = 3,
        }
    }

    #[test]
    fn a_layout_changes_with_names_order_and_types_of_fields() {
        // What is stored must be found by the next version of this crate.
        assert_eq!(Sides::LAYOUT, 15_472_278_367_522_265_983);
        assert_eq!(Sides::LAYOUT, Other::<u32>::LAYOUT);
        let layouts = [
            Sides::LAYOUT,
            Swapped::LAYOUT,
            Renamed::LAYOUT,
            Signed::LAYOUT,
            Longer::LAYOUT,
            Nested::LAYOUT,
            Described::LAYOUT,
            Pair::LAYOUT,
            <(u32, u32)>::LAYOUT,
            <[u32; 2]>::LAYOUT,
            <[u32; 3]>::LAYOUT,
            Form::LAYOUT,
            Swap::LAYOUT,
            Number::LAYOUT,
            Moved::LAYOUT,
            Vec::<u32>::LAYOUT,
            Option::<u32>::LAYOUT,
            HashMap::<u32, u32>::LAYOUT,
            BTreeMap::<u32, u32>::LAYOUT,
            little_endian::U32::LAYOUT,
            big_endian::U32::LAYOUT,
            u32::LAYOUT,
            FlatTable::<Sides>::LAYOUT,
            FlatTable::<Swapped>::LAYOUT,
            fingerprint_of::<Sides>(""),
            fingerprint_of::<Sides>("in inches"),
            fingerprint("width u32, height u32"),
        ];
        let different: HashSet<u64> = layouts.into_iter().collect();
        assert_eq!(different.len(), layouts.len());
    }
}
