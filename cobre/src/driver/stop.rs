//! SIGTERM and SIGINT during training request a stop at the next iteration, so that the policy is written.
//!
//! At any other time they have their default action. SIGUSR1 is a request of the program that has started this one, after which
//! the configured simulation still runs; before training it counts for the first iteration. The last request counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cobre_comm::{Communicator, ReduceOp};
use cobre_sddp::config::ShutdownSource;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level};

use crate::driver::failure::{Failure, Kind, Outcome};

/// The signals that request a stop.
const SIGNALS: [i32; 2] = [SIGTERM, SIGINT];

/// The exit code of `cobre run` after a stop by a signal, with a policy.
pub(crate) const STOPPED_ON_REQUEST: u8 = 5;

/// Whether a stop was requested, and whether signals have their default action.
pub(crate) struct StopRequest {
    level: Arc<AtomicUsize>,
    default_action: Arc<AtomicBool>,
}

/// Whether a signal was ignored when this program was started, as SIGHUP by `nohup` and SIGINT in the background of a shell's script:
/// it stays so.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

impl StopRequest {
    /// Registers the handlers; until [`open`](Self::open) signals have their default action.
    pub(crate) fn install() -> Outcome<Self> {
        let request =
            Self { level: Arc::new(AtomicUsize::new(0)), default_action: Arc::new(AtomicBool::new(true)) };
        let level = ShutdownSource::Signal.level();
        for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
            flag::register_conditional_default(signal, Arc::clone(&request.default_action))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&request.level), level))
                .map_err(|error| {
                    Failure::new(Kind::Internal, format_args!("signal handlers cannot be set: {error}"))
                })?;
        }
        flag::register_usize(SIGUSR1, Arc::clone(&request.level), ShutdownSource::Cooperative.level())
            .map_err(|error| {
                Failure::new(Kind::Internal, format_args!("signal handlers cannot be set: {error}"))
            })?;
        Ok(request)
    }

    /// From now on a signal requests a stop.
    pub(crate) fn open(&self) {
        self.default_action.store(false, Ordering::SeqCst);
    }

    /// The flag that training polls.
    pub(crate) fn flag(&self) -> &Arc<AtomicUsize> {
        &self.level
    }

    /// The strongest request that any rank has seen, the same on all ranks.
    pub(crate) fn agreed_level<C: Communicator>(&self, comm: &C) -> Outcome<usize> {
        let mut agreed = [0_usize];
        comm.allreduce(&[self.level.load(Ordering::SeqCst)], &mut agreed, ReduceOp::Max)?;
        Ok(agreed[0])
    }

    /// Restores the default action. A signal that came too late for the agreement takes it now.
    pub(crate) fn close(&self) {
        self.default_action.store(true, Ordering::SeqCst);
        if self.level.load(Ordering::SeqCst) >= ShutdownSource::Signal.level() {
            // Both signals end the process, so it does not matter which of them it was.
            let _ = low_level::emulate_default_handler(SIGTERM);
        }
    }
}
