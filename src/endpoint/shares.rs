//! The memory that an endpoint shares, and what peers ask of it.
//!
//! The endpoint owns this memory, or has it on [loan](Lent), so it can be taken back at any time. A peer that reads it directly does so under a *lease*, as
//! for a long message between ranks ([`offer`](crate::protocol::message::offer)): revoking withdraws the leases, and a peer that
//! finds its lease withdrawn when it has read throws away what it has. Nobody writes to this memory but this process: what a peer
//! puts, it pulls from there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::copy::lent::Lent;
use crate::endpoint::calls::{Body, Wanted};
use crate::endpoint::handle::{Access, Handle, Registration};
use crate::endpoint::link::Link;
use crate::endpoint::links::Links;
use crate::endpoint::peer::Peer;
use crate::endpoint::short::LONGEST;
use crate::endpoint::slices::{Parts, pair, part, window, window_mut};
use crate::endpoint::wire::{
    Map, PARTS, Part, Request, Status, What, begin_reply, decode_place, encode_map, len_of, status_alone,
};
use crate::protocol::message::Kind;
use crate::rank::cma_peers::ProbeCookie;
use crate::sys::cma::Fetched;
use crate::sys::random;
use crate::tuning::MESSAGE_PIECE_BYTES;

struct Share {
    memory: Memory,
    len: u64,
    access: Access,
    leases: Vec<(Peer, u32)>,
}

/// How a request was answered.
enum Answered {
    /// The reply was made.
    Made,
    /// It is this alone.
    With(Status),
    /// What was asked for was sent in place of it.
    Sent,
}

pub(crate) enum Memory {
    Owned(Vec<Box<[u8]>>),
    /// For reading only.
    Lent(Arc<Lent>),
}

/// All that is shared.
pub(crate) struct Shares {
    shares: BTreeMap<u64, Share>,
    /// The keys of those that a peer has leases of.
    leased: BTreeMap<Peer, BTreeSet<u64>>,
    keys: RandomState,
    made: u64,
    /// Where answers are made.
    reply: Vec<u8>,
    /// What others verify before they read.
    pub(crate) cookie: ProbeCookie,
}

impl Shares {
    pub(crate) fn new() -> Self {
        let (shares, leased, reply) = Default::default();
        // From a number that no other process has: a forked child has the same keys as its siblings.
        let (keys, made) = (RandomState::new(), random::number());
        Shares { shares, leased, keys, made, reply, cookie: ProbeCookie::new() }
    }

    /// Shares memory that belongs to the endpoint from now on.
    pub(crate) fn add(&mut self, buffers: Vec<Box<[u8]>>, access: Access) -> Registration {
        let len = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        Registration { handle: self.insert(Memory::Owned(buffers), len, access) }
    }

    /// Shares memory as long as it is lent.
    pub(crate) fn lend(&mut self, lent: Arc<Lent>) -> Handle {
        let len = lent.read(|slices| slices.map(|slice| slice.len() as u64).sum());
        self.insert(Memory::Lent(lent), len.unwrap_or(0), Access::Read)
    }

    fn insert(&mut self, memory: Memory, len: u64, access: Access) -> Handle {
        let key = loop {
            self.made = self.made.wrapping_add(1);
            let key = self.keys.hash_one(self.made);
            if !self.shares.contains_key(&key) {
                break key;
            }
        };
        self.shares.insert(key, Share { memory, len, access, leases: Vec::new() });
        Handle { key, len, access }
    }

    /// What a registration is of. Not the boxes themselves: others may know where these lie, and that their lengths are what they were.
    pub(crate) fn buffers(&mut self, registration: &Registration) -> Option<Vec<&mut [u8]>> {
        match &mut self.shares.get_mut(&registration.handle.key)?.memory {
            Memory::Owned(buffers) => Some(buffers.iter_mut().map(|buffer| &mut buffer[..]).collect()),
            Memory::Lent(_) => None,
        }
    }

    /// Takes memory back, at once.
    pub(crate) fn revoke(&mut self, handle: &Handle, links: &mut Links) -> Option<Memory> {
        let share = self.shares.remove(&handle.key)?;
        for (peer, lease) in share.leases {
            links.get(peer).into_iter().for_each(|link| link.withdraw(lease));
            if let Some(keys) = self.leased.get_mut(&peer) {
                keys.remove(&handle.key);
            }
        }
        Some(share.memory)
    }

    /// The connection to a peer has ended, and its leases with it. Very much may be shared: only what it has leases of is looked at.
    pub(crate) fn forget(&mut self, peer: Peer) {
        for key in self.leased.remove(&peer).into_iter().flatten() {
            self.shares.get_mut(&key).into_iter().for_each(|share| share.forget(peer));
        }
    }

    /// Answers what a peer has asked for, as far as there is room for answers. What this side is to read for it takes long: behind a piece of that
    /// others have their turn.
    pub(crate) fn serve(&mut self, link: &mut Link) {
        let mut pulled = 0;
        while pulled < MESSAGE_PIECE_BYTES as u64 && link.has_requests() && link.finds_room(LONGEST) {
            let Some((number, wanted)) = link.next_request() else { break };
            if let Wanted::Request(Request { what: What::Pull(parts), .. }) = &wanted {
                pulled += len_of(parts).unwrap_or(0).min(MESSAGE_PIECE_BYTES as u64);
            }
            let mut reply = core::mem::take(&mut self.reply);
            let outcome = match wanted {
                Wanted::Request(request) => self.answer(link, number, request, &mut reply),
                Wanted::Write { place, data } => {
                    self.write(link, place, data).map(|()| Answered::With(Status::Done))
                }
            };
            match outcome.unwrap_or_else(Answered::With) {
                Answered::Sent => {}
                Answered::Made => drop(link.send_quietly(Kind::Reply, number, &reply)),
                Answered::With(status) => {
                    link.send_quietly(Kind::Reply, number, &status_alone(status));
                }
            }
            self.reply = reply;
        }
        link.keep_requests();
    }

    fn write(&mut self, link: &mut Link, place: [u64; 2], data: Body) -> Result<(), Status> {
        let (key, offset, is_large) = decode_place(place);
        let share = self.shares.get_mut(&key).ok_or(Status::Unknown);
        let len = data.len();
        match share.and_then(|share| share.writable(offset, len as u64)) {
            Ok(targets) => {
                link.deliver(data, targets, if is_large { usize::MAX } else { len });
                Ok(())
            }
            Err(status) => {
                link.dispose(data);
                Err(status)
            }
        }
    }

    fn answer(
        &mut self,
        link: &mut Link,
        number: u64,
        request: Request,
        reply: &mut Vec<u8>,
    ) -> Result<Answered, Status> {
        let share = self.shares.get_mut(&request.key).ok_or(Status::Unknown)?;
        let offset = request.offset;
        share.range(offset, request.left)?;
        match request.what {
            What::Map(len) => {
                let (start, _) = share.range(offset, len)?;
                share.leases.retain(|(peer, lease)| *peer != link.peer || !link.is_settled(*lease));
                let lease = link.open_lease().ok_or(Status::Busy)?;
                share.leases.push((link.peer, lease));
                self.leased.entry(link.peer).or_default().insert(request.key);
                let (start, parts) = share.parts(start)?;
                // What is lent may be a file's that somebody truncates. Who copies it by the system notices that.
                let is_sent = matches!(share.memory, Memory::Owned(_));
                begin_reply(reply, Status::Done);
                encode_map(reply, &Map { lease, is_sent, start: start as u64, parts });
                Ok(Answered::Made)
            }
            What::Read(len) => {
                let (start, len) = share.range(offset, len)?;
                share.read(start, len, |slices| link.send_slices(Kind::Data, number, &[], len, slices))?;
                Ok(Answered::Sent)
            }
            What::Pull(parts) => {
                let len =
                    len_of(&parts).filter(|len| *len <= MESSAGE_PIECE_BYTES as u64).ok_or(Status::Bounds)?;
                let mut pairs = pair(&mut Parts::behind(0, &parts), share.writable(offset, len)?);
                let mut done = 0;
                match link.read_parts(&mut pairs, &mut done) {
                    Fetched::All => Ok(Answered::With(Status::Done)),
                    Fetched::Refused => Err(Status::Refused),
                    Fetched::Unmapped => {
                        begin_reply(reply, Status::Fault);
                        reply.extend((done as u64).to_ne_bytes());
                        Ok(Answered::Made)
                    }
                }
            }
            What::Check => share.writable(offset, request.left).map(|_| Answered::With(Status::Done)),
        }
    }
}

impl Memory {
    /// What belongs to the endpoint.
    pub(crate) fn into_buffers(self) -> Vec<Box<[u8]>> {
        match self {
            Memory::Owned(buffers) => buffers,
            Memory::Lent(_) => Vec::new(),
        }
    }
}

impl Share {
    /// The leases of this peer have ended.
    fn forget(&mut self, peer: Peer) {
        #[cfg(all(test, not(miri)))]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        self.leases.retain(|(of, _)| *of != peer);
    }

    /// A range that lies inside.
    fn range(&self, offset: u64, len: u64) -> Result<(usize, usize), Status> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len).ok_or(Status::Bounds)?;
        let range = (usize::try_from(offset), usize::try_from(end - offset));
        if let (Ok(start), Ok(len)) = range { Ok((start, len)) } else { Err(Status::Bounds) }
    }

    /// What `read` makes of a range that lies inside.
    fn read<R>(
        &self,
        start: usize,
        len: usize,
        read: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> R,
    ) -> Result<R, Status> {
        match &self.memory {
            Memory::Owned(buffers) => {
                Ok(read(&mut window(buffers.iter().map(|buffer| &buffer[..]), start, len)))
            }
            Memory::Lent(lent) => {
                lent.read(|slices| read(&mut window(slices, start, len))).ok_or(Status::Unknown)
            }
        }
    }

    /// Where it lies: all of it, or if that has too many parts, those from this offset on. With the offset of the first.
    fn parts(&self, offset: usize) -> Result<(usize, Vec<Part>), Status> {
        let (_, len) = self.range(0, self.len)?;
        let from = |start: usize| {
            self.read(start, len - start, |slices| slices.map(part).take(PARTS + 1).collect::<Vec<_>>())
        };
        let parts = from(0)?;
        if parts.len() <= PARTS {
            return Ok((0, parts));
        }
        let mut parts = from(offset)?;
        parts.truncate(PARTS);
        Ok((offset, parts))
    }

    fn writable(&mut self, offset: u64, len: u64) -> Result<impl Iterator<Item = &mut [u8]>, Status> {
        if self.access != Access::ReadWrite {
            return Err(Status::NotWritable);
        }
        let (start, len) = self.range(offset, len)?;
        match &mut self.memory {
            Memory::Owned(buffers) => {
                Ok(window_mut(buffers.iter_mut().map(|buffer| &mut buffer[..]), start, len))
            }
            Memory::Lent(_) => Err(Status::NotWritable),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
