//! A signal during training asks for a stop at the next iteration, so that the policy is written.
//!
//! At any other time SIGTERM and SIGINT do what they always do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cobre_comm::{Communicator, ReduceOp};
use cobre_sddp::config::ShutdownSource;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::{Failure, Kind, Outcome};

/// The two signals that ask for a stop.
const SIGNALS: [i32; 2] = [SIGTERM, SIGINT];

/// The exit code of `cobre run` after a signal: training stopped, the policy is written.
pub(crate) const STOPPED_ON_REQUEST: u8 = 5;

/// Whether a stop was asked for, and whether signals ask for one at all just now.
pub(crate) struct StopRequest {
    level: Arc<AtomicUsize>,
    default_action: Arc<AtomicBool>,
}

impl StopRequest {
    /// Registers the handlers; until [`open`](Self::open) signals have their default action.
    pub(crate) fn install() -> Outcome<Self> {
        let request =
            Self { level: Arc::new(AtomicUsize::new(0)), default_action: Arc::new(AtomicBool::new(true)) };
        let level = ShutdownSource::Signal.level();
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&request.default_action))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&request.level), level))
                .map_err(|error| {
                    Failure::new(Kind::Internal, format_args!("signal handlers can not be set: {error}"))
                })?;
        }
        Ok(request)
    }

    /// From now on a signal asks for a stop.
    pub(crate) fn open(&self) {
        self.default_action.store(false, Ordering::SeqCst);
    }

    /// The flag that training looks at.
    pub(crate) fn flag(&self) -> &Arc<AtomicUsize> {
        &self.level
    }

    /// The strongest request that any rank has seen, the same on all ranks.
    pub(crate) fn agreed_level<C: Communicator>(&self, comm: &C) -> Outcome<usize> {
        let mut agreed = [0_usize];
        comm.allreduce(&[self.level.load(Ordering::SeqCst)], &mut agreed, ReduceOp::Max)?;
        Ok(agreed[0])
    }

    /// Gives signals their default action back; one that came too late to be agreed on acts now.
    pub(crate) fn close(&self) {
        self.default_action.store(true, Ordering::SeqCst);
        if self.level.load(Ordering::SeqCst) != 0 {
            // Both signals end the process; which of the two it was is not known here.
            let _ = low_level::emulate_default_handler(SIGTERM);
        }
    }
}
