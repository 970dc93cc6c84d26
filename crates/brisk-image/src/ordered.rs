//! Work done on several threads whose results come out in the order of the jobs.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What all threads share.
///
/// 1. `given` jobs were taken from `jobs`; results below `taken` went to the sink.
/// 2. `given - taken <= window`, which bounds the results that exist at once.
struct State<I, R> {
    jobs: I,
    given: usize,
    taken: usize,
    /// The number of jobs, once it is known.
    total: Option<usize>,
    done: BTreeMap<usize, R>,
    /// Set when the sink failed or a worker panicked: nobody starts another job.
    stop: bool,
}

struct Shared<I, R> {
    state: Mutex<State<I, R>>,
    changed: Condvar,
}

impl<I, R> Shared<I, R> {
    fn lock(&self) -> MutexGuard<'_, State<I, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<I, R>>) -> MutexGuard<'a, State<I, R>> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops everybody if its owner is unwound, so that nobody waits for a result that never comes.
struct StopOnPanic<'a, I, R>(&'a Shared<I, R>);

impl<I, R> Drop for StopOnPanic<'_, I, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().stop = true;
            self.0.changed.notify_all();
        }
    }
}

/// Runs `work` on each of `jobs`, on `threads` threads that each have what `worker` makes, and
/// gives the results to `sink`, on the calling thread, in the order of the jobs.
///
/// At most `window` results are on their way at once. The first error of the sink ends it all.
pub(crate) fn for_each<J, W, R, E>(
    threads: usize,
    window: usize,
    jobs: impl Iterator<Item = J> + Send,
    worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, J) -> R + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    J: Send,
    R: Send,
{
    let shared = Shared {
        state: Mutex::new(State {
            jobs,
            given: 0,
            taken: 0,
            total: None,
            done: BTreeMap::new(),
            stop: false,
        }),
        changed: Condvar::new(),
    };
    let window = window.max(1);
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let _stop = StopOnPanic(&shared);
                let mut worker = worker();
                while let Some((number, job)) = next_job(&shared, window) {
                    let result = work(&mut worker, job);
                    shared.lock().done.insert(number, result);
                    shared.changed.notify_all();
                }
            });
        }
        let _stop = StopOnPanic(&shared);
        while let Some(result) = next_result(&shared) {
            if let Err(e) = sink(result) {
                shared.lock().stop = true;
                shared.changed.notify_all();
                return Err(e);
            }
        }
        Ok(())
    })
}

fn next_job<J, I: Iterator<Item = J>, R>(
    shared: &Shared<I, R>,
    window: usize,
) -> Option<(usize, J)> {
    let mut state = shared.lock();
    loop {
        if state.stop || state.total.is_some() {
            return None;
        }
        if state.given < state.taken + window {
            break;
        }
        state = shared.wait(state);
    }
    let number = state.given;
    let job = state.jobs.next();
    if job.is_some() {
        state.given += 1;
    } else {
        state.total = Some(number);
        shared.changed.notify_all();
    }
    job.map(|job| (number, job))
}

fn next_result<I, R>(shared: &Shared<I, R>) -> Option<R> {
    let mut state = shared.lock();
    loop {
        if state.stop {
            return None;
        }
        let number = state.taken;
        if let Some(result) = state.done.remove(&number) {
            state.taken += 1;
            shared.changed.notify_all();
            return Some(result);
        }
        if state.total == Some(number) {
            return None;
        }
        state = shared.wait(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_at_any_number_of_threads() {
        for threads in [1, 2, 7] {
            for window in [1, 3, 100] {
                let mut out = Vec::new();
                let done: Result<(), ()> = for_each(
                    threads,
                    window,
                    0..500u64,
                    || (),
                    |(), n| {
                        if n % 7 == 0 {
                            thread::yield_now();
                        }
                        n * n
                    },
                    |r| {
                        out.push(r);
                        Ok(())
                    },
                );
                assert_eq!(done, Ok(()));
                assert_eq!(out, (0..500).map(|n| n * n).collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn no_more_than_the_window_is_on_its_way() {
        let ahead = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let done: Result<(), ()> = for_each(
            4,
            5,
            0..200,
            || (),
            |(), _| {
                let now = ahead.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
            },
            |()| {
                ahead.fetch_sub(1, Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_micros(100));
                Ok(())
            },
        );
        assert_eq!(done, Ok(()));
        // The one in the sink is no longer counted as ahead by `for_each`, but is by this test.
        assert!(most.into_inner() <= 6);
    }

    #[test]
    fn an_error_of_the_sink_ends_it() {
        let mut seen = 0;
        let done = for_each(
            3,
            4,
            0..,
            || (),
            |(), n: u32| n,
            |n| {
                seen += 1;
                if n == 10 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!(done, Err("enough"));
        assert_eq!(seen, 11);
    }

    #[test]
    fn a_panic_of_a_worker_is_not_a_hang() {
        let caught = std::panic::catch_unwind(|| {
            for_each(
                2,
                4,
                0..100,
                || (),
                |(), n| assert!(n != 50, "as meant"),
                |()| Ok::<(), ()>(()),
            )
        });
        assert!(caught.is_err());
    }
}
