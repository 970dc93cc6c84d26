//! Asks the kernel which pages of a sample are still in its page cache.
//!
//! The kernel answers with requests to the server (`FUSE_NOTIFY_RETRIEVE`). So the threads that answer requests bring the
//! answers, and the thread that asks waits for them. `mincore` and `cachestat` would not do: to a process that may not write
//! to a file, they say that every page is there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brisk_image::profile::PAGE;
use rustix::io::Errno;

use super::fill_target::FillTarget;

/// How long to wait for the answers. They come after requests that are in the queue already.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// If no more than one page in so many is gone, nothing is filled again.
const FEW: usize = 16;

/// Whether so many pages of a sample are gone that they are filled again.
pub(super) fn is_much(gone: usize, asked: usize) -> bool {
    gone > asked / FEW
}

/// Questions to the kernel, and its answers.
#[derive(Debug, Default)]
pub(super) struct CacheSample {
    round: Mutex<Round>,
    changed: Condvar,
}

/// The questions about one sample.
///
/// 1. `unanswered` is the number of pages whose answer is [`Answer::Unknown`].
#[derive(Debug, Default)]
struct Round {
    /// So that a late answer to an earlier round is none to this one.
    number: u32,
    answers: Vec<Answer>,
    unanswered: usize,
    /// Nobody answers any more.
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Unknown,
    Cached,
    Gone,
}

impl CacheSample {
    /// Asks about pages of files, given by node and number. Returns which of them are gone. A page about which the kernel says
    /// nothing counts as being there.
    pub(super) fn gone(&self, pages: &[(u64, u64)], target: &dyn FillTarget) -> Vec<bool> {
        let number = self.begin(pages.len());
        for (index, (node, page)) in pages.iter().enumerate() {
            let offset = page.saturating_mul(PAGE);
            match target.ask_whether_cached(question(number, index), *node, offset) {
                Ok(()) => {}
                // With a file, the kernel forgets its pages.
                Err(Errno::NOENT) => self.answer(number, index, Answer::Gone),
                // The connection has ended, or there is no memory for a request: nothing is known.
                Err(_) => self.answer(number, index, Answer::Cached),
            }
        }
        self.end_of_round(pages.len())
    }

    /// Takes the answer to a question: whether the page is in the page cache.
    pub(super) fn hear(&self, question: u64, is_cached: bool) {
        let answer = match is_cached {
            true => Answer::Cached,
            false => Answer::Gone,
        };
        if let Some((number, index)) = asked_in(question) {
            self.answer(number, index, answer);
        }
    }

    /// Ends all waiting, now and later.
    pub(super) fn end(&self) {
        self.round().over = true;
        self.changed.notify_all();
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, pages: usize) -> u32 {
        let mut round = self.round();
        round.number = round.number.wrapping_add(1);
        round.answers = vec![Answer::Unknown; pages];
        round.unanswered = pages;
        round.number
    }

    fn answer(&self, number: u32, index: usize, answer: Answer) {
        let mut round = self.round();
        if round.number != number {
            return;
        }
        if let Some(known @ Answer::Unknown) = round.answers.get_mut(index) {
            *known = answer;
            round.unanswered = round.unanswered.saturating_sub(1);
            if round.unanswered == 0 {
                self.changed.notify_all();
            }
        }
    }

    /// Waits for the answers, and returns which pages are gone.
    fn end_of_round(&self, asked: usize) -> Vec<bool> {
        let is_open = |round: &mut Round| round.unanswered > 0 && !round.over;
        let waited = self
            .changed
            .wait_timeout_while(self.round(), ANSWERS_WITHIN, is_open);
        let (round, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let gone = round.answers.iter().take(asked);
        gone.map(|answer| *answer == Answer::Gone).collect()
    }
}

/// The number of a question. It is even, as those of the kernel's own requests, and the highest bit, which marks a request
/// that was sent again, is not set.
fn question(number: u32, index: usize) -> u64 {
    // A sample has fewer than 2^16 pages.
    let index = u64::try_from(index).unwrap_or(u64::MAX) & 0xffff;
    u64::from(number) << 24 | (index + 1) << 1
}

/// The round and the index of a question.
fn asked_in(question: u64) -> Option<(u32, usize)> {
    let number = u32::try_from(question >> 24).ok()?;
    let index = (question >> 1 & 0x1_ffff).checked_sub(1)?;
    Some((number, usize::try_from(index).ok()?))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use brisk_image::InodeRef;

    use super::*;

    /// Page 0 of each node is there, page 1 is gone, nobody answers about page 2, and node 9 is not known.
    struct Kernel<'a>(&'a CacheSample);

    impl FillTarget for Kernel<'_> {
        fn node(&self, inode: InodeRef) -> u64 {
            inode.to_word()
        }

        fn store(&self, _: u64, _: u64, _: &[u8]) -> Result<(), Errno> {
            Err(Errno::NOSYS)
        }

        fn ask_whether_cached(&self, question: u64, node: u64, offset: u64) -> Result<(), Errno> {
            assert!(question > 0 && question.is_multiple_of(2) && question >> 63 == 0);
            match (node, offset / PAGE) {
                (9, _) => return Err(Errno::NOENT),
                (_, 2) => {}
                (_, page) => self.0.hear(question, page == 0),
            }
            Ok(())
        }
    }

    #[test]
    fn only_what_the_kernel_says_is_gone() {
        let sample = CacheSample::default();
        let pages = [(5, 0), (5, 1), (9, 0), (6, 1), (6, 0)];
        let gone = [false, true, true, true, false];
        for _ in 0..3 {
            assert_eq!(sample.gone(&pages, &Kernel(&sample)), gone);
        }
        assert!(sample.gone(&[], &Kernel(&sample)).is_empty());
        // Nobody answers, or nobody can any more.
        assert_eq!(
            sample.gone(&[(5, 2), (5, 1)], &Kernel(&sample)),
            [false, true]
        );
        sample.end();
        let begun = std::time::Instant::now();
        assert_eq!(sample.gone(&[(5, 2)], &Kernel(&sample)), [false]);
        assert!(begun.elapsed() < ANSWERS_WITHIN);
    }

    #[test]
    fn an_answer_that_is_late_or_to_no_question_changes_nothing() {
        let sample = CacheSample::default();
        let round = sample.begin(2);
        let late = question(round, 0);
        let round = sample.begin(2);
        for wrong in [
            late,
            0,
            1,
            u64::MAX,
            question(round, 2),
            question(round + 1, 0),
        ] {
            sample.hear(wrong, false);
        }
        sample.hear(question(round, 1), true);
        sample.hear(question(round, 1), false);
        thread::scope(|scope| {
            scope.spawn(|| sample.hear(question(round, 0), false));
            assert_eq!(sample.end_of_round(2), [true, false]);
        });
    }

    #[test]
    fn more_than_one_in_16_is_much() {
        for (gone, asked, much) in [
            (0, 0, false),
            (0, 1, false),
            (1, 1, true),
            (1, 15, true),
            (1, 16, false),
            (2, 31, true),
            (8, 128, false),
            (9, 128, true),
        ] {
            assert_eq!(is_much(gone, asked), much, "{gone} of {asked}");
        }
    }

    #[test]
    fn a_question_says_what_it_is_about() {
        for (number, index) in [(0, 0), (1, 127), (u32::MAX, 0xffff)] {
            assert_eq!(asked_in(question(number, index)), Some((number, index)));
        }
        assert_eq!(asked_in(0), None);
        assert_eq!(asked_in(u64::MAX), None);
    }
}
