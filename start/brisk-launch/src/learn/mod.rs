/*!
What brisk learns from launches.

`rules` decides, as one pure value, whether a start is observed, and whether what was learned is replayed or learned again.
`record` is what is kept of one program or image, with a version, in one file. `learned_packs` keeps the records of a user.
For images, [`learning`] decides what a recorded launch changes. What is made is put together in a [`staging`] directory, so that
it appears whole.
*/

pub(crate) mod learned_packs;
pub mod learning;
pub(crate) mod record;
pub(crate) mod rules;
pub mod staging;
