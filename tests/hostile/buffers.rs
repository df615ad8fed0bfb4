//! Steps on buffers, which the other ranks read in place.

use intranode::{Buffer, Error, ReduceOp};

use crate::journal::{Event, Outcome};
use crate::program::Sent;
use crate::stamp::{Stamp, fill, runs};
use crate::worker::{Comm, Worker};

/// The result of a step; None: the slot was empty.
type Done = Option<Result<(), Error>>;

/// What no call sends: the value stands at another index in its place.
const UNSENT: u64 = u64::MAX;

impl Worker<'_> {
    /// No call of the communicator: every rank makes its own.
    pub(crate) fn make_buffer(&self, slot: usize, to: usize, len: usize) -> Done {
        let comm = self.comm(slot)?;
        match comm.comm.buffer::<u64>(len) {
            Ok(mut buffer) => {
                self.ensure(buffer.iter().all(|value| *value == 0), || "a new buffer has values".to_owned());
                buffer.fill(UNSENT);
                self.rank.buffers[to].put(buffer);
            }
            Err(error) => self.violation(|| format!("a buffer of {len}: {error}")),
        }
        None
    }

    /// Sends a buffer by a collective, and overwrites it as soon as that returns. After an error its memory is another
    /// buffer's at once.
    pub(crate) fn send_buffer(&self, slot: usize, from: usize, root: usize, call: Sent) -> Done {
        let comm = self.comm(slot)?;
        let mut buffer = self.rank.buffers[from].take()?;
        let len = buffer.len();
        let success = || {
            Outcome::Ok(match call {
                Sent::Allgather => format!("allgather of {len}"),
                Sent::Broadcast => format!("broadcast of {len} from {root}"),
                Sent::Allreduce => format!("{} of {len}", ReduceOp::BitOr),
            })
        };
        let result = self.call(&comm.name, success, |by| {
            let result = self.send(&comm, &mut buffer, root, call, by);
            buffer.fill(UNSENT);
            result
        });
        if result.is_ok() {
            self.rank.journal.record(Event::Sent { bytes: 8 * len });
            self.rank.buffers[from].put(buffer);
        } else {
            drop(buffer);
            self.make_buffer(slot, from, len);
        }
        Some(result)
    }

    fn send(
        &self,
        comm: &Comm,
        buffer: &mut Buffer<u64>,
        root: usize,
        call: Sent,
        by: Stamp,
    ) -> Result<(), Error> {
        let (size, len) = (comm.comm.size(), buffer.len());
        match call {
            Sent::Allgather => {
                fill(buffer, 0, by);
                let mut recv = vec![0; len * size];
                comm.comm.allgather(buffer, &mut recv)?;
                self.check_blocks(comm, by, recv.chunks(len.max(1)).map(|block| runs(block, 0)), |_| len);
            }
            Sent::Broadcast => {
                fill(buffer, 0, by);
                comm.comm.broadcast(buffer, root)?;
                self.check_from(comm, by, buffer, root);
            }
            Sent::Allreduce => {
                buffer.fill(by.to_sum_bits());
                let mut recv = vec![0; len];
                comm.comm.allreduce(buffer, &mut recv, ReduceOp::BitOr)?;
                let Some(result) = recv.first() else { return Ok(()) };
                self.ensure(recv.iter().all(|value| value == result), || {
                    format!("{result:#x}: the elements of the result differ")
                });
                let with = comm.joined.iter().map(|rank| Stamp::from_sum_bits(*result, *rank));
                self.met(by, with.collect());
            }
        }
        Ok(())
    }
}
