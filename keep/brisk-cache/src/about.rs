//! What is stored beside a value.

/// What is stored beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct About {
    /// The caller's name for the layout of the value. A reader compares it with the layouts that it knows.
    pub fingerprint: u64,
    /// A number from 0 to 255. [`Cache::buckets`](crate::Cache::buckets) has totals of each.
    pub bucket: u16,
}
