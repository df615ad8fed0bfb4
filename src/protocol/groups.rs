//! Meeting in groups: how many ranks complete a round without each looking at all the others.
//!
//! ```text
//!  group of rank 0            group of rank 4
//!  0     1     2     3        4     5     6     7
//!  ◀─────┴─────┴─────┘        ◀─────┴─────┴─────┘    1. a leader waits for the words of its group
//!  complete ◀────────────────▶ complete              2. leaders wait for each other
//!  open ─▶ 1, 2, 3            open ─▶ 5, 6, 7         3. the others wait for their leader
//! ```
//!
//! Each rank arrives at its own word as in every round, so a round is decided by the words, as ever: who is missing, who
//! was late, what became of a round that was poisoned. The gates only repeat, to those who look at nothing else, what the
//! words and headers of others say: a gate that is at round `g` tells that all ranks behind it have arrived there, and the
//! header beside it what they call. This is the combining tree of Yew, Tzeng and Lawrie (1987) with one writer for each
//! word, of two levels, for ranks that share caches.
//!
//! **Who opens.** A leader advances its gates in every round, whatever it calls itself: who meets in groups must not wait
//! for ever because its leader does something else. It is told that there is a difference, and looks at all headers itself.
//!
//! **Without the gates.** A gate that is poisoned, or not opened soon, tells nothing. Then the words are looked at, as if
//! there were no groups: a round in which all ranks have arrived has succeeded, and who has not arrived is to blame,
//! whatever the leader did. So nobody stays behind with a leader that has arrived and stops.

use super::barrier::Stopping;
use super::{Call, Expired, Failure, Generation, Member, Payload, Platform, Slot};

/// The words with which the leader of a group speaks for others, by parity. Every rank has them; leaders use them.
#[repr(C)]
pub struct Gates<P: Platform> {
    /// The leader's group has arrived.
    pub complete: [Slot<P>; 2],
    /// All ranks have.
    pub open: [Slot<P>; 2],
}

/// What a rank has to know of the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    leader: usize,
    /// If this is the leader: the others of its group, and the other leaders.
    led: Option<Led>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Led {
    members: Box<[usize]>,
    leaders: Box<[usize]>,
}

impl Group {
    /// That of `rank`, where `leaders` has the leader of each rank's group, which leads itself.
    ///
    /// # Panics
    /// When `rank`, or a leader, is none of the ranks, or does not lead itself.
    pub fn new(leaders: &[usize], rank: usize) -> Self {
        assert!(leaders.iter().all(|leader| leaders[*leader] == *leader));
        let leader = leaders[rank];
        let others = |wanted: &dyn Fn(usize) -> bool| {
            (0..leaders.len()).filter(|other| *other != rank && wanted(*other)).collect()
        };
        let led = (leader == rank).then(|| Led {
            members: others(&|other| leaders[other] == rank),
            leaders: others(&|other| leaders[other] == other),
        });
        Group { leader, led }
    }
}

impl<P: Platform> Member<'_, P> {
    /// A call of one round that brings no data: like [`open`](Member::begin_call), in groups if there are any.
    ///
    /// # Errors
    /// As [`open`](Member::begin_call).
    #[inline]
    pub fn barrier(&mut self, call: &Call) -> Result<(), Failure> {
        let (parity, same) = match self.group {
            None => {
                self.write_header(call, |_| ());
                let parity = self.round()?;
                // Before the calls are compared: the next one can not begin before its line is back.
                self.prefetch_next_round(0);
                (parity, self.all_calls_match(call, parity))
            }
            Some(group) => self.barrier_in_groups(group, call)?,
        };
        self.check_calls(parity, same).map(drop)
    }

    #[cold]
    fn barrier_in_groups(&mut self, group: &Group, call: &Call) -> Result<(usize, bool), Failure> {
        self.write_header(call, |_| ());
        let same = self.round_by(|member, generation, _| match &group.led {
            Some(led) => member.lead(led, call, generation),
            None => member.follow(group.leader, call, generation),
        })?;
        let parity = self.completed.parity();
        Ok((parity, same || self.all_calls_match(call, parity)))
    }

    /// Waits for the leader. Whether it says that all ranks call the same.
    fn follow(&self, leader: usize, call: &Call, generation: Generation) -> Result<bool, Failure> {
        self.agrees(&self.segment.gates[leader].open[generation.parity()], call, generation)
    }

    /// Waits for the group and for the other leaders, and tells the group. Whether all ranks call the same; false also
    /// if that could not be learnt from the gates.
    fn lead(&self, led: &Led, call: &Call, generation: Generation) -> Result<bool, Failure> {
        let parity = generation.parity();
        led.members.iter().try_for_each(|rank| self.wait_for(*rank, generation))?;
        let calls_it = |rank: &usize| self.header(*rank, parity).read(|header| call.is_in(&header));
        let same = !call.refused && led.members.iter().all(calls_it);
        let own = &self.segment.gates[self.rank];
        self.open_gate(&own.complete[parity], generation, call, same)?;
        self.platform.fail_point("complete")?;
        let same = led.leaders.iter().try_fold(same, |same, leader| {
            let gate = &self.segment.gates[*leader].complete[parity];
            Ok::<_, Failure>(self.agrees(gate, call, generation)? & same)
        })?;
        self.open_gate(&own.open[parity], generation, call, same)?;
        Ok(same)
    }

    /// Waits at a gate. Whether it says that all ranks behind it call `call`.
    fn agrees(&self, gate: &Slot<P>, call: &Call, generation: Generation) -> Result<bool, Failure> {
        Ok(self.pass(gate, generation)? && gate.header.read(|header| call.is_in(&header)))
    }

    /// Opens this rank's gates, if it leads a group, after a round in which it has looked at all ranks.
    #[inline]
    pub(super) fn open_late(&self, call: &Call, same: bool) -> Result<(), Failure> {
        match self.group {
            Some(Group { led: Some(_), .. }) => self.open_both(call, same),
            _ => Ok(()),
        }
    }

    #[cold]
    fn open_both(&self, call: &Call, same: bool) -> Result<(), Failure> {
        let (gates, parity) = (&self.segment.gates[self.rank], self.completed.parity());
        self.open_gate(&gates.complete[parity], self.completed, call, same)?;
        self.open_gate(&gates.open[parity], self.completed, call, same)
    }

    /// Says that all ranks behind a gate have arrived, and call `call`, or do not. A gate that is poisoned says nothing,
    /// and need not.
    fn open_gate(
        &self,
        gate: &Slot<P>,
        generation: Generation,
        call: &Call,
        same: bool,
    ) -> Result<(), Failure> {
        gate.header.write(|mut header| Call { refused: !same, ..*call }.show(&mut header));
        let previous = generation.previous().previous().word();
        self.advance(&gate.state, previous, generation.word()).map(drop)
    }

    /// Waits at a gate. False: it tells nothing, but all ranks have arrived.
    fn pass(&self, gate: &Slot<P>, generation: Generation) -> Result<bool, Failure> {
        match self.wait_on(&gate.state, true, generation.reached()) {
            Ok(seen) if Generation::of_word(seen) == generation => Ok(true),
            Ok(_) | Err(Stopping::Expired(Expired)) => {
                self.others().try_for_each(|rank| self.wait_for(rank, generation))?;
                Ok(false)
            }
            Err(Stopping::Failure(failure)) => Err(failure),
        }
    }
}
