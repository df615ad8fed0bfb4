//! Every collective gives every rank the right data and the right verdict.

use crate::machine::Waiting::{self, Blocking, Dozing, Parking, Spinning};
use crate::model::Model;
use crate::program::{FULL, Step};

const BARRIER: Step = Step::Barrier;

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(pair(waiting));
    }
    models
}

/// One collective of each kind, by two ranks, without a bound.
fn pair(waiting: Waiting) -> Vec<Model> {
    let both = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    let reduce = |numbers, sliced| [Step::Reduce { numbers, sliced }];
    let gather = |numbers| [Step::Gather { numbers }];
    let cast = |root, numbers| [Step::Broadcast { root, numbers }];
    vec![
        both("round", &[Step::Round]),
        both("round_twice", &[Step::Round; 2]),
        both("round_thrice", &[Step::Round; 3]),
        both("barrier_twice", &[BARRIER; 2]),
        both("barrier_thrice", &[BARRIER; 3]),
        both("allreduce_inline", &reduce(1, false)),
        both("allreduce_one_phase", &reduce(FULL, false)),
        both("allreduce_two_chunks", &reduce(FULL + 1, false)),
        both("allreduce_slices", &reduce(FULL, true)),
        both("gather_inline", &gather(1)),
        both("gather_one_chunk", &gather(FULL)),
        both("gather_two_chunks", &gather(FULL + 1)),
        both("gather_three_chunks", &gather(2 * FULL + 1)),
        both("broadcast_from_0_inline", &cast(0, 1)),
        both("broadcast_from_1_two_chunks", &cast(1, FULL + 1)),
    ]
}
