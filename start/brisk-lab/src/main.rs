//! `brisk-lab` measures. The library says more.

fn main() -> std::process::ExitCode {
    brisk_lab::run()
}
