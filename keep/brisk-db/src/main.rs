//! `brisk-db` looks into databases. The library says more.

fn main() -> std::process::ExitCode {
    brisk_db::run()
}
