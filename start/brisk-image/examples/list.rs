//! Lists an image, on any system: `cargo run -p brisk-image --example list -- IMAGE`.

use std::env;

use brisk_image::{Image, InodeKind, names};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).ok_or("usage: list IMAGE")?;
    let image = Image::open(path)?;
    for entry in image.walk()? {
        let entry = entry?;
        let inode = entry.inode();
        // Names come from whoever made the image: a terminal could obey them.
        let path = names::to_bytes(entry.path().as_os_str());
        let mut shown = path.escape_ascii().to_string();
        if let InodeKind::Symlink(target) = inode.kind() {
            shown += &format!(" -> {}", names::to_bytes(target).escape_ascii());
        }
        println!("{:04o} {:>10} {shown}", inode.permissions(), inode.len());
    }
    Ok(())
}
