//! A random sequence of calls: what each rank calls, and in what way.

use intranode::protocol::allreduce::Shape;
use intranode::protocol::{Call, Staging};

use crate::harness::choice;

/// What one call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Barrier,
    /// A reduction of this number of elements.
    Allreduce(usize),
    /// The same of which ranks get different results, or none.
    Reduction(Shape, usize),
    /// A reduction of which each rank gets a block of this number of elements.
    ReduceScatter(Vec<usize>),
    /// By rank, the length of its block; a broadcast has one that is not 0.
    Transfer(Vec<usize>),
    /// The same where only one rank reads: a gather.
    Gather(usize, Vec<usize>),
    /// A barrier, a reduction or a transfer, which is started and completed later.
    Started(Box<Operation>),
    /// A write epoch and a read epoch of a region of which each rank owns one block.
    Epochs,
}

/// One call of every rank.
#[derive(Clone, Debug)]
pub struct Step {
    operation: Operation,
    /// These ranks call something else.
    deviating: Vec<usize>,
    /// These ranks refuse.
    pub refusers: Vec<usize>,
    /// Blocks are fetched from where they lie.
    pub fetched: Option<Fetched>,
    /// Blocks are read in place, and contributions to a reduction.
    pub placed: Option<Placed>,
    /// On these ranks the result of a reduction takes the place of what they send.
    pub over: Vec<usize>,
}

/// Which blocks of a transfer are fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The ranks whose blocks are, if they are not read in place.
    pub senders: Vec<usize>,
    /// These ranks cannot.
    pub barred: Vec<usize>,
}

/// Which blocks are read in place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The ranks whose blocks are.
    pub lenders: Vec<usize>,
    /// The blocks are only offered, as these ranks may not have them. `None`: all have.
    pub lacking: Option<Vec<usize>>,
}

/// All calls of an execution.
#[derive(Clone, Debug)]
pub struct Script {
    pub ranks: usize,
    pub staging: Staging,
    pub slices_from: usize,
    /// By rank: the leader of its group. Empty: the barrier is flat.
    pub leaders: Vec<usize>,
    pub steps: Vec<Step>,
}

/// The element's size, which the chunk must be a multiple of.
pub const ELEMENT: usize = size_of::<u64>();

impl Script {
    /// A random sequence. `mishaps`: one step of how many is a mismatch, and one a refusal; 0 is none.
    pub fn random(ranks: usize, steps: usize, mishaps: usize) -> Self {
        // Small enough that what is long for a header takes several chunks, and a slice may be empty.
        let chunk = choice::one_of(&[3, 8, 21]) * ELEMENT;
        let staging = Staging {
            capacity: 4 * chunk.next_power_of_two(),
            chunk,
            short: choice::one_of(&[0, chunk]),
            chunk_of_one: 2 * chunk,
            folded: chunk,
            rotation_from: 2 * ELEMENT,
            rotation: 2 * chunk.next_power_of_two(),
            rotation_of_one: 4 * chunk.next_power_of_two(),
            oversubscribed: false,
            swaps: choice::once_in(2),
        };
        let slices_from = choice::one_of(&[0, chunk, usize::MAX]);
        let some = || match mishaps > 0 && choice::once_in(mishaps) {
            true => (0..ranks).filter(|_| choice::once_in(ranks)).collect(),
            false => Vec::new(),
        };
        let half = || (0..ranks).filter(|_| choice::once_in(2)).collect();
        // All of them more often than chance has it.
        let lenders = || {
            let some: Vec<usize> = half();
            if some.starts_with(&[0, 1]) { (0..ranks).collect() } else { some }
        };
        let fetched = || choice::once_in(2).then(|| Fetched { senders: half(), barred: some() });
        let placed = || {
            choice::once_in(2).then(|| Placed { lenders: lenders(), lacking: choice::once_in(2).then(some) })
        };
        let step = |_| Step {
            operation: Operation::random(ranks),
            deviating: some(),
            refusers: some(),
            fetched: fetched(),
            placed: placed(),
            over: half(),
        };
        let leaders = if choice::once_in(2) { Vec::new() } else { random_groups(ranks) };
        Script { ranks, staging, slices_from, leaders, steps: (0..steps).map(step).collect() }
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// What a rank publishes in a step.
    pub fn call(&self, index: usize, rank: usize) -> Call {
        let (number, length) = self.operation(index, rank).number_and_length();
        let refused = self.steps[index].refusers.contains(&rank);
        let (length, extra, phase) = (length as u64, index as u64, (index % 3) as u8);
        Call { operation: number, reduction: 1, element: 2, refused, phase, shape: 8, length, extra }
    }

    /// What a rank does in a step.
    pub fn operation(&self, index: usize, rank: usize) -> Operation {
        let step = &self.steps[index];
        match &step.operation {
            operation if !step.deviating.contains(&rank) => operation.clone(),
            Operation::Barrier => Operation::Allreduce(40),
            _ => Operation::Barrier,
        }
    }
}

/// The leader of each rank's group: ranks that follow one another, or that do not.
fn random_groups(ranks: usize) -> Vec<usize> {
    let groups = 1 + choice::below(ranks.min(4));
    let group = |rank| if choice::once_in(2) { rank % groups } else { rank * groups / ranks };
    let numbers: Vec<usize> = (0..ranks).map(group).collect();
    let leader = |number: &usize| numbers.iter().position(|other| other == number).expect("at least its own");
    numbers.iter().map(leader).collect()
}

impl Operation {
    /// What ranks that make the same call agree on.
    fn number_and_length(&self) -> (u8, usize) {
        match self {
            Operation::Barrier => (1, 0),
            Operation::Allreduce(elements) => (2, *elements),
            Operation::Transfer(lengths) => (3, lengths.iter().sum()),
            Operation::Epochs => (4, 1),
            Operation::Reduction(_, elements) => (5, *elements),
            Operation::ReduceScatter(lengths) => (6, lengths.iter().sum()),
            Operation::Gather(_, lengths) => (7, lengths.iter().sum()),
            // A call that is started is not the one that blocks.
            Operation::Started(operation) => {
                let (number, length) = operation.number_and_length();
                (7 + number, length)
            }
        }
    }

    fn random(ranks: usize) -> Self {
        // 96 bytes fit into a header.
        let elements = || choice::one_of(&[0, 1, 12, 13, 30, 70]);
        let bytes = || choice::one_of(&[0, 0, 1, 96, 97, 168, 169, 400]);
        let root = || choice::below(ranks);
        let shape =
            || choice::one_of(&[Shape::Root(root()), Shape::Root(root()), Shape::Inclusive, Shape::Exclusive]);
        let lengths = || (0..ranks).map(|_| choice::one_of(&[0, 1, 2, 7])).collect();
        match choice::below(13) {
            0 => Operation::Barrier,
            1 => Operation::Allreduce(elements()),
            2 => Operation::Transfer((0..ranks).map(|_| bytes()).collect()),
            3 => Operation::Epochs,
            4 => Operation::Reduction(shape(), elements()),
            5 => Operation::ReduceScatter(lengths()),
            6 => Operation::Gather(root(), (0..ranks).map(|_| bytes()).collect()),
            7 => Operation::Started(Box::new(Operation::Barrier)),
            8 => Operation::Started(Box::new(Operation::Allreduce(elements()))),
            9 => Operation::Started(Box::new(Operation::Transfer((0..ranks).map(|_| bytes()).collect()))),
            10 => Operation::Started(Box::new(Operation::Reduction(shape(), elements()))),
            11 => Operation::Started(Box::new(Operation::ReduceScatter(lengths()))),
            _ => {
                let mut lengths = vec![0; ranks];
                lengths[choice::below(ranks)] = bytes();
                Operation::Transfer(lengths)
            }
        }
    }
}
