//! `brisk` starts programs. The library says more.

fn main() -> std::process::ExitCode {
    brisk::launch()
}
