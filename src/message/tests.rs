//! What is prefetched for write is what is written next, and a reply lies where it is to; what is complete at the deadline is no time-out, and who closes
//! because all has ended has not left.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::copy::cpu::{TAKEN_FOR_INTEL, TAKEN_FOR_SLOW};
use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::Envelope;
use crate::message::request::{Request, sealed};
use crate::message::state::{State, Wait};
use crate::protocol::{Cause, CauseKind};
use crate::segment::observed;
use crate::tuning::{MESSAGE_EAGER_BYTES, MESSAGE_PREFETCH_BYTES, MESSAGE_ROTATES_FROM_BYTES_ON_INTEL};

/// Enough for the buffers to come round again.
const MESSAGES: usize = 80;

/// Messages of this many bytes go to and fro between two ranks. The ranges of buffers that any of them has prefetched, each with what it has written
/// next.
fn predictions(bytes: usize, intel: bool) -> Vec<[Range<usize>; 2]> {
    let observed = crate::threads(2, |comm| {
        TAKEN_FOR_INTEL.set(Some(intel));
        let (rank, mut messages, mut recv) = (comm.rank(), comm.messages()?, vec![0; bytes]);
        // Other bytes in each. Made before: an answer that does not come soon is received in another way.
        let block = |message: usize| (0..bytes).map(|at| (1 + 7 * message + at) as u8).collect();
        let sends: Vec<Vec<u8>> = (0..2 * MESSAGES).map(block).collect();
        let (result, events) = observed::during(|| {
            (0..2 * MESSAGES).try_for_each(|message| match message % 2 == rank {
                true => messages.send(&sends[message], 1 - rank, 0),
                false => messages.recv(&mut recv, 1 - rank, 0).map(drop),
            })
        });
        result.map(|()| events)
    });
    let events = observed.expect("threads").into_iter().map(|events| events.expect("messages"));
    events.flat_map(observed::predictions).collect()
}

#[test]
fn what_is_prefetched_is_written_next() {
    // A rank does not wait for an answer where others need its processor. Elsewhere than on x86-64 a prefetch is nothing, and the processor may
    // be an emulated one, for which no answer comes soon.
    let is_alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2);
    if is_alone || !cfg!(target_arch = "x86_64") {
        return;
    }
    // Longer ones may have to be asked for, and go elsewhere then.
    for bytes in [64, 1 << 10, 2 << 10, 4 << 10, 20_000, MESSAGE_EAGER_BYTES] {
        // While a rank waits for an answer, or else when that has come, but only if it comes soon: on a busy machine perhaps in none of a run.
        let (runs, most) = if bytes < MESSAGE_ROTATES_FROM_BYTES_ON_INTEL { (50, 0) } else { (1, MESSAGES) };
        let found = (0..runs).map(|_| predictions(bytes, true)).find(|found| found.len() > most);
        let found = found.unwrap_or_else(|| panic!("{bytes} bytes: too little is prefetched"));
        for [prefetched, written] in found {
            let lines = bytes.min(MESSAGE_PREFETCH_BYTES).div_ceil(64);
            assert_eq!((prefetched.start, prefetched.len()), (written.start, lines), "{bytes} bytes");
        }
    }
}

#[test]
fn nothing_is_prefetched_where_an_rfo_is_short() {
    for bytes in [64, 1 << 10, 20_000, MESSAGE_EAGER_BYTES] {
        assert!(predictions(bytes, false).is_empty(), "{bytes} bytes");
    }
}

/// Complete from the first look on that comes behind the deadline.
struct CompleteLate {
    progress: std::cell::Cell<usize>,
    reported: bool,
}

impl Request for CompleteLate {}

impl sealed::Poll for CompleteLate {
    fn poll(&mut self, _core: &Core, _state: &mut State) -> Option<Result<Envelope, Error>> {
        // Asked before the wait, and after it.
        (self.progress.get() > 1).then_some(Ok(Envelope { source: 0, tag: 5, bytes: 7 }))
    }

    fn wait(&self) -> Wait {
        Wait::of_several(Operation::Recv)
    }

    fn awaited(&self) -> Vec<usize> {
        vec![0]
    }

    fn progress(&self) -> usize {
        self.progress.set(self.progress.get() + 1);
        0
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.reported
    }

    fn withdraw(&mut self, _core: &Core, _state: &mut State) -> bool {
        false
    }
}

#[test]
fn what_is_complete_at_the_deadline_is_no_time_out() -> Result<(), Error> {
    let config = crate::Config::new("/threads", 0, 1).timeout(Duration::from_millis(1));
    let results = crate::threads_with(&config, |comm| {
        let mut messages = comm.messages()?;
        messages.wait(&mut CompleteLate { progress: Default::default(), reported: false })
    })?;
    assert!(matches!(results[0], Ok(Envelope { tag: 5, .. })), "{results:?}");
    Ok(())
}

/// On every processor. Each message is there before it is received: one that does not come soon may be answered in other buffers.
#[test]
fn a_reply_lies_in_the_buffers_of_what_it_answers() {
    const BYTES: usize = 4096;
    let turn = Barrier::new(2);
    let kept = crate::threads(2, |comm| {
        TAKEN_FOR_SLOW.set(true);
        let (rank, mut messages, mut received) = (comm.rank(), comm.messages()?, vec![0; BYTES]);
        let (mut kept, mut is_wrong) = (Vec::new(), false);
        for message in 0..8 {
            if message % 2 == rank {
                messages.send(&vec![message as u8; BYTES], 1 - rank, 0)?;
                is_wrong |= messages.state.peers[1 - rank].outgoing.kept.is_some();
            }
            turn.wait();
            if message % 2 != rank {
                messages.recv(&mut received, 1 - rank, 0)?;
                is_wrong |= received != vec![message as u8; BYTES];
                kept.push(messages.state.peers[1 - rank].outgoing.kept.map(|kept| kept.returned));
            }
        }
        // Other data, or buffers that are kept although the reply was sent. Said behind the last turn, for which the other rank waits.
        assert!(!is_wrong, "rank {rank}");
        Ok::<_, Error>(kept)
    });
    let kept: Vec<_> = kept.expect("threads").into_iter().map(|kept| kept.expect("messages")).collect();
    // All in the buffers of the second message: rank 0 has them from the other channel each time, and rank 1 has them back.
    assert_eq!(kept, [vec![Some(true); 4], vec![None, Some(false), Some(false), Some(false)]]);
}

/// It has seen the end of the communicator before this rank's bell says so.
#[test]
fn who_has_closed_because_of_the_end_has_not_left() -> Result<(), Error> {
    let turn = Barrier::new(2);
    let results = crate::threads(2, |comm| {
        let (rank, mut messages) = (comm.rank(), comm.messages()?);
        comm.barrier()?;
        if rank == 1 {
            // As another rank that ends it, and was not at the bells yet.
            let cause = Cause { kind: CauseKind::Aborted, rank: 1, detail: 7 };
            messages.core.rank_state.mapped.segment().cause.store(cause.pack(), Relaxed);
            messages.core.close();
        }
        let received = if rank == 0 { messages.recv(&mut [0_u8], 1, 0).map(drop) } else { Ok(()) };
        turn.wait();
        received
    })?;
    assert!(matches!(results[0], Err(Error::Aborted { rank: 1, code: 7, .. })), "{results:?}");
    Ok(())
}
