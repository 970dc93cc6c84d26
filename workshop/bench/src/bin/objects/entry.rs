//! A record as serde has it.

use brisk_bench::objects::{Object, Sums};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    id: u64,
    account: u32,
    at: i64,
    cents: i64,
    text: String,
}

impl Entry {
    pub fn of(object: &Object) -> Self {
        Self {
            id: object.id,
            account: object.account,
            at: object.at,
            cents: object.cents,
            text: object.text.clone(),
        }
    }

    pub fn add_to(&self, sums: &mut Sums) {
        sums.add(self.id, self.cents, &self.text);
    }
}
