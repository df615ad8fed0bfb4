//! Leaders over MPI's non-blocking calls, which are tested until they are complete, or too late.
//!
//! MPI may read and write a buffer until its request is complete, and there is no way to take that back. So the buffers of a call
//! are its own, and those of a call that has failed, or in which a hook has panicked, are never freed.
//!
//! **Who is late.** MPI tells when a call is complete, not who is missing. So a leader whose time is over asks the others whom they wait
//! for: see [`RollCall`]. Within a broadcast of MPI nobody can say that.

use std::mem;
use std::time::{Duration, Instant};

use ferrompi::Communicator;
use intranode::{Awaited, Leaders, LeadersError, RollCall, Waiting};

use crate::ring::Ring;
use crate::started::{Started, Then};

/// The tags of messages.
pub(crate) const DATA: i32 = 1;
const CONTROL: i32 = 2;

/// The first byte of a control message: a failure, whose notice follows; a question whom a leader waits for, and the answer, with what
/// the sender awaits itself.
const FAILED: u8 = 0;
const ASKED: u8 = 1;
const HERE: u8 = 2;

/// How long a leader waits for answers.
const ROLL_CALL: Duration = Duration::from_millis(500);

/// MPI counts in `i32`: longer data goes in pieces.
pub(crate) const PIECE: usize = 1 << 30;

/// Leaders over a communicator of MPI: node `n` is rank `n` of it. [`world`](crate::world) makes it.
pub struct MpiLeaders {
    comm: Communicator,
    /// What was started and is not complete.
    started: Option<Started>,
    /// What a leader has told of the failure of its node, while this one could still complete a call.
    heard: Option<Vec<u8>>,
    /// The node that this leader awaits, if that is known, and since when.
    awaits: (Option<usize>, Instant),
}

impl MpiLeaders {
    /// Leaders over a communicator of theirs, which nobody else uses. Not collective.
    pub fn new(comm: Communicator) -> Self {
        MpiLeaders { comm, started: None, heard: None, awaits: (None, Instant::now()) }
    }

    /// Tests a call until it is complete.
    fn complete(
        &mut self,
        mut started: Started<&mut [u8]>,
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        loop {
            if started.missed.is_none() {
                wait.restart();
            }
            self.awaits = started.awaits();
            // In this order: the call may be complete on a node that has failed in the next one.
            let told = self.look();
            if started.go_on(&self.comm)? {
                return Ok(());
            }
            if told {
                return Err(self.failed());
            }
            if let Some(timeout) = wait.timeout().filter(|_| wait.is_over()) {
                // The ranks of the node are not to give this leader up meanwhile.
                self.roll_call(timeout, ROLL_CALL, || wait.pause())?;
                started.missed = None;
            }
            wait.pause()?;
        }
    }

    /// Whether a leader has told of the failure of its node. Answers those who ask.
    fn look(&mut self) -> bool {
        while self.heard.is_none()
            && let Some((from, control)) = self.control()
        {
            self.hear(from, &control);
        }
        self.heard.is_some()
    }

    /// Returns what the sender awaits, if it says that.
    fn hear(&mut self, from: i32, control: &[u8]) -> Option<Awaited> {
        let (kind, rest) = control.split_first()?;
        match *kind {
            FAILED => {
                self.heard = Some(rest.to_vec());
                return None;
            }
            ASKED => self.tell(from, &self.awaited(HERE)),
            _ => {}
        }
        Awaited::from_bytes(rest)
    }

    /// What this leader awaits, in a message.
    fn awaited(&self, kind: u8) -> Vec<u8> {
        let (node, since) = self.awaits;
        [&[kind][..], &Awaited::new(node, since.elapsed()).to_bytes()].concat()
    }

    fn failed(&mut self) -> LeadersError {
        LeadersError::Failed { notice: self.heard.take().unwrap_or_default() }
    }

    /// A control message that has come, and from where.
    fn control(&self) -> Option<(i32, Vec<u8>)> {
        let found = self.comm.iprobe::<u8>(-1, CONTROL).ok()??;
        let mut control = vec![0; usize::try_from(found.count).ok()?];
        self.comm.recv(&mut control, found.source, CONTROL).ok()?;
        Some((found.source, control))
    }

    /// Sends a control message, and does not wait for it.
    fn tell(&self, to: i32, control: &[u8]) {
        let control = control.to_vec();
        let request = self.comm.isend(&control, to, CONTROL);
        mem::forget((control, request));
    }

    fn others(&self) -> impl Iterator<Item = i32> {
        let (own, nodes) = (self.comm.rank(), self.comm.size());
        (0..nodes).filter(move |node| *node != own)
    }

    /// Whether somebody is late: see [`RollCall`].
    fn roll_call(
        &mut self,
        timeout: Duration,
        within: Duration,
        mut pause: impl FnMut() -> Result<(), LeadersError>,
    ) -> Result<(), LeadersError> {
        let asked = self.awaited(ASKED);
        self.others().for_each(|node| self.tell(node, &asked));
        let mut roll_call = RollCall::new(self.nodes(), self.node(), self.awaits.0, timeout);
        let begun = Instant::now();
        loop {
            let is_over = begun.elapsed() >= within;
            match self.control() {
                Some((from, control)) => {
                    // Who asks is there too.
                    if let Some(awaited) = self.hear(from, &control) {
                        roll_call.hear(from as usize, awaited);
                    }
                }
                None => pause()?,
            }
            if self.heard.is_some() {
                return Err(self.failed());
            }
            if let Some(outcome) = roll_call.outcome(is_over) {
                return outcome;
            }
        }
    }
}

impl Leaders for MpiLeaders {
    fn node(&self) -> usize {
        self.comm.rank() as usize
    }

    fn nodes(&self) -> usize {
        self.comm.size() as usize
    }

    /// In a ring: see `Ring`.
    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        let ring = Ring::new(self.node(), counts);
        self.complete(Started::new(data, Some(ring)), wait)
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        // One after the other: each has a buffer.
        for piece in data.chunks_mut(PIECE) {
            let (len, mut started) = (piece.len(), Started::new(piece, None));
            started.post(0..len, None, Then::Keep, |buffer| self.comm.ibroadcast(buffer, root as i32))?;
            self.complete(started, wait)?;
        }
        Ok(())
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let mut started = Started::new(&mut [] as &mut [u8], None);
        started.post_send(data, to, |buffer| self.comm.isend(buffer, to as i32, DATA))?;
        self.complete(started, wait)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        for piece in data.chunks_mut(PIECE) {
            let (len, mut started) = (piece.len(), Started::new(piece, None));
            started
                .post(0..len, Some(from), Then::Keep, |buffer| self.comm.irecv(buffer, from as i32, DATA))?;
            self.complete(started, wait)?;
        }
        Ok(())
    }

    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError> {
        self.started = Some(Started::new(data, Some(Ring::new(self.node(), counts))));
        Ok(())
    }

    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError> {
        let (len, mut started) = (data.len(), Started::new(data, None));
        started.post(0..len, None, Then::Keep, |buffer| self.comm.ibroadcast(buffer, root as i32))?;
        self.started = Some(started);
        Ok(())
    }

    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError> {
        let (len, mut started) = (data.len(), Started::new(data, None));
        started.post(0..len, Some(to), Then::Drop, |buffer| self.comm.isend(buffer, to as i32, DATA))?;
        self.started = Some(started);
        Ok(())
    }

    fn start_recv(&mut self, data: Vec<u8>, from: usize) -> Result<(), LeadersError> {
        let (len, mut started) = (data.len(), Started::new(data, None));
        started.post(0..len, Some(from), Then::Keep, |buffer| self.comm.irecv(buffer, from as i32, DATA))?;
        self.started = Some(started);
        Ok(())
    }

    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
        let Some(mut started) = self.started.take() else {
            return Err(LeadersError::Transport { reason: "no call of the leaders was started".to_owned() });
        };
        self.awaits = started.awaits();
        // In this order: the call may be complete on a node that has failed in the next one.
        let told = self.look();
        if started.go_on(&self.comm)? {
            return Ok(Some(mem::take(&mut started.data)));
        }
        if told {
            return Err(self.failed());
        }
        let waited = started.awaits().1.elapsed();
        if let Some(timeout) = timeout.filter(|timeout| waited >= *timeout) {
            // It is shorter where the ranks of the node would give this leader up meanwhile.
            let yields = || {
                std::thread::yield_now();
                Ok(())
            };
            self.roll_call(timeout, ROLL_CALL.min(timeout / 4), yields)?;
            started.missed = None;
        }
        self.started = Some(started);
        Ok(None)
    }

    fn fail(&mut self, notice: &[u8]) {
        self.started = None;
        let control = [&[FAILED], notice].concat();
        self.others().for_each(|node| self.tell(node, &control));
    }
}

pub(crate) fn transport(error: ferrompi::Error) -> LeadersError {
    LeadersError::Transport { reason: error.to_string() }
}
