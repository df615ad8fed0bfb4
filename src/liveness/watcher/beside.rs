//! Staying on the processor of the rank.
//!
//! Of a dying process the thread that ends last takes down the memory, which can last for seconds, on the processor
//! where it happens to be. That is as a rule its watcher, because it has to be woken first. If that were just any
//! processor, it could be that of a survivor, which has used its share and is let in again only after milliseconds,
//! while the victim's own processor stands idle. So where there are no more processors than ranks, a watcher keeps to
//! that of its rank.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::sys::processors::{LIMIT, Mask, affinity};

/// Keeps the thread that it belongs to beside another.
pub(super) struct Beside {
    /// What the system says of the other thread; `None` if this thread goes wherever it may.
    other: Option<File>,
    /// Where this thread might run at first.
    allowed: Mask,
    now: Option<usize>,
}

impl Beside {
    /// Beside the calling thread, if it and its peers may need all processors. To be handed to the thread that stays.
    pub(super) fn this_thread(ranks: usize) -> Self {
        let scarce = std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= ranks);
        let other = scarce.then(|| File::open("/proc/thread-self/stat").ok()).flatten();
        Beside { other, allowed: [0; LIMIT / 64], now: None }
    }

    /// Moves the calling thread to where the other one is. If that can not be told, or the other thread lets nobody
    /// else run there, this thread goes where it might at first.
    pub(super) fn stay(&mut self) {
        let Some(other) = &self.other else { return };
        let there = place(other);
        if there.is_some() && there == self.now {
            return;
        }
        if self.now.is_none() {
            self.allowed = affinity();
        }
        if there.is_some_and(|processor| set_affinity(&only(processor))) {
            self.now = there;
        } else {
            self.anywhere();
        }
    }

    fn anywhere(&mut self) {
        if self.now.take().is_some() {
            set_affinity(&self.allowed);
        }
        self.other = None;
    }
}

/// The processor where a thread is or was last; `None` if it has ended, has a real-time policy, or there is no telling.
fn place(stat: &File) -> Option<usize> {
    let mut text = [0; 1024];
    let read = stat.read_at(&mut text, 0).ok()?;
    let text = core::str::from_utf8(&text[..read]).ok()?;
    // The name, which is the second field and in parentheses, may hold anything. The third is the first that is left.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(39 - 3);
    let processor = fields.next()?.parse().ok().filter(|processor| *processor < LIMIT)?;
    let real_time_priority = fields.next()?;
    (real_time_priority == "0").then_some(processor)
}

fn only(processor: usize) -> Mask {
    let mut mask = [0; LIMIT / 64];
    mask[processor / 64] = 1 << (processor % 64);
    mask
}

fn set_affinity(mask: &Mask) -> bool {
    // SAFETY: I7: the call reads the length that it is given.
    unsafe { libc::sched_setaffinity(0, size_of_val(mask), mask.as_ptr().cast()) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn count(mask: &Mask) -> u32 {
        mask.iter().map(|word| word.count_ones()).sum()
    }

    fn first(mask: &Mask) -> Mask {
        let index = mask.iter().position(|word| *word != 0).unwrap();
        only(index * 64 + mask[index].trailing_zeros() as usize)
    }

    #[test]
    fn it_follows_the_other_thread_until_that_ends() {
        let (to_test, beside) = channel();
        let (to_other, end) = channel::<()>();
        let other = thread::spawn(move || {
            assert!(set_affinity(&first(&affinity())));
            to_test.send((Beside::this_thread(LIMIT), affinity())).unwrap();
            end.recv().unwrap_err();
        });
        let (mut beside, there) = beside.recv().unwrap();
        let before = affinity();
        beside.stay();
        assert_eq!(affinity(), there);
        drop(to_other);
        other.join().unwrap();
        // The thread's entry may go a little later than the thread.
        while beside.other.is_some() {
            beside.stay();
        }
        assert_eq!(affinity(), before);
    }

    #[test]
    fn with_processors_to_spare_it_goes_anywhere() {
        let before = affinity();
        let mut beside = Beside::this_thread(0);
        beside.stay();
        assert_eq!(affinity(), before);
        assert!(count(&before) > 0);
    }
}
