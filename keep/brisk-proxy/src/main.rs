//! `brisk-proxy` serves from a cache. The library says more.

fn main() -> std::process::ExitCode {
    brisk_proxy::run()
}
