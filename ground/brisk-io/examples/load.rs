//! Brings a file into memory, and says how: `cargo run -p brisk-io --example load -- FILE`.

use std::env;
use std::fs::File;

use brisk_io::{ByteSource, Need, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).ok_or("usage: load FILE")?;
    let file = File::open(path)?;
    let loaded = load(&file, 0..file.size()?, Need::new())?;
    let sum: u64 = loaded.as_slice().iter().map(|&byte| u64::from(byte)).sum();
    loaded.check()?;
    println!("{} bytes, their sum is {sum}", loaded.as_slice().len());
    println!("{}: {}", loaded.strategy(), loaded.reason());
    Ok(())
}
