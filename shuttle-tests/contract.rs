//! The demands on a platform, on the machine that the models run on.

use std::sync::Arc;

use intranode::protocol::Ordering::{Acquire, Relaxed, Release};
use intranode::protocol::generation::WAITER;
use intranode::protocol::{Generation, Payload, Platform, Slot, Staging};
use libtest_mimic::Trial;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use crate::harness::schedules::{Chooser, trial};
use crate::harness::segment::SegmentMemory;
use crate::harness::simulation::Simulation;
use programs::{Until, change, outlast, sleep_until, spin_until, take_turns, value};

#[path = "../src/segment/contract/programs.rs"]
mod programs;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        trials.extend([
            trial("contract: no wake-up is lost", chooser, 640, || alternate(sleep_until, 0)),
            trial("contract: a sleep may end at any time", chooser, 640, || alternate(sleep_until, 3)),
            trial("contract: all are woken", chooser, 640, all_are_woken),
            trial("contract: the deadline is kept", chooser, 640, the_deadline_is_kept),
        ]);
    }
    // A rank that spins must not have the priority for ever.
    trials.push(trial("contract: spinning hands over", Chooser::Random, 640, || alternate(spin_until, 0)));
    trials
}

/// A machine, and a slot in it whose word holds the value of turn 0.
struct Setup {
    simulation: Arc<Simulation>,
    memory: SegmentMemory,
}

impl Setup {
    fn new(actors: usize, ticks: Vec<u64>, spurious: u32) -> Arc<Self> {
        let mut simulation = Simulation::new(actors, 0, Vec::new(), ticks, Vec::new());
        simulation.spurious = spurious;
        let simulation = Arc::new(simulation);
        let memory = SegmentMemory::new(&simulation, 1, Staging::of(8, 1), Generation::new(0), &[]);
        let setup = Setup { simulation, memory };
        let (machine, word) = (&setup.simulation, &setup.slot().state);
        let before = machine.load("look", word, Relaxed);
        let set = machine.compare_exchange("set", word, before, value(0), Release, Relaxed);
        assert_eq!(set, Ok(before));
        Arc::new(setup)
    }

    fn slot(&self) -> &Slot<Simulation> {
        &self.memory.segment().slots[0][0]
    }
}

/// Lets this number of actors do something with the slot.
fn play(actors: usize, setup: &Arc<Setup>, role: impl Fn(&Setup, usize) + Clone + Send + 'static) {
    let start = |actor| {
        let (setup, role) = (Arc::clone(setup), role.clone());
        thread::spawn(move || role(&setup, actor))
    };
    let threads: Vec<_> = (0..actors).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn alternate(until: Until<Simulation>, spurious: u32) {
    const TURNS: u32 = 20;
    let setup = Setup::new(2, Vec::new(), spurious);
    play(2, &setup, move |setup, player| {
        take_turns(&*setup.simulation, setup.slot(), until, player as u32, TURNS);
    });
    assert_eq!(setup.simulation.load("look", &setup.slot().state, Acquire), value(TURNS));
}

fn all_are_woken() {
    let setup = Setup::new(16, Vec::new(), 0);
    play(16, &setup, |setup, actor| match actor {
        0 => change(&*setup.simulation, &setup.slot().state, value(0), value(1)),
        _ => sleep_until(&*setup.simulation, &setup.slot().state, value(1)),
    });
}

/// Time passes now and then, as long as some actor makes a step.
fn the_deadline_is_kept() {
    let setup = Setup::new(2, (1..20_000).step_by(10).collect(), 0);
    let done = Arc::new(AtomicBool::new(false));
    play(2, &setup, move |setup, actor| {
        let (machine, word) = (&*setup.simulation, &setup.slot().state);
        if actor == 0 {
            let before = machine.now();
            outlast(machine, word, value(0));
            assert!(machine.now() > before, "it has ended too early");
            done.store(true, SeqCst);
        }
        while !done.load(SeqCst) {
            machine.load("look", word, Relaxed);
            thread::yield_now();
        }
    });
}
