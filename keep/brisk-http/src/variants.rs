use brisk_cache::{Stored, fingerprint};
use http::HeaderMap;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::policy::Policy;
use crate::secret::Secret;
use crate::stored_policy::StoredPolicy;

/// The most variants of one URL. With more of them, the one that came first goes.
pub const MOST_VARIANTS: usize = 16;

/// The policies of all stored responses of one URL: their number, the end of each, and their bytes.
#[derive(Debug, Clone, Copy)]
pub struct Variants<'a> {
    ends: &'a [U32],
    policies: &'a [u8],
}

impl<'a> Variants<'a> {
    /// The policies in these bytes. None if they are too few.
    pub fn view(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = U32::ref_from_prefix(bytes).ok()?;
        let count = usize::try_from(count.get()).ok()?;
        let (ends, policies) = <[U32]>::ref_from_prefix_with_elems(rest, count).ok()?;
        Some(Self { ends, policies })
    }

    /// The bytes of the policy at a place.
    pub fn bytes(&self, at: usize) -> Option<&'a [u8]> {
        let start = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before)?.get(),
        };
        let end = self.ends.get(at)?.get();
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        self.policies.get(start..end)
    }

    /// The number of policies.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The policies with their places. One that is damaged is left out.
    pub fn iter(&self) -> impl Iterator<Item = (usize, StoredPolicy<'a>)> + use<'a> {
        let all = *self;
        (0..all.ends.len()).filter_map(move |at| Some((at, StoredPolicy::view(all.bytes(at)?)?)))
    }

    /// The response that is selected for a request: of those whose selecting fields match, the most recent one by its
    /// `Date` (RFC 9111, section 4.1). Allocates nothing.
    ///
    /// What the cache keeps for the credentials of the request comes before what it has for all. One without `Vary` counts only if it is more recent than those that have it: an origin that once said `Vary` meant
    /// it.
    pub fn select(
        &self,
        headers: &HeaderMap,
        secret: Option<&Secret>,
    ) -> Option<(usize, StoredPolicy<'a>)> {
        let best =
            |found: Option<(usize, StoredPolicy<'a>)>, next: (usize, StoredPolicy<'a>)| match found
            {
                Some(found) if found.1.rank() > next.1.rank() => Some(found),
                _ => Some(next),
            };
        let varying = self
            .iter()
            .filter(|(_, policy)| policy.varies())
            .map(|(_, policy)| policy.recency())
            .max();
        self.iter()
            .filter(|(_, policy)| policy.selects(headers, secret))
            .filter(|(_, policy)| policy.varies() || Some(policy.recency()) > varying)
            .fold(None, best)
    }

    /// The bytes of these policies with a new one, in place of those that answer the same requests.
    pub fn with(
        this: Option<&Self>,
        new: &Policy,
        headers: &HeaderMap,
        secret: Option<&Secret>,
    ) -> Vec<u8> {
        let view = new.view();
        let kept = this.into_iter().flat_map(|variants| {
            variants
                .iter()
                .filter(|(_, old)| {
                    !(old.selecting_names().eq(view.selecting_names())
                        && old.selects(headers, secret))
                })
                .filter_map(|(at, _)| variants.bytes(at))
        });
        let mut all: Vec<&[u8]> = kept.collect();
        let surplus = (all.len() + 1).saturating_sub(MOST_VARIANTS);
        all.drain(..surplus);
        all.push(new.as_bytes());
        Self::of(&all)
    }

    /// The bytes of these policies with another one at a place.
    pub fn replaced(&self, at: usize, new: &Policy) -> Vec<u8> {
        let all: Vec<&[u8]> = (0..self.len())
            .filter_map(|place| match place == at {
                true => Some(new.as_bytes()),
                false => self.bytes(place),
            })
            .collect();
        Self::of(&all)
    }

    /// The bytes of these policies, the one at a place marked so that it is validated before it is used again.
    pub fn invalidated(&self, at: usize) -> Vec<u8> {
        match self.bytes(at) {
            Some(bytes) => self.replaced(at, &Policy::invalidated(bytes)),
            None => Self::of(&[]),
        }
    }

    fn of(policies: &[&[u8]]) -> Vec<u8> {
        let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = number(policies.len()).to_vec();
        let mut end = 0;
        for policy in policies {
            end += policy.len();
            bytes.extend_from_slice(&number(end));
        }
        bytes.extend(policies.iter().copied().flatten());
        bytes
    }
}

impl StoredPolicy<'_> {
    /// The one of the greatest is used.
    fn rank(&self) -> (bool, (u64, u64)) {
        (self.is_told_apart(), self.recency())
    }

    /// More recent responses have a greater one.
    fn recency(&self) -> (u64, u64) {
        (self.date().unix(), self.response_time().unix())
    }
}

impl Stored for Variants<'static> {
    const FINGERPRINT: u64 = fingerprint(
        "brisk-http variants 1: count U32, ends U32; policy 1: Facts, FieldRow, SelectorRow, bytes",
    );
    type View<'a> = Variants<'a>;

    fn view(bytes: &[u8]) -> Option<Variants<'_>> {
        Variants::view(bytes)
    }
}
