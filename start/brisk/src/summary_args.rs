//! How a verb that makes files tells what it has made.

/// How to tell.
#[derive(Debug, clap::Args)]
pub struct SummaryArgs {
    /// Prints a summary as one JSON object.
    #[arg(long)]
    pub json: bool,

    /// Shows no progress and no summary; warnings are still shown.
    #[arg(short, long)]
    pub quiet: bool,
}
