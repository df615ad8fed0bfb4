//! allreduce_with, reduce_with and scan_with: reductions by an operation of the program's own.

use std::cell::RefCell;

use bytemuck::Pod;

use super::allgatherv::gather;
use super::block_table::BlockTable;
use super::counts;
use super::gather::gather_to;
use super::reduction::{FoldJob, InlineJob, Operator, ReduceBuffers, check_len};
use super::rooted::{check_buffer, check_root};
use crate::communicator::{Communicator, call};
use crate::copy::lines;
use crate::copy::policy::StorePolicy;
use crate::copy::{self, Term};
use crate::error::{Error, OWN_REDUCTION, Operation, root_and_digest};
use crate::protocol::allreduce::Shape;
use crate::protocol::call::INLINE;
use crate::protocol::{Call, Platform};
use crate::tuning::{FOLD_STRING_BATCH_BYTES, OWN_BY_VALUE_BYTES};

impl Communicator {
    /// An [`allreduce`](Communicator::allreduce) by an operation of the program's own, on any plain old data: `combine(acc, x)`
    /// combines the next rank's `x` into `acc`, from rank 0's value on. It need not commute, nor be associative: the order is
    /// always that of the ranks. All ranks get the same bits, and, but for those of a NaN, which Rust leaves open, in every run. Both
    /// buffers have the same length on all ranks. Collective.
    ///
    /// `name` stands for the operation: if the ranks pass different names, that is [`Error::Mismatch`]. The operations
    /// themselves cannot be compared, so they must do the same on all ranks, or the ranks get different results. With
    /// `INTRANODE_CHECK=1` in the environment of all ranks, each also folds the first elements of all, up to 4 KiB a rank, and
    /// another result on some ranks is [`Error::OperationsDiffer`]. If `combine` panics, the communicator has ended on all ranks.
    /// It must not use this communicator: that is [`Error::ConcurrentUse`].
    ///
    /// The rounds are those of [`allreduce`](Communicator::allreduce). Elements that are longer than 1 MiB, or two thirds of a
    /// [chunk](crate::Config::chunk_bytes), or, with at least four ranks, than 2 MiB divided by their number, are gathered from all
    /// ranks and folded then, which takes memory for them.
    ///
    /// ```
    /// // Intervals, and whether they are one after the other: neither commutative nor a number.
    /// let spans = intranode::threads(3, |comm| {
    ///     let mut span = [[0u32; 2]];
    ///     let own = [[comm.rank() as u32 * 10, comm.rank() as u32 * 10 + 7]];
    ///     comm.allreduce_with(&own, &mut span, "span", |span, next| *span = [span[0], next[1]])?;
    ///     Ok::<_, intranode::Error>(span[0])
    /// })?;
    /// for span in spans {
    ///     assert_eq!(span?, [0, 27]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ; [`Error::AllocationFailed`] for long elements;
    /// [`Error::OperationsDiffer`] with `INTRANODE_CHECK=1`; otherwise as [`barrier`](Communicator::barrier).
    pub fn allreduce_with<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        name: &str,
        combine: impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        self.reduce_own(Operation::Allreduce, Shape::All, send, Some(recv), (name, combine))
    }

    /// A [`reduce`](Communicator::reduce) by an operation of the program's own, as in
    /// [`allreduce_with`](Communicator::allreduce_with). `recv` is `Some` on the root and `None` elsewhere. Collective.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let mut digits = [0u64];
    ///     let recv = if comm.rank() == 0 { Some(&mut digits[..]) } else { None };
    ///     comm.reduce_with(&[comm.rank() as u64 + 1], recv, "digits", |acc, x| *acc = 10 * *acc + x, 0)?;
    ///     Ok::<_, intranode::Error>(digits[0])
    /// })?;
    /// for (digits, expected) in results.into_iter().zip([123, 0, 0]) {
    ///     assert_eq!(digits?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`] if `recv` is not `Some` exactly on the root; otherwise as
    /// [`allreduce_with`](Communicator::allreduce_with).
    pub fn reduce_with<T: Pod>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        name: &str,
        combine: impl Fn(&mut T, &T),
        root: usize,
    ) -> Result<(), Error> {
        self.reduce_own(Operation::Reduce, Shape::Root(root), send, recv, (name, combine))
    }

    /// A [`scan`](Communicator::scan) by an operation of the program's own, as in
    /// [`allreduce_with`](Communicator::allreduce_with). Collective.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let mut digits = [0u64];
    ///     comm.scan_with(&[comm.rank() as u64 + 1], &mut digits, "digits", |acc, x| *acc = 10 * *acc + x)?;
    ///     Ok::<_, intranode::Error>(digits[0])
    /// })?;
    /// for (digits, expected) in results.into_iter().zip([1, 12, 123]) {
    ///     assert_eq!(digits?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce_with`](Communicator::allreduce_with).
    pub fn scan_with<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        name: &str,
        combine: impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        self.reduce_own(Operation::Scan, Shape::Inclusive, send, Some(recv), (name, combine))
    }

    fn reduce_own<T: Pod>(
        &self,
        operation: Operation,
        shape: Shape,
        send: &[T],
        recv: Option<&mut [T]>,
        (name, combine): (&str, impl Fn(&mut T, &T)),
    ) -> Result<(), Error> {
        let root = if let Shape::Root(root) = shape { Some(root) } else { None };
        let digest = counts::digest_name(self.rank_state.mapped.key(), name);
        let extra = root_and_digest(root.unwrap_or(0), digest);
        let length = send.len() as u64;
        let call = Call { reduction: OWN_REDUCTION, length, extra, ..call::<T>(operation) };
        let check = || {
            if let Some(root) = root {
                check_root(self, operation, root)?;
                check_buffer(self, operation, root, recv.is_some())?;
            }
            check_len(operation, send.len(), recv.as_ref().map_or(send.len(), |recv| recv.len()))
        };
        if let Err(error) = check() {
            return Err(self.rank_state.refuse(&call, error));
        }
        if self.rank_state.settings.check {
            self.check_own(operation, &call, send, &combine)?;
        }
        let is_long = size_of::<T>() > self.rank_state.staging.folded;
        if is_long && size_of_val(send) > INLINE {
            return self.gather_and_fold((operation, &call), shape, send, recv, combine);
        }
        let op = Own { combine, scratch: RefCell::default() };
        let data = match recv {
            Some(recv) => ReduceBuffers::new(send, recv, op),
            None => ReduceBuffers::without_result(send, op),
        };
        self.run_reduction(operation, &call, shape, data)
    }

    /// For elements of which staging has no room for one of a fold.
    fn gather_and_fold<T: Pod>(
        &self,
        (operation, call): (Operation, &Call),
        shape: Shape,
        send: &[T],
        recv: Option<&mut [T]>,
        combine: impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        let len = if recv.is_some() { send.len().saturating_mul(self.size()) } else { 0 };
        let mut open = self.rank_state.begin(operation)?;
        let Ok(mut all) = bytemuck::allocation::try_zeroed_vec::<T>(len) else {
            let reason = "elements that are longer than a chunk are gathered from all ranks".into();
            let requested_bytes = len.saturating_mul(size_of::<T>());
            return Err(open.refuse(call, Error::AllocationFailed { operation, requested_bytes, reason }));
        };
        let table = BlockTable::Equal { bytes: size_of_val(send) };
        let (bytes, target) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(&mut all));
        match shape {
            Shape::Root(root) => {
                gather_to(
                    &mut open,
                    call,
                    (Some(bytes), None),
                    recv.is_some().then_some(target),
                    (table, root),
                )?;
            }
            _ => gather(&mut open, call, bytes, target, table)?,
        }
        let Some(recv) = recv else { return Ok(()) };
        let terms = if shape == Shape::Inclusive { self.rank() + 1 } else { self.size() };
        // A panic in there ends the communicator.
        open.run(|_| {
            for (rank, block) in all.chunks(send.len()).take(terms).enumerate() {
                match rank {
                    0 => StorePolicy::of_call(size_of_val(block))
                        .copy(bytemuck::cast_slice(block), bytemuck::cast_slice_mut(recv)),
                    _ => recv.iter_mut().zip(block).for_each(|(acc, x)| combine(acc, x)),
                }
            }
            Ok(())
        })
    }
}

/// An operation of the program's own.
struct Own<T, F> {
    combine: F,
    /// What others have contributed is copied here, piece by piece, unless elements are short: the program never sees shared memory.
    scratch: RefCell<Vec<T>>,
}

impl<T: Pod, F: Fn(&mut T, &T)> Operator<T> for Own<T, F> {
    fn fold(&self, job: FoldJob<'_, T>) {
        let FoldJob { target, own, begin, terms, staging } = job;
        if Self::IS_SHORT {
            return copy::fold_with(target, own, begin, terms, staging, |acc, x| self.combined(acc, x));
        }
        let width = size_of::<T>();
        let piece = (FOLD_STRING_BATCH_BYTES / width.max(1)).max(1);
        let mut scratch = self.scratch.borrow_mut();
        for start in (0..target.len()).step_by(piece) {
            let range = start..target.len().min(start + piece);
            let target = &mut target[range.clone()];
            for (index, term) in terms.iter().enumerate() {
                let first = begin && index == 0;
                match term {
                    Term::Own => {
                        let own = &own.expect("an own operation is not in place")[range.clone()];
                        self.combine(first, target, own);
                    }
                    Term::Staged(staging) => {
                        let staging = staging.after(start * width);
                        if first {
                            staging.fetch(bytemuck::cast_slice_mut(target));
                            continue;
                        }
                        if scratch.len() < target.len() {
                            *scratch = bytemuck::allocation::zeroed_vec(target.len());
                        }
                        let values = &mut scratch[..target.len()];
                        staging.fetch(bytemuck::cast_slice_mut(values));
                        self.combine(false, target, values);
                    }
                }
            }
        }
        if let Some(mut staging) = staging {
            staging.publish(bytemuck::cast_slice(target));
        }
    }

    fn fold_inline(&self, job: InlineJob<'_, T, impl Platform>) {
        let InlineJob { target, terms } = job;
        for rank in 1..terms.ranks() {
            terms.look(rank, |term| {
                if Self::IS_SHORT {
                    return copy::fold_short_with(target, term, |acc, x| self.combined(acc, x));
                }
                let terms = &[Term::Staged(term)];
                self.fold(FoldJob { target, own: None, begin: false, terms, staging: None });
            });
        }
    }
}

impl<T: Pod, F: Fn(&mut T, &T)> Own<T, F> {
    /// Elements are given to it as they are read, and not copied together before: what is made of that can be vectors. With 3 and 5
    /// bytes it was measured at 1.1 to 3 times the time, and elsewhere than on x86-64 they would be read byte by byte.
    const IS_SHORT: bool = cfg!(target_arch = "x86_64")
        && matches!(size_of::<T>(), 1..=OWN_BY_VALUE_BYTES)
        && (8usize.is_multiple_of(size_of::<T>()) || size_of::<T>().is_multiple_of(8));

    #[inline(always)]
    fn combined(&self, mut acc: T, x: T) -> T {
        (self.combine)(&mut acc, &x);
        acc
    }

    /// Not inlined, so that ranks combine their own values by the same instructions as those of others: a NaN has the same bits then.
    #[inline(never)]
    fn combine(&self, first: bool, target: &mut [T], values: &[T]) {
        if first {
            lines::copy_slice(bytemuck::cast_slice(values), bytemuck::cast_slice_mut(target));
        } else {
            target.iter_mut().zip(values).for_each(|(acc, x)| (self.combine)(acc, x));
        }
    }
}
