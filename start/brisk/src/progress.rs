//! A progress bar on the terminal, for work that takes longer than a second.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar takes what the numbers leave, also in a narrow window.
const OF_TOTAL: &str = "{percent:>3} % {wide_bar} {bytes}/{total_bytes} {eta}";
const WITHOUT_TOTAL: &str = "{spinner} {bytes}, {binary_bytes_per_sec}";

/// Work that takes less time than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of some work, in bytes. It is shown on stderr, if that is a terminal, until this is dropped.
pub struct Progress(Arc<Shown>);

struct Shown {
    bar: ProgressBar,
    started: Instant,
    may_show: bool,
    shown: OnceLock<()>,
}

impl Progress {
    /// `total`: how many bytes there are, if known.
    pub fn new(total: Option<u64>, quiet: bool) -> Self {
        let template = match total {
            Some(_) => OF_TOTAL,
            None => WITHOUT_TOTAL,
        };
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        // The templates are constants, and a test parses them.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(Arc::new(Shown {
            bar,
            started: Instant::now(),
            may_show: !quiet && std::io::stderr().is_terminal(),
            shown: OnceLock::new(),
        }))
    }

    /// A function that the work calls with the number of bytes that are done. It never cancels.
    pub fn callback(&self) -> impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static {
        let shown = Arc::clone(&self.0);
        move |bytes| {
            shown.add(bytes);
            ControlFlow::Continue(())
        }
    }
}

impl Shown {
    fn add(&self, bytes: u64) {
        if !self.may_show {
            return;
        }
        self.bar.inc(bytes);
        if self.shown.get().is_none() && self.started.elapsed() > PATIENCE {
            self.shown
                .get_or_init(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
    }
}

/// The bar disappears when the work ends or fails.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [OF_TOTAL, WITHOUT_TOTAL] {
            let fault = ProgressStyle::with_template(template).err();
            assert_eq!(fault.map(|e| e.to_string()), None, "{template}");
        }
    }

    #[test]
    fn a_bar_fits_into_40_columns() {
        // The most columns that each part takes: of a size 1023.99 MiB, and of a time 59m.
        let widest = [
            ("{percent:>3}", 3),
            ("{bytes}", 11),
            ("{total_bytes}", 11),
            ("{eta}", 3),
            ("{wide_bar}", 0),
            ("{spinner}", 1),
            ("{binary_bytes_per_sec}", 13),
        ];
        for (template, bar) in [(OF_TOTAL, 5), (WITHOUT_TOTAL, 0)] {
            let filled = widest
                .iter()
                .fold(template.to_owned(), |text, (part, width)| {
                    text.replace(part, &"x".repeat(*width))
                });
            assert!(!filled.contains('{'), "{filled}");
            assert!(filled.len() + bar <= 40, "{filled}");
        }
    }
}
