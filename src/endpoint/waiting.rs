//! How a call waits: it polls for a while, parks all peers, and sleeps until a descriptor is ready.

use std::time::{Duration, Instant};

use crate::endpoint::error::EndpointError;
use crate::endpoint::state::State;
use crate::protocol::message::parking;
use crate::segment::platform::{ShmPlatform, Wait};
use crate::sys::wait::progress;
use crate::tuning::ENDPOINT_POLLS_PER_CALL;

impl State {
    /// Tries again and again, and sleeps in between. `None`: it was in vain for so long.
    pub(crate) fn block<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        self.block_knowing(timeout, |state, _| attempt(state))
    }

    /// The same for attempts that know whether others follow before it sleeps.
    pub(crate) fn block_knowing<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self, bool) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        self.block_polling(timeout, |state, polls| {
            if let Some(polls) = polls {
                state.poll(polls)?;
            }
            attempt(state, polls.is_some())
        })
    }

    /// The same for attempts that take in what comes themselves: with the number of polls that they count for. `None`: all was taken
    /// in.
    pub(crate) fn block_polling<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self, Option<u32>) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        // What is there, or comes soon, is found without looking at the clock.
        let is_over = timeout.is_some_and(|timeout| timeout.is_zero());
        let (spin, before, mut polls) = (self.spin.within(timeout), self.taken_in, ENDPOINT_POLLS_PER_CALL);
        let found = spin.spin_briefly(true, || {
            let found = attempt(self, Some(polls));
            polls = 1;
            // While something else comes, each poll may take long.
            (!matches!(found, Ok(None)) || self.taken_in != before).then_some(found)
        });
        match found {
            Some(found) if !matches!(found, Ok(None)) => found,
            _ if is_over => Ok(None),
            _ => self.block_longer(timeout, attempt),
        }
    }

    #[cold]
    fn block_longer<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self, Option<u32>) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut found = self.spin(left, &mut attempt)?;
        while found.is_none() {
            if !self.park_awake()? {
                found = attempt(self, None)?;
                if found.is_some() {
                    break;
                }
                // If a descriptor is ready by now, it does not wait.
                self.look(left())?;
            }
            let has_passed = left().is_some_and(|left| left.is_zero());
            found = self.spin(left, &mut attempt)?;
            if has_passed {
                break;
            }
        }
        Ok(found)
    }

    /// Tries until there is something, or the time is over, or nothing has been taken in for as long as the endpoint polls before it sleeps: who
    /// sends may go on with that, also while it is not what is waited for.
    fn spin<R>(
        &mut self,
        left: impl Fn() -> Option<Duration>,
        attempt: &mut impl FnMut(&mut Self, Option<u32>) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        loop {
            let (before, left, mut found) = (self.taken_in, left(), Ok(None));
            self.spin.within(left).spin_for_write(|| {
                found = attempt(self, Some(1));
                !matches!(found, Ok(None)) || self.taken_in != before
            });
            let goes_on = self.taken_in != before && left.is_none_or(|left| !left.is_zero());
            if !goes_on || !matches!(found, Ok(None)) {
                return found;
            }
            // One that is always busy looks at the system as often as after calls, and starts no spin that would do this.
            self.polls += ENDPOINT_POLLS_PER_CALL;
            progress::go_on();
            if self.spin.yields() {
                std::thread::yield_now();
            }
        }
    }

    /// Looks at the descriptors, and parks all that are awake. Returns whether something has come meanwhile: then nobody must wait for the endpoint's
    /// descriptor.
    pub(crate) fn park(&mut self) -> Result<bool, EndpointError> {
        self.check()?;
        // First: a packet that is read here tells of something that is looked for below.
        let has_work = self.look(Some(Duration::ZERO))?;
        Ok(self.park_awake()? || has_work)
    }

    /// Parks all that are awake. Returns whether something has come meanwhile: then the endpoint must not sleep. What a descriptor tells ends the sleep.
    fn park_awake(&mut self) -> Result<bool, EndpointError> {
        self.check()?;
        let links = &mut self.links;
        let marks = self.awake.iter().map(|peer| Some(links.get(*peer)?.mark()));
        let mut marks = marks.collect::<Vec<_>>().into_iter();
        let fenced = parking::fence(&ShmPlatform::of_connection(Wait::Socket(-1)));
        self.awake.retain(|peer| {
            let (Some(Some(marked)), Some(link)) = (marks.next(), links.get(*peer)) else { return false };
            link.park(marked, &fenced);
            !link.is_parked()
        });
        Ok(!self.awake.is_empty())
    }
}
