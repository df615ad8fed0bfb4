//! Where a call that was started, and what goes on with it, meet.
//!
//! A started call is a future that is polled in tests and waits, and nowhere else: it is a sequence of steps, each of which is
//! started and then tested. It does not know the leaders, which are another type for each transport: it asks for an exchange
//! here, and finds the answer.

use std::future::{Future, poll_fn};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::collective::pending::Pending;
use crate::error::Error;
use crate::nodes::notice::Notice;
use crate::nodes::waiting::LeadersError;

/// An exchange between leaders, with the data of this one.
pub(super) enum Exchange {
    /// The blocks of all nodes, of these lengths, one after the other.
    Allgatherv { data: Vec<u8>, counts: Vec<usize> },
    /// From the leader of this node.
    Broadcast { data: Vec<u8>, root: usize },
    /// To the leader of this node.
    Send { data: Vec<u8>, to: usize },
    /// From the leader of this node, as much as that.
    Recv { data: Vec<u8>, from: usize },
}

impl Exchange {
    /// How many bytes come back; `None`: they are not read.
    fn len(&self) -> Option<usize> {
        match self {
            Exchange::Allgatherv { data, .. }
            | Exchange::Broadcast { data, .. }
            | Exchange::Recv { data, .. } => Some(data.len()),
            Exchange::Send { .. } => None,
        }
    }
}

/// How far the exchange has come that the current call has asked for.
#[derive(Default)]
enum Stage {
    #[default]
    None,
    Wanted(Exchange),
    /// With how many bytes are to come.
    UnderWay(Option<usize>),
    Done(Result<Vec<u8>, LeadersError>),
}

/// What the current call and its driver tell each other. There is one call at a time, and one thread.
#[derive(Default)]
pub(super) struct Desk(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    waits: bool,
    stage: Stage,
    failed: Option<Notice>,
}

impl Desk {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on steps inside the node are waited for, or only tested.
    pub(super) fn set_waits(&self, waits: bool) {
        self.slots().waits = waits;
    }

    /// Completes a step inside the node.
    ///
    /// # Errors
    /// Those of the step.
    pub(super) async fn complete<R>(&self, mut pending: Pending<'_, R>) -> Result<R, Error> {
        while !self.slots().waits && !pending.test() {
            pause().await;
        }
        pending.wait()
    }

    /// Asks for an exchange. Only a leader does.
    pub(super) fn ask(&self, exchange: Exchange) {
        self.slots().stage = Stage::Wanted(exchange);
    }

    /// The result of the exchange, once it is complete.
    pub(super) fn answer(&self) -> Option<Result<Vec<u8>, LeadersError>> {
        let mut slots = self.slots();
        match std::mem::take(&mut slots.stage) {
            Stage::Done(result) => Some(result),
            other => {
                slots.stage = other;
                None
            }
        }
    }

    /// Goes on with the exchange, if there is one: `start` starts it, `test` tests it. Whether the call can go on.
    pub(super) fn serve<C>(
        &self,
        context: &mut C,
        start: impl FnOnce(&mut C, Exchange) -> Result<(), LeadersError>,
        test: impl FnOnce(&mut C) -> Result<Option<Vec<u8>>, LeadersError>,
    ) -> bool {
        let mut slots = self.slots();
        let (len, started) = match std::mem::take(&mut slots.stage) {
            Stage::None => return false,
            Stage::Wanted(exchange) => (exchange.len(), start(context, exchange)),
            Stage::UnderWay(len) => (len, Ok(())),
            done => {
                slots.stage = done;
                return true;
            }
        };
        slots.stage = match started.and_then(|()| test(context)).transpose() {
            Some(result) => Stage::Done(result.and_then(|data| check(len, data))),
            None => Stage::UnderWay(len),
        };
        matches!(slots.stage, Stage::Done(_))
    }

    /// The communicator has ended: the first failure counts.
    pub(super) fn fail(&self, notice: Notice) {
        self.slots().failed.get_or_insert(notice);
    }

    /// The failure that the current call has told.
    pub(super) fn take_failure(&self) -> Option<Notice> {
        self.slots().failed.take()
    }
}

/// What an implementation of the leaders has brought is as long as what it was asked for.
fn check(len: Option<usize>, data: Vec<u8>) -> Result<Vec<u8>, LeadersError> {
    match len {
        Some(len) if len != data.len() => {
            let reason = format!("a call of the leaders brought {} bytes of {len}", data.len());
            Err(LeadersError::Transport { reason })
        }
        _ => Ok(data),
    }
}

/// Lets the driver go on, until it polls again.
pub(super) fn pause() -> impl Future<Output = ()> {
    let mut polled = false;
    poll_fn(move |_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_that_bring_another_length_have_failed() {
        for (brought, is_right) in [(8, true), (7, false), (9, false)] {
            let desk = Desk::default();
            desk.ask(Exchange::Recv { data: vec![0; 8], from: 1 });
            assert!(desk.serve(&mut (), |(), _| Ok(()), |()| Ok(Some(vec![0; brought]))));
            let answer = desk.answer().expect("it is complete");
            assert_eq!(answer.is_ok(), is_right, "{brought} bytes of 8: {answer:?}");
        }
    }
}
