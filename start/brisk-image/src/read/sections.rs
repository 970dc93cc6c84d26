//! Sections behind an image.

use std::path::PathBuf;

use zerocopy::FromBytes;

use super::image::Image;
use super::stored_image::StoredImage;
use crate::error::{Allowed, Corrupt, Error, Location, Result};
use crate::format::PATH_MAX;
use crate::format::entry_point::{EntryPoint, MOST_ENTRY};
use crate::format::section::{self, HEADER, SectionKind, Wire};
#[cfg(feature = "verity")]
use crate::format::verity_superblock::SUPERBLOCK_IN_SECTION;
use crate::names;

/// Sections looked at, at most: a file of headers only must not take long.
const MAX_SECTIONS: usize = 64;

/// Bytes of a recorded place: a path that Linux can name.
const MOST_PLACE: u64 = PATH_MAX as u64 - 1;

/// Bytes of a section that are hashed at once.
const CHUNK: usize = 256 << 10;

/// A section whose digest was not looked at yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) kind: SectionKind,
    pub(crate) version: u32,
    /// Where its contents start in the image.
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) digest: [u8; 32],
}

impl StoredImage {
    /// All sections, in order.
    pub(crate) fn sections(&self) -> Result<Vec<Section>> {
        let image_len = self.source_len()?;
        let mut sections = Vec::new();
        let mut next = section::align_up(self.superblock.bytes_used());
        while let Some(at) = next {
            let have = image_len.saturating_sub(at);
            if have < HEADER as u64 {
                break;
            }
            let mut header = [0; HEADER];
            self.read_outside(at, &mut header, "read a section header")?;
            // Only an array of another length fails.
            let Ok(wire) = Wire::read_from_bytes(&header) else {
                break;
            };
            if wire.magic != section::MAGIC {
                break;
            }
            let len = wire.len.get();
            let have = have - HEADER as u64;
            if len > have {
                let fault = Corrupt::Truncated {
                    what: "a section",
                    need: len,
                    have,
                };
                return Err(Error::corrupt(Location::Byte(at), fault));
            }
            let start = at + HEADER as u64;
            sections.push(Section {
                kind: SectionKind(wire.kind),
                version: wire.version.get(),
                start,
                len,
                digest: wire.digest,
            });
            if sections.len() == MAX_SECTIONS {
                break;
            }
            next = section::align_up(start + len);
        }
        Ok(sections)
    }

    /// Where a reader looks for one more section. None past 2^64.
    #[cfg(feature = "write")]
    pub(crate) fn next_section(&self) -> Result<Option<u64>> {
        let last = self.sections()?.pop();
        let end = last.map_or(self.superblock.bytes_used(), |last| last.start + last.len);
        Ok(section::align_up(end))
    }

    /// The first section of `kind`, and its contents of at most `most` bytes, checked against their
    /// digest.
    pub(crate) fn section(
        &self,
        kind: SectionKind,
        most: u64,
    ) -> Result<Option<(Section, Vec<u8>)>> {
        let sections = self.sections()?;
        match sections.into_iter().find(|section| section.kind == kind) {
            Some(section) => Ok(Some((section, self.section_contents(&section, most)?))),
            None => Ok(None),
        }
    }

    /// The directory that the tree belongs at, if a section records it.
    pub(crate) fn recorded_place(&self) -> Result<Option<PathBuf>> {
        let Some((section, bytes)) = self.section(SectionKind::PLACE, MOST_PLACE)? else {
            return Ok(None);
        };
        if bytes.first() != Some(&b'/') || bytes.contains(&0) {
            let (name, why) = (bytes, "is not an absolute path");
            let fault = Corrupt::Name { name, why };
            return Err(Error::corrupt(Location::Byte(section.start), fault));
        }
        Ok(Some(names::from_bytes(bytes).into()))
    }

    fn section_contents(&self, section: &Section, most: u64) -> Result<Vec<u8>> {
        if section.version != 1 {
            let at = Location::Byte(section.start - HEADER as u64 + 12);
            return Err(Error::field(
                at,
                "version of a section",
                section.version,
                Allowed::Only(1),
            ));
        }
        if section.len > most {
            let at = Location::Byte(section.start - HEADER as u64 + 16);
            let allowed = Allowed::AtMost(most);
            return Err(Error::field(
                at,
                "length of a section",
                section.len,
                allowed,
            ));
        }
        let len = usize::try_from(section.len)
            .map_err(|_| Error::limit("a section", section.len, usize::MAX as u64))?;
        let mut contents = vec![0; len];
        self.read_outside(section.start, &mut contents, "read a section")?;
        if *blake3::hash(&contents).as_bytes() != section.digest {
            let fault = Corrupt::Decode {
                what: "a section",
                codec: "its contents",
                reason: "the digest in its header is of other bytes".into(),
            };
            return Err(Error::corrupt(Location::Byte(section.start), fault));
        }
        Ok(contents)
    }

    /// Reads all of `section`, and compares it with the digest in its header.
    pub(crate) fn check_section(&self, section: &Section) -> Result<()> {
        let mut hasher = blake3::Hasher::new();
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < section.len {
            let left = usize::try_from(section.len - at).unwrap_or(usize::MAX);
            let part = &mut buf[..left.min(CHUNK)];
            self.read_outside(section.start + at, part, "read a section")?;
            hasher.update(part);
            at += part.len() as u64;
        }
        if *hasher.finalize().as_bytes() != section.digest {
            let fault = Corrupt::Decode {
                what: "a section",
                codec: "its contents",
                reason: "the digest in its header is of other bytes".into(),
            };
            return Err(Error::corrupt(
                Location::Byte(section.start - HEADER as u64),
                fault,
            ));
        }
        Ok(())
    }
}

impl Image {
    /// The directory that the tree belongs at, as an absolute path, if the image records one.
    ///
    /// The feature `sections` brings this.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the record is damaged, and `Io` if it cannot be read.
    pub fn recorded_place(&self) -> Result<Option<PathBuf>> {
        self.inner.stored.recorded_place().map_err(|e| self.name(e))
    }

    /// How the image starts its program, if it records that.
    ///
    /// The feature `sections` brings this.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the record is damaged, and `Io` if it cannot be read.
    pub fn entry_point(&self) -> Result<Option<EntryPoint>> {
        let stored = &self.inner.stored;
        let found = stored.section(SectionKind::ENTRY, MOST_ENTRY as u64);
        let entry = found.and_then(|found| match found {
            Some((section, bytes)) => EntryPoint::parse(&bytes, section.start).map(Some),
            None => Ok(None),
        });
        entry.map_err(|e| self.name(e))
    }
}

#[cfg(feature = "verity")]
impl Image {
    /// Where the superblock of the verity tree behind the image starts in its file, if there is a tree.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a section is damaged, and `Io` if it cannot be read.
    pub fn verity_superblock(&self) -> Result<Option<u64>> {
        let section = self.verity_section()?;
        let header = HEADER as u64;
        let superblock = |section: Section| {
            let in_file = self.offset().saturating_add(section.start - header);
            in_file.saturating_add(SUPERBLOCK_IN_SECTION)
        };
        Ok(section.map(superblock))
    }

    /// Where the section with the verity tree starts, if there is one: the first byte of its header, from the start of
    /// the image. The tree covers everything before it.
    ///
    /// # Errors
    ///
    /// As [`Image::verity_superblock`].
    pub fn verity_start(&self) -> Result<Option<u64>> {
        let section = self.verity_section()?;
        Ok(section.map(|section| section.start - HEADER as u64))
    }

    /// Where the section with the verity tree starts, as [`Image::verity_start`] says, or where it would start if there were one:
    /// behind all other sections.
    ///
    /// The feature `write` brings this.
    ///
    /// # Errors
    ///
    /// As [`Image::verity_superblock`].
    #[cfg(feature = "write")]
    pub fn verity_place(&self) -> Result<u64> {
        if let Some(start) = self.verity_start()? {
            return Ok(start);
        }
        let next = self.inner.stored.next_section().map_err(|e| self.name(e))?;
        let used = self.bytes_used();
        next.ok_or_else(|| Error::limit("the image with its sections", used, u64::MAX))
    }

    fn verity_section(&self) -> Result<Option<Section>> {
        let find = || {
            let mut sections = self.inner.stored.sections()?.into_iter();
            let found = sections.find(|section| section.kind == SectionKind::VERITY);
            match found {
                Some(section) if section.version != 1 => {
                    let at = Location::Byte(section.start - HEADER as u64 + 12);
                    let (field, found) = ("version of a section", section.version);
                    Err(Error::field(at, field, found, Allowed::Only(1)))
                }
                found => Ok(found),
            }
        };
        find().map_err(|e| self.name(e))
    }
}
