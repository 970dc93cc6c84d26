//! `brisk-bundle` is in front of an image and starts it. The library says more.

fn main() -> std::process::ExitCode {
    brisk_bundle::run()
}
