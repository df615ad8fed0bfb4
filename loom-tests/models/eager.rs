//! Data that come with what describes them bring every rank the right data, whether those of all have come or of some only.
//!
//! The first half of the page is what a rank does; the models follow.

use intranode::copy::{Sink, Source};
use intranode::protocol::Failure;
use intranode::protocol::block_transfer::BlockTransfer;
use intranode::protocol::eager::EagerBlocks;

use super::collectives::{barrier, gather};
use super::faults::deaths_in_rounds;
use crate::harness::cells::{FULL, SHORT};
use crate::harness::data::{Blocks, numbers};
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// Even ranks send `EVEN` numbers to all, odd ones `ODD`, and none knows before how many the others send.
fn eager<const EVEN: usize, const ODD: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    exchange(rank, [EVEN, ODD], true)
}

/// The same, but that data which have not come are not sent any more: what was staged was staged in vain.
fn in_vain<const EVEN: usize, const ODD: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    exchange(rank, [EVEN, ODD], false)
}

fn exchange(rank: &mut Rank<'_>, [even, odd]: [usize; 2], goes_on: bool) -> Result<(), Failure> {
    let of = |rank: usize| if rank.is_multiple_of(2) { even } else { odd };
    let counts: Vec<usize> = (0..rank.size()).map(of).collect();
    let sent = numbers(rank.nth(), &counts);
    let mut own = vec![Vec::new(); rank.size()];
    own[rank.number].clone_from(&sent[rank.number]);
    let mut blocks = Unknown { own: rank.number, blocks: Blocks::of(rank.number, &own), later: false };
    rank.call(Operation::Eager.call(0, 0), |member, call| {
        member.exchange_eagerly(call, &mut blocks)?;
        if blocks.later && goes_on { member.transfer(call, &mut blocks.blocks) } else { Ok(()) }
    })?;
    if blocks.later && !goes_on {
        return Ok(());
    }
    let got = &blocks.blocks.all;
    assert!(*got == sent, "wrong data: rank {} got {got:?}", rank.number);
    Ok(())
}

/// Blocks of which a header says how long they are.
struct Unknown {
    own: usize,
    /// Those of others are as long as their headers say.
    blocks: Blocks,
    /// Whether the data of some rank have not come with its header.
    later: bool,
}

/// Numbers that a header has room for.
const INLINE: usize = 1;

impl Unknown {
    fn count(&self, rank: usize) -> usize {
        self.blocks.all[rank].len()
    }
}

impl EagerBlocks for Unknown {
    fn staged(&self, rank: usize) -> usize {
        let is_staged = (INLINE + 1..=SHORT).contains(&self.count(rank));
        if is_staged { self.blocks.length(rank) } else { 0 }
    }

    fn put(&mut self, staging: Sink<'_>) {
        self.blocks.put(0..self.staged(self.own), staging);
    }

    fn describe(&mut self, mut header: Sink<'_>) {
        header.put(0, &self.count(self.own).to_ne_bytes());
        if self.count(self.own) <= INLINE {
            self.blocks.put(0..self.blocks.length(self.own), header.after(size_of::<usize>()));
        }
    }

    fn read(&mut self, rank: usize, header: Source<'_>) {
        let count = usize::from_ne_bytes(header.array(0));
        self.blocks.all[rank] = vec![0; count];
        if count <= INLINE {
            self.blocks.get(rank, 0..self.blocks.length(rank), header.after(size_of::<usize>()));
        }
    }

    fn decide(&mut self) -> bool {
        let ranks = 0..self.blocks.all.len();
        self.later = ranks.clone().any(|rank| self.count(rank) > SHORT);
        !self.later && ranks.clone().any(|rank| self.staged(rank) > 0)
    }

    fn get(&mut self, rank: usize, staging: Source<'_>) {
        self.blocks.get(rank, 0..self.staged(rank), staging);
    }
}

/// All have one number, which fits into a header.
const IN_HEADERS: Step = eager::<1, 1>;

/// All stage theirs.
const STAGED: Step = eager::<SHORT, SHORT>;

/// What even ranks have staged is not read: odd ones have more.
const LATER: Step = eager::<SHORT, { SHORT + 1 }>;

const IN_VAIN: Step = in_vain::<SHORT, { SHORT + 1 }>;

fn alone(waiting: Waiting) -> [Model; 5] {
    let once = |name: &str, call: Step| Model::same(name, waiting, 2, &[call]);
    [
        once("eager_in_headers", IN_HEADERS),
        once("eager_staged", STAGED),
        once("eager_staged_by_one", eager::<SHORT, 1>),
        once("eager_staged_by_one_the_other_has_nothing", eager::<0, SHORT>),
        once("eager_staged_by_one_for_later", LATER),
    ]
}

/// A round that was no turn, because data come later, the calls differ or nobody has staged any, among those that were.
fn in_a_row(waiting: Waiting) -> [Model; 7] {
    let calls = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script).bound(3);
    [
        calls("eager_staged_three_times", &[STAGED; 3]),
        calls("eager_around_one_for_later", &[STAGED, LATER, STAGED]),
        calls("eager_after_two_for_later", &[LATER, LATER, STAGED]).bound(2),
        calls("eager_around_one_in_vain", &[STAGED, IN_VAIN, STAGED]),
        calls("eager_around_one_in_headers", &[STAGED, IN_HEADERS, STAGED]),
        calls("eager_around_a_gather", &[STAGED, gather::<SHORT>, STAGED]),
        Model::new("eager_around_a_mismatch", waiting, &[&[STAGED; 3], &[STAGED, barrier, STAGED]]).bound(3),
    ]
}

fn three_ranks() -> [Model; 3] {
    let calls = |name: &str, script: &[Step]| Model::same(name, Blocking, 3, script).bound(2);
    [
        calls("eager_staged", &[STAGED]),
        calls("eager_staged_by_some", &[eager::<SHORT, 1>]),
        calls("eager_staged_by_some_for_later", &[eager::<SHORT, FULL>, STAGED]),
    ]
}

/// Rank 1 dies at a fail point of a call that stages for nothing, or of two whose data are staged.
fn deaths() -> Vec<Model> {
    let scripts = [("eager_for_later", &[LATER][..]), ("eager_twice", &[STAGED; 2])];
    scripts.into_iter().flat_map(|(name, script)| deaths_in_rounds(name, Parking, script)).collect()
}

/// On which machines each runs.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(alone(waiting));
        models.extend(in_a_row(waiting));
    }
    models.extend(three_ranks());
    models.extend(deaths());
    models
}
