//! `brisk-tools`: see the library.

fn main() -> std::process::ExitCode {
    brisk::all_verbs()
}
