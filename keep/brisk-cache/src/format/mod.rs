//! The bytes of a cache, as `docs/cache-format.md` describes them. Nothing here opens a file.

pub(crate) mod check;
pub(crate) mod digest;
pub(crate) mod fault;
pub(crate) mod index_header;
pub(crate) mod ledger_state;
pub(crate) mod noted_limit;
pub(crate) mod record;
pub(crate) mod segment_header;
pub(crate) mod slot;

/// Records begin at multiples of this many bytes. Slots count in it.
pub(crate) const UNIT: u64 = 64;

/// The lengths of files are multiples of the largest page size of any machine.
pub(crate) const PAGE: u64 = 64 << 10;

#[cfg(test)]
#[path = "../../docs/offset_tables.rs"]
mod offset_tables;

#[cfg(test)]
mod tests {
    use super::offset_tables::{rows, table_of};
    use super::slot::Kind;
    use super::{index_header, ledger_state, noted_limit, record, segment_header, slot};

    const TEXT: &str = include_str!("../../docs/cache-format.md");

    fn table(title: &str) -> Vec<(usize, usize, &'static str)> {
        table_of(TEXT, title)
    }

    #[test]
    fn the_page_has_the_offsets_of_the_code() {
        let rows = rows!(index_header::Wire {
            magic,
            version,
            blocks,
            seed,
            check,
            mark
        });
        assert_eq!(table("The index"), rows);
        let rows = rows!(slot::Wire {
            digest,
            segment,
            place,
            room,
            record,
            written,
            used,
            bucket,
            kind,
            flags,
            reserved,
            check
        });
        assert_eq!(table("A slot"), rows);
        let rows = rows!(segment_header::Wire {
            magic,
            version,
            kind,
            number,
            sequence,
            reserved,
            check
        });
        assert_eq!(table("A segment"), rows);
        let rows = rows!(record::Wire {
            check,
            segment,
            fingerprint,
            value_len,
            log2_chunk,
            key_len
        });
        assert_eq!(table("A record"), rows);
        let rows = rows!(ledger_state::Wire {
            magic,
            version,
            flags,
            active,
            tail,
            sequence,
            bytes,
            home,
            check
        });
        assert_eq!(table("The ledger"), rows);
    }

    #[test]
    fn the_page_has_the_constants_of_the_code() {
        for constant in [
            format!(
                "`magic` is `{}`; `version` is {}",
                index_header::MAGIC.escape_ascii(),
                1
            ),
            format!(
                "`magic` is `{}`; `version` is {}",
                segment_header::MAGIC.escape_ascii(),
                1
            ),
            format!(
                "`magic` is `{}`; `version` is {}",
                ledger_state::MAGIC.escape_ascii(),
                1
            ),
            format!(
                "{}   blocks of {} bytes",
                index_header::SLOTS_AT,
                index_header::BLOCK
            ),
            format!(
                "{} sets of {} slots of {} bytes",
                index_header::SETS,
                slot::WAYS,
                slot::LEN
            ),
            format!("at most {}.", index_header::MOST_BLOCKS),
            format!("At {} is the limit", noted_limit::LIMIT_AT),
            format!(
                "at {} its check",
                noted_limit::LIMIT_AT as usize + noted_limit::LEN / 2
            ),
            format!("less than {}.", slot::BUCKETS),
            format!("It has 1 to {} bytes", record::MOST_KEY),
            format!("A value of at most {} bytes", record::WHOLE),
            format!("chunks of {} bytes", record::chunk_len(Kind::Shared)),
            format!("chunks of {} bytes", record::chunk_len(Kind::Alone)),
            format!("multiples of {}, the first at {}", super::UNIT, super::UNIT),
            format!("At {} are {} pairs", ledger_state::TOTALS_AT, slot::BUCKETS),
            format!("multiples of {}, the largest page size", super::PAGE),
        ] {
            assert!(TEXT.contains(&constant), "{constant}");
        }
    }
}
