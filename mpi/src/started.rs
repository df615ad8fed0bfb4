//! A call of the leaders that goes on in tests: its requests, and their buffers.

use std::mem;
use std::ops::Range;
use std::time::Instant;

use ferrompi::{Communicator, Request};
use intranode::LeadersError;

use crate::leaders::{DATA, PIECE, transport};
use crate::ring::{Ring, Step};

/// A call that was started, over data of its own, or of a caller that waits for it.
pub(crate) struct Started<D = Vec<u8>> {
    pub(crate) data: D,
    /// The requests that are not complete.
    open: Vec<Open>,
    /// That of an allgatherv.
    ring: Option<Ring>,
    /// Since when tests have found nothing new.
    pub(crate) missed: Option<Instant>,
}

/// What becomes of a buffer when its request is complete.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Its data have come.
    Keep,
    Drop,
}

/// A request, and its buffer, which is never freed before it is complete.
struct Open {
    request: Option<Request>,
    buffer: Vec<u8>,
    place: Range<usize>,
    then: Then,
    /// The other node, if it is a message.
    node: Option<usize>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            // To drop it is to wait for it.
            mem::forget((request, mem::take(&mut self.buffer)));
        }
    }
}

impl<D: AsRef<[u8]> + AsMut<[u8]>> Started<D> {
    pub(crate) fn new(data: D, ring: Option<Ring>) -> Self {
        Started { data, open: Vec::new(), ring, missed: None }
    }

    /// Starts a request for each piece of a part of the data.
    ///
    /// # Errors
    /// [`LeadersError::Transport`].
    pub(crate) fn post(
        &mut self,
        part: Range<usize>,
        node: Option<usize>,
        then: Then,
        start: impl Fn(&mut [u8]) -> ferrompi::Result<Request>,
    ) -> Result<(), LeadersError> {
        for begin in part.clone().step_by(PIECE) {
            let place = begin..part.end.min(begin + PIECE);
            let buffer = self.data.as_ref()[place.clone()].to_vec();
            self.add((buffer, place, then, node), &start)?;
        }
        Ok(())
    }

    /// The same for data that are sent and that the call does not have.
    ///
    /// # Errors
    /// [`LeadersError::Transport`].
    pub(crate) fn post_send(
        &mut self,
        data: &[u8],
        to: usize,
        start: impl Fn(&mut [u8]) -> ferrompi::Result<Request>,
    ) -> Result<(), LeadersError> {
        data.chunks(PIECE).try_for_each(|piece| self.add((piece.to_vec(), 0..0, Then::Drop, Some(to)), &start))
    }

    fn add(
        &mut self,
        (mut buffer, place, then, node): (Vec<u8>, Range<usize>, Then, Option<usize>),
        start: impl Fn(&mut [u8]) -> ferrompi::Result<Request>,
    ) -> Result<(), LeadersError> {
        let request = start(&mut buffer).map_err(transport)?;
        self.open.push(Open { request: Some(request), buffer, place, then, node });
        Ok(())
    }

    /// The node that is awaited, if that is known, and since when: the one that sends, if there are two.
    pub(crate) fn awaits(&mut self) -> (Option<usize>, Instant) {
        let since = *self.missed.get_or_insert_with(Instant::now);
        let keeps = |open: &&Open| matches!(open.then, Then::Keep);
        let open = self.open.iter().find(keeps).or(self.open.first());
        (open.and_then(|open| open.node), since)
    }

    /// Goes on as far as that takes no waiting. Whether the call is complete.
    ///
    /// # Errors
    /// [`LeadersError::Transport`].
    pub(crate) fn go_on(&mut self, comm: &Communicator) -> Result<bool, LeadersError> {
        loop {
            let mut index = 0;
            while let Some(open) = self.open.get_mut(index) {
                let complete = open.request.as_mut().map_or(Ok(true), Request::test).map_err(transport)?;
                if !complete {
                    index += 1;
                    continue;
                }
                open.request = None;
                if let Then::Keep = open.then {
                    self.data.as_mut()[open.place.clone()].copy_from_slice(&open.buffer);
                }
                self.open.swap_remove(index);
                self.missed = None;
            }
            if !self.open.is_empty() {
                return Ok(false);
            }
            if !self.step(comm)? {
                return Ok(true);
            }
        }
    }

    /// Starts the next step of a ring. False: there is none.
    fn step(&mut self, comm: &Communicator) -> Result<bool, LeadersError> {
        let Some(Step { own, next, theirs, before }) = self.ring.as_mut().and_then(Ring::next) else {
            return Ok(false);
        };
        self.post(own, Some(next), Then::Drop, |buffer| comm.isend(buffer, next as i32, DATA))?;
        self.post(theirs, Some(before), Then::Keep, |buffer| comm.irecv(buffer, before as i32, DATA))?;
        Ok(true)
    }
}
