//! allreduce and reduce over buffers that other threads may write meanwhile.
//!
//! What is sent goes to staging, and is folded, where it lies: no copy of it is made.

use std::ops::Range;

use bytemuck::Pod;

use super::reduction::{check_len, check_op, reduction, slices_from};
use super::rooted::{check_buffer, check_root};
use crate::communicator::Communicator;
use crate::copy::policy::Stores;
use crate::copy::raw::{RawSource, RawTarget};
use crate::copy::{self, Sink, Source, Term};
use crate::element::{Number, ReduceOp, sealed::Folder};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::{Reduction, Shape};
use crate::protocol::block_transfer::{Address, Lend};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;

impl Communicator {
    /// An [`allreduce`](Communicator::allreduce) over buffers that other threads of this process may write while it runs; if one
    /// does, the result is unspecified, on every rank. `send: None`: what is in `recv` is this rank's contribution. The two must
    /// not overlap, or the result is unspecified. Other ranks may call `allreduce` or `allreduce_in_place`: it is the same operation. Collective.
    ///
    /// The rounds are those of `allreduce`.
    ///
    /// ```
    /// use intranode::{RawTarget, ReduceOp};
    ///
    /// let greatest = intranode::threads(3, |comm| {
    ///     let mut data = [comm.rank() as i32, 5];
    ///     comm.allreduce_raw(None, RawTarget::from(&mut data[..]), ReduceOp::Max)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for data in greatest {
    ///     assert_eq!(data?, [2, 5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn allreduce_raw<T: Number>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: RawTarget<'_, T>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.reduce_raw_to::<T>((Operation::Allreduce, Shape::All, 0), send, Some(recv), op)
    }

    /// A [`reduce`](Communicator::reduce) over such buffers. `recv` is `Some` on the root; there `send: None` means that what is in
    /// `recv` is its contribution. Other ranks may call `reduce` or `reduce_in_place`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget, ReduceOp};
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let (send, mut sum) = ([comm.rank() as f64, 1.0], [0.0; 2]);
    ///     let recv = (comm.rank() == 2).then(|| RawTarget::from(&mut sum[..]));
    ///     comm.reduce_raw(Some(RawSource::from(&send[..])), recv, ReduceOp::Sum, 2)?;
    ///     Ok::<_, intranode::Error>(sum)
    /// })?;
    /// for (rank, sum) in sums.into_iter().enumerate() {
    ///     assert_eq!(sum?, if rank == 2 { [3.0, 3.0] } else { [0.0; 2] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce`](Communicator::reduce); [`Error::RootBuffer`] also if another rank than the root has no `send`.
    pub fn reduce_raw<T: Number>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        self.reduce_raw_to::<T>((Operation::Reduce, Shape::Root(root), root), send, recv, op)
    }

    fn reduce_raw_to<T: Number>(
        &self,
        (operation, shape, root): (Operation, Shape, usize),
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let len = send.map(|send| send.len()).or(recv.as_ref().map(RawTarget::len)).unwrap_or(0);
        let call = Call { extra: root as u64, ..reduction::<T>(operation, len, op) };
        let check = || {
            if let Shape::Root(root) = shape {
                check_root(self, operation, root)?;
                check_buffer(self, operation, root, recv.is_some())?;
                check_buffer(self, operation, root, recv.is_some() || send.is_none())?;
            }
            check_len(operation, len, recv.as_ref().map_or(len, RawTarget::len))?;
            check_op::<T>(operation, op)
        };
        if let Err(error) = check() {
            return Err(self.rank_state.refuse(&call, error));
        }
        let slices_from = slices_from(shape, self.size());
        let bytes = len * size_of::<T>();
        self.rank_state.chosen(bytes, || {
            let path = match bytes {
                ..=INLINE => Path::Inline,
                _ if bytes >= slices_from => Path::Slices,
                _ => Path::Staging,
            };
            Choice { operation, path, receive: Stores::Cached }
        });
        // Nothing of this rank's is read in place, but it reads what others lend.
        let lending = Lending::new(&self.rank_state, None);
        let mut data = RawBuffers { send, recv, scratch: Vec::new(), len, op, lending };
        self.rank_state.collective(operation, |member| member.reduction(&call, shape, slices_from, &mut data))
    }
}

/// The caller's buffers.
struct RawBuffers<'a, T> {
    send: Option<RawSource<'a, T>>,
    /// `None`: this rank gets no result, but folds a slice for others.
    recv: Option<RawTarget<'a, T>>,
    /// Where it does that.
    scratch: Vec<T>,
    len: usize,
    op: ReduceOp,
    lending: Lending<'a>,
}

/// A fold over them.
struct RawFold<'a, T> {
    target: RawTarget<'a, T>,
    own: Option<RawSource<'a, T>>,
    begin: bool,
    terms: &'a [Term<'a>],
    staging: Option<Sink<'a>>,
}

impl<'a, T: Pod> Folder<T> for RawFold<'a, T> {
    type Of<U: Pod> = RawFold<'a, U>;

    #[inline]
    fn each(self, combine: impl Fn(T, T) -> T) {
        let RawFold { target, own, begin, terms, staging } = self;
        copy::fold_raw(target, own, begin, terms, staging, combine);
    }

    #[inline]
    fn cast<U: Pod>(self) -> RawFold<'a, U> {
        let RawFold { target, own, begin, terms, staging } = self;
        RawFold { target: target.cast(), own: own.map(RawSource::cast), begin, terms, staging }
    }
}

impl<T: Number> Reduction for RawBuffers<'_, T> {
    fn elements(&self) -> usize {
        self.len
    }

    fn element_size(&self) -> usize {
        size_of::<T>()
    }

    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        if let Some(source) = self.send.or(self.recv.as_ref().map(RawTarget::source)) {
            staging.publish_raw(source.part(chunk).bytes());
        }
    }

    fn keeps_contribution(&self) -> bool {
        self.send.is_some()
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let RawBuffers { send, recv, scratch, op, .. } = self;
        let own = send.map(|send| send.part(chunk.clone()));
        let target = match recv {
            Some(recv) => recv.part(chunk),
            None => {
                if scratch.len() < chunk.len() {
                    scratch.resize(chunk.len(), T::zeroed());
                }
                RawTarget::from(&mut scratch[..chunk.len()])
            }
        };
        T::fold(*op, RawFold { target, own, begin, terms, staging });
    }

    #[cold]
    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        let width = size_of::<T>();
        let found = self.lending.all_at(places, chunk.start * width, chunk.len() * width);
        let terms = found.terms(terms, places);
        self.fold(chunk, begin, &terms[..places.len()], staging);
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        if let Some(recv) = &mut self.recv {
            recv.part(chunk).fetch(&staging, Stores::Cached);
        }
    }
}
