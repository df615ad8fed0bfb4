//! From how many ranks on a hierarchical barrier takes less than a flat one, by a model of cache lines.
//!
//! ```text
//! cargo bench --bench contention
//! ```
//!
//! In a flat barrier every rank reads every rank's word. A line that many read is served to one after another by its home,
//! which no machine with two processors can show. So that is modelled: `model` is a discrete-event model of lines, given
//! latencies that others have published, and run with the lines that `src/protocol/barrier.rs` and `src/protocol/groups.rs`
//! write and await. It is the same on every run, but for what is measured on this machine and printed with it.
//! [The decision](../../docs/adr/0001-hierarchical-barrier.md) is written up with what was printed.

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
