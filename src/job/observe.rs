//! A job seen from outside, by the bytes of its segment: for `intranode top`.
//!
//! The reader copies the control part of a segment out of the memory of any rank's process, at any moment, and without the
//! ranks' help. So two words of it may be a round apart.

use std::mem::offset_of;

use crate::codes::Codes;
use crate::element::size_of_shape;
use crate::error::Operation;
use crate::protocol::call::{LENGTH, OPERATION, SHAPE};
use crate::protocol::generation::{POISON, WAITER};
use crate::protocol::{Cause, CauseKind, Generation, Slot};
use crate::segment::layout::{Layout, PREAMBLE};
use crate::segment::platform::ShmPlatform;

/// The part of a segment that describes its ranks.
///
/// ```
/// use intranode::job::observe::Control;
///
/// // No segment begins like this.
/// assert!(Control::of(&[0; 64]).is_none());
/// assert_eq!(Control::PREAMBLE_BYTES, 64);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Control(Layout);

/// What a segment says at a moment. Example: [`Control`].
#[derive(Clone, Debug)]
pub struct Seen {
    /// By rank.
    pub ranks: Vec<SeenRank>,
    /// Why the communicator has ended, in words; `None` if it has not.
    pub ended: Option<String>,
    /// The rank that was found to have died.
    pub dead: Option<usize>,
}

/// What a segment says of one rank. Example: [`Control`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRank {
    /// Its process, by the number in the rank's own PID namespace; `None` if it has not joined.
    pub pid: Option<u32>,
    /// The last round at which it has arrived, modulo 2²⁸.
    pub round: u32,
    /// The operation of that round.
    pub operation: Option<Operation>,
    /// The bytes that it contributes to that call: the number of elements times their size.
    pub bytes: u64,
    /// Whether another rank sleeps until this one arrives.
    pub is_slept_on: bool,
    /// Whether another rank has arrived at the round after.
    pub is_behind: bool,
}

/// Of a slot, which has an arrival word and the header.
const SLOT: usize = size_of::<Slot<ShmPlatform>>();
const HEADER: usize = offset_of!(Slot<ShmPlatform>, header);

impl Control {
    /// The number of bytes by which a segment is recognised. Example: [`Control`].
    pub const PREAMBLE_BYTES: usize = PREAMBLE;

    /// The control part of the segment that begins with these bytes; `None` if it is none of this version. Example:
    /// [`Control`].
    pub fn of(preamble: &[u8]) -> Option<Self> {
        Layout::of_preamble(preamble).ok().map(Control)
    }

    /// The number of ranks. Example: [`Control`].
    pub fn ranks(&self) -> usize {
        self.0.ranks()
    }

    /// How many bytes from the start of the segment have to be read. Example: [`Control`].
    pub fn bytes(&self) -> usize {
        self.0.bells()
    }

    /// The length of the whole segment in bytes. Example: [`Control`].
    pub fn segment_bytes(&self) -> usize {
        self.0.len()
    }

    /// What these bytes say; `None` if there are too few. Example: [`Control`].
    pub fn read(&self, bytes: &[u8]) -> Option<Seen> {
        let mut poisoned = false;
        let mut ranks = Vec::with_capacity(self.ranks());
        for rank in 0..self.ranks() {
            let slot = |parity: usize| self.0.slots() + (2 * rank + parity) * SLOT;
            let words = [word(bytes, slot(0))?, word(bytes, slot(1))?];
            let [even, odd] = words.map(Generation::of_word);
            // A rank's two words differ by one round.
            let (round, parity) = if odd.next() == even { (even, 0) } else { (odd, 1) };
            let header = slot(parity) + HEADER;
            let pid = word(bytes, self.0.claims() + rank * size_of::<u32>())?;
            poisoned |= words.iter().any(|word| word & POISON != 0);
            ranks.push(SeenRank {
                pid: Some(pid).filter(|pid| *pid != 0),
                round: round.number(),
                operation: Operation::from_code(*bytes.get(header + OPERATION)?),
                bytes: size_of_shape(word(bytes, header + SHAPE)?)
                    .saturating_mul(word64(bytes, header + LENGTH)?),
                // The word that the others wait for is that of its next round.
                is_slept_on: words[1 - parity] & WAITER != 0,
                is_behind: false,
            });
        }
        let rounds: Vec<Generation> = ranks.iter().map(|rank| Generation::new(rank.round)).collect();
        for (rank, own) in ranks.iter_mut().zip(&rounds) {
            rank.is_behind = rank.pid.is_none() || rounds.contains(&own.next());
        }
        let cause = Cause::unpack(word64(bytes, self.0.cause())?);
        let ended = match cause {
            Some(Cause { kind, rank, .. }) => Some(format!("rank {rank} {}", in_words(kind))),
            None => poisoned.then(|| "its ranks have ended it".to_owned()),
        };
        let dead = cause.filter(|cause| cause.kind == CauseKind::Died).map(|cause| cause.rank);
        Some(Seen { ranks, ended, dead })
    }
}

fn in_words(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::TimedOut => "did not arrive in time",
        CauseKind::Left => "has left",
        CauseKind::Aborted => "has aborted the job",
        CauseKind::Panicked => "has panicked",
        CauseKind::ConcurrentUse => "has called from two threads at once",
        CauseKind::WrongSize => "expects another number of ranks",
        CauseKind::Died => "has died",
        CauseKind::Interrupted => "was interrupted",
        CauseKind::LockTimedOut => "has held a lock for too long",
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control part of three ranks: rank 1 is a round ahead, rank 2 has not joined.
    fn bytes(cause: u64) -> (Control, Vec<u8>) {
        let layout = Layout::new(3, 64).expect("a small layout");
        let control = Control::of(&layout.preamble(7)).expect("its own preamble");
        let mut bytes = vec![0; control.bytes()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(layout.cause(), &cause.to_ne_bytes());
        for (rank, pid) in [(0, 100_u32), (1, 101)] {
            put(layout.claims() + 4 * rank, &pid.to_ne_bytes());
        }
        for (rank, round) in [(0, 8_u32), (1, 9), (2, 8)] {
            for generation in [round, round - 1].map(Generation::new) {
                let slot = layout.slots() + (2 * rank + generation.parity()) * SLOT;
                put(slot, &generation.word().to_ne_bytes());
                put(slot + HEADER + OPERATION, &[Operation::Allreduce as u8]);
                put(slot + HEADER + SHAPE, &crate::element::shape::<f64>().to_ne_bytes());
                put(slot + HEADER + LENGTH, &1000_u64.to_ne_bytes());
            }
        }
        // Rank 1 sleeps until rank 0 arrives at round 9.
        let awaited = layout.slots() + SLOT;
        bytes[awaited] |= WAITER as u8;
        (control, bytes)
    }

    #[test]
    fn rounds_calls_and_who_is_behind_are_read() {
        let (control, bytes) = bytes(0);
        assert_eq!((control.ranks(), control.segment_bytes() > control.bytes()), (3, true));
        let seen = control.read(&bytes).expect("all bytes");
        let told: Vec<_> =
            seen.ranks.iter().map(|rank| (rank.pid, rank.round, rank.is_behind, rank.is_slept_on)).collect();
        assert_eq!(told, [(Some(100), 8, true, true), (Some(101), 9, false, false), (None, 8, true, false)]);
        assert_eq!((seen.ranks[0].operation, seen.ranks[0].bytes), (Some(Operation::Allreduce), 8000));
        assert_eq!((seen.ended, seen.dead), (None, None));
    }

    #[test]
    fn the_end_of_a_communicator_has_its_reason() {
        let (control, bytes) = bytes(Cause { kind: CauseKind::Died, rank: 2, detail: 0 }.pack());
        let seen = control.read(&bytes).expect("all bytes");
        assert_eq!((seen.ended.as_deref(), seen.dead), (Some("rank 2 has died"), Some(2)));
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_not_read() {
        let (control, bytes) = bytes(0);
        assert!(control.read(&bytes[..bytes.len() - SLOT]).is_none());
        assert!(Control::of(b"something else").is_none());
    }
}
