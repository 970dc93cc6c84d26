//! The cache in front of a client: what clients get, what the origin is asked, and what the directory has afterwards.

mod bodies;
mod connections;
mod credentials;
mod crowd;
mod damage;
mod hits;
mod leaving;
mod methods;
mod origin;
mod processes;
mod revalidation;
mod setup;
mod sharing;
mod stale;
mod storing;
mod troubles;
