//! What the maker of a segment decides for all its ranks, and writes into it.

/// What whoever makes a segment decides for all its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentSettings {
    /// They sleep by mutexes and condition variables, and not by what the system does best.
    pub(crate) pthread: bool,
    /// How they meet.
    pub(crate) shape: BarrierShape,
    /// When they try to read in each other's memory.
    pub(crate) single_copy: SingleCopy,
}

/// How the ranks of a segment meet, as it is written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BarrierShape(pub(crate) u32);

impl BarrierShape {
    /// Every rank looks at all others.
    pub(crate) const FLAT: BarrierShape = BarrierShape(0);
}

/// When ranks try it, as it is written in their segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SingleCopy(pub(crate) u32);
