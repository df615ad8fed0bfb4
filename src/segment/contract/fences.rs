//! The contract of a platform's asymmetric fences, as a program that every platform with symmetric memory can run.

use super::{Relaxed, SymmetricPlatform};

/// A side of the fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A rank that has written, and looks whether another one sleeps.
    Light,
    /// A rank that is about to sleep, and looks whether another one has written.
    Heavy,
}

/// Writes this side's word, and returns whether the other side's write of the same turn is seen. Of a light and a heavy side
/// at least one sees the other: Dekker's pattern, or store buffering.
pub(crate) fn write_and_look<P: SymmetricPlatform>(
    platform: &P,
    side: Side,
    own: &P::Word,
    other: &P::Word,
    turn: u32,
) -> bool {
    platform.store("write", own, turn, Relaxed);
    match side {
        Side::Light => platform.fence_light("light"),
        Side::Heavy => platform.fence_heavy("heavy"),
    }
    platform.load("look", other, Relaxed) == turn
}
