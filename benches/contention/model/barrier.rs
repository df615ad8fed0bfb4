//! The lines that a rank writes and awaits in a barrier: flat, as in `src/protocol/barrier.rs`, and hierarchical, as in
//! `src/protocol/hierarchical.rs`.

use std::iter::repeat_n;

use intranode::Blocks;

use super::machine::Machine;
use super::simulation::{LineId, Program, Step};

/// A barrier of some ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    ranks: usize,
    /// By rank: the leader of its group. None: every rank awaits all others.
    leaders: Option<Box<[usize]>>,
}

/// The size of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Whole L3s together, up to this many ranks. An L3 with more is divided.
    Of(usize),
    /// The same with an eighth of the ranks, but at least 8: at most eight groups.
    Eight,
    /// The ranks of one L3 only, at most the square root of their number.
    Root,
}

/// A leader's progress: its group has arrived.
const GROUP: u32 = 1;

/// A leader's progress: all ranks have arrived.
const ALL: u32 = 2;

impl Barrier {
    pub(crate) fn flat(ranks: usize) -> Self {
        Barrier { ranks, leaders: None }
    }

    pub(crate) fn groups(machine: &Machine, ranks: usize, rule: Rule) -> Self {
        let leaders = match rule {
            Rule::Of(size) => whole_caches(machine, ranks, size),
            Rule::Eight => whole_caches(machine, ranks, ranks.div_ceil(8).max(8)),
            Rule::Root => parts_of_caches(machine, ranks, (ranks - 1).isqrt() + 1),
        };
        Barrier { ranks, leaders: Some(leaders.into()) }
    }

    /// By rank: the leader of its group.
    #[allow(dead_code, reason = "for tests")]
    pub(crate) fn leaders(&self) -> Option<&[usize]> {
        self.leaders.as_deref()
    }

    /// The line of a rank's arrival word. A rank has two, by the parity of the round.
    fn line(&self, rank: usize, round: u32) -> LineId {
        rank * 2 + (round % 2) as usize
    }

    fn lines_of(&self, ranks: impl Iterator<Item = usize>, round: u32) -> Box<[LineId]> {
        ranks.map(|rank| self.line(rank, round)).collect()
    }

    /// The other ranks, beginning with the successor.
    fn others(&self, rank: usize) -> impl Iterator<Item = usize> {
        let ranks = self.ranks;
        (rank + 1..rank + ranks).map(move |other| other % ranks)
    }
}

/// The ranks of several L3s together, up to `size`. An L3 with more is divided.
fn whole_caches(machine: &Machine, ranks: usize, size: usize) -> Vec<usize> {
    let in_order: Vec<usize> = (0..ranks).collect();
    let mut leaders: Vec<usize> = Vec::with_capacity(ranks);
    let mut incomplete = None;
    for cache in in_order.chunk_by(|one, other| machine.domain(*one) == machine.domain(*other)) {
        if cache.len() > size {
            incomplete = None;
            leaders.extend(divided(cache, size));
        } else {
            let leader = incomplete.filter(|leader| cache[0] - leader < size).unwrap_or(cache[0]);
            incomplete = Some(leader);
            leaders.extend(cache.iter().map(|_| leader));
        }
    }
    leaders
}

/// The ranks of each L3 in parts of at most `size`; successive ranks if few of them share an L3.
fn parts_of_caches(machine: &Machine, ranks: usize, size: usize) -> Vec<usize> {
    let in_order: Vec<usize> = (0..ranks).collect();
    let caches = in_order.chunk_by(|one, other| machine.domain(*one) == machine.domain(*other));
    if caches.clone().count() > 2 * ranks.div_ceil(size) {
        return in_order.iter().map(|rank| rank - rank % size).collect();
    }
    caches.flat_map(|cache| divided(cache, size)).collect()
}

/// The leaders of equal parts of at most `size` ranks.
fn divided(ranks: &[usize], size: usize) -> impl Iterator<Item = usize> {
    let parts = Blocks::new(ranks.len(), ranks.len().div_ceil(size));
    parts.counts().into_iter().zip(parts.displs()).flat_map(|(count, first)| repeat_n(ranks[first], count))
}

impl Program for Barrier {
    fn lines(&self) -> usize {
        2 * self.ranks
    }

    fn owner(&self, line: LineId) -> usize {
        line / 2 % self.ranks
    }

    fn steps(&self, rank: usize, round: u32) -> Vec<Step> {
        let word = Step::Write(self.line(rank, round));
        let Some(leaders) = &self.leaders else {
            let next = Step::Prefetch(self.line(rank, round + 1));
            return vec![word, Step::Await(self.lines_of(self.others(rank), round)), next];
        };
        if leaders[rank] != rank {
            return vec![word, Step::AwaitProgress(self.lines_of([leaders[rank]].into_iter(), round), ALL)];
        }
        let members = (0..self.ranks).filter(|other| *other != rank && leaders[*other] == rank);
        let other_leaders = (0..self.ranks).filter(|other| *other != rank && leaders[*other] == *other);
        vec![
            word,
            Step::Await(self.lines_of(members, round)),
            Step::Progress(self.line(rank, round), GROUP),
            Step::AwaitProgress(self.lines_of(other_leaders, round), GROUP),
            Step::Progress(self.line(rank, round), ALL),
        ]
    }
}
