//! The hierarchical barrier: how many ranks meet without each of them reading the words of all the others.
//!
//! ```text
//!  group of leader 0          group of leader 4
//!  0     1     2     3        4     5     6     7
//!  ◀─────┴─────┴─────┘        ◀─────┴─────┴─────┘    1. a leader waits for the words of its group: GROUP
//!  0 ◀──────────────────────▶ 4                      2. leaders wait for each other: ALL
//!  └───▶ 1, 2, 3              └───▶ 5, 6, 7          3. the others wait for their leader
//! ```
//!
//! It is the combining tree of Yew, Tzeng and Lawrie (1987), of two levels, for ranks that share caches. Each rank arrives
//! at its own word as in the flat [`barrier`](Member::barrier), so the words decide every round as they always do: which
//! rank is missing, which was late, what became of a round that was poisoned. A leader only adds to its own word, after
//! its arrival, how far the others have come (`PROGRESS`). Its next arrival clears that, so no progress outlives its round.
//!
//! **Where a leader does not help.** It calls something else, or the calls behind it differ (`DIFFERS`), or its word is
//! poisoned, or it is stopped between its arrival and its progress. Then a rank reads all words, as in the flat barrier. A
//! round in which all ranks have arrived has succeeded, whatever a leader did, and a leader that is stopped delays it
//! only briefly.

use super::barrier::Stopping;
use super::generation::{POISON, PROGRESS};
use super::{Call, Expired, Failure, Generation, Member, Payload, Platform};

/// How the ranks of a communicator meet in a call that brings no data: chosen when they join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// Each rank reads the words of all the others.
    Flat,
    /// Each rank reads those of its group.
    Hierarchical(Group),
}

/// A rank's place in the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    leader: usize,
    /// If this rank is the leader: the others of its group.
    members: Box<[usize]>,
    /// If this rank is a leader: the other leaders.
    leaders: Box<[usize]>,
}

/// All ranks of a leader's group have arrived, with the leader's call.
const GROUP: u32 = 1;

/// All ranks have arrived, with the leader's call.
const ALL: u32 = 2;

/// A leader cannot speak for others, because calls differ: read all words.
const DIFFERS: u32 = 3;

/// The progress of a leader's word.
fn progress(state: u32) -> u32 {
    (state & PROGRESS) >> PROGRESS.trailing_zeros()
}

impl Group {
    /// The place of `rank`, where `leaders[rank]` leads the group of each rank, and itself.
    ///
    /// # Panics
    /// When `rank`, or a leader, is none of the ranks, or a leader does not lead itself.
    pub fn new(leaders: &[usize], rank: usize) -> Self {
        assert!(leaders.iter().all(|leader| leaders[*leader] == *leader));
        let leads = leaders[rank] == rank;
        let others = |wanted: &dyn Fn(usize) -> bool| {
            (0..leaders.len()).filter(|other| leads && *other != rank && wanted(*other)).collect()
        };
        Group {
            leader: leaders[rank],
            members: others(&|other| leaders[other] == rank),
            leaders: others(&|other| leaders[other] == other),
        }
    }
}

impl Barrier {
    /// Waits until every rank has called it with an equal `call`.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    #[inline]
    pub fn enter<P: Platform>(&self, member: &mut Member<'_, P>, call: &Call) -> Result<(), Failure> {
        match self {
            Barrier::Flat => member.barrier(call),
            Barrier::Hierarchical(group) => member.hierarchical_barrier(group, call),
        }
    }
}

impl<P: Platform> Member<'_, P> {
    #[cold]
    fn hierarchical_barrier(&mut self, group: &Group, call: &Call) -> Result<(), Failure> {
        self.write_header(call, |_| ());
        let (generation, _) = self.arrive()?;
        let same = match group.leader == self.rank {
            true => self.lead(group, call, generation)?,
            false => self.follow(group.leader, ALL, call, generation)?,
        };
        let parity = self.complete(generation)?;
        if same { Ok(()) } else { self.check_calls(call, parity) }
    }

    /// Waits for the group, then for the other leaders, and writes down how far all have come. Whether all ranks are known
    /// to call the same.
    fn lead(&self, group: &Group, call: &Call, generation: Generation) -> Result<bool, Failure> {
        group.members.iter().try_for_each(|rank| self.wait_for(*rank, generation))?;
        let calls_it =
            |rank: &usize| self.header(*rank, generation.parity()).read(|header| call.is_in(&header));
        let mut same = !call.refused && group.members.iter().all(calls_it);
        self.write_progress(generation, if same { GROUP } else { DIFFERS })?;
        self.platform.fail_point("progress")?;
        for leader in &group.leaders {
            same &= self.follow(*leader, GROUP, call, generation)?;
        }
        if !group.members.is_empty() {
            self.write_progress(generation, if same { ALL } else { DIFFERS })?;
        }
        Ok(same)
    }

    /// Waits until a leader has come so far. Whether all behind it are known to call the same; if not, all ranks have
    /// arrived.
    fn follow(&self, leader: usize, wanted: u32, call: &Call, generation: Generation) -> Result<bool, Failure> {
        // Its call first: a leader that calls something else makes no progress.
        self.wait_for(leader, generation)?;
        let slot = &self.slots[leader][generation.parity()];
        if slot.header.read(|header| call.is_in(&header)) {
            let enough = |state| state & POISON != 0 || progress(state) >= wanted;
            match self.wait_on(&slot.state, P::brief_deadline, enough) {
                Ok(state) if (wanted..=ALL).contains(&progress(state)) => return Ok(true),
                Ok(_) | Err(Stopping::Expired(Expired)) => {}
                Err(Stopping::Failure(failure)) => return Err(failure),
            }
        }
        self.others().try_for_each(|rank| self.wait_for(rank, generation))?;
        Ok(false)
    }

    /// Adds to this rank's word how far the others have come. A word that is poisoned stays as it is: those that wait for
    /// it read all words.
    fn write_progress(&self, generation: Generation, progress: u32) -> Result<(), Failure> {
        let state = &self.slots[self.rank][generation.parity()].state;
        let arrived = generation.word();
        self.advance(state, arrived, arrived | progress << PROGRESS.trailing_zeros()).map(drop)
    }
}
