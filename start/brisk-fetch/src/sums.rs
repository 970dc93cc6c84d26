//! Checksums of what has arrived of an image without a hash tree.
//!
//! After a crash of the system, the map may say of bytes that they are there which the disk never got. So behind its bits the map has
//! eight bytes for each 64 KiB that are there, which are written when those are. They protect from a crash, and not from people: who
//! can write the file could write them, too.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use brisk_remote::Presence;
use sha2::{Digest, Sha256};

/// Bytes of the image for which there is a checksum.
const CHUNK: u64 = 64 << 10;

/// The chunks in which `bytes` of a file of `len` bytes lie.
pub fn chunks(bytes: &Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let chunks = bytes.start / CHUNK..bytes.end.min(len).div_ceil(CHUNK);
    chunks.map(move |chunk| chunk * CHUNK..((chunk + 1) * CHUNK).min(len))
}

/// Writes the checksums of those chunks of `bytes` that are whole.
pub fn note(file: &File, map: &File, presence: &Presence, bytes: &Range<u64>) -> io::Result<()> {
    for chunk in chunks(bytes, presence.len()).filter(|chunk| presence.has(chunk)) {
        map.write_all_at(&sum(file, &chunk)?, place(&chunk, presence.len()))?;
    }
    Ok(())
}

/// Whether the bytes of a chunk are those whose checksum was written.
pub fn is_right(file: &File, map: &File, chunk: &Range<u64>, len: u64) -> bool {
    let mut written = [0; 8];
    let read = map.read_exact_at(&mut written, place(chunk, len));
    read.is_ok() && sum(file, chunk).is_ok_and(|sum| sum == written)
}

/// Where in the map the checksum of a chunk is.
fn place(chunk: &Range<u64>, len: u64) -> u64 {
    Presence::map_len(len) + chunk.start / CHUNK * 8
}

fn sum(file: &File, chunk: &Range<u64>) -> io::Result<[u8; 8]> {
    let len = usize::try_from(chunk.end - chunk.start).unwrap_or(0);
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, chunk.start)?;
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(&bytes)[..8]);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_the_disk_did_not_get_is_told_from_one_that_it_did() {
        let len = 3 * CHUNK + 100;
        let (file, map) = (tempfile::tempfile(), tempfile::tempfile());
        let (file, map) = (file.expect("room"), map.expect("room"));
        file.write_all_at(&vec![7; 3 * 65_536 + 100], 0)
            .expect("room");
        let presence = Presence::nothing(len);
        presence.set(&(0..2 * CHUNK));
        presence.set(&(3 * CHUNK..len));
        note(&file, &map, &presence, &(5..len)).expect("room");
        let right = |file: &File| -> Vec<bool> {
            let all = chunks(&(0..len), len);
            all.map(|chunk| is_right(file, &map, &chunk, len)).collect()
        };
        assert_eq!(right(&file), [true, true, false, true]);
        file.write_all_at(&[0; 4096], CHUNK + 4096).expect("room");
        file.set_len(3 * CHUNK).expect("room");
        assert_eq!(right(&file), [true, false, false, false]);
    }
}
