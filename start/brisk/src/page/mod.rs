//! Pictures for pages with figures.

pub mod chart;
pub mod touches;
