use super::check;

/// The offset in the index.
pub(crate) const LIMIT_AT: u64 = 40;

pub(crate) const LEN: usize = 16;

/// The limit of the process that inserted last, for programs that look into the directory. `seed` is that of the index.
pub(crate) fn encode(limit: u64, seed: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let (number, check) = bytes.split_at_mut(8);
    number.copy_from_slice(&limit.to_le_bytes());
    check.copy_from_slice(&check::seeded(seed, number).to_le_bytes());
    bytes
}

/// None if nobody has noted one.
pub(crate) fn parse(bytes: &[u8; LEN], seed: u64) -> Option<u64> {
    let limit = bytes.first_chunk().copied().map(u64::from_le_bytes)?;
    (*bytes == encode(limit, seed)).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_with_one_wrong_bit_is_none() {
        let bytes = encode(1 << 30, 77);
        assert_eq!(parse(&bytes, 77), Some(1 << 30));
        assert_eq!(parse(&bytes, 78), None);
        assert_eq!(parse(&[0; LEN], 77), None);
        for bit in 0..LEN * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bytes, 77), None, "bit {bit}");
        }
    }
}
