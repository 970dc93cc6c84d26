//! Why bytes are not what the format allows, for somebody who looks for damage. Reading needs only yes or no.

use std::fmt;
use std::mem::offset_of;

use zerocopy::FromBytes;

use super::record::{self, Expected};
use super::slot::{self, BUCKETS, Kind};
use super::{check, index_header, ledger_state, segment_header};

/// A field that is not what the format allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where the field is, from the start of the header, the slot or the record.
    pub(crate) at: u64,
    pub(crate) field: &'static str,
    pub(crate) found: String,
    pub(crate) allowed: String,
}

impl Fault {
    pub(crate) fn new(
        at: usize,
        field: &'static str,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self {
            at: at as u64,
            field,
            found: found.to_string(),
            allowed: allowed.to_string(),
        }
    }

    fn magic(found: [u8; 8], allowed: [u8; 8]) -> Option<Self> {
        let text = |magic: [u8; 8]| magic.escape_ascii().to_string();
        (found != allowed).then(|| Self::new(0, "magic", text(found), text(allowed)))
    }

    fn version(at: usize, found: u32, allowed: u32) -> Option<Self> {
        (found != allowed).then(|| Self::new(at, "version", found, allowed))
    }

    fn check(at: usize, found: u64, allowed: u64) -> Option<Self> {
        let fault = || {
            Self::new(
                at,
                "check",
                format_args!("{found:016x}"),
                format_args!("{allowed:016x}"),
            )
        };
        (found != allowed).then(fault)
    }

    /// Why these bytes are no header of an index in a file of this length.
    pub(crate) fn of_index(bytes: &[u8; index_header::LEN], file_len: u64) -> Option<Self> {
        type Wire = index_header::Wire;
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let at = offset_of!(Wire, check);
        let (seed, blocks) = (wire.seed.get(), wire.blocks.get());
        Self::magic(wire.magic, index_header::MAGIC)
            .or_else(|| {
                let at = offset_of!(Wire, version);
                Self::version(at, wire.version.get(), index_header::VERSION)
            })
            .or_else(|| {
                let at = offset_of!(Wire, seed);
                (seed == 0).then(|| Self::new(at, "seed", 0, "any other number"))
            })
            .or_else(|| {
                let allowed = check::seeded(seed, bytes.split_at(at).0);
                Self::check(at, wire.check.get(), allowed)
            })
            .or_else(|| {
                let most = index_header::MOST_BLOCKS;
                let right = blocks.is_power_of_two() && blocks <= most;
                let at = offset_of!(Wire, blocks);
                let allowed = format_args!("a power of two, at most {most}");
                (!right).then(|| Self::new(at, "blocks", blocks, allowed))
            })
            .or_else(|| {
                let allowed = index_header::IndexHeader { blocks, seed }.file_len();
                (file_len != allowed).then(|| Self::new(0, "the file's length", file_len, allowed))
            })
    }

    /// Why these bytes are neither a slot nor a free one.
    pub(crate) fn of_slot(seed: u64, bytes: &[u8; slot::LEN]) -> Option<Self> {
        type Wire = slot::Wire;
        if *bytes == slot::FREE {
            return None;
        }
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let at = offset_of!(Wire, check);
        Self::check(
            at,
            wire.check.get(),
            check::seeded(seed, bytes.split_at(at).0),
        )
        .or_else(|| {
            let at = offset_of!(Wire, segment);
            (wire.segment.get() == 0).then(|| Self::new(at, "segment", 0, "any other number"))
        })
        .or_else(|| {
            let (at, bucket) = (offset_of!(Wire, bucket), wire.bucket.get());
            let allowed = format_args!("less than {BUCKETS}");
            (bucket >= BUCKETS).then(|| Self::new(at, "bucket", bucket, allowed))
        })
        .or_else(|| {
            let at = offset_of!(Wire, kind);
            let known = Kind::from_wire(wire.kind.into());
            known
                .is_none()
                .then(|| Self::new(at, "kind", wire.kind, "1 or 2"))
        })
        .or_else(|| {
            let at = offset_of!(Wire, flags);
            (slot::Slot::parse(seed, bytes).is_none())
                .then(|| Self::new(at, "flags or reserved", wire.flags, "1 at most, and zero"))
        })
    }

    /// Why these bytes are not the header of the file with this kind and number.
    pub(crate) fn of_segment(
        bytes: &[u8; segment_header::LEN],
        kind: Kind,
        number: u64,
    ) -> Option<Self> {
        type Wire = segment_header::Wire;
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let (at, own) = (offset_of!(Wire, check), wire.number.get());
        Self::magic(wire.magic, segment_header::MAGIC)
            .or_else(|| {
                let at = offset_of!(Wire, version);
                Self::version(at, wire.version.get(), segment_header::VERSION)
            })
            .or_else(|| {
                let allowed = check::seeded(own, bytes.split_at(at).0);
                Self::check(at, wire.check.get(), allowed)
            })
            .or_else(|| {
                let (at, own) = (format_args!("{own:016x}"), wire.number.get());
                let allowed = format_args!("{number:016x}, as its name says");
                (own != number).then(|| Self::new(offset_of!(Wire, number), "number", at, allowed))
            })
            .or_else(|| {
                let (found, allowed) = (wire.kind.get(), kind.to_wire());
                let at = offset_of!(Wire, kind);
                (found != u32::from(allowed)).then(|| Self::new(at, "kind", found, allowed))
            })
    }

    /// Why these bytes are no ledger, of whatever home.
    pub(crate) fn of_ledger(bytes: &[u8; ledger_state::LEN]) -> Option<Self> {
        type Wire = ledger_state::Wire;
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let at = offset_of!(Wire, check);
        Self::magic(wire.magic, ledger_state::MAGIC)
            .or_else(|| {
                let at = offset_of!(Wire, version);
                Self::version(at, wire.version.get(), ledger_state::VERSION)
            })
            .or_else(|| Self::check(at, wire.check.get(), ledger_state::check_of(&wire)))
    }

    /// Why the header of a record does not agree with its slot.
    pub(crate) fn of_record(
        header: &[u8; record::HEADER],
        expected: &Expected<'_>,
    ) -> Option<Self> {
        type Wire = record::Wire;
        let wire = Wire::read_from_bytes(header).ok()?;
        let key_len = wire.key_len.get();
        Self::check(offset_of!(Wire, check), wire.check.get(), expected.record)
            .or_else(|| {
                let (found, allowed) = (wire.segment.get(), expected.segment);
                let at = offset_of!(Wire, segment);
                let texts = (format!("{found:016x}"), format!("{allowed:016x}"));
                (found != allowed).then(|| Self::new(at, "segment", texts.0, texts.1))
            })
            .or_else(|| {
                let at = offset_of!(Wire, key_len);
                let allowed = format_args!("1 to {}", record::MOST_KEY);
                let right = (1..=record::MOST_KEY).contains(&key_len.into());
                (!right).then(|| Self::new(at, "key_len", key_len, allowed))
            })
            .or_else(|| {
                let at = offset_of!(Wire, log2_chunk);
                let allowed = "0, or 10 to 14, and at least 12 in a file of its own; a later version of brisk may know it";
                let fault = || Self::new(at, "log2_chunk", wire.log2_chunk, allowed);
                wire.log2_of_chunks(expected.kind).is_none().then(fault)
            })
            .or_else(|| {
                let fits = wire
                    .layout(expected.kind)
                    .is_some_and(|layout| layout.value().end <= expected.room);
                let at = offset_of!(Wire, value_len);
                let allowed =
                    format_args!("what fits into the {} bytes of its slot", expected.room);
                (!fits).then(|| Self::new(at, "value_len", wire.value_len(), allowed))
            })
    }

    /// Why the first bytes of a record, whose header agrees with its slot, are not what was written.
    pub(crate) fn of_record_check(covered: &[u8], expected: u64) -> Option<Self> {
        Self::check(0, expected, check::of(covered))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            found,
            allowed,
            ..
        } = self;
        write!(f, "{field} is {found}, allowed is {allowed}")
    }
}
