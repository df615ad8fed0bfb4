//! How a call waits: it polls for a while, parks all peers, and sleeps until a descriptor is ready.

use std::time::{Duration, Instant};

use crate::endpoint::error::EndpointError;
use crate::endpoint::state::State;
use crate::sys::wait::spin::SpinPolicy;
use crate::tuning::ENDPOINT_POLLS_PER_CALL;

impl State {
    /// Tries again and again, and sleeps in between. `None`: it was in vain for so long.
    pub(crate) fn block<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        // What is there, or comes soon, is found without looking at the clock.
        let is_over = timeout.is_some_and(|timeout| timeout.is_zero());
        let (spin, mut polls) = (if is_over { SpinPolicy::NONE } else { self.spin }, ENDPOINT_POLLS_PER_CALL);
        let found = spin.spin_briefly(true, || {
            let found = self.poll(polls).and_then(|()| attempt(self));
            polls = 1;
            found.transpose()
        });
        match found {
            Some(found) => found.map(Some),
            None if is_over => Ok(None),
            None => self.block_longer(timeout, attempt),
        }
    }

    #[cold]
    fn block_longer<R>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<R>, EndpointError>,
    ) -> Result<Option<R>, EndpointError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (spin, mut found) = (self.spin, Ok(None));
        spin.spin_long_for_write(|| {
            found = self.poll(1).and_then(|()| attempt(self));
            !matches!(found, Ok(None))
        });
        while matches!(found, Ok(None)) {
            // Parking looks at the descriptors too, and what they tell may be what is tried for.
            if !self.park()? {
                if let Some(found) = attempt(self)? {
                    return Ok(Some(found));
                }
                self.look(deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))?;
            }
            let has_passed = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let spin = if has_passed { SpinPolicy::NONE } else { self.spin };
            spin.spin_for_write(|| {
                found = self.poll(1).and_then(|()| attempt(self));
                !matches!(found, Ok(None))
            });
            if has_passed {
                break;
            }
        }
        found
    }
}
