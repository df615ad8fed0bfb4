//! What a thread goes on with while it waits for something else: calls that it has started.
//!
//! MPI's rule of progress: a rank that waits, for whatever it is, goes on with all that it has started, or two ranks could wait for
//! each other. A thread knows its own; nothing is shared between threads here.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// A rank that may have started calls.
pub(crate) trait GoOn {
    /// Goes on with them as far as that takes no waiting. Whether any is left.
    fn go_on(&self) -> bool;
}

std::thread_local! {
    /// Whether there is anything in the next, which is asked more often.
    static ANY: Cell<bool> = const { Cell::new(false) };
    static STARTED: RefCell<Vec<Weak<dyn GoOn>>> = const { RefCell::new(Vec::new()) };
}

/// This thread goes on with the calls of `rank` from now on, until none is left. Nothing happens while the thread ends.
pub(crate) fn add<R: GoOn + 'static>(rank: &Arc<R>) {
    let weak: Weak<dyn GoOn> = Arc::downgrade(rank) as Weak<R>;
    let _ = STARTED.try_with(|started| {
        let mut started = started.borrow_mut();
        if !started.iter().any(|known| known.ptr_eq(&weak)) {
            started.push(weak);
        }
        ANY.set(true);
    });
}

/// Whether this thread has something to go on with.
#[inline]
pub(crate) fn any() -> bool {
    ANY.get()
}

/// Goes on with all that this thread has started.
#[inline]
pub(crate) fn go_on() {
    if any() {
        go_on_with_all();
    }
}

#[cold]
fn go_on_with_all() {
    // Taken out, so that nothing is borrowed while others' code runs.
    let Ok(mut started) = STARTED.try_with(RefCell::take) else { return };
    started.retain(|rank| rank.upgrade().is_some_and(|rank| rank.go_on()));
    ANY.set(!started.is_empty());
    let _ = STARTED.try_with(|left| left.replace(started));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[derive(Default)]
    struct Counter {
        left: AtomicUsize,
        asked: AtomicUsize,
    }

    impl GoOn for Counter {
        fn go_on(&self) -> bool {
            self.asked.fetch_add(1, Relaxed);
            self.left.fetch_sub(1, Relaxed) > 1
        }
    }

    fn counter(left: usize) -> Arc<Counter> {
        Arc::new(Counter { left: left.into(), ..Counter::default() })
    }

    #[test]
    fn what_is_complete_is_asked_no_more() {
        let (short, long) = (counter(1), counter(3));
        assert!(!any());
        add(&short);
        add(&long);
        add(&long);
        for _ in 0..3 {
            assert!(any());
            go_on();
        }
        assert!(!any());
        go_on();
        assert_eq!((short.asked.load(Relaxed), long.asked.load(Relaxed)), (1, 3));
    }

    #[test]
    fn a_rank_that_is_gone_is_forgotten() {
        let rank = counter(100);
        add(&rank);
        drop(rank);
        go_on();
        assert!(!any());
    }

    #[test]
    fn other_threads_have_their_own() {
        add(&counter(1));
        let other = std::thread::spawn(any).join();
        assert!(matches!(other, Ok(false)));
        go_on();
    }
}
