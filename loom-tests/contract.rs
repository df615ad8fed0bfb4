//! The demands on a platform, on the machines that the models run on: they have to keep the contract too, and where
//! they are made to break it, it has to show.

use std::rc::Rc;

use intranode::protocol::Ordering::{Acquire, Relaxed, Release};
use intranode::protocol::generation::WAITER;
use intranode::protocol::{Payload, Platform, Slot};
use libtest_mimic::{Failed, Trial};

use crate::cells::Bytes;
use crate::explore::{Explored, Rejected, explore};
use crate::machine::Waiting::{self, Blocking, Dozing, Parking, Spinning};
use crate::machine::{Fate, Machine, Word};
use crate::trace::Label;
use crate::weakened::{Mutation, Weakened, Weakening};
use crate::world::Rank;
use programs::{change, outlast, sleep_until, spin_until, take_turns, value};

#[path = "../src/segment/contract/programs.rs"]
mod programs;

/// What a thread does, with what all share.
type Role = fn(&Rank, &Slot<Rank>, thread: usize);

/// A demand, as what so many threads do.
#[derive(Clone, Copy)]
struct Demand {
    name: &'static str,
    threads: usize,
    role: Role,
    fate: Fate,
}

const TURNS: u32 = 3;

const SLEEPING_TURNS: Demand = Demand {
    name: "no_wake_up_is_lost",
    threads: 2,
    role: |rank, slot, player| take_turns(rank, slot, sleep_until, player as u32, TURNS),
    fate: Fate { dies: None, hurries: false, expires: None, spurious: None },
};

const SPINNING_TURNS: Demand = Demand {
    name: "spinning_hands_over",
    role: |rank, slot, player| take_turns(rank, slot, spin_until, player as u32, TURNS),
    ..SLEEPING_TURNS
};

const SPURIOUS_TURNS: Demand = Demand {
    name: "a_sleep_may_end_at_any_time",
    fate: Fate { spurious: Some(1), ..SLEEPING_TURNS.fate },
    ..SLEEPING_TURNS
};

const CROWD: Demand = Demand {
    name: "all_are_woken",
    threads: 3,
    role: |rank, slot, thread| match thread {
        0 => change(rank, &slot.state, value(0), value(1)),
        _ => sleep_until(rank, &slot.state, value(1)),
    },
    ..SLEEPING_TURNS
};

const ALONE: Demand = Demand {
    name: "the_deadline_is_kept",
    threads: 1,
    role: |rank, slot, _| outlast(rank, &slot.state, value(0)),
    fate: Fate { expires: Some(2), spurious: Some(1), ..SLEEPING_TURNS.fate },
};

/// What each machine keeps.
const KEPT: [(Demand, Waiting); 7] = [
    (SLEEPING_TURNS, Parking),
    (SPINNING_TURNS, Spinning),
    (SPINNING_TURNS, Blocking),
    (SPURIOUS_TURNS, Parking),
    (CROWD, Parking),
    (ALONE, Parking),
    (ALONE, Dozing),
];

/// What is wrong with a machine, and what shows it.
const BROKEN: [(Demand, Waiting, &str, Weakening, &str); 5] = [
    (SLEEPING_TURNS, Parking, "wake", Weakening::NoWake, "deadlock"),
    (SLEEPING_TURNS, Parking, "sleep", Weakening::Unchecked, "deadlock"),
    (SPINNING_TURNS, Spinning, "look", Weakening::Order(Relaxed), "Causality violation"),
    (SPINNING_TURNS, Blocking, "change", Weakening::Order(Relaxed), "Causality violation"),
    (CROWD, Parking, "wake", Weakening::WakeOne, "deadlock"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let named =
        |demand: Demand, waiting: Waiting| format!("contract::{}::{waiting:?}", demand.name).to_lowercase();
    let kept = KEPT
        .into_iter()
        .map(|(demand, waiting)| Trial::test(named(demand, waiting), move || keeps(demand, waiting)));
    let broken = BROKEN.into_iter().map(|(demand, waiting, site, weakening, message)| {
        let name = format!("{}::broken::{site}", named(demand, waiting));
        Trial::test(name, move || breaks(demand, waiting, Mutation { site, weakening }, message))
    });
    kept.chain(broken).collect()
}

fn keeps(demand: Demand, waiting: Waiting) -> Result<(), Failed> {
    let explored = run(demand, waiting, None).map_err(|no| format!("{}\n{}", no.message, no.trace))?;
    if explored.executions < demand.threads as u64 {
        return Err(format!("only {} executions", explored.executions).into());
    }
    Ok(())
}

fn breaks(demand: Demand, waiting: Waiting, mutation: Mutation, message: &str) -> Result<(), Failed> {
    match run(demand, waiting, Some(mutation)) {
        Err(rejected) if rejected.message.contains(message) => Ok(()),
        Err(rejected) => Err(format!("rejected for another reason: {}", rejected.message).into()),
        Ok(_) => Err("nothing found".into()),
    }
}

fn run(demand: Demand, waiting: Waiting, mutation: Option<Mutation>) -> Result<Explored, Rejected> {
    let columns: Vec<_> = (0..demand.threads).map(|thread| format!("thread {thread}")).collect();
    explore(None, &columns, move || {
        let label = |what| Label { what, rank: 0, parity: 0 };
        let slot: Rc<Slot<Rank>> =
            Rc::new(Slot { state: Word::new(value(0), label("word")), header: Bytes::new(label("header")) });
        let play = move |thread, slot: &Slot<Rank>| {
            (demand.role)(&Weakened::new(Machine::new(thread, waiting, demand.fate), mutation), slot, thread);
        };
        for thread in 1..demand.threads {
            let slot = Rc::clone(&slot);
            loom::thread::spawn(move || play(thread, &slot));
        }
        play(0, &slot);
    })
}
