//! Has the linker lay out the code of `brisk` that runs at a start side by side, if `BRISK_LAUNCH_CODE` names the script for it.

fn main() {
    println!("cargo::rerun-if-env-changed=BRISK_LAUNCH_CODE");
    let script = std::env::var("BRISK_LAUNCH_CODE").unwrap_or_default();
    if !script.is_empty() {
        println!("cargo::rerun-if-changed={script}");
        println!("cargo::rustc-link-arg-bin=brisk=-Wl,-T,{script}");
    }
}
