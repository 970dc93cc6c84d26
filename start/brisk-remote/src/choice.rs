use std::fmt;

/// The longest tag, in bytes: that of the distribution specification.
pub const MOST_TAG: usize = 128;

/// Which image is wanted, if there are several under one name: `variant=NAME,codecs=CODEC+CODEC`, or one of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The variant. None: the first that can be read.
    pub variant: Option<String>,
    /// The codecs that can be read, sorted; `none` is one of them. None: all.
    pub codecs: Option<Vec<String>>,
}

impl Choice {
    /// Reads what stands behind `#`. Nothing leaves all open.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut choice = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("variant", name)) if is_tag(name) => choice.variant = Some(name.to_owned()),
                Some(("codecs", codecs)) if codecs.split('+').all(is_tag) => {
                    let mut codecs: Vec<_> = codecs.split('+').map(str::to_owned).collect();
                    codecs.sort();
                    choice.codecs = Some(codecs);
                }
                _ => {
                    return Err(
                        "behind # may stand sha256= and the root hash of the image, variant= and a name, and codecs= and codecs \
                         with + between them"
                            .into(),
                    );
                }
            }
        }
        Ok(choice)
    }

    /// What `other` asks for, and else what this does.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self {
            variant: other.variant.as_ref().or(self.variant.as_ref()).cloned(),
            codecs: other.codecs.as_ref().or(self.codecs.as_ref()).cloned(),
        }
    }

    /// Whether an image of this variant and this codec will do. A codec that is not known may be any.
    pub(crate) fn takes(&self, variant: Option<&str>, codec: Option<&str>) -> bool {
        let is_wanted = self.variant.is_none() || self.variant.as_deref() == variant;
        let codecs = self.codecs.as_deref().zip(codec);
        let can_read = codecs.is_none_or(|(known, codec)| known.iter().any(|one| one == codec));
        is_wanted && can_read
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = self.variant.as_ref().map(|name| format!("variant={name}"));
        let codecs = self.codecs.as_ref();
        let codecs = codecs.map(|codecs| format!("codecs={}", codecs.join("+")));
        let parts: Vec<_> = variant.into_iter().chain(codecs).collect();
        f.write_str(&parts.join(","))
    }
}

/// Whether it could be a tag, or the name of a variant.
pub fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=MOST_TAG).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || b".-".contains(&b))
}
