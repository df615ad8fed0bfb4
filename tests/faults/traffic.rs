//! Messages of all ranks, with a check of what comes: what a rank is killed in.

use intranode::{Communicator, Error, Messages, Request, Source, Tag};

use super::rank::WRONG_DATA;

/// A kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each rank sends to the next and receives from the one before: up to three times the length, so that long messages are
    /// among them.
    Ring,
    /// All ranks send to one, which receives from any and does not know the length.
    Gather,
    /// Each rank sends to all and receives from all, by requests.
    Exchange,
    /// Each rank takes a long message to the next back, and sends a short one.
    Withdraw,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Ring, Kind::Gather, Kind::Exchange, Kind::Withdraw];

/// Longer than any message that is sent without its receiver.
const LONG: usize = (64 << 10) + 1;

/// The tags of messages that are taken back, and of all others.
const WITHDRAWN: u64 = 1;
const SENT: u64 = 2;

pub(crate) struct Traffic {
    messages: Messages,
    own: Vec<u8>,
    /// By rank.
    received: Vec<Vec<u8>>,
    /// The exchanges so far.
    done: usize,
}

impl Traffic {
    /// Collective.
    pub(crate) fn new(comm: &Communicator) -> Result<Self, Error> {
        let received = vec![Vec::new(); comm.size()];
        Ok(Traffic { messages: comm.messages()?, own: Vec::new(), received, done: 0 })
    }

    /// One exchange of `len` bytes a message, on all ranks. It ends with a barrier, so that no rank is more than one ahead.
    ///
    /// # Panics
    /// When the result is wrong.
    pub(crate) fn exchange(&mut self, comm: &Communicator, kind: Kind, len: usize) -> Result<(), Error> {
        self.done += 1;
        let (rank, size) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        match kind {
            Kind::Ring => self.ring(rank, next, previous, 3 * len),
            Kind::Gather => self.gather(rank, self.done % size, len),
            Kind::Exchange => self.with_all(rank, len),
            Kind::Withdraw => self.withdraw(rank, next, previous, LONG + len),
        }?;
        comm.barrier()
    }

    fn value(&self, rank: usize) -> u8 {
        (self.done * 31 + rank * 7) as u8
    }

    fn fill_own(&mut self, rank: usize, len: usize) {
        let value = self.value(rank);
        self.own.clear();
        self.own.resize(len, value);
    }

    fn check(&self, data: &[u8], len: usize, source: usize) {
        let expected = self.value(source);
        let right = data.len() == len && data.iter().all(|byte| *byte == expected);
        assert!(right, "{WRONG_DATA}: {} bytes of rank {source}, not {len} times {expected}", data.len());
    }

    fn ring(&mut self, rank: usize, next: usize, previous: usize, len: usize) -> Result<(), Error> {
        self.fill_own(rank, len);
        let mut received = vec![0; len];
        let envelope = self.messages.sendrecv(&self.own, next, &mut received, previous, SENT)?;
        self.check(&received[..envelope.bytes], len, previous);
        Ok(())
    }

    fn gather(&mut self, rank: usize, root: usize, len: usize) -> Result<(), Error> {
        if rank != root {
            self.fill_own(rank, len);
            return self.messages.send(&self.own, root, SENT);
        }
        let mut came = vec![false; self.received.len()];
        for _ in 1..self.received.len() {
            let (data, envelope) = self.messages.recv_vec::<u8>(Source::Any, SENT)?;
            self.check(&data, len, envelope.source);
            let twice = std::mem::replace(&mut came[envelope.source], true);
            assert!(!twice, "{WRONG_DATA}: two messages of rank {}", envelope.source);
        }
        Ok(())
    }

    fn with_all(&mut self, rank: usize, len: usize) -> Result<(), Error> {
        self.fill_own(rank, len);
        let mut received = std::mem::take(&mut self.received);
        let messages = &mut self.messages;
        let (mut receivings, mut sendings) = (Vec::new(), Vec::new());
        for (source, buffer) in received.iter_mut().enumerate() {
            buffer.clear();
            buffer.resize(len, 0);
            receivings.push(messages.start_recv(&mut buffer[..], source, SENT)?);
        }
        for target in 0..receivings.len() {
            sendings.push(messages.start_send(&self.own[..], target, SENT)?);
        }
        let receivings = receivings.iter_mut().map(|request| request as &mut dyn Request);
        let sendings = sendings.iter_mut().map(|request| request as &mut dyn Request);
        let mut requests: Vec<_> = receivings.chain(sendings).collect();
        messages.wait_all(&mut requests)?;
        drop(requests);
        for (source, data) in received.iter().enumerate() {
            self.check(data, len, source);
        }
        self.received = received;
        Ok(())
    }

    /// The message that is taken back is received as a whole, or not at all.
    fn withdraw(&mut self, rank: usize, next: usize, previous: usize, len: usize) -> Result<(), Error> {
        self.fill_own(rank, len);
        let own = std::mem::take(&mut self.own);
        let mut sending = self.messages.start_send(&own, next, WITHDRAWN)?;
        self.messages.test(&mut sending)?;
        drop(sending);
        self.own = own;
        self.own.fill(0xEE);
        self.messages.send(&[self.value(rank)], next, SENT)?;
        loop {
            let (data, envelope) = self.messages.recv_vec::<u8>(previous, Tag::Any)?;
            if envelope.tag == SENT {
                self.check(&data, 1, previous);
                return Ok(());
            }
            self.check(&data, len, previous);
        }
    }
}
