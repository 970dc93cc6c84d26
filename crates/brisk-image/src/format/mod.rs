//! The bytes of an image: wire structs, then checks, then types that cannot be wrong.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::unwrap_used
    )
)]

mod codec_options;
