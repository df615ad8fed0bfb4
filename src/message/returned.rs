//! Replies in the buffers of the messages that they answer.
//!
//! A line that this core has read last is cheap to write, since it is in its own cache; one that the other core has read last is dear. So where two
//! ranks send by turns, the one that has received a message in buffers keeps these, and its reply lies in them, of whichever of the two channels they are.
//! The cell of the reply says so (`Kind::Returned`). Who receives that keeps them in turn. Nobody takes or frees buffers then.
//!
//! A rank keeps the buffers of one message only, and only of a rank to which it has sent such a message since the last that it has received. It gives them
//! back when it receives another one in buffers, when it has to look for more than the next message of a channel, and before it takes others for the same
//! rank. Meanwhile the channel has as much less room, a sixteenth at most.
//!
//! A reply that nobody receives takes room from the channel of who should. So there is one such at a time, which only goes into a channel where nothing
//! else is under way, and each rank leaves room for it (`Core::most_put_aside`).

use crate::message::core::Core;
use crate::message::in_buffers::InBuffers;
use crate::message::outgoing::Outgoing;
use crate::message::state::State;
use crate::protocol::Killed;

impl Outgoing {
    /// The buffers that were kept, if a message of `bytes` bytes to this rank takes as many, and may lie there. If not they are given back.
    pub(super) fn take_kept(
        &mut self,
        core: &Core,
        target: usize,
        bytes: usize,
    ) -> Result<Option<InBuffers>, Killed> {
        let Some(kept) = self.kept else { return Ok(None) };
        let (count, buffer_len) = (kept.mask.count_ones() as usize, core.layout.buffer_len);
        let is_alone = !kept.returned || core.post().has_read_all_but(&core.from(target), kept.mask);
        if count != bytes.div_ceil(buffer_len) || !is_alone {
            return self.release_kept(core, target).map(|()| None);
        }
        self.kept = None;
        let start = if kept.start + bytes <= count * buffer_len { kept.start } else { 0 };
        Ok(Some(InBuffers { start, ..kept }))
    }

    /// Gives back what was kept.
    #[cold]
    pub(super) fn release_kept(&mut self, core: &Core, target: usize) -> Result<(), Killed> {
        match self.kept.take() {
            Some(kept) => core.post().release(&kept.channel_to(core, target), kept.mask, target),
            None => Ok(()),
        }
    }
}

impl State {
    /// A message in buffers was read: keeps them for the reply, or frees them.
    #[inline]
    pub(super) fn has_read(&mut self, core: &Core, source: usize, buffers: InBuffers) -> Result<(), Killed> {
        self.release_kept(core)?;
        let outgoing = &mut self.peers[source].outgoing;
        if std::mem::take(&mut outgoing.replies) && core.returns_buffers {
            outgoing.kept = Some(InBuffers { returned: !buffers.returned, ..buffers });
            self.kept = Some(source);
            return Ok(());
        }
        buffers.release(core, source)?;
        core.to(source).prefetch_held();
        Ok(())
    }

    /// Gives back the buffers of the last message, if they were kept and its reply was not sent in them.
    #[inline]
    pub(super) fn release_kept(&mut self, core: &Core) -> Result<(), Killed> {
        match self.kept.take() {
            Some(source) => self.peers[source].outgoing.release_kept(core, source),
            None => Ok(()),
        }
    }
}
