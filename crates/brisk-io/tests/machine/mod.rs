//! What the machine that runs the tests cannot do.

/// Whether a test goes on that needs `what` of the machine, such as `io_uring`, where `found` says why it is not there.
///
/// A test that finds it missing fails: it would prove nothing. Where it is missing on purpose, the variable
/// `BRISK_TEST_WITHOUT` says so, as a list with commas, and the test is passed over.
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
