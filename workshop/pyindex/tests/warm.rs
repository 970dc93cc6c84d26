//! A choice allocates nothing once a chooser has seen a table of the same length.

mod support;

use std::alloc::System;

use pyindex::{Chooser, Specifiers, Wanted};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{PROJECTS, table, target, view};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_choice_allocates_nothing_for_a_candidate() {
    let tables: Vec<_> = PROJECTS.iter().map(|(name, _)| table(name)).collect();
    let mut chooser = Chooser::new(target("3.12.4", "manylinux_2_28_x86_64"));
    // The first time, what is remembered of the longest table grows, and what is remembered of all tables doubles.
    for (first, most) in [(true, 2 * PROJECTS.len() + 8), (false, 0)] {
        for (text, any) in [
            ("", true),
            (">=1.2,!=1.5.*,<9999", true),
            ("!=9999.1.*", false),
        ] {
            let specifiers = Specifiers::parse(text).unwrap();
            // Without kinds, each file of each version is looked at.
            let wanted = Wanted {
                wheels: any,
                sdists: any,
                ..Wanted::of(&specifiers)
            };
            let region = Region::new(ALLOCATOR);
            for bytes in &tables {
                let view = view(bytes);
                let choice = chooser.choose(&view, &wanted).unwrap();
                assert_eq!(choice.is_some(), any);
            }
            let allocations = region.change().allocations + region.change().reallocations;
            assert!(
                allocations <= most,
                "{allocations} allocations, first: {first}"
            );
        }
    }
    // What is known of a file: its name, its URL, its digest and that of its metadata.
    let view = view(&tables[1]);
    let any = Specifiers::parse("").unwrap();
    let choice = chooser.choose(&view, &Wanted::of(&any)).unwrap().unwrap();
    let region = Region::new(ALLOCATOR);
    let file = view.file(choice.version, choice.file).unwrap();
    let change = region.change();
    assert_eq!(
        (change.allocations, change.reallocations),
        (4, 0),
        "{file:?}"
    );
    // A requirement itself: its text and its clauses.
    let region = Region::new(ALLOCATOR);
    let specifiers = Specifiers::parse(">=1.2,!=1.5.*,<99").unwrap();
    assert_eq!(region.change().allocations, 2);
    drop(specifiers);
}
