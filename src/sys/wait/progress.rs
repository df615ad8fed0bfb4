//! What a thread goes on with while it waits for something else: calls that it has started.
//!
//! MPI's rule of progress: a rank that waits, for whatever it is, goes on with all that it has started, or two ranks could wait for
//! each other. A thread knows its own; nothing is shared between threads here.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::thread;

use super::clock::Moment;
use crate::tuning::PROGRESS_PATIENCE;

/// A rank that may have started calls.
pub(crate) trait GoOn {
    /// Goes on with them as far as that takes no waiting.
    fn go_on(&self) -> Step;
}

/// What came of going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Whether any call is left.
    pub(crate) left: bool,
    /// Whether a round or a call was completed.
    pub(crate) advanced: bool,
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

/// The same before a sleep, for as long as rounds come one soon after the other and `is_idle`: a rank that waits for them in a call
/// answers at once, and a call may have thousands.
#[cold]
pub(crate) fn go_on_while(is_idle: impl Fn() -> bool) {
    if !go_on_with_all() {
        return;
    }
    let mut until = Moment::after(PROGRESS_PATIENCE);
    while any() && is_idle() {
        if go_on_with_all() {
            until = Moment::after(PROGRESS_PATIENCE);
        } else if until.has_passed() {
            return;
        } else {
            thread::yield_now();
        }
    }
}

/// Whether anything came of it.
#[cold]
fn go_on_with_all() -> bool {
    // Taken out, so that nothing is borrowed while others' code runs.
    let Ok(mut started) = STARTED.try_with(RefCell::take) else { return false };
    let mut advanced = false;
    started.retain(|rank| {
        let Some(rank) = rank.upgrade() else { return false };
        let step = rank.go_on();
        advanced |= step.advanced;
        step.left
    });
    ANY.set(!started.is_empty());
    let _ = STARTED.try_with(|left| left.replace(started));
    advanced
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    struct Counter {
        left: AtomicUsize,
        asked: AtomicUsize,
        /// How often something comes of it.
        comes: usize,
    }

    impl GoOn for Counter {
        fn go_on(&self) -> Step {
            let asked = self.asked.fetch_add(1, Relaxed);
            if asked >= self.comes {
                return Step { left: true, advanced: false };
            }
            Step { left: self.left.fetch_sub(1, Relaxed) > 1, advanced: true }
        }
    }

    fn counter(left: usize) -> Arc<Counter> {
        Arc::new(Counter { left: left.into(), asked: 0.into(), comes: usize::MAX })
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
    fn rounds_that_come_at_once_take_no_sleep_each() {
        let rank = counter(5_000);
        add(&rank);
        go_on_while(|| true);
        assert!(!any());
        assert_eq!(rank.asked.load(Relaxed), 5_000);
    }

    #[test]
    fn a_rank_sleeps_where_no_round_comes_or_what_it_waits_for_is_there() {
        let late = Arc::new(Counter { left: 3.into(), asked: 0.into(), comes: 0 });
        add(&late);
        go_on_while(|| true);
        assert_eq!(late.asked.load(Relaxed), 1);
        drop(late);
        let rank = counter(10);
        add(&rank);
        go_on_while(|| rank.asked.load(Relaxed) < 4);
        assert_eq!(rank.asked.load(Relaxed), 4);
        let ends = Arc::new(Counter { left: 10.into(), asked: 0.into(), comes: 2 });
        drop(rank);
        add(&ends);
        go_on_while(|| true);
        assert!(any() && ends.asked.load(Relaxed) > 2);
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
