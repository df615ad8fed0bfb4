//! Which node is late, where leaders wait for one another.

use std::time::Duration;

use crate::nodes::waiting::LeadersError;

/// What a leader waits for: its answer in a [`RollCall`].
///
/// ```
/// use std::time::Duration;
/// use intranode::Awaited;
///
/// let awaited = Awaited::new(Some(2), Duration::from_millis(70));
/// assert_eq!(Awaited::from_bytes(&awaited.to_bytes()), Some(awaited));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    node: Option<usize>,
    waited: Duration,
}

/// The bytes of [`Awaited`] in a message: the node, and nanoseconds, both little-endian.
const LEN: usize = 16;

impl Awaited {
    /// The node whose message is awaited, and for how long it has been. `None`: any node, or one that is not known, as within a
    /// collective of the transport. Example: [`Awaited`].
    pub fn new(node: Option<usize>, waited: Duration) -> Self {
        Awaited { node, waited }
    }

    /// As a message: 16 bytes, the same on all machines. Example: [`Awaited`].
    pub fn to_bytes(self) -> [u8; LEN] {
        let node = self.node.and_then(|node| u64::try_from(node).ok()).unwrap_or(u64::MAX);
        let waited = u64::try_from(self.waited.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; LEN];
        bytes[..LEN / 2].copy_from_slice(&node.to_le_bytes());
        bytes[LEN / 2..].copy_from_slice(&waited.to_le_bytes());
        bytes
    }

    /// From such a message. `None`: it is none. Example: [`Awaited`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (node, waited) = bytes.split_at_checked(LEN / 2)?;
        let node = u64::from_le_bytes(node.try_into().ok()?);
        let waited = u64::from_le_bytes(waited.try_into().ok()?);
        let node = if node == u64::MAX { None } else { Some(usize::try_from(node).ok()?) };
        Some(Awaited { node, waited: Duration::from_nanos(waited) })
    }
}

/// Finds out who is late, for an implementation of [`Leaders`](crate::Leaders).
///
/// When the time-out of a leader is over, the node that it awaits may wait for another one, as where a fold goes from node to node.
/// So it asks all other leaders what they wait for. A leader answers while it is in a call of the leaders, and not while it is
/// somewhere else. The one that asks follows the edges of the wait-for graph from itself on (Chandy, Misra and Haas
/// 1983). At the end of the path is the node that is late: one that does not answer. Or nobody is late: a node on the path has not
/// waited for as long as the time-out, since messages come to it one after the other.
///
/// ```
/// use std::time::Duration;
/// use intranode::{Awaited, LeadersError, RollCall, Waiting};
///
/// let (timeout, waited) = (Duration::from_secs(1), Duration::from_secs(2));
/// // Node 3 of 4 waits for node 2, which waits for node 1. Node 0 is done.
/// let mut roll_call = RollCall::new(4, 3, Some(2), timeout);
/// roll_call.hear(2, Awaited::new(Some(1), waited));
/// assert_eq!(roll_call.outcome(false), None);
/// assert_eq!(roll_call.outcome(true), Some(Err(LeadersError::Late { node: 1 })));
///
/// // Something has come to node 1 only now.
/// roll_call.hear(1, Awaited::new(Some(0), Duration::ZERO));
/// assert_eq!(roll_call.outcome(false), Some(Ok(())));
///
/// /// Of a leader of 4 that has waited for `node` for as long as its time-out, if that is over.
/// fn begin(wait: &Waiting<'_>, own: usize, node: usize) -> Option<(RollCall, [u8; 16])> {
///     let timeout = wait.timeout().filter(|_| wait.is_over())?;
///     // What it tells the others with its question.
///     let awaited = Awaited::new(Some(node), wait.waited()).to_bytes();
///     Some((RollCall::new(4, own, Some(node), timeout), awaited))
/// }
/// # let _ = begin;
/// ```
#[derive(Clone, Debug)]
pub struct RollCall {
    own: usize,
    awaited: Option<usize>,
    timeout: Duration,
    /// By node.
    answers: Vec<Option<Awaited>>,
}

impl RollCall {
    /// Of the leader of node `own`, which has waited for `awaited` for as long as its time-out. `None` as in [`Awaited::new`]. Example:
    /// [`RollCall`].
    pub fn new(nodes: usize, own: usize, awaited: Option<usize>, timeout: Duration) -> Self {
        RollCall { own, awaited: awaited.filter(|node| *node < nodes), timeout, answers: vec![None; nodes] }
    }

    /// A node has answered, or asks itself. Other numbers than those of the nodes count for nothing. Example: [`RollCall`].
    pub fn hear(&mut self, node: usize, awaited: Awaited) {
        let nodes = self.answers.len();
        if let Some(answer) = self.answers.get_mut(node) {
            *answer = Some(Awaited { node: awaited.node.filter(|node| *node < nodes), ..awaited });
        }
    }

    /// What is known. `is_over`: no more answers are awaited. `None`: there may be more. `Some(Ok(()))`: nobody is late, and the wait
    /// begins again. Example: [`RollCall`].
    ///
    /// # Errors
    /// [`LeadersError::Late`], which names the node.
    pub fn outcome(&self, is_over: bool) -> Option<Result<(), LeadersError>> {
        let mut awaited = self.awaited;
        // A path without a cycle has fewer nodes.
        for _ in 0..self.answers.len() {
            let Some(node) = awaited.filter(|node| *node != self.own) else { break };
            match self.answers[node] {
                Some(answer) if answer.waited < self.timeout => return Some(Ok(())),
                Some(answer) => awaited = answer.node,
                None => return is_over.then_some(Err(LeadersError::Late { node })),
            }
        }
        match awaited {
            None => self.guess(is_over),
            // A cycle: all of them wait.
            Some(_) => Some(Err(LeadersError::Late { node: self.neighbour() })),
        }
    }

    /// Where the path ends with a leader that cannot say whom it waits for: nobody, while messages come to any; else the first that has
    /// not answered.
    fn guess(&self, is_over: bool) -> Option<Result<(), LeadersError>> {
        if self.answers.iter().flatten().any(|answer| answer.waited < self.timeout) {
            return Some(Ok(()));
        }
        let silent = |node: &usize| *node != self.own && self.answers[*node].is_none();
        let missing = (0..self.answers.len()).find(silent);
        let node = missing.unwrap_or_else(|| self.neighbour());
        (is_over || missing.is_none()).then_some(Err(LeadersError::Late { node }))
    }

    /// The node that this one awaits; the next, if it cannot say that.
    fn neighbour(&self) -> usize {
        self.awaited.unwrap_or((self.own + 1) % self.answers.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// By node: what it awaits, and whether for as long as the time-out.
    fn outcome(
        own: usize,
        awaited: Option<usize>,
        answers: &[Option<(Option<usize>, bool)>],
    ) -> [Option<usize>; 2] {
        let mut roll_call = RollCall::new(answers.len(), own, awaited, TIMEOUT);
        for (node, answer) in answers.iter().enumerate() {
            if let Some((awaited, is_long)) = answer {
                let waited = if *is_long { TIMEOUT } else { TIMEOUT / 2 };
                roll_call.hear(node, Awaited::new(*awaited, waited));
            }
        }
        [false, true].map(|is_over| match roll_call.outcome(is_over)? {
            Ok(()) => Some(GOES_ON),
            Err(LeadersError::Late { node }) => Some(node),
            Err(other) => panic!("{other}"),
        })
    }

    const GOES_ON: usize = usize::MAX;

    #[test]
    fn the_node_at_the_end_of_the_path_is_late() {
        let waits = |node| Some((Some(node), true));
        let cases = [
            ("the awaited one is silent", Some(2), [None, None, None, None], [None, Some(2)]),
            ("it waits for a silent one", Some(2), [None, None, waits(1), None], [None, Some(1)]),
            ("others are silent, too", Some(2), [None, waits(0), waits(1), None], [None, Some(0)]),
            ("it waits for this one", Some(2), [None, None, waits(3), None], [Some(2); 2]),
            ("a cycle without this one", Some(2), [None, waits(2), waits(1), None], [Some(2); 2]),
            ("it names no node", Some(2), [None, None, waits(9), None], [None, Some(0)]),
            ("messages come to others", None, [None, Some((None, false)), None, None], [Some(GOES_ON); 2]),
            ("it has not waited long", Some(2), [None, None, Some((Some(1), false)), None], [Some(GOES_ON); 2]),
            (
                "the next has not waited long",
                Some(2),
                [None, Some((None, false)), waits(1), None],
                [Some(GOES_ON); 2],
            ),
            ("it cannot say", Some(2), [None, waits(0), Some((None, true)), None], [None, Some(0)]),
            ("nobody can", None, [Some((None, true)), Some((None, true)), None, None], [None, Some(2)]),
            ("all are there", None, [Some((None, true)); 4], [Some(0); 2]),
        ];
        for (what, awaited, answers, expected) in cases {
            assert_eq!(outcome(3, awaited, &answers), expected, "{what}");
        }
    }

    #[test]
    fn what_is_no_answer_counts_for_nothing() {
        for len in (0..40).filter(|len| *len != LEN) {
            assert_eq!(Awaited::from_bytes(&vec![1; len]), None, "{len} bytes");
        }
        let longest = Awaited::new(None, Duration::MAX).to_bytes();
        assert_eq!(Awaited::from_bytes(&longest), Some(Awaited::new(None, Duration::from_nanos(u64::MAX))));
        let mut roll_call = RollCall::new(2, 0, Some(1), TIMEOUT);
        roll_call.hear(2, Awaited::new(None, TIMEOUT));
        assert_eq!(roll_call.outcome(true), Some(Err(LeadersError::Late { node: 1 })));
    }
}
