//! The demands on a platform, on the machines that the models run on: they have to keep the contract too, and where
//! they are made to break it, that has to be found.

use intranode::protocol::Ordering::{Acquire, Relaxed, Release};
use intranode::protocol::generation::WAITER;
use intranode::protocol::{Payload, Platform, Slot};
use libtest_mimic::{Failed, Trial};

use crate::harness::cells::Bytes;
use crate::harness::machine::Fate;
use crate::harness::mutant::{Mutation, Simulated};
use crate::harness::search::{Run, Search};
use crate::harness::sites::Weakening;
use crate::harness::trace::Label;
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};
use crate::harness::word::Word;
use programs::{change, outlast, sleep_until, spin_until, take_turns, value};

#[path = "../src/segment/contract/programs.rs"]
mod programs;

/// What a thread does, with what all share.
type Role = fn(&Simulated, &Slot<Simulated>, thread: usize);

/// A demand, as what a number of threads do.
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
    role: |platform, slot, player| take_turns(platform, slot, sleep_until, player as u32, TURNS),
    fate: Fate::NONE,
};

const SPINNING_TURNS: Demand = Demand {
    name: "spinning_hands_over",
    role: |platform, slot, player| take_turns(platform, slot, spin_until, player as u32, TURNS),
    ..SLEEPING_TURNS
};

const SPURIOUS_TURNS: Demand =
    Demand { name: "a_sleep_may_end_at_any_time", fate: Fate::wakes_spuriously_from(1), ..SLEEPING_TURNS };

const CROWD: Demand = Demand {
    name: "all_are_woken",
    threads: 3,
    role: |platform, slot, thread| match thread {
        0 => change(platform, &slot.state, value(0), value(1)),
        _ => sleep_until(platform, &slot.state, value(1)),
    },
    ..SLEEPING_TURNS
};

const ALONE: Demand = Demand {
    name: "the_deadline_is_kept",
    threads: 1,
    role: |platform, slot, _| outlast(platform, &slot.state, value(0)),
    fate: Fate { expires: Some(2), spurious: Some(1), ..Fate::NONE },
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

/// What is wrong with a machine, and how that is found.
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
    let explored =
        search(demand, waiting).explore(None).map_err(|no| format!("{}\n{}", no.message, no.trace))?;
    if explored.executions < demand.threads as u64 {
        return Err(format!("only {} executions", explored.executions).into());
    }
    Ok(())
}

fn breaks(demand: Demand, waiting: Waiting, mutation: Mutation, message: &str) -> Result<(), Failed> {
    match search(demand, waiting).explore(Some(mutation)) {
        Err(rejected) if rejected.message.contains(message) => Ok(()),
        Err(rejected) => Err(format!("rejected for another reason: {}", rejected.message).into()),
        Ok(_) => Err("nothing found".into()),
    }
}

fn search(demand: Demand, waiting: Waiting) -> Search {
    let threads = (0..demand.threads).map(|thread| format!("thread {thread}")).collect();
    Search::new(demand.name, waiting, threads, move |run: &Run| {
        let label = |what| Label { what, rank: 0, parity: 0 };
        let slot: Slot<Simulated> =
            Slot { state: Word::new(value(0), label("state")), header: Bytes::new(label("header")) };
        let act = move |thread: usize, platform: &Simulated, slot: &Slot<Simulated>| {
            (demand.role)(platform, slot, thread);
        };
        run.threads(slot, &vec![demand.fate; demand.threads], act, |_| ());
    })
}
