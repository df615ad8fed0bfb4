//! Two threads of a rank, each of which calls when it likes: no two ranks own one element, and no round succeeds on one
//! rank and fails on another.

use crate::machine::Waiting::{self, Blocking, Parking};
use crate::model::Model;
use crate::program::Step::{self, Assign, Barrier, Leave};

const TAKE: Step = Assign { wants: true, distinct: true };
const GIVE: Step = Assign { wants: false, distinct: true };

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Blocking, Parking] {
        // A barrier of another thread, at every moment of a call of two transfers.
        let barrier = |name, script: &[Step], peer: &[Step]| {
            Model::new(name, waiting, &[script, peer]).second_thread(0, &[Barrier])
        };
        models.push(barrier("thread_in_an_assign", &[TAKE], &[GIVE, Leave]).bound(2));
        models.push(takes_what_the_other_gives(waiting, true).bound(1));
        // Two threads that take turns: what the one has written for a round is not overwritten by the other.
        models.push(
            Model::new("threads_in_barriers", waiting, &[&[Barrier], &[Barrier, Barrier, Leave]])
                .second_thread(0, &[Barrier])
                .bound(2),
        );
    }
    models
}

/// One rank takes the element and gives it, the other takes it then, and a second thread of the first comes in between.
pub(crate) fn takes_what_the_other_gives(waiting: Waiting, distinct: bool) -> Model {
    let [take, give] = [true, false].map(|wants| Assign { wants, distinct });
    Model::new("thread_between_two_assigns", waiting, &[&[take, give], &[give, take, Barrier, Leave]])
        .second_thread(0, &[Barrier])
}
