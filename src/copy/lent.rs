//! Slices that are lent for the time of a call, to the holders of a share of the loan.
//!
//! A guard that ends a loan in its `drop` could be forgotten, and the loan would outlive the borrow. So the loan is a call that
//! returns when it has ended, as `std::thread::scope` is.

use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A loan of slices. It can be read until it ends.
pub(crate) struct Lent(Mutex<Vec<Slice>>);

/// A slice, without its lifetime.
struct Slice(*const [u8]);

// SAFETY: I8: it is read only, as the `&[u8]` that it was made of could be by any thread.
unsafe impl Send for Slice {}

/// Ends a loan, also while a panic unwinds.
struct End<'a>(&'a Lent);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.slices().clear();
    }
}

impl Lent {
    /// Lends slices as long as `run` runs. It returns when nobody reads them any more.
    pub(crate) fn during<R>(slices: &[IoSlice<'_>], run: impl FnOnce(Arc<Lent>) -> R) -> R {
        let slices = slices.iter().map(|slice| Slice(&raw const **slice)).collect();
        let lent = Arc::new(Lent(Mutex::new(slices)));
        // On this function's stack, so that nobody can forget it.
        let _end = End(&lent);
        run(Arc::clone(&lent))
    }

    /// What `read` makes of the slices. They are lent until it returns. `None`: the loan has ended.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> R) -> Option<R> {
        let slices = self.slices();
        if slices.is_empty() {
            return None;
        }
        // SAFETY: I8: `during` borrows what it lends, and does not return before it has this lock, and has cleared the list.
        let borrowed = |slice: &Slice| unsafe { &*slice.0 };
        Some(read(&mut slices.iter().map(borrowed)))
    }

    fn slices(&self) -> MutexGuard<'_, Vec<Slice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    fn bytes(lent: &Lent) -> Option<Vec<u8>> {
        lent.read(|slices| slices.flatten().copied().collect())
    }

    #[test]
    fn a_loan_ends_with_its_call() {
        let own = [vec![1, 2], vec![], vec![3]];
        let slices: Vec<_> = own.iter().map(|own| IoSlice::new(own)).collect();
        let kept = Lent::during(&slices, |lent| {
            assert_eq!(bytes(&lent), Some(vec![1, 2, 3]));
            lent
        });
        assert_eq!(bytes(&kept), None);
    }

    #[test]
    fn a_loan_ends_with_a_panic() {
        let (own, mut kept) = (vec![1, 2], None);
        let run = AssertUnwindSafe(|| {
            Lent::during(&[IoSlice::new(&own)], |lent| {
                kept = Some(lent);
                panic!("in the middle of it");
            })
        });
        assert!(catch_unwind(run).is_err());
        assert_eq!(bytes(&kept.unwrap()), None);
    }

    #[test]
    fn a_loan_lasts_as_long_as_somebody_reads() {
        let mut readers = Vec::new();
        for _ in 0..100 {
            let own = vec![7; 1000];
            readers = Lent::during(&[IoSlice::new(&own)], |lent| {
                let read = move || {
                    while let Some(read) = bytes(&lent) {
                        assert_eq!(read, [7; 1000])
                    }
                };
                readers.push(thread::spawn(read));
                readers
            });
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
