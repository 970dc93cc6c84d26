//! Values as JSON, and JSON as values. What goes out comes in again as the same value.

use std::borrow::Cow;
use std::fmt;
use std::io;

use brisk_objects::{Plain, Schema, Type};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// A value that is written as JSON.
pub(crate) struct Shown<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) value: &'a Plain,
}

impl<'a> Shown<'a> {
    /// A record of a collection.
    pub(crate) fn record(schema: &'a Schema, value: &'a Plain) -> Self {
        let kind = &schema.layout;
        Self { kind, value }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shown = |kind, value| Shown { kind, value };
        match (self.kind, self.value) {
            (_, Plain::Bool(value)) => to.serialize_bool(*value),
            (_, Plain::Unsigned(value)) => match u64::try_from(*value) {
                Ok(value) if !is_wide(self.kind) => to.serialize_u64(value),
                _ => to.collect_str(value),
            },
            (_, Plain::Signed(value)) => match i64::try_from(*value) {
                Ok(value) if !is_wide(self.kind) => to.serialize_i64(value),
                _ => to.collect_str(value),
            },
            (_, Plain::Float32(value)) if value.is_finite() => {
                // The shortest digits of the small type, unless the large type would make another number of them.
                let short: f64 = format!("{value:?}").parse().unwrap_or(f64::NAN);
                let is_same = narrow(short).to_bits() == value.to_bits();
                to.serialize_f64(if is_same { short } else { f64::from(*value) })
            }
            (_, Plain::Float32(value)) => to.serialize_str(&odd_float(
                value.is_infinite().then_some(value.is_sign_negative()),
                value.to_bits() == f32::NAN.to_bits(),
                &format!("{:08x}", value.to_bits()),
            )),
            (_, Plain::Float64(value)) if value.is_finite() => to.serialize_f64(*value),
            (_, Plain::Float64(value)) => to.serialize_str(&odd_float(
                value.is_infinite().then_some(value.is_sign_negative()),
                value.to_bits() == f64::NAN.to_bits(),
                &format!("{:016x}", value.to_bits()),
            )),
            (_, Plain::Text(text)) => to.serialize_str(text),
            (_, Plain::Time(seconds, nanos)) => to.serialize_str(&time_text(*seconds, *nanos)),
            (Type::Array(16), Plain::Bytes(bytes)) => to.serialize_str(&uuid_text(bytes)),
            (_, Plain::Bytes(bytes)) => to.serialize_str(&HEXLOWER.encode(bytes)),
            (Type::Option(inner), Plain::Option(Some(value))) => match inner {
                // Null is what has no value at all.
                Type::Option(_) => {
                    let mut one = to.serialize_seq(Some(1))?;
                    one.serialize_element(&shown(*inner, value))?;
                    one.end()
                }
                _ => shown(*inner, value).serialize(to),
            },
            (Type::List(inner), Plain::List(values)) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&shown(*inner, value))?;
                }
                list.end()
            }
            (Type::Struct(fields), Plain::Struct(values)) => {
                let mut map = to.serialize_map(Some(values.len()))?;
                for (field, (name, value)) in fields.iter().zip(values) {
                    map.serialize_entry(name, &shown(&field.kind, value))?;
                }
                map.end()
            }
            (Type::Enum(_), Plain::Enum(name, value)) if is_unit(value) => to.serialize_str(name),
            (Type::Enum(variants), Plain::Enum(name, value)) => {
                let mut map = to.serialize_map(Some(1))?;
                if let Some(variant) = variants.iter().find(|variant| variant.name == *name) {
                    map.serialize_entry(name, &shown(&variant.kind, value))?;
                }
                map.end()
            }
            (Type::Map(Type::Text, kind), Plain::Map(entries)) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(&shown(&Type::Text, key), &shown(kind, value))?;
                }
                map.end()
            }
            (Type::Map(first, second), Plain::Map(entries)) => {
                let mut list = to.serialize_seq(Some(entries.len()))?;
                for (key, value) in entries {
                    list.serialize_element(&(shown(first, key), shown(second, value)))?;
                }
                list.end()
            }
            _ => to.serialize_none(),
        }
    }
}

/// Whether a variant has no values. Then JSON has its name alone.
fn is_unit(value: &Plain) -> bool {
    matches!(value, Plain::Struct(fields) if fields.is_empty())
}

/// Writes a value as a line of JSON.
pub(crate) fn write_line(out: &mut impl io::Write, value: &impl Serialize) -> io::Result<()> {
    // Of a failing write, this is the error of the system, which says whether a reader has gone.
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

/// Whether numbers of a type may have more than 64 bits. These are texts in JSON.
fn is_wide(kind: &Type) -> bool {
    matches!(kind, Type::Unsigned(16) | Type::Signed(16))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the nearest number is meant"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// A number that JSON does not have.
fn odd_float(infinite: Option<bool>, is_usual: bool, bits: &str) -> String {
    match infinite {
        Some(true) => "-inf".to_owned(),
        Some(false) => "inf".to_owned(),
        None if is_usual => "NaN".to_owned(),
        None => format!("NaN:{bits}"),
    }
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = HEXLOWER.encode(bytes);
    for at in [20, 16, 12, 8] {
        if text.is_char_boundary(at) {
            text.insert(at, '-');
        }
    }
    text
}

/// RFC 3339, where that has the year. Otherwise the stored numbers.
fn time_text(seconds: i64, nanos: u32) -> String {
    let time = i32::try_from(nanos)
        .ok()
        .and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    let text = time.map(|time| time.to_string());
    let text = text.filter(|text| parse_rfc3339(text) == Some((seconds, nanos)));
    text.unwrap_or_else(|| format!("@{seconds}+{nanos}ns"))
}

fn parse_rfc3339(text: &str) -> Option<(i64, u32)> {
    let time: Timestamp = text.parse().ok()?;
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    match u32::try_from(nanos) {
        Ok(nanos) => Some((seconds, nanos)),
        // Before 1970 both are negative.
        Err(_) => Some((
            seconds.checked_sub(1)?,
            u32::try_from(nanos.checked_add(1_000_000_000)?).ok()?,
        )),
    }
}

fn parse_time(text: &str) -> Option<(i64, u32)> {
    let Some(numbers) = text.strip_prefix('@') else {
        return parse_rfc3339(text);
    };
    let (seconds, nanos) = match numbers.split_once('+') {
        Some((seconds, nanos)) => (seconds, nanos.strip_suffix("ns")?),
        None => (numbers, "0"),
    };
    let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some((seconds.parse().ok()?, nanos))
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

/// A UUID with or without its dashes.
fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let dashes = text.match_indices('-').map(|(at, _)| at);
    let dashes: Vec<_> = dashes.collect();
    let is_form = matches!(dashes.as_slice(), [] | [8, 13, 18, 23]);
    let bytes = parse_hex(&text.replace('-', ""))?;
    (is_form && bytes.len() == 16).then_some(bytes)
}

/// What is wrong with a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The field, such as `lines[2].text`. Empty: the whole.
    place: String,
    found: String,
    allowed: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        write!(f, "found {}, allowed is {}", self.found, self.allowed)
    }
}

impl std::error::Error for Wrong {}

impl Wrong {
    fn within(self, part: &str) -> Self {
        let place = match self.place.as_str() {
            "" => part.to_owned(),
            rest if rest.starts_with('[') => format!("{part}{rest}"),
            rest => format!("{part}.{rest}"),
        };
        Self { place, ..self }
    }
}

/// A type in words, as an error names what it allows.
fn allowed(kind: &Type) -> Cow<'static, str> {
    let range =
        |low: String, high: String| Cow::Owned(format!("a whole number from {low} to {high}"));
    match kind {
        Type::Bool => "true or false".into(),
        Type::Unsigned(bytes) => {
            let unused = 128u32.saturating_sub(u32::from(*bytes).saturating_mul(8));
            range("0".to_owned(), (u128::MAX >> unused.min(127)).to_string())
        }
        Type::Signed(bytes) => {
            let unused = 128u32
                .saturating_sub(u32::from(*bytes).saturating_mul(8))
                .min(127);
            range(
                (i128::MIN >> unused).to_string(),
                (i128::MAX >> unused).to_string(),
            )
        }
        Type::Float(_) => "a number, \"inf\", \"-inf\" or \"NaN\"".into(),
        Type::Text => "a text".into(),
        Type::Time => "a time such as \"2026-01-31T12:00:00Z\", or \"@SECONDS\" since 1970".into(),
        Type::Array(16) => "a UUID, or 32 hexadecimal digits".into(),
        Type::Array(bytes) => format!("{} hexadecimal digits", bytes.saturating_mul(2)).into(),
        Type::Option(inner) => format!("{}, or null", allowed(inner)).into(),
        Type::List(Type::Unsigned(1)) => "pairs of hexadecimal digits".into(),
        Type::List(_) => "an array".into(),
        Type::Enum(variants) => {
            let names = variants.iter().map(|variant| match variant.kind {
                Type::Struct([]) => format!("{:?}", variant.name),
                _ => format!("{{{:?}: an object}}", variant.name),
            });
            names.collect::<Vec<_>>().join(" or ").into()
        }
        Type::Map(Type::Text, _) => "an object".into(),
        Type::Map(..) => "an array of pairs, each key once".into(),
        _ => "an object".into(),
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 60 => {
            let first: String = text.chars().take(60).collect();
            format!("{:?}…", first)
        }
        other => other.to_string(),
    }
}

/// The value of a type that JSON says.
pub(crate) fn parse(kind: &Type, value: &Value) -> Result<Plain, Wrong> {
    let parsed = match (kind, value) {
        (Type::Option(_), Value::Null) => Some(Plain::Option(None)),
        (Type::Option(inner @ Type::Option(_)), Value::Array(one)) => match one.as_slice() {
            [value] => Some(Plain::Option(Some(parse(inner, value)?.into()))),
            _ => None,
        },
        (Type::Option(Type::Option(_)), _) => None,
        (Type::Option(inner), value) => {
            let value = parse(inner, value).map_err(|wrong| match wrong.place.as_str() {
                "" => Wrong {
                    allowed: allowed(kind).into_owned(),
                    ..wrong
                },
                _ => wrong,
            })?;
            Some(Plain::Option(Some(value.into())))
        }
        (Type::List(Type::Unsigned(1)), Value::String(text)) => parse_hex(text).map(Plain::Bytes),
        (Type::List(inner), Value::Array(values)) => {
            let values = values.iter().enumerate().map(|(number, value)| {
                parse(inner, value).map_err(|wrong| wrong.within(&format!("[{number}]")))
            });
            Some(Plain::List(values.collect::<Result<_, _>>()?))
        }
        (Type::Struct(fields), Value::Object(values)) => {
            let is_known = |name: &String| fields.iter().any(|field| field.name == name);
            if let Some((name, _)) = values.iter().find(|(name, _)| !is_known(name)) {
                let names: Vec<_> = fields.iter().map(|field| field.name).collect();
                return Err(Wrong {
                    place: String::new(),
                    found: format!("a field {name:?}"),
                    allowed: names.join(", "),
                });
            }
            let values = fields.iter().map(|field| {
                let value = match (values.get(field.name), field.kind) {
                    (Some(value), _) => parse(&field.kind, value),
                    (None, Type::Option(_)) => Ok(Plain::Option(None)),
                    (None, kind) => Err(Wrong {
                        place: String::new(),
                        found: "nothing".to_owned(),
                        allowed: allowed(&kind).into_owned(),
                    }),
                };
                let value = value.map_err(|wrong| wrong.within(field.name))?;
                Ok((field.name, value))
            });
            Some(Plain::Struct(values.collect::<Result<_, _>>()?))
        }
        (Type::Enum(variants), Value::String(name)) => {
            let mut units = variants.iter().filter(|one| one.kind == Type::Struct(&[]));
            let unit = units.find(|variant| variant.name == name);
            unit.map(|variant| Plain::Enum(variant.name, Plain::Struct(Vec::new()).into()))
        }
        (Type::Enum(variants), Value::Object(one)) if one.len() == 1 => {
            let known = variants
                .iter()
                .find_map(|variant| Some((variant, one.get(variant.name)?)));
            match known {
                Some((variant, value)) => {
                    let value = parse(&variant.kind, value);
                    let value = value.map_err(|wrong| wrong.within(variant.name))?;
                    Some(Plain::Enum(variant.name, value.into()))
                }
                None => None,
            }
        }
        (Type::Map(Type::Text, kind), Value::Object(entries)) => {
            let entries = entries.iter().map(|(key, value)| {
                let value = parse(kind, value).map_err(|wrong| wrong.within(key))?;
                Ok((Plain::Text(key.clone()), value))
            });
            Some(Plain::Map(entries.collect::<Result<_, _>>()?))
        }
        (Type::Map(first, second), Value::Array(entries)) => {
            let entries = entries.iter().enumerate().map(|(number, entry)| {
                let within = |wrong: Wrong| wrong.within(&format!("[{number}]"));
                match entry.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((
                        parse(first, key).map_err(within)?,
                        parse(second, value).map_err(within)?,
                    )),
                    _ => Err(within(Wrong {
                        place: String::new(),
                        found: found(entry),
                        allowed: "an array of a key and a value".to_owned(),
                    })),
                }
            });
            Some(Plain::Map(entries.collect::<Result<_, _>>()?))
        }
        (Type::List(_) | Type::Struct(_) | Type::Enum(_) | Type::Map(..), _) => None,
        (Type::Bool, Value::Bool(value)) => Some(Plain::Bool(*value)),
        (Type::Text, Value::String(text)) => Some(Plain::Text(text.clone())),
        (_, Value::Number(number)) => parse_number(kind, &number.to_string()),
        (_, Value::String(text)) => parse_text(kind, text),
        _ => None,
    };
    parsed
        .filter(|value| value.is_of(kind))
        .ok_or_else(|| Wrong {
            place: String::new(),
            found: found(value),
            allowed: allowed(kind).into_owned(),
        })
}

/// A number in digits.
fn parse_number(kind: &Type, text: &str) -> Option<Plain> {
    match kind {
        Type::Unsigned(_) => text.parse().ok().map(Plain::Unsigned),
        Type::Signed(_) => text.parse().ok().map(Plain::Signed),
        Type::Float(4) => {
            let value = narrow(text.parse().ok()?);
            value.is_finite().then_some(Plain::Float32(value))
        }
        Type::Float(_) => {
            let value: f64 = text.parse().ok()?;
            value.is_finite().then_some(Plain::Float64(value))
        }
        _ => None,
    }
}

/// What is a text in JSON, but none of type `text`.
fn parse_text(kind: &Type, text: &str) -> Option<Plain> {
    let bits = |digits: usize| {
        let bits = text
            .strip_prefix("NaN:")
            .filter(|bits| bits.len() == digits);
        bits.and_then(|bits| u64::from_str_radix(bits, 16).ok())
    };
    match (kind, text) {
        (Type::Float(4), "inf") => Some(Plain::Float32(f32::INFINITY)),
        (Type::Float(4), "-inf") => Some(Plain::Float32(f32::NEG_INFINITY)),
        (Type::Float(4), "NaN") => Some(Plain::Float32(f32::NAN)),
        (Type::Float(8), "inf") => Some(Plain::Float64(f64::INFINITY)),
        (Type::Float(8), "-inf") => Some(Plain::Float64(f64::NEG_INFINITY)),
        (Type::Float(8), "NaN") => Some(Plain::Float64(f64::NAN)),
        (Type::Float(4), _) if text.starts_with("NaN:") => {
            let value = f32::from_bits(u32::try_from(bits(8)?).ok()?);
            value.is_nan().then_some(Plain::Float32(value))
        }
        (Type::Float(_), _) if text.starts_with("NaN:") => {
            let value = f64::from_bits(bits(16)?);
            value.is_nan().then_some(Plain::Float64(value))
        }
        (Type::Unsigned(_) | Type::Signed(_) | Type::Float(_), _) => {
            let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            is_number.then(|| parse_number(kind, text))?
        }
        (Type::Time, _) => parse_time(text).map(|(seconds, nanos)| Plain::Time(seconds, nanos)),
        (Type::Array(16), _) => parse_uuid(text).map(Plain::Bytes),
        (Type::Array(_), _) => parse_hex(text).map(Plain::Bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use brisk_objects::Field;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(kind: &Type, value: &Plain) -> String {
        serde_json::to_string(&Shown { kind, value }).unwrap()
    }

    /// The bits of floating numbers count, too.
    fn same(one: &Plain, two: &Plain) -> bool {
        match (one, two) {
            (Plain::Float32(a), Plain::Float32(b)) => a.to_bits() == b.to_bits(),
            (Plain::Float64(a), Plain::Float64(b)) => a.to_bits() == b.to_bits(),
            (Plain::Option(Some(a)), Plain::Option(Some(b))) => same(a, b),
            (Plain::List(a), Plain::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Plain::Struct(a), Plain::Struct(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1))
            }
            (Plain::Enum(a, c), Plain::Enum(b, d)) => a == b && same(c, d),
            (Plain::Map(a), Plain::Map(b)) => {
                // JSON may have them in another order.
                let has = |one: &(Plain, Plain)| {
                    b.iter()
                        .any(|two| same(&one.0, &two.0) && same(&one.1, &two.1))
                };
                a.len() == b.len() && a.iter().all(has)
            }
            _ => one == two,
        }
    }

    const fn field(name: &'static str, kind: Type) -> Field {
        Field { name, kind }
    }

    const INNER: Type = Type::Option(&Type::Option(&Type::Text));
    const FORM: Type = Type::Enum(&[
        field("Point", Type::Struct(&[])),
        field("Line", Type::Struct(&[field("width", Type::Float(4))])),
    ]);
    const FORMS: Type = Type::Map(&Type::Text, &FORM);
    const NUMBERS: Type = Type::Map(&Type::Signed(1), &Type::Option(&FORM));
    const LINES: Type = Type::Struct(&[
        Field {
            name: "rate",
            kind: Type::Option(&Type::Float(4)),
        },
        Field {
            name: "odd",
            kind: INNER,
        },
    ]);

    fn value_of(kind: Type) -> BoxedStrategy<Plain> {
        match kind {
            Type::Bool => any::<bool>().prop_map(Plain::Bool).boxed(),
            Type::Unsigned(bytes) => any::<u128>()
                .prop_map(move |n| Plain::Unsigned(n >> (128 - 8 * u32::from(bytes))))
                .boxed(),
            Type::Signed(bytes) => any::<i128>()
                .prop_map(move |n| Plain::Signed(n >> (128 - 8 * u32::from(bytes))))
                .boxed(),
            Type::Float(4) => prop_oneof![any::<f32>(), any::<u32>().prop_map(f32::from_bits)]
                .prop_map(Plain::Float32)
                .boxed(),
            Type::Float(_) => prop_oneof![any::<f64>(), any::<u64>().prop_map(f64::from_bits)]
                .prop_map(Plain::Float64)
                .boxed(),
            Type::Text => any::<String>().prop_map(Plain::Text).boxed(),
            Type::Time => (
                prop_oneof![
                    any::<i64>(),
                    any::<i32>().prop_map(i64::from),
                    any::<i64>().prop_map(|n| n >> 22)
                ],
                prop_oneof![Just(0), 0..1_000_000_000u32],
            )
                .prop_map(|(seconds, nanos)| Plain::Time(seconds, nanos))
                .boxed(),
            Type::Array(count) => prop::collection::vec(any::<u8>(), count)
                .prop_map(Plain::Bytes)
                .boxed(),
            Type::Option(inner) => prop::option::of(value_of(*inner))
                .prop_map(|value| Plain::Option(value.map(Box::new)))
                .boxed(),
            Type::List(Type::Unsigned(1)) => any::<Vec<u8>>().prop_map(Plain::Bytes).boxed(),
            Type::List(inner) => prop::collection::vec(value_of(*inner), 0..4)
                .prop_map(Plain::List)
                .boxed(),
            Type::Struct(fields) => fields
                .iter()
                .map(|field| value_of(field.kind).prop_map(|value| (field.name, value)))
                .collect::<Vec<_>>()
                .prop_map(Plain::Struct)
                .boxed(),
            Type::Enum(variants) => prop::sample::select(variants)
                .prop_flat_map(|variant| {
                    value_of(variant.kind)
                        .prop_map(move |value| Plain::Enum(variant.name, value.into()))
                })
                .boxed(),
            Type::Map(key, value) => {
                let entry = (value_of(*key), value_of(*value));
                prop::collection::vec(entry, 0..4)
                    .prop_map(|mut entries| {
                        let known = entries.clone();
                        let mut number = 0..;
                        // No key comes twice.
                        entries.retain(|(key, _)| {
                            let before = known.iter().take(number.next().unwrap_or(0));
                            before.into_iter().all(|(other, _)| other != key)
                        });
                        Plain::Map(entries)
                    })
                    .boxed()
            }
            _ => unreachable!(),
        }
    }

    fn point() -> Plain {
        Plain::Enum("Point", Plain::Struct(Vec::new()).into())
    }

    fn line(width: f32) -> Plain {
        Plain::Enum(
            "Line",
            Plain::Struct(vec![("width", Plain::Float32(width))]).into(),
        )
    }

    /// A type, and a value of it.
    fn any_value() -> impl Strategy<Value = (Type, Plain)> {
        let kinds = [
            Type::Bool,
            Type::Unsigned(1),
            Type::Unsigned(8),
            Type::Unsigned(16),
            Type::Signed(2),
            Type::Signed(8),
            Type::Signed(16),
            Type::Float(4),
            Type::Float(8),
            Type::Text,
            Type::Time,
            Type::Array(3),
            Type::Array(16),
            INNER,
            Type::List(&Type::Unsigned(1)),
            Type::List(&LINES),
            FORM,
            FORMS,
            NUMBERS,
        ];
        prop::sample::select(kinds.to_vec())
            .prop_flat_map(|kind| value_of(kind).prop_map(move |value| (kind, value)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_goes_out_comes_in_again((kind, value) in any_value()) {
            let text = text(&kind, &value);
            let back = parse(&kind, &serde_json::from_str(&text).unwrap());
            let back = back.map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
            prop_assert!(same(&back, &value), "{kind}: {text}: {value:?} {back:?}");
        }

        #[test]
        fn no_text_does_harm(text in any::<String>(), (kind, _) in any_value()) {
            parse(&kind, &Value::String(text.clone())).ok();
            parse_time(&format!("@{text}"));
            parse_text(&kind, &format!("NaN:{text}"));
        }
    }

    #[test]
    fn values_have_the_form_that_people_expect() {
        for (kind, value, expected) in [
            (
                Type::Unsigned(8),
                Plain::Unsigned(u64::MAX.into()),
                "18446744073709551615",
            ),
            (Type::Unsigned(16), Plain::Unsigned(7), "\"7\""),
            (Type::Signed(16), Plain::Signed(-7), "\"-7\""),
            (Type::Float(4), Plain::Float32(0.1), "0.1"),
            (Type::Float(8), Plain::Float64(-0.0), "-0.0"),
            (Type::Float(8), Plain::Float64(f64::NAN), "\"NaN\""),
            (
                Type::Float(4),
                Plain::Float32(-f32::NAN),
                "\"NaN:ffc00000\"",
            ),
            (
                Type::Float(8),
                Plain::Float64(f64::NEG_INFINITY),
                "\"-inf\"",
            ),
            (Type::Time, Plain::Time(0, 0), "\"1970-01-01T00:00:00Z\""),
            (
                Type::Time,
                Plain::Time(-1, 5),
                "\"1969-12-31T23:59:59.000000005Z\"",
            ),
            (
                Type::Time,
                Plain::Time(i64::MAX, 5),
                "\"@9223372036854775807+5ns\"",
            ),
            (Type::Array(2), Plain::Bytes(vec![0, 255]), "\"00ff\""),
            (
                Type::Array(16),
                Plain::Bytes((0..16).collect()),
                "\"00010203-0405-0607-0809-0a0b0c0d0e0f\"",
            ),
            (INNER, Plain::Option(None), "null"),
            (
                INNER,
                Plain::Option(Some(Plain::Option(None).into())),
                "[null]",
            ),
            (FORM, point(), "\"Point\""),
            (FORM, line(0.5), "{\"Line\":{\"width\":0.5}}"),
            (
                FORMS,
                Plain::Map(vec![
                    (Plain::Text("a".to_owned()), point()),
                    (Plain::Text("b".to_owned()), line(1.0)),
                ]),
                "{\"a\":\"Point\",\"b\":{\"Line\":{\"width\":1.0}}}",
            ),
            (
                NUMBERS,
                Plain::Map(vec![
                    (Plain::Signed(-1), Plain::Option(None)),
                    (Plain::Signed(2), Plain::Option(Some(point().into()))),
                ]),
                "[[-1,null],[2,\"Point\"]]",
            ),
        ] {
            assert_eq!(text(&kind, &value), expected);
        }
        // What people may write besides.
        for (kind, value, expected) in [
            (Type::Time, json!("@5"), Plain::Time(5, 0)),
            (
                Type::Time,
                json!("1970-01-01T01:00:01+01:00"),
                Plain::Time(1, 0),
            ),
            (Type::Unsigned(2), json!("77"), Plain::Unsigned(77)),
            (Type::Float(8), json!(3), Plain::Float64(3.0)),
            (
                Type::Array(16),
                json!("000102030405060708090A0B0C0D0E0F"),
                Plain::Bytes((0..16).collect()),
            ),
        ] {
            assert_eq!(parse(&kind, &value), Ok(expected));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let lines = Type::List(&LINES);
        for (kind, value, message) in [
            (Type::Bool, json!(1), "found 1, allowed is true or false"),
            (
                Type::Unsigned(1),
                json!(256),
                "found 256, allowed is a whole number from 0 to 255",
            ),
            (
                Type::Unsigned(1),
                json!(-1),
                "found -1, allowed is a whole number from 0 to 255",
            ),
            (
                Type::Unsigned(8),
                json!(1.0),
                "found 1.0, allowed is a whole number from 0 to 18446744073709551615",
            ),
            (
                Type::Signed(1),
                json!("+1"),
                "found \"+1\", allowed is a whole number from -128 to 127",
            ),
            (
                Type::Float(4),
                json!(1e300),
                "found 1e+300, allowed is a number, \"inf\", \"-inf\" or \"NaN\"",
            ),
            (Type::Text, json!(7), "found 7, allowed is a text"),
            (
                Type::Time,
                json!("yesterday"),
                "found \"yesterday\", allowed is a time such as \"2026-01-31T12:00:00Z\", or \"@SECONDS\" since 1970",
            ),
            (
                Type::Array(2),
                json!("00f"),
                "found \"00f\", allowed is 4 hexadecimal digits",
            ),
            (
                Type::Array(16),
                json!("0001020304050607-08090a0b0c0d0e0f"),
                "found \"0001020304050607-08090a0b0c0d0e0f\", allowed is a UUID, or 32 hexadecimal digits",
            ),
            (
                Type::Option(&Type::Text),
                json!([]),
                "found an array, allowed is a text, or null",
            ),
            (lines, json!({}), "found an object, allowed is an array"),
            (
                lines,
                json!([{"odd": null}, {"rate": true}]),
                "[1].rate: found true, allowed is a number, \"inf\", \"-inf\" or \"NaN\", or null",
            ),
            (
                lines,
                json!([{"odds": null}]),
                "[0]: found a field \"odds\", allowed is rate, odd",
            ),
            (
                FORM,
                json!("Circle"),
                "found \"Circle\", allowed is \"Point\" or {\"Line\": an object}",
            ),
            (
                FORM,
                json!("Line"),
                "found \"Line\", allowed is \"Point\" or {\"Line\": an object}",
            ),
            (
                FORM,
                json!({"Line": {"width": "thin"}}),
                "Line.width: found \"thin\", allowed is a number, \"inf\", \"-inf\" or \"NaN\"",
            ),
            (
                FORMS,
                json!({"a": "Point", "b": 7}),
                "b: found 7, allowed is \"Point\" or {\"Line\": an object}",
            ),
            (
                NUMBERS,
                json!([[1, null], [2]]),
                "[1]: found an array, allowed is an array of a key and a value",
            ),
            (
                NUMBERS,
                json!([[1, null], [1, null]]),
                "found an array, allowed is an array of pairs, each key once",
            ),
        ] {
            assert_eq!(parse(&kind, &value).unwrap_err().to_string(), message);
        }
        let one = Type::Struct(&[Field {
            name: "id",
            kind: Type::Unsigned(1),
        }]);
        assert_eq!(
            parse(&one, &json!({})).unwrap_err().to_string(),
            "id: found nothing, allowed is a whole number from 0 to 255"
        );
    }
}
