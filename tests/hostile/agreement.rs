//! Checks that the ranks agree on the outcomes of their calls.
//!
//! A success on one rank is a success on every rank, exactly once on each, so all ranks count the same number of successes of
//! the same call, in any order of their threads. The same holds for refusals and mismatches. Where a result identifies the
//! calls that took part, the outcome of each is compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::journal::{Event, Outcome};
use crate::stamp::Stamp;

/// The record of a rank.
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    /// The rank may have ended inside a call, whose outcome is unknown.
    pub(crate) incomplete: bool,
}

/// All violations: those that ranks have recorded, and disagreements.
pub(crate) fn check(ranks: &[Record]) -> Vec<String> {
    let mut violations = Vec::new();
    let own_violations = ranks.iter().flat_map(|rank| &rank.events).filter_map(|event| match event {
        Event::Violation(what) => Some(what.clone()),
        _ => None,
    });
    violations.extend(own_violations);
    check_counts(ranks, &mut violations);
    check_participants(ranks, &mut violations);
    check_causes(ranks, &mut violations);
    check_ends(ranks, &mut violations);
    violations
}

fn ended(rank: &Record) -> impl Iterator<Item = (Stamp, &str, &Outcome)> {
    rank.events.iter().filter_map(|event| match event {
        Event::Ended { by, comm, outcome } => Some((*by, comm.as_str(), outcome)),
        _ => None,
    })
}

/// The members of each communicator.
type Members<'a> = BTreeMap<&'a str, &'a [usize]>;

/// All members of a communicator record the same members.
fn check_members<'a>(ranks: &'a [Record], violations: &mut Vec<String>) -> Members<'a> {
    let mut members = Members::new();
    let mut joined: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (rank, record) in ranks.iter().enumerate() {
        for event in &record.events {
            let Event::Joined { comm, ranks } = event else { continue };
            joined.entry(comm).or_default().insert(rank);
            if *members.entry(comm).or_insert(ranks) != ranks {
                violations.push(format!("rank {rank} has other members of {comm}: {ranks:?}"));
            }
        }
    }
    for (comm, members) in &members {
        let missing: Vec<_> =
            members.iter().filter(|rank| !joined[comm].contains(rank) && !ranks[**rank].incomplete).collect();
        if !missing.is_empty() {
            violations.push(format!("{comm} has {members:?}, of which {missing:?} have not joined it"));
        }
    }
    members
}

/// All ranks of a communicator count the same outcomes.
fn check_counts(ranks: &[Record], violations: &mut Vec<String>) {
    type Counts<'a> = BTreeMap<(&'a str, &'a Outcome), Vec<usize>>;
    let mut counts = Counts::new();
    for (rank, record) in ranks.iter().enumerate() {
        for (_, comm, outcome) in ended(record) {
            if !outcome.is_fatal() && !matches!(outcome, Outcome::Split | Outcome::NoSplit) {
                counts.entry((comm, outcome)).or_insert_with(|| vec![0; ranks.len()])[rank] += 1;
            }
        }
    }
    let members = check_members(ranks, violations);
    for ((comm, outcome), counts) in counts {
        let complete = members[comm].iter().filter(|rank| !ranks[**rank].incomplete).map(|rank| counts[*rank]);
        let (least, most) = (complete.clone().min(), complete.max());
        let incomplete =
            members[comm].iter().filter(|rank| ranks[**rank].incomplete).map(|rank| counts[*rank]).max();
        // An incomplete record has no more than the others.
        if least != most || incomplete > least && least.is_some() {
            violations.push(format!("{comm}: the ranks count {counts:?} times {outcome:?}"));
        }
    }
}

/// All participants of a success have a success.
fn check_participants(ranks: &[Record], violations: &mut Vec<String>) {
    let outcomes: HashMap<Stamp, &Outcome> =
        ranks.iter().flat_map(ended).map(|(by, _, outcome)| (by, outcome)).collect();
    let is_success = |by: &Stamp| match outcomes.get(by) {
        Some(Outcome::Ok(_) | Outcome::Split) => true,
        Some(_) => false,
        None => ranks.get(by.rank()).is_some_and(|rank| rank.incomplete),
    };
    for event in ranks.iter().flat_map(|rank| &rank.events) {
        let Event::Met { by, with } = event else { continue };
        // A result whose own call did not succeed does not count.
        for other in with.iter().filter(|other| is_success(by) && !is_success(other)) {
            violations.push(format!("{by:?} has met {other:?}, which got {:?}", outcomes.get(other)));
        }
    }
}

/// All ranks get the same reason for the end of a communicator.
fn check_causes(ranks: &[Record], violations: &mut Vec<String>) {
    let mut causes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, comm, outcome) in ranks.iter().flat_map(ended) {
        if let Outcome::Fatal(cause) = outcome {
            causes.entry(comm).or_default().insert(cause);
        }
    }
    for (comm, causes) in causes {
        if causes.len() > 1 || causes.iter().any(|cause| cause.contains("unexpected")) {
            violations.push(format!("{comm} has ended for several reasons, or a wrong one: {causes:?}"));
        }
    }
}

/// After the end of a communicator all calls on it are fatal errors.
fn check_ends(ranks: &[Record], violations: &mut Vec<String>) {
    for rank in ranks {
        let mut ends: BTreeMap<(usize, &str), Stamp> = BTreeMap::new();
        for (by, comm, outcome) in ended(rank).filter(|(.., outcome)| **outcome != Outcome::NoSplit) {
            let thread = (by.thread(), comm);
            match ends.get(&thread) {
                Some(end) if !outcome.is_fatal() => {
                    violations.push(format!("{by:?} gets {outcome:?} on {comm}, which has ended for {end:?}"));
                }
                None if outcome.is_fatal() => drop(ends.insert(thread, by)),
                _ => {}
            }
        }
    }
}
