//! Progress of a run: lines of rank 0 on standard error.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use cobre_core::TrainingEvent;

use crate::driver::json;

/// Collects the events of a phase, and optionally prints a line for each iteration: on standard error, as JSON on standard output.
pub(crate) enum Events {
    /// Collected by a thread, which prints.
    Printed(JoinHandle<Vec<TrainingEvent>>),
    /// Collected when the phase is over, since a thread would take processor time from the rank.
    Kept(Receiver<TrainingEvent>),
}

impl Events {
    /// Starts collecting; the sender goes to Cobre, which drops it when the phase is over.
    pub(crate) fn collect(print: bool, json: bool) -> (Sender<TrainingEvent>, Self) {
        let (sender, receiver) = channel();
        let events = match print || json {
            true => Events::Printed(std::thread::spawn(move || drain(&receiver, print, json))),
            false => Events::Kept(receiver),
        };
        (sender, events)
    }

    /// All events of the phase, in order.
    pub(crate) fn finish(self) -> Vec<TrainingEvent> {
        match self {
            Events::Printed(collector) => collector.join().unwrap_or_default(),
            Events::Kept(receiver) => receiver.iter().collect(),
        }
    }
}

fn drain(events: &Receiver<TrainingEvent>, print: bool, json: bool) -> Vec<TrainingEvent> {
    let mut deviation = 0.0;
    let mut line = |event: &TrainingEvent| match event {
        TrainingEvent::ConvergenceUpdate { upper_bound_std, .. } => deviation = *upper_bound_std,
        TrainingEvent::IterationSummary {
            iteration, lower_bound, upper_bound, gap, iteration_time_ms, ..
        } if print => tell!(
            "iteration {iteration:>4}  lower {lower_bound:>14.6e}  upper {upper_bound:>14.6e} ± {deviation:.2e}  \
             gap {:>7.3} %  {:>8.3} s",
            gap * 100.0,
            seconds(*iteration_time_ms)
        ),
        _ => {}
    };
    let show = |event: &TrainingEvent| {
        line(event);
        if json {
            json::iteration(event);
        }
    };
    events.iter().inspect(show).collect()
}

/// Milliseconds as seconds.
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}
