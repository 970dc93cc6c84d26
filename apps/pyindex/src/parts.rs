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

/// Gives a part of the items to each processor, all at once. What `work` makes of the parts comes in the order of the items.
///
/// For what looks at many stored tables: most of its time it waits for memory, and each processor waits by itself.
pub fn in_parts<T: Sync, R: Send>(items: &[T], work: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let most = items.len() / LEAST;
    if most < 2 {
        return work(items);
    }
    let mut parts = items.chunks(items.len().div_ceil(most.min(processors())));
    let own = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
        let mut all = work(own);
        for other in others {
            match other.join() {
                Ok(made) => all.extend(made),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_the_order_of_the_items() {
        for len in [0, 1, 2 * LEAST - 1, 2 * LEAST, 2 * LEAST + 1, 1001] {
            let items: Vec<usize> = (0..len).collect();
            let made = in_parts(&items, |part| part.iter().map(|item| item + 1).collect());
            assert!(made.iter().copied().eq(1..=len), "{len} items");
        }
    }

    #[test]
    fn many_items_are_worked_on_by_all_processors_at_once() {
        let processors = processors();
        let barrier = std::sync::Barrier::new(processors);
        // Each waits until all have begun.
        let made = in_parts(&vec![(); LEAST * processors], |part| {
            barrier.wait();
            vec![part.len()]
        });
        assert_eq!(made, vec![LEAST; processors]);
    }
}
