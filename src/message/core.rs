//! What all parts of a rank's messages share: its channels, and what became of requests that were dropped.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::codes::Codes;
use crate::copy::cpu;
use crate::error::{Error, Operation, TimeoutInfo};
use crate::protocol::message::{Mask, Post};
use crate::protocol::{Cause, CauseKind, Failure};
use crate::rank::cma_peers::ProbeCookie;
use crate::rank::rank_state::RankState;
use crate::segment::channels::Channels;
use crate::segment::message_memory::{BUFFER, ChannelLayout, MappedChannel};
use crate::segment::platform::ShmPlatform;
use crate::segment::recorder::Lane;
use crate::symmetric::handle::{Object, Symmetric};
use crate::sys::cma::Token;
use crate::tuning::{MESSAGE_ASKED_PART_BYTES, MESSAGE_EAGER_BYTES, MESSAGE_RETURNED_BUFFERS};

/// The channels of a rank. Requests keep it, so that they can be dropped after the [`Messages`](crate::Messages).
pub struct Core {
    pub(crate) rank_state: Arc<RankState>,
    /// That of the rank's symmetric memory: found once, since it is needed for each message.
    pub(crate) platform: ShmPlatform,
    channels: Channels,
    /// What the memory of the channels is to the other ranks.
    _object: Object,
    pub(crate) layout: ChannelLayout,
    /// The longest part of a message that its receiver has asked for, in buffers.
    pub(crate) part_buffers: usize,
    /// Whether replies lie in the buffers of what they answer.
    pub(super) returns_buffers: bool,
    /// In how many of a sender's buffers messages may lie that nobody has received. There is room for a part then, and for a reply that lies where
    /// this sender has sent.
    pub(crate) most_put_aside: usize,
    cookie: ProbeCookie,
    /// Whether two copies, one by each side, take less time on this machine than one by the system.
    pub(crate) prefers_buffers: bool,
    /// The receives that were dropped before they were complete.
    dropped: Mutex<Vec<u64>>,
    any_dropped: AtomicBool,
}

impl Core {
    pub(crate) fn new(rank_state: Arc<RankState>, memory: Symmetric<u64>, layout: ChannelLayout) -> Self {
        let (cookie, dropped, any_dropped) = (ProbeCookie::new(), Mutex::default(), AtomicBool::new(false));
        let prefers_buffers = !rank_state.system_copies_messages();
        let Symmetric { object, memory } = memory;
        let channels = Channels::new(memory, &layout, rank_state.rank);
        let platform = *rank_state.one_sided.get().unwrap_or(&rank_state.platform);
        let part_buffers = buffers_of(&layout, MESSAGE_ASKED_PART_BYTES);
        let returns_buffers = returns_buffers(&layout);
        let returned = if returns_buffers { MESSAGE_RETURNED_BUFFERS } else { 0 };
        Core {
            rank_state,
            platform,
            channels,
            _object: object,
            layout,
            part_buffers,
            returns_buffers,
            most_put_aside: layout.buffers.saturating_sub(part_buffers + returned),
            cookie,
            prefers_buffers,
            dropped,
            any_dropped,
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank_state.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.rank_state.size()
    }

    /// This rank's access to its channels.
    #[inline]
    pub(crate) fn post(&self) -> Post<'_, ShmPlatform> {
        Post::new(&self.platform, self.rank_state.mapped.segment(), self.rank_state.rank)
    }

    /// What counts this rank's calls, with `INTRANODE_REPORT`. A forked child, whose calls fail, does not have its memory (I17).
    #[inline(always)]
    pub(crate) fn recorder(&self) -> Option<&'static Lane> {
        self.rank_state.platform.recorder.filter(|_| !self.rank_state.mapped.forked())
    }

    /// Counts a call that takes no time, or goes on in others.
    #[inline]
    pub(crate) fn count(&self, operation: Operation, bytes: usize) {
        if let Some(lane) = self.recorder() {
            lane.count(operation.code(), bytes);
        }
    }

    /// Counts the bytes of a message that has been received by a request.
    pub(crate) fn received(&self, bytes: usize) {
        if let Some(lane) = self.recorder() {
            lane.received(Operation::Recv.code(), bytes);
        }
    }

    /// Copies a part of a message. With `INTRANODE_REPORT` a long one is timed, so that it is no waiting.
    #[inline]
    pub(crate) fn copies<R>(&self, bytes: usize, copy: impl FnOnce() -> R) -> R {
        match self.recorder() {
            Some(lane) if bytes >= BUFFER => lane.copy(copy),
            _ => copy(),
        }
    }

    /// The channel to a rank.
    #[inline]
    pub(crate) fn to(&self, target: usize) -> MappedChannel<'_> {
        self.channels.to(target)
    }

    /// The channel from a rank.
    #[inline]
    pub(crate) fn from(&self, source: usize) -> MappedChannel<'_> {
        self.channels.from(source)
    }

    /// This rank sends no more.
    pub(crate) fn close(&self) {
        // An error occurs in tests only.
        let _ = self.post().close(self.channels.closed(self.rank()));
        for peer in 0..self.size() {
            let _ = self.post().ring(peer);
        }
    }

    /// Whether nothing stands in the way of a call with this rank, or with any, as far as this rank can know. If something
    /// does, [`check_rank`](Self::check_rank) and [`dropped`](Self::dropped) say what.
    #[inline(always)]
    pub(crate) fn is_ready(&self, rank: Option<usize>) -> bool {
        !self.rank_state.mapped.forked() && rank.is_none_or(|rank| rank < self.size()) && !self.has_dropped()
    }

    /// This rank's access to its channels, and the one to a rank, if nothing stands in the way of a message, as far as this one can know. If
    /// something does, [`check`](Self::check) says what.
    #[inline(always)]
    pub(crate) fn reach(&self, rank: usize) -> Option<(Post<'_, ShmPlatform>, MappedChannel<'_>)> {
        let post = self.is_ready(Some(rank)).then(|| self.post())?;
        let (channel, closed) = self.channels.to_open(rank);
        // A rank that dies poisons.
        (!post.is_poisoned() && !post.is_closed(closed)).then_some((post, channel))
    }

    #[inline(always)]
    fn has_closed(&self, post: &Post<'_, ShmPlatform>, rank: usize) -> bool {
        post.is_closed(self.channels.closed(rank))
    }

    /// Why this rank sends and receives no more. What it has published can be seen afterwards.
    #[inline]
    pub(crate) fn gone(&self, rank: usize) -> Option<CauseKind> {
        if self.has_closed(&self.post(), rank) {
            Some(CauseKind::Left)
        } else if self.rank_state.has_died(rank) {
            Some(CauseKind::Died)
        } else {
            None
        }
    }

    /// Whether a rank has died, as this process has learnt, or another one that has ended the communicator for it.
    pub(crate) fn has_died(&self, rank: usize) -> bool {
        let is_cause = |failure| match failure {
            Failure::Dead(Some(cause)) => (cause.kind, cause.rank) == (CauseKind::Died, rank),
            _ => false,
        };
        self.rank_state.has_died(rank) || self.post().check().is_err_and(is_cause)
    }

    /// Whether messages go on with a rank, or with any, as far as this one can know. `goes_on`: whether what is waited for may come although all others
    /// are gone.
    ///
    /// # Errors
    /// The cause, when the communicator has ended, but for a rank that has left; else that all ranks are gone that are waited for, or that
    /// any has died.
    #[inline]
    pub(crate) fn check(
        &self,
        operation: Operation,
        source: Option<usize>,
        goes_on: impl FnOnce() -> bool,
    ) -> Result<(), Error> {
        let failed = |failure| self.failed(operation, failure);
        self.post().check().map_err(failed)?;
        let gone = match source {
            Some(rank) => self.gone(rank).map(|kind| (kind, rank)).or_else(|| self.death()),
            None => self.death().or_else(|| self.all_gone().filter(|_| !goes_on())),
        };
        match gone {
            None => Ok(()),
            Some((kind, rank)) => {
                self.post().check_closed().map_err(failed)?;
                Err(failed(Failure::Dead(Some(Cause { kind, rank, detail: 0 }))))
            }
        }
    }

    /// Whether all other ranks are gone: then how the last of them.
    fn all_gone(&self) -> Option<(CauseKind, usize)> {
        let mut others = (0..self.size()).filter(|rank| self.size() == 1 || *rank != self.rank());
        others.try_fold(None, |_, rank| self.gone(rank).map(|kind| Some((kind, rank)))).flatten()
    }

    /// A death ends all waits. The cause of the communicator's end does not tell of it if another rank had left before.
    #[inline]
    fn death(&self) -> Option<(CauseKind, usize)> {
        // A rank that dies poisons.
        let mut ranks = if self.post().is_poisoned() { 0..self.size() } else { 0..0 };
        ranks.find(|rank| self.rank_state.has_died(*rank)).map(|rank| (CauseKind::Died, rank))
    }

    /// The most buffers of a sender's that hold parts of long messages, or will: the others are left to short ones, for which
    /// nobody asks. Fewer than [`most_asked`](Self::most_asked).
    pub(crate) fn window_buffers(&self) -> usize {
        let buffers = self.layout.buffers;
        (buffers - buffers / 4).min(self.most_asked() - (buffers / 8).max(1)).max(1)
    }

    /// The same where some have asked for one buffer more: the longest message that is sent without waiting always finds room.
    pub(crate) fn most_asked(&self) -> usize {
        let buffers = self.layout.buffers;
        (buffers - buffers / 8).min(buffers - self.eager() / self.layout.buffer_len).max(2)
    }

    /// The longest message that comes right behind its offer, in bytes: half of a sender's buffers are left to others.
    pub(crate) fn most_unasked(&self) -> usize {
        self.layout.buffers / 2 * self.layout.buffer_len
    }

    /// The longest message that is sent without waiting for its receiver, in bytes.
    pub(crate) fn eager(&self) -> usize {
        buffers_of(&self.layout, MESSAGE_EAGER_BYTES) * self.layout.buffer_len
    }

    /// What other ranks verify before they believe that memory is this process's.
    pub(crate) fn token(&self) -> Token {
        self.cookie.token()
    }

    /// A receive is dropped before it is complete.
    pub(crate) fn drop_receive(&self, id: u64) {
        self.dropped_list().push(id);
        self.any_dropped.store(true, Relaxed);
        // Another thread of this rank may wait for its message. An error occurs in tests only.
        let _ = self.post().ring(self.rank());
    }

    /// Whether receives were dropped since the last call.
    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        // A drop on another thread is found by a later call.
        self.any_dropped.load(Relaxed)
    }

    /// The receives that were dropped since the last call.
    #[cold]
    pub(crate) fn dropped(&self) -> Vec<u64> {
        self.any_dropped.store(false, Relaxed);
        std::mem::take(&mut self.dropped_list())
    }

    fn dropped_list(&self) -> MutexGuard<'_, Vec<u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That a rank can be named.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Forked`].
    #[inline]
    pub(crate) fn check_rank(&self, operation: Operation, rank: Option<usize>) -> Result<(), Error> {
        if self.rank_state.mapped.forked() {
            return Err(Error::Forked { operation });
        }
        match rank {
            Some(rank) if rank >= self.size() => Err(Error::InvalidRank { operation, rank, size: self.size() }),
            _ => Ok(()),
        }
    }

    /// The error of an operation after the communicator has ended.
    #[cold]
    pub(crate) fn failed(&self, operation: Operation, failure: Failure) -> Error {
        self.rank_state.one_sided_failed(operation, failure)
    }

    /// The error of an operation that has waited for these ranks in vain.
    #[cold]
    pub(crate) fn timed_out(&self, operation: Operation, late: Vec<usize>) -> Error {
        let pids = late.iter().map(|rank| self.rank_state.pid(*rank)).collect();
        let info = Box::new(TimeoutInfo { timeout: self.rank_state.platform.timeout, pids, round: 0 });
        Error::TimedOut { operation, late: late.into_boxed_slice(), info }
    }

    /// The ranks that may send what matches, for an error.
    pub(crate) fn awaited(&self, source: Option<usize>) -> Vec<usize> {
        match source {
            Some(rank) => vec![rank],
            None => (0..self.size()).filter(|rank| self.size() == 1 || *rank != self.rank()).collect(),
        }
    }
}

/// The address of bytes that are offered; 0 where there are none.
pub(crate) fn address(bytes: &[u8]) -> u64 {
    crate::rank::cma_peers::address(bytes).map_or(0, NonZeroU64::get)
}

/// Whether replies lie in the buffers of what they answer: where string instructions do not write lines without having read them (measured on a
/// Zen 4), and the longest message that is sent so takes few buffers of many. Kept ones, and a reply that nobody receives, take room that is counted
/// on: with up to 4 ranks little.
fn returns_buffers(layout: &ChannelLayout) -> bool {
    let takes_few = buffers_of(layout, MESSAGE_EAGER_BYTES) <= MESSAGE_RETURNED_BUFFERS;
    !cpu::has_strings() && layout.buffers == Mask::BITS as usize && takes_few
}

/// The most buffers of one message, or of one part of a long one, of this length in bytes.
fn buffers_of(layout: &ChannelLayout, bytes: usize) -> usize {
    (bytes / layout.buffer_len).min(layout.buffers / 4).max(1)
}
