//! `brisk-tools` has all verbs. The library says more.

fn main() -> std::process::ExitCode {
    brisk::all_verbs()
}
