//! The reductions of a random world of which not every rank gets all.

use intranode::{Communicator, Error};

use super::Call;
use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, ensure_matches};

/// Makes what is expected, for reductions that are defined.
type Expected<'a, T> = Box<dyn FnOnce() -> Vec<T> + 'a>;

/// Makes the call, and compares with the model.
pub(super) fn play<T: Value>(comm: &Communicator, call: &Call, seed: u64) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let contribution = |len| (values::<T>(seed, rank, len), values::<T>(!seed, rank, len));
    let (result, got, op, expected) = match call {
        Call::Reduce { len, op, in_place, root } => {
            let (mut own, mut recv) = contribution(*len);
            let before = if *in_place { own.clone() } else { recv.clone() };
            let result = match in_place {
                true => comm.reduce_in_place(&mut own, *op, *root),
                false => comm.reduce(&own, (rank == *root).then_some(&mut recv), *op, *root),
            };
            let expected = move || if rank == *root { reduced(*op, seed, size, *len) } else { before };
            (result, if *in_place { own } else { recv }, op, Box::new(expected) as Expected<T>)
        }
        Call::Scan { len, op, in_place, exclusive } => {
            let (mut own, mut recv) = contribution(*len);
            let before = if *in_place { own.clone() } else { recv.clone() };
            let result = match (in_place, exclusive) {
                (true, false) => comm.scan_in_place(&mut own, *op),
                (true, true) => comm.exscan_in_place(&mut own, *op),
                (false, false) => comm.scan(&own, &mut recv, *op),
                (false, true) => comm.exscan(&own, &mut recv, *op),
            };
            let terms = rank + usize::from(!exclusive);
            let expected = move || if terms > 0 { reduced(*op, seed, terms, *len) } else { before };
            (result, if *in_place { own } else { recv }, op, Box::new(expected) as Expected<T>)
        }
        Call::ReduceScatter { counts, op } => {
            let (own, _) = contribution(counts.iter().sum());
            let (_, mut recv) = contribution(counts[rank]);
            let result = comm.reduce_scatter(&own, &mut recv, counts, *op);
            let start = counts[..rank].iter().sum();
            let expected = move || reduced(*op, seed, size, own.len())[start..start + counts[rank]].to_vec();
            (result, recv, op, Box::new(expected) as Expected<T>)
        }
        other => unreachable!("{other:?} is played elsewhere"),
    };
    if !T::REDUCTIONS.contains(op) {
        ensure_matches!(result, Err(Error::InvalidReduction { .. }));
        return Ok(());
    }
    result?;
    ensure_same(&got, &expected())
}
