//! One step of a fold in rank order, over slices.

use bytemuck::Pod;

use crate::element::sealed::Folder;
use crate::element::{ReduceOp, Reducible};

/// `target[i] = op(target[i], term[i])`, by the combination that a [`Communicator`](crate::Communicator) folds with.
pub(super) fn fold<T: Reducible>(op: ReduceOp, target: &mut [T::Repr], term: &[T::Repr]) {
    assert_eq!(target.len(), term.len(), "the ranks agreed on the length");
    T::fold(op, Slices { target, term });
}

struct Slices<'a, R> {
    target: &'a mut [R],
    term: &'a [R],
}

impl<R: Pod> Folder<R> for Slices<'_, R> {
    #[inline]
    fn each(self, combine: impl Fn(R, R) -> R) {
        self.target.iter_mut().zip(self.term).for_each(|(target, term)| *target = combine(*target, *term));
    }
}
