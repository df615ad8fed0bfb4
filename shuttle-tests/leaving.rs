//! Joining and leaving: a rank inside a round is never failed by one that leaves after it.

use std::sync::Arc;

use intranode::protocol::membership::{claim, owner};
use intranode::protocol::{CauseKind, Generation, Staging};
use libtest_mimic::Trial;
use shuttle::thread;

use crate::harness::choice;
use crate::harness::scenario::{End, Exit, Scenario};
use crate::harness::schedules::{Chooser, trial};
use crate::harness::script::Script;
use crate::harness::segment::SegmentMemory;
use crate::harness::simulation::Simulation;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        trials.extend([
            trial("all leave after the last call", chooser, 3200, all_leave),
            trial("some leave, some abort, some go on", chooser, 3200, some_go_on),
            trial("a rank is claimed once", chooser, 640, claims),
        ]);
    }
    trials
}

fn all_leave() {
    let (ranks, calls) = (2 + choice::below(7), 1 + choice::below(2));
    for log in Scenario::new(Script::random(ranks, calls, 0)).play().logs {
        assert_eq!((log.calls, log.end), (calls, End::Exited), "failed by a rank that has left");
    }
}

/// Some ranks end before the last call, which then fails for all others.
fn some_go_on() {
    let (ranks, calls) = (3 + choice::below(6), 1 + choice::below(3));
    let mut scenario = Scenario::new(Script::random(ranks, calls, 0));
    let aborting = choice::one_of(&[0, 2]);
    // Rank 0 goes on; rank 1 does not.
    for rank in 1..ranks {
        if rank == 1 || choice::once_in(3) {
            let aborts = aborting > 0 && choice::once_in(aborting);
            scenario.exits[rank] = (calls - 1, if aborts { Exit::Aborts(rank as u32) } else { Exit::Leaves });
        }
    }
    let exits = scenario.exits.clone();
    let outcome = scenario.play();
    let some_abort = exits.iter().any(|(_, exit)| matches!(exit, Exit::Aborts(_)));
    for (log, (expected, _)) in outcome.logs.iter().zip(exits) {
        match &log.end {
            End::Exited => assert_eq!(log.calls, expected),
            // An abort may come before a slower rank has seen the last round's end; but that round has ended.
            End::Failed(cause, _) => {
                assert_eq!((log.calls, expected), (calls - 1, calls), "failed too early");
                assert!(some_abort || cause.kind == CauseKind::Left);
            }
            End::Killed => unreachable!("no rank is stopped"),
        }
    }
}

/// Several processes want the same ranks.
fn claims() {
    let (ranks, rivals) = (3, 3);
    let simulation = Arc::new(Simulation::new(ranks, rivals * ranks, Vec::new(), Vec::new(), Vec::new()));
    let memory =
        Arc::new(SegmentMemory::new(&simulation, ranks, Staging::of(8, ranks), Generation::new(0), &[]));
    let rivals: Vec<_> = (0..rivals * ranks)
        .map(|rival| {
            let (simulation, memory) = (simulation.clone(), memory.clone());
            thread::spawn(move || {
                let (rank, process) = (rival % ranks, 1 + rival as u32);
                let holder = claim(&*simulation, &memory.segment(), rank, process).err().unwrap_or(process);
                assert_eq!(owner(&*simulation, &memory.segment(), rank), holder, "two hold one rank");
                (rank, holder)
            })
        })
        .collect();
    let holders: Vec<_> = rivals.into_iter().map(|rival| rival.join().expect("no panic")).collect();
    for (rank, holder) in &holders {
        assert!(holders.iter().all(|(other, theirs)| other != rank || theirs == holder), "two hold one rank");
    }
}
