use std::fmt;

use crate::key_bytes::KeyBytes;
use crate::kind::Type;
use crate::value::ValueWriter;

/// A value of any type that a [`Schema`](crate::Schema) names.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Plain {
    /// Of type `bool`.
    Bool(bool),
    /// A number without a sign.
    Unsigned(u128),
    /// A number with a sign.
    Signed(i128),
    /// Of type `f32`.
    Float32(f32),
    /// Of type `f64`.
    Float64(f64),
    /// Text.
    Text(String),
    /// A moment: seconds since 1970, rounded down, and nanoseconds of the second.
    Time(i64, u32),
    /// Of type `bytes<N>`, or a list of `u8`.
    Bytes(Vec<u8>),
    /// A value that may be missing.
    Option(Option<Box<Plain>>),
    /// Values of one type.
    List(Vec<Plain>),
    /// Named values, in the order of their type.
    Struct(Vec<(&'static str, Plain)>),
    /// A variant of an enum, and its values: a [`Plain::Struct`].
    Enum(&'static str, Box<Plain>),
    /// Keys and values. No key comes twice.
    Map(Vec<(Plain, Plain)>),
}

/// Where the bytes of a record are no value of its type, although its check is right: somebody has forged them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misread {
    /// The field, such as `lines[2].text`.
    pub place: String,
    /// What is wrong there.
    pub why: &'static str,
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl std::error::Error for Misread {}

/// A second has fewer.
const NANOS: u32 = 1_000_000_000;
/// The values of a list of this type are one [`Plain::Bytes`].
const BYTE: Type = Type::Unsigned(1);

impl Plain {
    /// The value of a field of a struct.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Struct(fields) = self else {
            return None;
        };
        let found = fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value)
    }

    /// Whether this is a value of a type.
    pub fn is_of(&self, kind: &Type) -> bool {
        match (kind, self) {
            (Type::Bool, Self::Bool(_))
            | (Type::Text, Self::Text(_))
            | (Type::Float(4), Self::Float32(_))
            | (Type::Float(8), Self::Float64(_))
            | (Type::List(Type::Unsigned(1)), Self::Bytes(_))
            | (Type::Option(_), Self::Option(None)) => true,
            (Type::Unsigned(bytes), Self::Unsigned(value)) => {
                let bits = u32::from(*bytes).saturating_mul(8);
                value.checked_shr(bits).unwrap_or(0) == 0
            }
            (Type::Signed(bytes), Self::Signed(value)) => {
                let unused = 128u32.saturating_sub(u32::from(*bytes).saturating_mul(8));
                // The upper bits are all those of the sign.
                value.checked_shl(unused).unwrap_or(0) >> unused == *value
            }
            (Type::Time, Self::Time(_, nanos)) => *nanos < NANOS,
            (Type::Array(count), Self::Bytes(bytes)) => bytes.len() == *count,
            (Type::Option(inner), Self::Option(Some(value))) => value.is_of(inner),
            (Type::List(inner), Self::List(values)) => {
                **inner != BYTE && values.iter().all(|value| value.is_of(inner))
            }
            (Type::Struct(fields), Self::Struct(values)) => {
                let mut pairs = fields.iter().zip(values);
                fields.len() == values.len()
                    && pairs.all(|(field, (name, value))| {
                        field.name == *name && value.is_of(&field.kind)
                    })
            }
            (Type::Enum(variants), Self::Enum(name, value)) => {
                let variant = variants.iter().find(|variant| variant.name == *name);
                variant.is_some_and(|variant| value.is_of(&variant.kind))
            }
            (Type::Map(key, value), Self::Map(entries)) => {
                let mut entries = entries.iter();
                entries.all(|one| one.0.is_of(key) && one.1.is_of(value))
                    && self.in_order(key).is_some()
            }
            _ => false,
        }
    }

    /// The entries of a map in the order of its keys. None if this is no map, or if a key comes twice.
    fn in_order(&self, key: &Type) -> Option<Vec<(KeyBytes, &(Self, Self))>> {
        let Self::Map(entries) = self else {
            return None;
        };
        let keyed = entries.iter().map(|entry| {
            let mut bytes = KeyBytes::new();
            entry.0.encode_key(key, &mut bytes);
            (bytes, entry)
        });
        let mut entries: Vec<_> = keyed.collect();
        entries.sort_by(|one, two| one.0.cmp(&two.0));
        let is_equal = |pair: &[(KeyBytes, _)]| matches!(pair, [one, two] if one.0 == two.0);
        (!entries.windows(2).any(is_equal)).then_some(entries)
    }

    /// Reads a record of a type.
    pub(crate) fn read(kind: &Type, record: &[u8]) -> Result<Self, Misread> {
        let mut reader = Reader {
            record,
            heap_left: record.len(),
            parts_left: record.len().saturating_mul(4).saturating_add(1 << 16),
        };
        reader.read(kind, 0)
    }

    /// Writes a value of this type. Its part of fixed width is at `at`.
    pub(crate) fn write(&self, kind: &Type, out: &mut ValueWriter<'_>, at: usize) {
        match (kind, self) {
            (Type::Bool, Self::Bool(value)) => out.put(at, &[u8::from(*value)]),
            (Type::Unsigned(bytes), Self::Unsigned(value)) => {
                out.put(at, first(&value.to_le_bytes(), *bytes));
            }
            (Type::Signed(bytes), Self::Signed(value)) => {
                out.put(at, first(&value.to_le_bytes(), *bytes));
            }
            (_, Self::Float32(value)) => out.put(at, &value.to_le_bytes()),
            (_, Self::Float64(value)) => out.put(at, &value.to_le_bytes()),
            (_, Self::Time(seconds, nanos)) => {
                out.put(at, &seconds.to_le_bytes());
                out.put(at.saturating_add(8), &nanos.to_le_bytes());
            }
            (_, Self::Text(text)) => {
                let start = out.add(at, text.len(), 1);
                out.put(start, text.as_bytes());
            }
            (Type::List(_), Self::Bytes(bytes)) => {
                let start = out.add(at, bytes.len(), 1);
                out.put(start, bytes);
            }
            (_, Self::Bytes(bytes)) => out.put(at, bytes),
            (Type::Option(inner), Self::Option(Some(value))) => {
                out.put(at, &[1]);
                value.write(inner, out, at.saturating_add(1));
            }
            (Type::List(inner), Self::List(values)) => {
                let width = inner.width();
                let mut start = out.add(at, values.len(), width);
                for value in values {
                    value.write(inner, out, start);
                    start = start.saturating_add(width);
                }
            }
            (Type::Struct(fields), Self::Struct(values)) => {
                let mut at = at;
                for (field, (_, value)) in fields.iter().zip(values) {
                    value.write(&field.kind, out, at);
                    at = at.saturating_add(field.kind.width());
                }
            }
            (Type::Enum(variants), Self::Enum(name, value)) => {
                let number = variants.iter().position(|variant| variant.name == *name);
                if let Some((tag, variant)) = number
                    .and_then(|number| Some((u8::try_from(number).ok()?, variants.get(number)?)))
                {
                    out.put(at, &[tag]);
                    value.write(&variant.kind, out, at.saturating_add(1));
                }
            }
            (Type::Map(key, value), Self::Map(_)) => {
                let entries = self.in_order(key).unwrap_or_default();
                let (first, width) = (key.width(), key.width().saturating_add(value.width()));
                let mut start = out.add(at, entries.len(), width);
                for (_, entry) in entries {
                    entry.0.write(key, out, start);
                    entry.1.write(value, out, start.saturating_add(first));
                    start = start.saturating_add(width);
                }
            }
            // No value is there, which zeros say, or this is none of the type.
            _ => {}
        }
    }

    /// Writes the bytes that a key of this type sorts by.
    pub(crate) fn encode_key(&self, kind: &Type, out: &mut KeyBytes) {
        use crate::key::AsKey;
        match (kind, self) {
            (_, Self::Bool(value)) => value.encode_key(out),
            (Type::Unsigned(bytes), Self::Unsigned(value)) => {
                out.extend_from_slice(last(&value.to_be_bytes(), *bytes));
            }
            (Type::Signed(bytes), Self::Signed(value)) => {
                let bits = value.cast_unsigned() ^ sign_bit(*bytes);
                out.extend_from_slice(last(&bits.to_be_bytes(), *bytes));
            }
            (_, Self::Float32(value)) => value.encode_key(out),
            (_, Self::Float64(value)) => value.encode_key(out),
            (_, Self::Text(value)) => value.encode_key(out),
            (_, Self::Time(seconds, nanos)) => (*seconds, *nanos).encode_key(out),
            (Type::Array(_), Self::Bytes(bytes)) => out.extend_from_slice(bytes),
            (_, Self::Bytes(bytes)) => bytes.encode_key(out),
            (Type::Option(inner), Self::Option(value)) => {
                value.is_some().encode_key(out);
                if let Some(value) = value {
                    value.encode_key(inner, out);
                }
            }
            (Type::Enum(variants), Self::Enum(name, _)) => {
                let number = variants.iter().position(|variant| variant.name == *name);
                let tag = number.and_then(|number| u8::try_from(number).ok());
                out.push(tag.unwrap_or(0));
            }
            // Schemas have no such keys.
            _ => {}
        }
    }

    /// Takes a key of this type from the front of bytes. None if they do not begin with one.
    pub(crate) fn decode_key(kind: &Type, bytes: &mut &[u8]) -> Option<Self> {
        use crate::key::Key;
        Some(match kind {
            Type::Bool => Self::Bool(Key::decode(bytes)?),
            Type::Unsigned(count) => Self::Unsigned(take_number(*count, bytes)?),
            Type::Signed(count) => {
                let bits = take_number(*count, bytes)? ^ sign_bit(*count);
                Self::Signed(signed(bits, *count))
            }
            Type::Float(4) => Self::Float32(Key::decode(bytes)?),
            Type::Float(_) => Self::Float64(Key::decode(bytes)?),
            Type::Text => Self::Text(Key::decode(bytes)?),
            Type::Time => {
                let (seconds, nanos) = Key::decode(bytes)?;
                Self::Time(seconds, nanos)
            }
            Type::Array(count) => {
                let (array, rest) = bytes.split_at_checked(*count)?;
                *bytes = rest;
                Self::Bytes(array.to_vec())
            }
            Type::Option(inner) => Self::Option(match bool::decode(bytes)? {
                true => Some(Self::decode_key(inner, bytes)?.into()),
                false => None,
            }),
            Type::List(Type::Unsigned(1)) => Self::Bytes(Key::decode(bytes)?),
            Type::Enum(variants) => {
                let tag: u8 = Key::decode(bytes)?;
                let variant = variants.get(usize::from(tag))?;
                Self::Enum(variant.name, Self::Struct(Vec::new()).into())
            }
            Type::List(_) | Type::Struct(_) | Type::Map(..) => return None,
        })
    }

    /// Whether this is an option without a value. Such ones never break a unique index.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Option(None))
    }
}

fn first(bytes: &[u8; 16], count: u8) -> &[u8] {
    bytes.get(..usize::from(count)).unwrap_or(bytes)
}

fn last(bytes: &[u8; 16], count: u8) -> &[u8] {
    let at = 16usize.saturating_sub(usize::from(count));
    bytes.get(at..).unwrap_or(bytes)
}

/// The bit of the sign of a number of so many bytes.
fn sign_bit(bytes: u8) -> u128 {
    let bit = u32::from(bytes).saturating_mul(8).saturating_sub(1);
    1u128.checked_shl(bit).unwrap_or(0)
}

/// The number with a sign that these bits of so many bytes are.
fn signed(bits: u128, bytes: u8) -> i128 {
    let unused = 128u32.saturating_sub(u32::from(bytes).saturating_mul(8));
    bits.checked_shl(unused).unwrap_or(0).cast_signed() >> unused.min(127)
}

/// Takes a number, its highest byte first.
fn take_number(count: u8, bytes: &mut &[u8]) -> Option<u128> {
    let (number, rest) = bytes.split_at_checked(usize::from(count))?;
    *bytes = rest;
    Some(
        number
            .iter()
            .fold(0, |all, byte| all << 8 | u128::from(*byte)),
    )
}

/// Reads a record. Each byte of its heap belongs to one value, and each value takes at most 64 bytes besides its text: so what is
/// read takes at most 260 bytes for each byte of the record, and 4 MiB.
struct Reader<'a> {
    record: &'a [u8],
    /// Bytes of the heap that may still belong to a value.
    heap_left: usize,
    /// How many values may still come. Structs have no bytes of their own, so a few bytes could be many of them.
    parts_left: usize,
}

impl<'a> Reader<'a> {
    fn read(&mut self, kind: &Type, at: usize) -> Result<Plain, Misread> {
        Ok(match kind {
            Type::Bool => Plain::Bool(self.bool(at)?),
            Type::Unsigned(bytes) => Plain::Unsigned(self.number(at, *bytes)?),
            Type::Signed(bytes) => Plain::Signed(signed(self.number(at, *bytes)?, *bytes)),
            Type::Float(4) => Plain::Float32(f32::from_le_bytes(self.chunk(at)?)),
            Type::Float(_) => Plain::Float64(f64::from_le_bytes(self.chunk(at)?)),
            Type::Text => match String::from_utf8(self.heap(at, 1)?.1.to_vec()) {
                Ok(text) => Plain::Text(text),
                Err(_) => return wrong("the text is not UTF-8"),
            },
            Type::Time => {
                let seconds = i64::from_le_bytes(self.chunk(at)?);
                let nanos = u32::from_le_bytes(self.chunk(at.saturating_add(8))?);
                if nanos >= NANOS {
                    return wrong("a second has more than 999999999 nanoseconds");
                }
                Plain::Time(seconds, nanos)
            }
            Type::Array(bytes) => Plain::Bytes(self.fixed(at, *bytes)?.to_vec()),
            Type::Option(inner) => Plain::Option(match self.bool(at)? {
                true => {
                    self.claim(1)?;
                    Some(self.read(inner, at.saturating_add(1))?.into())
                }
                false => None,
            }),
            Type::List(Type::Unsigned(1)) => Plain::Bytes(self.heap(at, 1)?.1.to_vec()),
            Type::List(inner) => self.list(inner, at)?,
            Type::Struct(fields) => {
                self.claim(fields.len())?;
                let (mut at, mut values) = (at, Vec::with_capacity(fields.len()));
                for field in *fields {
                    let value = self.read(&field.kind, at);
                    let value = value.map_err(|e| e.within(field.name))?;
                    values.push((field.name, value));
                    at = at.saturating_add(field.kind.width());
                }
                Plain::Struct(values)
            }
            Type::Enum(variants) => {
                let [tag] = self.chunk(at)?;
                let Some(variant) = variants.get(usize::from(tag)) else {
                    return wrong("the enum has no variant of this number");
                };
                self.claim(1)?;
                let value = self.read(&variant.kind, at.saturating_add(1));
                let value = value.map_err(|e| e.within(variant.name))?;
                Plain::Enum(variant.name, value.into())
            }
            Type::Map(key, value) => self.map(key, value, at)?,
        })
    }

    /// Notes that so many values come, before they take memory.
    fn claim(&mut self, values: usize) -> Result<(), Misread> {
        self.parts_left = match self.parts_left.checked_sub(values) {
            Some(left) => left,
            None => return wrong("the record has more values than its bytes allow"),
        };
        Ok(())
    }

    fn list(&mut self, inner: &Type, at: usize) -> Result<Plain, Misread> {
        let width = inner.width();
        let (mut at, bytes) = self.heap(at, width)?;
        let count = bytes.len().checked_div(width).unwrap_or(0);
        self.claim(count)?;
        let mut values = Vec::with_capacity(count);
        for number in 0..count {
            let value = self.read(inner, at);
            values.push(value.map_err(|e| e.within(&format!("[{number}]")))?);
            at = at.saturating_add(width);
        }
        Ok(Plain::List(values))
    }

    fn map(&mut self, key: &Type, value: &Type, at: usize) -> Result<Plain, Misread> {
        let (first, width) = (key.width(), key.width().saturating_add(value.width()));
        let (mut at, bytes) = self.heap(at, width)?;
        let count = bytes.len().checked_div(width).unwrap_or(0);
        self.claim(count.saturating_mul(2))?;
        let mut entries = Vec::with_capacity(count);
        let mut last: Option<KeyBytes> = None;
        for number in 0..count {
            let within = |e: Misread| e.within(&format!("[{number}]"));
            let one = self.read(key, at).map_err(within)?;
            let two = self.read(value, at.saturating_add(first));
            let mut order = KeyBytes::new();
            one.encode_key(key, &mut order);
            if last.is_some_and(|last| last >= order) {
                return wrong("the keys of the map are not in their order");
            }
            last = Some(order);
            entries.push((one, two.map_err(within)?));
            at = at.saturating_add(width);
        }
        Ok(Plain::Map(entries))
    }

    fn fixed(&self, at: usize, bytes: usize) -> Result<&'a [u8], Misread> {
        let end = at.saturating_add(bytes);
        match self.record.get(at..end) {
            Some(bytes) => Ok(bytes),
            None => wrong("the record ends before it"),
        }
    }

    fn chunk<const N: usize>(&self, at: usize) -> Result<[u8; N], Misread> {
        match self.fixed(at, N)?.first_chunk() {
            Some(chunk) => Ok(*chunk),
            None => wrong("the record ends before it"),
        }
    }

    fn number(&self, at: usize, bytes: u8) -> Result<u128, Misread> {
        let bytes = self.fixed(at, usize::from(bytes))?.iter().rev();
        Ok(bytes.fold(0, |all, byte| all << 8 | u128::from(*byte)))
    }

    fn bool(&self, at: usize) -> Result<bool, Misread> {
        match self.chunk(at)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => wrong("a byte that must be 0 or 1 is neither"),
        }
    }

    /// Where the values of a reference at a place begin, and their bytes.
    fn heap(&mut self, at: usize, width: usize) -> Result<(usize, &'a [u8]), Misread> {
        let [a, b, c, d, e, f, g, h] = self.chunk(at)?;
        let size = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        let (start, count) = (size([a, b, c, d]), size([e, f, g, h]));
        let bytes = count.saturating_mul(width);
        let Some(found) = self.record.get(start..start.saturating_add(bytes)) else {
            return wrong("it lies outside of the record");
        };
        self.heap_left = match self.heap_left.checked_sub(bytes) {
            Some(left) => left,
            None => return wrong("it has bytes that are another value's"),
        };
        Ok((start, found))
    }
}

fn wrong<T>(why: &'static str) -> Result<T, Misread> {
    let place = String::new();
    Err(Misread { place, why })
}

impl Misread {
    /// The same, as a part of this.
    fn within(self, part: &str) -> Self {
        let place = match self.place.as_str() {
            "" => part.to_owned(),
            rest if rest.starts_with('[') => format!("{part}{rest}"),
            rest => format!("{part}.{rest}"),
        };
        Self { place, ..self }
    }
}

/// As an error shows it.
impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float32(value) => write!(f, "{value:?}"),
            Self::Float64(value) => write!(f, "{value:?}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Time(seconds, nanos) => write!(f, "@{seconds}.{nanos:09}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Option(Some(value)) => write!(f, "{value}"),
            Self::Option(None) => f.write_str("null"),
            Self::List(values) => f.debug_list().entries(values).finish(),
            Self::Struct(values) => f
                .debug_map()
                .entries(values.iter().map(|(k, v)| (k, v)))
                .finish(),
            Self::Enum(name, _) => f.write_str(name),
            Self::Map(entries) => f
                .debug_map()
                .entries(entries.iter().map(|(k, v)| (k, v)))
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;
    use crate::key::{AsKey, Key};
    use crate::value::{Value, parts_of};

    fn stored<V: Value>(value: &V) -> Vec<u8> {
        let mut bytes = Vec::new();
        ValueWriter::write(value, &mut bytes).unwrap();
        bytes
    }

    /// A value is read as `plain`, which is written as the same bytes.
    fn is_read<V: Value>(value: &V, plain: &Plain) {
        let bytes = stored(value);
        assert!(plain.is_of(&V::TYPE), "{plain:?}");
        assert_eq!(V::TYPE.width(), V::WIDTH);
        assert_eq!(Plain::read(&V::TYPE, &bytes).unwrap(), *plain);
        let mut written = Vec::new();
        ValueWriter::write_by(&mut written, V::WIDTH, |out| plain.write(&V::TYPE, out, 0)).unwrap();
        assert_eq!(written, bytes);
    }

    /// The same, and its key has the bytes of the typed one.
    fn is_key<V: Value + Key>(value: &V, plain: &Plain) {
        is_read(value, plain);
        let (mut typed, mut untyped) = (KeyBytes::new(), KeyBytes::new());
        AsKey::<V>::encode_key(value, &mut typed);
        plain.encode_key(&V::TYPE, &mut untyped);
        assert_eq!(typed, untyped, "{plain:?}");
        let whole = [&*typed, &[7, 0]].concat();
        let mut rest = whole.as_slice();
        assert_eq!(Plain::decode_key(&V::TYPE, &mut rest).unwrap(), *plain);
        assert_eq!(rest, [7, 0]);
    }

    proptest! {
        #[test]
        fn values_are_those_of_types(
            unsigned in any::<(u8, u16, u32, u64, u128)>(),
            signed in any::<(i8, i16, i32, i64, i128)>(),
            float in (proptest::num::f32::NORMAL, proptest::num::f64::NORMAL),
            text in any::<Option<String>>(),
            bytes in any::<(Vec<u8>, [u8; 3], bool)>(),
            time in any::<(i32, u32)>(),
            lists in any::<Vec<Vec<Option<i16>>>>(),
        ) {
            is_key(&unsigned.0, &Plain::Unsigned(unsigned.0.into()));
            is_key(&unsigned.1, &Plain::Unsigned(unsigned.1.into()));
            is_key(&unsigned.2, &Plain::Unsigned(unsigned.2.into()));
            is_key(&unsigned.3, &Plain::Unsigned(unsigned.3.into()));
            is_key(&unsigned.4, &Plain::Unsigned(unsigned.4));
            is_key(&signed.0, &Plain::Signed(signed.0.into()));
            is_key(&signed.1, &Plain::Signed(signed.1.into()));
            is_key(&signed.2, &Plain::Signed(signed.2.into()));
            is_key(&signed.3, &Plain::Signed(signed.3.into()));
            is_key(&signed.4, &Plain::Signed(signed.4));
            is_key(&float.0, &Plain::Float32(float.0));
            is_key(&float.1, &Plain::Float64(float.1));
            let plain = text.clone().map(|text| Plain::Text(text).into());
            is_key(&text, &Plain::Option(plain));
            is_key(&bytes.0, &Plain::Bytes(bytes.0.clone()));
            is_key(&bytes.1, &Plain::Bytes(bytes.1.to_vec()));
            is_key(&bytes.2, &Plain::Bool(bytes.2));
            let moment = SystemTime::UNIX_EPOCH + Duration::from_nanos(time.1.into());
            let moment = match time.0 < 0 {
                true => moment - Duration::from_secs(time.0.unsigned_abs().into()),
                false => moment + Duration::from_secs(time.0.unsigned_abs().into()),
            };
            let (seconds, nanos) = parts_of(moment);
            is_key(&moment, &Plain::Time(seconds, nanos));
            let number = |number: &Option<i16>| Plain::Option(number.map(|n| Plain::Signed(n.into()).into()));
            let list = |list: &Vec<_>| Plain::List(list.iter().map(number).collect());
            is_read(&lists, &Plain::List(lists.iter().map(list).collect()));
        }

        /// No bytes do harm, and what is read of them is no larger than they allow.
        #[test]
        fn forged_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            fn parts(plain: &Plain) -> usize {
                match plain {
                    Plain::Text(text) => text.len() + 1,
                    Plain::Bytes(bytes) => bytes.len() + 1,
                    Plain::Option(inner) => 1 + inner.as_deref().map_or(0, parts),
                    Plain::List(all) => 1 + all.iter().map(parts).sum::<usize>(),
                    _ => 1,
                }
            }
            type Deep = Vec<Option<Vec<Vec<String>>>>;
            if let Ok(plain) = Plain::read(&Deep::TYPE, &bytes) {
                prop_assert!(parts(&plain) <= 2 * bytes.len() + 1);
            }
            let mut rest = bytes.as_slice();
            Plain::decode_key(&<Option<Option<String>>>::TYPE, &mut rest);
            type Chosen = std::collections::BTreeMap<State, Vec<Form>>;
            // Those who trust the bytes read something, too.
            if let Some(place) = crate::Place::of_value::<Chosen>(&bytes) {
                let all = Chosen::view_at(place).iter().take(100);
                prop_assert!(all.map(|(_, forms)| forms.len()).sum::<usize>() <= 100 * bytes.len());
            }
            if let Ok(plain) = Plain::read(&Chosen::TYPE, &bytes) {
                prop_assert!(plain.is_of(&Chosen::TYPE));
            }
        }
    }

    #[derive(crate::Value, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum State {
        Open,
        Paid,
    }

    #[derive(crate::Value, Debug, Clone, PartialEq)]
    enum Form {
        Point,
        Line(u16),
    }

    #[test]
    fn enums_and_maps_are_those_of_types_and_forged_ones_are_refused() {
        let unit = |name| Plain::Enum(name, Plain::Struct(Vec::new()).into());
        is_key(&State::Paid, &unit("Paid"));
        is_read(&Form::Point, &unit("Point"));
        let line = Plain::Struct(vec![("0", Plain::Unsigned(7))]);
        is_read(&Form::Line(7), &Plain::Enum("Line", line.into()));
        type Chosen = std::collections::BTreeMap<State, u8>;
        let map = Chosen::from([(State::Paid, 2), (State::Open, 1)]);
        let plain = |entries: [(&'static str, u128); 2]| {
            let entry = |(name, number)| (unit(name), Plain::Unsigned(number));
            Plain::Map(entries.map(entry).to_vec())
        };
        is_read(&map, &plain([("Open", 1), ("Paid", 2)]));
        assert_eq!(
            stored(&map),
            [8, 0, 0, 0, 2, 0, 0, 0, 0, 1, 1, 2],
            "the reference, and two entries in the order of their keys"
        );
        assert!(!plain([("Open", 1), ("Open", 2)]).is_of(&Chosen::TYPE));
        for (at, byte, said) in [
            (8, 2, "[0]: the enum has no variant of this number"),
            (8, 1, "the keys of the map are not in their order"),
            (4, 3, "it lies outside of the record"),
        ] {
            let mut bytes = stored(&map);
            bytes[at] = byte;
            let e = Plain::read(&Chosen::TYPE, &bytes).unwrap_err();
            assert!(e.to_string().ends_with(said), "{e}");
        }
        // Those who trust it read the first variant.
        let view = State::view_at(crate::Place::of_value::<State>(&[9]).unwrap());
        assert_eq!(view, State::Open);
    }

    /// Bytes of memory that a value takes.
    fn taken(plain: &Plain) -> usize {
        const ALLOCATION: usize = 16;
        let inner = match plain {
            Plain::Text(text) => ALLOCATION + text.len(),
            Plain::Bytes(bytes) => ALLOCATION + bytes.len(),
            Plain::Option(Some(value)) => ALLOCATION + taken(value),
            Plain::List(values) => ALLOCATION + values.iter().map(taken).sum::<usize>(),
            Plain::Struct(fields) => {
                let fields = fields.iter();
                ALLOCATION + fields.map(|(_, value)| 16 + taken(value)).sum::<usize>()
            }
            _ => 0,
        };
        inner + size_of::<Plain>()
    }

    /// A list of structs that have a byte each, and other structs without bytes.
    #[test]
    fn structs_take_no_more_memory_than_the_bytes_allow() {
        const EMPTY: Type = Type::Struct(&[]);
        const fn field(name: &'static str, kind: Type) -> crate::Field {
            crate::Field { name, kind }
        }
        const FIELDS: [crate::Field; 12] = {
            let mut fields = [field("empty", EMPTY); 12];
            fields[0] = field("number", Type::Unsigned(1));
            fields
        };
        const TWO: [crate::Field; 2] = [field("one", Type::Bool), field("two", EMPTY)];
        const MANY: Type = Type::List(&Type::Struct(&FIELDS));
        const FEW: Type = Type::List(&Type::Struct(&TWO));
        let count = 200_000u32;
        let mut bytes = vec![0; 8 + count as usize];
        bytes[..4].copy_from_slice(&8u32.to_le_bytes());
        bytes[4..8].copy_from_slice(&count.to_le_bytes());
        let allowed = 260 * bytes.len() + (4 << 20);
        let few = Plain::read(&FEW, &bytes).unwrap();
        assert!(taken(&few) <= allowed, "{}", taken(&few));
        let e = Plain::read(&MANY, &bytes).unwrap_err();
        assert_eq!(
            e.to_string(),
            "[55464]: the record has more values than its bytes allow"
        );
        bytes[4..8].copy_from_slice(&60_000u32.to_le_bytes());
        let many = Plain::read(&MANY, &bytes).unwrap();
        assert!(taken(&many) <= allowed, "{}", taken(&many));
    }

    #[test]
    fn what_is_forged_is_named() {
        const KIND: Type = Type::Struct(&[
            crate::Field {
                name: "names",
                kind: <Vec<Option<String>>>::TYPE,
            },
            crate::Field {
                name: "at",
                kind: SystemTime::TYPE,
            },
        ]);
        let whole = [
            // Two names from byte 20 on.
            &[20, 0, 0, 0, 2, 0, 0, 0][..],
            &[0; 12],
            &[1, 38, 0, 0, 0, 1, 0, 0, 0],
            &[1, 38, 0, 0, 0, 1, 0, 0, 0],
            b"a",
        ]
        .concat();
        assert!(Plain::read(&KIND, &whole).is_ok());
        let told = |at: usize, byte: u8| {
            let mut forged = whole.clone();
            forged[at] = byte;
            Plain::read(&KIND, &forged).unwrap_err().to_string()
        };
        for (at, byte, message) in [
            (4, 3, "names: it lies outside of the record"),
            (3, 1, "names: it lies outside of the record"),
            (29, 2, "names[1]: a byte that must be 0 or 1 is neither"),
            (34, 2, "names[1]: it lies outside of the record"),
            (38, 0xff, "names[0]: the text is not UTF-8"),
            (19, 0xff, "at: a second has more than 999999999 nanoseconds"),
        ] {
            assert_eq!(told(at, byte), message);
        }
        let e = Plain::read(&KIND, &whole[..19]).unwrap_err();
        assert_eq!(e.to_string(), "names: it lies outside of the record");
        // Many lists that are the same bytes.
        let list = [8u8, 0, 0, 0, 1, 0, 0, 0].repeat(4);
        let e = Plain::read(&<Vec<Vec<Vec<Vec<Vec<u16>>>>>>::TYPE, &list).unwrap_err();
        assert_eq!(
            e.to_string(),
            "[0][0][0][0]: it has bytes that are another value's"
        );
    }
}
