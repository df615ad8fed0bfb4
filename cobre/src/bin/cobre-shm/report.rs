//! What rank 0 tells the user while the program runs: plain lines on standard error.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cobre_core::TrainingEvent;

/// Collects the events of a phase, and prints a line for each iteration where asked to.
pub(crate) struct Events {
    collector: JoinHandle<Vec<TrainingEvent>>,
}

impl Events {
    /// Starts collecting; the sender goes to Cobre, which drops it when the phase is over.
    pub(crate) fn collect(print: bool) -> (Sender<TrainingEvent>, Self) {
        let (sender, receiver) = channel();
        let collector = std::thread::spawn(move || drain(&receiver, print));
        (sender, Self { collector })
    }

    /// All events of the phase, in order.
    pub(crate) fn finish(self) -> Vec<TrainingEvent> {
        self.collector.join().unwrap_or_default()
    }
}

fn drain(events: &Receiver<TrainingEvent>, print: bool) -> Vec<TrainingEvent> {
    let mut collected = Vec::new();
    let mut deviation = 0.0;
    for event in events {
        if print {
            match &event {
                TrainingEvent::ConvergenceUpdate { upper_bound_std, .. } => deviation = *upper_bound_std,
                TrainingEvent::IterationSummary {
                    iteration,
                    lower_bound,
                    upper_bound,
                    gap,
                    iteration_time_ms,
                    ..
                } => eprintln!(
                    "iteration {iteration:>4}  lower {lower_bound:>14.6e}  upper {upper_bound:>14.6e} ± {deviation:.2e}  \
                     gap {:>7.3} %  {:>8.3} s",
                    gap * 100.0,
                    seconds(*iteration_time_ms)
                ),
                _ => {}
            }
        }
        collected.push(event);
    }
    collected
}

/// Milliseconds as seconds.
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}
