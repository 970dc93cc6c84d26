//! The conditions of `--where`.

use std::cmp::Ordering;

use anyhow::{Context, bail};
use brisk_objects::{Plain, Schema, Type};

use crate::key_words::{fields_in_words, parse_word};

/// A field of a record, and how it must be.
pub(crate) struct Condition {
    path: Vec<String>,
    operator: Operator,
    value: Plain,
    /// As the user has written it.
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Other,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The longer ones first.
const OPERATORS: [(&str, Operator); 6] = [
    ("!=", Operator::Other),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::More),
];

impl Condition {
    pub(crate) fn parse(schema: &Schema, text: &str) -> anyhow::Result<Self> {
        let at = text.find(['=', '!', '<', '>']).unwrap_or(text.len());
        let (field, rest) = text.split_at(at);
        let found = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
        let Some((operator, word)) = found.filter(|_| !field.is_empty()) else {
            bail!("--where {text}: allowed is FIELD=VALUE, also with !=, <, <=, > or >=");
        };
        let path: Vec<_> = field.split('.').map(str::to_owned).collect();
        let kind = kind_of(&schema.layout, &path).with_context(|| {
            format!(
                "--where {text}: {} has no field {field}; it has {}",
                schema.collection,
                all_fields(schema)
            )
        })?;
        let value = parse_word(kind, word).with_context(|| format!("--where {text}: {field}"))?;
        if operator != Operator::Equal
            && operator != Operator::Other
            && order(&value, &value).is_none()
        {
            bail!(
                "--where {text}: {field} is of type {kind}, which has no order; allowed are = and !="
            );
        }
        Ok(Self {
            path,
            operator,
            value,
            text: text.to_owned(),
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a record is so. A field in a struct that is missing equals nothing.
    pub(crate) fn is_true_of(&self, record: &Plain) -> bool {
        let mut found = Some(record);
        for name in &self.path {
            found = found
                .and_then(without_option)
                .and_then(|value| value.field(name));
        }
        let Some(found) = found else {
            return self.operator == Operator::Other;
        };
        let order = order(found, &self.value);
        match self.operator {
            Operator::Equal => is_equal(found, &self.value),
            Operator::Other => !is_equal(found, &self.value),
            Operator::Less => order == Some(Ordering::Less),
            Operator::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Operator::More => order == Some(Ordering::Greater),
            Operator::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

fn all_fields(schema: &Schema) -> String {
    match schema.layout {
        Type::Struct(fields) => {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            fields_in_words(schema, &names)
        }
        _ => String::new(),
    }
}

fn without_option(value: &Plain) -> Option<&Plain> {
    match value {
        Plain::Option(None) => None,
        Plain::Option(Some(inner)) => without_option(inner),
        other => Some(other),
    }
}

/// The type of a field, also of one in a field.
fn kind_of<'k>(kind: &'k Type, path: &[String]) -> Option<&'k Type> {
    let Some((name, rest)) = path.split_first() else {
        return Some(kind);
    };
    let mut kind = kind;
    while let Type::Option(inner) = kind {
        kind = inner;
    }
    let Type::Struct(fields) = kind else {
        return None;
    };
    let field = fields.iter().find(|field| field.name == name)?;
    kind_of(&field.kind, rest)
}

/// What has an order is equal by that: a number that is none equals itself.
fn is_equal(one: &Plain, two: &Plain) -> bool {
    order(one, two).map_or(one == two, |order| order == Ordering::Equal)
}

/// As keys are ordered. None if they are not.
fn order(one: &Plain, two: &Plain) -> Option<Ordering> {
    Some(match (one, two) {
        (Plain::Bool(one), Plain::Bool(two)) => one.cmp(two),
        (Plain::Unsigned(one), Plain::Unsigned(two)) => one.cmp(two),
        (Plain::Signed(one), Plain::Signed(two)) => one.cmp(two),
        (Plain::Float32(one), Plain::Float32(two)) => one.total_cmp(two),
        (Plain::Float64(one), Plain::Float64(two)) => one.total_cmp(two),
        (Plain::Text(one), Plain::Text(two)) => one.cmp(two),
        (Plain::Time(one, nanos), Plain::Time(two, others)) => (one, nanos).cmp(&(two, others)),
        (Plain::Bytes(one), Plain::Bytes(two)) => one.cmp(two),
        (Plain::Option(one), Plain::Option(two)) => match (one, two) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(two)) => order(one, two)?,
        },
        _ => return None,
    })
}
