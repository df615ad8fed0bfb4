//! Cobre's regions of shared memory.
//!
//! Cobre's trait demands phases of writing and reading, but does not enforce them: `as_slice` and `fence` take `&self`, so a
//! slice may be held across a fence, after which the leader writes again. The native regions enforce their epochs. The
//! adapter therefore **never writes published memory again**:
//!
//! ```text
//!   create ──▶ the leader writes in place ──fence──▶ all ranks read
//!                                                      │ as_mut_slice on the leader
//!                                                      ▼
//!                          the leader writes a copy ──fence──▶ all ranks read new memory; the old stays
//! ```

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use boxcar::Vec as AppendOnly;
use cobre_comm::{CommData, CommError, LocalBackend, LocalCommKind, SharedMemoryProvider, SharedRegion};
use intranode::bytemuck::{Pod, checked};
use intranode::cast::{slice, slice_mut};
use intranode::{Communicator, Operation, Region, Shared};

use crate::backend::{Nodes, ShmBackend};
use crate::error;

/// The rank of a node that writes its copy.
const LEADER: usize = 0;

/// Cobre's names of the two collective steps.
const CREATE: &str = "create_shared_region";
const FENCE: &str = "fence";

/// One copy of some values for all ranks, as Cobre's [`SharedRegion`]. On several nodes there is **one copy on each**: its leader,
/// the first rank of the node, writes it, and what it has to be there, it may get by a broadcast.
///
/// * [`as_mut_slice`](SharedRegion::as_mut_slice) is all values for the leader, rank 0 of the node, to write, and empty on the
///   other ranks. Its writes become visible by the next fence.
/// * [`fence`](SharedRegion::fence) publishes them. Collective over the ranks of the node.
/// * [`as_slice`](SharedRegion::as_slice) is what was published last, on every rank including the leader.
///
/// A borrowed slice never changes: values that are written after a fence are published in new memory. The old memory is
/// freed when the region is dropped, and on each rank by a call of `as_mut_slice`, whose `&mut self` proves that no slice is
/// borrowed there. So values that change often need more than one copy; for them use the native [`Region`], whose memory can
/// be reclaimed.
///
/// The first values are written in place. `bool` and `char` are checked by every `as_slice`, which reads them all.
///
/// # Panics
/// `as_slice`, before the first fence has returned `Ok`.
pub struct ShmRegion<T: CommData>(Box<dyn AnyRegion<T>>);

/// A region, without its type of carriers.
trait AnyRegion<T>: Send + Sync {
    fn as_slice(&self) -> &[T];
    fn as_mut_slice(&mut self) -> &mut [T];
    fn fence(&self) -> Result<(), CommError>;
}

/// A type that can be stored in shared memory as a carrier, for which any bytes are valid.
trait Shareable: CommData {
    type Carrier: Pod + Send + Sync;

    /// The values of the carriers.
    fn values(carriers: &[Self::Carrier]) -> &[Self];
    fn values_mut(carriers: &mut [Self::Carrier]) -> &mut [Self];
}

/// Returns the result of `$call` for the concrete type of `T`, if it can be shared.
macro_rules! if_shareable {
    ($of:ident, |$name:ident| $call:expr) => {
        if_shareable!(@each $of, |$name| $call; u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 bool char)
    };
    (@each $of:ident, |$name:ident| $call:expr; $($type:ty)*) => {$(
        {
            type $name = $type;
            if slice::<$of, $name>(&[]).is_some() {
                return $call;
            }
        }
    )*};
}

macro_rules! shareable {
    ($($number:ty)*) => {$(
        impl Shareable for $number {
            type Carrier = $number;

            fn values(carriers: &[$number]) -> &[$number] {
                carriers
            }

            fn values_mut(carriers: &mut [$number]) -> &mut [$number] {
                carriers
            }
        }
    )*};
    ($($type:ty as $carrier:ty),*) => {$(
        impl Shareable for $type {
            type Carrier = $carrier;

            fn values(carriers: &[$carrier]) -> &[$type] {
                checked::cast_slice(carriers)
            }

            fn values_mut(carriers: &mut [$carrier]) -> &mut [$type] {
                checked::cast_slice_mut(carriers)
            }
        }
    )*};
}

shareable!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);
shareable!(bool as u8, char as u32);

/// The published memory of a region, and what the next fence publishes.
struct Epochs<S: Shareable> {
    comm: Weak<Nodes>,
    leader: bool,
    /// The sequence number of the region, the same on all ranks.
    number: u64,
    len: usize,
    draft: Mutex<Draft<S::Carrier>>,
    /// Published memory that may still be borrowed.
    published: AppendOnly<Shared<S::Carrier>>,
}

/// What the next fence publishes.
enum Draft<C: Pod> {
    /// The region's first memory.
    Memory(Region<C>),
    /// The leader's copy.
    Copy(Vec<C>),
    Nothing,
}

impl<S: Shareable> Epochs<S> {
    fn latest(&self) -> Option<&Shared<S::Carrier>> {
        (0..self.published.count()).rev().find_map(|index| self.published.get(index))
    }

    /// Publishes what the leader has written, if anything.
    fn publish(&self, comm: &Communicator, draft: &mut Draft<S::Carrier>) -> Result<(), CommError> {
        let failed = |error| error::of(FENCE, error);
        // First what can fail by a mistake of the program: an error then leaves the draft to the next fence.
        let has = u64::from(!matches!(draft, Draft::Nothing));
        let mut fences = vec![[0; 2]; comm.size()];
        comm.allgather(&[[self.number, has]], &mut fences).map_err(failed)?;
        if let Some(rank) = fences.iter().position(|[number, _]| *number != fences[LEADER][0]) {
            let message = format!("rank {LEADER} fences one region and rank {rank} another");
            return Err(error::failed(FENCE, message));
        }
        if let Draft::Memory(_) = draft
            && let Draft::Memory(region) = mem::replace(draft, Draft::Nothing)
        {
            self.published.push(region.publish().map_err(failed)?);
            return Ok(());
        }
        if fences[LEADER][1] == 0 {
            return match self.published.count() {
                0 => Err(error::failed(FENCE, "an earlier fence has failed, and has lost the memory".into())),
                _ => Ok(()),
            };
        }
        let mut region = comm.region(self.len).map_err(failed)?;
        if let Draft::Copy(values) = &*draft {
            region.as_mut_slice().copy_from_slice(values);
        }
        self.published.push(region.publish().map_err(failed)?);
        *draft = Draft::Nothing;
        Ok(())
    }
}

impl<T: CommData, S: Shareable> AnyRegion<T> for Epochs<S> {
    fn as_slice(&self) -> &[T] {
        let latest = self.latest().expect("as_slice before a fence has published anything");
        slice(S::values(latest)).expect("`T` is the type of `S`")
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // No slice is borrowed on this rank, so only the last memory can still be read.
        if self.published.count() > 1 {
            let last = mem::take(&mut self.published).into_iter().last();
            self.published.extend(last);
        }
        let draft = self.draft.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Draft::Nothing = draft
            && self.leader
            && let Some((_, last)) = self.published.iter().last()
        {
            *draft = Draft::Copy(last.to_vec());
        }
        let carriers = match draft {
            Draft::Memory(region) => region.as_mut_slice(),
            Draft::Copy(values) => values,
            Draft::Nothing => &mut [],
        };
        slice_mut(S::values_mut(carriers)).expect("`T` is the type of `S`")
    }

    fn fence(&self) -> Result<(), CommError> {
        let Some(nodes) = self.comm.upgrade() else {
            return Err(error::failed(FENCE, "the backend that made the region has been dropped".into()));
        };
        let comm = nodes.local();
        let mut draft = match self.draft.try_lock() {
            Ok(draft) => draft,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let message = "two threads of this rank fence a region at the same time".into();
                let own = error::failed(FENCE, message);
                return Err(comm
                    .refuse_call(Operation::Publish)
                    .map_or_else(|e| error::of(FENCE, e), |()| own));
            }
        };
        self.publish(comm, &mut draft)
    }
}

impl<T: CommData> SharedRegion<T> for ShmRegion<T> {
    fn as_slice(&self) -> &[T] {
        self.0.as_slice()
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        self.0.as_mut_slice()
    }

    fn fence(&self) -> Result<(), CommError> {
        self.0.fence()
    }
}

impl ShmBackend {
    fn region_of<T: CommData, S: Shareable>(&self, count: usize) -> Result<ShmRegion<T>, CommError> {
        let region = self.native.region(count).map_err(|error| error::of(CREATE, error))?;
        Ok(ShmRegion(Box::new(Epochs::<S> {
            comm: Arc::downgrade(&self.native),
            leader: self.is_leader(),
            number: self.regions.fetch_add(1, Ordering::Relaxed),
            len: count,
            draft: Mutex::new(Draft::Memory(region)),
            published: AppendOnly::new(),
        })))
    }
}

impl SharedMemoryProvider for ShmBackend {
    type Region<T: CommData> = ShmRegion<T>;

    /// Creates a region of zeros: one on each node. Collective over all ranks.
    ///
    /// # Errors
    /// [`CommError::AllocationFailed`] on every rank if there is not enough memory; the backend can be used further.
    /// [`CommError::CollectiveFailed`] if values of this type cannot be shared: see [`ShmBackend`].
    fn create_shared_region<T: CommData>(&self, count: usize) -> Result<ShmRegion<T>, CommError> {
        if_shareable!(T, |S| self.region_of::<T, S>(count));
        Err(self.refuse_type::<T>(Operation::Region, CREATE))
    }

    /// Cobre's own backend of one rank, if this node has one rank too.
    ///
    /// # Errors
    /// With several ranks on the node, [`CommError::CollectiveFailed`] on each of them: the return type is a closed enum, without a
    /// variant for other crates. [`ShmBackend::split_local`] returns a backend of the ranks of this node.
    fn split_local(&self) -> Result<LocalCommKind, CommError> {
        if self.native.local().size() == 1 {
            return Ok(LocalCommKind::Local(LocalBackend));
        }
        let message = "Cobre's list of local communicators is closed, and has none for several processes without \
                       MPI; call ShmBackend::split_local of intranode_cobre instead";
        Err(error::failed("split_local", message.into()))
    }

    fn is_leader(&self) -> bool {
        self.native.local().rank() == LEADER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_can_be_read_after_the_backend_was_dropped() {
        let outcomes = intranode::threads(2, |comm| {
            let backend = ShmBackend::from_communicator(comm);
            let mut region = backend.create_shared_region::<u16>(3)?;
            region.as_mut_slice().fill(7);
            region.fence()?;
            let second = backend.create_shared_region::<u16>(3)?;
            drop(backend);
            assert_eq!(region.as_slice(), [7; 3]);
            for region in [region, second] {
                match region.fence() {
                    Err(CommError::CollectiveFailed { operation: FENCE, message, .. }) => {
                        assert!(message.contains("has been dropped"), "{message}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            Ok::<(), CommError>(())
        });
        for outcome in outcomes.expect("threads") {
            outcome.expect("the first fence");
        }
    }

    #[test]
    fn a_fence_that_failed_can_be_made_again() {
        let outcomes = intranode::threads(2, |comm| {
            let backend = ShmBackend::from_communicator(comm);
            let mut first = backend.create_shared_region::<u16>(3)?;
            let mut second = backend.create_shared_region::<u16>(3)?;
            first.as_mut_slice().fill(7);
            second.as_mut_slice().fill(8);
            // The ranks call different things, and fence different regions.
            if backend.is_leader() { first.fence() } else { cobre_comm::Communicator::barrier(&backend) }
                .expect_err("a barrier");
            if backend.is_leader() { first.fence() } else { second.fence() }.expect_err("another region");
            for (region, value) in [(&mut first, 7), (&mut second, 8)] {
                region.fence()?;
                assert_eq!(region.as_slice(), [value; 3]);
                region.as_mut_slice().fill(value + 10);
                region.fence()?;
                assert_eq!(region.as_slice(), [value + 10; 3]);
            }
            Ok::<(), CommError>(())
        });
        for outcome in outcomes.expect("threads") {
            outcome.expect("the later fences");
        }
    }

    #[test]
    fn two_threads_of_a_rank_do_not_fence_at_once() {
        let outcomes = intranode::threads(1, |comm| {
            let backend = ShmBackend::from_communicator(comm);
            let epochs = Epochs::<u8> {
                comm: Arc::downgrade(&backend.native),
                leader: true,
                number: 0,
                len: 0,
                draft: Mutex::new(Draft::Nothing),
                published: AppendOnly::new(),
            };
            let other = epochs.draft.lock();
            let error = AnyRegion::<u8>::fence(&epochs).expect_err("another thread fences it");
            assert!(error.to_string().contains("two threads"), "{error}");
            drop(other);
        });
        assert_eq!(outcomes.expect("a thread").len(), 1);
    }
}
