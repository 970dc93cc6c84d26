//! Keeps what took long to compute, for all later processes: `cargo run -p brisk-cache --example digits -- DIRECTORY`.
//! The second run computes nothing.

use std::env;
use std::io;

use brisk_cache::{About, Cache, CacheOptions};

/// The digits of 2 to the power of 10,000.
fn digits() -> Vec<u8> {
    let mut digits = vec![1u8];
    for _ in 0..10_000 {
        let mut carry = 0;
        for digit in &mut digits {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        if carry > 0 {
            digits.push(carry);
        }
    }
    digits.iter().rev().map(|digit| b'0' + digit).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = env::args_os().nth(1).ok_or("usage: digits DIRECTORY")?;
    let cache = Cache::open(directory.as_ref(), CacheOptions::new())?;
    let compute = || {
        println!("computed now");
        io::Result::Ok(digits())
    };
    let hit = cache.get_or_insert_with(b"2^10000", About::default(), compute)?;
    println!("{} digits", hit.bytes()?.len());
    Ok(())
}
