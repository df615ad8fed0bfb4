//! A failure in words that one rank hands to another: a leader to the ranks of its node, and to the other leaders.

use std::ops::Range;
use std::time::Duration;

use crate::codes::Codes;
use crate::codes::codes;
use crate::error::{Error, NodeTimeout, Operation, TimeoutInfo};
use crate::nodes::map::NodeMap;
use crate::nodes::waiting::LeadersError;

/// The length of a notice in words. With it a gate is one round without staging.
pub(super) const NOTICE: usize = 12;

codes! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind: u64 {
        /// Nothing yet: the leader still waits.
        Waits = 1,
        /// The exchange is complete.
        Done = 2,
        Died = 3,
        Left = 4,
        Aborted = 5,
        Interrupted = 6,
        RanksLate = 7,
        NodeLate = 8,
        Transport = 9,
        /// A rank has made its communicator unusable.
        Poisoned = 10,
    }
}

/// The most late ranks that are named, and the bytes of a reason.
const LATE: usize = 6;
const REASON: usize = 56;

/// The words: kind, rank or node, detail, round, number of what follows, and that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice([u64; NOTICE]);

impl Notice {
    pub(super) const WAITS: Notice = Notice::plain(Kind::Waits);
    pub(super) const DONE: Notice = Notice::plain(Kind::Done);

    const fn plain(kind: Kind) -> Self {
        let mut words = [0; NOTICE];
        words[0] = kind as u64;
        Notice(words)
    }

    fn new(kind: Kind, about: usize, detail: u64, round: u32) -> Self {
        let mut words = [0; NOTICE];
        words[..4].copy_from_slice(&[kind.code(), about as u64, detail, round.into()]);
        Notice(words)
    }

    /// The words of it, to be handed on.
    pub(super) fn words(&self) -> &[u64; NOTICE] {
        &self.0
    }

    /// Of words that came from another rank.
    pub(super) fn of_words(words: &[u64]) -> Self {
        let mut notice = [0; NOTICE];
        notice.iter_mut().zip(words).for_each(|(word, from)| *word = *from);
        Notice(notice)
    }

    /// Of bytes that came from another leader.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Notice::of_words(&bytemuck::pod_collect_to_vec::<u8, u64>(&bytes[..bytes.len() / 8 * 8]))
    }

    /// Of an error of a rank, which names ranks by their numbers among all.
    pub(super) fn of_error(error: &Error, rank: usize) -> Self {
        match error {
            Error::RankDied { round, rank, pid, .. } => Notice::new(Kind::Died, *rank, (*pid).into(), *round),
            Error::RankLeft { round, rank, rounds, .. } => {
                Notice::new(Kind::Left, *rank, (*rounds).into(), *round)
            }
            Error::Aborted { round, rank, code, .. } => {
                Notice::new(Kind::Aborted, *rank, (*code).cast_unsigned().into(), *round)
            }
            Error::Interrupted { round, rank, .. } => Notice::new(Kind::Interrupted, *rank, 0, *round),
            Error::TimedOut { late, info, .. } => {
                let mut notice = Notice::new(Kind::RanksLate, 0, nanoseconds(info.timeout), info.round);
                let named = late.len().min(LATE);
                notice.0[4] = named as u64;
                notice.0[5..].iter_mut().zip(late.iter()).for_each(|(word, rank)| *word = *rank as u64);
                notice
            }
            Error::NodeLate(late) => Notice::new(Kind::NodeLate, late.node, nanoseconds(Some(late.timeout)), 0),
            Error::LeadersFailed { reason, .. } => Notice::with_reason(Kind::Transport, rank, reason),
            Error::Poisoned { rank, reason, .. } => Notice::with_reason(Kind::Poisoned, *rank, reason),
            other => Notice::with_reason(Kind::Poisoned, rank, &other.to_string()),
        }
    }

    /// Of a panic of a rank, in code of the program's own that is part of a call.
    pub(super) fn panicked(rank: usize) -> Self {
        Notice::with_reason(Kind::Poisoned, rank, "its thread panicked")
    }

    fn with_reason(kind: Kind, about: usize, reason: &str) -> Self {
        let mut notice = Notice::new(kind, about, 0, 0);
        let mut end = reason.len().min(REASON);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        notice.0[4] = end as u64;
        bytemuck::cast_slice_mut(&mut notice.0[5..])[..end].copy_from_slice(&reason.as_bytes()[..end]);
        notice
    }

    /// Of an error between leaders, at this round of this leader's.
    pub(super) fn of_leaders(
        error: LeadersError,
        map: &NodeMap,
        timeout: Option<Duration>,
        round: u32,
    ) -> Self {
        // A number of a node that is none would be a fault of the implementation.
        let leader = |node: usize| if node < map.nodes() { map.leader_of(node) } else { 0 };
        match error {
            LeadersError::Late { node } => Notice::new(Kind::NodeLate, node, nanoseconds(timeout), round),
            LeadersError::Died { node, pid } => Notice::new(Kind::Died, leader(node), pid.into(), round),
            LeadersError::Left { node } => Notice::new(Kind::Left, leader(node), 0, round),
            LeadersError::Aborted { node, code } => {
                Notice::new(Kind::Aborted, leader(node), code.cast_unsigned().into(), round)
            }
            LeadersError::Unusable { node, reason } => {
                Notice::with_reason(Kind::Poisoned, leader(node), &reason)
            }
            LeadersError::Failed { notice } => Notice::of_bytes(&notice),
            LeadersError::OwnNode => Notice::with_reason(Kind::Transport, 0, "a rank of this node has failed"),
            LeadersError::Transport { reason } => Notice::with_reason(Kind::Transport, 0, &reason),
        }
    }

    /// Whether the leader still waits.
    pub(super) fn is_waiting(&self) -> bool {
        Kind::from_code(self.0[0]) == Some(Kind::Waits)
    }

    /// The error that it is about; `None` if it is about none.
    pub(super) fn error(&self, operation: Operation, map: &NodeMap) -> Option<Error> {
        let [_, about, detail, round, ..] = self.0;
        // Words of another rank may be anything: numbers that are too large become some number.
        let (rank, round) = (about as usize, round as u32);
        Some(match Kind::from_code(self.0[0]) {
            Some(Kind::Waits | Kind::Done) => return None,
            Some(Kind::Died) => Error::RankDied { operation, round, rank, pid: detail as u32 },
            Some(Kind::Left) => Error::RankLeft { operation, round, rank, rounds: detail as u32 },
            Some(Kind::Aborted) => Error::Aborted { operation, round, rank, code: detail as u32 as i32 },
            Some(Kind::Interrupted) => Error::Interrupted { operation, round, rank },
            Some(Kind::RanksLate) => {
                let late: Box<[usize]> = self.0[5..]
                    .iter()
                    .take((self.0[4] as usize).min(LATE))
                    .map(|rank| *rank as usize)
                    .collect();
                let timeout = Some(Duration::from_nanos(detail)).filter(|timeout| !timeout.is_zero());
                let info = TimeoutInfo { timeout, pids: Vec::new(), round };
                Error::TimedOut { operation, late, info: Box::new(info) }
            }
            Some(Kind::NodeLate) => {
                let ranks: Range<usize> = if rank < map.nodes() { map.ranks_of(rank) } else { 0..0 };
                let timeout = Duration::from_nanos(detail);
                Error::NodeLate(Box::new(NodeTimeout { operation, node: rank, ranks, timeout }))
            }
            Some(Kind::Transport) => Error::LeadersFailed { operation, reason: self.reason().into() },
            Some(Kind::Poisoned) => {
                let reason = format!("rank {rank} has failed: {}", self.reason());
                Error::LeadersFailed { operation, reason: reason.into() }
            }
            None => Error::LeadersFailed { operation, reason: "what a leader has told makes no sense".into() },
        })
    }

    fn reason(&self) -> String {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0[5..]);
        String::from_utf8_lossy(&bytes[..(self.0[4] as usize).min(bytes.len())]).into_owned()
    }
}

/// An error of a node's communicator in a step of this call, with the numbers of ranks among all; `first` is that of the node's first.
pub(super) fn among_all(error: Error, operation: Operation, round: u32, first: usize) -> Error {
    let among = |rank: usize| first + rank;
    match error {
        Error::RankDied { rank, pid, .. } => Error::RankDied { operation, round, rank: among(rank), pid },
        Error::RankLeft { rank, rounds, .. } => Error::RankLeft { operation, round, rank: among(rank), rounds },
        Error::Aborted { rank, code, .. } => Error::Aborted { operation, round, rank: among(rank), code },
        Error::Interrupted { rank, .. } => Error::Interrupted { operation, round, rank: among(rank) },
        Error::Poisoned { rank, reason, .. } => Error::Poisoned { operation, round, rank: among(rank), reason },
        Error::TimedOut { late, info, .. } => {
            let late = late.iter().map(|rank| among(*rank)).collect();
            Error::TimedOut { operation, late, info: Box::new(TimeoutInfo { round, ..*info }) }
        }
        Error::ConcurrentUse { .. } => Error::ConcurrentUse { operation },
        Error::Refused { rank, .. } => Error::Refused { operation, round, rank: among(rank) },
        Error::OperationsDiffer { ranks, .. } => {
            Error::OperationsDiffer { operation, ranks: ranks.iter().map(|rank| among(*rank)).collect() }
        }
        Error::Mismatch { mut calls, .. } => {
            calls.iter_mut().for_each(|call| call.rank = among(call.rank));
            Error::Mismatch { operation, round, calls }
        }
        other => other,
    }
}

/// The error of this rank in a step, after which the communicator has ended: one that says so, also where that of the step does not end
/// the node's communicator. The other nodes wait for what does not come.
pub(super) fn ending(error: Error, operation: Operation, rank: usize) -> Error {
    if error.is_fatal() {
        return error;
    }
    let reason = format!("rank {rank} has failed: {error}");
    Error::LeadersFailed { operation, reason: reason.into() }
}

/// A time-out as a word; 0 is none.
fn nanoseconds(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_the_same_after_it_was_told() {
        let map = NodeMap::new(&[3, 2]).unwrap();
        let operation = Operation::Barrier;
        let info =
            || Box::new(TimeoutInfo { timeout: Some(Duration::from_secs(2)), pids: Vec::new(), round: 5 });
        let errors = [
            Error::RankDied { operation, round: 7, rank: 4, pid: 4711 },
            Error::RankLeft { operation, round: 7, rank: 4, rounds: 6 },
            Error::Aborted { operation, round: 7, rank: 0, code: -3 },
            Error::Interrupted { operation, round: 7, rank: 2 },
            Error::TimedOut { operation, late: [1, 4].into(), info: info() },
            Error::NodeLate(Box::new(NodeTimeout {
                operation,
                node: 1,
                ranks: 3..5,
                timeout: Duration::from_millis(1500),
            })),
            Error::LeadersFailed { operation, reason: "the network is down".into() },
        ];
        for error in errors {
            let told = Notice::of_error(&error, 0);
            let heard = Notice::of_bytes(bytemuck::cast_slice(told.words()));
            let heard = heard.error(operation, &map).expect("it is a failure");
            assert_eq!(format!("{heard:?}"), format!("{error:?}"));
        }
        assert!(Notice::WAITS.is_waiting() && Notice::DONE.error(operation, &map).is_none());
    }

    #[test]
    fn an_error_of_a_node_names_ranks_among_all() {
        use crate::error::CallSummary;
        use crate::protocol::Call;

        let operation = Operation::Allreduce;
        let of_node = |error| among_all(error, operation, 7, 3);
        let refused = Error::Refused { operation: Operation::Allgather, round: 5, rank: 1 };
        assert!(matches!(
            of_node(refused),
            Error::Refused { operation: Operation::Allreduce, round: 7, rank: 4 }
        ));
        let differ = Error::OperationsDiffer { operation, ranks: [1, 2].into() };
        assert!(matches!(of_node(differ), Error::OperationsDiffer { ranks, .. } if *ranks == [4, 5]));
        let calls = CallSummary::all(&[Call::default(); 2]);
        let Error::Mismatch { calls, .. } = of_node(Error::Mismatch { operation, round: 5, calls }) else {
            panic!("it is the same error");
        };
        assert_eq!(calls.iter().map(|call| call.rank).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn an_error_that_ends_the_communicator_says_so_and_why() {
        let operation = Operation::Allreduce;
        let differ = Error::OperationsDiffer { operation, ranks: [4].into() };
        let (notice, text) = (Notice::of_error(&differ, 4), differ.to_string());
        let error = ending(differ, operation, 4);
        assert!(error.is_fatal() && error.to_string().contains(&text), "{error}");
        // As on the other nodes, but for what of the text is cut there.
        let there = notice.error(operation, &NodeMap::new(&[3, 2]).unwrap()).unwrap();
        assert!(error.to_string().starts_with(&there.to_string()), "{there}");
        let left = Error::RankLeft { operation, round: 7, rank: 4, rounds: 6 };
        assert!(matches!(ending(left, operation, 3), Error::RankLeft { rank: 4, .. }));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        // The most that there is room for ends with a character, or within one.
        for (first, count) in [("", REASON / 2), ("x", REASON / 2 - 1)] {
            let reason = format!("{first}{}", "é".repeat(REASON));
            let error = Error::LeadersFailed { operation: Operation::Barrier, reason: reason.into() };
            assert_eq!(Notice::of_error(&error, 0).reason(), format!("{first}{}", "é".repeat(count)));
        }
    }

    #[test]
    fn words_without_a_meaning_are_a_failure() {
        let map = NodeMap::new(&[1]).unwrap();
        for words in [[0; NOTICE], [u64::MAX; NOTICE]] {
            let error = Notice::of_words(&words).error(Operation::Barrier, &map);
            assert!(matches!(error, Some(Error::LeadersFailed { .. })));
        }
        for kind in Kind::ALL {
            let mut words = [u64::MAX; NOTICE];
            words[0] = kind.code();
            let _ = Notice::of_words(&words).error(Operation::Barrier, &map);
        }
        // Nor is a node that there is none of.
        let notice = Notice::of_leaders(LeadersError::Died { node: 1, pid: 7 }, &map, None, 0);
        let error = notice.error(Operation::Barrier, &map);
        assert!(matches!(error, Some(Error::RankDied { rank: 0, pid: 7, .. })), "{error:?}");
    }
}
