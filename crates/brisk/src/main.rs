#![doc = "The brisk command."]
fn main() {}
