//! Keys as bytes that sort as the keys do.
//!
//! No key's bytes are the beginning of another one's, so keys that stand one behind another sort as tuples do, and what
//! comes behind a key is found without a length.

use std::fmt::Debug;
use std::time::SystemTime;

use crate::key_bytes::KeyBytes;
use crate::list::List;
use crate::value::{parts_of, time_of};

/// A type that records are found by: as their key, or in an index.
///
/// Booleans, numbers, text, bytes, byte arrays, moments, options and tuples of up to 8 keys are; enums whose variants have no
/// values, if they derive [`Value`](crate::Value); UUIDs, too, with the feature `uuid`. Numbers with a binary point are
/// ordered by IEEE 754's total order: negative NaN, -infinity, …, -0, +0, …, infinity, NaN. An option without a value is
/// before all others.
pub trait Key: AsKey<Self> + Debug + Sized {
    /// Takes a key from the front of bytes. None if they do not begin with one.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;

    /// Passes over a key at the front of bytes.
    fn skip(bytes: &mut &[u8]) -> Option<()> {
        Self::decode(bytes).map(|_key| ())
    }
}

/// A value that stands for a key of type `K`: the key itself, or what it would be borrowed as.
pub trait AsKey<K> {
    /// Writes the bytes of the key.
    fn encode_key(&self, out: &mut KeyBytes);

    /// Whether this is an option without a value. Such ones never break a unique index.
    #[inline]
    fn is_missing(&self) -> bool {
        false
    }
}

/// Values that stand for the first parts of a key of type `K`, which is a tuple.
pub trait AsKeyPrefix<K> {
    /// Writes the bytes of these parts.
    fn encode_prefix(&self, out: &mut KeyBytes);
}

impl<K, Q: AsKey<K> + ?Sized> AsKey<K> for &Q {
    #[inline]
    fn encode_key(&self, out: &mut KeyBytes) {
        (**self).encode_key(out);
    }

    #[inline]
    fn is_missing(&self) -> bool {
        (**self).is_missing()
    }
}

#[inline]
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! numbers {
    ($($number:ty, $bits:ty: $to:expr, $from:expr;)*) => {
        $(impl AsKey<$number> for $number {
            #[inline]
            fn encode_key(&self, out: &mut KeyBytes) {
                let to: fn($number) -> $bits = $to;
                out.extend_from_slice(&to(*self).to_be_bytes());
            }
        }

        impl Key for $number {
            #[inline]
            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                let from: fn($bits) -> $number = $from;
                take(bytes).map(|bits| from(<$bits>::from_be_bytes(bits)))
            }
        })*
    };
}

numbers! {
    u8, u8: |n| n, |n| n;
    u16, u16: |n| n, |n| n;
    u32, u32: |n| n, |n| n;
    u64, u64: |n| n, |n| n;
    u128, u128: |n| n, |n| n;
    // With the sign's bit turned over, negative numbers come first.
    i8, u8: |n| n.cast_unsigned() ^ (1 << 7), |n| (n ^ (1 << 7)).cast_signed();
    i16, u16: |n| n.cast_unsigned() ^ (1 << 15), |n| (n ^ (1 << 15)).cast_signed();
    i32, u32: |n| n.cast_unsigned() ^ (1 << 31), |n| (n ^ (1 << 31)).cast_signed();
    i64, u64: |n| n.cast_unsigned() ^ (1 << 63), |n| (n ^ (1 << 63)).cast_signed();
    i128, u128: |n| n.cast_unsigned() ^ (1 << 127), |n| (n ^ (1 << 127)).cast_signed();
    // Of negative ones all bits are turned over: the greater their magnitude, the earlier they come.
    f32, u32: |n| flip_32(n.to_bits()), |n| f32::from_bits(unflip_32(n));
    f64, u64: |n| flip_64(n.to_bits()), |n| f64::from_bits(unflip_64(n));
}

fn flip_32(bits: u32) -> u32 {
    if bits >> 31 == 1 {
        !bits
    } else {
        bits ^ (1 << 31)
    }
}

fn unflip_32(bits: u32) -> u32 {
    if bits >> 31 == 1 {
        bits ^ (1 << 31)
    } else {
        !bits
    }
}

fn flip_64(bits: u64) -> u64 {
    if bits >> 63 == 1 {
        !bits
    } else {
        bits ^ (1 << 63)
    }
}

fn unflip_64(bits: u64) -> u64 {
    if bits >> 63 == 1 {
        bits ^ (1 << 63)
    } else {
        !bits
    }
}

impl AsKey<bool> for bool {
    fn encode_key(&self, out: &mut KeyBytes) {
        out.push(u8::from(*self));
    }
}

impl Key for bool {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> AsKey<[u8; N]> for [u8; N] {
    fn encode_key(&self, out: &mut KeyBytes) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Key for [u8; N] {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

/// A zero is followed by this byte. At the end, another zero follows.
const ESCAPED: u8 = 0xff;

/// The bytes of text of any length, but not its end.
#[inline]
pub(crate) fn encode_open(mut bytes: &[u8], out: &mut KeyBytes) {
    while let Some(zero) = bytes.iter().position(|&byte| byte == 0) {
        let (before, rest) = bytes.split_at(zero + 1);
        out.extend_from_slice(before);
        out.push(ESCAPED);
        bytes = rest;
    }
    out.extend_from_slice(bytes);
}

#[inline]
fn encode_text(bytes: &[u8], out: &mut KeyBytes) {
    encode_open(bytes, out);
    out.extend_from_slice(&[0, 0]);
}

/// Passes over text, and has `each` take its pieces.
fn pieces(bytes: &mut &[u8], mut each: impl FnMut(&[u8])) -> Option<()> {
    loop {
        let zero = bytes.iter().position(|&byte| byte == 0)?;
        let (piece, rest) = bytes.split_at(zero);
        each(piece);
        let (&[_, next], rest) = rest.split_first_chunk()?;
        *bytes = rest;
        match next {
            0 => return Some(()),
            ESCAPED => each(&[0]),
            _ => return None,
        }
    }
}

fn decode_text(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    pieces(bytes, |piece| text.extend_from_slice(piece))?;
    Some(text)
}

macro_rules! texts {
    ($($key:ty: $($borrowed:ty),*;)*) => {
        $($(impl AsKey<$key> for $borrowed {
            #[inline]
            fn encode_key(&self, out: &mut KeyBytes) {
                encode_text(self.as_bytes(), out);
            }
        })*)*
    };
}

/// Bytes, by the name that text has for them.
trait AsBytes {
    fn as_bytes(&self) -> &[u8];
}

impl AsBytes for [u8] {
    fn as_bytes(&self) -> &[u8] {
        self
    }
}

texts! {
    String: String, str;
    Vec<u8>: Vec<u8>, [u8], List<'_, u8>;
}

impl Key for String {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(decode_text(bytes)?).ok()
    }

    fn skip(bytes: &mut &[u8]) -> Option<()> {
        pieces(bytes, |_| ())
    }
}

impl Key for Vec<u8> {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        decode_text(bytes)
    }

    fn skip(bytes: &mut &[u8]) -> Option<()> {
        pieces(bytes, |_| ())
    }
}

impl AsKey<SystemTime> for SystemTime {
    fn encode_key(&self, out: &mut KeyBytes) {
        parts_of(*self).encode_key(out);
    }
}

impl Key for SystemTime {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        <(i64, u32)>::decode(bytes).map(|(seconds, nanos)| time_of(seconds, nanos))
    }
}

impl<K, Q: AsKey<K>> AsKey<Option<K>> for Option<Q> {
    #[inline]
    fn encode_key(&self, out: &mut KeyBytes) {
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_key(out);
        }
    }

    #[inline]
    fn is_missing(&self) -> bool {
        self.is_none()
    }
}

impl<K: Key> Key for Option<K> {
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match bool::decode(bytes)? {
            false => Some(None),
            true => K::decode(bytes).map(Some),
        }
    }

    fn skip(bytes: &mut &[u8]) -> Option<()> {
        match bool::decode(bytes)? {
            false => Some(()),
            true => K::skip(bytes),
        }
    }
}

macro_rules! tuples {
    ($($($key:ident $query:ident $at:tt),+;)*) => {
        $(impl<$($key, $query: AsKey<$key>),+> AsKey<($($key,)+)> for ($($query,)+) {
            #[inline]
            fn encode_key(&self, out: &mut KeyBytes) {
                $(self.$at.encode_key(out);)+
            }
        }

        impl<$($key: Key),+> Key for ($($key,)+) {
            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($key::decode(bytes)?,)+))
            }

            fn skip(bytes: &mut &[u8]) -> Option<()> {
                $($key::skip(bytes)?;)+
                Some(())
            }
        })*
    };
}

tuples! {
    A P 0;
    A P 0, B Q 1;
    A P 0, B Q 1, C R 2;
    A P 0, B Q 1, C R 2, D S 3;
    A P 0, B Q 1, C R 2, D S 3, E T 4;
    A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5;
    A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6;
    A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6, H W 7;
}

macro_rules! prefixes {
    ($(($($key:ident),+): $($part:ident $query:ident $at:tt),+;)*) => {
        $(impl<$($key,)+ $($query: AsKey<$part>),+> AsKeyPrefix<($($key,)+)> for ($($query,)+) {
            fn encode_prefix(&self, out: &mut KeyBytes) {
                $(self.$at.encode_key(out);)+
            }
        })*
    };
}

prefixes! {
    (A, B): A P 0;
    (A, B, C): A P 0;
    (A, B, C): A P 0, B Q 1;
    (A, B, C, D): A P 0;
    (A, B, C, D): A P 0, B Q 1;
    (A, B, C, D): A P 0, B Q 1, C R 2;
    (A, B, C, D, E): A P 0;
    (A, B, C, D, E): A P 0, B Q 1;
    (A, B, C, D, E): A P 0, B Q 1, C R 2;
    (A, B, C, D, E): A P 0, B Q 1, C R 2, D S 3;
    (A, B, C, D, E, F): A P 0;
    (A, B, C, D, E, F): A P 0, B Q 1;
    (A, B, C, D, E, F): A P 0, B Q 1, C R 2;
    (A, B, C, D, E, F): A P 0, B Q 1, C R 2, D S 3;
    (A, B, C, D, E, F): A P 0, B Q 1, C R 2, D S 3, E T 4;
    (A, B, C, D, E, F, G): A P 0;
    (A, B, C, D, E, F, G): A P 0, B Q 1;
    (A, B, C, D, E, F, G): A P 0, B Q 1, C R 2;
    (A, B, C, D, E, F, G): A P 0, B Q 1, C R 2, D S 3;
    (A, B, C, D, E, F, G): A P 0, B Q 1, C R 2, D S 3, E T 4;
    (A, B, C, D, E, F, G): A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5;
    (A, B, C, D, E, F, G, H): A P 0;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1, C R 2;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1, C R 2, D S 3;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1, C R 2, D S 3, E T 4;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5;
    (A, B, C, D, E, F, G, H): A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6;
}

/// A key in words, as an error shows it.
pub fn describe_key<K: Key>(bytes: &[u8]) -> String {
    match K::decode(&mut &*bytes) {
        Some(key) => format!("{key:?}"),
        None => format!("{bytes:02x?}"),
    }
}

/// The first bytes behind all that begin with these. None if nothing is behind them.
pub(crate) fn behind(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        let mut bytes = KeyBytes::new();
        key.encode_key(&mut bytes);
        bytes.to_vec()
    }

    /// Keys sort as their bytes do, also with something behind them, and come back.
    fn sorts<K: Key>(one: &K, two: &K, order: Ordering) {
        let (a, b) = (bytes(one), bytes(two));
        assert_eq!(a.cmp(&b), order, "{one:?} {two:?}");
        if order != Ordering::Equal {
            let behind = [
                [a.clone(), vec![0xff; 3]].concat(),
                [b.clone(), vec![0; 3]].concat(),
            ];
            assert_eq!(behind[0].cmp(&behind[1]), order, "{one:?} {two:?}");
            assert!(!b.starts_with(&a) && !a.starts_with(&b));
        }
        for key in [one, two] {
            let whole = [bytes(key), vec![7, 0, 0]].concat();
            let mut rest = whole.as_slice();
            let back = K::decode(&mut rest).unwrap();
            assert_eq!((bytes(&back), rest), (bytes(key), [7, 0, 0].as_slice()));
            let mut skipped = whole.as_slice();
            K::skip(&mut skipped).unwrap();
            assert_eq!(skipped, rest);
        }
    }

    fn ordered<K: Key + Ord>(one: K, two: K) {
        let order = one.cmp(&two);
        sorts(&one, &two, order);
        sorts(&Some(&one).map(|_| 1u8), &None, Ordering::Greater);
    }

    /// Texts that have zeros and are alike.
    fn text() -> impl Strategy<Value = String> {
        proptest::string::string_regex("[a\u{0}\u{1}\u{ff}\u{10ffff}]{0,5}").unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn keys_sort_as_their_bytes_do(
            a in any::<(u64, i64, i8, u128, i128, bool)>(),
            b in any::<(u64, i64, i8, u128, i128, bool)>(),
            texts in (text(), text(), text(), text()),
            many in any::<([u8; 4], [u8; 4])>(),
        ) {
            ordered(a.0, b.0);
            ordered(a.1, b.1);
            ordered(a.2, b.2);
            ordered(a.3, b.3);
            ordered(a.4, b.4);
            ordered(a.5, b.5);
            ordered(many.0, many.1);
            ordered(a.0 as u16, b.0 as u16);
            ordered(a.1 as i32, b.1 as i32);
            let (t, u, v, w) = texts;
            ordered(t.clone(), u.clone());
            ordered(t.clone().into_bytes(), u.clone().into_bytes());
            ordered((t.clone(), a.1), (u.clone(), b.1));
            ordered((a.5, t.clone(), v.clone()), (b.5, u.clone(), w.clone()));
            ordered((a.5, t, Some(v), a.2), (b.5, u, Some(w), b.2));
            let moment = |(seconds, nanos): (i64, u64)| time_of(seconds >> 20, nanos as u32 % 1_000_000_000);
            ordered(moment((a.1, a.0)), moment((b.1, b.0)));
        }

        #[test]
        fn floats_sort_by_their_total_order(a in any::<f64>(), b in any::<f64>(), c in any::<f32>(), d in any::<f32>()) {
            sorts(&a, &b, a.total_cmp(&b));
            sorts(&c, &d, c.total_cmp(&d));
        }

        #[test]
        fn what_is_no_key_is_none(bytes in any::<Vec<u8>>()) {
            let mut rest = bytes.as_slice();
            <(Option<String>, bool, SystemTime)>::decode(&mut rest);
            let mut rest = bytes.as_slice();
            <(Vec<u8>, f64, Option<i128>)>::skip(&mut rest);
        }

        /// All that begin with a prefix lie between it and what is behind it.
        #[test]
        fn nothing_lies_between(prefix in any::<Vec<u8>>(), more in any::<Vec<u8>>()) {
            let whole = [prefix.clone(), more.clone()].concat();
            if let Some(end) = behind(prefix.clone()) {
                prop_assert!(prefix <= whole && whole < end);
                prop_assert!(more.starts_with(&prefix) || more < prefix || more >= end);
            }
        }
    }

    #[test]
    fn extreme_floats_sort() {
        let all = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -1.0,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            f64::MIN_POSITIVE,
            1.0,
            f64::INFINITY,
            f64::NAN,
        ];
        for (one, two) in all.iter().zip(&all[1..]) {
            sorts(one, two, Ordering::Less);
        }
    }

    /// The bytes of version 1. They never change.
    #[test]
    fn the_bytes_of_keys() {
        assert_eq!(bytes(&1u32), [0, 0, 0, 1]);
        assert_eq!(bytes(&-1i16), [0x7f, 0xff]);
        assert_eq!(bytes(&1.0f32), [0xbf, 0x80, 0, 0]);
        assert_eq!(bytes(&"a\0b".to_owned()), [b'a', 0, 0xff, b'b', 0, 0]);
        assert_eq!(bytes(&Some(true)), [1, 1]);
        assert_eq!(bytes(&None::<u64>), [0]);
        assert_eq!(bytes(&(7u8, [1u8, 2])), [7, 1, 2]);
        let time = time_of(-1, 5);
        assert_eq!(
            bytes(&time),
            [0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 5]
        );
    }

    #[test]
    fn parts_stand_for_wholes() {
        let mut prefix = KeyBytes::new();
        AsKeyPrefix::<(String, i64, bool)>::encode_prefix(&("a", 5), &mut prefix);
        assert!(bytes(&("a".to_owned(), 5i64, true)).starts_with(&prefix));
        assert_eq!(describe_key::<(String, u8)>(&[b'x', 0, 0, 9]), "(\"x\", 9)");
    }
}
