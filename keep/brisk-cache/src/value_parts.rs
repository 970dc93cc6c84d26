use std::fmt;
use std::io;
use std::ops::Range;

use crate::Hit;
use crate::hit::Held;

/// The bytes of a value, each of which is checked before it is given.
///
/// A value from a mapping that is longer than 16 KiB is checked in chunks of 1 KiB, or of 4 KiB from about 1 MiB on. A call
/// checks the chunks that its part touches, each once in each handle. So a look at a few parts of a long value takes as long as
/// of a short one. Other values were checked as a whole before.
///
/// [`ValueParts::from`] makes it of bytes that need no check.
#[derive(Clone, Copy)]
pub struct ValueParts<'a> {
    /// 1. No byte of it is given before `hit` has checked it, if there is one. It is empty if the value is unread.
    value: &'a [u8],
    hit: Option<&'a Hit>,
}

impl<'a> ValueParts<'a> {
    pub(crate) fn of(value: &'a [u8], hit: &'a Hit) -> Self {
        Self {
            value,
            hit: Some(hit),
        }
    }

    /// The number of bytes of the value.
    pub fn len(&self) -> usize {
        self.hit.map_or(self.value.len(), Hit::len)
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the value. None if the value has no such part.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    #[inline]
    pub fn part(&self, part: Range<usize>) -> io::Result<Option<&'a [u8]>> {
        if let Some(hit) = self.hit
            && let Held::Unread(unread) = &hit.held
        {
            return Ok(hit.whole(unread)?.get(part));
        }
        let Some(wanted) = self.value.get(part.clone()) else {
            return Ok(None);
        };
        if let Some(hit) = self.hit {
            hit.check(&part)?;
        }
        Ok(Some(wanted))
    }

    /// All of the value.
    ///
    /// # Errors
    ///
    /// As [`Hit::part`].
    pub fn all(&self) -> io::Result<&'a [u8]> {
        if let Some(hit) = self.hit {
            if let Held::Unread(unread) = &hit.held {
                return hit.whole(unread);
            }
            hit.check(&(0..self.value.len()))?;
        }
        Ok(self.value)
    }
}

impl<'a> From<&'a [u8]> for ValueParts<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self { value, hit: None }
    }
}

impl fmt::Debug for ValueParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueParts")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
