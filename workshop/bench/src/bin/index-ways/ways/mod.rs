//! Ways from packages to the files that suit a Python best, over what is stored of an index.
//!
//! The crates of uv parse names, versions, specifiers and tags for all ways but brisk's.

pub(crate) mod brisk;
pub(crate) mod choosing;
mod fetching;
mod freshness;
pub(crate) mod page;
mod parsed;
mod policy_only;
mod rkyv_file;
mod sqlite;
mod uv_client;

use brisk_bench::ways::WayKind;

/// All of them.
pub(crate) const WAYS: [WayKind; 6] = [
    WayKind {
        name: "brisk",
        prepare: |question| Ok(Box::new(brisk::Brisk::prepare(&question)?)),
    },
    WayKind {
        name: "policy-only",
        prepare: |question| Ok(Box::new(policy_only::PolicyOnly::prepare(&question)?)),
    },
    WayKind {
        name: "parsed",
        prepare: |question| {
            Ok(Box::new(fetching::Filed::<parsed::Parsed>::prepare(
                &question,
            )?))
        },
    },
    WayKind {
        name: "uv-client",
        prepare: |question| Ok(Box::new(uv_client::UvClient::prepare(&question)?)),
    },
    WayKind {
        name: "rkyv-file",
        prepare: |question| {
            Ok(Box::new(fetching::Filed::<rkyv_file::RkyvFile>::prepare(
                &question,
            )?))
        },
    },
    WayKind {
        name: "sqlite",
        prepare: |question| {
            Ok(Box::new(fetching::Filed::<sqlite::Sqlite>::prepare(
                &question,
            )?))
        },
    },
];

/// How many pages are asked for at once, as uv does.
const AT_ONCE: usize = 50;

/// The form of the page that all ways ask for.
const ACCEPT: &str = "application/vnd.pypi.simple.v1+json";
