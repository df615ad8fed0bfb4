//! Completing what was started: tests, waits, and taking it back.

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::Envelope;
use crate::message::messages::Messages;
use crate::message::request::Request;
use crate::message::state::{State, Wait};

/// Whether a request was taken back.
///
/// ```
/// use intranode::Cancelled;
///
/// let results = intranode::threads(1, |comm| {
///     let mut messages = comm.messages()?;
///     let mut data = [0u8; 4];
///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
///     let early = messages.cancel(&mut receiving)?;
///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
///     messages.send(&[1u8, 2], 0, 1)?;
///     Ok::<_, intranode::Error>((early, messages.cancel(&mut receiving)?))
/// })?;
/// let Ok((early, late)) = results[0] else { panic!("{results:?}") };
/// assert_eq!(early, Cancelled::Yes);
/// assert!(matches!(late, Cancelled::TooLate(envelope) if envelope.bytes == 2));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was: nothing was sent, or received.
    Yes,
    /// It is complete.
    TooLate(Envelope),
}

impl Messages {
    /// What this request's message is known by, if it is complete; of a message that was sent, the source is this rank. It never
    /// waits. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let mut data = [0u8; 4];
    ///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
    ///     assert!(messages.test(&mut receiving)?.is_none());
    ///     messages.send(&[1u8], 0, 1)?;
    ///     Ok::<_, intranode::Error>(messages.test(&mut receiving)?.is_some())
    /// })?;
    /// assert!(matches!(results[0], Ok(true)));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Messages::send) and [`recv`](Messages::recv), but for time-outs.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn test(&mut self, request: &mut impl Request) -> Result<Option<Envelope>, Error> {
        let Messages { core, state, .. } = self;
        let wait = request.wait();
        core.check_rank(wait.operation, None)?;
        state.begin(core);
        if let Some(done) = request.poll(core, state) {
            return done.map(Some);
        }
        state.take_in_until(core, wait, |state| poll(core, state, request)).transpose()
    }

    /// Waits until a request is complete. Not collective. Example: [`Sending`](crate::Sending).
    ///
    /// # Errors
    /// As [`send`](Messages::send) and [`recv`](Messages::recv). After a time-out the request can be waited for again.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn wait(&mut self, request: &mut impl Request) -> Result<Envelope, Error> {
        let request: &mut dyn Request = request;
        self.wait_for(request.wait(), &mut [request], |core, state, requests| {
            poll(core, state, &mut *requests[0])
        })
    }

    /// Waits until all of these requests are complete. Returns what their messages are known by, in the order of the requests. Not
    /// collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let (own, other) = ([comm.rank() as u8; 8], 1 - comm.rank());
    ///     let mut received = [9u8; 8];
    ///     let mut receiving = messages.start_recv(&mut received, other, 1)?;
    ///     let mut sending = messages.start_send(&own, other, 1)?;
    ///     messages.wait_all(&mut [&mut receiving, &mut sending])?;
    ///     Ok::<_, intranode::Error>(received[7])
    /// })?;
    /// assert!(matches!(results[..], [Ok(1), Ok(0)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first that one of them has, as of [`wait`](Messages::wait). The others can be waited for again.
    ///
    /// # Panics
    /// When a request belongs to other messages.
    pub fn wait_all(&mut self, requests: &mut [&mut dyn Request]) -> Result<Vec<Envelope>, Error> {
        let mut done: Vec<Option<Envelope>> = vec![None; requests.len()];
        let operation = requests.first().map_or(Operation::Recv, |request| request.wait().operation);
        self.wait_for(Wait::of_several(operation), requests, |core, state, requests| {
            for (request, done) in requests.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
                match poll(core, state, &mut **request) {
                    Some(Ok(envelope)) => *done = Some(envelope),
                    Some(Err(error)) => return Some(Err(error)),
                    None => {}
                }
            }
            let all: Option<Vec<Envelope>> = done.iter().copied().collect();
            all.map(Ok)
        })
    }

    /// Waits until one of these requests is complete that it has not reported before. Returns its place in the list, and what its
    /// message is known by; `None` if all were reported. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let (mut one, mut two) = ([0u8; 4], [0u8; 4]);
    ///     let mut first = messages.start_recv(&mut one, 0, 1)?;
    ///     let mut second = messages.start_recv(&mut two, 0, 2)?;
    ///     let mut order = Vec::new();
    ///     for tag in [2, 1] {
    ///         messages.send(&[1u8], 0, tag)?;
    ///         order.extend(messages.wait_any(&mut [&mut first, &mut second])?.map(|(place, _)| place));
    ///     }
    ///     assert!(messages.wait_any(&mut [&mut first, &mut second])?.is_none());
    ///     Ok::<_, intranode::Error>(order)
    /// })?;
    /// assert!(matches!(&results[0], Ok(order) if order == &[1, 0]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Messages::wait). The request that has ended so counts as reported: [`test`](Messages::test) tells which it is.
    ///
    /// # Panics
    /// When a request belongs to other messages.
    pub fn wait_any(&mut self, requests: &mut [&mut dyn Request]) -> Result<Option<(usize, Envelope)>, Error> {
        if requests.iter_mut().all(|request| *request.reported()) {
            return Ok(None);
        }
        let operation = requests.first().map_or(Operation::Recv, |request| request.wait().operation);
        let found = self.wait_for(Wait::of_several(operation), requests, |core, state, requests| {
            let mut unreported = requests
                .iter_mut()
                .enumerate()
                .filter_map(|(place, request)| if *request.reported() { None } else { Some((place, request)) });
            unreported.find_map(|(place, request)| {
                let done = poll(core, state, &mut **request)?;
                *request.reported() = true;
                Some(done.map(|envelope| (place, envelope)))
            })
        });
        found.map(Some)
    }

    /// Takes a request back, if it is not too late: exactly one of both happens, the message is not sent or received, or the
    /// request is complete. A receive is too late once its message has begun to come; then it is waited for. A request that was taken
    /// back is complete for calls that wait for it; the envelope that they give means nothing. Not collective. Example:
    /// [`Cancelled`].
    ///
    /// # Errors
    /// As [`wait`](Messages::wait), if it is too late.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn cancel(&mut self, request: &mut impl Request) -> Result<Cancelled, Error> {
        let Messages { core, state, .. } = self;
        let wait = request.wait();
        core.check_rank(wait.operation, None)?;
        state.begin(core);
        // What has come has come before.
        let _ = state.take_in_until(core, wait, |_| None::<Result<(), Error>>);
        let request: &mut dyn Request = request;
        self.wait_for(wait, &mut [request], |core, state, requests| {
            // Each time: its sender may take the message of a receive back, too.
            if requests[0].withdraw(core, state) {
                return Some(Ok(Cancelled::Yes));
            }
            poll(core, state, &mut *requests[0]).map(|done| done.map(Cancelled::TooLate))
        })
    }

    /// Waits until `poll` has a result. As long as bytes come through the channels, no time-out passes.
    fn wait_for<R>(
        &mut self,
        wait: Wait,
        requests: &mut [&mut dyn Request],
        mut poll: impl FnMut(&Core, &mut State, &mut [&mut dyn Request]) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let Messages { core, state, .. } = self;
        core.check_rank(wait.operation, None)?;
        state.begin(core);
        loop {
            let before: usize = requests.iter().map(|request| request.progress()).sum();
            if let Some(done) = state.wait(core, wait, |state| poll(core, state, requests))? {
                return Ok(done);
            }
            if before == requests.iter().map(|request| request.progress()).sum::<usize>() {
                break;
            }
        }
        let mut late: Vec<usize> = Vec::new();
        for request in requests.iter_mut() {
            if !*request.reported() && request.poll(core, state).is_none() {
                late.extend(request.awaited());
            }
        }
        // That look came behind the deadline, and may have completed what is waited for.
        if let Some(done) = poll(core, state, requests) {
            return done;
        }
        late.sort_unstable();
        late.dedup();
        Err(core.timed_out(wait.operation, late))
    }
}

/// Goes on with a request, and finds out if those are gone that it waits for.
fn poll(core: &Core, state: &mut State, request: &mut dyn Request) -> Option<Result<Envelope, Error>> {
    let wait = request.wait();
    state.poll_or_gone(core, wait, |state| request.poll(core, state))
}
