use std::fmt;

/// Bytes of the stored form of a moment.
pub(crate) const TIME_WIDTH: usize = 12;

/// The type of a value, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// `false` or `true`: one byte, 0 or 1.
    Bool,
    /// A number of so many bytes without a sign.
    Unsigned(u8),
    /// A number of so many bytes with a sign.
    Signed(u8),
    /// A number of so many bytes with a binary point (IEEE 754).
    Float(u8),
    /// Text in UTF-8.
    Text,
    /// A moment: seconds since 1970 and nanoseconds of the second.
    Time,
    /// So many bytes.
    Array(usize),
    /// A value that may be missing.
    Option(&'static Type),
    /// Any number of values.
    List(&'static Type),
    /// Named values.
    Struct(&'static [Field]),
    /// One of these variants, each of which is a struct: one byte says which, and the values of the variant follow.
    Enum(&'static [Field]),
    /// Values under keys, in the order of the keys, none of which comes twice.
    Map(&'static Type, &'static Type),
}

/// A named value of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
}

impl Type {
    /// Bytes of the part of fixed width of a value.
    pub fn width(&self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Unsigned(bytes) | Self::Signed(bytes) | Self::Float(bytes) => usize::from(*bytes),
            Self::Text | Self::List(_) | Self::Map(..) => 8,
            Self::Time => TIME_WIDTH,
            Self::Array(bytes) => *bytes,
            Self::Option(inner) => inner.width().saturating_add(1),
            Self::Struct(fields) => {
                let widths = fields.iter().map(|field| field.kind.width());
                widths.fold(0, usize::saturating_add)
            }
            Self::Enum(variants) => {
                let widths = variants.iter().map(|variant| variant.kind.width());
                widths.max().unwrap_or(0).saturating_add(1)
            }
        }
    }

    /// Whether values of this type can be keys, or parts of them.
    pub(crate) fn is_key(&self) -> bool {
        match self {
            Self::Option(inner) => inner.is_key(),
            Self::List(inner) => **inner == Self::Unsigned(1),
            Self::Struct(_) | Self::Map(..) => false,
            Self::Enum(variants) => variants.iter().all(Field::is_empty),
            _ => true,
        }
    }
}

impl Field {
    /// Whether a variant has no values.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.kind, Type::Struct([]))
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[Field]) -> fmt::Result {
    f.write_str("{")?;
    for (at, field) in fields.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(f, "{comma}{}: {}", field.name, field.kind)?;
    }
    f.write_str("}")
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Unsigned(bytes) => write!(f, "u{}", u32::from(*bytes) * 8),
            Self::Signed(bytes) => write!(f, "i{}", u32::from(*bytes) * 8),
            Self::Float(bytes) => write!(f, "f{}", u32::from(*bytes) * 8),
            Self::Text => f.write_str("text"),
            Self::Time => f.write_str("time"),
            Self::Array(bytes) => write!(f, "bytes<{bytes}>"),
            Self::Option(inner) => write!(f, "option<{inner}>"),
            Self::List(inner) => write!(f, "list<{inner}>"),
            Self::Struct(fields) => write_fields(f, fields),
            Self::Enum(variants) => {
                f.write_str("enum")?;
                write_fields(f, variants)
            }
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
        }
    }
}

/// FNV-1a, over the parts of a description.
pub(crate) struct Fingerprint(pub(crate) u64);

impl Fingerprint {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) const fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0100_0000_01b3))
    }

    pub(crate) const fn number(self, number: u64) -> Self {
        let (bytes, mut this, mut at) = (number.to_le_bytes(), self, 0);
        while at < bytes.len() {
            this = this.byte(bytes[at]);
            at += 1;
        }
        this
    }

    pub(crate) const fn text(self, text: &str) -> Self {
        let (bytes, mut at) = (text.as_bytes(), 0);
        let mut this = self.number(bytes.len() as u64);
        while at < bytes.len() {
            this = this.byte(bytes[at]);
            at += 1;
        }
        this
    }

    const fn fields(self, fields: &[Field]) -> Self {
        let (mut this, mut at) = (self.number(fields.len() as u64), 0);
        while at < fields.len() {
            this = this.text(fields[at].name).kind(&fields[at].kind);
            at += 1;
        }
        this
    }

    pub(crate) const fn kind(self, kind: &Type) -> Self {
        match kind {
            Type::Bool => self.byte(1),
            Type::Unsigned(bytes) => self.byte(2).byte(*bytes),
            Type::Signed(bytes) => self.byte(3).byte(*bytes),
            Type::Float(bytes) => self.byte(4).byte(*bytes),
            Type::Text => self.byte(5),
            Type::Time => self.byte(6),
            Type::Array(bytes) => self.byte(7).number(*bytes as u64),
            Type::Option(inner) => self.byte(8).kind(inner),
            Type::List(inner) => self.byte(9).kind(inner),
            Type::Struct(fields) => self.byte(10).fields(fields),
            Type::Enum(variants) => self.byte(11).fields(variants),
            Type::Map(key, value) => self.byte(12).kind(key).kind(value),
        }
    }
}
