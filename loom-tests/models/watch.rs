//! Ranks that die, leave and are stopped while others watch them: every survivor is told of every death, once, and of
//! nothing else. What a rank does is in [`RingStep`]; what must hold is the same for all models.

use crate::harness::ring::RingModel;
use crate::harness::ring::RingStep::{self, Come, Depart, Die, WatchFor};

/// The fail points that a rank passes when it has found a death.
const IN_FINDING: [&str; 4] = ["found", "noticed", "announced-unwoken", "woken-unmarked"];

/// All that a rank passes while it watches, comes or leaves.
pub(crate) fn fail_points() -> impl Iterator<Item = &'static str> {
    IN_FINDING.into_iter().chain(["coming", "departing", "watching"])
}

/// Two ranks watch for the death of the third.
fn one_death_of_three(width: usize) -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[2])];
    RingModel::new("watch_one_death", 3, width).rank(0, survivor).rank(1, survivor).rank(2, &[Die])
}

fn one_death_of_four() -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[2])];
    RingModel::new("watch_one_death", 4, 1)
        .rank(0, survivor)
        .rank(1, survivor)
        .rank(2, &[Die])
        .rank(3, survivor)
}

/// A rank dies together with one that watches it.
fn a_rank_and_its_watcher(width: usize) -> RingModel {
    RingModel::new("watch_two_deaths", 3, width).rank(0, &[WatchFor(&[1, 2])]).rank(1, &[Die]).rank(2, &[Die])
}

/// A rank dies together with all that watch it.
fn a_rank_and_its_watchers() -> RingModel {
    RingModel::new("watch_a_rank_and_its_watchers", 4, 2)
        .rank(0, &[WatchFor(&[1, 2, 3])])
        .rank(1, &[Die])
        .rank(2, &[Die])
        .rank(3, &[Die])
}

/// Two ranks die, each of which is found by another.
fn two_finders() -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[1, 3])];
    RingModel::new("watch_two_finders", 4, 1)
        .rank(0, survivor)
        .rank(1, &[Die])
        .rank(2, survivor)
        .rank(3, &[Die])
}

/// A rank comes when the others are there, and dies.
fn one_that_comes_last() -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[2])];
    RingModel::new("watch_one_that_comes", 3, 1).rank(0, survivor).rank(1, survivor).rank(2, &[Come, Die])
}

/// A rank dies in the midst of telling others about a death, or of watching.
fn death_at(fail_point: &'static str, width: usize) -> RingModel {
    RingModel::new(format!("watch_death_at_{fail_point}"), 3, width)
        .rank(0, &[WatchFor(&[1, 2])])
        .rank_stopped_at(fail_point, 1, &[WatchFor(&[2]), Die])
        .rank(2, &[Die])
}

fn death_at_with_two_survivors(fail_point: &'static str) -> RingModel {
    death_at(fail_point, 1).ranks(4).rank(3, &[WatchFor(&[1, 2])])
}

/// Some of the words of the rank that dies tell that it is there.
fn death_while_coming() -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[1])];
    RingModel::new("watch_death_at_coming", 3, 2)
        .rank(0, survivor)
        .rank_stopped_at("coming", 1, &[Come, Die])
        .rank(2, survivor)
}

/// Some of the words of the rank that dies tell that it has left.
fn death_while_departing() -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[1])];
    RingModel::new("watch_death_at_departing", 3, 2)
        .rank(0, survivor)
        .rank_stopped_at("departing", 1, &[Depart, Die])
        .rank(2, survivor)
}

/// A rank leaves, and the one dies that it has watched.
fn neighbour_of_a_leaver(width: usize) -> RingModel {
    RingModel::new("watch_neighbour_of_a_leaver", 3, width)
        .rank(0, &[WatchFor(&[2])])
        .rank(1, &[Depart])
        .rank(2, &[Die])
}

fn neighbour_of_a_leaver_of_four() -> RingModel {
    neighbour_of_a_leaver(1).ranks(4).rank(3, &[WatchFor(&[2])])
}

/// The first watcher of the rank that dies is stopped, which no rank can tell from being slow.
fn stopped_watcher() -> RingModel {
    RingModel::new("watch_stopped_watcher", 3, 2).stopped(&[(2, 0)]).rank(0, &[WatchFor(&[2])]).rank(2, &[Die])
}

/// Rank 1 was stopped before it knew that rank 2 has left: so it sleeps where rank 0 sleeps, before it.
fn stopped_in_the_place_of_another() -> RingModel {
    RingModel::new("watch_stopped_in_the_place_of_another", 5, 2)
        .left(&[2])
        .stopped(&[(2, 0), (3, 1)])
        .rank(0, &[WatchFor(&[4])])
        .rank(3, &[Depart])
        .rank(4, &[Die])
}

/// No rank is told that one has left, before a tick.
fn tick_after_death_at_departing() -> RingModel {
    RingModel::new("watch_tick_after_death_at_departing", 3, 1)
        .ticks()
        .rank(0, &[WatchFor(&[2])])
        .rank_stopped_at("departing", 1, &[Depart])
        .rank(2, &[Die])
}

/// The rank that has found a death is stopped before it has told the others.
fn stopped_finder(fail_point: &'static str) -> RingModel {
    let survivor: &[RingStep] = &[WatchFor(&[2])];
    RingModel::new(format!("watch_stopped_at_{fail_point}"), 3, 2)
        .ticks()
        .rank(0, survivor)
        .rank_stopped_at(fail_point, 1, survivor)
        .rank(2, &[Die])
}

/// The same where no other rank watches the one that dies, so that only a tick tells.
fn tick_after_stop_at(fail_point: &'static str) -> RingModel {
    RingModel::new(format!("watch_tick_after_stop_at_{fail_point}"), 3, 1)
        .ticks()
        .bound(2)
        .rank(0, &[WatchFor(&[2])])
        .rank_stopped_at(fail_point, 1, &[WatchFor(&[2]), Depart])
        .rank(2, &[Die])
}

/// All of them.
pub(crate) fn models() -> Vec<RingModel> {
    let mut models = vec![
        RingModel::new("watch_one_death", 2, 1).rank(0, &[WatchFor(&[1])]).rank(1, &[Die]),
        one_death_of_three(1),
        one_death_of_three(2),
        one_death_of_four(),
        a_rank_and_its_watcher(1),
        a_rank_and_its_watcher(2),
        a_rank_and_its_watchers(),
        two_finders(),
        two_finders().bound(2).long(),
        one_that_comes_last(),
    ];
    for fail_point in IN_FINDING.into_iter().chain(["watching"]) {
        models.extend([1, 2].map(|width| death_at(fail_point, width)));
        models.push(death_at_with_two_survivors(fail_point));
    }
    models.extend([death_while_coming(), death_while_departing()]);
    models.extend([neighbour_of_a_leaver(1), neighbour_of_a_leaver(2), neighbour_of_a_leaver_of_four()]);
    models.extend([stopped_watcher(), stopped_in_the_place_of_another(), tick_after_death_at_departing()]);
    models.extend(IN_FINDING.map(stopped_finder));
    models.extend(["noticed", "announced-unwoken"].map(tick_after_stop_at));
    models
}
