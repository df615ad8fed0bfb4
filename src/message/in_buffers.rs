//! Where a message lies that is in buffers.

use crate::message::core::Core;
use crate::protocol::Killed;
use crate::protocol::message::{self, Kind, Mask, buffers};
use crate::segment::message_memory::MappedChannel;

/// The buffers that a message lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InBuffers {
    pub(super) mask: Mask,
    /// Where it begins in them, in bytes.
    pub(super) start: usize,
    /// Whether they are of the channel to its sender.
    pub(super) returned: bool,
}

impl InBuffers {
    /// Those of a message that has come, or of a part of one.
    pub(super) fn of(cell: &message::Envelope) -> Self {
        InBuffers { mask: cell.mask, start: cell.start(), returned: cell.kind.is_returned() }
    }

    /// The channel that they are of, for a message from this rank.
    pub(super) fn channel_from<'c>(&self, core: &'c Core, source: usize) -> MappedChannel<'c> {
        if self.returned { core.to(source) } else { core.from(source) }
    }

    /// The same for one to this rank.
    pub(super) fn channel_to<'c>(&self, core: &'c Core, target: usize) -> MappedChannel<'c> {
        if self.returned { core.from(target) } else { core.to(target) }
    }

    /// Where the message goes on behind `bytes` bytes.
    pub(super) fn behind(self, bytes: usize) -> Self {
        InBuffers { start: self.start + bytes, ..self }
    }

    /// Copies the beginning of a message from this rank.
    pub(super) fn read(&self, core: &Core, source: usize, target: &mut [u8]) {
        buffers::read_from(&self.channel_from(core, source), self.mask, self.start, target);
    }

    /// Frees them when a message from this rank was read.
    pub(super) fn release(&self, core: &Core, source: usize) -> Result<(), Killed> {
        core.post().release(&self.channel_from(core, source), self.mask, source)
    }

    /// What the cell of a message in them says.
    pub(super) fn kind(&self) -> Kind {
        match (self.returned, self.start) {
            (true, _) => Kind::Returned,
            (false, 0) => Kind::Message,
            (false, _) => Kind::Shifted,
        }
    }
}
