//! What the ranks of a model do, and what they must get.

use std::ops::Range;

use intranode::copy::{self, Sink, Source, Term};
use intranode::protocol::allreduce::Reduction;
use intranode::protocol::block_transfer::BlockTransfer;
use intranode::protocol::{Call, CauseKind, Failure, Member};

use crate::cells::STAGING;
use crate::region;
use crate::single_copy::{self, Obstacle};
use crate::watching::Part;
use crate::world::{Rank, World};

/// Numbers that fill a chunk.
pub(crate) const FULL: usize = STAGING.chunk / 8;

/// One step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A bare round.
    Round,
    /// A round with a verdict.
    Barrier,
    /// A reduction of so many numbers, folded by everybody or in slices.
    Reduce { numbers: usize, sliced: bool },
    /// Every rank sends so many numbers.
    Gather { numbers: usize },
    /// One rank sends so many numbers.
    Broadcast { root: usize, numbers: usize },
    /// Every rank sends numbers, which the others fetch where they lie.
    Fetch(Obstacle),
    /// The rank ends its write epoch, and reads.
    Publish,
    /// The same where the rank's mapping can not be protected.
    Unprotected,
    /// The rank ends its read epoch, and writes.
    TakeBack,
    /// A turn of an exchange.
    Turn,
    /// The rank wants the one element, or gives it up: two transfers, which say that they are `distinct`, or do not.
    Assign { wants: bool, distinct: bool },
    /// The rank refuses to take part.
    Refuse,
    /// The rank takes itself.
    Claim,
    /// The rank leaves.
    Leave,
    /// The rank ends the communicator.
    Abort,
    /// Somebody sees that this rank has died.
    Mourn(usize),
    /// What a rank does in a ring of ranks that watch each other.
    Ring(Part),
}

impl Step {
    /// What the rank publishes about this step.
    pub(crate) fn call(self) -> Call {
        let call = |operation, length: usize, extra: usize| Call {
            operation,
            shape: 8,
            length: length as u64,
            extra: extra as u64,
            ..Call::default()
        };
        match self {
            Step::Barrier => call(1, 0, 0),
            Step::Reduce { numbers, .. } => call(2, numbers, 0),
            Step::Gather { numbers } => call(3, numbers, 0),
            Step::Broadcast { root, numbers } => call(4, numbers, root),
            Step::Fetch(_) => call(9, FULL, 0),
            Step::Publish | Step::Unprotected => call(6, 0, 0),
            Step::TakeBack => call(7, 0, 0),
            Step::Turn => call(8, 0, 0),
            Step::Assign { .. } => call(10, 1, 0),
            Step::Refuse => Call { refused: true, ..call(5, 0, 0) },
            other => unreachable!("{other:?} is no call"),
        }
    }

    /// The rounds that the step takes.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Step::Reduce { numbers: 1, .. } => 1,
            Step::Reduce { numbers, sliced } => numbers.div_ceil(FULL) + usize::from(sliced),
            Step::Gather { numbers } | Step::Broadcast { numbers, .. } => numbers.div_ceil(FULL),
            Step::Fetch(Obstacle::Nothing) => 2,
            Step::Fetch(_) => 3,
            Step::Round | Step::Barrier | Step::Refuse => 1,
            Step::Publish | Step::Unprotected | Step::TakeBack | Step::Turn => 1,
            Step::Assign { .. } => 2,
            Step::Claim | Step::Leave | Step::Abort | Step::Mourn(_) | Step::Ring(_) => 0,
        }
    }

    /// What is done in a ring.
    pub(crate) fn part(self) -> Option<Part> {
        if let Step::Ring(part) = self { Some(part) } else { None }
    }

    /// Whether all ranks have to take part.
    pub(crate) fn is_collective(self) -> bool {
        self.rounds() > 0
    }

    /// Does the step as the `nth` of this rank, and checks what it brought.
    pub(crate) fn run(
        self,
        nth: usize,
        rank: usize,
        member: &mut Member<'_, Rank>,
        world: &World,
    ) -> Result<(), Failure> {
        let ranks = member.size();
        match self {
            Step::Round => member.round().map(drop),
            Step::Barrier => world.barriers[rank].enter(member, &self.call()),
            Step::Refuse => member.refuse(&self.call()),
            Step::Publish => region::publish(nth, rank, member, &self.call(), true, world),
            Step::Unprotected => region::publish(nth, rank, member, &self.call(), false, world),
            Step::TakeBack => region::reclaim(rank, member, &self.call(), world),
            Step::Turn => region::turn(nth, rank, member, &self.call(), world),
            Step::Fetch(obstacle) => single_copy::gather(nth, rank, member, &self.call(), world, obstacle),
            Step::Leave => member.leave().map_err(Failure::from),
            Step::Abort => member.poison(CauseKind::Aborted, rank, 77).map_err(Failure::from),
            Step::Reduce { numbers, sliced } => {
                let slices_from = if sliced { 0 } else { usize::MAX };
                let mine = numbers_of(nth, rank, numbers);
                // Each rank may do it as it likes.
                let mut data = Folding { mine, result: vec![0; numbers] };
                member.allreduce(&self.call(), slices_from, &mut data)?;
                let mut expected = numbers_of(nth, 0, numbers);
                for other in 1..ranks {
                    for (sum, value) in expected.iter_mut().zip(numbers_of(nth, other, numbers)) {
                        *sum = combine(*sum, value);
                    }
                }
                assert!(data.result == expected, "wrong data: rank {rank} folded {:?}", data.result);
                Ok(())
            }
            Step::Gather { .. } | Step::Broadcast { .. } => {
                let sends = |of| match self {
                    Step::Gather { numbers } => numbers,
                    Step::Broadcast { root, numbers } if root == of => numbers,
                    _ => 0,
                };
                let mut blocks: Vec<_> = (0..ranks).map(|of| vec![0; sends(of)]).collect();
                blocks[rank] = numbers_of(nth, rank, sends(rank));
                let mut data = Blocks { rank, blocks };
                member.transfer(&self.call(), &mut data)?;
                for of in 0..ranks {
                    let expected = numbers_of(nth, of, sends(of));
                    let got = &data.blocks[of];
                    assert!(*got == expected, "wrong data: rank {rank} got {got:?} from {of}");
                }
                Ok(())
            }
            Step::Claim | Step::Mourn(_) | Step::Ring(_) | Step::Assign { .. } => {
                unreachable!("no step of a member")
            }
        }
    }
}

/// What a rank sends in its `nth` step.
pub(crate) fn numbers_of(nth: usize, rank: usize, numbers: usize) -> Vec<u64> {
    (0..numbers).map(|i| (1000 * nth + 100 * rank + i + 1) as u64).collect()
}

/// A fold in which the order shows.
fn combine(sum: u64, next: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(next)
}

struct Folding {
    mine: Vec<u64>,
    result: Vec<u64>,
}

impl Reduction for Folding {
    fn elements(&self) -> usize {
        self.mine.len()
    }

    fn element_size(&self) -> usize {
        8
    }

    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, bytemuck::cast_slice(&self.mine[part]));
    }

    fn keeps_contribution(&self) -> bool {
        true
    }

    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = &self.mine[part.clone()];
        copy::fold(&mut self.result[part], Some(own), begin, terms, staging, combine);
    }

    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, bytemuck::cast_slice_mut(&mut self.result[part]));
    }
}

/// Numbers from every rank.
pub(crate) struct Blocks {
    pub(crate) rank: usize,
    pub(crate) blocks: Vec<Vec<u64>>,
}

impl BlockTransfer for Blocks {
    fn length(&self, rank: usize) -> usize {
        self.blocks[rank].len() * 8
    }

    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.put(0, &bytemuck::cast_slice(&self.blocks[self.rank])[part]);
    }

    fn copy_own_block(&mut self, _: Range<usize>) {}

    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        staging.get(0, &mut bytemuck::cast_slice_mut(&mut self.blocks[rank])[part]);
    }
}
