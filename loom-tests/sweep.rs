//! Every ordering and every wake-up earns its place: each is weakened alone, and some model must then fail.
//!
//! What is weakened follows from the text of `src/protocol`. The models are tried from the smallest on.

use libtest_mimic::{Failed, Trial};

use crate::harness::mutant::Mutation;
use crate::harness::search::{About, Search};
use crate::harness::sites::{self, Weakening};
use crate::harness::waiting::Waiting;
use crate::harness::{record, report};
use crate::models;

/// Models with more executions than this are left to the long run.
const SHORT: u64 = 20_000;

/// Everything that can be weakened.
pub(crate) fn mutations() -> Vec<Mutation> {
    let of = |site: sites::Site| {
        let name = site.name;
        site.weakenings().into_iter().map(move |weakening| Mutation { site: name, weakening })
    };
    sites::all().into_iter().flat_map(of).collect()
}

/// A test for each weakening, and one that nothing was overlooked.
pub(crate) fn trials() -> Vec<Trial> {
    let name = |mutation: &Mutation| {
        let weakening = format!("{:?}", mutation.weakening).to_lowercase().replace(['(', ')'], "_");
        format!("sweep::{}::{}", mutation.site, weakening.trim_end_matches('_'))
    };
    let mut trials = vec![Trial::test("sweep::nothing_hides", nothing_hides)];
    for mutation in mutations() {
        trials.push(Trial::test(name(&mutation), move || sweep(mutation)));
    }
    trials
}

fn sweep(mutation: Mutation) -> Result<(), Failed> {
    for model in ladder(mutation) {
        if let Err(rejected) = model.explore(Some(mutation)) {
            report::add_caught(mutation, &model, rejected);
            return Ok(());
        }
    }
    Err("no model fails without it".into())
}

/// The models for the sweep, from the smallest on, but the one that is recorded to fail first, unless the run is long or is
/// recorded. Pairs of calls have nothing that is not in the others, what is wrong with sleeping shows where ranks sleep,
/// what is wrong with watching where they watch, and what is wrong with cells where they use them.
fn ladder(mutation: Mutation) -> Vec<Search> {
    let limit = if report::is_long_run() { u64::MAX } else { SHORT };
    let about = sites::all().iter().find(|site| site.name == mutation.site).map(|site| about(&site.file));
    let sleeping = matches!(mutation.weakening, Weakening::NoWake | Weakening::WakeOne | Weakening::Unchecked);
    let mut models: Vec<_> = (models::all().into_iter())
        .filter(|model| !model.name.starts_with("pair_") && Some(model.about) == about)
        .filter(|model| !sleeping || model.waiting == Waiting::Parking)
        .filter_map(|model| record::executions(&model).map(|executions| (executions, model)))
        .filter(|(executions, _)| *executions <= limit)
        .collect();
    let from_smallest = report::is_long_run() || record::is_recording();
    let by = record::recorded().caught.get(&record::key(&mutation)).map(|caught| &caught.by);
    models.sort_by_key(|(executions, model)| (from_smallest || by != Some(&model.id()), *executions));
    models.into_iter().map(|(_, model)| model).collect()
}

/// What the models are about that show what is wrong with a file.
fn about(file: &str) -> About {
    match file {
        "watch.rs" => About::Watching,
        "symmetric/access.rs" | "symmetric/bell.rs" | "symmetric/lock.rs" => About::Cells,
        file if file.starts_with("message/") => About::Messages,
        _ => About::Calls,
    }
}

/// Every ordering in the protocols belongs to a site that was found, every name to one site, and at every fail point some
/// model lets a rank die.
fn nothing_hides() -> Result<(), Failed> {
    let (sites, code) = (sites::all(), sites::protocol_code());
    let written: usize = code.values().map(|code| sites::orderings(code).len()).sum();
    let found = sites.iter().flat_map(|site| &site.orderings).count();
    if written != found {
        return Err(format!("{written} orderings are written, {found} of them at sites").into());
    }
    for (index, site) in sites.iter().enumerate() {
        if let Some(other) = sites[..index].iter().find(|other| other.name == site.name) {
            return Err(
                format!("{} in {} is also the name of a site in {}", site.name, site.file, other.file).into()
            );
        }
    }
    let fail_points = code.values().flat_map(|code| sites::calls(code, "platform", "fail_point"));
    let mut fail_points: Vec<&str> = fail_points.map(|(_, arguments)| sites::first_string(arguments)).collect();
    let mut modelled = models::fail_points();
    fail_points.sort_unstable();
    modelled.sort_unstable();
    if fail_points != modelled {
        return Err(format!("fail points {fail_points:?}, of which a rank dies at {modelled:?}").into());
    }
    Ok(())
}
