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
    /// Threads that wait for room in the window.
    idle: usize,
    /// Set when the sink failed or a worker panicked. No thread then starts another job.
    stop: bool,
}

struct Shared<I, R> {
    state: Mutex<State<I, R>>,
    window: usize,
    /// Told when a result was taken, and there is room for another job.
    room: Condvar,
    /// Told when there are results worth waking up for.
    ready: Condvar,
}

/// Results that the sink is woken up for, if more are to come: waking it up for each takes longer
/// than many a job.
const WORTH: usize = 8;

impl<I, R> Shared<I, R> {
    fn lock(&self) -> MutexGuard<'_, State<I, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        what: &Condvar,
        state: MutexGuard<'a, State<I, R>>,
    ) -> MutexGuard<'a, State<I, R>> {
        what.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.room.notify_all();
        self.ready.notify_all();
    }

    /// True if the sink has something to do: the next result, and as many as are worth it or all
    /// that were asked for; or nothing ever again.
    ///
    /// All that were asked for come, whatever the sink does, so this becomes true.
    fn wakes_sink(&self, state: &State<I, R>) -> bool {
        let working = state.given - state.taken - state.done.len();
        let enough = working == 0 || state.done.len() >= WORTH.min(self.window.div_ceil(2));
        state.stop
            || state.total == Some(state.taken)
            || enough && state.done.contains_key(&state.taken)
    }
}

/// Stops all threads if its owner panics, so that none waits for a result that never comes.
struct StopOnPanic<'a, I, R>(&'a Shared<I, R>);

impl<I, R> Drop for StopOnPanic<'_, I, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
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
            idle: 0,
            stop: false,
        }),
        window: window.max(1),
        room: Condvar::new(),
        ready: Condvar::new(),
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let _stop = StopOnPanic(&shared);
                let mut worker = worker();
                while let Some((number, job)) = next_job(&shared) {
                    let result = work(&mut worker, job);
                    let mut state = shared.lock();
                    state.done.insert(number, result);
                    if shared.wakes_sink(&state) {
                        shared.ready.notify_one();
                    }
                }
            });
        }
        let _stop = StopOnPanic(&shared);
        while let Some(result) = next_result(&shared) {
            if let Err(e) = sink(result) {
                shared.stop();
                return Err(e);
            }
        }
        Ok(())
    })
}

fn next_job<J, I: Iterator<Item = J>, R>(shared: &Shared<I, R>) -> Option<(usize, J)> {
    let mut state = shared.lock();
    loop {
        if state.stop || state.total.is_some() {
            return None;
        }
        if state.given < state.taken + shared.window {
            break;
        }
        state.idle += 1;
        state = shared.wait(&shared.room, state);
        state.idle -= 1;
    }
    let number = state.given;
    let job = state.jobs.next();
    if job.is_some() {
        state.given += 1;
    } else {
        state.total = Some(number);
        shared.room.notify_all();
        shared.ready.notify_one();
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
            if state.idle > 0 {
                shared.room.notify_one();
            }
            return Some(result);
        }
        if state.total == Some(number) {
            return None;
        }
        state = shared.wait(&shared.ready, state);
        while !shared.wakes_sink(&state) {
            state = shared.wait(&shared.ready, state);
        }
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
    fn a_slow_job_keeps_the_others_from_nothing_but_the_window() {
        let done = AtomicUsize::new(0);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut out = Vec::new();
        let end: Result<(), ()> = for_each(
            2,
            100,
            0..300,
            || (),
            |(), n: usize| {
                // The first ends only when all others that are in the window did.
                while n == 0 && done.load(Ordering::SeqCst) < 99 {
                    assert!(std::time::Instant::now() < deadline, "nobody goes ahead");
                    thread::yield_now();
                }
                done.fetch_add(1, Ordering::SeqCst);
                n
            },
            |n| {
                out.push(n);
                Ok(())
            },
        );
        assert_eq!(end, Ok(()));
        assert_eq!(out, (0..300).collect::<Vec<_>>());
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
