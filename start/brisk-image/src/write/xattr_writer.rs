//! The table of extended attributes.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use zerocopy::IntoBytes;

use super::metadata_writer::MetadataWriter;
use crate::codec::Compression;
use crate::error::{Allowed, Error, Location, Result};
use crate::format::metadata::MetaRef;
use crate::format::xattr::{Key, MAX_VALUE, OUT_OF_LINE, Set, TableHeader, Value, split_name};
use crate::read::xattr_reader::Xattr;

/// The table's bytes, as they are at byte `at` of the image, and where its header starts; none if
/// there are no attributes.
pub(crate) fn table(
    sets: &[Vec<Xattr>],
    compression: &Compression,
    at: u64,
) -> Result<Option<(Vec<u8>, u64)>> {
    if sets.is_empty() {
        return Ok(None);
    }
    let mut pairs = MetadataWriter::new(compression)?;
    let mut entries = MetadataWriter::new(compression)?;
    let mut known = HashMap::new();
    for set in sets {
        let start = pairs.position()?;
        let mut len = 0;
        for xattr in set {
            len += write_pair(&mut pairs, xattr, &mut known)?;
        }
        let count = u32::try_from(set.len()).map_err(|_| {
            Error::limit(
                "the number of xattrs of a file",
                set.len() as u64,
                u32::MAX.into(),
            )
        })?;
        let entry = Set {
            pairs: start.encode().into(),
            count: count.into(),
            len: len.into(),
        };
        entries.append(entry.as_bytes())?;
    }
    let (mut bytes, _) = pairs.finish()?;
    let header = TableHeader {
        pairs_start: at.into(),
        // `TreeBuilder` gives out 32-bit numbers of sets.
        count: u32::try_from(sets.len()).unwrap_or(u32::MAX).into(),
        unused: 0.into(),
    };
    let (table, list) = entries.finish_as_table(at + bytes.len() as u64, header.as_bytes())?;
    bytes.extend_from_slice(&table);
    Ok(Some((bytes, list)))
}

/// Writes one attribute, and returns how many bytes it takes.
fn write_pair<'a>(
    pairs: &mut MetadataWriter,
    xattr: &'a Xattr,
    known: &mut HashMap<&'a [u8], MetaRef>,
) -> Result<u32> {
    let name = xattr.name.as_bytes();
    let fault = |field, found: usize, allowed| {
        Error::field(Location::Byte(0), field, found as u64, allowed)
    };
    let (kind, rest) = split_name(name)
        .ok_or_else(|| Error::input(format!("xattr {} cannot be stored", xattr.name.display())))?;
    let name_len = u16::try_from(rest.len()).map_err(|_| {
        fault(
            "length of an xattr's name",
            rest.len(),
            Allowed::AtMost(65_535),
        )
    })?;
    let value_len = u32::try_from(xattr.value.len())
        .ok()
        .filter(|&len| len <= MAX_VALUE)
        .ok_or_else(|| {
            fault(
                "length of an xattr's value",
                xattr.value.len(),
                Allowed::AtMost(MAX_VALUE.into()),
            )
        })?;
    // A reference takes 8 bytes, so only a longer value is worth one.
    let elsewhere = known.get(xattr.value.as_slice()).filter(|_| value_len > 8);
    let kind = if elsewhere.is_some() {
        kind | OUT_OF_LINE
    } else {
        kind
    };
    pairs.append(
        Key {
            kind: kind.into(),
            name_len: name_len.into(),
        }
        .as_bytes(),
    )?;
    pairs.append(rest)?;
    let stored = match elsewhere {
        Some(value) => {
            pairs.append(Value { len: 8.into() }.as_bytes())?;
            pairs.append(&value.encode().to_le_bytes())?;
            8
        }
        None => {
            known.insert(&xattr.value, pairs.position()?);
            pairs.append(
                Value {
                    len: value_len.into(),
                }
                .as_bytes(),
            )?;
            pairs.append(&xattr.value)?;
            value_len
        }
    };
    let key_len = (size_of::<Key>() + size_of::<Value>()) as u32;
    Ok(key_len + u32::from(name_len) + stored)
}
