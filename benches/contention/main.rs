//! The number of ranks from which on a hierarchical barrier is faster than a flat one, by a model of cache lines.
//!
//! ```text
//! cargo bench --bench contention
//! ```
//!
//! In a flat barrier every rank reads every rank's word. A line's home serves many readers one after another, which cannot
//! be measured on a machine with two processors. `model` is a discrete-event model of lines with published latencies. It
//! simulates the lines that `src/protocol/barrier.rs` and `src/protocol/hierarchical.rs` write and await. Its results are
//! the same on every run; only the measurements of this machine, which are printed with them, differ.
//! [The decision](../../docs/adr/0001-hierarchical-barrier.md) contains the output.

use intranode::Error;
use model::machine::Machine;
use study::{Choice, RULES, Sweep, back_to_back, skewed};

mod measured;
mod model;
mod report;
mod study;

fn main() -> Result<(), Error> {
    let machines = [
        Machine::epyc(),
        Machine::epyc().without_shared_fetch("EPYC, each reader to the home"),
        Machine::xeon(),
    ];
    println!("# Flat or in groups: a model. No machine with more processors than two was measured.\n");
    report::constants();
    report::measured(measured::compare()?);
    let times = machines.each_ref().map(|machine| Sweep::of(machine, skewed));
    let phi = Sweep::of(&Machine::phi(), skewed);
    times.iter().chain([&phi]).for_each(report::times);
    let at_once = machines.each_ref().map(|machine| Sweep::of(machine, back_to_back));
    report::crossovers(&times, &at_once);
    let all: Vec<Sweep> = times.into_iter().chain(at_once).collect();
    let choice = Choice::made(&all);
    report::choice(choice, &all);
    report::sensitivity(&machines, RULES[choice.rule]);
    report::published(&all[0], &phi);
    Ok(())
}
