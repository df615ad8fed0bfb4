//! Every pair of different collectives in a row: parity goes on from call to call.

use crate::machine::Waiting::{Blocking, Spinning};
use crate::model::Model;
use crate::program::{FULL, Step};

const CALLS: [(&str, Step); 9] = [
    ("barrier", Step::Barrier),
    ("allreduce_inline", Step::Reduce { numbers: 1, sliced: false }),
    ("allreduce_one_phase", Step::Reduce { numbers: FULL, sliced: false }),
    ("allreduce_slices", Step::Reduce { numbers: FULL, sliced: true }),
    ("gather_inline", Step::Gather { numbers: 1 }),
    ("gather_one_chunk", Step::Gather { numbers: FULL }),
    ("gather_two_chunks", Step::Gather { numbers: FULL + 1 }),
    ("broadcast_inline", Step::Broadcast { root: 0, numbers: 1 }),
    ("broadcast_two_chunks", Step::Broadcast { root: 1, numbers: FULL + 1 }),
];

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for (first_name, first) in CALLS {
        for (second_name, second) in CALLS {
            let name = format!("pair_{first_name}_then_{second_name}");
            let script = [first, second];
            models.push(Model::same(&name, Blocking, 2, &script));
            // Four rounds are 100,000 executions here; three have come back to the first buffer.
            let spinning = Model::same(&name, Spinning, 2, &script);
            models.push(if spinning.rounds() > 3 { spinning.long() } else { spinning });
        }
    }
    models
}
