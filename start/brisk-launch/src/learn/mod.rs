/*!
What brisk learns from launches.

`rules` decides, as one pure value, whether a start is observed, and whether what was learned is replayed or learned again;
`start_plan` joins that with what is in memory, and says what the start does. `record` is what is kept of one program or image, with a version, in one file. `learned_packs` keeps the records of a user.
What is made is put together in a [`staging`] directory, so that
it appears whole.
*/

pub(crate) mod learned_packs;
pub(crate) mod record;
pub mod rules;
pub mod staging;
pub(crate) mod start_plan;
