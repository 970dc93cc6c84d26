//! Where in a file an image starts: at its first byte, or behind the program or the header that carries it.

use brisk_io::ByteSource;

use super::sif;
use crate::error::{Corrupt, Error, Location, Result};
use crate::format::superblock::{MAGIC, Superblock};

/// How far from the start of a script an image is looked for.
const SCRIPT: u64 = 1 << 20;

/// Finds the first byte of the image in `source`.
///
/// An AppImage (type 2) is an ELF program with the image right behind its section headers, or
/// behind its last section where those come earlier. A SIF file lists its partitions. A script says nowhere what is behind
/// it, so the first superblock counts that is one.
pub(crate) fn image_start(source: &dyn ByteSource) -> Result<u64> {
    let len = source
        .size()
        .map_err(|e| Error::io("read the length of the image", e))?;
    let magic = magic_at(source, 0, len)?;
    if magic == MAGIC {
        return Ok(0);
    }
    if magic.to_le_bytes() == *b"\x7fELF"
        && let Some(end) = elf_end(source, len)?
        && magic_at(source, end, len)? == MAGIC
    {
        return Ok(end);
    }
    if magic.to_le_bytes().starts_with(b"#!")
        && let Some(start) = start_in_script(source, len)?
    {
        return Ok(start);
    }
    Err(Error::corrupt(
        Location::Byte(0),
        Corrupt::Magic { found: magic },
    ))
}

/// Where the image starts in a SIF file, or behind a script.
fn start_in_script(source: &dyn ByteSource, len: u64) -> Result<Option<u64>> {
    for start in sif::partitions(source, len)? {
        if has_superblock(source, start, len)? {
            return Ok(Some(start));
        }
    }
    // At most a mebibyte.
    let mut script = vec![0; len.min(SCRIPT) as usize];
    source
        .read_exact_bytes_at(0, &mut script)
        .map_err(|e| Error::io("read the script in front of the image", e))?;
    let magic = MAGIC.to_le_bytes();
    let places = script.windows(magic.len()).zip(0..);
    for (_, start) in places.filter(|(bytes, _)| **bytes == magic) {
        if has_superblock(source, start, len)? {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Whether a superblock is at byte `start`. A script may also just mention the magic number.
fn has_superblock(source: &dyn ByteSource, start: u64, len: u64) -> Result<bool> {
    let left = len.saturating_sub(start);
    if left < Superblock::LEN as u64 {
        return Ok(false);
    }
    let mut header = [0; Superblock::LEN];
    source
        .read_exact_bytes_at(start, &mut header)
        .map_err(|e| Error::io("read the superblock", e))?;
    Ok(Superblock::parse(&header, left).is_ok())
}

fn magic_at(source: &dyn ByteSource, at: u64, len: u64) -> Result<u32> {
    let have = len.saturating_sub(at);
    if have < 4 {
        let what = "the magic number";
        return Err(Error::corrupt(
            Location::Byte(at),
            Corrupt::Truncated {
                what,
                need: 4,
                have,
            },
        ));
    }
    let mut magic = [0; 4];
    source
        .read_exact_bytes_at(at, &mut magic)
        .map_err(|e| Error::io("read the magic number", e))?;
    Ok(u32::from_le_bytes(magic))
}

/// The byte after the section headers of an ELF program, or after its last section if that is
/// later; none if the header makes no sense.
fn elf_end(source: &dyn ByteSource, len: u64) -> Result<Option<u64>> {
    let mut header = [0u8; 64];
    if len < 64 {
        return Ok(None);
    }
    source
        .read_exact_bytes_at(0, &mut header)
        .map_err(|e| Error::io("read the ELF header", e))?;
    let wide = match header[4] {
        1 => false,
        2 => true,
        _ => return Ok(None),
    };
    if header[5] != 1 {
        return Ok(None); // big-endian
    }
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (shoff, shentsize, shnum) = if wide {
        let mut word = [0; 8];
        word.copy_from_slice(&header[0x28..0x30]);
        (u64::from_le_bytes(word), u16_at(0x3a), u16_at(0x3c))
    } else {
        let mut word = [0; 4];
        word.copy_from_slice(&header[0x20..0x24]);
        (
            u64::from(u32::from_le_bytes(word)),
            u16_at(0x2e),
            u16_at(0x30),
        )
    };
    // Both factors are below 2^16.
    let headers_end = shoff.checked_add(shentsize * shnum);
    let section_end = last_section_end(source, len, wide, shoff, shentsize, shnum)?;
    Ok(headers_end
        .map(|end| end.max(section_end))
        .filter(|&end| end < len))
}

/// The highest end of the last section of an ELF program; zero if it cannot be told.
fn last_section_end(
    source: &dyn ByteSource,
    len: u64,
    wide: bool,
    shoff: u64,
    shentsize: u64,
    shnum: u64,
) -> Result<u64> {
    const SHT_NOBITS: u32 = 8;
    let Some(last) = shnum.checked_sub(1) else {
        return Ok(0);
    };
    let need = if wide { 64 } else { 40 };
    let Some(at) = shoff.checked_add(last * shentsize) else {
        return Ok(0);
    };
    if shentsize < need || len.checked_sub(at).is_none_or(|left| left < need) {
        return Ok(0);
    }
    let mut section = [0u8; 64];
    let read = if wide { 64 } else { 40 };
    source
        .read_exact_bytes_at(at, &mut section[..read])
        .map_err(|e| Error::io("read an ELF section header", e))?;
    let u32_at = |at: usize| {
        u32::from_le_bytes([
            section[at],
            section[at + 1],
            section[at + 2],
            section[at + 3],
        ])
    };
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let (offset, size) = if wide {
        (u64_at(0x18), u64_at(0x20))
    } else {
        (u64::from(u32_at(0x10)), u64::from(u32_at(0x14)))
    };
    if u32_at(4) == SHT_NOBITS {
        return Ok(0);
    }
    Ok(offset.checked_add(size).unwrap_or(0))
}

#[cfg(all(test, feature = "write"))]
mod tests {
    use std::io::Cursor;

    use super::sif::tests::sif;
    use super::*;
    use crate::{ImageWriter, TreeBuilder};

    /// An ELF header of 64 bytes whose section headers are said to be at `shoff`.
    fn elf64(shoff: u64, shentsize: u16, shnum: u16) -> Vec<u8> {
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[0x28..0x30].copy_from_slice(&shoff.to_le_bytes());
        header[0x3a..0x3c].copy_from_slice(&shentsize.to_le_bytes());
        header[0x3c..0x3e].copy_from_slice(&shnum.to_le_bytes());
        header
    }

    #[test]
    fn an_image_is_found_at_zero_and_behind_an_elf_program() {
        assert_eq!(image_start(&b"hsqs....".to_vec()).unwrap(), 0);
        let mut appimage = elf64(64, 64, 2);
        appimage.resize(64 + 128, 0);
        appimage.extend_from_slice(b"hsqs....");
        assert_eq!(image_start(&appimage).unwrap(), 192);
        // The last section (16 bytes at 192) reaches past the section headers.
        let mut appimage = elf64(64, 64, 1);
        appimage.resize(64 + 64, 0);
        appimage[64 + 0x18..64 + 0x20].copy_from_slice(&192u64.to_le_bytes());
        appimage[64 + 0x20..64 + 0x28].copy_from_slice(&16u64.to_le_bytes());
        appimage.resize(208, 0);
        appimage.extend_from_slice(b"hsqs");
        assert_eq!(image_start(&appimage).unwrap(), 208);
    }

    /// An image as `brisk pack` makes it.
    fn image() -> Vec<u8> {
        let mut bytes = Vec::new();
        ImageWriter::new()
            .write_to(&TreeBuilder::new().finish(), Cursor::new(&mut bytes))
            .unwrap();
        bytes
    }

    #[test]
    fn an_image_is_found_behind_a_script_that_mentions_its_magic_number() {
        let stub = b"#!/bin/sh\ntail -c +44 \"$0\" | grep hsqs\nexit\n".to_vec();
        let file = [stub.clone(), image()].concat();
        assert_eq!(image_start(&file).unwrap(), stub.len() as u64);
        // Farther than is looked for, and cut off.
        let mut far = stub.clone();
        far.resize(1 << 20, b'\n');
        let cut = &file[..file.len() - 8192];
        for file in [[far, image()].concat(), cut.to_vec(), stub] {
            assert_eq!(
                image_start(&file).unwrap_err().to_string(),
                "corrupt image at byte 0: magic number is 0x622f2123, allowed is 0x73717368 (SquashFS, little-endian)"
            );
        }
    }

    #[test]
    fn an_image_is_found_in_its_partition_of_a_sif_file() {
        let (other, primary, far) = (8192, 32768, 2 << 20);
        let mut file = sif(&[(3, other), (2, primary)]);
        file.resize(other as usize, 0);
        file.extend(image());
        file.resize(primary as usize, 0);
        file.extend(image());
        assert_eq!(image_start(&file).unwrap(), primary);
        // An overlay of another file system is primary, or none is.
        let mut file = sif(&[(2, 8000), (1, u64::MAX), (3, far)]);
        file.resize(far as usize, 0);
        file.extend(image());
        assert_eq!(image_start(&file).unwrap(), far);
    }

    #[test]
    fn what_is_no_image_is_said_so() {
        let table: &[(Vec<u8>, &str)] = &[
            (
                vec![],
                "corrupt image at byte 0: the magic number needs 4 bytes, 0 are left",
            ),
            (
                b"PK\x03\x04....".to_vec(),
                "corrupt image at byte 0: magic number is 0x04034b50, allowed is 0x73717368 (SquashFS, little-endian)",
            ),
            (
                elf64(u64::MAX, 65535, 65535),
                "corrupt image at byte 0: magic number is 0x464c457f, allowed is 0x73717368 (SquashFS, little-endian)",
            ),
        ];
        for (bytes, message) in table {
            assert_eq!(image_start(bytes).unwrap_err().to_string(), *message);
        }
    }
}
