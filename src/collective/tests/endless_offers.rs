//! Another process writes the bit of an offer into what ranks publish, in each round: calls end all the same.

use std::num::NonZeroU64;
use std::ops::Range;

use crate::copy::{Sink, Source, Term};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::{Reduction, Shape};
use crate::protocol::block_transfer::{Address, BlockTransfer, Lend, OFFER};
use crate::rank::rank_state::RankState;

/// A block, or a contribution, that is an offer whatever has been settled.
#[derive(Default)]
struct Offered {
    settled: usize,
}

/// In bytes: of several chunks.
const LEN: usize = 1 << 20;

impl Lend for Offered {
    fn place(&self) -> Address {
        NonZeroU64::new(OFFER)
    }

    fn find(&mut self, _place: NonZeroU64) -> bool {
        true
    }

    fn settle(&mut self, _found: bool) {
        self.settled += 1;
        assert_eq!(self.settled, 1, "the call begins again and again");
    }
}

impl BlockTransfer for Offered {
    fn length(&self, _rank: usize) -> usize {
        LEN
    }

    fn put(&mut self, _chunk: Range<usize>, _staging: Sink<'_>) {}

    fn copy_own_block(&mut self, _chunk: Range<usize>) {}

    fn get(&mut self, _rank: usize, _chunk: Range<usize>, _staging: Source<'_>) {}

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(self)
    }
}

impl Reduction for Offered {
    fn elements(&self) -> usize {
        LEN
    }

    fn element_size(&self) -> usize {
        1
    }

    fn contribute(&mut self, _chunk: Range<usize>, _staging: Sink<'_>) {}

    fn keeps_contribution(&self) -> bool {
        true
    }

    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(self)
    }

    fn fold(&mut self, _chunk: Range<usize>, _begin: bool, _terms: &[Term<'_>], _staging: Option<Sink<'_>>) {}

    fn fold_in_place(
        &mut self,
        _chunk: Range<usize>,
        _begin: bool,
        _terms: (&[Term<'_>], &[Address]),
        _staging: Option<Sink<'_>>,
    ) {
    }

    fn collect(&mut self, _chunk: Range<usize>, _staging: Source<'_>) {}
}

type Offering = fn(&RankState, &mut Offered) -> Result<(), Error>;

fn transfer(rank_state: &RankState, block: &mut Offered) -> Result<(), Error> {
    let call = Call { operation: Operation::Allgatherv as u8, ..Call::default() };
    rank_state.collective(Operation::Allgatherv, |member| member.transfer(&call, block))
}

fn reduction<const SLICES_FROM: usize>(rank_state: &RankState, own: &mut Offered) -> Result<(), Error> {
    let call = Call { operation: Operation::Allreduce as u8, ..Call::default() };
    rank_state.collective(Operation::Allreduce, |member| member.reduction(&call, Shape::All, SLICES_FROM, own))
}

#[test]
fn offers_are_settled_once_in_a_call() {
    let calls: [Offering; 3] = [transfer, reduction::<0>, reduction::<{ usize::MAX }>];
    let ranks = crate::threads(3, |comm| {
        calls.map(|call| {
            let mut offered = Offered::default();
            call(&comm.rank_state, &mut offered).map(|()| offered.settled)
        })
    });
    for results in ranks.unwrap() {
        assert_eq!(results.map(Result::unwrap), [1; 3]);
    }
}
