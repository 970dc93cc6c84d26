//! The page about databases shows the examples that are compiled.

const PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/databases.md"
));
const EXAMPLES: [&str; 2] = [
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/ledger.rs")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tasks.rs")),
];

/// Lines without what stands before them: the page begins each block at the left.
fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_page_shows_the_examples() {
    let examples = EXAMPLES.map(lines);
    let mut shown = 0;
    for block in PAGE.split("\n```rust\n").skip(1) {
        let (block, _) = block.split_once("```\n").unwrap();
        assert!(
            examples
                .iter()
                .any(|example| example.contains(&lines(block))),
            "neither example has:\n{block}"
        );
        shown += block.lines().count();
    }
    assert!(shown > 50, "{shown}");
}
