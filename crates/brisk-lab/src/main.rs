//! `brisk-lab`: see the library.

fn main() -> std::process::ExitCode {
    brisk_lab::run()
}
