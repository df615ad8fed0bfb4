//! One-sided operations of all ranks, with a check of their results: what a rank is killed in.

use intranode::{Communicator, Error, Lock, Signal, Symmetric, Until};

use super::rank::WRONG_DATA;

/// A kind of one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A put to the next rank, a signal, and a wait for that of the rank before.
    Put,
    /// Atomics of all ranks on one element.
    Atomics,
    /// Critical sections.
    Lock,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Put, Kind::Atomics, Kind::Lock];

/// The objects that they work on.
pub(crate) struct OneSided {
    data: Symmetric<u8>,
    signals: Symmetric<u64>,
    /// In rank 0's instance: what is counted by atomics, and under the lock, twice.
    counters: Symmetric<u64>,
    lock: Lock,
    own: Vec<u8>,
    /// The operations of each kind so far.
    done: [u64; KINDS.len()],
}

impl OneSided {
    /// For up to `most` bytes. Collective.
    pub(crate) fn new(comm: &Communicator, most: usize) -> Result<Self, Error> {
        Ok(OneSided {
            data: comm.symmetric(most)?,
            signals: comm.symmetric(1)?,
            counters: comm.symmetric(3)?,
            lock: comm.lock()?,
            own: vec![0; most],
            done: [0; KINDS.len()],
        })
    }

    /// One operation with `len` bytes, on all ranks. It ends with a barrier, so that no rank is more than one ahead.
    ///
    /// # Panics
    /// When the result is wrong.
    pub(crate) fn operation(&mut self, comm: &Communicator, kind: Kind, len: usize) -> Result<(), Error> {
        self.done[kind as usize] += 1;
        let done = self.done[kind as usize];
        match kind {
            Kind::Put => self.put(comm, len, done),
            Kind::Atomics => self.atomics(comm, done),
            Kind::Lock => self.critical_sections(comm, done),
        }?;
        comm.barrier()
    }

    fn put(&mut self, comm: &Communicator, len: usize, done: u64) -> Result<(), Error> {
        let (rank, size) = (comm.rank(), comm.size());
        let value = |rank: usize| (done * 31 + rank as u64) as u8;
        self.own[..len].fill(value(rank));
        self.data.put_signal((rank + 1) % size, 0, &self.own[..len], &self.signals, 0, Signal::Add(1))?;
        self.signals.wait_until(0, Until::Ge(done))?;
        let received = &mut self.own[..len];
        self.data.at(rank)?.get(0, received);
        let expected = value((rank + size - 1) % size);
        assert!(received.iter().all(|byte| *byte == expected), "{WRONG_DATA}: not all are {expected}");
        Ok(())
    }

    fn atomics(&self, comm: &Communicator, done: u64) -> Result<(), Error> {
        const TIMES: u64 = 100;
        let counter = self.counters.at(0)?;
        for _ in 0..TIMES {
            counter.fetch_add(0, 1);
        }
        comm.barrier()?;
        let (counted, expected) = (counter.load(0), done * TIMES * comm.size() as u64);
        assert!(counted == expected, "{WRONG_DATA}: counted to {counted}, and not {expected}");
        Ok(())
    }

    fn critical_sections(&self, comm: &Communicator, done: u64) -> Result<(), Error> {
        const TIMES: u64 = 10;
        let counter = self.counters.at(0)?;
        for _ in 0..TIMES {
            let _guard = self.lock.lock()?;
            let (one, two) = (counter.load(1), counter.load(2));
            // The rank that died with the lock has ended the communicator; nobody gets it after that rank.
            assert!(one == two, "{WRONG_DATA}: {one} and {two} under the lock");
            counter.store(1, one + 1);
            counter.store(2, one + 1);
        }
        comm.barrier()?;
        let (counted, expected) = (counter.load(1), done * TIMES * comm.size() as u64);
        assert!(counted == expected, "{WRONG_DATA}: counted to {counted}, and not {expected}");
        Ok(())
    }
}
