//! A call of two transfers, like a region's `set_ownership`: all ranks say how many elements they want, and then which. There is
//! one element, and what is checked is that no two ranks own it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use intranode::protocol::{CallLock, Failure, Generation, Member};

use crate::machine::{Machine, Word};
use crate::program::{Blocks, Step};
use crate::trace::Label;
use crate::weakened::Weakened;
use crate::world::Rank;

/// What the threads of the ranks have in common, and what they have found out.
pub(crate) struct Ownership {
    pub(crate) locks: Vec<CallLock<Rank>>,
    /// By rank: whether it owns the element, whenever it is not in a call about that.
    owns: Vec<Cell<bool>>,
    /// By rank: whether one of its threads may use what it owns.
    uses: Vec<Cell<bool>>,
    /// Whether a round was completed, by all who know.
    rounds: RefCell<BTreeMap<u32, bool>>,
}

impl Ownership {
    pub(crate) fn new(ranks: usize, start: Generation) -> Self {
        let lock = |rank| {
            let word = CallLock::<Weakened<Machine>>::initial_word(start);
            CallLock::new(Word::new(word, Label { what: "lock", rank, parity: 0 }))
        };
        Ownership {
            locks: (0..ranks).map(lock).collect(),
            owns: (0..ranks).map(|_| Cell::new(false)).collect(),
            uses: (0..ranks).map(|_| Cell::new(false)).collect(),
            rounds: RefCell::default(),
        }
    }

    /// Before a call that decides who owns the element: the borrow checker sees to it that nobody uses it.
    pub(crate) fn give_back(&self, rank: usize) {
        self.uses[rank].set(false);
    }

    /// After such a call. A failure that can be repaired changes nothing, and a fatal one takes all away.
    pub(crate) fn settle(&self, rank: usize, result: &Result<bool, Failure>) {
        match result {
            Ok(owns) => self.owns[rank].set(*owns),
            Err(Failure::Refused(_) | Failure::Mismatch(_)) => {}
            Err(_) => self.owns[rank].set(false),
        }
        self.uses[rank].set(self.owns[rank].get());
        let users = self.uses.iter().filter(|uses| uses.get()).count();
        assert!(users <= 1, "two owners: {users} ranks use one element");
    }

    /// What a thread knows of the rounds after a call.
    pub(crate) fn has_seen(&self, completed: Generation, result: &Result<(), Failure>) {
        let mut rounds = self.rounds.borrow_mut();
        let mut header = |round: Generation, complete: bool| {
            let known = *rounds.entry(round.number()).or_insert(complete);
            assert!(known == complete, "disagreement: round {} was completed, and was not", round.number());
        };
        header(completed, true);
        if let Err(Failure::Dead(_)) = result {
            header(completed.next(), false);
        }
    }
}

/// Says how many are wanted, and learns how many the others want.
pub(crate) fn first(rank: usize, member: &mut Member<'_, Rank>, step: Step) -> Result<Vec<usize>, Failure> {
    let Step::Assign { wants, .. } = step else { unreachable!("{step:?} assigns nothing") };
    let mut counts = Blocks { rank, blocks: vec![vec![0]; member.size()] };
    counts.blocks[rank] = vec![u64::from(wants)];
    member.transfer(&step.call(), &mut counts)?;
    Ok(counts.blocks.into_iter().map(|block| block[0] as usize).collect())
}

/// Says which, and learns whether it owns the element. Both want it: then nothing changes.
pub(crate) fn second(
    rank: usize,
    member: &mut Member<'_, Rank>,
    step: Step,
    counts: &[usize],
) -> Result<bool, Failure> {
    let Step::Assign { distinct, .. } = step else { unreachable!("{step:?} assigns nothing") };
    if let Some(greedy) = counts.iter().position(|count| *count > 1) {
        return Err(Failure::Refused(greedy));
    }
    // The index of the one element. Taken for a number of elements it is none.
    let mut wishes = Blocks { rank, blocks: counts.iter().map(|count| vec![0; *count]).collect() };
    member.transfer(&step.call().phase(u8::from(distinct)), &mut wishes)?;
    match counts.iter().sum::<usize>() {
        0 | 1 => Ok(counts[rank] == 1),
        _ => Err(Failure::Refused(0)),
    }
}
