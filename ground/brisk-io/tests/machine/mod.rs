//! What the machine that runs the tests cannot do.

/// Whether a test that needs `what` of the machine, such as `io_uring`, goes on. `found` says why it is
/// missing.
///
/// A test that finds it missing fails, because it would prove nothing. If it is missing on purpose, name it
/// in the variable `BRISK_TEST_WITHOUT`, a list with commas. Then the test is skipped.
#[track_caller]
pub fn has<E: std::fmt::Display>(what: &str, found: Result<(), E>) -> bool {
    let Err(e) = found else { return true };
    let without = std::env::var("BRISK_TEST_WITHOUT").unwrap_or_default();
    assert!(
        without.split(',').any(|name| name == what),
        "this test needs {what}: {e}; run it on a machine that has it, or set BRISK_TEST_WITHOUT={what}"
    );
    false
}
