//! Makes tables or a page again, from kept results of `caches`, `index-ways` and `objects`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use brisk_bench::{Kept, markdown, write_page};
use clap::Parser;

/// Prints tables in Markdown of kept results of caches, index-ways and objects, or makes a page of them.
#[derive(Debug, Parser)]
struct Args {
    /// Files that these programs wrote: cache.json, index.json or objects.json, whatever their names are now.
    #[arg(required = true, value_name = "RAW.json")]
    raw: Vec<PathBuf>,

    /// Writes a page with pictures instead.
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let kept = args.raw.iter().map(|path| Kept::open(path));
    let kept: Vec<_> = kept.collect::<Result<_>>()?;
    match &args.output {
        Some(page) => write_page(&kept, page)?,
        None => print!("{}", markdown(&kept)),
    }
    Ok(())
}
