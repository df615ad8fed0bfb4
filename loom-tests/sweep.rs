//! Every ordering and every wake-up earns its place: each is weakened alone, and some model must then fail.
//!
//! What is weakened follows from the text of `src/protocol`. The models are tried from the smallest on.

use intranode::protocol::Ordering::{AcqRel, Acquire, Relaxed, Release};
use libtest_mimic::{Failed, Trial};

use crate::machine::Waiting;
use crate::model::Model;
use crate::weakened::{Mutation, Weakening};
use crate::{models, report, sites};

/// Models with more executions than this are left to the long run.
const SHORT: u64 = 20_000;

/// Everything that can be weakened, and whether it is of ranks that watch each other.
fn mutations() -> Vec<(Mutation, bool)> {
    let mut mutations = Vec::new();
    for site in sites::all() {
        let mut add = |weakening| mutations.push((Mutation { site: site.name, weakening }, site.watching));
        match site.operation {
            "wake_all" => [Weakening::NoWake, Weakening::WakeOne].into_iter().for_each(&mut add),
            "wait" | "wait_any" => add(Weakening::Unchecked),
            "compare_exchange" | "compare_exchange64" => {
                [Weakening::Skipped, Weakening::Unconditional].into_iter().for_each(&mut add);
            }
            _ => {}
        }
        for (index, ordering) in site.orderings.iter().enumerate() {
            let weaker = match ordering {
                Relaxed => vec![],
                AcqRel => vec![Acquire, Release],
                Acquire | Release => vec![Relaxed],
                other => unreachable!("{other:?} in the protocols"),
            };
            for order in weaker {
                add(if index == 0 { Weakening::Order(order) } else { Weakening::Failure(order) });
            }
        }
    }
    mutations.push((Mutation { site: "woken", weakening: Weakening::Believed }, false));
    mutations
}

/// A test for each weakening, and one that nothing was overlooked.
pub(crate) fn trials() -> Vec<Trial> {
    let name = |mutation: &Mutation| {
        let weakening = format!("{:?}", mutation.weakening).to_lowercase().replace(['(', ')'], "_");
        format!("sweep::{}::{}", mutation.site, weakening.trim_end_matches('_'))
    };
    let mut trials = vec![Trial::test("sweep::nothing_hides", sites::nothing_hides)];
    for (mutation, watching) in mutations() {
        trials.push(Trial::test(name(&mutation), move || sweep(mutation, watching)));
    }
    trials
}

/// The models for the sweep, from the smallest on. Pairs of calls have nothing that is not in the others, what is wrong
/// with sleeping shows where ranks sleep, and what is wrong with watching where they watch.
fn ladder(weakening: Weakening, watching: bool) -> Vec<Model> {
    let limit = if report::is_long_run() { u64::MAX } else { SHORT };
    let sleeping = matches!(weakening, Weakening::NoWake | Weakening::WakeOne | Weakening::Unchecked);
    let mut models: Vec<_> = (models::all().into_iter())
        .filter(|model| !model.name.starts_with("pair_") && model.ring.is_some() == watching)
        .filter(|model| !sleeping || model.waiting == Waiting::Parking)
        .filter_map(|model| report::recorded(&model.id()).map(|executions| (executions, model)))
        .filter(|(executions, _)| *executions <= limit)
        .collect();
    models.sort_by_key(|(executions, _)| *executions);
    models.into_iter().map(|(_, model)| model).collect()
}

fn sweep(mutation: Mutation, watching: bool) -> Result<(), Failed> {
    for model in ladder(mutation.weakening, watching) {
        if let Err(rejected) = model.explore(Some(mutation)) {
            report::add_swept(mutation, model.id(), rejected);
            return Ok(());
        }
    }
    Err("no model fails without it".into())
}
