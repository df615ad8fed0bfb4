//! How a side stops polling a channel, and is told when something is in it again.
//!
//! ```text
//!            ┌──────── something has come ─────────┐
//!            ▼                                     │
//!          Awake ──▶ the bell is marked ──▶ fence ──▶ look once more ──▶ Parked ──▶ sleep
//!            ▲                                                          │
//!            └─────── the other side takes the mark, and rings ─────────┘
//! ```
//!
//! A rank sleeps on one bell ([`wait`](super::wait)); an endpoint has a bell in each connection, and sleeps on all of them at once.
//! The pattern is the same for each: mark, fence, look, sleep. A publisher behind the mark takes it away, once, and rings.
//!
//! * **A channel is looked at between the mark and the sleep**: [`Marked`] is a proof token, and only looking makes a parked
//!   channel of it, behind a [fence].
//! * **One fence is behind the marks of all channels**, however many they are.
//! * **A ring is not lost before the sleep.** It lasts until it is noticed: the bell has another value than the ticket, and in
//!   production a packet waits in a socket. The side that marks has noticed the rings of before, and looks behind that.
//! * **A mark may stay** while its owner is awake, because another connection has woken it. The next message on this one takes it
//!   and rings, which wakes the channel; or the owner marks it again.

use super::super::Ordering::Relaxed;
use super::super::generation::WAITER;
use super::super::symmetric::SymmetricPlatform;
use super::Post;

/// Whether a side polls a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// It does.
    #[default]
    Awake,
    /// The other side rings before this one has to look again. With the value of the bell, which changes then.
    Parked(u32),
}

/// The bell is marked, and the channel has not been looked at since the fence behind that.
#[derive(Debug)]
#[must_use = "the channel has to be looked at once more"]
pub struct Marked(u32);

/// A fence behind all marks that were made before.
#[derive(Debug)]
pub struct Fenced(());

/// The fence behind the marks of all channels that are parked together.
pub fn fence<P: SymmetricPlatform>(platform: &P) -> Fenced {
    platform.fence_heavy("park-fence");
    Fenced(())
}

impl Marked {
    /// Looks once more, and parks if there is nothing. The fence was made behind this mark.
    pub fn look(self, _: &Fenced, has_work: impl FnOnce() -> bool) -> Attention {
        if has_work() { Attention::Awake } else { Attention::Parked(self.0) }
    }
}

impl<P: SymmetricPlatform> Post<'_, P> {
    /// Begins to park: whatever the other side publishes, and this one does not see by [looking](Marked::look) behind a [fence],
    /// rings.
    pub fn park(&self) -> Marked {
        let bell = &self.0.segment.bells[self.0.rank].word;
        Marked(self.0.platform.fetch_or("park-mark", bell, WAITER, Relaxed) | WAITER)
    }

    /// Whether the bell of `peer` is marked: it would have to be woken. By the time that this is known it may be otherwise.
    pub fn is_marked(&self, peer: usize) -> bool {
        let bell = &self.0.segment.bells[peer].word;
        self.0.platform.load("look-marked", bell, Relaxed) & WAITER != 0
    }
}
