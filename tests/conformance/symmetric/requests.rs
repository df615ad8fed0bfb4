//! Requests that differ, or that cannot be met.

use anyhow::ensure;
use intranode::bytemuck::Pod;
use intranode::{Communicator, Error, Operation, Placement, SymmetricOptions};

use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};
use crate::symmetric::heap::{address, all_zero};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(case_04_alignments_that_are_not_possible),
        row!(case_08_lengths_differ),
        row!(case_09_types_differ),
        row!(case_10_alignments_and_options_differ),
        row!(case_11_one_allocates_another_is_in_a_barrier),
        row!(case_12_half_of_all_numbers),
    ]
}

fn case_04_alignments_that_are_not_possible(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    for alignment in [0, 3, 48, SymmetricOptions::MAX_ALIGNMENT * 2, usize::MAX] {
        let options = SymmetricOptions::new().alignment(if last { alignment } else { 64 });
        let result = comm.symmetric_with::<u8>(10, &options).map(drop);
        if last {
            ensure_matches!(result, Err(Error::InvalidAlignment { alignment: found, .. }) if *found == alignment);
        } else {
            ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == comm.size() - 1);
        }
        ensure!(!result.unwrap_err().is_fatal());
    }
    still_works(&comm)
}

/// All ranks have got a mismatch whose text names these calls, and can go on.
fn mismatch(comm: &Communicator, result: Result<(), Error>, calls: &[&str]) -> Outcome {
    ensure_matches!(result, Err(Error::Mismatch { .. }));
    let error = result.unwrap_err();
    let text = error.to_string();
    ensure!(calls.iter().all(|call| text.contains(call)), "{text}");
    ensure!(!error.is_fatal());
    all_zero(comm, comm.symmetric(1000)?, 1000)?.free()?;
    still_works(comm)
}

fn case_08_lengths_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = comm.symmetric::<f64>(if last { 11 } else { 10 }).map(drop);
    mismatch(&comm, result, &["rank 0 called symmetric(10 × f64, aligned to 8)", "symmetric(11 × f64"])
}

fn case_09_types_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = if last { comm.symmetric::<f32>(10).map(drop) } else { comm.symmetric::<u32>(10).map(drop) };
    mismatch(&comm, result, &["symmetric(10 × u32, aligned to 4)", "symmetric(10 × f32, aligned to 4)"])?;
    // Of one size, with another alignment.
    let result =
        if last { comm.symmetric::<[u8; 8]>(10).map(drop) } else { comm.symmetric::<[u32; 2]>(10).map(drop) };
    mismatch(&comm, result, &["8 bytes aligned to 1", "8 bytes aligned to 4"])
}

fn case_10_alignments_and_options_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let options = SymmetricOptions::new().alignment(if last { 8192 } else { 64 });
    let result = comm.symmetric_with::<u8>(10, &options).map(drop);
    mismatch(&comm, result, &["aligned to 64", "aligned to 8192"])?;
    let options = SymmetricOptions::new().huge_pages(last);
    mismatch(&comm, comm.symmetric_with::<u8>(10, &options).map(drop), &["symmetric(10 × u8"])?;
    let placement = if last { Placement::Leader } else { Placement::Distributed };
    let options = SymmetricOptions::new().placement(placement);
    mismatch(&comm, comm.symmetric_with::<u8>(10, &options).map(drop), &["symmetric(10 × u8"])
}

fn case_11_one_allocates_another_is_in_a_barrier(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = if last { comm.symmetric::<u16>(7).map(drop) } else { comm.barrier() };
    mismatch(&comm, result, &["rank 0 called barrier", "called symmetric(7 × u16"])
}

fn case_12_half_of_all_numbers(comm: Communicator) -> Outcome {
    fn fails<T: Pod>(comm: &Communicator, len: usize) -> Outcome {
        match comm.symmetric::<T>(len) {
            Err(Error::AllocationFailed { operation: Operation::Symmetric, requested_bytes, reason }) => {
                let bytes = len.saturating_mul(size_of::<T>()).saturating_mul(comm.size());
                ensure!(requested_bytes == bytes, "{requested_bytes} and not {bytes}: {reason}");
            }
            other => anyhow::bail!("{len}: {:?}", other.map(drop)),
        }
        still_works(comm)
    }
    let before = comm.symmetric::<u8>(100)?.into_own()?;
    fails::<u8>(&comm, usize::MAX / 2)?;
    fails::<f64>(&comm, usize::MAX / 2)?;
    fails::<u8>(&comm, usize::MAX)?;
    // More memory than any machine has, without overflow.
    fails::<u8>(&comm, 1 << 50)?;
    let object = comm.symmetric::<u64>(10)?;
    ensure_matches!(
        object.resize(usize::MAX / 2).map(drop),
        Err(Error::AllocationFailed { operation: Operation::ResizeSymmetric, .. })
    );
    // Nothing has changed: the next object follows the first.
    let after = comm.symmetric::<u8>(100)?.into_own()?;
    ensure!(address(&after) == address(&before) + 128, "{:#x} {:#x}", address(&after), address(&before));
    Ok(())
}
