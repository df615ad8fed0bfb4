//! The settings that a segment's creator writes into it for all ranks.

/// Settings for all ranks of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentSettings {
    /// Ranks sleep on mutexes and condition variables instead of futexes.
    pub(crate) pthread: bool,
    /// How they meet.
    pub(crate) shape: BarrierShape,
    /// When they try single copy (CMA).
    pub(crate) single_copy: SingleCopy,
}

/// How the ranks of a segment meet, as it is written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BarrierShape(pub(crate) u32);

impl BarrierShape {
    /// Every rank reads the words of all others.
    pub(crate) const FLAT: BarrierShape = BarrierShape(0);
}

/// When ranks try single copy, as it is written in their segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SingleCopy(pub(crate) u32);
