//! Every pair of different collectives in a row: parity goes on from call to call.

use super::collectives::{allreduce, allreduce_slices, barrier, broadcast, gather};
use crate::harness::cells::{FULL, SHORT};
use crate::harness::model::Model;
use crate::harness::rank::Step;
use crate::harness::waiting::Waiting::{Blocking, Spinning};

/// With the rounds that each takes.
const CALLS: [(&str, usize, Step); 11] = [
    ("barrier", 1, barrier),
    ("allreduce_inline", 1, allreduce::<1>),
    ("allreduce_short", 1, allreduce::<SHORT>),
    ("allreduce_one_phase", 1, allreduce::<FULL>),
    ("allreduce_slices", 2, allreduce_slices::<FULL>),
    ("gather_inline", 1, gather::<1>),
    ("gather_short", 1, gather::<SHORT>),
    ("gather_one_chunk", 1, gather::<FULL>),
    ("gather_two_chunks", 2, gather::<{ FULL + 1 }>),
    ("broadcast_inline", 1, broadcast::<0, 1>),
    ("broadcast_two_chunks", 2, broadcast::<1, { FULL + 1 }>),
];

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for (first_name, first_rounds, first) in CALLS {
        for (second_name, second_rounds, second) in CALLS {
            let name = format!("pair_{first_name}_then_{second_name}");
            let both = |waiting| Model::same(&name, waiting, 2, &[first, second]);
            models.push(both(Blocking));
            // Four rounds are 100,000 executions here; three have come back to the first buffer.
            let four = first_rounds + second_rounds > 3;
            models.push(if four { both(Spinning).long() } else { both(Spinning) });
        }
    }
    models
}
