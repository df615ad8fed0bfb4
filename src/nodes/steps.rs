//! What a call consists of that is completed later: steps inside its node, and exchanges between leaders, none of which waits.
//!
//! They are those of [`session`](super::session), with the same rounds of the node and the same exchanges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::collective::pending::Pending;
use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::nodes::desk::{Desk, Exchange, pause};
use crate::nodes::hierarchical::Sizes;
use crate::nodes::map::NodeMap;
use crate::nodes::notice::{NOTICE, Notice, among_all, ending};
use crate::nodes::packets::{self, Along, SHOWN};
use crate::nodes::waiting::pulse_every;
use crate::protocol::Call;

/// The rank of a node that is its leader.
pub(super) const LEADER: usize = 0;

/// What one call needs besides its data.
pub(super) struct Steps {
    pub(super) node: Arc<Communicator>,
    pub(super) map: Arc<NodeMap>,
    /// This rank's node.
    pub(super) own: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) sizes: Sizes,
    pub(super) desk: Arc<Desk>,
    pub(super) operation: Operation,
    /// The number of this call.
    pub(super) round: u32,
}

impl Steps {
    /// Whether this rank is its node's leader.
    pub(super) fn leads(&self) -> bool {
        self.node.rank() == LEADER
    }

    /// A step inside the node.
    ///
    /// # Errors
    /// Those of the step, which name ranks by their numbers among all. The communicator has ended.
    pub(super) async fn node<R>(
        &self,
        start: impl for<'c> FnOnce(&'c Communicator) -> Result<Pending<'c, R>, Error>,
    ) -> Result<R, Error> {
        self.complete(start(&self.node)).await.map_err(|error| self.failed(error))
    }

    async fn complete<R>(&self, pending: Result<Pending<'_, R>, Error>) -> Result<R, Error> {
        self.desk.complete(pending?).await
    }

    /// Ends the communicator.
    fn failed(&self, error: Error) -> Error {
        let first = self.map.leader_of(self.own);
        let (error, rank) = (among_all(error, self.operation, self.round, first), first + self.node.rank());
        self.desk.fail(Notice::of_error(&error, rank));
        ending(error, self.operation, rank)
    }

    /// An exchange between leaders, of `data` of this one, which the other ranks only wait for: they keep theirs.
    ///
    /// # Errors
    /// The same on every rank of the node. The communicator has ended.
    pub(super) async fn leaders(
        &self,
        data: Vec<u8>,
        exchange: impl FnOnce(Vec<u8>) -> Exchange,
    ) -> Result<Vec<u8>, Error> {
        let (told, data) = match self.leads() {
            true => self.lead(exchange(data), 0).await,
            false => self.follow(0).await.map(|(told, _)| (told, data)),
        }
        .map_err(|error| self.failed(error))?;
        self.heard(told).map(|()| data)
    }

    /// An allgatherv of words, which all ranks of the node get.
    ///
    /// # Errors
    /// As [`leaders`](Steps::leaders).
    pub(super) async fn gather_words(&self, words: Vec<u64>, counts: Vec<usize>) -> Result<Vec<u64>, Error> {
        let len = words.len();
        let (told, words) = match self.leads() {
            true => {
                let data = bytemuck::cast_slice(&words).to_vec();
                let led = self.lead(Exchange::Allgatherv { data, counts }, len).await;
                led.map(|(told, data)| (told, bytemuck::pod_collect_to_vec(&data)))
            }
            false => self.follow(len).await,
        }
        .map_err(|error| self.failed(error))?;
        self.heard(told).map(|()| words)
    }

    /// What the leader has told of an exchange.
    fn heard(&self, told: Notice) -> Result<(), Error> {
        let Some(error) = told.error(self.operation, &self.map) else { return Ok(()) };
        self.desk.fail(told);
        Err(error)
    }

    /// The exchange, after which the node is told how it ended, with the first `words` words of what has come.
    async fn lead(&self, exchange: Exchange, words: usize) -> Result<(Notice, Vec<u8>), Error> {
        self.desk.ask(exchange);
        let every = pulse_every(self.timeout);
        let mut next = Instant::now() + every;
        let mut pulse = None;
        let result = loop {
            if let Some(result) = self.desk.answer() {
                break result;
            }
            // The ranks of the node may be somewhere else: nothing waits for them here.
            match &mut pulse {
                None if Instant::now() >= next => {
                    let message = gate(&Notice::WAITS, &[], words);
                    pulse = Some(self.node.start_broadcast(message, LEADER)?);
                }
                None => {}
                Some(started) => {
                    if started.test()
                        && let Some(complete) = pulse.take()
                    {
                        complete.wait()?;
                        next = Instant::now() + every;
                    }
                }
            }
            pause().await;
        };
        if let Some(started) = pulse {
            self.desk.complete(started).await?;
        }
        let (told, data) = match result {
            Ok(data) => (Notice::DONE, data),
            Err(error) => (Notice::of_leaders(error, &self.map, self.timeout, self.round), Vec::new()),
        };
        let message = gate(&told, &data, words);
        self.complete(self.node.start_broadcast(message, LEADER)).await?;
        Ok((told, data))
    }

    /// What the leader tells at last, with `words` words.
    async fn follow(&self, words: usize) -> Result<(Notice, Vec<u64>), Error> {
        loop {
            let message = vec![0u64; NOTICE + words];
            let message = self.complete(self.node.start_broadcast(message, LEADER)).await?;
            let told = Notice::of_words(&message[..NOTICE]);
            if !told.is_waiting() {
                return Ok((told, message[NOTICE..].to_vec()));
            }
        }
    }

    /// Agrees on a call, after this rank has checked its arguments: [`Session::agree`](super::session::Session::agree).
    ///
    /// # Errors
    /// As there.
    pub(super) async fn agree(
        &self,
        call: &Call,
        checked: Result<(), Error>,
        along: &[u8],
    ) -> Result<Along, Error> {
        let call = Call { refused: checked.is_err(), ..*call };
        match self.complete(self.show(&call, along)).await {
            Ok(of_node) => self.compare(&call, checked, along.len(), of_node).await,
            // Other ranks of the node make a call that waits.
            Err(Error::Mismatch { .. }) => self.agree_once_more(&call, checked, along).await,
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The same after a round that showed that the ranks of this node do not all make a call of the same kind.
    ///
    /// # Errors
    /// As [`agree`](Steps::agree).
    pub(super) async fn agree_once_more(
        &self,
        call: &Call,
        checked: Result<(), Error>,
        along: &[u8],
    ) -> Result<Along, Error> {
        let of_node = self.complete(self.show(call, along)).await.map_err(|error| self.failed(error))?;
        self.compare(call, checked, along.len(), of_node).await
    }

    /// Shows the node this call.
    fn show(&self, call: &Call, along: &[u8]) -> Result<Pending<'_, Vec<u64>>, Error> {
        let (size, shown) = (self.node.size(), packets::shown(call, along));
        let starts: Vec<usize> = (0..size).map(|rank| SHOWN * rank).collect();
        self.node.start_allgatherv(&shown, vec![0; SHOWN * size], &vec![SHOWN; size], &starts)
    }

    async fn compare(
        &self,
        call: &Call,
        checked: Result<(), Error>,
        along: usize,
        of_node: Vec<u64>,
    ) -> Result<Along, Error> {
        let packets = packets::packets(&self.map, self.own, &of_node, call, along);
        let packets = self.gather_words(packets, packets::packet_counts(&self.map)).await?;
        if let Some(along) = packets::agreed(packets) {
            return Ok(along);
        }
        let calls = packets::calls_of_node(&self.map, self.own, &of_node);
        let calls = self.gather_words(calls, packets::call_counts(&self.map)).await?;
        Err(packets::disagreement(self.operation, self.round, checked, &calls))
    }
}

/// What a leader tells its node: how it stands, and what has come.
fn gate(told: &Notice, data: &[u8], words: usize) -> Vec<u64> {
    let mut message = vec![0u64; NOTICE + words];
    message[..NOTICE].copy_from_slice(told.words());
    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut message[NOTICE..]);
    let len = room.len().min(data.len());
    room[..len].copy_from_slice(&data[..len]);
    message
}
