//! `brisk ls`: lists what is in an image.

use crate::Answer;
use crate::args::ImageArgs;

/// What to list, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
}

pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let image = args.image.open()?;
    for entry in image.walk()? {
        println!("{}", crate::names::shown(entry?.path()));
    }
    Ok(Answer::Yes)
}
