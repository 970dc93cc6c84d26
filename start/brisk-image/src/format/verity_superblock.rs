//! The superblock of a dm-verity hash tree, as `veritysetup` writes it.
//!
//! It has 512 bytes and starts at a multiple of 512. The hash blocks start at the first multiple of the hash block's
//! size behind it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::error::{Allowed, Corrupt, Error, Location, Result, Unsupported};

/// The first bytes of the superblock.
pub(crate) const SIGNATURE: [u8; 8] = *b"verity\0\0";

/// The only hash algorithm that brisk writes and reads.
const SHA256: &[u8] = b"sha256";

/// Bytes of a data block and of a hash block.
pub(crate) const BLOCK: u64 = 4096;

/// The superblock of a tree behind an image starts this many bytes behind the start of its section, because
/// `veritysetup` takes only multiples of 512.
pub(crate) const SUPERBLOCK_IN_SECTION: u64 = 512;

/// The most data blocks that brisk handles: 16 TiB.
pub(crate) const MOST_BLOCKS: u64 = 1 << 32;

/// The longest salt.
const MOST_SALT: u16 = 256;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Wire {
    pub(crate) signature: [u8; 8],
    pub(crate) version: U32,
    /// 1: the salt stands before the hashed block.
    pub(crate) hash_type: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) algorithm: [u8; 32],
    pub(crate) data_block_size: U32,
    pub(crate) hash_block_size: U32,
    pub(crate) data_blocks: U64,
    pub(crate) salt_size: U16,
    pub(crate) reserved: [u8; 6],
    pub(crate) salt: [u8; 256],
    pub(crate) unused: [u8; 168],
}

/// Bytes of the superblock.
pub(crate) const LEN: usize = size_of::<Wire>();

/// A superblock of a tree that brisk can read.
///
/// 1. `data_blocks` is in 1 to [`MOST_BLOCKS`].
/// 2. `salt` has at most 256 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VeritySuperblock {
    pub(crate) data_blocks: u64,
    pub(crate) salt: Vec<u8>,
}

impl VeritySuperblock {
    /// Reads the superblock that starts at byte `at` of its file.
    pub(crate) fn parse(bytes: &[u8; LEN], at: u64) -> Result<Self> {
        let wire: Wire = transmute!(*bytes);
        let byte = |offset: u64| Location::Byte(at.saturating_add(offset));
        if wire.signature != SIGNATURE {
            let reason = format!(
                "signature is \"{}\", allowed is \"{}\"",
                wire.signature.escape_ascii(),
                SIGNATURE.escape_ascii()
            );
            let fault = Corrupt::Text { reason };
            return Err(Error::corrupt(byte(0), fault).about(TREE));
        }
        let algorithm: Vec<u8> = wire.algorithm.into_iter().take_while(|b| *b != 0).collect();
        if algorithm != SHA256 {
            let name = algorithm.escape_ascii().to_string();
            return Err(unsupported("hash algorithm", &name, "sha256"));
        }
        for (field, found, allowed) in [
            ("version", wire.version, 1),
            ("hash type", wire.hash_type, 1),
            ("data block size", wire.data_block_size, 4096),
            ("hash block size", wire.hash_block_size, 4096),
        ] {
            if found.get() != allowed {
                let (found, allowed) = (found.to_string(), allowed.to_string());
                return Err(unsupported(field, &found, &allowed));
            }
        }
        let data_blocks = wire.data_blocks.get();
        if !(1..=MOST_BLOCKS).contains(&data_blocks) {
            let allowed = Allowed::Range(1, MOST_BLOCKS);
            let fault = Error::field(byte(72), "number of data blocks", data_blocks, allowed);
            return Err(fault.about(TREE));
        }
        let salt_size = wire.salt_size.get();
        let Some(salt) = wire.salt.get(..usize::from(salt_size)) else {
            let allowed = Allowed::AtMost(MOST_SALT.into());
            let fault = Error::field(byte(80), "length of the salt", salt_size, allowed);
            return Err(fault.about(TREE));
        };
        Ok(Self {
            data_blocks,
            salt: salt.to_vec(),
        })
    }

    /// The bytes of the superblock of a tree with this `uuid`. None if the salt is longer than 256 bytes.
    #[cfg(feature = "write")]
    pub(crate) fn to_wire(&self, uuid: [u8; 16]) -> Option<Wire> {
        let mut algorithm = [0; 32];
        algorithm.get_mut(..SHA256.len())?.copy_from_slice(SHA256);
        let mut salt = [0; 256];
        salt.get_mut(..self.salt.len())?.copy_from_slice(&self.salt);
        Some(Wire {
            signature: SIGNATURE,
            version: 1.into(),
            hash_type: 1.into(),
            uuid,
            algorithm,
            data_block_size: 4096.into(),
            hash_block_size: 4096.into(),
            data_blocks: self.data_blocks.into(),
            salt_size: u16::try_from(self.salt.len()).ok()?.into(),
            reserved: [0; 6],
            salt,
            unused: [0; 168],
        })
    }
}

/// What errors about a tree call it.
pub(crate) const TREE: &str = "verity tree";

fn unsupported(field: &str, found: &str, allowed: &str) -> Error {
    Error::unsupported(Unsupported::Other(format!(
        "verity tree: {field} is {found}, allowed is {allowed}; make the tree with brisk verity"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Wire);

    #[test]
    fn what_a_superblock_may_not_have_is_said() {
        let sound = VeritySuperblock {
            data_blocks: 7,
            salt: vec![1; 32],
        };
        let parse = |change: Change| {
            let mut wire = sound.to_wire([0; 16]).expect("a short salt");
            change(&mut wire);
            let bytes = wire.as_bytes().try_into().expect("512 bytes");
            VeritySuperblock::parse(bytes, 8192)
        };
        assert_eq!(parse(|_| {}).expect("sound"), sound);
        let again = "make the tree with brisk verity";
        let table: [(Change, String); 9] = [
            (
                |wire| wire.signature[0] ^= 1,
                "corrupt verity tree at byte 8192: signature is \"werity\\x00\\x00\", allowed is \
                 \"verity\\x00\\x00\""
                    .into(),
            ),
            (
                |wire| wire.version = 2.into(),
                format!("verity tree: version is 2, allowed is 1; {again}"),
            ),
            (
                |wire| wire.hash_type = 0.into(),
                format!("verity tree: hash type is 0, allowed is 1; {again}"),
            ),
            (
                |wire| wire.algorithm[3] = b'5',
                format!("verity tree: hash algorithm is sha556, allowed is sha256; {again}"),
            ),
            (
                |wire| wire.data_block_size = 1024.into(),
                format!("verity tree: data block size is 1024, allowed is 4096; {again}"),
            ),
            (
                |wire| wire.hash_block_size = 0.into(),
                format!("verity tree: hash block size is 0, allowed is 4096; {again}"),
            ),
            (
                |wire| wire.data_blocks = 0.into(),
                "corrupt verity tree at byte 8264: number of data blocks is 0, allowed is 1 to 4294967296".into(),
            ),
            (
                |wire| wire.data_blocks = u64::MAX.into(),
                "corrupt verity tree at byte 8264: number of data blocks is 18446744073709551615, allowed is 1 to \
                 4294967296"
                    .into(),
            ),
            (
                |wire| wire.salt_size = 257.into(),
                "corrupt verity tree at byte 8272: length of the salt is 257, allowed is at most 256".into(),
            ),
        ];
        for (change, message) in table {
            assert_eq!(parse(change).unwrap_err().to_string(), message);
        }
    }
}
