/*!
Measures what a cache of generated code saves. wasmtime either compiles modules of WebAssembly, or gets them from a
[`CodeCache`](brisk_cache::CodeCache) and maps them.

The measured program is generated. Each run calls it and compares the result with the expected one.
*/

mod engine;
mod one_entry;
mod program;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use brisk_bench::{Bench, Options, State, Timed, prepare};
use brisk_cache::Check;
use brisk_io::Need;
use clap::Parser;

use engine::{Engines, Kept, Loaded};
use one_entry::{OneEntry, OwnedKey};
use program::{ALL, Export, FEW, Program};

/// Measure a cache of code that wasmtime compiles: compile, load, map.
#[derive(Parser)]
struct Args {
    /// Functions of the program that is compiled
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    functions: u32,

    /// Bytes of the code whose check is measured
    #[arg(long, value_name = "BYTES", default_value_t = 25_000_000)]
    checked: usize,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    brisk_bench::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let work = args.options.work()?;
    let processors = brisk_bench::give_processors(None)?;
    let about = serde_json::json!({
        "functions": args.functions,
    });
    let mut bench = args.options.bench(work.path(), processors, about)?;
    measure_check(&mut bench, &work.path().join("check"), args.checked)?;
    measure_modules(&mut bench, work.path(), args.functions as usize)?;
    println!("{}", bench.table());
    Ok(())
}

/// What is in the page cache when the clock starts.
fn words_of(state: State) -> &'static str {
    match state {
        State::Warm => "the code: all of it, proven",
        State::Cold => "the code: none of it, proven",
    }
}

/// What a check costs, besides touching each page of what was loaded.
fn measure_check(bench: &mut Bench, directory: &Path, len: usize) -> Result<()> {
    let mut code = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut code);
    let key = OwnedKey {
        flags: String::new(),
        source: *blake3::hash(&code).as_bytes(),
    };
    let entry = &OneEntry::new(directory.to_owned(), key, &code)?;
    let sum = |bytes: &[u8]| {
        bytes.iter().step_by(4096).fold(0u64, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        })
    };
    let expected = sum(&code);
    for state in [State::Warm, State::Cold] {
        let timed = |name, check| Timed {
            name,
            work: Box::new(move || {
                prepare(entry.file(), state)?;
                let start = Instant::now();
                let code = entry.load(check, Need::default())?;
                let found = sum(code.checked(0..len)?);
                let elapsed = start.elapsed();
                ensure!(found == expected, "other bytes than were stored");
                Ok(elapsed)
            }),
        };
        bench.compare(
            "check",
            &format!("{len} bytes, a byte of each page read"),
            words_of(state),
            timed("never", Check::Never),
            vec![
                (timed("at open", Check::AtOpen), None),
                (timed("as touched", Check::Touched), None),
            ],
        )?;
    }
    Ok(())
}

/// A way to get a module and then call it.
type Way<'a> = Box<dyn Fn() -> Result<Loaded> + 'a>;

fn measure_modules(bench: &mut Bench, work: &Path, functions: usize) -> Result<()> {
    let program = Program::generate(functions);
    let wasm = &program.wasm();
    let engines = &Engines::new()?;
    let kept = &Kept::new(engines, wasm, work)?;
    let (wasm_len, len) = (wasm.len(), kept.len());
    eprintln!("{functions} functions: {wasm_len} bytes of WebAssembly, {len} compiled");
    for state in [State::Warm, State::Cold] {
        for (export, called) in [(FEW, "1 of 100 called"), (ALL, "all called")] {
            let call = &Call {
                kept,
                state,
                export,
                expected: program.result(export, 1),
            };
            let contenders: [(_, Way<'_>); 5] = [
                ("compile", Box::new(|| engines.compile(wasm))),
                ("map a plain file", Box::new(|| engines.map_plain(kept))),
                ("cache, copied", Box::new(|| engines.copied(kept))),
                (
                    "cache, mapped",
                    Box::new(|| engines.mapped(kept, Check::AtOpen)),
                ),
                (
                    "cache, mapped, unchecked",
                    Box::new(|| engines.mapped(kept, Check::Never)),
                ),
            ];
            bench.compare(
                "module",
                &format!("{functions} functions, {len} bytes, {called}"),
                words_of(state),
                call.timed("read", Box::new(|| engines.read(kept))),
                contenders
                    .map(|(name, way)| (call.timed(name, way), None))
                    .into(),
            )?;
        }
    }
    Ok(())
}

/// A call, and its expected result.
struct Call<'a> {
    kept: &'a Kept,
    state: State,
    export: Export,
    expected: i32,
}

impl<'a> Call<'a> {
    /// The time from having nothing to the result of the call.
    fn timed(&'a self, name: &'static str, way: Way<'a>) -> Timed<'a> {
        let work = move || {
            for file in self.kept.files() {
                prepare(file, self.state)?;
            }
            let start = Instant::now();
            let loaded = way()?;
            let found = loaded.call(self.export.name, 1)?;
            let elapsed = start.elapsed();
            let expected = self.expected;
            ensure!(found == expected, "the call gave {found}, not {expected}");
            Ok(elapsed)
        };
        Timed {
            name,
            work: Box::new(work),
        }
    }
}
