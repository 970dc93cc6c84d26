//! The guide shows the example that is compiled.

const GUIDE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUIDE.md"));
const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/ledger.rs"));

/// Lines without what stands before them: the guide begins each block at the left.
fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_guide_shows_the_ledger() {
    let example = lines(EXAMPLE);
    let mut shown = 0;
    for block in GUIDE.split("\n```rust\n").skip(1) {
        let (block, _) = block.split_once("```\n").unwrap();
        assert!(
            example.contains(&lines(block)),
            "examples/ledger.rs does not have:\n{block}"
        );
        shown += block.lines().count();
    }
    assert!(shown > 50, "{shown}");
}
