//! The partitions of a SIF file, the container image of Apptainer and Singularity.
//!
//! Byte 0 is a launch script of 32 bytes, and then come the magic number and the header. At byte 88 it has the count of
//! descriptors, and at byte 96 where the first is, each as an `i64`. A descriptor has 585 bytes without padding: type at byte
//! 0, whether it is used at byte 4, offset at byte 17, and for a partition its purpose at byte 205.

use brisk_io::ByteSource;

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"SIF_MAGIC\0";
const MAGIC_AT: usize = 32;
const HEADER: usize = 128;
const DESCRIPTOR: usize = 585;

/// The type of a partition's descriptor.
const PARTITION: i32 = 0x4004;

/// The purpose of the partition that a container starts from.
const PRIMARY: i32 = 2;

/// Descriptors that are read at most. Apptainer makes 48.
const MOST: u64 = 1024;

/// Where the partitions of the SIF file in `source` start, the primary ones first; none if it is no SIF file.
pub(super) fn partitions(source: &dyn ByteSource, len: u64) -> Result<Vec<u64>> {
    let mut header = [0; HEADER];
    if len < HEADER as u64 {
        return Ok(Vec::new());
    }
    let read = |at, bytes: &mut [u8], what| {
        let read = source.read_exact_bytes_at(at, bytes);
        read.map_err(|e| Error::io(what, e))
    };
    read(0, &mut header, "read the header of a SIF file")?;
    if !header[MAGIC_AT..].starts_with(MAGIC) {
        return Ok(Vec::new());
    }
    let (count, start) = (u64_at(&header, 88), u64_at(&header, 96));
    let (mut primary, mut others) = (Vec::new(), Vec::new());
    for i in 0..count.min(MOST) {
        let at = start.saturating_add(i * DESCRIPTOR as u64);
        if len.saturating_sub(at) < DESCRIPTOR as u64 {
            break;
        }
        let mut descriptor = [0; DESCRIPTOR];
        read(at, &mut descriptor, "read a descriptor of a SIF file")?;
        if i32_at(&descriptor, 0) == PARTITION && descriptor[4] != 0 {
            match i32_at(&descriptor, 205) {
                PRIMARY => &mut primary,
                _ => &mut others,
            }
            .push(u64_at(&descriptor, 17));
        }
    }
    primary.append(&mut others);
    Ok(primary)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    i32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A SIF file whose partitions have these purposes and offsets. Its descriptors are at byte 4096, behind one that is not
    /// used and one of another type.
    pub(in crate::read) fn sif(partitions: &[(i32, u64)]) -> Vec<u8> {
        let mut file = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0".to_vec();
        file.resize(88, 0);
        file.extend_from_slice(&(partitions.len() as u64 + 2).to_le_bytes());
        file.extend_from_slice(&4096u64.to_le_bytes());
        file.resize(4096, 0);
        let mut push = |kind: i32, used: u8, purpose: i32, offset: u64| {
            let mut descriptor = [0; DESCRIPTOR];
            descriptor[..4].copy_from_slice(&kind.to_le_bytes());
            descriptor[4] = used;
            descriptor[17..25].copy_from_slice(&offset.to_le_bytes());
            descriptor[205..209].copy_from_slice(&purpose.to_le_bytes());
            file.extend_from_slice(&descriptor);
        };
        push(PARTITION, 0, PRIMARY, 1);
        push(0x4001, 1, PRIMARY, 2);
        for (purpose, offset) in partitions {
            push(PARTITION, 1, *purpose, *offset);
        }
        file
    }

    #[test]
    fn the_primary_partition_comes_first() {
        let file = sif(&[(3, 9000), (2, 8000), (1, u64::MAX)]);
        let len = file.len() as u64;
        assert_eq!(partitions(&file, len).unwrap(), [8000, 9000, u64::MAX]);
    }

    #[test]
    fn a_header_that_lies_gives_what_is_there() {
        let mut file = sif(&[(2, 8000)]);
        let len = file.len() as u64;
        file[88..96].fill(0xff);
        assert_eq!(partitions(&file, len).unwrap(), [8000]);
        file.pop();
        assert_eq!(partitions(&file, len - 1).unwrap(), [0; 0]);
        file[96..104].fill(0xff);
        assert_eq!(partitions(&file, len - 1).unwrap(), [0; 0]);
        assert_eq!(partitions(&file[..127].to_vec(), 127).unwrap(), [0; 0]);
    }
}
