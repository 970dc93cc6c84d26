//! Entity tags (RFC 9110, section 8.8.3).

/// A valid entity tag, which borrows what stands between its quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntityTag<'a> {
    pub(crate) weak: bool,
    opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// None if the text is anything else, for example without quotes.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::parse_prefix(text)?;
        rest.is_empty().then_some(tag)
    }

    fn parse_prefix(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match text {
            [b'W', b'/', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let [b'"', rest @ ..] = quoted else {
            return None;
        };
        let end = rest.iter().position(|byte| *byte == b'"')?;
        let (opaque, rest) = rest.split_at(end);
        let valid = |byte: &u8| matches!(byte, 0x21 | 0x23..=0x7E | 0x80..);
        opaque
            .iter()
            .all(valid)
            .then_some((Self { weak, opaque }, rest.get(1..)?))
    }

    /// The weak comparison, which `If-None-Match` uses.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }

    /// The strong comparison, which ranges need.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }
}

/// The tags of a line of `If-None-Match`, up to the first place that is not valid.
pub(crate) struct EntityTags<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        let start = self.0.iter().position(|byte| !b" \t,".contains(byte))?;
        let Some((tag, rest)) = EntityTag::parse_prefix(self.0.get(start..)?) else {
            self.0 = &[];
            return None;
        };
        self.0 = rest;
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quoted_tags_are_valid() {
        let strong = EntityTag::parse(b"\"a\xFC\"").unwrap();
        assert!(!strong.weak);
        assert!(EntityTag::parse(b"W/\"a\"").unwrap().weak);
        assert!(EntityTag::parse(b"\"\"").is_some());
        for text in ["", "a", "w/\"a\"", "W\"a\"", "\"a", "\"a b\"", "\"a\"x"] {
            assert!(EntityTag::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn comparisons_are_those_of_the_table() {
        // RFC 9110, section 8.8.3.2.
        for (a, b, same, alike) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let tag = |text: &'static str| EntityTag::parse(text.as_bytes()).unwrap();
            assert_eq!(
                (tag(a).is_same(&tag(b)), tag(a).is_alike(&tag(b))),
                (same, alike)
            );
        }
    }

    #[test]
    fn a_list_ends_where_it_is_invalid() {
        let count = |text: &str| EntityTags(text.as_bytes()).count();
        assert_eq!(count("\"a\", W/\"b,c\" ,, \"d\""), 3);
        assert_eq!(count("\"a\", b, \"c\""), 1);
        assert_eq!(count(""), 0);
    }
}
