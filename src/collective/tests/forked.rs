//! A call in a forked child fails, whatever the parent's other threads held when it was forked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::sys::testing::in_forked_child;
use crate::{Communicator, Error, ReduceOp};

const BYTES: usize = 8 << 20;

type Call = fn(&Communicator, &mut [u64], &mut [u64]) -> Result<(), Error>;

const CALLS: [Call; 3] = [
    |comm, send, _| comm.broadcast(send, 0),
    |comm, send, recv| comm.allreduce(send, recv, ReduceOp::Sum),
    |comm, send, recv| {
        let (counts, displs) = ([send.len() / 2; 2], [0, send.len() / 2]);
        comm.alltoallv(send, &counts, &displs, recv, &counts, &displs)
    },
];

#[test]
fn calls_in_a_child_do_not_wait_for_threads_that_it_does_not_have() {
    let all = crate::threads(2, |comm| {
        let (mut send, mut recv) = (comm.buffer::<u64>(BYTES / 8)?, comm.buffer::<u64>(BYTES / 8)?);
        let done = AtomicBool::new(comm.rank() > 0);
        let works = thread::scope(|scope| {
            // Its making and its end take the lock by which a call looks where its data lie.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(comm.buffer::<u8>(BYTES).unwrap());
                }
            });
            // The child has no such memory.
            let (send, recv) = (&mut send[..], &mut recv[..]);
            let mut fails =
                |call: &Call| in_forked_child(|| matches!(call(&comm, send, recv), Err(Error::Forked { .. })));
            let works = comm.rank() > 0 || (0..20).all(|_| CALLS.iter().all(&mut fails));
            done.store(true, Ordering::Relaxed);
            works
        });
        comm.barrier()?;
        Ok::<_, Error>(works)
    });
    for works in all.unwrap() {
        assert!(works.unwrap(), "a child did not get Forked in time");
    }
}
