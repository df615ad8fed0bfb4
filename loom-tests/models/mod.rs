//! The models, by what they show. Each page begins with what its ranks do.

mod bells;
mod chains;
mod collectives;
mod eager;
mod endpoints;
mod faults;
mod groups;
mod in_place;
mod in_place_reductions;
pub(crate) mod litmus;
mod locks;
mod message_line;
mod message_offers;
mod messages;
mod operations;
mod pairs;
pub(crate) mod passing_on;
mod regions;
mod single_copy;
mod started;
mod symmetric_phases;
pub(crate) mod threads;
mod watch;

use crate::harness::record;
use crate::harness::search::Search;

/// The most executions, by its record, of a search that a default run has as its page asks for it. They take one or two seconds.
const BRIEF: u64 = 12_000;

/// All models.
pub(crate) fn all() -> Vec<Search> {
    fn searches<M: Into<Search>>(models: Vec<M>) -> Vec<Search> {
        models.into_iter().map(M::into).collect()
    }
    [
        searches(collectives::models()),
        searches(operations::models()),
        searches(eager::models()),
        searches(pairs::models()),
        faults::claims(),
        searches(faults::models()),
        passing_on::models(),
        searches(regions::models()),
        searches(symmetric_phases::models()),
        searches(groups::models()),
        searches(single_copy::models()),
        searches(in_place::models()),
        searches(in_place_reductions::models()),
        searches(started::models()),
        threads::models(),
        searches(watch::models()),
        searches(litmus::models()),
        searches(chains::models()),
        searches(bells::models()),
        searches(locks::models()),
        searches(messages::models()),
        searches(message_line::models()),
        searches(message_offers::models()),
        searches(endpoints::models()),
    ]
    .concat()
    .into_iter()
    .flat_map(briefly)
    .collect()
}

/// In place of a search with more than [`BRIEF`] executions, a default run has one with a preemption less, or with three where the
/// page asks for any number. What has one preemption keeps it.
fn briefly(search: Search) -> Vec<Search> {
    let is_brief = record::executions(&search).is_none_or(|executions| executions <= BRIEF);
    if is_brief || search.long || search.bound == Some(1) {
        return vec![search];
    }
    let bound = search.bound.map_or(3, |bound| bound - 1);
    vec![search.clone().bound(bound), Search { long: true, ..search }]
}

/// The fail points at which a rank dies in some model.
pub(crate) fn fail_points() -> Vec<&'static str> {
    let in_calls = faults::IN_A_ROUND.into_iter().chain(faults::IN_POISONING).chain([groups::PROGRESS]);
    let in_cells = bells::IN_WRITING.into_iter().chain([bells::IN_WAITING]).chain(locks::IN_LOCKING);
    let in_messages =
        messages::IN_SENDING.into_iter().chain(messages::IN_RECEIVING).chain(messages::IN_WAITING);
    in_calls.chain(watch::fail_points()).chain(in_cells).chain(in_messages).collect()
}
