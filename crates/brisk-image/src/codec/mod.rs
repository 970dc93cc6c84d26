//! The compressors of SquashFS: what they are called, their options, and one face for all.
