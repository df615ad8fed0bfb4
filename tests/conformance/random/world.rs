//! What a random world is made of.

use intranode::{Config, ReduceOp};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::started::{Fault, Settling};
use crate::model::OPERATIONS;

/// A number of ranks, and the sequence of their calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct World {
    pub(super) ranks: usize,
    staging: Option<usize>,
    group: Option<usize>,
    /// By rank, if there is a second communicator: of the ranks of the same color.
    pub(super) colors: Option<Vec<usize>>,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) kind: Kind,
    /// Whether it is a call of the second communicator, if there is one.
    pub(super) second: bool,
    pub(super) call: Call,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Call {
    Barrier,
    Allreduce {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
    },
    Allgather {
        len: usize,
    },
    /// By rank. `order`: the order of the blocks in the receive buffer of rank 0; other ranks rotate it.
    Allgatherv {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
    },
    Broadcast {
        len: usize,
        root: usize,
    },
    Reduce {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
        root: usize,
    },
    /// Inclusive or exclusive.
    Scan {
        len: usize,
        #[serde(with = "by_place")]
        op: ReduceOp,
        in_place: bool,
        exclusive: bool,
    },
    /// By rank.
    ReduceScatter {
        counts: Vec<usize>,
        #[serde(with = "by_place")]
        op: ReduceOp,
    },
    /// A gatherv and a scatterv, with gaps and an order as in an allgatherv.
    Rooted {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
        root: usize,
    },
    /// Half of a `Rooted`, which is started.
    Gatherv {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
        root: usize,
    },
    /// The other half, likewise.
    Scatterv {
        counts: Vec<usize>,
        gaps: Vec<usize>,
        order: Vec<usize>,
        root: usize,
    },
    Alltoall {
        len: usize,
    },
    /// By sender and receiver.
    Alltoallv {
        counts: Vec<Vec<usize>>,
        gaps: Vec<usize>,
        order: Vec<usize>,
    },
    /// The rank passes a buffer that is too short.
    Wrong {
        rank: usize,
        len: usize,
    },
    /// A call that is started, and may be a mistake of one rank. By rank, how often it is tested.
    Start {
        call: Box<Call>,
        fault: Option<(usize, Fault)>,
        tests: Vec<u8>,
    },
    /// By rank, what becomes of the calls that it has started and kept.
    Settle(Vec<Settling>),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    U8,
    U16,
    U32,
    U64,
    Usize,
    I8,
    I16,
    I32,
    I64,
    Isize,
    F32,
    F64,
}

/// A reduction is encoded as its index in the list.
mod by_place {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{OPERATIONS, ReduceOp};

    pub(super) fn serialize<S: Serializer>(op: &ReduceOp, serializer: S) -> Result<S::Ok, S::Error> {
        let place = OPERATIONS.iter().position(|other| other == op).expect("the list has all");
        serializer.serialize_u64(place as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReduceOp, D::Error> {
        let place = usize::deserialize(deserializer)?;
        OPERATIONS.get(place).copied().ok_or_else(|| D::Error::custom("no such reduction"))
    }
}

pub(super) fn world() -> impl Strategy<Value = World> {
    let staging = prop::sample::select(vec![None, Some(64), Some(128), Some(192), Some(1024), Some(4096)]);
    let group = prop::sample::select(vec![None, Some(1), Some(2), Some(3), Some(8)]);
    (1usize..=6, staging, group).prop_flat_map(|(ranks, staging, group)| {
        let colors = prop::option::weighted(0.3, prop::collection::vec(0usize..2, ranks));
        let steps = prop::collection::vec(step(ranks), 1..16);
        (colors, steps).prop_map(move |(colors, steps)| World { ranks, staging, group, colors, steps })
    })
}

/// Empty, a few elements, around the inline size, and many chunks.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 0usize..6, 0usize..120, 0usize..3000]
}

fn step(ranks: usize) -> impl Strategy<Value = Step> {
    use Kind::*;
    let kind = prop::sample::select(vec![U8, U16, U32, U64, Usize, I8, I16, I32, I64, Isize, F32, F64]);
    let each = |strategy| prop::collection::vec(strategy, ranks);
    let order = || Just((0..ranks).collect::<Vec<usize>>()).prop_shuffle();
    let op = || prop::sample::select(OPERATIONS.to_vec());
    let short = || prop_oneof![Just(0), 0usize..6, 0usize..60, 0usize..800];
    let call = prop_oneof![
        1 => Just(Call::Barrier),
        3 => (length(), op(), any::<bool>()).prop_map(|(len, op, in_place)| Call::Allreduce { len, op, in_place }),
        2 => length().prop_map(|len| Call::Allgather { len }),
        4 => (each(length().boxed()), each((0usize..5).boxed()), order())
            .prop_map(|(counts, gaps, order)| Call::Allgatherv { counts, gaps, order }),
        2 => (length(), 0..ranks).prop_map(|(len, root)| Call::Broadcast { len, root }),
        3 => (length(), op(), any::<bool>(), 0..ranks)
            .prop_map(|(len, op, in_place, root)| Call::Reduce { len, op, in_place, root }),
        3 => (length(), op(), any::<bool>(), any::<bool>())
            .prop_map(|(len, op, in_place, exclusive)| Call::Scan { len, op, in_place, exclusive }),
        3 => (each(short().boxed()), op()).prop_map(|(counts, op)| Call::ReduceScatter { counts, op }),
        4 => (each(short().boxed()), each((0usize..5).boxed()), order(), 0..ranks)
            .prop_map(|(counts, gaps, order, root)| Call::Rooted { counts, gaps, order, root }),
        2 => short().prop_map(|len| Call::Alltoall { len }),
        3 => (
            prop::collection::vec(prop::collection::vec(short(), ranks), ranks),
            each((0usize..5).boxed()),
            order(),
        )
            .prop_map(|(counts, gaps, order)| Call::Alltoallv { counts, gaps, order }),
        1 => (0..ranks, length()).prop_map(|(rank, len)| Call::Wrong { rank, len }),
        14 => started(ranks),
        6 => each_settles(ranks),
    ];
    (kind, any::<bool>(), call).prop_map(|(kind, second, call)| Step { kind, second, call })
}

fn started(ranks: usize) -> impl Strategy<Value = Call> {
    let each = |strategy| prop::collection::vec(strategy, ranks);
    let op = || prop::sample::select(OPERATIONS.to_vec());
    let short = || prop_oneof![Just(0), 0usize..6, 0usize..60, 0usize..800];
    let blocks = |len: BoxedStrategy<usize>| {
        let order = Just((0..ranks).collect::<Vec<usize>>()).prop_shuffle();
        (each(len), each((0usize..5).boxed()), order)
    };
    let counts = prop_oneof![
        3 => each(short().boxed()),
        1 => short().prop_map(move |count| vec![count; ranks]),
    ];
    let call = prop_oneof![
        2 => Just(Call::Barrier),
        3 => (length(), op()).prop_map(|(len, op)| Call::Allreduce { len, op, in_place: true }),
        2 => (length(), 0..ranks).prop_map(|(len, root)| Call::Broadcast { len, root }),
        3 => blocks(length().boxed()).prop_map(|(counts, gaps, order)| Call::Allgatherv { counts, gaps, order }),
        2 => (length(), op(), 0..ranks)
            .prop_map(|(len, op, root)| Call::Reduce { len, op, in_place: true, root }),
        2 => (length(), op(), any::<bool>())
            .prop_map(|(len, op, exclusive)| Call::Scan { len, op, in_place: true, exclusive }),
        2 => (counts, op()).prop_map(|(counts, op)| Call::ReduceScatter { counts, op }),
        1 => short().prop_map(|len| Call::Allgather { len }),
        2 => (blocks(short().boxed()), 0..ranks)
            .prop_map(|((counts, gaps, order), root)| Call::Gatherv { counts, gaps, order, root }),
        2 => (blocks(short().boxed()), 0..ranks)
            .prop_map(|((counts, gaps, order), root)| Call::Scatterv { counts, gaps, order, root }),
        1 => short().prop_map(|len| Call::Alltoall { len }),
    ];
    let fault = prop::sample::select(vec![Fault::Refused, Fault::Other, Fault::Blocking]);
    let fault = prop::option::weighted(0.15, (0..ranks, fault));
    let tests = prop::collection::vec(prop_oneof![2 => Just(0u8), 1 => 1u8..4], ranks);
    (call, fault, tests).prop_map(|(call, fault, tests)| Call::Start { call: Box::new(call), fault, tests })
}

fn each_settles(ranks: usize) -> impl Strategy<Value = Call> {
    use Settling::*;
    let settling = prop::sample::select(vec![Kept, Tested, Waited, WaitedLastFirst, Dropped, Forgotten]);
    prop::collection::vec(settling, ranks).prop_map(Call::Settle)
}

impl Call {
    /// Its operation, if it is a reduction.
    pub(super) fn reduction(&self) -> Option<ReduceOp> {
        match self {
            Call::Allreduce { op, .. } | Call::Reduce { op, .. } => Some(*op),
            Call::Scan { op, .. } | Call::ReduceScatter { op, .. } => Some(*op),
            _ => None,
        }
    }

    /// The same among fewer ranks.
    pub(super) fn among(mut self, ranks: usize) -> Self {
        match &mut self {
            Call::Barrier | Call::Allreduce { .. } | Call::Allgather { .. } | Call::Scan { .. } => {}
            Call::Alltoall { .. } | Call::Settle(_) => {}
            Call::Broadcast { root, .. } | Call::Reduce { root, .. } => *root %= ranks,
            Call::ReduceScatter { counts, .. } => counts.truncate(ranks),
            Call::Rooted { counts, gaps, order, root }
            | Call::Gatherv { counts, gaps, order, root }
            | Call::Scatterv { counts, gaps, order, root } => {
                counts.truncate(ranks);
                gaps.truncate(ranks);
                order.retain(|rank| *rank < ranks);
                *root %= ranks;
            }
            Call::Allgatherv { counts, gaps, order } => {
                counts.truncate(ranks);
                gaps.truncate(ranks);
                order.retain(|rank| *rank < ranks);
            }
            Call::Alltoallv { counts, gaps, order } => {
                counts.truncate(ranks);
                counts.iter_mut().for_each(|row| row.truncate(ranks));
                gaps.truncate(ranks);
                order.retain(|rank| *rank < ranks);
            }
            Call::Wrong { rank, .. } => *rank %= ranks,
            Call::Start { call, fault, .. } => {
                **call = (**call).clone().among(ranks);
                *fault = fault.map(|(rank, fault)| (rank % ranks, fault));
            }
        }
        self
    }
}

impl World {
    /// The configuration of its ranks.
    pub(super) fn configure(&self, config: Config) -> Config {
        let config = config.group(self.group);
        match self.staging {
            Some(staging) => config.chunk_bytes(staging),
            None => config,
        }
    }
}
