//! allreduce over buffers that other threads may write.

use anyhow::Context;
use intranode::{Communicator, Error, RawSource, RawTarget, ReduceOp};

use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, row, seed, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(raw_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 4, 6]),
        row!(raw_and_other_buffers_through_tiny_staging).staging(64),
        row!(raw_and_regions_in_one_call).ranks(&[2, 3, 6]),
        row!(raw_buffers_need_no_alignment),
        row!(raw_buffers_of_different_lengths_are_an_error),
    ]
}

/// Each rank in another of the four ways, which change from call to call.
fn mixed<T: intranode::Number + Value>(comm: &Communicator, turn: usize, op: ReduceOp, len: usize) -> Outcome {
    let own = values::<T>(seed(), comm.rank(), len);
    let mut recv = own.clone();
    match (comm.rank() + turn) % 4 {
        0 => comm.allreduce_raw(Some(RawSource::from(&own[..])), RawTarget::from(&mut recv[..]), op)?,
        1 => comm.allreduce_raw(None, RawTarget::from(&mut recv[..]), op)?,
        2 => comm.allreduce(&own, &mut recv, op)?,
        _ => comm.allreduce_in_place(&mut recv, op)?,
    }
    let way = || format!("{op} of {len} × {}, turn {turn}", std::any::type_name::<T>());
    ensure_same(&recv, &reduced(op, seed(), comm.size(), len)).with_context(way)
}

fn raw_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    // Around what a header takes, a piece, and what is folded in slices.
    for len in [0, 1, 12, 13, 1000, 1024, 1025, 5000, 65_535, 65_537, 200_003] {
        for turn in 0..4 {
            mixed::<f64>(&comm, turn, ReduceOp::Sum, len)?;
        }
        mixed::<i8>(&comm, len, ReduceOp::Prod, len)?;
        mixed::<u32>(&comm, len, ReduceOp::Max, len)?;
    }
    still_works(&comm)
}

fn raw_and_other_buffers_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 12, 13, 100, 1100] {
        for turn in 0..4 {
            mixed::<f64>(&comm, turn, ReduceOp::Sum, len)?;
        }
    }
    still_works(&comm)
}

/// What others send from a region is read there.
fn raw_and_regions_in_one_call(comm: Communicator) -> Outcome {
    for len in [70_000, 150_007] {
        let mut region = comm.region::<f64>(len * comm.size())?;
        region.distribute()?;
        let own = values::<f64>(seed(), comm.rank(), len);
        let part = region.as_mut_slice();
        for turn in 0..comm.size() {
            let mut recv = vec![0.0; len];
            if comm.rank() == turn {
                let send = Some(RawSource::from(&own[..]));
                comm.allreduce_raw(send, RawTarget::from(&mut recv[..]), ReduceOp::Sum)?;
            } else {
                part[..len].copy_from_slice(&own);
                comm.allreduce(&part[..len], &mut recv, ReduceOp::Sum)?;
            }
            ensure_same(&recv, &reduced(ReduceOp::Sum, seed(), comm.size(), len))?;
        }
    }
    still_works(&comm)
}

fn raw_buffers_need_no_alignment(comm: Communicator) -> Outcome {
    let len = 70_001;
    let own = values::<f64>(seed(), comm.rank(), len);
    let (mut send, mut recv) = (vec![0u8; 8 * len + 1], vec![0u8; 8 * len + 3]);
    send[1..].copy_from_slice(bytemuck::cast_slice(&own));
    // SAFETY: the vector has as many bytes behind the offset, and is not touched while the view exists.
    let source = unsafe { RawSource::new(send.as_ptr().wrapping_add(1).cast(), len) };
    // SAFETY: as above.
    let target = unsafe { RawTarget::new(recv.as_mut_ptr().wrapping_add(3).cast(), len) };
    comm.allreduce_raw::<f64>(Some(source), target, ReduceOp::Sum)?;
    let expected = reduced::<f64>(ReduceOp::Sum, seed(), comm.size(), len);
    ensure_same(&recv[3..], bytemuck::cast_slice(&expected))
}

fn raw_buffers_of_different_lengths_are_an_error(comm: Communicator) -> Outcome {
    let (send, mut recv) = ([1u32; 3], [0u32; 4]);
    let result =
        comm.allreduce_raw(Some(RawSource::from(&send[..])), RawTarget::from(&mut recv[..]), ReduceOp::Sum);
    anyhow::ensure!(
        matches!(result, Err(Error::InvalidBufferSize { expected: 3, actual: 4, .. })),
        "{result:?}"
    );
    still_works(&comm)
}
