//! `brisk` starts programs, or becomes the program that can. The library says more.

fn main() -> std::process::ExitCode {
    brisk::launch()
}
