//! What the ranks of a job have recorded, for `intranode run --report` and `--trace`: read when the job has ended.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::codes::Codes;
use crate::error::Operation;
use crate::segment::record::{
    AWAITED_SHIFT, CONTINUED, COUNTERS, LANE_HEAD, LANES, LATE, OPERATIONS, OTHER_WAIT, RecordLayout, SLICE,
};

/// What one rank has recorded, in all its communicators. Times are nanoseconds of `CLOCK_MONOTONIC`.
///
/// ```
/// use std::io::Write;
/// use intranode::job::recorded::RankRecord;
/// use intranode::segment::record::RecordLayout;
///
/// // A job whose ranks never joined.
/// let layout = RecordLayout::new(2, 0);
/// let mut file = tempfile::tempfile()?;
/// file.write_all(&layout.header("/job"))?;
/// file.set_len(layout.len() as u64)?;
///
/// let ranks = RankRecord::read_all(&file)?;
/// assert_eq!(ranks.len(), 2);
/// assert!(ranks[0].process.is_none() && ranks[0].operations.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RankRecord {
    /// Its process; `None` if none has joined.
    pub process: Option<u32>,
    /// When it had joined.
    pub joined: Option<u64>,
    /// When it left its last communicator; `None` if it had one when it ended.
    pub left: Option<u64>,
    /// The communicators that were not recorded, because there were too many at a time.
    pub not_recorded: u64,
    /// By operation, those that it has called.
    pub operations: Vec<OperationRecord>,
    /// The other ranks that it has waited for long.
    pub late: Vec<LateRecord>,
    /// What it was doing when it ended, in communicators in which a call has not returned.
    pub unfinished: Vec<Unfinished>,
    /// Its last calls, in the order of their ends in each communicator.
    pub slices: Vec<SliceRecord>,
    /// The calls before these, which were overwritten.
    pub slices_lost: u64,
}

/// The calls of one operation. Example: [`RankRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// The operation.
    pub operation: Operation,
    /// The calls.
    pub calls: u64,
    /// Those that were timed. The others count with the mean of these, and with their own long waits; of `put`, `get`,
    /// `atomic` and `put_signal` they do not count.
    pub timed: u64,
    /// The time in the calls.
    pub total_ns: u64,
    /// The part of it in waits that took longer than some hundred polls.
    pub wait_ns: u64,
    /// The bytes of the calls.
    pub bytes: u64,
    /// How often the rank has gone to sleep.
    pub parks: u64,
    /// How often it has woken others.
    pub wakes: u64,
}

/// A rank that was waited for. Example: [`RankRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRecord {
    /// Its rank in the job.
    pub rank: usize,
    /// The rounds at which it was the last that was waited for.
    pub rounds: u64,
    /// How long it was waited for.
    pub wait_ns: u64,
}

/// A call that has not returned. Example: [`RankRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The operation.
    pub operation: Operation,
    /// Since when it waits, or has been in the call.
    pub since: u64,
    /// The rank that it waits for.
    pub waits_for: Option<usize>,
}

/// A call on the timeline. Example: [`RankRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRecord {
    /// The operation.
    pub operation: Operation,
    /// Whether it goes on with a call that was started before.
    pub continues: bool,
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// The bytes of the call.
    pub bytes: u64,
    /// The rank that it has waited for last.
    pub waited_for: Option<usize>,
}

impl RankRecord {
    /// Reads the records of all ranks, which have ended. Example: [`RankRecord`].
    ///
    /// # Errors
    /// If it cannot be read, or is no record.
    pub fn read_all(file: &File) -> io::Result<Vec<RankRecord>> {
        let mut header = [0; RecordLayout::HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let (layout, _) =
            RecordLayout::of_header(&header).ok_or_else(|| io::Error::other("it is no record"))?;
        (0..layout.ranks()).map(|rank| RankRecord::read(file, &layout, rank)).collect()
    }

    fn read(file: &File, layout: &RecordLayout, rank: usize) -> io::Result<RankRecord> {
        let row = words(file, layout.row(rank), 4)?;
        let moment = |word: u64| Some(word).filter(|word| *word != 0);
        let mut record = RankRecord {
            process: moment(row[0]).map(|process| process as u32),
            joined: moment(row[1]),
            left: moment(row[2]),
            not_recorded: row[3],
            ..RankRecord::default()
        };
        for lane in 0..LANES {
            record.add_lane(file, layout, layout.row(rank) + layout.lane(lane))?;
        }
        Ok(record)
    }

    fn add_lane(&mut self, file: &File, layout: &RecordLayout, at: usize) -> io::Result<()> {
        let head = words(file, at, LANE_HEAD)?;
        let [operation, start, waiting_since, waiting_for, written, communicators, ..] = head[..] else {
            return Ok(());
        };
        if communicators == 0 {
            return Ok(());
        }
        let counters = words(file, at + LANE_HEAD * 8, OPERATIONS * COUNTERS)?;
        for (code, counters) in counters.chunks_exact(COUNTERS).enumerate() {
            self.add_operation(code as u8, counters);
        }
        let late = words(file, at + layout.late() * 8, layout.ranks() * LATE)?;
        for (rank, late) in late.chunks_exact(LATE).enumerate().filter(|(_, late)| late[1] > 0) {
            match self.late.iter_mut().find(|known| known.rank == rank) {
                Some(known) => {
                    known.rounds = known.rounds.saturating_add(late[0]);
                    known.wait_ns = known.wait_ns.saturating_add(late[1]);
                }
                None => self.late.push(LateRecord { rank, rounds: late[0], wait_ns: late[1] }),
            }
        }
        let since = if waiting_since > 0 { waiting_since } else { start };
        let waits_for = if waiting_since > 0 { waiting_for } else { 0 };
        self.add_unfinished([operation, since, waits_for]);
        self.add_unfinished([head[OTHER_WAIT], head[OTHER_WAIT + 1], head[OTHER_WAIT + 2]]);
        self.add_slices(file, layout, at + layout.ring() * 8, written)
    }

    /// A call that has not returned, if there is one: the operation, since when, and for which rank plus one it waits.
    fn add_unfinished(&mut self, [operation, since, waits_for]: [u64; 3]) {
        if let (Some(operation), true) = (Operation::from_code(operation as u8), since > 0) {
            let waits_for = waits_for.checked_sub(1).map(|rank| rank as usize);
            self.unfinished.push(Unfinished { operation, since, waits_for });
        }
    }

    fn add_operation(&mut self, code: u8, counters: &[u64]) {
        let [calls, _, timed, rest, bytes, wait_ns, parks, wakes] = counters[..] else { return };
        let Some(operation) = Operation::from_code(code).filter(|_| calls > 0) else { return };
        // Each call takes as long as the timed ones, and what it has waited; but accesses are only timed if they are long.
        let all = if operation.is_access() { timed } else { calls };
        let rest = u128::from(rest) * u128::from(all) / u128::from(timed.max(1));
        let total_ns = u64::try_from(rest).unwrap_or(u64::MAX).saturating_add(wait_ns);
        let new = OperationRecord { operation, calls, timed, total_ns, wait_ns, bytes, parks, wakes };
        match self.operations.iter_mut().find(|known| known.operation == operation) {
            Some(known) => {
                known.calls += new.calls;
                known.timed += new.timed;
                known.total_ns = known.total_ns.saturating_add(new.total_ns);
                known.wait_ns = known.wait_ns.saturating_add(new.wait_ns);
                known.bytes = known.bytes.saturating_add(new.bytes);
                known.parks += new.parks;
                known.wakes += new.wakes;
            }
            None => self.operations.push(new),
        }
    }

    fn add_slices(&mut self, file: &File, layout: &RecordLayout, at: usize, written: u64) -> io::Result<()> {
        let room = layout.slices() as u64;
        let kept = written.min(room);
        self.slices_lost += written - kept;
        if kept == 0 {
            return Ok(());
        }
        let ring = words(file, at, layout.slices() * SLICE)?;
        for number in written - kept..written {
            let [start, duration_ns, bytes, what] = ring[(number % room) as usize * SLICE..][..SLICE] else {
                continue;
            };
            let Some(operation) = Operation::from_code(what as u8) else { continue };
            let waited_for = (what >> AWAITED_SHIFT).checked_sub(1).map(|rank| rank as usize);
            let continues = what & CONTINUED != 0;
            self.slices.push(SliceRecord { operation, continues, start, duration_ns, bytes, waited_for });
        }
        Ok(())
    }
}

fn words(file: &File, at: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * size_of::<u64>()];
    file.read_exact_at(&mut bytes, at as u64)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    Ok(bytes.chunks_exact(size_of::<u64>()).map(word).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;
    use crate::segment::recorder::{Awaited, Begun, Lane, Recording, Row, Wait, count};

    const BARRIER: u8 = Operation::Barrier as u8;
    const ALLREDUCE: u8 = Operation::Allreduce as u8;

    /// Words are ranks, and what is seen in them is the round.
    struct Ranks<'a>(&'a AtomicU32);

    impl Awaited for Ranks<'static> {
        fn of(&self, word: &AtomicU32, seen: u32) -> Option<Wait> {
            let rank = Some(word.load(Relaxed) as usize).filter(|rank| *rank < 10);
            Some(Wait { operation: self.0.load(Relaxed) as u8, round: seen, rank })
        }

        fn missing(&self, _: u32) -> Option<usize> {
            None
        }

        fn rank(&self, rank: usize) -> Option<usize> {
            Some(rank)
        }
    }

    fn recorded(slices: usize, calls: impl FnOnce(&'static Row)) -> RankRecord {
        let layout = RecordLayout::new(3, slices);
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&layout.header("/job"), 0).expect("a header");
        file.set_len(layout.len() as u64).expect("a sparse file");
        calls(Row::map(&file, layout, 1).expect("a row"));
        let mut all = RankRecord::read_all(&file).expect("a record");
        assert!(all[0].process.is_none() && all[2].process.is_none());
        all.remove(1)
    }

    fn take(row: &'static Row) -> Recording {
        static OPERATION: AtomicU32 = AtomicU32::new(BARRIER as u32);
        row.take(Box::new(Ranks(&OPERATION))).expect("a lane")
    }

    fn wait(lane: &Lane, round: u32, rank: u32) {
        lane.wait(&AtomicU32::new(rank), round, || std::thread::sleep(std::time::Duration::from_millis(1)));
    }

    #[test]
    fn the_last_rank_that_a_round_waits_for_is_late() {
        let record = recorded(0, |row| {
            let recording = take(row);
            let lane = recording.lane();
            for (round, rank) in [(1, 2), (1, 0), (2, 0), (3, 2), (3, 2), (4, 99)] {
                wait(lane, round, rank);
            }
        });
        let late: Vec<(usize, u64)> = record.late.iter().map(|late| (late.rank, late.rounds)).collect();
        assert_eq!(late, [(0, 2), (2, 1)]);
        assert!(record.late.iter().all(|late| late.wait_ns >= 2_000_000), "{:?}", record.late);
        assert!(record.unfinished.is_empty() && record.left >= record.joined, "{record:?}");
    }

    #[test]
    fn a_rank_leaves_with_the_last_of_its_communicators() {
        for (takes_again, has_left) in [(false, true), (true, false)] {
            let record = recorded(0, |row| {
                let (world, part) = (take(row), take(row));
                drop(part);
                drop(world);
                if takes_again {
                    // Of a later job; it is killed in that.
                    std::mem::forget(take(row));
                }
            });
            assert_eq!(record.left.is_some(), has_left, "{record:?}");
        }
        let killed = recorded(0, |row| {
            std::mem::forget(take(row));
            drop(take(row));
        });
        assert_eq!(killed.left, None);
    }

    #[test]
    fn cheap_calls_are_counted_and_timed_now_and_then() {
        const CALLS: u64 = 10_000;
        let record = recorded(0, |row| {
            let recording = take(row);
            for call in 0..CALLS {
                if count(recording.counters(), BARRIER) {
                    let begun = recording.lane().begin_timed(BARRIER, Begun::default());
                    if call == 0 {
                        wait(recording.lane(), 1, 0);
                    }
                    recording.lane().end(BARRIER, begun, 0);
                }
            }
        });
        let [barrier] = record.operations[..] else { panic!("{record:?}") };
        assert_eq!((barrier.calls, barrier.bytes, barrier.operation), (CALLS, 0, Operation::Barrier));
        assert!((60..CALLS / 4).contains(&barrier.timed), "{barrier:?}");
        // The long wait counts once, and not for the calls that were not timed.
        assert!((1_000_000..50_000_000).contains(&barrier.wait_ns), "{barrier:?}");
        assert!(barrier.total_ns >= barrier.wait_ns && barrier.total_ns - barrier.wait_ns < 1_000_000_000);
    }

    #[test]
    fn calls_that_move_much_are_all_timed_and_lanes_are_used_again() {
        let record = recorded(4, |row| {
            for bytes in [0, 8192, 1, 2, 3, 4] {
                let recording = take(row);
                assert!(count(recording.counters(), ALLREDUCE));
                let begun = recording.lane().begin_timed(ALLREDUCE, Begun::with_data(true));
                assert_eq!((begun.needs_end(), begun.parity()), (true, 1));
                recording.lane().end(ALLREDUCE, begun, bytes);
            }
            let all: Vec<Recording> = (0..LANES).map(|_| take(row)).collect();
            static NONE: AtomicU32 = AtomicU32::new(0);
            assert!(row.take(Box::new(Ranks(&NONE))).is_none());
            drop(all);
        });
        let [allreduce] = record.operations[..] else { panic!("{record:?}") };
        assert_eq!((allreduce.calls, allreduce.timed, allreduce.bytes), (6, 6, 8202));
        assert_eq!((record.slices_lost, record.not_recorded), (2, 1));
        let bytes: Vec<u64> = record.slices.iter().map(|slice| slice.bytes).collect();
        assert_eq!(bytes, [1, 2, 3, 4]);
    }

    #[test]
    fn a_call_that_never_returned_is_told() {
        let record = recorded(0, |row| {
            let recording = take(row);
            let lane = recording.lane();
            let begun = lane.begin_timed(ALLREDUCE, Begun::with_data(false));
            assert!(begun.needs_end());
            std::mem::forget(recording);
        });
        let [unfinished] = record.unfinished[..] else { panic!("{record:?}") };
        assert_eq!((unfinished.operation, unfinished.waits_for), (Operation::Allreduce, None));
        assert_eq!(record.left, None);
    }
}
