//! Does the jobs of `brisk lab cache --rivals`, with databases and other caches besides the lab's own stores.

mod stores;

fn main() -> std::process::ExitCode {
    brisk_lab::serve_cache(&stores::RIVALS, None)
}
