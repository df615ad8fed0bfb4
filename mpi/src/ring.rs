//! A ring of the leaders.

use std::ops::Range;

/// The steps of an allgatherv. Each block goes round: n - 1 steps, in which a node sends and receives as much as there is (Thakur,
/// Rabenseifner and Gropp 2005). MPI's own would need a buffer for all of it beside the caller's.
pub(crate) struct Ring {
    node: usize,
    counts: Vec<usize>,
    step: usize,
}

/// What a node sends in a step, and what it receives.
pub(crate) struct Step {
    pub(crate) own: Range<usize>,
    pub(crate) next: usize,
    pub(crate) theirs: Range<usize>,
    pub(crate) before: usize,
}

impl Ring {
    /// Of blocks that lie one after the other, each of a node.
    pub(crate) fn new(node: usize, counts: &[usize]) -> Self {
        Ring { node, counts: counts.to_vec(), step: 0 }
    }

    /// The block of the node this number of places before this one.
    fn block(&self, before: usize) -> Range<usize> {
        let node = (self.node + self.counts.len() - before) % self.counts.len();
        let start: usize = self.counts[..node].iter().sum();
        start..start + self.counts[node]
    }
}

impl Iterator for Ring {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let nodes = self.counts.len();
        if self.step + 1 >= nodes {
            return None;
        }
        let (own, theirs) = (self.block(self.step), self.block(self.step + 1));
        self.step += 1;
        Some(Step { own, next: (self.node + 1) % nodes, theirs, before: (self.node + nodes - 1) % nodes })
    }
}
