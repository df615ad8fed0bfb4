//! Cobre's regions of shared memory.
//!
//! Cobre's trait tells readers and the writer to keep to phases, and enforces none: `as_slice` and `fence` take `&self`,
//! so a slice may be held across a fence, after which the leader writes again. The native regions under it are written
//! and read in turns. What makes the one out of the other is that **nothing that was published is written again**:
//!
//! ```text
//!   create ──▶ the leader writes in place ──fence──▶ everybody reads
//!                                                      │ as_mut_slice on the leader
//!                                                      ▼
//!                          the leader writes a copy ──fence──▶ everybody reads new memory; the old stays
//! ```

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use boxcar::Vec as AppendOnly;
use cobre_comm::{CommData, CommError, LocalBackend, LocalCommKind, SharedMemoryProvider, SharedRegion};
use intranode::bytemuck::{Pod, checked};
use intranode::cast::{slice, slice_mut};
use intranode::{Communicator, Operation, Region, Shared};

use crate::backend::ShmBackend;
use crate::error;

/// The rank that writes.
const LEADER: usize = 0;

/// Cobre's names of the two collective steps.
const CREATE: &str = "create_shared_region";
const FENCE: &str = "fence";

/// One copy of some values for all ranks, as Cobre's [`SharedRegion`].
///
/// * [`as_mut_slice`](SharedRegion::as_mut_slice) is what the leader, rank 0, writes, all values of it; on the other
///   ranks it is empty. Nobody sees it before the next fence.
/// * [`fence`](SharedRegion::fence) publishes it. It is collective.
/// * [`as_slice`](SharedRegion::as_slice) is what was published last, on every rank and on the leader too.
///
/// A slice stays as it is for as long as it is borrowed, whatever the leader does meanwhile: values that are written
/// after a fence are published in new memory. The old is given back when the region is dropped, and on each rank by a
/// call of `as_mut_slice`, which shows that no slice is borrowed there. So values that are written again and again cost
/// more than one copy; for them there is the native [`Region`], whose memory is taken back for writing.
///
/// The first values are written in place. `bool` and `char` are checked by every `as_slice`, which reads them all.
///
/// # Panics
/// `as_slice`, before the first fence has returned `Ok`.
pub struct ShmRegion<T: CommData>(Box<dyn Held<T>>);

/// A region of whichever type it is.
trait Held<T>: Send + Sync {
    fn as_slice(&self) -> &[T];
    fn as_mut_slice(&mut self) -> &mut [T];
    fn fence(&self) -> Result<(), CommError>;
}

/// A type that can lie in shared memory, as another of which any bytes are a value.
trait Shareable: CommData {
    type Carrier: Pod + Send + Sync;

    /// The values that the carriers are.
    fn values(carriers: &[Self::Carrier]) -> &[Self];
    fn values_mut(carriers: &mut [Self::Carrier]) -> &mut [Self];
}

/// Goes on with `$call` for the type that `T` is, if it can be shared.
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

/// What a region was and is.
struct Epochs<S: Shareable> {
    comm: Weak<Communicator>,
    leader: bool,
    /// Which of the ranks' regions this is: the same on all of them.
    number: u64,
    len: usize,
    draft: Mutex<Draft<S::Carrier>>,
    /// All that was published and may still be borrowed.
    published: AppendOnly<Shared<S::Carrier>>,
}

/// What the next fence publishes.
enum Draft<C: Pod> {
    /// Memory that nobody has seen yet.
    Memory(Region<C>),
    /// What the leader writes after a fence.
    Copy(Vec<C>),
    Nothing,
}

impl<S: Shareable> Epochs<S> {
    fn latest(&self) -> Option<&Shared<S::Carrier>> {
        (0..self.published.count()).rev().find_map(|index| self.published.get(index))
    }

    /// Publishes what the leader has written, if it has written anything.
    fn publish(&self, comm: &Communicator, draft: &mut Draft<S::Carrier>) -> Result<(), CommError> {
        let failed = |error| error::of(FENCE, error);
        if let Draft::Memory(_) = draft
            && let Draft::Memory(region) = mem::replace(draft, Draft::Nothing)
        {
            self.published.push(region.publish().map_err(failed)?);
            return Ok(());
        }
        let copy = match &*draft {
            Draft::Copy(values) => Some(values),
            _ => None,
        };
        let mut said = vec![[0; 2]; comm.size()];
        comm.allgather(&[[self.number, u64::from(copy.is_some())]], &mut said).map_err(failed)?;
        if let Some(rank) = said.iter().position(|[number, _]| *number != said[LEADER][0]) {
            let message = format!("rank {LEADER} fences one region and rank {rank} another");
            return Err(error::failed(FENCE, message));
        }
        if said[LEADER][1] == 0 {
            return Ok(());
        }
        let mut region = comm.region(self.len).map_err(failed)?;
        if let Some(values) = copy {
            region.as_mut_slice().copy_from_slice(values);
        }
        self.published.push(region.publish().map_err(failed)?);
        *draft = Draft::Nothing;
        Ok(())
    }
}

impl<T: CommData, S: Shareable> Held<T> for Epochs<S> {
    fn as_slice(&self) -> &[T] {
        let latest = self.latest().expect("as_slice before a fence has published anything");
        slice(S::values(latest)).expect("the type was looked at when the region was made")
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // No slice is borrowed on this rank now, so the last values are the only ones that can still be read.
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
        slice_mut(S::values_mut(carriers)).expect("the type was looked at when the region was made")
    }

    fn fence(&self) -> Result<(), CommError> {
        let Some(comm) = self.comm.upgrade() else {
            return Err(error::failed(FENCE, "the backend that made the region has been dropped".into()));
        };
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
        self.publish(&comm, &mut draft)
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

    /// Makes a region of zeros. Collective.
    ///
    /// # Errors
    /// [`CommError::AllocationFailed`] on every rank if there is not enough memory; the backend can be used further.
    /// [`CommError::CollectiveFailed`] if values of this type can not be shared: see [`ShmBackend`].
    fn create_shared_region<T: CommData>(&self, count: usize) -> Result<ShmRegion<T>, CommError> {
        if_shareable!(T, |S| self.region_of::<T, S>(count));
        Err(self.refuse_type::<T>(Operation::Region, CREATE))
    }

    /// Cobre's own backend of one rank, if this one has no others.
    ///
    /// # Errors
    /// With several ranks, [`CommError::CollectiveFailed`] on each of them: what this returns is a closed list, with no
    /// place for a communicator from elsewhere. [`ShmBackend::split_local`] gives another backend of the same ranks.
    fn split_local(&self) -> Result<LocalCommKind, CommError> {
        if self.native.size() == 1 {
            return Ok(LocalCommKind::Local(LocalBackend));
        }
        let message = "Cobre's list of local communicators is closed, and has none for several processes without \
                       MPI; call ShmBackend::split_local of intranode_cobre instead";
        Err(error::failed("split_local", message.into()))
    }

    fn is_leader(&self) -> bool {
        self.native.rank() == LEADER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_can_be_read_after_the_backend_is_gone() {
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
            let error = Held::<u8>::fence(&epochs).expect_err("another thread is there");
            assert!(error.to_string().contains("two threads"), "{error}");
            drop(other);
        });
        assert_eq!(outcomes.expect("a thread").len(), 1);
    }
}
