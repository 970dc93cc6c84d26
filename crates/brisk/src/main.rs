//! `brisk`: see the library.

fn main() -> std::process::ExitCode {
    brisk::launch()
}
