//! With `INTRANODE_CHECK=1`: whether an operation of the program's own does the same on all ranks.
//!
//! Ranks compare operations by their names. Two closures of one name can still differ: in a constant, in what they have
//! captured, between two builds of the program. So all ranks fold the first elements of all ranks, each with its own closure,
//! and compare digests of what comes out.

use bytemuck::Pod;

use super::allgatherv::{gather, gather_words};
use super::block_table::BlockTable;
use super::counts;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::protocol::Call;

/// The first elements that are folded have up to this many bytes a rank, or are one element.
const CHECKED_BYTES: usize = 4096;

impl Communicator {
    /// Compares what an operation does on all ranks.
    ///
    /// # Errors
    /// [`Error::OperationsDiffer`]; [`Error::AllocationFailed`] for long elements; those of an allgather.
    #[cold]
    pub(super) fn check_own<T: Pod>(
        &self,
        operation: Operation,
        call: &Call,
        send: &[T],
        combine: &impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        let len = send.len().min((CHECKED_BYTES / size_of::<T>().max(1)).max(1));
        let mut open = self.rank_state.begin(operation)?;
        // What a rank that does not check calls is transfer 0.
        open.skip_transfer();
        let Ok(mut all) = bytemuck::allocation::try_zeroed_vec::<T>(len.saturating_mul(self.size())) else {
            let reason = "the first elements of all ranks are compared, by INTRANODE_CHECK".into();
            let requested_bytes = len.saturating_mul(size_of::<T>()).saturating_mul(self.size());
            return Err(open.refuse(call, Error::AllocationFailed { operation, requested_bytes, reason }));
        };
        let own: &[u8] = bytemuck::cast_slice(&send[..len]);
        let table = BlockTable::Equal { bytes: own.len() };
        gather(&mut open, call, own, bytemuck::cast_slice_mut(&mut all), table)?;
        // As part of the call: where the program's code panics, the communicator has ended.
        let digest = open.run(|_| {
            let (result, others) = all.split_at_mut(len);
            for block in others.chunks(len.max(1)) {
                result.iter_mut().zip(block).for_each(|(acc, x)| combine(acc, x));
            }
            Ok(counts::digest_bytes(self.rank_state.mapped.key(), bytemuck::cast_slice(result)))
        })?;
        let digests = gather_words(&mut open, call, [digest])?;
        let ranks: Box<[usize]> = (0..self.size()).filter(|rank| digests[*rank] != digests[0]).collect();
        if ranks.is_empty() { Ok(()) } else { Err(Error::OperationsDiffer { operation, ranks }) }
    }
}
