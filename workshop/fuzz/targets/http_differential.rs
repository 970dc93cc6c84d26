//! Exchanges of values that mean something: brisk-http and the crate `http-cache-semantics` decide alike, or their difference
//! is of a kind that was judged by the RFC.
#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;

#[path = "../../../keep/brisk-http/tests/support/differential.rs"]
#[allow(dead_code, reason = "the test reads the cases too")]
mod differential;

fuzz_target!(|choices: &[u8]| {
    let mut choices = Unstructured::new(choices);
    let scenario = differential::Scenario::made(|below| choices.choose_index(below).unwrap_or(0));
    let (brisk, peer) = (scenario.brisk(), scenario.peer());
    if let Err(unexplained) = differential::explain(&scenario) {
        panic!("{unexplained:?}\n{scenario}brisk: {brisk}\npeer: {peer}");
    }
});
