use twox_hash::XxHash3_128;

/// A digest of a text that is too long for a key: XXH3 with 128 bits, which is the same in all versions and on all machines.
///
/// A key has at most 504 bytes as it is stored, and an entry of an index, with the key behind its fields, at most 511. Numbers take
/// their width, a text two bytes more than it has and one for each zero in it. For longer texts, keep a digest beside the text, and
/// find records by that:
///
/// ```
/// use brisk_objects::{Options, Record, key_digest};
///
/// #[derive(Record)]
/// struct Page {
///     #[key]
///     digest: [u8; 16],
///     url: String,
///     title: String,
/// }
///
/// # fn main() -> Result<(), brisk_objects::Error> {
/// # let home = tempfile::tempdir()?;
/// # let path = home.path().join("pages.db");
/// // SAFETY: nothing but this crate writes to the file.
/// let db = unsafe { Options::new().collection::<Page>().open(&path) }?;
/// let url = format!("https://example.org/?{}", "long".repeat(1000));
/// let (digest, title) = (key_digest(&url), "A long way".to_owned());
/// db.write(|tx| tx.insert(&Page { digest, url: url.clone(), title }))?;
///
/// let snapshot = db.snapshot()?;
/// let page = snapshot.get::<Page>(key_digest(&url))?.filter(|page| page.url() == url);
/// assert_eq!(page.expect("it was inserted").title(), "A long way");
/// # Ok(())
/// # }
/// ```
///
/// Compare the text, as here: who chooses texts can make two with one digest. A digest says nothing of the order: for ranges,
/// index the beginning of the text in a field of its own.
pub fn key_digest(text: impl AsRef<[u8]>) -> [u8; 16] {
    XxHash3_128::oneshot(text.as_ref()).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It never changes: files have it.
    #[test]
    fn the_digest_of_a_text() {
        let digest = |text: &str| format!("{:032x}", u128::from_be_bytes(key_digest(text)));
        assert_eq!(digest(""), "99aa06d3014798d86001c324468d497f");
        assert_eq!(digest("a"), "a96faf705af16834e6c632b61e964e1f");
    }
}
