//! The program in front of an image, as an ELF file: where its sections are, and how it becomes the front of a bundle.
//!
//! The System V ABI describes the file, and the AppImage specification (type 2) what the front is: the bytes 8 to 10 are
//! `AI` and 2, and the image starts where the section headers end.

use std::fmt;
use std::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where an image may start: a hash tree has blocks of this size.
const ALIGN: usize = 4096;

/// What the bytes of a type 2 AppImage have at byte 8.
const MAGIC: [u8; 3] = *b"AI\x02";

/// The section that says where newer versions are.
pub const UPDATE_INFORMATION: &str = ".upd_info";

/// The section that a signature goes to.
pub const SIGNATURE: &str = ".sha256_sig";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    /// 2: 64 bits.
    class: u8,
    /// 1: little-endian.
    order: u8,
    version: u8,
    abi: u8,
    padding: [u8; 8],
    kind: U16,
    machine: U16,
    file_version: U32,
    entry: U64,
    segments: U64,
    sections: U64,
    flags: U32,
    header_len: U16,
    segment_len: U16,
    segment_count: U16,
    section_len: U16,
    section_count: U16,
    names: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct SectionHeader {
    name: U32,
    kind: U32,
    flags: U64,
    address: U64,
    offset: U64,
    len: U64,
    link: U32,
    info: U32,
    align: U64,
    entry_len: U64,
}

/// What is wrong with a program that should be in front of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is no ELF file of 64 bits, little-endian, with section headers inside of it.
    NoElf,
    /// It lacks a section of this name.
    NoSection(&'static str),
    /// The section of this name has the second number of bytes, and the first should fit.
    TooLong(&'static str, usize, usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoElf => f.write_str(
                "it is no program that can be in front of an image: allowed is an ELF file of 64 bits, little-endian",
            ),
            Self::NoSection(name) => write!(f, "it has no section {name}, which AppImages have"),
            Self::TooLong(name, len, most) => {
                write!(f, "the section {name} would have {len} bytes, allowed are {most}")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// The bytes of a program.
///
/// 1. The table of section headers is inside of the bytes.
pub struct Elf<'a> {
    bytes: &'a [u8],
    header: Header,
    sections: Vec<SectionHeader>,
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// `NoElf`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| Fault::NoElf)?;
        let is_elf = header.magic == *b"\x7fELF" && header.class == 2 && header.order == 1;
        if !is_elf || usize::from(header.section_len.get()) != size_of::<SectionHeader>() {
            return Err(Fault::NoElf);
        }
        let table = usize::try_from(header.sections.get()).ok();
        let table = table.and_then(|at| bytes.get(at..)).ok_or(Fault::NoElf)?;
        let count = header.section_count.get().into();
        let (sections, _) = <[SectionHeader]>::ref_from_prefix_with_elems(table, count)
            .map_err(|_| Fault::NoElf)?;
        Ok(Self {
            bytes,
            sections: sections.to_vec(),
            header,
        })
    }

    /// Where the bytes of a section are.
    ///
    /// # Errors
    ///
    /// `NoSection`.
    pub fn section(&self, name: &'static str) -> Result<Range<usize>, Fault> {
        let names = self.sections.get(usize::from(self.header.names.get()));
        let names = names.and_then(|names| self.bytes.get(place(names)?));
        let is_named = |section: &&SectionHeader| {
            let at = usize::try_from(section.name.get()).ok();
            let from = at.and_then(|at| names?.get(at..));
            from.and_then(|from| from.strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        let found = self.sections.iter().find(is_named);
        let range = found.and_then(place);
        range
            .filter(|range| self.bytes.get(range.clone()).is_some())
            .ok_or(Fault::NoSection(name))
    }

    /// The text in a section, up to its first zero.
    ///
    /// # Errors
    ///
    /// `NoSection`.
    pub fn text(&self, name: &'static str) -> Result<&'a [u8], Fault> {
        let bytes = self.bytes.get(self.section(name)?).unwrap_or_default();
        Ok(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
    }

    /// The front of a bundle: this program, with the marks of an AppImage and with `update_information`. Its last bytes are
    /// the section headers, and its length is a multiple of 4096.
    ///
    /// # Errors
    ///
    /// `NoSection`, and `TooLong`.
    pub fn front(&self, update_information: &[u8]) -> Result<Vec<u8>, Fault> {
        self.section(SIGNATURE)?;
        let information = self.section(UPDATE_INFORMATION)?;
        if update_information.len() > information.len() {
            let (len, most) = (update_information.len(), information.len());
            return Err(Fault::TooLong(UPDATE_INFORMATION, len, most));
        }
        let table = self.sections.as_bytes();
        let old = usize::try_from(self.header.sections.get()).unwrap_or(usize::MAX);
        // A linker puts the table last. If it does not, the old one stays, where nothing looks at it.
        let kept = match old.checked_add(table.len()) == Some(self.bytes.len()) {
            true => old,
            false => self.bytes.len(),
        };
        let end = (kept + table.len()).next_multiple_of(ALIGN);
        let mut front = self.bytes.get(..kept).unwrap_or_default().to_vec();
        front.resize(end - table.len(), 0);
        let mut header = self.header.clone();
        header.sections = U64::new(front.len() as u64);
        let [a, b, c, ..] = &mut header.padding;
        [*a, *b, *c] = MAGIC;
        front.extend_from_slice(table);
        if let Some(place) = front.first_chunk_mut::<{ size_of::<Header>() }>() {
            place.copy_from_slice(header.as_bytes());
        }
        if let Some(section) = front.get_mut(information) {
            section.fill(0);
            for (byte, given) in section.iter_mut().zip(update_information) {
                *byte = *given;
            }
        }
        Ok(front)
    }
}

/// Where a section is, if that can be.
fn place(section: &SectionHeader) -> Option<Range<usize>> {
    let start = usize::try_from(section.offset.get()).ok()?;
    let len = usize::try_from(section.len.get()).ok()?;
    Some(start..start.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with these sections, and their names in one more. Its table is last.
    fn program(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Header>()];
        let (mut headers, mut names) = (Vec::new(), vec![0]);
        let mut add = |name: &str, contents: &[u8], names: &mut Vec<u8>| {
            let mut header = SectionHeader::read_from_bytes(&[0; 64]).unwrap();
            header.name = U32::new(names.len() as u32);
            names.extend(name.as_bytes());
            names.push(0);
            header.offset = U64::new(bytes.len() as u64);
            header.len = U64::new(contents.len() as u64);
            bytes.extend(contents);
            headers.push(header);
        };
        for (name, contents) in sections {
            add(name, contents, &mut names);
        }
        let mut all = names.clone();
        all.extend(b".shstrtab\0");
        add(".shstrtab", &all, &mut names);
        let mut header = Header::read_from_bytes(&[0; 64]).unwrap();
        header.magic = *b"\x7fELF";
        (header.class, header.order) = (2, 1);
        header.sections = U64::new(bytes.len() as u64);
        header.section_len = U16::new(64);
        header.section_count = U16::new(headers.len() as u16);
        header.names = U16::new(headers.len() as u16 - 1);
        bytes[..64].copy_from_slice(header.as_bytes());
        bytes.extend(headers.as_bytes());
        bytes
    }

    #[test]
    fn a_front_has_the_marks_of_an_appimage_and_ends_with_its_section_headers() {
        let program = program(&[
            (".text", b"code"),
            (UPDATE_INFORMATION, &[7; 16]),
            (SIGNATURE, &[0; 8]),
        ]);
        let front = Elf::parse(&program).unwrap().front(b"zsync|x").unwrap();
        assert_eq!(front.len(), 4096);
        assert_eq!(&front[8..11], b"AI\x02");
        let elf = Elf::parse(&front).unwrap();
        let table = elf.header.sections.get() + 64 * u64::from(elf.header.section_count.get());
        assert_eq!(table, 4096);
        assert_eq!(elf.text(UPDATE_INFORMATION), Ok(&b"zsync|x"[..]));
        assert_eq!(&front[elf.section(".text").unwrap()], b"code");
        // The front of a front is the same.
        assert_eq!(elf.front(b"zsync|x").unwrap(), front);
    }

    #[test]
    fn what_can_be_no_front_is_refused() {
        let whole = [(UPDATE_INFORMATION, &[0; 4][..]), (SIGNATURE, &[])];
        let front = |bytes: &[u8], information: &[u8]| {
            Elf::parse(bytes).and_then(|elf| elf.front(information))
        };
        let program_of = |count: usize| program(&whole[..count]);
        for (bytes, information, fault) in [
            (b"#!/bin/sh\n".to_vec(), "", Fault::NoElf),
            (program_of(2)[..70].to_vec(), "", Fault::NoElf),
            (program_of(0), "", Fault::NoSection(SIGNATURE)),
            (
                program(&whole[1..]),
                "",
                Fault::NoSection(UPDATE_INFORMATION),
            ),
            (
                program_of(2),
                "abcde",
                Fault::TooLong(UPDATE_INFORMATION, 5, 4),
            ),
        ] {
            assert_eq!(front(&bytes, information.as_bytes()).unwrap_err(), fault);
        }
    }

    #[test]
    fn no_damaged_program_ends_this_one() {
        let whole = program(&[(UPDATE_INFORMATION, &[0; 4]), (SIGNATURE, &[])]);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Ok(elf) = Elf::parse(&bytes) {
                    elf.text(UPDATE_INFORMATION).ok();
                    elf.front(b"a").ok();
                }
            }
        }
    }
}
