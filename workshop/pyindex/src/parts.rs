use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// With fewer items for each thread, starting it takes as long as what it does.
const LEAST: usize = 32;

/// More threads than these would still be starting when the others have ended.
const MOST: usize = 8;

/// How many processors this thread may run on, up to [`MOST`]. The standard library also reads the quota of the control group,
/// from three files, which takes some 50 µs.
fn processors() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None);
    let allowed = allowed.map_or(1, |allowed| allowed.count());
    usize::try_from(allowed).unwrap_or(MOST).clamp(1, MOST)
}

/// So many items are taken at once.
const PART: usize = 16;

/// Works on all items, on all processors at once. What `work` makes of them comes in the order of the items. `begin` makes what
/// a processor keeps from item to item.
///
/// For what looks at many stored tables: most of its time it waits for memory, and each processor waits by itself. Who is done
/// with a part takes the next one, so that a thread that starts late, or gets less of its processor, keeps nobody waiting.
pub fn in_parts<T: Sync, S, R: Send>(
    items: &[T],
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
) -> Vec<R> {
    let threads = (items.len() / LEAST).min(processors()).max(1);
    if threads == 1 {
        let mut kept = begin();
        return items.iter().map(|item| work(&mut kept, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut kept = begin();
        // Room for all at once: an allocation that grows by little steps costs a thread a system call for each page.
        let (mut numbers, mut made) = (Vec::new(), Vec::with_capacity(items.len()));
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = items.chunks(PART).nth(number) else {
                return (numbers, made);
            };
            made.extend(part.iter().map(|item| work(&mut kept, item)));
            numbers.push(number);
        }
    };
    let made = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut all = vec![run()];
        for other in others {
            match other.join() {
                Ok(made) => all.push(made),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    let made = made.into_iter();
    let mut made: Vec<_> = made
        .map(|(numbers, made)| (numbers.into_iter().peekable(), made.into_iter()))
        .collect();
    let mut all = Vec::with_capacity(items.len());
    for (number, part) in items.chunks(PART).enumerate() {
        // Each thread has its parts in ascending order.
        for (numbers, made) in &mut made {
            if numbers.next_if_eq(&number).is_some() {
                all.extend(made.by_ref().take(part.len()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_the_order_of_the_items() {
        for len in [0, 1, 2 * LEAST - 1, 2 * LEAST, 2 * LEAST + 1, 1001] {
            let items: Vec<usize> = (0..len).collect();
            let made = in_parts(&items, || 1, |one, item| item + *one);
            assert!(made.iter().copied().eq(1..=len), "{len} items");
        }
    }

    #[test]
    fn many_items_are_worked_on_by_all_processors_at_once() {
        let processors = processors();
        let barrier = std::sync::Barrier::new(processors);
        // Each waits until all have begun.
        let begin = || {
            barrier.wait();
        };
        let made = in_parts(&vec![(); LEAST * processors], begin, |(), ()| 7);
        assert_eq!(made, vec![7; LEAST * processors]);
    }

    #[test]
    fn a_thread_that_waits_keeps_no_items_for_itself() {
        let items = vec![(); LEAST * 2 * processors().max(2)];
        let left = AtomicUsize::new(items.len());
        let is_first = std::sync::atomic::AtomicBool::new(true);
        // The first of all waits until the others have done all that is not in its own part. With one processor, nobody does.
        let made = in_parts(
            &items,
            || (),
            |(), ()| {
                left.fetch_sub(1, Ordering::Relaxed);
                if processors() > 1 && is_first.swap(false, Ordering::Relaxed) {
                    while left.load(Ordering::Relaxed) >= PART {
                        thread::yield_now();
                    }
                }
            },
        );
        assert_eq!(made.len(), items.len());
    }
}
