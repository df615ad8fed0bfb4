//! Every collective gives every rank the right data and the right verdict.

use crate::machine::Fate;
use crate::machine::Waiting::{self, Blocking, Dozing, Parking, Spinning};
use crate::model::Model;
use crate::program::{FULL, Step};

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting));
    }
    models.extend(three_ranks());
    models.push(Model::same("round_thrice", Parking, 2, &[Step::Round; 3]).long());
    models
}

/// Two ranks, without a bound.
fn two_ranks(waiting: Waiting) -> Vec<Model> {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    let reduce = |numbers, sliced| [Step::Reduce { numbers, sliced }];
    let gather = |numbers| [Step::Gather { numbers }];
    let cast = |root, numbers| [Step::Broadcast { root, numbers }];
    // Three rounds come back to the first buffer. Where that is a million executions, a bound has to do.
    let thrice = |model: Model| if waiting == Parking { model.bound(3) } else { model };
    let mut models = vec![
        same("round_twice", &[Step::Round; 2]),
        thrice(same("round_thrice", &[Step::Round; 3])),
        same("barrier_twice", &[Step::Barrier; 2]),
        same("allreduce_inline", &reduce(1, false)),
        same("allreduce_one_phase", &reduce(FULL, false)),
        same("allreduce_one_phase_two_chunks", &reduce(FULL + 1, false)),
        same("allreduce_slices", &reduce(FULL, true)),
        thrice(same("allreduce_slices_of_two_parts", &reduce(FULL + 1, true))),
        same("allreduce_slices_of_three_parts", &reduce(2 * FULL + 1, true)).bound(2),
        same("gather_inline", &gather(1)),
        same("gather_one_chunk", &gather(FULL)),
        same("gather_two_chunks", &gather(FULL + 1)),
        thrice(same("gather_three_chunks", &gather(2 * FULL + 1))),
    ];
    for root in [0, 1] {
        models.push(same(&format!("broadcast_from_{root}_inline"), &cast(root, 1)));
        models.push(same(&format!("broadcast_from_{root}_one_chunk"), &cast(root, FULL)));
        models.push(same(&format!("broadcast_from_{root}_two_chunks"), &cast(root, FULL + 1)));
        models.push(thrice(same(&format!("broadcast_from_{root}_three_times"), &[cast(root, 1)[0]; 3])));
    }
    // The first round after each of these numbers, and the second, are on both sides of the wrap or next to it.
    let last = u32::MAX >> 4;
    for (name, start) in [("wrap_before", last - 2), ("wrap_first", last - 1), ("wrap_second", last)] {
        models.push(same(name, &gather(1).repeat(2)).start(start));
    }
    let [refuse, barrier] = [Step::Refuse, Step::Barrier];
    let once = gather(1)[0];
    models.extend([
        Model::new("refusal", waiting, &[&[refuse, once], &[once, once]]),
        same("refusal_by_both", &[refuse, once]),
        Model::new("mismatch", waiting, &[&[barrier, once], &[once, once]]),
        Model::new("mismatch_of_lengths", waiting, &[&gather(FULL), &gather(FULL + 1)]),
        Model::new("mismatch_of_roots", waiting, &[&cast(0, FULL), &cast(1, FULL)]),
        thrice(Model::new("two_refusals", waiting, &[&[refuse, refuse, once], &[once; 3]])),
    ]);
    if waiting == Parking {
        for sleep in [1, 2] {
            let wakes = Fate { spurious: Some(sleep), ..Fate::default() };
            models.push(same(&format!("spurious_return_{sleep}"), &[once, once]).fate(0, wakes));
        }
    }
    models
}

/// Three ranks: blocking without a bound where that is finite enough, and with a bound.
fn three_ranks() -> Vec<Model> {
    let (once, chunks) = (Step::Gather { numbers: 1 }, Step::Gather { numbers: FULL + 1 });
    let slices = Step::Reduce { numbers: FULL, sliced: true };
    let two_parts = Step::Reduce { numbers: FULL + 1, sliced: true };
    let inline = Step::Reduce { numbers: 1, sliced: false };
    let same = |name: &str, waiting, script: &[Step]| Model::same(name, waiting, 3, script);
    let refusals: [&[Step]; 3] = [&[Step::Refuse, Step::Refuse, once], &[once; 3], &[once, Step::Refuse, once]];
    vec![
        same("gather_inline", Blocking, &[once]),
        same("allreduce_inline", Blocking, &[inline]),
        same("gather_two_chunks", Blocking, &[chunks]).bound(2),
        same("gather_two_chunks", Blocking, &[chunks]).long(),
        same("allreduce_slices", Blocking, &[slices]).bound(2),
        same("allreduce_slices_of_two_parts", Blocking, &[two_parts]).bound(2),
        same("broadcast_three_times", Blocking, &[Step::Broadcast { root: 1, numbers: 1 }; 3]).bound(2),
        Model::new("refusals", Blocking, &refusals).bound(2),
        same("gather_inline", Parking, &[once]).bound(2),
        same("gather_inline", Parking, &[once]).bound(3).long(),
        same("gather_two_chunks", Parking, &[chunks]).bound(1),
    ]
}
