//! `brisk-run` starts programs and mounts images. The library says more.

fn main() -> std::process::ExitCode {
    brisk::run_or_mount()
}
