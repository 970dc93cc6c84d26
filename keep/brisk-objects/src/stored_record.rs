//! A record as the file has it: its check, its value, and zeros up to a multiple of 8 bytes.

use twox_hash::XxHash3_64;

use crate::error::{Error, RECORD};
use crate::key_bytes::KeyBytes;
use crate::record::{Record, ViewOf};
use crate::value::{Place, ValueWriter};

/// Bytes of the check.
const CHECK: usize = 8;

/// The check of a value under a key.
#[inline]
fn check_of(fingerprint: u64, key: &[u8], value: &[u8]) -> u64 {
    let seed = XxHash3_64::oneshot_with_seed(fingerprint, key);
    XxHash3_64::oneshot_with_seed(seed, value)
}

/// Writes a record, but for its check.
pub(crate) fn encode<R: Record>(record: &R, out: &mut Vec<u8>) -> Result<(), Error> {
    encode_by(R::SCHEMA.collection, out, |out| {
        ValueWriter::write(record, out)
    })
}

/// The same of a record that `write` writes.
pub(crate) fn encode_by(
    collection: &'static str,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Option<()>,
) -> Result<(), Error> {
    out.clear();
    out.extend_from_slice(&[0; CHECK]);
    let written = write(out);
    out.resize(out.len().next_multiple_of(8), 0);
    let most = u64::from(u32::MAX);
    let len = out.len() as u64;
    match written.filter(|()| len <= most) {
        Some(()) => Ok(()),
        None => Err(Error::TooLong {
            what: RECORD,
            of: collection,
            len,
            most,
        }),
    }
}

/// The key of a record whose key the database may choose. None if it never does.
pub(crate) fn auto_key<R: Record>(bytes: &[u8]) -> Option<u64> {
    let place = bytes.get(CHECK..)?.get(R::AUTO_KEY_AT?..)?;
    place.first_chunk().copied().map(u64::from_le_bytes)
}

/// Sets the key that the database has chosen.
pub(crate) fn set_auto_key<R: Record>(bytes: &mut [u8], key: u64) {
    let place = R::AUTO_KEY_AT.and_then(|at| bytes.get_mut(CHECK + at..)?.first_chunk_mut());
    if let Some(place) = place {
        *place = key.to_le_bytes();
    }
}

/// The key of a record, padded as tables have it.
#[inline]
pub(crate) fn key_of<R: Record>(view: &ViewOf<'_, R>) -> KeyBytes {
    let mut key = KeyBytes::new();
    R::encode_key_of(view, &mut key);
    key.pad();
    key
}

/// Writes the check, once all else is there.
pub(crate) fn seal<R: Record>(bytes: &mut [u8], key: &[u8]) {
    seal_of(R::FINGERPRINT, bytes, key);
}

/// The same of a record of a layout.
pub(crate) fn seal_of(fingerprint: u64, bytes: &mut [u8], key: &[u8]) {
    if let Some((check, value)) = bytes.split_first_chunk_mut::<CHECK>() {
        *check = check_of(fingerprint, key, value).to_le_bytes();
    }
}

/// The view of a record whose check nobody has looked at.
#[inline]
pub(crate) fn unchecked<R: Record>(bytes: &[u8]) -> Option<ViewOf<'_, R>> {
    let value = bytes.get(CHECK..)?;
    Place::of_value::<R>(value).map(R::view_at)
}

/// The view of a record under a key, if it is what was stored there. All keys and records are padded, so it lies at a multiple
/// of 8 bytes: one that does not was not written by this crate.
#[inline]
pub(crate) fn view<'a, R: Record>(key: &[u8], bytes: &'a [u8]) -> Option<ViewOf<'a, R>> {
    if !bytes.as_ptr().addr().is_multiple_of(8) {
        return None;
    }
    view_of_copy::<R>(key, bytes)
}

/// The same of bytes that may lie anywhere.
#[inline]
pub(crate) fn view_of_copy<'a, R: Record>(key: &[u8], bytes: &'a [u8]) -> Option<ViewOf<'a, R>> {
    let value = value_of(R::FINGERPRINT, key, bytes)?;
    Place::of_value::<R>(value).map(R::view_at)
}

/// The value of a record of a layout under a key, if it is what was stored there.
#[inline]
pub(crate) fn value_of<'a>(fingerprint: u64, key: &[u8], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (check, value) = bytes.split_first_chunk::<CHECK>()?;
    (u64::from_le_bytes(*check) == check_of(fingerprint, key, value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(crate::Record, Debug)]
    struct Line {
        #[key]
        id: u64,
        text: String,
    }

    #[test]
    fn a_record_lies_at_a_multiple_of_8_bytes() {
        let text = "text".to_owned();
        let mut bytes = Vec::new();
        encode(&Line { id: 1, text }, &mut bytes).unwrap();
        let key = 1u64.to_be_bytes();
        seal::<Line>(&mut bytes, &key);
        let mut room = vec![0; bytes.len() + 16];
        let first = room.as_ptr().align_offset(8);
        for shift in 0..8 {
            let at = first + shift;
            let copy = &mut room[at..at + bytes.len()];
            copy.copy_from_slice(&bytes);
            let found = view::<Line>(&key, copy).map(|view| view.text().to_owned());
            assert_eq!(found.is_some(), shift == 0, "{shift}");
            assert!(view_of_copy::<Line>(&key, copy).is_some());
        }
    }
}
