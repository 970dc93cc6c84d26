use std::time::Duration;

/// Options of a [`Cache`](crate::Cache).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    pub(crate) limit: u64,
    pub(crate) max_age: Option<Duration>,
    pub(crate) durability: Durability,
    pub(crate) note_use_after: Option<Duration>,
    pub(crate) write_wait: Duration,
    pub(crate) fetch_wait: Duration,
    pub(crate) segment_len: Option<u64>,
    pub(crate) group: Option<u32>,
}

/// What survives a loss of power. A killed process costs nothing that was inserted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The kernel writes to the disk when it likes. A loss of power may lose what was inserted in the last half minute
    /// or so, or bring back an older value.
    #[default]
    Relaxed,
    /// What was inserted is on the disk before the insertion returns.
    Durable,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            limit: 1 << 30,
            max_age: None,
            durability: Durability::Relaxed,
            note_use_after: Some(Duration::from_secs(6 * 60 * 60)),
            write_wait: Duration::from_secs(10),
            fetch_wait: Duration::from_secs(30),
            segment_len: None,
            group: None,
        }
    }
}

impl CacheOptions {
    /// At most 1 GiB, of any age, relaxed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most bytes that the files of the cache have together. 1 GiB by default.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// How old an entry may be. An older one is a miss. No bound by default.
    #[must_use]
    pub fn max_age(mut self, age: Option<Duration>) -> Self {
        self.max_age = age;
        self
    }

    /// What survives a loss of power. [`Durability::Relaxed`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// A use of an entry is noted if the last note, or the entry itself, is older than this. 6 hours by default. In a full
    /// cache, the first use is noted at once if the entry is in the older half of the files.
    /// None: only [`Cache::update_use`](crate::Cache::update_use) notes uses.
    #[must_use]
    pub fn note_use_after(mut self, age: Option<Duration>) -> Self {
        self.note_use_after = age;
        self
    }

    /// How long a write waits for another process that is writing. 10 seconds by default.
    #[must_use]
    pub fn write_wait(mut self, wait: Duration) -> Self {
        self.write_wait = wait;
        self
    }

    /// How long [`Cache::get_or_insert_with`](crate::Cache::get_or_insert_with) waits for another that fetches the same
    /// key, before it fetches itself. 30 seconds by default.
    #[must_use]
    pub fn fetch_wait(mut self, wait: Duration) -> Self {
        self.fetch_wait = wait;
        self
    }

    /// The length of a segment, rounded up to a multiple of 64 KiB. By default a 32nd of the limit, at least 1 MiB and at
    /// most 64 MiB.
    #[must_use]
    pub fn segment_len(mut self, bytes: u64) -> Self {
        self.segment_len = Some(bytes);
        self
    }

    /// A group whose members share the cache with its owner. By default nobody does.
    #[must_use]
    pub fn group(mut self, gid: u32) -> Self {
        self.group = Some(gid);
        self
    }
}
