//! The demands on a platform, on the machine that the models run on.

use std::sync::Arc;

use intranode::protocol::Ordering::{Acquire, Relaxed, Release};
use intranode::protocol::generation::WAITER;
use intranode::protocol::{Generation, Payload, Platform, Slot, Staging};
use libtest_mimic::Trial;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use crate::explore::{Chooser, explore};
use crate::machine::Memory;
use crate::stage::Stage;
use programs::{Until, change, outlast, sleep_until, spin_until, take_turns, value};

#[path = "../src/segment/contract/programs.rs"]
mod programs;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        let mut add = |what: &str, schedules, model: fn()| {
            let name = format!("contract: {what}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || explore(&name, chooser, schedules, model).map(drop)));
        };
        add("no wake-up is lost", 640, || alternate(sleep_until, 0));
        add("a sleep may end at any time", 640, || alternate(sleep_until, 3));
        add("all are woken", 640, all_are_woken);
        add("the deadline is kept", 640, the_deadline_is_kept);
    }
    // Whoever spins must not have the priority for ever.
    let name = "contract: spinning hands over, random".to_owned();
    trials.push(Trial::test(name.clone(), move || {
        explore(&name, Chooser::Random, 640, || alternate(spin_until, 0)).map(drop)
    }));
    trials
}

/// A slot, with a word that nobody has changed yet.
struct Bed {
    stage: Arc<Stage>,
    memory: Memory,
}

impl Bed {
    fn new(actors: usize, ticks: Vec<u64>, spurious: u32) -> Arc<Self> {
        let mut stage = Stage::new(actors, 0, Vec::new(), ticks, Vec::new());
        stage.spurious = spurious;
        let stage = Arc::new(stage);
        let memory = Memory::new(&stage, 1, Staging::of(8, 1), Generation::new(0), &[]);
        let bed = Bed { stage, memory };
        let before = bed.stage.load("look", &bed.slot().state, Relaxed);
        let set = bed.stage.compare_exchange("set", &bed.slot().state, before, value(0), Release, Relaxed);
        assert_eq!(set, Ok(before));
        Arc::new(bed)
    }

    fn slot(&self) -> &Slot<Stage> {
        &self.memory.segment().slots[0][0]
    }
}

/// Lets so many actors do something on a bed.
fn play(actors: usize, bed: &Arc<Bed>, role: impl Fn(&Bed, usize) + Clone + Send + 'static) {
    let start = |actor| {
        let (bed, role) = (Arc::clone(bed), role.clone());
        thread::spawn(move || role(&bed, actor))
    };
    let threads: Vec<_> = (0..actors).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn alternate(until: Until<Stage>, spurious: u32) {
    const TURNS: u32 = 20;
    let bed = Bed::new(2, Vec::new(), spurious);
    play(2, &bed, move |bed, player| take_turns(&*bed.stage, bed.slot(), until, player as u32, TURNS));
    assert_eq!(bed.stage.load("look", &bed.slot().state, Acquire), value(TURNS));
}

fn all_are_woken() {
    let bed = Bed::new(16, Vec::new(), 0);
    play(16, &bed, |bed, actor| match actor {
        0 => change(&*bed.stage, &bed.slot().state, value(0), value(1)),
        _ => sleep_until(&*bed.stage, &bed.slot().state, value(1)),
    });
}

/// Time goes on now and then, as long as somebody does something.
fn the_deadline_is_kept() {
    let bed = Bed::new(2, (1..20_000).step_by(10).collect(), 0);
    let done = Arc::new(AtomicBool::new(false));
    play(2, &bed, move |bed, actor| {
        let word = &bed.slot().state;
        if actor == 0 {
            let before = bed.stage.now();
            outlast(&*bed.stage, word, value(0));
            assert!(bed.stage.now() > before, "it has ended too early");
            done.store(true, SeqCst);
        }
        while !done.load(SeqCst) {
            bed.stage.load("look", word, Relaxed);
            thread::yield_now();
        }
    });
}
